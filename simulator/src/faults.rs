//! What can go wrong, as values: each fault of a schedule says what, to whom and for how long.
//!
//! What it does not do: nothing here acts; the world does.

use fastrand::Rng;

use super::clock::Which;
use super::{MILLI, SECOND, Span};

/// Whom a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This node.
    Node(u8),
    /// Whoever leads when it strikes, else the first node.
    Leader,
    /// Whoever has the lease in the store when it strikes, leading or not, else nobody.
    Holder,
    /// All of them.
    All,
}

/// Whom a transfer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heir {
    /// This node, which may be dead, observe, or bear the same name as another.
    Node(u8),
    /// A name that nobody bears.
    Nobody,
}

/// What the network does to each message while a fault lasts; chances in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Lost before the store.
    pub lost_before: u8,
    /// Done by the store, the answer lost.
    pub lost_after: u8,
    /// Sent to the store once more, later.
    pub twice: u8,
    /// Held up for up to `delay`, so that messages overtake each other.
    pub late: u8,
    /// How long at most.
    pub delay: Span,
    /// The connection breaks, before or after.
    pub broken: u8,
    /// A look shows the store as it was a few changes ago.
    pub stale: u8,
}

/// How a store errs; the classes of its error tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// 500, 503, 429, 401, 403, a redirect, a page for people: not done.
    Unknown,
    /// The same, and it was done.
    UnknownYetDone,
    /// The answer names another lease, though it was done: refused.
    OtherLease,
    /// The record is of another's making.
    Foreign,
}

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Bad weather between a node and the store.
    Weather(Weather),
    /// Cut off from the store: connections are refused, or nothing ever comes back.
    Cut { refused: bool },
    /// The store errs, in this share of requests (percent).
    Outage { error: Error, share: u8 },
    /// SIGSTOP, a cgroup's freezer, a starved CPU: the process stands, its clocks run.
    Pause,
    /// The machine sleeps: boot runs on, raw stands; the wall clock stands too if `wall_stands`.
    Suspend { wall_stands: bool },
    /// A pause that no guest clock sees; the wall clock is put right at its end if `synced`.
    Freeze { synced: bool },
    /// The machine is restored from a picture of a moment ago: both lease clocks go back, and the
    /// wall clock by this share of it (percent).
    Restore { wall: u8 },
    /// The next renewal that the store grants catches the leader: it is stopped until its belief
    /// is all but over, reads the answer then, and is cut off.
    Snare,
    /// The next grant catches its candidate: it is stopped until little is left of it, reads the
    /// answer then, and is cut off as soon as it leads.
    GrantSnare,
    /// A clock is set, by so many nanoseconds.
    Jump { which: Which, by: i64 },
    /// Boot and wall clock are slewed.
    Slew { ppm: i32 },
    /// SIGKILL, a panic, power: gone at once, and back after the fault's length.
    Crash,
    /// SIGTERM, and back after the fault's length.
    Resign,
    /// An operator has it step down, with the fault's length as hold-off.
    StepDown,
    /// An operator has it give way to another, for whom others wait for the fault's length.
    Transfer { to: Heir },
    /// An operator takes it out of the election for the fault's length.
    TakeOut,
    /// The service beside it is not well; now and then it says that it is, if it flaps.
    Ill { flaps: bool },
    /// The process of its term ends by itself; others are let go first for the fault's length.
    ChildEnds,
    /// Publishers take this long to say passive.
    SlowPublisher,
    /// An operator breaks the lease; `None` lets it run out.
    Break { period: Option<u8> },
    /// The record is lost, with the lease if `whole`.
    Lose { whole: bool },
    /// The record shows a term lower by `by`; the lease is freed if `freed`.
    SetBack { by: u32, freed: bool },
    /// A third party gives the lease an id of its own.
    Change,
    /// Somebody writes beside the lease and its record.
    Touch,
    /// A third party takes the lease, if it is free, for the fault's length.
    Squat,
    /// The store falls back to the state that it had at the last fault of this kind.
    Rollback,
}

