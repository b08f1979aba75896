//! Tests of what the row means, and of the calls against a server that answers by a script.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use time::macros::datetime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Host;

use super::*;
use crate::config::{Address, PostgresPassword, PostgresTable, SecretSource};
use crate::lease::fuzzing::bid;
use crate::lease::{Candidate, Nonce, Record};

/// The columns of the row, as it is read.
const COLUMNS: [&str; 16] = [
    "is_in_recovery",
    "date",
    "format",
    "version",
    "left",
    "claim",
    "claimant",
    "breaking",
    "term",
    "nonce",
    "holder",
    "instance",
    "address",
    "peer",
    "successor",
    "hold_off",
];

/// A row that the bid of these tests has claimed, and whose record it wrote.
const ROW: [&str; 16] = [
    "f",
    "1700000000250000",
    "1",
    "3",
    "1500",
    OURS,
    "a",
    "f",
    "4",
    OURS,
    "a",
    "1",
    "[::1]:80",
    "",
    "b",
    "1000",
];

/// The nonce of the bid, and that of another.
const OURS: &str = "00000000000000000000000000000007";
const OTHER: &str = "00000000000000000000000000000008";

/// Returns the row of the bid with other values; an empty one is none.
fn row(changes: &[(&str, &str)]) -> Rows {
    let mut row = ROW.map(str::to_owned);
    for (column, value) in changes {
        let at = COLUMNS.iter().position(|it| it == column).unwrap();
        (*value).clone_into(&mut row[at]);
    }
    vec![row.map(|it| Some(it).filter(|it| !it.is_empty())).to_vec()]
}

/// A row without a claim.
fn free() -> Rows {
    row(&[("left", ""), ("claim", ""), ("claimant", "")])
}

/// What is read where there is no row.
fn none() -> Rows {
    let mut row = row(&[]);
    row[0][2..].fill(None);
    row
}

fn seen(rows: &Rows) -> Result<Seen, Failure> {
    Seen::of(rows, "orders")
}

#[test]
fn the_row_is_read_as_it_is_returned() {
    let candidate = bid().candidate;
    let whole = Seen {
        held: Some(Held {
            nonce: Nonce(7),
            identity: "a".to_owned(),
            is_breaking: false,
            left: Duration::from_millis(1_500),
        }),
        record: Record {
            term: Some(4),
            holder: Some(Arc::clone(&candidate)),
            nonce: Some(Nonce(7)),
            successor: Some(Successor {
                identity: "b".to_owned(),
                hold_off: Duration::from_secs(1),
            }),
        },
        version: 3,
        date: Some(datetime!(2023-11-14 22:13:20.25 UTC)),
        is_of_standby: false,
    };
    assert_eq!(seen(&row(&[])), Ok(whole.clone()));
    assert_eq!(seen(&free()), Ok(Seen { held: None, ..whole.clone() }));
    assert_eq!(seen(&none()), Ok(Seen { date: whole.date, ..Seen::nothing() }));
    assert!(seen(&row(&[("breaking", "t")])).unwrap().held.unwrap().is_breaking);
    assert!(seen(&row(&[("is_in_recovery", "t")])).unwrap().is_of_standby);
    for absent in ["successor", "hold_off"] {
        let found = seen(&row(&[(absent, "")])).unwrap();
        let record = Record { successor: None, ..whole.record.clone() };
        assert_eq!(found.record, record, "{absent}");
    }
    let nothing = Seen::nothing();
    assert_eq!((nothing.version, nothing.is_of_standby), (0, false));
}

#[test]
fn a_row_that_tenure_did_not_write_is_refused() {
    for (changed, words) in [
        (("format", "2"), "has format 2, but"),
        (("format", ""), "has format none, but"),
        (("version", "x"), "has no version"),
        (("claim", "x"), "has a nonce that is not hexadecimal"),
        (("term", "-1"), "has a term that is no positive number"),
        (("nonce", "x"), "has a nonce that is not hexadecimal"),
    ] {
        let failure = seen(&row(&[changed])).unwrap_err();
        assert!(failure.message.contains(words), "{failure}");
        assert_eq!(failure.cause, Cause::Record);
    }
    let mut short = row(&[]);
    short[0].pop();
    for rows in [short, Rows::new()] {
        let failure = seen(&rows).unwrap_err();
        assert!(failure.message.contains("was not returned as asked for"), "{failure}");
    }
}

