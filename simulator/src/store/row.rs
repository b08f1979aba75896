//! The simulated PostgreSQL: a row with a claim, which ends at a time of the server's clock, and a record.
//! Each request is one transaction. After a failover to a synchronous standby, which has every commit,
//! another clock counts. Two keys of Redis are the same, with one script for each request, and a clock that
//! is stepped.

use std::sync::Arc;
use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{Bid, Cause, Failure, LeaseId, Nonce, Record, Snapshot, StoreError, Successor};
use tenure::store::BreakOutcome;

use super::third_party::third_party;
use super::{Kind, Step, Store};

/// What the clock of Redis counts in.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// The claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The bid's.
    lease: LeaseId,
    /// The nonce of the acquisition; `None` for a third party.
    pub(super) nonce: Option<Nonce>,
    length: Duration,
    /// When it ends.
    pub(super) ends: Duration,
    /// Whether an operator is breaking it.
    is_breaking: bool,
}

fn refused(why: &'static str) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, why))
}

impl Store {
    /// Performs an operation on the row.
    pub(super) fn step_row(
        &mut self,
        op: &Op,
        time: Duration,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Step {
        Step::Done(match op {
            Op::Read => Ok(Answer::Snapshot(self.see_row(time))),
            Op::Acquire(bid) => self.claim_row(bid, time),
            Op::Renew(bid) => self.extend_row(bid, time).map(|()| Answer::Done),
            Op::WriteTerm { bid, floor } => {
                self.put_term_in_row(bid, *floor, time, wrote).map(Answer::Term)
            }
            Op::SetSuccessor { bid, successor } => {
                self.name_in_row(bid, successor, time).map(|()| Answer::Done)
            }
            Op::Release(bid) => match self.live(time).filter(|it| it.lease == bid.lease) {
                Some(_) => {
                    self.row = None;
                    self.changed_hands();
                    Ok(Answer::Done)
                }
                None => Err(refused("the lease is not held")),
            },
        })
    }

    /// Returns when a claim ends that is counted from now on. Redis knows the millisecond, and keeps a key
    /// until the last one is over.
    fn end(&self, time: Duration, length: Duration) -> Duration {
        if self.kind != Kind::Keys {
            return time + length;
        }
        let whole = |it: Duration| it.as_nanos() / TICK.as_nanos();
        let last = whole(time) + whole(length + TICK - Duration::from_nanos(1));
        Duration::from_millis(u64::try_from(last).unwrap_or(u64::MAX - 1) + 1)
    }

    /// Returns the claim, if it has not ended.
    pub(super) fn live(&self, time: Duration) -> Option<Claim> {
        self.row.filter(|it| time < it.ends)
    }

    /// Returns the claim, if it has not ended, is of this bid, and is not being broken.
    fn own(&self, bid: &Bid, time: Duration) -> Result<Claim, StoreError> {
        let of = |it: &Claim| it.lease == bid.lease && !it.is_breaking;
        self.live(time).filter(of).ok_or_else(|| refused("the lease is not held"))
    }

    fn see_row(&self, time: Duration) -> Snapshot {
        let live = self.live(time);
        Snapshot {
            free: live.is_none(),
            record: self.record.clone(),
            version: self.version.clone(),
            claim: None,
            ends_in: live.map(|it| it.ends - time),
        }
    }

    fn claim_row(&mut self, bid: &Bid, time: Duration) -> Result<Answer, StoreError> {
        let again = self.own(bid, time).is_ok();
        if !again && (self.live(time).is_some() || self.version != bid.seen) {
            return Err(refused("held by another, or not as it was seen"));
        }
        self.row = Some(Claim {
            lease: bid.lease,
            nonce: Some(bid.nonce),
            length: bid.lease_duration,
            ends: self.end(time, bid.lease_duration),
            is_breaking: false,
        });
        self.changed_hands();
        self.grant(time)
    }

    fn extend_row(&mut self, bid: &Bid, time: Duration) -> Result<(), StoreError> {
        let claim = self.own(bid, time)?;
        self.row = Some(Claim { ends: self.end(time, bid.lease_duration), ..claim });
        Ok(())
    }

    fn put_term_in_row(
        &mut self,
        bid: &Bid,
        floor: u64,
        time: Duration,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Result<u64, StoreError> {
        self.own(bid, time)?;
        if let Some(term) = self.record.term.filter(|_| self.record.nonce == Some(bid.nonce)) {
            return Ok(term);
        }
        let term = (self.record.term.unwrap_or(0) + 1).max(floor);
        let (holder, nonce) = (Some(Arc::clone(&bid.candidate)), Some(bid.nonce));
        self.record = Record { term: Some(term), holder, nonce, successor: None };
        *wrote = Some((term, bid.nonce));
        self.changed_hands();
        Ok(term)
    }

    fn name_in_row(
        &mut self,
        bid: &Bid,
        successor: &Successor,
        time: Duration,
    ) -> Result<(), StoreError> {
        self.own(bid, time)?;
        if self.record.nonce != Some(bid.nonce) {
            return Err(refused("the record is another's"));
        }
        let successor = Some(successor.as_stored());
        if self.record.successor != successor {
            self.record.successor = successor;
            self.changed_hands();
        }
        Ok(())
    }

    /// Returns whether this lease has the claim, which is not being broken.
    pub(super) fn has_row(&self, lease: LeaseId) -> bool {
        self.row.is_some_and(|it| it.lease == lease && !it.is_breaking)
    }

    /// An operator ends the claim, or marks it so that it is not renewed.
    pub(super) fn break_row(&mut self, at_once: bool, time: Duration) -> BreakOutcome {
        let Some(claim) = self.live(time) else { return BreakOutcome::NotHeld };
        let record = self.record.clone();
        if at_once {
            self.row = None;
            self.changed_hands();
            return BreakOutcome::Held { record, free_in: Duration::ZERO };
        }
        self.row = Some(Claim { is_breaking: true, ..claim });
        self.news += 1;
        BreakOutcome::Held { record, free_in: claim.ends - time }
    }

    /// A program of another kind writes a claim, for `length`: over whoever has it, or only if none has.
    pub(super) fn take_row(
        &mut self,
        number: u64,
        length: Option<Duration>,
        free_only: bool,
        time: Duration,
    ) {
        let held = self.live(time).map(|it| it.length);
        let Some(length) = length.or(held).filter(|_| !(free_only && held.is_some())) else {
            return;
        };
        let (lease, ends) = (third_party(number), self.end(time, length));
        self.row = Some(Claim { lease, nonce: None, length, ends, is_breaking: false });
        self.changed_hands();
    }

    /// Lets clocks count that differ by up to this much from one failover to the next.
    #[must_use]
    pub fn with_clocks_apart(mut self, apart: Duration) -> Self {
        self.apart = apart;
        self
    }

    /// A synchronous standby is the primary from now on, with its own clock; or the one clock is stepped.
    pub(super) fn fail_over(&mut self) {
        self.failovers += 1;
        // As good as random, from minus to plus one half.
        let share = self.failovers.wrapping_mul(7_919) % 1_001;
        let apart = i64::try_from(self.apart.as_nanos()).unwrap_or(0);
        self.ahead = apart / 1_000 * (share.cast_signed() - 500);
    }
}
