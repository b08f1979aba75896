//! What a standby knows of the leader's stream, and the reads that its notices cause.

use std::time::Duration;

use super::retry::RetryTimer;
use crate::clock::Moment;

/// The most reads within one retry-period that notices cause.
pub(super) const MOST_READS: usize = 4;

/// The shortest time between two reads at the end of a lease.
const STEP: Duration = Duration::from_millis(100);

/// How long after the latest end of a lease the store is still read for it: that is judged by two
/// clocks.
const GRACE: Duration = Duration::from_millis(300);

/// What a standby knows of the leader's stream. All of it only moves the time of reads.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaderStream {
    /// The last notice that the leader holds the lease; `None` without a stream.
    pub(super) holding: Option<Holding>,
    /// Whether the last notice about it named this candidate as next in line.
    pub(super) is_heir: bool,
    /// The term whose release was acted on, until the stream says that the lease is held.
    pub(super) released: Option<u64>,
    /// The read that a notice asks for.
    pub(super) read: Option<RetryTimer>,
    /// The reads at the end of the lease, after the stream was lost.
    pub(super) lease_end: Option<LeaseEnd>,
    /// For how long after its last answer the store is not read because of notices, or of renewals that it
    /// reports.
    pub(super) put_off: Option<Duration>,
    /// When the last reads were sent that notices caused, the oldest first.
    pub(super) sent: [Option<Moment>; MOST_READS],
}

/// A notice that the leader holds the lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holding {
    pub(super) term: u64,
    pub(super) received: Moment,
    /// How long before that the renewal was sent.
    pub(super) sent_ago: Duration,
    /// How long the lease lasts after its renewal.
    pub(super) lease: Duration,
    /// For how long the stream may then be silent.
    pub(super) silence: Duration,
}

/// The reads at the end of a lease: from its earliest end until a while after its latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseEnd {
    pub(super) from: Moment,
    /// When to read next, from there.
    pub(super) next: Duration,
    pub(super) step: Duration,
    /// The last time to read, from there.
    pub(super) last: Duration,
    /// How long after the end this candidate reads, so that the heir is first.
    pub(super) delay: Duration,
}

impl LeaderStream {
    /// Drops all but the count of reads: this candidate holds the lease itself.
    pub(super) fn forget(&mut self) {
        *self = Self { sent: self.sent, ..Self::default() };
    }

    /// Returns how long the stream may still be silent; [`Duration::MAX`] without one.
    pub(super) fn until_silent(&self, now: Moment) -> Duration {
        let Some(it) = &self.holding else { return Duration::MAX };
        RetryTimer::after(it.received, it.silence).left(now)
    }

    /// Schedules a read within `wait`.
    pub(super) fn ask_read(&mut self, now: Moment, wait: Duration) {
        let asked = RetryTimer::after(now, wait);
        self.read.take_if(|known| known.left(now) > wait);
        self.read.get_or_insert(asked);
    }

    /// Returns how long until a read is due that a notice causes; at most [`MOST_READS`] are within
    /// one `period`. [`Duration::MAX`] if none is.
    pub(super) fn until_read(&self, now: Moment, period: Duration) -> Duration {
        self.until_asked(now).max(self.until_allowed(now, period))
    }

    /// Records that a read is sent. It is also the one that a notice asks for, if that is due.
    pub(super) fn read_sent(&mut self, now: Moment, period: Duration) {
        if !self.until_asked(now).is_zero() {
            return;
        }
        if self.until_allowed(now, period).is_zero() {
            self.sent.rotate_left(1);
            self.sent[MOST_READS - 1] = Some(now);
        }
        self.read.take_if(|read| read.due(now));
        self.lease_end = self.lease_end.and_then(|it| it.after_read(now));
    }

    fn until_asked(&self, now: Moment) -> Duration {
        let asked = self.read.as_ref().map_or(Duration::MAX, |read| read.left(now));
        let end = self.lease_end.as_ref().map_or(Duration::MAX, |it| it.until_read(now));
        asked.min(end)
    }

    fn until_allowed(&self, now: Moment, period: Duration) -> Duration {
        let oldest = self.sent[0];
        oldest.map_or(Duration::ZERO, |sent| RetryTimer::after(sent, period).left(now))
    }
}

impl Holding {
    /// Returns the reads at the end of this lease, `delay` after it; `None` if that is over.
    ///
    /// The store counts the lease from some moment between the sending of the renewal and this
    /// notice. The durations are the leader's word, so no sum may overflow.
    pub(super) fn lease_end(&self, delay: Duration, now: Moment) -> Option<LeaseEnd> {
        let earliest = self.lease.saturating_sub(self.sent_ago).saturating_add(delay);
        let last = self.lease.saturating_add(delay).saturating_add(GRACE);
        // As many reads as are allowed within one retry-period.
        let step = (last - earliest) / (MOST_READS as u32 - 1);
        let end =
            LeaseEnd { from: self.received, next: earliest, step: step.max(STEP), last, delay };
        let is_over = self.received.went_back(now) || self.received.elapsed_max(now) > last;
        (!is_over).then_some(end)
    }
}

impl LeaseEnd {
    /// Replaces the bounds by what the store says: the lease ends in `ends_in`.
    pub(super) fn at(self, ends_in: Duration, now: Moment) -> Self {
        let next = ends_in.saturating_add(self.delay);
        Self { from: now, next, step: STEP, last: next.saturating_add(GRACE), delay: self.delay }
    }

    /// Returns how long until the next of these reads is due.
    pub(super) fn until_read(&self, now: Moment) -> Duration {
        RetryTimer::after(self.from, self.next).left(now)
    }

    /// Returns the reads that are left after one at `now`; `None` if it was the last.
    fn after_read(self, now: Moment) -> Option<Self> {
        if !self.until_read(now).is_zero() {
            return Some(self);
        }
        let elapsed = self.from.elapsed_max(now);
        let planned = self.next.saturating_add(self.step);
        let next = if planned > elapsed { planned } else { elapsed.saturating_add(self.step) };
        (!self.from.went_back(now) && next <= self.last).then_some(Self { next, ..self })
    }
}
