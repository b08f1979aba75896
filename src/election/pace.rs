//! When to try again: a Moment to count from and a length, stretched by failures (R9).
//!
//! What it does not do: it decides no safety. Being early or late here costs requests or time to
//! recover, never a second leader.

use std::time::Duration;

use crate::clock::Moment;

/// The time of the next attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) from: Moment,
    pub(super) wait: Duration,
    /// Whether the one immediate retry was spent.
    pub(super) hurried: bool,
    /// How many waits followed failures.
    pub(super) steps: u32,
    /// Whether nothing but time may make it due.
    pub(super) patient: bool,
}

impl Pace {
    /// Due after `wait` from `from`.
    pub(super) fn after(from: Moment, wait: Duration) -> Self {
        Self { from, wait, hurried: false, steps: 0, patient: false }
    }

    /// Due at once.
    pub(super) fn at_once(now: Moment) -> Self {
        Self::after(now, Duration::ZERO)
    }

    /// Due after a mean of `period` ± 50 %: two that collided once drift apart.
    pub(super) fn spread(now: Moment, period: Duration, jitter: f32) -> Self {
        Self::after(now, period.mul_f32(0.5 + jitter))
    }

    /// Like [`spread`](Self::spread), and no wake-up brings it forward: a candidate that stands
    /// back for others must not be called by its own traces in the store.
    pub(super) fn apart(now: Moment, period: Duration, jitter: f32) -> Self {
        Self { patient: true, ..Self::spread(now, period, jitter) }
    }

    /// Due later, after a failure: at once when a connection broke for the first time, then a
    /// quarter of `period`, doubling up to `period`. `share` scales it: 1 for a leader, who is
    /// alone; less for one of many.
    pub(super) fn fail(&mut self, now: Moment, period: Duration, broken: bool, share: f32) {
        self.from = now;
        if broken && !self.hurried && self.steps == 0 {
            self.hurried = true;
            self.wait = Duration::ZERO;
        } else {
            self.wait = (period / 4 * (1 << self.steps.min(2))).mul_f32(share);
            self.steps += 1;
        }
    }

    /// Makes it due now, keeping what is known of failures.
    pub(super) fn hasten(&mut self, now: Moment) {
        if self.patient {
            return;
        }
        self.from = now;
        self.wait = Duration::ZERO;
    }

    /// Whether the last failure asked for an immediate retry.
    pub(super) fn is_immediate(&self) -> bool {
        self.wait.is_zero()
    }

    /// Whether it is time.
    pub(super) fn due(&self, now: Moment) -> bool {
        self.left(now).is_zero()
    }

    /// How long until it is due. A clock that went back must not stretch it.
    pub(super) fn left(&self, now: Moment) -> Duration {
        if went_back(self.from, now) {
            return Duration::ZERO;
        }
        self.wait.saturating_sub(self.from.elapsed_max(now))
    }
}

/// Whether a lease clock shows less at `now` than it did at `from`.
pub(super) fn went_back(from: Moment, now: Moment) -> bool {
    now.boot < from.boot || now.raw < from.raw
}
