//! Fuzz targets for answers of Azure and for secret files, with arbitrary contents. Answers are
//! delivered whole by a scripted transport, without connections, name resolution or TLS.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::Headers;
use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use reqwest::header::{HeaderName, HeaderValue};
use url::Url;

use super::credential;
use super::record::OURS;
use super::{Azure, LONGEST_LEASE, MISSING, record, token};
use crate::config::{AzureCredential, AzureSettings, SecretForm, SecretSource};
use crate::http::resolver::Resolver;
use crate::lease::{Bid, Candidate, LeaseId, Nonce, Record, StoreError, Successor, Version};
use crate::store::{BreakOutcome, LeaseAdmin, LeaseStore};

/// The secret in the signature, which no message may show.
const SECRET: &str = "hunter2";

const FLOOR: u64 = 1_000;

/// Checks records in metadata, one header a line: what is read and written reads back the same, is
/// valid in headers, and keeps what others have added.
pub fn azure_record(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let found = headers(text.lines());
    let record = match record::read(&found, "locks/orders") {
        Ok(record) => record,
        Err(failure) => {
            return assert!(failure.message.contains("locks/orders was not written by Tenure"));
        }
    };
    nominated(&found, &record);
    let Record { term, holder, nonce, .. } = record;
    let Some(holder) = holder else { return };
    let bid = Bid { nonce: nonce.unwrap_or(Nonce(7)), candidate: Arc::clone(&holder), ..bid() };
    let written = record::metadata(&found).write_term(&bid, term.unwrap_or(FLOOR));
    for (name, value) in &written {
        if OURS.contains(&name.as_str()) {
            assert!(value.bytes().all(|it| it.is_ascii_graphic()), "{name}: {value}");
        }
    }
    for (name, value) in found.iter() {
        let name = name.as_str().strip_prefix("x-ms-meta-");
        let name = name.filter(|it| !OURS.contains(it));
        assert!(name.is_none_or(|name| written.get(name).is_some_and(|it| it == value.as_str())));
    }
    let read = record::read(&sent(&written), "locks/orders").expect("it is of our making");
    assert_eq!(read.successor, None);
    assert_eq!((read.term, read.nonce), (Some(term.unwrap_or(FLOOR)), Some(bid.nonce)));
    let candidate = read.holder.expect("somebody wrote it");
    assert_eq!((&candidate.identity, &candidate.instance), (&holder.identity, &holder.instance));
    assert_eq!(candidate.address, holder.address.clone().filter(|it| !it.is_empty()));
}

/// Checks that no successor asks for more than a record may, and that one that is added reads back,
/// with the rest of the record unchanged.
fn nominated(found: &Headers, record: &Record) {
    let hold_off = record.successor.as_ref().map_or(Duration::ZERO, |it| it.hold_off);
    assert!(hold_off <= Successor::LONGEST_HOLD_OFF, "{hold_off:?}");
    let identity = record.holder.as_ref().map_or("a b", |it| it.identity.as_str());
    if identity.is_empty() {
        return;
    }
    let successor =
        Successor { identity: identity.to_owned(), hold_off: Duration::from_micros(1_500) };
    let written = record::metadata(found).set_successor(&successor);
    let read = record::read(&sent(&written), "locks/orders").expect("it is of our making");
    let successor = Some(successor.as_stored());
    assert_eq!(read, Record { successor, ..record.clone() });
}

/// Converts metadata to the headers that carry them.
fn sent(fields: &HashMap<String, String>) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.insert(format!("x-ms-meta-{name}"), value.clone());
    }
    headers
}

/// Checks connection strings, signatures and keys: no endpoint is other than that of the lock, and no error
/// shows the key or the signature.
pub fn credential(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let settings = settings();
    for form in [SecretForm::ConnectionString, SecretForm::Key, SecretForm::Sas] {
        match settings.read_secret(form, text) {
            Ok(read) => {
                assert!(read.endpoint.is_none_or(|it| it == settings.endpoint));
                let shown = format!("{:?}", read.secret);
                assert!(!shown.contains(SECRET), "{shown}");
            }
            Err(problems) => {
                let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                let problems = problems.join("; ");
                assert!(!problems.is_empty());
                assert!(!problems.contains(SECRET) || !is_secret(text), "{problems}");
            }
        }
    }
}

/// Returns whether the secret occurs only where secrets belong.
fn is_secret(text: &str) -> bool {
    text.split(';').filter(|part| part.contains(SECRET)).all(|part| {
        let name = part.split_once('=').map(|(name, _)| name.trim().to_ascii_lowercase());
        matches!(name.as_deref(), None | Some("accountkey" | "sharedaccesssignature"))
    })
}

