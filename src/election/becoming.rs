//! How a candidate changes its role: `become_*`, and nowhere else.
//!
//! What it does not do: it decides nothing. The parent module and its neighbours say when.

use std::mem;
use std::sync::Arc;

use super::departing::Departure;
use super::role::{Activating, Bidding, Draining, Leader, Nomination, Owed, Role, Tenure};
use super::telling::Ended;
use super::{Belief, Chance, Election, Holder, Pace, Reason};
use crate::clock::Moment;
use crate::store::{Bid, Grant};

impl Election {
    /// The lease is granted: hold it for as long as R11 and the activation delay want, then have
    /// the term written.
    pub(super) fn become_activating(&mut self, bidding: Bidding, grant: &Grant, now: Moment) {
        debug_assert!(matches!(self.role, Role::Standby { .. }) && self.owed.is_none());
        let hold = self.hold_for(&grant.record).max(self.config.activation_delay);
        let floor = match grant.record.term {
            Some(found) if found >= self.highest => found + 1, // take_grant saw to the overflow
            _ => self.fresh_floor(grant, now),
        };
        let sent = bidding.first_sent;
        let belief = Belief { sent, length: self.config.renew_deadline, suspended: false };
        let renewal = Pace::after(sent, self.config.retry_period);
        self.role = Role::Activating(Activating {
            tenure: Tenure { bid: bidding.bid, belief, renewal },
            granted: now,
            hold,
            floor,
            write: Pace::at_once(now),
            first_write: None,
        });
        self.set_holder(None);
        self.tell_transition(Reason::Granted, None, now);
    }

    /// The term is written under the lease: lead, while the belief lasts (R7).
    pub(super) fn become_leader(&mut self, term: u64, now: Moment) {
        let Role::Activating(Activating { tenure, .. }) = &self.role else {
            unreachable!("only a candidate that holds the lease writes a term");
        };
        let tenure = tenure.clone();
        self.role = Role::Leader(Leader { tenure, term, since: now, jeopardy: false });
        self.defect = None;
        self.health.forget_failures();
        self.occupied = self.config.escorts.then_some(term);
        self.successor = None;
        // Whoever called us back to lead has ended what we promised for a term before this.
        self.aside = None;
        let candidate = Arc::clone(&self.config.candidate);
        self.set_holder(Some(Holder { candidate, term }));
        self.tell_transition(Reason::Inaugurated, None, now);
    }

    /// The tenure is over against our will. The lease is owed back unless the store said that it
    /// is not ours; its id is dead either way (R5, R6).
    pub(super) fn become_standby(&mut self, reason: Reason, now: Moment, chance: Chance) {
        debug_assert!(self.role.tenure().is_some(), "only a tenure ends");
        let looks = Pace::spread(now, self.config.retry_period, chance.jitter);
        self.leave_tenure(Role::Standby { looks, bidding: None }, reason, now);
    }

    /// We lead no more, by will, and renew until the service has ended its work.
    pub(super) fn become_draining(&mut self, departure: Departure, now: Moment) {
        let Role::Leader(leader) = &self.role else {
            unreachable!("only a leader has work to end");
        };
        let Leader { tenure, term, since, .. } = leader.clone();
        let Departure { reason, resigning, successor } = departure;
        let nomination =
            successor.map(|successor| Nomination { successor, pace: Pace::at_once(now) });
        self.role = Role::Draining(Draining {
            tenure,
            term,
            since,
            began: now,
            length: self.config.drain_timeout,
            drained: false,
            announced: false,
            resigning,
            nomination,
        });
        self.tell_transition(reason, None, now);
    }

    /// The tenure, or the bid, is over by will; we stay and look.
    pub(super) fn become_idle(&mut self, reason: Reason, now: Moment, chance: Chance) {
        debug_assert!(!matches!(self.role, Role::Resigned));
        let looks = Pace::spread(now, self.config.retry_period, chance.jitter);
        self.leave_tenure(Role::Standby { looks, bidding: None }, reason, now);
    }

    /// We have left by will, for good.
    pub(super) fn become_resigned(&mut self, reason: Reason, now: Moment) {
        debug_assert!(!matches!(self.role, Role::Resigned));
        if let Some(owed) = &mut self.owed {
            owed.leave(now);
        }
        self.leave_tenure(Role::Resigned, reason, now);
    }

    /// Leaves whatever lease or bid the role has for another role.
    fn leave_tenure(&mut self, to: Role, reason: Reason, now: Moment) {
        let ended = match mem::replace(&mut self.role, to) {
            Role::Standby { bidding, .. } => {
                if let Some(Bidding { bid, .. }) = bidding {
                    self.owe(bid, now, true);
                }
                None
            }
            Role::Activating(it) => {
                self.owe(it.tenure.bid, now, true);
                None
            }
            Role::Leader(it) => {
                let (sent, length) = (it.tenure.belief.sent, self.config.lease_duration);
                // Found out when the lease was over by itself: nothing is left to give back.
                let over = reason == Reason::Lapsed && sent.elapsed_max(now) >= length;
                if !over {
                    self.owe(it.tenure.bid, now, false);
                }
                if let (Reason::Lapsed, Some(owed)) = (reason, &mut self.owed) {
                    owed.promised = Some((sent, length));
                }
                Some(Ended { term: it.term, lasted: it.since.elapsed_max(now) })
            }
            Role::Draining(it) => {
                let sent = it.tenure.belief.sent;
                let lapsed = reason == Reason::Lapsed;
                if !(lapsed && sent.elapsed_max(now) >= self.config.lease_duration) {
                    self.owe(it.tenure.bid, now, it.announced);
                }
                if let (true, false, Some(owed)) = (lapsed, it.drained, &mut self.owed) {
                    owed.promised = Some((it.began, it.length));
                }
                Some(Ended { term: it.term, lasted: it.since.elapsed_max(now) })
            }
            Role::Resigned => None,
        };
        if reason == Reason::Lost {
            self.owed = None;
        }
        self.set_holder(None);
        self.tell_transition(reason, ended, now);
    }

    /// Remembers to release a lease that may be ours; `announced` if nobody ever heard active.
    pub(super) fn owe(&mut self, bid: Bid, now: Moment, announced: bool) {
        debug_assert!(self.owed.is_none(), "one lease at a time");
        let pace = Pace::at_once(now);
        let (promised, leaving) = (None, false);
        self.owed = Some(Owed { bid, since: now, announced, promised, leaving, pace });
    }

    /// Drops a bid and stays away for about a lease-duration, so that another may try (R5).
    pub(super) fn back_off(&mut self, now: Moment, chance: Chance) {
        if let Role::Standby { looks, bidding } = &mut self.role {
            *bidding = None;
            *looks = Pace::apart(now, self.config.lease_duration, chance.jitter);
        }
    }
}
