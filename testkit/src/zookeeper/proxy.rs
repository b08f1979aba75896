//! A proxy before a server of ZooKeeper that knows where its messages begin: it keeps notifications back, and
//! delivers transactions twice and late.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The number of a notification.
const NOTIFICATION: i32 = -1;

/// The kind of a transaction.
const MULTI: i32 = 14;

/// The proxy, on a free port of loopback. Its threads end with the test.
pub struct MessageProxy {
    /// The port that it listens on.
    pub port: u16,
    rules: Arc<Rules>,
}

#[derive(Default)]
struct Rules {
    is_silent: AtomicBool,
    kept_back: AtomicUsize,
    late: AtomicUsize,
}

impl MessageProxy {
    /// Starts one before a server on a port of loopback.
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let rules = Arc::<Rules>::default();
        let shared = Arc::clone(&rules);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let [asking, answering] =
                    [&client, &server].map(|it| it.try_clone().expect("a handle"));
                let [one, other] = [Arc::clone(&shared), Arc::clone(&shared)];
                std::thread::spawn(move || forward(asking, server, &one));
                std::thread::spawn(move || answer(answering, client, &other));
            }
        });
        Self { port, rules }
    }

    /// Keeps all notifications back from now on, while everything else is answered.
    pub fn silence(&self) {
        self.rules.is_silent.store(true, Ordering::SeqCst);
    }

    /// Returns how many notifications were kept back.
    pub fn kept_back(&self) -> usize {
        self.rules.kept_back.load(Ordering::SeqCst)
    }

    /// Delivers this many of the next transactions two seconds late, and twice, whether or not the client is
    /// still there.
    pub fn delay(&self, transactions: usize) {
        self.rules.late.fetch_add(transactions, Ordering::SeqCst);
    }

    /// Returns how many are still to be delayed.
    pub fn pending(&self) -> usize {
        self.rules.late.load(Ordering::SeqCst)
    }
}

/// Reads the next message, with its length.
fn message(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut whole = vec![0; 4];
    from.read_exact(&mut whole).ok()?;
    let length = u32::from_be_bytes(whole[..].try_into().ok()?);
    whole.resize(4 + usize::try_from(length).ok()?, 0);
    from.read_exact(&mut whole[4..]).ok()?;
    Some(whole)
}

fn number(message: &[u8], at: usize) -> Option<i32> {
    message.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes)
}

fn forward(mut from: TcpStream, mut to: TcpStream, rules: &Rules) {
    while let Some(message) = message(&mut from) {
        let one_less = |it: usize| it.checked_sub(1);
        let is_late = number(&message, 8) == Some(MULTI)
            && rules.late.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok();
        if is_late {
            std::thread::sleep(Duration::from_secs(2));
        }
        for _ in 0..=usize::from(is_late) {
            if to.write_all(&message).is_err() {
                return;
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn answer(mut from: TcpStream, mut to: TcpStream, rules: &Rules) {
    let mut is_first = true;
    while let Some(message) = message(&mut from) {
        // The first message begins the session, and has no number.
        let is_notification =
            !std::mem::take(&mut is_first) && number(&message, 4) == Some(NOTIFICATION);
        if is_notification && rules.is_silent.load(Ordering::SeqCst) {
            rules.kept_back.fetch_add(1, Ordering::SeqCst);
        } else if to.write_all(&message).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
