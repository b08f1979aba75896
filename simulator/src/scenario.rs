//! The settings and the schedule of one episode, drawn from its seed.
//!
//! A *faithful* episode keeps the assumptions of the claim: the world skips faults that would violate
//! them. Any other episode violates them on purpose, and only its terms are checked.

use std::time::Duration;

use fastrand::Rng;

use super::engine::Extent;
use super::faults::{self, Fault, log_span};
use super::peers;
use super::service::Probing;
use super::settings::{Scale, Timings};
use super::store::{Kind, Oddities, Reports};
use super::{MILLI, SECOND, Span, span};

/// The kind of clock errors of a node. It has one kind in a faithful episode, so that errors of
/// several kinds do not add up to more than the claim allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Freezes that no guest clock sees, up to the margin.
    Freezing,
    /// Freezes of at least two seconds, after which the wall clock is corrected.
    Virtual,
    /// Boot and wall clock are slewed.
    Slewed,
    /// The machine is suspended.
    Sleepy,
    /// One clock at a time is set forward or back.
    Jumpy,
}

/// One candidate and its machine.
#[derive(Clone, Copy, Debug)]
pub struct NodePlan {
    pub timings: Timings,
    /// Other settings with which it is restarted; the present ones are then those of the restart after it.
    pub restarted: Option<Timings>,
    pub observe: bool,
    /// The probes of its service.
    pub probing: Option<Probing>,
    /// Whether it supervises a process in its terms.
    pub has_workload: bool,
    /// Whether its service reports the end of its work.
    pub says_drained: bool,
    pub nature: Nature,
    /// The rate error of its clocks, in parts per million.
    pub drift_ppm: i64,
    /// The rate error of its client's clock.
    pub client_ppm: i64,
    /// The longest freeze that the margin allows.
    pub freeze_budget: Span,
    /// The initial readings of boot and raw.
    pub clock_start: [u64; 2],
    /// How far the wall clock is ahead from the start, in nanoseconds.
    pub wall_ahead: i64,
}

/// A whole episode.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    /// What runs in each candidate.
    pub extent: Extent,
    pub faithful: bool,
    pub store: Kind,
    pub store_ppm: i64,
    /// How long after the last renewal that it keeps a failover may lose others.
    pub loses: Span,
    /// Whether leaders notify their standbys.
    pub peers: bool,
    /// A term that was written before, if any.
    pub seeded: Option<u64>,
    pub nodes: Vec<NodePlan>,
    pub faults: Vec<Fault>,
    /// The length of each phase of faults, after which the election is examined without faults.
    pub phases: Vec<Span>,
}

impl Scenario {
    /// Draws the episode of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let faithful = rng.u8(..10) < 8;
        let store = match rng.u8(..10) {
            0..=2 => Kind::Blob,
            3 => Kind::Host,
            _ => {
                let reports = match rng.u8(..4) {
                    0 => None,
                    1 => Some(Reports::Hint),
                    _ => Some(Reports::Content),
                };
                Kind::Register(Oddities { reports, conflicts: rng.bool() })
            }
        };
        let scale = Scale::draw(&mut rng, store);
        let common = Timings::draw(&mut rng, scale);
        let alike = rng.u8(..3) == 0;
        let count = if rng.u8(..3) > 0 { 3 } else { rng.u8(2..=7) };
        let mut nodes = Vec::with_capacity(usize::from(count));
        for index in 0..count {
            let settings = match alike {
                true => [common; 2],
                false => [(); 2].map(|()| Timings::draw(&mut rng, scale)),
            };
            let observe = index >= 2 && rng.u8(..8) == 0;
            nodes.push(NodePlan::draw(&mut rng, settings, observe));
        }
        // The clocks of the other candidates and of the store time a candidate's lease, too.
        let shares = nodes.iter().map(NodePlan::drift_share);
        let share = shares.fold(f64::INFINITY, f64::min);
        nodes.iter_mut().for_each(|it| it.keep_to(share));
        let store_ppm = (share * (rng.f64() * 2.0 - 1.0)) as i64;
        let loses = match store {
            Kind::Register(_) if rng.bool() => {
                nodes.iter().map(|it| it.freeze_budget).min().unwrap_or_default() / 2
            }
            _ => 0,
        };
        nodes.iter_mut().for_each(|it| it.freeze_budget -= loses);
        let seeded = match rng.u8(..4) {
            0 => None,
            1 => Some(rng.u64(1..1_000)),
            _ => Some(1_700_000_000_000 + rng.u64(..1_000_000)),
        };
        let mut scenario = Self {
            seed,
            extent: Extent::Core,
            faithful,
            store,
            store_ppm,
            loses,
            peers: false,
            seeded,
            nodes,
            faults: Vec::new(),
            phases: Vec::new(),
        };
        scenario.plan(&mut rng);
        peers::plan(&mut scenario);
        scenario
    }

    /// Creates an episode with three candidates on a blob, the default settings, accurate clocks, and
    /// these faults.
    pub fn by_hand(nature: Nature, faults: Vec<Fault>) -> Self {
        let node = NodePlan {
            timings: Timings::DEFAULT,
            restarted: None,
            observe: false,
            probing: None,
            has_workload: false,
            says_drained: false,
            nature,
            drift_ppm: 0,
            client_ppm: 0,
            freeze_budget: 4 * SECOND,
            clock_start: [1_000_000 * SECOND, 500_000 * SECOND],
            wall_ahead: 0,
        };
        Self {
            seed: 1,
            extent: Extent::Core,
            faithful: true,
            store: Kind::Blob,
            store_ppm: 0,
            loses: 0,
            peers: false,
            seeded: Some(1),
            nodes: vec![node; 3],
            faults,
            phases: vec![600 * SECOND],
        }
    }

    /// Returns the longest value of a setting, before and after restarts.
    pub fn longest(&self, of: impl Fn(&Timings) -> Duration) -> Span {
        let lengths = self.nodes.iter().flat_map(|it| it.settings()).map(|it| span(of(&it)));
        lengths.max().unwrap_or_default()
    }

    /// Returns the longest wait that a candidate times: for an observed lease, or R11's hold.
    pub fn longest_wait(&self) -> Span {
        let hold = if self.store == Kind::Blob { 60 * SECOND } else { 0 };
        self.longest(|it| it.lease_duration).max(hold)
    }

    /// Returns whether all candidates have the same timings, also after restarts.
    pub fn are_alike(&self) -> bool {
        let first = self.nodes[0].timings;
        self.nodes.iter().flat_map(|it| it.settings()).all(|it| it == first)
    }

    fn plan(&mut self, rng: &mut Rng) {
        let lease = self.longest(|it| it.lease_duration);
        let nodes = u8::try_from(self.nodes.len()).unwrap_or(u8::MAX);
        let gap = log_span(rng, lease / 10, lease);
        for phase in 0..3 {
            let end = lease / 2 * rng.u64(30..80);
            // Some phases begin without faults.
            let mut at = if rng.bool() { lease * 2 } else { 0 };
            while at < end {
                let drawn = match rng.u8(..30) {
                    0 => faults::ambush(rng, lease, self.faithful),
                    _ => vec![faults::draw(rng, nodes, lease, self.faithful)],
                };
                let placed = drawn.into_iter().map(|it| Fault { phase, at: at + it.at, ..it });
                self.faults.extend(placed.filter(|it| it.at < end));
                at += log_span(rng, gap / 8, gap * 2);
            }
            self.phases.push(end);
        }
    }
}

