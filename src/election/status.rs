//! What the election says of itself at one instant: a value that carries its own end.
//!
//! What it does not hold: the words of the outside (active, passive, JSON, dates). Those are
//! [`crate::publish`]'s.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Candidate, StoreError, Successor};

/// The election as it stands after one turn of the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Where we stand.
    pub standing: Standing,
    /// Since when we stand there; leader and jeopardy count as one.
    pub since: Moment,
    /// Who was last seen to hold the lease, ourselves included; `None` if unknown or free.
    pub holder: Option<Holder>,
    /// Whom the record names to lead next.
    pub successor: Option<Successor>,
    /// For how long we let others go first, after a leadership that we gave up.
    pub aside: Option<HoldOff>,
    /// The term whose processes may still run, whether or not we lead in it; always `None` where the
    /// config says that there are none.
    pub occupied: Option<u64>,
    /// How the store has answered.
    pub store: StoreHealth,
}

/// How long a candidate does not bid after it gave leadership up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldOff {
    /// How long in all.
    pub length: Duration,
    /// Since when it counts: our first look that showed the lease free, or another's.
    pub from: Option<Moment>,
}

impl HoldOff {
    /// What is left at `now`.
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        self.length.saturating_sub(self.from.map_or(Duration::ZERO, |from| from.elapsed_min(now)))
    }
}

/// Where a candidate stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// The store has not been heard yet.
    Starting,
    /// Competes, without the lease.
    Standby,
    /// Has the lease, and is not leader yet: R11's hold, the activation delay, the term's write.
    Activating,
    /// Leads in a term for as long as the belief lasts.
    Leader {
        /// The fencing token.
        term: u64,
        /// Until when we may say so.
        belief: Belief,
        /// Whether renewals fail.
        jeopardy: bool,
    },
    /// Leads no more, by will, and renews until the service has ended its work.
    Draining {
        /// The fencing token of that work.
        term: u64,
        /// How long the lease still protects it.
        belief: Belief,
        /// Since when.
        began: Moment,
        /// How long the service may take: the drain-timeout.
        length: Duration,
    },
    /// Takes no part until an operator has it resume.
    Paused,
    /// Takes no part until the service beside it is well.
    Unhealthy,
    /// Never competes (`--observe`).
    Observing,
    /// Has resigned for good.
    Stopped,
}

/// Until when a leader may believe in its lease: a start and a length, never one number, so that
/// it is judged by two advances at each question (R1, R2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// When the last granted request was sent.
    pub sent: Moment,
    /// How long from then: the renew-deadline.
    pub length: Duration,
    /// A jump of the clocks was seen: nothing is left until a later request is granted (R10).
    pub suspended: bool,
}

impl Belief {
    /// What is left of the belief at `now`; zero after a jump of the clocks (R10).
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        if self.suspended || self.sent.jumped(now) { Duration::ZERO } else { self.until_end(now) }
    }

    /// What is left by the lease clocks alone: at zero the tenure is over (R6).
    #[must_use]
    pub fn until_end(&self, now: Moment) -> Duration {
        self.length.saturating_sub(self.sent.elapsed_max(now))
    }
}

/// Who holds the lease, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The holder.
    pub candidate: Arc<Candidate>,
    /// Its term.
    pub term: u64,
}

/// How the store has answered.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct StoreHealth {
    /// When the last answer came that was no failure; a refusal is an answer.
    pub last_success: Option<Moment>,
    /// Failures since then.
    pub failures: u32,
    /// The last failure, until the next success.
    pub last_error: Option<Arc<StoreError>>,
}

impl Status {
    /// What is left of our leadership at `now`: the only question (R1).
    #[must_use]
    pub fn remaining(&self, now: Moment) -> Duration {
        match &self.standing {
            Standing::Leader { belief, .. } => belief.remaining(now),
            _ => Duration::ZERO,
        }
    }

    /// Whether we lead at `now`.
    #[must_use]
    pub fn is_leader(&self, now: Moment) -> bool {
        !self.remaining(now).is_zero()
    }

    /// How long work begun as leader stays protected at `now`: the drain's time-out or the lease's
    /// belief, whichever ends first; `None` where nothing is drained.
    #[must_use]
    pub fn drain_remaining(&self, now: Moment) -> Option<Duration> {
        match &self.standing {
            Standing::Draining { belief, began, length, .. } => {
                Some(length.saturating_sub(began.elapsed_max(now)).min(belief.remaining(now)))
            }
            _ => None,
        }
    }

    /// Our term, while we lead, or end the work of having led.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.standing.term()
    }

    /// The state at `now`: a leader whose belief is over is in jeopardy, even if the election has
    /// not turned since.
    #[must_use]
    pub fn state(&self, now: Moment) -> State {
        match self.standing.state() {
            State::Leader if !self.is_leader(now) => State::Jeopardy,
            state => state,
        }
    }
}

impl Standing {
    /// The term, while leading or draining.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        match self {
            Self::Leader { term, .. } | Self::Draining { term, .. } => Some(*term),
            _ => None,
        }
    }

    /// The state that the election saw itself in when it last turned.
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

/// The names of the states, for status, metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// The store has not been heard yet.
    Starting,
    /// Competes, without the lease.
    Standby,
    /// Has the lease, not leader yet.
    Activating,
    /// Leads.
    Leader,
    /// Leads, but renewals fail or the clocks jumped.
    Jeopardy,
    /// Leads no more, and renews until the service has ended its work.
    Draining,
    /// Takes no part, by an operator's will.
    Paused,
    /// Takes no part, since the service is not well.
    Unhealthy,
    /// Never competes.
    Observing,
    /// Has resigned.
    Stopped,
}

impl State {
    /// All of them, for metrics whose series exist from the start.
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

    /// Whether this is leading, for as long as the belief lasts.
    #[must_use]
    pub fn is_leading(self) -> bool {
        matches!(self, Self::Leader | Self::Jeopardy)
    }

    /// The state's name outside.
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
