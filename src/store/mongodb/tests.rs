//! Tests of the calls and of the change stream against a server that answers by a script.

use std::collections::VecDeque;
use std::sync::{Mutex as StdMutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Host;

use super::bson::Value;
use super::*;
use crate::clock;
use crate::config::{Address, MongoUser, SecretSource, StoreTls};
use crate::lease::Nonce;
use crate::store::Verdict;
use crate::tls::KeyPair;

#[derive(Default)]
struct Script {
    replies: VecDeque<Document>,
    /// The commands that were received after the start of their connections.
    asked: Vec<Document>,
}

/// A server that answers what the test has put into it, in this order.
struct Server {
    collection: Collection,
    script: Arc<StdMutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

impl Server {
    async fn start(is_replicated: bool) -> Self {
        Self::with(is_replicated, None).await
    }

    async fn with(is_replicated: bool, user: Option<MongoUser>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::<StdMutex<Script>>::default();
        let shared = Arc::clone(&script);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared), is_replicated));
            }
        });
        let host = Host::parse(&address.ip().to_string()).unwrap();
        let settings = MongoSettings {
            servers: vec![Address { host, port: address.port() }],
            database: "app".to_owned(),
            collection: "tenure".to_owned(),
            election: "orders".to_owned(),
            user,
            auth_source: "app".to_owned(),
            accepts_compatible: false,
            tls: None,
            request_timeout: Duration::from_secs(30),
        };
        let collection = Collection::open(&settings, settings.request_timeout).unwrap();
        Self { collection, script, _task: task }
    }

    fn says(&self, replies: impl IntoIterator<Item = Document>) {
        let replies = replies.into_iter().map(|it| it.with("ok", 1));
        self.script.lock().unwrap().replies.extend(replies);
    }

    /// Returns the commands since the last time.
    fn asked(&self) -> Vec<Document> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }
}

async fn serve(mut stream: TcpStream, script: Arc<StdMutex<Script>>, is_replicated: bool) {
    let mut received = Vec::new();
    let mut number = 0_i32;
    while let Ok(1..) = stream.read_buf(&mut received).await {
        while let Ok(Some(request)) = wire::parse(&mut received) {
            let command = request.body;
            let mut hello = Document::of([("ok", 1.into()), ("isWritablePrimary", true.into())]);
            if is_replicated {
                hello = hello.with("setName", "rs0");
            }
            let reply = if command.get("hello").is_some() {
                hello
            } else if command.get("buildInfo").is_some() {
                Document::of([("ok", 1.into()), ("allocator", "x".into()), ("version", "8".into())])
            } else {
                let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
                script.asked.push(command);
                script.replies.pop_front().unwrap_or_default()
            };
            // Each connection numbers its requests from one on.
            number += 1;
            let mut message = wire::message(0, &reply);
            message[8..12].copy_from_slice(&number.to_le_bytes());
            if stream.write_all(&message).await.is_err() {
                return;
            }
        }
    }
}

fn count(n: i32) -> Document {
    Document::of([("n", n.into())])
}

fn document(id: &str, content: &str) -> Document {
    Document::of([("_id", id.into()), ("version", "v".into()), ("lease", content.into())])
}

fn body(write: u128) -> Body {
    Body { write: Nonce(write), ..Body::default() }
}

fn content(write: u128) -> String {
    String::from_utf8(body(write).encode()).unwrap()
}

/// An answer with a cursor.
fn batch(name: &str, id: i64, all: Vec<Document>) -> Document {
    let cursor = Document::of([(name, all.into()), ("id", id.into())]);
    Document::of([("cursor", cursor.into())])
}

