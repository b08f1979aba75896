//! The world of the model: the candidates, the store, and all possible next events.
//!
//! No event is forced. A candidate may be called late, a request may never be answered, time may pass
//! or not; so every pause and every order is tried.

use std::sync::Arc;
use tenure::election::{Input, Op};

use tenure::lease::{Change, LeaseId};

use super::bounds::{Bounds, Fault};
use super::notice::Notified;
use super::peer::{LEASE_DURATION, Peer};
use super::store::{FIRST_TERM, Lease, Store};

/// An event; the number is the candidate's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time passes. The lease clocks of the candidates whose bits are set miss it.
    Tick { slow: u8 },
    /// The driver calls the election, since something is due.
    Turn(u8),
    /// It reads that the lease is free, and bids; or it reads a claim that it observes from then on.
    Read(u8),
    /// The store performs its request; `twice` leaves a duplicate in transit.
    Serve { who: u8, twice: bool },
    /// The answer arrives; `twice` leaves a duplicate in transit.
    Answer { who: u8, twice: bool },
    /// The request times out; `late` leaves it, or its answer, in transit.
    Fail { who: u8, late: bool },
    /// A late message arrives: a request at the store, or an answer at the candidate.
    Late(u8),
    /// All publishers acknowledge passive.
    Announce(u8),
    /// It is told to resign.
    Resign(u8),
    /// It has resigned, and restarts.
    Restart(u8),
    /// It is killed and restarts; `late` leaves its request in transit.
    Crash { who: u8, late: bool },
    /// An operator breaks the lease, and it runs out.
    Break,
    /// An operator breaks the lease at once.
    Seize,
    /// A notice of the leader's stream arrives, true or not.
    Notice { who: u8, notice: Notified },
}

/// A state of the world.
#[derive(Clone, Debug)]
pub struct World {
    pub peers: Vec<Arc<Peer>>,
    pub store: Store,
    /// The remaining bounds.
    pub left: Bounds,
    /// The leases that were freed while a candidate believed in them.
    pub seized: Vec<LeaseId>,
    /// The greatest term that was led.
    pub led: u64,
    /// A violation on the path to this state that the state itself does not show.
    pub wrong: Option<&'static str>,
}

