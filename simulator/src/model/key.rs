//! The equality of two states of the world: what it ignores, and why that loses nothing.
//!
//! - *Time* is relative to now. An age beyond the longest length that it is compared with is equal to
//!   that length.
//! - *Terms* are relative to the recorded one. No rule depends on how far a term is behind.
//! - *Lease ids* are random, so only their equality matters; they are numbered in order of occurrence.
//! - *Candidates* are interchangeable, so their order does not matter.
//! - A *read* may come at any time, since a wake-up may; so the time of the next one does not matter,
//!   whatever moves it, and neither does when the lease was first seen free, since all have the default
//!   priority.
//!
//! It ignores no field of the election by itself: the election names those that decide nothing
//! ([`Piece`]).

use std::hash::{DefaultHasher, Hash, Hasher};

use tenure::clock::Moment;
use tenure::election::{Answer, Op, StateValue};
use tenure::lease::{LeaseId, Version};

use super::peer::{LEASE_DURATION, Message, Peer, TICK};
use super::store::Lease;
use super::world::World;

impl World {
    /// Returns the key of the state.
    pub fn key(&self) -> u64 {
        let mut peers: Vec<u64> = self.peers.iter().map(|peer| self.peer_key(peer)).collect();
        peers.sort_unstable();
        let left = self.left;
        let mut hasher = DefaultHasher::new();
        peers.hash(&mut hasher);
        let counts = matches!(self.store.lease, Lease::Held(_) | Lease::Breaking(_));
        (if counts { self.store.age } else { 0 }).hash(&mut hasher);
        std::mem::discriminant(&self.store.lease).hash(&mut hasher);
        (left.faults, left.each, left.notices).hash(&mut hasher);
        (self.store.term - self.led.min(self.store.term)).min(2).hash(&mut hasher);
        self.wrong.hash(&mut hasher);
        hasher.finish()
    }

    fn peer_key(&self, peer: &Peer) -> u64 {
        let mut names = Names::default();
        let mut hasher = DefaultHasher::new();
        let mut word = |word: u8| hasher.write_u8(word);
        peer.election.model_state(&mut |piece| self.write(peer.now, piece, &mut names, &mut word));
        // The store of a lease of its own has one version.
        let is_present = |seen: &Version| *seen == self.store.version();
        word((peer.lease.is_some() && peer.seen.as_ref().is_some_and(is_present)).into());
        for message in [&peer.wire, &peer.late] {
            self.message(message.as_ref(), &mut names, &mut word);
        }
        word(peer.unannounced.into());
        word(peer.stopping.into());
        word(peer.hasty.into());
        word(peer.early.into());
        if let Some((lease, sent)) = peer.lapsed {
            word(names.name(lease));
            age(sent, peer.now, LEASE_DURATION, &mut word);
        }
        word(peer.said.is_some().into());
        if let Some(said) = &peer.said {
            word(said.lease.map_or(0, |lease| names.name(lease)));
            word(said.status.remaining(peer.now).as_secs() as u8);
            word(said.status.term().map_or(0, |term| self.behind(term)));
        }
        // What the store and the operator know of it.
        for (place, name) in names.0.clone().iter().enumerate() {
            if self.store.holder() == Some(*name) {
                word(100 + place as u8);
            }
            if self.seized.contains(name) {
                word(120 + place as u8);
            }
            // A lease and its nonce are drawn from the same bits here.
            if LeaseId::from_random(self.store.nonce.0) == *name {
                word(140 + place as u8);
            }
        }
        if let Some(bids) = self.left.bids {
            word(bids - peer.drawn.min(bids.into()) as u8);
        }
        hasher.finish()
    }

    fn behind(&self, term: u64) -> u8 {
        // A term above the recorded one would be a violation of its own, encoded as 128.
        if term > self.store.term { 128 } else { (self.store.term - term).min(3) as u8 }
    }