/// What a server answers next.
enum Reply {
    /// The rows of the statements after the prologue.
    Answer(Vec<Rows>),
    /// An error with this code.
    Error(&'static str),
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<String>,
}

/// A server that answers what the test has put into it, in this order. It asks for the password.
struct Server {
    store: Postgres,
    script: Arc<Mutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

fn settings(server: Address) -> PostgresSettings {
    let value = |it: &str| SecretSource::Value(it.to_owned());
    PostgresSettings {
        servers: vec![server],
        database: "app".to_owned(),
        table: PostgresTable { schema: None, name: "tenure".to_owned() },
        election: "orders".to_owned(),
        user: value("u"),
        password: Some(PostgresPassword::Secret(value("secret"))),
        tls: None,
        request_timeout: Duration::from_secs(30),
    }
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::<Mutex<Script>>::default();
        let shared = Arc::clone(&script);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let script = Arc::clone(&shared);
                connections.spawn(async move { drop(serve(stream, script).await) });
            }
        });
        let host = Host::parse(&address.ip().to_string()).unwrap();
        let store = Postgres::open(&settings(Address { host, port: address.port() })).unwrap();
        Self { store, script, _task: task }
    }

    fn says(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script.lock().unwrap().replies.extend(replies);
    }

    /// Returns the statements since the last time.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.script.lock().unwrap().asked)
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 4).unwrap().to_be_bytes();
    [&[tag][..], &length, body].concat()
}

fn answer(results: &[Rows]) -> Vec<u8> {
    let mut all = Vec::new();
    for rows in results {
        for row in rows {
            let mut body = i16::try_from(row.len()).unwrap().to_be_bytes().to_vec();
            for value in row {
                let length = value.as_ref().map_or(-1, |it| i32::try_from(it.len()).unwrap());
                body.extend(length.to_be_bytes());
                body.extend(value.as_deref().unwrap_or_default().as_bytes());
            }
            all.extend(message(b'D', &body));
        }
        all.extend(message(b'C', b"SELECT 1\0"));
    }
    all
}

async fn serve(mut stream: TcpStream, script: Arc<Mutex<Script>>) -> std::io::Result<()> {
    let ready = message(b'Z', b"I");
    let length = usize::try_from(stream.read_u32().await?).unwrap();
    stream.read_exact(&mut vec![0; length - 4]).await?;
    stream.write_all(&message(b'R', &3_i32.to_be_bytes())).await?;
    loop {
        let tag = stream.read_u8().await?;
        let length = usize::try_from(stream.read_u32().await?).unwrap();
        let mut body = vec![0; length - 4];
        stream.read_exact(&mut body).await?;
        let text = String::from_utf8_lossy(&body).trim_end_matches('\0').to_owned();
        let mut reply = match (tag, text.as_str()) {
            (b'p', "secret") => {
                let process = message(b'K', &[0, 0, 0, 7, 0, 0, 0, 1]);
                [message(b'R', &[0; 4]), process].concat()
            }
            (b'Q', text) if text.contains("pg_backend_pid") => {
                answer(&[vec![vec![Some("7".to_owned()), Some("f".to_owned())]]])
            }
            (b'Q', text) if text.starts_with("LISTEN") => answer(&[Rows::new()]),
            _ => {
                let mut script = script.lock().unwrap_or_else(PoisonError::into_inner);
                script.asked.push(text);
                match script.replies.pop_front() {
                    Some(Reply::Answer(rows)) => {
                        [answer(&vec![Rows::new(); PROLOGUE]), answer(&rows)].concat()
                    }
                    other => {
                        let Some(Reply::Error(code)) = other else { return Ok(()) };
                        message(b'E', format!("C{code}\0Mwords\0\0").as_bytes())
                    }
                }
            }
        };
        reply.extend(&ready);
        stream.write_all(&reply).await?;
    }
}

/// The answer to a read.
fn read(rows: Rows) -> Reply {
    Reply::Answer(vec![rows])
}

/// The answer to a write that was done.
fn written(rows: Rows) -> Reply {
    Reply::Answer(vec![vec![vec![None]], rows])
}

