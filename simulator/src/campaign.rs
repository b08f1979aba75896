//! Campaigns: many episodes from one seed, and their statistics.

use super::checker::{Kind, Violation};
use super::engine::Extent;
use super::scenario::Scenario;
use super::shrink;
use super::{SECOND, Span};

/// The statistics of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub seed: u64,
    /// What ran in each candidate.
    pub extent: Extent,
    /// The simulated true time.
    pub length: Span,
    pub episodes: u64,
    pub faults: u64,
    pub elections: u64,
    /// The reads of standbys between two notices of an honest leader, and the time between these.
    pub notified: (u64, Span),
    /// A digest of the histories of all episodes.
    pub history: u64,
    /// The first violation, which ends the campaign.
    pub found: Option<Found>,
}

/// A violation, with what is needed to replay it.
#[derive(Clone, Debug)]
pub struct Found {
    pub episode: u64,
    pub violation: Violation,
    /// The faults of the shortest schedule that reproduces it.
    pub kept: Vec<u32>,
}

impl Tally {
    /// Returns the simulated time in hours.
    pub fn hours(&self) -> f64 {
        self.length as f64 / (3_600 * SECOND) as f64
    }

    /// Returns the reads a minute of a standby that is notified.
    pub fn notified_reads_a_minute(&self) -> f64 {
        let (reads, time) = self.notified;
        reads as f64 * (60 * SECOND) as f64 / (time.max(1)) as f64
    }

    /// Returns the number of violations of these kinds.
    pub fn count(&self, kinds: &[Kind]) -> u64 {
        u64::from(self.found.as_ref().is_some_and(|it| kinds.contains(&it.violation.kind)))
    }
}

/// Returns the scenario of one episode of a campaign.
pub fn scenario(seed: u64, episode: u64, extent: Extent) -> Scenario {
    // A Weyl sequence, so that adjacent episodes have unrelated seeds.
    let seed = seed.wrapping_add(episode.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Scenario { extent, ..Scenario::draw(seed ^ (seed >> 31)) }
}

/// Runs episodes until `hours` are simulated or a violation is found.
pub fn run(seed: u64, hours: f64, extent: Extent) -> Tally {
    let mut tally = Tally { seed, extent, history: seed, ..Tally::default() };
    while tally.hours() < hours && tally.found.is_none() {
        let episode = tally.episodes;
        let scenario = scenario(seed, episode, extent);
        let all: Vec<u32> = (0..scenario.faults.len() as u32).collect();
        let outcome = shrink::play(&scenario, &all);
        tally.episodes += 1;
        tally.length += outcome.length;
        tally.faults += outcome.faults;
        tally.elections += outcome.elections;
        tally.notified.0 += outcome.notified.0;
        tally.notified.1 += outcome.notified.1;
        tally.history =
            (tally.history.rotate_left(7) ^ outcome.history).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        tally.found = outcome.violation.map(|violation| {
            let kept = shrink::shrink(&scenario, violation.kind);
            Found { episode, violation, kept }
        });
    }
    tally
}
