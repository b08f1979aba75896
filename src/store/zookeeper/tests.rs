//! Tests of the calls against a server that answers by a script.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use url::Host;

use super::wire::State;
use super::*;
use crate::config::Address;
use crate::lease::fuzzing::bid;
use crate::lease::{Nonce, Record};
use crate::store::Verdict;

const BAD_VERSION: i32 = -103;

/// What the server answers next.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    /// A success with this body.
    Body(Vec<u8>),
    /// This error.
    Error(i32),
    /// That a transaction was done, at this time in Unix milliseconds.
    Done(i64),
    /// That a transaction failed by this error.
    Undone(i32),
    /// A notification behind the answer before.
    Notified,
}

struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<String>,
    /// The data that was last written.
    written: Vec<u8>,
    /// How many sessions were ended.
    ended: usize,
    /// The last transaction that the last client knew of.
    seen: Vec<u8>,
    /// The shortest and the longest session, in milliseconds.
    bounds: (i32, i32),
}

/// A server that answers what the test has put into it, in this order. It closes a connection on which it is
/// asked for more.
pub(super) struct Server {
    address: Address,
    script: Arc<Mutex<Script>>,
    /// Ends when it is dropped.
    _task: JoinSet<()>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::new(Mutex::new(Script {
            replies: VecDeque::new(),
            asked: Vec::new(),
            written: Vec::new(),
            ended: 0,
            seen: Vec::new(),
            bounds: (4_000, 40_000),
        }));
        let shared = Arc::clone(&script);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                connections.spawn(async move { drop(serve(stream, &shared).await) });
            }
        });
        Self {
            address: Address { host: Host::Ipv4(Ipv4Addr::LOCALHOST), port },
            script,
            _task: task,
        }
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        locked(&self.script)
    }

    pub(super) fn says(&self, replies: impl IntoIterator<Item = Reply>) {
        self.script().replies.extend(replies);
    }

    /// Returns the sessions and the requests since the last time.
    pub(super) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.script().asked)
    }

    /// Returns the last transaction that the last client knew of.
    pub(super) fn seen(&self) -> i64 {
        i64::from_be_bytes(self.script().seen[..].try_into().unwrap())
    }

    /// Waits until so many sessions were ended.
    async fn has_ended(&self, sessions: usize) {
        let ended = async {
            while self.script().ended < sessions {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), ended).await.expect("they are ended");
        assert_eq!(self.script().ended, sessions);
    }
}

fn locked(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is left of a message.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.int().try_into().unwrap();
        self.take(length)
    }

    /// Returns a path without what all nodes of the election are below.
    fn path(&mut self) -> &'a str {
        let path = str::from_utf8(self.bytes()).unwrap();
        path.strip_prefix("/tenure/orders/").unwrap_or(path)
    }
}

fn framed(parts: &[&[u8]]) -> Vec<u8> {
    let message = parts.concat();
    [&i32::try_from(message.len()).unwrap().to_be_bytes()[..], &message].concat()
}

