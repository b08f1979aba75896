//! The supervised processes of a term, and the watchdog that ends them by the node's own clocks,
//! also if the candidate is gone.
//!
//! A child starts once in a term, after the candidate has become leader.

use tenure::clock::Moment;
use tenure::election::{Belief, Input, Standing};
use tenure::lease::LeaseId;

use super::checker::Kind;
use super::examine::Step;
use super::process::Node;
use super::queue::Event;
use super::world::World;
use super::{Instant, MILLI, SECOND, Span, span};

/// The supervised processes of one candidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Workload {
    pub child: Option<Child>,
    /// Counts the terms; launches, exits and reports with an earlier number are stale.
    stamp: u32,
    /// The current term.
    term: u64,
    /// The hold-off after a child that exited by itself.
    hold_off: Option<Span>,
    /// Whether its candidate has not been notified yet that no process of the term is left.
    pub is_pending: bool,
}

/// A live process.
#[derive(Clone, Copy, Debug)]
pub struct Child {
    pub term: u64,
    pub lease: LeaseId,
    /// The belief that was last published to its watchdog.
    belief: Belief,
    /// When the drain began, and its length.
    drain: Option<(Moment, std::time::Duration)>,
    /// Whether only a restart of the machine ends it.
    pub unkillable: bool,
}

impl Child {
    /// Returns the time until the watchdog kills it.
    fn remaining(&self, now: Moment) -> std::time::Duration {
        let belief = self.belief.until_end(now);
        let drain = self.drain.map(|(began, it)| it.saturating_sub(began.elapsed_max(now)));
        drain.map_or(belief, |drain| drain.min(belief))
    }
}

impl Node {
    /// Returns whether a child of this node runs that the watchdog is required to have ended.
    /// Children that cannot be ended, and those whose lease clocks stopped or went back, are
    /// outside the claim.
    fn acts_by_child(&self, now: Instant) -> bool {
        let Some(child) = &self.workload.child else { return false };
        let belief = &child.belief;
        let jumped = || belief.suspended || belief.sent.jumped(self.moment(now));
        !self.machine_stands && !child.unkillable && !jumped()
    }
}

