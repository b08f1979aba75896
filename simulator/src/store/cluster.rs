//! The simulated etcd: a claim under a lease that the cluster counts, and a record that stays.
//!
//! A claim is deleted up to a quarter of its lease and half a second after the end of that. Another leader
//! of the cluster counts all leases anew. A bid is a read, the grant of a lease, and the claim, if nothing
//! has changed since the read; a renewal moves the claim to a new lease, whose time counts from its grant.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{
    Bid, Cause, Failure, Grant, LeaseId, Nonce, Record, Snapshot, StoreError, Successor, Version,
};
use tenure::store::BreakOutcome;

use super::row::TICK;
use super::third_party::third_party;
use super::{Kind, Stage, Step, Store};

/// How many leases without a claim are kept. Late copies of bids leave some; etcd keeps all.
const KEPT: usize = 8;

/// A lease of the cluster, which a bid or a renewal was granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    length: Duration,
    /// When its time is over.
    pub(super) ends: Duration,
    /// When its claim is deleted.
    pub(super) deleted: Duration,
}

/// The claim, which is deleted with its lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The bid's.
    lease: LeaseId,
    pub(super) counted: Counted,
    /// The nonce of the acquisition; `None` for a third party.
    pub(super) nonce: Option<Nonce>,
    /// Whether an operator is breaking it.
    is_breaking: bool,
    /// The change that wrote it last.
    written: u64,
}

/// The claim, and the leases of bids that have none yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) claim: Option<Claim>,
    /// The latest last.
    unclaimed: Vec<(LeaseId, Counted)>,
}

impl Counted {
    fn new(length: Duration, time: Duration) -> Self {
        let ends = time + length;
        // As good as random.
        let share = u128::from(ends.subsec_nanos()) * 7_919 % 1_000;
        let late = u64::try_from(latest(length).as_nanos() * share / 1_000).unwrap_or(u64::MAX);
        Self { length, ends, deleted: ends + Duration::from_nanos(late) }
    }
}

/// Returns how long after the end of a lease its claim is deleted at most.
fn latest(length: Duration) -> Duration {
    length / 4 + Duration::from_millis(500)
}

fn refused(why: &'static str) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, why))
}

/// Returns the version of a claim.
fn version(written: u64) -> Version {
    Version(written.to_string().into())
}

