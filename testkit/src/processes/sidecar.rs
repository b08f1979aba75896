//! A fake sidecar for the verbs: it serves a given status document by `/status`, `/watch` and the
//! long poll, until it is dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What the sidecar serves, and the requests so far.
#[derive(Default)]
struct State {
    document: String,
    /// Its identity and instance; `web-1` if empty.
    name: String,
    index: u64,
    /// Its candidates as JSON; none if empty.
    candidates: String,
    /// The delay of `/status`.
    delay: Duration,
    /// Whether a long poll ends before a change.
    hasty: bool,
    requests: Vec<String>,
    streams: Vec<TcpStream>,
    over: bool,
}

#[derive(Clone, Default)]
struct Shared(Arc<(Mutex<State>, Condvar)>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that failed while it held the lock must still be able to stop its sidecar.
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, bound: Duration, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waited = self.0.1.wait_timeout_while(self.lock(), bound, |it| !it.over && !until(it));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A fake sidecar on a free port of loopback.
pub struct Sidecar {
    pub address: SocketAddr,
    shared: Shared,
}

impl Sidecar {
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap())
    }

    /// Starts a sidecar on this address.
    pub fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Shared::default();
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let shared = serving.clone();
                if shared.lock().over {
                    return;
                }
                shared.lock().streams.push(stream.try_clone().unwrap());
                thread::spawn(move || serve(stream.try_clone().unwrap(), stream, &shared));
            }
        });
        let it = Self { address, shared };
        it.report("passive", "standby", None, 0);
        it
    }

    /// Serves one more request on a unix socket.
    pub fn also_at(&self, path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        let shared = self.shared.clone();
        thread::spawn(move || {
            if let Ok((stream, _)) = listener.accept() {
                serve(stream.try_clone().unwrap(), stream, &shared);
            }
        });
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Gives it another identity and instance.
    pub fn call(&self, name: &str) {
        self.shared.lock().name = name.to_owned();
        self.report("passive", "standby", None, 0);
    }

    /// Adds an array of candidates to each status from the next on.
    pub fn report_candidates(&self, candidates: &str) {
        self.shared.lock().candidates = candidates.to_owned();
    }

    /// Changes the status.
    pub fn report(&self, role: &str, state: &str, term: Option<u64>, valid_for_ms: u64) {
        let mut it = self.shared.lock();
        it.index += 1;
        let term = term.map_or("null".to_owned(), |it| it.to_string());
        let (identity, instance) = match it.name.as_str() {
            "" => ("web-1", "01J"),
            name => (name, name),
        };
        let candidates = match it.candidates.as_str() {
            "" => String::new(),
            all => format!(r#","candidates":{}"#, all.replace('\n', "")),
        };
        it.document = format!(
            r#"{{"election":"orders","identity":"{identity}","instance":"{instance}","state":"{state}","role":"{role}","term":{term},"valid_for_ms":{valid_for_ms},"valid_until_boottime_ns":0,"boot_id":"b","since":"2026-11-20T09:00:00Z","index":{index},"holder":{{"identity":"web-1","address":"10.0.3.7:8080","term":42}},"store":{{"kind":"azure","last_success_ms_ago":412,"failures":0,"last_error":null}}{candidates},"version":"0.1.0"}}"#,
            index = it.index,
        );
        self.shared.0.1.notify_all();
    }

    /// Serves something that is not a status document.
    pub fn say_nonsense(&self) {
        self.shared.lock().document = "<html>hello</html>".to_owned();
    }

    /// Delays each answer to `/status`, after its content is fixed.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Ends each long poll at once from now on, as can happen with several sidecars behind one
    /// address.
    pub fn end_polls_at_once(&self) {
        self.shared.lock().hasty = true;
    }

    /// Waits until a path with this prefix was requested; panics after a timeout.
    pub fn wait_for(&self, path: &str) {
        let is_requested = |it: &State| it.requests.iter().any(|it| it.starts_with(path));
        let state = self.shared.wait(Duration::from_secs(20), is_requested);
        let last: Vec<_> = state.requests.iter().rev().take(5).collect();
        assert!(is_requested(&state), "nobody asked for {path}, but last for {last:?}");
    }

    /// Returns how often paths with this prefix were requested.
    pub fn count(&self, path: &str) -> usize {
        self.shared.lock().requests.iter().filter(|it| it.starts_with(path)).count()
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let streams = {
            let mut it = self.shared.lock();
            it.over = true;
            std::mem::take(&mut it.streams)
        };
        self.shared.0.1.notify_all();
        for stream in streams {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        // Wakes the listener's thread, which sees that it must stop and frees the port.
        let _ = TcpStream::connect(self.address);
        for _ in 0..1_000 {
            if TcpListener::bind(self.address).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn serve(from: impl Read, mut to: impl Write, shared: &Shared) {
    let mut lines = BufReader::new(from).lines();
    let Some(Ok(first)) = lines.next() else {
        return;
    };
    while let Some(Ok(line)) = lines.next() {
        if line.is_empty() {
            break;
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    shared.lock().requests.push(path.clone());
    shared.0.1.notify_all();
    // The client may close the connection at any time.
    let _ = match path.split_once('?') {
        None if path == "/status" => {
            let (document, delay) = {
                let it = shared.lock();
                (it.document.clone(), it.delay)
            };
            thread::sleep(delay);
            answer(&mut to, "200 OK", &document)
        }
        None if path == "/watch" => stream(&mut to, shared),
        Some(("/watch", query)) => {
            let value = |name: &str| {
                query.split('&').find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
            };
            let index: u64 = value("index").unwrap().parse().unwrap();
            let wait = tenure::config::duration::parse(value("wait").unwrap()).unwrap();
            let document = shared.wait(wait, |it| it.hasty || it.index != index).document.clone();
            answer(&mut to, "200 OK", &document)
        }
        _ => answer(&mut to, "404 Not Found", "no such path"),
    };
}

fn answer(to: &mut impl Write, code: &str, body: &str) -> std::io::Result<()> {
    write!(to, "HTTP/1.1 {code}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Sends the status at once, at each change, and as a keep-alive, as a sidecar does every 10 s.
fn stream(to: &mut impl Write, shared: &Shared) -> std::io::Result<()> {
    write!(to, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")?;
    loop {
        let (document, index) = {
            let it = shared.lock();
            if it.over {
                return Ok(());
            }
            (it.document.clone(), it.index)
        };
        write!(to, "id: {index}\ndata: {document}\n\n")?;
        drop(shared.wait(Duration::from_millis(50), |it| it.index != index));
    }
}
