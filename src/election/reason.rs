//! Transitions: every possible change of state, with its reason.

use std::time::Duration;

use super::status::State;

/// Why the state changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The store was contacted for the first time.
    StoreReached,
    /// The lease was granted.
    Acquired,
    /// The term was written under the lease.
    TermWritten,
    /// The outcome of a renewal is unknown.
    RenewalFailed,
    /// The clocks jumped (R10).
    ClockJumped,
    /// A renewal was granted again.
    Renewed,
    /// The deadline passed (R6).
    Lapsed,
    /// The store answered that the lease is not held by this candidate.
    Lost,
    /// The term could not be written.
    WriteFailed,
    /// Voluntary: this candidate leaves the election for good.
    Resigned,
    /// Voluntary: an operator asked for a step-down.
    SteppedDown,
    /// Voluntary: an operator asked for a transfer to a successor.
    Transferred,
    /// Voluntary: an operator paused this candidate.
    Paused,
    /// An operator resumed this candidate.
    Resumed,
    /// The service became unhealthy.
    Unhealthy,
    /// The service became healthy.
    Recovered,
    /// Maintenance of the machine is imminent, or has begun.
    Maintenance,
    /// The maintenance of the machine is over, or was cancelled.
    MaintenanceOver,
    /// The processes of the term exited by themselves.
    ChildEnded,
    /// The service reported that its work is finished.
    Drained,
    /// The drain timed out.
    DrainOver,
}

impl Reason {
    /// Returns the reason with this name; `None` if there is none.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        TRANSITIONS.iter().map(|(_, _, reason)| *reason).find(|it| it.as_str() == name)
    }

    /// Returns the reason as a metric label and a log field.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::StoreReached => "store-reached",
            Self::Acquired => "acquired",
            Self::TermWritten => "term-written",
            Self::RenewalFailed => "renewal-failed",
            Self::ClockJumped => "clock-jumped",
            Self::Renewed => "renewed",
            Self::Lapsed => "lapsed",
            Self::Lost => "lost",
            Self::WriteFailed => "write-failed",
            Self::Resigned => "resigned",
            Self::SteppedDown => "stepped-down",
            Self::Transferred => "transferred",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Unhealthy => "unhealthy",
            Self::Recovered => "recovered",
            Self::Maintenance => "maintenance",
            Self::MaintenanceOver => "maintenance-over",
            Self::ChildEnded => "child-ended",
            Self::Drained => "drained",
            Self::DrainOver => "drain-over",
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
    /// The reason.
    pub reason: Reason,
    /// The term that began, continues, or ended.
    pub term: Option<u64>,
    /// How long the leadership lasted, if one ended.
    pub leadership: Option<Duration>,
}

impl Transition {
    /// Returns whether the candidate leads no longer after it.
    #[must_use]
    pub fn ends_activity(&self) -> bool {
        self.from.is_leading() && !self.to.is_leading()
    }

    /// Returns whether it ends a leadership involuntarily.
    #[must_use]
    pub fn is_involuntary_loss(&self) -> bool {
        matches!(self.reason, Reason::Lapsed | Reason::Lost) && self.from.is_leading()
    }
}

