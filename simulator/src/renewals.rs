//! The time of each renewal of a holder, as the rules have it: a retry-period after the last granted request
//! was sent, or the retry of one that failed. A renewal that is early, or scheduled too late, is noticed.

use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{Answer, Standing};
use tenure::lease::StoreError;

use super::due::{Due, Retries};
use super::process::Process;

/// The renewals of one process.
#[derive(Clone, Copy, Debug)]
pub struct Renewals {
    due: Due,
    retries: Retries,
    /// When the request that was granted last was sent.
    granted: Moment,
    /// When the last renewal was sent.
    sent: Moment,
    /// Whether a grant may not have counted, since the clocks had jumped, so that earlier failures do.
    failed_before: bool,
}

impl Renewals {
    /// The renewals of a process that has no lease.
    pub fn new(now: Moment) -> Self {
        Self { due: Due::at_once(now), ..Self::of_grant(now, Duration::ZERO) }
    }

    /// The renewals of a lease whose bid was first sent at this moment.
    pub fn of_grant(sent: Moment, period: Duration) -> Self {
        let due = Due::exactly(sent, period);
        Self { due, retries: Retries::default(), granted: sent, sent, failed_before: false }
    }

    /// Returns when the next one is due.
    pub fn due(&self) -> &Due {
        &self.due
    }

    /// Returns when the request that was granted last was sent.
    pub fn granted(&self) -> Moment {
        self.granted
    }

    /// Returns whether a renewal would be too early.
    pub fn is_early(&self, now: Moment) -> bool {
        self.due.is_early(now)
    }

    /// The store has reported a change: the next renewal may be sent now.
    pub fn wake(&mut self) {
        self.due.hasten();
    }

    /// Records a renewal.
    pub fn sent(&mut self, now: Moment) {
        self.sent = now;
    }

    /// Records its answer; a grant counts if the clocks have not jumped.
    pub fn answered(
        &mut self,
        answer: &Result<Answer, StoreError>,
        counts: bool,
        period: Duration,
        now: Moment,
    ) {
        match answer {
            Ok(_) => {
                *self = Self { failed_before: !counts, ..Self::of_grant(self.sent, period) };
            }
            Err(StoreError::Refused(_)) => {}
            Err(error) => {
                self.due = self.retries.fail(error, now, period, 1.0);
                if self.failed_before {
                    self.due.widen(period);
                }
            }
        }
    }
}

impl Process {
    /// Returns whether its belief was not suspended by a jump of its clocks, so that no renewal is due at
    /// once.
    pub fn keeps_time(&self, now: Moment) -> bool {
        match &self.status.standing {
            Standing::Leader { belief, .. } => {
                !belief.suspended && self.jumped_at.is_none() && !belief.sent.jumped(now)
            }
            _ => false,
        }
    }
}
