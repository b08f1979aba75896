//! The successor that a record names.

use std::time::Duration;

/// The candidate that should lead next, as named by the holder in its record.
///
/// This is advice that no store enforces; a successor that is dead or unknown costs no more than
/// the hold-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// The identity of the candidate, not empty; if several have it, any of them may win.
    pub identity: String,
    /// How long every other candidate defers: counted by each on its own clock, from its first read
    /// that shows the lease free. In a record: whole milliseconds, at most
    /// [`LONGEST_HOLD_OFF`](Self::LONGEST_HOLD_OFF). If it is too short another candidate wins; if
    /// it is too long, an election with a dead successor has no leader for as long.
    pub hold_off: Duration,
}

impl Successor {
    /// The longest hold-off that a record can ask for. A record that asks for more is read as one
    /// without a successor, so that it cannot stop the election.
    pub const LONGEST_HOLD_OFF: Duration = Duration::from_secs(60 * 60);

    /// Returns the successor as a record stores it: in whole milliseconds, rounded up, and at most
    /// [`LONGEST_HOLD_OFF`](Self::LONGEST_HOLD_OFF).
    #[must_use]
    pub fn as_stored(&self) -> Self {
        let hold_off = Duration::from_millis(self.hold_off_millis());
        Self { identity: self.identity.clone(), hold_off }
    }

    /// Returns the hold-off as a record stores it.
    pub(crate) fn hold_off_millis(&self) -> u64 {
        let hold_off = self.hold_off.min(Self::LONGEST_HOLD_OFF);
        u64::try_from(hold_off.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Returns the successor that a record names; `None` if the identity is empty or the hold-off
    /// out of range.
    pub(crate) fn recorded(identity: &str, hold_off_millis: u64) -> Option<Self> {
        let hold_off = Duration::from_millis(hold_off_millis);
        if identity.is_empty() || hold_off > Self::LONGEST_HOLD_OFF {
            return None;
        }
        Some(Self { identity: identity.to_owned(), hold_off })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn successor(hold_off: Duration) -> Successor {
        Successor { identity: "b".to_owned(), hold_off }
    }

    #[test]
    fn a_record_keeps_whole_milliseconds_of_an_hour_at_most() {
        for (hold_off, kept) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(10_000), 10_000),
            (Duration::from_micros(10_000_001), 10_001),
            (Duration::from_secs(3_600), 3_600_000),
            (Duration::from_nanos(3_600_000_000_001), 3_600_000),
            (Duration::MAX, 3_600_000),
        ] {
            assert_eq!(successor(hold_off).hold_off_millis(), kept, "{hold_off:?}");
            assert_eq!(successor(hold_off).as_stored().hold_off, Duration::from_millis(kept));
        }
    }

    #[test]
    fn a_stored_successor_is_read_back_and_a_longer_one_is_none() {
        let kept = successor(Duration::MAX).as_stored();
        assert_eq!(Successor::recorded("b", kept.hold_off_millis()), Some(kept));
        assert_eq!(Successor::recorded("b", 3_600_001), None);
        assert_eq!(Successor::recorded("b", u64::MAX), None);
        assert_eq!(Successor::recorded("", 1_000), None);
    }
}
