//! The examination of liveness after each phase of faults: all faults end, and a leader must emerge.
//!
//! After each phase a leader must emerge within the bound; then that leader hands over, and the next
//! must follow within the time of a graceful handover. After the last phase, one leader after
//! another is killed for good until only one candidate is left, which proves that each can lead.

use std::time::Duration;

use tenure::election::Input;
use tenure::lease::Successor;

use super::checker::Kind;
use super::faults::{Kind as Fault, TransferTarget};
use super::network::Defect;
use super::operate;
use super::queue::Event;
use super::service::Health;
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
    /// The last effects of the faults end.
    Settling,
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
        self.check_forgotten();
        match self.examination.step {
            Step::Phase => {
                self.examination.leader = None;
                let begin = self.end_faults();
                self.next_step(Step::Settling, begin);
            }
            Step::Settling => {
                for node in 0..self.nodes.len() {
                    self.turn(node as u8, Input::Timeout);
                }
                let bound = self.bound_on_leader(None, None);
                self.next_step(Step::Recovery, self.now + bound);
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
        self.log(|it| format!("{step:?} ends within {} ms", (at - it.now) / MILLI));
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
        // Candidates learn of the children that were killed.
        begin + 50 * MILLI
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

    /// Checks that the status files of a leader say so, if its term began a while ago. Writes of some
    /// milliseconds may outlast a deadline that is as short.
    fn expect_files(&mut self, leader: u8) {
        let it = &self.nodes[usize::from(leader)];
        let Some(process) = it.process.as_ref().filter(|_| self.has_shells()) else { return };
        let (term, boot) = (process.status.term(), span(it.moment(self.now).boot));
        let elected_at = process.elected_at;
        if elected_at + SECOND < self.now
            && it.plan.timings.renew_deadline >= Duration::from_millis(200)
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
        let timings = it.plan.timings;
        let probing = it.plan.probing;
        // Whoever is deceived must win nevertheless.
        let longest = self.scenario.longest(|it| it.retry_period);
        let hold_off = 3 * longest + 2 * SECOND + self.deceived_for();
        self.examination.successor = None;
        let named = |identity, hold_off| {
            Some(Successor { identity, hold_off: Duration::from_nanos(hold_off) })
        };
        let named = match (self.rng.u8(..6), probing) {
            (0, _) => {
                self.operate(usize::from(leader), Fault::StepDown, hold_off);
                None
            }
            (1, _) => {
                let successor = self.nodes.iter().rfind(|it| it.index != leader && it.is_fit());
                let successor = successor.map(|it| it.index);
                if let Some(successor) = successor.filter(|_| self.is_recorded(leader)) {
                    self.examination.successor = Some(operate::identity(successor));
                    let to = TransferTarget::Node(successor);
                    self.operate(usize::from(leader), Fault::Transfer { to }, hold_off);
                    named(operate::identity(successor), hold_off)
                } else {
                    self.resign(usize::from(leader), SECOND);
                    None
                }
            }
            (2, _) if self.is_recorded(leader) => {
                let hold_off = self.rng.u64(100 * MILLI..span(timings.lease_duration));
                self.examination.may_return = true;
                let to = TransferTarget::Nobody;
                self.operate(usize::from(leader), Fault::Transfer { to }, hold_off);
                named("nobody".to_owned(), hold_off)
            }
            (3, _) => {
                self.operate(usize::from(leader), Fault::TakeOut, 0);
                None
            }
            (4, Some(probing)) => {
                self.set_health(usize::from(leader), Health::Unhealthy);
                let found = u64::from(probing.rule.failures + 1) * (probing.interval + 100 * MILLI);
                return found + self.bound_on_leader_after(leader);
            }
            _ => {
                self.resign(usize::from(leader), SECOND);
                None
            }
        };
        let except = Some(leader).filter(|_| !self.examination.may_return);
        self.bound_on_leader(except, named.as_ref())
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
        let standbys = self.nodes.iter().filter(|it| it.index != leader && it.is_fit());
        let mut wasteful = standbys.filter_map(|it| Some((it.index, self.wasted_by(it, leader)?)));
        let defective = wasteful.next_back();
        if let Some((standby, _)) = defective.filter(|_| !is_deceived) {
            self.nodes[usize::from(standby)].link.defect = Some(defect);
        }
        self.crash(usize::from(leader), Some(SECOND));
        self.examination.leader = None;
        let (standby, wasted) = defective.unzip();
        let bound = self.bound_on_leader(standby, None) + wasted.unwrap_or_default();
        self.next_step(Step::Defect, self.now + bound);
    }

    /// Kills the leader for good, if another candidate is left.
    fn kill_leader(&mut self) {
        let Some((leader, _)) = self.examination.leader else { return };
        self.crash(usize::from(leader), None);
        let left = self.nodes.iter().any(|it| !it.plan.observe && it.process.is_some());
        if left {
            let bound = self.bound_on_leader(None, None);
            self.next_step(Step::Killing, self.now + bound);
        } else {
            self.examination.step = Step::Over;
        }
    }
}
