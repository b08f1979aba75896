//! Handovers with and without a leader that notifies its standbys, on fixed seeds.

use simulator::faults::{Fault, Kind, Target};
use simulator::scenario::{Nature, Scenario};
use simulator::world::World;
use simulator::{MILLI, SECOND, Span};

const LEAVES: Span = 60 * SECOND;

/// Plays an episode with these faults, at a minute, for each of a few seeds; returns how long the election
/// was then without a leader.
fn interruptions(peers: bool, faults: &[(Target, Kind)]) -> Vec<Span> {
    let fault =
        |&(target, kind)| Fault { phase: 0, at: LEAVES, length: 3_600 * SECOND, target, kind };
    let faults: Vec<Fault> = faults.iter().map(fault).collect();
    let all: Vec<u32> = (0..faults.len() as u32).collect();
    let scenario = Scenario { peers, ..Scenario::by_hand(Nature::Sleepy, faults) };
    let interruption = |seed| {
        let scenario = Scenario { seed, ..scenario.clone() };
        let mut world = World::new(&scenario, &all);
        world.play_until(LEAVES);
        (1..).map(|it| it * 5 * MILLI).find(|length| {
            world.play_until(LEAVES + length);
            !world.leaders().is_empty()
        })
    };
    (1..=40).map(|seed| interruption(seed).expect("another leads")).collect()
}

fn median(mut of: Vec<Span>) -> Span {
    of.sort_unstable();
    of[of.len() / 2]
}

#[test]
fn a_notified_heir_leads_as_soon_as_the_network_allows() {
    let resigns = [(Target::Leader, Kind::Resign)];
    let (with, without) = (interruptions(true, &resigns), interruptions(false, &resigns));
    // Six requests of 20 ms on average, and the publishers' 10 ms.
    assert!(with.iter().all(|it| *it < SECOND), "{with:?}");
    assert!(median(with.clone()) < 250 * MILLI, "{with:?}");
    assert!(median(without.clone()) > 500 * MILLI, "{without:?}");
}

#[test]
fn a_dead_or_stopped_heir_costs_half_a_retry_period() {
    for away in [Kind::Crash, Kind::Pause] {
        let faults = [(Target::Heir, away), (Target::Leader, Kind::Resign)];
        let with = interruptions(true, &faults);
        assert!(with.iter().all(|it| *it < 2 * SECOND), "{away:?}: {with:?}");
    }
}
