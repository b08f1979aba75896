//! A TCP proxy in front of the store of one candidate that injects faults, into all requests from
//! now on or into the next ones of a kind.
//!
//! Each request is sent to the store over a connection of its own, so that it can be late,
//! duplicated or out of order even if the candidate is gone by then. The proxy does not support
//! TLS, and does not change requests.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

pub use crate::http::wire::{Call, Message};

/// The timeout of one request to the store.
const STORE: Duration = Duration::from_secs(30);

/// How a connection continues after its request or answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It stays open, and nothing more is sent on it.
    Silence,
    /// It is closed normally.
    Close,
    /// It is reset (RST).
    Reset,
}

/// A fault of one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// No fault.
    Pass,
    /// Delays request and answer. The request reaches the store even if the candidate has given up,
    /// and may arrive after later ones.
    Delay { request: Duration, answer: Duration },
    /// The store does not receive the request.
    DropBefore(Then),
    /// The store performs the request; the answer is lost.
    DropAfter(Then),
    /// The request reaches the store a second time, this much after the first; the candidate
    /// receives the answer to the first.
    Duplicate { after: Duration },
    /// The store performs the request; the answer arrives byte by byte, at these intervals.
    Trickle(Duration),
    /// The store does not receive the request; the candidate receives these bytes instead of an
    /// answer, and the connection is closed.
    Garbage(Vec<u8>),
    /// The store does not receive the request; the candidate receives this answer, and the connection
    /// stays open.
    Answer(Vec<u8>),
}

/// How connections are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Door {
    /// They are served.
    #[default]
    Open,
    /// They are accepted, but nothing is read from them; existing ones are reset.
    Deaf,
    /// They are refused, and existing ones are reset.
    Shut,
}

/// One received request.
#[derive(Clone, Debug)]
pub struct Seen {
    pub number: usize,
    /// The call.
    pub call: Call,
    /// The lease that it is for.
    pub lease: Option<String>,
    /// The number of its connection.
    pub connection: u64,
    /// When it arrived, on the raw monotonic clock.
    pub at: Duration,
    /// The status that the store returned; 0 if the store has not answered, or was not called.
    pub status: u16,
}

#[derive(Default)]
struct State {
    /// Faults for all requests of a kind.
    standing: Vec<(Call, Fault)>,
    /// Faults for the next requests of a kind, one each.
    queued: VecDeque<(Call, Fault)>,
    log: Vec<Seen>,
    noted: usize,
    /// The last request of each kind.
    last: Vec<Message>,
    connections: HashMap<u64, TcpStream>,
    accepted: u64,
    door: Door,
    over: bool,
}

struct Shared {
    state: Mutex<State>,
    ended: Condvar,
    store: SocketAddr,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that failed while it held the lock must still be able to stop its proxy.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; returns false as soon as the proxy has stopped.
    fn wait(&self, length: Duration) -> bool {
        let (state, _) = self
            .ended
            .wait_timeout_while(self.lock(), length, |state| !state.over)
            .unwrap_or_else(PoisonError::into_inner);
        !state.over
    }
}

/// The proxy; stops when it is dropped.
pub struct FaultProxy {
    /// The address that it listens on.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    listener: Mutex<Option<TcpListener>>,
    /// Bound, but never listening: reserves the port while connections are refused.
    _place: OwnedFd,
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.ended.notify_all();
        self.door(Door::Shut);
    }
}

impl FaultProxy {
    /// Starts a proxy in front of a store, on a free port of loopback.
    pub fn start(store: SocketAddr) -> Self {
        Self::start_on((Ipv4Addr::LOCALHOST, 0), store)
    }

    /// Starts a proxy on one of this host's addresses; port 0 selects a free port.
    pub fn start_on(at: impl Into<SocketAddr>, store: SocketAddr) -> Self {
        // Closed on exec, so that a child of another test does not keep the port.
        let flags = SocketFlags::CLOEXEC;
        let place = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let place = place.expect("a socket");
        sockopt::set_socket_reuseaddr(&place, true).expect("the address can be shared");
        rustix::net::bind(&place, &at.into()).expect("a free port");
        let address = rustix::net::getsockname(&place).expect("an address");
        let address = SocketAddr::try_from(address).expect("an address of TCP");
        let shared = Shared { state: Mutex::default(), ended: Condvar::new(), store };
        let listener = Mutex::new(None);
        let it = Self { address, shared: Arc::new(shared), listener, _place: place };
        it.door(Door::Open);
        it
    }

    /// Starts a proxy in front of the host and port of a URL.
    pub fn before(endpoint: &url::Url) -> Self {
        let store = endpoint.socket_addrs(|| None).expect("host and port");
        Self::start(store[0])
    }

    /// Returns a URL with the same path that leads through the proxy.
    pub fn endpoint(&self, of: &url::Url) -> String {
        format!("http://{}{}", self.address, of.path())
    }

    /// Injects a fault into all requests of a kind from now on, except for those with a fault of
    /// [`next`](Self::next).
    pub fn always(&self, call: Call, fault: Fault) {
        self.shared.lock().standing.insert(0, (call, fault));
    }

    /// Injects faults into the next requests of a kind, one each.
    pub fn next(&self, call: Call, faults: impl IntoIterator<Item = Fault>) {
        self.shared.lock().queued.extend(faults.into_iter().map(|fault| (call, fault)));
    }

    /// Removes all faults that have not occurred yet, and serves connections again.
    pub fn heal(&self) {
        let mut state = self.shared.lock();
        state.standing.clear();
        state.queued.clear();
        drop(state);
        self.door(Door::Open);
    }

