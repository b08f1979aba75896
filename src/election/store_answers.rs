//! Handles the answers of the store, for each role.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use super::hold_off::Deference;
use super::role::{Bidding, Role};
use super::{Answer, Belief, Election, Entropy, InFlight, Notice, Op, Reason};
use super::{Holder, Observation, RetryTimer};
use crate::clock::Moment;
use crate::lease::{Bid, Claim, Grant, LeaseId, Record, Snapshot, StoreError};

/// The largest term: no other is written after it, since beyond 2⁵³ some JSON readers cannot tell
/// adjacent integers apart.
pub const LARGEST_TERM: u64 = 1 << 53;

impl Election {
    /// Handles the answer to the request in flight.
    pub(super) fn on_answer(
        &mut self,
        request: InFlight,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        self.store.record(&request.op, &answer, now);
        let is_answered =
            matches!(answer, Ok(_) | Err(StoreError::Refused(_) | StoreError::Foreign(_)));
        if is_answered {
            self.stream.put_off = None;
        }
        if is_answered && !self.store_reached {
            self.store_reached = true;
            self.notify_transition(Reason::StoreReached, None, now);
        }
        // The record in an answer is valid even if the answer is too late for its lease.
        match &answer {
            Ok(Answer::Grant(grant)) => self.see_record(&grant.record),
            Ok(Answer::Term(term)) => self.highest_term = self.highest_term.max(*term),
            _ => {}
        }
        self.keep_version(&request.op, &answer);
        match request.op {
            Op::Read => self.on_read(answer, now, entropy),
            Op::Release(_) => self.on_release(&answer, now),
            Op::Acquire(ref bid) => self.on_acquire(bid.lease, answer, now, entropy),
            Op::WriteTerm { ref bid, .. } => {
                self.on_write_term(bid.lease, answer, now, entropy);
            }
            Op::Renew(ref bid) => self.on_renew(bid.lease, &request, answer, now, entropy),
            Op::SetSuccessor { ref bid, .. } => {
                self.on_set_successor(bid.lease, answer, now, entropy)
            }
        }
    }

    /// Keeps the version that a write has returned, for the next write of its bid. After any other
    /// outcome the lock may have changed, so that the store reads it before the next write.
    fn keep_version(&mut self, op: &Op, answer: &Result<Answer, StoreError>) {
        let version = answer.as_ref().ok().and_then(Answer::version);
        let pending_release = self.pending_release.as_mut().map(|it| &mut it.bid);
        for bid in self.role.bid_mut().into_iter().chain(pending_release) {
            if op.lease() == Some(bid.lease) && bid.written.as_ref() != version {
                Arc::make_mut(bid).written = version.cloned();
            }
        }
    }

    fn on_read(&mut self, answer: Result<Answer, StoreError>, now: Moment, entropy: Entropy) {
        let period = self.config.retry_period;
        match answer {
            Ok(Answer::Snapshot(mut snapshot)) => {
                let left = self.observe(snapshot.claim.as_ref(), now);
                snapshot.free |= left.is_some_and(|it| it.is_zero());
                self.apply_snapshot(&snapshot, left, now);
                self.end_wait(now, entropy);
                let bids = snapshot.free && self.may_bid(now);
                self.schedule_read(&snapshot, left, now, entropy);
                if bids {
                    let bid = Arc::new(Bid {
                        lease: LeaseId::from_random(entropy.lease),
                        nonce: entropy.nonce.with_handover(handover(&snapshot.record, now)),
                        candidate: self.config.candidate.clone(),
                        lease_duration: self.config.lease_duration,
                        seen: snapshot.version,
                        written: None,
                    });
                    let retry = RetryTimer::at_once(now);
                    let bid = Bidding { bid, first_sent: now, may_be_granted: false, retry };
                    if let Role::Standby { bidding, .. } = &mut self.role {
                        *bidding = Some(bid);
                    }
                }
            }
            outcome => {
                let Role::Standby { next_read, .. } = &mut self.role else {
                    return;
                };
                match outcome {
                    Err(ref error @ (StoreError::RetryNow(_) | StoreError::Unknown(_))) => {
                        let retry_now = matches!(error, StoreError::RetryNow(_));
                        next_read.fail(now, period, retry_now, 0.5 + entropy.jitter / 2.0);
                        next_read.heed(error, self.config.renew_deadline);
                    }
                    _ => *next_read = RetryTimer::jittered(now, period, entropy.jitter),
                }
            }
        }
    }

