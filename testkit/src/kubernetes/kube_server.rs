//! An API server of the tests' own, that answers as Kubernetes' does by its public documentation:
//! Leases, Pods, Services, EndpointSlices, Events and namespaces, with compare-and-set, watches,
//! tokens and rights, over plain HTTP or TLS; with faults to order and a log of what was asked.
//!
//! It lives on a thread of its own, so that plain tests and asynchronous ones use it alike. What it
//! does not do: schemas in full, subresources, discovery, finalizers, server-side apply.

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
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::sync::watch;

pub mod access;
pub mod answers;
mod forms;
pub mod kinds;
pub mod objects;
mod orders;
pub mod selectors;
mod serving;
pub mod validation;
mod watching;

use access::{Access, Right};
use answers::Answer;
use kinds::{REVIEWS, Target};
use objects::{Objects, Writer};
use selectors::Selector;
use serving::Serving;
pub use serving::Tls;
use watching::Watching;

/// The token that may do everything; it stands in the token file at the start.
pub const TOKEN: &str = "the-token-of-an-administrator";

/// What goes wrong with one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Not done; this answer.
    Answer(Answer),
    /// Not done, and no answer ever.
    Hang,
    /// Done, and no answer ever.
    HangAfter,
    /// Not done; the connection is closed.
    DropBefore,
    /// Done; the connection is closed without the answer.
    DropAfter,
    /// Done so much later, and answered then.
    Delay(Duration),
    /// Done at once, and answered so much later.
    Late(Duration),
    /// Not done; a page for people, with status 200.
    Html,
    /// Not done; the answer leads to another URL.
    Redirect(String),
}

/// One request as it came in.
#[derive(Clone, Debug)]
pub struct Logged {
    /// What was asked, as in `update leases`; of a path that there is not, the method.
    pub op: String,
    pub path: String,
    pub query: HashMap<String, String>,
    /// The headers, in lower case.
    pub headers: HashMap<String, String>,
    pub user: String,
    pub body: Value,
    /// The status of the answer, 0 if there was none.
    pub status: u16,
}

/// Everything that the server knows.
pub struct State {
    pub objects: Objects,
    pub access: Access,
    faults: Vec<(String, VecDeque<Fault>)>,
    standing: Vec<(String, Fault)>,
    log: Vec<Logged>,
    /// How far its clock is from ours, in seconds.
    skew: i64,
    bookmark_interval: Duration,
    /// How often all watches have been cut.
    cuts: u64,
    /// Whether watches are told nothing for now.
    withheld: bool,
}

/// The state, and the pulse that wakes watches when it has changed.
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

/// The server; ends when it is dropped.
pub struct KubeServer {
    /// Where it listens, stopped or not.
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

    /// Starts it over TLS; [`ca_file`](Self::ca_file) is what signed its certificate.
    pub fn start_secure() -> Self {
        Self::with(Some(Tls::new("127.0.0.1")))
    }

    /// Starts it with a certificate of the test's making.
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
            names: Vec::new(),
        });
        let state = State {
            // A cluster has seen much before anybody comes.
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

    /// What `--kube-api` is given.
    pub fn url(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The directory of the token file and the authority's certificate, laid out as a service
    /// account's.
    pub fn account_directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// The file that `--kube-token-file` is given.
    pub fn token_file(&self) -> PathBuf {
        self.directory.path().join("token")
    }

    /// The file that `--kube-ca-file` is given; there over TLS only.
    pub fn ca_file(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// Has the token file hold another token.
    pub fn write_token(&self, token: &str) {
        // As the kubelet does it: another file takes the name.
        let new = self.directory.path().join("token.new");
        std::fs::write(&new, token).expect("written");
        std::fs::rename(new, self.token_file()).expect("renamed");
    }

    /// The arguments that have `tenure` use this server with the token file.
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

    /// Closes its port and all connections, as a killed server does. The port stays its own.
    pub fn stop(&self) {
        self.serving.stop();
    }

    /// Listens again where it did.
    pub fn resume(&self) {
        self.serving.resume();
    }

    /// Closes all connections, and goes on listening.
    pub fn cut_connections(&self) {
        self.stop();
        self.resume();
    }

    /// Changes anything, and wakes the watches.
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

/// Why a connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("dropped on order")]
pub struct Dropped;

/// Whole answers and watches.
pub type Body = Either<Full<Bytes>, StreamBody<BoxStream<'static, Result<Frame<Bytes>, Dropped>>>>;

fn whole(text: String) -> Body {
    Either::Left(Full::new(Bytes::from(text)))
}
