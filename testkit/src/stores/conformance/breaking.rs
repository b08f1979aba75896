//! Conformance tests for a lease that an operator breaks.

use std::time::Duration;

use tenure::lease::{Record, StoreError, Successor};
use tenure::store::BreakOutcome;

use super::{Contender, Harness, assert_refused, definite, written};

/// The error of a store that reports whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);

/// Returns how long a lease lasts at most after it was broken, `passed` after its last renewal.
fn lasts<H: Harness>(passed: Duration) -> Duration {
    if H::OBSERVED { H::LEASE } else { H::LEASE.saturating_sub(passed) }
}

impl Contender {
    async fn break_lease(&self, at_once: bool) -> BreakOutcome {
        definite(async || self.store.break_lease(at_once).await).await.expect("an answer")
    }

    /// Breaks a lease that is held, and returns its record and remaining time.
    async fn break_held(&self, at_once: bool) -> (Record, Duration) {
        match self.break_lease(at_once).await {
            BreakOutcome::Held { record, free_in } => (record, free_in),
            BreakOutcome::NotHeld => panic!("it is held"),
        }
    }
}

/// An observer reads how long the lease lasts; where the store counts, a break says how much of it is left.
pub async fn a_lease_lasts_as_long_as_was_asked<H: Harness>(lock: H) {
    for length in H::LENGTHS.iter().copied() {
        let mut a = Contender::new(&lock, "a").await;
        a.bid.lease_duration = length;
        a.acquire().await.expect("it is free");
        for _ in 0..2 {
            let snapshot = a.read().await;
            let claim = snapshot.claim.map(|it| it.lease_duration);
            assert_eq!(claim, H::OBSERVED.then_some(length));
            a.renew().await.expect("renewed");
        }
        let (_, free_in) = a.break_held(false).await;
        assert!(free_in <= length + ROUNDING + H::LATENESS, "{length:?}: {free_in:?}");
        assert!(free_in + 2 * ROUNDING > length, "{length:?}: {free_in:?}");
        a.release().await.expect("it is still its holder's");
    }
}

pub async fn a_broken_lease_runs_out_and_is_renewed_no_more<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(3).await.expect("a term");
    lock.advance(H::LEASE / 3).await;
    let operator = Contender::new(&lock, "operator").await;
    let before = a.read().await.record;
    let (record, free_in) = operator.break_held(false).await;
    assert_eq!(record, before);
    let left = lasts::<H>(H::LEASE / 3);
    assert!(free_in <= left + ROUNDING + H::LATENESS, "{free_in:?}");

    assert_refused(a.renew().await);
    assert_refused(a.acquire().await);
    let b = Contender::new(&lock, "b").await;
    assert!(!b.read().await.free);
    assert_refused(b.acquire().await);
    lock.advance(H::LEASE / 3).await;
    assert!(!b.read().await.free, "what the holder was granted is its own until it is over");
    assert_refused(b.acquire().await);
    assert_refused(a.renew().await);
    assert_eq!(b.read().await.record.term, Some(term));

    lock.advance(left.saturating_sub(H::LEASE / 3) + ROUNDING).await;
    let snapshot = b.read().await;
    assert!(snapshot.free);
    assert_eq!(snapshot.record, record, "breaking keeps the record");
    assert_refused(a.renew().await);
    let b = Contender::holder(&lock, "b").await;
    written::<H>(b.write_term(0).await, term + 1);
}

pub async fn a_lease_broken_at_once_is_free_at_once<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(3).await.expect("a term");
    let operator = Contender::new(&lock, "operator").await;
    let before = a.read().await.record;
    assert_eq!(operator.break_held(true).await, (before.clone(), Duration::ZERO));
    let snapshot = operator.read().await;
    assert!(snapshot.free);
    assert_eq!(snapshot.record, before, "breaking keeps the record");
    assert_refused(a.renew().await);
    assert_eq!(operator.break_lease(true).await, BreakOutcome::NotHeld);
    let b = Contender::holder(&lock, "b").await;
    assert_refused(a.renew().await);
    let successor = Successor { identity: "x".to_owned(), hold_off: Duration::ZERO };
    assert_refused(a.set_successor(&successor).await);
    assert_refused(a.release().await);
    written::<H>(b.write_term(0).await, term + 1);
    b.renew().await.expect("nothing of a's lands on it");
}