    /// Returns the number of faults of [`next`](Self::next) that have not occurred yet.
    pub fn pending(&self) -> usize {
        self.shared.lock().queued.len()
    }

    /// Sets how connections are treated from now on.
    pub fn door(&self, door: Door) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.lock().door = door;
        if door == Door::Shut {
            if let Some(open) = listener.take() {
                // Wakes the accepting thread, which closes the listener.
                let _ = rustix::net::shutdown(&open, rustix::net::Shutdown::Read);
            }
        } else if listener.is_none() {
            let bound = TcpListener::bind(self.address).expect("its port is kept");
            let accepting = bound.try_clone().expect("a socket");
            let shared = Arc::clone(&self.shared);
            thread::spawn(move || accept(&accepting, &shared));
            *listener = Some(bound);
        }
        if door != Door::Open {
            self.break_connections();
        }
    }

    /// Resets the existing connections (RST).
    pub fn break_connections(&self) {
        for (_, stream) in self.shared.lock().connections.drain() {
            let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
            // Wakes the thread that reads from it, which then closes it.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    /// Sends the last request of a kind to the store once more, and returns the status of the
    /// answer.
    pub fn replay(&self, call: Call) -> u16 {
        let last = self.shared.lock().last.iter().find(|it| it.call() == call).cloned();
        let last = last.expect("there was such a request");
        deliver(&self.shared, &last).expect("the store answers").status()
    }

    /// Returns the requests since the start or the last [`take_log`](Self::take_log).
    pub fn log(&self) -> Vec<Seen> {
        self.shared.lock().log.clone()
    }

    /// Returns the log and clears it.
    pub fn take_log(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.lock().log)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept() {
        let Ok(kept) = stream.try_clone() else { continue };
        let mut state = shared.lock();
        let door = state.door;
        if door == Door::Shut {
            // Accepted just before, and not among the connections that were reset.
            let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
            continue;
        }
        state.accepted += 1;
        let id = state.accepted;
        state.connections.insert(id, kept);
        drop(state);
        let shared = Arc::clone(shared);
        if door == Door::Open {
            thread::spawn(move || {
                let _ = serve(stream, id, &shared);
                shared.lock().connections.remove(&id);
            });
        }
    }
}

/// Serves one connection of the candidate until either side closes it.
fn serve(stream: TcpStream, id: u64, shared: &Arc<Shared>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = Message::request(&mut reader)? {
        let (number, fault) = note(&request, id, shared);
        let stream = reader.get_mut();
        let ask = || {
            let answer = deliver(shared, &request)?;
            // The log may have been taken by now.
            if let Some(seen) = shared.lock().log.iter_mut().find(|it| it.number == number) {
                seen.status = answer.status();
            }
            Ok::<_, io::Error>(answer.bytes)
        };
        match fault {
            Fault::Pass => stream.write_all(&ask()?)?,
            Fault::Delay { request, answer } => {
                if !shared.wait(request) {
                    return Ok(());
                }
                let bytes = ask()?;
                if !shared.wait(answer) {
                    return Ok(());
                }
                stream.write_all(&bytes)?;
            }
            Fault::DropBefore(then) => return lose(stream, then),
            Fault::DropAfter(then) => {
                ask()?;
                return lose(stream, then);
            }
            Fault::Duplicate { after } => {
                let bytes = ask()?;
                let (again, shared) = (request.clone(), Arc::clone(shared));
                thread::spawn(move || {
                    if shared.wait(after) {
                        let _ = deliver(&shared, &again);
                    }
                });
                stream.write_all(&bytes)?;
            }
            Fault::Trickle(interval) => {
                for byte in ask()? {
                    stream.write_all(&[byte])?;
                    if !shared.wait(interval) {
                        return Ok(());
                    }
                }
            }
            Fault::Garbage(bytes) => return stream.write_all(&bytes),
            Fault::Answer(bytes) => stream.write_all(&bytes)?,
        }
    }
    Ok(())
}

/// Logs a request, and returns its number and its fault.
fn note(request: &Message, connection: u64, shared: &Shared) -> (usize, Fault) {
    let (call, at) = (request.call(), tenure::clock::now().raw);
    let mut state = shared.lock();
    state.last.retain(|it| it.call() != call);
    state.last.push(request.clone());
    state.noted += 1;
    let number = state.noted;
    state.log.push(Seen { number, call, lease: request.lease(), connection, at, status: 0 });
    let concerns = |it: &(Call, Fault)| it.0 == call || it.0 == Call::Any;
    let queued = state.queued.iter().position(concerns);
    let fault = match queued.and_then(|index| state.queued.remove(index)) {
        Some((_, fault)) => fault,
        None => {
            state.standing.iter().find(|it| concerns(it)).map_or(Fault::Pass, |it| it.1.clone())
        }
    };
    (number, fault)
}

/// Sends a request to the store over a connection of its own, and reads the answer.
fn deliver(shared: &Shared, request: &Message) -> io::Result<Message> {
    let mut stream = TcpStream::connect_timeout(&shared.store, STORE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STORE))?;
    stream.write_all(&request.bytes)?;
    Message::answer(&mut BufReader::new(stream), request)
}

/// Leaves a request without an answer.
fn lose(stream: &mut TcpStream, then: Then) -> io::Result<()> {
    match then {
        Then::Silence => io::copy(stream, &mut io::sink()).map(drop),
        Then::Close => stream.shutdown(Shutdown::Write),
        Then::Reset => Ok(sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?),
    }
}
