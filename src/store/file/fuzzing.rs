//! What must hold of the record of a `file:` store, whatever bytes stand in the file.
//!
//! What is not here: the file, and the lock on it.

use std::sync::Arc;
use std::time::Duration;

use super::super::{Bid, Candidate, LeaseId, Nonce, Version};
use super::record::{Reading, Stored};

const FLOOR: u64 = 1_000;

/// Records: what is read is written so that it is read again; a lease that somebody holds stays
/// theirs until it is over; a bid that is granted has it for its whole duration and in a term of
/// its own.
pub fn file_record(data: &[u8]) {
    let stored = match Stored::decode(data) {
        Ok(stored) => stored,
        Err(fault) => return assert!(!fault.is_empty()),
    };
    let written = stored.encode().expect("text and numbers can be written");
    assert_eq!(Stored::decode(&written).as_ref(), Ok(&stored));
    let record = stored.record();
    assert!(record.term.is_some() || (record.holder.is_none() && record.nonce.is_none()));

    let bid = bid();
    for boot in [0, 1, 100, u64::MAX / 1_000_000_000] {
        let now = Reading { boot_id: "this".into(), boot: Duration::from_secs(boot) };
        assert_eq!(stored.is_free(&now), stored.remaining(&now).is_none_or(|it| it.is_zero()));
        let mut granted = stored.clone();
        granted.extend(&bid, &now);
        let left = granted.remaining(&now).expect("there is a lease");
        // A clock at the end of what nanoseconds can count has no room for a duration.
        assert!(boot > 100 || left >= bid.lease_duration, "{left:?}");
        assert!(granted.is_of(&bid, &now));
        match granted.inaugurate(&bid, FLOOR) {
            Some(term) => {
                assert!(term >= FLOOR && record.term.is_none_or(|before| term > before));
                assert_eq!(granted.term_of(&bid), Some(term));
            }
            None => assert_eq!(record.term, Some(u64::MAX)),
        }
        granted.touch();
        assert_ne!(granted.version(), stored.version());
        let written = granted.encode().expect("text and numbers can be written");
        assert_eq!(Stored::decode(&written).as_ref(), Ok(&granted));
        granted.free();
        assert!(granted.is_free(&now));
    }
}

fn bid() -> Bid {
    Bid {
        lease: LeaseId::from_random(7),
        nonce: Nonce(7),
        candidate: Arc::new(Candidate {
            identity: "a".into(),
            instance: "1".into(),
            address: None,
        }),
        lease_duration: Duration::from_secs(15),
        seen: Version("0".into()),
    }
}
