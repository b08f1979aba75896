//! The roles of a candidate, and what each keeps: data and the questions about it.
//!
//! What it does not do: no role changes here. That is [`super::Election`]'s `become_*` alone.

use std::time::Duration;

use super::pace::{Pace, went_back};
use super::request::Op;
use super::status::Belief;
use crate::clock::Moment;
use crate::store::{Bid, Successor};

/// What a candidate is.
///
/// ```text
///            granted             inaugurated          by will
///  Standby ───────────> Activating ───────────> Leader ───────> Draining
///     ^   <───────────────────┘ <──────────────────┘ <─────────────┘     lapsed, lost, drained
///     └── each of the four ──> Resigned                                  by will, for good
/// ```
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// Looks, and bids for what it saw free.
    Standby {
        /// When to look next.
        looks: Pace,
        /// The bid that is not answered for certain yet.
        bidding: Option<Bidding>,
    },
    /// Has the lease, may not lead yet.
    Activating(Activating),
    /// Leads, as long as the belief lasts.
    Leader(Leader),
    /// Leads no more, and renews until the service has ended its work.
    Draining(Draining),
    /// Leaves.
    Resigned,
}

/// A bid that was sent, and is sent again with its id until the answer is certain (R5).
#[derive(Clone, Debug)]
pub(super) struct Bidding {
    pub(super) bid: Bid,
    /// When it was sent first: the grant's `sent`, whichever request brings it.
    pub(super) first_sent: Moment,
    pub(super) pace: Pace,
}

/// A lease that we have, from its grant to its end.
#[derive(Clone, Debug)]
pub(super) struct Tenure {
    pub(super) bid: Bid,
    pub(super) belief: Belief,
    pub(super) renewal: Pace,
}

/// Between the grant and the term.
#[derive(Clone, Debug)]
pub(super) struct Activating {
    pub(super) tenure: Tenure,
    /// When the grant's answer came: the hold counts from there (R2).
    pub(super) granted: Moment,
    /// How long to hold the lease before the term is written (R11, activation delay).
    pub(super) hold: Duration,
    /// The least term.
    pub(super) floor: u64,
    pub(super) write: Pace,
    /// When the term's write was sent first.
    pub(super) first_write: Option<Moment>,
}

/// From the term to the end.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    pub(super) tenure: Tenure,
    pub(super) term: u64,
    pub(super) since: Moment,
    /// Whether the last renewal failed.
    pub(super) jeopardy: bool,
}

/// From the word that we lead no more to the lease's release: renewed still, so that work begun as
/// leader stays protected.
#[derive(Clone, Debug)]
pub(super) struct Draining {
    pub(super) tenure: Tenure,
    pub(super) term: u64,
    /// Since when we led.
    pub(super) since: Moment,
    /// Since when we say passive.
    pub(super) began: Moment,
    /// How long the service may take to end its work.
    pub(super) length: Duration,
    /// Whether the service has said that it did.
    pub(super) drained: bool,
    /// Whether every publisher says passive too.
    pub(super) announced: bool,
    /// Whether we leave for good afterwards.
    pub(super) resigning: bool,
    /// Who is to be named in the record, until it is.
    pub(super) nomination: Option<Nomination>,
}

/// A successor whose name is not written in the record yet.
#[derive(Clone, Debug)]
pub(super) struct Nomination {
    pub(super) successor: Successor,
    pub(super) pace: Pace,
}

/// A lease that may still be ours, though we hold it no more: to be released, once (R8).
#[derive(Clone, Debug)]
pub(super) struct Owed {
    pub(super) bid: Bid,
    /// Since when we say passive.
    pub(super) since: Moment,
    /// Whether every publisher says so too.
    pub(super) announced: bool,
    /// From when and for how long clients may still act on an answer, after a lapse: from the sending
    /// of the last granted request for the whole lease-duration, or from a drain's begin for its
    /// length. Clients count by clocks of their own, for whose drift the margin is, so the release
    /// waits until that time is over by the slower clock. No later command shortens it.
    pub(super) promised: Option<(Moment, Duration)>,
    /// Whether this instance has resigned since. It then waits for at most two request-timeouts, and
    /// leaves a lease that lasts longer to run out.
    pub(super) leaving: bool,
    /// When to try again, after a try whose outcome is unknown.
    pub(super) pace: Pace,
}

impl Role {
    pub(super) fn tenure(&self) -> Option<&Tenure> {
        match self {
            Self::Activating(it) => Some(&it.tenure),
            Self::Leader(it) => Some(&it.tenure),
            Self::Draining(it) => Some(&it.tenure),
            Self::Standby { .. } | Self::Resigned => None,
        }
    }

    pub(super) fn tenure_mut(&mut self) -> Option<&mut Tenure> {
        match self {
            Self::Activating(it) => Some(&mut it.tenure),
            Self::Leader(it) => Some(&mut it.tenure),
            Self::Draining(it) => Some(&mut it.tenure),
            Self::Standby { .. } | Self::Resigned => None,
        }
    }

