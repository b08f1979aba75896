//! The driver of each candidate, as the real one: hands one input to the core, publishes the status,
//! sends the request and arms the timer. What it publishes is checked at once.

use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{Input, Notice, Progress, Refusal, Standing, Status};

use super::checker;
use super::engine::Engine;
use super::process::Node;
use super::queue::Event;
use super::timeline;
use super::world::World;
use super::{MILLI, SECOND, span};

impl World<'_> {
    /// Hands one input to the core, and performs everything that follows.
    pub(super) fn turn(&mut self, node: u8, input: Input) -> Option<Result<Progress, Refusal>> {
        let it = &mut self.nodes[usize::from(node)];
        let (moment, entropy) = (it.moment(self.now), it.entropy());
        let process = it.process.as_mut()?;
        match &input {
            Input::Changed(change) => process.is_told(change, moment, it.plan.timings.retry_period),
            Input::Peer(notice) => process.pace.notify(notice, it.plan.timings.retry_period),
            _ => {}
        }
        let outcome = process.engine.turn(input, moment, entropy);
        self.follow(node, moment);
        outcome
    }

    /// Performs what follows from what was handed to a candidate. A shell need not have told its core.
    pub(super) fn follow(&mut self, node: u8, moment: Moment) {
        let Some(process) = &mut self.nodes[usize::from(node)].process else { return };
        if process.engine.has_run() {
            process.record(moment, self.now);
            self.settle(node, moment);
        } else {
            self.plan_wakeups(node, moment);
        }
    }

    /// Publishes the status, sends the request and arms the timer, as after each input.
    pub(super) fn settle(&mut self, node: u8, moment: Moment) {
        self.nodes[usize::from(node)].pass(moment);
        self.publish(node, moment);
        while let Some(notice) = self.nodes[usize::from(node)].poll_notice() {
            self.noted(node, &notice, moment);
        }
        self.update_watchdog(node);
        self.forget_call(node);
        while let Some(request) = self.nodes[usize::from(node)].poll_request() {
            self.check_early(node, &request.op, moment);
            self.check_request(node, &request.op, moment);
            self.send(node, request);
        }
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        if process.engine.is_finished() {
            return self.leave(node);
        }
        if process.engine.shell().is_some() {
            self.check_late(node, moment, Duration::ZERO);
        }
        self.plan_wakeups(node, moment);
    }

    /// Follows a notice of the core.
    fn noted(&mut self, node: u8, notice: &Notice, moment: Moment) {
        match notice {
            Notice::Transition(change) => {
                self.log(|_| {
                    let (from, to) = (change.from.as_str(), change.to.as_str());
                    format!("candidate {node}: {from} to {to}, {}", change.reason.as_str())
                });
                if let Some(timeline) = &mut self.timeline {
                    timeline.transitions.push((node, self.now, *change));
                }
                self.changed(node, *change, moment);
            }
            Notice::ReleaseUnknown => {
                if let Some(process) = &mut self.nodes[usize::from(node)].process {
                    process.pace.released(moment);
                }
            }
            _ => {}
        }
    }

    /// Schedules what the candidate waits for.
    fn plan_wakeups(&mut self, node: u8, moment: Moment) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        match &mut process.engine {
            Engine::Core(election) => {
                let wait = election.poll_timeout(moment);
                it.arm(wait, self.now, &mut self.queue);
                self.check_late(node, moment, wait);
            }
            Engine::Shell(shell) => {
                let due = shell.due();
                self.plan_due(node, due);
            }
        }
    }

    /// Ends a process that has resigned.
    fn leave(&mut self, node: u8) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = it.process.take() else { return };
        it.starts_at = self.now + process.back_after;
        self.queue.plan(it.starts_at, Event::Start { node });
        let left = process.lease.is_some_and(|lease| self.store.is_leased_to(lease));
        // While an unkillable child lives, or one may start yet, the lease is left to run out.
        let unkillable = it.workload.child.is_some_and(|child| child.unkillable);
        let may_live = unkillable || it.workload.is_pending;
        let undisturbed = process.disturbed_at.is_none() && !may_live;
        self.end_writes(process.engine);
        self.close_streams(node);
        if undisturbed && left && self.store.is_leased(self.now) {
            let say = || format!("candidate {node} has resigned, and its lease is not released");
            self.checker.report(checker::Kind::LeftBehind, self.now, say);
        }
    }

    /// Publishes the status, and checks it.
    fn publish(&mut self, node: u8, moment: Moment) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        let leading = |it: &Status| matches!(it.standing, Standing::Leader { .. });
        let (was, led) = (process.status.term(), leading(&process.status));
        process.restart_if_back(moment);
        process.status.standing = process.engine.standing();
        let (is, leads_on) = (process.status.term(), leading(&process.status));
        let leads = process.status.is_leader(moment);
        let renewed_at = process.renewed_at;
        process.jumped_at.take_if(|jumped| was != is || renewed_at >= *jumped);
        process.record(moment, self.now);
        if leads && is.is_some() && process.work.is_some_and(|it| it.term == is) {
            let say = || format!("candidate {node} leads again in a term that it gave up");
            self.checker.report(checker::Kind::Revived, self.now, say);
        }
        if leads && process.maintenance {
            let say = || format!("candidate {node} leads, although maintenance is imminent");
            self.checker.report(checker::Kind::Ineligible, self.now, say);
        }
        let forgotten = process.jumped_at.is_some();
        if leads && was == is && forgotten {
            let say = || format!("candidate {node} leads, although its clocks jumped");
            self.checker.report(checker::Kind::JumpForgotten, self.now, say);
        }
        if leads && is.is_some() && process.over == is {
            let say = || format!("candidate {node} leads again in a term that was over");
            self.checker.report(checker::Kind::Revived, self.now, say);
        }
        if led && (!leads_on || was != is) {
            process.ended += 1;
            process.passive_since = Some((moment, process.nonce, false));
            if process.engine.shell().is_none() {
                let at = self.now + it.publisher_delay + self.rng.u64(..20 * MILLI);
                self.queue.plan(at, Event::PublishAcked { node, stamp: process.ended });
            }
        }
        if let Some(term) = is.filter(|_| was != is) {
            process.led = is;
            process.elected_at = self.now;
            process.probe_results.elected();
            self.elected(node, term);
        }
        self.record_belief(node, moment);
        if leads {
            self.check_belief(node);
        }
    }

    /// Records in the timeline until when a candidate believes that it leads.
    fn record_belief(&mut self, node: u8, moment: Moment) {
        if let Some(timeline) = &mut self.timeline {
            let process = self.nodes[usize::from(node)].process.as_ref();
            let left = process.map_or(0, |it| span(it.status.remaining(moment)));
            timeline::record(&mut timeline.beliefs, node, self.now, self.now + left);
        }
    }

    fn elected(&mut self, node: u8, term: u64) {
        self.checker.elections += 1;
        self.mix(term);
        self.log(|_| format!("candidate {node} leads in term {term}"));
        let it = &self.nodes[usize::from(node)];
        if it.plan.observe {
            let say = || format!("candidate {node} only observes, and leads");
            self.checker.report(checker::Kind::ObserverLed, self.now, say);
        }
        if self.checker.find(term, node, it.life).is_none() {
            let say = || format!("candidate {node} leads in term {term}, which it never wrote");
            self.checker.report(checker::Kind::TermUnwritten, self.now, say);
        }
        if it.process.as_ref().is_some_and(|it| it.paused) {
            let say = || format!("candidate {node} leads, although paused");
            self.checker.report(checker::Kind::Ineligible, self.now, say);
        }
        let most = (2 * SECOND).min(span(it.plan.timings.lease_duration));
        self.plan_launch(node, term);
        self.lead_streams(node);
        self.close_trap(node);
        let soon = self.now + self.rng.u64(10 * MILLI..most);
        self.queue.plan(soon, Event::Ask { client: node, again: false });
    }

    /// Checks that no other node believes that it leads, now that this one does.
    pub(super) fn check_belief(&mut self, node: u8) {
        if !self.scenario.faithful {
            return;
        }
        let acts =
            |it: &&Node| it.believes(self.now) || it.drains(self.now) || self.is_told_active(it);
        let other = self.nodes.iter().find(|it| it.index != node && acts(it));
        if let Some(other) = other.map(|it| it.index) {
            let say = || format!("candidates {node} and {other} both lead");
            self.checker.report(checker::Kind::DualLeaders, self.now, say);
        }
        self.check_children(node);
    }
}
