//! The `memory:` store: a lease in the memory of this process, for tests and trials. Several
//! candidates of one process compete through clones of one [`Memory`].

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, Verdict};
use crate::clock::{self, Moment};
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, LeaseId, Nonce, Record, Rules, Snapshot, StoreError,
    Successor, Version,
};

/// A handle to a lease in memory; clones share the lease.
///
/// The store counts the time, by the boot reading of the clock it was created with.
pub struct Memory {
    shared: Arc<Shared>,
    /// The last change that this handle has seen, in a read or from [`LeaseStore::changed`].
    told: AtomicU64,
}

struct Shared {
    clock: Box<dyn Fn() -> Moment + Send + Sync>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    lease: Option<Lease>,
    record: Record,
    /// Counts the changes that are of interest to a standby, so not renewals.
    changes: u64,
}

struct Lease {
    id: LeaseId,
    nonce: Nonce,
    /// The boot reading at which the lease is over.
    until: Duration,
    /// Whether an operator is breaking the lease: it runs out at `until`, and is not renewed.
    breaking: bool,
}

impl Memory {
    /// Creates a free lease, timed by the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(clock::now)
    }

    /// Creates a free lease, timed by the given clock.
    #[must_use]
    pub fn with_clock(clock: impl Fn() -> Moment + Send + Sync + 'static) -> Self {
        let shared =
            Shared { clock: Box::new(clock), state: Mutex::default(), changed: Notify::new() };
        Self { shared: Arc::new(shared), told: AtomicU64::new(0) }
    }

    /// Removes the lease and its record, like deleting the lock in other stores.
    pub fn clear(&self) {
        let mut state = self.state();
        state.lease = None;
        state.record = Record::default();
        self.announce(&mut state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn boot(&self) -> Duration {
        (self.shared.clock)().boot
    }

    fn announce(&self, state: &mut State) {
        state.changes += 1;
        self.shared.changed.notify_waiters();
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            told: AtomicU64::new(self.told.load(Ordering::Relaxed)),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl State {
    fn is_free(&self, boot: Duration) -> bool {
        self.lease.as_ref().is_none_or(|lease| boot >= lease.until)
    }

    fn is_of(&self, bid: &Bid) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.id == bid.lease)
    }

    fn is_breaking(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.breaking)
    }

    fn version(&self) -> Version {
        Version(self.changes.to_string().into())
    }

    /// Counts the lease-duration anew; never shortens what an earlier request was granted.
    fn extend(&mut self, bid: &Bid, boot: Duration) {
        let until = boot.saturating_add(bid.lease_duration);
        match &mut self.lease {
            Some(lease) if lease.id == bid.lease => {
                lease.until = lease.until.max(until);
                lease.breaking = false;
            }
            _ => {
                let (id, nonce) = (bid.lease, bid.nonce);
                self.lease = Some(Lease { id, nonce, until, breaking: false });
            }
        }
    }
}

const BREAKING: &str = "an operator is breaking the lease, which is free once it expires";

