//! The simulation on fixed seeds and a fresh one, and proof that the checker detects violations.
//!
//! For many more hours run the simulator's `simulate` binary in a fast profile, as `tests/run`
//! does.

#![allow(clippy::cast_possible_truncation, reason = "indices of a few dozen")]

use simulator as simulation;

use simulation::campaign::{self, Tally};
use simulation::checker;
use simulation::clock::Which;
use simulation::engine::Extent;
use simulation::faults::{Fault, Kind, Target};
use simulation::scenario::{Nature, Scenario};
use simulation::world::{Outcome, World};
use simulation::{SECOND, shrink};

/// Asserts that a campaign has no violation.
#[track_caller]
fn assert_clean(tally: &Tally) {
    if let Some(found) = &tally.found {
        let kept: Vec<String> = found.kept.iter().map(u32::to_string).collect();
        panic!(
            "{:?}: {}; cargo run --profile sim -p simulator --bin simulate -- --seed {} --episode {} \
             --faults {} --trace{}",
            found.violation.kind,
            found.violation.text,
            tally.seed,
            found.episode,
            if kept.is_empty() { "none".to_owned() } else { kept.join(",") },
            if tally.extent == Extent::Shell { " --shell" } else { "" },
        );
    }
    // One leads after each of the three phases, one after a handover, and one after a crash.
    assert!(tally.elections >= 7 * tally.episodes, "hardly an election: {tally:?}");
    assert!(tally.faults > 20 * tally.episodes, "hardly a fault: {tally:?}");
}

#[test]
fn seed_seven_keeps_every_invariant() {
    assert_clean(&campaign::run(7, 80.0, Extent::Core, 1));
}

#[test]
fn seed_eleven_keeps_every_invariant() {
    assert_clean(&campaign::run(11, 80.0, Extent::Core, 1));
}

#[test]
fn a_fresh_seed_keeps_every_invariant() {
    assert_clean(&campaign::run(fastrand::u64(..1 << 32), 80.0, Extent::Core, 1));
}

#[test]
fn a_fresh_seed_keeps_every_invariant_with_the_shell() {
    assert_clean(&campaign::run(fastrand::u64(..1 << 32), 4.0, Extent::Shell, 1));
}

#[test]
fn the_same_seed_is_the_same_history() {
    for extent in [Extent::Core, Extent::Shell] {
        let run = |seed, jobs| campaign::run(seed, 2.0, extent, jobs);
        // Episodes that are played at once are counted in their order.
        let (one, other) = (run(3, 1), run(3, 3));
        assert_eq!(
            (one.history, one.faults, one.length, one.episodes),
            (other.history, other.faults, other.length, other.episodes)
        );
        assert_ne!(one.history, run(4, 1).history);
    }
}

#[test]
fn drawn_clocks_keep_to_the_margin_of_every_candidate() {
    let rate = |ppm: i64| ppm.unsigned_abs() as f64 / 1_000_000.0;
    let (mut unlike, mut drifting) = (0, 0);
    for scenario in (0..2_000).map(Scenario::draw) {
        unlike += u32::from(!scenario.are_alike());
        drifting += u32::from(rate(scenario.store_ppm) > 0.01);
        for (holder, it) in scenario.nodes.iter().enumerate() {
            let freeze = it.freeze_budget as f64 / SECOND as f64;
            // The holder or its client may be slow, and the store or whoever takes the lease next fast.
            let slow = rate(it.drift_ppm).max(rate(it.client_ppm));
            let others = scenario.nodes.iter().enumerate().filter(|(other, _)| *other != holder);
            let fast = others.map(|(_, other)| rate(other.drift_ppm)).fold(0.0, f64::max);
            let fast = fast.max(rate(scenario.store_ppm));
            for timings in it.settings() {
                let lease = timings.lease_duration.as_secs_f64();
                let belief = timings.renew_deadline.as_secs_f64();
                assert!(
                    belief * (1.0 + slow) + freeze <= lease * (1.0 - fast),
                    "candidate {holder} of seed {}",
                    scenario.seed
                );
            }
        }
    }
    assert!(unlike > 300 && drifting > 300, "{unlike} unlike, {drifting} with a store that drifts");
}

