//! The service next to each candidate: its health, the results of its probes, and its behaviour in
//! a drain. It depends only on the published status.

use fastrand::Rng;
use tenure::election::{Command, HealthRule, Input, Reason};

use super::checker::Kind;
use super::examine::Step;
use super::faults::log_span;
use super::queue::Event;
use super::world::World;
use super::{Instant, MILLI, Span, span};

/// How the health of a service is probed.
#[derive(Clone, Copy, Debug)]
pub struct Probing {
    pub rule: HealthRule,
    /// From the end of one probe to the start of the next.
    pub interval: Span,
}

impl Probing {
    /// Draws the probing; half of the services are not probed.
    pub fn draw(rng: &mut Rng, lease: Span) -> Option<Self> {
        let probes = rng.usize(..4).saturating_sub(1);
        let rule = HealthRule { probes, failures: rng.u32(1..=4), successes: rng.u32(1..=3) };
        let interval = log_span(rng, lease / 40, lease / 4);
        (probes > 0).then_some(Self { rule, interval })
    }

    /// Returns the number of equal results after which further ones change nothing.
    fn enough(&self) -> u32 {
        self.rule.failures.max(self.rule.successes)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Service {
    pub health: Health,
    pub probes: [Probe; 2],
}

/// How a service responds to probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    #[default]
    Healthy,
    Unhealthy,
    /// Alternates between healthy and unhealthy.
    Flapping,
}

/// A probe; at most one run of it is in progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Probe {
    /// The number of the current start or end; others are stale.
    stamp: u32,
    /// Whether another run is scheduled. A probe rests when further equal results would change
    /// nothing.
    turns: bool,
    well: bool,
    /// The term in which the run began.
    begun_in: Option<u64>,
    /// When the run ends.
    pub ends_at: Instant,
}

/// The probe results of one process, as the checker counts them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeResults {
    streaks: [Streak; 2],
    well: bool,
}

/// Consecutive equal results of one probe.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    well: bool,
    length: u32,
    /// The current term, and the number of consecutive failures of runs that began in it.
    in_term: (Option<u64>, u32),
}

impl ProbeResults {
    /// Returns whether the results allow it to compete.
    pub fn is_healthy(&self) -> bool {
        self.well
    }

    /// Records the result of a run that began in the current term.
    fn take(&mut self, probe: usize, well: bool, term: Option<u64>, rule: &HealthRule) {
        let it = &mut self.streaks[probe];
        it.length = if it.well == well { it.length + 1 } else { 1 };
        it.well = well;
        let before = if it.in_term.0 == term { it.in_term.1 } else { 0 };
        it.in_term = (term, if well { 0 } else { before + 1 });
        let mut asked = self.streaks[..rule.probes].iter();
        self.well = match self.well {
            true => !asked.any(|it| !it.well && it.length >= rule.failures),
            false => asked.all(|it| it.well && it.length >= rule.successes),
        };
    }

    /// Resets the failure counts at the beginning of a term.
    pub fn elected(&mut self) {
        self.streaks.iter_mut().filter(|it| !it.well).for_each(|it| it.length = 0);
    }

    fn are_unhealthy(&self, term: Option<u64>, rule: &HealthRule) -> bool {
        let streaks = &self.streaks[..rule.probes];
        streaks.iter().any(|it| it.in_term.0 == term && it.in_term.1 >= rule.failures)
    }
}

