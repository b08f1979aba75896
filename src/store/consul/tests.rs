//! Tests of the calls against servers that answer by a script.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::task::JoinSet;
use url::Url;

use super::*;
use crate::clock;
use crate::config::SecretSource;
use crate::lease::fuzzing::bid;
use crate::store::Verdict;

const KEY: &str = "tenure/orders/lease";
const OURS: Uuid = Uuid::from_u128(5);
const OTHER: Uuid = Uuid::from_u128(6);

/// What a server answers next.
#[derive(Clone, Debug)]
enum Reply {
    /// An answer with the index 9.
    Answer(u16, Value),
    /// An answer with a later index.
    Later(Value),
    Text(u16, &'static str),
    /// A body that is too long.
    Long(u16),
    /// Nothing, ever.
    Hang,
}

/// A request that a server received.
#[derive(Clone, Debug)]
struct Asked {
    /// Method, path and query.
    line: String,
    token: Option<String>,
    body: Value,
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<Asked>,
}

/// A server that answers what the test has put into it, in this order.
struct Server {
    url: Url,
    script: Arc<Mutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
        let script = Arc::<Mutex<Script>>::default();
        let shared = Arc::clone(&script);
        let app =
            Router::new().fallback(move |request: Request| answer(Arc::clone(&shared), request));
        let serving = async move { axum::serve(listener, app).await.unwrap() };
        let mut task = JoinSet::new();
        task.spawn(serving);
        Self { url, script, _task: task }
    }

    fn says(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script.lock().unwrap().replies.extend(replies);
    }

    /// Returns the requests since the last time.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }

    fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|it| it.line).collect()
    }
}

async fn answer(script: Arc<Mutex<Script>>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().as_str();
    let line = format!("{} {}", request.method(), path.trim_start_matches("/v1/"));
    let token = request.headers().get("x-consul-token");
    let token = token.map(|it| it.to_str().unwrap().to_owned());
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let reply = {
        let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
        script.asked.push(Asked { line, token, body });
        script.replies.pop_front()
    };
    let code = |it| StatusCode::from_u16(it).unwrap();
    let index = |index| [("x-consul-index", index)];
    match reply.unwrap_or(Reply::Text(500, "the script is over")) {
        Reply::Answer(status, body) => (code(status), index("9"), body.to_string()).into_response(),
        Reply::Later(body) => (code(200), index("12"), body.to_string()).into_response(),
        Reply::Text(status, text) => (code(status), text).into_response(),
        Reply::Long(status) => (code(status), "x".repeat((1 << 20) + 1)).into_response(),
        Reply::Hang => std::future::pending().await,
    }
}

fn settings(servers: &[&Server]) -> ConsulSettings {
    ConsulSettings {
        servers: servers.iter().map(|it| it.url.clone()).collect(),
        prefix: "tenure".to_owned(),
        election: "orders".to_owned(),
        token: None,
        tls: None,
        request_timeout: Duration::from_secs(30),
    }
}

fn open(settings: &ConsulSettings) -> Consul {
    Consul::open(settings).unwrap()
}

fn entry(content: &Content, session: Option<Uuid>) -> Reply {
    let value = azure_core::base64::encode(content.bytes());
    let mut entry = json!({"Key": KEY, "Value": value, "ModifyIndex": 7, "LockIndex": 1});
    if let Some(session) = session {
        entry["Session"] = session.to_string().into();
    }
    Reply::Answer(200, json!([entry]))
}

fn claimed() -> Content {
    Content::default().with_claim(Some(Claim::of(&bid())))
}

/// A read of the key that the bid has locked.
fn ours() -> Reply {
    entry(&claimed(), Some(OURS))
}

/// A read of a key that does not exist.
fn missing() -> Reply {
    Reply::Answer(404, Value::Null)
}

fn session(id: Uuid) -> Reply {
    Reply::Answer(
        200,
        json!([{"ID": id.to_string(), "TTL": "15s", "LockDelay": 15_000_000_000_u64}]),
    )
}

fn created() -> Reply {
    Reply::Answer(200, json!({"ID": OURS.to_string()}))
}

/// The answer to a transaction of this many operations that have a result.
fn done(results: usize, session: Option<Uuid>) -> Reply {
    let session = session.map(|it| it.to_string());
    let result = json!({"KV": {"Key": KEY, "ModifyIndex": 8, "Value": null, "Session": session}});
    Reply::Answer(200, json!({"Results": vec![result; results], "Errors": null}))
}

fn undone(what: &str) -> Reply {
    Reply::Answer(409, json!({"Results": null, "Errors": [{"OpIndex": 0, "What": what}]}))
}

