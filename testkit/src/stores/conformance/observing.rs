//! Conformance tests for a store that does not measure time: a candidate may take the lease once it
//! has seen the record unchanged for its whole duration.

use futures::future::join_all;
use tenure::lease::{Bid, Claim, StoreError, Successor, Version};

use super::{Contender, Harness, assert_refused};

/// Operations of others on a lock of such a store.
pub trait ObservedHarness: Harness {
    /// Writes something next to the lease that does not affect it.
    async fn touch(&self);

    /// Makes another kind of candidate the holder, which leaves Tenure's record as it is.
    async fn usurp(&self);
}

impl Contender {
    async fn claim(&self) -> Claim {
        self.read().await.claim.expect("it is held")
    }
}

pub async fn only_a_renewal_restarts_the_wait_of_observers<H: ObservedHarness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let first = a.claim().await;
    assert_eq!(first.lease_duration, H::LEASE);
    a.write_term(3).await.expect("a term");
    let b = Successor { identity: "b".to_owned(), hold_off: H::LEASE };
    a.set_successor(&b).await.expect("named");
    lock.touch().await;
    assert_eq!(a.claim().await, first);
    let mut seen = vec![first];
    for _ in 0..3 {
        a.renew().await.expect("renewed");
        seen.push(a.claim().await);
        a.acquire().await.expect("granted again");
        seen.push(a.claim().await);
    }
    for (index, claim) in seen.iter().enumerate() {
        assert!(!seen[..index].contains(claim), "{seen:?}");
        assert_eq!(claim.lease_duration, H::LEASE);
    }
}

pub async fn changes_beside_the_lease_restart_no_wait<H: ObservedHarness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    lock.advance(H::LEASE / 2).await;
    let before = a.read().await;
    lock.touch().await;
    let after = a.read().await;
    assert_eq!(after.claim, before.claim);
    assert_ne!(after.version, before.version, "a bid for the old one could not know of the new");
    assert!(!after.free);
    lock.advance(H::LEASE / 2).await;
    let b = Contender::holder(&lock, "b").await;
    assert_eq!(b.write_term(0).await, Ok(4));
    assert_refused(a.renew().await);
}

pub async fn a_renewal_after_a_conflicting_write_succeeds_on_the_next_call<H>(lock: H)
where
    H: ObservedHarness,
{
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    for _ in 0..3 {
        a.renew().await.expect("renewed");
        let before = a.claim().await;
        lock.touch().await;
        let met = a.store.renew(&a.bid).await;
        assert!(
            matches!(met, Ok(_) | Err(StoreError::Unknown(_) | StoreError::RetryNow(_))),
            "{met:?}"
        );
        if met.is_err() {
            a.store.renew(&a.bid).await.expect("it is known now what stands there");
        }
        assert_ne!(a.claim().await, before);
    }
    assert_eq!(a.read().await.record.term, Some(3));
}

pub async fn a_renewal_on_the_last_version_keeps_the_record<H: ObservedHarness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    let mut written = a.store.renew(&a.bid).await.expect("read, then renewed");
    for _ in 0..3 {
        let (record, before) = (a.read().await.record, a.claim().await);
        let bid = Bid { written: written.clone(), ..a.bid.clone() };
        let next = a.store.renew(&bid).await.expect("renewed on the version that was written");
        assert!(next.is_some() && next != written, "{next:?}");
        assert_ne!(a.claim().await, before);
        assert_eq!(a.read().await.record, record);
        written = next;
    }
}

/// Makes each call of a holder that needs no read, on a version that is no longer the last one, which must not write.
async fn assert_stale<H: ObservedHarness>(lock: &H, a: &Contender, written: &Option<Version>) {
    let (bytes, bid) = (lock.bytes().await, Bid { written: written.clone(), ..a.bid.clone() });
    let successor = Successor { identity: "b".to_owned(), hold_off: H::LEASE };
    for outcome in [
        a.store.renew(&bid).await.map(drop),
        a.store.set_successor(&bid, &successor).await.map(drop),
    ] {
        assert!(matches!(outcome, Err(StoreError::RetryNow(_))), "{outcome:?}");
    }
    assert_eq!(lock.bytes().await, bytes);
}

