//! The wait for a lease whose time no store counts: an observer that has seen the same claim for
//! its whole duration, by its own clocks, may take the lease.
//!
//! This is safe because each renewal changes the claim, and the belief of a holder counts from the
//! sending of the request that wrote it. An observer receives it later, and so waits longer than
//! the holder believes. A claim that changed between two reads starts the wait anew. A report of the
//! store, however late, can start the wait like a read; only a read that shows the same claim at its end
//! ends it.
//!
//! No wall clock is compared with that of another host. The bid that follows is a compare-and-set,
//! so that of several observers one wins, and none if the holder renewed at the last instant.

use std::time::Duration;

use crate::clock::Moment;
use crate::lease::{Claim, Version};

/// A claim as one observer has seen it, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    claim: Claim,
    /// The receipt of the first answer or report that showed this claim.
    from: Moment,
    /// How many reads have shown it.
    reads: u32,
}

impl Observation {
    /// Updates the observation with a claim that an answer or a report received at `now` shows. A
    /// claim other than the `known` one starts a new wait, as does a clock that went back behind the
    /// start. Returns `None` without a claim.
    #[must_use]
    pub fn update(known: Option<Self>, claim: Option<&Claim>, now: Moment) -> Option<Self> {
        let claim = claim?;
        let same = known.filter(|it| it.claim == *claim && !it.from.went_back(now));
        Some(same.unwrap_or_else(|| Self { claim: claim.clone(), from: now, reads: 0 }))
    }

    /// Counts a read that has shown the claim; returns how many have.
    pub(super) fn count_read(&mut self) -> u32 {
        self.reads = self.reads.saturating_add(1);
        self.reads
    }

    /// Returns how long until the lease is over, by the slower clock (R2).
    #[must_use]
    pub fn left(&self, now: Moment) -> Duration {
        self.claim.lease_duration.saturating_sub(self.from.elapsed_min(now))
    }

    /// Returns the version of the claim that was seen.
    pub(super) fn spec(&self) -> &Version {
        &self.claim.spec
    }

    /// Returns the start of the wait, and its length.
    pub(super) fn wait(&self) -> (Moment, Duration) {
        (self.from, self.claim.lease_duration)
    }
}