fn refused(message: &'static str) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}

#[async_trait]
impl LeaseStore for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: true }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let boot = self.boot();
        let state = self.state();
        self.told.store(state.changes, Ordering::Relaxed);
        let ends_in = state.lease.as_ref().map(|lease| lease.until.saturating_sub(boot));
        Ok(Snapshot {
            free: state.is_free(boot),
            record: state.record.clone(),
            version: state.version(),
            claim: None,
            ends_in,
        })
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let boot = self.boot();
        let mut state = self.state();
        let again = state.is_of(bid) && !state.is_breaking();
        if !again && !state.is_free(boot) {
            return Err(refused("another candidate holds the lease"));
        }
        if !again && state.version() != bid.seen {
            return Err(refused(
                "the lease was acquired by another candidate since it was read as free",
            ));
        }
        state.extend(bid, boot);
        if !again {
            self.announce(&mut state);
        }
        Ok(Grant { record: state.record.clone(), date: None, version: None })
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let boot = self.boot();
        let mut state = self.state();
        if !state.is_of(bid) || state.is_free(boot) || state.is_breaking() {
            return Err(refused(
                "this candidate no longer holds the lease, so no term was written",
            ));
        }
        if let (Some(term), true) = (state.record.term, state.record.nonce == Some(bid.nonce)) {
            return Ok(term);
        }
        let Some(next) = state.record.term.map_or(Some(0), |term| term.checked_add(1)) else {
            let failure = Failure::new(Cause::Record, "the record has the largest possible term");
            return Err(StoreError::Foreign(failure));
        };
        let term = next.max(floor);
        state.record = Record {
            term: Some(term),
            holder: Some(Arc::clone(&bid.candidate)),
            nonce: Some(bid.nonce),
            successor: None,
        };
        self.announce(&mut state);
        Ok(term)
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let boot = self.boot();
        let mut state = self.state();
        if !state.is_of(bid) {
            return Err(refused("this candidate no longer holds the lease"));
        }
        if state.is_breaking() {
            return Err(refused(BREAKING));
        }
        state.extend(bid, boot);
        Ok(None)
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let boot = self.boot();
        let mut state = self.state();
        if !state.is_of(bid) || state.is_free(boot) {
            return Err(refused(
                "this candidate no longer holds the lease, so no successor was written",
            ));
        }
        if state.is_breaking() {
            return Err(refused(BREAKING));
        }
        if state.record.nonce != Some(bid.nonce) {
            return Err(refused(
                "this candidate did not write the record, so no successor was written",
            ));
        }
        let successor = Some(successor.as_stored());
        if state.record.successor != successor {
            state.record.successor = successor;
            self.announce(&mut state);
        }
        Ok(None)
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let mut state = self.state();
        if !state.is_of(bid) {
            return Err(refused("this candidate no longer holds the lease"));
        }
        state.lease = None;
        self.announce(&mut state);
        Ok(())
    }

    /// Resolves once for each change that this handle has not read, so that no change between a
    /// read and the wait is missed.
    async fn changed(&self) -> Change {
        loop {
            let notified = self.shared.changed.notified();
            let (changes, held_by) = {
                let state = self.state();
                (state.changes, state.lease.as_ref().map(|lease| lease.nonce))
            };
            if self.told.swap(changes, Ordering::Relaxed) != changes {
                return Change::News { held_by };
            }
            notified.await;
        }
    }
}

