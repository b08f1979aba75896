//! Free ports of loopback for servers whose port must be chosen in advance.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::net::TcpSocket;

/// Below the range for outgoing connections and port 0 on Linux (32768 and up), so that the kernel
/// never assigns a claimed port.
const FIRST: u16 = 10_240;
const COUNT: u16 = 22_000;

/// Returns a port of 127.0.0.1 that is not in use, and that no other test gets while this process
/// lives: each is claimed by a lock on a file.
pub fn free_port() -> u16 {
    static CLAIMS: OnceLock<Mutex<Vec<File>>> = OnceLock::new();
    let directory = std::env::temp_dir().join("tenure-test-ports");
    std::fs::create_dir_all(&directory).expect("a directory for the claims");
    loop {
        let port = FIRST + fastrand::u16(..COUNT);
        let Ok(claim) = File::create(directory.join(port.to_string())) else { continue };
        if claim.try_lock().is_ok() && can_bind(port) {
            let mut claims = CLAIMS.get_or_init(Mutex::default).lock();
            claims.as_mut().unwrap_or_else(|it| PoisonError::get_mut(it)).push(claim);
            return port;
        }
    }
}

/// Returns whether a server can bind the port. This never listens: a process that another thread starts
/// meanwhile inherits the socket until its `exec`, and would accept the first connections to the server.
fn can_bind(port: u16) -> bool {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option of sockets");
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_ok()
}
