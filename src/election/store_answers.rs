//! Handles the answers of the store, for each role.

use std::time::Duration;

use super::hold_off::Deference;
use super::role::{Bidding, Role};
use super::{Answer, Belief, Election, Entropy, InFlight, Notice, Op, Reason};
use super::{Holder, Observation, RetryTimer};
use crate::clock::Moment;
use crate::lease::{Bid, Grant, LeaseId, Record, Sight, StoreError};

/// The largest term: no other is written after it, since beyond 2⁵³ some JSON readers cannot tell
/// adjacent integers apart.
const LARGEST_TERM: u64 = 1 << 53;

impl Election {
    /// Handles the answer to the request in flight.
    pub(super) fn take_answer(
        &mut self,
        request: InFlight,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        self.note_health(&answer, now);
        // The record in an answer is valid even if the answer is too late for its lease.
        match &answer {
            Ok(Answer::Grant(grant)) => self.inspect(&grant.record),
            Ok(Answer::Term(term)) => self.highest = self.highest.max(*term),
            _ => {}
        }
        match request.op {
            Op::Look => self.take_look(answer, now, entropy),
            Op::Release(_) => self.take_release(&answer, now),
            Op::Acquire(ref bid) => self.take_acquire(bid.lease, answer, now, entropy),
            Op::Inaugurate { ref bid, .. } => {
                self.take_inaugurate(bid.lease, answer, now, entropy);
            }
            Op::Renew(ref bid) => self.take_renew(bid.lease, &request, answer, now, entropy),
            Op::Nominate { ref bid, .. } => self.take_nominate(bid.lease, answer, now, entropy),
        }
    }

    fn note_health(&mut self, answer: &Result<Answer, StoreError>, now: Moment) {
        match answer {
            Ok(_) | Err(StoreError::Refused(_)) => {
                self.store.last_success = Some(now);
                self.store.failures = 0;
                self.store.last_error = None;
            }
            Err(error) => {
                self.store.failures = self.store.failures.saturating_add(1);
                self.store.last_error = Some(error.clone().into());
            }
        }
        let answered =
            matches!(answer, Ok(_) | Err(StoreError::Refused(_) | StoreError::Foreign(_)));
        if answered && !self.heard {
            self.heard = true;
            self.tell_transition(Reason::StoreReached, None, now);
        }
    }

    fn take_look(&mut self, answer: Result<Answer, StoreError>, now: Moment, entropy: Entropy) {
        let period = self.config.retry_period;
        match answer {
            Ok(Answer::Sight(sight)) => {
                let left = self.observe(&sight, now);
                let sight =
                    Sight { free: sight.free || left.is_some_and(|it| it.is_zero()), ..sight };
                self.see(&sight, now);
                let (bids, hurries) = (sight.free && self.may_bid(now), self.hurries(now));
                let Role::Standby { looks, bidding } = &mut self.role else {
                    return;
                };
                let period = if hurries { period / 4 } else { period };
                *looks = RetryTimer::spread(now, period, entropy.jitter);
                if let Some(left) = left.filter(|it| !it.is_zero()) {
                    // Read when the observed lease ends rather than at the next poll, with jitter
                    // between observers.
                    looks.wait = looks.wait.min(left + period.mul_f32(entropy.jitter / 8.0));
                }
                if bids {
                    let bid = Bid {
                        lease: LeaseId::from_random(entropy.lease),
                        nonce: entropy.nonce,
                        candidate: self.config.candidate.clone(),
                        lease_duration: self.config.lease_duration,
                        seen: sight.version,
                    };
                    *bidding =
                        Some(Bidding { bid, first_sent: now, pace: RetryTimer::at_once(now) });
                }
            }
            outcome => {
                let Role::Standby { looks, .. } = &mut self.role else {
                    return;
                };
                match outcome {
                    Err(StoreError::Broken(_) | StoreError::Unknown(_)) => {
                        let broken = matches!(outcome, Err(StoreError::Broken(_)));
                        looks.fail(now, period, broken, 0.5 + entropy.jitter / 2.0);
                    }
                    _ => *looks = RetryTimer::spread(now, period, entropy.jitter),
                }
            }
        }
    }

