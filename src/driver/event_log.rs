//! The driver's log messages: one line for each transition; a repeated error is logged once and
//! then counted. Lines go to a bounded queue (see [`crate::logs`]), so nothing here waits.

use std::time::Duration;

use crate::election::{Answer, Holder, Notice, Transition};
use crate::lease::{StoreError, Successor};

/// Tracks the last error, so that it is not logged again.
#[derive(Debug, Default)]
pub struct EventLog {
    last_error: Option<StoreError>,
    repeats: u32,
}

impl EventLog {
    /// Logs an error when it is new, and how often it occurred once the store answers again.
    pub(super) fn answered(&mut self, answer: &Result<Answer, StoreError>) {
        match answer {
            // A refusal is an answer; its meaning is logged as a transition.
            Ok(_) | Err(StoreError::Refused(_)) => {
                if let Some(error) = self.last_error.take() {
                    let times = self.repeats + 1;
                    tracing::info!(times, after = %error, "the store answers again");
                    self.repeats = 0;
                }
            }
            // Compared by outcome: in one outage the messages differ from request to request.
            Err(error) if self.last_error.as_ref().is_some_and(|it| is_alike(it, error)) => {
                self.repeats += 1;
                tracing::debug!(times = self.repeats + 1, "store, the same error again: {error}");
            }
            Err(error) => {
                if self.repeats > 0 {
                    tracing::warn!(times = self.repeats + 1, "the last error occurred repeatedly");
                }
                tracing::warn!(cause = error.failure().cause.as_str(), "store: {error}");
                self.last_error = Some(error.clone());
                self.repeats = 0;
            }
        }
    }

    /// Logs a notice.
    pub(super) fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Transition(transition) => log_transition(transition),
            Notice::HolderChanged(Some(Holder { candidate, term })) => {
                tracing::info!(holder = candidate.identity, term, "leader seen");
            }
            Notice::HolderChanged(None) => tracing::debug!("no leader known"),
            Notice::RecordMissing { hold } => tracing::warn!(
                hold_s = hold.as_secs(),
                "the record has no term: the next holder waits {} s before it leads, in case an earlier \
                 leader is still active; `tenure doctor --create` avoids the wait",
                hold.as_secs(),
            ),
            Notice::TermFell { seen, found } => tracing::error!(
                seen,
                found,
                "the recorded term went back: the store lost writes, or the record was changed by hand"
            ),
            Notice::TermTooLarge { found } => tracing::error!(
                found,
                "the recorded term is too large to be followed by another; if no leader is active, \
                 delete the record and run `tenure doctor --create`"
            ),
            Notice::SuccessorNamed(Successor { identity, hold_off }) => tracing::info!(
                successor = identity,
                hold_off_s = hold_off.as_secs_f64(),
                "successor named"
            ),
            Notice::ReleaseUnknown => tracing::warn!(
                "the release was not confirmed: if it failed, the lease runs out by itself"
            ),
        }
    }
}

fn is_alike(one: &StoreError, other: &StoreError) -> bool {
    one.outcome() == other.outcome()
}

fn log_transition(transition: &Transition) {
    let Transition { from, to, reason, term, leadership } = transition;
    let leadership_s = leadership.as_ref().map(seconds);
    let (from, to, reason) = (from.as_str(), to.as_str(), reason.as_str());
    if transition.is_involuntary_loss() {
        tracing::warn!(%from, %to, %reason, term, leadership_s, "leadership lost");
    } else {
        tracing::info!(%from, %to, %reason, term, leadership_s, "state changed");
    }
}

/// Returns seconds in whole milliseconds.
fn seconds(duration: &Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}
