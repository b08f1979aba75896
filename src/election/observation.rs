//! The wait for a lease whose time no store counts: the record just stands there, and its lease is
//! over for an observer who has seen the same one for its whole duration, by its own clocks.
//!
//! Why that is safe: each renewal changes what stands there, and a holder's belief counts from the
//! sending of the request that wrote it. Whoever received it has received it later, and waits longer
//! than the holder believes. What an observer missed meanwhile it finds changed, and begins anew.
//!
//! What it does not do: it compares no wall clock with another's, and takes nothing. A bid for what
//! is over compares and sets, so that of several observers one wins, and none where the holder was
//! heard of at the last instant.

use std::time::Duration;

use super::pace::went_back;
use crate::clock::Moment;
use crate::store::{Claim, Sight, Version};

/// A claim that one observer has seen, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    claim: Claim,
    /// From the receipt of the first answer that showed this claim.
    from: Moment,
}

impl Observation {
    /// Takes in what an answer, received at `now`, has shown: a claim that is not the `known` one
    /// begins a new wait, and where there is none there is nothing to wait for. A clock that went
    /// back behind the start begins it anew too.
    #[must_use]
    pub fn see(known: Option<Self>, sight: &Sight, now: Moment) -> Option<Self> {
        let claim = sight.claim.as_ref()?;
        let same = known.filter(|it| it.claim == *claim && !went_back(it.from, now));
        Some(same.unwrap_or_else(|| Self { claim: claim.clone(), from: now }))
    }

    /// How long until the lease is over, by the slower clock (R2).
    #[must_use]
    pub fn left(&self, now: Moment) -> Duration {
        self.claim.lease_duration.saturating_sub(self.from.elapsed_min(now))
    }

    /// What is seen standing there.
    pub(super) fn spec(&self) -> &Version {
        &self.claim.spec
    }

    /// Since when it is seen, and how long it is.
    pub(super) fn wait(&self) -> (Moment, Duration) {
        (self.from, self.claim.lease_duration)
    }
}