impl World<'_> {
    /// Schedules the launch of a child, after a candidate has become leader.
    pub(super) fn plan_launch(&mut self, node: u8, term: u64) {
        let it = &mut self.nodes[usize::from(node)];
        if !it.plan.has_workload {
            return;
        }
        it.workload.stamp += 1;
        it.workload.term = term;
        it.workload.hold_off = None;
        it.workload.is_pending = true;
        let stamp = it.workload.stamp;
        let soon = self.now + self.rng.u64(MILLI..400 * MILLI);
        self.queue.plan(soon, Event::Launch { node, stamp });
    }

    /// Starts the child if the candidate is still leader of that term.
    pub(super) fn launch(&mut self, node: u8, stamp: u32) {
        let moment = self.nodes[usize::from(node)].moment(self.now);
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = it.process.as_ref().filter(|_| it.workload.stamp == stamp) else {
            return;
        };
        let term = it.workload.term;
        let (belief, lease) = match (&process.status.standing, process.lease) {
            (Standing::Leader { belief, .. }, Some(lease))
                if process.status.is_leader(moment) && process.status.term() == Some(term) =>
            {
                (*belief, lease)
            }
            _ => return self.plan_workload_exit(node, stamp, 0),
        };
        let phase = self.examination.step() == Step::Phase;
        let unkillable = phase && self.rng.u8(..50) == 0;
        it.workload.child = Some(Child { term, lease, belief, drain: None, unkillable });
        self.log(|_| format!("candidate {node} starts the child of term {term}"));
        self.queue.plan(self.now, Event::Watchdog { node, stamp });
        self.check_children(node);
    }

    /// Passes the published status to the watchdog, and ends the child if its term is over.
    pub(super) fn update_watchdog(&mut self, node: u8) {
        let it = &mut self.nodes[usize::from(node)];
        let (Some(child), Some(process)) = (&mut it.workload.child, &it.process) else { return };
        let stamp = it.workload.stamp;
        match &process.status.standing {
            Standing::Leader { term, belief, .. } if *term == child.term => child.belief = *belief,
            Standing::Draining { term, belief, began, length } if *term == child.term => {
                child.belief = *belief;
                let drain = span(*length);
                if child.drain.replace((*began, *length)).is_none() {
                    self.ask_to_end(node, stamp, drain);
                }
            }
            _ => self.kill(node),
        }
    }

    /// Asks a child to exit: some do so soon, some late, some never.
    fn ask_to_end(&mut self, node: u8, stamp: u32, drain: Span) {
        self.queue.plan(self.now, Event::Watchdog { node, stamp });
        if self.rng.u8(..3) > 0 {
            let at = self.now + self.rng.u64(MILLI..drain + SECOND);
            self.queue.plan(at, Event::ChildEnds { node, stamp });
        }
    }

    /// Runs the watchdog's timer: kills the child if its deadline has passed by the machine's
    /// clocks.
    pub(super) fn run_watchdog(&mut self, node: u8, stamp: u32) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(child) = it.workload.child.filter(|_| it.workload.stamp == stamp) else { return };
        let remaining = child.remaining(it.moment(self.now));
        if remaining.is_zero() {
            return self.kill(node);
        }
        // The machine's clocks are never fast enough for this to be late.
        let wait = (span(remaining) * 9 / 10).max(MILLI);
        self.queue.plan(self.now + wait, Event::Watchdog { node, stamp });
    }

    /// Runs the watchdog at once, after a change of the clocks.
    pub(super) fn wake_watchdog(&mut self, node: u8) {
        let it = &self.nodes[usize::from(node)];
        if it.workload.child.is_some() {
            self.queue.plan(self.now, Event::Watchdog { node, stamp: it.workload.stamp });
        }
    }

    /// Kills the child.
    pub(super) fn kill(&mut self, node: u8) {
        let it = &mut self.nodes[usize::from(node)];
        if it.workload.child.take_if(|it| !it.unkillable).is_some() {
            let stamp = it.workload.stamp;
            self.log(|_| format!("the child of candidate {node} is killed"));
            let soon = self.rng.u64(MILLI..30 * MILLI);
            self.plan_workload_exit(node, stamp, soon);
        }
    }

    /// Kills the child even if it was immortal: the machine restarts, or the obstacle is gone.
    pub(super) fn remove_child(&mut self, node: u8) {
        if let Some(child) = &mut self.nodes[usize::from(node)].workload.child {
            child.unkillable = false;
            self.kill(node);
        }
    }

    /// Ends a child: because it was asked to exit, or (with a hold-off) by itself.
    pub(super) fn child_ends(
        &mut self,
        node: u8,
        stamp: Option<u32>,
        hold_off: Option<Span>,
    ) -> bool {
        let it = &mut self.nodes[usize::from(node)];
        let its = it.workload.stamp;
        if stamp.is_some_and(|stamp| stamp != its)
            || it.workload.child.is_none_or(|it| it.unkillable)
        {
            return false;
        }
        it.workload.child = None;
        it.workload.hold_off = hold_off;
        self.log(|_| format!("the child of candidate {node} ends"));
        let soon = self.rng.u64(MILLI..30 * MILLI);
        self.plan_workload_exit(node, its, soon);
        true
    }

    fn plan_workload_exit(&mut self, node: u8, stamp: u32, soon: Span) {
        self.queue.plan(self.now + soon, Event::WorkloadExited { node, stamp });
    }

    /// Notifies the candidate that no process of its term is left.
    pub(super) fn workload_exited(&mut self, node: u8, stamp: u32) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = it.process.as_mut().filter(|_| it.workload.stamp == stamp) else {
            return;
        };
        it.workload.is_pending = false;
        let (term, hold_off) = (it.workload.term, it.workload.hold_off);
        if let Some(work) = process.work.as_mut().filter(|it| it.term == Some(term)) {
            work.over = true;
        }
        process.asked_hold_off = hold_off;
        let hold_off = hold_off.map(std::time::Duration::from_nanos);
        self.turn(node, Input::WorkloadExited { term, hold_off });
    }

    /// Checks that no other node's child runs, now that this node's child runs or the node leads.
    pub(super) fn check_children(&mut self, node: u8) {
        if !self.scenario.faithful {
            return;
        }
        let acts = |it: &&Node| it.index != node && it.acts_by_child(self.now);
        if let Some(other) = self.nodes.iter().find(acts).map(|it| it.index) {
            let say = || format!("candidate {node} leads while a child of {other} lives");
            self.checker.report(Kind::DualChildren, self.now, say);
        }
    }
}
