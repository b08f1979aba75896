//! The network between the candidates: it loses, delays, repeats and delivers notices.

use fastrand::Rng;
use tenure::election::PeerNotice;

use super::Connection;
use super::check::Handover;
use crate::queue::Event;
use crate::world::World;
use crate::{Instant, MILLI, Span};

/// A notice in transit.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) to: u8,
    pub(super) life: u32,
    /// The connection that it belongs to; `None` if it is replayed.
    pub(super) stamp: Option<u32>,
    pub(super) notice: PeerNotice,
}

/// The network between the candidates.
#[derive(Debug)]
pub struct Network {
    pub(super) rng: Rng,
    flights: Vec<Flight>,
    spare: Vec<u32>,
    /// The last notices that were sent, for replays, and their number.
    pub(super) sent: [Option<PeerNotice>; 16],
    count: usize,
    /// When a standby was last lied to.
    pub(super) lied_at: Option<Instant>,
    /// The handover that is judged.
    pub(super) handover: Option<Handover>,
    /// The reads of standbys between two notices of an honest leader, and the time between these.
    pub notified: (u64, Span),
}

impl Network {
    /// Creates the network of an episode.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed ^ 0x0c0f_fee5),
            flights: Vec::new(),
            spare: Vec::new(),
            sent: [const { None }; 16],
            count: 0,
            lied_at: None,
            handover: None,
            notified: (0, 0),
        }
    }

    fn insert(&mut self, flight: Flight) -> u32 {
        if let Some(free) = self.spare.pop() {
            self.flights[free as usize] = flight;
            return free;
        }
        self.flights.push(flight);
        self.flights.len() as u32 - 1
    }

    /// Returns the node that a notice is for.
    pub fn addressee(&self, index: u32) -> u8 {
        self.flights[index as usize].to
    }

    pub(super) fn delay(&mut self) -> Span {
        match self.rng.u8(..50) {
            0 => self.rng.u64(5 * MILLI..200 * MILLI),
            _ => self.rng.u64(MILLI / 5..5 * MILLI),
        }
    }

    /// Returns true with a probability in percent.
    fn happens(&mut self, percent: u8) -> bool {
        percent > 0 && self.rng.u8(..100) < percent
    }
}

impl World<'_> {
    /// Sends a notice to each standby that is connected; returns when the notices arrive.
    pub(super) fn broadcast(
        &mut self,
        leader: u8,
        notice: impl Fn(&Self, u8) -> PeerNotice,
    ) -> [Option<Instant>; 8] {
        let mut arrivals = [None; 8];
        if !self.scenario.peers {
            return arrivals;
        }
        let life = self.nodes[usize::from(leader)].life;
        for (node, arrival) in arrivals.iter_mut().enumerate().take(self.nodes.len()) {
            let process = self.nodes[node].process.as_ref();
            if process.is_some_and(|it| it.subscription.is_to(leader, life)) {
                let notice = notice(self, node as u8);
                *arrival = self.fly(leader, node as u8, notice);
            }
        }
        arrivals
    }

    /// Sends a notice, and returns when it arrives; `None` if it is lost.
    pub(super) fn fly(&mut self, leader: u8, node: u8, notice: PeerNotice) -> Option<Instant> {
        let links = [leader, node].map(|it| self.nodes[usize::from(it)].link.peers);
        let (cut, weather) =
            (links.iter().any(|it| it.cut.is_some()), links[0].weather.worse(links[1].weather));
        let slot = self.peers.count % self.peers.sent.len();
        self.peers.sent[slot] = Some(notice.clone());
        self.peers.count += 1;
        if cut || self.peers.happens(weather.lost) {
            self.faults += 1;
            return None;
        }
        let mut at = self.now + self.peers.delay();
        let flight = self.flight(node, notice);
        if self.peers.happens(weather.late) {
            self.faults += 1;
            at += self.peers.rng.u64(..=weather.delay);
        } else if let Some(process) = &mut self.nodes[usize::from(node)].process {
            at = at.max(process.subscription.arrives);
            process.subscription.arrives = at;
        }
        if self.peers.happens(weather.twice) {
            self.faults += 1;
            let again = at + self.peers.rng.u64(..=weather.delay);
            self.plan_notice(again, flight.clone());
        }
        self.plan_notice(at, flight);
        Some(at)
    }

    /// Returns a notice that belongs to the present connection of a standby.
    pub(super) fn flight(&self, to: u8, notice: PeerNotice) -> Flight {
        let it = &self.nodes[usize::from(to)];
        let stamp = it.process.as_ref().map(|it| it.subscription.stamp);
        Flight { to, life: it.life, stamp, notice }
    }

    pub(super) fn plan_notice(&mut self, at: Instant, flight: Flight) {
        self.last_arrival = self.last_arrival.max(at);
        let message = self.peers.insert(flight);
        self.queue.plan(at, Event::Notice { message });
    }

    /// Delivers a notice, unless the connection that it belongs to has ended.
    pub(crate) fn deliver_notice(&mut self, message: u32) {
        let Flight { to, life, stamp, notice } = self.peers.flights[message as usize].clone();
        self.peers.spare.push(message);
        let it = &self.nodes[usize::from(to)];
        let Some(process) = it.process.as_ref().filter(|_| it.life == life) else { return };
        let connection = &process.subscription;
        let is_current =
            |stamp| stamp == connection.stamp && connection.connection == Connection::Connected;
        match (stamp.is_none_or(is_current), &notice) {
            (false, _) => {}
            (true, PeerNotice::Lost) => self.lose(to),
            (true, PeerNotice::Holding { .. }) => {
                self.count_reads(to);
                self.hear(to, notice);
            }
            (true, _) => self.hear(to, notice),
        }
    }
}
