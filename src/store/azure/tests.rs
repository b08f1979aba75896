//! Tests of the store against answers by a script, and of what it sends.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use azure_core::http::{AsyncRawResponse, Body, Request};
use url::Url;

use super::token::SignIn;
use super::*;
use crate::config::{AzureCredential, SecretSource};
use crate::lease::Nonce;
use crate::lease::fuzzing::bid;
use crate::store::Verdict;

const LOCK: &str = "/locks/orders";
const NEW: (&str, &str) = ("etag", "\"2\"");

/// An answer, and its body.
#[derive(Clone, Debug)]
struct Answer {
    status: u16,
    headers: Headers,
    body: &'static str,
}

/// Returns an answer of Azure with these headers.
fn answer(status: u16, pairs: &[(&str, &str)]) -> Answer {
    let mut headers = Headers::new();
    headers.insert("x-ms-request-id", "1");
    for (name, value) in pairs {
        headers.insert((*name).to_owned(), (*value).to_owned());
    }
    Answer { status, headers, body: "" }
}

fn refusal(status: u16, code: &str) -> Answer {
    answer(status, &[("x-ms-error-code", code)])
}

/// Returns the answer to a read of a blob in version `"1"`, with more headers.
fn head(pairs: &[(&str, &str)]) -> Answer {
    let mut all = vec![("etag", "\"1\""), ("content-length", "0"), ("x-ms-lease-state", "leased")];
    all.extend(pairs);
    answer(200, &all)
}

/// Returns the answer to a read of a blob whose record this bid has written.
fn ours(pairs: &[(&str, &str)]) -> Answer {
    let nonce = bid().nonce.to_string();
    let mut all = vec![("x-ms-meta-tenure_term", "8"), ("x-ms-meta-tenure_nonce", nonce.as_str())];
    all.extend(pairs);
    head(&all)
}

/// Returns the answer that grants the lease.
fn granted() -> Answer {
    answer(201, &[("x-ms-lease-id", bid().lease.to_wire().as_str())])
}

/// A transport that gives one answer after the other, and keeps the requests.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<Request>>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        let answers = Mutex::new(answers.into_iter().collect());
        Arc::new(Self { answers, asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<Request> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns each request since the last time: its method, its path and what it is for.
    fn lines(&self) -> Vec<String> {
        self.asked().iter().map(line).collect()
    }
}

#[async_trait]
impl HttpClient for Script {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let next = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Answer { status, headers, body } = next.unwrap_or_else(|| answer(500, &[]));
        Ok(AsyncRawResponse::from_bytes(status.into(), headers, body))
    }
}

fn line(request: &Request) -> String {
    let mut line = format!("{} {}", request.method().as_str(), request.url().path());
    for (name, value) in request.url().query_pairs() {
        if matches!(&*name, "comp" | "restype") {
            line = format!("{line} {value}");
        }
    }
    if let Some(action) = header(request.headers(), "x-ms-lease-action") {
        line = format!("{line} {action}");
    }
    line
}

fn settings(credential: AzureCredential) -> AzureSettings {
    AzureSettings {
        endpoint: Url::parse("https://acct.blob.core.windows.net/").unwrap(),
        is_endpoint_given: true,
        account: "acct".to_owned(),
        container: "locks".to_owned(),
        blob: "orders".to_owned(),
        credential,
        request_timeout: Duration::from_secs(2),
        proxy: None,
        no_proxy: None,
    }
}

fn open(script: &Arc<Script>, credential: AzureCredential) -> Azure {
    let settings = settings(credential);
    let transport: Arc<dyn HttpClient> = Arc::clone(script) as _;
    let credential = credential::open(&settings, &transport, &Resolver::default()).unwrap();
    Azure { settings, transport, credential }
}

fn store(answers: impl IntoIterator<Item = Answer>) -> (Azure, Arc<Script>) {
    let script = Script::new(answers);
    let signature = SecretSource::Value("sv=2023-11-03&sig=SECRET".to_owned());
    (open(&script, AzureCredential::Sas(signature)), script)
}

fn is_refused<T>(outcome: Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Refused(_)))
}

