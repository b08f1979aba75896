//! Texts for people, shared by the page and the terminal: states, reasons and durations. They go by
//! the names in the status document, not by the election's types, so that one version can describe
//! the sidecar of another. An unknown name is shown as it is.

use std::time::Duration;

/// Returns what an instance does in a state: the end of a sentence that begins with its name.
pub(crate) fn state(name: &str) -> &str {
    match name {
        "starting" => "has not heard the store yet",
        "standby" => "stands by, ready to take over",
        "activating" => "has the lease and does not lead yet",
        "leader" => "leads",
        "jeopardy" => "leads on borrowed time: renewals fail",
        "draining" => "lets its work end, then hands over",
        "paused" => "is paused and does not compete until it is resumed",
        "unhealthy" => "is not well and does not compete until it is",
        "observing" => "only watches and never competes",
        "stopped" => "has stopped",
        other => other,
    }
}

/// Returns the reason of a transition, as a sentence without its full stop.
pub(crate) fn reason(name: &str) -> String {
    let words = match name {
        "store-reached" => "the store answered for the first time",
        "acquired" => "the store granted the lease",
        "term-written" => "the new term was written",
        "renewal-failed" => "a renewal had no certain answer",
        "clock-jumped" => "the clocks jumped",
        "renewed" => "a renewal was granted again",
        "lapsed" => "its time ran out before a renewal",
        "lost" => "the store says that the lease is not ours",
        "write-failed" => "the term could not be written",
        "resigned" => "it was asked to stop",
        "stepped-down" => "an operator told it to step down",
        "transferred" => "an operator handed the lease to another",
        "paused" => "an operator paused it",
        "resumed" => "an operator resumed it",
        "unhealthy" => "its health probes failed",
        "recovered" => "its health probes are well",
        "child-ended" => "its command has ended",
        "drained" => "the work that it had begun is done",
        "drain-over" => "the time for the work that it had begun was over",
        other => return other.replace('-', " "),
    };
    words.to_owned()
}

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