impl World {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            peers: (0..bounds.candidates).map(|number| Arc::new(Peer::new(number))).collect(),
            store: Store::new(LEASE_DURATION, bounds.observed),
            left: bounds,
            seized: Vec::new(),
            led: FIRST_TERM,
            wrong: None,
        }
    }

    fn peer(&self, who: u8) -> &Peer {
        &self.peers[usize::from(who)]
    }

    fn peer_mut(&mut self, who: u8) -> &mut Peer {
        Arc::make_mut(&mut self.peers[usize::from(who)])
    }

    /// Adds all possible next events.
    pub fn events(&self, events: &mut Vec<Event>) {
        for who in 0..self.left.candidates {
            self.events_of(who, events);
        }
        if let Lease::Held(_) = self.store.lease {
            if self.left.allow(Fault::Break) {
                events.push(Event::Break);
            }
            if self.left.allow(Fault::Seizure) {
                events.push(Event::Seize);
            }
        }
        self.ticks(events);
    }

    /// Adds a tick with every set of slow clocks.
    fn ticks(&self, events: &mut Vec<Event>) {
        if self.waiting() > self.left.left(Fault::Delay) {
            return;
        }
        let clocked = |who: &u8| self.peer(*who).has_lease();
        let slow = (0..self.left.candidates).filter(clocked).fold(0, |all, who| all | 1_u8 << who);
        let mut set = slow;
        loop {
            let mut left = self.left;
            left.spend(Fault::Delay, self.waiting());
            if set.count_ones() <= left.left(Fault::Slip).into() {
                events.push(Event::Tick { slow: set });
            }
            if set == 0 {
                break;
            }
            set = (set - 1) & slow;
        }
    }

    /// Returns how many candidates would wait through a tick.
    fn waiting(&self) -> u8 {
        self.peers.iter().map(|peer| u8::from(peer.is_waiting())).sum()
    }

    fn events_of(&self, who: u8, events: &mut Vec<Event>) {
        let peer = self.peer(who);
        match &peer.wire {
            None => self.idle_events(who, events),
            Some(message) => {
                let next = |twice| match message.answer {
                    None => Event::Serve { who, twice },
                    Some(_) => Event::Answer { who, twice },
                };
                events.push(next(false));
                if self.left.allow(Fault::Failure) {
                    events.extend([next(true), Event::Fail { who, late: true }]);
                    events.push(Event::Fail { who, late: false });
                }
                if peer.is_due() {
                    events.push(Event::Turn(who));
                }
            }
        }
        if peer.late.is_some() {
            events.push(Event::Late(who));
        }
        if peer.unannounced {
            events.push(Event::Announce(who));
        }
        if !peer.stopping && self.left.allow(Fault::Resignation) {
            events.push(Event::Resign(who));
        }
        if self.left.notices > 0 {
            events.extend(Notified::ALL.map(|notice| Event::Notice { who, notice }));
        }
        let young = !peer.has_lease() && peer.wire.is_none();
        if self.left.allow(Fault::Crash) && !young {
            events.push(Event::Crash { who, late: false });
            if peer.wire.as_ref().is_some_and(|wire| wire.answer.is_none()) {
                events.push(Event::Crash { who, late: true });
            }
        }
    }

    /// Adds what a candidate may do by itself while it has no request in flight.
    fn idle_events(&self, who: u8, events: &mut Vec<Event>) {
        let peer = self.peer(who);
        if peer.election.is_finished() {
            events.push(Event::Restart(who));
        } else if peer.has_lease() {
            if peer.is_due() {
                events.push(Event::Turn(who));
            }
        } else if self.may_read(peer) && self.left.bids.is_none_or(|bids| peer.drawn < bids.into())
        {
            events.push(Event::Read(who));
        }
    }

    /// Returns whether a read tells a candidate more than it knows.
    pub fn may_read(&self, peer: &Peer) -> bool {
        let is_known =
            |claim| peer.observes().is_some_and(|(known, is_over)| !is_over && known == claim);
        match self.store.claim() {
            Some(claim) => !is_known(claim.spec),
            None => self.store.is_free(),
        }
    }

    /// Applies an event; returns `None` if it is impossible.
    pub fn happen(&mut self, event: Event) -> Option<()> {
        self.apply(event)?;
        for who in 0..self.left.candidates {
            let Some(term) = self.peer(who).began else { continue };
            self.peer_mut(who).began = None;
            if term <= self.led && !self.is_deceived(self.peer(who)) {
                self.wrong = Some("a term that is not above all before it");
            }
            self.led = self.led.max(term);
        }
        self.forget();
        Some(())
    }

    fn apply(&mut self, event: Event) -> Option<()> {
        match event {
            Event::Tick { slow } => self.tick(slow),
            Event::Turn(who) => self.peer_mut(who).turn(Input::Timeout),
            Event::Read(who) => self.read(who)?,
            Event::Serve { who, twice } => self.serve(who, twice),
            Event::Answer { who, twice } => {
                self.left.spend(Fault::Failure, twice.into());
                self.peer_mut(who).take_answer(twice);
            }
            Event::Fail { who, late } => {
                self.left.spend(Fault::Failure, 1);
                self.peer_mut(who).fail(late);
            }
            Event::Late(who) => self.late(who),
            Event::Announce(who) => {
                let peer = self.peer_mut(who);
                peer.said = None;
                peer.unannounced = false;
                peer.turn(Input::PublishAcked);
            }
            Event::Resign(who) => {
                self.left.spend(Fault::Resignation, 1);
                let peer = self.peer_mut(who);
                peer.stopping = true;
                peer.turn(Input::Resign);
            }
            Event::Restart(who) => self.peer_mut(who).restart(false),
            Event::Crash { who, late } => {
                self.left.spend(Fault::Crash, 1);
                self.peer_mut(who).restart(late);
            }
            Event::Break => {
                self.left.spend(Fault::Break, 1);
                let Lease::Held(_) = self.store.lease else { return None };
                self.store.break_lease(false);
            }
            Event::Seize => {
                self.left.spend(Fault::Seizure, 1);
                self.seized.extend(self.store.holder());
                self.store.break_lease(true);
            }
            Event::Notice { who, notice } => {
                self.left.notices -= 1;
                let notice = notice.about(self.store.term);
                self.peer_mut(who).turn(Input::Peer(notice));
            }
        }
        Some(())
    }

    fn tick(&mut self, slow: u8) {
        self.left.spend(Fault::Delay, self.waiting());
        self.left.spend(Fault::Slip, slow.count_ones() as u8);
        self.store.tick();
        for who in 0..self.left.candidates {
            self.peer_mut(who).tick(slow & (1 << who) != 0);
        }
    }

    /// Handles a wake-up, the read and its answer at one instant: a read changes nothing in the store,
    /// and its bid may still be late.
    fn read(&mut self, who: u8) -> Option<()> {
        self.peer_mut(who).turn(Input::Changed(Change::News { held_by: None }));
        let mut message = self.peer_mut(who).wire.take()?;
        message.answer = Some(self.store.serve(&message.op));
        self.peer_mut(who).wire = Some(message);
        self.peer_mut(who).take_answer(false);
        Some(())
    }

    fn serve(&mut self, who: u8, twice: bool) {
        self.left.spend(Fault::Failure, twice.into());
        let Some(mut message) = self.peer_mut(who).wire.take() else { return };
        if twice {
            self.peer_mut(who).late = Some(message.clone());
        }
        message.answer = Some(self.store.serve(&message.op));
        self.peer_mut(who).wire = Some(message);
    }

    fn late(&mut self, who: u8) {
        let Some(mut message) = self.peer_mut(who).late.take() else { return };
        match message.answer.take() {
            None => {
                message.answer = Some(self.store.serve(&message.op));
                if !message.orphan {
                    self.peer_mut(who).late = Some(message);
                }
            }
            Some(answer) => {
                let peer = self.peer_mut(who);
                // The first of two answers to one request counts, and the other is late.
                if let Some(wire) = peer.wire.take_if(|wire| wire.id == message.id) {
                    peer.late = Some(wire);
                }
                peer.turn(Input::Answer { id: message.id, answer });
            }
        }
    }

    /// Drops what can no longer have an effect, so that states with the same future are equal.
    fn forget(&mut self) {
        let holder = self.store.holder();
        for who in 0..self.left.candidates {
            let peer = self.peer(who);
            let dead = peer.late.as_ref().is_some_and(|it| {
                // Those may take the lease, or keep a bid from doing so.
                let bids = match it.op {
                    Op::Acquire(_) => true,
                    Op::Release(_) => self.store.observed,
                    _ => false,
                };
                it.orphan && !bids && it.op.lease() != holder
            });
            if dead {
                self.peer_mut(who).late = None;
            }
        }
        let peers = &self.peers;
        self.seized.retain(|id| {
            peers.iter().any(|peer| {
                peer.lease == Some(*id)
                    || peer.said.as_ref().is_some_and(|it| it.lease == Some(*id))
            })
        });
    }

    /// Returns the active candidates that meet a condition.
    pub fn active(&self, meets: impl Fn(&Peer) -> bool) -> impl Iterator<Item = &Peer> {
        let peers = self.peers.iter().map(AsRef::as_ref);
        peers.filter(move |peer| peer.is_active() && meets(peer))
    }

    /// Returns whether a candidate believes in a lease that was freed behind its back.
    pub fn is_deceived(&self, peer: &Peer) -> bool {
        let said = peer.said.as_ref().and_then(|it| it.lease);
        [peer.lease, said].into_iter().flatten().any(|id| self.seized.contains(&id))
    }
}