#[tokio::test]
async fn a_proxy_that_is_none_is_a_fault_unless_the_endpoint_is_on_this_host() {
    for (endpoint, is_usable) in
        [("http://127.0.0.1:1/acct", true), ("https://acct.blob.core.windows.net/", false)]
    {
        let key = AzureCredential::Key(SecretSource::Value("a2V5".to_owned()));
        let (endpoint, proxy) = (Url::parse(endpoint).unwrap(), Some("::".to_owned()));
        let opened = Azure::open(AzureSettings { endpoint, proxy, ..settings(key) });
        assert_eq!(opened.is_ok(), is_usable, "{opened:?}");
    }
}

#[tokio::test]
async fn a_blob_is_free_by_its_lease_state_and_an_infinite_lease_never_ends() {
    for (state, duration, expected) in [
        ("available", None, Some((true, None))),
        ("expired", None, Some((true, None))),
        ("broken", None, Some((true, None))),
        ("leased", Some("fixed"), Some((false, None))),
        ("leased", Some("infinite"), Some((false, Some(Duration::MAX)))),
        ("breaking", None, Some((false, None))),
        ("unlocked", None, None),
    ] {
        let mut pairs = vec![("x-ms-lease-state", state)];
        pairs.extend(duration.map(|it| ("x-ms-lease-duration", it)));
        let (store, script) = store([head(&pairs)]);
        let read = store.read().await;
        let found = read.as_ref().ok().map(|it| (it.free, it.ends_in));
        assert_eq!(found, expected, "{state} {duration:?}");
        assert!(read.is_err() || *read.unwrap().version.0 == *"\"1\"");
        assert_eq!(script.lines(), [format!("HEAD {LOCK}")]);
    }
    for code in ["BlobNotFound", "ContainerNotFound"] {
        let (store, _) = store([refusal(404, code)]);
        let Snapshot { free, record, version, .. } = store.read().await.unwrap();
        assert_eq!((free, record, &*version.0), (true, Record::default(), MISSING));
        let longest_lease = Some(Duration::from_secs(60));
        assert_eq!(store.rules(), Rules { longest_lease, missing_is_free: false });
    }
}

#[tokio::test]
async fn a_bid_for_a_blob_that_was_missing_creates_it_without_replacing_anything() {
    let lease = format!("PUT {LOCK} lease acquire");
    let (container, blob) = ("PUT /locks container".to_owned(), format!("PUT {LOCK}"));
    let (read, bid) = (format!("HEAD {LOCK}"), Bid { seen: Version(MISSING.into()), ..bid() });
    let look = "GET /locks container".to_owned();
    let (made, refused) = (|| answer(201, &[]), refusal);
    for (answers, lines) in [
        (vec![granted(), head(&[])], vec![&lease, &read]),
        (
            vec![refused(404, "BlobNotFound"), made(), made(), granted(), head(&[])],
            vec![&lease, &look, &blob, &lease, &read],
        ),
        (
            vec![refused(404, "ContainerNotFound"), made(), made(), granted(), head(&[])],
            vec![&lease, &container, &blob, &lease, &read],
        ),
        // Another candidate creates them at the same time.
        (
            vec![
                refused(404, "ContainerNotFound"),
                refused(409, "ContainerAlreadyExists"),
                made(),
                refused(409, "BlobAlreadyExists"),
                granted(),
                head(&[]),
            ],
            vec![&lease, &container, &look, &blob, &lease, &read],
        ),
        (
            vec![
                refused(404, "BlobNotFound"),
                made(),
                refused(412, "LeaseIdMissing"),
                granted(),
                head(&[]),
            ],
            vec![&lease, &look, &blob, &lease, &read],
        ),
    ] {
        let (store, script) = store(answers);
        store.acquire(&bid).await.unwrap();
        let asked = script.asked();
        let found: Vec<_> = asked.iter().map(line).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), lines);
        for request in &asked {
            assert_eq!(header(request.headers(), "if-match"), None);
            let creates = line(request) == blob;
            assert_eq!(header(request.headers(), "if-none-match"), creates.then_some("*"));
        }
    }
}

#[tokio::test]
async fn a_bid_for_a_blob_that_was_seen_leases_that_version_only_and_creates_nothing() {
    let bid = Bid { seen: Version("\"1\"".into()), ..bid() };
    let id = bid.lease.to_wire();
    let (store, script) = store([refusal(404, "BlobNotFound"), granted(), head(&[])]);
    assert!(is_refused(store.acquire(&bid).await), "it was deleted");
    store.acquire(&bid).await.unwrap();
    let asked = script.asked();
    assert_eq!(asked.len(), 3);
    for request in &asked[..2] {
        assert_eq!(line(request), format!("PUT {LOCK} lease acquire"));
        for (name, value) in [
            ("if-match", "\"1\""),
            ("x-ms-proposed-lease-id", id.as_str()),
            ("x-ms-lease-duration", "15"),
        ] {
            assert_eq!(header(request.headers(), name), Some(value), "{name}");
        }
    }
}

