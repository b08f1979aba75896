//! The roles of a candidate, and the data of each. Roles change only in the `become_*` methods of
//! [`super::Election`].

use std::sync::Arc;
use std::time::Duration;

use super::request::Op;
use super::retry::RetryTimer;
use super::status::Belief;
use super::wakeup::Hints;
use crate::clock::Moment;
use crate::lease::{Bid, Successor};

/// The role of a candidate.
///
/// ```text
///            granted            term written         voluntarily
///  Standby ───────────> Activating ───────────> Leader ───────> Draining
///     ^   <───────────────────┘ <──────────────────┘ <─────────────┘     lapsed, lost, drained
///     └── each of the four ──> Resigned                                  voluntarily, for good
/// ```
#[derive(Clone, Debug)]
pub(super) enum Role {
    /// Reads the store, and bids for a lease that it has seen free.
    Standby {
        /// When to read next.
        next_read: RetryTimer,
        /// The bid whose outcome is not known yet.
        bidding: Option<Bidding>,
    },
    /// Holds the lease, and may not lead yet.
    Activating(Activating),
    /// Leads, as long as the belief lasts.
    Leader(Leader),
    /// No longer leads, and renews until the service has finished its work.
    Draining(Draining),
    /// Has left the election for good.
    Resigned,
}

/// A bid that was sent, and is repeated with its id until its outcome is known (R5).
#[derive(Clone, Debug)]
pub(super) struct Bidding {
    pub(super) bid: Arc<Bid>,
    /// When the bid was first sent, which becomes the grant's `sent`, whichever request is
    /// answered.
    pub(super) first_sent: Moment,
    /// Whether a request of the bid has ended that may have had an effect.
    pub(super) may_be_granted: bool,
    pub(super) retry: RetryTimer,
}

/// A lease that this candidate holds, from its grant to its end.
#[derive(Clone, Debug)]
pub(super) struct HeldLease {
    pub(super) bid: Arc<Bid>,
    pub(super) belief: Belief,
    pub(super) renewal: RetryTimer,
    /// What limits the renewals that wake-ups bring forward.
    pub(super) hints: Hints,
}

/// The role between the grant and the write of the term.
#[derive(Clone, Debug)]
pub(super) struct Activating {
    pub(super) held: HeldLease,
    /// When the answer to the grant arrived: the hold counts from there (R2).
    pub(super) granted: Moment,
    /// How long to hold the lease before the term is written (R11, activation delay).
    pub(super) hold: Duration,
    /// Whether that is for an earlier leader (R11), and not the activation delay.
    pub(super) for_earlier: bool,
    /// The least term.
    pub(super) floor: u64,
    pub(super) write: RetryTimer,
    /// When the write of the term was first sent.
    pub(super) first_write: Option<Moment>,
}

/// The role from the write of the term to the end of the leadership.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    pub(super) held: HeldLease,
    pub(super) term: u64,
    pub(super) since: Moment,
    /// Whether the last renewal failed.
    pub(super) jeopardy: bool,
}

/// The role from the end of active to the release of the lease, which is renewed meanwhile to
/// protect work that began under the leadership.
#[derive(Clone, Debug)]
pub(super) struct Draining {
    pub(super) held: HeldLease,
    pub(super) term: u64,
    /// The start of the leadership.
    pub(super) since: Moment,
    /// Since when this candidate reports passive.
    pub(super) began: Moment,
    /// How long the service may take to finish its work.
    pub(super) length: Duration,
    /// Whether the service has reported that its work is finished.
    pub(super) drained: bool,
    /// Whether every publisher has acknowledged passive.
    pub(super) publish_acked: bool,
    /// Whether the candidate leaves the election for good afterwards.
    pub(super) resigning: bool,
    /// The successor to write to the record, until it is written.
    pub(super) pending_successor: Option<PendingSuccessor>,
}

/// A successor that is not written to the record yet.
#[derive(Clone, Debug)]
pub(super) struct PendingSuccessor {
    pub(super) successor: Successor,
    pub(super) retry: RetryTimer,
}

