//! Faults as values: the kind, the target, and the length of each fault of a schedule.
//!
//! Nothing here takes effect; [`super::inject`] injects them.

use fastrand::Rng;

use super::clock::Which;
use super::peers::PeerFault;
use super::window::{self, Order, Window};
use super::{MILLI, SECOND, Span};

/// The nodes that a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This node.
    Node(u8),
    /// The leader at the time of the fault, or the first node.
    Leader,
    /// The holder of the lease in the store at the time of the fault, leading or not, if there is one.
    Holder,
    /// The candidate that is next in line, as the leader knows it, if there is one.
    Heir,
    /// All nodes.
    All,
}

/// The successor that a transfer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferTarget {
    /// This node, which may be dead, an observer, or have the same name as another.
    Node(u8),
    /// A name that no candidate has.
    Nobody,
}

/// What the network does to each message during a fault; probabilities in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// The request is lost.
    pub lost_before: u8,
    /// The store performs the request, and the answer is lost.
    pub lost_after: u8,
    /// The request reaches the store a second time, later.
    pub twice: u8,
    /// The message is delayed by up to `delay`, so that messages overtake each other.
    pub late: u8,
    /// The longest delay.
    pub delay: Span,
    /// The connection breaks, before or after the request.
    pub broken: u8,
    /// A read returns the state of a few changes ago.
    pub stale: u8,
}

/// An error of the store, by the classes of its error tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// 500, 503, 429, 401, 403, a redirect, an HTML page: not done.
    Unknown,
    /// The same, although it was done.
    UnknownYetDone,
    /// The answer names another lease, although it was done: refused.
    OtherLease,
    /// The record was not written by Tenure.
    Foreign,
}

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A bad connection between a node and the store.
    Weather(Weather),
    /// No connection to the store: connections are refused, or get no answer.
    Cut { refused: bool },
    /// The store returns an error for this share of requests (percent).
    Outage { error: Error, share: u8 },
    /// SIGSTOP, a cgroup's freezer, CPU starvation: the process stops, and its clocks run.
    Pause,
    /// The machine is suspended: boot runs, raw stands still; the wall clock also stands still if
    /// `wall_stands`.
    Suspend { wall_stands: bool },
    /// A pause that no guest clock sees; the wall clock is corrected at its end if `synced`.
    Freeze { synced: bool },
    /// The machine is restored from a recent snapshot: both lease clocks go back, and the wall clock
    /// by this share of that (percent).
    Restore { wall: u8 },
    /// When the store grants the next renewal, the leader is stopped until its belief is almost over;
    /// then it reads the answer, and has no connection.
    RenewalTrap,
    /// When the store grants the next bid, the candidate is stopped until little of the grant is left;
    /// then it reads the answer, and has no connection as soon as it leads.
    GrantTrap,
    /// A clock is set forward or back by this many nanoseconds.
    Jump { which: Which, by: i64 },
    /// Boot and wall clock are slewed.
    Slew { ppm: i32 },
    /// SIGKILL, a panic, a power failure: ends at once, and starts again after the fault's length.
    Crash,
    /// SIGTERM; starts again after the fault's length.
    Resign,
    /// An operator's step-down, with the fault's length as hold-off.
    StepDown,
    /// An operator's transfer, with the fault's length as hold-off.
    Transfer { to: TransferTarget },
    /// An operator's pause, for the fault's length.
    TakeOut,
    /// The service is unhealthy, or alternates if `flaps`.
    Unhealthy { flaps: bool },
    /// The cloud announces maintenance of the machine, and ends it.
    Maintenance,
    /// The supervised process exits by itself, with the fault's length as hold-off.
    ChildEnds,
    /// Publishers take this long to publish passive.
    SlowPublisher,
    /// An operator breaks the lease, after a period in seconds; `None` lets it run out.
    Break { period: Option<u8> },
    /// The record is lost, with the lease if `whole`.
    Lose { whole: bool },
    /// The term in the record is lowered by `by`; the lease is freed if `freed`.
    SetBack { by: u32, freed: bool },
    /// An operator waits for a window in the course of a candidate, and gives an order in it.
    InWindow { window: Window, order: Order },
    /// A third party changes the id of the lease.
    Change,
    /// A third party writes to fields outside of lease and record.
    Touch,
    /// A third party acquires the lease for the fault's length, if it is free.
    TakenByOther,
    /// The store returns to its state at the last fault of this kind.
    Rollback,
    /// A fault of the streams between the candidates.
    Peer(PeerFault),
}