impl NodePlan {
    /// Returns the settings before and after a restart.
    pub fn settings(&self) -> [Timings; 2] {
        [self.timings, self.restarted.unwrap_or(self.timings)]
    }

    /// Returns the longer lease-duration of the two.
    pub fn longest_lease(&self) -> Span {
        let [now, later] = self.settings();
        span(now.lease_duration.max(later.lease_duration))
    }

    fn drift_share(&self) -> f64 {
        let [now, later] = self.settings();
        now.drift_share().min(later.drift_share())
    }

    /// Scales the rate errors down to what the smallest margin of all candidates allows: to a `share`,
    /// in parts per million, no larger than its own.
    fn keep_to(&mut self, share: f64) {
        let factor = share / self.drift_share();
        for ppm in [&mut self.drift_ppm, &mut self.client_ppm] {
            *ppm = (*ppm as f64 * factor) as i64;
        }
    }

    fn draw(rng: &mut Rng, settings: [Timings; 2], observe: bool) -> Self {
        let [timings, restarted] = settings;
        let drift_share = timings.drift_share().min(restarted.drift_share());
        let nature = match rng.u8(..5) {
            0 => Nature::Freezing,
            1 => Nature::Virtual,
            2 => Nature::Slewed,
            3 => Nature::Sleepy,
            _ => Nature::Jumpy,
        };
        // Three clocks have errors: this node's, the store's and a client's. The rest of the margin
        // is for freezes.
        let most = drift_share / 1_000_000.0;
        let length = |duration: Duration, factor: f64| duration.as_secs_f64() * factor;
        let left = |it: &Timings| {
            length(it.lease_duration, 1.0 - most) - length(it.renew_deadline, 1.0 + 3.0 * most)
        };
        let left = left(&timings).min(left(&restarted));
        let freeze_budget = (left.max(0.0) * SECOND as f64) as Span;
        let drift_ppm = (drift_share * (rng.f64() * 2.0 - 1.0)) as i64;
        let client_ppm = (drift_share * (rng.f64() * 2.0 - 1.0)) as i64;
        // Half of the wall clocks were never set.
        let hours = 12 * 3_600 * SECOND.cast_signed();
        let wall_ahead = if rng.bool() { rng.i64(-hours..hours) } else { 0 };
        let clock_start = [rng.u64(..1 << 50) + MILLI, rng.u64(..1 << 50) + MILLI];
        let clock_start = clock_start.map(|it| it + 10_000 * SECOND);
        let probing = Probing::draw(rng, span(timings.lease_duration));
        let (has_workload, says_drained) = (rng.bool(), rng.bool());
        Self {
            timings,
            restarted: (restarted != timings).then_some(restarted),
            observe,
            probing,
            has_workload,
            says_drained,
            nature,
            drift_ppm,
            client_ppm,
            freeze_budget,
            clock_start,
            wall_ahead,
        }
    }
}
