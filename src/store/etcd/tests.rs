//! Tests of the calls against members that answer by a script.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};

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
use crate::lease::Nonce;
use crate::lease::{Candidate, LeaseId};
use crate::store::Verdict;

/// What a member answers next.
#[derive(Clone, Debug)]
enum Reply {
    Answer(u16, Value),
    Text(u16, &'static str),
    /// The messages of a stream, with empty lines between them.
    Messages(Vec<Value>),
    /// The lease that was asked for, with this time.
    Granted(i64),
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
    let lease = body["ID"].clone();
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
        Reply::Granted(ttl) => {
            let body = json!({"header": header(), "ID": lease, "TTL": ttl.to_string()});
            body.to_string().into_response()
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

fn open(settings: &EtcdSettings) -> Etcd {
    Etcd::open(settings).unwrap()
}

fn bid() -> Bid {
    Bid {
        lease: LeaseId::from_random(5),
        nonce: Nonce(5),
        candidate: Arc::new(Candidate {
            identity: "a".to_owned(),
            instance: "1".to_owned(),
            address: None,
            peer: None,
        }),
        lease_duration: Duration::from_secs(15),
        seen: Version("0".into()),
        written: None,
    }
}

fn header() -> Value {
    json!({"cluster_id": "7", "revision": "9"})
}

fn encoded(text: impl AsRef<[u8]>) -> String {
    azure_core::base64::encode(text)
}

fn claim_of(lease: i64, value: &[u8]) -> Value {
    json!({"key": encoded("/tenure/orders/lease"), "value": encoded(value), "create_revision": "4",
        "mod_revision": "5", "lease": lease.to_string()})
}

/// A read of the claim that the bid holds.
fn ours() -> Reply {
    let claim = claim_of(lease_number(bid().lease), &record::claim(&bid()));
    Reply::Answer(200, json!({"header": header(), "kvs": [claim]}))
}

/// A transaction that changed everything.
fn changed() -> Reply {
    Reply::Answer(200, json!({"header": header(), "succeeded": true}))
}

/// A transaction that changed nothing, since these keys are there.
fn unchanged(kvs: &[Value]) -> Reply {
    let found = json!([{"response_range": {"kvs": kvs}}]);
    Reply::Answer(200, json!({"header": header(), "responses": found}))
}

fn nothing() -> Reply {
    Reply::Answer(200, json!({"header": header()}))
}

fn refusal(status: u16, code: u64, words: &str) -> Reply {
    Reply::Answer(status, json!({"code": code, "message": words}))
}

fn outcome<T>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "granted".to_owned(),
        Err(error) => format!("{} {error}", error.outcome()),
    }
}

#[tokio::test]
async fn a_renewal_moves_the_claim_from_its_last_write_to_a_new_lease() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    member.says([ours(), Reply::Granted(15), changed()]);
    let version = store.renew(&bid()).await.unwrap();
    assert_eq!(version, Some(Version("9".into())));
    let asked = member.asked();
    let paths: Vec<_> = asked.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["kv/range", "lease/grant", "kv/txn"]);
    assert_eq!(asked[0].body["range_end"], encoded("/tenure/orders/record\0"));
    assert_eq!(asked[0].body["serializable"], Value::Null, "a quorum must answer");
    assert_eq!(asked[1].body["TTL"], "15");
    assert_eq!(asked[2].body["compare"].as_array().unwrap().len(), 1);
    assert_eq!(asked[2].body["compare"][0]["mod_revision"], "5");
    let put = &asked[2].body["success"][0]["request_put"];
    assert_eq!(put["lease"], asked[1].body["ID"]);
    assert_eq!(put["value"], encoded(record::claim(&bid())));
    // Its own last write is known by then, so nothing is read.
    member.says([Reply::Granted(16), changed()]);
    let bid = Bid { written: version, ..bid() };
    assert_eq!(store.renew(&bid).await, Ok(Some(Version("9".into()))));
    let again = member.asked();
    assert_eq!(again[0].path, "lease/grant");
    assert_ne!(again[0].body["ID"], asked[1].body["ID"]);
    assert_eq!(again[1].body["compare"][0]["mod_revision"], "9");
}

