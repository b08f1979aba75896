//! Notices of the leader's stream to its standbys. A notice moves the time of the next read; it is never
//! evidence: only the store's answers grant, refuse or free anything.

use std::time::Duration;

use super::{Election, Entropy};
use crate::clock::Moment;

/// A notice of the leader's stream, or the news that there is none. It may be late, repeated or forged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerNotice {
    /// The leader's renewal was granted.
    Holding {
        /// The term of the leader.
        term: u64,
        /// How long before this notice the renewal was sent.
        sent_ago: Duration,
        /// How long the lease lasts after each grant.
        lease: Duration,
        /// When the next renewal is due, from this notice.
        next: Duration,
    },
    /// The leader drains, and releases the lease afterwards.
    Draining {
        /// The term of the leader.
        term: u64,
        /// Whether this candidate is next in line.
        is_heir: bool,
    },
    /// The store has confirmed the release.
    Released {
        /// The term that has ended.
        term: u64,
        /// Whether this candidate is next in line.
        is_heir: bool,
    },
    /// The stream has ended without a release, or has been silent for too long.
    Lost,
}

impl Election {
    /// Handles a notice of the leader's stream.
    pub(super) fn handle_peer(&mut self, notice: &PeerNotice, now: Moment, entropy: Entropy) {
        match notice {
            PeerNotice::Released { .. } | PeerNotice::Lost => self.handle_wakeup(now, entropy),
            PeerNotice::Holding { .. } | PeerNotice::Draining { .. } => {
                self.handle_timeout(now, entropy);
            }
        }
    }
}
