//! Tests of what the keys mean, and of the calls against a server that answers by a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt;
use time::macros::datetime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Host;

use super::reply::Reply;
use super::*;
use crate::config::{Address, SecretSource};
use crate::lease::fuzzing::bid;
use crate::lease::{Nonce, Record};

/// The fields of the record, as the script asks for them.
const FIELDS: [&str; 10] = [
    "format",
    "version",
    "term",
    "nonce",
    "holder",
    "instance",
    "address",
    "peer",
    "successor",
    "successor_hold_off_ms",
];

/// A record that the bid of these tests wrote.
const RECORD: [&str; 10] = ["1", "3", "4", OURS, "a", "1", "[::1]:80", "", "b", "1000"];

/// The nonce of the bid, and that of another.
const OURS: &str = "00000000000000000000000000000007";
const OTHER: &str = "00000000000000000000000000000008";

fn text(it: &str) -> Reply {
    Reply::Text(it.into())
}

/// Returns the record of the bid with another value of a field; an empty one is none.
fn record(field: &str, value: &str) -> [&'static str; 10] {
    let mut record = RECORD;
    let at = FIELDS.iter().position(|it| *it == field).unwrap();
    record[at] = String::leak(value.to_owned());
    record
}

/// Returns what the script does: whether it has written, how long the lease lasts, the claim, which is
/// none if it is empty, and the record.
fn keys(written: i64, left: i64, claim: &str, record: Option<[&str; 10]>) -> Reply {
    let some = |it: &str| if it.is_empty() { Reply::Nothing } else { text(it) };
    Reply::Array(vec![
        Reply::Number(written),
        text("1700000000"),
        text("250000"),
        Reply::Number(left),
        some(claim),
        Reply::Number(i64::from(record.is_some())),
        Reply::Array(record.unwrap_or_default().map(some).to_vec()),
    ])
}

fn claim(nonce: &str, state: &str, identity: &str) -> String {
    format!("{nonce} {state} {identity}")
}

fn seen(reply: &Reply) -> Result<Seen, Failure> {
    Seen::of(reply, "orders")
}

#[test]
fn the_keys_are_read_as_the_script_returns_them() {
    let nothing = Seen {
        is_written: false,
        held: None,
        record: Record::default(),
        version: "0".to_owned(),
        exists: false,
        date: Some(datetime!(2023-11-14 22:13:20.25 UTC)),
    };
    assert_eq!(seen(&keys(0, -2, "", None)), Ok(nothing.clone()));
    // The last millisecond of a key is not over yet.
    let held = |is_breaking, left| {
        Some(Held { nonce: Nonce(7), identity: "a b".to_owned(), is_breaking, left })
    };
    for (state, left, held) in [
        ("held", 0, held(false, Duration::from_millis(1))),
        ("held", 1_500, held(false, Duration::from_millis(1_501))),
        ("held", -1, held(false, Duration::MAX)),
        ("broken", 1_500, held(true, Duration::from_millis(1_501))),
    ] {
        let found = seen(&keys(1, left, &claim(OURS, state, "a b"), None));
        assert_eq!(found, Ok(Seen { is_written: true, held, exists: true, ..nothing.clone() }));
    }
    let candidate = bid().candidate;
    let record_of = |successor| Record {
        term: Some(4),
        holder: Some(Arc::clone(&candidate)),
        nonce: Some(Nonce(7)),
        successor,
    };
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    let version = "3".to_owned();
    let whole = Seen { exists: true, version, record: record_of(Some(successor)), ..nothing };
    assert_eq!(seen(&keys(0, -2, "", Some(RECORD))), Ok(whole.clone()));
    for absent in ["successor", "successor_hold_off_ms"] {
        let found = seen(&keys(0, -2, "", Some(record(absent, ""))));
        assert_eq!(found, Ok(Seen { record: record_of(None), ..whole.clone() }), "{absent}");
    }
    let first = ["1", "1", "9", "", "", "", "", "", "", ""];
    let found = seen(&keys(0, -2, "", Some(first))).unwrap();
    assert_eq!(found.record, Record { term: Some(9), ..Record::default() });
}

#[test]
fn a_term_is_a_positive_number_of_63_bits() {
    for (stored, expected) in [
        ("1", Some(1)),
        ("9223372036854775807", Some(u64::MAX / 2)),
        ("0", None),
        ("-1", None),
        ("9223372036854775808", None),
        ("x", None),
    ] {
        let found = seen(&keys(0, -2, "", Some(record("term", stored))));
        assert_eq!(found.map(|it| it.record.term).ok(), expected.map(Some), "{stored}");
    }
}