fn at(seconds: u64, length: u64, target: Target, kind: Kind) -> Fault {
    Fault { phase: 0, at: seconds * SECOND, length: length * SECOND, target, kind }
}

fn play(scenario: &Scenario) -> Outcome {
    let all: Vec<u32> = (0..scenario.faults.len() as u32).collect();
    World::new(scenario, &all).play()
}

fn kind(outcome: &Outcome) -> Option<checker::Kind> {
    outcome.violation.as_ref().map(|it| it.kind)
}

#[test]
fn the_checker_finds_two_leaders_when_a_held_lease_is_freed() {
    // The episode is declared faithful, but violates an assumption: the lease is broken at once,
    // and another candidate gets it while the leader still believes.
    let kind_of_break = Kind::Break { period: Some(0) };
    let cut = Kind::Cut { refused: false };
    let faults = vec![at(60, 30, Target::Leader, cut), at(61, 0, Target::All, kind_of_break)];
    assert_eq!(
        kind(&play(&Scenario::by_hand(Nature::Sleepy, faults))),
        Some(checker::Kind::DualLeaders)
    );
}

#[test]
fn the_checker_finds_two_leaders_when_a_pause_beyond_the_margin_is_undetected() {
    let mut scenario = Scenario::by_hand(
        Nature::Freezing,
        vec![at(60, 14, Target::Leader, Kind::Freeze { synced: false })],
    );
    scenario.nodes.iter_mut().for_each(|it| it.freeze_budget = 14 * SECOND);
    // If it is frozen right after a renewal, it still believes when another leads.
    let found = (0..40).find_map(|tenths: u64| {
        scenario.faults[0].at = 60 * SECOND + tenths * SECOND / 10;
        kind(&play(&scenario))
    });
    assert_eq!(found, Some(checker::Kind::DualLeaders));
}

#[test]
fn a_lapse_by_a_clock_set_forward_takes_no_client_s_time() {
    // If it were released at once, another would get the lease while a client still acts on the
    // last answer.
    for tenths in 0..40 {
        let jump = Kind::Jump { which: Which::Boot, by: 27_000_000_000 };
        let fault =
            Fault { at: 60 * SECOND + tenths * SECOND / 10, ..at(0, 0, Target::Leader, jump) };
        assert_eq!(kind(&play(&Scenario::by_hand(Nature::Jumpy, vec![fault]))), None, "{tenths}");
    }
}

#[test]
fn a_lapse_by_a_fast_clock_takes_no_slow_client_s_time() {
    for tenths in 0..40 {
        let cut = Kind::Cut { refused: false };
        let fault =
            Fault { at: 60 * SECOND + tenths * SECOND / 10, ..at(0, 11, Target::Leader, cut) };
        let mut scenario = Scenario::by_hand(Nature::Sleepy, vec![fault]);
        for node in &mut scenario.nodes {
            (node.drift_ppm, node.client_ppm) = (40_000, -40_000);
        }
        assert_eq!(kind(&play(&scenario)), None, "{tenths}");
    }
}

#[test]
fn a_schedule_is_shrunk_to_the_faults_that_matter() {
    let mut faults: Vec<Fault> =
        (0..30).map(|it| at(10 + it, 1, Target::Node(2), Kind::Pause)).collect();
    let cut = Kind::Cut { refused: false };
    faults.push(at(60, 30, Target::Leader, cut));
    faults.push(at(61, 0, Target::All, Kind::Break { period: Some(0) }));
    let scenario = Scenario::by_hand(Nature::Sleepy, faults);
    assert_eq!(shrink::shrink(&scenario, checker::Kind::DualLeaders), [31]);
}
