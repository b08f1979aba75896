//! Tests of the calls against an API server that answers by a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use url::Url;

use super::*;
use crate::config::KubeAccess;
use crate::kube::objects::{Metadata, read_time};
use crate::lease::Nonce;
use crate::lease::fuzzing::bid;
use crate::store::Verdict;

const TERM: &str = "tenure.dev/term";
const CLAIM: &str = "tenure.dev/claim";

/// What the server answers next.
#[derive(Clone, Debug)]
enum Reply {
    Answer(u16, Value),
    /// The object that was sent, in this version.
    Written(&'static str),
    /// The events of a watch.
    Events(Vec<Value>),
}

/// A request that the server received.
#[derive(Clone, Debug)]
struct Asked {
    /// The method, and the name of the Lease or the query.
    line: String,
    lease: Lease,
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
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
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

    /// Returns the Lease that was written, by the only request since the last time.
    fn written(&self) -> Lease {
        let mut asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!(asked[0].line, "PUT /orders");
        asked.remove(0).lease
    }
}

async fn answer(script: Arc<Mutex<Script>>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().as_str();
    let path = path.strip_prefix("/apis/coordination.k8s.io/v1/namespaces/shop/leases");
    let line = format!("{} {}", request.method(), path.unwrap_or("another path"));
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let sent: Value = serde_json::from_slice(&body).unwrap_or(json!({}));
    let reply = {
        let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
        let lease = serde_json::from_value(sent.clone()).unwrap();
        script.asked.push(Asked { line, lease });
        script.replies.pop_front()
    };
    match reply.unwrap_or(Reply::Answer(500, "the script is over".into())) {
        Reply::Answer(status, body) => {
            (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
        }
        Reply::Written(version) => {
            let mut object = sent;
            object["metadata"]["resourceVersion"] = version.into();
            object.to_string().into_response()
        }
        Reply::Events(all) => {
            all.iter().map(|it| format!("{it}\n")).collect::<String>().into_response()
        }
    }
}

fn open(server: &Server) -> Kubernetes {
    let access = KubeAccess { api: server.url.clone(), token_file: None, ca_file: None };
    Kubernetes::open(&KubernetesSettings {
        access,
        namespace: "shop".to_owned(),
        name: "orders".to_owned(),
        request_timeout: Duration::from_secs(30),
    })
    .unwrap()
}

fn at(seconds: u64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

/// A Lease that the bid holds.
fn held() -> Lease {
    let mut lease = record::taken_anew("shop", "orders", &bid(), at(0));
    lease.metadata.uid = "u".to_owned();
    lease.metadata.resource_version = "5".to_owned();
    lease
}

/// The same with a term that the bid has written.
fn led() -> Lease {
    let mut lease = held();
    record::write_term(&mut lease, &bid(), 7);
    lease
}

fn changed(lease: Lease, change: impl FnOnce(&mut Lease)) -> Lease {
    let mut lease = lease;
    change(&mut lease);
    lease
}

fn by_other() -> Lease {
    let mut lease = held();
    lease.metadata.resource_version = "6".to_owned();
    record::take(&mut lease, &Bid { nonce: Nonce(9), ..bid() }, at(1));
    lease
}

fn broken() -> Lease {
    let mut lease = held();
    lease.metadata.resource_version = "6".to_owned();
    record::mark_broken(&mut lease, at(1));
    lease
}

fn freed() -> Lease {
    changed(led(), |it| record::free(it, at(1)))
}

fn object(lease: &Lease) -> Value {
    let mut value = serde_json::to_value(lease).unwrap();
    value["apiVersion"] = "coordination.k8s.io/v1".into();
    value["kind"] = "Lease".into();
    value
}

fn shows(lease: &Lease) -> Reply {
    Reply::Answer(200, object(lease))
}

fn missing() -> Reply {
    let details = json!({"kind": "leases", "name": "orders"});
    Reply::Answer(404, json!({"kind": "Status", "reason": "NotFound", "details": details}))
}

fn refusal(code: u16, reason: &str) -> Reply {
    Reply::Answer(code, json!({"kind": "Status", "reason": reason}))
}

fn conflict() -> Reply {
    refusal(409, "Conflict")
}

/// A bid for a Lease in this state.
fn bid_for(lease: &Lease) -> Bid {
    Bid { seen: record::version(lease), ..bid() }
}

/// A bid that has last written the Lease in this state.
fn wrote(lease: &Lease) -> Bid {
    Bid { written: Some(record::version(lease)), ..bid() }
}

fn successor() -> Successor {
    Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) }
}

fn outcome<T>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "granted".to_owned(),
        Err(error) => format!("{} {error}", error.outcome()),
    }
}

