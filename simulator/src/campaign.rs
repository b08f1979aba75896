//! Campaigns: many episodes from one seed, and their statistics.

use std::collections::VecDeque;
use std::thread;

use super::checker::{Kind, Violation};
use super::engine::Extent;
use super::scenario::Scenario;
use super::shrink;
use super::world::Outcome;
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
    /// Adds the outcome of the next episode.
    fn add(&mut self, outcome: Outcome) {
        let episode = self.episodes;
        self.episodes += 1;
        self.length += outcome.length;
        self.faults += outcome.faults;
        self.elections += outcome.elections;
        self.notified.0 += outcome.notified.0;
        self.notified.1 += outcome.notified.1;
        self.history =
            (self.history.rotate_left(7) ^ outcome.history).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.found = outcome.violation.map(|violation| {
            let scenario = scenario(self.seed, episode, self.extent);
            let kept = shrink::shrink(&scenario, violation.kind);
            Found { episode, violation, kept }
        });
    }

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

/// Runs episodes until `hours` are simulated or a violation is found, `jobs` of them at once (at least
/// one). They are independent, and counted in their order, so that `jobs` changes nothing but the time.
pub fn run(seed: u64, hours: f64, extent: Extent, jobs: usize) -> Tally {
    let mut tally = Tally { seed, extent, history: seed, ..Tally::default() };
    thread::scope(|scope| {
        let mut episodes = 0..;
        let mut running = VecDeque::new();
        while tally.hours() < hours && tally.found.is_none() {
            let free = jobs.max(1) - running.len();
            for episode in episodes.by_ref().take(free) {
                running.push_back(scope.spawn(move || play(&scenario(seed, episode, extent))));
            }
            let next = running.pop_front().expect("at least one is running");
            tally.add(next.join().expect("a panic of an episode is its outcome"));
        }
    });
    tally
}

/// Plays an episode with all of its faults.
fn play(scenario: &Scenario) -> Outcome {
    let all: Vec<u32> = (0..scenario.faults.len() as u32).collect();
    shrink::play(scenario, &all)
}
