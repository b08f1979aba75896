//! An in-process server that behaves as Azure Blob Storage does, by Microsoft's tables of lease
//! operations and of blob operations by lease state. It has a clock of its own, injectable faults,
//! and a request log.
//!
//! It keeps no blob contents and implements only the calls that a lease needs.

mod operations;
mod received;
mod serving;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure::clock::{self, Moment};
use tenure::config::AzureSettings;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use url::Url;

use simulator::store::blob_lease::Lease;

use crate::azure::azurite;
pub use crate::azure::azurite::ACCOUNT;

/// The account key at the start.
pub const KEY: &str = "bm90IGEgc2VjcmV0LCBidXQgYSB0ZXN0J3Mga2V5";

/// A fault of one request.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Not performed; returns this status and error code, for 429 and 503 with a `Retry-After` of a
    /// minute.
    Answer(u16, &'static str),
    /// Not performed; never answered.
    Hang,
    /// Performed; never answered.
    HangAfter,
    /// Not performed; the connection is closed.
    DropBefore,
    /// Performed; the connection is closed without an answer.
    DropAfter,
    /// Performed; the answer names another lease.
    WrongLease,
    /// Not performed; returns an HTML page with the status 200 or 201 that the call would have.
    Html,
    /// Not performed; answered as if it had been, with the version that the blob has.
    Unwritten,
    /// Not performed; redirects to another URL.
    Redirect(String),
}

/// The credential that requests must carry.
#[derive(Clone, Debug)]
pub enum Proof {
    /// A signature with this account key.
    Key(String),
    /// The `sig` of a shared access signature.
    Sas(String),
    /// A bearer token.
    Token(String),
}

/// One received request.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The operation: `read`, `acquire`, `renew`, `release`, `change`, `break`, `write`, `make`,
    /// `make-container`, `delete`, `delete-container`, or else the method.
    pub op: String,
    /// Path and query.
    pub url: String,
    /// The headers, with names in lower case.
    pub headers: HashMap<String, String>,
    /// The status of the answer; 0 if there was none.
    pub status: u16,
}

/// The server; stops when it is dropped.
pub struct BlobServer {
    /// The account's endpoint.
    pub endpoint: Url,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

impl Drop for BlobServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Debug)]
struct Blob {
    etag: u64,
    metadata: BTreeMap<String, String>,
    length: usize,
    tier: Option<String>,
    lease: Lease<String>,
}

#[derive(Debug, Default)]
struct Container {
    blobs: HashMap<String, Blob>,
    /// Headers of the answer to a read of the container.
    properties: Vec<(String, String)>,
}

struct State {
    containers: HashMap<String, Container>,
    /// The containers that are being deleted, with the time when that is complete.
    deleted: HashMap<String, Duration>,
    etags: u64,
    started: Moment,
    /// Whether the clock also advances with real time.
    live: bool,
    advanced: Duration,
    faults: Vec<(String, VecDeque<Fault>)>,
    proof: Proof,
    log: Vec<Logged>,
}

impl State {
    fn now(&self) -> Duration {
        let flown = if self.live { self.started.elapsed_max(clock::now()) } else { Duration::ZERO };
        flown + self.advanced
    }

    fn date(&self) -> String {
        azure_core::time::to_rfc7231(&(self.started.date() + self.now()))
    }

    fn next_etag(&mut self) -> u64 {
        self.etags += 1;
        self.etags
    }
}

impl BlobServer {
    /// Starts a server whose clock stands still until it is [advanced](Self::advance).
    pub async fn start() -> Self {
        Self::with(false).await
    }

    /// Starts a server whose clock runs, and can be advanced as well.
    pub async fn start_live() -> Self {
        Self::with(true).await
    }

    async fn with(live: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(Mutex::new(State {
            containers: HashMap::new(),
            deleted: HashMap::new(),
            etags: 0,
            started: clock::now(),
            live,
            advanced: Duration::ZERO,
            faults: Vec::new(),
            proof: Proof::Key(KEY.to_owned()),
            log: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        #[allow(clippy::disallowed_methods, reason = "owned by the server, which ends it")]
        let task = tokio::spawn(serving::accept(listener, shared));
        let endpoint = Url::parse(&format!("http://127.0.0.1:{port}/{ACCOUNT}")).expect("a URL");
        Self { endpoint, state, task }
    }

    /// Returns settings for a blob on it, signed with its first key.
    pub fn settings(&self, container: &str, blob: &str) -> AzureSettings {
        azurite::settings(&self.endpoint, KEY, container, blob)
    }

    /// Moves the server's clock forward.
    pub fn advance(&self, by: Duration) {
        self.lock().advanced += by;
    }

    /// Requires another credential from now on.
    pub fn require(&self, proof: Proof) {
        self.lock().proof = proof;
    }

    /// Injects faults into the next requests of an operation, one each; `any` matches all
    /// operations.
    pub fn inject(&self, op: &str, faults: impl IntoIterator<Item = Fault>) {
        self.lock().faults.push((op.to_owned(), faults.into_iter().collect()));
    }

    /// Removes the faults that have not occurred yet.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// Returns the requests since the start or the last call.
    pub fn take_log(&self) -> Vec<Logged> {
        std::mem::take(&mut self.lock().log)
    }

    /// Moves a blob to another access tier.
    pub fn set_tier(&self, container: &str, blob: &str, tier: &str) {
        let mut state = self.lock();
        let blob = state.containers.get_mut(container).and_then(|it| it.blobs.get_mut(blob));
        blob.expect("the blob is there").tier = Some(tier.to_owned());
    }

    /// Sets a property of a container, which the answer to a read of it has as a header.
    pub fn set_property(&self, container: &str, name: &str, value: &str) {
        let mut state = self.lock();
        let container = state.containers.entry(container.to_owned()).or_default();
        container.properties.push((name.to_owned(), value.to_owned()));
    }

    /// Overwrites a blob as another program would, whatever its lease.
    pub fn put(&self, container: &str, blob: &str, length: usize, metadata: &[(&str, &str)]) {
        let mut state = self.lock();
        let etag = state.next_etag();
        let metadata =
            metadata.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let it = Blob {
            etag,
            metadata: metadata.collect(),
            length,
            tier: None,
            lease: Lease::default(),
        };
        state.containers.entry(container.to_owned()).or_default().blobs.insert(blob.to_owned(), it);
    }

    /// Returns the metadata of a blob; `None` if it does not exist.
    pub fn metadata(&self, container: &str, blob: &str) -> Option<BTreeMap<String, String>> {
        let state = self.lock();
        Some(state.containers.get(container)?.blobs.get(blob)?.metadata.clone())
    }

    /// Returns whether a blob exists.
    pub fn has(&self, container: &str, blob: &str) -> bool {
        self.metadata(container, blob).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panicked with it")
    }
}
