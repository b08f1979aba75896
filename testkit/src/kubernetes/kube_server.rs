//! An in-process stand-in for the API server, for what a real one cannot be asked for: faults, slow
//! and late answers, lost connections, expired versions, and a log of the requests. It has the
//! requests that Tenure sends, with compare-and-set, watches, tokens and permissions, over plain
//! HTTP or TLS. That it answers these as a real one does is shown in the ring `control_plane`.
//!
//! It runs on a thread of its own, so that synchronous and asynchronous tests can use it.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::BoxStream;
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response};
use serde_json::Value;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::sync::watch;

pub mod access;
pub mod answers;
mod forms;
pub mod kinds;
pub mod objects;
mod operations;
mod serving;
mod watching;

use access::{Access, Right};
use answers::Answer;
use forms::Selector;
use kinds::{REVIEWS, Target};
use objects::Objects;
use serving::Serving;
pub use serving::Tls;
use watching::Watching;

/// The token with all permissions; initially in the token file.
pub const TOKEN: &str = "the-token-of-an-administrator";

/// A fault of one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Not performed; returns this answer.
    Answer(Answer),
    /// Not performed; never answered.
    Hang,
    /// Performed; never answered.
    HangAfter,
    /// Not performed; the connection is closed.
    DropBefore,
    /// Performed; the connection is closed without an answer.
    DropAfter,
    /// Performed and answered after this delay.
    Delay(Duration),
    /// Performed at once, and answered after this delay.
    Late(Duration),
    /// Not performed; returns an HTML page with status 200.
    Html,
    /// Not performed; redirects to another URL.
    Redirect(String),
}

/// One received request.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The operation, such as `update leases`; the method if the path is unknown.
    pub op: String,
    pub path: String,
    pub query: HashMap<String, String>,
    /// The headers, with names in lower case.
    pub headers: HashMap<String, String>,
    pub user: String,
    pub body: Value,
    /// The status of the answer; 0 if there was none.
    pub status: u16,
}

/// The state of the server.
pub struct State {
    pub objects: Objects,
    pub access: Access,
    faults: Vec<(String, VecDeque<Fault>)>,
    standing: Vec<(String, Fault)>,
    log: Vec<Logged>,
    /// How far its clock is ahead of the test's, in seconds.
    skew: i64,
    bookmark_interval: Duration,
    /// The number of times that all watches were cut.
    cuts: u64,
    /// Whether watches currently receive nothing.
    withheld: bool,
}

/// The state, and the channel that wakes watches when it has changed.
pub struct Shared {
    state: Mutex<State>,
    pulse: watch::Sender<u64>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        self.pulse.send_modify(|beats| *beats += 1);
    }
}

/// The server; stops when it is dropped.
pub struct KubeServer {
    /// The address that it listens on, also while stopped.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    serving: Serving,
    secure: bool,
    directory: TempDir,
}

impl KubeServer {
    /// Starts it over plain HTTP, with the namespaces `default` and `team`.
    pub fn start() -> Self {
        Self::with(None)
    }

    /// Starts it over TLS; [`ca_file`](Self::ca_file) is the certificate of its authority.
    pub fn start_secure() -> Self {
        Self::with(Some(Tls::new("127.0.0.1")))
    }

    /// Starts it over TLS with this certificate, or over plain HTTP.
    pub fn with(tls: Option<Tls>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        if let Some(tls) = &tls {
            std::fs::write(directory.path().join("ca.crt"), &tls.authority).expect("written");
        }
        let mut access = Access::default();
        access.tokens.insert(TOKEN.to_owned(), Some("admin".to_owned()));
        let right = |text: &str| text.to_owned();
        access.rights.push(Right {
            user: right("admin"),
            namespace: String::new(),
            group: right("*"),
            resource: right("*"),
            verbs: vec![right("*")],
        });
        let state = State {
            // A real cluster has a history, too.
            objects: Objects::at(1000),
            access,
            faults: Vec::new(),
            standing: Vec::new(),
            log: Vec::new(),
            skew: 0,
            bookmark_interval: Duration::from_secs(60),
            cuts: 0,
            withheld: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), pulse: watch::channel(0).0 });
        let secure = tls.is_some();
        let serving = Serving::start(&shared, tls);
        let address = serving.address;
        let it = Self { address, shared, serving, secure, directory };
        it.write_token(TOKEN);
        it.namespace("default");
        it.namespace("team");
        it
    }

    /// Returns the value for `--kube-api`.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Returns the value for `--kube-token-file`.
    pub fn token_file(&self) -> PathBuf {
        self.directory.path().join("token")
    }

    /// Returns the value for `--kube-ca-file`; the file exists only over TLS.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// Replaces the token in the token file.
    pub fn write_token(&self, token: &str) {
        // By a rename, as the kubelet does.
        let new = self.directory.path().join("token.new");
        std::fs::write(&new, token).expect("written");
        std::fs::rename(new, self.token_file()).expect("renamed");
    }

    /// Returns the arguments that make `tenure` use this server and the token file.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "--kube-api".to_owned(),
            self.url(),
            "--kube-token-file".to_owned(),
            self.token_file().display().to_string(),
        ];
        if self.secure {
            arguments.extend(["--kube-ca-file".to_owned(), self.ca_file().display().to_string()]);
        }
        arguments
    }

    /// Closes the listener and all connections, as if the server were killed. The port stays
    /// reserved.
    pub fn stop(&self) {
        self.serving.stop();
    }

    /// Listens on the same port again.
    pub fn resume(&self) {
        self.serving.resume();
    }

    /// Changes the state, and wakes the watches.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.shared.lock());
        self.shared.beat();
        result
    }
}

fn fits(wanted: &str, op: &str) -> bool {
    let all = wanted == "any" && !op.starts_with("watch ");
    all || wanted == op || op.split(' ').any(|it| it == wanted)
}

/// The connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("dropped on order")]
pub struct Dropped;

/// The body of an answer: complete, or the stream of a watch.
pub type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, Dropped>>>>;

fn whole(text: String) -> Body {
    Either::Left(Full::new(Bytes::from(text)))
}