pub async fn breaking_a_free_lease_changes_nothing<H: Harness>(lock: H) {
    let a = Contender::new(&lock, "a").await;
    assert_eq!(a.break_lease(false).await, BreakOutcome::NotHeld);
    assert_eq!(a.break_lease(true).await, BreakOutcome::NotHeld);
    assert_eq!(a.read().await.record, Record::default());
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    a.release().await.expect("released");
    let bytes = lock.bytes().await;
    assert_eq!(a.break_lease(false).await, BreakOutcome::NotHeld);
    assert_eq!(a.break_lease(true).await, BreakOutcome::NotHeld);
    assert_eq!(lock.bytes().await, bytes);
    let b = Contender::holder(&lock, "b").await;
    lock.advance(H::LEASE).await;
    if H::OBSERVED {
        // A caller that only reads has not observed the expiry.
        b.break_held(true).await;
    }
    assert_eq!(b.break_lease(false).await, BreakOutcome::NotHeld);
    assert_eq!(b.break_lease(true).await, BreakOutcome::NotHeld);
    Contender::holder(&lock, "c").await;
}

pub async fn breaking_again_lengthens_nothing_and_may_still_end_it_at_once<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(3).await.expect("a term");
    a.break_held(false).await;
    lock.advance(H::LEASE / 3).await;
    let (_, free_in) = a.break_held(false).await;
    let longest = lasts::<H>(H::LEASE / 3) + ROUNDING + H::LATENESS;
    assert!(free_in <= longest, "{free_in:?}");
    assert!(!a.read().await.free);
    lock.advance(H::LEASE / 3).await;
    assert!(!a.read().await.free);
    let (record, free_in) = a.break_held(true).await;
    assert_eq!((record.term, free_in), (Some(term), Duration::ZERO));
    assert!(a.read().await.free);
    assert_refused(a.renew().await);
}

pub async fn a_lease_that_is_being_broken_may_be_released<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    a.break_held(false).await;
    a.release().await.expect("the holder may release it");
    assert!(a.read().await.free);
    assert_refused(a.renew().await);
    Contender::holder(&lock, "b").await;
}

/// Some stores accept a write under a lease that is being broken, others do not; none writes half
/// of it.
pub async fn a_write_under_a_breaking_lease_is_complete_or_refused<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let (record, _) = a.break_held(false).await;
    assert_eq!(record, Record::default(), "no term was written yet");
    let outcome = a.write_term(3).await;
    let record = a.read().await.record;
    match &outcome {
        Ok(term) => assert_eq!((record.term, record.nonce), (Some(*term), Some(a.bid.nonce))),
        Err(error) => {
            assert!(matches!(error, StoreError::Refused(_)), "{error}");
            assert_eq!(record, Record::default());
        }
    }
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::ZERO };
    let named = a.set_successor(&successor).await;
    let successor = a.read().await.record.successor;
    assert_eq!(successor.is_some(), named.is_ok(), "{named:?}");
    assert!(outcome.is_ok() || named.is_err(), "no successor without a term");
    assert!(matches!(named, Ok(()) | Err(StoreError::Refused(_))), "{named:?}");
    assert_refused(a.renew().await);
}

pub async fn a_broken_lease_is_acquired_again_like_any_other<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(3).await.expect("a term");
    a.break_held(false).await;
    lock.advance(H::LEASE + ROUNDING).await;
    let a = Contender::holder(&lock, "a").await;
    a.renew().await.expect("it is a lease like any other");
    written::<H>(a.write_term(0).await, term + 1);
    a.acquire().await.expect("granted again");
    assert!(!a.read().await.free);
}
