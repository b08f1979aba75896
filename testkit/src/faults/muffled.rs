//! A proxy that holds back what a server sends on some connections, which stay open.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The proxy, on a free port of loopback. Its threads end with the test.
pub struct Muffled {
    /// The port that it listens on.
    pub port: u16,
    is_muffled: Arc<AtomicBool>,
}

impl Muffled {
    /// Starts one before a server on a port of loopback, whose watches are requests with this text at the
    /// beginning.
    pub fn before(server: u16, watch: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let is_muffled = Arc::<AtomicBool>::default();
        let shared = Arc::clone(&is_muffled);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let muffled = [Arc::clone(&shared), Arc::default()];
                let is_watch = Arc::clone(&muffled[1]);
                let clones = (client.try_clone(), server.try_clone());
                let (Ok(asking), Ok(answering)) = clones else { continue };
                std::thread::spawn(move || {
                    forward(asking, server, |bytes| {
                        let text = String::from_utf8_lossy(bytes);
                        is_watch.store(text.contains(watch), Ordering::SeqCst);
                        true
                    });
                });
                std::thread::spawn(move || {
                    forward(answering, client, |_| {
                        !muffled.iter().all(|it| it.load(Ordering::SeqCst))
                    });
                });
            }
        });
        Self { port, is_muffled }
    }

    /// Holds back what is sent on watches from now on, or stops that; what was held back is lost.
    pub fn muffle(&self, is_muffled: bool) {
        self.is_muffled.store(is_muffled, Ordering::SeqCst);
    }
}

/// Forwards what may pass.
fn forward(mut from: TcpStream, mut to: TcpStream, may_pass: impl Fn(&[u8]) -> bool) {
    let mut bytes = [0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if may_pass(&bytes[..length]) && to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