#[tokio::test]
async fn a_renewal_that_was_granted_without_an_answer_is_followed_by_another() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let bid = Bid { written: Some(Version("4".into())), ..bid() };
    let claim = claim_of(77, &record::claim(&bid));
    member.says([Reply::Granted(15), unchanged(std::slice::from_ref(&claim)), changed()]);
    assert_eq!(outcome(store.renew(&bid).await), "granted");
    let asked = member.asked();
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[2].body["compare"][0]["mod_revision"], "5");
    member.says([
        Reply::Granted(15),
        unchanged(std::slice::from_ref(&claim)),
        unchanged(std::slice::from_ref(&claim)),
    ]);
    let found = store.renew(&bid).await;
    assert!(matches!(found, Err(StoreError::RetryNow(_))), "{found:?}");
    member.says([Reply::Granted(15), unchanged(&[claim]), unchanged(&[])]);
    assert!(outcome(store.renew(&bid).await).starts_with("refused"), "it has ended meanwhile");
}

#[tokio::test]
async fn a_lease_counts_only_if_it_is_the_one_that_was_asked_for() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let other = json!({"header": header(), "ID": "1", "TTL": "15"});
    for (reply, expected) in [
        (Reply::Granted(15), "granted"),
        (Reply::Granted(16), "granted"),
        (Reply::Granted(14), "settings"),
        (Reply::Granted(0), "settings"),
        (Reply::Answer(200, other), "settings"),
        (refusal(503, 14, "etcdserver: no leader"), "unavailable"),
        (refusal(400, 9, "etcdserver: lease already exists"), "unavailable"),
        (Reply::Text(200, ""), "settings"),
    ] {
        member.says([ours(), reply.clone()]);
        if expected == "granted" {
            member.says([changed()]);
        }
        let found = outcome(store.renew(&bid()).await);
        assert!(found.starts_with(expected), "{reply:?}: {found}");
        assert_eq!(member.asked().len(), 2 + usize::from(expected == "granted"));
    }
}

#[tokio::test]
async fn a_claim_that_is_not_ours_is_not_renewed() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let lease = lease_number(bid().lease);
    let other = record::claim(&Bid { nonce: Nonce(6), ..bid() });
    let seen = Seen::of(
        &serde_json::from_value(
            json!({"header": header(), "kvs": [claim_of(lease, &record::claim(&bid()))]}),
        )
        .unwrap(),
        &store.keys,
    );
    let broken = seen.unwrap().held.unwrap().broken();
    for claims in [vec![], vec![claim_of(lease, &other)], vec![claim_of(lease, &broken)]] {
        let read = Reply::Answer(200, json!({"header": header(), "kvs": claims}));
        for ask in ["renew", "acquire again"] {
            if ask != "renew" && claims.is_empty() {
                continue;
            }
            member.says([read.clone()]);
            let found = match ask {
                "renew" => outcome(store.renew(&bid()).await),
                _ => outcome(store.acquire(&bid()).await),
            };
            assert!(found.starts_with("refused"), "{ask} {claims:?}: {found}");
            let is_broken = claims == [claim_of(lease, &broken)];
            assert_eq!(found.contains("an operator broke"), is_broken, "{found}");
            assert_eq!(member.paths(), ["kv/range"], "{claims:?}");
        }
    }
}

