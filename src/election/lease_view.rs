//! What this candidate has seen of the lease, for people: when its holder was last seen to renew, who held
//! it before, and why that ended. Nothing here decides anything; [`crate::status`] judges it when it is
//! asked.

use std::time::Duration;

use super::status::Holder;
use super::{Config, Reason};
use crate::clock::Moment;
use crate::lease::{Claim, Snapshot, Version};

/// What this candidate has seen of the lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseView {
    /// The renewals of the present holder; `None` without one.
    pub renewals: Option<Renewals>,
    /// The holder before the present one, or the last one if there is none.
    pub last_holder: Option<LastHolder>,
    /// Since when no holder has been known; `None` while there is one, and before the first answer.
    pub leaderless: Option<Moment>,
    /// Whether the lease was held at the last read.
    pub is_held: bool,
    /// Whether the present holder is this candidate.
    pub is_own: bool,
    /// For how long after its last answer the store may go unread before nothing seen in it is certain:
    /// renew-deadline, and the time for which notices put reads off.
    pub read_within: Duration,
    /// What this candidate waits for while it holds the lease and does not lead yet.
    pub activation: Option<Activation>,
}

/// The renewals of a holder, as far as this candidate sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewals {
    /// When the holder was first seen.
    pub since: Moment,
    /// The last renewal: when it was seen, and how long it was ago then. `None` if none was seen yet.
    pub last: Option<(Moment, Duration)>,
    /// From the last renewal, or the first sight of the holder, to when the next one is overdue.
    pub allowed: Duration,
    /// The latest end of the lease, from a Moment, if no renewal follows.
    pub end: Option<(Moment, Duration)>,
    /// Whether the store shows renewals.
    pub by_store: bool,
    /// Whether the leader's stream tells of renewals now.
    pub by_stream: bool,
    /// What the leader has told of the end of its leadership.
    pub leaving: Option<Leaving>,
    /// The claim that the store showed last, and the end that it gave; `None` after a notice, since a read
    /// may show a renewal that was told already.
    shown: Option<Shown>,
    /// The longest time between two renewals that the store has shown.
    longest: Duration,
    /// The most that was left of the lease at a read, which is nearly all of it.
    most_left: Duration,
}

/// What the store has shown of a lease.
#[derive(Clone, Debug, PartialEq)]
enum Shown {
    Claim(Version),
    End(Moment, Duration),
}

/// A leader that has told that it no longer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It drains, and renews meanwhile.
    Draining,
    /// Its leadership is over, for this reason if it is known.
    Ended(Option<Ending>),
}

/// Why a leadership ended, as far as another candidate can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The leader said so, or it was this candidate.
    Told(Reason),
    /// The lease was free before it had run out.
    Released,
    /// The lease ran out.
    Expired,
}

impl LeaseView {
    /// Returns why the present holder's leadership is over, as it has told.
    #[must_use]
    pub fn told(&self) -> Option<Ending> {
        match self.renewals.as_ref()?.leaving? {
            Leaving::Ended(ending) => ending,
            Leaving::Draining => None,
        }
    }
}

impl Ending {
    /// Returns the name in documents and variables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Told(reason) => reason.as_str(),
            Self::Released => "released",
            Self::Expired => "expired",
        }
    }
}

/// A holder that is seen no more.
#[derive(Clone, Debug, PartialEq)]
pub struct LastHolder {
    /// The holder.
    pub holder: Holder,
    /// When it was seen no more.
    pub until: Moment,
    /// Why, as far as is known.
    pub ending: Option<Ending>,
}

/// A candidate that holds the lease and waits before it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// When the lease was granted.
    pub granted: Moment,
    /// How long it is held before the term is written.
    pub hold: Duration,
    /// Whether that is for an earlier leader whose term is not known (R11), and not the activation delay.
    pub for_earlier: bool,
}

impl Activation {
    /// Returns what is left of the hold at `now`.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.hold.saturating_sub(self.granted.elapsed_min(now))
    }
}

impl Renewals {
    /// Begins with a holder that was not seen before.
    pub(super) fn new(config: &Config, now: Moment) -> Self {
        Self::first(now, allowed(config, Duration::ZERO))
    }

    /// Begins with a holder whose next renewal is overdue after `allowed`.
    #[doc(hidden)]
    #[must_use]
    pub fn first(now: Moment, allowed: Duration) -> Self {
        Self {
            since: now,
            last: None,
            allowed,
            end: None,
            by_store: false,
            by_stream: false,
            leaving: None,
            shown: None,
            longest: Duration::ZERO,
            most_left: Duration::ZERO,
        }
    }

    /// Returns how long ago the last renewal was, or the first sight of the holder if none was seen.
    #[must_use]
    pub fn age(&self, now: Moment) -> Duration {
        let (at, age) = self.last.unwrap_or((self.since, Duration::ZERO));
        age.saturating_add(at.elapsed_max(now))
    }

    /// Returns what is left until the latest end of the lease.
    #[must_use]
    pub fn ends_within(&self, now: Moment) -> Option<Duration> {
        self.end.map(|(from, length)| length.saturating_sub(from.elapsed_min(now)))
    }

