//! The simulated ZooKeeper: a claim that counts while its session lasts, and a record, both changed by
//! transactions that compare the last change.
//!
//! A grant begins a session, whose time counts from then on, and gives it the claim in another request, if
//! nothing has changed in between. The claim is deleted up to half of its lease after the end of that, since
//! sessions are looked for once in a tick. Another leader of the ensemble counts all sessions anew.

use std::sync::Arc;
use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{Bid, Cause, Failure, LeaseId, Nonce, Record, Snapshot, StoreError, Successor};
use tenure::store::BreakOutcome;

use super::third_party::third_party;
use super::{Stage, Step, Store};

/// The claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// The bid's.
    lease: LeaseId,
    /// The nonce of the acquisition; `None` for a third party.
    pub(super) nonce: Option<Nonce>,
    length: Duration,
    /// When the session's time is over.
    pub(super) ends: Duration,
    /// When the claim is deleted.
    pub(super) deleted: Duration,
    /// Whether an operator is breaking it.
    is_breaking: bool,
}

impl Claim {
    /// Counts its time from the beginning of a session.
    fn since(self, began: Duration) -> Self {
        let ends = began + self.length;
        // As good as random.
        let share = u128::from(ends.subsec_nanos()) * 7_919 % 1_000;
        let late = u64::try_from(latest(self.length).as_nanos() * share / 1_000);
        let deleted = ends + Duration::from_nanos(late.unwrap_or(u64::MAX));
        Self { ends, deleted, ..self }
    }
}

/// Returns how long after the end of a session its claim is deleted at most: a tick, of which the shortest
/// session has two.
pub(super) fn latest(length: Duration) -> Duration {
    length / 2
}

fn refused(why: &'static str) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, why))
}

fn conflict() -> StoreError {
    StoreError::RetryNow(Failure::new(Cause::Lease, "the node was modified concurrently"))
}

