//! What the election says of itself at one instant: a value that carries its own end.
//!
//! What it does not hold: the words of the outside (active, passive, JSON, dates). Those are
//! [`crate::publish`]'s.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::store::{Candidate, StoreError};

/// The election as it stands after one turn of the driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Where we stand.
    pub standing: Standing,
    /// Since when we stand there; leader and jeopardy count as one.
    pub since: Moment,
    /// Who was last seen to hold the lease, ourselves included; `None` if unknown or free.
    pub holder: Option<Holder>,
    /// How the store has answered.
    pub store: StoreHealth,
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

    /// Our term, while we lead.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        match self.standing {
            Standing::Leader { term, .. } => Some(term),
            _ => None,
        }
    }

    /// The state's name at `now`: a leader whose belief is over is in jeopardy, even if the
    /// election has not turned since.
    #[must_use]
    pub fn state(&self, now: Moment) -> State {
        match &self.standing {
            Standing::Starting => State::Starting,
            Standing::Standby => State::Standby,
            Standing::Activating => State::Activating,
            Standing::Leader { jeopardy: false, .. } if self.is_leader(now) => State::Leader,
            Standing::Leader { .. } => State::Jeopardy,
            Standing::Observing => State::Observing,
            Standing::Stopped => State::Stopped,
        }
    }
}

/// The names of the states, for status, metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Never competes.
    Observing,
    /// Has resigned.
    Stopped,
}

impl State {
    /// All of them, for metrics whose series exist from the start.
    pub const ALL: [Self; 7] = [
        Self::Starting,
        Self::Standby,
        Self::Activating,
        Self::Leader,
        Self::Jeopardy,
        Self::Observing,
        Self::Stopped,
    ];

    /// The state's name outside.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Activating => "activating",
            Self::Leader => "leader",
            Self::Jeopardy => "jeopardy",
            Self::Observing => "observing",
            Self::Stopped => "stopped",
        }
    }
}

/// Why the state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The store was heard for the first time.
    Heard,
    /// The lease was granted.
    Granted,
    /// The term was written under the lease.
    Inaugurated,
    /// A renewal's outcome is unknown.
    RenewalFailed,
    /// The clocks jumped (R10).
    ClockJumped,
    /// A renewal was granted again.
    Renewed,
    /// The deadline passed (R6).
    Lapsed,
    /// The store says that the lease is not ours.
    Lost,
    /// The term could not be written.
    WriteFailed,
    /// By will: a signal.
    Resigned,
}

impl Reason {
    /// The reason as a metric label and a log field.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Heard => "heard",
            Self::Granted => "granted",
            Self::Inaugurated => "inaugurated",
            Self::RenewalFailed => "renewal-failed",
            Self::ClockJumped => "clock-jumped",
            Self::Renewed => "renewed",
            Self::Lapsed => "lapsed",
            Self::Lost => "lost",
            Self::WriteFailed => "write-failed",
            Self::Resigned => "resigned",
        }
    }
}

/// One change of state, for the log and the metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// Why.
    pub reason: Reason,
    /// The term that began, goes on, or ended.
    pub term: Option<u64>,
    /// How long the tenure was, when one ended.
    pub tenure: Option<Duration>,
}