async fn received(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut message = vec![0; stream.read_i32().await?.try_into().unwrap()];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

/// Answers on one connection.
async fn serve(mut stream: TcpStream, script: &Mutex<Script>) -> io::Result<()> {
    let message = received(&mut stream).await?;
    let mut rest = Rest(&message[4..]);
    locked(script).seen = rest.take(8).to_vec();
    let asked = rest.int();
    let (shortest, longest) = locked(script).bounds;
    locked(script).asked.push(format!("session of {asked} ms"));
    let given = asked.clamp(shortest, longest).to_be_bytes();
    let session = 77_i64.to_be_bytes();
    stream.write_all(&framed(&[&[0; 4], &given, &session, &framed(&[&[0; 16]])])).await?;
    loop {
        let message = received(&mut stream).await?;
        let mut rest = Rest(&message);
        let (number, kind) = (rest.int(), rest.int());
        if kind == -11 {
            locked(script).ended += 1;
            return Ok(());
        }
        let parts = understood(kind, rest, script);
        let Some(reply) = locked(script).replies.pop_front() else { return Ok(()) };
        let (code, body) = match reply {
            Reply::Body(body) => (0, body),
            Reply::Error(code) => (code, Vec::new()),
            Reply::Done(at) => (0, done(&parts, at)),
            Reply::Undone(code) => (0, undone(code)),
            Reply::Notified => panic!("nothing was answered before"),
        };
        let answer = |number: i32, code: i32, body: &[u8]| {
            framed(&[&number.to_be_bytes(), &9_i64.to_be_bytes(), &code.to_be_bytes(), body])
        };
        stream.write_all(&answer(number, code, &body)).await?;
        while is_notified(script) {
            stream.write_all(&answer(wire::NOTIFICATION, 0, &[0; 12])).await?;
        }
    }
}

/// Returns whether a notification follows.
fn is_notified(script: &Mutex<Script>) -> bool {
    let mut script = locked(script);
    let is_next = matches!(script.replies.front(), Some(Reply::Notified));
    if is_next {
        script.replies.pop_front();
    }
    is_next
}

/// Records a request; returns the kinds of the parts of a transaction.
fn understood(kind: i32, mut rest: Rest<'_>, script: &Mutex<Script>) -> Vec<i32> {
    let mut script = locked(script);
    let (mut kinds, mut lines) = (Vec::new(), Vec::new());
    if kind == 14 {
        loop {
            let (kind, is_end) = (rest.int(), rest.take(1) == [1]);
            rest.int();
            if is_end {
                break;
            }
            kinds.push(kind);
            let path = rest.path();
            match kind {
                1 => {
                    script.written = rest.bytes().to_vec();
                    rest.take(8);
                    rest.bytes();
                    rest.bytes();
                    rest.int();
                    lines.push(format!("create {path}"));
                }
                5 => {
                    script.written = rest.bytes().to_vec();
                    let version =
                        if lines.last() == Some(&format!("create {path}")) { 0 } else { 3 };
                    assert_eq!(rest.int(), version, "the version that was read or created");
                    lines.push(format!("set {path}"));
                }
                kind => {
                    rest.int();
                    lines.push(format!("{} {path}", if kind == 2 { "delete" } else { "check" }));
                }
            }
        }
    } else {
        let path = rest.path();
        let word = match kind {
            1 => "create",
            2 => "delete",
            3 if rest.take(1) == [1] => "watch",
            3 => "state",
            4 => "data",
            8 => "children",
            _ => "another request",
        };
        lines.push(format!("{word} {path}"));
    }
    script.asked.push(lines.join(", "));
    kinds
}

fn done(kinds: &[i32], at: i64) -> Vec<u8> {
    let mut all = Vec::new();
    for kind in kinds {
        all.extend(kind.to_be_bytes());
        all.extend([0; 5]);
        match kind {
            1 => all.extend([0; 4]),
            5 => all.extend(bytes_of(&State { changed_ms: at, ..State::default() })),
            _ => (),
        }
    }
    [&all[..], &[0xff; 4], &[1], &[0xff; 4]].concat()
}

fn undone(code: i32) -> Vec<u8> {
    let code = code.to_be_bytes();
    [&[0xff; 4][..], &[0], &code, &code, &[0xff; 4], &[1], &[0xff; 4]].concat()
}

fn bytes_of(state: &State) -> Vec<u8> {
    let State { created, created_ms, changed_ms, version, children, children_changed } = state;
    let mut all = [*created, 0, *created_ms, *changed_ms].map(i64::to_be_bytes).concat();
    all.extend(version.to_be_bytes());
    all.extend([0; 20]);
    all.extend(children.to_be_bytes());
    all.extend(children_changed.to_be_bytes());
    all
}

pub(super) fn text(text: &str) -> Vec<u8> {
    framed(&[text.as_bytes()])
}

pub(super) fn children(names: &[impl AsRef<str>]) -> Reply {
    let count = i32::try_from(names.len()).unwrap().to_be_bytes();
    let names: Vec<_> = names.iter().flat_map(|it| text(it.as_ref())).collect();
    Reply::Body([&count[..], &names].concat())
}

/// The state of the record, or of another node that exists.
fn state(is_held: bool) -> State {
    let children = is_held.into();
    State { created: 0x20, version: 3, children, children_changed: 7, ..State::default() }
}

pub(super) fn exists() -> Reply {
    Reply::Body(bytes_of(&state(false)))
}

pub(super) fn missing() -> Reply {
    Reply::Error(NO_NODE)
}

/// A read of the record, with the node of the lease below it or without.
pub(super) fn shows(data: &[u8], is_held: bool) -> Reply {
    Reply::Body([text(str::from_utf8(data).unwrap()), bytes_of(&state(is_held))].concat())
}

fn settings(server: &Server) -> ZookeeperSettings {
    ZookeeperSettings {
        servers: vec![server.address.clone()],
        path: "tenure".to_owned(),
        election: "orders".to_owned(),
        auth: None,
        tls: None,
        lease_duration: Duration::from_secs(15),
        request_timeout: Duration::from_secs(30),
    }
}

pub(super) fn open(server: &Server) -> Zookeeper {
    Zookeeper::open(&settings(server)).unwrap()
}

fn read(store: &Zookeeper, data: &[u8], is_held: bool) -> Seen {
    Seen::of(Some((data.to_vec(), state(is_held))), &store.nodes).unwrap()
}

/// The record in some states.
pub(super) struct Records {
    pub(super) held: Vec<u8>,
    pub(super) led: Vec<u8>,
    broken: Vec<u8>,
    by_other: Vec<u8>,
    pub(super) freed: Vec<u8>,
}

impl Records {
    pub(super) fn new(store: &Zookeeper) -> Self {
        let held = Seen::nothing().claimed(&bid());
        let led = read(store, &held, true).led(&bid(), 7, None);
        Self {
            broken: read(store, &held, true).broken(),
            by_other: Seen::nothing().claimed(&Bid { nonce: Nonce(9), ..bid() }),
            freed: read(store, &led, true).freed(),
            held,
            led,
        }
    }
}

/// A bid for the record in this state.
fn bid_for(store: &Zookeeper, data: &[u8]) -> Bid {
    Bid { seen: read(store, data, false).version(), ..bid() }
}

fn successor() -> Successor {
    Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) }
}

