//! Conformance tests for the named successor.

use std::time::Duration;

use tenure::lease::{Record, StoreError, Successor};

use super::{Contender, Harness, assert_refused, written};

const HOLD_OFF: Duration = Duration::from_millis(10_250);

fn named(identity: &str) -> Successor {
    Successor { identity: identity.to_owned(), hold_off: HOLD_OFF }
}

impl Contender {
    pub(super) async fn set_successor(&self, successor: &Successor) -> Result<(), StoreError> {
        self.call(async |bid| Ok(((), self.store.set_successor(bid, successor).await?))).await
    }
}

pub async fn a_successor_is_named_beside_a_record_that_stays<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(3).await.expect("a term");
    let before = a.read().await.record;
    assert_eq!(before.successor, None);
    let successor = named("b \"quoted\" %41 name");
    a.set_successor(&successor).await.expect("named");
    let snapshot = Contender::new(&lock, "b").await.read().await;
    assert!(!snapshot.free, "it releases nothing");
    assert_eq!(snapshot.record, Record { successor: Some(successor), ..before });
    let record = snapshot.record;
    a.renew().await.expect("renewed");
    assert_eq!(a.acquire().await.expect("granted again"), record);
    assert_eq!(a.write_term(100).await, Ok(term), "the term is written once, and clears nothing");
    assert_eq!(a.read().await.record, record);
}

pub async fn naming_a_successor_does_not_restart_the_lease<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    lock.advance(H::LEASE / 2).await;
    a.set_successor(&named("b")).await.expect("named");
    lock.advance(H::LEASE / 2).await;
    assert!(a.read().await.free);
}

pub async fn a_successor_outlives_the_release_and_ends_with_the_next_term<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(3).await.expect("a term");
    a.set_successor(&named("b")).await.expect("named");
    a.release().await.expect("released");
    let b = Contender::new(&lock, "b").await;
    let snapshot = b.read().await;
    assert!(snapshot.free);
    assert_eq!(snapshot.record.successor, Some(named("b")));
    let found = b.acquire().await.expect("granted");
    assert_eq!(found, snapshot.record, "the grant tells of it too");
    written::<H>(b.write_term(0).await, term + 1);
    assert_eq!(b.read().await.record.successor, None);
}

pub async fn the_same_successor_again_changes_nothing_and_another_replaces_it<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    a.set_successor(&named("b")).await.expect("named");
    let (bytes, snapshot) = (lock.bytes().await, a.read_untimed().await);
    a.set_successor(&named("b")).await.expect("an answer was lost; it stands");
    assert_eq!(lock.bytes().await, bytes);
    assert_eq!(a.read_untimed().await, snapshot);
    let longer = Successor { hold_off: HOLD_OFF * 2, ..named("b") };
    for other in [named("c"), longer] {
        a.set_successor(&other).await.expect("another");
        assert_eq!(a.read().await.record.successor, Some(other));
    }
}

pub async fn a_hold_off_is_kept_in_whole_milliseconds_of_an_hour_at_most<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    for (hold_off, kept) in [
        (Duration::from_micros(1_500), Duration::from_millis(2)),
        (Duration::ZERO, Duration::ZERO),
        (Duration::from_secs(u64::MAX), Successor::LONGEST_HOLD_OFF),
    ] {
        let successor = Successor { hold_off, ..named("b") };
        a.set_successor(&successor).await.expect("named");
        let bytes = lock.bytes().await;
        let kept = Some(Successor { hold_off: kept, ..named("b") });
        assert_eq!(a.read().await.record.successor, kept);
        a.set_successor(&successor).await.expect("it stands");
        assert_eq!(lock.bytes().await, bytes, "the same again, as it is kept");
    }
}

pub async fn the_mark_of_a_move_is_kept_and_shown_until_the_next_term<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(3).await.expect("a term");
    let servers = (1..20).map(|it| format!("[2001:db8::{it}]:2379")).collect::<Vec<_>>().join(",");
    for place in ["file:///var/lib/ü b/%41", &format!("etcd://{servers}/tenure?x=\"y\"")] {
        a.set_successor(&Successor::store(place)).await.expect("marked");
        a.set_successor(&Successor::store(place)).await.expect("it stands");
        assert_eq!(a.read().await.record.moved_to(), Some(place));
    }
    a.renew().await.expect("renewed");
    a.release().await.expect("released");
    let b = Contender::new(&lock, "b").await;
    let mut snapshot = b.read().await;
    assert!(snapshot.free && snapshot.admit(H::LEASE).is_empty());
    assert!(snapshot.record.moved_to().is_some_and(|it| it.starts_with("etcd://")));
    assert_eq!(b.acquire().await.expect("granted"), snapshot.record, "the grant tells of it too");
    written::<H>(b.write_term(0).await, term + 1);
    assert_eq!(b.read().await.record.successor, None);
}

pub async fn naming_a_successor_requires_lease_and_record<H: Harness>(lock: H) {
    let a = Contender::new(&lock, "a").await;
    assert_refused(a.set_successor(&named("x")).await);
    a.acquire().await.expect("granted");
    assert_refused(a.set_successor(&named("x")).await);
    a.write_term(3).await.expect("a term");
    let b = Contender::new(&lock, "b").await;
    assert_refused(b.set_successor(&named("x")).await);
    a.release().await.expect("released");
    assert_refused(a.set_successor(&named("x")).await);

    let b = Contender::holder(&lock, "b").await;
    assert_refused(a.set_successor(&named("x")).await);
    assert_refused(b.set_successor(&named("x")).await);
    assert_eq!(b.read().await.record.successor, None);
    // If the holder has not written a record, a store may return only the term.
    let nonce = b.read().await.record.nonce;
    assert!(nonce == Some(a.bid.nonce) || H::OBSERVED && nonce.is_none(), "{nonce:?}");
    b.write_term(0).await.expect("a term");
    assert_refused(a.set_successor(&named("x")).await);
    lock.advance(H::LEASE).await;
    if H::OBSERVED {
        Contender::holder(&lock, "c").await;
    }
    assert_refused(b.set_successor(&named("x")).await);
    assert_eq!(b.read().await.record.successor, None);
}
