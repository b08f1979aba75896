//! The streams by which a leader notifies its standbys, on a network of their own.
//!
//! A standby subscribes to the leader that it has read of, and is told of each granted renewal, of a drain
//! and of a release. The network loses, delays and repeats notices, old ones are replayed, and liars send
//! anything; [`check`] has what must hold whatever is notified.

use tenure::election::{PeerNotice, Standing};
use tenure::lease::Nonce;

use super::queue::Event;
use super::world::World;
use super::{Instant, MILLI, SECOND, Span, span};

pub mod check;
mod fault;
mod lie;
mod transit;

use check::ReadLog;
pub use fault::{Heirs, PeerFault, Weather, plan};
pub use lie::Lie;
pub use transit::Network;

/// The state of the streams of one candidate: the sum of all lasting faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerLink {
    pub weather: Weather,
    /// Whether it is cut: by broken connections (`true`) or silently (`false`).
    pub cut: Option<bool>,
    /// Whom it names as heirs while it leads, instead of the next in line.
    pub heirs: Option<Heirs>,
}

/// The subscription of one process.
#[derive(Debug, Default)]
pub struct Subscription {
    /// The leader, a node and its life, that it has read of.
    leader: Option<(u8, u32)>,
    connection: Connection,
    /// The number of the connection: what belongs to an earlier one is dropped.
    stamp: u32,
    /// Since when it is connected.
    since: Instant,
    /// When the last notice arrived.
    heard: Instant,
    /// How much silence ends the connection.
    patience: Span,
    /// When the last notice that was sent in order arrives.
    arrives: Instant,
    /// Whether a release was notified, so that the end of the connection is no loss.
    released: bool,
    /// Whether a notice is being handed in.
    pub hears: bool,
    /// What the checker knows of its reads.
    pub log: ReadLog,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Connection {
    #[default]
    None,
    Connecting,
    Connected,
}

impl PeerLink {
    /// Adds the effect of one more lasting fault.
    pub fn worsen(&mut self, fault: PeerFault) {
        match fault {
            PeerFault::Weather(more) => self.weather = self.weather.worse(more),
            PeerFault::Cut { refused } => self.cut = Some(refused),
            PeerFault::Misnamed(heirs) => self.heirs = Some(heirs),
            PeerFault::Replay { .. } | PeerFault::Liar { .. } => {}
        }
    }
}

impl Subscription {
    /// Returns whether it is connected to this process.
    fn is_to(&self, leader: u8, life: u32) -> bool {
        self.connection == Connection::Connected && self.leader == Some((leader, life))
    }

    /// Returns when silence ends the connection.
    fn ends_at(&self) -> Instant {
        self.heard.saturating_add(self.patience)
    }

    fn disconnect(&mut self) {
        self.connection = Connection::None;
        self.stamp += 1;
        self.released = false;
    }

    /// Records that a notice has arrived.
    fn hear(&mut self, notice: &PeerNotice, now: Instant) {
        self.heard = now;
        match notice {
            PeerNotice::Holding { next, .. } => {
                self.released = false;
                self.patience = patience(u64::try_from(next.as_nanos()).unwrap_or(u64::MAX));
            }
            PeerNotice::Released { .. } => self.released = true,
            PeerNotice::Draining { .. }
            | PeerNotice::Ended { .. }
            | PeerNotice::Candidates { .. } => {}
            PeerNotice::Lost => self.disconnect(),
        }
    }
}

/// Returns how much silence ends a connection whose next notice is due after this time.
fn patience(next: Span) -> Span {
    next.saturating_mul(2).saturating_add(SECOND)
}

impl World<'_> {
    /// Subscribes a standby to the leader that it has just read of, unless it is already.
    pub(super) fn subscribe(&mut self, node: u8, nonce: Option<Nonce>) {
        let wrote = self.checker.leaderships.iter().rev().find(|it| Some(it.nonce) == nonce);
        let Some((leader, life)) = wrote.map(|it| (it.node, it.life)) else { return };
        let Some(process) = &mut self.nodes[usize::from(node)].process else { return };
        let it = &mut process.subscription;
        let is_same = it.leader == Some((leader, life)) && it.connection != Connection::None;
        if leader == node || is_same {
            return;
        }
        it.disconnect();
        it.leader = Some((leader, life));
        it.connection = Connection::Connecting;
        let stamp = it.stamp;
        let at = self.now + 2 * self.peers.delay();
        self.queue.plan(at, Event::Connect { node, stamp });
    }

