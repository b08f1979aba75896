//! Tests of the requests against members that answer by a script.

use std::collections::VecDeque;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use url::Url;

use super::*;
use crate::clock;
use crate::config::{EtcdUser, SecretSource};
use crate::lease::{Nonce, Record, StoreError};
use crate::store::Verdict;

/// What a member answers next.
#[derive(Clone, Debug)]
enum Reply {
    Answer(u16, Value),
    Text(u16, &'static str),
    /// The messages of a stream, with empty lines between them.
    Messages(Vec<Value>),
    /// A message of a stream that stays open.
    Stream(Value),
    /// Nothing, ever.
    Hang,
}

/// A request that a member received.
#[derive(Clone, Debug)]
struct Asked {
    path: String,
    token: Option<String>,
    body: Value,
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<Asked>,
}

/// A member that answers what the test has put into it, in this order.
struct Member {
    url: Url,
    script: Arc<Mutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

impl Member {
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

    /// Returns the requests since the last time, without what begins each path.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }

    fn paths(&self) -> Vec<String> {
        self.asked().into_iter().map(|it| it.path).collect()
    }
}

async fn answer(script: Arc<Mutex<Script>>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches("/v3/").to_owned();
    let token = |headers: &HeaderMap| Some(headers.get("authorization")?.to_str().ok()?.to_owned());
    let token = token(request.headers());
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let reply = {
        let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
        script.asked.push(Asked { path, token, body });
        script.replies.pop_front()
    };
    let code = |it| StatusCode::from_u16(it).unwrap();
    match reply.unwrap_or(Reply::Text(500, "the script is over")) {
        Reply::Answer(status, body) => (code(status), body.to_string()).into_response(),
        Reply::Text(status, text) => (code(status), text).into_response(),
        Reply::Messages(all) => {
            all.iter().map(|it| format!("{it}\n\n")).collect::<String>().into_response()
        }
        Reply::Stream(message) => {
            let first =
                futures::stream::iter([Ok::<_, std::convert::Infallible>(format!("{message}\n"))]);
            let open = futures::StreamExt::chain(first, futures::stream::pending());
            axum::body::Body::from_stream(open).into_response()
        }
        Reply::Hang => std::future::pending().await,
    }
}

fn settings(members: &[&Member]) -> EtcdSettings {
    EtcdSettings {
        members: members.iter().map(|it| it.url.clone()).collect(),
        prefix: "tenure".to_owned(),
        election: "orders".to_owned(),
        user: None,
        tls: None,
        request_timeout: Duration::from_secs(30),
    }
}

fn with_user(members: &[&Member]) -> EtcdSettings {
    let secret = |text: &str| SecretSource::Value(text.to_owned());
    let user = EtcdUser { name: secret("me"), password: secret("hunter2") };
    EtcdSettings { user: Some(user), ..settings(members) }
}

fn open(settings: &EtcdSettings) -> Cluster {
    Cluster::open(settings, settings.request_timeout).unwrap()
}

async fn get(cluster: &Cluster) -> Result<Option<Tagged>, RegisterError> {
    cluster.get(Slot::Lease).await
}

fn is_credential<T>(outcome: Result<T, RegisterError>) -> bool {
    matches!(outcome, Err(RegisterError::Credential(_)))
}

fn body(term: u64, write: u128) -> Body {
    let record = Record { term: Some(term), ..Record::default() };
    Body { record, write: Nonce(write), ..Body::default() }
}

fn encoded(text: impl AsRef<[u8]>) -> String {
    base64::encode(text)
}

fn header(cluster: u64) -> Value {
    json!({"cluster_id": cluster.to_string(), "revision": "9"})
}

fn key_value(key: &str, value: &[u8]) -> Value {
    json!({"key": encoded(key), "value": encoded(value), "create_revision": "4", "mod_revision": "5"})
}

/// A read that finds this value.
fn found(body: &Body) -> Reply {
    let kvs = [key_value("/tenure/orders/record", &body.encode())];
    Reply::Answer(200, json!({"header": header(7), "kvs": kvs}))
}

/// A read of an empty cluster.
fn nothing(cluster: u64) -> Reply {
    Reply::Answer(200, json!({"header": header(cluster)}))
}

fn written() -> Reply {
    Reply::Answer(200, json!({"header": header(7), "succeeded": true}))
}

fn refusal(status: u16, code: u64, words: &str) -> Reply {
    Reply::Answer(status, json!({"code": code, "message": words}))
}

#[tokio::test]
async fn a_write_is_one_request_that_compares_revision_and_value() {
    let member = Member::start().await;
    let cluster = open(&settings(&[&member]));
    let (old, new) = (body(3, 1), body(3, 2));
    member.says([found(&old), written()]);
    let read = get(&cluster).await.unwrap().unwrap();
    assert!(read.body.as_ref() == Ok(&old) && read.date.is_some());
    let done = cluster.put(Slot::Lease, If::Tagged(&read.tag), &new).await.unwrap().unwrap();
    assert!(done.date.is_some());
    let asked = member.asked();
    assert_eq!([&asked[0].path, &asked[1].path], ["kv/range", "kv/txn"]);
    let key = encoded("/tenure/orders/record");
    assert_eq!(asked[0].body, json!({"key": key}), "a quorum must answer");
    let compare = json!([
        {"target": "MOD", "key": key, "mod_revision": "5"},
        {"target": "VALUE", "key": key, "value": encoded(old.encode())},
    ]);
    let put = json!([{"request_put": {"key": key, "value": encoded(new.encode())}}]);
    assert_eq!(asked[1].body, json!({"compare": compare, "success": put}));
    // The tag of a write is that of the state that it has made.
    member.says([nothing(7)]);
    assert_eq!(cluster.put(Slot::Lease, If::Tagged(&done.tag), &old).await, Ok(None));
    let compare = &member.asked()[0].body["compare"];
    assert_eq!(compare[0]["mod_revision"], "9");
    assert_eq!(compare[1]["value"], encoded(new.encode()));
}

#[tokio::test]
async fn a_new_term_is_written_beside_its_record_and_by_the_same_request() {
    let member = Member::start().await;
    let cluster = open(&settings(&[&member]));
    let before = |body: &Body| tag(5, &encoded(body.encode()));
    let [none, third, fourth] = [Body::default(), body(3, 1), body(4, 1)];
    let key = encoded("/tenure/orders/term");
    for (slot, from, to, term) in [
        (Slot::Lease, None, &none, None),
        (Slot::Lease, None, &third, Some("3")),
        (Slot::Lease, Some(&none), &third, Some("3")),
        (Slot::Lease, Some(&third), &third, None),
        (Slot::Lease, Some(&third), &fourth, Some("4")),
        (Slot::Trial, None, &third, None),
    ] {
        let from = from.map(before);
        let condition = from.as_deref().map_or(If::Absent, If::Tagged);
        member.says([written()]);
        assert!(cluster.put(slot, condition, to).await.unwrap().is_some());
        let asked = member.asked().remove(0).body;
        let put = term.map(|it| json!({"request_put": {"key": key, "value": encoded(it)}}));
        assert_eq!(asked["success"].get(1), put.as_ref(), "{from:?} {to:?}");
        if from.is_none() {
            assert_eq!(asked["compare"][0]["create_revision"], "0");
        }
    }
}

#[tokio::test]
async fn what_etcd_did_not_answer_is_unknown() {
    let member = Member::start().await;
    let cluster = open(&settings(&[&member]));
    let other = json!({"header": header(7), "kvs": [key_value("/tenure/other/record", b"")]});
    for reply in [
        Reply::Text(200, "<html>welcome</html>"),
        Reply::Text(200, "{}"),
        Reply::Answer(200, json!({"kvs": [], "succeeded": true})),
        Reply::Answer(200, json!({"header": {"revision": "1"}, "succeeded": true})),
        Reply::Text(302, ""),
        Reply::Text(404, "nothing here"),
        Reply::Text(503, ""),
        refusal(503, 14, "etcdserver: no leader"),
        refusal(503, 14, "etcdserver: request timed out"),
        refusal(429, 8, "etcdserver: too many requests"),
        refusal(507, 8, "etcdserver: mvcc: database space exceeded"),
        refusal(403, 7, "etcdserver: permission denied"),
        refusal(401, 16, "etcdserver: invalid auth token"),
    ] {
        member.says([reply.clone(), reply.clone()]);
        let outcomes = [
            get(&cluster).await.map(drop),
            cluster.put(Slot::Lease, If::Tagged("5 x"), &body(3, 1)).await.map(drop),
        ];
        for outcome in outcomes {
            let error = StoreError::from(outcome.expect_err("it is none of etcd's"));
            assert!(matches!(error, StoreError::Unknown(_)), "{reply:?}: {error:?}");
        }
        assert_eq!(member.asked().len(), 2, "nothing is repeated");
    }
    member.says([Reply::Answer(200, other)]);
    assert!(matches!(get(&cluster).await, Err(RegisterError::Invalid(_))), "another key");
}

#[tokio::test]
async fn a_member_without_an_answer_sends_the_next_call_to_another_and_a_gone_one_at_once() {
    let (one, two) = (Member::start().await, Member::start().await);
    let mut settings = settings(&[&one, &two]);
    settings.request_timeout = Duration::from_millis(400);
    let cluster = open(&settings);
    one.says([Reply::Hang, nothing(7)]);
    two.says([nothing(7), nothing(7), Reply::Text(503, "")]);
    let late = get(&cluster).await.unwrap_err().to_string();
    assert!(late.contains("did not answer within 400ms"), "{late}");
    assert_eq!((one.paths().len(), two.paths().len()), (1, 1), "the other one was compared");
    assert_eq!(get(&cluster).await, Ok(None));
    assert_eq!(two.paths(), ["kv/range"]);
    assert!(get(&cluster).await.is_err());
    assert_eq!(get(&cluster).await, Ok(None), "the first comes after the last");
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    settings.members[0] = Url::parse(&format!("http://{gone}/")).unwrap();
    let cluster = open(&settings);
    two.says([nothing(7), nothing(7)]);
    let error = StoreError::from(get(&cluster).await.unwrap_err());
    assert!(matches!(&error, StoreError::RetryNow(it) if it.message.contains("cannot connect")));
    assert_eq!(get(&cluster).await, Ok(None));
}

fn is_of_two_clusters<T>(outcome: Result<T, RegisterError>) -> bool {
    let Err(RegisterError::Invalid(why)) = outcome else { return false };
    why.contains("2 different clusters") && why.contains("name members of one cluster")
}

#[tokio::test]
async fn members_of_two_clusters_are_noticed_before_the_first_bid_or_when_they_answer() {
    let (one, two) = (Member::start().await, Member::start().await);
    let mut settings = settings(&[&one, &two]);
    let cluster = open(&settings);
    for _ in 0..2 {
        one.says([nothing(7)]);
        two.says([nothing(8)]);
        assert!(is_of_two_clusters(get(&cluster).await));
        assert_eq!((one.paths().len(), two.paths().len()), (1, 1), "each is asked again");
    }
    let put = cluster.put(Slot::Lease, If::Absent, &Body::default()).await;
    assert!(is_of_two_clusters(put) && one.paths().is_empty(), "nothing is written");
    // Both have been restored, or the second is another now.
    one.says([nothing(9), nothing(9)]);
    two.says([nothing(9)]);
    assert_eq!((get(&cluster).await, get(&cluster).await), (Ok(None), Ok(None)));
    assert_eq!((one.paths().len(), two.paths().len()), (2, 1), "once compared is enough");
    // One that gives no answer is compared when it does.
    settings.request_timeout = Duration::from_millis(400);
    let cluster = open(&settings);
    one.says([nothing(7), Reply::Text(503, ""), nothing(8)]);
    two.says([Reply::Hang, written(), nothing(8)]);
    assert_eq!(get(&cluster).await, Ok(None));
    assert!(get(&cluster).await.is_err(), "the next call goes to the second");
    let other = json!({"header": header(8), "succeeded": true});
    two.script.lock().unwrap().replies[0] = Reply::Answer(200, other);
    let put = cluster.put(Slot::Lease, If::Absent, &Body::default()).await;
    assert!(is_of_two_clusters(put), "what was written there makes no leader");
    assert_eq!(get(&cluster).await, Ok(None));
}

fn signed_in(token: &str) -> Reply {
    Reply::Answer(200, json!({"header": {"cluster_id": "7"}, "token": token}))
}

#[tokio::test]
async fn a_user_signs_in_once_and_again_when_its_token_is_refused() {
    let member = Member::start().await;
    let store = open(&with_user(&[&member]));
    member.says([signed_in("t1"), nothing(7), nothing(7)]);
    assert!(get(&store).await.is_ok() && get(&store).await.is_ok());
    let asked = member.asked();
    assert_eq!(asked[0].path, "auth/authenticate");
    assert_eq!(asked[0].body, json!({"name": "me", "password": "hunter2"}));
    let tokens: Vec<_> = asked.iter().map(|it| it.token.as_deref()).collect();
    assert_eq!(tokens, [None, Some("t1"), Some("t1")]);
    for refused in [
        refusal(401, 16, "etcdserver: invalid auth token"),
        refusal(400, 3, "etcdserver: revision of auth store is old"),
        refusal(400, 3, "etcdserver: user name is empty"),
    ] {
        member.says([refused, signed_in("t2"), nothing(7)]);
        assert!(get(&store).await.is_ok(), "nothing was done, so it is asked again");
        assert_eq!(member.paths(), ["kv/range", "auth/authenticate", "kv/range"]);
    }
    let stale = || refusal(401, 16, "etcdserver: invalid auth token");
    member.says([stale(), signed_in("t3"), stale()]);
    assert!(is_credential(get(&store).await), "once, and no more");
    assert_eq!(member.asked().len(), 3);
}

#[tokio::test]
async fn a_failed_sign_in_shows_no_password_and_is_tried_again_by_the_next_call() {
    let member = Member::start().await;
    let store = open(&with_user(&[&member]));
    let failed = refusal(400, 3, "etcdserver: authentication failed, invalid user ID or password");
    for _ in 0..2 {
        member.says([failed.clone()]);
        let error = get(&store).await.unwrap_err();
        assert!(matches!(error, RegisterError::Credential(_)), "{error:?}");
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("ETCD_PASSWORD") && !shown.contains("hunter2"), "{shown}");
        assert_eq!(member.paths(), ["auth/authenticate"]);
    }
}

#[tokio::test]
async fn a_token_that_is_refused_right_after_the_sign_in_is_not_replaced() {
    let member = Member::start().await;
    let store = open(&with_user(&[&member]));
    member.says([signed_in("t1"), refusal(401, 16, "etcdserver: invalid auth token")]);
    assert!(is_credential(get(&store).await));
    assert_eq!(member.paths(), ["auth/authenticate", "kv/range"]);
}

#[tokio::test]
async fn a_password_is_read_again_right_after_a_failed_sign_in() {
    let member = Member::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    let name = SecretSource::Value("me".to_owned());
    let user = EtcdUser { name, password: SecretSource::File(path.clone()) };
    let store = open(&EtcdSettings { user: Some(user), ..settings(&[&member]) });
    std::fs::write(&path, "one").unwrap();
    member.says([refusal(400, 3, "etcdserver: authentication failed")]);
    assert!(is_credential(get(&store).await));
    std::fs::write(&path, "two").unwrap();
    member.says([signed_in("t1"), nothing(7)]);
    assert!(get(&store).await.is_ok());
    let passwords: Vec<_> = member.asked().iter().map(|it| it.body["password"].clone()).collect();
    assert_eq!(passwords, [json!("one"), json!("two"), Value::Null]);
}

#[tokio::test]
async fn a_cluster_without_authentication_is_used_without_a_token() {
    let member = Member::start().await;
    let store = open(&with_user(&[&member]));
    member.says([
        refusal(400, 9, "etcdserver: authentication is not enabled"),
        nothing(7),
        nothing(7),
    ]);
    assert!(get(&store).await.is_ok() && get(&store).await.is_ok());
    assert_eq!(member.paths(), ["auth/authenticate", "kv/range", "kv/range"]);
}

/// A message of a watch with these events; `None` is a deletion.
fn message(values: &[Option<&Body>]) -> Value {
    let event = |value: &Option<&Body>| {
        let kv = key_value("/tenure/orders/record", &value.map(Body::encode).unwrap_or_default());
        json!({"type": if value.is_some() { "PUT" } else { "DELETE" }, "kv": kv})
    };
    let events: Vec<_> = values.iter().map(event).collect();
    json!({"result": {"header": header(7), "events": events}})
}

#[tokio::test]
async fn a_watch_begins_with_the_present_state_and_reports_each_value() {
    let member = Member::start().await;
    let cluster = open(&settings(&[&member]));
    let [first, second, third] = [body(3, 1), body(3, 2), body(4, 3)];
    let created = json!({"result": {"header": header(7), "created": true}});
    let foreign = json!({"result": {"header": header(7), "events": [
        {"kv": key_value("/tenure/orders/record", b"somebody's")}]}});
    let messages = vec![
        created,
        message(&[]),
        message(&[Some(&second)]),
        message(&[Some(&second), None, Some(&third)]),
        message(&[Some(&first), None]),
        foreign,
    ];
    member.says([found(&first), Reply::Messages(messages)]);
    let told = [Told::Body(first), Told::Body(second), Told::Body(third), Told::Gone, Told::Hint];
    for expected in told {
        assert_eq!(cluster.told().await, expected);
    }
    let asked = member.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let create = &asked[1].body["create_request"];
    assert_eq!(create["start_revision"], "10", "after what was read");
    assert_eq!(create["key"], encoded("/tenure/orders/record"));
}

#[tokio::test]
async fn a_watch_that_ends_is_opened_anew_after_a_pause_and_a_silent_one_on_another_member() {
    let (one, two) = (Member::start().await, Member::start().await);
    let cluster = open(&settings(&[&one, &two]));
    let denied = json!({"error": {"grpc_code": 7, "message": "etcdserver: permission denied"}});
    let canceled = json!({"result": {"header": header(7), "canceled": true}});
    let began = clock::now();
    for ended in [vec![], vec![canceled], vec![denied]] {
        for member in [&one, &two] {
            member.says([found(&body(3, 1)), Reply::Messages(ended.clone())]);
        }
    }
    for _ in 0..6 {
        assert_eq!(cluster.told().await, Told::Body(body(3, 1)), "the present state");
    }
    for member in [&one, &two] {
        assert_eq!(member.paths(), ["kv/range", "watch"].repeat(3));
    }
    assert!(began.elapsed_max(clock::now()) >= Duration::from_millis(5 * 125), "it pauses");
    let silent = || Reply::Stream(message(&[]));
    one.says([nothing(7), silent(), nothing(7), silent()]);
    two.says([nothing(7), silent()]);
    for (index, member) in [&one, &two, &one].into_iter().enumerate() {
        assert_eq!(cluster.told().await, Told::Gone);
        assert_eq!(member.paths(), ["kv/range", "watch"], "{index}");
        // It is dropped while nothing comes.
        let soon = timeout(Duration::from_millis(50), cluster.told()).await;
        assert!(soon.is_err(), "{soon:?}");
    }
    one.says([nothing(7)]);
    two.says([nothing(7)]);
    assert_eq!(get(&cluster).await, Ok(None));
    assert_eq!(one.paths(), ["kv/range"], "requests stay where they were");
}

#[tokio::test]
async fn a_member_that_cannot_be_reached_fails_the_examination_and_a_local_fault_is_said_as_that() {
    let member = Member::start().await;
    let cluster = open(&settings(&[&member]));
    let user = EtcdUser {
        name: SecretSource::Value("me".to_owned()),
        password: SecretSource::File("/none".into()),
    };
    let local = open(&EtcdSettings { user: Some(user), ..settings(&[&member]) });
    member.says([Reply::Answer(200, json!({"etcdserver": "3.6.8"})), Reply::Text(500, "")]);
    let all = local.examine().await;
    let of = |subject: &str| all.iter().find(|it| it.subject == subject).unwrap();
    assert_eq!(of("this host").verdict, Verdict::Failed, "{all:?}");
    assert!(of("this host").detail.contains("failed to read /none"), "{all:?}");
    assert_eq!(of("record").verdict, Verdict::Skipped, "{all:?}");
    drop(member);
    let all = cluster.examine().await;
    assert_eq!(all[0].verdict, Verdict::Failed, "{all:?}");
    assert!(all[1..].iter().all(|it| it.verdict == Verdict::Skipped), "{all:?}");
}

#[tokio::test]
async fn doctor_compares_the_database_with_its_quota_and_looks_for_a_compaction() {
    const GIB: u64 = 1 << 30;
    let compacted = refusal(400, 11, "etcdserver: mvcc: required revision has been compacted");
    let many = Reply::Answer(200, json!({"header": {"cluster_id": "7", "revision": "10001"}}));
    for (size, quota, oldest, verdict, words) in [
        (GIB / 2, GIB * 2, compacted.clone(), Verdict::Passed, "512 MiB of 2048 MiB; once"),
        (GIB, GIB * 2, compacted.clone(), Verdict::Warning, "1024 MiB of 2048 MiB; once"),
        (GIB, 0, compacted, Verdict::Warning, "2048 MiB, unless --quota-backend-bytes"),
        (GIB / 2, GIB * 2, nothing(7), Verdict::Passed, "512 MiB of"),
        (GIB / 2, GIB * 2, many, Verdict::Warning, "keeps all of its 10001 revisions"),
    ] {
        let member = Member::start().await;
        let cluster = open(&settings(&[&member]));
        let status = json!({"header": header(7), "leader": "1", "dbSize": size.to_string(),
            "dbSizeQuota": quota.to_string()});
        let version = json!({"etcdserver": "3.6.8"});
        member.says([Reply::Answer(200, version), Reply::Answer(200, status)]);
        member.says([found(&body(3, 1)), written(), written(), oldest]);
        let all = cluster.examine().await;
        let space = all.iter().find(|it| it.subject == "space").unwrap();
        assert_eq!(space.verdict, verdict, "{all:?}");
        assert!(space.detail.contains(words), "{space:?}");
        if verdict == Verdict::Warning {
            assert!(space.remedy.as_ref().unwrap().contains("--auto-compaction-retention"));
        }
    }
}

#[test]
fn an_election_is_known_by_its_record() {
    let of = |key| election(key, "/tenure/");
    assert_eq!(of("/tenure/orders/record"), Some("orders"));
    for other in ["/tenure/orders/doctor", "/tenure/a/b/record", "/tenure/record", "/x/a/record"] {
        assert_eq!(of(other), None, "{other}");
    }
}