fn renewed(lease: &Lease) -> OffsetDateTime {
    read_time(lease.spec.renew_time.as_deref().unwrap()).unwrap()
}

#[tokio::test]
async fn a_missing_lease_is_created_by_a_bid_and_its_absence_is_no_release() {
    let server = Server::start().await;
    let store = open(&server);
    assert_eq!(store.rules(), Rules { longest_lease: None, missing_is_free: false });
    server.says([missing()]);
    let seen = store.read().await.unwrap();
    assert_eq!((seen.free, seen.record), (true, Record::default()));
    server.asked();
    let bid = Bid { seen: seen.version, ..bid() };
    server.says([Reply::Written("1")]);
    let granted = store.acquire(&bid).await.unwrap();
    let asked = server.asked();
    assert_eq!((asked.len(), asked[0].line.as_str()), (1, "POST "));
    assert!(record::is_of(&asked[0].lease, &bid));
    let written = record::of_version(&granted.version.unwrap()).unwrap();
    assert!(record::is_of(&written, &bid) && written.metadata.resource_version == "1");
    server.says([refusal(409, "AlreadyExists"), shows(&by_other())]);
    let found = outcome(store.acquire(&bid).await);
    assert!(found.starts_with("refused") && found.contains("is held by"), "{found}");
    assert_eq!(server.lines(), ["POST ", "GET /orders"]);
}

#[tokio::test]
async fn a_bid_is_for_the_lease_as_it_was_read() {
    let server = Server::start().await;
    let store = open(&server);
    let bid = bid_for(&freed());
    server.says([Reply::Written("6")]);
    let granted = store.acquire(&bid).await.unwrap();
    assert_eq!(granted.record.term, Some(7));
    let taken = server.written();
    assert!(record::is_of(&taken, &bid));
    assert_eq!(taken.metadata.resource_version, "5");
    assert_eq!(taken.spec.lease_transitions, Some(1));
    // After a conflict it is read once, since the write in between may have been of this bid.
    for (now, expected) in [
        (held(), "granted"),
        (by_other(), "refused the Lease shop/orders is held by \"a_1\""),
        (broken(), "refused an operator broke the Lease shop/orders"),
        (
            changed(freed(), |it| it.metadata.resource_version = "8".to_owned()),
            "refused the Lease shop/orders was freed, or has changed since it was read",
        ),
    ] {
        server.says([conflict(), shows(&now)]);
        if expected == "granted" {
            server.says([Reply::Written("9")]);
        }
        assert_eq!(outcome(store.acquire(&bid).await), expected);
        let asked = server.asked();
        assert_eq!(asked.len(), if expected == "granted" { 3 } else { 2 });
        if let Some(again) = asked.get(2) {
            assert!(renewed(&again.lease) > renewed(&now), "its time counts anew");
            assert_eq!(again.lease.spec.lease_transitions, Some(0), "by the same holder");
        }
    }
    server.says([conflict(), shows(&freed()), conflict()]);
    let found = store.acquire(&bid).await;
    assert!(matches!(found, Err(StoreError::RetryNow(_))), "{found:?}");
    assert_eq!(server.lines(), ["PUT /orders", "GET /orders", "PUT /orders"]);
    server.says([conflict(), missing()]);
    assert_eq!(outcome(store.acquire(&bid).await), "refused the Lease shop/orders was deleted");
}