fn outcome<T>(result: Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "done".to_owned(),
        Err(StoreError::RetryNow(why)) => format!("to be retried: {why}"),
        Err(StoreError::Refused(why)) => format!("refused: {why}"),
        Err(error) => format!("{}: {error}", error.outcome()),
    }
}

const SESSION: &str = "session of 15000 ms";

#[tokio::test]
async fn a_missing_record_is_created_with_the_lease_and_the_nodes_above_it() {
    let server = Server::start().await;
    let store = open(&server);
    assert_eq!(store.rules(), Rules { longest_lease: None, missing_is_free: false });
    server.says([missing(), Reply::Done(1)]);
    let Grant { record, date, .. } = store.acquire(&bid()).await.unwrap();
    assert_eq!(record, Record::default());
    let millisecond = OffsetDateTime::UNIX_EPOCH + Duration::from_millis(1);
    assert_eq!(date, Some(millisecond), "by the clock of the servers");
    assert_eq!(
        server.asked(),
        [SESSION, "data record", "create record, set record, create record/lease"]
    );
    assert!(store.access.was_granted(bid().nonce));
    let (done, exists) = (Reply::Done(1), Reply::Undone(NODE_EXISTS));
    server.says([
        missing(),
        Reply::Undone(NO_NODE),
        exists.clone(),
        done.clone(),
        done.clone(),
        done,
    ]);
    let other = Bid { nonce: Nonce(8), ..bid() };
    assert_eq!(outcome(store.acquire(&other).await), "done");
    let both = "create record, set record, create record/lease";
    let folders = ["create /tenure", "create /tenure/orders", "create queue"];
    let expected = [&[SESSION, "data record", both][..], &folders, &[both]].concat();
    assert_eq!(server.asked(), expected);
    assert!(store.access.was_granted(other.nonce) && !store.access.was_granted(bid().nonce));
    server.has_ended(1).await;
}

