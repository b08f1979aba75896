//! A DNS resolver for one name, on a loopback address that only the tests use, and the command
//! prefix that makes it the only resolver of a command.
//!
//! It answers over UDP only, and serves only `A` records. It requires root, for port 53 and for the
//! mount namespace in which `/etc/resolv.conf` names it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How the resolver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The name has this address, with a time to live of zero.
    Address(Ipv4Addr),
    /// The name does not exist: NXDOMAIN.
    NoSuchName,
    /// No answer, ever.
    Silence,
}

struct Shared {
    reply: Mutex<Reply>,
    queries: AtomicUsize,
    over: AtomicBool,
}

/// The resolver; stops when it is dropped.
pub struct Resolver {
    file: String,
    shared: Arc<Shared>,
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

impl Resolver {
    /// Starts it, and writes the `resolv.conf` that names it to a directory.
    pub fn start(directory: &Path, reply: Reply) -> Self {
        let (socket, host) = loop {
            let [.., one, two, three] = uuid::Uuid::new_v4().into_bytes();
            let host = Ipv4Addr::new(127, one | 1, two, three | 1);
            match UdpSocket::bind((host, 53)) {
                Ok(socket) => break (socket, host),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => panic!("port 53 of {host} needs root: {error}"),
            }
        };
        let wake = Duration::from_millis(100);
        socket.set_read_timeout(Some(wake)).expect("a time-out");
        let file = directory.join("resolv.conf");
        std::fs::write(&file, format!("nameserver {host}\n")).expect("written");
        let shared = Arc::new(Shared {
            reply: Mutex::new(reply),
            queries: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let answering = Arc::clone(&shared);
        thread::spawn(move || answer(&socket, &answering));
        Self { file: file.to_str().expect("a path in UTF-8").to_owned(), shared }
    }

    /// Sets the answer from now on.
    pub fn reply(&self, reply: Reply) {
        *self.shared.reply.lock().unwrap_or_else(PoisonError::into_inner) = reply;
    }

    /// Returns the number of queries so far.
    pub fn queries(&self) -> usize {
        self.shared.queries.load(Ordering::Relaxed)
    }

    /// Returns the path of the `resolv.conf` that names it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the command prefix that makes it the only resolver of a command.
    pub fn by(&self) -> [&str; 6] {
        let script = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;
        ["unshare", "--mount", "sh", "-c", script, &self.file]
    }
}

fn answer(socket: &UdpSocket, shared: &Shared) {
    let mut question = [0; 512];
    while !shared.over.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
        shared.queries.fetch_add(1, Ordering::Relaxed);
        let reply = *shared.reply.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = message(&question[..length], reply) {
            send(socket, &message, from);
        }
    }
}

fn send(socket: &UdpSocket, message: &[u8], to: SocketAddr) {
    // The client may be gone.
    let _ = socket.send_to(message, to);
}

/// Builds the answer to a query, which repeats the question.
fn message(question: &[u8], reply: Reply) -> Option<Vec<u8>> {
    const HEAD: usize = 12;
    let name = question.get(HEAD..)?.iter().position(|byte| *byte == 0)?;
    let question = question.get(..HEAD + name + 5)?;
    let is_address = question[question.len() - 4..] == [0, 1, 0, 1];
    let (code, address) = match reply {
        Reply::Silence => return None,
        Reply::NoSuchName => (3, None),
        Reply::Address(address) => (0, Some(address).filter(|_| is_address)),
    };
    let answers = u8::from(address.is_some());
    let mut message = question[..2].to_vec();
    message.extend([0x81, 0x80 | code, 0, 1, 0, answers, 0, 0, 0, 0]);
    message.extend(&question[HEAD..]);
    if let Some(address) = address {
        // The name by reference, type A, class IN, a time to live of zero, four bytes.
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        message.extend(address.octets());
    }
    Some(message)
}
