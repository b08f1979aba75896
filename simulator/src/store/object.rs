//! The simulated Lease of Kubernetes, or object in a bucket: a value with compare-and-set, whose lease is
//! timed by its observers.
//!
//! Each operation is a read, and a write that fails if the object has changed since; the read is left out
//! where the candidate has the version that its last write returned.

use std::sync::Arc;
use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{
    Bid, Cause, Claim, Failure, LeaseId, Nonce, Record, Snapshot, StoreError, Version,
};
use tenure::store::BreakOutcome;

use super::third_party::third_party;
use super::{Stage, Step, Store};

/// The lease in the object.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    lease: LeaseId,
    /// The nonce of the acquisition; `None` for a third party.
    nonce: Option<Nonce>,
    pub(super) length: Duration,
    /// What changes with each renewal, as observers see it.
    spec: Version,
    /// Whether an operator has broken it.
    broken: bool,
    /// When it is over for an observer that saw the write. For the checker only.
    pub(super) until: Duration,
}

impl Standing {
    /// Returns the acquisition that a notice names.
    pub(super) fn named(&self) -> Option<Nonce> {
        self.nonce.filter(|_| !self.broken)
    }
}

/// Returns the version on which an operation writes without a read.
fn known(op: &Op) -> Option<&Version> {
    match op {
        Op::Read | Op::Acquire(_) => None,
        Op::Renew(bid)
        | Op::Release(bid)
        | Op::WriteTerm { bid, .. }
        | Op::SetSuccessor { bid, .. } => bid.written.as_ref(),
    }
}

fn not_ours() -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, "the lease is held by another"))
}

/// Returns the error of a write whose object changed since it was read.
fn conflict() -> StoreError {
    StoreError::RetryNow(Failure::new(Cause::Lease, "the object has been modified"))
}