/// A pending release: a lease that this candidate may still hold in the store, and no longer uses
/// (R8).
#[derive(Clone, Debug)]
pub(super) struct PendingRelease {
    pub(super) bid: Arc<Bid>,
    /// Whether the lease may be held by a request that has ended, and not only by the one in flight.
    pub(super) may_be_held: bool,
    /// The term of the leadership that the release ends; `None` if there was none.
    pub(super) term: Option<u64>,
    /// Since when this candidate reports passive.
    pub(super) since: Moment,
    /// Whether every publisher has acknowledged passive.
    pub(super) publish_acked: bool,
    /// The start and length of the time for which clients may still act on an answer, after a
    /// lapse: from the sending of the last granted request for the whole lease-duration, or from the
    /// start of a drain for its length. Clients count by clocks of their own, for whose drift the
    /// margin exists, so the release waits until that time is over by the slower clock. No later
    /// command shortens it.
    pub(super) client_window: Option<(Moment, Duration)>,
    /// Whether this instance has resigned since. It then waits for at most two request-timeouts, and
    /// leaves a lease that lasts longer to run out.
    pub(super) resigned: bool,
    /// When to retry, after a release whose outcome is unknown.
    pub(super) retry: RetryTimer,
}

impl Role {
    pub(super) fn held_lease(&self) -> Option<&HeldLease> {
        match self {
            Self::Activating(it) => Some(&it.held),
            Self::Leader(it) => Some(&it.held),
            Self::Draining(it) => Some(&it.held),
            Self::Standby { .. } | Self::Resigned => None,
        }
    }

    pub(super) fn held_lease_mut(&mut self) -> Option<&mut HeldLease> {
        match self {
            Self::Activating(it) => Some(&mut it.held),
            Self::Leader(it) => Some(&mut it.held),
            Self::Draining(it) => Some(&mut it.held),
            Self::Standby { .. } | Self::Resigned => None,
        }
    }

    /// Returns the bid whose outcome is not known yet, or whose lease is held.
    pub(super) fn bid_mut(&mut self) -> Option<&mut Arc<Bid>> {
        match self {
            Self::Standby { bidding, .. } => bidding.as_mut().map(|it| &mut it.bid),
            _ => self.held_lease_mut().map(|it| &mut it.bid),
        }
    }

    /// Returns the successor that is to be written to the record, if any.
    pub(super) fn successor_to_write(&self) -> Option<&Successor> {
        let Self::Draining(it) = self else { return None };
        it.pending_successor.as_ref().map(|it| &it.successor)
    }

    /// Returns the operation that is due, if any.
    pub(super) fn next_request(&self, now: Moment) -> Option<Op> {
        if !self.until_next_request(now).is_zero() {
            return None;
        }
        match self {
            Self::Standby { bidding: None, .. } => Some(Op::Read),
            Self::Standby { bidding: Some(it), .. } => Some(Op::Acquire(it.bid.clone())),
            Self::Activating(it) if it.writes_next(now) => {
                Some(Op::WriteTerm { bid: it.held.bid.clone(), floor: it.floor })
            }
            Self::Draining(Draining { held, pending_successor: Some(it), .. })
                if !held.renewal.due(now) =>
            {
                Some(Op::SetSuccessor { bid: held.bid.clone(), successor: it.successor.clone() })
            }
            _ => self.held_lease().map(|it| Op::Renew(it.bid.clone())),
        }
    }

    /// Returns how long until an operation is due.
    pub(super) fn until_next_request(&self, now: Moment) -> Duration {
        match self {
            Self::Standby { next_read, bidding: None } => next_read.left(now),
            Self::Standby { bidding: Some(it), .. } => it.retry.left(now),
            Self::Activating(it) => it.held.renewal.left(now).min(it.until_write(now)),
            Self::Leader(it) => it.held.renewal.left(now),
            Self::Draining(it) => {
                let naming = it.pending_successor.as_ref().map(|it| it.retry.left(now));
                it.held.renewal.left(now).min(naming.unwrap_or(Duration::MAX))
            }
            Self::Resigned => Duration::MAX,
        }
    }
}

