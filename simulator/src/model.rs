//! The production election under a model checker: every order of the inputs of a few candidates, of
//! lost, late and duplicate requests and answers, of expiry, crashes, resignations and breaks.
//!
//! It contains no model of the election: it calls [`tenure::election::Election`]. The world around
//! that follows the driver's rule and Microsoft's lease tables, or that is a register.
//!
//! Unbounded: time, elections, terms, renewals. States with the same future behavior are equal
//! (`key`), so there is a finite number of them, which includes runs of every length.
//!
//! Bounded: the number of candidates, two requests of each in flight at once (the current one, and
//! one that is late, orphaned or a duplicate), the number of faults in a run, and the number of notices of
//! the leader's stream, each of any kind and at any candidate, true or not ([`Bounds`]).
//! Anything is a fault but a candidate that is called within the tick in which it is due, and a
//! store that answers within that tick.
//!
//! Not covered by the abstraction:
//! - Time advances in ticks: lease-duration 3, renew-deadline 2, retry-period and request-timeout 1,
//!   so the margin is 1. All orders within a tick are tried, but no lengths in between.
//! - Both lease clocks miss the same ticks, and the wall clock is accurate: the simulator covers
//!   suspend, slews and steps. A missed tick is the whole margin, a second one a jump (R10).
//! - The record is never lost, so there is no hold (R11); no activation delay; no observers.
//! - Each error is a broken connection. A timeout differs only in the wait after it, and every longer
//!   wait is tried. Unit tests cover foreign records.
//! - A read and its answer are one event, and occur only if they tell the candidate more than it knows: a
//!   read changes nothing in the store, and the bid that follows it may be arbitrarily late. Nothing is
//!   reported.
//! - The resource that checks terms is not part of it. It never accepts a write of an older term after
//!   one of a newer, as long as no two leaders have one term, and accepts those of the newest leader,
//!   as long as each term is greater than all before. Both are checked.

mod bounds;
mod key;
mod notice;
mod peer;
mod quiet;
mod store;
mod world;

use std::hash::{Hash, Hasher};

use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

pub use bounds::{Bounds, Fault};
use peer::Peer;
pub use world::{Event, World};

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

/// The model for the checker.
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
            Property::always("no two active candidates have the same term", |_, it: &World| {
                it.active(|peer| it.active(|other| peer.term() == other.term()).count() > 1).count()
                    == 0
            }),
            Property::always("each term is greater than all before", |_, it: &World| {
                it.wrong.is_none()
            }),
            Property::always("no term begins before it is written", |_, it: &World| {
                it.led <= it.store.term
            }),
            Property::always("no candidate has two requests in flight", |_, it: &World| {
                !it.peers.iter().any(|peer| peer.hasty)
            }),
            Property::always("no lapsed lease is released before it is over", |_, it: &World| {
                !it.peers.iter().any(|peer| peer.early)
            }),
            Property::always("a candidate that resigned is not active", |_, it: &World| {
                !it.peers.iter().any(|peer| peer.stopping && peer.believes())
            }),
            Property::always("a leader arises once faults stop", |_, it: &World| it.recovers()),
            Property::sometimes("a leader", |_, it: &World| it.active(|_| true).count() == 1),
        ];
        if self.bounds.candidates > 1 {
            all.push(Property::sometimes(
                "a successor before the old leader has noticed",
                |_, it: &World| {
                    let unaware =
                        |peer: &Peer| !peer.believes() && peer.standing().term().is_some();
                    it.active(|_| true).count() > 0 && it.peers.iter().any(|peer| unaware(peer))
                },
            ));
            all.push(Property::sometimes(
                "two active candidates after a break at once",
                |_, it: &World| it.active(|_| true).count() > 1,
            ));
        }
        all
    }
}

/// The result of a check.
#[derive(Debug)]
pub struct Checkup {
    /// The number of distinct states.
    pub states: usize,
    /// The number of events tried, over all states.
    pub events: usize,
    /// The length of the longest of the shortest runs to each state.
    pub depth: usize,
    /// The violated properties, each with the shortest run to it.
    pub failures: Vec<String>,
    /// The situations that never occurred: the bounds are too narrow, or the check ended early.
    pub unseen: Vec<&'static str>,
}

/// Visits every state within the bounds, or stops at the first failure.
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
                failures.push(format!("violated: {}, after {events:?}", property.name));
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
