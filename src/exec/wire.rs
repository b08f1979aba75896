//! The messages between Tenure and a watchdog: fixed-size records over a socket, so that neither
//! side parses, allocates, or waits for the rest of a message.

use std::time::Duration;

use crate::clock::Moment;

/// The size of a record in bytes.
pub const RECORD: usize = 24;

/// The deadline of a belief, as readings of the two lease clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// By `CLOCK_BOOTTIME`.
    pub boot: Duration,
    /// By `CLOCK_MONOTONIC_RAW`.
    pub raw: Duration,
}

impl End {
    /// Returns the deadline of a belief of `length` that counts from `sent`.
    #[must_use]
    pub fn of(sent: Moment, length: Duration) -> Self {
        Self { boot: sent.boot + length, raw: sent.raw + length }
    }

    /// Returns the time left at `now`, by the clock that shows less (R2).
    #[must_use]
    pub fn remaining(self, now: Moment) -> Duration {
        self.boot.saturating_sub(now.boot).min(self.raw.saturating_sub(now.raw))
    }
}

/// A message from Tenure to a watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogCommand {
    /// The lease is believed to be held until then: end the command in time.
    Belief(End),
    /// Send this signal to the command's group, and SIGKILL after a time.
    Terminate {
        /// The signal's number.
        signal: i32,
        /// The time from the receipt of the order to SIGKILL.
        within: Duration,
    },
    /// Send SIGKILL at once.
    Kill,
    /// Forward a signal.
    Signal(i32),
}

/// A message from a watchdog to Tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchdogEvent {
    /// The command was started.
    Started {
        /// Its process id, which is also that of its group.
        id: i32,
        /// When that process was started, in clock ticks since boot; 0 if unknown.
        since: u64,
    },
    /// The command could not be started, with this `errno`; the watchdog exits.
    Failed(i32),
    /// The deadline of the belief is near: SIGTERM or SIGKILL was sent to the command's group.
    Overdue,
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The command has exited with this code.
    Exited(i32),
    /// The command was terminated by this signal.
    Signalled(i32),
    /// No process of the command is left; the watchdog exits.
    Gone,
}

/// Returns a record of up to three words; the others are zero.
fn record(words: &[u64]) -> [u8; RECORD] {
    let mut bytes = words.iter().flat_map(|it| it.to_le_bytes());
    std::array::from_fn(|_| bytes.next().unwrap_or_default())
}

fn words(bytes: &[u8; RECORD]) -> [u64; 3] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Signals, codes and process ids fit, and are never negative.
fn small(number: i32) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn number(word: u64) -> i32 {
    i32::try_from(word).unwrap_or_default()
}

impl WatchdogCommand {
    /// Encodes the order.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD] {
        match self {
            Self::Belief(end) => record(&[1, nanos(end.boot), nanos(end.raw)]),
            Self::Terminate { signal, within } => record(&[2, small(signal), nanos(within)]),
            Self::Kill => record(&[3]),
            Self::Signal(signal) => record(&[4, small(signal)]),
        }
    }

    /// Decodes an order. An unknown one is treated as the safest, [`WatchdogCommand::Kill`].
    #[must_use]
    pub fn of_bytes(bytes: &[u8; RECORD]) -> Self {
        let [kind, first, second] = words(bytes);
        match kind {
            1 => Self::Belief(End {
                boot: Duration::from_nanos(first),
                raw: Duration::from_nanos(second),
            }),
            2 => Self::Terminate { signal: number(first), within: Duration::from_nanos(second) },
            4 => Self::Signal(number(first)),
            _ => Self::Kill,
        }
    }
}

impl WatchdogEvent {
    /// Encodes the report.
    #[must_use]
    pub fn to_bytes(self) -> [u8; RECORD] {
        match self {
            Self::Started { id, since } => record(&[1, small(id), since]),
            Self::Failed(error) => record(&[2, small(error)]),
            Self::Stopped(signal) => record(&[3, small(signal)]),
            Self::Exited(code) => record(&[4, small(code)]),
            Self::Signalled(signal) => record(&[5, small(signal)]),
            Self::Gone => record(&[6]),
            Self::Overdue => record(&[7]),
        }
    }

    /// Decodes a report; `None` if it is unknown.
    #[must_use]
    pub fn of_bytes(bytes: &[u8; RECORD]) -> Option<Self> {
        let [kind, first, second] = words(bytes);
        let first = number(first);
        Some(match kind {
            1 => Self::Started { id: first, since: second },
            2 => Self::Failed(first),
            3 => Self::Stopped(first),
            4 => Self::Exited(first),
            5 => Self::Signalled(first),
            6 => Self::Gone,
            7 => Self::Overdue,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_as_written() {
        let end = End { boot: Duration::from_nanos(1 << 60), raw: Duration::from_nanos(77) };
        let within = Duration::from_secs(10);
        for order in [
            WatchdogCommand::Belief(end),
            WatchdogCommand::Terminate { signal: 15, within },
            WatchdogCommand::Kill,
            WatchdogCommand::Signal(28),
        ] {
            assert_eq!(WatchdogCommand::of_bytes(&order.to_bytes()), order);
        }
        for report in [
            WatchdogEvent::Started { id: 4_194_303, since: 1 << 40 },
            WatchdogEvent::Failed(11),
            WatchdogEvent::Stopped(21),
            WatchdogEvent::Exited(255),
            WatchdogEvent::Signalled(9),
            WatchdogEvent::Gone,
            WatchdogEvent::Overdue,
        ] {
            assert_eq!(WatchdogEvent::of_bytes(&report.to_bytes()), Some(report));
        }
    }

    #[test]
    fn nonsense_kills_and_is_no_report() {
        assert_eq!(WatchdogCommand::of_bytes(&[0xff; RECORD]), WatchdogCommand::Kill);
        assert_eq!(WatchdogEvent::of_bytes(&[0xff; RECORD]), None);
    }

    #[test]
    fn a_belief_ends_by_the_clock_that_gets_there_first() {
        let s = Duration::from_secs;
        let end = End { boot: s(110), raw: s(60) };
        let at = |boot, raw| end.remaining(Moment { boot: s(boot), raw: s(raw), wall: s(0) });
        assert_eq!(at(100, 50), s(10));
        assert_eq!(at(108, 50), s(2));
        assert_eq!(at(100, 60), s(0));
        assert_eq!(at(111, 50), s(0));
    }
}