#[tokio::test]
async fn a_holder_changes_what_it_last_wrote_and_reads_only_what_it_does_not_know() {
    let server = Server::start().await;
    let store = open(&server);
    for (bid, lines) in
        [(wrote(&held()), vec!["PUT /orders"]), (bid(), vec!["GET /orders", "PUT /orders"])]
    {
        let reads = |lease: &Lease| (lines.len() == 2).then(|| shows(lease));
        server.says(reads(&held()));
        server.says([Reply::Written("6")]);
        let version = store.renew(&bid).await.unwrap().unwrap();
        let mut asked = server.asked();
        assert_eq!(asked.iter().map(|it| it.line.as_str()).collect::<Vec<_>>(), lines);
        let written = asked.pop().unwrap().lease;
        assert!(renewed(&written) > renewed(&held()));
        assert_eq!(record::of_version(&version).unwrap().metadata.resource_version, "6");

        server.says(reads(&held()));
        server.says([Reply::Written("6")]);
        assert_eq!(store.write_term(&bid, 700).await, Ok(700));
        let written = server.asked().pop().unwrap().lease;
        assert_eq!(written.metadata.annotations[TERM], "700");

        let bid = Bid { written: bid.written.map(|_| record::version(&led())), ..bid };
        server.says(reads(&led()));
        server.says([Reply::Written("6")]);
        let version = store.set_successor(&bid, &successor()).await.unwrap().unwrap();
        let written = server.asked().pop().unwrap().lease;
        assert_eq!(written.metadata.annotations["tenure.dev/successor"], "b");
        assert_eq!(record::of_version(&version).unwrap().metadata.resource_version, "6");

        server.says(reads(&led()));
        server.says([Reply::Written("6")]);
        assert_eq!(store.release(&bid).await, Ok(()));
        let written = server.asked().pop().unwrap().lease;
        assert_eq!(record::holder(&written), None);
    }
}

#[tokio::test]
async fn what_is_written_already_is_not_written_again() {
    let server = Server::start().await;
    let store = open(&server);
    let named = changed(led(), |it| record::set_successor(it, &successor()));
    for bid in [wrote(&named), bid()] {
        server.says([shows(&named)]);
        assert_eq!(store.write_term(&bid, 700).await, Ok(7));
        assert_eq!(server.lines(), ["GET /orders"]);
        server.says([shows(&named)]);
        let version = store.set_successor(&bid, &successor()).await.unwrap();
        assert_eq!(
            version,
            Some(record::version(&serde_json::from_value(object(&named)).unwrap()))
        );
        assert_eq!(server.lines(), ["GET /orders"]);
    }
}

#[tokio::test]
async fn a_lease_that_is_not_ours_is_neither_renewed_nor_written() {
    let server = Server::start().await;
    let store = open(&server);
    for lease in [by_other(), broken(), freed()] {
        // What the last write of the bid returned never refuses.
        for bid in [wrote(&lease), bid()] {
            for ask in ["renew", "write", "successor", "release"] {
                if ask == "release" && record::is_broken(&lease) {
                    continue;
                }
                server.says([shows(&lease)]);
                let found = match ask {
                    "renew" => outcome(store.renew(&bid).await),
                    "write" => outcome(store.write_term(&bid, 1).await),
                    "successor" => outcome(store.set_successor(&bid, &successor()).await),
                    _ => outcome(store.release(&bid).await),
                };
                assert!(found.starts_with("refused"), "{ask} {lease:?}: {found}");
                assert_eq!(server.lines(), ["GET /orders"], "{ask} {lease:?}");
            }
        }
    }
    server.says([shows(&held())]);
    let found = outcome(store.set_successor(&bid(), &successor()).await);
    assert!(found.starts_with("refused this candidate did not write the record"), "{found}");
    server.says([shows(&broken()), Reply::Written("6")]);
    assert_eq!(store.release(&bid()).await, Ok(()), "its former holder may end its time early");
}

#[tokio::test]
async fn an_operator_breaks_what_is_held_once() {
    let server = Server::start().await;
    let store = open(&server);
    for found in [missing(), shows(&freed())] {
        server.says([found]);
        assert_eq!(store.break_lease(true).await, Ok(BreakOutcome::NotHeld));
        assert_eq!(server.lines(), ["GET /orders"]);
    }
    for (at_once, free_in) in [(true, 0), (false, 15)] {
        let free_in = Duration::from_secs(free_in);
        server.says([shows(&led()), Reply::Written("6")]);
        let Ok(BreakOutcome::Held { record, free_in: found }) = store.break_lease(at_once).await
        else {
            panic!("it is held")
        };
        assert_eq!((record.term, found), (Some(7), free_in));
        let written = server.asked().remove(1).lease;
        assert_eq!(record::holder(&written).is_none(), at_once);
        assert_eq!(record::is_broken(&written), !at_once);
    }
    server.says([shows(&broken())]);
    let again = store.break_lease(false).await.unwrap();
    let BreakOutcome::Held { free_in, .. } = again else { panic!("it runs out") };
    assert_eq!(
        (free_in, server.lines()),
        (Duration::from_secs(15), vec!["GET /orders".to_owned()])
    );
    server.says([shows(&led()), conflict()]);
    let found = store.break_lease(false).await;
    assert!(matches!(found, Err(StoreError::Unknown(_))), "{found:?}");
}

