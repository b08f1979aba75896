//! Fuzz target for the record of a `file:` store, with arbitrary bytes in the file.

use std::time::Duration;

use super::record::{Reading, Stored};
use crate::lease::fuzzing::bid;
use crate::lease::{Record, Successor};

const FLOOR: u64 = 1_000;

/// Checks that a record that was read is written so that it reads back the same, that a held lease
/// stays held until it is over, and that a granted bid has the lease for its whole duration and a
/// term of its own.
pub fn file_record(data: &[u8]) {
    let stored = match Stored::decode(data) {
        Ok(stored) => stored,
        Err(fault) => return assert!(!fault.is_empty()),
    };
    let written = stored.encode().expect("text and numbers can be written");
    assert_eq!(Stored::decode(&written).as_ref(), Ok(&stored));
    let record = stored.record();
    assert!(record.term.is_some() || (record.holder.is_none() && record.nonce.is_none()));
    assert!(record.successor.is_none() || record.nonce.is_some());
    let hold_off = record.successor.as_ref().map_or(Duration::ZERO, |it| it.hold_off);
    assert!(hold_off <= Successor::LONGEST_HOLD_OFF, "{hold_off:?}");

    let bid = bid();
    for boot in [0, 1, 100, u64::MAX / 1_000_000_000] {
        let now = Reading { boot_id: "this".into(), boot: Duration::from_secs(boot) };
        assert_eq!(stored.is_free(&now), stored.remaining(&now).is_none_or(|it| it.is_zero()));
        let mut granted = stored.clone();
        granted.extend(&bid, &now);
        let left = granted.remaining(&now).expect("there is a lease");
        // Near the largest number of nanoseconds there is no room for a lease-duration.
        assert!(boot > 100 || left >= bid.lease_duration, "{left:?}");
        assert!(granted.is_of(&bid, &now));
        match granted.write_term(&bid, FLOOR) {
            Some(term) => {
                assert!(term >= FLOOR && record.term.is_none_or(|before| term > before));
                assert_eq!(granted.term_of(&bid), Some(term));
                nominated(&granted);
            }
            None => assert_eq!(record.term, Some(u64::MAX)),
        }
        granted.touch();
        assert_ne!(granted.version(), stored.version());
        let written = granted.encode().expect("text and numbers can be written");
        assert_eq!(Stored::decode(&written).as_ref(), Ok(&granted));
        granted.let_run_out();
        assert!(granted.is_breaking() && granted.remaining(&now) == Some(left));
        granted.free();
        assert!(granted.is_free(&now));
    }
}

/// Checks that a new leadership names no successor, and that adding one changes nothing else.
fn nominated(granted: &Stored) {
    let record = granted.record();
    assert_eq!(record.successor, None);
    let identity = "a \"b\"".to_owned();
    let successor = Successor { identity, hold_off: Duration::from_micros(1_500) };
    let mut nominated = granted.clone();
    nominated.set_successor(&successor);
    let written = nominated.encode().expect("text and numbers can be written");
    let read = Stored::decode(&written).expect("it is of our making");
    assert_eq!(read.record(), Record { successor: Some(successor.as_stored()), ..record });
}