#[tokio::test]
async fn a_bid_takes_the_record_as_it_was_read() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, broken, by_other, freed, .. } = Records::new(&store);
    let bid = bid_for(&store, &freed);
    server.says([shows(&freed, false), Reply::Done(1_700_000_000_123)]);
    let granted = store.acquire(&bid).await.unwrap();
    assert_eq!(granted.record.term, Some(7));
    let date = granted.date.unwrap().unix_timestamp_nanos();
    assert_eq!(date, 1_700_000_000_123_000_000, "by the clock of the leader of the ensemble");
    assert_eq!(server.asked(), [SESSION, "data record", "set record, create record/lease"]);
    let again = "set record, delete record/lease, create record/lease";
    server.says([shows(&held, true), Reply::Done(1)]);
    assert_eq!(outcome(store.acquire(&bid).await), "done");
    assert_eq!(server.asked(), [SESSION, "data record", again]);
    server.says([shows(&held, true), Reply::Done(1)]);
    assert_eq!(store.renew(&bid).await, Ok(None));
    assert_eq!(server.asked(), [SESSION, "data record", again]);
    server.has_ended(2).await;
    // What the record is after a transaction that failed.
    let later = read(&store, &freed, false).first(8);
    for (ended, (before, now, is_held), expected) in [
        (
            3,
            (&freed, &by_other, true),
            "refused: the lease of /tenure/orders/record is held by \"a\"",
        ),
        (4, (&freed, &broken, true), "refused: an operator broke the lease of"),
        (5, (&freed, &held, true), "to be retried: the node"),
        (6, (&freed, &freed, false), "to be retried: the node"),
        (7, (&freed, &later, false), "refused: the record /tenure/orders/record has changed since"),
        (8, (&held, &freed, false), "refused: the lease of /tenure/orders/record was freed"),
    ] {
        let before = shows(before, *before == held);
        server.says([before, Reply::Undone(BAD_VERSION), shows(now, is_held)]);
        let found = outcome(store.acquire(&bid).await);
        assert!(found.starts_with(expected), "{found}");
        server.has_ended(ended).await;
    }
}

#[tokio::test]
async fn what_one_server_shows_is_refused_only_after_a_transaction_has_found_it_unchanged() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, broken, by_other, freed, .. } = Records::new(&store);
    let bid = Bid { seen: Version("1.1".into()), ..bid() };
    for (ask, data, is_held) in [
        ("acquire", Some(&by_other), true),
        ("acquire", Some(&broken), true),
        ("acquire", Some(&freed), false),
        ("acquire", None, false),
        ("renew", Some(&by_other), true),
        ("renew", Some(&broken), true),
        ("renew", None, false),
        ("write", Some(&by_other), true),
        ("write", Some(&broken), true),
        ("write", None, false),
        ("successor", Some(&broken), true),
        ("successor", Some(&held), true),
        ("release", None, false),
    ] {
        let unchanged = data.map_or(Reply::Undone(NO_NODE), |_| Reply::Done(1));
        let changed = data.map_or(Reply::Done(1), |_| Reply::Undone(BAD_VERSION));
        for (compared, expected) in [(unchanged, "refused: "), (changed, "to be retried: ")] {
            server.says([data.map_or(missing(), |it| shows(it, is_held)), compared]);
            let found = match ask {
                "acquire" => outcome(store.acquire(&bid).await),
                "renew" => outcome(store.renew(&bid).await),
                "write" => outcome(store.write_term(&bid, 1).await),
                "successor" => outcome(store.set_successor(&bid, &successor()).await),
                _ => outcome(store.release(&bid).await),
            };
            assert!(found.starts_with(expected), "{ask} {data:?}: {found}");
            if expected == "refused: " && data == Some(&broken) {
                assert!(found.contains("an operator broke"), "{ask}: {found}");
            }
            let asked = server.asked();
            assert_eq!(asked[asked.len() - 2..], ["data record", "check record"], "{ask}");
        }
    }
    // Those that began a session for the lease have ended it.
    server.has_ended(14).await;
}