impl Store {
    /// Performs one request of an operation on the nodes.
    pub(super) fn step_nodes(
        &mut self,
        op: &Op,
        stage: Stage,
        time: Duration,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Step {
        self.delete_expired(time);
        let seen = match stage {
            Stage::First => return self.read_nodes(op, time),
            Stage::Second { seen } | Stage::Third { seen } | Stage::Granted { seen, .. } => seen,
            _ => unreachable!("{stage:?} is none of a session"),
        };
        let is_changed = seen != self.changes;
        Step::Done(match (op, stage) {
            (Op::Acquire(bid), Stage::Granted { since, .. }) => {
                self.claim_nodes(bid, is_changed, since).and_then(|()| self.grant(time))
            }
            (Op::Renew(bid), Stage::Granted { since, .. }) => match self.owns_nodes(bid) {
                Ok(_) if is_changed => Err(conflict()),
                Ok(claim) => {
                    self.move_to_session(claim, since);
                    Ok(Answer::Done)
                }
                Err(lost) => Err(lost),
            },
            (Op::WriteTerm { bid, floor }, _) => match self.owns_nodes(bid) {
                Ok(_) if is_changed => {
                    self.term_of_nodes(bid).map(Answer::Term).ok_or_else(conflict)
                }
                Ok(_) => {
                    let term = (self.record.term.unwrap_or(0) + 1).max(*floor);
                    let (holder, nonce) = (Some(Arc::clone(&bid.candidate)), Some(bid.nonce));
                    self.record = Record { term: Some(term), holder, nonce, successor: None };
                    *wrote = Some((term, bid.nonce));
                    self.changed_hands();
                    Ok(Answer::Term(term))
                }
                Err(lost) => Err(lost),
            },
            (Op::SetSuccessor { bid, successor }, _) => self
                .owns_nodes(bid)
                .and_then(|_| if is_changed { Err(conflict()) } else { Ok(()) })
                .map(|()| self.name_in_nodes(successor)),
            (Op::Release(bid), Stage::Second { .. }) => {
                let is_ours = self.session.is_some_and(|it| it.lease == bid.lease);
                match (is_ours, is_changed) {
                    (true, true) => Err(conflict()),
                    (false, _) => Err(refused("the lease is not held")),
                    (true, false) => {
                        self.session = None;
                        self.changed_hands();
                        Ok(Answer::Done)
                    }
                }
            }
            // Written again, so that a late copy of the bid claims nothing.
            (Op::Release(_), _) if is_changed => Err(conflict()),
            (Op::Release(_), _) => {
                self.changes += 1;
                Err(refused("the lease is not held"))
            }
            _ => unreachable!("{stage:?} is none of {op:?}"),
        })
    }

    /// Reads the record, which begins a session for a grant.
    fn read_nodes(&self, op: &Op, time: Duration) -> Step {
        let seen = self.changes;
        let ours = |bid, then| match self.owns_nodes(bid) {
            Ok(_) => Step::More(then),
            Err(lost) => Step::Done(Err(lost)),
        };
        match op {
            Op::Read => Step::Done(Ok(Answer::Snapshot(self.see_nodes()))),
            Op::Acquire(bid) if self.session.is_some() => {
                ours(bid, Stage::Granted { seen, since: time })
            }
            Op::Acquire(bid) if bid.seen == self.version => {
                Step::More(Stage::Granted { seen, since: time })
            }
            Op::Acquire(_) => Step::Done(Err(refused("the record has changed since it was read"))),
            Op::Renew(bid) => ours(bid, Stage::Granted { seen, since: time }),
            Op::WriteTerm { bid, .. } => match (self.owns_nodes(bid), self.term_of_nodes(bid)) {
                (Ok(_), Some(term)) => Step::Done(Ok(Answer::Term(term))),
                _ => ours(bid, Stage::Second { seen }),
            },
            Op::SetSuccessor { bid, .. } if self.record.nonce != Some(bid.nonce) => {
                Step::Done(Err(refused("the record is another's")))
            }
            Op::SetSuccessor { bid, .. } => ours(bid, Stage::Second { seen }),
            Op::Release(bid) => match self.session.filter(|it| it.lease == bid.lease) {
                Some(_) => Step::More(Stage::Second { seen }),
                None => Step::More(Stage::Third { seen }),
            },
        }
    }

    /// Gives the claim to a bid, whose session began then.
    fn claim_nodes(
        &mut self,
        bid: &Bid,
        is_changed: bool,
        since: Duration,
    ) -> Result<(), StoreError> {
        match (self.owns_nodes(bid), self.session) {
            (Ok(_), _) if is_changed => Err(conflict()),
            (Ok(claim), _) => {
                self.move_to_session(claim, since);
                Ok(())
            }
            (Err(lost), Some(_)) => Err(lost),
            (Err(_), None) if self.version != bid.seen => {
                Err(refused("the record has changed since it was read"))
            }
            (Err(_), None) if is_changed => Err(conflict()),
            (Err(_), None) => {
                let (ends, deleted) = (Duration::ZERO, Duration::ZERO);
                let (lease, nonce, length) = (bid.lease, Some(bid.nonce), bid.lease_duration);
                let claim = Claim { lease, nonce, length, ends, deleted, is_breaking: false };
                self.session = Some(claim.since(since));
                self.changed_hands();
                Ok(())
            }
        }
    }

    fn move_to_session(&mut self, claim: Claim, since: Duration) {
        self.session = Some(claim.since(since));
        self.changes += 1;
    }

    fn name_in_nodes(&mut self, successor: &Successor) -> Answer {
        let successor = Some(successor.as_stored());
        if self.record.successor != successor {
            self.record.successor = successor;
            self.changed_hands();
        }
        Answer::Done
    }

    /// Returns the claim, if it is of this bid and not being broken.
    fn owns_nodes(&self, bid: &Bid) -> Result<Claim, StoreError> {
        let of = |it: &Claim| it.lease == bid.lease && !it.is_breaking;
        self.session.filter(of).ok_or_else(|| refused("the lease is not held"))
    }

    fn term_of_nodes(&self, bid: &Bid) -> Option<u64> {
        self.record.term.filter(|_| self.record.nonce == Some(bid.nonce))
    }

    fn see_nodes(&self) -> Snapshot {
        Snapshot {
            free: self.session.is_none(),
            record: self.record.clone(),
            version: self.version.clone(),
            claim: None,
            ends_in: None,
        }
    }

    /// Deletes the claim of a session that has ended, which changes nothing that transactions compare.
    pub(super) fn delete_expired(&mut self, time: Duration) {
        if self.session.take_if(|it| it.deleted <= time).is_some() {
            self.news += 1;
        }
    }

    /// Returns whether this lease has the claim, which is not being broken.
    pub(super) fn has_session(&self, lease: LeaseId) -> bool {
        self.session.is_some_and(|it| it.lease == lease && !it.is_breaking)
    }

    /// An operator deletes the claim, or marks it so that it is not renewed.
    pub(super) fn break_session(&mut self, at_once: bool, time: Duration) -> BreakOutcome {
        self.delete_expired(time);
        let Some(claim) = self.session else { return BreakOutcome::NotHeld };
        let record = self.record.clone();
        if at_once {
            self.session = None;
            self.changed_hands();
            return BreakOutcome::Held { record, free_in: Duration::ZERO };
        }
        self.session = Some(Claim { is_breaking: true, ..claim });
        self.changes += 1;
        self.news += 1;
        BreakOutcome::Held { record, free_in: claim.deleted.saturating_sub(time) }
    }

    /// A program of another kind writes a claim, for `length`: over whoever has it, or only if none has.
    pub(super) fn take_session(
        &mut self,
        number: u64,
        length: Option<Duration>,
        free_only: bool,
        time: Duration,
    ) {
        self.delete_expired(time);
        let held = self.session.map(|it| it.length);
        let Some(length) = length.or(held).filter(|_| !(free_only && held.is_some())) else {
            return;
        };
        let (lease, ends, deleted) = (third_party(number), Duration::ZERO, Duration::ZERO);
        let claim = Claim { lease, nonce: None, length, ends, deleted, is_breaking: false };
        self.session = Some(claim.since(time));
        self.changed_hands();
    }

    /// Another server leads the ensemble, and counts all sessions anew.
    pub(super) fn elect(&mut self, time: Duration) {
        self.delete_expired(time);
        self.session = self.session.map(|it| it.since(time));
    }
}
