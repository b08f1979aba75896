//! The election that ships, under a model checker: every order of a few candidates' turns, of
//! requests and answers lost, late and doubled, of lapse of time, crashes, resignations and breaks.
//!
//! What it does not do: it retells nothing of the election. [`tenure::election::Election`] itself
//! is called; the world around it follows the driver's rule and Microsoft's lease tables.
//!
//! What is without bound: time, elections, terms, renewals. Two states that act alike from now on
//! are one (`key`), so that the states are finite and every run of any length is among them.
//!
//! What bounds it: the number of candidates, two requests of each under way at once (the one that
//! it waits for and one that is late, orphaned or a duplicate), and how many faults a run has
//! ([`Bounds`]). A fault is anything but a candidate that is called within the tick in which it is
//! due, and asks a store that answers within that tick.
//!
//! What the abstraction loses:
//! - Time comes in ticks: lease-duration 3, renew-deadline 2, retry-period and request-timeout 1,
//!   so the margin is 1. Orders within a tick are all tried; lengths between are not.
//! - Both lease clocks miss the same ticks, and the wall clock is true: suspend, slews and steps
//!   are the simulator's. A missed tick is the margin itself, a second one a jump (R10).
//! - The record is never lost, so R11's hold never comes; no activation delay; nobody observes.
//! - An error is a broken connection. One that comes at its timeout differs in the wait after it
//!   alone, and every longer wait is among what is tried. Foreign records are the unit tests'.
//! - A look and its answer are one event, and only at a free lease: a look changes nothing in the
//!   store, and the bid that follows it may be as late as any.
//! - The resource that checks terms is not played. Whatever the order of writes, it never takes an
//!   older term's after a newer's, as long as no two who believe have one term; and it takes the
//!   newest leader's, as long as a term that begins is above all before it. Both are checked.

mod key;
mod peer;
mod quiet;
mod store;
mod world;

use std::hash::{Hash, Hasher};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

use peer::Peer;
pub use world::{Bounds, Event, Fault, World};

impl Hash for World {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.key());
    }
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

/// What is checked.
#[derive(Debug)]
pub struct Checked {
    pub bounds: Bounds,
}

impl Model for Checked {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self.bounds)]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        world.events(events);
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut next = world.clone();
        next.happen(event)?;
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("at most one candidate is active", |_, it: &World| {
                it.active(|peer| !it.is_deceived(peer)).count() <= 1
            }),
            Property::always("all who are active have terms of their own", |_, it: &World| {
                it.active(|peer| it.active(|other| peer.term() == other.term()).count() > 1).count()
                    == 0
            }),
            Property::always("a term that begins is above all before it", |_, it: &World| {
                it.wrong.is_none()
            }),
            Property::always("no term begins before it is recorded", |_, it: &World| {
                it.led <= it.store.term
            }),
            Property::always("no candidate has two requests in flight", |_, it: &World| {
                !it.peers.iter().any(|peer| peer.hasty)
            }),
            Property::always("no lapsed lease is released before it is over", |_, it: &World| {
                !it.peers.iter().any(|peer| peer.early)
            }),
            Property::always("who was told to stop is active no more", |_, it: &World| {
                !it.peers.iter().any(|peer| peer.stopping && peer.believes())
            }),
            Property::always("a leader arises once faults stop", |_, it: &World| it.recovers()),
            Property::sometimes("a leader", |_, it: &World| it.active(|_| true).count() == 1),
        ];
        if self.bounds.candidates > 1 {
            all.push(Property::sometimes(
                "a successor before the old leader knows",
                |_, it: &World| {
                    let unaware =
                        |peer: &Peer| !peer.believes() && peer.standing().term().is_some();
                    it.active(|_| true).count() > 0 && it.peers.iter().any(|peer| unaware(peer))
                },
            ));
            all.push(Property::sometimes("two believe after a break at once", |_, it: &World| {
                it.active(|_| true).count() > 1
            }));
        }
        all
    }
}

/// What came of a check.
#[derive(Debug)]
pub struct Checkup {
    /// States that differ.
    pub states: usize,
    /// Events tried, over all states.
    pub events: usize,
    /// The longest of the shortest runs to each state.
    pub depth: usize,
    /// What should never happen and does, with the shortest run to it.
    pub failures: Vec<String>,
    /// What could happen and never did: the bounds are too narrow, or a check ended early.
    pub unseen: Vec<&'static str>,
}

/// Goes through every state within the bounds, or to the first failure.
pub fn check(bounds: Bounds, threads: usize) -> Checkup {
    let checker = Checked { bounds }.checker().threads(threads);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = checker.discoveries();
    let (mut failures, mut unseen) = (Vec::new(), Vec::new());
    for property in checker.model().properties() {
        let run = found.get(property.name);
        match (property.expectation, run) {
            (Expectation::Sometimes, None) => unseen.push(property.name),
            (Expectation::Always, Some(run)) => {
                let events: Vec<_> = run.clone().into_actions();
                failures.push(format!("not so: {}, after {events:?}", property.name));
            }
            _ => {}
        }
    }
    Checkup {
        states: checker.unique_state_count(),
        events: checker.state_count(),
        depth: checker.max_depth(),
        failures,
        unseen,
    }
}