#[test]
fn keys_that_tenure_did_not_write_are_refused() {
    let of_record = |field, value| keys(0, -2, "", Some(record(field, value)));
    let mut with_number = keys(0, -2, "", Some(RECORD));
    let mut too_few = with_number.clone();
    let mut no_text = with_number.clone();
    let fields = |reply: &mut Reply, change: fn(&mut Vec<Reply>)| {
        let Reply::Array(parts) = reply else { panic!() };
        let Some(Reply::Array(fields)) = parts.last_mut() else { panic!() };
        change(fields);
    };
    fields(&mut with_number, |it| it[9] = Reply::Number(1_000));
    fields(&mut no_text, |it| it[4] = Reply::Text(vec![0xff]));
    fields(&mut too_few, |it| it.truncate(9));
    for (reply, words) in [
        (keys(0, 1, "x", None), "a lease that names no acquisition"),
        (keys(0, 1, &claim(OURS, "lost", "a"), None), "a lease that names no acquisition"),
        (keys(0, 1, &claim(&"x".repeat(32), "held", "a"), None), "a nonce that is not hexadecimal"),
        (of_record("format", "2"), "have format 2, but"),
        (of_record("format", ""), "have format none, but"),
        (of_record("version", ""), "have no version"),
        (of_record("version", "x"), "have no version"),
        (of_record("nonce", "x"), "have a nonce that is not hexadecimal"),
        (with_number, "have a field that is not text"),
        (no_text, "have a field that is not text"),
        (too_few, "were not returned as asked for"),
        (Reply::Nothing, "were not returned as asked for"),
    ] {
        let failure = seen(&reply).unwrap_err();
        assert!(failure.message.contains(words), "{failure}");
        assert_eq!(failure.cause, Cause::Record);
    }
}

#[test]
fn a_lease_is_asked_for_in_whole_milliseconds_rounded_up() {
    let scripts = Scripts::new("orders");
    for (nanos, millis) in [(1, "1"), (1_000_000, "1"), (1_000_001, "2"), (15_000_000_000, "15000")]
    {
        let bid = Bid { lease_duration: Duration::from_nanos(nanos), ..bid() };
        assert_eq!(scripts.renew(&bid).last().map(Vec::as_slice), Some(millis.as_bytes()));
    }
}

#[derive(Default)]
struct Script {
    replies: VecDeque<String>,
    /// The commands that were received, as text.
    asked: Vec<Vec<String>>,
}

/// A server that answers what the test has put into it, in this order.
struct Server {
    store: Redis,
    script: Arc<Mutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

impl Server {
    async fn start() -> Self {
        Self::with(0, None).await
    }

    async fn with(database: u16, password: Option<&str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::<Mutex<Script>>::default();
        let shared = Arc::clone(&script);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        let value = |it: &str| SecretSource::Value(it.to_owned());
        let store = Redis::open(&RedisSettings {
            servers: vec![Address {
                host: Host::parse(&address.ip().to_string()).unwrap(),
                port: address.port(),
            }],
            database,
            election: "orders".to_owned(),
            user: password.map(|_| value("u")),
            password: password.map(value),
            tls: None,
            request_timeout: Duration::from_secs(30),
        });
        Self { store: store.unwrap(), script, _task: task }
    }

    fn says(&self, replies: impl IntoIterator<Item = Reply>) {
        let replies = replies.into_iter().map(|it| sent(&it));
        self.script.lock().unwrap().replies.extend(replies);
    }

