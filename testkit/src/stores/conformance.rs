//! The conformance suite: the tests that every lease store must pass.
//!
//! A backend provides a [`Harness`], which creates locks, advances the store's time, and performs
//! the operations of an outsider.

mod breaking;
mod observing;
mod record;
mod succession;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use tenure::lease::{Bid, Candidate, LeaseId, Nonce, Record, Rules, Snapshot, StoreError, Version};
use tenure::store::LeaseAdmin;

pub use breaking::*;
pub use observing::*;
pub use record::*;
pub use succession::*;

/// From the shortest lease of any store to ten minutes.
pub const ANY_LENGTH: &[Duration] = &[
    Duration::from_millis(230),
    Duration::from_secs(1),
    Duration::from_millis(1_501),
    Duration::from_secs(15),
    Duration::from_secs(31),
    Duration::from_secs(60),
    Duration::from_secs(61),
    Duration::from_secs(600),
];

/// One lock of one backend.
pub trait Harness: Sized {
    /// The shortest lease that does not expire during a few calls.
    const LEASE: Duration;

    /// The leases that are checked to last as long as was asked, without waiting for their end.
    const LENGTHS: &'static [Duration] = &[Self::LEASE];

    /// The kinds of foreign content that the lock can have; empty if there are none.
    const FOREIGN: &'static [&'static str];

    /// The rules of the store. Deleting the record of most frees the lease behind the holder's back, so that
    /// a hold would be of no use.
    const RULES: Rules = Rules { longest_lease: None, missing_is_free: false };

    /// Whether observers measure the time instead of the store: then an expired lease belongs to
    /// its holder until another takes it, and a broken one lasts for its whole duration from then
    /// on.
    const OBSERVED: bool = false;

    /// Whether each term is one above the last. Else a store has numbers of its own that rise, and a
    /// term may be higher.
    const COUNTS_BY_ONE: bool = true;

    /// By how much longer than it should a lease may last that an operator breaks, as the break says.
    const LATENESS: Duration = Duration::ZERO;

    /// Creates an unused lock.
    async fn start() -> Self;

    /// Opens the lock as another candidate would, sharing nothing but the store.
    fn candidate(&self) -> Arc<dyn LeaseAdmin>;

    /// Returns when this much of the store's time has passed.
    async fn advance(&self, by: Duration);

    /// Deletes the lock as an outsider.
    async fn delete(&self);

    /// Replaces the lock by foreign content.
    async fn plant(&self, foreign: &str);

    /// Returns everything that the store keeps for the lock, for comparisons.
    async fn bytes(&self) -> Vec<u8>;
}

/// One candidate in one acquisition.
struct Contender {
    store: Arc<dyn LeaseAdmin>,
    /// The bid as it was made.
    bid: Bid,
    /// The version that its last write returned.
    written: Mutex<Option<Version>>,
}

/// Returns a number that only has to be unique here.
fn draw() -> u128 {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    let drawn = u128::from(DRAWN.fetch_add(1, Ordering::Relaxed));
    (u128::from(std::process::id()) << 96) | (drawn << 32) | drawn
}

/// Repeats a call while the outcome is unknown, as the driver does.
async fn definite<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut last = None;
    for _ in 0..500 {
        match ask().await {
            Err(error @ (StoreError::Unknown(_) | StoreError::RetryNow(_))) => {
                last = Some(error);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            outcome => return outcome,
        }
    }
    panic!("no definite answer in 500 tries: {last:?}")
}

async fn read(store: &Arc<dyn LeaseAdmin>) -> Snapshot {
    definite(async || store.read().await).await.expect("a read")
}

impl Contender {
    /// Creates a candidate that has read the lock, and bids for that version.
    async fn new<H: Harness>(lock: &H, identity: &str) -> Self {
        let store = lock.candidate();
        let seen = read(&store).await.version;
        let candidate = Arc::new(Candidate {
            identity: identity.to_owned(),
            instance: format!("instance-{}", draw()),
            address: Some("[::1]:8080".to_owned()),
            peer: Some("http://[::1]:4040/peer".to_owned()),
        });
        let lease = LeaseId::from_random(draw());
        let lease_duration = H::LEASE;
        let (nonce, written) = (Nonce(draw()), None);
        let bid = Bid { lease, nonce, candidate, lease_duration, seen, written };
        Self { store, bid, written: Mutex::default() }
    }

