//! The status of the election at one instant: a value that carries its own end. It has no active or
//! passive, no JSON and no dates; those belong to [`crate::publish`].

use std::sync::Arc;
use std::time::Duration;

use super::hold_off::HoldOff;
use super::lease_view::LeaseView;
use super::store_health::StoreHealth;
use super::wait::Wait;
use crate::clock::Moment;
use crate::lease::{Candidate, Nonce, Successor};

/// The status of the election after one turn of the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The state of this candidate, with its data.
    pub standing: Standing,
    /// Since when; leader and jeopardy count as one.
    pub since: Moment,
    /// The last holder seen, which may be this candidate; `None` if unknown or free.
    pub holder: Option<Holder>,
    /// The successor that the record names, or that a draining leader is to write there.
    pub successor: Option<Successor>,
    /// The hold-off after a leadership that was given up.
    pub hold_off: Option<HoldOff>,
    /// The term whose processes may still run, whether or not this candidate leads in it; always
    /// `None` where the config says that there are no processes.
    pub workload_term: Option<u64>,
    /// The term of this candidate's last leadership, once the store has confirmed its release; `None`
    /// from the next acquisition on.
    pub released_term: Option<u64>,
    /// For how long after its last answer the store is not read, since the leader notifies this
    /// candidate, or the store reports renewals; `None` if it is read as without that.
    pub contact_due: Option<Duration>,
    /// What was seen of the lease and its holders.
    pub lease: LeaseView,
    /// The health of the store.
    pub store: StoreHealth,
    /// The bound of the wait for the first lease; `None` if it has none, or is over with a lease.
    pub wait: Option<Wait>,
}

/// The state of a candidate, with the data that publishers need.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// The store has not been contacted yet.
    Starting,
    /// Competes, without the lease.
    Standby,
    /// Holds the lease, and does not lead yet: R11's hold, the activation delay, the write of the
    /// term.
    Activating,
    /// Leads in a term for as long as the belief lasts.
    Leader {
        /// The fencing token.
        term: u64,
        /// Until when this candidate may report active.
        belief: Belief,
        /// Whether renewals fail.
        jeopardy: bool,
    },
    /// Has stopped leading voluntarily, and renews until the service has finished its work.
    Draining {
        /// The fencing token of that work.
        term: u64,
        /// How long the lease still protects it.
        belief: Belief,
        /// The start of the drain.
        began: Moment,
        /// How long the service may take: drain-timeout.
        length: Duration,
    },
    /// Does not compete until an operator resumes it.
    Paused,
    /// Does not compete until the service is healthy, and no maintenance of the machine is imminent.
    Unhealthy,
    /// Never competes (`--observe`).
    Observing,
    /// Has resigned for good.
    Stopped,
}

/// Until when a leader may believe in its lease: a start and a length, never one number, so that it
/// can be evaluated by the advances of two clocks on each question (R1, R2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// When the last granted request was sent.
    pub sent: Moment,
    /// The length from then: renew-deadline.
    pub length: Duration,
    /// Whether a clock jump was detected: nothing is left until a later request is granted (R10).
    pub suspended: bool,
}

impl Belief {
    /// Returns what is left of the belief at `now`; zero after a clock jump (R10).
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        if self.suspended || self.sent.jumped(now) { Duration::ZERO } else { self.until_end(now) }
    }

    /// Returns what is left by the lease clocks alone; at zero the leadership is over (R6).
    #[must_use]
    #[inline]
    pub fn until_end(&self, now: Moment) -> Duration {
        self.length.saturating_sub(self.sent.elapsed_max(now))
    }
}

/// A holder of the lease, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The candidate.
    pub candidate: Arc<Candidate>,
    /// Its term.
    pub term: u64,
    /// The acquisition that wrote the record, which only those know who can read it.
    pub nonce: Option<Nonce>,
}