/// A fault of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// The phase of faults.
    pub phase: u8,
    /// The time from the start of the phase.
    pub at: Span,
    /// The length, if the kind has one.
    pub length: Span,
    /// The affected nodes.
    pub target: Target,
    /// The kind.
    pub kind: Kind,
}

/// Draws a length between two limits, with a uniform logarithm.
pub fn log_span(rng: &mut Rng, least: Span, most: Span) -> Span {
    let ratio = (most.max(least + 1) as f64 / least as f64).ln();
    ((least as f64) * (ratio * rng.f64()).exp()) as Span
}

/// Draws the sign of a number.
fn signed(rng: &mut Rng, size: Span) -> i64 {
    if rng.bool() { size.cast_signed() } else { -size.cast_signed() }
}

/// Draws one fault, with a length in proportion to `lease`.
pub fn draw(rng: &mut Rng, nodes: u8, lease: Span, faithful: bool) -> Fault {
    let target = match rng.u8(..10) {
        0..=4 => Target::Leader,
        5 => Target::All,
        _ => Target::Node(rng.u8(..nodes)),
    };
    let mut length = log_span(rng, lease / 100, lease * 2);
    let kind = match rng.u8(..136) {
        126.. => window::draw(rng),
        124..=125 => Kind::Touch,
        122..=123 => Kind::GrantTrap,
        100..=103 => Kind::StepDown,
        104..=108 => {
            let to = if rng.u8(..5) == 0 {
                TransferTarget::Nobody
            } else {
                TransferTarget::Node(rng.u8(..nodes))
            };
            Kind::Transfer { to }
        }
        109..=112 => Kind::TakeOut,
        113..=116 => Kind::Unhealthy { flaps: rng.u8(..3) == 0 },
        117..=118 => Kind::Maintenance,
        119..=121 => Kind::ChildEnds,
        0..=13 => Kind::Weather(weather(rng, lease)),
        14..=15 => Kind::RenewalTrap,
        16..=27 => Kind::Cut { refused: rng.bool() },
        28..=37 => outage(rng),
        38..=46 => Kind::Pause,
        47..=58 => clock(rng, lease),
        59..=63 => Kind::Suspend { wall_stands: rng.bool() },
        64..=68 => Kind::Freeze { synced: rng.bool() },
        69 => Kind::Restore { wall: rng.u8(..100) },
        70..=77 => Kind::Crash,
        78..=85 => Kind::Resign,
        86..=88 => Kind::SlowPublisher,
        89..=91 => Kind::Break { period: None },
        92 => Kind::Change,
        93..=94 => Kind::TakenByOther,
        95 => Kind::Lose { whole: rng.bool() },
        96 => Kind::SetBack { by: rng.u32(1..1_000), freed: false },
        _ if faithful => Kind::Pause,
        97 => Kind::Break { period: Some(rng.u8(..30)) },
        98 => Kind::SetBack { by: rng.u32(1..1_000), freed: true },
        _ => Kind::Rollback,
    };
    if matches!(kind, Kind::Crash | Kind::Resign) {
        length = log_span(rng, lease / 1_500, lease);
    }
    if matches!(kind, Kind::StepDown | Kind::Transfer { .. } | Kind::ChildEnds) {
        length = log_span(rng, lease / 150, lease);
    }
    if matches!(kind, Kind::RenewalTrap | Kind::GrantTrap) {
        length = lease * 2;
    }
    if matches!(kind, Kind::InWindow { .. }) {
        length = window::patience(lease);
    }
    let target = match kind {
        Kind::GrantTrap | Kind::InWindow { .. } => Target::All,
        Kind::RenewalTrap | Kind::StepDown | Kind::Transfer { .. } | Kind::ChildEnds => {
            Target::Leader
        }
        Kind::Crash | Kind::Resign | Kind::TakeOut if target == Target::All => Target::Leader,
        _ => target,
    };
    Fault { phase: 0, at: 0, length, target, kind }
}

