//! Wake-ups: the store reports that the lease may have changed. A wake-up is a hint, never evidence: it
//! moves the time of the next read or renewal, whose answer decides.

use std::time::Duration;

use super::role::{HeldLease, Role};
use super::{Election, Entropy, Op};
use crate::clock::Moment;
use crate::lease::Change;

/// How many renewals, or reads of a standby, in a retry-period are brought forward by wake-ups.
const MOST_HINTED: u32 = 4;

/// Counts the requests of a retry-period that wake-ups have brought forward, so that a store that
/// reports changes without end costs few requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hints {
    since: Moment,
    count: u32,
}

impl Hints {
    pub(super) fn new(now: Moment) -> Self {
        Self { since: now, count: 0 }
    }

    /// Counts one more request, if the period allows it.
    fn admit(&mut self, now: Moment, period: Duration) -> bool {
        if self.since.elapsed_max(now) >= period || self.since.went_back(now) {
            *self = Self::new(now);
        }
        let is_admitted = self.count < MOST_HINTED;
        self.count += u32::from(is_admitted);
        is_admitted
    }
}

impl Election {
    /// Handles a report of the store, which may name the acquisition that holds the lease. To a standby
    /// that observes the lease, a renewal is what a read would show. A standby that another one precedes, as the leader's stream says, gives that one time to bid. A holder
    /// ignores reports that name its own, such as those of its own writes; after any other it renews at
    /// once, so that a loss is known before the next renewal is due.
    pub(super) fn handle_changed(&mut self, change: Change, now: Moment, entropy: Entropy) {
        let held_by = match change {
            Change::News { held_by } => held_by,
            Change::Renewal(claim) => {
                if matches!(self.role, Role::Standby { .. }) {
                    let left = self.observe(Some(&claim), now);
                    self.put_off_poll(left.unwrap_or_default(), now, entropy);
                    if let Some(renewals) = &mut self.lease_view.renewals {
                        renewals.reported(&self.config, &claim, now);
                    }
                }
                return self.handle_timeout(now, entropy);
            }
        };
        let held = match &self.role {
            Role::Standby { .. } if self.gives_way() || self.is_leaving_to_others() => {
                self.stream.ask_read(now, self.head_start(entropy));
                None
            }
            Role::Standby { .. } => return self.handle_wakeup(now, entropy),
            Role::Leader(it) => Some(&it.held),
            Role::Draining(it) => Some(&it.held),
            // The write of the term, which is next, shows whether the lease is lost.
            Role::Activating(_) | Role::Resigned => None,
        };
        if held.is_some_and(|it| held_by != Some(it.bid.nonce)) {
            self.woken = true;
            // A request in flight may be of before: the renewal follows its answer.
            if self.in_flight.is_none() {
                self.apply_wakeup(now);
            }
        }
        self.handle_timeout(now, entropy);
    }

    /// Makes the next read of a standby due now, unless it backs off. During a read or a bid it counts
    /// from the answer, which may be of before.
    pub(super) fn handle_wakeup(&mut self, now: Moment, entropy: Entropy) {
        if matches!(self.role, Role::Standby { .. }) {
            self.woken = true;
            let reads = self.in_flight.as_ref().is_some_and(|it| matches!(it.op, Op::Read));
            if !reads {
                self.apply_wakeup(now);
            }
        }
        self.handle_timeout(now, entropy);
    }

    /// Makes the next read or renewal due if there was a wake-up, unless a bid is still to be answered.
    pub(super) fn apply_wakeup(&mut self, now: Moment) {
        if matches!(self.role, Role::Standby { bidding: Some(_), .. }) {
            return;
        }
        if !std::mem::take(&mut self.woken) {
            return;
        }
        let period = self.config.retry_period;
        match &mut self.role {
            Role::Standby { next_read, .. } => {
                if !next_read.ignores_wakeups && self.hints.admit(now, period) {
                    next_read.make_due(now);
                }
            }
            role => {
                if let Some(held) = role.held_lease_mut() {
                    held.renew_for_hint(now, period);
                }
            }
        }
    }
}

impl HeldLease {
    /// Makes the renewal due now, if the period allows another one for a hint.
    fn renew_for_hint(&mut self, now: Moment, period: Duration) {
        if self.hints.admit(now, period) {
            self.renewal.make_due(now);
        }
    }
}
