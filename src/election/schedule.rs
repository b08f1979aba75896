//! Derives when the next request is due: a pending release first, then what the role asks for, and the
//! reads of a standby from the store's answers and the leader's notices.

use std::time::Duration;

use super::role::PendingRelease;
use super::{Election, Entropy, Observation, Op, RetryTimer, Role};
use crate::clock::Moment;
use crate::lease::Snapshot;

/// How many retry-periods pass between two reads of a standby that the leader notifies.
const NOTIFIED: u32 = 15;

/// The longest time between two reads of a standby that the leader notifies, unless its retry-period
/// is longer.
const LONGEST: Duration = Duration::from_secs(30);

/// How long after the end of a lease a candidate reads that is not the heir: this and up to twice as
/// much.
const AFTER_THE_HEIR: Duration = Duration::from_millis(50);

impl Election {
    /// Returns the request that is due. A pending release comes first, so that nothing else is
    /// requested while a dead lease may still be held.
    pub(super) fn next_request(&self, now: Moment) -> Option<Op> {
        match &self.pending_release {
            Some(pending_release) if self.until_release(pending_release, now).is_zero() => {
                Some(Op::Release(pending_release.bid.clone()))
            }
            Some(_) => None,
            None if self.until_notified_read(now).is_zero() => Some(Op::Read),
            None => self.role.next_request(now),
        }
    }

    /// Returns how long until a pending release may be sent; [`Duration::MAX`] while processes of
    /// the term live (R8).
    pub(super) fn until_release(&self, pending_release: &PendingRelease, now: Moment) -> Duration {
        match self.workload_term {
            Some(_) => Duration::MAX,
            None => pending_release.left(now, self.config.request_timeout),
        }
    }

    /// Returns how much is left of the time for a pending release, after which the lease is left to
    /// run out: two request-timeouts, which bounds a resignation (R3). Without a resignation they
    /// begin when the lapsed lease is over (`client_window`). After one, a lapsed lease that lasts longer
    /// is left to run out as soon as the publishers have acknowledged passive. If processes live
    /// that cannot be killed, the time is one lease-duration.
    pub(super) fn time_to_release(
        &self,
        pending_release: &PendingRelease,
        now: Moment,
    ) -> Duration {
        let first = match self.workload_term {
            Some(_) => self.config.lease_duration,
            None if pending_release.resigned => Duration::ZERO,
            None => pending_release.client_window_at_start(),
        };
        let request = self.config.request_timeout;
        let left = (first + request * 2).saturating_sub(pending_release.since.elapsed_max(now));
        let idle = pending_release.resigned && self.workload_term.is_none();
        let said = pending_release.publish_wait_left(now, request).is_zero();
        if idle && said && pending_release.client_window_left(now) > left {
            Duration::ZERO
        } else {
            left
        }
    }

    /// Returns how long until the role asks for a request, or a notice for a read.
    pub(super) fn until_next_request(&self, now: Moment) -> Duration {
        self.role.until_next_request(now).min(self.until_notified_read(now))
    }

    /// Returns how long until a read is due that a notice causes; [`Duration::MAX`] if none is, or this
    /// candidate bids or backs off.
    fn until_notified_read(&self, now: Moment) -> Duration {
        match &self.role {
            Role::Standby { next_read, bidding: None } if !next_read.ignores_wakeups => {
                self.stream.until_read(now, self.config.retry_period)
            }
            _ => Duration::MAX,
        }
    }

    /// Schedules the read that follows one that returned `snapshot`. `left` is what is left of the
    /// lease by this candidate's own clocks, where observers count the time.
    pub(super) fn schedule_read(
        &mut self,
        snapshot: &Snapshot,
        left: Option<Duration>,
        now: Moment,
        entropy: Entropy,
    ) {
        let ends_in = left.or(snapshot.ends_in).filter(|it| !it.is_zero());
        self.update_stream(snapshot, now);
        let is_notified =
            self.stream.holding.is_some() && !snapshot.free && !self.waits_for_claim();
        let period = self.config.retry_period;
        let mut timer = if self.reads_often(now) {
            RetryTimer::jittered(now, period / 4, entropy.jitter)
        } else if is_notified {
            RetryTimer::after(now, self.notified_period(entropy))
        } else {
            self.polled(now, entropy)
        };
        if let Some(left) = ends_in.filter(|_| !is_notified) {
            // Read when the lease ends rather than at the next poll, with jitter between
            // candidates, of which the heir is first.
            let jitter = if self.is_heir() { 0.0 } else { entropy.jitter / 16.0 };
            let jitter = period.mul_f32(jitter);
            // A lease without an end has the largest Duration left.
            timer.wait = timer.wait.min(left.saturating_add(jitter));
        }
        let priority = self.priority_wait(now);
        if snapshot.free && !priority.is_zero() {
            timer.wait = priority;
        }
        self.stream.put_off = is_notified.then_some(timer.wait);
        if let Role::Standby { next_read, .. } = &mut self.role {
            *next_read = timer;
        }
    }

