//! Fuzz target for the key of an election, with arbitrary contents, as Consul may answer it.

use std::sync::Arc;
use std::time::Duration;

use super::record::{Claim, Content, Seen};
use super::wire::Entry;
use crate::lease::fuzzing::{bid, shown};
use crate::lease::text::is_printable;
use crate::lease::{Record, Successor};
use crate::store::json::Bytes;

const KEY: &str = "tenure/orders/lease";
const FLOOR: u64 = 1_000;

/// Checks that a key that was read is free exactly without a session, that what is written reads back the same,
/// and that what others wrote can be shown once it is admitted.
pub fn consul_answer(data: &[u8]) {
    let Ok(found) = serde_json::from_slice::<Vec<Entry>>(data) else { return };
    let Some(entry) = found.first() else { return };
    let seen = match Seen::of(Some(entry), KEY) {
        Ok(seen) => seen,
        Err(failure) => {
            return assert!(failure.message.chars().all(is_printable), "{failure}");
        }
    };
    let mut snapshot = seen.clone().snapshot();
    assert_eq!(snapshot.free, entry.session.as_ref().is_none_or(String::is_empty));
    assert!(seen.claim().is_none() || !snapshot.free, "a claim counts under a session alone");
    snapshot.admit(Duration::from_secs(15));
    shown(&snapshot);
    let bid = bid();
    let read = |content: &Content| {
        let value = Some(Bytes(content.bytes()));
        Seen::of(Some(&Entry { value, ..entry.clone() }), KEY).expect("it is of our making")
    };
    assert_eq!(read(&seen.content), seen);
    let claimed = read(&seen.content.with_claim(Some(Claim::of(&bid))));
    assert_eq!(claimed.session_of(&bid), seen.session);
    assert_eq!(claimed.content.record, seen.content.record);
    let broken = read(&claimed.content.breaking());
    assert_eq!(broken.session_of(&bid), seen.session, "it may still be released");
    assert!(broken.claim().is_none_or(|it| it.is_breaking));
    if let Some(term) = claimed.next_term(FLOOR) {
        assert!(term >= FLOOR && seen.content.record.term.is_none_or(|before| term > before));
        let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
        let led = read(&claimed.content.with_term(&bid, term));
        let named = read(&led.content.with_successor(&successor));
        for (seen, successor) in [(led, None), (named, Some(successor))] {
            assert_eq!(seen.term_of(&bid), Some(term));
            assert_eq!(seen.content.claim, claimed.content.claim, "the claim stays");
            let (holder, nonce) = (Some(Arc::clone(&bid.candidate)), Some(bid.nonce));
            let record = Record { term: Some(term), holder, nonce, successor };
            assert_eq!(seen.content.record, record);
        }
    }
}
