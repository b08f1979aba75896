//! The time of the next attempt: a Moment to count from and a length, which grows with failures
//! (R9). Only liveness depends on this: an early or late attempt costs requests or recovery time,
//! never a second leader.

use std::time::Duration;

use crate::clock::Moment;
use crate::lease::StoreError;

/// The time of the next attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryTimer {
    pub(super) from: Moment,
    pub(super) wait: Duration,
    /// Whether the one immediate retry has been used.
    pub(super) retried_at_once: bool,
    /// The number of delayed retries after failures.
    pub(super) delayed_retries: u32,
    /// Whether wake-ups are ignored.
    pub(super) ignores_wakeups: bool,
}

impl RetryTimer {
    /// Creates a timer that is due after `wait` from `from`.
    pub(super) fn after(from: Moment, wait: Duration) -> Self {
        Self { from, wait, retried_at_once: false, delayed_retries: 0, ignores_wakeups: false }
    }

    /// Creates a timer that is due at once.
    pub(super) fn at_once(now: Moment) -> Self {
        Self::after(now, Duration::ZERO)
    }

    /// Creates a timer that is due after `period` ± 50 %, so that candidates that collided drift
    /// apart.
    pub(super) fn jittered(now: Moment, period: Duration, jitter: f32) -> Self {
        Self::after(now, period.mul_f32(0.5 + jitter))
    }

    /// Like [`jittered`](Self::jittered), but wake-ups do not bring it forward: a candidate that backs
    /// off must not be woken by its own writes to the store.
    pub(super) fn backed_off(now: Moment, period: Duration, jitter: f32) -> Self {
        Self { ignores_wakeups: true, ..Self::jittered(now, period, jitter) }
    }

    /// Schedules the next attempt after a failure: at once if a connection broke for the first
    /// time, then after a quarter of `period`, doubling up to `period`. `share` scales it: 1 for a
    /// leader, less for one of many standbys.
    pub(super) fn fail(&mut self, now: Moment, period: Duration, retry_now: bool, share: f32) {
        self.from = now;
        // A back-off ends with the attempt that follows it.
        self.ignores_wakeups = false;
        if retry_now && !self.retried_at_once && self.delayed_retries == 0 {
            self.retried_at_once = true;
            self.wait = Duration::ZERO;
        } else {
            self.wait = (period / 4 * (1 << self.delayed_retries.min(2))).mul_f32(share);
            self.delayed_retries += 1;
        }
    }

    /// Puts the next attempt off for as long as the store asks in its error, if that is at most `most`.
    pub(super) fn heed(&mut self, error: &StoreError, most: Duration) {
        if let Some(asked) = error.failure().retry_after.filter(|it| *it <= most) {
            self.wait = self.wait.max(asked);
        }
    }

    /// Makes the attempt due now, keeping the count of failures.
    pub(super) fn make_due(&mut self, now: Moment) {
        if self.ignores_wakeups {
            return;
        }
        self.from = now;
        self.wait = Duration::ZERO;
    }

    /// Returns whether the attempt follows a failure.
    pub(super) fn has_failed(&self) -> bool {
        self.retried_at_once || self.delayed_retries > 0
    }

    /// Returns whether the retry after the last failure is immediate.
    pub(super) fn is_immediate(&self) -> bool {
        self.wait.is_zero()
    }

    /// Returns whether the attempt is due.
    pub(super) fn due(&self, now: Moment) -> bool {
        self.left(now).is_zero()
    }

    /// Returns for how long the attempt has been due.
    pub(super) fn overdue(&self, now: Moment) -> Duration {
        self.from.elapsed_max(now).saturating_sub(self.wait)
    }

    /// Returns how long until the attempt is due. A clock that went back does not extend it.
    #[inline]
    pub(super) fn left(&self, now: Moment) -> Duration {
        if self.from.went_back(now) {
            return Duration::ZERO;
        }
        self.wait.saturating_sub(self.from.elapsed_max(now))
    }
}
