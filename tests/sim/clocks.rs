//! Faults of the clocks, one at a time, in the simulator's world: suspend, pauses that no clock of
//! the guest counts, a wall clock that is set, clocks that are slewed. Test names contain the number
//! of the fault.

use std::time::Duration;

use simulator::clock::Which;
use simulator::faults::{Fault, Kind, Target};
use simulator::scenario::{Nature, Scenario};
use simulator::world::World;
use simulator::{Instant, MILLI, SECOND, Span};
use tenure::election::{Reason, State};

const LEASE: Span = 15 * SECOND;
const DEADLINE: Span = 10 * SECOND;
const RETRY: Span = 2 * SECOND;
const HOUR: i64 = 3_600 * SECOND.cast_signed();

/// The margin between the end of a belief and the expiry of its lease.
const MARGIN: Span = LEASE - DEADLINE;

/// When the fault begins: the first candidate leads, and has renewed several times.
const BEGIN: Instant = 30 * SECOND;

/// The candidates that report at one instant that they lead, with their terms.
type Dual = [(u8, u64); 2];

const NONE: [Dual; 0] = [];

const FIRST: Target = Target::Node(0);
const OTHER: Target = Target::Node(1);

fn fault(at: Instant, length: Span, target: Target, kind: Kind) -> Fault {
    Fault { phase: 0, at, length, target, kind }
}

fn cut_off(at: Instant) -> Fault {
    fault(at, 60 * SECOND, FIRST, Kind::Cut { refused: false })
}

/// Two candidates, of which the first leads; the other reads so often that it leads as soon as the
/// store grants it the lease.
fn led_by_the_first(nature: Nature, faults: Vec<Fault>) -> Scenario {
    let mut all = vec![fault(0, 5 * SECOND, OTHER, Kind::Pause)];
    all.extend(faults);
    let mut scenario = Scenario::by_hand(nature, all);
    scenario.nodes.truncate(2);
    scenario.nodes[1].timings.retry_period = Duration::from_millis(20);
    scenario.nodes.iter_mut().for_each(|it| it.freeze_budget = MARGIN);
    scenario
}

/// A run of a scenario, and the instants at which both candidates reported that they lead.
struct Run<'a> {
    world: World<'a>,
    duals: Vec<Dual>,
}

impl<'a> Run<'a> {
    /// Plays to the fault.
    fn to_the_fault(scenario: &'a Scenario, kept: &'a [u32]) -> Self {
        let mut run = Self { world: World::new(scenario, kept).with_timeline(), duals: Vec::new() };
        run.to(BEGIN - 1);
        assert_eq!(run.leader(), Some(0), "the first leads until the fault");
        run
    }

    /// Plays to the instant at which a machine continues, before anything runs on it.
    fn wake_up(&mut self, at: Instant) {
        self.to(at - 1);
        while self.world.now() < at {
            self.world.step();
        }
    }

    /// Plays to this instant, and asks both candidates every few milliseconds.
    fn to(&mut self, until: Instant) {
        while self.world.now() < until {
            self.world.play_until(until.min(self.world.now() + 5 * MILLI));
            assert_eq!(self.world.violation(), None);
            if let [one, other] = self.world.leaders()[..] {
                self.duals.push([one, other]);
            }
        }
    }

    fn leader(&self) -> Option<u8> {
        self.world.leaders().first().map(|it| it.0)
    }

    /// Returns how often a candidate changed its state for this reason.
    fn changed(&self, node: u8, reason: Reason) -> usize {
        let transitions = &self.world.timeline().expect("it is charted").transitions;
        transitions.iter().filter(|(who, _, it)| *who == node && it.reason == reason).count()
    }

    /// Returns the terms that were led, in the order of their beginnings.
    fn terms(&self) -> Vec<u64> {
        let transitions = &self.world.timeline().expect("it is charted").transitions;
        let begins = |from: State, to: State| !from.is_leading() && to == State::Leader;
        let leads = transitions.iter().filter(|(.., it)| begins(it.from, it.to));
        leads.filter_map(|(.., it)| it.term).collect()
    }
}