#[tokio::test]
async fn what_etcd_did_not_answer_is_unknown() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    for reply in [
        Reply::Text(200, "<html>welcome</html>"),
        Reply::Text(200, "{}"),
        Reply::Answer(200, json!({"kvs": []})),
        Reply::Answer(200, json!({"header": {"revision": "1"}})),
        Reply::Text(302, ""),
        Reply::Text(404, "nothing here"),
        Reply::Text(503, ""),
        refusal(503, 14, "etcdserver: request timed out"),
        refusal(404, 5, "etcdserver: requested lease not found"),
        refusal(429, 8, "etcdserver: too many requests"),
        refusal(403, 7, "etcdserver: permission denied"),
        refusal(401, 16, "etcdserver: invalid auth token"),
    ] {
        for ask in ["read", "renew", "acquire", "write", "release"] {
            member.says([reply.clone()]);
            let found = match ask {
                "read" => store.read().await.map(drop),
                "renew" => store.renew(&bid()).await.map(drop),
                "acquire" => store.acquire(&bid()).await.map(drop),
                "write" => store.write_term(&bid(), 1).await.map(drop),
                _ => store.release(&bid()).await,
            };
            assert!(matches!(found, Err(StoreError::Unknown(_))), "{ask} {reply:?}: {found:?}");
            assert_eq!(member.asked().len(), 1, "nothing is repeated");
        }
    }
}

#[tokio::test]
async fn a_lease_of_an_earlier_attempt_is_counted_anew() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let exists = refusal(400, 9, "etcdserver: lease already exists");
    member.says([nothing(), exists.clone(), changed(), Reply::Granted(15), changed()]);
    assert_eq!(outcome(store.acquire(&bid()).await), "granted");
    assert_eq!(member.paths(), ["kv/range", "lease/grant", "kv/txn", "lease/grant", "kv/txn"]);
    // The claim was taken first, and others may have seen it before an operator ended it.
    let mut broken: Value = serde_json::from_slice(&record::claim(&bid())).unwrap();
    broken["breaking"] = true.into();
    let broken = claim_of(lease_number(bid().lease), broken.to_string().as_bytes());
    for ended in [unchanged(&[]), unchanged(&[broken])] {
        member.says([nothing(), exists.clone(), changed(), Reply::Granted(15), ended]);
        let found = store.acquire(&bid()).await;
        assert!(matches!(found, Err(StoreError::Unknown(_))), "{found:?}");
        member.asked();
    }
    member.says([nothing(), Reply::Granted(15), changed()]);
    let granted = store.acquire(&bid()).await.unwrap();
    assert_eq!(granted.version, Some(Version("9".into())));
    assert!(granted.date.is_some(), "the member's, of the last answer");
    let asked = member.asked();
    assert_eq!(asked.len(), 3, "a new one is not renewed at once");
    assert_eq!(asked[1].body["ID"], lease_number(bid().lease).to_string());
    assert_eq!(asked[1].body["TTL"], "15");
    assert_eq!(asked[2].body["compare"][0]["create_revision"], "0");
    assert_eq!(asked[2].body["compare"][1]["mod_revision"], "0");
}

#[tokio::test]
async fn a_claim_that_is_freed_before_its_time_is_counted_anew_may_be_bid_for_again() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    member.says([ours(), Reply::Granted(15), unchanged(&[])]);
    let found = store.acquire(&bid()).await;
    assert!(matches!(found, Err(StoreError::RetryNow(_))), "{found:?}");
    let other = claim_of(77, &record::claim(&Bid { nonce: Nonce(6), ..bid() }));
    member.says([ours(), Reply::Granted(15), unchanged(&[other])]);
    assert!(outcome(store.acquire(&bid()).await).starts_with("refused"), "another has it");
}

#[tokio::test]
async fn a_release_deletes_the_claim_and_ends_the_lease_of_the_bid() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let missing = || refusal(404, 5, "etcdserver: requested lease not found");
    member.says([ours(), changed(), missing()]);
    assert_eq!(store.release(&bid()).await, Ok(()));
    let asked = member.asked();
    assert_eq!(asked[1].body["compare"][0]["mod_revision"], "5");
    assert_eq!(asked[2].path, "lease/revoke");
    assert_eq!(asked[2].body["ID"], lease_number(bid().lease).to_string());
    member.says([nothing(), missing()]);
    assert!(outcome(store.release(&bid()).await).starts_with("refused"));
    assert_eq!(member.paths(), ["kv/range", "lease/revoke"], "a late copy of the bid has no lease");
    member.says([ours(), unchanged(&[])]);
    let found = store.release(&bid()).await;
    assert!(matches!(found, Err(StoreError::RetryNow(_))), "{found:?}");
}

