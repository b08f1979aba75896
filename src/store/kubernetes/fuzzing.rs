//! Fuzz target for a Lease, with arbitrary contents, as an API server may answer it.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use super::record;
use crate::kube::objects::Lease;
use crate::lease::Successor;
use crate::lease::fuzzing::{bid, shown};
use crate::lease::text::is_printable;

const FLOOR: u64 = 1_000;

/// Checks that a Lease that was read is free exactly without a holder, that each change to it shows
/// in the result and in nothing else, and that what others wrote can be shown once it is admitted.
pub fn lease(data: &[u8]) {
    let Ok(found) = serde_json::from_slice::<Lease>(data) else { return };
    serde_json::to_vec(&found).expect("an object is JSON");
    assert!(record::shows(&found, &found));
    let _ = record::news(&found);
    match record::snapshot(&found, "team/orders") {
        Ok(mut snapshot) => {
            assert_eq!(snapshot.free, record::holder(&found).is_none());
            snapshot.admit(Duration::from_secs(15));
            shown(&snapshot);
        }
        Err(failure) => assert!(failure.message.chars().all(is_printable), "{failure}"),
    }
    taken(&found);
}

/// Goes through a whole leadership on the Lease.
fn taken(found: &Lease) {
    let (bid, now) = (bid(), OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000));
    let mut lease = found.clone();
    record::take(&mut lease, &bid, now);
    assert!(record::is_of(&lease, &bid) && record::is_to_end(&lease, &bid));
    assert_eq!(record::lease_duration(&lease), Some(bid.lease_duration));
    let before = lease.clone();
    record::renew(&mut lease, &bid, now);
    assert!(record::is_of(&lease, &bid) && !record::shows(&lease, &before), "{lease:?}");

    let Ok(read) = record::read(&lease, "team/orders") else { return };
    assert!(read.successor.is_none_or(|it| it.hold_off <= Successor::LONGEST_HOLD_OFF));
    if let Some(term) = record::next_term(&lease, read.term, FLOOR) {
        assert!(term >= FLOOR && read.term.is_none_or(|before| term > before));
        let before = lease.clone();
        record::write_term(&mut lease, &bid, term);
        assert!(!record::shows(&before, &lease));
        let snapshot = record::snapshot(&lease, "team/orders").expect("it is of our making");
        assert_eq!(record::term_of(&snapshot.record, &bid), Some(term));
        assert_eq!(snapshot.record.holder, Some(Arc::clone(&bid.candidate)));
        let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
        record::set_successor(&mut lease, &successor);
        let read = record::read(&lease, "team/orders").expect("it is of our making");
        assert_eq!((read.term, read.successor), (Some(term), Some(successor)));
    }
    record::mark_broken(&mut lease, now);
    assert!(!record::is_of(&lease, &bid) && record::is_to_end(&lease, &bid));
    record::free(&mut lease, now);
    assert!(record::holder(&lease).is_none() && !record::is_to_end(&lease, &bid));
}