    /// What to ask next, if it is time.
    pub(super) fn next_request(&self, now: Moment) -> Option<Op> {
        if !self.until_next_request(now).is_zero() {
            return None;
        }
        match self {
            Self::Standby { bidding: None, .. } => Some(Op::Look),
            Self::Standby { bidding: Some(it), .. } => Some(Op::Acquire(it.bid.clone())),
            Self::Activating(it) if !it.tenure.renewal.due(now) => {
                Some(Op::Inaugurate { bid: it.tenure.bid.clone(), floor: it.floor })
            }
            Self::Draining(Draining { tenure, nomination: Some(it), .. })
                if !tenure.renewal.due(now) =>
            {
                Some(Op::Nominate { bid: tenure.bid.clone(), successor: it.successor.clone() })
            }
            _ => self.tenure().map(|it| Op::Renew(it.bid.clone())),
        }
    }

    /// How long until there is something to ask.
    pub(super) fn until_next_request(&self, now: Moment) -> Duration {
        match self {
            Self::Standby { looks, bidding: None } => looks.left(now),
            Self::Standby { bidding: Some(it), .. } => it.pace.left(now),
            Self::Activating(it) => it.tenure.renewal.left(now).min(it.until_write(now)),
            Self::Leader(it) => it.tenure.renewal.left(now),
            Self::Draining(it) => {
                let naming = it.nomination.as_ref().map(|it| it.pace.left(now));
                it.tenure.renewal.left(now).min(naming.unwrap_or(Duration::MAX))
            }
            Self::Resigned => Duration::MAX,
        }
    }
}

impl Bidding {
    /// Whether the bid was unknown for so long that it is given up (R5).
    pub(super) fn is_over(&self, now: Moment, lease_duration: Duration) -> bool {
        self.first_sent.elapsed_max(now) >= lease_duration
    }
}

impl Tenure {
    /// Whether its deadline has passed (R6). A jump of the clocks alone does not end it (R10).
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.belief.until_end(now).is_zero()
    }
}

impl Activating {
    /// Starts the hold anew if a clock went back behind its start: it is long enough from now on,
    /// and the clock may take hours to come back.
    pub(super) fn restart_if_back(&mut self, now: Moment) {
        if went_back(self.granted, now) {
            self.granted = now;
        }
    }

    /// How long until the term may be written, or written again.
    fn until_write(&self, now: Moment) -> Duration {
        self.hold.saturating_sub(self.granted.elapsed_min(now)).max(self.write.left(now))
    }

    /// Whether the term could not be written for so long that the lease is given up: a candidate
    /// that may lease but not write must not block all others (R5).
    pub(super) fn write_is_over(&self, now: Moment, lease_duration: Duration) -> bool {
        self.first_write.is_some_and(|first| first.elapsed_max(now) >= lease_duration)
    }
}

impl Draining {
    /// Starts the drain anew if a clock went back behind its start, as a hold does.
    pub(super) fn restart_if_back(&mut self, now: Moment) {
        if went_back(self.began, now) {
            self.began = now;
        }
    }

    /// How long until the lease may be given back: until the service has ended its work or its time
    /// is up. A name that is still to be written has a `grace`, and a process that lives has it
    /// after that time, in which the lease is renewed too.
    pub(super) fn left(&self, now: Moment, occupied: bool, grace: Duration) -> Duration {
        let work = if self.drained { Duration::ZERO } else { self.length };
        let naming = if self.nomination.is_some() { grace } else { Duration::ZERO };
        let living = if occupied { self.length + grace } else { Duration::ZERO };
        work.max(naming).max(living).saturating_sub(self.began.elapsed_min(now))
    }
}

impl Owed {
    /// Starts the wait anew if a clock went back behind its start, as a hold does.
    pub(super) fn restart_if_back(&mut self, now: Moment) {
        if went_back(self.since, now) {
            self.since = now;
        }
    }

    /// Limits the wait after a resignation. The end of the promise stays where it is.
    pub(super) fn leave(&mut self, now: Moment) {
        self.leaving = true;
        if self.promised.is_some() {
            self.since = now;
        }
    }

    /// Returns how long clients may still act on an answer, by the slower clock.
    pub(super) fn promise_left(&self, now: Moment) -> Duration {
        self.promised
            .map_or(Duration::ZERO, |(from, length)| length.saturating_sub(from.elapsed_min(now)))
    }

    /// From when the release is due, how long its promise lasts yet.
    pub(super) fn promise_at_start(&self) -> Duration {
        self.promised.map_or(Duration::ZERO, |(from, length)| {
            length.saturating_sub(from.elapsed_max(self.since))
        })
    }

    /// Returns what is left of the `patience` with publishers that have not said passive.
    pub(super) fn announcing_left(&self, now: Moment, patience: Duration) -> Duration {
        if self.announced {
            return Duration::ZERO;
        }
        patience.saturating_sub(self.since.elapsed_min(now))
    }

    /// How long until the release may be sent, or sent again: not before all say passive, for
    /// which it waits for at most `patience`, nor while anybody may act on an answer of ours.
    pub(super) fn left(&self, now: Moment, patience: Duration) -> Duration {
        let announcing = self.announcing_left(now, patience);
        announcing.max(self.promise_left(now)).max(self.pace.left(now))
    }
}