#[tokio::test]
async fn a_write_counts_only_where_the_server_has_done_one() {
    let server = Server::start(true).await;
    let bodies = [1, 2].map(body);
    let put = |condition| {
        let body = &bodies[usize::from(condition != If::Absent)];
        server.collection.put(Slot::Lease, condition, body)
    };
    let time = Value::Timestamp(1_700_000_000 << 32);
    server.says([count(1).with("operationTime", time), count(1), count(0)]);
    let created = put(If::Absent).await.unwrap().unwrap();
    assert!(created.date.is_some());
    let changed = put(If::Tagged(&created.tag)).await.unwrap().unwrap();
    assert_ne!(changed.tag, created.tag);
    assert_eq!(put(If::Tagged(&created.tag)).await, Ok(None));
    let exists = Document::of([("code", 11_000.into())]);
    server.says([count(0).with("writeErrors", vec![exists])]);
    assert_eq!(put(If::Absent).await, Ok(None));
    for wrong in [count(2), count(-1), Document::default()] {
        server.says([wrong]);
        let error = put(If::Absent).await.unwrap_err();
        assert!(matches!(error, RegisterError::Invalid(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_document_is_read_with_its_version_and_the_date_of_the_server() {
    let server = Server::start(true).await;
    let time = Value::Timestamp(1_700_000_000 << 32);
    let found = batch("firstBatch", 0, vec![document("orders", "{}")]);
    server.says([found.with("operationTime", time), batch("firstBatch", 0, vec![])]);
    let read = server.collection.get(Slot::Lease).await.unwrap().unwrap();
    assert_eq!((&*read.tag, read.body.is_err()), ("v", true));
    assert_eq!(read.date.map(|it| it.unix_timestamp()), Some(1_700_000_000));
    assert_eq!(server.collection.get(Slot::Trial).await, Ok(None));
    let names = ["orders", "b", "orders_trial"].map(|it| document(it, "{}"));
    server.says([batch("firstBatch", 0, names.to_vec())]);
    let others = server.collection.others().await;
    assert_eq!(others, Some(vec!["b".to_owned(), "orders".to_owned()]));
    let asked = server.asked();
    let id = |it: &Document| it.document("filter").unwrap().text("_id").map(str::to_owned);
    assert_eq!([id(&asked[0]), id(&asked[1])].map(Option::unwrap), ["orders", "orders_trial"]);
    assert_eq!(asked[2].number("limit"), Some(40), "trials are among them");
}

#[tokio::test]
async fn a_change_stream_begins_with_the_present_state_and_goes_on_with_events() {
    let server = Server::start(true).await;
    let event =
        |write| Document::of([("fullDocument", document("orders", &content(write)).into())]);
    let deleted = Document::of([("operationType", "delete".into())]);
    server.says([
        batch("firstBatch", 9, vec![event(2)]),
        batch("firstBatch", 0, vec![document("orders", &content(1))]),
        batch("nextBatch", 9, vec![]),
        batch("nextBatch", 8, vec![event(3), deleted]),
        batch("nextBatch", 8, vec![event(4)]),
    ]);
    for expected in [Some(1), Some(2), Some(3), None, Some(4)] {
        let expected = expected.map_or(Told::Gone, |it| Told::Body(body(it)));
        assert_eq!(server.collection.told().await, expected);
    }
    let asked = server.asked();
    let cursors: Vec<_> = asked.iter().filter_map(|it| it.number("getMore")).collect();
    assert_eq!(cursors, [9, 9, 8], "the cursor of the last answer");
    let level = asked[1].document("readConcern").unwrap().text("level");
    assert_eq!(level, Some("local"), "it is no evidence");
}

#[tokio::test]
async fn a_change_stream_that_ended_is_opened_again_after_a_pause() {
    let server = Server::start(true).await;
    let state = |write| batch("firstBatch", 0, vec![document("orders", &content(write))]);
    server.says([
        batch("firstBatch", 9, vec![]),
        state(1),
        batch("nextBatch", 0, vec![]),
        batch("firstBatch", 9, vec![]),
        state(2),
    ]);
    assert_eq!(server.collection.told().await, Told::Body(body(1)));
    let before = clock::now();
    assert_eq!(server.collection.told().await, Told::Body(body(2)));
    let pause = before.elapsed_min(clock::now());
    assert!(pause >= Duration::from_millis(120), "the server may be failing: {pause:?}");
}

#[tokio::test]
async fn a_server_without_a_replica_set_is_asked_for_its_one_copy() {
    for (is_replicated, level) in [(true, "linearizable"), (false, "local")] {
        let server = Server::start(is_replicated).await;
        server.says([batch("firstBatch", 0, vec![])]);
        assert_eq!(server.collection.get(Slot::Lease).await, Ok(None));
        let asked = server.asked();
        assert_eq!(asked[0].document("readConcern").unwrap().text("level"), Some(level));
    }
}

#[tokio::test]
async fn a_user_signs_in_before_the_first_command() {
    let value = |it: &str| SecretSource::Value(it.to_owned());
    let user = MongoUser { name: value("u"), password: value("hidden") };
    let server = Server::with(true, Some(user)).await;
    let refused = Document::of([("ok", 0.into()), ("code", 18.into())]);
    server.script.lock().unwrap().replies.push_back(refused);
    let outcome = server.collection.get(Slot::Lease).await;
    let Err(RegisterError::Credential(why)) = outcome else { panic!("{outcome:?}") };
    assert!(why.starts_with("the sign-in failed: check MONGODB_USERNAME"), "{why}");
    let asked = server.asked();
    assert!(asked.len() == 1 && asked[0].get("saslStart").is_some(), "{asked:?}");
    let credential = server.collection.credential();
    assert_eq!(credential.as_deref(), Some("the user of MONGODB_USERNAME in app"));
    let answered = format!("{} answered, with no TLS", server.collection.servers());
    assert_eq!(server.collection.answered(), answered);
}

#[tokio::test]
async fn a_certificate_signs_in_without_a_user() {
    let server = Server::start(true).await;
    let mut collection = server.collection;
    let own = || Some(KeyPair { cert: "cert".into(), key: "key".into() });
    for (tls, credential) in [
        (None, "requests without a user"),
        (Some(StoreTls { ca_file: None, own: None }), "requests without a user"),
        (Some(StoreTls { ca_file: None, own: own() }), "the certificate of --store-cert"),
    ] {
        collection.settings.tls = tls;
        assert_eq!(collection.credential().as_deref(), Some(credential));
    }
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_fails_the_examination() {
    let Server { collection, _task, .. } = Server::start(true).await;
    drop(_task);
    let found = collection.examine().await;
    assert!(found.iter().any(|it| it.verdict == Verdict::Failed), "{found:?}");
}