fn yes() -> Reply {
    Reply::Answer(200, true.into())
}

fn outcome<T>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "granted".to_owned(),
        Err(error) => format!("{} {error}", error.outcome()),
    }
}

#[tokio::test]
async fn a_bid_locks_the_key_as_it_was_read_by_a_session_of_its_own() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    assert_eq!(store.rules(), Rules { longest_lease: None, missing_is_free: false });
    server.says([missing(), created(), done(1, Some(OURS))]);
    let granted = store.acquire(&bid()).await.unwrap();
    assert!(granted.date.is_some(), "the server's, of the last answer");
    let asked = server.asked();
    let lines: Vec<_> = asked.iter().map(|it| it.line.as_str()).collect();
    assert_eq!(lines, ["GET kv/tenure/orders/lease?consistent", "PUT session/create", "PUT txn"]);
    assert_eq!(asked[1].body["TTL"], "15s");
    assert_eq!(asked[1].body["LockDelay"], "15s");
    assert_eq!(asked[1].body["Behavior"], "release");
    assert_eq!(asked[1].body["NodeChecks"], json!([]));
    assert_eq!(asked[2].body[0]["KV"], json!({"Verb": "check-not-exists", "Key": KEY}));
    assert_eq!(asked[2].body[1]["KV"]["Verb"], "lock");
    assert_eq!(asked[2].body[1]["KV"]["Session"], OURS.to_string());
    // A key that exists is compared with its last write.
    let bid = Bid { seen: Version("7".into()), ..bid() };
    let freed = entry(&claimed(), None);
    server.says([freed, created(), done(2, Some(OURS))]);
    assert_eq!(outcome(store.acquire(&bid).await), "granted");
    let index = json!({"Verb": "check-index", "Key": KEY, "Index": 7});
    assert_eq!(server.asked()[2].body[0]["KV"], index);
}

#[tokio::test]
async fn a_bid_counts_only_if_the_key_is_locked_by_its_session() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    for (reply, expected) in [
        (done(1, Some(OTHER)), "settings"),
        (done(1, None), "settings"),
        (done(0, None), "settings"),
        (done(2, Some(OURS)), "settings"),
        (Reply::Text(200, "{}"), "settings"),
        (Reply::Text(500, "leadership lost while committing log"), "unavailable"),
        (undone("Permission denied: lacks permission 'key:write'"), "auth"),
        (undone("something else"), "unavailable"),
        (Reply::Long(200), "settings"),
        (Reply::Long(500), "unavailable"),
    ] {
        server.says([missing(), created(), reply.clone()]);
        let found = outcome(store.acquire(&bid()).await);
        assert!(found.starts_with(expected), "{reply:?}: {found}");
        assert_eq!(server.asked().len(), 3, "{reply:?}: nothing is repeated");
    }
}

#[tokio::test]
async fn a_bid_that_came_too_late_ends_its_session_and_says_who_was_first() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    let other = claimed().with_claim(Some(Claim {
        nonce: crate::lease::Nonce(9),
        identity: "first".to_owned(),
        is_breaking: false,
    }));
    let held = "failed to lock key \"tenure/orders/lease\", lock is already held";
    let delay = "failed to lock key \"tenure/orders/lease\" due to lock delay";
    for (what, now, words) in [
        (held, entry(&other, Some(OTHER)), "held by \"first\""),
        (delay, entry(&other, None), "keeps the lock"),
        ("key \"tenure/orders/lease\" exists", entry(&other, None), "has changed since"),
        ("invalid session \"x\"", missing(), "has changed since"),
    ] {
        server.says([missing(), created(), undone(what), yes(), now]);
        let found = outcome(store.acquire(&bid()).await);
        assert!(found.starts_with("refused") && found.contains(words), "{what}: {found}");
        assert_eq!(server.lines()[3], format!("PUT session/destroy/{OURS}"));
    }
    // It may have been an earlier request of the same bid.
    server.says([missing(), created(), undone(held), yes(), ours(), session(OURS)]);
    assert_eq!(outcome(store.acquire(&bid()).await), "granted");
    assert_eq!(server.lines()[5], format!("PUT session/renew/{OURS}"));
}

