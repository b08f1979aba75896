//! The simulated Consul: a key that a session has locked, and a record in its value.
//!
//! The servers promise no more of a session than that it does not end before its TTL by itself: here it ends up to
//! twice that after its last renewal. It ends at once when its agent leaves. Either way the lock is kept from
//! others for the length of the lease. Another leader of the cluster counts all sessions anew. A bid is a
//! read, the creation of a session, and the lock, if nothing has changed since the read; a renewal is a read, and
//! that of the session.

use std::sync::Arc;
use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{Bid, Cause, Failure, LeaseId, Nonce, Record, Snapshot, StoreError, Successor};
use tenure::store::BreakOutcome;

use super::third_party::third_party;
use super::{Stage, Step, Store};

/// The key as a session has locked it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lock {
    /// The bid's.
    lease: LeaseId,
    /// The nonce of the acquisition; `None` for a third party.
    pub(super) nonce: Option<Nonce>,
    length: Duration,
    /// When the TTL of its session is over.
    pub(super) ends: Duration,
    /// When its session ends.
    pub(super) ended: Duration,
    /// Whether an operator is breaking it.
    is_breaking: bool,
}

impl Lock {
    fn new(lease: LeaseId, nonce: Option<Nonce>, length: Duration, since: Duration) -> Self {
        let ends = since + length;
        // As good as random.
        let share = u128::from(ends.subsec_nanos()) * 7_919 % 1_000;
        let late = u64::try_from(length.as_nanos() * share / 1_000).unwrap_or(u64::MAX);
        let ended = ends + Duration::from_nanos(late);
        Self { lease, nonce, length, ends, ended, is_breaking: false }
    }

    /// Counts the TTL anew.
    fn renewed(self, length: Duration, since: Duration) -> Self {
        Self { is_breaking: self.is_breaking, ..Self::new(self.lease, self.nonce, length, since) }
    }
}

/// The lock, and what is left of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key {
    pub(super) lock: Option<Lock>,
    /// Until when it is kept from others since its session has ended.
    pub(super) kept: Duration,
    /// How often another server has led, or an agent has left.
    disturbed: u64,
}

fn refused(why: &'static str) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, why))
}

fn conflict() -> StoreError {
    StoreError::RetryNow(Failure::new(Cause::Lease, "the key was modified concurrently"))
}