    /// Connects a standby, if its leader still leads. It tries again after the next read.
    pub(super) fn connect(&mut self, node: u8, stamp: u32) {
        let Some(leader) = self.leader_of(node, stamp) else { return };
        let (leader, life) = leader;
        let there = &self.nodes[usize::from(leader)];
        let process = there.process.as_ref().filter(|_| there.life == life);
        let standing = process.map(|it| it.status.standing.clone());
        let serves = matches!(standing, Some(Standing::Leader { .. } | Standing::Draining { .. }));
        let is_up = serves && there.asleep_until <= self.now && self.is_joined(leader, node);
        let patience = patience(span(there.plan.timings.retry_period));
        let Some(process) = &mut self.nodes[usize::from(node)].process else { return };
        let it = &mut process.subscription;
        if !is_up {
            return it.disconnect();
        }
        it.connection = Connection::Connected;
        (it.since, it.heard, it.arrives) = (self.now, self.now, self.now);
        it.patience = patience;
        self.queue.plan(self.now + patience, Event::Silence { node, stamp });
        self.log(|_| format!("candidate {node} listens to {leader}"));
        if let Some(notice) = self.holding(leader) {
            self.fly(leader, node, notice);
        }
        if let Some(Standing::Draining { term, .. }) = standing {
            let is_heir = self.is_named_heir(leader, node);
            self.fly(leader, node, PeerNotice::Draining { term, is_heir });
        }
        self.broadcast(leader, |world, node| PeerNotice::Candidates {
            is_heir: world.is_named_heir(leader, node),
        });
    }

    /// Returns the leader of a subscription, unless the subscription has changed.
    fn leader_of(&self, node: u8, stamp: u32) -> Option<(u8, u32)> {
        let it = &self.nodes[usize::from(node)].process.as_ref()?.subscription;
        it.leader.filter(|_| it.stamp == stamp && it.connection != Connection::None)
    }

    /// Returns whether two candidates can connect to each other.
    fn is_joined(&self, one: u8, other: u8) -> bool {
        [one, other].iter().all(|it| self.nodes[usize::from(*it)].link.peers.cut.is_none())
    }

    /// Ends a connection that has been silent for too long.
    pub(super) fn end_silence(&mut self, node: u8, stamp: u32) {
        if self.leader_of(node, stamp).is_none() {
            return;
        }
        let it = &self.nodes[usize::from(node)];
        let retry_period = it.plan.timings.retry_period;
        let Some(process) = &it.process else { return };
        let it = &process.subscription;
        let ends = it.ends_at();
        if self.now >= ends {
            return self.lose(node);
        }
        // A liar can promise the next notice for the end of time.
        let at = ends.min(self.now + patience(span(retry_period)));
        self.queue.plan(at, Event::Silence { node, stamp });
    }

    /// Ends the connection of a standby, which is notified of that unless a release was.
    fn lose(&mut self, node: u8) {
        let Some(process) = &mut self.nodes[usize::from(node)].process else { return };
        if process.subscription.released {
            return process.subscription.disconnect();
        }
        self.hear(node, PeerNotice::Lost);
    }

    /// Ends the connections of all standbys to this candidate, from its side.
    pub(super) fn close_streams(&mut self, leader: u8) {
        self.broadcast(leader, |_, _| PeerNotice::Lost);
    }

    /// Ends the connections of all standbys to a candidate that has crashed, unless its machine has too.
    pub(super) fn break_off_streams(&mut self, leader: u8) {
        if self.scenario.peers && self.peers.rng.bool() {
            self.close_streams(leader);
        }
    }

    /// Ends the subscription of a new leader, and notifies its standbys.
    pub(super) fn lead_streams(&mut self, leader: u8) {
        if let Some(process) = &mut self.nodes[usize::from(leader)].process {
            process.subscription.disconnect();
            self.notify_holding(leader);
        }
    }