impl Store {
    /// Performs one request of an operation on the object.
    pub(super) fn step_object(
        &mut self,
        op: &Op,
        stage: Stage,
        time: Duration,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Step {
        match known(op).filter(|_| stage == Stage::First) {
            None => self.request(op, stage, time, wrote),
            Some(version) if *version != self.version => Step::Done(Err(conflict())),
            // What the candidate would read is what it knows, so its write is the first request.
            Some(_) => match self.request(op, stage, time, wrote) {
                Step::More(stage) => self.request(op, stage, time, wrote),
                done => done,
            },
        }
    }

    fn request(
        &mut self,
        op: &Op,
        stage: Stage,
        time: Duration,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Step {
        match (op, stage) {
            (Op::Read, _) => Step::Done(Ok(Answer::Snapshot(self.see()))),
            (Op::Acquire(bid), Stage::First) => self.bid(bid, time),
            (Op::Acquire(bid), Stage::Second { .. }) => self.read_under(bid),
            (Op::WriteTerm { bid, .. }, Stage::First) => match self.record.term {
                Some(term) if self.is_under(bid) && self.record.nonce == Some(bid.nonce) => {
                    Step::Done(Ok(Answer::Term(term)))
                }
                _ => self.read_under(bid),
            },
            (Op::SetSuccessor { bid, .. }, Stage::First)
                if self.record.nonce != Some(bid.nonce) =>
            {
                Step::Done(Err(not_ours()))
            }
            (Op::Renew(bid) | Op::SetSuccessor { bid, .. }, Stage::First) => self.read_under(bid),
            (Op::Release(bid), Stage::First) => {
                // A holder may release its own lease also after an operator has broken it.
                match self.standing.as_ref().is_some_and(|it| it.lease == bid.lease) {
                    true => Step::More(Stage::Third { seen: self.changes }),
                    false => Step::Done(Err(not_ours())),
                }
            }
            (_, Stage::Second { seen } | Stage::Third { seen }) if seen != self.changes => {
                Step::Done(Err(conflict()))
            }
            (Op::Acquire(bid), _) => {
                self.count_anew(bid, time);
                Step::Done(self.grant(time))
            }
            (Op::Renew(bid), _) => {
                self.count_anew(bid, time);
                Step::Done(Ok(Answer::Written(self.version.clone())))
            }
            (Op::WriteTerm { bid, floor }, _) => {
                let term = (self.record.term.unwrap_or(0) + 1).max(*floor);
                let (holder, nonce) = (Some(Arc::clone(&bid.candidate)), Some(bid.nonce));
                self.record = Record { term: Some(term), holder, nonce, successor: None };
                self.changed_hands();
                *wrote = Some((term, bid.nonce));
                Step::Done(Ok(Answer::Term(term)))
            }
            (Op::SetSuccessor { successor, .. }, _) => {
                let successor = Some(successor.as_stored());
                if self.record.successor != successor {
                    self.record.successor = successor;
                    self.changed_hands();
                }
                Step::Done(Ok(Answer::Written(self.version.clone())))
            }
            (Op::Release(_), _) => {
                self.standing = None;
                self.changed_hands();
                Step::Done(Ok(Answer::Done))
            }
        }
    }

    /// Returns the result of a read.
    pub(super) fn see(&self) -> Snapshot {
        let claim = self.claim();
        // If the holder did not write the record, only the term is known.
        let third_party = self.standing.as_ref().is_some_and(|it| it.nonce != self.record.nonce);
        let record = match third_party {
            true => Record { term: self.record.term, ..Record::default() },
            false => self.record.clone(),
        };
        Snapshot {
            free: claim.is_none(),
            record,
            version: self.version.clone(),
            claim,
            ends_in: None,
        }
    }

    /// Returns what observers see of the lease, where they count its time.
    pub fn claim(&self) -> Option<Claim> {
        let standing = self.standing.as_ref()?;
        Some(Claim { spec: standing.spec.clone(), lease_duration: standing.length })
    }

    fn is_under(&self, bid: &Bid) -> bool {
        self.stands(bid.lease)
    }

    fn read_under(&self, bid: &Bid) -> Step {
        if self.is_under(bid) {
            return Step::More(Stage::Third { seen: self.changes });
        }
        Step::Done(Err(not_ours()))
    }

    /// Acquires the lease if the object is the version that the candidate has seen.
    fn bid(&mut self, bid: &Bid, time: Duration) -> Step {
        if self.version != bid.seen {
            return Step::More(Stage::Second { seen: self.changes });
        }
        self.exists = true;
        self.stand(bid.lease, Some(bid.nonce), bid.lease_duration, time);
        self.changed_hands();
        Step::Done(self.grant(time))
    }

    fn stand(&mut self, lease: LeaseId, nonce: Option<Nonce>, length: Duration, time: Duration) {
        self.specs += 1;
        self.standing = Some(Standing {
            lease,
            nonce,
            length,
            spec: Version(self.specs.to_string().into()),
            broken: false,
            until: time + length,
        });
    }

    fn count_anew(&mut self, bid: &Bid, time: Duration) {
        self.stand(bid.lease, Some(bid.nonce), bid.lease_duration, time);
        self.touched();
    }

    /// Whether this lease stands in the object, and is not broken.
    pub(super) fn stands(&self, lease: LeaseId) -> bool {
        self.standing.as_ref().is_some_and(|it| it.lease == lease && !it.broken)
    }

    /// An operator breaks the lease: it is nobody's, and observers wait for it anew, or, at once,
    /// it is free.
    pub(super) fn break_object(&mut self, at_once: bool, time: Duration) -> BreakOutcome {
        let Some(standing) = self.standing.clone() else { return BreakOutcome::NotHeld };
        let record = self.see().record;
        if at_once {
            self.standing = None;
        } else if !standing.broken {
            self.stand(standing.lease, standing.nonce, standing.length, time);
            self.standing.iter_mut().for_each(|it| it.broken = true);
        }
        self.changed_hands();
        let free_in = if at_once { Duration::ZERO } else { standing.length };
        BreakOutcome::Held { record, free_in }
    }

    /// A candidate of another kind takes the lease, for `length`: from whoever has it, or only if
    /// it is free.
    pub(super) fn take_object(
        &mut self,
        number: u64,
        length: Duration,
        free_only: bool,
        time: Duration,
    ) {
        if !self.exists || free_only && self.standing.is_some() {
            return;
        }
        self.stand(third_party(number), None, length, time);
        self.changed_hands();
    }
}
