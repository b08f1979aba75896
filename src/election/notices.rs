//! Builds the status parts that the election publishes: standing, holder, successor and
//! transitions.

use std::time::Duration;

use super::{Election, Holder, Notice, Reason, Role, Standing, Transition};
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

    pub(super) fn set_holder(&mut self, holder: Option<Holder>) {
        if self.holder != holder {
            self.holder.clone_from(&holder);
            self.notices.push_back(Notice::HolderChanged(holder));
        }
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