    fn write(&self, now: Moment, piece: StateValue, names: &mut Names, word: &mut impl FnMut(u8)) {
        match piece {
            StateValue::Variant(form) => word(form),
            StateValue::Lease(lease) => word(names.name(lease)),
            StateValue::NextRead { from, wait, ignores_wakeups } => {
                word(if ignores_wakeups { left(from, wait, now) } else { 0 });
            }
            StateValue::RetryTimer { from, wait, retried_at_once, delayed_retries } => {
                word(left(from, wait, now));
                word((retried_at_once || delayed_retries > 0).into());
            }
            StateValue::Belief(sent) | StateValue::Sent(sent) => {
                age(sent, now, LEASE_DURATION - 1, word)
            }
            StateValue::Bid(from) => age(from, now, LEASE_DURATION, word),
            StateValue::FirstWrite(from) => word(ticks(from, now).min(LEASE_DURATION)),
            StateValue::Hold(granted, hold) => word(left(granted, hold, now)),
            StateValue::Claim(spec) => {
                word(self.store.claim().is_some_and(|it| it.spec == spec).into());
            }
            StateValue::PendingRelease(since) => word(ticks(since, now).min(LEASE_DURATION + 2)),
            StateValue::Wait(from, length) | StateValue::ClientWindow(from, length) => {
                word(left(from, length, now))
            }
            // Only a floor above what the store would write anyway has an effect.
            StateValue::Floor(floor) => {
                word(floor.saturating_sub(self.store.term + 1).min(9) as u8)
            }
            StateValue::Term(term) => word(self.behind(term)),
            StateValue::NoticeTerm(term) => word(term.saturating_sub(self.store.term).min(2) as u8),
            StateValue::NoticeTime(..) | StateValue::SeenFree(_) => {}
            // No record is older than the terms seen, unless a seen term is not recorded.
            StateValue::Highest(term) => word(term.saturating_sub(self.store.term).min(9) as u8),
        }
    }

    fn message(&self, message: Option<&Message>, names: &mut Names, word: &mut impl FnMut(u8)) {
        let Some(Message { id: _, op, answer, orphan }) = message else { return word(0) };
        word(match op {
            Op::Read => 1,
            Op::Acquire(_) => 2,
            Op::WriteTerm { .. } => 3,
            Op::Renew(_) => 4,
            Op::Release(_) => 5,
            Op::SetSuccessor { .. } => 6,
        });
        word(op.lease().map_or(0, |lease| names.name(lease)));
        word((*orphan).into());
        if let Op::Acquire(bid) | Op::Release(bid) = op {
            word((bid.seen == self.store.version()).into());
        }
        if let Op::WriteTerm { floor, .. } = op {
            word(floor.saturating_sub(self.store.term + 1).min(9) as u8);
        }
        match answer {
            None => word(0),
            Some(Ok(Answer::Term(term))) => word(10 + self.behind(*term).min(9)),
            Some(Ok(_)) => word(1),
            Some(Err(_)) => word(2),
        }
    }
}

/// The ids in the order in which they occurred.
#[derive(Default)]
struct Names(Vec<LeaseId>);

impl Names {
    fn name(&mut self, lease: LeaseId) -> u8 {
        let known = self.0.iter().position(|it| *it == lease);
        let place = known.unwrap_or_else(|| {
            self.0.push(lease);
            self.0.len() - 1
        });
        place as u8 + 1
    }
}

fn ticks(from: Moment, now: Moment) -> u8 {
    (from.elapsed_max(now).as_millis() / TICK.as_millis()).min(200) as u8
}

/// Returns an age by the lease clocks, and how much of it they missed.
fn age(from: Moment, now: Moment, most: u8, word: &mut impl FnMut(u8)) {
    let age = ticks(from, now).min(most);
    word(age);
    let missed = (now.wall - from.wall).saturating_sub(from.elapsed_max(now));
    word((missed.as_millis() / TICK.as_millis()).min(2) as u8);
}

fn left(from: Moment, wait: std::time::Duration, now: Moment) -> u8 {
    wait.saturating_sub(from.elapsed_max(now)).as_millis().div_ceil(TICK.as_millis()) as u8
}
