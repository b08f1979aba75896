//! Fuzz target for the value of a register, with arbitrary content.

use std::sync::Arc;
use std::time::Duration;

use super::body::{self, Body};
use crate::lease::fuzzing::{bid, shown};
use crate::lease::text::is_printable;
use crate::lease::{Nonce, Record, Successor};

const FLOOR: u64 = 1_000;

/// Checks that a value that was read is free exactly without a claim, that each change reads back the
/// same, and that what others wrote can be shown once it is admitted.
pub fn register_value(data: &[u8]) {
    let found = match Body::decode(data) {
        Ok(found) => found,
        Err(what) => return assert!(what.chars().all(is_printable), "{what}"),
    };
    let version = body::version("\"tag\"", &found);
    let mut snapshot = found.snapshot(version.clone());
    assert_eq!(snapshot.free, found.held.is_none());
    assert_eq!(snapshot.claim.is_some(), found.held.is_some());
    snapshot.admit(Duration::from_secs(15));
    shown(&snapshot);
    let again = |body: &Body| Body::decode(&body.encode()).expect("it is of our making");
    assert_eq!(again(&found).held, found.held);
    let bid = bid();
    let mut led = found.clone();
    led.take(&bid, Nonce(1));
    assert!(led.is_of(&bid) && again(&led) == led);
    let claim = |body: &Body| body.snapshot(version.clone()).claim.expect("it is held");
    let first = claim(&led);
    led.renew(&bid, Nonce(2));
    assert!(claim(&led) != first && again(&led) == led, "a renewal changes the claim");
    let renewed = claim(&led);
    if led.write_term(&bid, FLOOR) {
        let term = led.term_of(&bid).expect("it wrote the record");
        assert!(term >= FLOOR && found.record.term.is_none_or(|before| term > before));
        let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
        led.set_successor(&successor);
        let (holder, nonce) = (Some(Arc::clone(&bid.candidate)), Some(bid.nonce));
        let successor = Some(successor);
        assert_eq!(led.record, Record { term: Some(term), holder, nonce, successor });
        assert!(claim(&led) == renewed && again(&led) == led, "and no other write does");
    }
    led.mark_broken(Nonce(3));
    assert!(!led.is_of(&bid) && led.is_to_end(&bid) && claim(&led) != renewed);
    assert_eq!(again(&led), led);
    led.free();
    assert!(again(&led) == led && led.snapshot(version).free);
}