    fn take_acquire(
        &mut self,
        lease: LeaseId,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        let period = self.config.retry_period;
        let Role::Standby { bidding, looks } = &mut self.role else {
            return self.settle(lease, &answer);
        };
        let Some(current) = bidding.take_if(|it| it.bid.lease == lease) else {
            return self.settle(lease, &answer);
        };
        match answer {
            Ok(Answer::Grant(grant)) => self.take_grant(current, &grant, now, entropy),
            Err(StoreError::Broken(_) | StoreError::Unknown(_)) => {
                let broken = matches!(answer, Err(StoreError::Broken(_)));
                let mut again = current;
                again.pace.fail(now, period, broken, 0.5 + entropy.jitter / 2.0);
                *bidding = Some(again);
            }
            Err(StoreError::Foreign(_)) => {
                self.owe(current.bid, now, true);
                self.back_off(now, entropy);
            }
            _ => *looks = RetryTimer::spread(now, period, entropy.jitter),
        }
    }

    /// Handles a grant, which counts from the first sending of its bid: too little time may be
    /// left.
    fn take_grant(&mut self, bidding: Bidding, grant: &Grant, now: Moment, entropy: Entropy) {
        if grant.record.term.is_some_and(|term| term >= LARGEST_TERM) {
            self.owe(bidding.bid, now, true);
            self.back_off(now, entropy);
            return;
        }
        let sent = bidding.first_sent;
        if sent.elapsed_max(now) >= self.config.renew_deadline || sent.jumped(now) {
            self.owe(bidding.bid, now, true);
            if let Role::Standby { looks, .. } = &mut self.role {
                *looks = RetryTimer::spread(now, self.config.retry_period, entropy.jitter);
            }
            return;
        }
        self.become_activating(bidding, grant, now);
    }

    fn take_inaugurate(
        &mut self,
        lease: LeaseId,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        let Role::Activating(it) = &mut self.role else {
            return self.settle(lease, &answer);
        };
        if it.tenure.bid.lease != lease {
            return;
        }
        match answer {
            Ok(Answer::Term(term)) => self.become_leader(term, now),
            Err(StoreError::Broken(_) | StoreError::Unknown(_)) => {
                let broken = matches!(answer, Err(StoreError::Broken(_)));
                it.write.fail(now, self.config.retry_period, broken, 1.0);
            }
            Err(StoreError::Foreign(_)) => {
                self.become_standby(Reason::WriteFailed, now, entropy);
                self.back_off(now, entropy);
            }
            _ => self.become_standby(Reason::Lost, now, entropy),
        }
    }

    fn take_renew(
        &mut self,
        lease: LeaseId,
        request: &InFlight,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        let period = self.config.retry_period;
        let tenure = self.role.tenure_mut().filter(|it| it.bid.lease == lease);
        let Some(tenure) = tenure else {
            return self.settle(lease, &answer);
        };
        match answer {
            Ok(_) => {
                // What was sent before a jump was seen says nothing about the time after it (R10).
                if tenure.belief.suspended && !request.after_jump {
                    tenure.renewal.hasten(now);
                    return;
                }
                tenure.belief = Belief { sent: request.sent, suspended: false, ..tenure.belief };
                tenure.renewal = RetryTimer::after(request.sent, period);
                self.set_jeopardy(false, Reason::Renewed, now);
            }
            Err(StoreError::Refused(_)) => self.lose(now, entropy),
            Err(ref error) => {
                let broken = matches!(error, StoreError::Broken(_));
                tenure.renewal.fail(now, period, broken, 1.0);
                if !tenure.renewal.is_immediate() {
                    self.set_jeopardy(true, Reason::RenewalFailed, now);
                }
            }
        }
    }

    /// Handles the answer to the write of a successor. An unknown outcome is retried until the
    /// drain's grace is over; the lease is released with or without the successor.
    fn take_nominate(
        &mut self,
        lease: LeaseId,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        let Role::Draining(it) = &mut self.role else {
            return self.settle(lease, &answer);
        };
        match answer {
            Ok(_) => {
                let named = it.nomination.take().map(|it| it.successor);
                self.set_successor(named);
            }
            Err(StoreError::Refused(_)) => self.lose(now, entropy),
            Err(StoreError::Foreign(_)) => it.nomination = None,
            Err(StoreError::Broken(_) | StoreError::Unknown(_)) => {
                let broken = matches!(answer, Err(StoreError::Broken(_)));
                if let Some(nomination) = &mut it.nomination {
                    nomination.pace.fail(now, self.config.retry_period, broken, 1.0);
                }
            }
        }
    }