impl Store {
    /// Performs one request of an operation on the key.
    pub(super) fn step_key(
        &mut self,
        op: &Op,
        stage: Stage,
        time: Duration,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Step {
        self.end_session(time);
        match (op, stage) {
            (Op::Read, _) => Step::Done(Ok(Answer::Snapshot(self.see_key()))),
            (Op::Acquire(bid), _) => self.bid_for_key(bid, stage, time),
            (Op::Renew(bid), Stage::Second { .. }) => {
                Step::Done(self.renew_session(bid, time).map(|()| Answer::Done))
            }
            (Op::WriteTerm { bid, floor }, Stage::Second { seen }) => {
                let unchanged = self.unchanged(seen);
                let written = unchanged.map(|()| self.term_in_key(bid, *floor, wrote));
                Step::Done(written.map(Answer::Term))
            }
            (Op::WriteTerm { bid, .. }, _) if self.has_written(bid) => Step::Done(
                self.own_lock(bid)
                    .and_then(|_| self.record.term.ok_or_else(conflict))
                    .map(Answer::Term),
            ),
            (Op::SetSuccessor { bid, .. }, _)
                if self.own_lock(bid).is_ok() && !self.has_written(bid) =>
            {
                Step::Done(Err(refused("the record is another's")))
            }
            (Op::SetSuccessor { successor, .. }, Stage::Second { seen }) => {
                let named = self.unchanged(seen).map(|()| self.name_in_key(successor));
                Step::Done(named.map(|()| Answer::Done))
            }
            (Op::Release(_), Stage::Second { seen }) => {
                let freed = self.unchanged(seen).map(|()| self.unlock());
                Step::Done(freed.map(|()| Answer::Done))
            }
            (Op::Release(bid), _) => match self.key.lock.filter(|it| it.lease == bid.lease) {
                Some(_) => Step::More(Stage::Second { seen: self.changes }),
                None => Step::Done(Err(refused("the lease is not held"))),
            },
            (Op::Renew(bid) | Op::WriteTerm { bid, .. } | Op::SetSuccessor { bid, .. }, _) => {
                match self.own_lock(bid) {
                    Ok(_) => Step::More(Stage::Second { seen: self.changes }),
                    Err(error) => Step::Done(Err(error)),
                }
            }
        }
    }

    fn bid_for_key(&mut self, bid: &Bid, stage: Stage, time: Duration) -> Step {
        match stage {
            Stage::First if self.key.lock.is_some() => self.renews_if_own(bid),
            Stage::First if bid.seen == self.version => Step::More(Stage::Free),
            Stage::First => Step::Done(Err(refused("the key has changed since it was read"))),
            // The session counts from its creation on.
            Stage::Free => Step::More(Stage::Granted { seen: self.changes, since: time }),
            Stage::Granted { since, .. } => {
                if self.key.lock.is_some() {
                    return self.renews_if_own(bid);
                }
                let lock = Lock::new(bid.lease, Some(bid.nonce), bid.lease_duration, since);
                if self.version != bid.seen || time < self.key.kept || lock.ended <= time {
                    return Step::Done(Err(refused("changed, kept from others, or too late")));
                }
                self.key.lock = Some(lock);
                self.changed_hands();
                Step::Done(self.grant(time))
            }
            _ => Step::Done(self.renew_session(bid, time).and_then(|()| self.grant(time))),
        }
    }

    fn renews_if_own(&self, bid: &Bid) -> Step {
        match self.own_lock(bid) {
            Ok(_) => Step::More(Stage::Second { seen: self.changes }),
            Err(error) => Step::Done(Err(error)),
        }
    }

    /// Counts the session of a bid anew, whatever has become of its lease meanwhile.
    fn renew_session(&mut self, bid: &Bid, time: Duration) -> Result<(), StoreError> {
        let lock = self.key.lock.filter(|it| it.lease == bid.lease);
        let lock = lock.ok_or_else(|| refused("the session has ended"))?;
        self.key.lock = Some(lock.renewed(bid.lease_duration, time));
        Ok(())
    }

    /// Returns the lock, if it is of this bid, and is not being broken.
    fn own_lock(&self, bid: &Bid) -> Result<Lock, StoreError> {
        let of = |it: &Lock| it.lease == bid.lease && !it.is_breaking;
        self.key.lock.filter(of).ok_or_else(|| refused("the lease is not held"))
    }

    fn has_written(&self, bid: &Bid) -> bool {
        self.record.nonce == Some(bid.nonce)
    }

    fn unchanged(&self, seen: u64) -> Result<(), StoreError> {
        if seen == self.changes { Ok(()) } else { Err(conflict()) }
    }

    fn term_in_key(&mut self, bid: &Bid, floor: u64, wrote: &mut Option<(u64, Nonce)>) -> u64 {
        let term = (self.record.term.unwrap_or(0) + 1).max(floor);
        let (holder, nonce) = (Some(Arc::clone(&bid.candidate)), Some(bid.nonce));
        self.record = Record { term: Some(term), holder, nonce, successor: None };
        *wrote = Some((term, bid.nonce));
        self.changed_hands();
        term
    }

    fn name_in_key(&mut self, successor: &Successor) {
        let successor = Some(successor.as_stored());
        if self.record.successor != successor {
            self.record.successor = successor;
            self.changed_hands();
        }
    }

    /// Gives the lock back, which keeps it from nobody.
    fn unlock(&mut self) {
        self.key.lock = None;
        self.changed_hands();
    }

    /// Ends a session whose time is over.
    fn end_session(&mut self, time: Duration) {
        if let Some(lock) = self.key.lock.take_if(|it| it.ended <= time) {
            self.lost(lock, lock.ended);
        }
    }

    /// The session of a lock has ended.
    fn lost(&mut self, lock: Lock, at: Duration) {
        self.key.lock = None;
        self.key.kept = self.key.kept.max(at + lock.length);
        self.changed_hands();
    }

    fn see_key(&self) -> Snapshot {
        Snapshot {
            free: self.key.lock.is_none(),
            record: self.record.clone(),
            version: self.version.clone(),
            claim: None,
            ends_in: None,
        }
    }

    /// Returns whether the lease is held, or kept from others.
    pub(super) fn is_kept(&mut self, time: Duration) -> bool {
        self.end_session(time);
        self.key.lock.is_some() || time < self.key.kept
    }

    /// Returns when the lease can be acquired that is not renewed.
    pub(super) fn kept_until(&self) -> Duration {
        self.key.lock.map_or(self.key.kept, |it| it.ended + it.length)
    }

    /// Returns whether this lease has the lock, which is not being broken.
    pub(super) fn has_lock(&self, lease: LeaseId) -> bool {
        self.key.lock.is_some_and(|it| it.lease == lease && !it.is_breaking)
    }

    /// An operator gives the lock back, or marks it so that it is not renewed.
    pub(super) fn break_lock(&mut self, at_once: bool, time: Duration) -> BreakOutcome {
        self.end_session(time);
        let Some(lock) = &mut self.key.lock else { return BreakOutcome::NotHeld };
        let free_in = lock.ended + lock.length - time;
        lock.is_breaking = true;
        let record = self.record.clone();
        if at_once {
            self.unlock();
            return BreakOutcome::Held { record, free_in: Duration::ZERO };
        }
        self.changed_hands();
        BreakOutcome::Held { record, free_in }
    }

    /// A program of another kind locks the key, for `length`: instead of whoever has, or only if none has.
    pub(super) fn take_lock(
        &mut self,
        number: u64,
        length: Option<Duration>,
        free_only: bool,
        time: Duration,
    ) {
        self.end_session(time);
        let held = self.key.lock.map(|it| it.length);
        let is_taken = free_only && (held.is_some() || time < self.key.kept);
        let Some(length) = length.or(held).filter(|_| !is_taken) else { return };
        self.key.lock = Some(Lock::new(third_party(number), None, length, time));
        self.changed_hands();
    }

    /// Another server leads the cluster, and counts the session anew; each second time the agent leaves that the
    /// session was created at, which ends it.
    pub(super) fn disturb(&mut self, time: Duration) {
        self.end_session(time);
        self.key.disturbed += 1;
        let Some(lock) = self.key.lock else { return };
        if self.key.disturbed.is_multiple_of(2) {
            return self.lost(lock, time);
        }
        self.key.lock = Some(lock.renewed(lock.length, time));
    }
}
