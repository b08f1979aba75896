//! Forged notices: liars that say anything at any rate, and old notices that arrive again.

use std::time::Duration;

use fastrand::Rng;
use tenure::election::PeerNotice;

use super::transit::Flight;
use super::{PeerFault, patience};
use crate::faults::{Kind, log_span};
use crate::queue::Event;
use crate::world::World;
use crate::{MILLI, SECOND, Span, span};

/// What a liar says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Any notice with any values.
    Anything,
    /// That the lease is held, in any term and for any time.
    Holding,
    /// That the lease was released.
    Released,
    /// Nothing: the stream ends again and again.
    Lost,
    /// Many notices at once.
    Flood,
}

impl Lie {
    pub fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..7) {
            0..=1 => Self::Anything,
            2..=3 => Self::Holding,
            4 => Self::Released,
            5 => Self::Lost,
            _ => Self::Flood,
        }
    }

    /// Returns how many notices it says at a time: in a flood, three times as many as may cause reads within
    /// a retry-period.
    pub(super) fn at_once(self) -> u8 {
        if self == Self::Flood { 12 } else { 1 }
    }

    /// Returns the next notice; `known` is the greatest term so far.
    fn tell(self, rng: &mut Rng, known: u64) -> PeerNotice {
        let term = term(rng, known);
        let is_heir = rng.bool();
        let kind = match self {
            Self::Anything | Self::Flood => rng.u8(..6),
            Self::Holding => 0,
            Self::Released => 2,
            Self::Lost => 4,
        };
        match kind {
            0..=1 => PeerNotice::Holding {
                term,
                sent_ago: duration(rng),
                lease: duration(rng),
                next: duration(rng),
            },
            2 => PeerNotice::Released { term, is_heir },
            3 => PeerNotice::Draining { term, is_heir },
            5 => PeerNotice::Candidates { is_heir },
            _ => PeerNotice::Lost,
        }
    }
}

fn term(rng: &mut Rng, known: u64) -> u64 {
    match rng.u8(..8) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.u64(..),
        3 => known.saturating_sub(rng.u64(..100)),
        4 => known.saturating_add(rng.u64(..100)),
        _ => known,
    }
}

fn duration(rng: &mut Rng) -> Duration {
    match rng.u8(..8) {
        0 => Duration::ZERO,
        1 => Duration::MAX,
        2 => Duration::from_millis(u64::MAX),
        3 => Duration::from_nanos(rng.u64(..)),
        _ => Duration::from_nanos(log_span(rng, MILLI, 120_000 * MILLI)),
    }
}

impl World<'_> {
    /// Begins a fault of the streams.
    pub(crate) fn begin_peer_fault(&mut self, index: u32, mask: u8, fault: PeerFault) {
        match fault {
            PeerFault::Cut { refused: true } => self.break_streams(mask),
            PeerFault::Replay { .. } | PeerFault::Liar { .. } => {
                self.queue.plan(self.now, Event::Lie { fault: index });
            }
            _ => {}
        }
    }

    /// Ends all faults for the examination, except for the liars that stay.
    pub(crate) fn end_lasting(&mut self) {
        for (index, mask) in std::mem::take(&mut self.lasting) {
            match self.scenario.faults[index as usize].kind {
                Kind::Peer(fault) if fault.stays() => self.lasting.push((index, mask)),
                Kind::Peer(fault) => self.end_peer_fault(mask, fault),
                _ => {}
            }
        }
    }

    /// Ends a fault of the streams: those that a liar has kept alive may become silent.
    pub(crate) fn end_peer_fault(&mut self, mask: u8, fault: PeerFault) {
        if !matches!(fault, PeerFault::Liar { .. }) {
            return;
        }
        for (node, it) in self.nodes.iter_mut().enumerate() {
            let retry = span(it.plan.timings.retry_period);
            if let (true, Some(process)) = (mask & (1 << node) != 0, &mut it.process) {
                process.subscription.heard = self.now;
                process.subscription.patience = patience(retry);
            }
        }
    }

    /// Lets a liar speak, or replays a notice, as long as the fault lasts.
    pub(crate) fn lie(&mut self, index: u32) {
        let Some((_, mask)) = self.lasting.iter().find(|(it, _)| *it == index) else { return };
        let mask = *mask;
        let Kind::Peer(fault) = self.scenario.faults[index as usize].kind else { return };
        let every = match fault {
            PeerFault::Replay { every } => {
                self.each_listener(mask, |world, node| world.replay(node));
                every
            }
            PeerFault::Liar { lie, every, .. } => {
                self.each_listener(mask, |world, node| {
                    (0..lie.at_once()).for_each(|_| world.lie_to(node, lie));
                });
                every
            }
            _ => return,
        };
        let again = self.now + every / 2 + self.peers.rng.u64(..=every);
        self.queue.plan(again, Event::Lie { fault: index });
    }

    fn each_listener(&mut self, mask: u8, mut tell: impl FnMut(&mut Self, u8)) {
        for node in 0..self.nodes.len() {
            let it = &self.nodes[node];
            let hears = it.asleep_until <= self.now && it.process.is_some();
            if hears && mask & (1 << node) != 0 {
                self.faults += 1;
                tell(self, node as u8);
            }
        }
    }

    fn lie_to(&mut self, node: u8, lie: Lie) {
        let notice = lie.tell(&mut self.peers.rng, self.checker.highest);
        self.peers.lied_at = Some(self.now);
        self.hear(node, notice);
    }

    /// Sends a notice again that was sent before: in this episode, or with a term of another.
    fn replay(&mut self, node: u8) {
        let slot = self.peers.rng.usize(..self.peers.sent.len());
        let (is_earlier, term) = (self.peers.rng.u8(..4) == 0, self.peers.rng.u64(1..1_000));
        let Some(mut notice) = self.peers.sent[slot].clone() else { return };
        if let (
            true,
            PeerNotice::Holding { term: old, .. }
            | PeerNotice::Draining { term: old, .. }
            | PeerNotice::Released { term: old, .. },
        ) = (is_earlier, &mut notice)
        {
            *old = term;
        }
        self.peers.lied_at = Some(self.now);
        let life = self.nodes[usize::from(node)].life;
        let flight = Flight { to: node, life, stamp: None, notice };
        let at = self.now + self.peers.delay();
        self.plan_notice(at, flight);
    }

    /// Returns for how long reads may still be put off by what was forged, for the bounds of the
    /// examination.
    pub(crate) fn deceived_for(&self) -> Span {
        let slow = (self.slow_period() + self.scenario.longest(|it| it.retry_period)) * 11 / 10;
        let lies = self.lasting.iter().any(|(it, _)| {
            matches!(self.scenario.faults[*it as usize].kind, Kind::Peer(fault) if fault.stays())
        });
        let recently = self.peers.lied_at.is_some_and(|at| self.now < at + slow);
        if lies || recently { slow } else { 0 }
    }

    /// Returns the least time between the reads of a standby that is notified.
    pub(crate) fn slow_period(&self) -> Span {
        let retry = self.scenario.longest(|it| it.retry_period);
        (15 * retry).min(30 * SECOND).max(retry)
    }
}
