//! A handle of a store that does not measure time, with the observation of an election: the lease
//! is free once the same claim was seen for its whole duration, by a clock that the test sets.
//!
//! A bid is accepted if the last read showed a free lease. Once accepted, it can be repeated
//! without another read, according to R5.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure::clock::Moment;
use tenure::election::Observation;
use tenure::lease::{
    Bid, Cause, Change, Failure, Grant, LeaseId, Rules, Snapshot, StoreError, Successor, Version,
};
use tenure::store::{BreakOutcome, Finding, LeaseAdmin, LeaseStore};

/// The shared state of all observers of one lock: a clock that the test advances, and the
/// observation.
#[derive(Clone, Default)]
pub struct Observers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    ms: AtomicU64,
    seen: Mutex<Option<Observation>>,
}

impl Observers {
    /// Advances the clock. The time only counts if the lock was read before.
    pub fn pass(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).expect("not so long");
        self.0.ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn now(&self) -> Moment {
        let at = Duration::from_millis(1_000_000 + self.0.ms.load(Ordering::SeqCst));
        Moment { boot: at, raw: at, wall: at }
    }

    /// Records the result of a read, and returns whether the lease is available.
    fn see(&self, snapshot: &Snapshot) -> bool {
        let now = self.now();
        let mut seen = self.0.seen.lock().expect("no test panicked with it");
        *seen = Observation::update(seen.take(), snapshot.claim.as_ref(), now);
        snapshot.free || seen.as_ref().is_some_and(|it| it.left(now).is_zero())
    }

    /// Creates one more observer, with a handle of its own.
    pub fn handle(&self, store: Arc<dyn LeaseAdmin>) -> Observed {
        Observed { store, observers: self.clone(), last: Mutex::default() }
    }
}

/// A handle.
pub struct Observed {
    store: Arc<dyn LeaseAdmin>,
    observers: Observers,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// Whether the last read showed a free lease.
    free: bool,
    /// The accepted bids.
    begun: Vec<LeaseId>,
}

#[async_trait]
impl LeaseStore for Observed {
    fn kind(&self) -> &'static str {
        self.store.kind()
    }

    fn rules(&self) -> Rules {
        self.store.rules()
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let mut snapshot = self.store.read().await?;
        snapshot.free = self.observers.see(&snapshot);
        self.last.lock().expect("no test panicked with it").free = snapshot.free;
        Ok(snapshot)
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        {
            let mut last = self.last.lock().expect("no test panicked with it");
            if !last.begun.contains(&bid.lease) {
                if !last.free {
                    let words = "nobody bids for what was not seen free";
                    return Err(StoreError::Refused(Failure::new(Cause::Lease, words)));
                }
                last.begun.push(bid.lease);
            }
        }
        self.store.acquire(bid).await
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        self.store.write_term(bid, floor).await
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        self.store.renew(bid).await
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        self.store.set_successor(bid, successor).await
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        self.store.release(bid).await
    }

    async fn changed(&self) -> Change {
        self.store.changed().await
    }
}

#[async_trait]
impl LeaseAdmin for Observed {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        self.store.break_lease(at_once).await
    }

    async fn examine(&self) -> Vec<Finding> {
        self.store.examine().await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        self.store.create(floor).await
    }
}