#[tokio::test]
async fn a_bid_for_another_version_sends_nothing_more() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    for seen in ["1", "", "missing"] {
        member.says([nothing()]);
        let bid = Bid { seen: Version(seen.into()), ..bid() };
        assert!(outcome(store.acquire(&bid).await).starts_with("refused"));
        assert_eq!(member.paths(), ["kv/range"]);
    }
}

#[tokio::test]
async fn a_call_stays_with_its_member_and_the_next_goes_to_another_if_that_did_not_answer() {
    let (one, two) = (Member::start().await, Member::start().await);
    let store = open(&settings(&[&one, &two]));
    one.says([ours(), refusal(503, 14, "etcdserver: no leader")]);
    assert!(outcome(store.renew(&bid()).await).starts_with("unavailable"));
    assert_eq!((one.asked().len(), two.asked().len()), (2, 0), "no retry inside a call");
    two.says([ours(), Reply::Granted(15), changed(), nothing()]);
    assert_eq!(outcome(store.renew(&bid()).await), "granted");
    assert!(outcome(store.renew(&bid()).await).starts_with("refused"), "an answer like any other");
    assert_eq!((one.asked().len(), two.asked().len()), (0, 4));
    two.says([Reply::Text(502, "")]);
    assert!(store.read().await.is_err());
    one.says([nothing()]);
    assert!(store.read().await.unwrap().free, "and back to the first");
}

#[tokio::test]
async fn a_call_that_its_caller_gives_up_sends_the_next_to_another_member() {
    let (one, two) = (Member::start().await, Member::start().await);
    let store = open(&settings(&[&one, &two]));
    one.says([Reply::Hang]);
    let given_up = tokio::time::timeout(Duration::from_millis(300), store.read()).await;
    assert!(given_up.is_err());
    two.says([nothing(), nothing()]);
    assert!(store.read().await.unwrap().free);
    assert!(store.read().await.unwrap().free, "it stays there");
}

#[tokio::test]
async fn a_version_and_a_watch_that_have_no_answer_send_the_next_call_to_another_member() {
    let (one, two) = (Member::start().await, Member::start().await);
    let store = open(&settings(&[&one, &two]));
    let soon = Duration::from_millis(300);
    one.says([Reply::Answer(200, json!({"etcdserver": "3.6.1"}))]);
    assert_eq!(store.gateway.call().version().await.as_deref(), Ok("3.6.1"));
    one.says([Reply::Hang]);
    let given_up = async { store.gateway.call().version().await };
    assert!(tokio::time::timeout(soon, given_up).await.is_err());
    assert_eq!(one.paths(), ["/version", "/version"], "it stays with the one that answered");
    two.says([Reply::Text(200, "welcome")]);
    assert!(store.gateway.call().version().await.is_err());
    assert_eq!(two.paths(), ["/version"]);
    one.says([ours(), Reply::Hang]);
    assert_eq!(store.watch().await, Some(bid().nonce));
    assert!(tokio::time::timeout(soon, store.watch()).await.is_err());
    assert_eq!(one.paths(), ["kv/range", "watch"]);
    two.says([Reply::Messages(vec![event("somebody's")]), nothing()]);
    assert_eq!(store.watch().await, Some(bid().nonce));
    assert!(store.read().await.unwrap().free);
    assert_eq!(two.paths(), ["watch", "kv/range"], "it stays with the one that answered");
}

