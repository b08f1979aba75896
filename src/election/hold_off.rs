//! When a candidate lets another win: its own hold-off after a voluntary step-down, deference to a named
//! successor, and the wait of a candidate of low priority.
//!
//! Only liveness depends on this. Each wait counts by the candidate's own clocks, from its own
//! reads; no wall clocks are compared, and a dead successor costs its hold-off.

use std::time::Duration;

use super::{Config, Election, Wait};
use crate::clock::Moment;
use crate::lease::{Nonce, Snapshot};

/// How long a candidate does not bid after a leadership that it ended voluntarily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldOff {
    /// The nonce of that leadership: while the lease is seen held under it, it is not released yet.
    pub(super) nonce: Nonce,
    /// The whole length.
    pub length: Duration,
    /// The start: the first read that showed the lease free or held by another.
    pub from: Option<Moment>,
}

/// Deference to a successor that the record names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deference {
    /// The leadership that named it.
    pub(super) nonce: Option<Nonce>,
    pub(super) length: Duration,
    /// When the name was first seen.
    pub(super) named: Moment,
    /// When the lease was first seen free under that name.
    pub(super) free: Option<Moment>,
    /// Whether an operator has ended the wait.
    pub(super) waived: bool,
}

impl Election {
    /// Returns whether to bid for a lease that was just seen free; never on a record that says that the
    /// election has moved. Being named by a later leader
    /// ends this candidate's hold-off: otherwise the others would wait in vain for a candidate that
    /// was asked to lead. Being named in its own record does not, since another candidate may have
    /// the same identity.
    pub(super) fn may_bid(&self, now: Moment) -> bool {
        let named_by = self.deference.filter(|_| self.is_named()).map(|it| it.nonce);
        let invited = match (self.hold_off, named_by) {
            (Some(hold_off), Some(nonce)) => nonce != Some(hold_off.nonce),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let others_wait = self.deference.is_some_and(|it| !it.is_over(now));
        let lets_others_bid = !self.priority_wait(now).is_zero();
        let is_here = self.store.moved_to.is_none();
        let waits = !matches!(self.wait, Some(Wait::Over { .. }));
        is_here
            && waits
            && self.competes()
            && (invited || self.hold_off.is_none() && !others_wait && !lets_others_bid)
    }

    /// Returns whether this candidate has stepped down and not read the store since: what the store
    /// reports then is most likely its own release.
    pub(super) fn is_leaving_to_others(&self) -> bool {
        self.hold_off.is_some_and(|it| it.from.is_none())
    }

    /// Returns how much longer a candidate of low priority lets others bid for a lease that it has seen
    /// free: up to one retry-period for priority 0, nothing from [`Config::DEFAULT_PRIORITY`] up, nor
    /// for the heir.
    pub(super) fn priority_wait(&self, now: Moment) -> Duration {
        let default = Config::DEFAULT_PRIORITY;
        let lacks = default.saturating_sub(self.config.priority);
        if lacks == 0 || self.is_heir() {
            return Duration::ZERO;
        }
        let wait = self.config.retry_period * u32::from(lacks) / u32::from(default);
        wait.saturating_sub(self.seen_free.map_or(Duration::ZERO, |free| free.elapsed_min(now)))
    }

    /// Records whether a read has shown the lease free.
    pub(super) fn see_free(&mut self, free: bool, now: Moment) {
        self.seen_free = free.then(|| self.seen_free.unwrap_or(now));
        restart_if_back(&mut self.seen_free, now);
    }

    /// Returns whether to read more often than others, as the named successor.
    pub(super) fn reads_often(&self, now: Moment) -> bool {
        self.competes() && self.is_named() && self.deference.is_some_and(|it| it.reads_often(now))
    }

    /// Ends the hold-off and the wait for a successor; returns whether there was either.
    pub(super) fn end_waits(&mut self, now: Moment) -> bool {
        let waited = !self.is_named() && self.deference.is_some_and(|it| !it.is_over(now));
        if let Some(deference) = &mut self.deference {
            deference.waived = true;
        }
        self.hold_off.take().is_some() || waited
    }

    fn is_named(&self) -> bool {
        self.successor.as_ref().is_some_and(|it| it.identity == self.config.candidate.identity)
    }
}

impl HoldOff {
    pub(crate) fn new(nonce: Nonce, length: Duration) -> Self {
        Self { nonce, length, from: None }
    }

    /// Updates the hold-off with what a read returned.
    pub(super) fn update(&mut self, snapshot: &Snapshot, now: Moment) {
        let released = snapshot.free || snapshot.record.nonce != Some(self.nonce);
        if released {
            self.from.get_or_insert(now);
        }
        restart_if_back(&mut self.from, now);
    }

    /// Returns how much is left at `now`.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.length.saturating_sub(self.from.map_or(Duration::ZERO, |from| from.elapsed_min(now)))
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.from.is_some_and(|from| from.elapsed_min(now) >= self.length)
    }
}

impl Deference {
    /// Updates the deference with a read that showed a named successor; starts anew if another
    /// leadership named one.
    pub(super) fn update(
        known: Option<Self>,
        length: Duration,
        snapshot: &Snapshot,
        now: Moment,
    ) -> Self {
        let nonce = snapshot.record.nonce;
        let mut it = known.filter(|it| it.nonce == nonce).unwrap_or(Self {
            nonce,
            length,
            named: now,
            free: None,
            waived: false,
        });
        if snapshot.free {
            it.free.get_or_insert(now);
        }
        restart_if_back(&mut it.free, now);
        it
    }

    /// Returns whether other candidates may bid again.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.waived || self.free.is_some_and(|free| free.elapsed_min(now) >= self.length)
    }

    /// Returns whether the successor reads more often than others: for as long as they would wait
    /// for it.
    pub(super) fn reads_often(&self, now: Moment) -> bool {
        !self.named.went_back(now) && self.named.elapsed_max(now) < self.length
    }
}

fn restart_if_back(from: &mut Option<Moment>, now: Moment) {
    if from.is_some_and(|from| from.went_back(now)) {
        *from = Some(now);
    }
}