impl World<'_> {
    /// Restarts resting probes after a change that they may detect.
    pub(super) fn restart_probes(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        let Some(probing) = it.plan.probing.filter(|_| it.process.is_some()) else { return };
        for probe in 0..probing.rule.probes {
            let its = &mut it.service.probes[probe];
            if !its.turns {
                its.turns = true;
                its.stamp += 1;
                let event = Event::Probe { node: node as u8, probe: probe as u8, stamp: its.stamp };
                self.queue.plan(self.now + self.rng.u64(..probing.interval), event);
            }
        }
    }

    /// Starts the probes of a new process.
    pub(super) fn start_probes(&mut self, node: usize) {
        self.nodes[node].service.probes.iter_mut().for_each(|it| it.turns = false);
        self.restart_probes(node);
    }

    pub(super) fn set_health(&mut self, node: usize, health: Health) {
        self.nodes[node].service.health = health;
        self.restart_probes(node);
    }

    /// Begins or ends the maintenance of a machine.
    pub(super) fn set_maintenance(&mut self, node: usize, imminent: bool) {
        self.nodes[node].maintenance = imminent;
        self.tell_maintenance(node);
    }

    /// Tells a candidate of the maintenance of its machine, unless it stands still or knows of it.
    pub(super) fn tell_maintenance(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        let (imminent, awake) = (it.maintenance, it.asleep_until <= self.now);
        if let Some(process) = it.process.as_mut().filter(|it| awake && it.maintenance != imminent)
        {
            process.maintenance = imminent;
            self.turn(node as u8, Input::Maintenance { imminent });
        }
    }

    /// Begins a run of a probe.
    pub(super) fn probe(&mut self, node: u8, probe: u8, stamp: u32) {
        let phase = self.examination.step() == Step::Phase;
        let it = &mut self.nodes[usize::from(node)];
        let its = &mut it.service.probes[usize::from(probe)];
        let Some(process) = it.process.as_ref().filter(|_| its.stamp == stamp && its.turns) else {
            return;
        };
        its.begun_in = process.status.term();
        its.well = match it.service.health {
            Health::Healthy => true,
            Health::Unhealthy => false,
            Health::Flapping => self.rng.bool(),
        };
        let lease = span(it.plan.timings.lease_duration);
        let takes = match self.rng.u8(..6) {
            0 if phase => log_span(&mut self.rng, 50 * MILLI, lease),
            _ => self.rng.u64(MILLI..50 * MILLI),
        };
        its.ends_at = self.now + takes;
        self.queue.plan(its.ends_at, Event::Probed { node, probe, stamp });
    }

    /// Ends a run of a probe.
    pub(super) fn probed(&mut self, node: u8, probe: u8, stamp: u32) {
        let index = usize::from(probe);
        let it = &self.nodes[usize::from(node)];
        let Probe { well, begun_in, .. } = it.service.probes[index];
        if it.service.probes[index].stamp != stamp {
            return;
        }
        // Deadlines that have passed take precedence over the result.
        self.turn(node, Input::Timeout);
        let it = &mut self.nodes[usize::from(node)];
        let (moment, entropy) = (it.moment(self.now), it.entropy());
        let (Some(probing), Some(process)) = (it.plan.probing, &mut it.process) else { return };
        let counts = process.status.term() == begun_in;
        if counts {
            process.probe_results.take(index, well, begun_in, &probing.rule);
        }
        let input = Input::ProbeResult { probe: index, healthy: well, begun_in };
        let _ = process.engine.turn(input, moment, entropy);
        // What follows is done here, whether or not the probe counts.
        process.engine.has_run();
        let rests = counts
            && it.service.health != Health::Flapping
            && well == (it.service.health == Health::Healthy)
            && process.probe_results.streaks[index].length >= probing.enough();
        let its = &mut it.service.probes[index];
        if rests {
            its.turns = false;
        } else {
            self.queue.plan(self.now + probing.interval, Event::Probe { node, probe, stamp });
        }
        self.settle(node, moment);
    }

    /// Checks that a leader that left because of an unhealthy service had enough failures in its
    /// term.
    pub(super) fn check_health_loss(&mut self, node: u8, term: Option<u64>) {
        let it = &self.nodes[usize::from(node)];
        let (Some(process), Some(probing)) = (&it.process, it.plan.probing) else { return };
        if !process.probe_results.are_unhealthy(term, &probing.rule) {
            let say =
                || format!("candidate {node} became unhealthy in term {term:?} by earlier probes");
            self.checker.report(Kind::StaleProbeCounted, self.now, say);
        }
    }

    /// Notifies the service of a drain. Some services report the end of their work, and some report
    /// it for another term.
    pub(super) fn plan_drained(&mut self, node: u8, drain: Span) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        if drain == 0 || !it.plan.says_drained {
            return;
        }
        let at = self.now + self.rng.u64(..drain * 3 / 2);
        self.queue.plan(at, Event::Drained { node, stamp: process.ended });
        if self.rng.u8(..4) == 0 {
            let at = self.now + self.rng.u64(..drain);
            self.queue.plan(at, Event::Drained { node, stamp: process.ended - 1 });
        }
    }

    /// Delivers the report that the work of the nth leadership has ended.
    pub(super) fn drained(&mut self, node: u8, stamp: u32) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        let current = process.ended == stamp;
        // A late report names its own term; a timely one may omit it.
        let term = if current { process.led } else { process.led.map(|it| it - 1) };
        if let Some(work) = process.work.as_mut().filter(|_| current) {
            work.over = true;
        }
        let named = if current && stamp.is_multiple_of(2) { None } else { term };
        if process.led.is_some() {
            self.command(node, Command::Drained(named));
        }
    }
}

/// Returns whether a leader that left for this reason did so voluntarily.
pub fn is_voluntary(reason: Reason) -> bool {
    use Reason as R;
    let asked = matches!(reason, R::Resigned | R::SteppedDown | R::Transferred | R::Paused);
    asked || matches!(reason, R::Unhealthy | R::Maintenance | R::ChildEnded)
}