#[tokio::test]
async fn a_bid_for_another_version_sends_nothing_more() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    for seen in ["1", "", "missing"] {
        server.says([missing()]);
        let bid = Bid { seen: Version(seen.into()), ..bid() };
        assert!(outcome(store.acquire(&bid).await).starts_with("refused"));
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_renewal_reads_the_key_before_it_counts_the_session_anew() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    server.says([ours(), session(OURS)]);
    assert_eq!(store.renew(&bid()).await, Ok(None));
    assert_eq!(
        server.lines(),
        ["GET kv/tenure/orders/lease?consistent".to_owned(), format!("PUT session/renew/{OURS}")]
    );
    for (reply, expected) in [
        (session(OTHER), "settings"),
        (Reply::Answer(200, json!([])), "settings"),
        (Reply::Text(500, "No cluster leader"), "unavailable"),
    ] {
        server.says([ours(), reply]);
        assert!(outcome(store.renew(&bid()).await).starts_with(expected));
        assert_eq!(server.asked().len(), 2);
    }
}

#[tokio::test]
async fn a_session_that_a_server_does_not_know_is_lost_only_with_the_lock() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    let unknown = || Reply::Text(404, "Session id not found");
    server.says([ours(), unknown(), entry(&claimed(), None)]);
    assert!(outcome(store.renew(&bid()).await).starts_with("refused"));
    server.says([ours(), unknown(), ours()]);
    assert!(outcome(store.renew(&bid()).await).starts_with("unavailable"));
}

#[tokio::test]
async fn a_key_that_is_not_locked_for_the_bid_is_not_renewed() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    let by_other = entry(&Content::default(), Some(OTHER));
    for read in [entry(&claimed(), None), entry(&claimed().breaking(), Some(OURS)), by_other] {
        for ask in ["renew", "write", "successor"] {
            server.says([read.clone()]);
            let found = match ask {
                "renew" => outcome(store.renew(&bid()).await),
                "write" => outcome(store.write_term(&bid(), 1).await),
                _ => {
                    let it = Successor { identity: "b".to_owned(), hold_off: Duration::ZERO };
                    outcome(store.set_successor(&bid(), &it).await)
                }
            };
            assert!(found.starts_with("refused"), "{ask} {read:?}: {found}");
            assert_eq!(server.asked().len(), 1, "{ask} {read:?}");
        }
    }
}

#[tokio::test]
async fn a_term_is_written_only_on_what_was_read() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    server.says([ours(), done(2, Some(OURS))]);
    assert_eq!(store.write_term(&bid(), 3).await, Ok(7), "the index of the key is larger");
    let asked = server.asked();
    assert_eq!(asked[1].body[0]["KV"], json!({"Verb": "check-index", "Key": KEY, "Index": 7}));
    assert_eq!(asked[1].body[1]["KV"]["Verb"], "set");
    let Reply::Answer(200, mut none_failed) = done(2, Some(OURS)) else { unreachable!() };
    none_failed["Errors"] = json!([]);
    server.says([ours(), Reply::Answer(200, none_failed)]);
    assert_eq!(store.write_term(&bid(), 3).await, Ok(7), "no errors are an empty list, too");
    let failed = "failed index check for key, current modify index 8 != 7";
    let Reply::Answer(409, mut both) = undone("something else") else { unreachable!() };
    both["Errors"].as_array_mut().unwrap().push(json!({"OpIndex": 1, "What": failed}));
    for undone in [undone(failed), Reply::Answer(409, both)] {
        server.says([ours(), undone.clone()]);
        let found = store.write_term(&bid(), 3).await;
        assert!(matches!(found, Err(StoreError::RetryNow(_))), "{undone:?}: {found:?}");
    }
    let Reply::Answer(200, mut failed) = done(2, Some(OURS)) else { unreachable!() };
    failed["Errors"] = json!([{"OpIndex": 1, "What": "x"}]);
    let Reply::Answer(200, mut other) = done(2, Some(OURS)) else { unreachable!() };
    other["Results"] = json!([other["Results"][0], {"KV": {"Key": "other", "ModifyIndex": 8}}]);
    for unlike in [failed, other] {
        server.says([ours(), Reply::Answer(200, unlike.clone())]);
        let found = outcome(store.write_term(&bid(), 3).await);
        assert!(found.starts_with("settings"), "{unlike}: {found}");
    }
}

#[tokio::test]
async fn a_successor_is_written_once_into_the_record_of_the_bid() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    let led = claimed().with_term(&bid(), 7);
    server.says([entry(&led, Some(OURS)), done(2, Some(OURS))]);
    assert_eq!(store.set_successor(&bid(), &successor).await, Ok(None));
    let named = led.with_successor(&successor);
    let asked = server.asked();
    assert_eq!(asked[1].body[1]["KV"]["Value"], azure_core::base64::encode(named.bytes()));
    server.says([entry(&named, Some(OURS))]);
    assert_eq!(store.set_successor(&bid(), &successor).await, Ok(None));
    assert_eq!(server.asked().len(), 1);
    server.says([ours()]);
    let found = outcome(store.set_successor(&bid(), &successor).await);
    assert!(found.starts_with("refused this candidate did not write the record"), "{found}");
    let broken = led.breaking();
    server.says([entry(&broken, Some(OURS))]);
    let found = outcome(store.set_successor(&bid(), &successor).await);
    assert!(found.starts_with("refused an operator broke the lease"), "{found}");
    server.says([entry(&led, Some(OURS)), undone("current modify index 8 != 7")]);
    let found = store.set_successor(&bid(), &successor).await;
    assert!(matches!(found, Err(StoreError::RetryNow(_))), "{found:?}");
}