/// Checks the answers to a whole leadership, one after the other: nothing is granted or refused
/// without an answer that says so, and no message shows the signature or the lease id.
pub fn azure_answer(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for part in text.split("\n\n") {
        if let Some(words) = token::entra_words(part.as_bytes()) {
            assert!(!words.contains("://") && !words.contains(char::is_control), "{words:?}");
            assert!(words.split(' ').all(|it| it.len() <= 60), "{words:?}");
        }
    }
    let script = Arc::new(Script::read(text));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime of one thread needs nothing").block_on(run_script(&script));
}

async fn run_script(script: &Arc<Script>) {
    let transport: Arc<dyn HttpClient> = Arc::clone(script) as _;
    let settings = settings();
    let credential = credential::open(&settings, &transport, &Resolver::default())
        .expect("a signature needs no sign-in");
    let store = Azure { settings, transport, credential };
    let bid = bid();

    let snapshot = store.read().await;
    let answers = script.take_given();
    if let Some(snapshot) = checked(&snapshot, &answers) {
        let last = answers.last().expect("there is no snapshot without an answer");
        let version = last.header("etag").unwrap_or_else(|| "missing".into());
        let state = last.header("x-ms-lease-state").unwrap_or_default();
        let free = matches!(state.as_str(), "available" | "expired" | "broken");
        assert!(
            (last.status == 404 && snapshot.free) || *snapshot.version.0 == version,
            "{snapshot:?}"
        );
        let held = matches!(state.as_str(), "leased" | "breaking");
        assert!(last.status == 404 || if snapshot.free { free } else { held }, "{snapshot:?}");
    }
    let granted = store.acquire(&bid).await;
    let answers = script.take_given();
    if checked(&granted, &answers).is_some() {
        assert!(answers.iter().any(ScriptedAnswer::names_us), "{answers:?}");
    }
    let term = store.write_term(&bid, FLOOR).await;
    let answers = script.take_given();
    if let Some(term) = checked(&term, &answers) {
        // A term with this bid's nonce has been written already, whatever it is.
        let ours = |it: &ScriptedAnswer| {
            it.header("x-ms-meta-tenure_nonce").and_then(|it| it.parse().ok()) == Some(bid.nonce)
        };
        if !answers.iter().any(ours) {
            let before =
                answers[0].header("x-ms-meta-tenure_term").and_then(|it| it.parse::<u64>().ok());
            assert!(*term >= FLOOR && before.is_none_or(|it| *term > it), "{term}: {before:?}");
        }
    }
    let renewed = store.renew(&bid).await;
    let answers = script.take_given();
    if checked(&renewed, &answers).is_some() {
        assert!(answers.iter().any(ScriptedAnswer::names_us), "{answers:?}");
    }
    let released = store.release(&bid).await;
    let answers = script.take_given();
    checked(&released, &answers);
    operated(&store, script).await;
}

/// Names a successor, and breaks the lease in both ways: checks that nothing is done without an
/// answer that says so, and that an infinite lease does not run out.
async fn operated(store: &Azure, script: &Script) {
    let successor = Successor { identity: "a b".to_owned(), hold_off: Duration::from_secs(10) };
    let named = store.set_successor(&bid(), &successor).await;
    let answers = script.take_given();
    if checked(&named, &answers).is_some() {
        let nonce = answers[0].header("x-ms-meta-tenure_nonce").and_then(|it| it.parse().ok());
        assert_eq!(nonce, Some(bid().nonce), "{answers:?}");
        let stands = answers[0].header("x-ms-meta-tenure_successor").is_some();
        assert!(stands || (answers.len() == 2 && answers[1].status < 300), "{answers:?}");
    }
    for at_once in [false, true] {
        let broken = store.break_lease(at_once).await;
        let answers = script.take_given();
        let state =
            answers.first().and_then(|it| it.header("x-ms-lease-state")).unwrap_or_default();
        match &broken {
            Ok(BreakOutcome::Held { free_in, .. }) => {
                assert!(answers.len() == 2 && answers[1].status == 202, "{answers:?}");
                assert!(matches!(state.as_str(), "leased" | "breaking"), "{answers:?}");
                let endless =
                    answers[0].header("x-ms-lease-duration").as_deref() == Some("infinite");
                assert!(at_once || state == "breaking" || !endless, "{answers:?}");
                assert!((at_once || !free_in.is_zero()) && *free_in <= LONGEST_LEASE);
            }
            Ok(BreakOutcome::NotHeld) => {
                let gone = answers.iter().any(|it| matches!(it.status, 404 | 409));
                let free = matches!(state.as_str(), "available" | "expired" | "broken");
                assert!(gone || free, "{answers:?}");
            }
            Err(_) => assert!(checked(&broken, &answers).is_none()),
        }
    }
}