    /// Ends the connections to and from these nodes that a cut has broken.
    pub(super) fn break_streams(&mut self, mask: u8) {
        for node in 0..self.nodes.len() as u8 {
            let Some(process) = &self.nodes[usize::from(node)].process else { continue };
            let it = &process.subscription;
            let leader = it.leader.filter(|_| it.connection == Connection::Connected);
            let ends = |it: u8| mask & (1 << it) != 0;
            if leader.is_some_and(|(leader, _)| ends(leader) || ends(node)) {
                let flight = self.flight(node, PeerNotice::Lost);
                self.plan_notice(self.now + MILLI, flight);
            }
        }
    }

    /// Notifies the standbys of the last grant.
    pub(super) fn notify_holding(&mut self, leader: u8) {
        if let Some(notice) = self.holding(leader) {
            self.broadcast(leader, |_, _| notice.clone());
        }
    }

    fn holding(&self, leader: u8) -> Option<PeerNotice> {
        let it = &self.nodes[usize::from(leader)];
        let (Standing::Leader { term, belief, .. } | Standing::Draining { term, belief, .. }) =
            &it.process.as_ref()?.status.standing
        else {
            return None;
        };
        let sent_ago = belief.sent.elapsed_max(it.moment(self.now));
        let timings = it.plan.timings;
        let next = timings.retry_period.saturating_sub(sent_ago);
        Some(PeerNotice::Holding { term: *term, sent_ago, lease: timings.lease_duration, next })
    }

    /// Notifies the standbys of a drain.
    pub(super) fn notify_draining(&mut self, leader: u8, term: Option<u64>) {
        let Some(term) = term else { return };
        self.broadcast(leader, |world, node| {
            let is_heir = world.is_named_heir(leader, node);
            PeerNotice::Draining { term, is_heir }
        });
    }

    /// Notifies the standbys that the store has confirmed the release of this leadership.
    pub(super) fn notify_released(&mut self, leader: u8, nonce: Nonce) {
        let life = self.nodes[usize::from(leader)].life;
        let its = |it: &&super::checker::Leadership| {
            it.nonce == nonce && it.node == leader && it.life == life
        };
        let Some(term) = self.checker.leaderships.iter().rev().find(its).map(|it| it.term) else {
            return;
        };
        let arrivals = self.broadcast(leader, |world, node| {
            let is_heir = world.is_named_heir(leader, node);
            PeerNotice::Released { term, is_heir }
        });
        self.judge_handover(leader, term, arrivals);
    }

    /// Returns the next in line: of the connected candidates that can lead, the one that has been
    /// connected for the longest, or one with the name that the leader has written to its record, or will.
    pub(super) fn heir(&self, leader: u8) -> Option<u8> {
        let it = &self.nodes[usize::from(leader)];
        let named = it.process.as_ref().and_then(|it| it.status.successor.as_ref());
        let named = named.map(|it| it.identity.as_str());
        let listens = |node: &&super::process::Node| {
            let process = node.process.as_ref();
            let listens = process.is_some_and(|at| at.subscription.is_to(leader, it.life));
            let identity = super::operate::identity;
            listens && node.is_fit() && named.is_none_or(|name| name == identity(node.index))
        };
        let since =
            |it: &&super::process::Node| it.process.as_ref().map(|it| it.subscription.since);
        self.nodes.iter().filter(listens).min_by_key(since).map(|it| it.index)
    }

    /// Returns whether a notice says that this node is the heir.
    fn is_named_heir(&self, leader: u8, node: u8) -> bool {
        let is_well = |it: u8| {
            let it = &self.nodes[usize::from(it)];
            it.is_fit() && it.asleep_until <= self.now
        };
        match self.nodes[usize::from(leader)].link.peers.heirs {
            None => self.heir(leader) == Some(node),
            Some(Heirs::Nobody) => false,
            Some(Heirs::Everybody) => true,
            Some(Heirs::Unwell) => !is_well(node),
        }
    }

    /// Hands a notice to a candidate.
    fn hear(&mut self, node: u8, notice: PeerNotice) {
        self.log(|_| format!("candidate {node} hears {notice:?}"));
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        process.subscription.hear(&notice, self.now);
        // The pace of the reads that follow may be that of the notices.
        process.reads.2 = 0;
        self.hand_in(node, notice);
    }
}
