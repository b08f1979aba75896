//! The simulated etcd: a claim under a lease that the cluster counts, and a record that stays.
//!
//! A lease ends at its time, and is not renewed after it; its claim is deleted up to a quarter of it and
//! half a second later. Another leader of the cluster counts all leases anew. A bid is a read, the grant of
//! a lease, and the claim, if nothing has changed since the read; a renewal is a read and a keepalive.

use std::sync::Arc;
use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{
    Bid, Cause, Failure, LeaseId, Nonce, Record, Snapshot, StoreError, Successor, Version,
};
use tenure::store::BreakOutcome;

use super::third_party::third_party;
use super::{Stage, Step, Store};

/// How many leases without a claim are kept. Late copies of bids leave some; etcd keeps all.
const KEPT: usize = 8;

/// A lease of the cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    lease: LeaseId,
    length: Duration,
    /// Until when it may be renewed.
    pub(super) ends: Duration,
    /// When its claim is deleted.
    pub(super) deleted: Duration,
}

/// The claim, which is deleted with its lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) counted: Counted,
    /// The nonce of the acquisition; `None` for a third party.
    pub(super) nonce: Option<Nonce>,
    /// Whether an operator is breaking it.
    is_breaking: bool,
}

/// The leases of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) claim: Option<Claim>,
    /// Those without a claim, the latest last.
    unclaimed: Vec<Counted>,
}

impl Counted {
    fn new(lease: LeaseId, length: Duration, time: Duration) -> Self {
        let ends = time + length;
        // As good as random.
        let share = u128::from(ends.subsec_nanos()) * 7_919 % 1_000;
        let most = (length / 4 + Duration::from_millis(500)).as_nanos();
        let late = u64::try_from(most * share / 1_000).unwrap_or(u64::MAX);
        Self { lease, length, ends, deleted: ends + Duration::from_nanos(late) }
    }

    fn again(&self, time: Duration) -> Self {
        Self::new(self.lease, self.length, time)
    }
}

fn refused(why: &'static str) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, why))
}

fn conflict() -> StoreError {
    StoreError::RetryNow(Failure::new(Cause::Lease, "the keys were modified concurrently"))
}

