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
use super::store::Kind;
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

/// One candidate's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
    pub request_timeout: Duration,
    pub activation_delay: Duration,
    pub drain_timeout: Duration,
}

/// One candidate and its machine.
#[derive(Clone, Copy, Debug)]
pub struct NodePlan {
    pub timings: Timings,
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
        let store = match rng.u8(..5) {
            0..=1 => Kind::Blob,
            2..=3 => Kind::Object,
            _ => Kind::Host,
        };
        let common = Timings::draw(&mut rng, store);
        let alike = rng.u8(..4) > 0;
        let count = if rng.u8(..3) > 0 { 3 } else { rng.u8(2..=7) };
        let mut nodes = Vec::with_capacity(usize::from(count));
        for index in 0..count {
            let timings = if alike { common } else { Timings::draw(&mut rng, store) };
            let observe = index >= 2 && rng.u8(..8) == 0;
            nodes.push(NodePlan::draw(&mut rng, timings, observe));
        }
        // The clocks of the other candidates and of the store time a candidate's lease, too.
        let shares = nodes.iter().map(|it| it.timings.drift_share());
        let share = shares.fold(f64::INFINITY, f64::min);
        nodes.iter_mut().for_each(|it| it.keep_to(share));
        let store_ppm = (share * (rng.f64() * 2.0 - 1.0)) as i64;
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
        let timings = Timings {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            request_timeout: Duration::from_secs(2),
            activation_delay: Duration::ZERO,
            drain_timeout: Duration::ZERO,
        };
        let node = NodePlan {
            timings,
            observe: false,
            probing: None,
            has_workload: false,
            says_drained: false,
            nature,
            drift_ppm: 0,
            client_ppm: 0,
            freeze_budget: 4 * SECOND,
            clock_start: [1_000_000 * SECOND, 500_000 * SECOND],
        };
        Self {
            seed: 1,
            extent: Extent::Core,
            faithful: true,
            store: Kind::Blob,
            store_ppm: 0,
            peers: false,
            seeded: Some(1),
            nodes: vec![node; 3],
            faults,
            phases: vec![600 * SECOND],
        }
    }

    /// Returns the longest value of a setting.
    pub fn longest(&self, of: impl Fn(&Timings) -> Duration) -> Span {
        let lengths = self.nodes.iter().map(|node| span(of(&node.timings)));
        lengths.max().unwrap_or_default()
    }

    /// Returns the longest wait that a candidate times: for an observed lease, or R11's hold.
    pub fn longest_wait(&self) -> Span {
        let hold = if self.store == Kind::Blob { 60 * SECOND } else { 0 };
        self.longest(|it| it.lease_duration).max(hold)
    }

    /// Returns whether all candidates have the same timings.
    pub fn are_alike(&self) -> bool {
        self.nodes.iter().all(|node| node.timings == self.nodes[0].timings)
    }

    fn plan(&mut self, rng: &mut Rng) {
        let lease = self.longest(|it| it.lease_duration);
        let nodes = u8::try_from(self.nodes.len()).unwrap_or(u8::MAX);
        let gap = log_span(rng, 4 * SECOND, lease);
        for phase in 0..3 {
            let end = 600 * SECOND + rng.u64(..600) * SECOND;
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

impl Timings {
    /// Draws settings that `tenure run` would accept.
    fn draw(rng: &mut Rng, store: Kind) -> Self {
        let lease_duration = match (rng.u8(..6), store) {
            (0, _) => Duration::from_secs(15),
            (_, Kind::Blob) => Duration::from_secs(rng.u64(15..=60)),
            (_, Kind::Object) => Duration::from_secs(rng.u64(10..=60)),
            (_, Kind::Host) => Duration::from_millis(rng.u64(10_000..=150_000)),
        };
        let renew_deadline = lease_duration.mul_f64(0.5 + 0.4 * rng.f64());
        let request_timeout = renew_deadline.mul_f64(0.05 + 0.25 * rng.f64());
        let most = (renew_deadline - request_timeout) / 2;
        let retry_period = most.mul_f64(0.4 + 0.6 * rng.f64());
        let activation_delay = match rng.u8(..8) {
            0 => Duration::from_millis(rng.u64(..10_000)),
            _ => Duration::ZERO,
        };
        let drain_timeout = match rng.u8(..5) {
            0..=1 => Duration::ZERO,
            2..=3 => lease_duration.mul_f64(0.3 * rng.f64()),
            _ => lease_duration.mul_f64(1.5 * rng.f64()),
        };
        Self {
            lease_duration,
            renew_deadline,
            retry_period,
            request_timeout,
            activation_delay,
            drain_timeout,
        }
    }

    /// Returns the largest rate error, in parts per million, that leaves a part of the margin for
    /// pauses.
    fn drift_share(&self) -> f64 {
        let margin = 1.0 - self.renew_deadline.as_secs_f64() / self.lease_duration.as_secs_f64();
        margin / 6.0 * 1_000_000.0
    }
}

impl NodePlan {
    /// Scales the rate errors down to what the smallest margin of all candidates allows: to a `share`,
    /// in parts per million, no larger than its own.
    fn keep_to(&mut self, share: f64) {
        let factor = share / self.timings.drift_share();
        for ppm in [&mut self.drift_ppm, &mut self.client_ppm] {
            *ppm = (*ppm as f64 * factor) as i64;
        }
    }

    fn draw(rng: &mut Rng, timings: Timings, observe: bool) -> Self {
        let nature = match rng.u8(..5) {
            0 => Nature::Freezing,
            1 => Nature::Virtual,
            2 => Nature::Slewed,
            3 => Nature::Sleepy,
            _ => Nature::Jumpy,
        };
        // Three clocks have errors: this node's, the store's and a client's. The rest of the margin
        // is for freezes.
        let most = timings.drift_share() / 1_000_000.0;
        let length = |duration: Duration, factor: f64| duration.as_secs_f64() * factor;
        let left = length(timings.lease_duration, 1.0 - most)
            - length(timings.renew_deadline, 1.0 + 3.0 * most);
        let freeze_budget = (left.max(0.0) * SECOND as f64) as Span;
        let drift_ppm = (timings.drift_share() * (rng.f64() * 2.0 - 1.0)) as i64;
        let client_ppm = (timings.drift_share() * (rng.f64() * 2.0 - 1.0)) as i64;
        let clock_start = [rng.u64(..1 << 50) + MILLI, rng.u64(..1 << 50) + MILLI];
        let clock_start = clock_start.map(|it| it + 10_000 * SECOND);
        let probing = Probing::draw(rng, span(timings.lease_duration));
        let (has_workload, says_drained) = (rng.bool(), rng.bool());
        Self {
            timings,
            observe,
            probing,
            has_workload,
            says_drained,
            nature,
            drift_ppm,
            client_ppm,
            freeze_budget,
            clock_start,
        }
    }
}