#[tokio::test]
async fn a_first_term_is_written_only_where_there_is_none() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    server.says([missing(), done(1, None)]);
    let said = store.create(700).await.unwrap();
    assert_eq!(said, [format!("created the key {KEY} with the first term 700")]);
    let first = Content::default().with_first_term(700);
    assert_eq!(server.asked()[1].body[1]["KV"]["Value"], azure_core::base64::encode(first.bytes()));
    server.says([entry(&first, None)]);
    assert_eq!(store.create(700).await, Ok(Vec::new()));
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_missing_key_is_shown_with_the_other_elections() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    for (listed, others) in [
        (Reply::Answer(200, json!(["tenure/b/", "tenure/a/"])), Some(vec!["a", "b"])),
        (Reply::Text(404, ""), Some(Vec::new())),
        (Reply::Text(403, "Permission denied"), None),
    ] {
        server.says([missing(), listed]);
        let others = others.map(|it| it.into_iter().map(str::to_owned).collect());
        let missing = format!("no key {KEY} in Consul");
        assert_eq!(store.presence().await, Ok(Presence::Missing { missing, others }));
        assert_eq!(server.lines()[1], "GET kv/tenure/?keys&separator=/");
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_fails_the_examination() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    drop(server);
    let found = store.examine().await;
    assert!(found.iter().any(|it| it.verdict == Verdict::Failed), "{found:?}");
}

#[tokio::test]
async fn a_release_gives_the_lock_back_before_it_ends_the_session() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    for destroyed in [yes(), Reply::Text(500, "No cluster leader")] {
        server.says([ours(), done(2, None), destroyed]);
        assert_eq!(store.release(&bid()).await, Ok(()), "it is free either way");
        let asked = server.asked();
        assert_eq!(asked[1].body[1]["KV"]["Verb"], "unlock");
        assert_eq!(asked[1].body[1]["KV"]["Session"], OURS.to_string());
        assert_eq!(asked[2].line, format!("PUT session/destroy/{OURS}"));
    }
    server.says([ours(), undone("current modify index 8 != 7")]);
    let found = store.release(&bid()).await;
    assert!(matches!(found, Err(StoreError::RetryNow(_))), "{found:?}");
}

#[tokio::test]
async fn a_lease_without_an_end_is_broken_at_once_only() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    let endless = Reply::Answer(200, json!([{"ID": OURS.to_string(), "TTL": "", "LockDelay": 0}]));
    server.says([ours(), endless]);
    let broken = store.break_lease(false).await;
    assert!(matches!(broken, Err(StoreError::Refused(_))), "{broken:?}");
    server.says([entry(&Content::default(), Some(OTHER))]);
    let broken = store.break_lease(false).await;
    assert!(matches!(broken, Err(StoreError::Refused(_))), "{broken:?}");
    server.says([entry(&Content::default(), Some(OTHER)), done(2, None), yes()]);
    let broken = store.break_lease(true).await.unwrap();
    assert!(matches!(broken, BreakOutcome::Held { free_in: Duration::ZERO, .. }));
    server.asked();
    server.says([ours(), session(OURS), done(2, Some(OURS))]);
    let broken = store.break_lease(false).await.unwrap();
    let BreakOutcome::Held { free_in, .. } = broken else { panic!("it was held") };
    assert_eq!(free_in, Duration::from_secs(46), "twice the TTL, the lock-delay, and a moment");
    server.asked();
    server.says([entry(&claimed().breaking(), Some(OURS)), session(OURS)]);
    let again = store.break_lease(false).await.unwrap();
    assert!(
        matches!(again, BreakOutcome::Held { free_in, .. } if free_in == Duration::from_secs(46))
    );
    assert_eq!(server.asked().len(), 2, "it is not broken twice");
}

