//! Many episodes from one seed, and what they come to.

use super::checker::{Kind, Violation};
use super::scenario::Scenario;
use super::shrink;
use super::{SECOND, Span};

/// What a campaign has seen.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub seed: u64,
    /// True time played.
    pub length: Span,
    pub episodes: u64,
    pub faults: u64,
    pub elections: u64,
    /// Over all histories.
    pub history: u64,
    /// The first violation, after which no more was played.
    pub found: Option<Found>,
}

/// A violation, with what is needed to see it again.
#[derive(Clone, Debug)]
pub struct Found {
    pub episode: u64,
    pub violation: Violation,
    /// The faults of the shortest schedule that shows it.
    pub kept: Vec<u32>,
}

impl Tally {
    /// The simulated hours.
    pub fn hours(&self) -> f64 {
        self.length as f64 / (3_600 * SECOND) as f64
    }

    /// How many violations of one of these kinds.
    pub fn count(&self, kinds: &[Kind]) -> u64 {
        u64::from(self.found.as_ref().is_some_and(|it| kinds.contains(&it.violation.kind)))
    }
}

/// The scenario of an episode of a campaign.
pub fn scenario(seed: u64, episode: u64) -> Scenario {
    // Weyl's sequence: neighbours share nothing.
    let seed = seed.wrapping_add(episode.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Scenario::draw(seed ^ (seed >> 31))
}

/// Plays episodes until so many hours are simulated, or something is found.
pub fn run(seed: u64, hours: f64) -> Tally {
    let mut tally = Tally { seed, history: seed, ..Tally::default() };
    while tally.hours() < hours && tally.found.is_none() {
        let episode = tally.episodes;
        let scenario = scenario(seed, episode);
        let all: Vec<u32> = (0..scenario.faults.len() as u32).collect();
        let outcome = shrink::play(&scenario, &all);
        tally.episodes += 1;
        tally.length += outcome.length;
        tally.faults += outcome.faults;
        tally.elections += outcome.elections;
        tally.history =
            (tally.history.rotate_left(7) ^ outcome.history).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        tally.found = outcome.violation.map(|violation| {
            let kept = shrink::shrink(&scenario, violation.kind);
            Found { episode, violation, kept }
        });
    }
    tally
}
