//! Explains a refused command: why the present state does not allow it, and what to do instead.

use super::call::Verb;
use crate::election::{Command, State};
use crate::status::CandidateDocument;
use crate::status::document::{Document, HolderDocument};

/// Why a command was refused, and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) error: String,
    pub(super) remedy: String,
}

impl Conflict {
    /// Explains the refusal of `command` in `state`, by the status of this instance.
    pub(super) fn of(verb: Verb, command: &Command, state: State, status: &Document<'_>) -> Self {
        let why = match (command, state, status.term) {
            (Command::Drained(Some(term)), State::Draining, Some(own)) if own != *term => {
                format!("the draining term is {own}, not {term}")
            }
            _ => format!("this instance is {}", state.as_str()),
        };
        let error = format!("cannot {}: {why}", verb.words());
        Self { error, remedy: remedy(command, state, status) }
    }
}

/// Returns why a candidate cannot be the successor, by the peers of the leader; `None` if it can, or if
/// there are no peers.
pub(super) fn of_successor(identity: &str, status: &Document<'_>) -> Option<Conflict> {
    let candidates = status.candidates.as_deref()?;
    let others = || candidates.iter().filter(|it| it.instance != status.instance && it.connected);
    let can_lead = |it: &&CandidateDocument<'_>| it.state == "standby";
    let mut named = others().filter(|it| it.identity == identity);
    if named.clone().any(|it| can_lead(&it)) {
        return None;
    }
    let why = match named.next_back() {
        Some(found) => format!("{identity} is {}", found.state),
        None => format!("no candidate {identity} is connected to this leader"),
    };
    let able: Vec<&str> = others().filter(can_lead).map(|it| &*it.identity).collect();
    let remedy = match able.join(", ") {
        able if able.is_empty() => {
            "no other candidate can lead now: see `tenure status`. To insist, use --force, and nobody \
             leads until the hold-off is over if it does not"
                .to_owned()
        }
        able => format!("these can lead now: {able}; to insist on {identity}, use --force"),
    };
    Some(Conflict { error: format!("cannot transfer: {why}"), remedy })
}

fn remedy(command: &Command, state: State, status: &Document<'_>) -> String {
    let remedy = match (command, state) {
        (_, State::Stopped) => "it is shutting down",
        (Command::StepDown { .. } | Command::Transfer(_), State::Draining) => {
            "it has stepped down already; `tenure drained` ends the drain now"
        }
        (Command::Transfer(_), State::Activating) => {
            "it holds the lease and does not lead yet; try again, or use `tenure step-down`"
        }
        (Command::StepDown { .. } | Command::Transfer(_), _) => return whereabouts(status),
        (Command::Pause | Command::Resume, State::Observing) => {
            "it was started with --observe and never competes"
        }
        (Command::Pause, _) => "it is shutting down, and resigns anyway",
        (Command::Resume, State::Unhealthy)
            if status.maintenance.as_ref().is_some_and(|it| it.imminent) =>
        {
            "it competes again when the maintenance of its machine is over; `tenure status` shows it"
        }
        (Command::Resume, State::Unhealthy) => {
            "it competes again when its health probes succeed; `tenure status` shows them"
        }
        (Command::Resume, _) => {
            "it is not paused and waits for nothing: there is nothing to resume"
        }
        (Command::Drained(_), State::Draining) => {
            "the drain goes on; name the term whose work has ended, TENURE_TERM of the service"
        }
        (Command::Drained(_), state) if state.is_leading() => {
            "a drain begins with `tenure step-down`, `transfer`, `pause` or a shutdown"
        }
        (Command::Drained(_), _) => "no drain is in progress here",
    };
    remedy.to_owned()
}

/// Tells which instance leads, for a command that only the leader carries out.
fn whereabouts(status: &Document<'_>) -> String {
    match (status.doubt(), &status.holder) {
        (None, Some(HolderDocument { identity, address, term, .. })) => {
            let at = address.as_ref().map_or(String::new(), |it| format!(" at {it}"));
            format!("{identity}{at} leads, in term {term}: use the admin listener of {identity}")
        }
        (doubt, _) => format!("leader: {}", doubt.as_deref().unwrap_or("none known")),
    }
}