    /// Creates a candidate that was granted the lease.
    async fn holder<H: Harness>(lock: &H, identity: &str) -> Self {
        let holder = Self::new(lock, identity).await;
        holder.acquire().await.expect("a free lease is granted");
        holder
    }

    /// Makes a call for the bid until its outcome is known, each time with the version that the last
    /// one returned, as the election does.
    async fn call<T>(
        &self,
        ask: impl AsyncFn(&Bid) -> Result<(T, Option<Version>), StoreError>,
    ) -> Result<T, StoreError> {
        let written = || self.written.lock().expect("no test panicked with it");
        let asked = definite(async || {
            let bid = Bid { written: written().take(), ..self.bid.clone() };
            ask(&bid).await
        });
        let (answer, version) = asked.await?;
        *written() = version;
        Ok(answer)
    }

    async fn acquire(&self) -> Result<Record, StoreError> {
        self.call(async |bid| {
            let grant = self.store.acquire(bid).await?;
            Ok((grant.record, grant.version))
        })
        .await
    }

    async fn write_term(&self, floor: u64) -> Result<u64, StoreError> {
        self.call(async |bid| Ok((self.store.write_term(bid, floor).await?, None))).await
    }

    async fn renew(&self) -> Result<(), StoreError> {
        self.call(async |bid| Ok(((), self.store.renew(bid).await?))).await
    }

    async fn release(&self) -> Result<(), StoreError> {
        self.call(async |bid| Ok((self.store.release(bid).await?, None))).await
    }

    async fn read(&self) -> Snapshot {
        read(&self.store).await
    }

    /// Reads everything but how long the lease lasts.
    async fn read_untimed(&self) -> Snapshot {
        Snapshot { ends_in: None, ..self.read().await }
    }
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(outcome: Result<T, StoreError>) {
    assert!(matches!(outcome, Err(StoreError::Refused(_))), "not refused: {outcome:?}");
}

/// Checks that a term was written: this one or, where the store has numbers of its own, a higher one.
/// Returns it.
#[track_caller]
fn written<H: Harness>(outcome: Result<u64, StoreError>, least: u64) -> u64 {
    let term = outcome.expect("a term");
    assert!(term == least || !H::COUNTS_BY_ONE && term > least, "{term}, not {least}");
    term
}

pub async fn a_fresh_lock_is_free_and_has_no_term<H: Harness>(lock: H) {
    let snapshot = read(&lock.candidate()).await;
    assert!(snapshot.free);
    assert_eq!(snapshot.record, Record::default());
}

pub async fn a_read_changes_nothing<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let (bytes, snapshot) = (lock.bytes().await, a.read_untimed().await);
    assert_eq!(a.read_untimed().await, snapshot);
    assert_eq!(lock.bytes().await, bytes);
}

pub async fn a_granted_lease_is_not_free_and_refused_to_others<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    assert!(!a.read().await.free);
    let b = Contender::new(&lock, "b").await;
    assert_refused(b.acquire().await);
    assert_refused(b.acquire().await);
    a.renew().await.expect("still a's");
}

pub async fn a_fresh_lock_is_granted_without_a_term<H: Harness>(lock: H) {
    let a = Contender::new(&lock, "a").await;
    assert_eq!(a.acquire().await.expect("granted").term, None);
    assert_eq!(a.read().await.record.term, None, "the term is written by write_term alone");
}

pub async fn a_repeated_bid_is_granted_and_restarts_the_lease<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    lock.advance(H::LEASE * 2 / 3).await;
    a.acquire().await.expect("the same bid is granted again");
    lock.advance(H::LEASE * 2 / 3).await;
    assert!(!a.read().await.free, "it must count from the second bid");
}

pub async fn a_renewal_restarts_the_lease<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    lock.advance(H::LEASE * 2 / 3).await;
    a.renew().await.expect("renewed");
    lock.advance(H::LEASE * 2 / 3).await;
    assert!(!a.read().await.free, "it must count from the renewal");
    let b = Contender::new(&lock, "b").await;
    assert_refused(b.acquire().await);
}

