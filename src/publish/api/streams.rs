//! The slots for event streams and long polls. One peer gets at most half of them, so that none can
//! keep the others from watching, and at most half of its connections, so that its own probes are
//! answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;

use crate::http::listener::Peer;

/// The slots.
#[derive(Clone)]
pub(super) struct Streams(Arc<Shared>);

struct Shared {
    max: usize,
    /// The most connections of one address beyond loopback.
    max_per_peer: usize,
    taken: Mutex<HashMap<Peer, usize>>,
    freed: Notify,
}

/// A slot, released on drop.
pub(super) struct Slot {
    streams: Streams,
    peer: Peer,
}

impl Streams {
    pub(super) fn new(max: usize, max_per_peer: usize) -> Self {
        let (taken, freed) = Default::default();
        Self(Arc::new(Shared { max, max_per_peer, taken, freed }))
    }

    /// Takes a slot; `None` if all are taken, or as many by this peer as it may.
    pub(super) fn take(&self, peer: Peer) -> Option<Slot> {
        let mut taken = self.lock();
        let its_own = taken.get(&peer).copied().unwrap_or_default();
        let all: usize = taken.values().sum();
        let Shared { max, max_per_peer, .. } = *self.0;
        let most = if peer.is_remote() { max.min(max_per_peer) } else { max };
        if all >= max || its_own >= most.div_ceil(2) {
            return None;
        }
        taken.insert(peer, its_own + 1);
        Some(Slot { streams: self.clone(), peer })
    }

    /// Resolves when no slot is taken.
    pub(super) async fn ended(&self) {
        loop {
            let freed = self.0.freed.notified();
            if self.lock().is_empty() {
                return;
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        self.0.taken.lock().expect("nothing panics while the lock is held")
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.streams.lock();
        if let Some(its_own) = taken.get_mut(&self.peer) {
            *its_own -= 1;
            if *its_own == 0 {
                taken.remove(&self.peer);
            }
        }
        drop(taken);
        self.streams.0.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_peer_gets_half_of_the_slots() {
        let streams = Streams::new(4, 64);
        let peer = |last| Peer::Address([10, 0, 0, last].into());
        let first: Vec<_> = (0..3).map(|_| streams.take(peer(1))).collect();
        assert_eq!(first.iter().flatten().count(), 2);
        let _second = streams.take(peer(2)).unwrap();
        let _third = streams.take(Peer::Local).unwrap();
        assert!(streams.take(peer(4)).is_none(), "all are taken");
        drop(first);
        assert!(streams.take(peer(4)).is_some());
    }

    #[test]
    fn an_address_beyond_loopback_keeps_half_of_its_connections_for_other_requests() {
        let streams = Streams::new(128, 64);
        let slots_of = |peer| (0..128).map_while(|_| streams.take(peer)).collect::<Vec<_>>();
        assert_eq!(slots_of(Peer::Address([10, 0, 0, 1].into())).len(), 32);
        assert_eq!(slots_of(Peer::Address([127, 0, 0, 1].into())).len(), 64);
    }
}