/// Every possible change of state.
pub const TRANSITIONS: [(State, State, Reason); 75] = {
    use Reason as R;
    use State as S;
    [
        (S::Starting, S::Standby, R::StoreReached),
        (S::Starting, S::Observing, R::StoreReached),
        (S::Starting, S::Paused, R::StoreReached),
        (S::Starting, S::Unhealthy, R::StoreReached),
        (S::Starting, S::Stopped, R::Resigned),
        (S::Observing, S::Stopped, R::Resigned),
        (S::Standby, S::Activating, R::Acquired),
        (S::Standby, S::Paused, R::Paused),
        (S::Standby, S::Unhealthy, R::Unhealthy),
        (S::Standby, S::Unhealthy, R::Maintenance),
        (S::Standby, S::Stopped, R::Resigned),
        (S::Paused, S::Standby, R::Resumed),
        (S::Paused, S::Unhealthy, R::Resumed),
        (S::Paused, S::Stopped, R::Resigned),
        (S::Unhealthy, S::Standby, R::Recovered),
        (S::Unhealthy, S::Standby, R::MaintenanceOver),
        (S::Unhealthy, S::Paused, R::Paused),
        (S::Unhealthy, S::Stopped, R::Resigned),
        (S::Activating, S::Leader, R::TermWritten),
        (S::Activating, S::Jeopardy, R::TermWritten),
        (S::Activating, S::Standby, R::Lapsed),
        (S::Activating, S::Standby, R::Lost),
        (S::Activating, S::Standby, R::WriteFailed),
        (S::Activating, S::Standby, R::SteppedDown),
        (S::Activating, S::Paused, R::Paused),
        (S::Activating, S::Unhealthy, R::Unhealthy),
        (S::Activating, S::Unhealthy, R::Maintenance),
        (S::Activating, S::Stopped, R::Resigned),
        (S::Leader, S::Jeopardy, R::RenewalFailed),
        (S::Leader, S::Jeopardy, R::ClockJumped),
        (S::Jeopardy, S::Leader, R::Renewed),
        (S::Leader, S::Draining, R::Resigned),
        (S::Leader, S::Draining, R::SteppedDown),
        (S::Leader, S::Draining, R::Transferred),
        (S::Leader, S::Draining, R::Paused),
        (S::Leader, S::Draining, R::Unhealthy),
        (S::Leader, S::Draining, R::Maintenance),
        (S::Leader, S::Standby, R::Lapsed),
        (S::Leader, S::Standby, R::Lost),
        (S::Leader, S::Standby, R::SteppedDown),
        (S::Leader, S::Standby, R::ChildEnded),
        (S::Leader, S::Paused, R::Paused),
        (S::Leader, S::Unhealthy, R::Unhealthy),
        (S::Leader, S::Unhealthy, R::Maintenance),
        (S::Leader, S::Stopped, R::Resigned),
        (S::Jeopardy, S::Draining, R::Resigned),
        (S::Jeopardy, S::Draining, R::SteppedDown),
        (S::Jeopardy, S::Draining, R::Transferred),
        (S::Jeopardy, S::Draining, R::Paused),
        (S::Jeopardy, S::Draining, R::Unhealthy),
        (S::Jeopardy, S::Draining, R::Maintenance),
        (S::Jeopardy, S::Standby, R::Lapsed),
        (S::Jeopardy, S::Standby, R::Lost),
        (S::Jeopardy, S::Standby, R::SteppedDown),
        (S::Jeopardy, S::Standby, R::ChildEnded),
        (S::Jeopardy, S::Paused, R::Paused),
        (S::Jeopardy, S::Unhealthy, R::Unhealthy),
        (S::Jeopardy, S::Unhealthy, R::Maintenance),
        (S::Jeopardy, S::Stopped, R::Resigned),
        (S::Draining, S::Standby, R::Drained),
        (S::Draining, S::Standby, R::DrainOver),
        (S::Draining, S::Standby, R::Lapsed),
        (S::Draining, S::Standby, R::Lost),
        (S::Draining, S::Paused, R::Drained),
        (S::Draining, S::Paused, R::DrainOver),
        (S::Draining, S::Paused, R::Lapsed),
        (S::Draining, S::Paused, R::Lost),
        (S::Draining, S::Unhealthy, R::Drained),
        (S::Draining, S::Unhealthy, R::DrainOver),
        (S::Draining, S::Unhealthy, R::Lapsed),
        (S::Draining, S::Unhealthy, R::Lost),
        (S::Draining, S::Stopped, R::Drained),
        (S::Draining, S::Stopped, R::DrainOver),
        (S::Draining, S::Stopped, R::Lapsed),
        (S::Draining, S::Stopped, R::Lost),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leadership_that_lapses_or_is_refused_is_lost_involuntarily_and_no_other() {
        for (from, to, reason) in TRANSITIONS {
            let transition = Transition { from, to, reason, term: None, leadership: None };
            let is_loss = matches!(
                (from, reason),
                (State::Leader | State::Jeopardy, Reason::Lapsed | Reason::Lost)
            );
            assert_eq!(transition.is_involuntary_loss(), is_loss, "{transition:?}");
        }
    }
}