    fn on_acquire(
        &mut self,
        lease: LeaseId,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        let period = self.config.retry_period;
        let Role::Standby { bidding, next_read } = &mut self.role else {
            return self.on_late_answer(lease, &answer, now);
        };
        let Some(current) = bidding.take_if(|it| it.bid.lease == lease) else {
            return self.on_late_answer(lease, &answer, now);
        };
        match answer {
            Ok(Answer::Grant(grant)) => self.on_grant(current, &grant, now, entropy),
            Err(ref error @ (StoreError::RetryNow(_) | StoreError::Unknown(_))) => {
                let retry_now = matches!(error, StoreError::RetryNow(_));
                let mut again = current;
                again.may_be_granted |= !error.failure().had_no_effect;
                again.retry.fail(now, period, retry_now, 0.5 + entropy.jitter / 2.0);
                let left =
                    self.config.renew_deadline.saturating_sub(again.first_sent.elapsed_max(now));
                again.retry.heed(error, left.saturating_sub(self.config.request_timeout));
                *bidding = Some(again);
            }
            Err(StoreError::Foreign(_)) => {
                self.schedule_release(current.bid, now, true);
                self.back_off(now, entropy);
            }
            _ => {
                *next_read = RetryTimer::jittered(now, period, entropy.jitter);
                self.end_wait_refused(now);
            }
        }
    }

    /// Handles a grant, which counts from the first sending of its bid: too little time may be
    /// left.
    fn on_grant(&mut self, bidding: Bidding, grant: &Grant, now: Moment, entropy: Entropy) {
        let has_moved = grant.record.moved_to().is_some();
        if has_moved || grant.record.term.is_some_and(|term| term >= LARGEST_TERM) {
            self.schedule_release(bidding.bid, now, true);
            self.back_off(now, entropy);
            return;
        }
        let sent = bidding.first_sent;
        if sent.elapsed_max(now) >= self.config.renew_deadline || sent.jumped(now) {
            self.schedule_release(bidding.bid, now, true);
            if let Role::Standby { next_read, .. } = &mut self.role {
                *next_read = RetryTimer::jittered(now, self.config.retry_period, entropy.jitter);
            }
            return;
        }
        self.become_activating(bidding, grant, now);
    }

    fn on_write_term(
        &mut self,
        lease: LeaseId,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        let Role::Activating(it) = &mut self.role else {
            return self.on_late_answer(lease, &answer, now);
        };
        if it.held.bid.lease != lease {
            return;
        }
        match answer {
            Ok(Answer::Term(term)) => self.become_leader(term, now),
            Err(ref error @ (StoreError::RetryNow(_) | StoreError::Unknown(_))) => {
                let retry_now = matches!(error, StoreError::RetryNow(_));
                it.write.fail(now, self.config.retry_period, retry_now, 1.0);
                let left = it.held.belief.until_end(now);
                it.write.heed(error, left.saturating_sub(self.config.request_timeout));
            }
            Err(StoreError::Foreign(_)) => {
                self.become_standby(Reason::WriteFailed, now, entropy);
                self.back_off(now, entropy);
            }
            _ => self.become_standby(Reason::Lost, now, entropy),
        }
    }

