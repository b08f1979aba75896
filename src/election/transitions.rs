//! Role changes: the `become_*` methods, the only ones that replace a role. The parent module and
//! its siblings decide when.

use std::mem;
use std::sync::Arc;

use super::notices::EndedLeadership;
use super::role::{
    Activating, Bidding, Draining, HeldLease, Leader, PendingRelease, PendingSuccessor, Role,
};
use super::step_down::StepDown;
use super::wakeup::Hints;
use super::{Belief, Election, Ending, Entropy, Holder, Reason, RetryTimer};
use crate::clock::Moment;
use crate::lease::{Bid, Grant};

impl Election {
    /// Holds the granted lease for as long as R11 and the activation delay require, before the term
    /// is written.
    pub(super) fn become_activating(&mut self, bidding: Bidding, grant: &Grant, now: Moment) {
        assert!(matches!(self.role, Role::Standby { .. }) && self.pending_release.is_none());
        let for_earlier = self.hold_for(&grant.record);
        let hold = for_earlier.max(self.config.activation_delay);
        let floor = match grant.record.term {
            Some(found) if found >= self.highest_term => found + 1, // on_grant rules out an overflow
            _ => self.fresh_floor(grant, now),
        };
        let sent = bidding.first_sent;
        let belief = Belief { sent, length: self.config.renew_deadline, suspended: false };
        let renewal = RetryTimer::after(sent, self.config.retry_period);
        self.role = Role::Activating(Activating {
            held: HeldLease { bid: bidding.bid, belief, renewal, hints: Hints::new(now) },
            granted: now,
            hold,
            for_earlier: hold == for_earlier,
            floor,
            write: RetryTimer::at_once(now),
            first_write: None,
        });
        // The grant is later than any wake-up during the bid, which may have been for its own write.
        self.woken = false;
        self.stream.forget();
        self.seen_free = None;
        self.released_term = None;
        self.notify_transition(Reason::Acquired, None, now);
    }

    /// Starts leading in `term`, which is written under the lease, for as long as the belief lasts
    /// (R7).
    pub(super) fn become_leader(&mut self, term: u64, now: Moment) {
        let Role::Activating(Activating { held, .. }) = &self.role else {
            unreachable!("only a candidate that holds the lease writes a term");
        };
        let (held, nonce) = (held.clone(), held.bid.nonce);
        self.role = Role::Leader(Leader { held, term, since: now, jeopardy: false });
        self.reported_defect = None;
        self.health.forget_failures();
        self.workload_term = self.config.has_workload.then_some(term);
        self.successor = None;
        self.wait = None;
        // A new leadership ends the hold-off that an earlier one left.
        self.hold_off = None;
        let candidate = Arc::clone(&self.config.candidate);
        let sent = self.role.held_lease().map_or(now, |it| it.belief.sent);
        self.set_holder(Some(Holder { candidate, term, nonce: Some(nonce) }), None, now);
        self.renewed(sent, now);
        self.notify_transition(Reason::TermWritten, None, now);
    }

    /// Ends the leadership, or the attempt at one, and stays in the election. A release is pending
    /// unless the lease is lost or has run out; its id is dead either way (R5, R6).
    pub(super) fn become_standby(&mut self, reason: Reason, now: Moment, entropy: Entropy) {
        assert!(self.role.held_lease().is_some(), "only a held lease ends");
        let next_read = RetryTimer::jittered(now, self.config.retry_period, entropy.jitter);
        self.leave_role(Role::Standby { next_read, bidding: None }, reason, now);
    }

    /// Stops leading voluntarily, and renews until the service has finished its work.
    pub(super) fn become_draining(&mut self, step_down: StepDown, now: Moment) {
        let Role::Leader(leader) = &self.role else {
            unreachable!("only a leader has work to end");
        };
        let Leader { held, term, since, .. } = leader.clone();
        let StepDown { reason, resigning, successor } = step_down;
        let pending_successor = successor
            .map(|successor| PendingSuccessor { successor, retry: RetryTimer::at_once(now) });
        self.role = Role::Draining(Draining {
            held,
            term,
            since,
            began: now,
            length: self.config.drain_timeout,
            drained: false,
            publish_acked: false,
            resigning,
            pending_successor,
        });
        self.notify_transition(reason, None, now);
    }

