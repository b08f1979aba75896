//! Fuzz target for what a server, or somebody in its place, sends.

use std::io::Cursor;
use std::time::Duration;

use futures::FutureExt;

use super::connection::{self, Connection};
use super::record::{Nodes, Seen};
use super::wire::{Op, Reader, Request, State};
use crate::config::ZookeeperSettings;
use crate::lease::fuzzing::{bid, shown};
use crate::lease::text::is_printable;
use crate::lease::{Successor, Version};

const FLOOR: u64 = 1_000;

/// Checks that arbitrary messages of a server end a request in an answer or an error that can be shown, that
/// a record that was read is free exactly without a claim, and that what is written reads back the same.
pub fn zookeeper_answer(data: &[u8]) {
    let stream = tokio::io::join(Cursor::new(data.to_vec()), tokio::io::sink());
    let mut connection = Connection::over(Box::new(stream));
    let asked = connection.ask([
        Request::Data("/r"),
        Request::State("/r/l"),
        Request::Children("/q"),
        Request::Access("/r"),
    ]);
    let asked = asked.now_or_never().expect("nothing is waited for");
    let fine = |error: &dyn std::fmt::Display| {
        let text = error.to_string();
        assert!(text.chars().all(is_printable), "{text}");
    };
    let [data, state, children, access] = match asked {
        Ok(answers) => answers,
        Err(error) => return fine(&error),
    };
    let _ = (connection::state(&state), children.found(Reader::children));
    let _ = access.read(Reader::access);
    match data.found(Reader::data) {
        Ok(node) => read(node),
        Err(error) => fine(&error),
    }
    let ops = [Op::Check { path: "/r", version: None }, Op::Delete { path: "/r/l" }];
    let done = connection.transact(&ops).now_or_never().expect("nothing is waited for");
    if let Err(error) = done {
        fine(&error);
    }
}

fn read(node: Option<(Vec<u8>, State)>) {
    let nodes = Nodes::new(&ZookeeperSettings {
        servers: Vec::new(),
        path: "tenure".to_owned(),
        election: "orders".to_owned(),
        auth: None,
        tls: None,
        lease_duration: Duration::from_secs(15),
        request_timeout: Duration::from_secs(2),
    });
    let seen = match Seen::of(node, &nodes) {
        Ok(seen) => seen,
        Err(failure) => {
            return assert!(failure.message.chars().all(is_printable), "{failure}");
        }
    };
    let mut snapshot = seen.clone().snapshot();
    assert_eq!(snapshot.free, seen.held.is_none());
    snapshot.admit(Duration::from_secs(15));
    shown(&snapshot);
    let bid = bid();
    let again = |data: Vec<u8>, children| {
        let state = State { children, ..State::default() };
        Seen::of(Some((data, state)), &nodes).expect("it is of our making")
    };
    let claimed = again(seen.claimed(&bid), 1);
    assert!(claimed.held.as_ref().is_some_and(|it| it.is_of(&bid) && !it.is_breaking));
    assert_eq!(claimed.record, seen.record);
    assert!(again(claimed.broken(), 1).held.is_some_and(|it| it.is_of(&bid) && it.is_breaking));
    assert_ne!(again(claimed.freed(), 0).version(), claimed.version());
    if let Some(term) = seen.next_term(FLOOR) {
        assert!(term >= FLOOR && seen.record.term.is_none_or(|before| term > before));
        let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
        let led = again(claimed.led(&bid, term, Some(&successor)), 1);
        assert_eq!((led.term_of(&bid), led.record.successor), (Some(term), Some(successor)));
    }
    assert_eq!(Seen::nothing().version(), Version("0".into()));
}
