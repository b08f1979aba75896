//! A proxy that resets connections half-way through an answer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// The proxy, on a free port of loopback. Its threads end with the test.
pub struct HalfAnswer {
    /// The port that it listens on.
    pub port: u16,
    pending: Arc<AtomicUsize>,
}

impl HalfAnswer {
    /// Starts one before a server on a port of loopback, whose answers begin with these bytes.
    pub fn before(server: u16, beginning: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let pending = Arc::<AtomicUsize>::default();
        let shared = Arc::clone(&pending);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let shared = Arc::clone(&shared);
                let (asking, answering) =
                    (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
                std::thread::spawn(move || forward(asking, answering));
                std::thread::spawn(move || answer(server, client, beginning, &shared));
            }
        });
        Self { port, pending }
    }

    /// Cuts this many of the next answers.
    pub fn cut(&self, answers: usize) {
        self.pending.fetch_add(answers, Ordering::SeqCst);
    }

    /// Returns how many answers are still to be cut.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn answer(mut from: TcpStream, mut to: TcpStream, beginning: &[u8], pending: &AtomicUsize) {
    let mut bytes = [0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let is_beginning = bytes[..length].starts_with(beginning);
        let one_less = |it: usize| it.checked_sub(1);
        if is_beginning
            && pending.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
        {
            let _ = to.write_all(&bytes[..length / 2]);
            // Closing it resets the connection.
            let _ = set_socket_linger(&to, Some(Duration::ZERO));
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Read);
            return;
        }
        if to.write_all(&bytes[..length]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
