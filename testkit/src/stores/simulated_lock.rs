//! The store of the simulation as a lease store, so that the conformance suite applies to it: each
//! call runs at once the steps that the simulation spreads over time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tenure::election::{Answer, Op};
use tenure::lease::{Bid, Grant, Rules, Snapshot, StoreError, Successor, Version};
use tenure::store::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, Verdict};

use simulator::store::{Kind, Stage, Step, Store};
use simulator::{Instant, span};

/// A simulated lock, and its current time.
#[derive(Clone)]
pub struct SimulatedLock(Arc<Mutex<(Store, Instant)>>);

impl SimulatedLock {
    /// Creates an unused lock.
    pub fn new(kind: Kind) -> Self {
        Self(Arc::new(Mutex::new((Store::new(kind, 0), 0))))
    }

    fn locked(&self) -> MutexGuard<'_, (Store, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the store's time.
    pub fn advance(&self, by: Duration) {
        self.locked().1 += span(by);
    }

    /// Deletes the lock as an outsider.
    pub fn delete(&self) {
        let (store, now) = &mut *self.locked();
        store.lose(true, *now);
    }

    /// Returns everything that it keeps.
    pub fn bytes(&self) -> Vec<u8> {
        format!("{:?}", self.locked().0).into_bytes()
    }

    fn ask(&self, op: &Op) -> Result<Answer, StoreError> {
        let (store, now) = &mut *self.locked();
        let mut stage = Stage::First;
        loop {
            match store.step(op, stage, *now, &mut None) {
                Step::Done(answer) => return answer,
                Step::More(next) => stage = next,
            }
        }
    }
}

impl fmt::Debug for SimulatedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedLock")
    }
}

#[async_trait]
impl LeaseStore for SimulatedLock {
    fn kind(&self) -> &'static str {
        "simulated"
    }

    fn rules(&self) -> Rules {
        self.locked().0.rules()
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        match self.ask(&Op::Read)? {
            Answer::Snapshot(snapshot) => Ok(snapshot),
            other => unreachable!("a read is answered by {other:?}"),
        }
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        match self.ask(&Op::Acquire(bid.clone().into()))? {
            Answer::Grant(grant) => Ok(grant),
            other => unreachable!("a bid is answered by {other:?}"),
        }
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        match self.ask(&Op::WriteTerm { bid: bid.clone().into(), floor })? {
            Answer::Term(term) => Ok(term),
            other => unreachable!("a term's write is answered by {other:?}"),
        }
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        self.ask(&Op::Renew(bid.clone().into())).map(|_| None)
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        self.ask(&Op::Release(bid.clone().into())).map(|_| ())
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let (bid, successor) = (bid.clone().into(), successor.clone());
        self.ask(&Op::SetSuccessor { bid, successor }).map(|_| None)
    }
}

#[async_trait]
impl LeaseAdmin for SimulatedLock {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let (store, now) = &mut *self.locked();
        Ok(store.break_lease(at_once.then_some(Duration::ZERO), *now))
    }

    async fn examine(&self) -> Vec<Finding> {
        let detail = "nothing but the simulation asks it".to_owned();
        vec![Finding { subject: "store".into(), verdict: Verdict::Passed, detail, remedy: None }]
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let (store, _) = &mut *self.locked();
        if store.term().is_some() {
            return Ok(Vec::new());
        }
        store.seed(floor);
        Ok(vec![format!("a first term, {floor}")])
    }
}
