//! An in-process server that behaves as Azure Blob Storage does, by Microsoft's tables of lease
//! operations and of blob operations by lease state. It has a clock of its own, injectable faults,
//! and a request log.
//!
//! It keeps no blob contents and implements only the calls that a lease needs.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tenure::clock::{self, Moment};
use tenure::config::{AzureCredential, AzureSettings, SecretSource};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use url::Url;

use simulator::store::blob_lease::{Lease, Refusal};

/// The account name.
pub const ACCOUNT: &str = "devstoreaccount1";

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
    /// The operation: `look`, `acquire`, `renew`, `release`, `change`, `break`, `write`, `make`,
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
        let task = tokio::spawn(accept(listener, shared));
        let endpoint = Url::parse(&format!("http://127.0.0.1:{port}/{ACCOUNT}")).expect("a URL");
        Self { endpoint, state, task }
    }

    /// Returns settings for a blob on it, signed with its first key.
    pub fn settings(&self, container: &str, blob: &str) -> AzureSettings {
        AzureSettings {
            endpoint: self.endpoint.clone(),
            account: ACCOUNT.to_owned(),
            container: container.to_owned(),
            blob: blob.to_owned(),
            credential: AzureCredential::Key(SecretSource::Value(KEY.to_owned())),
            request_timeout: Duration::from_secs(2),
            proxy: None,
            no_proxy: None,
        }
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

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| serve(request, Arc::clone(&state)));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The connection is closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("dropped on order")]
struct Dropped;

type Body = http_body_util::Either<Empty<Bytes>, Full<Bytes>>;

async fn serve(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Body>, Dropped> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(|it| it.to_bytes().len()).unwrap_or_default();
    let asked = Asked::new(&parts, body);
    let (answer, fault) = {
        let mut state = state.lock().expect("no test panicked with it");
        let fault = next_fault(&mut state, &asked.op);
        let answer = match &fault {
            Some(Fault::Hang | Fault::DropBefore | Fault::Html | Fault::Redirect(_)) => None,
            Some(Fault::Answer(status, code)) => Some(Err(Refusal(*status, code))),
            _ => Some(authorize(&state, &asked).and_then(|()| apply(&mut state, &asked))),
        };
        let status = match &answer {
            Some(Ok(done)) => done.status,
            Some(Err(refusal)) => refusal.0,
            None => 0,
        };
        state.log.push(Logged {
            op: asked.op.clone(),
            url: parts.uri.to_string(),
            headers: asked.headers.clone(),
            status,
        });
        let answer = answer.map(|answer| render(&state, &asked, answer));
        (answer, fault)
    };
    match fault {
        Some(Fault::Hang | Fault::HangAfter) => std::future::pending().await,
        Some(Fault::DropBefore | Fault::DropAfter) => Err(Dropped),
        Some(Fault::Html) => Ok(page(if asked.op == "acquire" { 201 } else { 200 })),
        Some(Fault::Redirect(to)) => {
            let answer = Response::builder().status(302).header("location", to);
            Ok(answer.body(Body::Left(Empty::new())).expect("an answer"))
        }
        Some(Fault::WrongLease) => {
            let mut answer = answer.expect("it was applied");
            let other = "11111111-2222-4333-8444-555555555555".parse().expect("a value");
            answer.headers_mut().insert("x-ms-lease-id", other);
            Ok(answer)
        }
        _ => Ok(answer.expect("it was applied")),
    }
}

fn next_fault(state: &mut State, op: &str) -> Option<Fault> {
    let faults = state.faults.iter_mut();
    faults.filter(|(wanted, _)| wanted == op || wanted == "any").find_map(|(_, it)| it.pop_front())
}

fn page(status: u16) -> Response<Body> {
    let page = Bytes::from_static(b"<html><body>Please sign in to the network</body></html>");
    let answer = Response::builder().status(status).header("content-type", "text/html");
    answer.body(Body::Right(Full::new(page))).expect("an answer")
}

/// A parsed request.
struct Asked {
    op: String,
    method: String,
    path: String,
    query: Vec<(String, String)>,
    container: String,
    blob: String,
    headers: HashMap<String, String>,
    length: usize,
}

