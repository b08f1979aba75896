//! The service beside each candidate: whether it is well, what its probes say of it, and what it
//! does when it is to end its work.
//!
//! What it does not do: it knows nothing of the election but what is published.

use fastrand::Rng;
use tenure::election::{Election, HealthRule, Reason, Will};

use super::checker::Kind;
use super::examine::Step;
use super::faults::log_span;
use super::queue::Event;
use super::world::World;
use super::{Instant, MILLI, Span, span};

/// How a service is asked whether it is well.
#[derive(Clone, Copy, Debug)]
pub struct Probing {
    pub rule: HealthRule,
    /// From the end of one probe to the begin of the next.
    pub interval: Span,
}

impl Probing {
    /// Draws it; half of the services are asked nothing.
    pub fn draw(rng: &mut Rng, lease: Span) -> Option<Self> {
        let probes = rng.usize(..4).saturating_sub(1);
        let rule = HealthRule { probes, failures: rng.u32(1..=4), successes: rng.u32(1..=3) };
        let interval = log_span(rng, lease / 40, lease / 4);
        (probes > 0).then_some(Self { rule, interval })
    }

    /// After so many answers that are all alike nothing changes any more.
    fn enough(&self) -> u32 {
        self.rule.failures.max(self.rule.successes)
    }
}

/// A service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Service {
    pub mood: Mood,
    pub probes: [Probe; 2],
}

/// How a service answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Well,
    Ill,
    /// Now well, now ill.
    Flapping,
}

/// One probe: at most one runs at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Probe {
    /// The begin or the end that counts; others are stale.
    stamp: u32,
    /// Whether there is a next one. It rests where more of the same would change nothing.
    turns: bool,
    well: bool,
    /// The term in which it was begun.
    begun_in: Option<u64>,
    /// When it ends.
    pub ends_at: Instant,
}

/// What one process was told by its probes: the judge's own count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told {
    streaks: [Streak; 2],
    well: bool,
}

/// Answers of one probe in a row that are all alike.
#[derive(Clone, Copy, Debug, Default)]
struct Streak {
    well: bool,
    length: u32,
    /// How many of them are failures of probes that began in this term.
    in_term: (Option<u64>, u32),
}

impl Told {
    /// Whether enough was told for it to compete.
    pub fn is_well(&self) -> bool {
        self.well
    }

    /// A probe that was begun in the term of now has ended.
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

    /// A term begins.
    pub fn elected(&mut self) {
        self.streaks.iter_mut().filter(|it| !it.well).for_each(|it| it.length = 0);
    }

    fn condemns(&self, term: Option<u64>, rule: &HealthRule) -> bool {
        let streaks = &self.streaks[..rule.probes];
        streaks.iter().any(|it| it.in_term.0 == term && it.in_term.1 >= rule.failures)
    }
}

impl World<'_> {
    /// Something changed that the probes may find out: those that rest begin again.
    pub(super) fn stir(&mut self, node: usize) {
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

    /// A new process probes from the beginning.
    pub(super) fn probe_anew(&mut self, node: usize) {
        self.nodes[node].service.probes.iter_mut().for_each(|it| it.turns = false);
        self.stir(node);
    }

    pub(super) fn set_mood(&mut self, node: usize, mood: Mood) {
        self.nodes[node].service.mood = mood;
        self.stir(node);
    }

    /// A probe begins.
    pub(super) fn probe(&mut self, node: u8, probe: u8, stamp: u32) {
        let spell = self.examination.step() == Step::Spell;
        let it = &mut self.nodes[usize::from(node)];
        let its = &mut it.service.probes[usize::from(probe)];
        let Some(process) = it.process.as_ref().filter(|_| its.stamp == stamp && its.turns) else {
            return;
        };
        its.begun_in = process.status.term();
        its.well = match it.service.mood {
            Mood::Well => true,
            Mood::Ill => false,
            Mood::Flapping => self.rng.bool(),
        };
        let lease = span(it.plan.timings.lease_duration);
        let takes = match self.rng.u8(..6) {
            0 if spell => log_span(&mut self.rng, 50 * MILLI, lease),
            _ => self.rng.u64(MILLI..50 * MILLI),
        };
        its.ends_at = self.now + takes;
        self.queue.plan(its.ends_at, Event::Probed { node, probe, stamp });
    }

    /// A probe has ended.
    pub(super) fn probed(&mut self, node: u8, probe: u8, stamp: u32) {
        let index = usize::from(probe);
        let it = &self.nodes[usize::from(node)];
        let Probe { well, begun_in, .. } = it.service.probes[index];
        if it.service.probes[index].stamp != stamp {
            return;
        }
        // What time has ended counts before what was found.
        self.turn(node, Election::handle_timeout);
        let it = &mut self.nodes[usize::from(node)];
        let (moment, chance) = (it.moment(self.now), it.chance());
        let (Some(probing), Some(process)) = (it.plan.probing, &mut it.process) else { return };
        let counts = process.status.term() == begun_in;
        if counts {
            process.told.take(index, well, begun_in, &probing.rule);
        }
        process.election.handle_probed(index, well, begun_in, moment, chance);
        let rests = counts
            && it.service.mood != Mood::Flapping
            && well == (it.service.mood == Mood::Well)
            && process.told.streaks[index].length >= probing.enough();
        let its = &mut it.service.probes[index];
        if rests {
            its.turns = false;
        } else {
            self.queue.plan(self.now + probing.interval, Event::Probe { node, probe, stamp });
        }
        self.settle(node, moment);
    }

    /// A leader leaves since its service is not well: enough probes must have said so.
    pub(super) fn judge_deposed(&mut self, node: u8, term: Option<u64>) {
        let it = &self.nodes[usize::from(node)];
        let (Some(process), Some(probing)) = (&it.process, it.plan.probing) else { return };
        if !process.told.condemns(term, &probing.rule) {
            let say =
                || format!("candidate {node} was found ill in term {term:?} by earlier probes");
            self.judge.accuse(Kind::DeposedByThePast, self.now, say);
        }
    }

    /// The service is told that a drain begins; some say when they have ended their work, and some
    /// say it of another term.
    pub(super) fn begin_work_end(&mut self, node: u8, drain: Span) {
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

    /// The service says that it has ended its work as leader for the nth time.
    pub(super) fn drained(&mut self, node: u8, stamp: u32) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        let current = process.ended == stamp;
        // Whose turn is long over speaks of that term; who speaks in time may leave it out.
        let term = if current { process.led } else { process.led.map(|it| it - 1) };
        if let Some(work) = process.work.as_mut().filter(|_| current) {
            work.over = true;
        }
        let named = if current && stamp.is_multiple_of(2) { None } else { term };
        if process.led.is_some() {
            self.will(node, Will::Drained(named));
        }
    }
}

/// Whether a leader that left for this reason did so by will.
pub fn is_by_will(reason: Reason) -> bool {
    use Reason::{ChildEnded, FellIll, Paused, Resigned, SteppedDown, Transferred};
    matches!(reason, Resigned | SteppedDown | Transferred | Paused | FellIll | ChildEnded)
}
