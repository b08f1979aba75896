//! Conformance tests for the named successor.

use std::time::Duration;

use tenure::lease::{Record, StoreError, Successor};

use super::{Contender, Harness, assert_refused, definite};

const HOLD_OFF: Duration = Duration::from_millis(10_250);

fn named(identity: &str) -> Successor {
    Successor { identity: identity.to_owned(), hold_off: HOLD_OFF }
}

impl Contender {
    pub(super) async fn nominate(&self, successor: &Successor) -> Result<(), StoreError> {
        definite(async || self.store.nominate(&self.bid, successor).await).await
    }
}

pub async fn a_successor_is_named_beside_a_record_that_stays<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.inaugurate(3).await.expect("a term");
    let before = a.look().await.record;
    assert_eq!(before.successor, None);
    let successor = named("b \"quoted\" %41 name");
    a.nominate(&successor).await.expect("named");
    let sight = Contender::new(&lock, "b").await.look().await;
    assert!(!sight.free, "it releases nothing");
    assert_eq!(sight.record, Record { successor: Some(successor), ..before });
    let record = sight.record;
    a.renew().await.expect("renewed");
    assert_eq!(a.acquire().await.expect("granted again"), record);
    assert_eq!(a.inaugurate(100).await, Ok(3), "the term is written once, and clears nothing");
    assert_eq!(a.look().await.record, record);
}

pub async fn naming_a_successor_counts_nothing_anew<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.inaugurate(3).await.expect("a term");
    lock.advance(H::LEASE / 2).await;
    a.nominate(&named("b")).await.expect("named");
    lock.advance(H::LEASE / 2).await;
    assert!(a.look().await.free);
}

pub async fn a_successor_outlives_the_release_and_ends_with_the_next_term<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.inaugurate(3).await.expect("a term");
    a.nominate(&named("b")).await.expect("named");
    a.release().await.expect("released");
    let b = Contender::new(&lock, "b").await;
    let sight = b.look().await;
    assert!(sight.free);
    assert_eq!(sight.record.successor, Some(named("b")));
    let found = b.acquire().await.expect("granted");
    assert_eq!(found, sight.record, "the grant tells of it too");
    assert_eq!(b.inaugurate(0).await, Ok(term + 1));
    assert_eq!(b.look().await.record.successor, None);
}

pub async fn the_same_successor_again_changes_nothing_and_another_replaces_it<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.inaugurate(3).await.expect("a term");
    a.nominate(&named("b")).await.expect("named");
    let (bytes, sight) = (lock.bytes().await, a.look().await);
    a.nominate(&named("b")).await.expect("an answer was lost; it stands");
    assert_eq!(lock.bytes().await, bytes);
    assert_eq!(a.look().await, sight);
    let longer = Successor { hold_off: HOLD_OFF * 2, ..named("b") };
    for other in [named("c"), longer] {
        a.nominate(&other).await.expect("another");
        assert_eq!(a.look().await.record.successor, Some(other));
    }
}

pub async fn a_hold_off_is_kept_in_whole_milliseconds_of_an_hour_at_most<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.inaugurate(3).await.expect("a term");
    for (hold_off, kept) in [
        (Duration::from_micros(1_500), Duration::from_millis(2)),
        (Duration::ZERO, Duration::ZERO),
        (Duration::MAX, Successor::LONGEST_HOLD_OFF),
    ] {
        let successor = Successor { hold_off, ..named("b") };
        a.nominate(&successor).await.expect("named");
        let bytes = lock.bytes().await;
        let kept = Some(Successor { hold_off: kept, ..named("b") });
        assert_eq!(a.look().await.record.successor, kept);
        a.nominate(&successor).await.expect("it stands");
        assert_eq!(lock.bytes().await, bytes, "the same again, as it is kept");
    }
}

pub async fn nobody_names_a_successor_without_lease_and_record<H: Harness>(lock: H) {
    let a = Contender::new(&lock, "a").await;
    assert_refused(a.nominate(&named("x")).await);
    a.acquire().await.expect("granted");
    assert_refused(a.nominate(&named("x")).await);
    a.inaugurate(3).await.expect("a term");
    let b = Contender::new(&lock, "b").await;
    assert_refused(b.nominate(&named("x")).await);
    a.release().await.expect("released");
    assert_refused(a.nominate(&named("x")).await);

    let b = Contender::holder(&lock, "b").await;
    assert_refused(a.nominate(&named("x")).await);
    assert_refused(b.nominate(&named("x")).await);
    assert_eq!(b.look().await.record.successor, None);
    // If the holder has not written a record, a store may return only the term.
    let nonce = b.look().await.record.nonce;
    assert!(nonce == Some(a.bid.nonce) || H::OBSERVED && nonce.is_none(), "{nonce:?}");
    b.inaugurate(0).await.expect("a term");
    assert_refused(a.nominate(&named("x")).await);
    lock.advance(H::LEASE).await;
    if H::OBSERVED {
        Contender::holder(&lock, "c").await;
    }
    assert_refused(b.nominate(&named("x")).await);
    assert_eq!(b.look().await.record.successor, None);
}