impl Asked {
    fn new(parts: &hyper::http::request::Parts, length: usize) -> Self {
        let text = |value: &hyper::header::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers: HashMap<String, String> =
            parts.headers.iter().map(|(name, it)| (name.to_string(), text(it))).collect();
        let query: Vec<(String, String)> =
            url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let path = parts.uri.path().to_owned();
        let below = path.strip_prefix(&format!("/{ACCOUNT}/")).unwrap_or_default();
        let (container, blob) = below.split_once('/').unwrap_or((below, ""));
        let (container, blob) = (container.to_owned(), blob.to_owned());
        let comp = query.iter().find(|(name, _)| name == "comp").map(|(_, value)| value.as_str());
        let op = match (parts.method.as_str(), comp, blob.is_empty()) {
            ("HEAD", None, false) => "look",
            ("PUT", Some("lease"), false) => {
                headers.get("x-ms-lease-action").map_or("", String::as_str)
            }
            ("PUT", Some("metadata"), false) => "write",
            ("PUT", None, false) => "make",
            ("PUT", None, true) => "make-container",
            ("DELETE", None, false) => "delete",
            ("DELETE", None, true) => "delete-container",
            ("HEAD" | "GET", None, true) => "look-container",
            (method, ..) => method,
        };
        let (op, method) = (op.to_owned(), parts.method.to_string());
        Self { op, method, path, query, container, blob, headers, length }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        let named = self.headers.iter().filter_map(|(name, value)| {
            Some((name.strip_prefix("x-ms-meta-")?.to_owned(), value.clone()))
        });
        named.collect()
    }
}

/// Verifies the credential; that of an account key by computing the signature.
fn authorize(state: &State, asked: &Asked) -> Result<(), Refusal> {
    let given = asked.header("authorization").unwrap_or_default();
    match &state.proof {
        Proof::Key(key) => {
            let signature = hmac_sha256(&signed_text(asked), &Secret::new(key.clone()));
            let wanted = format!("SharedKey {ACCOUNT}:{}", signature.expect("a signature"));
            if given == wanted { Ok(()) } else { Err(Refusal(403, "AuthenticationFailed")) }
        }
        Proof::Sas(wanted) => {
            let given = asked.query.iter().find(|(name, _)| name == "sig");
            let fits = given.is_some_and(|(_, given)| given == wanted);
            if fits { Ok(()) } else { Err(Refusal(403, "AuthenticationFailed")) }
        }
        Proof::Token(wanted) => {
            let fits = given == format!("Bearer {wanted}");
            if fits { Ok(()) } else { Err(Refusal(401, "InvalidAuthenticationInfo")) }
        }
    }
}

fn signed_text(asked: &Asked) -> String {
    let value = |name: &str| asked.header(name).unwrap_or_default();
    let length = Some(value("content-length")).filter(|it| *it != "0").unwrap_or_default();
    let mut text = format!(
        "{}\n\n\n{length}\n\n{}\n\n\n{}\n{}\n\n\n",
        asked.method,
        value("content-type"),
        value("if-match"),
        value("if-none-match")
    );
    let mut ours: Vec<_> =
        asked.headers.iter().filter(|(name, _)| name.starts_with("x-ms-")).collect();
    ours.sort();
    for (name, value) in ours {
        text += &format!("{name}:{value}\n");
    }
    text += &format!("/{ACCOUNT}{}", asked.path);
    let mut query = asked.query.clone();
    query.sort();
    for (name, value) in query {
        text += &format!("\n{name}:{value}");
    }
    text
}

/// The result of a successful operation.
struct Done {
    status: u16,
    headers: Vec<(String, String)>,
}

impl Done {
    fn new(status: u16) -> Self {
        Self { status, headers: Vec::new() }
    }

    fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }
}