#[tokio::test]
async fn a_member_that_is_gone_is_worth_an_immediate_retry_with_the_next() {
    let (one, two) = (Member::start().await, Member::start().await);
    let mut settings = settings(&[&one, &two]);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    settings.members[0] = Url::parse(&format!("http://{gone}/")).unwrap();
    let store = open(&settings);
    let error = store.read().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::RetryNow(it) if it.message.contains("cannot connect")),
        "{error}"
    );
    two.says([nothing()]);
    assert!(store.read().await.unwrap().free);
}

#[tokio::test]
async fn a_member_that_does_not_answer_in_time_is_unknown() {
    let member = Member::start().await;
    let settings =
        EtcdSettings { request_timeout: Duration::from_millis(200), ..settings(&[&member]) };
    let store = open(&settings);
    member.says([Reply::Hang]);
    let found = outcome(store.read().await);
    assert!(
        found.starts_with("timeout") && found.contains("did not answer within 200ms"),
        "{found}"
    );
}

fn signed_in(token: &str) -> Reply {
    Reply::Answer(200, json!({"header": {"cluster_id": "7"}, "token": token}))
}

#[tokio::test]
async fn a_user_signs_in_once_and_again_when_its_token_is_refused() {
    let member = Member::start().await;
    let store = open(&with_user(&[&member]));
    member.says([signed_in("t1"), nothing(), nothing()]);
    assert!(store.read().await.is_ok() && store.read().await.is_ok());
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
        member.says([refused, signed_in("t2"), nothing()]);
        assert!(store.read().await.is_ok(), "nothing was done, so it is asked again");
        assert_eq!(member.paths(), ["kv/range", "auth/authenticate", "kv/range"]);
    }
    let stale = || refusal(401, 16, "etcdserver: invalid auth token");
    member.says([stale(), signed_in("t3"), stale()]);
    assert!(outcome(store.read().await).starts_with("auth"), "once, and no more");
    assert_eq!(member.asked().len(), 3);
}

#[tokio::test]
async fn a_failed_sign_in_shows_no_password_and_is_tried_again_by_the_next_call() {
    let member = Member::start().await;
    let store = open(&with_user(&[&member]));
    let failed = refusal(400, 3, "etcdserver: authentication failed, invalid user ID or password");
    for _ in 0..2 {
        member.says([failed.clone()]);
        let error = store.read().await.unwrap_err();
        assert_eq!(error.outcome(), "auth");
        let shown = format!("{error} {error:?} {store:?}");
        assert!(shown.contains("ETCD_PASSWORD") && !shown.contains("hunter2"), "{shown}");
        assert_eq!(member.paths(), ["auth/authenticate"]);
    }
}

#[tokio::test]
async fn a_token_that_is_refused_right_after_the_sign_in_is_not_replaced() {
    let member = Member::start().await;
    let store = open(&with_user(&[&member]));
    member.says([signed_in("t1"), refusal(401, 16, "etcdserver: invalid auth token")]);
    assert!(outcome(store.read().await).starts_with("auth"));
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
    assert!(outcome(store.read().await).starts_with("auth"));
    std::fs::write(&path, "two").unwrap();
    member.says([signed_in("t1"), nothing()]);
    assert!(store.read().await.is_ok());
    let passwords: Vec<_> = member.asked().iter().map(|it| it.body["password"].clone()).collect();
    assert_eq!(passwords, [json!("one"), json!("two"), Value::Null]);
}

#[tokio::test]
async fn a_cluster_without_authentication_is_used_without_a_token() {
    let member = Member::start().await;
    let store = open(&with_user(&[&member]));
    member.says([
        refusal(400, 9, "etcdserver: authentication is not enabled"),
        nothing(),
        nothing(),
    ]);
    assert!(store.read().await.is_ok() && store.read().await.is_ok());
    assert_eq!(member.paths(), ["auth/authenticate", "kv/range", "kv/range"]);
}