    /// Records a renewal of this candidate's own lease that was sent at `sent` and granted at `now`.
    pub(super) fn own(&mut self, config: &Config, sent: Moment, now: Moment) {
        self.last = Some((sent, Duration::ZERO));
        self.allowed = config.retry_period.saturating_add(config.request_timeout);
        self.end = Some((now, config.lease_duration));
        self.by_store = true;
    }

    /// Records what a read has shown; `left` is what is left of the lease, where observers count.
    pub(super) fn read(
        &mut self,
        config: &Config,
        snapshot: &Snapshot,
        left: Option<Duration>,
        now: Moment,
    ) {
        let ends_in = left.or(snapshot.ends_in).filter(|it| *it < Duration::MAX);
        self.by_store = ends_in.is_some();
        let shown = match (&snapshot.claim, ends_in) {
            (Some(claim), _) => Shown::Claim(claim.spec.clone()),
            (None, Some(ends_in)) => Shown::End(now, ends_in),
            // It is held beyond its end, so it was renewed, and another renewal cannot be seen either.
            (None, None) if self.ends_within(now).is_some_and(|it| it.is_zero()) => {
                return *self = Self::new(config, now);
            }
            (None, None) => return,
        };
        let is_later = self.shown.as_ref().is_some_and(|it| it.is_before(&shown, config));
        self.shown = Some(shown);
        if self.by_stream {
            return;
        }
        let left = ends_in.unwrap_or_default();
        self.most_left = self.most_left.max(left);
        if is_later {
            self.seen(config, self.most_left.saturating_sub(left), now);
        }
        let known = self.ends_within(now).filter(|_| !is_later && snapshot.claim.is_some());
        self.end = Some((now, known.map_or(left, |it| it.min(left))));
    }

    /// Records a report of the store that the lease was renewed.
    pub(super) fn reported(&mut self, config: &Config, claim: &Claim, now: Moment) {
        let shown = Shown::Claim(claim.spec.clone());
        let is_later = self.shown.as_ref().is_some_and(|it| *it != shown);
        self.shown = Some(shown);
        if is_later && !self.by_stream {
            self.seen(config, Duration::ZERO, now);
            self.end = Some((now, claim.lease_duration));
        }
    }

    /// Records a renewal that the store has shown, which was `age` ago at least. A holder that renews more
    /// seldom than this candidate would is given the longest time that it has taken.
    fn seen(&mut self, config: &Config, age: Duration, now: Moment) {
        self.longest = self.longest.max(self.age(now).saturating_sub(age));
        let explained = config.retry_period * 5 / 2;
        let half = self.most_left.max(config.lease_duration) / 2;
        let longest =
            if self.longest > explained { self.longest.min(half) } else { Duration::ZERO };
        self.allowed = allowed(config, longest);
        self.last = Some((now, age));
        self.revoke_end();
    }

    /// Records a notice of the leader's stream that a renewal was granted. `longest` bounds the time that
    /// is waited for the next one.
    pub(super) fn told(
        &mut self,
        config: &Config,
        (sent_ago, lease, next): (Duration, Duration, Duration),
        longest: Duration,
        now: Moment,
    ) {
        let interval = sent_ago.saturating_add(next).min(longest).max(config.retry_period);
        // A leader whose store is slow renews as late each time.
        self.allowed = interval.saturating_add(config.request_timeout.max(sent_ago.min(longest)));
        self.last = Some((now, sent_ago));
        self.end = Some((now, lease));
        self.by_stream = true;
        self.shown = None;
        self.revoke_end();
    }

    /// Forgets that a leadership was said to have ended: its lease was renewed since.
    fn revoke_end(&mut self) {
        self.leaving.take_if(|it| matches!(it, Leaving::Ended(_)));
    }

    /// Returns why the leadership has ended, given that the lease is free now or another's; `is_free` if it
    /// was seen free.
    pub(super) fn ending(&self, is_free: bool, now: Moment) -> Option<Ending> {
        if let Some(Leaving::Ended(Some(ending))) = self.leaving {
            return Some(ending);
        }
        match self.end {
            Some((from, length)) if from.elapsed_max(now) >= length => Some(Ending::Expired),
            Some(_) if is_free && (self.by_store || self.by_stream) => Some(Ending::Released),
            _ => None,
        }
    }
}

impl Shown {
    /// Returns whether `other`, which was read later, shows a renewal after this. The end that a server
    /// gives is as inexact as its answer is slow.
    fn is_before(&self, other: &Self, config: &Config) -> bool {
        match (self, other) {
            (Self::End(from, length), Self::End(at, ends_in)) => {
                let left = length.saturating_sub(from.elapsed_max(*at));
                *ends_in > left.saturating_add(config.retry_period / 4)
            }
            (before, after) => before != after,
        }
    }
}

/// Returns how long after one renewal the next is overdue, where the store shows them: the time between
/// two, the longest time between two reads, and the longest that a renewal may take.
fn allowed(config: &Config, longest: Duration) -> Duration {
    let period = config.retry_period;
    period.max(longest) + period * 3 / 2 + config.request_timeout
}