fn apply(state: &mut State, asked: &Asked) -> Result<Done, Refusal> {
    let now = state.now();
    match asked.op.as_str() {
        "make-container" => return make_container(state, &asked.container, now),
        "delete-container" => {
            state.containers.remove(&asked.container).ok_or(Refusal(404, "ContainerNotFound"))?;
            state.deleted.insert(asked.container.clone(), now + Duration::from_secs(30));
            return Ok(Done::new(202));
        }
        _ => (),
    }
    let etag = state.next_etag();
    let container = state.containers.get_mut(&asked.container);
    let container = container.ok_or(Refusal(404, "ContainerNotFound"))?;
    if asked.op == "look-container" {
        return Ok(Done::new(200));
    }
    if asked.op == "make" {
        return make(container, asked, etag, now);
    }
    let blob = container.blobs.get_mut(&asked.blob).ok_or(Refusal(404, "BlobNotFound"))?;
    let lease = asked.header("x-ms-lease-id").map(str::to_owned);
    match asked.op.as_str() {
        "look" => Ok(read_blob(blob, now)),
        "write" => {
            blob.lease.check_write(lease.as_ref(), now)?;
            if asked.header("if-match").is_some_and(|it| it != tag(blob.etag)) {
                return Err(Refusal(412, "ConditionNotMet"));
            }
            blob.lease.written(now);
            blob.metadata = asked.metadata();
            blob.etag = etag;
            Ok(Done::new(200).with("etag", tag(etag)))
        }
        "delete" => {
            blob.lease.check_write(lease.as_ref(), now)?;
            container.blobs.remove(&asked.blob);
            Ok(Done::new(202))
        }
        "acquire" if blob.tier.as_deref() == Some("Archive") => Err(Refusal(409, "BlobArchived")),
        action @ ("acquire" | "renew" | "release" | "change" | "break") => {
            let given = crate::azure::blob_request::Given::new(action, |name| asked.header(name))?;
            if asked.header("if-match").is_some_and(|it| it != tag(blob.etag)) {
                return Err(Refusal(412, "ConditionNotMet"));
            }
            let (status, more) = given.apply(&mut blob.lease, now)?;
            let mut done = Done::new(status).with("etag", tag(blob.etag));
            done.headers.extend(more);
            Ok(done)
        }
        _ => Err(Refusal(400, "UnsupportedHttpVerb")),
    }
}

fn make_container(state: &mut State, name: &str, now: Duration) -> Result<Done, Refusal> {
    if state.containers.contains_key(name) {
        return Err(Refusal(409, "ContainerAlreadyExists"));
    }
    if state.deleted.get(name).is_some_and(|until| now < *until) {
        return Err(Refusal(409, "ContainerBeingDeleted"));
    }
    state.containers.insert(name.to_owned(), Container::default());
    Ok(Done::new(201))
}

fn make(
    container: &mut Container,
    asked: &Asked,
    etag: u64,
    now: Duration,
) -> Result<Done, Refusal> {
    let mut lease = Lease::default();
    if let Some(blob) = container.blobs.get_mut(&asked.blob) {
        let given = asked.header("x-ms-lease-id").map(str::to_owned);
        blob.lease.check_write(given.as_ref(), now)?;
        if asked.header("if-none-match") == Some("*") {
            return Err(Refusal(409, "BlobAlreadyExists"));
        }
        blob.lease.written(now);
        lease = std::mem::take(&mut blob.lease);
    }
    let (metadata, length) = (asked.metadata(), asked.length);
    let blob = Blob { etag, metadata, length, tier: None, lease };
    container.blobs.insert(asked.blob.clone(), blob);
    Ok(Done::new(201).with("etag", tag(etag)))
}

fn read_blob(blob: &mut Blob, now: Duration) -> Done {
    let state = blob.lease.state(now);
    let status = if matches!(state, "leased" | "breaking") { "locked" } else { "unlocked" };
    let mut done = Done::new(200)
        .with("etag", tag(blob.etag))
        .with("content-length", blob.length)
        .with("x-ms-blob-type", "BlockBlob")
        .with("x-ms-access-tier", blob.tier.as_deref().unwrap_or("Hot"))
        .with("x-ms-lease-state", state)
        .with("x-ms-lease-status", status);
    if state == "leased" {
        let length = if blob.lease.is_endless() { "infinite" } else { "fixed" };
        done = done.with("x-ms-lease-duration", length);
    }
    for (name, value) in &blob.metadata {
        done = done.with(&format!("x-ms-meta-{name}"), value);
    }
    done
}

fn tag(number: u64) -> String {
    format!("\"0x{number:X}\"")
}

fn render(state: &State, asked: &Asked, answer: Result<Done, Refusal>) -> Response<Body> {
    let (status, headers, body) = match answer {
        Ok(done) => (done.status, done.headers, String::new()),
        Err(Refusal(status, code)) => {
            let mut headers = vec![("x-ms-error-code".to_owned(), code.to_owned())];
            if matches!(status, 429 | 503) {
                headers.push(("retry-after".to_owned(), "60".to_owned()));
            }
            let body = format!(
                "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code>\
                 <Message>In XML.</Message></Error>"
            );
            (status, headers, body)
        }
    };
    let mut answer = Response::builder()
        .status(status)
        .header("date", state.date())
        .header("x-ms-request-id", "00000000-0000-4000-8000-000000000000")
        .header("x-ms-version", "2023-11-03");
    for (name, value) in headers {
        answer = answer.header(name, value);
    }
    let body = if asked.method == "HEAD" || body.is_empty() {
        Body::Left(Empty::new())
    } else {
        Body::Right(Full::new(Bytes::from(body)))
    };
    answer.body(body).expect("an answer")
}