impl Status {
    /// Returns what is left of the leadership at `now`; every decision to be active rests on this
    /// (R1).
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        match &self.standing {
            Standing::Leader { belief, .. } => belief.remaining(now),
            _ => Duration::ZERO,
        }
    }

    /// Returns how much longer work of the current term may run at `now`, by the lease clocks alone:
    /// until the belief is over, and in a drain also until drain-timeout is. A jump of the clocks
    /// suspends the leadership, but stops no work that a later renewal would let go on (R10).
    #[must_use]
    pub fn work_remaining(&self, now: Moment) -> Duration {
        match &self.standing {
            Standing::Leader { belief, .. } => belief.until_end(now),
            Standing::Draining { belief, .. } => {
                self.drain_remaining(now).unwrap_or_default().min(belief.until_end(now))
            }
            _ => Duration::ZERO,
        }
    }

    /// Returns for how long the belief has been over at `now`, if this status is of a leader; else
    /// zero.
    #[must_use]
    pub fn expired_for(&self, now: Moment) -> Duration {
        match &self.standing {
            Standing::Leader { belief, .. } => {
                belief.sent.elapsed_max(now).saturating_sub(belief.length)
            }
            _ => Duration::ZERO,
        }
    }

    /// Returns whether this candidate leads at `now`.
    #[must_use]
    #[inline]
    pub fn is_leader(&self, now: Moment) -> bool {
        !self.remaining(now).is_zero()
    }

    /// Returns what is left of drain-timeout at `now`; `None` without a drain.
    #[must_use]
    #[inline]
    pub fn drain_remaining(&self, now: Moment) -> Option<Duration> {
        match &self.standing {
            Standing::Draining { began, length, .. } => {
                Some(length.saturating_sub(began.elapsed_max(now)))
            }
            _ => None,
        }
    }

    /// Returns how long the lease still protects the work of a drain at `now` if no renewal follows;
    /// `None` without a drain.
    #[must_use]
    pub fn protected_for(&self, now: Moment) -> Option<Duration> {
        match &self.standing {
            Standing::Draining { belief, .. } => Some(belief.remaining(now)),
            _ => None,
        }
    }

    /// Returns the term while this candidate leads or drains.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.standing.term()
    }

    /// Returns the state at `now`: a leader whose belief is over is in jeopardy, even if the
    /// election has not turned since.
    #[must_use]
    pub fn state(&self, now: Moment) -> State {
        match self.standing.state() {
            State::Leader if !self.is_leader(now) => State::Jeopardy,
            state => state,
        }
    }
}

impl Standing {
    /// Returns the term while leading or draining.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        match self {
            Self::Leader { term, .. } | Self::Draining { term, .. } => Some(*term),
            _ => None,
        }
    }

    /// Returns the state as of the election's last turn.
    #[must_use]
    pub fn state(&self) -> State {
        match self {
            Self::Starting => State::Starting,
            Self::Standby => State::Standby,
            Self::Activating => State::Activating,
            Self::Leader { jeopardy: false, .. } => State::Leader,
            Self::Leader { jeopardy: true, .. } => State::Jeopardy,
            Self::Draining { .. } => State::Draining,
            Self::Paused => State::Paused,
            Self::Unhealthy => State::Unhealthy,
            Self::Observing => State::Observing,
            Self::Stopped => State::Stopped,
        }
    }
}

/// The states, for status, metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// The store has not been contacted yet.
    Starting,
    /// Competes, without the lease.
    Standby,
    /// Holds the lease, and does not lead yet.
    Activating,
    /// Leads.
    Leader,
    /// Leads, but renewals fail or the clocks jumped.
    Jeopardy,
    /// No longer leads, and renews until the service has finished its work.
    Draining,
    /// Does not compete, paused by an operator.
    Paused,
    /// Does not compete, since the service is unhealthy or maintenance of the machine is imminent.
    Unhealthy,
    /// Never competes.
    Observing,
    /// Has resigned for good.
    Stopped,
}

impl State {
    /// All states, for metrics whose series exist from the start.
    #[doc(hidden)]
    pub const ALL: [Self; 10] = [
        Self::Starting,
        Self::Standby,
        Self::Activating,
        Self::Leader,
        Self::Jeopardy,
        Self::Draining,
        Self::Paused,
        Self::Unhealthy,
        Self::Observing,
        Self::Stopped,
    ];

    /// Returns whether this is a state of leading, for as long as the belief lasts.
    #[must_use]
    pub fn is_leading(self) -> bool {
        matches!(self, Self::Leader | Self::Jeopardy)
    }

    /// Returns the name of the state in documents, metrics and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Activating => "activating",
            Self::Leader => "leader",
            Self::Jeopardy => "jeopardy",
            Self::Draining => "draining",
            Self::Paused => "paused",
            Self::Unhealthy => "unhealthy",
            Self::Observing => "observing",
            Self::Stopped => "stopped",
        }
    }
}