fn revision(version: &Version) -> Option<u64> {
    version.0.parse().ok()
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
        match op {
            Op::Read => Step::Done(Ok(Answer::Snapshot(self.see_keys()))),
            Op::Acquire(bid) => self.bid_for_claim(bid, stage, time),
            Op::Renew(bid) => self.renew_claim(bid, stage, time),
            Op::WriteTerm { bid, floor } => match stage {
                Stage::Second { seen } => {
                    Step::Done(self.put_term(bid, *floor, seen, wrote).map(Answer::Term))
                }
                _ => match self.record.term.filter(|_| self.record.nonce == Some(bid.nonce)) {
                    Some(term) if self.is_ours(bid) => Step::Done(Ok(Answer::Term(term))),
                    _ => self.read_claim(bid),
                },
            },
            Op::SetSuccessor { bid, successor } => match stage {
                Stage::Second { seen } => {
                    Step::Done(self.put_successor(bid, successor, seen).map(|()| Answer::Done))
                }
                _ if self.record.nonce != Some(bid.nonce) => {
                    Step::Done(Err(refused("the record is another's")))
                }
                _ => self.read_claim(bid),
            },
            Op::Release(bid) => self.release_claim(bid, stage),
        }
    }

    fn bid_for_claim(&mut self, bid: &Bid, stage: Stage, time: Duration) -> Step {
        match stage {
            Stage::First if self.cluster.claim.is_some() => self.if_ours(bid),
            Stage::First if bid.seen == self.version => Step::More(Stage::Free),
            Stage::First => Step::Done(Err(refused("the record has changed since it was read"))),
            Stage::Free => Step::More(self.grant_lease(bid, time)),
            Stage::Unclaimed { is_new } => match self.put_claim(bid) {
                Ok(written) if is_new => Step::Done(self.grant_claim(written, time)),
                Ok(written) => Step::More(Stage::Second { seen: written }),
                Err(_) if self.cluster.claim.is_some() => self.if_ours(bid),
                Err(error) => Step::Done(Err(error)),
            },
            Stage::Granted { .. } | Stage::Again { .. } if self.cluster.claim.is_none() => {
                Step::Done(Err(conflict()))
            }
            _ => match self.move_claim(bid, stage, time) {
                Continue(written) => Step::Done(self.grant_claim(written, time)),
                Break(step) => step,
            },
        }
    }

    fn renew_claim(&mut self, bid: &Bid, stage: Stage, time: Duration) -> Step {
        match (stage, bid.written.as_ref().and_then(revision)) {
            // Nothing is read, so the grant is the first request.
            (Stage::First, Some(seen)) => Step::More(Stage::Granted { seen, since: time }),
            (Stage::First, None) => self.if_ours(bid),
            _ => match self.move_claim(bid, stage, time) {
                Continue(written) => Step::Done(Ok(Answer::Written(version(written)))),
                Break(step) => step,
            },
        }
    }

    /// Counts the claim of a bid anew: grants a lease, and moves the claim to it. Returns the change, or
    /// what comes first.
    fn move_claim(&mut self, bid: &Bid, stage: Stage, time: Duration) -> ControlFlow<Step, u64> {
        let (seen, since) = match stage {
            Stage::Second { seen } => {
                return Break(Step::More(Stage::Granted { seen, since: time }));
            }
            Stage::Granted { seen, since } | Stage::Again { seen, since } => (seen, since),
            _ => unreachable!("{stage:?} is none of a renewal"),
        };
        match self.cluster.claim.filter(|_| self.is_ours(bid)) {
            Some(claim) if claim.written == seen => {
                let counted = Counted::new(bid.lease_duration, since);
                Continue(self.put(Claim { counted, ..claim }))
            }
            // By an earlier request of this bid.
            Some(claim) => Break(Step::More(Stage::Again { seen: claim.written, since })),
            None => Break(Step::Done(Err(refused("the lease is held by another, or has ended")))),
        }
    }

    fn read_claim(&self, bid: &Bid) -> Step {
        match self.is_ours(bid) {
            true => Step::More(Stage::Second { seen: self.changes }),
            false => Step::Done(Err(refused("the lease is not held"))),
        }
    }

    fn release_claim(&mut self, bid: &Bid, stage: Stage) -> Step {
        match stage {
            Stage::Second { seen } => {
                if self.cluster.claim.take_if(|it| it.written == seen).is_none() {
                    return Step::Done(Err(conflict()));
                }
                self.keys_changed();
                Step::More(Stage::Third { seen })
            }
            Stage::Third { seen } => {
                self.cluster.unclaimed.retain(|it| it.0 != bid.lease);
                let was_ours = seen > 0;
                let refused = || refused("the lease is not held");
                Step::Done(was_ours.then_some(Answer::Done).ok_or_else(refused))
            }
            _ => match self.cluster.claim.filter(|it| it.lease == bid.lease) {
                Some(claim) => Step::More(Stage::Second { seen: claim.written }),
                None => Step::More(Stage::Third { seen: 0 }),
            },
        }
    }

    /// Returns whether the claim is of this bid, and not being broken.
    fn is_ours(&self, bid: &Bid) -> bool {
        let of = |it: &&Claim| it.lease == bid.lease && it.nonce == Some(bid.nonce);
        self.cluster.claim.as_ref().filter(of).is_some_and(|it| !it.is_breaking)
    }

    /// Goes on to count the claim of a bid anew.
    fn if_ours(&self, bid: &Bid) -> Step {
        match self.cluster.claim.filter(|_| self.is_ours(bid)) {
            Some(claim) => Step::More(Stage::Second { seen: claim.written }),
            None => Step::Done(Err(refused("the lease is held by another, or has ended"))),
        }
    }

    /// Deletes what belongs to leases that have ended long enough ago.
    fn delete_ended(&mut self, time: Duration) {
        self.cluster.unclaimed.retain(|(_, it)| time < it.deleted);
        if self.cluster.claim.take_if(|it| it.counted.deleted <= time).is_some() {
            self.keys_changed();
        }
    }

    /// Grants the lease of a bid, unless an earlier request of it has.
    fn grant_lease(&mut self, bid: &Bid, time: Duration) -> Stage {
        if self.cluster.unclaimed.iter().any(|it| it.0 == bid.lease) {
            return Stage::Unclaimed { is_new: false };
        }
        if self.cluster.unclaimed.len() == KEPT {
            self.cluster.unclaimed.remove(0);
        }
        let counted = Counted::new(bid.lease_duration, time);
        self.cluster.unclaimed.push((bid.lease, counted));
        Stage::Unclaimed { is_new: true }
    }

    /// Puts the claim of a bid under its lease, if the record is still what the bid has seen.
    fn put_claim(&mut self, bid: &Bid) -> Result<u64, StoreError> {
        if self.cluster.claim.is_some() || self.version != bid.seen {
            return Err(refused("the lease is held by another, or the record has changed"));
        }
        let Some(at) = self.cluster.unclaimed.iter().position(|it| it.0 == bid.lease) else {
            let gone = Failure::new(Cause::Unavailable, "requested lease not found");
            return Err(StoreError::Unknown(gone));
        };
        let (lease, counted) = self.cluster.unclaimed[at];
        let nonce = Some(bid.nonce);
        self.news += 1;
        Ok(self.put(Claim { lease, counted, nonce, is_breaking: false, written: 0 }))
    }

    /// Puts a claim, and returns the change.
    fn put(&mut self, claim: Claim) -> u64 {
        self.changes += 1;
        self.cluster.claim = Some(Claim { written: self.changes, ..claim });
        self.changes
    }

    fn grant_claim(&self, written: u64, time: Duration) -> Result<Answer, StoreError> {
        let Answer::Grant(grant) = self.grant(time)? else { unreachable!("it is a grant") };
        Ok(Answer::Grant(Grant { version: Some(version(written)), ..grant }))
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

    /// Records a change of who holds the lease, or of the record.
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

    /// Returns how long after the end of a lease it is free at most: when its claim is deleted, or when
    /// a clock that is behind counts.
    pub fn late(&self, lease: Duration) -> Duration {
        match self.kind {
            Kind::Cluster => latest(lease),
            Kind::Row => self.apart,
            Kind::Keys => self.apart + TICK,
            // Twice the TTL, and the lock-delay.
            Kind::Session => lease * 2,
            Kind::Ensemble => super::ensemble::latest(lease),
            Kind::Blob | Kind::Object | Kind::Bucket | Kind::Document | Kind::Host => {
                Duration::ZERO
            }
        }
    }

    /// Whether this lease has the claim, which is not being broken.
    pub(super) fn claims(&self, lease: LeaseId) -> bool {
        self.cluster.claim.is_some_and(|it| it.lease == lease && !it.is_breaking)
    }

    /// An operator breaks the lease: its claim is deleted now, or marked so that it is not renewed.
    pub(super) fn break_claim(&mut self, at_once: bool, time: Duration) -> BreakOutcome {
        self.delete_ended(time);
        let Some(claim) = &mut self.cluster.claim else { return BreakOutcome::NotHeld };
        let free_in = claim.counted.deleted.saturating_sub(time);
        let broken = Claim { is_breaking: true, ..*claim };
        self.put(broken);
        self.cluster.claim.take_if(|_| at_once);
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
        let (lease, counted) = (third_party(number), Counted::new(length, time));
        self.put(Claim { lease, counted, nonce: None, is_breaking: false, written: 0 });
        self.keys_changed();
    }

    /// Another member leads the cluster, and counts all leases anew.
    pub(super) fn promote(&mut self, time: Duration) {
        self.delete_ended(time);
        if let Some(claim) = &mut self.cluster.claim {
            claim.counted = Counted::new(claim.counted.length, time);
        }
        let unclaimed = &mut self.cluster.unclaimed;
        unclaimed.iter_mut().for_each(|(_, it)| *it = Counted::new(it.length, time));
    }
}