    /// Ends the leadership after the store has refused the lease.
    fn lose(&mut self, now: Moment, entropy: Entropy) {
        match self.role {
            Role::Draining(_) => self.end_drain(Reason::Lost, now, entropy),
            _ => self.become_standby(Reason::Lost, now, entropy),
        }
    }

    fn set_jeopardy(&mut self, jeopardy: bool, reason: Reason, now: Moment) {
        if let Role::Leader(leader) = &mut self.role {
            leader.jeopardy = jeopardy;
        }
        self.tell_transition(reason, None, now);
    }

    /// Handles the answer to a release. An unknown outcome is retried for as long as `judge`
    /// allows.
    fn take_release(&mut self, answer: &Result<Answer, StoreError>, now: Moment) {
        let Some(pending_release) = &mut self.pending_release else { return };
        match answer {
            Err(error @ (StoreError::Broken(_) | StoreError::Unknown(_))) => {
                let broken = matches!(error, StoreError::Broken(_));
                pending_release.pace.fail(now, self.config.retry_period, broken, 1.0);
            }
            _ => self.pending_release = None,
        }
    }

    /// Handles an answer that arrives after its bid or leadership has ended: a definite refusal
    /// cancels the pending release.
    fn settle(&mut self, lease: LeaseId, answer: &Result<Answer, StoreError>) {
        if matches!(answer, Err(StoreError::Refused(_))) {
            self.pending_release.take_if(|pending_release| pending_release.bid.lease == lease);
        }
    }

    // The record.

    /// Continues or starts the wait for a lease whose time observers count, and returns how much of
    /// it is left; `None` if there is no such lease.
    fn observe(&mut self, sight: &Sight, now: Moment) -> Option<Duration> {
        self.observation = Observation::see(self.observation.take(), sight, now);
        self.observation.as_ref().map(|it| it.left(now))
    }

    /// Applies what a read returned: record, hold-off, successor and holder.
    fn see(&mut self, sight: &Sight, now: Moment) {
        self.inspect(&sight.record);
        if let Some(aside) = &mut self.aside {
            aside.see(sight, now);
        }
        self.aside.take_if(|aside| aside.is_over(now));
        self.deference = sight
            .record
            .successor
            .as_ref()
            .map(|successor| Deference::see(self.deference, successor.hold_off, sight, now));
        self.set_successor(sight.record.successor.clone());
        if sight.free {
            self.past = sight.record.clone();
        }
        // A record seen while the lease was free does not belong to the present holder.
        let holds = !sight.free && (sight.record.nonce != self.past.nonce);
        let holder = match (&sight.record.holder, sight.record.term) {
            (Some(candidate), Some(term)) if holds => {
                Some(Holder { candidate: candidate.clone(), term })
            }
            _ => None,
        };
        self.set_holder(holder);
    }

    /// Compares the recorded term with the largest one seen, and reports each defect once (R11).
    fn inspect(&mut self, record: &Record) {
        let defect = match record.term {
            None if self.highest > 0 || !self.config.rules.missing_is_free => {
                Some(Notice::RecordMissing { hold: self.hold_for(record) })
            }
            Some(found) if found >= LARGEST_TERM => Some(Notice::TermTooLarge { found }),
            Some(found) if found < self.highest => {
                Some(Notice::TermFell { seen: self.highest, found })
            }
            _ => None,
        };
        let found = record.term.filter(|term| *term < LARGEST_TERM);
        self.highest = self.highest.max(found.unwrap_or_default());
        if self.defect != defect {
            self.defect.clone_from(&defect);
            self.notices.extend(defect);
        }
    }

    /// Returns how long a lease on this record is held before the term is written (R11).
    pub(super) fn hold_for(&self, record: &Record) -> Duration {
        let hold = self.config.rules.longest_lease.unwrap_or(self.config.lease_duration);
        match record.term {
            None if self.config.rules.missing_is_free => Duration::ZERO,
            Some(found) if found >= self.highest => Duration::ZERO,
            _ => hold,
        }
    }

    /// Returns the least term to write where the record gives none to follow: unix milliseconds, by
    /// the store's date if it sent one, and above every term seen (R11).
    pub(super) fn fresh_floor(&self, grant: &Grant, now: Moment) -> u64 {
        let date = grant.date.unwrap_or_else(|| now.date());
        let millis = u64::try_from(date.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
        millis.max(self.highest + 1)
    }
}
