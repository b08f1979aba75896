//! The notices of the leader's stream. Any candidate may get any of them at any time: true ones, and those
//! that are late, replayed or forged.

use std::time::Duration;

use tenure::election::PeerNotice;

use super::peer::{LEASE_DURATION, TICK};

/// A notice, about the term in the record or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notified {
    /// The leader holds the lease, and has renewed it a tick ago.
    Holding,
    /// A later leader holds the lease for ever.
    ForgedHolding,
    /// The lease is released, and this candidate is next in line.
    ReleasedToHeir,
    /// The lease is released.
    Released,
    /// This candidate is next in line.
    Heir,
    /// The stream has ended.
    Lost,
}

impl Notified {
    pub const ALL: [Self; 6] = [
        Self::Holding,
        Self::ForgedHolding,
        Self::ReleasedToHeir,
        Self::Released,
        Self::Heir,
        Self::Lost,
    ];

    /// Returns the notice as the core gets it; `term` is the recorded one.
    pub fn about(self, term: u64) -> PeerNotice {
        match self {
            Self::Holding => {
                let lease = TICK * LEASE_DURATION.into();
                PeerNotice::Holding { term, sent_ago: TICK, lease, next: TICK }
            }
            Self::ForgedHolding => {
                let lease = Duration::MAX;
                PeerNotice::Holding { term: term + 1, sent_ago: TICK, lease, next: lease }
            }
            Self::ReleasedToHeir => PeerNotice::Released { term, is_heir: true },
            Self::Released => PeerNotice::Released { term, is_heir: false },
            Self::Heir => PeerNotice::Candidates { is_heir: true },
            Self::Lost => PeerNotice::Lost,
        }
    }
}