#[tokio::test]
async fn a_claim_without_a_lease_never_ends_and_is_broken_at_once_only() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let endless = || {
        let claim = claim_of(0, &record::claim(&bid()));
        Reply::Answer(200, json!({"header": header(), "kvs": [claim]}))
    };
    member.says([endless(), endless(), endless()]);
    assert_eq!(store.read().await.unwrap().ends_in, Some(Duration::MAX));
    let broken = store.break_lease(false).await;
    assert!(matches!(broken, Err(StoreError::Refused(_))), "{broken:?}");
    member.says([Reply::Answer(200, json!({"header": header(), "succeeded": true}))]);
    let broken = store.break_lease(true).await.unwrap();
    assert!(matches!(broken, BreakOutcome::Held { free_in: Duration::ZERO, .. }));
}

#[tokio::test]
async fn a_broken_claim_ends_with_its_lease_whose_time_was_rounded_down() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    for (ttl, millis) in [(10, 11_500), (0, 1_500), (-1, 500)] {
        member.says([ours(), changed(), Reply::Granted(ttl)]);
        let broken = store.break_lease(false).await.unwrap();
        let BreakOutcome::Held { free_in, .. } = broken else { panic!("it is held") };
        assert_eq!(free_in, Duration::from_millis(millis), "{ttl}");
        let asked = member.asked();
        assert_eq!(asked[2].path, "lease/timetolive");
        assert_eq!(asked[2].body["ID"], lease_number(bid().lease).to_string());
    }
}

/// A read of the claim of the bid with this record.
fn led(record: &[u8]) -> Reply {
    let claim = claim_of(lease_number(bid().lease), &record::claim(&bid()));
    let record = json!({"key": encoded("/tenure/orders/record"), "value": encoded(record),
        "create_revision": "4", "mod_revision": "6"});
    Reply::Answer(200, json!({"header": header(), "kvs": [claim, record]}))
}

#[tokio::test]
async fn a_successor_is_written_once_into_the_record_of_the_bid() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    let named = record::of_bid(&bid(), 7, Some(&successor));
    member.says([led(&record::of_bid(&bid(), 7, None)), changed()]);
    // The claim was not written.
    let version = Some(Version("5".into()));
    assert_eq!(store.set_successor(&bid(), &successor).await, Ok(version.clone()));
    let asked = member.asked();
    assert_eq!(asked[1].body["success"][0]["request_put"]["value"], encoded(&named));
    member.says([led(&named)]);
    assert_eq!(store.set_successor(&bid(), &successor).await, Ok(version));
    assert_eq!(member.paths(), ["kv/range"]);
    member.says([ours()]);
    let found = outcome(store.set_successor(&bid(), &successor).await);
    assert!(found.starts_with("refused this candidate did not write the record"), "{found}");
}

#[tokio::test]
async fn a_first_term_is_written_only_where_there_is_none() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    assert_eq!(store.rules(), Rules { longest_lease: None, missing_is_free: false });
    member.says([nothing(), changed()]);
    let said = store.create(700).await.unwrap();
    assert_eq!(said, ["created the key /tenure/orders/record with the first term 700"]);
    let put = &member.asked()[1].body["success"][0]["request_put"];
    assert_eq!(put["value"], encoded(record::first(700)));
    member.says([led(&record::first(700))]);
    assert_eq!(store.create(700).await, Ok(Vec::new()));
    assert_eq!(member.paths(), ["kv/range"]);
}

#[tokio::test]
async fn a_member_that_cannot_be_reached_fails_the_examination() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    drop(member);
    let found = store.examine().await;
    assert!(found.iter().any(|it| it.verdict == Verdict::Failed), "{found:?}");
}

#[tokio::test]
async fn a_term_that_another_claim_came_before_is_refused() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let other = Bid { nonce: Nonce(77), ..bid() };
    let theirs = claim_of(lease_number(bid().lease) + 1, &record::claim(&other));
    member.says([ours(), unchanged(&[theirs])]);
    let found = store.write_term(&bid(), 1).await;
    assert!(matches!(found, Err(StoreError::Refused(_))), "{found:?}");
}

