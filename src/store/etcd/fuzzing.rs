//! Fuzz target for the two keys of an election, with arbitrary contents, as a member of etcd may answer them.

use std::sync::Arc;
use std::time::Duration;

use super::record::{self, Keys, Seen};
use super::wire::{KeyValue, Range};
use crate::config::EtcdSettings;
use crate::lease::fuzzing::{bid, shown};
use crate::lease::text::is_printable;
use crate::lease::{Record, Successor};

const FLOOR: u64 = 1_000;

/// Checks that keys that were read are free exactly without a claim, that what is written reads back the same,
/// and that what others wrote can be shown once it is admitted.
pub fn etcd_answer(data: &[u8]) {
    let Ok(range) = serde_json::from_slice::<Range>(data) else { return };
    let keys = Keys::new(&EtcdSettings {
        members: Vec::new(),
        prefix: "tenure".to_owned(),
        election: "orders".to_owned(),
        user: None,
        tls: None,
        request_timeout: Duration::from_secs(2),
    });
    let seen = match Seen::of(&range, &keys) {
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
    let read = |claim: &[u8], record: &[u8]| {
        let kvs = vec![key(&keys.lease, claim), key(&keys.record, record)];
        Seen::of(&Range { header: range.header, kvs }, &keys).expect("it is of our making")
    };
    let first = record::first(FLOOR);
    let claimed = read(&record::claim(&bid), &first);
    let held = claimed.held.as_ref().expect("there is a claim");
    assert!(held.is_of(&bid) && !held.is_breaking && claimed.record.term == Some(FLOOR));
    if let Some(found) = &seen.held {
        let broken = read(&found.broken(), &first).held.expect("there is a claim");
        assert!(broken.is_breaking && broken.nonce == found.nonce);
        assert_eq!(broken.is_of(&bid), found.is_of(&bid));
    }
    if let Some(term) = seen.next_term(held, FLOOR) {
        assert!(term >= FLOOR && seen.record.term.is_none_or(|before| term > before));
        let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
        for named in [None, Some(&successor)] {
            let led = read(&record::claim(&bid), &record::of_bid(&bid, term, named));
            assert_eq!(led.term_of(&bid), Some(term));
            let holder = Some(Arc::clone(&bid.candidate));
            let (nonce, successor) = (Some(bid.nonce), named.cloned());
            assert_eq!(led.record, Record { term: Some(term), holder, nonce, successor });
        }
    }
}

fn key(name: &str, value: &[u8]) -> KeyValue {
    let mut made = KeyValue::default();
    (made.key.0, made.value.0) = (name.as_bytes().to_vec(), value.to_vec());
    made
}