impl Store {
    /// Performs one request of an operation on the keys.
    pub(super) fn step_cluster(
        &mut self,
        op: &Op,
        stage: Stage,
        time: Duration,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Step {
        self.delete_ended(time);
        let done = match (op, stage) {
            (Op::Read, _) => Ok(Answer::Snapshot(self.see_keys())),
            (Op::Acquire(bid), Stage::First) if self.cluster.claim.is_some() => {
                return self.if_ours(bid, Stage::Claimed);
            }
            (Op::Acquire(bid), Stage::First) if bid.seen != self.version => {
                Err(refused("the record has changed since it was read"))
            }
            (Op::Acquire(bid), Stage::First) => {
                let seen = self.changes;
                return Step::More(match self.grant_lease(bid, time) {
                    true => Stage::Second { seen },
                    false => Stage::Third { seen },
                });
            }
            (Op::Acquire(bid), Stage::Second { seen } | Stage::Third { seen }) => {
                let is_new = matches!(stage, Stage::Second { .. });
                match self.claim_lease(bid, seen) {
                    Ok(true) if is_new => self.grant(time),
                    Ok(true) => return Step::More(Stage::Claimed),
                    Ok(false) => return self.if_ours(bid, Stage::Claimed),
                    Err(error) => Err(error),
                }
            }
            (Op::Acquire(bid), _) => self.keep(bid, time).and_then(|()| self.grant(time)),
            (Op::Renew(bid), Stage::First) => return self.if_ours(bid, Stage::Claimed),
            (Op::Renew(bid), _) => self.keep(bid, time).map(|()| Answer::Done),
            (Op::WriteTerm { bid, .. } | Op::SetSuccessor { bid, .. }, Stage::First) => {
                let is_written = self.record.nonce == Some(bid.nonce);
                match (op, self.record.term) {
                    _ if !self.is_ours(bid) => Err(refused("the lease is not held")),
                    (Op::WriteTerm { .. }, Some(term)) if is_written => Ok(Answer::Term(term)),
                    (Op::SetSuccessor { .. }, _) if !is_written => {
                        Err(refused("the record is another's"))
                    }
                    _ => return Step::More(Stage::Second { seen: self.changes }),
                }
            }
            (Op::WriteTerm { bid, floor }, Stage::Second { seen }) => {
                self.put_term(bid, *floor, seen, wrote).map(Answer::Term)
            }
            (Op::SetSuccessor { bid, successor }, Stage::Second { seen }) => {
                self.put_successor(bid, successor, seen).map(|()| Answer::Done)
            }
            (Op::Release(bid), Stage::First) => {
                let is_ours = self.cluster.claim.is_some_and(|it| it.counted.lease == bid.lease);
                if is_ours {
                    self.cluster.unclaimed.extend(self.cluster.claim.take().map(|it| it.counted));
                    self.keys_changed();
                }
                return Step::More(Stage::Second { seen: u64::from(is_ours) });
            }
            (Op::Release(bid), Stage::Second { seen }) => {
                self.revoke(bid.lease);
                match seen {
                    0 => Err(refused("the lease is not held")),
                    _ => Ok(Answer::Done),
                }
            }
            _ => unreachable!("{op:?} has no {stage:?}"),
        };
        Step::Done(done)
    }

    /// Returns whether the claim is of this bid, and not being broken.
    fn is_ours(&self, bid: &Bid) -> bool {
        let of = |it: &&Claim| it.counted.lease == bid.lease && it.nonce == Some(bid.nonce);
        self.cluster.claim.as_ref().filter(of).is_some_and(|it| !it.is_breaking)
    }

    fn if_ours(&self, bid: &Bid, then: Stage) -> Step {
        match self.is_ours(bid) {
            true => Step::More(then),
            false => Step::Done(Err(refused("the lease is held by another, or has ended"))),
        }
    }

    /// Deletes what belongs to leases that have ended long enough ago.
    pub(super) fn delete_ended(&mut self, time: Duration) {
        self.cluster.unclaimed.retain(|it| time < it.deleted);
        if self.cluster.claim.take_if(|it| it.counted.deleted <= time).is_some() {
            self.keys_changed();
        }
    }

    /// Grants the lease of a bid; returns whether there was none.
    fn grant_lease(&mut self, bid: &Bid, time: Duration) -> bool {
        if self.cluster.unclaimed.iter().any(|it| it.lease == bid.lease) {
            return false;
        }
        if self.cluster.unclaimed.len() == KEPT {
            self.cluster.unclaimed.remove(0);
        }
        self.cluster.unclaimed.push(Counted::new(bid.lease, bid.lease_duration, time));
        true
    }

    /// Puts the claim of a bid, if nothing has changed since it was read; returns whether that is so.
    fn claim_lease(&mut self, bid: &Bid, seen: u64) -> Result<bool, StoreError> {
        if self.cluster.claim.is_some() || self.changes != seen {
            return Ok(false);
        }
        let Some(at) = self.cluster.unclaimed.iter().position(|it| it.lease == bid.lease) else {
            let gone = Failure::new(Cause::Unavailable, "requested lease not found");
            return Err(StoreError::Unknown(gone));
        };
        let counted = self.cluster.unclaimed.remove(at);
        let nonce = Some(bid.nonce);
        self.cluster.claim = Some(Claim { counted, nonce, is_breaking: false });
        self.keys_changed();
        Ok(true)
    }

    /// Counts the lease of a bid anew, whether or not it has a claim.
    fn keep(&mut self, bid: &Bid, time: Duration) -> Result<(), StoreError> {
        let claimed = self.cluster.claim.as_mut().map(|it| &mut it.counted);
        let mut all = claimed.into_iter().chain(&mut self.cluster.unclaimed);
        match all.find(|it| it.lease == bid.lease && time < it.ends) {
            Some(it) => {
                *it = it.again(time);
                Ok(())
            }
            None => Err(refused("the lease expired")),
        }
    }

    fn put_term(
        &mut self,
        bid: &Bid,
        floor: u64,
        seen: u64,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Result<u64, StoreError> {
        if seen != self.changes {
            let is_written = self.record.nonce == Some(bid.nonce);
            return match self.record.term {
                _ if !self.is_ours(bid) => Err(refused("the lease is not held")),
                Some(term) if is_written => Ok(term),
                _ => Err(conflict()),
            };
        }
        let term = (self.record.term.unwrap_or(0) + 1).max(floor);
        let (holder, nonce) = (Some(Arc::clone(&bid.candidate)), Some(bid.nonce));
        self.put_record(Record { term: Some(term), holder, nonce, successor: None });
        *wrote = Some((term, bid.nonce));
        Ok(term)
    }

    fn put_successor(
        &mut self,
        bid: &Bid,
        successor: &Successor,
        seen: u64,
    ) -> Result<(), StoreError> {
        if seen != self.changes {
            let ours = self.is_ours(bid).then(conflict);
            return Err(ours.unwrap_or_else(|| refused("the lease is not held")));
        }
        let successor = Some(successor.as_stored());
        if self.record.successor != successor {
            self.put_record(Record { successor, ..self.record.clone() });
        }
        Ok(())
    }

    fn put_record(&mut self, record: Record) {
        self.record = record;
        self.keys_changed();
        self.version = Version(Arc::from(self.changes.to_string()));
    }

    /// Ends a lease, and deletes its claim.
    fn revoke(&mut self, lease: LeaseId) {
        self.cluster.unclaimed.retain(|it| it.lease != lease);
        if self.cluster.claim.take_if(|it| it.counted.lease == lease).is_some() {
            self.keys_changed();
        }
    }

    /// Records a change of the claim, which is not one of the record.
    fn keys_changed(&mut self) {
        self.changes += 1;
        self.news += 1;
    }

    fn see_keys(&self) -> Snapshot {
        Snapshot {
            free: self.cluster.claim.is_none(),
            record: self.record.clone(),
            version: self.version.clone(),
            claim: None,
            ends_in: None,
        }
    }

    /// Whether this lease has the claim, which is not being broken.
    pub(super) fn claims(&self, lease: LeaseId) -> bool {
        self.cluster.claim.is_some_and(|it| it.counted.lease == lease && !it.is_breaking)
    }

    /// An operator breaks the lease: its claim is deleted now, or marked so that it is not renewed.
    pub(super) fn break_claim(&mut self, at_once: bool, time: Duration) -> BreakOutcome {
        self.delete_ended(time);
        let Some(claim) = &mut self.cluster.claim else { return BreakOutcome::NotHeld };
        let free_in = claim.counted.deleted.saturating_sub(time);
        claim.is_breaking = true;
        if at_once {
            self.cluster.unclaimed.extend(self.cluster.claim.take().map(|it| it.counted));
        }
        self.keys_changed();
        let free_in = if at_once { Duration::ZERO } else { free_in };
        BreakOutcome::Held { record: self.record.clone(), free_in }
    }

    /// A program of another kind puts a claim, for `length`: over whoever has it, or only if none has.
    pub(super) fn take_claim(
        &mut self,
        number: u64,
        length: Option<Duration>,
        free_only: bool,
        time: Duration,
    ) {
        self.delete_ended(time);
        let held = self.cluster.claim.map(|it| it.counted.length);
        let Some(length) = length.or(held).filter(|_| !(free_only && held.is_some())) else {
            return;
        };
        let counted = Counted::new(third_party(number), length, time);
        self.cluster.claim = Some(Claim { counted, nonce: None, is_breaking: false });
        self.keys_changed();
    }

    /// Another member leads the cluster, and counts all leases anew.
    pub(super) fn promote(&mut self, time: Duration) {
        self.delete_ended(time);
        if let Some(claim) = &mut self.cluster.claim {
            claim.counted = claim.counted.again(time);
        }
        self.cluster.unclaimed.iter_mut().for_each(|it| *it = it.again(time));
    }
}
