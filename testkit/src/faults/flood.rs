//! An HTTP endpoint that sends a text again and again until its client closes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An interim answer, of which there may be any number before the final one.
pub const EARLY_HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";

/// The endpoint; its threads end with the test's process.
pub struct Flood {
    pub address: SocketAddr,
    closed: Arc<AtomicU64>,
}

impl Flood {
    /// Answers each request with `head`, then with `text` for as long as the client reads.
    pub fn start(head: &'static str, text: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let closed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&closed);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let count = Arc::clone(&count);
                std::thread::spawn(move || {
                    serve(stream.expect("a connection"), head, text);
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, closed }
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Returns how many connections have ended.
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, head: &str, text: &str) {
    let _ = stream.read(&mut [0; 4096]);
    let _ = stream.write_all(head.as_bytes());
    let many = text.repeat(65_536 / text.len().max(1));
    while !many.is_empty() && stream.write_all(many.as_bytes()).is_ok() {}
}