/// Checks what holds for every outcome; returns the value, if there is one.
fn checked<'a, T>(outcome: &'a Result<T, StoreError>, answers: &[ScriptedAnswer]) -> Option<&'a T> {
    let error = match outcome {
        Ok(it) => {
            let azure =
                |it: &ScriptedAnswer| it.header("x-ms-request-id").is_some() || it.status == 404;
            assert!(answers.last().is_some_and(azure), "{answers:?}");
            return Some(it);
        }
        Err(error) => error,
    };
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains(SECRET), "{shown}");
    let named = answers.iter().any(|it| it.head.contains(&lease()) && it.head.contains("-meta-"));
    assert!(!shown.contains(&lease()) || named, "{shown}");
    let definite = |it: &ScriptedAnswer| matches!(it.status, 200..300 | 404 | 409 | 412);
    if matches!(error, StoreError::Refused(_) | StoreError::Foreign(_)) {
        assert!(answers.iter().any(definite), "{error}: {answers:?}");
    }
    None
}

fn lease() -> String {
    bid().lease.to_wire()
}

fn bid() -> Bid {
    Bid {
        lease: LeaseId::from_random(7),
        nonce: Nonce(0xfeed),
        candidate: Arc::new(Candidate {
            identity: "a b".into(),
            instance: "1".into(),
            address: Some("[::1]:80".into()),
            peer: Some("http://[::1]:4040/peer".into()),
        }),
        lease_duration: Duration::from_secs(15),
        seen: Version(MISSING.into()),
        written: None,
    }
}

fn settings() -> AzureSettings {
    AzureSettings {
        endpoint: Url::parse("https://acct.blob.core.windows.net/").expect("it is one"),
        is_endpoint_given: false,
        account: "acct".into(),
        container: "locks".into(),
        blob: "orders".into(),
        credential: AzureCredential::Sas(SecretSource::Value(format!("sv=1&sig={SECRET}"))),
        request_timeout: Duration::from_secs(2),
        proxy: None,
        no_proxy: None,
    }
}

/// Returns the headers that are valid on a connection.
fn headers<'a>(lines: impl Iterator<Item = &'a str>) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.insert(name.as_str().to_owned(), value);
        }
    }
    headers
}

/// One answer of the script.
#[derive(Clone, Debug)]
struct ScriptedAnswer {
    status: u16,
    head: String,
    body: String,
}

impl ScriptedAnswer {
    fn header(&self, name: &str) -> Option<String> {
        let headers = headers(self.head.lines());
        let found = headers.iter().find(|(it, _)| it.as_str() == name);
        found.map(|(_, value)| value.as_str().to_owned())
    }

    fn names_us(&self) -> bool {
        (200..300).contains(&self.status)
            && self.header("x-ms-lease-id").is_some_and(|id| id.eq_ignore_ascii_case(&lease()))
    }
}

/// A transport that returns one answer after the other, and fails at the end.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<ScriptedAnswer>>,
    given: Mutex<Vec<ScriptedAnswer>>,
}

impl Script {
    /// Parses answers: a status, headers, an empty line and a body, separated by lines of two
    /// dashes.
    fn read(text: &str) -> Self {
        let answer = |text: &str| {
            let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
            let (status, head) = head.split_once('\n').unwrap_or((head, ""));
            let status = status.parse().ok().filter(|it| (200..600).contains(it))?;
            Some(ScriptedAnswer { status, head: head.to_owned(), body: body.to_owned() })
        };
        let answers = text.split("\n--\n").take(16).filter_map(answer).collect();
        Self { answers: Mutex::new(answers), given: Mutex::default() }
    }

    /// Returns the answers given since the last call.
    fn take_given(&self) -> Vec<ScriptedAnswer> {
        std::mem::take(&mut *self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl HttpClient for Script {
    async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
        let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(answer) = next else {
            return Err(Error::with_message(ErrorKind::Io, "the script is over"));
        };
        self.given.lock().unwrap_or_else(PoisonError::into_inner).push(answer.clone());
        let ScriptedAnswer { status, head, body } = answer;
        Ok(AsyncRawResponse::from_bytes(status.into(), headers(head.lines()), body.into_bytes()))
    }
}
