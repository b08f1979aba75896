//! The examination of liveness after each phase of faults: all faults end, and a leader must emerge.
//!
//! After each phase a leader must emerge within the bound; then that leader hands over, and the next
//! must follow within the time of a graceful handover. After the last phase, one leader after
//! another is killed for good until only one candidate is left, which proves that each can lead.

use tenure::election::{Input, State};

use super::checker::Kind;
use super::faults::{Kind as Fault, TransferTarget};
use super::network::Defect;
use super::operate;
use super::process::Node;
use super::queue::Event;
use super::service::Health;
use super::store;
use super::world::World;
use super::{Instant, MILLI, SECOND, Span, span};

/// The progress of an episode.
#[derive(Debug, Default)]
pub struct Examination {
    phase: usize,
    /// The start of the phase.
    phase_began: Instant,
    step: Step,
    /// The leader and its life when the last step began.
    leader: Option<(u8, u32)>,
    /// The identity that must lead next, if one was named.
    successor: Option<String>,
    may_return: bool,
    /// Until when a third party may hold the lease.
    pub third_party_until: Instant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// Faults are injected.
    #[default]
    Phase,
    /// At the end of this step there must be a leader.
    Recovery,
    /// Hold-offs expire.
    Patience,
    /// At the end of this step there must be a different leader.
    Handover,
    /// At the end of this step there must be a different leader, although one candidate can do no
    /// more than acquire the lease.
    Defect,
    /// At the end of this step there must be a different leader; repeated until no other candidate
    /// is left.
    Killing,
    /// The episode is over.
    Over,
}

impl Examination {
    /// Returns the current step.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Returns whether the examination is complete.
    pub fn is_over(&self) -> bool {
        self.step == Step::Over
    }
}

