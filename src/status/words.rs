//! Texts for people, shared by the page and the terminal: states, reasons and durations. They go by
//! the names in the status document, not by the election's types, so that one version can describe
//! the sidecar of another. An unknown name is shown as it is.

use std::time::Duration;

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

/// Returns what an instance does in a state: the end of a sentence that begins with its name.
pub(crate) fn state(name: &str) -> &str {
    match name {
        "starting" => "has not reached the store yet",
        "standby" => "is a standby",
        "activating" => "holds the lease and does not lead yet",
        "leader" => "leads",
        "jeopardy" => "leads, but renewals fail",
        "draining" => "is draining, then releases the lease",
        "paused" => "is paused and does not compete until it is resumed",
        "unhealthy" => "is unhealthy and does not compete",
        "observing" => "observes and never competes",
        "stopped" => "has stopped",
        other => other,
    }
}

/// Returns the reason of a transition, as a sentence without its full stop.
pub(crate) fn reason(name: &str) -> String {
    let words = match name {
        "store-reached" => "the store answered for the first time",
        "acquired" => "the lease was acquired",
        "term-written" => "the term was written",
        "renewal-failed" => "a renewal failed or timed out; its result is unknown",
        "clock-jumped" => "the clocks jumped",
        "renewed" => "a renewal succeeded again",
        "lapsed" => "the lease expired before it could be renewed",
        "lost" => "the store reported that the lease is lost",
        "write-failed" => "the term could not be written",
        "resigned" => "the instance is shutting down",
        "stepped-down" => "a step-down was requested",
        "transferred" => "a transfer to a successor was requested",
        "paused" => "an operator paused the instance",
        "resumed" => "an operator resumed the instance",
        "unhealthy" => "health probes failed",
        "recovered" => "the health probes succeed",
        "maintenance" => "maintenance of the machine is imminent, or has begun",
        "maintenance-over" => "the maintenance of the machine is over",
        "child-ended" => "the command exited",
        "drained" => "the service or command has ended its work",
        "drain-over" => "the drain is over",
        other => return other.replace('-', " "),
    };
    words.to_owned()
}

/// Returns why a state has changed, as a sentence without its full stop: the reason, and what else must be
/// known for the new state to follow from it.
pub(crate) fn why(from: &str, to: &str, name: &str) -> String {
    let words = match (from, to, name) {
        ("starting", "unhealthy", "store-reached") => {
            "the store answered; the health probes have not succeeded often enough yet"
        }
        (_, "jeopardy", "term-written") => {
            "the term was written; the clocks jumped, so a renewal must succeed first"
        }
        (_, "unhealthy", "unhealthy" | "maintenance") | (_, "paused", "paused") => {
            return reason(name);
        }
        (_, "unhealthy", _) => {
            return reason(name) + "; it is unhealthy, or its machine is under maintenance";
        }
        (_, "paused", _) => return reason(name) + "; an operator has paused it",
        _ => return reason(name),
    };
    words.to_owned()
}

/// Returns why a leadership ended: the reason of a transition, or what others have seen of it.
pub(crate) fn ending(name: &str) -> String {
    match name {
        "released" => "it released the lease, or an operator freed it".to_owned(),
        "expired" => "its lease ran out".to_owned(),
        "ended" => "its leadership is over".to_owned(),
        _ => reason(name),
    }
}

/// Formats the time of a date in UTC.
pub(crate) fn utc(date: &str) -> String {
    let parsed = OffsetDateTime::parse(date, &Rfc3339).ok();
    let Some(date) = parsed.and_then(|it| it.checked_to_offset(UtcOffset::UTC)) else {
        return date.to_owned();
    };
    let (hour, minute, second) = date.to_hms();
    format!("{hour:02}:{minute:02}:{second:02} UTC")
}

/// What is known of a lease that another tool holds.
pub(crate) const HELD_WITHOUT_END: &str = "another tool holds the lease, without an end, and nobody knows which; \
                                           once you are sure that it no longer needs it, free it with \
                                           `tenure break --now`";

/// Formats a duration to about two significant figures.
pub(crate) fn spoken(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..10 => format!("{seconds}.{}s", duration.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::{State, TRANSITIONS};

    #[test]
    fn there_are_words_for_all_that_the_election_can_tell() {
        for known in State::ALL {
            assert_ne!(state(known.as_str()), known.as_str());
        }
        for (_, _, known) in TRANSITIONS {
            assert_ne!(reason(known.as_str()), known.as_str().replace('-', " "));
        }
        assert_eq!((state("later"), reason("some-day").as_str()), ("later", "some day"));
    }

    #[test]
    fn why_a_state_has_changed_is_true_from_the_first_transition_on() {
        for (from, to, name) in TRANSITIONS {
            let (from, to, name) = (from.as_str(), to.as_str(), name.as_str());
            let said = why(from, to, name);
            let has = |word: &str| said.contains(word);
            let what = format!("{from} -> {to}, {name}: {said}");
            // Nothing but a renewal can be known to have been so before.
            assert!(!has(" again") || name == "renewed", "{what}");
            let is_first = has("for the first time");
            assert!(!is_first || ["standby", "observing", "paused"].contains(&to), "{what}");
            // The new state follows from what is said.
            let explains = match to {
                "paused" => has("paused"),
                "unhealthy" => has("probes") || has("unhealthy") || has("maintenance"),
                "jeopardy" => has("renewal") || has("clocks"),
                _ => true,
            };
            assert!(explains, "{what}");
        }
        let first = why("unhealthy", "standby", "recovered");
        assert_eq!(first, "the health probes succeed");
    }

    #[test]
    fn times_are_said_in_two_figures() {
        for (ms, text) in [
            (0, "0.0s"),
            (8_123, "8.1s"),
            (59_900, "59s"),
            (192_000, "3m12s"),
            (3_720_000, "1h2m"),
            (100 * 3_600_000, "4d4h"),
        ] {
            assert_eq!(spoken(Duration::from_millis(ms)), text);
        }
    }
}
