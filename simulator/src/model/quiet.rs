//! Liveness: once faults stop, a leader must arise from every state that was reached.
//!
//! The checker's own `eventually` is sound only without cycles, and here a leader renews for ever. So
//! each state is followed along one fair path, on which each request is answered at once, each
//! candidate is called when it is due, and all clocks agree.
//!
//! It uses up no bounds and adds no states.

use super::bounds::Bounds;
use super::peer::LEASE_DURATION;
use super::world::{Event, World};

/// The bound in ticks: an unknown lease runs out, a candidate that backed off returns, and three
/// requests are answered; twice, since the first may find a break.
const RECOVERY: u8 = 4 * LEASE_DURATION;

impl World {
    /// Returns whether a leader arises within the bound once faults stop.
    pub fn recovers(&self) -> bool {
        let mut world = self.clone();
        world.left = Bounds { bids: None, faults: None, each: Default::default(), ..world.left };
        for _ in 0..RECOVERY {
            if world.settle() {
                return true;
            }
            world.happen(Event::Tick { slow: 0 });
        }
        false
    }

    /// Handles everything that is possible at this instant. Returns whether a candidate leads then, under
    /// a lease that it holds in the store.
    fn settle(&mut self) -> bool {
        // Each candidate sends a few requests at most.
        for _ in 0..8 {
            let mut moved = false;
            for who in 0..self.left.candidates {
                moved |= self.advance(who);
            }
            if !moved {
                break;
            }
        }
        self.peers
            .iter()
            .any(|peer| peer.believes() && peer.has_lease() && peer.lease == self.store.holder())
    }

    fn advance(&mut self, who: u8) -> bool {
        let peer = &self.peers[usize::from(who)];
        let event = if let Some(wire) = &peer.wire {
            match wire.answer {
                None => Event::Serve { who, twice: false },
                Some(_) => Event::Answer { who, twice: false },
            }
        } else if peer.unannounced {
            Event::Announce(who)
        } else if peer.election.is_finished() {
            Event::Restart(who)
        } else if peer.has_lease() {
            if !peer.is_due() {
                return false;
            }
            Event::Turn(who)
        } else if self.may_read(peer) {
            Event::Read(who)
        } else {
            return false;
        };
        self.happen(event).is_some()
    }
}