impl World<'_> {
    /// Schedules the faults of the next phase, and its end.
    pub(super) fn begin_phase(&mut self) {
        let phase = self.examination.phase;
        self.examination.step = Step::Phase;
        let faults = &self.scenario.faults;
        let of_phase = |it: &&u32| usize::from(faults[**it as usize].phase) == phase;
        self.upcoming = self.kept.iter().filter(of_phase).copied().collect();
        // Popped from the end, so the earliest comes last.
        self.upcoming.sort_by_key(|it| std::cmp::Reverse(faults[*it as usize].at));
        self.examination.phase_began = self.now;
        self.plan_injection();
        self.queue.plan(self.now + self.scenario.phases[phase], Event::Examine);
    }

    /// Schedules only the next fault, so that the queue stays short.
    pub(super) fn plan_injection(&mut self) {
        if let Some(fault) = self.upcoming.pop() {
            let at = self.examination.phase_began + self.scenario.faults[fault as usize].at;
            self.queue.plan(at, Event::Inject { fault });
        }
    }

    /// Evaluates the current step and begins the next.
    pub(super) fn examine(&mut self) {
        match self.examination.step {
            Step::Phase => {
                self.examination.leader = None;
                let begin = self.end_faults();
                let bound = self.recovery_bound();
                self.next_step(Step::Recovery, begin + bound);
            }
            Step::Recovery => {
                if self.expect_leader(Kind::Leaderless, "the faults stopped") {
                    self.begin_patience();
                    let patience = 2 * self.scenario.longest(|it| it.lease_duration);
                    self.next_step(Step::Patience, self.now + patience);
                }
            }
            Step::Patience => {
                self.examination.leader = None;
                self.end_patience(2 * self.scenario.longest(|it| it.lease_duration));
                if self.expect_leader(Kind::Leaderless, "it had recovered")
                    && let Some((leader, _)) = self.examination.leader
                {
                    self.expect_files(leader);
                    let bound = self.hand_over(leader);
                    self.next_step(Step::Handover, self.now + bound);
                }
            }
            Step::Handover => {
                self.end_handover();
                let before = self.examination.leader;
                if std::mem::take(&mut self.examination.may_return) {
                    self.examination.leader = None;
                }
                if self.expect_leader(Kind::SlowHandover, "the leader left") {
                    self.expect_successor();
                    if let Some((before, _)) = before {
                        self.resume(usize::from(before));
                        self.set_health(usize::from(before), Health::Healthy);
                    }
                    self.crash_beside_a_defect();
                }
            }
            Step::Defect => {
                self.nodes.iter_mut().for_each(|it| it.link.defect = None);
                if self.expect_leader(
                    Kind::Leaderless,
                    "the leader crashed while a standby was defective",
                ) {
                    self.examination.phase += 1;
                    if self.examination.phase < self.scenario.phases.len() {
                        self.begin_phase();
                    } else {
                        self.kill_leader();
                    }
                }
            }
            Step::Killing => {
                if self.expect_leader(Kind::Leaderless, "the leader was killed") {
                    self.kill_leader();
                }
            }
            Step::Over => {}
        }
    }

    fn next_step(&mut self, step: Step, at: Instant) {
        self.examination.step = step;
        self.queue.plan(at, Event::Examine);
    }

    /// Ends all faults, and returns when their last effect is over.
    fn end_faults(&mut self) -> Instant {
        self.end_lasting();
        self.trapped = 0;
        self.relink();
        self.nodes.iter_mut().for_each(|it| (it.resumes, it.cut_when_leading) = (false, false));
        let mut begin = self.now.max(self.last_arrival).max(self.examination.third_party_until);
        let leaving = 2 * self.scenario.longest(|it| it.request_timeout);
        for index in 0..self.nodes.len() {
            let it = &mut self.nodes[index];
            it.publisher_delay = 0;
            it.clocks.slew(it.plan.drift_ppm, self.now);
            let probes_end = it.service.probes.iter().map(|it| it.ends_at).max();
            begin = begin.max(probes_end.unwrap_or_default());
            begin = begin.max(it.asleep_until).max(it.starts_at);
            if let Some(process) = &mut it.process {
                process.back_after = 0;
                if process.status.standing == tenure::election::Standing::Stopped {
                    begin = begin.max(self.now + leaving + span(it.plan.timings.drain_timeout));
                }
            }
            let awake = it.asleep_until <= self.now;
            self.set_health(index, Health::Healthy);
            self.set_maintenance(index, false);
            self.remove_child(index as u8);
            self.resume(index);
            if awake {
                self.turn(index as u8, Input::Timeout);
            }
        }
        self.log(|_| "all faults end".to_owned());
        begin
    }

    /// Checks that there is a leader, and not the one from the beginning of the step.
    fn expect_leader(&mut self, kind: Kind, since: &str) -> bool {
        let leader = self.nodes.iter().find(|it| it.believes(self.now));
        let leader = leader.map(|it| (it.index, it.life));
        let before = self.examination.leader;
        if leader.is_none() || leader == before {
            let states: Vec<_> = self
                .nodes
                .iter()
                .map(|it| it.process.as_ref().map(|it| it.status.standing.state()))
                .collect();
            self.checker.report(kind, self.now, || format!("no leader since {since}: {states:?}"));
            return false;
        }
        self.examination.leader = leader;
        true
    }

    /// Checks that the status files of a leader say so, if its term began a while ago.
    fn expect_files(&mut self, leader: u8) {
        let it = &self.nodes[usize::from(leader)];
        let Some(process) = it.process.as_ref().filter(|_| self.has_shells()) else { return };
        let (term, boot) = (process.status.term(), span(it.moment(self.now).boot));
        let elected_at = process.elected_at;
        if elected_at + SECOND < self.now
            && it.disk.active(boot).map(|it| Some(it.term)) != Some(term)
        {
            let say =
                || format!("candidate {leader} leads in term {term:?}, which a file does not say");
            self.checker.report(Kind::FileBehind, self.now, say);
        }
    }

    /// Makes the leader hand over in one of the possible ways, and returns the bound for it.
    fn hand_over(&mut self, leader: u8) -> Span {
        let it = &self.nodes[usize::from(leader)];
        let drain = span(it.plan.timings.drain_timeout) * 11 / 10;
        let probing = it.plan.probing;
        let bound = self.handover_bound() + drain;
        let (retry, second) = (self.scenario.longest(|it| it.retry_period), SECOND);
        // Whoever is deceived must win nevertheless.
        let hold_off = 3 * retry + 2 * second + self.deceived_for();
        self.examination.successor = None;
        match (self.rng.u8(..6), probing) {
            (0, _) => {
                self.operate(usize::from(leader), Fault::StepDown, hold_off);
                bound
            }
            (1, _) => {
                let successor = self.nodes.iter().rfind(|it| it.index != leader && it.is_fit());
                let successor = successor.map(|it| it.index);
                let Some(successor) = successor.filter(|_| self.is_recorded(leader)) else {
                    self.resign(usize::from(leader), SECOND);
                    return bound;
                };
                self.examination.successor = Some(operate::identity(successor));
                let to = TransferTarget::Node(successor);
                self.operate(usize::from(leader), Fault::Transfer { to }, hold_off);
                bound
            }
            (2, _) if self.is_recorded(leader) => {
                let hold_off =
                    self.rng.u64(100 * MILLI..self.scenario.longest(|it| it.lease_duration));
                self.examination.may_return = true;
                let to = TransferTarget::Nobody;
                self.operate(usize::from(leader), Fault::Transfer { to }, hold_off);
                bound + hold_off * 11 / 10 + 2 * retry
            }
            (3, _) => {
                self.operate(usize::from(leader), Fault::TakeOut, 0);
                bound
            }
            (4, Some(probing)) => {
                self.set_health(usize::from(leader), Health::Unhealthy);
                let found = u64::from(probing.rule.failures + 1) * (probing.interval + 100 * MILLI);
                bound + found
            }
            _ => {
                self.resign(usize::from(leader), SECOND);
                bound
            }
        }
    }

    /// Returns whether the record is the one that this leader wrote; otherwise it cannot name a
    /// successor in it.
    fn is_recorded(&self, leader: u8) -> bool {
        let process = self.nodes[usize::from(leader)].process.as_ref();
        process.is_some_and(|it| it.nonce.is_some() && self.store.nonce() == it.nonce)
    }

    /// Checks that the named successor leads.
    fn expect_successor(&mut self) {
        let (Some(successor), Some((leader, _))) =
            (self.examination.successor.take(), self.examination.leader)
        else {
            return;
        };
        let name = operate::identity(leader);
        if name != successor {
            self.checker.report(Kind::WrongSuccessor, self.now, || {
                format!("candidate {leader} leads, named {name}, instead of {successor}")
            });
        }
    }

    /// Gives one standby a defect, and crashes the leader.
    fn crash_beside_a_defect(&mut self) {
        let Some((leader, _)) = self.examination.leader else { return };
        let defect = match self.rng.bool() {
            true => Defect::CannotWrite,
            false => Defect::LosesGrants,
        };
        // Beside a lying stream, the others read rarely, and the defective candidate may have the lease
        // whenever they do.
        let is_deceived = self.deceived_for() > 0;
        let standbys = self.nodes.iter_mut().filter(|it| it.index != leader && !it.plan.observe);
        if let Some(successor) = standbys.last().filter(|_| !is_deceived) {
            successor.link.defect = Some(defect);
        }
        self.crash(usize::from(leader), Some(SECOND));
        self.examination.leader = None;
        // The defective candidate gives up after a lease-duration, and its last bid expires after
        // another. The next leader waits for activation-delay and hold once more.
        let wasted = 2 * self.scenario.longest(|it| it.lease_duration)
            + self.scenario.longest(|it| it.activation_delay)
            + self.hold();
        let bound = self.recovery_bound() + wasted;
        self.next_step(Step::Defect, self.now + bound);
    }

    /// Kills the leader for good, if another candidate is left.
    fn kill_leader(&mut self) {
        let Some((leader, _)) = self.examination.leader else { return };
        self.crash(usize::from(leader), None);
        let left = self.nodes.iter().any(|it| !it.plan.observe && it.process.is_some());
        if left {
            let bound = self.recovery_bound();
            self.next_step(Step::Killing, self.now + bound);
        } else {
            self.examination.step = Step::Over;
        }
    }

    /// Returns the bound from the end of all faults to a leader: lease-duration, three
    /// retry-periods and two request-timeouts, and everything that delays a new leader on purpose.
    fn recovery_bound(&self) -> Span {
        let timings = self.scenario;
        let base = timings.longest(|it| it.lease_duration)
            + 3 * timings.longest(|it| it.retry_period)
            + 2 * timings.longest(|it| it.request_timeout)
            + timings.longest(|it| it.activation_delay);
        // Clocks may be as slow as the claim allows.
        let base = base + self.hold() + self.longest_hold_off() + self.draining_bound();
        base * 11 / 10 + 200 * MILLI + self.probing_bound() + self.deceived_for()
    }

    /// Returns how long a healthy service takes to pass its probes.
    fn probing_bound(&self) -> Span {
        let probing = self.nodes.iter().filter_map(|it| it.plan.probing);
        let bounds =
            probing.map(|it| u64::from(it.rule.successes + 1) * (it.interval + 100 * MILLI));
        bounds.max().unwrap_or_default()
    }

    /// Returns how long a drain in progress can still take.
    fn draining_bound(&self) -> Span {
        let drains = |it: &Node| {
            let state = it.process.as_ref().map(|it| it.status.standing.state());
            it.workload.child.is_some() || matches!(state, Some(State::Draining | State::Stopped))
        };
        if !self.nodes.iter().any(drains) {
            return 0;
        }
        self.scenario.longest(|it| it.drain_timeout)
            + 2 * self.scenario.longest(|it| it.request_timeout)
    }

    /// Returns the bound from a resignation to the next leader: one and a half retry-periods and a
    /// second.
    fn handover_bound(&self) -> Span {
        let timings = self.scenario;
        let base = timings.longest(|it| it.retry_period) * 3 / 2
            + timings.longest(|it| it.activation_delay);
        (base + self.hold()) * 11 / 10 + SECOND + self.deceived_for()
    }

    /// Returns how long the next leader may hold the lease before it is active: not zero if the
    /// record is missing, or its term is lower than one that a candidate has seen.
    fn hold(&self) -> Span {
        let term = self.store.term();
        let reported =
            self.nodes.iter().filter_map(|it| it.process.as_ref()).map(|it| it.seen_term).max();
        match (self.store.kind(), term) {
            (store::Kind::Host, None) => 0,
            (_, Some(term)) if reported.unwrap_or(0) <= term => 0,
            (store::Kind::Blob, _) => 60 * SECOND,
            (store::Kind::Object, _) | (store::Kind::Host, Some(_)) => {
                self.scenario.longest(|it| it.lease_duration)
            }
        }
    }
}
