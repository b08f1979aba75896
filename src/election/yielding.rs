//! Standing back so that another wins: our own hold-off after we left by will, and the courtesy that
//! everybody shows a named successor.
//!
//! What it does not do: it decides no safety. Each wait counts by our own clocks, from what we saw
//! ourselves; nobody's wall clock is compared, and a successor that is dead costs its hold-off.

use std::time::Duration;

use super::Election;
use super::pace::went_back;
use crate::clock::Moment;
use crate::store::{Nonce, Sight};

/// Our own hold-off after a tenure that ended by will.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aside {
    /// The tenure's nonce: as long as the lease is seen held under it, ours is not given back.
    pub(super) nonce: Nonce,
    pub(super) length: Duration,
    /// From the first look that showed the lease free, or another's.
    pub(super) from: Option<Moment>,
}

/// The wait for a successor whom the record names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Courtesy {
    /// The tenure that named it.
    pub(super) nonce: Option<Nonce>,
    pub(super) length: Duration,
    /// When we first saw the name.
    pub(super) named: Moment,
    /// When we first saw the lease free under it.
    pub(super) free: Option<Moment>,
    /// An operator does not want us to wait.
    pub(super) waived: bool,
}

impl Election {
    /// Whether we bid for a lease that was just seen free. A later leader that names us ends our own
    /// hold-off: were it kept, the others would wait in vain for us, who had been asked to lead. What
    /// we wrote ourselves does not: the name may be another's too, for whom we step down.
    pub(super) fn may_bid(&self, now: Moment) -> bool {
        let named_by = self.courtesy.filter(|_| self.is_named()).map(|it| it.nonce);
        let called = match (self.aside, named_by) {
            (Some(aside), Some(nonce)) => nonce != Some(aside.nonce),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let others_wait = self.courtesy.is_some_and(|it| !it.is_over(now));
        self.competes() && (called || self.aside.is_none() && !others_wait)
    }

    /// Whether we look more often than others, since we are to follow.
    pub(super) fn hurries(&self, now: Moment) -> bool {
        self.competes() && self.is_named() && self.courtesy.is_some_and(|it| it.hurries(now))
    }

    /// Waits for nobody any more, ourselves included; false where we did not.
    pub(super) fn end_waits(&mut self, now: Moment) -> bool {
        let waited = !self.is_named() && self.courtesy.is_some_and(|it| !it.is_over(now));
        if let Some(courtesy) = &mut self.courtesy {
            courtesy.waived = true;
        }
        self.aside.take().is_some() || waited
    }

    fn is_named(&self) -> bool {
        self.successor.as_ref().is_some_and(|it| it.identity == self.config.candidate.identity)
    }
}

impl Aside {
    pub(super) fn new(nonce: Nonce, length: Duration) -> Self {
        Self { nonce, length, from: None }
    }

    /// Takes in what a look saw.
    pub(super) fn see(&mut self, sight: &Sight, now: Moment) {
        let given_back = sight.free || sight.record.nonce != Some(self.nonce);
        if given_back {
            self.from.get_or_insert(now);
        }
        restart_if_back(&mut self.from, now);
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.from.is_some_and(|from| from.elapsed_min(now) >= self.length)
    }
}

impl Courtesy {
    /// Takes in a look that saw a named successor: begins anew where another tenure named one.
    pub(super) fn see(known: Option<Self>, length: Duration, sight: &Sight, now: Moment) -> Self {
        let nonce = sight.record.nonce;
        let mut it = known.filter(|it| it.nonce == nonce).unwrap_or(Self {
            nonce,
            length,
            named: now,
            free: None,
            waived: false,
        });
        it.length = length;
        if sight.free {
            it.free.get_or_insert(now);
        }
        restart_if_back(&mut it.free, now);
        it
    }

    /// Whether the others may bid again.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.waived || self.free.is_some_and(|free| free.elapsed_min(now) >= self.length)
    }

    /// Whether the successor looks more often than others: as long as they would wait for it.
    pub(super) fn hurries(&self, now: Moment) -> bool {
        !went_back(self.named, now) && self.named.elapsed_max(now) < self.length
    }
}

fn restart_if_back(from: &mut Option<Moment>, now: Moment) {
    if from.is_some_and(|from| went_back(from, now)) {
        *from = Some(now);
    }
}
