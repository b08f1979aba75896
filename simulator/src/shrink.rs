//! Shrinks a schedule that violates a property to the shortest that still does.

use super::checker::Kind;
use super::scenario::Scenario;
use super::world::{Outcome, World};

/// The maximum number of episodes to run per schedule.
const TRIES: usize = 600;

/// Returns the faults that are needed for this kind of violation: without any one of them it does
/// not occur (unless the tries are exhausted). Removes whole runs of faults first, then single
/// ones.
pub fn shrink(scenario: &Scenario, kind: Kind) -> Vec<u32> {
    let mut kept: Vec<u32> = (0..scenario.faults.len() as u32).collect();
    let mut tries = 0;
    let mut run = kept.len().div_ceil(2);
    loop {
        let mut at = 0;
        let before = kept.len();
        while at < kept.len() && tries < TRIES {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + run).min(kept.len()));
            tries += 1;
            if shows(scenario, &fewer, kind) {
                kept = fewer;
            } else {
                at += run;
            }
        }
        if tries >= TRIES || (run == 1 && kept.len() == before) {
            return kept;
        }
        run = run.div_ceil(2).max(1);
    }
}

fn shows(scenario: &Scenario, kept: &[u32], kind: Kind) -> bool {
    play(scenario, kept).violation.is_some_and(|it| it.kind == kind)
}

/// Runs an episode; a failed assertion of the core is a violation too.
pub fn play(scenario: &Scenario, kept: &[u32]) -> Outcome {
    let played = std::panic::catch_unwind(|| World::new(scenario, kept).play());
    played.unwrap_or_else(|panic| Outcome::panicked(panic.as_ref()))
}