#[async_trait]
impl LeaseAdmin for Memory {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let boot = self.boot();
        let mut state = self.state();
        let record = state.record.clone();
        let free_in = match &mut state.lease {
            Some(lease) if boot < lease.until => {
                lease.breaking = true;
                lease.until - boot
            }
            _ => return Ok(BreakOutcome::NotHeld),
        };
        if !at_once {
            return Ok(BreakOutcome::Held { record, free_in });
        }
        state.lease = None;
        self.announce(&mut state);
        Ok(BreakOutcome::Held { record, free_in: Duration::ZERO })
    }

    async fn examine(&self) -> Vec<Finding> {
        vec![Finding {
            subject: "store".into(),
            verdict: Verdict::Warning,
            detail: "the lease exists only in this process, so every process leads".into(),
            remedy: Some("use it for tests only; otherwise set --store".into()),
        }]
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let mut state = self.state();
        if state.record.term.is_some() {
            return Ok(Vec::new());
        }
        state.record.term = Some(floor);
        self.announce(&mut state);
        Ok(vec![format!("a first term, {floor}, in memory")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Candidate;

    fn bid(number: u128, seen: Version) -> Bid {
        let candidate =
            Candidate { identity: "a".into(), instance: "1".into(), address: None, peer: None };
        Bid {
            lease: LeaseId::from_random(number),
            nonce: Nonce(number),
            candidate: Arc::new(candidate),
            lease_duration: Duration::from_secs(15),
            seen,
            written: None,
        }
    }

    /// A store whose clock a test sets, in seconds.
    fn timed() -> (Memory, Arc<AtomicU64>) {
        let seconds = Arc::new(AtomicU64::new(100));
        let shown = Arc::clone(&seconds);
        let clock = move || {
            let boot = Duration::from_secs(shown.load(Ordering::Relaxed));
            Moment { boot, raw: boot, wall: boot }
        };
        (Memory::with_clock(clock), seconds)
    }

    /// Acquires the lease, as it is read now.
    async fn acquired(memory: &Memory, number: u128) -> Bid {
        let bid = bid(number, memory.read().await.unwrap().version);
        memory.acquire(&bid).await.unwrap();
        bid
    }

    fn is_refused<T>(outcome: Result<T, StoreError>) -> bool {
        matches!(outcome, Err(StoreError::Refused(_)))
    }

    fn successor() -> Successor {
        Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(10) }
    }

    #[tokio::test]
    async fn a_lease_ends_at_its_deadline_which_only_its_holder_moves_and_only_to_later() {
        let (memory, seconds) = timed();
        let a = acquired(&memory, 1).await;
        let left = async |at| {
            seconds.store(at, Ordering::Relaxed);
            let Snapshot { free, ends_in, .. } = memory.read().await.unwrap();
            (free, ends_in.map(|it| it.as_secs()))
        };
        assert_eq!(left(110).await, (false, Some(5)));
        memory.renew(&a).await.unwrap();
        memory.renew(&Bid { lease_duration: Duration::from_secs(1), ..a.clone() }).await.unwrap();
        assert_eq!(left(124).await, (false, Some(1)));
        let seen = memory.read().await.unwrap().version;
        assert!(is_refused(memory.acquire(&bid(2, seen)).await));
        assert_eq!(left(125).await, (true, Some(0)));
        let b = acquired(&memory, 2).await;
        assert_eq!(left(126).await, (false, Some(14)));
        assert!(is_refused(memory.renew(&a).await));
        memory.renew(&b).await.unwrap();
        memory.release(&b).await.unwrap();
        assert_eq!(left(127).await, (true, None));
    }

    #[tokio::test]
    async fn each_acquisition_writes_one_term_above_the_last_and_not_below_the_floor() {
        let (memory, _) = timed();
        let other = memory.clone();
        assert!(futures::poll!(Box::pin(other.changed())).is_pending(), "it is new");
        for (number, floor, term) in [(1, 0, 0), (2, 0, 1), (3, 9, 9), (4, 5, 10)] {
            let holder = acquired(&memory, number).await;
            other.read().await.unwrap();
            assert_eq!(memory.write_term(&holder, floor).await, Ok(term));
            assert_eq!(other.changed().await, Change::News { held_by: Some(holder.nonce) });
            assert_eq!(memory.write_term(&holder, 100).await, Ok(term), "it is written already");
            memory.set_successor(&holder, &successor()).await.unwrap();
            let written = Record {
                term: Some(term),
                holder: Some(Arc::clone(&holder.candidate)),
                nonce: Some(holder.nonce),
                successor: Some(successor()),
            };
            assert_eq!(memory.read().await.unwrap().record, written);
            memory.release(&holder).await.unwrap();
        }
        let last = acquired(&memory, 5).await;
        memory.write_term(&last, 0).await.unwrap();
        assert_eq!(memory.read().await.unwrap().record.successor, None);
        memory.state().record.term = Some(u64::MAX);
        memory.release(&last).await.unwrap();
        let beyond = acquired(&memory, 6).await;
        assert!(matches!(memory.write_term(&beyond, 0).await, Err(StoreError::Foreign(_))));
    }

    #[tokio::test]
    async fn only_the_holder_of_a_running_lease_writes_the_record() {
        let (memory, seconds) = timed();
        let a = acquired(&memory, 1).await;
        let other = memory.clone();
        other.read().await.unwrap();
        let b = bid(2, memory.state().version());
        assert!(is_refused(memory.write_term(&b, 0).await));
        assert!(is_refused(memory.set_successor(&a, &successor()).await), "it has no term yet");
        memory.write_term(&a, 0).await.unwrap();
        assert!(is_refused(memory.set_successor(&b, &successor()).await));
        for is_news in [true, false] {
            other.read().await.unwrap();
            memory.set_successor(&a, &successor()).await.unwrap();
            assert_eq!(futures::poll!(Box::pin(other.changed())).is_ready(), is_news);
        }
        seconds.store(115, Ordering::Relaxed);
        assert!(is_refused(memory.write_term(&a, 0).await));
        assert!(is_refused(memory.set_successor(&a, &successor()).await));
        assert!(is_refused(memory.release(&b).await));
    }

    #[tokio::test]
    async fn a_broken_lease_runs_out_without_renewals_unless_it_is_freed_at_once() {
        let (memory, seconds) = timed();
        assert_eq!(memory.break_lease(true).await, Ok(BreakOutcome::NotHeld));
        let a = acquired(&memory, 1).await;
        memory.write_term(&a, 7).await.unwrap();
        let record = memory.read().await.unwrap().record;
        let held = |free_in| {
            let free_in = Duration::from_secs(free_in);
            Ok(BreakOutcome::Held { record: record.clone(), free_in })
        };
        seconds.store(110, Ordering::Relaxed);
        assert_eq!(memory.break_lease(false).await, held(5));
        assert!(is_refused(memory.renew(&a).await));
        assert!(is_refused(memory.acquire(&a).await));
        assert!(is_refused(memory.write_term(&a, 0).await));
        assert!(is_refused(memory.set_successor(&a, &successor()).await));
        seconds.store(115, Ordering::Relaxed);
        assert_eq!(memory.break_lease(false).await, Ok(BreakOutcome::NotHeld));
        // The same lease, acquired as it is read now, is not being broken any more.
        let a = acquired(&memory, 1).await;
        memory.renew(&a).await.unwrap();
        let other = memory.clone();
        other.read().await.unwrap();
        assert_eq!(memory.break_lease(true).await, held(0));
        assert_eq!(other.changed().await, Change::News { held_by: None });
        assert_eq!(memory.read().await.unwrap().ends_in, None);
    }

    #[tokio::test]
    async fn a_cleared_store_has_no_lease_and_no_record() {
        let memory = Memory::new();
        let a = acquired(&memory, 1).await;
        memory.write_term(&a, 7).await.unwrap();
        let other = memory.clone();
        other.read().await.unwrap();
        memory.clear();
        assert_eq!(other.changed().await, Change::News { held_by: None });
        let Snapshot { free, record, ends_in, .. } = memory.read().await.unwrap();
        assert_eq!((free, record, ends_in), (true, Record::default(), None));
        assert!(memory.rules().missing_is_free);
    }

    #[tokio::test]
    async fn a_first_term_is_written_once_and_doctor_warns_of_the_store() {
        let memory = Memory::new();
        let other = memory.clone();
        let made = memory.create(5).await.unwrap();
        assert_eq!(made, ["a first term, 5, in memory"]);
        assert!(futures::poll!(Box::pin(other.changed())).is_ready());
        assert_eq!(memory.create(9).await, Ok(Vec::new()));
        let record = Record { term: Some(5), ..Record::default() };
        assert_eq!(memory.read().await.unwrap().record, record);
        assert_eq!(memory.examine().await[0].verdict, Verdict::Warning);
    }

    #[tokio::test]
    async fn a_bid_for_a_changed_version_is_refused() {
        let memory = Memory::new();
        let seen = memory.read().await.unwrap().version;
        let (a, b) = (bid(1, seen.clone()), bid(2, seen));
        memory.acquire(&a).await.unwrap();
        memory.acquire(&a).await.expect("the same bid again");
        memory.release(&a).await.unwrap();
        assert!(matches!(memory.acquire(&b).await, Err(StoreError::Refused(_))));
        let seen = memory.read().await.unwrap().version;
        memory.acquire(&bid(2, seen)).await.expect("seen as it is");
    }

    #[tokio::test]
    async fn a_change_names_who_holds_the_lease() {
        let memory = Memory::new();
        let other = memory.clone();
        let a = bid(1, other.read().await.unwrap().version);
        memory.acquire(&a).await.unwrap();
        assert_eq!(other.changed().await, Change::News { held_by: Some(a.nonce) });
        memory.release(&a).await.unwrap();
        assert_eq!(other.changed().await, Change::News { held_by: None });
    }

    #[tokio::test]
    async fn a_change_wakes_each_waiter_once() {
        let memory = Memory::new();
        let other = memory.clone();
        let seen = other.read().await.unwrap().version;
        let mut woken = Box::pin(other.changed());
        assert!(futures::poll!(&mut woken).is_pending());
        let a = bid(1, seen);
        memory.acquire(&a).await.unwrap();
        assert!(futures::poll!(&mut woken).is_ready());
        drop(woken);
        assert!(futures::poll!(Box::pin(other.changed())).is_pending(), "told already");
        memory.renew(&a).await.unwrap();
        assert!(futures::poll!(Box::pin(other.changed())).is_pending(), "a renewal is no news");
        memory.release(&a).await.unwrap();
        assert!(futures::poll!(Box::pin(other.changed())).is_ready(), "between look and wait");
        memory.clear();
        other.read().await.unwrap();
        assert!(futures::poll!(Box::pin(other.changed())).is_pending(), "seen already");
    }
}