    /// Returns the commands since the last time.
    fn asked(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }
}

async fn serve(mut stream: TcpStream, script: Arc<Mutex<Script>>) {
    let mut received = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut received).await {
        while let Ok(Some(command)) = reply::take(&mut received) {
            let command = command.parts().iter().map(|it| it.text().unwrap().to_owned());
            let reply = {
                let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
                script.asked.push(command.collect());
                script.replies.pop_front()
            };
            let reply = reply.unwrap_or_else(|| "-ERR the script is over\r\n".to_owned());
            if stream.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn sent(reply: &Reply) -> String {
    match reply {
        Reply::Text(bytes) => format!("${}\r\n{}\r\n", bytes.len(), String::from_utf8_lossy(bytes)),
        Reply::Number(number) => format!(":{number}\r\n"),
        Reply::Error(words) => format!("-{words}\r\n"),
        Reply::Nothing => "$-1\r\n".to_owned(),
        Reply::Array(parts) => {
            format!("*{}\r\n{}", parts.len(), parts.iter().map(sent).collect::<String>())
        }
    }
}

#[tokio::test]
async fn a_connection_signs_in_and_selects_its_database_first() {
    for (database, password, expected) in [
        (0, None, vec![]),
        (1, None, vec![vec!["SELECT", "1"]]),
        (2, Some("p"), vec![vec!["AUTH", "u", "p"], vec!["SELECT", "2"]]),
    ] {
        let server = Server::with(database, password).await;
        server.says(expected.iter().map(|_| text("OK")));
        server.says([keys(0, -2, "", None), keys(0, -2, "", None)]);
        for _ in 0..2 {
            assert!(server.store.read().await.unwrap().free);
        }
        let asked = server.asked();
        let (before, requests) = asked.split_at(expected.len());
        assert_eq!(before, expected);
        assert!(requests.len() == 2 && requests.iter().all(|it| it[0] == "EVAL"), "{requests:?}");
    }
}

/// What the keys may hold after a request of the bid of these tests, with how it shows.
fn lost() -> [(Reply, &'static str); 3] {
    [
        (keys(0, 9, &claim(OTHER, "held", "b"), Some(RECORD)), "is held by \"b\""),
        (keys(0, 9, &claim(OURS, "broken", "a"), Some(RECORD)), "an operator broke the lease"),
        (keys(0, -2, "", Some(RECORD)), "was freed, expired, or was never held"),
    ]
}

fn ours(written: i64, record: [&str; 10]) -> Reply {
    keys(written, 9, &claim(OURS, "held", "a"), Some(record))
}

fn is_refused<T: fmt::Debug>(outcome: Result<T, StoreError>, words: &str) {
    let Err(StoreError::Refused(failure)) = &outcome else { panic!("{words}: {outcome:?}") };
    assert!(failure.message.contains(words), "{failure}");
}

#[tokio::test]
async fn a_lost_lease_is_refused_with_the_reason() {
    let server = Server::start().await;
    let (store, bid) = (&server.store, bid());
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    for (reply, words) in lost() {
        server.says(std::iter::repeat_n(reply, 4));
        is_refused(store.renew(&bid).await, words);
        is_refused(store.write_term(&bid, 1).await, words);
        is_refused(store.set_successor(&bid, &successor).await, words);
        is_refused(store.release(&bid).await, words);
    }
    for (reply, words) in lost().into_iter().take(2) {
        server.says([reply]);
        is_refused(store.acquire(&bid).await, words);
    }
    server.says([keys(0, -2, "", Some(RECORD))]);
    is_refused(store.acquire(&bid).await, "has changed since it was read");
}

#[tokio::test]
async fn a_request_counts_only_as_the_keys_show_it() {
    let server = Server::start().await;
    let (store, bid) = (&server.store, bid());
    assert!(!store.rules().missing_is_free, "a missing record needs a hold");
    let record_of_other = record("nonce", OTHER);
    server.says([ours(1, RECORD)]);
    let grant = store.acquire(&bid).await.unwrap();
    assert_eq!(grant.record.term, Some(4));
    assert!(grant.date.is_some());
    server.says([ours(1, RECORD), ours(0, RECORD)]);
    assert_eq!(store.renew(&bid).await, Ok(None));
    let conflict = store.renew(&bid).await.unwrap_err();
    assert!(matches!(conflict, StoreError::RetryNow(_)), "{conflict:?}");
    server.says([ours(1, RECORD), ours(0, RECORD), ours(0, record_of_other)]);
    assert_eq!(store.write_term(&bid, 1).await, Ok(4));
    assert_eq!(store.write_term(&bid, 1).await, Ok(4), "written by an earlier request");
    let conflict = store.write_term(&bid, 1).await.unwrap_err();
    assert!(matches!(conflict, StoreError::RetryNow(_)), "{conflict:?}");
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    server.says([ours(1, RECORD), ours(0, record("successor", "c")), ours(0, record_of_other)]);
    assert_eq!(store.set_successor(&bid, &successor).await, Ok(None));
    let conflict = store.set_successor(&bid, &successor).await.unwrap_err();
    assert!(matches!(conflict, StoreError::RetryNow(_)), "{conflict:?}");
    is_refused(store.set_successor(&bid, &successor).await, "did not write the record");
    server.says([keys(1, -2, "", Some(RECORD))]);
    assert_eq!(store.release(&bid).await, Ok(()));
    let largest = store.write_term(&bid, 1 << 63).await.unwrap_err();
    assert!(matches!(largest, StoreError::Foreign(_)), "{largest:?}");
}

#[tokio::test]
async fn a_broken_lease_runs_out_or_is_freed_at_once() {
    let server = Server::start().await;
    let store = &server.store;
    let free = keys(1, -2, "", Some(RECORD));
    let broken = keys(1, 5, &claim(OURS, "broken", "a"), Some(RECORD));
    let endless = keys(0, -1, &claim(OURS, "held", "a"), Some(RECORD));
    let held = ours(0, RECORD);
    for (at_once, replies, left) in [
        (false, vec![&free], None),
        (true, vec![&free], None),
        (false, vec![&held, &broken], Some(6)),
        (true, vec![&held, &free], Some(0)),
        (false, vec![&broken], Some(6)),
        (true, vec![&broken, &free], Some(0)),
        (true, vec![&endless, &free], Some(0)),
    ] {
        server.says(replies.iter().copied().cloned());
        let outcome = store.break_lease(at_once).await.unwrap();
        let found = match outcome {
            BreakOutcome::NotHeld => None,
            BreakOutcome::Held { record, free_in } => {
                assert_eq!(record.term, Some(4));
                Some(free_in)
            }
        };
        assert_eq!(found, left.map(Duration::from_millis), "{at_once}: {replies:?}");
        let asked = server.asked();
        assert_eq!(asked.len(), replies.len());
        if let Some(write) = asked.get(1) {
            assert_eq!(write.last().map(String::as_str), Some("3"), "the version that was read");
            assert_eq!(write[1].contains("'KEEPTTL'"), !at_once);
        }
    }
    server.says([endless]);
    is_refused(store.break_lease(false).await, "has no expiry");
    server.says([held.clone(), held]);
    let error = store.break_lease(true).await.unwrap_err();
    assert!(error.to_string().contains("nothing was broken: try again"), "{error}");
}

#[tokio::test]
async fn other_elections_are_named_where_there_is_none() {
    let server = Server::start().await;
    server.says([keys(0, -2, "", Some(RECORD)), ours(0, RECORD), keys(0, -2, "", None)]);
    for _ in 0..2 {
        assert_eq!(server.store.presence().await, Ok(Presence::Exists));
    }
    let names = (0..=MOST_LISTED).map(|it| format!("tenure:{{{}}}:record", 120 - it));
    let more = ["tenure:{110}:record", "tenure:{x}:lease", "other"].map(str::to_owned);
    let found: Vec<_> = names.chain(more).map(|it| text(&it)).collect();
    server.says([Reply::Array(vec![text("0"), Reply::Array(found)])]);
    let Presence::Missing { missing, others } = server.store.presence().await.unwrap() else {
        panic!("there is none");
    };
    assert_eq!(missing, "no key tenure:{orders}:* of database 0 in Redis");
    let expected: Vec<_> = (100..120).map(|it| it.to_string()).collect();
    assert_eq!(others, Some(expected));
}

#[tokio::test]
async fn a_first_term_is_written_once() {
    let server = Server::start().await;
    let store = &server.store;
    let without = record("term", "");
    server.says([keys(1, -2, "", Some(RECORD)), keys(0, -2, "", Some(RECORD))]);
    server.says([keys(0, -2, "", Some(without))]);
    let created = store.create(4).await.unwrap();
    assert_eq!(created, ["created the key tenure:{orders}:record with the first term 4"]);
    assert_eq!(store.create(4).await, Ok(Vec::new()));
    assert!(matches!(store.create(4).await, Err(StoreError::RetryNow(_))));
}

#[tokio::test]
async fn messages_of_others_are_news_and_own_ones_are_not() {
    let server = Server::start().await;
    let message = |payload: String| Reply::Array(vec![text("message"), text("c"), text(&payload)]);
    let own = server.store.scripts.sender.clone();
    let subscribed = Reply::Array(vec![text("subscribe"), text("c"), Reply::Number(1)]);
    let told = [
        subscribed,
        message(format!("{own} {OTHER}")),
        message(format!("another {OTHER}")),
        message("another -".to_owned()),
    ];
    let all = told.iter().map(sent).collect();
    server.script.lock().unwrap().replies.push_back(all);
    for held_by in [Some(Nonce(8)), None] {
        assert_eq!(server.store.changed().await, Change::News { held_by });
    }
    let channel = "tenure:{orders}:changes";
    assert_eq!(server.asked(), [["SUBSCRIBE", channel]]);
    assert!(server.store.changed().now_or_never().is_none());
}