#[tokio::test]
async fn a_missing_lease_is_shown_with_the_first_of_the_others() {
    let server = Server::start().await;
    let store = open(&server);
    server.says([shows(&led())]);
    assert_eq!(store.presence().await, Ok(Presence::Exists));
    let mut others: Vec<Value> = (0..=MOST_LISTED)
        .rev()
        .map(|number| object(&record::free_with_term("shop", &format!("other-{number:02}"), 1)))
        .collect();
    let metadata = Metadata::named("shop", "client-go");
    others.push(object(&Lease { metadata, ..Lease::default() }));
    let list =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "LeaseList", "items": others});
    server.says([missing(), Reply::Answer(200, list)]);
    let expected: Vec<_> = (0..MOST_LISTED).map(|it| format!("other-{it:02}")).collect();
    let missing_lease = "no Lease \"orders\" in the namespace shop".to_owned();
    let found = store.presence().await.unwrap();
    assert_eq!(found, Presence::Missing { missing: missing_lease.clone(), others: Some(expected) });
    server.says([missing(), refusal(403, "Forbidden")]);
    let found = store.presence().await.unwrap();
    assert_eq!(found, Presence::Missing { missing: missing_lease, others: None });
}

#[tokio::test]
async fn a_first_term_is_written_only_where_there_is_none() {
    let server = Server::start().await;
    let store = open(&server);
    server.says([missing(), Reply::Written("1")]);
    let said = store.create(700).await.unwrap();
    assert_eq!(said, ["created the Lease shop/orders with the first term 700"]);
    let asked = server.asked();
    assert_eq!(asked[1].line, "POST ");
    assert_eq!(asked[1].lease.metadata.annotations[TERM], "700");
    let empty = changed(held(), |it| record::free(it, at(1)));
    server.says([shows(&empty), Reply::Written("6")]);
    let said = store.create(700).await.unwrap();
    assert_eq!(said, ["wrote the first term 700 to the Lease shop/orders"]);
    assert_eq!(server.asked()[1].lease.metadata.annotations[TERM], "700");
    server.says([shows(&freed())]);
    assert_eq!(store.create(700).await, Ok(Vec::new()));
    assert_eq!(server.lines(), ["GET /orders"]);
    server.says([missing(), refusal(409, "AlreadyExists")]);
    let found = store.create(700).await;
    assert!(matches!(found, Err(StoreError::RetryNow(_))), "{found:?}");
}

#[tokio::test]
async fn a_write_that_a_webhook_changed_is_unknown() {
    let server = Server::start().await;
    let store = open(&server);
    let mut other = held();
    other.metadata.annotations.remove(CLAIM);
    server.says([shows(&other)]);
    let found = outcome(store.renew(&wrote(&held())).await);
    assert!(found.starts_with("settings") && found.contains("admission webhook"), "{found}");
    assert!(record::is_of(&server.written(), &bid()));
}

fn event(kind: &str, lease: &Lease) -> Value {
    json!({"type": kind, "object": object(lease)})
}

#[tokio::test]
async fn a_watch_begins_with_the_present_state_and_continues_from_its_last_event() {
    let server = Server::start().await;
    let store = open(&server);
    let (at_5, at_6) = (held(), changed(led(), |it| it.metadata.resource_version = "6".to_owned()));
    let news = |held_by| Change::News { held_by };
    server.says([
        Reply::Events(vec![event("ADDED", &at_5), event("MODIFIED", &at_6)]),
        Reply::Events(Vec::new()),
        Reply::Events(vec![event("DELETED", &at_6)]),
    ]);
    assert_eq!(store.changed().await, news(Some(bid().nonce)));
    assert_eq!(store.changed().await, news(Some(bid().nonce)), "in the same watch");
    let began = clock::now();
    assert_eq!(store.changed().await, news(None));
    // Two watches ended: half of the shortest pause, and of twice that.
    let least = Duration::from_millis(125 + 250);
    assert!(began.elapsed_max(clock::now()) >= least);
    let lines = server.lines();
    let from: Vec<_> = lines.iter().map(|it| it.split_once("resourceVersion=")).collect();
    let from: Vec<_> = from.iter().map(|it| it.map(|(_, version)| version)).collect();
    assert_eq!(from, [None, Some("6"), Some("6")], "{lines:?}");
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_fails_the_examination() {
    let server = Server::start().await;
    let store = open(&server);
    drop(server);
    let found = store.examine().await;
    assert!(found.iter().any(|it| it.verdict == Verdict::Failed), "{found:?}");
}
