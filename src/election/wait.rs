//! The bound of the wait for the first lease, for a job that runs under a lock (`exec --wait`).
//!
//! When the time is over, a candidate that is gone may still hold the lease. Where observers count the time,
//! the claim that is seen then is given the time to run out, and that is the only way to the lease: a live
//! holder renews its claim, and after any other change, such as a release, the job may have been done. So a
//! lock whose holder crashed an hour ago is waited out once, by one of several candidates, and none of them
//! does the job again because it came a moment later.

use std::time::Duration;

use super::{Election, Entropy, Role};
use crate::clock::Moment;
use crate::lease::Version;

/// A bounded wait for the first lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Every way to the lease is open for this long from a Moment; for no time, until it is known that the
    /// lease is held.
    Bounded(Moment, Duration),
    /// The time is over. The lease is acquired if this claim runs out, and in no other way.
    Claim(Version),
    /// The wait is over without a lease.
    Over {
        /// Whether another candidate has, or had, the lease, so that it may do the work, or have done it.
        conflict: bool,
    },
}

impl Election {
    /// Ends the wait for the first lease if its time, and that of a claim that may run out, is over. A bid
    /// that was made before is waited for.
    pub(super) fn end_wait(&mut self, now: Moment, entropy: Entropy) {
        if !matches!(self.role, Role::Standby { bidding: None, .. }) {
            return;
        }
        let fails = self.store.failures > 0;
        let may_bid_later = self.competes() && self.store.moved_to.is_none();
        let claim = self.observation.as_ref();
        match &self.wait {
            Some(Wait::Bounded(from, length)) if from.elapsed_max(now) >= *length => {
                let is_known = fails || self.store_reached && self.seen_free.is_none();
                if length.is_zero() && may_bid_later && !is_known {
                    return;
                }
                let claim = claim.filter(|_| may_bid_later && !fails);
                let conflict = self.lease_view.is_held && !fails;
                let over = Wait::Over { conflict };
                self.wait = Some(claim.map_or(over, |it| Wait::Claim(it.spec().clone())));
                self.resume_reads(now, entropy);
            }
            Some(Wait::Claim(spec)) => {
                let is_same = claim.is_some_and(|it| it.spec() == spec);
                let has_run_out = claim.is_some_and(|it| it.left(now).is_zero());
                if !is_same || !may_bid_later || has_run_out && fails {
                    self.wait = Some(Wait::Over { conflict: !is_same });
                }
            }
            _ => {}
        }
    }

    /// Ends a wait whose time is over after the store has refused the bid that was made last.
    pub(super) fn end_wait_refused(&mut self, now: Moment) {
        let is_over = match &self.wait {
            Some(Wait::Bounded(from, length)) => from.elapsed_max(now) >= *length,
            wait => wait.is_some(),
        };
        if is_over {
            self.wait = Some(Wait::Over { conflict: true });
        }
    }

    /// Returns how long until the time of the wait is over; [`Duration::MAX`] if it has none, or only an
    /// answer can end it.
    pub(super) fn until_wait_ends(&self, now: Moment) -> Duration {
        match &self.wait {
            Some(Wait::Bounded(from, length)) => {
                let left = length.saturating_sub(from.elapsed_max(now));
                if left.is_zero() { Duration::MAX } else { left }
            }
            _ => Duration::MAX,
        }
    }

    /// Returns whether one claim alone may run out, so that every sign of its holder is looked for.
    pub(super) fn waits_for_claim(&self) -> bool {
        matches!(self.wait, Some(Wait::Claim(_)))
    }
}