#[tokio::test]
async fn a_term_is_written_once_under_the_lease() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, led, by_other, .. } = Records::new(&store);
    server.says([shows(&held, true), Reply::Done(1)]);
    assert_eq!(store.write_term(&bid(), 700).await, Ok(700));
    assert_eq!(server.asked(), [SESSION, "data record", "set record, check record/lease"]);
    let written = server.script().written.clone();
    assert_eq!(read(&store, &written, true).term_of(&bid()), Some(700));
    server.says([shows(&led, true)]);
    assert_eq!(store.write_term(&bid(), 700).await, Ok(7));
    assert_eq!(server.asked(), ["data record"]);
    for (now, expected) in [(&led, "done"), (&held, "to be retried"), (&by_other, "refused")] {
        server.says([shows(&held, true), Reply::Undone(BAD_VERSION), shows(now, true)]);
        let found = outcome(store.write_term(&bid(), 700).await);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[tokio::test]
async fn a_successor_is_written_once_under_the_lease() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, led, by_other, .. } = Records::new(&store);
    server.says([shows(&led, true), Reply::Done(1)]);
    assert_eq!(store.set_successor(&bid(), &successor()).await, Ok(None));
    assert_eq!(server.asked(), [SESSION, "data record", "set record, check record/lease"]);
    let named = server.script().written.clone();
    assert_eq!(read(&store, &named, true).record.successor, Some(successor()));
    server.says([shows(&named, true)]);
    assert_eq!(store.set_successor(&bid(), &successor()).await, Ok(None));
    assert_eq!(server.asked(), ["data record"]);
    for (now, expected) in [(&held, "to be retried"), (&by_other, "refused")] {
        server.says([shows(&led, true), Reply::Undone(BAD_VERSION), shows(now, true)]);
        let found = outcome(store.set_successor(&bid(), &successor()).await);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[tokio::test]
async fn a_release_frees_the_record_and_ends_the_session_of_the_lease() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { held, broken, by_other, .. } = Records::new(&store);
    for (round, data) in [&held, &broken].into_iter().enumerate() {
        server.says([missing(), Reply::Done(1), shows(data, true), Reply::Done(1)]);
        assert_eq!(outcome(store.acquire(&bid()).await), "done");
        server.asked();
        assert_eq!(store.release(&bid()).await, Ok(()));
        let asked = server.asked();
        assert_eq!(asked[asked.len() - 2..], ["data record", "set record, delete record/lease"]);
        let freed = server.script().written.clone();
        assert!(read(&store, &freed, false).held.is_none());
        assert!(!store.access.was_granted(bid().nonce));
        server.has_ended(round + 1).await;
    }
    for (now, expected) in [(&held, "to be retried"), (&by_other, "refused")] {
        server.says([shows(&held, true), Reply::Undone(BAD_VERSION), shows(now, true)]);
        let found = outcome(store.release(&bid()).await);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[tokio::test]
async fn a_release_of_what_is_lost_writes_the_record_again_so_that_a_late_bid_claims_nothing() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { by_other, .. } = Records::new(&store);
    server.says([missing(), Reply::Done(1), shows(&by_other, true), Reply::Done(1)]);
    assert_eq!(outcome(store.acquire(&bid()).await), "done");
    let found = outcome(store.release(&bid()).await);
    assert!(found.starts_with("refused"), "{found}");
    assert_eq!(server.asked()[4..], ["data record", "set record"]);
    assert_eq!(server.script().written, by_other);
    assert!(!store.access.was_granted(bid().nonce));
    server.has_ended(1).await;
    let undone = Reply::Undone(BAD_VERSION);
    server.says([shows(&by_other, true), undone, shows(&by_other, true)]);
    let found = outcome(store.release(&bid()).await);
    assert!(found.starts_with("to be retried"), "{found}");
}

#[tokio::test]
async fn a_broken_lease_ends_with_its_session_and_the_tick_after_it_or_at_once() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { led, .. } = Records::new(&store);
    let began = 1_700_000_000_000;
    let node = || Reply::Body(bytes_of(&State { created_ms: began, ..state(false) }));
    for (lease, at, seconds) in [
        (node(), began + 5_000, 15 - 5 + 2),
        (node(), began + 60_000, 2),
        (node(), began - 5_000, 15 + 2),
        (missing(), began + 5_000, 15 + 2),
    ] {
        server.says([shows(&led, true), lease, Reply::Done(at)]);
        let broken = store.break_lease(false).await.unwrap();
        let BreakOutcome::Held { record, free_in } = broken else { panic!("it is held") };
        assert_eq!((record.term, free_in), (Some(7), Duration::from_secs(seconds)));
        let asked = server.asked();
        assert_eq!(asked[..2], ["session of 1 ms", "session of 2147483647 ms"], "the bounds");
        assert_eq!(asked.last().unwrap(), "set record, check record/lease");
        let written = server.script().written.clone();
        assert!(read(&store, &written, true).held.unwrap().is_breaking);
    }
    server.says([shows(&led, true), node(), Reply::Done(began + 5_000)]);
    let broken = store.break_lease(true).await.unwrap();
    assert!(matches!(broken, BreakOutcome::Held { free_in: Duration::ZERO, .. }), "{broken:?}");
    let expected = ["data record", "state record/lease", "set record, delete record/lease"];
    assert_eq!(server.asked(), expected);
}

