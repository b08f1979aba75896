//! Tests of the requests against servers that answer by a script.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use url::Url;

use super::*;
use crate::clock;
use crate::config::SecretSource;
use crate::lease::{Nonce, Record, StoreError};
use crate::store::Verdict;

const KEY: &str = "tenure/orders/lease";

/// What a server answers next.
#[derive(Clone, Debug)]
enum Reply {
    /// An answer with the index 9.
    Answer(u16, Value),
    /// An answer with another index.
    At(&'static str, Value),
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
        Reply::At(at, body) => {
            (code(if body.is_null() { 404 } else { 200 }), index(at), body.to_string())
                .into_response()
        }
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

fn open(settings: &ConsulSettings) -> Keys {
    Keys::open(settings, settings.request_timeout).unwrap()
}

async fn get(keys: &Keys) -> Result<Option<Tagged>, RegisterError> {
    keys.get(Slot::Lease).await
}

fn body(term: u64, write: u128) -> Body {
    let record = Record { term: Some(term), ..Record::default() };
    Body { record, write: Nonce(write), ..Body::default() }
}

fn encoded(text: impl AsRef<[u8]>) -> String {
    azure_core::base64::encode(text)
}

/// What a read of this value says, last written at this index.
fn entry(value: &[u8], index: u64) -> Value {
    json!([{"Key": KEY, "Value": encoded(value), "ModifyIndex": index, "LockIndex": 0}])
}

/// A read of a key that does not exist.
fn missing() -> Reply {
    Reply::Answer(404, Value::Null)
}

/// The answer to a transaction that wrote these keys.
fn done(keys: &[&str]) -> Reply {
    let result = |key: &&str| json!({"KV": {"Key": key, "ModifyIndex": 8, "Value": null}});
    let results: Vec<_> = keys.iter().map(result).collect();
    Reply::Answer(200, json!({"Results": results, "Errors": null}))
}

fn undone(what: &str) -> Reply {
    Reply::Answer(409, json!({"Results": null, "Errors": [{"OpIndex": 0, "What": what}]}))
}

const TERM: &str = "tenure/orders/term";

#[tokio::test]
async fn a_write_is_one_request_on_the_index_that_was_read_with_the_term_beside_it() {
    let server = Server::start().await;
    let keys = open(&settings(&[&server]));
    server.says([Reply::Answer(200, entry(&body(3, 1).encode(), 7)), done(&[KEY, TERM])]);
    let read = get(&keys).await.unwrap().unwrap();
    assert!(read.body == Ok(body(3, 1)) && read.date.is_some());
    let new = body(4, 2);
    let written = keys.put(Slot::Lease, If::Tagged(&read.tag), &new).await.unwrap().unwrap();
    assert!(written.tag == "8" && written.date.is_some());
    let asked = server.asked();
    assert_eq!(asked[0].line, format!("GET kv/{KEY}?consistent"));
    assert_eq!((asked[1].line.as_str(), asked.len()), ("PUT txn", 2));
    let cas = json!({"Verb": "cas", "Key": KEY, "Value": encoded(new.encode()), "Index": 7});
    let set = json!({"Verb": "set", "Key": TERM, "Value": encoded("4")});
    assert_eq!(asked[1].body, json!([{"KV": cas}, {"KV": set}]));
    for (slot, body, key) in
        [(Slot::Lease, Body::default(), KEY), (Slot::Trial, new, "tenure/orders/doctor")]
    {
        server.says([done(&[key])]);
        assert!(keys.put(slot, If::Absent, &body).await.unwrap().is_some());
        let asked = server.asked().remove(0).body;
        assert_eq!((asked[0]["KV"]["Index"].clone(), asked.get(1)), (0.into(), None));
    }
}

#[tokio::test]
async fn a_write_counts_only_if_the_answer_shows_it() {
    let server = Server::start().await;
    let keys = open(&settings(&[&server]));
    let stale = "failed to set key \"tenure/orders/lease\", index is stale";
    let earlier =
        json!([{"KV": {"Key": KEY, "ModifyIndex": 7}}, {"KV": {"Key": TERM, "ModifyIndex": 1}}]);
    for (reply, expected) in [
        (done(&[KEY, TERM]), "written"),
        (undone(stale), "refused"),
        (done(&[KEY]), "unknown"),
        (done(&[TERM, KEY]), "unknown"),
        (done(&[KEY, TERM, KEY]), "unknown"),
        (Reply::Answer(200, json!({"Results": earlier, "Errors": null})), "unknown"),
        (Reply::Text(200, "{}"), "unknown"),
        (Reply::Text(409, "{}"), "unknown"),
        (Reply::Text(409, "conflict"), "unknown"),
        (Reply::Text(500, "leadership lost while committing log"), "unknown"),
        (Reply::Text(500, "No cluster leader"), "unknown"),
        (undone("Permission denied: lacks permission 'key:write'"), "unknown"),
        (undone("something else"), "unknown"),
        (Reply::Answer(409, json!({"Errors": [{"OpIndex": 1, "What": stale}]})), "unknown"),
        (Reply::Long(200), "unknown"),
        (Reply::Long(500), "unknown"),
    ] {
        server.says([reply.clone()]);
        let outcome = keys.put(Slot::Lease, If::Tagged("7"), &body(3, 1)).await;
        let found = match outcome.map_err(StoreError::from) {
            Ok(Some(_)) => "written",
            Ok(None) => "refused",
            Err(StoreError::Unknown(_)) => "unknown",
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(found, expected, "{reply:?}");
        assert_eq!(server.asked().len(), 1, "{reply:?}: nothing is repeated");
    }
}

#[tokio::test]
async fn what_consul_did_not_answer_is_unknown() {
    let server = Server::start().await;
    let keys = open(&settings(&[&server]));
    let other = json!([{"Key": "tenure/other/lease", "Value": null, "ModifyIndex": 7}]);
    for reply in [
        Reply::Text(200, "<html>welcome</html>"),
        Reply::Text(200, "[]"),
        Reply::Answer(200, other),
        Reply::Text(302, ""),
        Reply::Text(404, "nothing here"),
        Reply::Text(503, ""),
        Reply::Text(500, "No cluster leader"),
        Reply::Text(429, "rate limit exceeded"),
        Reply::Text(403, "Permission denied"),
    ] {
        server.says([reply.clone()]);
        let error = StoreError::from(get(&keys).await.expect_err("it is none of Consul's"));
        assert!(matches!(error, StoreError::Unknown(_)), "{reply:?}: {error:?}");
        assert_eq!(server.asked().len(), 1, "nothing is repeated");
    }
    server.says([missing()]);
    assert_eq!(get(&keys).await, Ok(None));
}

#[tokio::test]
async fn the_next_call_goes_to_another_server_if_this_one_did_not_answer() {
    let (one, two) = (Server::start().await, Server::start().await);
    let keys = open(&settings(&[&one, &two]));
    one.says([Reply::Text(500, "No cluster leader"), missing()]);
    two.says([Reply::Text(403, "Permission denied"), Reply::Hang]);
    assert!(get(&keys).await.is_err() && get(&keys).await.is_err());
    assert_eq!((one.asked().len(), two.asked().len()), (1, 1));
    let given_up = tokio::time::timeout(Duration::from_millis(300), get(&keys)).await;
    assert!(given_up.is_err() && two.asked().len() == 1, "a refusal is an answer like any other");
    assert_eq!(get(&keys).await, Ok(None), "and back to the first");
}

#[tokio::test]
async fn a_missing_key_is_shown_with_the_other_elections() {
    let server = Server::start().await;
    let keys = open(&settings(&[&server]));
    for (listed, others) in [
        (Reply::Answer(200, json!(["tenure/b/", "tenure/a/", "tenure//", "tenure/c"])), Some(2)),
        (Reply::Text(404, ""), Some(0)),
        (Reply::Text(403, "Permission denied"), None),
    ] {
        server.says([listed]);
        assert_eq!(keys.others().await.map(|it| it.len()), others);
        assert_eq!(server.lines(), ["GET kv/tenure/?keys&separator=/"]);
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_fails_the_examination_and_a_local_fault_is_said_as_that() {
    let server = Server::start().await;
    let keys = open(&settings(&[&server]));
    let token = Some(SecretSource::File("/none".into()));
    let local = open(&ConsulSettings { token, ..settings(&[&server]) });
    let all = local.examine().await;
    assert_eq!((&*all[0].subject, all[0].verdict), ("this host", Verdict::Failed), "{all:?}");
    assert!(all[0].detail.contains("failed to read /none") && server.asked().is_empty(), "{all:?}");
    drop(server);
    let all = keys.examine().await;
    assert_eq!(all[0].verdict, Verdict::Failed, "{all:?}");
    assert!(all[1..].iter().all(|it| it.verdict == Verdict::Skipped), "{all:?}");
}

#[tokio::test]
async fn doctor_tells_two_clusters_apart() {
    let (one, two) = (Server::start().await, Server::start().await);
    let keys = open(&settings(&[&one, &two]));
    for (server, peer) in [(&one, "10.0.0.1:8300"), (&two, "10.0.0.9:8300")] {
        server.says([Reply::Answer(200, peer.into()), Reply::Answer(200, json!([peer]))]);
    }
    one.says([Reply::Text(403, "Permission denied")]);
    let all = keys.examine().await;
    let cluster = all.iter().find(|it| it.subject == "cluster").unwrap();
    assert_eq!(cluster.verdict, Verdict::Failed, "{all:?}");
    assert!(cluster.detail.contains("different clusters"), "{cluster:?}");
}

#[tokio::test]
async fn a_token_is_read_again_after_a_refusal_and_never_shown() {
    let server = Server::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "hunter1\n").unwrap();
    let token = Some(SecretSource::File(file.clone()));
    let keys = open(&ConsulSettings { token, ..settings(&[&server]) });
    server.says([missing(), Reply::Text(403, "ACL not found")]);
    assert!(get(&keys).await.is_ok());
    std::fs::write(&file, "hunter2\n").unwrap();
    let error = get(&keys).await.unwrap_err();
    assert!(matches!(error, RegisterError::Credential(_)), "{error:?}");
    let shown = format!("{error} {error:?} {:?}", keys.settings);
    assert!(shown.contains("CONSUL_HTTP_TOKEN") && !shown.contains("hunter"), "{shown}");
    let replaced = async {
        loop {
            server.asked();
            server.says([missing()]);
            get(&keys).await.unwrap();
            if server.asked()[0].token.as_deref() == Some("hunter2") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), replaced).await.expect("it is read again");
}

#[tokio::test]
async fn a_watch_begins_with_the_present_state_and_reports_each_write_once() {
    let server = Server::start().await;
    let keys = open(&settings(&[&server]));
    let [first, second] = [body(3, 1), body(3, 2)];
    let at = |index, body: &Body, written| Reply::At(index, entry(&body.encode(), written));
    server.says([
        at("9", &first, 7),
        // Its time is over; something else was written.
        at("9", &first, 7),
        at("10", &first, 7),
        at("12", &second, 12),
        Reply::At("13", entry(b"somebody's", 13)),
        Reply::At("14", Value::Null),
        Reply::Text(500, "No cluster leader"),
        at("15", &first, 15),
        // Older data was restored.
        at("3", &second, 2),
        at("3", &second, 2),
    ]);
    let [begun, again] = [Told::Body(first.clone()), Told::Body(first)];
    let [next, restored] = [Told::Body(second.clone()), Told::Body(second)];
    let told = [begun, next, Told::Hint, Told::Gone, again, restored];
    for expected in told {
        assert_eq!(keys.told().await, expected);
    }
    let lines = server.lines();
    let asked: Vec<_> = lines.iter().filter_map(|it| it.split_once('?')).map(|it| it.1).collect();
    let [begin, nine, ten] = ["consistent", "index=9&wait=48s", "index=10&wait=48s"];
    let later = [12, 13, 14].map(|it| format!("index={it}&wait=48s"));
    let last = "index=15&wait=48s";
    let [twelve, thirteen, fourteen] = [&*later[0], &*later[1], &*later[2]];
    let expected = [begin, nine, nine, ten, twelve, thirteen, fourteen, begin, last, begin];
    assert_eq!(asked, expected);
}

#[tokio::test]
async fn a_watch_that_is_dropped_begins_on_another_server() {
    let (one, two) = (Server::start().await, Server::start().await);
    let keys = open(&settings(&[&one, &two]));
    one.says([Reply::At("9", entry(b"", 7)), Reply::Hang, missing()]);
    two.says([Reply::At("9", entry(b"", 7)), Reply::Hang]);
    let began = clock::now();
    for (index, server) in [&one, &two].into_iter().enumerate() {
        assert_eq!(keys.told().await, Told::Hint, "{index}: the present state");
        let silent = tokio::time::timeout(Duration::from_millis(300), keys.told()).await;
        assert!(silent.is_err() && server.asked().len() == 2, "{index}");
    }
    assert_eq!(keys.told().await, Told::Gone);
    assert!(began.elapsed_min(clock::now()) < Duration::from_secs(5), "nothing pauses");
    one.says([missing()]);
    assert_eq!(get(&keys).await, Ok(None), "requests stay where they were");
}

#[tokio::test]
async fn a_server_that_answers_a_watch_at_once_is_asked_more_slowly_each_time() {
    let server = Server::start().await;
    let keys = open(&settings(&[&server]));
    let same = || Reply::At("9", entry(b"", 7));
    server.says([same(), same(), same(), same(), missing()]);
    assert_eq!(keys.told().await, Told::Hint);
    let began = clock::now();
    assert_eq!(keys.told().await, Told::Gone);
    let least = Duration::from_millis(125 + 250 + 500);
    assert!(began.elapsed_max(clock::now()) >= least, "{:?}", began.elapsed_max(clock::now()));
}

#[test]
fn an_election_is_known_by_its_folder() {
    assert_eq!(election("tenure/orders/", "tenure/"), Some("orders"));
    for other in ["tenure/orders", "x/a/"] {
        assert_eq!(election(other, "tenure/"), None, "{other}");
    }
}