/// The answer to a write that was not done.
fn unwritten(rows: Rows) -> Reply {
    Reply::Answer(vec![Rows::new(), rows])
}

fn successor() -> Successor {
    Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) }
}

fn is_refused<T: fmt::Debug>(outcome: Result<T, StoreError>, words: &str) {
    let Err(StoreError::Refused(failure)) = &outcome else { panic!("{words}: {outcome:?}") };
    assert!(failure.message.contains(words), "{failure}");
}

fn is_conflict<T: fmt::Debug>(outcome: Result<T, StoreError>) {
    assert!(matches!(outcome, Err(StoreError::RetryNow(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_read_shows_the_row_of_a_primary() {
    let server = Server::start().await;
    let store = &server.store;
    assert!(!store.rules().missing_is_free, "a missing record needs a hold");
    let standby = row(&[("is_in_recovery", "t")]);
    server.says([read(row(&[])), read(none()), Reply::Error("42P01"), read(standby)]);
    let held = store.read().await.unwrap();
    assert_eq!((held.free, &*held.version.0, held.record.term), (false, "3", Some(4)));
    for _ in 0..2 {
        let nothing = store.read().await.unwrap();
        assert_eq!((nothing.free, &*nothing.version.0), (true, "0"), "no row, no table");
    }
    let error = store.read().await.unwrap_err();
    assert!(error.to_string().contains("is a standby"), "{error}");
}

#[tokio::test]
async fn a_lost_lease_is_refused_with_the_reason() {
    let server = Server::start().await;
    let (store, bid) = (&server.store, bid());
    for (rows, words) in [
        (row(&[("claim", OTHER), ("claimant", "b")]), "is held by \"b\""),
        (row(&[("breaking", "t")]), "an operator broke the lease"),
        (free(), "was freed, expired, or was never held"),
    ] {
        server.says((0..4).map(|_| unwritten(rows.clone())));
        is_refused(store.renew(&bid).await, words);
        is_refused(store.write_term(&bid, 1).await, words);
        is_refused(store.set_successor(&bid, &successor()).await, words);
        is_refused(store.release(&bid).await, words);
    }
}

#[tokio::test]
async fn a_write_counts_only_as_the_row_shows_it() {
    let server = Server::start().await;
    let (store, bid) = (&server.store, bid());
    let of_other = row(&[("nonce", OTHER)]);
    server.says([written(row(&[])), unwritten(row(&[]))]);
    assert_eq!(store.renew(&bid).await, Ok(None));
    is_conflict(store.renew(&bid).await);
    server.says([written(row(&[])), unwritten(row(&[])), unwritten(of_other.clone())]);
    server.asked();
    assert_eq!(store.write_term(&bid, 3).await, Ok(4));
    assert!(server.asked()[0].contains("GREATEST(COALESCE(t.term, 0) + 1, 3)"));
    assert_eq!(store.write_term(&bid, 1).await, Ok(4), "written by an earlier request");
    is_conflict(store.write_term(&bid, 1).await);
    let another = row(&[("successor", "c")]);
    server.says([written(row(&[])), unwritten(another), unwritten(of_other)]);
    assert_eq!(store.set_successor(&bid, &successor()).await, Ok(None));
    is_conflict(store.set_successor(&bid, &successor()).await);
    is_refused(store.set_successor(&bid, &successor()).await, "did not write the record");
    server.says([written(free())]);
    assert_eq!(store.release(&bid).await, Ok(()));
    let largest = store.write_term(&bid, 1 << 63).await.unwrap_err();
    assert!(matches!(largest, StoreError::Foreign(_)), "{largest:?}");
}

#[tokio::test]
async fn a_bid_creates_the_table_and_the_row_that_it_found_missing() {
    let server = Server::start().await;
    let (store, first) = (&server.store, bid());
    server.says([Reply::Error("42P01"), Reply::Answer(vec![Rows::new()]), written(row(&[]))]);
    let grant = store.acquire(&first).await.unwrap();
    assert!(grant.record.term == Some(4) && grant.date.is_some());
    let asked = server.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked[0].contains("INSERT INTO \"tenure\"") && asked[0] == asked[2]);
    assert!(asked[1].contains("CREATE TABLE IF NOT EXISTS \"tenure\""), "{}", asked[1]);
    let next = Bid { seen: Version("3".into()), ..first };
    server.says([unwritten(row(&[])), unwritten(free()), unwritten(none())]);
    is_refused(store.acquire(&next).await, "is held by \"a\"");
    is_conflict(store.acquire(&next).await);
    is_refused(store.acquire(&next).await, "has changed since it was read");
    assert!(server.asked().iter().all(|it| it.contains("t.version = 3 AND")));
}

#[tokio::test]
async fn a_broken_lease_runs_out_or_is_freed_at_once() {
    let server = Server::start().await;
    let store = &server.store;
    let broken = || row(&[("breaking", "t"), ("left", "6")]);
    for (at_once, found, change, left) in [
        (false, free(), None, None),
        (true, none(), None, None),
        (false, row(&[]), Some(broken()), Some(6)),
        (true, row(&[]), Some(free()), Some(0)),
        (false, broken(), None, Some(6)),
        (true, broken(), Some(free()), Some(0)),
    ] {
        let requests = 1 + usize::from(change.is_some());
        server.says([read(found)].into_iter().chain(change.map(written)));
        let found = match store.break_lease(at_once).await.unwrap() {
            BreakOutcome::NotHeld => None,
            BreakOutcome::Held { record, free_in } => {
                assert_eq!(record.term, Some(4));
                Some(free_in)
            }
        };
        assert_eq!(found, left.map(Duration::from_millis), "{at_once}");
        assert_eq!(server.asked().len(), requests);
    }
    server.says([read(row(&[])), unwritten(row(&[]))]);
    let error = store.break_lease(true).await.unwrap_err();
    assert!(error.to_string().contains("nothing was broken: try again"), "{error}");
}

#[tokio::test]
async fn other_elections_are_named_where_there_is_none() {
    let server = Server::start().await;
    let listed = || read(vec![vec![Some("a".to_owned())], vec![Some("b".to_owned())]]);
    let exists = row(&[("version", "1")]);
    server.says([listed(), read(exists), listed(), read(none()), Reply::Error("42P01")]);
    assert_eq!(server.store.presence().await, Ok(Presence::Exists));
    let missing = |missing: &str, others: Option<[&str; 2]>| {
        let others = others.map(|it| it.map(str::to_owned).to_vec());
        Ok(Presence::Missing { missing: missing.to_owned(), others })
    };
    let no_row = missing("no row \"orders\" of app/tenure in PostgreSQL", Some(["a", "b"]));
    assert_eq!(server.store.presence().await, no_row);
    let no_table = missing("no table tenure in the database app of PostgreSQL", None);
    assert_eq!(server.store.presence().await, no_table);
}

#[tokio::test]
async fn the_table_and_a_first_term_are_created_once() {
    let server = Server::start().await;
    let store = &server.store;
    let table = || [Reply::Error("42P01"), Reply::Answer(vec![Rows::new()])];
    server.says(table());
    server.says([read(none()), written(free()), read(free()), read(none()), unwritten(none())]);
    assert_eq!(
        store.create(4).await.unwrap(),
        [
            "created the table tenure",
            "created the row \"orders\" of app/tenure with the first term 4"
        ]
    );
    assert!(server.asked()[1].contains("CREATE TABLE"));
    assert_eq!(store.create(4).await, Ok(Vec::new()));
    is_conflict(store.create(4).await);
    // Another has created both meanwhile.
    server.says(table());
    server.says([read(free())]);
    assert_eq!(store.create(4).await.unwrap(), ["created the table tenure"]);
}

#[test]
fn requests_are_bounded_and_empty_addresses_are_none() {
    let server = Address { host: Host::Domain("h".to_owned()), port: 1 };
    let settings = PostgresSettings { request_timeout: Duration::ZERO, ..settings(server) };
    let statements = Statements::new(&settings);
    for bound in ["SET LOCAL statement_timeout = 1;", "SET LOCAL lock_timeout = 1;"] {
        assert!(statements.read().contains(bound), "zero stands for no bound");
    }
    let bid = bid();
    let address = Some(String::new());
    let peer = Some("p".to_owned());
    let candidate = Candidate { address, peer, ..(*bid.candidate).clone() };
    let term = statements.write_term(&Bid { candidate: candidate.into(), ..bid }, 1);
    assert!(term.contains("address = NULL, peer = 'p',"), "{term}");
}
