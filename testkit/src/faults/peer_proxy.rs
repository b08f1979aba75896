//! A proxy before the stream of a candidate for its peers, which cuts, delays and replays what the
//! candidate sends. It forwards bytes, and understands no more than where an event begins and ends.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How often a connection checks what it is to do.
const CHECK: Duration = Duration::from_millis(20);

/// A proxy on a port of loopback; ends when it is dropped.
pub struct PeerProxy {
    pub address: SocketAddr,
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Whether new connections are refused.
    is_cut: bool,
    delay: Duration,
    /// The clients' ends, and those of the candidate.
    open: Vec<(TcpStream, TcpStream)>,
    /// All that the candidate has sent, with the frames of HTTP.
    sent: String,
    over: bool,
}

impl PeerProxy {
    /// Starts a proxy at `address` before the candidate at `target`.
    pub fn start(address: SocketAddr, target: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let shared = Arc::new(Mutex::new(State::default()));
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let mut state = lock(&serving);
                if state.over {
                    return;
                }
                let Ok(candidate) = TcpStream::connect(target) else { continue };
                if state.is_cut {
                    continue;
                }
                let second = |it: &TcpStream| it.try_clone().expect("a second handle");
                state.open.push((second(&client), second(&candidate)));
                drop(state);
                let (from, to) = (second(&client), second(&candidate));
                thread::spawn(move || forward(from, to, |bytes, to| to.write_all(bytes)));
                let shared = Arc::clone(&serving);
                thread::spawn(move || answer(candidate, client, &shared));
            }
        });
        Self { address, shared }
    }

    /// Closes all connections and refuses new ones, or accepts them again.
    pub fn cut(&self, is_cut: bool) {
        let mut state = lock(&self.shared);
        state.is_cut = is_cut;
        if is_cut {
            close(&mut state);
        }
    }

    /// Delays everything that the candidate sends from now on.
    pub fn delay(&self, delay: Duration) {
        lock(&self.shared).delay = delay;
    }

    /// Returns the last event of this kind that the candidate has sent, as it was sent.
    pub fn last(&self, kind: &str) -> Option<String> {
        let sent = lock(&self.shared).sent.clone();
        let begin = sent.rfind(&format!("event: {kind}\n"))?;
        let length = sent[begin..].find("\n\n")? + 2;
        Some(sent[begin..begin + length].to_owned())
    }

    /// Sends an event to all clients, as if the candidate had sent it.
    pub fn send(&self, event: &str) {
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        for (client, _) in &mut lock(&self.shared).open {
            // A client may be gone.
            let _ = client.write_all(chunk.as_bytes());
        }
    }
}

impl Drop for PeerProxy {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.over = true;
        close(&mut state);
        drop(state);
        // Wakes the listener's thread, which sees that it must end.
        let _ = TcpStream::connect(self.address);
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(state: &mut State) {
    for (client, candidate) in state.open.drain(..) {
        let _ = client.shutdown(Shutdown::Both);
        let _ = candidate.shutdown(Shutdown::Both);
    }
}

/// Forwards what the candidate sends, late if it is to be.
fn answer(candidate: TcpStream, client: TcpStream, shared: &Mutex<State>) {
    forward(candidate, client, |bytes, client| {
        let mut waited = Duration::ZERO;
        while waited < lock(shared).delay && !lock(shared).is_cut {
            thread::sleep(CHECK);
            waited += CHECK;
        }
        // Whoever sends an event holds the lock, too, so that both are whole.
        let mut state = lock(shared);
        state.sent += &String::from_utf8_lossy(bytes);
        client.write_all(bytes)
    });
}

/// Forwards bytes until one end closes.
fn forward(
    mut from: TcpStream,
    mut to: TcpStream,
    mut send: impl FnMut(&[u8], &mut TcpStream) -> std::io::Result<()>,
) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        if send(&bytes[..length], &mut to).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