/// Plays a scenario with all of its faults.
fn with<T>(scenario: &Scenario, test: impl FnOnce(Run<'_>) -> T) -> T {
    let all: Vec<u32> = (0..).take(scenario.faults.len()).collect();
    test(Run::to_the_fault(scenario, &all))
}

#[test]
fn fault_07_after_a_suspend_of_60_s_the_first_request_is_answered_passive() {
    for asleep in [DEADLINE, LEASE, 60 * SECOND] {
        // During suspend the boot and wall clocks advance, but the raw clock stands still.
        let suspend = fault(BEGIN, asleep, FIRST, Kind::Suspend { wall_stands: false });
        with(&led_by_the_first(Nature::Sleepy, vec![suspend]), |mut run| {
            let old = run.terms()[0];
            run.wake_up(BEGIN + asleep);
            assert_eq!(run.changed(0, Reason::Lapsed), 0, "nothing of the election has run since");
            assert_ne!(run.leader(), Some(0), "it woke, and answers by the clock");
            run.to(BEGIN + asleep + 60 * SECOND);
            assert_eq!(run.duals, NONE);
            assert_eq!(run.changed(0, Reason::Lapsed), 1);
            let again = run.terms().into_iter().filter(|it| *it == old).count();
            assert_eq!(again, 1, "and the old term never comes back");
        });
    }
}

/// Pauses the leader's whole machine this long after the beginning. It cannot reach the store when
/// it continues, which is the worst case.
fn paused(after: Span, pause: Span, synced: bool) -> Scenario {
    let nature = if synced { Nature::Virtual } else { Nature::Freezing };
    let freeze = fault(BEGIN + after, pause, FIRST, Kind::Freeze { synced });
    led_by_the_first(nature, vec![cut_off(BEGIN + after), freeze])
}

#[test]
fn fault_08_a_pause_that_no_clock_measures_causes_no_dual_up_to_the_margin() {
    for after in (0..2 * RETRY).step_by(310_000_000) {
        for pause in [SECOND, 3 * SECOND, MARGIN - SECOND / 2, MARGIN] {
            with(&paused(after, pause, false), |mut run| {
                run.to(BEGIN + after + pause + 30 * SECOND);
                assert_eq!(run.duals, NONE, "{after} ns after the beginning, for {pause} ns");
                assert_eq!(run.changed(0, Reason::Lapsed), 1);
                assert_eq!(run.leader(), Some(1), "the other leads in the end");
            });
        }
    }
}

#[test]
fn fault_08_beyond_the_margin_only_the_term_fences() {
    // The pause begins at some instants right after a renewal; then the belief outlasts the lease.
    let duals = (0..2 * RETRY).step_by(100_000_000).flat_map(|after| {
        let mut scenario = paused(after, MARGIN + RETRY, false);
        scenario.faithful = false;
        with(&scenario, |mut run| {
            run.to(BEGIN + after + 30 * SECOND);
            run.duals
        })
    });
    let duals: Vec<_> = duals.collect();
    assert!(!duals.is_empty(), "this is what no clock of the guest can know");
    for [(_, old), (_, new)] in duals {
        assert!(new > old, "a resource that checks terms refuses the old leader");
    }
}

#[test]
fn fault_08_beyond_the_margin_a_corrected_wall_clock_ends_the_leadership() {
    for after in (0..2 * RETRY).step_by(310_000_000) {
        for pause in [MARGIN, 2 * MARGIN, 60 * SECOND] {
            with(&paused(after, pause, true), |mut run| {
                let wakes = BEGIN + after + pause;
                run.wake_up(wakes);
                assert_eq!(run.changed(0, Reason::ClockJumped), 0, "the election has not run");
                assert_ne!(run.leader(), Some(0), "the wall clock shows the pause");
                run.to(wakes + 30 * SECOND);
                assert_eq!(run.changed(0, Reason::ClockJumped), 1, "R10");
                assert_eq!(run.duals, NONE);
                assert_eq!(run.leader(), Some(1));
            });
        }
    }
}

fn set_wall(at: Instant, target: Target, by: i64) -> Fault {
    fault(at, 0, target, Kind::Jump { which: Which::Wall, by })
}

#[test]
fn fault_09_a_wall_clock_set_by_an_hour_costs_one_renewal_and_no_term() {
    for by in [HOUR, -HOUR] {
        for (target, leads) in [(FIRST, true), (OTHER, false)] {
            let scenario = led_by_the_first(Nature::Jumpy, vec![set_wall(BEGIN, target, by)]);
            with(&scenario, |mut run| {
                run.to(BEGIN);
                assert_eq!(run.leader() != Some(0), leads, "evaluated at the first question");
                assert_eq!(run.changed(0, Reason::ClockJumped), 0);
                run.to(BEGIN + 30 * SECOND);
                assert_eq!(run.changed(0, Reason::ClockJumped), usize::from(leads));
                assert_eq!(run.leader(), Some(0), "a renewal sent after the jump restored it");
                assert_eq!(run.terms().len(), 1);
            });
        }
    }
}

#[test]
fn fault_09_a_wall_clock_set_by_an_hour_never_shortens_a_wait_for_a_dead_leader() {
    for by in [HOUR, -HOUR] {
        for later in [0, 5 * SECOND, 11 * SECOND] {
            let faults = vec![cut_off(BEGIN), set_wall(BEGIN + later, OTHER, by)];
            with(&led_by_the_first(Nature::Jumpy, faults), |mut run| {
                run.to(BEGIN + DEADLINE);
                assert_eq!(run.terms().len(), 1);
                run.to(BEGIN + 40 * SECOND);
                assert_eq!(run.leader(), Some(1));
                assert_eq!(run.duals, NONE);
            });
        }
    }
}

#[test]
fn fault_09_clocks_slewed_by_8_percent_make_no_dual() {
    // NTP slews the boot and wall clocks of a machine, but not the raw clock.
    let slew = |target, ppm| fault(BEGIN, 0, target, Kind::Slew { ppm });
    for leader in [-80_000, 0, 80_000] {
        for other in [-80_000, 0, 80_000] {
            for pause in [SECOND, MARGIN] {
                let later = BEGIN + 30 * SECOND;
                let mut scenario = led_by_the_first(
                    Nature::Slewed,
                    vec![
                        slew(FIRST, leader),
                        slew(OTHER, other),
                        cut_off(later),
                        fault(later, pause, FIRST, Kind::Freeze { synced: false }),
                    ],
                );
                // The world lets no machine have two kinds of errors while it is faithful.
                scenario.faithful = false;
                with(&scenario, |mut run| {
                    run.to(later - 1);
                    assert_eq!(run.terms().len(), 1, "a slew alone costs no term");
                    assert_eq!(run.changed(0, Reason::ClockJumped), 0);
                    run.to(later + 40 * SECOND);
                    assert_eq!(run.duals, NONE, "slewed to {leader} and {other}");
                    assert_eq!(run.leader(), Some(1));
                });
            }
        }
    }
}