#[tokio::test]
async fn what_cannot_be_created_is_named() {
    let bid = Bid { seen: Version(MISSING.into()), ..bid() };
    let forbidden = || refusal(403, "AuthorizationPermissionMismatch");
    for (missing, words) in [
        ("ContainerNotFound", "the container locks does not exist and could not be created"),
        ("BlobNotFound", "the blob locks/orders does not exist and could not be created"),
    ] {
        let (store, _) = store([refusal(404, missing), forbidden(), forbidden()]);
        let error = store.acquire(&bid).await.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("SECRET"), "{error}");
    }
}

#[tokio::test]
async fn a_term_is_above_the_last_and_not_below_the_floor() {
    let id = bid().lease.to_wire();
    for (last, floor, term) in
        [(None, 0, "1"), (None, 9, "9"), (Some("7"), 0, "8"), (Some("7"), 100, "100")]
    {
        let last = last.map(|it| ("x-ms-meta-tenure_term", it));
        let (store, script) = store([head(last.as_slice()), answer(200, &[NEW])]);
        assert_eq!(store.write_term(&bid(), floor).await.unwrap().to_string(), term);
        let asked = script.asked();
        assert_eq!(line(&asked[1]), format!("PUT {LOCK} metadata"));
        for (name, value) in
            [("if-match", "\"1\""), ("x-ms-lease-id", id.as_str()), ("x-ms-meta-tenure_term", term)]
        {
            assert_eq!(header(asked[1].headers(), name), Some(value), "{name}");
        }
    }
    let (store, script) = store([head(&[("x-ms-meta-tenure_term", "18446744073709551615")])]);
    let error = store.write_term(&bid(), 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Foreign(_)), "{error:?}");
    assert!(error.to_string().contains("the largest possible term"), "{error}");
    assert_eq!(script.lines(), [format!("HEAD {LOCK}")]);
}

#[tokio::test]
async fn a_term_is_written_once_and_only_a_new_version_proves_it() {
    let changed = || refusal(412, "ConditionNotMet");
    let before = || head(&[("x-ms-meta-tenure_term", "7")]);
    let (read, write) = (format!("HEAD {LOCK}"), format!("PUT {LOCK} metadata"));
    let other = Nonce(9).to_string();
    let others =
        head(&[("x-ms-meta-tenure_term", "8"), ("x-ms-meta-tenure_nonce", other.as_str())]);
    for (answers, asked, expected) in [
        (vec![ours(&[])], vec![&read], Ok(8)),
        (vec![before(), changed(), ours(&[])], vec![&read, &write, &read], Ok(8)),
        (vec![before(), changed(), others], vec![&read, &write, &read], Err("was modified")),
        (vec![before(), refusal(412, "LeaseLost")], vec![&read, &write], Err("has ended")),
        (
            vec![before(), answer(200, &[("etag", "\"1\"")])],
            vec![&read, &write],
            Err("with the version of before"),
        ),
    ] {
        let (store, script) = store(answers);
        match (store.write_term(&bid(), 0).await, expected) {
            (Ok(term), Ok(expected)) => assert_eq!(term, expected),
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (outcome, expected) => panic!("{outcome:?}, not {expected:?}"),
        }
        assert_eq!(script.lines().iter().collect::<Vec<_>>(), asked);
    }
}

#[tokio::test]
async fn a_successor_is_added_to_the_record_of_this_acquisition_alone_and_once() {
    let hold_off = Duration::from_secs(10);
    let successor = Successor { identity: "b".to_owned(), hold_off };
    let pairs = [("x-ms-meta-tenure_successor", "b"), ("x-ms-meta-tenure_hold_off_ms", "10000")];
    let read = || format!("HEAD {LOCK}");
    let (first, script) = store([ours(&[]), answer(200, &[NEW])]);
    first.set_successor(&bid(), &successor).await.unwrap();
    let asked = script.asked();
    assert_eq!(line(&asked[1]), format!("PUT {LOCK} metadata"));
    for (name, value) in pairs {
        assert_eq!(header(asked[1].headers(), name), Some(value));
    }
    let (again, script) = store([ours(&pairs)]);
    again.set_successor(&bid(), &successor).await.unwrap();
    assert_eq!(script.lines(), [read()], "it is there already");
    let (others, script) = store([head(&[("x-ms-meta-tenure_term", "8")])]);
    assert!(is_refused(others.set_successor(&bid(), &successor).await));
    assert_eq!(script.lines(), [read()]);
}