    /// Returns when to poll next. An observer sees a renewal as late as it reads, and waits that much longer
    /// for a holder that is gone. So it reads a little sooner after the renewal each time, until a read
    /// comes too soon and shows the claim unchanged; the next one then follows after half a period.
    fn polled(&mut self, now: Moment, entropy: Entropy) -> RetryTimer {
        let period = self.config.retry_period;
        let reads = self.observation.as_mut().map(Observation::count_read);
        match reads {
            Some(1) => RetryTimer::after(now, period.mul_f32(1.0 - entropy.jitter / 8.0)),
            Some(2) => RetryTimer::after(now, period.mul_f32(0.5 + entropy.jitter / 8.0)),
            _ => RetryTimer::jittered(now, period, entropy.jitter),
        }
    }

    /// Drops what the read has shown to be over, and takes the end of the lease from the store where it
    /// says so.
    fn update_stream(&mut self, snapshot: &Snapshot, now: Moment) {
        self.stream.holding.take_if(|it| it.term < self.highest_term);
        let is_counted_here = snapshot.claim.is_some();
        self.stream.lease_end.take_if(|_| snapshot.free || is_counted_here);
        if let (Some(lease_end), Some(ends_in)) = (&mut self.stream.lease_end, snapshot.ends_in) {
            *lease_end = lease_end.at(ends_in, now);
        }
    }

    /// Moves the next read to the slow period of a standby that the leader notifies. It counts from
    /// the last answer, so that no number of notices puts a read off for longer. A read that is due,
    /// that follows a failure, or that is to find the lease free stays where it is.
    pub(super) fn put_off_read(&mut self, now: Moment, entropy: Entropy) {
        let period = self.notified_period(entropy);
        let shortest = self.shortest_notified_period();
        if self.waits_for_claim() {
            return;
        }
        let Role::Standby { next_read, .. } = &mut self.role else { return };
        let stays = next_read.due(now) || next_read.has_failed() || self.seen_free.is_some();
        if !stays && next_read.wait < shortest {
            next_read.wait = period;
            self.stream.put_off = Some(period);
        }
    }

    /// Moves the next poll of a standby that the store has shown a renewal: it polls when none has come for
    /// one and a half retry-periods, or a slow period after the last answer, since a watch may lag. A read
    /// that is due, that follows a failure, or that is to find the lease free stays where it is; `left` is
    /// what is left of the lease.
    pub(super) fn put_off_poll(&mut self, left: Duration, now: Moment, entropy: Entropy) {
        let silence = self.config.retry_period.mul_f32(1.25 + entropy.jitter / 4.0).min(left);
        let longest = self.notified_period(entropy);
        let often = self.reads_often(now) || self.seen_free.is_some();
        // Its jitter is drawn once: the longest of many draws is hardly jitter.
        let shortest = self.shortest_notified_period();
        let Role::Standby { next_read, bidding: None } = &mut self.role else { return };
        let stays = next_read.ignores_wakeups || next_read.due(now) || next_read.has_failed();
        if often || stays || next_read.wait >= shortest {
            return;
        }
        let wait = next_read.from.elapsed_max(now).saturating_add(silence).min(longest);
        next_read.wait = next_read.wait.max(wait);
        self.stream.put_off = Some(next_read.wait);
    }

    /// Moves the next read back to what it is without notices, unless this candidate backs off.
    pub(super) fn resume_reads(&mut self, now: Moment, entropy: Entropy) {
        let Role::Standby { next_read, .. } = &mut self.role else { return };
        let elapsed = next_read.from.elapsed_max(now);
        let polled = RetryTimer::jittered(now, self.config.retry_period, entropy.jitter);
        if !next_read.ignores_wakeups {
            next_read.wait = next_read.wait.min(elapsed.saturating_add(polled.wait));
        }
        self.stream.put_off = self.stream.put_off.map(|it| it.min(elapsed));
    }

    /// Returns how long after the end of a lease this candidate reads: the heir at once, the others
    /// when it has had time to acquire it.
    pub(super) fn bid_delay(&self, entropy: Entropy) -> Duration {
        if self.is_heir() {
            Duration::ZERO
        } else {
            AFTER_THE_HEIR.mul_f32(1.0 + 2.0 * entropy.jitter)
        }
    }

    /// Returns for how long the stream may be silent after a notice that says when the `next` renewal
    /// is due. That is the leader's word, so the slow period bounds it.
    pub(super) fn longest_silence(&self, next: Duration) -> Duration {
        let period = self.config.retry_period;
        let announced = next.saturating_add(period).min(self.shortest_notified_period());
        announced.max(period * 2)
    }

    /// Returns the time between two reads of a standby that the leader notifies, with jitter.
    fn notified_period(&self, entropy: Entropy) -> Duration {
        let jitter = self.config.retry_period.mul_f32(entropy.jitter / 4.0);
        self.shortest_notified_period() + jitter
    }

    fn shortest_notified_period(&self) -> Duration {
        let period = self.config.retry_period;
        (period * NOTIFIED).min(LONGEST).max(period)
    }
}