pub async fn a_renewal_by_another_is_refused<H: Harness>(lock: H) {
    let _a = Contender::holder(&lock, "a").await;
    let b = Contender::new(&lock, "b").await;
    assert_refused(b.renew().await);
    assert!(!b.read().await.free);
}

pub async fn a_renewal_of_what_was_never_held_is_refused<H: Harness>(lock: H) {
    let a = Contender::new(&lock, "a").await;
    assert_refused(a.renew().await);
    assert!(a.read().await.free);
}

pub async fn a_lease_that_runs_out_is_free_for_another<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(5).await.expect("a term");
    lock.advance(H::LEASE).await;
    let snapshot = a.read().await;
    assert!(snapshot.free);
    assert_eq!(snapshot.record.term, Some(term), "the record outlives the lease");
    let b = Contender::new(&lock, "b").await;
    assert_eq!(b.acquire().await.expect("granted").term, Some(term));
    assert_refused(a.acquire().await);
    assert_refused(a.renew().await);
    // The record still has the nonce of `a`, so a store may return its term.
    let late = a.write_term(0).await;
    assert!(matches!(late, Err(StoreError::Refused(_))) || late == Ok(term), "{late:?}");
    assert_refused(a.release().await);
    b.renew().await.expect("nothing that a did has touched it");
    assert_eq!(b.read().await.record.term, Some(term));
    written::<H>(b.write_term(0).await, term + 1);
    assert_refused(a.write_term(0).await);
}

pub async fn a_late_renewal_is_granted_only_if_the_lease_is_still_there<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    lock.advance(H::LEASE).await;
    match a.renew().await {
        Ok(()) => {
            assert!(!a.read().await.free, "granted, so it must be held");
            let b = Contender::new(&lock, "b").await;
            assert_refused(b.acquire().await);
        }
        Err(StoreError::Refused(_)) => assert!(a.read().await.free, "refused, so it must be free"),
        Err(error) => panic!("{error:?}"),
    }
}

pub async fn a_release_frees_at_once_and_keeps_the_record<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let term = a.write_term(5).await.expect("a term");
    a.release().await.expect("released");
    let snapshot = a.read().await;
    assert!(snapshot.free);
    assert_eq!(snapshot.record.term, Some(term));
    assert_eq!(snapshot.record.nonce, Some(a.bid.nonce));
    Contender::holder(&lock, "b").await;
}

pub async fn a_release_by_another_is_refused_and_frees_nothing<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    let b = Contender::new(&lock, "b").await;
    assert_refused(b.release().await);
    assert!(!a.read().await.free);
    a.renew().await.expect("still a's");
}

pub async fn a_released_lease_is_dead<H: Harness>(lock: H) {
    let a = Contender::holder(&lock, "a").await;
    a.release().await.expect("released");
    assert_refused(a.renew().await);
    assert_refused(a.write_term(0).await);
    assert_refused(a.release().await);
    assert!(a.read().await.free);
}

