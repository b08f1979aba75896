//! The faults of the streams, which are part of the schedule of an episode.

use fastrand::Rng;

use super::Lie;
use crate::faults::{Fault, Kind, Target, log_span};
use crate::scenario::Scenario;
use crate::{MILLI, SECOND, Span};

/// What the network does to each notice; probabilities in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    pub lost: u8,
    /// It arrives a second time, up to `delay` later.
    pub twice: u8,
    /// It is delayed by up to `delay`, so that others overtake it.
    pub late: u8,
    pub delay: Span,
}

/// The candidates that a leader names as heirs, instead of the next in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heirs {
    Nobody,
    Everybody,
    /// Those that are stopped or cannot lead.
    Unwell,
}

/// A fault of the streams from and to the affected nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFault {
    /// A bad network.
    Weather(Weather),
    /// No connection: existing ones break, or are silent.
    Cut { refused: bool },
    /// Notices of earlier terms and episodes arrive again, at this interval.
    Replay { every: Span },
    /// The affected nodes are lied to at this interval, also in the examination if the liar `stays`.
    Liar { lie: Lie, every: Span, stays: bool },
    /// The leader names other heirs.
    Misnamed(Heirs),
}

impl Weather {
    /// Returns the worse of each.
    pub fn worse(self, other: Self) -> Self {
        Self {
            lost: self.lost.max(other.lost),
            twice: self.twice.max(other.twice),
            late: self.late.max(other.late),
            delay: self.delay.max(other.delay),
        }
    }

    fn draw(rng: &mut Rng, lease: Span) -> Self {
        let mut weather = Self { delay: log_span(rng, MILLI, lease * 3 / 2), ..Self::default() };
        let percent = rng.u8(10..=100);
        match rng.u8(..4) {
            0 => weather.lost = percent,
            1 => weather.twice = percent,
            2 => weather.late = percent,
            _ => {
                (weather.lost, weather.twice, weather.late) =
                    (rng.u8(..40), rng.u8(..40), rng.u8(..60));
            }
        }
        weather
    }
}

impl PeerFault {
    /// Returns whether it lasts in the examination, too.
    pub fn stays(self) -> bool {
        matches!(self, Self::Liar { stays: true, .. })
    }
}

/// Decides whether the leaders of an episode notify their standbys, and adds the faults of the streams to
/// its schedule. All else of the episode is as without.
pub fn plan(scenario: &mut Scenario) {
    let mut rng = Rng::with_seed(scenario.seed ^ 0x9ee5_0000_0000_0000);
    scenario.peers = rng.bool();
    if !scenario.peers {
        return;
    }
    let lease = scenario.longest(|it| it.lease_duration);
    let nodes = u8::try_from(scenario.nodes.len()).unwrap_or(u8::MAX);
    let gap = log_span(&mut rng, 20 * SECOND, 6 * lease);
    for (phase, end) in scenario.phases.clone().into_iter().enumerate() {
        let mut at = log_span(&mut rng, SECOND, gap);
        while at < end {
            let drawn = draw(&mut rng, nodes, lease, end - at);
            let phase = phase as u8;
            scenario.faults.extend(drawn.into_iter().map(|it| Fault {
                phase,
                at: at + it.at,
                ..it
            }));
            at += log_span(&mut rng, gap / 8, gap * 2);
        }
    }
}

/// Draws one fault, or several that overlap, with lengths in proportion to `lease`; `left` is what is left
/// of the phase.
fn draw(rng: &mut Rng, nodes: u8, lease: Span, left: Span) -> Vec<Fault> {
    let fault = |length, target, kind| Fault { phase: 0, at: 0, length, target, kind };
    let target = match rng.u8(..4) {
        0 => Target::Leader,
        1 => Target::All,
        _ => Target::Node(rng.u8(..nodes)),
    };
    let length = log_span(rng, lease / 20, lease * 4);
    let kind = match rng.u8(..12) {
        0..=2 => PeerFault::Weather(Weather::draw(rng, lease)),
        3..=4 => PeerFault::Cut { refused: rng.bool() },
        5 => PeerFault::Misnamed(match rng.u8(..3) {
            0 => Heirs::Nobody,
            1 => Heirs::Everybody,
            _ => Heirs::Unwell,
        }),
        6 => {
            let every = log_span(rng, 10 * MILLI, lease / 4);
            PeerFault::Replay { every: every.max(length / 50) }
        }
        7..=8 => return vec![liar(rng, target, lease, left)],
        9 => {
            // Cut off from the store and from all peers.
            let refused = rng.bool();
            let cut = Kind::Peer(PeerFault::Cut { refused });
            return vec![
                fault(length, Target::Leader, Kind::Cut { refused }),
                fault(length, Target::Leader, cut),
            ];
        }
        _ => return heir_away(rng, lease),
    };
    vec![fault(length, target, Kind::Peer(kind))]
}

fn liar(rng: &mut Rng, target: Target, lease: Span, left: Span) -> Fault {
    let lie = Lie::draw(rng);
    // A flood has as many notices as other lies, or it would cost more than all else of the episode.
    let at_once = u64::from(lie.at_once());
    let stays = rng.u8(..3) == 0;
    let (every, length) = if stays {
        (log_span(rng, lease / 40, lease / 2) * at_once, left + 1_200 * SECOND)
    } else {
        let every = log_span(rng, MILLI, lease / 2);
        (every, log_span(rng, SECOND, lease * 4).min(every * 100 / at_once))
    };
    let kind = Kind::Peer(PeerFault::Liar { lie, every, stays });
    Fault { phase: 0, at: 0, length, target, kind }
}

/// Draws a handover to an heir that is dead or stopped.
fn heir_away(rng: &mut Rng, lease: Span) -> Vec<Fault> {
    let fault = |at, length, target, kind| Fault { phase: 0, at, length, target, kind };
    let away = if rng.bool() { Kind::Pause } else { Kind::Crash };
    let leaves = if rng.bool() { Kind::Resign } else { Kind::StepDown };
    let length = log_span(rng, 100 * MILLI, lease);
    // Before the leader knows, or after it has named the heir.
    let (first, second) = (rng.u64(..50 * MILLI), rng.u64(..50 * MILLI));
    vec![
        fault(first, log_span(rng, 100 * MILLI, lease), Target::Heir, away),
        fault(second, length, Target::Leader, leaves),
    ]
}
