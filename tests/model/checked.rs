//! The election that ships, under a model checker: every order of a few candidates' turns, of
//! requests and answers that are lost, late and doubled, of lapse of time, crashes and breaks.
//!
//! What it does not do: it retells nothing of the election. [`tenure::election::Election`] itself
//! is called, and the rest of the world follows the driver's rule and Microsoft's lease tables.

#![allow(dead_code, unreachable_pub, reason = "each program that includes it uses a part of it")]

mod key;
mod peer;
mod quiet;
mod store;
mod world;

use std::hash::{Hash, Hasher};

use stateright::{Model, Property};

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
        vec![
            Property::always("at most one candidate is active", |_, world: &World| {
                let active = |peer: &&_| -> bool {
                    let peer: &peer::Peer = peer;
                    peer.is_active() && !world.is_deceived(peer)
                };
                world.peers.iter().map(AsRef::as_ref).filter(active).count() <= 1
            }),
            Property::always("terms tell all who believe apart", |_, world: &World| {
                let mut terms: Vec<u64> = world
                    .peers
                    .iter()
                    .filter(|peer| peer.is_active())
                    .filter_map(|peer| peer.term())
                    .collect();
                terms.sort_unstable();
                terms.windows(2).all(|two| two[0] < two[1])
            }),
            Property::always("terms grow from leader to leader", |_, world: &World| {
                world.wrong.is_none()
            }),
            Property::always("nobody leads in a term that is not recorded", |_, world: &World| {
                world.led <= world.store.term
            }),
            Property::always("a leader arises once faults stop", |_, world: &World| {
                world.recovers()
            }),
            Property::sometimes("a leader", |_, world: &World| {
                world.peers.iter().any(|peer| peer.believes())
            }),
            Property::sometimes("a successor before the old leader knows", |_, world: &World| {
                let late = |peer: &&std::sync::Arc<peer::Peer>| {
                    !peer.believes() && peer.standing().term().is_some()
                };
                world.peers.iter().any(|peer| peer.believes())
                    && world.peers.iter().any(|it| late(&it))
            }),
            Property::sometimes("a believer whose lease another has", |_, world: &World| {
                world.peers.iter().filter(|peer| peer.believes()).count() > 1
            }),
        ]
    }
}