    /// Leaves the election for good.
    pub(super) fn become_resigned(&mut self, reason: Reason, now: Moment) {
        assert!(!matches!(self.role, Role::Resigned));
        if let Some(pending_release) = &mut self.pending_release {
            pending_release.leave(now);
        }
        self.stream.forget();
        self.leave_role(Role::Resigned, reason, now);
    }

    /// Changes to the role `to`, with a pending release for any lease or bid of the old role.
    fn leave_role(&mut self, to: Role, reason: Reason, now: Moment) {
        let ended = match mem::replace(&mut self.role, to) {
            Role::Standby { bidding, .. } => {
                if let Some(bidding) = bidding {
                    self.give_up_bid(bidding, now);
                }
                None
            }
            Role::Activating(it) => {
                self.schedule_release(it.held.bid, now, true);
                None
            }
            Role::Leader(it) => {
                let (sent, length) = (it.held.belief.sent, self.config.lease_duration);
                // The whole lease is over: nothing is left to release.
                let over = reason == Reason::Lapsed && sent.elapsed_max(now) >= length;
                if !over {
                    self.schedule_release(it.held.bid, now, false);
                }
                if let (Reason::Lapsed, Some(pending_release)) = (reason, &mut self.pending_release)
                {
                    pending_release.client_window = Some((sent, length));
                }
                self.name_release(it.term);
                Some(EndedLeadership { term: it.term, lasted: it.since.elapsed_max(now) })
            }
            Role::Draining(it) => {
                let sent = it.held.belief.sent;
                let lapsed = reason == Reason::Lapsed;
                if !(lapsed && sent.elapsed_max(now) >= self.config.lease_duration) {
                    self.schedule_release(it.held.bid, now, it.publish_acked);
                }
                if let (true, false, Some(pending_release)) =
                    (lapsed, it.drained, &mut self.pending_release)
                {
                    pending_release.client_window = Some((it.began, it.length));
                }
                self.name_release(it.term);
                Some(EndedLeadership { term: it.term, lasted: it.since.elapsed_max(now) })
            }
            Role::Resigned => None,
        };
        if reason == Reason::Lost {
            self.pending_release = None;
        }
        self.set_holder(None, ended.map(|_| Ending::Told(reason)), now);
        self.notify_transition(reason, ended, now);
    }

    /// Schedules the release of the lease that a bid may have been granted, or may yet be.
    pub(super) fn give_up_bid(&mut self, bidding: Bidding, now: Moment) {
        let Bidding { bid, may_be_granted, .. } = bidding;
        let in_flight = self.in_flight.as_ref().and_then(|request| request.op.lease());
        if may_be_granted || in_flight == Some(bid.lease) {
            self.schedule_release(bid, now, true);
            if let Some(pending_release) = &mut self.pending_release {
                pending_release.may_be_held = may_be_granted;
            }
        }
    }

    /// Schedules the release of a lease that this candidate may hold. `publish_acked` is true if no
    /// publisher can still report active.
    pub(super) fn schedule_release(&mut self, bid: Arc<Bid>, now: Moment, publish_acked: bool) {
        assert!(self.pending_release.is_none(), "one lease at a time");
        let retry = RetryTimer::at_once(now);
        let (client_window, resigned) = (None, false);
        self.pending_release = Some(PendingRelease {
            bid,
            may_be_held: true,
            term: None,
            since: now,
            publish_acked,
            client_window,
            resigned,
            retry,
        });
    }

    /// Ends the pending release: it is done, unnecessary, or no longer attempted. A back-off counts from
    /// here, since no other candidate could have the lease before.
    pub(super) fn end_release(&mut self, now: Moment) {
        self.pending_release = None;
        if let Role::Standby { next_read, .. } = &mut self.role
            && next_read.ignores_wakeups
        {
            next_read.from = now;
        }
    }

    /// Records that the pending release, if there is one, ends the leadership in `term`.
    fn name_release(&mut self, term: u64) {
        if let Some(pending_release) = &mut self.pending_release {
            pending_release.term = Some(term);
        }
    }

    /// Drops a bid and stays away for about one lease-duration, so that another candidate may try
    /// (R5).
    pub(super) fn back_off(&mut self, now: Moment, entropy: Entropy) {
        if let Role::Standby { next_read, bidding } = &mut self.role {
            *bidding = None;
            *next_read = RetryTimer::backed_off(now, self.config.lease_duration, entropy.jitter);
        }
    }
}
