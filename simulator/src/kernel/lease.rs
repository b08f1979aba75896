//! The store and its network, as far as a course needs them: answers after a while, none while the
//! store is away, and a lease that is freed behind the holder's back.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure::election::{Answer, Op, Request, RequestId};
use tenure::lease::{Bid, Rules, StoreError};

use crate::store::{Kind, Stage, Step, Store};
use crate::{Instant, MILLI, Span};

/// How long a request takes.
const LATENCY: Span = 100 * MILLI;

#[derive(Debug)]
pub struct Lease {
    store: Store,
    /// Requests in flight, with the instants of their answers by the clock of timers.
    flying: VecDeque<(Instant, Request)>,
    /// It answers no request that is sent before this.
    pub away_until: Instant,
    /// The bid of the last acquisition.
    bid: Option<Arc<Bid>>,
}

impl Default for Lease {
    fn default() -> Self {
        let store = Store::new(Kind::Host, 0);
        Self { store, flying: VecDeque::new(), away_until: 0, bid: None }
    }
}

impl Lease {
    pub fn rules(&self) -> Rules {
        self.store.rules()
    }

    /// Sends a request.
    pub fn send(&mut self, request: Request, now: Instant, awake: Instant) {
        if let Op::Acquire(bid) = &request.op {
            self.bid = Some(Arc::clone(bid));
        }
        if now >= self.away_until {
            self.flying.push_back((awake + LATENCY, request));
        }
    }

    /// Returns when the next answer arrives, by the clock of timers.
    pub fn next(&self) -> Option<Instant> {
        self.flying.front().map(|(at, _)| *at)
    }

    /// Returns the next answer that has arrived.
    pub fn answer(
        &mut self,
        now: Instant,
        awake: Instant,
    ) -> Option<(RequestId, Result<Answer, StoreError>)> {
        let is_due = self.next().is_some_and(|at| at <= awake);
        let (_, Request { id, op, .. }) = is_due.then(|| self.flying.pop_front()).flatten()?;
        Some((id, self.perform(&op, now)))
    }

    fn perform(&mut self, op: &Op, now: Instant) -> Result<Answer, StoreError> {
        let mut stage = Stage::First;
        loop {
            match self.store.step(op, stage, now, &mut None) {
                Step::Done(answer) => return answer,
                Step::More(next) => stage = next,
            }
        }
    }

    /// Frees the lease behind the holder's back.
    pub fn free(&mut self, now: Instant) {
        if let Some(bid) = self.bid.clone() {
            let _ = self.perform(&Op::Release(bid), now);
        }
    }
}