#[tokio::test]
async fn what_consul_did_not_answer_is_unknown() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    let other = json!([{"Key": "tenure/other/lease", "Value": null, "ModifyIndex": 7}]);
    for reply in [
        Reply::Text(200, "<html>welcome</html>"),
        Reply::Text(200, "[]"),
        Reply::Text(200, "{}"),
        Reply::Answer(200, other),
        Reply::Text(302, ""),
        Reply::Text(404, "nothing here"),
        Reply::Text(503, ""),
        Reply::Text(500, "No cluster leader"),
        Reply::Text(429, "rate limit exceeded"),
        Reply::Text(403, "Permission denied"),
    ] {
        for ask in ["read", "renew", "acquire", "write", "release"] {
            server.says([reply.clone()]);
            let found = match ask {
                "read" => store.read().await.map(drop),
                "renew" => store.renew(&bid()).await.map(drop),
                "acquire" => store.acquire(&bid()).await.map(drop),
                "write" => store.write_term(&bid(), 1).await.map(drop),
                _ => store.release(&bid()).await,
            };
            assert!(matches!(found, Err(StoreError::Unknown(_))), "{ask} {reply:?}: {found:?}");
            assert_eq!(server.asked().len(), 1, "nothing is repeated");
        }
    }
}

#[tokio::test]
async fn a_call_stays_with_its_server_and_the_next_goes_to_another_if_that_did_not_answer() {
    let (one, two) = (Server::start().await, Server::start().await);
    let store = open(&settings(&[&one, &two]));
    one.says([ours(), Reply::Text(500, "No cluster leader")]);
    assert!(outcome(store.renew(&bid()).await).starts_with("unavailable"));
    assert_eq!((one.asked().len(), two.asked().len()), (2, 0), "no retry inside a call");
    two.says([ours(), session(OURS), Reply::Text(403, "Permission denied"), Reply::Hang]);
    assert_eq!(outcome(store.renew(&bid()).await), "granted");
    assert!(outcome(store.renew(&bid()).await).starts_with("auth"), "an answer like any other");
    let given_up = tokio::time::timeout(Duration::from_millis(300), store.read()).await;
    assert!(given_up.is_err());
    assert_eq!((one.asked().len(), two.asked().len()), (0, 4));
    one.says([missing()]);
    assert!(store.read().await.unwrap().free, "and back to the first");
}

#[tokio::test]
async fn a_token_is_read_again_after_a_refusal_and_never_shown() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "hunter1\n").unwrap();
    let token = Some(SecretSource::File(file.clone()));
    let store = open(&ConsulSettings { token, ..settings(&[&server]) });
    server.says([missing(), Reply::Text(403, "ACL not found")]);
    assert!(store.read().await.is_ok());
    std::fs::write(&file, "hunter2\n").unwrap();
    let error = store.read().await.unwrap_err();
    assert_eq!(error.outcome(), "auth");
    let shown = format!("{error} {error:?} {store:?} {:?}", store.settings);
    assert!(shown.contains("CONSUL_HTTP_TOKEN") && !shown.contains("hunter"), "{shown}");
    let replaced = async {
        loop {
            server.asked();
            server.says([missing()]);
            store.read().await.unwrap();
            if server.asked()[0].token.as_deref() == Some("hunter2") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), replaced).await.expect("it is read again");
}

/// An entry that Tenure did not write.
fn foreign() -> Reply {
    let value = azure_core::base64::encode("somebody's");
    Reply::Later(json!([{"Key": KEY, "Value": value, "ModifyIndex": 8, "LockIndex": 1}]))
}

#[tokio::test]
async fn a_watch_continues_from_its_last_index_and_shows_what_is_foreign() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    server.says([ours(), foreign(), missing()]);
    for (index, held_by) in [(0, Some(bid().nonce)), (9, Some(bid().nonce)), (12, None)] {
        assert_eq!(store.watch().await, held_by);
        assert_eq!(server.lines(), [format!("GET kv/{KEY}?index={index}&wait=48s")]);
    }
}

#[tokio::test]
async fn a_watch_pauses_after_an_answer_without_news_and_after_an_error() {
    let server = Server::start().await;
    let store = open(&settings(&[&server]));
    server.says([ours(), ours(), ours(), Reply::Text(500, "no leader"), foreign(), missing()]);
    assert_eq!(store.watch().await, Some(bid().nonce));
    let began = clock::now();
    assert_eq!(store.watch().await, None);
    let indices: Vec<_> = server.lines().iter().map(|it| it.contains("index=0&")).collect();
    assert_eq!(indices, [true, false, false, false, true, true], "it begins anew after an error");
    // Two answers and an error with the shortest pause, and an error with twice that: half of it at least.
    let least = Duration::from_millis(125 + 125 + 125 + 250);
    assert!(began.elapsed_max(clock::now()) >= least, "{:?}", began.elapsed_max(clock::now()));
}
