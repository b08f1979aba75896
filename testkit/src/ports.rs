//! Ports of loopback for servers that must be told their port.

use std::fs::File;
use std::net::TcpListener;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Below the range that Linux gives to outgoing connections and to port 0 (32768 and up), so that
/// nobody is given a claimed port by the kernel.
const FIRST: u16 = 10_240;
const COUNT: u16 = 22_000;

/// Returns a port of 127.0.0.1 on which nobody listens and which no other test is given while this
/// process lives: each is claimed by a lock on a file.
pub fn free_port() -> u16 {
    static CLAIMS: OnceLock<Mutex<Vec<File>>> = OnceLock::new();
    let directory = std::env::temp_dir().join("tenure-test-ports");
    std::fs::create_dir_all(&directory).expect("a directory for the claims");
    loop {
        let port = FIRST + fastrand::u16(..COUNT);
        let Ok(claim) = File::create(directory.join(port.to_string())) else { continue };
        if claim.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            let mut claims = CLAIMS.get_or_init(Mutex::default).lock();
            claims.as_mut().unwrap_or_else(|it| PoisonError::get_mut(it)).push(claim);
            return port;
        }
    }
}