/// Draws three faults that overlap: the leader is disconnected, stopped or frozen; meanwhile the
/// record is lost or the lease is broken; then the next holder is affected too.
pub fn ambush(rng: &mut Rng, lease: Span, faithful: bool) -> Vec<Fault> {
    let fault = |at, length, target, kind| Fault { phase: 0, at, length, target, kind };
    let long = rng.u64(lease / 2..lease * 3 / 2);
    let first = match rng.u8(..4) {
        0 => Kind::Pause,
        1 => Kind::Freeze { synced: rng.bool() },
        _ => Kind::Cut { refused: rng.bool() },
    };
    let second = match rng.u8(..5) {
        0 => Kind::Break { period: None },
        1 => Kind::SetBack { by: rng.u32(1..1_000), freed: !faithful && rng.bool() },
        2 => Kind::Lose { whole: false },
        _ => Kind::Lose { whole: true },
    };
    let third = match rng.u8(..4) {
        0 => Kind::Crash,
        1 => Kind::Resign,
        2 => Kind::Pause,
        _ => Kind::Cut { refused: rng.bool() },
    };
    let after = rng.u64(MILLI..lease / 4);
    let later = after + log_span(rng, lease / 15, lease);
    vec![
        fault(0, long, Target::Leader, first),
        fault(after, 0, Target::All, second),
        fault(later, log_span(rng, lease / 100, lease), Target::Holder, third),
    ]
}

fn weather(rng: &mut Rng, lease: Span) -> Weather {
    let mut weather = Weather::default();
    let entropy = rng.u8(10..100);
    match rng.u8(..7) {
        6 => weather.stale = entropy,
        0 => weather.lost_before = entropy,
        1 => weather.lost_after = entropy,
        2 => weather.twice = entropy,
        3 => weather.late = entropy,
        4 => weather.broken = entropy,
        _ => {
            weather.lost_before = rng.u8(..30);
            weather.lost_after = rng.u8(..30);
            weather.twice = rng.u8(..30);
            weather.late = rng.u8(..60);
            weather.broken = rng.u8(..30);
            weather.stale = rng.u8(..30);
        }
    }
    weather.delay = log_span(rng, lease / 300, lease * 3 / 2);
    weather
}

fn outage(rng: &mut Rng) -> Kind {
    let error = match rng.u8(..10) {
        0..=4 => Error::Unknown,
        5..=6 => Error::UnknownYetDone,
        7..=8 => Error::OtherLease,
        _ => Error::Foreign,
    };
    Kind::Outage { error, share: rng.u8(20..=100) }
}

fn clock(rng: &mut Rng, lease: Span) -> Kind {
    match rng.u8(..8) {
        0..=1 => Kind::Slew { ppm: rng.i32(-80_000..=80_000) },
        2..=4 => {
            let size = log_span(rng, 100 * MILLI, 3_600 * SECOND);
            Kind::Jump { which: Which::Wall, by: signed(rng, size) }
        }
        5..=6 => {
            let size = log_span(rng, 10 * MILLI, lease * 2);
            let which = if rng.bool() { Which::Boot } else { Which::Raw };
            Kind::Jump { which, by: signed(rng, size) }
        }
        _ => {
            let size = log_span(rng, 10 * MILLI, 3_600 * SECOND);
            Kind::Jump { which: Which::Wall, by: signed(rng, size) }
        }
    }
}
