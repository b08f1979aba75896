//! What becomes of a state when nothing goes wrong any more: from every state that was reached, a
//! leader must arise.
//!
//! The checker's own `eventually` is sound only where no path comes back to where it was, and here
//! a leader renews for ever. So each state is followed along one fair path, on which each request
//! is answered at once, each candidate is called when it is due, and all clocks agree.
//!
//! What it does not do: it spends no bounds and adds no state.

use super::peer::LEASE_DURATION;
use super::world::{Bounds, Event, World};

/// In ticks: a lease that nobody knows of runs out, a candidate that stood back comes in, and
/// three requests are answered; twice, since the first may find a break.
const RECOVERY: u8 = 4 * LEASE_DURATION;

impl World {
    /// Whether a leader arises within a bound once faults stop.
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

    /// Lets everything happen that may happen at this instant. Whether somebody leads then, in a
    /// lease that the store keeps for it.
    fn settle(&mut self) -> bool {
        // Each candidate asks a few times at most; the store is asked no more than this.
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
        } else if self.store.is_free() {
            Event::Look(who)
        } else {
            return false;
        };
        self.happen(event).is_some()
    }
}
