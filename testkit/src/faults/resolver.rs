//! A resolver of the tests' own for one name, on an address of loopback that only they use, and the
//! words that start a command which asks nobody else.
//!
//! What it does not do: it answers over UDP alone, and tells no other records than `A`. It needs
//! root, for port 53 and for the mount namespace in which `/etc/resolv.conf` names it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What the resolver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The name has this address, for no longer than now.
    Address(Ipv4Addr),
    /// There is no such name: NXDOMAIN.
    NoSuchName,
    /// Nothing, ever.
    Silence,
}

struct Shared {
    reply: Mutex<Reply>,
    asked: AtomicUsize,
    over: AtomicBool,
}

/// The resolver; ends when it is dropped.
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
    /// Starts it, and writes the file that names it to a directory.
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
            asked: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let answering = Arc::clone(&shared);
        thread::spawn(move || answer(&socket, &answering));
        Self { file: file.to_str().expect("a path in UTF-8").to_owned(), shared }
    }

    /// Says what is answered from now on.
    pub fn reply(&self, reply: Reply) {
        *self.shared.reply.lock().unwrap_or_else(PoisonError::into_inner) = reply;
    }

    /// How many questions there were.
    pub fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::Relaxed)
    }

    /// The file that names it, for whoever has an `/etc/resolv.conf` of his own.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The words that start a command for which this is the only resolver.
    pub fn by(&self) -> [&str; 6] {
        let script = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;
        ["unshare", "--mount", "sh", "-c", script, &self.file]
    }
}

fn answer(socket: &UdpSocket, shared: &Shared) {
    let mut question = [0; 512];
    while !shared.over.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
        shared.asked.fetch_add(1, Ordering::Relaxed);
        let reply = *shared.reply.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = message(&question[..length], reply) {
            send(socket, &message, from);
        }
    }
}

fn send(socket: &UdpSocket, message: &[u8], to: SocketAddr) {
    // Who asked may have gone.
    let _ = socket.send_to(message, to);
}

/// Makes the answer to a question, which is repeated in it.
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
        // The name again, type A, class IN, no time to live, four bytes.
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        message.extend(address.octets());
    }
    Some(message)
}
