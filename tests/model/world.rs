//! The world of the model: candidates, store, and everything that may happen next.
//!
//! What it does not do: no event is ever forced. A candidate may be called late, a request may
//! never be answered, time may pass or not; so every pause and every order is among what is tried.

use std::sync::Arc;

use tenure::election::Standing;
use tenure::store::LeaseId;

use super::peer::{LEASE_DURATION, Peer};
use super::store::{FIRST_TERM, Lease, Store};

/// How much of what is tried. `None` is without end.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub candidates: u8,
    /// Leases that each candidate bids for.
    pub bids: Option<u8>,
    /// Requests, over all candidates, that fail, come late, or are doubled.
    pub failures: Option<u8>,
    /// Crashes, each with a restart.
    pub crashes: Option<u8>,
    /// Resignations, each with a restart.
    pub resignations: Option<u8>,
    /// Breaks by an operator that let the lease run out.
    pub breaks: Option<u8>,
    /// Breaks at once, behind the holder's back.
    pub seizures: Option<u8>,
    /// Ticks that a candidate's lease clocks miss.
    pub slips: Option<u8>,
}

/// One thing that happens; the number is the candidate's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Time passes. The lease clocks of the candidates whose bits are set do not see it.
    Tick { slow: u8 },
    /// The driver calls, since something is due.
    Turn(u8),
    /// It looks, sees the lease free, and bids.
    Look(u8),
    /// The store serves its request; `twice` leaves a duplicate on the way.
    Serve { who: u8, twice: bool },
    /// The answer arrives; `twice` leaves a duplicate on the way.
    Answer { who: u8, twice: bool },
    /// The driver gives up waiting; `late` leaves the request, or its answer, on the way.
    Fail { who: u8, late: bool },
    /// What nobody waits for gets on: a request to the store, an answer to the candidate.
    Late(u8),
    /// All publishers say passive.
    Announce(u8),
    /// It is told to stop.
    Resign(u8),
    /// It has stopped, and starts anew.
    Restart(u8),
    /// It is killed and starts anew; `late` leaves its request on the way.
    Crash { who: u8, late: bool },
    /// An operator breaks the lease, and it runs out.
    Break,
    /// An operator breaks the lease at once.
    Seize,
}

/// One state of everything.
#[derive(Clone, Debug)]
pub struct World {
    pub peers: Vec<Arc<Peer>>,
    pub store: Store,
    /// What is left of each bound.
    pub left: Bounds,
    /// Leases that were freed behind the back of whoever believed in them.
    pub seized: Vec<LeaseId>,
    /// The largest term that anybody led in.
    pub led: u64,
    /// What went wrong on the way here, beyond what can be seen from here.
    pub wrong: Option<&'static str>,
}