pub async fn of_many_bids_at_once_exactly_one_is_granted<H: Harness>(lock: H) {
    let all = join_all((0..16).map(|n| Contender::new(&lock, if n < 8 { "a" } else { "b" }))).await;
    let granted = join_all(all.iter().map(Contender::acquire)).await;
    let winners: Vec<_> =
        all.iter().zip(&granted).filter(|(_, outcome)| outcome.is_ok()).map(|(it, _)| it).collect();
    assert_eq!(winners.len(), 1, "{granted:?}");
    let terms = join_all(all.iter().map(|it| it.write_term(1))).await;
    assert_eq!(terms.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{terms:?}");
    assert_eq!(all[0].read().await.record.nonce, Some(winners[0].bid.nonce));
}

pub async fn a_dropped_call_does_no_harm<H: Harness>(lock: H) {
    let a = Contender::new(&lock, "a").await;
    for _ in 0..8 {
        drop(futures::poll!(a.store.acquire(&a.bid)));
    }
    a.acquire().await.expect("its own bid, whether it has landed or not");
    drop(futures::poll!(a.store.write_term(&a.bid, 9)));
    let term = written::<H>(a.write_term(9).await, 9);
    assert_eq!(a.write_term(9).await, Ok(term), "one term, whether it was written or not");
    drop(futures::poll!(a.store.renew(&a.bid)));
    a.release().await.expect("released");
    let b = Contender::holder(&lock, "b").await;
    written::<H>(b.write_term(0).await, term + 1);
    drop(futures::poll!(a.store.release(&a.bid)));
    b.renew().await.expect("nothing of a's lands on it");
}

/// Runs each test of the suite on a fresh lock of one backend.
#[macro_export]
macro_rules! conformance {
    ($backend:ident, $harness:ty) => {
        $crate::conformance!($backend, $harness, with);
    };
    // Stores in which observers measure the time have additional tests.
    ($backend:ident, $harness:ty, observed) => {
        $crate::conformance!(
            $backend,
            $harness,
            with only_a_renewal_restarts_the_wait_of_observers,
            changes_beside_the_lease_restart_no_wait,
            a_renewal_after_a_conflicting_write_succeeds_on_the_next_call,
            a_renewal_on_the_last_version_keeps_the_record,
            a_version_of_before_writes_nothing,
            a_recreated_lock_is_another_lock_to_all,
            a_renewal_at_the_last_instant_wins_over_every_bid,
            of_many_observers_exactly_one_acquires,
            a_released_lease_requires_no_wait,
            a_foreign_holder_holds_the_lease_whatever_the_record_has,
        );
    };
    ($backend:ident, $harness:ty, with $($more:ident,)*) => {
        $crate::conformance!(
            $backend,
            $harness,
            $($more,)*
            a_fresh_lock_is_free_and_has_no_term,
            a_read_changes_nothing,
            a_granted_lease_is_not_free_and_refused_to_others,
            a_fresh_lock_is_granted_without_a_term,
            a_repeated_bid_is_granted_and_restarts_the_lease,
            a_renewal_restarts_the_lease,
            a_lease_lasts_as_long_as_was_asked,
            a_renewal_by_another_is_refused,
            a_renewal_of_what_was_never_held_is_refused,
            a_lease_that_runs_out_is_free_for_another,
            a_late_renewal_is_granted_only_if_the_lease_is_still_there,
            a_release_frees_at_once_and_keeps_the_record,
            a_release_by_another_is_refused_and_frees_nothing,
            a_released_lease_is_dead,
            a_term_is_above_the_last_one_and_at_least_the_floor,
            a_term_is_written_once_in_an_acquisition,
            no_term_is_written_without_the_lease,
            no_term_is_written_under_a_lease_that_ran_out,
            the_record_names_its_holder,
            the_record_keeps_nothing_of_the_last_holder,
            a_renewal_keeps_the_record,
            of_many_bids_at_once_exactly_one_is_granted,
            a_dropped_call_does_no_harm,
            a_deleted_lock_is_free_and_lost_to_its_holder,
            creating_writes_a_first_term_and_never_another,
            creating_completes_what_a_holder_left_without_a_term,
            the_rules_are_those_of_the_store,
            a_grant_has_a_date_if_the_store_has_one_with_a_record_or_without,
            an_examination_finds_nothing_wrong_and_changes_nothing,
            foreign_content_is_refused_and_never_overwritten,
            a_successor_is_named_beside_a_record_that_stays,
            naming_a_successor_does_not_restart_the_lease,
            a_successor_outlives_the_release_and_ends_with_the_next_term,
            the_same_successor_again_changes_nothing_and_another_replaces_it,
            a_hold_off_is_kept_in_whole_milliseconds_of_an_hour_at_most,
            the_mark_of_a_move_is_kept_and_shown_until_the_next_term,
            naming_a_successor_requires_lease_and_record,
            a_broken_lease_runs_out_and_is_renewed_no_more,
            a_lease_broken_at_once_is_free_at_once,
            breaking_a_free_lease_changes_nothing,
            breaking_again_lengthens_nothing_and_may_still_end_it_at_once,
            a_lease_that_is_being_broken_may_be_released,
            a_write_under_a_breaking_lease_is_complete_or_refused,
            a_broken_lease_is_acquired_again_like_any_other,
        );
    };
    ($backend:ident, $harness:ty, $($sentence:ident,)+) => {
        mod $backend {
            use super::*;

            $(
                #[tokio::test]
                async fn $sentence() {
                    conformance::$sentence(<$harness as Harness>::start().await).await;
                }
            )+
        }
    };
}
