//! The election under a model checker: every run of a few candidates with a few faults.
//!
//! The bounds are small enough for a debug build; the simulator's `model_check` binary goes further
//! with the same model.

use simulator::model as checked;

use checked::{Bounds, Fault, check};

/// Checks the properties, and that there are at least as many states as known: fewer would mean
/// that some runs are no longer explored.
fn assert_holds(bounds: Bounds, at_least: usize) {
    let checkup = check(bounds, 2);
    assert!(checkup.failures.is_empty(), "{bounds:?}: {:#?}", checkup.failures);
    assert!(checkup.unseen.is_empty(), "{bounds:?}: never {:?}", checkup.unseen);
    assert!(checkup.states >= at_least, "only {} states of {bounds:?}", checkup.states);
}

#[test]
fn three_candidates_keep_every_invariant_under_any_two_faults() {
    assert_holds(Bounds::of_faults(3, 2), 25_000);
}

#[test]
fn two_candidates_keep_every_invariant_under_any_three_faults() {
    assert_holds(Bounds::of_faults(2, 3), 130_000);
}

#[test]
fn two_candidates_keep_every_invariant_under_any_two_faults_and_any_notice() {
    let kinds = [Fault::Delay, Fault::Failure, Fault::Slip, Fault::Seizure];
    assert_holds(Bounds { notices: 1, ..Bounds::of_faults(2, 2).only(&kinds) }, 110_000);
}

#[test]
fn two_candidates_keep_every_invariant_on_a_register_under_any_two_faults() {
    assert_holds(Bounds::of_faults(2, 2).on_a_register(), 30_000);
}