#[tokio::test]
async fn nothing_is_broken_that_is_free_or_has_changed() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { led, freed, .. } = Records::new(&store);
    server.says([shows(&freed, false), missing(), Reply::Done(1)]);
    assert_eq!(store.break_lease(true).await, Ok(BreakOutcome::NotHeld));
    server.says([shows(&freed, false), missing(), Reply::Undone(BAD_VERSION)]);
    let found = store.break_lease(true).await;
    assert!(matches!(found, Err(StoreError::Unknown(_))), "{found:?}");
    server.says([shows(&led, true), exists(), Reply::Undone(BAD_VERSION), shows(&led, true)]);
    let found = outcome(store.break_lease(true).await);
    assert!(found.contains("so nothing was broken"), "{found}");
}

#[tokio::test]
async fn a_missing_record_is_shown_with_the_first_of_the_other_elections() {
    let server = Server::start().await;
    let store = open(&server);
    server.says([exists(), children(&["orders"])]);
    assert_eq!(store.presence().await, Ok(Presence::Exists));
    let names = |count| (0..count).map(|it| format!("other-{it:02}"));
    let listed: Vec<_> = names(MOST_LISTED + 1).rev().collect();
    let others = Some(names(MOST_LISTED).collect());
    for (listed, others) in [(children(&listed), others), (missing(), None)] {
        server.says([missing(), listed]);
        let missing = "no node /tenure/orders/record in ZooKeeper".to_owned();
        assert_eq!(store.presence().await, Ok(Presence::Missing { missing, others }));
    }
}

#[tokio::test]
async fn a_first_term_is_written_only_where_there_is_none() {
    let server = Server::start().await;
    let store = open(&server);
    let Records { freed, .. } = Records::new(&store);
    server.says([missing(), Reply::Done(1)]);
    let said = LeaseAdmin::create(&store, 700).await.unwrap();
    assert_eq!(said, ["created the node /tenure/orders/record with the first term 700"]);
    assert_eq!(server.asked(), [SESSION, "data record", "create record, set record"]);
    let written = server.script().written.clone();
    assert_eq!(read(&store, &written, false).record.term, Some(700));
    server.says([shows(&freed, false)]);
    assert_eq!(LeaseAdmin::create(&store, 700).await, Ok(Vec::new()));
    assert_eq!(server.asked(), ["data record"]);
}

#[tokio::test]
async fn a_server_that_keeps_sessions_for_another_time_than_the_lease_is_of_no_use() {
    let server = Server::start().await;
    for (bounds, words) in [((20_000, 40_000), "20s at least"), ((4_000, 10_000), "10s at most")] {
        let store = open(&server);
        server.script().bounds = bounds;
        for found in [outcome(store.read().await), outcome(store.acquire(&bid()).await)] {
            assert!(found.starts_with("settings") && found.contains(words), "{found}");
        }
        assert_eq!(server.asked(), [SESSION, SESSION], "nothing is asked for");
    }
    let store = open(&server);
    server.script().bounds = (15_000, 15_000);
    server.says([missing()]);
    assert!(store.read().await.unwrap().free);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_fails_the_examination() {
    let server = Server::start().await;
    let store = open(&server);
    drop(server);
    let found = store.examine().await;
    assert!(found.iter().any(|it| it.verdict == Verdict::Failed), "{found:?}");
}
