//! When a request is due: its earliest and its latest time, by the clocks of the candidate that sends it.

use std::time::Duration;

use tenure::clock::Moment;
use tenure::lease::{Claim, StoreError};

/// How far a time that a candidate computes may be off, because it multiplies with 24 bits.
const ROUNDING: Duration = Duration::from_micros(100);

/// The earliest and the latest time of a request.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    pub from: Moment,
    pub least: Duration,
    pub most: Duration,
}

impl Due {
    /// A request that is due now.
    pub fn at_once(now: Moment) -> Self {
        Self::exactly(now, Duration::ZERO)
    }

    /// A request that is due after `wait`.
    pub fn exactly(from: Moment, wait: Duration) -> Self {
        Self { from, least: wait, most: wait }
    }

    /// A request that is due after `period` ± 50 %.
    pub fn jittered(now: Moment, period: Duration) -> Self {
        Self { from: now, least: period / 2, most: period * 3 / 2 }
    }

    /// Allows the request now.
    pub fn hasten(&mut self) {
        self.least = Duration::ZERO;
    }

    /// Allows the request now, and up to `most` after its start.
    pub fn widen(&mut self, most: Duration) {
        self.least = Duration::ZERO;
        self.most = self.most.max(most);
    }

    /// Returns whether the request would be too early.
    pub fn is_early(&self, now: Moment) -> bool {
        self.from.elapsed_max(now) + ROUNDING < self.least && !self.from.went_back(now)
    }

    /// Returns for how long the request has been due at the latest.
    pub fn overdue(&self, now: Moment) -> Duration {
        self.from.elapsed_max(now).saturating_sub(self.most)
    }

    /// Returns how long until the request is due at the latest.
    pub fn left(&self, now: Moment) -> Duration {
        self.most.saturating_sub(self.from.elapsed_max(now))
    }

    /// Returns whether the request would be overdue after `wait`.
    pub fn is_late(&self, now: Moment, wait: Duration) -> bool {
        self.from.elapsed_max(now).saturating_add(wait) > self.most + ROUNDING
    }
}

/// Returns the longest time between two reads of a standby that the leader notifies.
pub fn slow_period(period: Duration) -> Duration {
    (period * 15).min(Duration::from_secs(30)).max(period) + period / 4
}

/// The retries since the last success.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retries {
    at_once: bool,
    delayed: u32,
}

impl Retries {
    /// Returns when a request that has failed is retried: after a broken connection once at once, then
    /// after a quarter of `period`, doubling up to `period`; `least` is the least share of that.
    pub fn fail(&mut self, error: &StoreError, now: Moment, period: Duration, least: f32) -> Due {
        if matches!(error, StoreError::RetryNow(_)) && !self.at_once && self.delayed == 0 {
            self.at_once = true;
            return Due::at_once(now);
        }
        let most = period / 4 * (1 << self.delayed.min(2));
        self.delayed += 1;
        Due { from: now, least: most.mul_f32(least), most }
    }
}

/// A lease that a candidate waits for, where observers count the time.
#[derive(Clone, Debug)]
pub struct Sighting {
    claim: Claim,
    /// The receipt of the first answer or report that showed this claim.
    from: Moment,
}

impl Sighting {
    /// Follows the lease that another answer or report shows.
    pub fn update(known: Option<Self>, claim: Option<&Claim>, now: Moment) -> Option<Self> {
        let claim = claim?;
        let same = known.filter(|it| it.claim == *claim && !it.from.went_back(now));
        Some(same.unwrap_or_else(|| Self { claim: claim.clone(), from: now }))
    }

    /// Returns how long until the lease is over, by the slower clock.
    pub fn left(&self, now: Moment) -> Duration {
        self.claim.lease_duration.saturating_sub(self.from.elapsed_min(now))
    }

    /// Returns the claim.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }
}
