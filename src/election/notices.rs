//! Builds the status parts that the election publishes: standing, holder, successor and
//! transitions.

use std::time::Duration;

use super::{
    Activation, Election, Ending, Holder, LastHolder, LeaseView, Notice, Reason, Renewals, Role,
    Standing, Transition,
};
use crate::clock::Moment;
use crate::lease::Successor;

impl Election {
    /// Returns the state with its data, which is all of the status that decides whether this candidate
    /// leads.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match &self.role {
            Role::Standby { .. } if !self.store_reached => Standing::Starting,
            Role::Standby { .. } if self.config.observe => Standing::Observing,
            Role::Standby { .. } if self.paused => Standing::Paused,
            Role::Standby { .. } if !self.is_fit() => Standing::Unhealthy,
            Role::Standby { .. } => Standing::Standby,
            Role::Activating(_) => Standing::Activating,
            Role::Leader(leader) => Standing::Leader {
                term: leader.term,
                belief: leader.held.belief,
                jeopardy: leader.jeopardy || leader.held.belief.suspended,
            },
            Role::Draining(it) => Standing::Draining {
                term: it.term,
                belief: it.held.belief,
                began: it.began,
                length: it.length,
            },
            Role::Resigned => Standing::Stopped,
        }
    }

    /// Records who holds the lease; `ending` tells why another one does no longer.
    pub(super) fn set_holder(
        &mut self,
        holder: Option<Holder>,
        ending: Option<Ending>,
        now: Moment,
    ) {
        let view = &mut self.lease_view;
        if holder.is_none() {
            view.leaderless.get_or_insert(now);
        }
        if self.holder == holder {
            return;
        }
        view.renewals = holder.as_ref().map(|_| Renewals::new(&self.config, now));
        view.leaderless = holder.is_none().then_some(now);
        let before = std::mem::replace(&mut self.holder, holder.clone());
        // The lease of a leadership that has ended may be seen held until it runs out.
        let is_known =
            |it: &Holder| view.last_holder.as_ref().is_some_and(|last| last.holder == *it);
        if let Some(before) = before.filter(|it| !is_known(it)) {
            view.last_holder = Some(LastHolder { holder: before, until: now, ending });
        }
        let is_own = holder.as_ref().is_some_and(|it| self.is_own(it));
        // The store shows the lease of a leadership that has ended until it has run out.
        if !is_own || matches!(self.role, Role::Leader(_)) {
            self.notices.push_back(Notice::HolderChanged(holder));
        }
    }

    /// Records that a request of this candidate's own lease, sent at `sent`, was granted.
    pub(super) fn renewed(&mut self, sent: Moment, now: Moment) {
        if let Some(renewals) = &mut self.lease_view.renewals {
            renewals.own(&self.config, sent, now);
        }
    }

    fn is_own(&self, holder: &Holder) -> bool {
        holder.candidate.instance == self.config.candidate.instance
    }

    /// Returns what this candidate has seen of the lease.
    pub(super) fn lease_view(&self) -> LeaseView {
        let activation = match &self.role {
            Role::Activating(it) => {
                Some(Activation { granted: it.granted, hold: it.hold, for_earlier: it.for_earlier })
            }
            _ => None,
        };
        let put_off = self.stream.put_off.unwrap_or_default();
        let read_within = self.config.renew_deadline.saturating_add(put_off);
        let is_own = self.holder.as_ref().is_some_and(|it| self.is_own(it));
        LeaseView { activation, read_within, is_own, ..self.lease_view.clone() }
    }

    pub(super) fn set_successor(&mut self, successor: Option<Successor>) {
        if self.successor != successor {
            self.successor.clone_from(&successor);
            self.notices.extend(successor.map(Notice::SuccessorNamed));
        }
    }

    /// Queues a notice if the state has changed; `ended` gives the term and length of a leadership
    /// that is over.
    pub(super) fn notify_transition(
        &mut self,
        reason: Reason,
        ended: Option<EndedLeadership>,
        now: Moment,
    ) {
        let standing = self.standing();
        let (from, to) = (self.state, standing.state());
        if from == to {
            return;
        }
        self.state = to;
        if !(from.is_leading() && to.is_leading()) {
            self.since = now;
        }
        let term = ended.map_or(standing.term(), |it| Some(it.term));
        let leadership = ended.map(|it| it.lasted);
        self.notices.push_back(Notice::Transition(Transition {
            from,
            to,
            reason,
            term,
            leadership,
        }));
    }
}

/// A leadership that is over.
#[derive(Clone, Copy)]
pub(super) struct EndedLeadership {
    pub(super) term: u64,
    pub(super) lasted: Duration,
}
