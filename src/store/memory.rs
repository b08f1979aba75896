//! `memory:`: a lease in this process, for tests and for trying things out.
//!
//! What it does not do: it survives nothing, and no other process sees it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::clock::{self, Moment};
use crate::store::{
    Bid, Cause, Failure, Finding, Grant, LeaseId, LeaseStore, Record, Rules, Sight, StoreError,
    Verdict, Version,
};

/// A handle to one lease in memory; its clones share it.
#[derive(Clone)]
pub struct Memory {
    lock: Arc<Lock>,
    now: fn() -> Moment,
}

#[derive(Default)]
struct Lock {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    lease: Option<(LeaseId, Moment, Duration)>,
    record: Record,
    version: u64,
}

impl Memory {
    /// Makes a lease that nobody has, timed by the machine's clocks.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(clock::now)
    }

    /// Makes a lease that nobody has, timed by `now`.
    #[must_use]
    pub fn with_clock(now: fn() -> Moment) -> Self {
        Self { lock: Arc::default(), now }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.lock.state.lock().expect("nothing panics while the lock is held")
    }

    /// Runs `change` if `bid` has the lease, and wakes who waits for a change.
    fn under<T>(
        &self,
        bid: &Bid,
        change: impl FnOnce(&mut State, Moment) -> T,
    ) -> Result<T, StoreError> {
        let now = (self.now)();
        let mut state = self.state();
        if state.holder(now) != Some(bid.lease) {
            return Err(refused("the lease is not held under this id"));
        }
        let result = change(&mut state, now);
        state.version += 1;
        drop(state);
        self.lock.changed.notify_waiters();
        Ok(result)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn holder(&self, now: Moment) -> Option<LeaseId> {
        let (lease, granted, duration) = self.lease?;
        (now.boot.saturating_sub(granted.boot) < duration).then_some(lease)
    }

    fn version(&self) -> Version {
        Version(self.version.to_string().into())
    }
}

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

    async fn look(&self) -> Result<Sight, StoreError> {
        let state = self.state();
        let free = state.holder((self.now)()).is_none();
        Ok(Sight { free, record: state.record.clone(), version: state.version() })
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let now = (self.now)();
        let mut state = self.state();
        let ours = state.lease.is_some_and(|(lease, ..)| lease == bid.lease);
        if !ours && (state.holder(now).is_some() || state.version() != bid.seen) {
            return Err(refused("another holds the lease"));
        }
        state.lease = Some((bid.lease, now, bid.lease_duration));
        state.version += 1;
        let record = state.record.clone();
        drop(state);
        self.lock.changed.notify_waiters();
        Ok(Grant { record, date: Some(now.date()) })
    }

    async fn inaugurate(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        self.under(bid, |state, _| {
            let term = match state.record.term {
                Some(term) if state.record.nonce == Some(bid.nonce) => term,
                found => floor.max(found.unwrap_or_default() + 1),
            };
            state.record = Record {
                term: Some(term),
                holder: Some(Arc::clone(&bid.candidate)),
                nonce: Some(bid.nonce),
            };
            term
        })
    }

    async fn renew(&self, bid: &Bid) -> Result<(), StoreError> {
        self.under(bid, |state, now| state.lease = Some((bid.lease, now, bid.lease_duration)))
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        self.under(bid, |state, _| state.lease = None)
    }

    async fn changed(&self) {
        self.lock.changed.notified().await;
    }

    async fn examine(&self) -> Vec<Finding> {
        vec![Finding {
            subject: "store".into(),
            verdict: Verdict::Doubtful,
            detail: "memory: is this process's own; no other candidate sees it".to_owned(),
            remedy: Some("name a store that the candidates share, with --store".to_owned()),
        }]
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let mut state = self.state();
        if state.record.term.is_some() {
            return Ok(Vec::new());
        }
        state.record.term = Some(floor);
        Ok(vec![format!("a first term, {floor}")])
    }
}