impl Bidding {
    /// Returns whether the bid has been unknown for so long that it is given up (R5).
    pub(super) fn is_over(&self, now: Moment, lease_duration: Duration) -> bool {
        self.first_sent.elapsed_max(now) >= lease_duration
    }
}

impl HeldLease {
    /// Returns whether the deadline has passed (R6). A clock jump alone does not end a leadership
    /// (R10).
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.belief.until_end(now).is_zero()
    }
}

impl Activating {
    /// Restarts the hold if a clock went back behind its start: a full hold from now is long
    /// enough, and the clock may take hours to catch up.
    pub(super) fn restart_if_back(&mut self, now: Moment) {
        if self.granted.went_back(now) {
            self.granted = now;
        }
    }

    /// Returns how long until the term may be written, or the write retried.
    fn until_write(&self, now: Moment) -> Duration {
        self.hold.saturating_sub(self.granted.elapsed_min(now)).max(self.write.left(now))
    }

    /// Returns whether the term is written before the lease is renewed: what has been due for longer
    /// goes first, or a store that takes longer than the retry-period would never be given the term.
    fn writes_next(&self, now: Moment) -> bool {
        let write_first = self.write.overdue(now) >= self.held.renewal.overdue(now);
        self.until_write(now).is_zero() && write_first
    }

    /// Returns whether the write of the term has failed for so long that the lease is given up. A
    /// candidate that can acquire the lease but not write must not block all others (R5).
    pub(super) fn write_is_over(&self, now: Moment, lease_duration: Duration) -> bool {
        self.first_write.is_some_and(|first| first.elapsed_max(now) >= lease_duration)
    }
}

impl Draining {
    /// Restarts the drain if a clock went back behind its start, as for a hold.
    pub(super) fn restart_if_back(&mut self, now: Moment) {
        if self.began.went_back(now) {
            self.began = now;
        }
    }

    /// Returns how long until the lease may be released: until the service has finished its work,
    /// or its time is over. The write of a successor is given `grace` at least; a process that
    /// still lives is given `grace` beyond the drain's length. The lease is renewed meanwhile.
    pub(super) fn left(&self, now: Moment, workload_term: bool, grace: Duration) -> Duration {
        let work = if self.drained { Duration::ZERO } else { self.length };
        let naming = if self.pending_successor.is_some() { grace } else { Duration::ZERO };
        let living = if workload_term { self.length + grace } else { Duration::ZERO };
        work.max(naming).max(living).saturating_sub(self.began.elapsed_min(now))
    }
}

impl PendingRelease {
    /// Restarts the wait if a clock went back behind its start, as for a hold.
    pub(super) fn restart_if_back(&mut self, now: Moment) {
        if self.since.went_back(now) {
            self.since = now;
        }
    }

    /// Limits the wait after a resignation. The end of that time stays where it is.
    pub(super) fn leave(&mut self, now: Moment) {
        self.resigned = true;
        if self.client_window.is_some() {
            self.since = now;
        }
    }

    /// Returns how long clients may still act on an answer, by the slower clock.
    pub(super) fn client_window_left(&self, now: Moment) -> Duration {
        self.client_window
            .map_or(Duration::ZERO, |(from, length)| length.saturating_sub(from.elapsed_min(now)))
    }

    /// Returns how much of the time for which clients may act on an answer was left when the
    /// release became pending.
    pub(super) fn client_window_at_start(&self) -> Duration {
        self.client_window.map_or(Duration::ZERO, |(from, length)| {
            length.saturating_sub(from.elapsed_max(self.since))
        })
    }

    /// Returns what is left of the `patience` with publishers that have not acknowledged passive.
    pub(super) fn publish_wait_left(&self, now: Moment, patience: Duration) -> Duration {
        if self.publish_acked {
            return Duration::ZERO;
        }
        patience.saturating_sub(self.since.elapsed_min(now))
    }

    /// Returns how long until the release may be sent or retried: not before all publishers have
    /// acknowledged passive, for at most `patience`, and not while clients may still act on an
    /// answer.
    pub(super) fn left(&self, now: Moment, patience: Duration) -> Duration {
        let announcing = self.publish_wait_left(now, patience);
        announcing.max(self.client_window_left(now)).max(self.retry.left(now))
    }
}