pub async fn a_version_of_before_writes_nothing<H: ObservedHarness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    let written = a.store.renew(&a.bid).await.expect("renewed");
    lock.touch().await;
    assert_stale(&lock, &a, &written).await;
    a.renew().await.expect("it is still held");
    lock.advance(H::LEASE).await;
    let b = Contender::holder(&lock, "b").await;
    assert_stale(&lock, &a, &written).await;
    assert_refused(a.renew().await);
    b.renew().await.expect("still b's");
}

pub async fn a_recreated_lock_is_another_lock_to_all<H: ObservedHarness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    let before = a.read().await;
    lock.delete().await;
    let late = Contender::new(&lock, "late").await;
    let b = Contender::holder(&lock, "b").await;
    let after = b.read().await;
    assert_ne!(after.claim, before.claim);
    assert_ne!(after.version, before.version);
    assert_refused(a.renew().await);
    assert_refused(a.write_term(0).await);
    assert_refused(a.release().await);
    assert_refused(late.acquire().await);
    b.renew().await.expect("still b's");
    assert_eq!(b.read().await.record.term, None);
    lock.delete().await;
    assert_refused(b.renew().await);
    assert_eq!(b.read().await.claim, None, "a renewal makes nothing");
}

pub async fn a_renewal_at_the_last_instant_wins_over_every_bid<H: ObservedHarness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    lock.advance(H::LEASE).await;
    let b = Contender::new(&lock, "b").await;
    assert!(b.read().await.free, "b has waited long enough");
    a.renew().await.expect("it is still held");
    assert_refused(b.acquire().await);
    a.renew().await.expect("still a's");
}

pub async fn of_many_observers_exactly_one_acquires<H: ObservedHarness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    lock.advance(H::LEASE).await;
    let all = join_all((0..16).map(|_| Contender::new(&lock, "b"))).await;
    let granted = join_all(all.iter().map(Contender::acquire)).await;
    assert_eq!(granted.iter().filter(|it| it.is_ok()).count(), 1, "{granted:?}");
    assert_refused(a.renew().await);
}

pub async fn a_released_lease_requires_no_wait<H: ObservedHarness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    a.release().await.expect("released");
    let snapshot = a.read().await;
    assert!(snapshot.free && snapshot.claim.is_none(), "{snapshot:?}");
    assert_eq!(snapshot.record.term, Some(3));
}

pub async fn a_foreign_holder_holds_the_lease_whatever_the_record_has<H>(lock: H)
where
    H: ObservedHarness,
{
    let a = Contender::holder(&lock, "a").await;
    a.write_term(3).await.expect("a term");
    let ours = a.claim().await;
    lock.usurp().await;
    let snapshot = a.read().await;
    assert!(!snapshot.free);
    assert_eq!(snapshot.record.term, Some(3), "its term is what the next one is above of");
    assert_eq!(snapshot.record.nonce, None, "the record is no word of its holder's");
    assert_eq!(snapshot.record.holder, None);
    let theirs = snapshot.claim.expect("it is held");
    assert_ne!(theirs.spec, ours.spec);
    let bytes = lock.bytes().await;
    assert_refused(a.renew().await);
    assert_refused(a.write_term(0).await);
    assert_refused(a.release().await);
    assert_refused(a.acquire().await);
    let b = Contender::new(&lock, "b").await;
    assert_refused(b.acquire().await);
    assert_eq!(lock.bytes().await, bytes, "it is respected");
    lock.advance(theirs.lease_duration).await;
    let b = Contender::holder(&lock, "b").await;
    assert_eq!(b.write_term(0).await, Ok(4));
}
