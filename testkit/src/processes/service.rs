//! A service next to Tenure, as a target of probes and webhooks: it answers every request with the
//! code that the test sets, and records the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// One received request.
#[derive(Clone, Debug)]
pub struct Received {
    pub line: String,
    pub head: Vec<String>,
    pub body: String,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.iter().filter_map(|line| line.split_once(": "));
        lines.find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

#[derive(Default)]
struct State {
    answer: String,
    fails_once: bool,
    /// The delay of each answer.
    delay: Duration,
    received: Vec<Received>,
    /// The number of requests in progress, and their maximum.
    now: usize,
    most: usize,
    over: bool,
}

/// The service; stops when it is dropped.
pub struct Service {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Service {
    /// Starts a healthy service on a free port of loopback.
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"))
    }

    /// Starts a healthy service on this address.
    pub fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(State::default()));
        let serving = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let state = Arc::clone(&serving);
                if lock(&state).over {
                    return;
                }
                thread::spawn(move || stream.and_then(|it| serve(&it, &state)));
            }
        });
        let it = Self { address, state };
        it.answer("200 OK");
        it
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Sets the answer from now on: a status code, and optionally more lines of the head.
    pub fn answer(&self, answer: &str) {
        lock(&self.state).answer = answer.to_owned();
    }

    /// Answers the next request with a failure.
    pub fn fail_once(&self) {
        lock(&self.state).fails_once = true;
    }

    /// Sets the delay of each answer from now on.
    pub fn delay(&self, delay: Duration) {
        lock(&self.state).delay = delay;
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<Received> {
        lock(&self.state).received.clone()
    }

    /// Returns the maximum number of concurrent requests.
    pub fn most_at_once(&self) -> usize {
        lock(&self.state).most
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        lock(&self.state).over = true;
        // Wakes the listener's thread, which sees that it must stop and frees the port.
        let _ = TcpStream::connect(self.address);
        for _ in 0..1_000 {
            if TcpStream::connect(self.address).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(());
    }
    let mut head = Vec::new();
    loop {
        let mut next = String::new();
        reader.read_line(&mut next)?;
        match next.trim_end() {
            "" => break,
            text => head.push(text.to_owned()),
        }
    }
    let mut received = Received { line: line.trim_end().to_owned(), head, body: String::new() };
    let length = received.header("content-length").map_or(0, |it| it.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    received.body = String::from_utf8(body).expect("text");
    let (answer, delay) = {
        let mut it = lock(state);
        it.received.push(received);
        it.now += 1;
        it.most = it.most.max(it.now);
        let fails = std::mem::take(&mut it.fails_once);
        let answer = if fails { "500 Internal Server Error" } else { &it.answer };
        (answer.to_owned(), it.delay)
    };
    thread::sleep(delay);
    lock(state).now -= 1;
    let mut stream = stream;
    write!(stream, "HTTP/1.1 {answer}\r\nContent-Length: 3\r\n\r\nok\n")
}
