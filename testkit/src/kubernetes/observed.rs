//! A handle of a store that counts no time, with the observation that an election makes of it: the
//! lease is free here once the same claim has been seen for its whole duration, by a clock of the
//! test's own.
//!
//! What it does not do: it judges bids by what was seen last and by nothing else. A bid that was let
//! through once is repeated without a look, as R5 has it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure::clock::Moment;
use tenure::election::Observation;
use tenure::store::{
    Bid, Broken, Cause, Failure, Finding, Grant, LeaseId, LeaseStore, Rules, Sight, StoreError,
    Successor,
};

/// What all observers of one lock share: a clock that the test turns, and what was seen when.
#[derive(Clone, Default)]
pub struct Observers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    ms: AtomicU64,
    seen: Mutex<Option<Observation>>,
}

impl Observers {
    /// Moves the clock on. Who wants this time to count must have looked before.
    pub fn pass(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).expect("not so long");
        self.0.ms.fetch_add(ms, Ordering::SeqCst);
    }

    fn now(&self) -> Moment {
        let at = Duration::from_millis(1_000_000 + self.0.ms.load(Ordering::SeqCst));
        Moment { boot: at, raw: at, wall: at }
    }

    /// Takes in what a look has shown; says whether the lease may be had.
    fn see(&self, sight: &Sight) -> bool {
        let now = self.now();
        let mut seen = self.0.seen.lock().expect("no test panicked with it");
        *seen = Observation::see(seen.take(), sight, now);
        sight.free || seen.as_ref().is_some_and(|it| it.left(now).is_zero())
    }

    /// One more observer, with a handle of its own.
    pub fn handle(&self, store: Arc<dyn LeaseStore>) -> Observed {
        Observed { store, observers: self.clone(), last: Mutex::default() }
    }
}

/// One handle.
pub struct Observed {
    store: Arc<dyn LeaseStore>,
    observers: Observers,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// Whether the last look showed it free.
    free: bool,
    /// The bids that were let through.
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

    async fn look(&self) -> Result<Sight, StoreError> {
        let mut sight = self.store.look().await?;
        sight.free = self.observers.see(&sight);
        self.last.lock().expect("no test panicked with it").free = sight.free;
        Ok(sight)
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

    async fn inaugurate(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        self.store.inaugurate(bid, floor).await
    }

    async fn renew(&self, bid: &Bid) -> Result<(), StoreError> {
        self.store.renew(bid).await
    }

    async fn nominate(&self, bid: &Bid, successor: &Successor) -> Result<(), StoreError> {
        self.store.nominate(bid, successor).await
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        self.store.release(bid).await
    }

    async fn break_lease(&self, at_once: bool) -> Result<Broken, StoreError> {
        self.store.break_lease(at_once).await
    }

    async fn changed(&self) {
        self.store.changed().await;
    }

    async fn examine(&self) -> Vec<Finding> {
        self.store.examine().await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        self.store.create(floor).await
    }
}