#[tokio::test]
async fn a_held_lease_is_broken_in_the_version_that_was_read() {
    for (state, duration, at_once, period) in [
        ("available", "", false, None),
        ("expired", "", true, None),
        ("broken", "", false, None),
        ("leased", "fixed", false, Some("60")),
        ("leased", "fixed", true, Some("0")),
        ("leased", "infinite", true, Some("0")),
        ("breaking", "", false, Some("60")),
        ("breaking", "", true, Some("0")),
    ] {
        let left = if at_once { "0" } else { "9" };
        let found = head(&[("x-ms-lease-state", state), ("x-ms-lease-duration", duration)]);
        let (store, script) = store([found, answer(202, &[("x-ms-lease-time", left)])]);
        let outcome = store.break_lease(at_once).await.unwrap();
        let asked = script.asked();
        let sent = |name| header(asked.get(1)?.headers(), name);
        assert_eq!(sent("x-ms-lease-break-period"), period, "{state} {duration} {at_once}");
        assert_eq!(sent("if-match"), period.map(|_| "\"1\""));
        let record = Record::default();
        // The answer may have cut off a fraction of a second.
        let free_in = Duration::from_secs(if at_once { 0 } else { 10 });
        let held = BreakOutcome::Held { record, free_in };
        assert_eq!(outcome, if period.is_some() { held } else { BreakOutcome::NotHeld });
    }
    let (store, script) = store([head(&[("x-ms-lease-duration", "infinite")])]);
    assert!(is_refused(store.break_lease(false).await), "it would never be free");
    assert_eq!(script.lines(), [format!("HEAD {LOCK}")]);
}

#[tokio::test]
async fn a_lease_that_ended_before_it_was_broken_was_not_held() {
    for (status, code, not_held) in [
        (409, "LeaseNotPresentWithLeaseOperation", true),
        (409, "LeaseAlreadyBroken", true),
        (404, "BlobNotFound", true),
        (404, "ContainerNotFound", true),
        (412, "ConditionNotMet", false),
        (500, "InternalError", false),
    ] {
        let (store, _) = store([head(&[]), refusal(status, code)]);
        match store.break_lease(false).await {
            Ok(outcome) => assert!(not_held && outcome == BreakOutcome::NotHeld, "{code}"),
            Err(error) => assert!(!not_held && matches!(error, StoreError::Unknown(_)), "{code}"),
        }
    }
}

#[tokio::test]
async fn creating_names_what_was_missing_and_changes_nothing_else() {
    let (container, blob) = ("created the container locks", "created the blob locks/orders with");
    let (missing, made) = (|| refusal(404, "ContainerNotFound"), || answer(201, &[]));
    let is_there = |what: &str| refusal(409, &format!("{what}AlreadyExists"));
    let written = "wrote the first term 5 to the blob locks/orders";
    for (answers, report) in [
        (vec![missing(), made(), made()], vec![container, blob]),
        (vec![missing(), is_there("Container"), made(), made()], vec![blob]),
        (vec![missing(), is_there("Container"), made(), is_there("Blob")], vec![]),
        (vec![head(&[]), answer(200, &[NEW])], vec![written]),
        (vec![head(&[("x-ms-meta-tenure_term", "7")])], vec![]),
    ] {
        let requests = answers.len();
        let (store, script) = store(answers);
        let made = store.create(5).await.unwrap();
        assert_eq!(made.len(), report.len(), "{made:?}");
        assert!(made.iter().zip(report).all(|(made, words)| made.starts_with(words)), "{made:?}");
        let asked = script.asked();
        assert_eq!(asked.len(), requests);
        let last = &asked[requests - 1];
        let term = header(last.headers(), "x-ms-meta-tenure_term");
        assert_eq!(term, (requests > 1).then_some("5"));
        assert_eq!(header(last.headers(), "x-ms-lease-id"), None);
    }
    let (store, _) = store([head(&[]), answer(200, &[("etag", "\"1\"")])]);
    let error = store.create(5).await.unwrap_err().to_string();
    assert!(error.contains("with the version of before"), "{error}");
}