impl World {
    pub fn new(bounds: Bounds) -> Self {
        Self {
            peers: (0..bounds.candidates).map(|number| Arc::new(Peer::new(number))).collect(),
            store: Store::new(LEASE_DURATION),
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

    /// Everything that may happen next.
    pub fn events(&self, events: &mut Vec<Event>) {
        let more = |left: Option<u8>| left != Some(0);
        let mut slow = 0_u8;
        for who in 0..self.left.candidates {
            let peer = self.peer(who);
            if more(self.left.slips) && peer.lease().is_some() {
                slow |= 1 << who;
            }
            match &peer.wire {
                None => self.idle_events(who, events),
                Some(message) => {
                    let fails = more(self.left.failures);
                    let next = |twice| match message.answer {
                        None => Event::Serve { who, twice },
                        Some(_) => Event::Answer { who, twice },
                    };
                    events.push(next(false));
                    if fails {
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
            let stopped = matches!(peer.standing(), Standing::Stopped);
            if !stopped && more(self.left.resignations) {
                events.push(Event::Resign(who));
            }
            let young = peer.lease().is_none() && peer.wire.is_none();
            if more(self.left.crashes) && !young {
                events.push(Event::Crash { who, late: false });
                if peer.wire.as_ref().is_some_and(|wire| wire.answer.is_none()) {
                    events.push(Event::Crash { who, late: true });
                }
            }
        }
        if let Lease::Held(_) = self.store.lease {
            if more(self.left.breaks) {
                events.push(Event::Break);
            }
            if more(self.left.seizures) {
                events.push(Event::Seize);
            }
        }
        // Every set of slow clocks.
        let mut set = slow;
        loop {
            events.push(Event::Tick { slow: set });
            if set == 0 {
                break;
            }
            set = (set - 1) & slow;
        }
    }

    /// What a candidate may do by itself while no request of its is under way.
    fn idle_events(&self, who: u8, events: &mut Vec<Event>) {
        let peer = self.peer(who);
        if peer.election.is_finished() {
            events.push(Event::Restart(who));
        } else if peer.lease().is_some() {
            if peer.is_due() {
                events.push(Event::Turn(who));
            }
        } else if self.store.is_free() && self.left.bids.is_none_or(|bids| peer.drawn < bids.into())
        {
            events.push(Event::Look(who));
        }
    }

    /// What comes of an event; `None` if nothing does.
    pub fn after(&self, event: Event) -> Option<Self> {
        let mut next = self.clone();
        let began = next.apply(event)?;
        if let Some(term) = began {
            if term <= next.led {
                next.wrong = Some("a term that is not above all before it");
            }
            next.led = next.led.max(term);
        }
        next.forget();
        Some(next)
    }

    fn apply(&mut self, event: Event) -> Option<Option<u64>> {
        let mut began = None;
        match event {
            Event::Tick { slow } => self.tick(slow),
            Event::Turn(who) => began = self.peer_mut(who).turn(|it, now, by| it.handle_timeout(now, by)),
            Event::Look(who) => return self.look(who),
            Event::Serve { who, twice } => self.serve(who, twice),
            Event::Answer { who, twice } => {
                spend(&mut self.left.failures, twice);
                began = self.peer_mut(who).take_answer(twice);
            }
            Event::Fail { who, late } => {
                spend(&mut self.left.failures, true);
                began = self.peer_mut(who).fail(late);
            }
            Event::Late(who) => began = self.late(who),
            Event::Announce(who) => {
                let peer = self.peer_mut(who);
                peer.said = None;
                peer.unannounced = false;
                began = peer.turn(|it, now, by| it.handle_announced(now, by));
            }
            Event::Resign(who) => {
                spend(&mut self.left.resignations, true);
                began = self.peer_mut(who).turn(|it, now, by| it.handle_resign(now, by));
            }
            Event::Restart(who) => self.peer_mut(who).restart(false),
            Event::Crash { who, late } => {
                spend(&mut self.left.crashes, true);
                self.peer_mut(who).restart(late);
            }
            Event::Break => {
                spend(&mut self.left.breaks, true);
                let Lease::Held(id) = self.store.lease else { return None };
                self.store.lease = Lease::Breaking(id);
            }
            Event::Seize => {
                spend(&mut self.left.seizures, true);
                self.seized.extend(self.store.holder());
                self.store.lease = Lease::Free;
            }
        }
        Some(began)
    }

    fn tick(&mut self, slow: u8) {
        spend(&mut self.left.slips, slow != 0);
        self.store.tick();
        for who in 0..self.left.candidates {
            self.peer_mut(who).tick(slow & (1 << who) != 0);
        }
    }

    /// A wake-up, the look and its answer at one instant: a look changes nothing in the store, and
    /// its bid may still be late.
    fn look(&mut self, who: u8) -> Option<Option<u64>> {
        self.peer_mut(who).turn(|it, now, by| it.handle_wakeup(now, by));
        let mut message = self.peer_mut(who).wire.take()?;
        message.answer = Some(self.store.serve(&message.op));
        self.peer_mut(who).wire = Some(message);
        Some(self.peer_mut(who).take_answer(false))
    }

    fn serve(&mut self, who: u8, twice: bool) {
        spend(&mut self.left.failures, twice);
        let Some(mut message) = self.peer_mut(who).wire.take() else { return };
        if twice {
            self.peer_mut(who).late = Some(message.clone());
        }
        message.answer = Some(self.store.serve(&message.op));
        self.peer_mut(who).wire = Some(message);
    }

    fn late(&mut self, who: u8) -> Option<u64> {
        let mut message = self.peer_mut(who).late.take()?;
        match message.answer.take() {
            None => {
                message.answer = Some(self.store.serve(&message.op));
                if !message.orphan {
                    self.peer_mut(who).late = Some(message);
                }
                None
            }
            Some(answer) => self
                .peer_mut(who)
                .turn(|it, now, by| it.handle_answer(message.id, answer, now, by)),
        }
    }

    /// Drops what can have no effect any more, so that states that act alike are alike.
    fn forget(&mut self) {
        let holder = self.store.holder();
        for who in 0..self.left.candidates {
            let peer = self.peer(who);
            let dead = peer.late.as_ref().is_some_and(|it| {
                let bids = matches!(it.op, tenure::election::Op::Acquire(_));
                it.orphan && !bids && it.op.lease() != holder
            });
            if dead {
                self.peer_mut(who).late = None;
            }
        }
        let peers = &self.peers;
        self.seized.retain(|id| {
            peers.iter().any(|peer| {
                peer.lease() == Some(*id)
                    || peer.said.as_ref().is_some_and(|it| it.lease == Some(*id))
            })
        });
    }

    /// Whether a candidate believes in a lease that was freed behind its back.
    pub fn is_deceived(&self, peer: &Peer) -> bool {
        let said = peer.said.as_ref().and_then(|it| it.lease);
        [peer.lease(), said].into_iter().flatten().any(|id| self.seized.contains(&id))
    }
}

fn spend(left: &mut Option<u8>, really: bool) {
    if let (Some(left), true) = (left, really) {
        *left = left.saturating_sub(1);
    }
}