/// A message of a watch that the record was written with this value.
fn event(value: &str) -> Value {
    let kv = json!({"key": encoded("/tenure/orders/record"), "value": encoded(value),
        "create_revision": "4", "mod_revision": "10"});
    json!({"result": {"header": header(), "events": [{"kv": kv}]}})
}

#[tokio::test]
async fn a_watch_tells_of_a_record_that_tenure_did_not_write() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let created = json!({"result": {"header": header(), "created": true}});
    member.says([ours(), Reply::Messages(vec![created, event("somebody's")])]);
    assert_eq!(store.watch().await, Some(bid().nonce), "the present state");
    assert_eq!(store.watch().await, Some(bid().nonce), "the event");
    let asked = member.asked();
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(asked[1].body["create_request"]["start_revision"], "10", "after what was read");
}

#[tokio::test]
async fn a_watch_that_ends_is_followed_by_another_after_a_pause() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let ended = || Reply::Messages(vec![json!({"result": {"header": header(), "created": true}})]);
    let denied = json!({"error": {"grpc_code": 7, "message": "etcdserver: permission denied"}});
    member.says([ours(), ended(), ended(), Reply::Messages(vec![denied]), nothing()]);
    assert_eq!(store.watch().await, Some(bid().nonce));
    let began = clock::now();
    assert_eq!(store.watch().await, None);
    assert_eq!(member.paths(), ["kv/range", "watch", "watch", "watch", "kv/range"]);
    let least = Duration::from_millis(125 + 250 + 500);
    assert!(began.elapsed_max(clock::now()) >= least, "it pauses longer each time");
}

/// An event of a watch: a key was written at this revision, or deleted without a value.
fn written(key: &str, revision: i64, value: Option<Vec<u8>>) -> Value {
    let kind = if value.is_some() { "PUT" } else { "DELETE" };
    let (key, value) =
        (encoded(format!("/tenure/orders/{key}")), encoded(value.unwrap_or_default()));
    json!({"type": kind, "kv": {"key": key, "value": value, "create_revision": "4",
        "mod_revision": revision.to_string(), "lease": "77"}})
}

/// A message of a watch with these events.
fn message(events: &[Value]) -> Value {
    json!({"result": {"header": header(), "events": events}})
}

#[tokio::test]
async fn a_watch_passes_over_renewals_and_continues_behind_the_last_event() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let ours_at = |revision| written("lease", revision, Some(record::claim(&bid())));
    let other = record::claim(&Bid { nonce: Nonce(6), ..bid() });
    let led_at = |revision| written("record", revision, Some(record::first(7)));
    member.says([ours()]);
    assert_eq!(store.watch().await, Some(bid().nonce));
    member.asked();
    for (messages, held_by, from) in [
        (
            vec![message(&[ours_at(10)]), message(&[]), message(&[led_at(12), ours_at(11)])],
            Some(bid().nonce),
            "10",
        ),
        (
            vec![message(&[led_at(12), ours_at(13)]), message(&[written("lease", 14, None)])],
            None,
            "13",
        ),
        (vec![message(&[written("lease", 15, Some(other))])], Some(Nonce(6)), "15"),
        (vec![message(&[written("record", 16, None)])], Some(Nonce(6)), "16"),
    ] {
        member.says([Reply::Messages(messages)]);
        assert_eq!(store.watch().await, held_by, "{from}");
        let asked = member.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(asked[0].body["create_request"]["start_revision"], from);
    }
}

#[tokio::test]
async fn a_watch_that_the_member_cancels_begins_anew_with_the_present_state() {
    let member = Member::start().await;
    let store = open(&settings(&[&member]));
    let canceled = json!({"result": {"header": header(), "canceled": true}});
    member.says([ours(), Reply::Messages(vec![canceled]), nothing()]);
    assert_eq!(store.watch().await, Some(bid().nonce));
    assert_eq!(store.watch().await, None);
    assert_eq!(member.paths(), ["kv/range", "watch", "kv/range"]);
}