    fn on_renew(
        &mut self,
        lease: LeaseId,
        request: &InFlight,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        let period = self.config.retry_period;
        let held = self.role.held_lease_mut().filter(|it| it.bid.lease == lease);
        let Some(held) = held else {
            return self.on_late_answer(lease, &answer, now);
        };
        match answer {
            Ok(_) => {
                // What was sent before a jump was seen says nothing about the time after it (R10).
                if held.belief.suspended && !request.after_jump {
                    held.renewal.make_due(now);
                    return;
                }
                held.belief = Belief { sent: request.sent, suspended: false, ..held.belief };
                held.renewal = RetryTimer::after(request.sent, period);
                self.renewed(request.sent, now);
                self.set_jeopardy(false, Reason::Renewed, now);
            }
            Err(StoreError::Refused(_)) => self.lose(now, entropy),
            Err(ref error) => {
                let retry_now = matches!(error, StoreError::RetryNow(_));
                held.renewal.fail(now, period, retry_now, 1.0);
                // Where the wait would leave no time for a whole attempt, the belief matters more.
                let left = held.belief.until_end(now);
                held.renewal.heed(error, left.saturating_sub(self.config.request_timeout));
                if !held.renewal.is_immediate() {
                    self.set_jeopardy(true, Reason::RenewalFailed, now);
                }
            }
        }
    }

