//! Queues of events: which change to report next, each only once. Pure: it runs nothing and reads
//! no clock.

use std::time::Duration;

use super::Name;
use crate::clock::Moment;
use crate::election::{Standing, Status};

/// An event for a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HookEvent {
    /// The hook.
    pub(super) name: Name,
    /// The term of this instance that has begun, drains or has ended; `None` for another's.
    pub(super) term: Option<u64>,
}

/// A queue of events that are reported one after the other.
pub(super) trait EventQueue {
    /// Processes a status as it is at `now`; returns events that were due and are now obsolete.
    fn observe(&mut self, status: &Status, now: Moment) -> Vec<HookEvent>;

    /// Returns the event to report now, if there is one, and marks it as reported.
    fn start(&mut self, status: &Status, now: Moment) -> Option<HookEvent>;
}

/// The role of this instance, as far as hooks report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum View {
    /// Leads, or may still lead: after a jump of the clocks, leadership is lost only when the old
    /// deadline has passed (R10).
    Leads(u64),
    /// Drains.
    Drains(u64),
    #[default]
    Not,
}

impl View {
    fn of(status: &Status, now: Moment) -> Self {
        match &status.standing {
            Standing::Leader { term, .. } if !status.work_remaining(now).is_zero() => {
                Self::Leads(*term)
            }
            Standing::Draining { term, .. } => Self::Drains(*term),
            _ => Self::Not,
        }
    }
}

/// Returns the time until a change by the clock alone, if there may be one.
pub(super) fn until_change(status: &Status, now: Moment) -> Option<Duration> {
    match &status.standing {
        Standing::Leader { .. } => Some(status.work_remaining(now)).filter(|it| !it.is_zero()),
        _ => None,
    }
}

/// The queue of active, drain and passive, which are about the same thing.
#[derive(Debug, Default)]
pub(super) struct Roles {
    view: View,
    /// The term that was reported active, and not passive yet.
    active: Option<u64>,
    /// The term that was reported to drain.
    drained: Option<u64>,
}

impl Roles {
    fn due(&self) -> impl Iterator<Item = HookEvent> + use<> {
        let event = |name, term| HookEvent { name, term: Some(term) };
        let ended = self.active.map(|term| event(Name::Passive, term));
        let due = match self.view {
            View::Leads(term) if self.active != Some(term) => {
                [Some(event(Name::Active, term)), None]
            }
            View::Leads(_) => [None, None],
            View::Drains(term) if self.drained != Some(term) => {
                [Some(event(Name::Drain, term)), ended]
            }
            View::Drains(_) | View::Not => [ended, None],
        };
        due.into_iter().flatten()
    }
}

impl EventQueue for Roles {
    fn observe(&mut self, status: &Status, now: Moment) -> Vec<HookEvent> {
        let before = self.due();
        self.view = View::of(status, now);
        let after: Vec<_> = self.due().collect();
        before.filter(|event| !after.contains(event)).collect()
    }

    fn start(&mut self, status: &Status, now: Moment) -> Option<HookEvent> {
        let event = self.due().next()?;
        match event.name {
            // Not after the end of the belief, nor while a jump of the clocks suspends it.
            Name::Active if !status.is_leader(now) => return None,
            Name::Active => self.active = event.term,
            Name::Drain => self.drained = event.term,
            Name::Passive | Name::LeaderChange => self.active = None,
        }
        Some(event)
    }
}

/// The queue of leader changes, of any instance.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    seen: Option<Leader>,
    notified: Option<Leader>,
}

/// A leadership: an instance in a term.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leader {
    identity: String,
    instance: String,
    term: u64,
}

impl Leaders {
    fn due(&self) -> bool {
        self.seen != self.notified
    }
}

impl EventQueue for Leaders {
    fn observe(&mut self, status: &Status, _now: Moment) -> Vec<HookEvent> {
        // A free lease is not a change of the leader.
        let Some(holder) = &status.holder else {
            return Vec::new();
        };
        let candidate = &holder.candidate;
        let leader = Leader {
            identity: candidate.identity.clone(),
            instance: candidate.instance.clone(),
            term: holder.term,
        };
        let replaced = self.due() && self.seen.as_ref() != Some(&leader);
        self.seen = Some(leader);
        if replaced { vec![HookEvent { name: Name::LeaderChange, term: None }] } else { Vec::new() }
    }