#[tokio::test]
async fn requests_are_signed_with_the_account_key_which_is_named_if_it_is_rejected() {
    let answers = [
        refusal(403, "AuthenticationFailed"),
        refusal(403, "AuthorizationPermissionMismatch"),
        refusal(500, "InternalError"),
    ];
    let script = Script::new(answers);
    let store = open(&script, AzureCredential::Key(SecretSource::Value("a2V5".to_owned())));
    for is_of_key in [true, false, false] {
        let error = store.read().await.unwrap_err().to_string();
        assert_eq!(error.contains("does not match the account acct"), is_of_key, "{error}");
    }
    for request in script.asked() {
        let signature = header(request.headers(), "authorization").unwrap();
        let signature = signature.strip_prefix("SharedKey acct:").expect("a signature by the key");
        // HMAC-SHA256 has 32 bytes, which are 44 characters of base64.
        assert_eq!(signature.len(), 44);
        assert!(header(request.headers(), "x-ms-date").is_some());
    }
}

#[tokio::test]
async fn a_blob_is_looked_for_without_creating_it() {
    let (store, script) = store([head(&[]), refusal(404, "ContainerNotFound")]);
    assert_eq!(store.presence().await.unwrap(), Presence::Exists);
    let Presence::Missing { missing, others: None } = store.presence().await.unwrap() else {
        panic!("the container is missing");
    };
    assert_eq!(missing, "the container locks does not exist");
    assert_eq!(script.lines(), [format!("HEAD {LOCK}"), format!("HEAD {LOCK}")]);
}

/// The answer of Entra to a request for a token.
const TOKEN: &str = r#"{"token_type":"Bearer","expires_in":3600,"ext_expires_in":3600,
                        "access_token":"TOKEN"}"#;

fn body(status: u16, body: &'static str) -> Answer {
    Answer { status, headers: Headers::new(), body }
}

#[tokio::test]
async fn a_sign_in_that_fails_is_explained_by_the_answer_without_its_body() {
    for (answer, words) in [
        (body(200, r#"{"secret":"SECRET"}"#), "the endpoint's answer contains no token"),
        (
            body(200, r#"{"access_token":"SECRET","expires_in":9223372036854775807}"#),
            "the endpoint answered 200: its token has an impossible lifetime",
        ),
        (
            body(400, r#"{"error_description":"AADSTS700016: no such application\r\nSECRET"}"#),
            "the endpoint answered 400: AADSTS700016: no such application",
        ),
        (body(500, "SECRET"), "the endpoint answered 500"),
    ] {
        let transport = Script::new([answer]);
        let sign_in = SignIn::Managed { client_id: None, assumed: false, transport };
        let message = sign_in.exchange().await.unwrap_err().message;
        let words = format!("sign-in with managed identity failed: {words}; ");
        assert!(message.starts_with(&words), "{message}");
        assert!(!message.contains("SECRET"), "{message}");
    }
}

#[tokio::test]
async fn the_token_of_a_pod_is_sent_to_its_authority() {
    let directory = tempfile::tempdir().unwrap();
    let token_file = directory.path().join("token");
    std::fs::write(&token_file, "POD-TOKEN\n").unwrap();
    let script = Script::new([body(200, TOKEN)]);
    let sign_in = SignIn::Workload {
        token_file,
        client_id: "client".to_owned(),
        tenant_id: "tenant".to_owned(),
        authority_host: Some("https://login.example.com/".to_owned()),
        transport: Arc::clone(&script) as _,
    };
    assert_eq!(sign_in.exchange().await.unwrap().token.secret(), "TOKEN");
    let asked = script.asked();
    let url = asked[0].url().as_str();
    assert_eq!(url, "https://login.example.com/tenant/oauth2/v2.0/token");
    let Body::Bytes(sent) = asked[0].body() else { panic!("a form is sent whole") };
    let sent = String::from_utf8(sent.to_vec()).unwrap();
    for part in ["client_assertion=POD-TOKEN&", "client_id=client"] {
        assert!(format!("{sent}&").contains(part), "{sent}");
    }
}

#[tokio::test]
async fn a_server_that_answers_with_errors_fails_the_examination() {
    let (store, _) = store([]);
    let found = store.examine().await;
    assert!(found.iter().any(|it| it.verdict == Verdict::Failed), "{found:?}");
}