    /// Handles the answer to the write of a successor. An unknown outcome is retried until the
    /// drain's grace is over; the lease is released with or without the successor.
    fn on_set_successor(
        &mut self,
        lease: LeaseId,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        let Role::Draining(it) = &mut self.role else {
            return self.on_late_answer(lease, &answer, now);
        };
        match answer {
            Ok(_) => {
                let named = it.pending_successor.take().map(|it| it.successor);
                self.set_successor(named);
            }
            Err(StoreError::Refused(_)) => self.lose(now, entropy),
            Err(StoreError::Foreign(_)) => it.pending_successor = None,
            Err(StoreError::RetryNow(_) | StoreError::Unknown(_)) => {
                let retry_now = matches!(answer, Err(StoreError::RetryNow(_)));
                if let Some(pending_successor) = &mut it.pending_successor {
                    pending_successor.retry.fail(now, self.config.retry_period, retry_now, 1.0);
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
        self.notify_transition(reason, None, now);
    }

    /// Handles the answer to a release. An unknown outcome is retried for as long as `apply_deadlines`
    /// allows.
    fn on_release(&mut self, answer: &Result<Answer, StoreError>, now: Moment) {
        let Some(pending_release) = &mut self.pending_release else { return };
        match answer {
            Err(error @ (StoreError::RetryNow(_) | StoreError::Unknown(_))) => {
                let retry_now = matches!(error, StoreError::RetryNow(_));
                pending_release.retry.fail(now, self.config.retry_period, retry_now, 1.0);
            }
            _ => {
                let term = pending_release.term;
                self.end_release(now);
                // A lease that was refused had been lost before.
                if let (Ok(_), Some(term)) = (answer, term) {
                    self.released_term = Some(term);
                }
            }
        }
    }

    /// Handles an answer that arrives after its bid or leadership has ended: a definite refusal
    /// cancels the pending release, and so does a bid that had no effect, unless an earlier attempt may
    /// have had one.
    fn on_late_answer(&mut self, lease: LeaseId, answer: &Result<Answer, StoreError>, now: Moment) {
        let pending_release = self.pending_release.as_ref().filter(|it| it.bid.lease == lease);
        let is_held_by_none = pending_release.is_some_and(|it| match answer {
            Err(StoreError::Refused(_)) => true,
            Err(error) => error.failure().had_no_effect && !it.may_be_held,
            Ok(_) => false,
        });
        if is_held_by_none {
            self.end_release(now);
        }
    }

    // The record.

    /// Continues or starts the wait for a lease whose time observers count, and returns how much of
    /// it is left; `None` if there is no such lease.
    pub(super) fn observe(&mut self, claim: Option<&Claim>, now: Moment) -> Option<Duration> {
        self.observation = Observation::update(self.observation.take(), claim, now);
        self.observation.as_ref().map(|it| it.left(now))
    }

    /// Applies what a read returned: record, hold-off, successor and holder.
    fn apply_snapshot(&mut self, snapshot: &Snapshot, left: Option<Duration>, now: Moment) {
        self.see_record(&snapshot.record);
        if let Some(hold_off) = &mut self.hold_off {
            hold_off.update(snapshot, now);
        }
        self.hold_off.take_if(|hold_off| hold_off.is_over(now));
        let successor = snapshot.record.named_successor();
        self.deference =
            successor.map(|it| Deference::update(self.deference, it.hold_off, snapshot, now));
        self.set_successor(successor.cloned());
        self.see_free(snapshot.free, now);
        self.store.lease_has_no_end = snapshot.has_no_end();
        if snapshot.free || snapshot.has_no_end() {
            self.free_record = snapshot.record.clone();
        }
        if !snapshot.free {
            self.store.another_holds();
        }
        // A record seen while the lease was free, or held without an end, does not belong to the
        // present holder.
        let holds = !snapshot.free && (snapshot.record.nonce != self.free_record.nonce);
        let holder = match (&snapshot.record.holder, snapshot.record.term) {
            (Some(candidate), Some(term)) if holds => {
                Some(Holder { candidate: candidate.clone(), term, nonce: snapshot.record.nonce })
            }
            _ => None,
        };
        let renewals = self.lease_view.renewals.as_ref();
        let ending = renewals.and_then(|it| it.ending(snapshot.free, now));
        self.set_holder(holder, ending, now);
        self.lease_view.is_held = !snapshot.free;
        if let Some(renewals) = &mut self.lease_view.renewals {
            renewals.read(&self.config, snapshot, left, now);
        }
    }

    /// Takes from a record whether the election has moved, and checks its term.
    fn see_record(&mut self, record: &Record) {
        let moved_to = record.moved_to();
        if self.store.moved_to.as_deref() != moved_to {
            self.store.moved_to = moved_to.map(Arc::from);
            self.notices.push_back(Notice::Moved(self.store.moved_to.clone()));
        }
        self.check_record(record);
    }

    /// Compares the recorded term with the largest one seen, and reports each defect once (R11).
    fn check_record(&mut self, record: &Record) {
        let defect = match record.term {
            None if !self.is_first(record) => {
                Some(Notice::RecordMissing { hold: self.hold_for(record) })
            }
            Some(found) if found >= LARGEST_TERM => Some(Notice::TermTooLarge { found }),
            Some(found) if found < self.highest_term => {
                Some(Notice::TermFell { seen: self.highest_term, found })
            }
            _ => None,
        };
        let found = record.term.filter(|term| *term < LARGEST_TERM);
        self.highest_term = self.highest_term.max(found.unwrap_or_default());
        if self.reported_defect != defect {
            self.reported_defect.clone_from(&defect);
            self.notices.extend(defect);
        }
    }

    /// Returns whether a record without a term is one that nobody has led on, as far as this candidate can
    /// know in a store where that is no reason to hold.
    fn is_first(&self, record: &Record) -> bool {
        record.term.is_none() && self.highest_term == 0 && self.config.rules.missing_is_free
    }

    /// Returns how long a lease on this record is held before the term is written (R11).
    pub(super) fn hold_for(&self, record: &Record) -> Duration {
        let hold = self.config.rules.longest_lease.unwrap_or(self.config.lease_duration);
        match record.term {
            None if self.is_first(record) => Duration::ZERO,
            Some(found) if found >= self.highest_term => Duration::ZERO,
            _ => hold,
        }
    }

    /// Returns the least term to write where the record gives none to follow: unix milliseconds, by
    /// the store's date if it sent one, and above every term seen (R11).
    pub(super) fn fresh_floor(&self, grant: &Grant, now: Moment) -> u64 {
        let date = grant.date.unwrap_or_else(|| now.date());
        let millis = u64::try_from(date.unix_timestamp_nanos() / 1_000_000).unwrap_or_default();
        millis.max(self.highest_term.saturating_add(1))
    }
}

/// Returns when the lease was last handed over to a named successor, for the record of a bid that follows
/// this one: now, if it names one.
fn handover(record: &Record, now: Moment) -> Option<OffsetDateTime> {
    let is_named = record.named_successor().is_some();
    if is_named { Some(now.date()) } else { record.nonce?.handover() }
}