    fn start(&mut self, status: &Status, _now: Moment) -> Option<HookEvent> {
        if !self.due() {
            return None;
        }
        self.notified.clone_from(&self.seen);
        Some(HookEvent { name: Name::LeaderChange, term: status.term() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::election::{Belief, Holder, LeaseView, StoreHealth};
    use crate::lease::Candidate;

    const LENGTH: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    fn status(standing: Standing) -> Status {
        let store = StoreHealth::default();
        Status {
            standing,
            since: at(0),
            holder: None,
            successor: None,
            hold_off: None,
            workload_term: None,
            released_term: None,
            contact_due: None,
            lease: LeaseView::default(),
            store,
            wait: None,
        }
    }

    fn leading(term: u64, sent: Moment) -> Status {
        let belief = Belief { sent, length: LENGTH, suspended: false };
        status(Standing::Leader { term, belief, jeopardy: false })
    }

    fn event(name: Name, term: u64) -> HookEvent {
        HookEvent { name, term: Some(term) }
    }

    /// Sets the view directly, and returns the events that become obsolete.
    fn viewing(roles: &mut Roles, view: View) -> Vec<HookEvent> {
        let before: Vec<_> = roles.due().collect();
        roles.view = view;
        let after: Vec<_> = roles.due().collect();
        before.into_iter().filter(|event| !after.contains(event)).collect()
    }

    fn next(roles: &mut Roles) -> Option<HookEvent> {
        // A status that leads at this instant.
        roles.start(&leading(1, at(0)), at(0))
    }

    #[test]
    fn active_and_passive_are_reported_once_each() {
        let mut roles = Roles::default();
        assert!(roles.observe(&leading(7, at(0)), at(0)).is_empty());
        assert_eq!(roles.start(&leading(7, at(0)), at(0)), Some(event(Name::Active, 7)));
        roles.observe(&leading(7, at(2)), at(2));
        assert_eq!(roles.start(&leading(7, at(2)), at(2)), None, "a renewal is nothing new");
        let standby = status(Standing::Standby);
        roles.observe(&standby, at(3));
        assert_eq!(roles.start(&standby, at(3)), Some(event(Name::Passive, 7)));
        assert_eq!(roles.start(&standby, at(3)), None);
    }

    #[test]
    fn passive_is_not_reported_without_an_earlier_active() {
        let mut roles = Roles::default();
        for standing in [Standing::Starting, Standing::Standby, Standing::Activating] {
            assert!(roles.observe(&status(standing.clone()), at(0)).is_empty());
            assert_eq!(roles.start(&status(standing), at(0)), None);
        }
    }

    #[test]
    fn a_belief_that_is_over_is_passive_though_nobody_published() {
        let mut roles = Roles::default();
        let leader = leading(7, at(0));
        roles.observe(&leader, at(0));
        roles.start(&leader, at(0)).unwrap();
        assert_eq!(until_change(&leader, at(4)), Some(Duration::from_secs(6)));
        roles.observe(&leader, at(9));
        assert_eq!(roles.start(&leader, at(9)), None);
        roles.observe(&leader, at(10));
        assert_eq!(roles.start(&leader, at(10)), Some(event(Name::Passive, 7)));
        assert_eq!(until_change(&leader, at(10)), None);
    }

    #[test]
    fn active_is_not_begun_for_a_belief_that_is_over() {
        let mut roles = Roles::default();
        let leader = leading(7, at(0));
        roles.observe(&leader, at(0));
        assert_eq!(roles.start(&leader, at(10)), None);
        assert_eq!(roles.observe(&leader, at(10)), [event(Name::Active, 7)]);
        assert_eq!(roles.start(&leader, at(10)), None, "what was not begun has no end");
    }

    #[test]
    fn a_jump_of_the_clocks_is_a_loss_when_the_old_deadline_has_passed() {
        let jumped = |leader: &Status| {
            let Standing::Leader { term, belief, .. } = leader.standing else { unreachable!() };
            let belief = Belief { suspended: true, ..belief };
            status(Standing::Leader { term, belief, jeopardy: true })
        };
        let mut roles = Roles::default();
        roles.observe(&leading(7, at(0)), at(0));
        let suspended = jumped(&leading(7, at(0)));
        roles.observe(&suspended, at(1));
        assert_eq!(roles.start(&suspended, at(1)), None, "active is not begun in it");
        roles.observe(&leading(7, at(2)), at(2));
        assert_eq!(roles.start(&leading(7, at(2)), at(2)), Some(event(Name::Active, 7)));
        let suspended = jumped(&leading(7, at(2)));
        roles.observe(&suspended, at(11));
        assert_eq!(roles.start(&suspended, at(11)), None);
        roles.observe(&suspended, at(12));
        assert_eq!(roles.start(&suspended, at(12)), Some(event(Name::Passive, 7)));
    }

    #[test]
    fn a_drain_is_reported_once_and_before_passive() {
        let mut roles = Roles::default();
        viewing(&mut roles, View::Leads(7));
        next(&mut roles).unwrap();
        viewing(&mut roles, View::Drains(7));
        assert_eq!(next(&mut roles), Some(event(Name::Drain, 7)));
        assert_eq!(next(&mut roles), Some(event(Name::Passive, 7)));
        assert_eq!(next(&mut roles), None);
        assert!(viewing(&mut roles, View::Not).is_empty());
        assert_eq!(next(&mut roles), None);
    }

    #[test]
    fn a_drain_that_is_over_is_skipped_and_passive_is_not() {
        let mut roles = Roles::default();
        viewing(&mut roles, View::Leads(7));
        next(&mut roles).unwrap();
        viewing(&mut roles, View::Drains(7));
        assert_eq!(viewing(&mut roles, View::Not), [event(Name::Drain, 7)]);
        assert_eq!(next(&mut roles), Some(event(Name::Passive, 7)));
    }

    #[test]
    fn the_newest_state_wins_over_those_in_between() {
        let mut roles = Roles::default();
        viewing(&mut roles, View::Leads(1));
        next(&mut roles).unwrap();
        assert!(viewing(&mut roles, View::Not).is_empty());
        assert_eq!(viewing(&mut roles, View::Leads(2)), [event(Name::Passive, 1)]);
        assert_eq!(viewing(&mut roles, View::Not), [event(Name::Active, 2)]);
        assert_eq!(next(&mut roles), Some(event(Name::Passive, 1)));
        viewing(&mut roles, View::Leads(3));
        assert_eq!(next(&mut roles), Some(event(Name::Active, 3)));
    }

    fn led_by(name: &str, term: u64) -> Status {
        let candidate = Arc::new(Candidate {
            identity: name.to_owned(),
            instance: format!("{name}-1"),
            address: None,
            peer: None,
        });
        Status {
            holder: Some(Holder { candidate, term, nonce: None }),
            ..status(Standing::Standby)
        }
    }

    #[test]
    fn each_leader_is_reported_once_and_only_the_newest() {
        let mut leaders = Leaders::default();
        let mut see = |status: &Status| {
            let skipped = leaders.observe(status, at(0)).len();
            (skipped, leaders.start(status, at(0)).is_some())
        };
        assert_eq!(see(&status(Standing::Standby)), (0, false));
        assert_eq!(see(&led_by("a", 1)), (0, true));
        assert_eq!(see(&status(Standing::Standby)), (0, false), "nobody is no leader");
        assert_eq!(see(&led_by("a", 1)), (0, false));
        assert_eq!(see(&led_by("a", 2)), (0, true));
        assert_eq!(see(&led_by("b", 3)), (0, true));
        assert!(leaders.observe(&led_by("c", 4), at(0)).is_empty());
        assert_eq!(leaders.observe(&led_by("d", 5), at(0)).len(), 1);
    }
}
