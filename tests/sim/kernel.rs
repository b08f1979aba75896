//! `tenure exec` as it ships, on a simulated kernel; see `simulator/src/kernel.rs`.
//!
//! The binary `exec_kernel` plays all pairs of events; here, all single events and a part of the pairs.

use simulator::kernel::{Event, Extent, Script, explore, play};

/// Plays scripts; a failure is printed as a script that replays it.
fn assert_holds(extent: Extent, at_least: [u64; 4]) {
    let found = explore(extent);
    let failures: Vec<_> =
        found.failures.iter().map(|(script, why)| format!("{why}: {script}")).collect();
    assert!(
        failures.is_empty(),
        "{}\nreplay: cargo run --profile sim -p simulator --bin exec_kernel -- 'SCRIPT'",
        failures.join("\n")
    );
    let played = found.played;
    assert!(played.iter().zip(at_least).all(|(it, least)| *it >= least), "only {played:?} scripts");
}

#[test]
fn every_single_event_at_every_place_keeps_every_property() {
    let extent = Extent { once: Some(false), each: [1, 0, 0], failures: 1, part: (0, 1) };
    assert_holds(extent, [1, 3_000, 0, 0]);
}

#[test]
fn a_part_of_the_pairs_of_events_keeps_every_property() {
    let extent = Extent { once: None, each: [29, 311, 0], failures: 1, part: (0, 1) };
    assert_holds(extent, [2, 200, 500, 0]);
}

#[test]
fn a_script_without_events_runs_one_command_to_the_end() {
    let outcome = play(&Script::default(), true);
    assert_eq!(outcome.violation, None);
    assert_eq!(outcome.log.iter().filter(|it| it.contains("executes the command")).count(), 1);
}

#[test]
fn a_term_that_ends_before_its_command_starts_is_reported() {
    for event in [Event::StepDown, Event::Term] {
        let ends_unseen = |place| {
            let outcome = play(&Script { once: false, events: vec![(place, event)] }, true);
            assert_eq!(outcome.violation, None, "{event:?}@{place}");
            let first = |line: &&String| line.contains("Reaper") || line.contains("is reported");
            outcome.log.iter().find(first).is_some_and(|it| it.contains("is reported"))
        };
        // One of them is the place at which the answer of the store grants the lease.
        assert!((1..20).any(ends_unseen), "{event:?}");
    }
}