/// A fault of a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// In which spell of faults.
    pub spell: u8,
    /// When it strikes, counted from the spell's begin.
    pub at: Span,
    /// How long it lasts, where it does.
    pub length: Span,
    /// Whom.
    pub target: Target,
    /// What.
    pub kind: Kind,
}

/// Draws a length between two, each order of magnitude as likely as the next.
pub fn log_span(rng: &mut Rng, least: Span, most: Span) -> Span {
    let ratio = (most.max(least + 1) as f64 / least as f64).ln();
    ((least as f64) * (ratio * rng.f64()).exp()) as Span
}

/// Draws a number of either sign.
fn signed(rng: &mut Rng, size: Span) -> i64 {
    if rng.bool() { size.cast_signed() } else { -size.cast_signed() }
}

/// Draws one fault; `lease` is the length to which faults are proportioned.
pub fn draw(rng: &mut Rng, nodes: u8, lease: Span, faithful: bool) -> Fault {
    let target = match rng.u8(..10) {
        0..=4 => Target::Leader,
        5 => Target::All,
        _ => Target::Node(rng.u8(..nodes)),
    };
    let mut length = log_span(rng, lease / 100, lease * 2);
    let kind = match rng.u8(..126) {
        124..=125 => Kind::Touch,
        122..=123 => Kind::GrantSnare,
        100..=103 => Kind::StepDown,
        104..=108 => {
            let to = if rng.u8(..5) == 0 { Heir::Nobody } else { Heir::Node(rng.u8(..nodes)) };
            Kind::Transfer { to }
        }
        109..=112 => Kind::TakeOut,
        113..=118 => Kind::Ill { flaps: rng.u8(..3) == 0 },
        119..=121 => Kind::ChildEnds,
        0..=13 => Kind::Weather(weather(rng, lease)),
        14..=15 => Kind::Snare,
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
        93..=94 => Kind::Squat,
        95 => Kind::Lose { whole: rng.bool() },
        96 => Kind::SetBack { by: rng.u32(1..1_000), freed: false },
        _ if faithful => Kind::Pause,
        97 => Kind::Break { period: Some(rng.u8(..30)) },
        98 => Kind::SetBack { by: rng.u32(1..1_000), freed: true },
        _ => Kind::Rollback,
    };
    if matches!(kind, Kind::Crash | Kind::Resign) {
        length = log_span(rng, 10 * MILLI, lease);
    }
    if matches!(kind, Kind::StepDown | Kind::Transfer { .. } | Kind::ChildEnds) {
        length = log_span(rng, 100 * MILLI, lease);
    }
    if matches!(kind, Kind::Snare | Kind::GrantSnare) {
        length = lease * 2;
    }
    let target = match kind {
        Kind::GrantSnare => Target::All,
        Kind::Snare | Kind::StepDown | Kind::Transfer { .. } | Kind::ChildEnds => Target::Leader,
        Kind::Crash | Kind::Resign | Kind::TakeOut if target == Target::All => Target::Leader,
        _ => target,
    };
    Fault { spell: 0, at: 0, length, target, kind }
}

/// Draws several faults that hurt together: the leader is cut off, stopped or frozen, meanwhile the
/// record is lost or the lease broken, and whoever comes in between is struck too.
pub fn ambush(rng: &mut Rng, lease: Span, faithful: bool) -> Vec<Fault> {
    let fault = |at, length, target, kind| Fault { spell: 0, at, length, target, kind };
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
    let later = after + log_span(rng, SECOND, lease);
    vec![
        fault(0, long, Target::Leader, first),
        fault(after, 0, Target::All, second),
        fault(later, log_span(rng, 100 * MILLI, lease), Target::Holder, third),
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
    weather.delay = log_span(rng, 50 * MILLI, lease * 3 / 2);
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
