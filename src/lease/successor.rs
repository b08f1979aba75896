//! The successor that a record names: a candidate, or the store that the election has moved to.

use std::time::Duration;

/// The candidate that should lead next, as named by the holder in its record.
///
/// This is advice that no store enforces; a successor that is dead or unknown costs no more than
/// the hold-off. It is also the mark of an election that has moved ([`Successor::store`]), which every
/// store keeps as it keeps the name of a candidate.
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

    /// The milliseconds that stand in a record for a hold-off without end: the largest number that every
    /// reader of JSON can tell from the next.
    const ENDLESS_MILLIS: u64 = (1 << 53) - 1;

    /// The most bytes of the place of a store.
    pub(crate) const LONGEST_PLACE: usize = 1024;

    /// Returns the successor of all candidates of a store: another store, which `place` names without
    /// secrets. Nobody bids on a record that has it; the next write of a term clears it.
    #[must_use]
    pub fn store(place: &str) -> Self {
        Self { identity: place.to_owned(), hold_off: Duration::MAX }
    }

    /// Returns whether this is another store, and no candidate.
    #[must_use]
    pub fn is_store(&self) -> bool {
        self.hold_off == Duration::MAX
    }

    /// Returns the successor as a record stores it: in whole milliseconds, rounded up, and at most
    /// [`LONGEST_HOLD_OFF`](Self::LONGEST_HOLD_OFF).
    #[must_use]
    pub fn as_stored(&self) -> Self {
        if self.is_store() {
            return self.clone();
        }
        let hold_off = Duration::from_millis(self.hold_off_millis());
        Self { identity: self.identity.clone(), hold_off }
    }

    /// Returns the hold-off as a record stores it.
    pub(crate) fn hold_off_millis(&self) -> u64 {
        if self.is_store() {
            return Self::ENDLESS_MILLIS;
        }
        let hold_off = self.hold_off.min(Self::LONGEST_HOLD_OFF);
        u64::try_from(hold_off.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Returns the successor that a record names; `None` if the identity is empty or the hold-off
    /// out of range. A mark of an election that has moved counts whatever the place is.
    pub(crate) fn recorded(identity: &str, hold_off_millis: u64) -> Option<Self> {
        if hold_off_millis == Self::ENDLESS_MILLIS {
            return Some(Self::store(identity));
        }
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
            (Duration::from_secs(u64::MAX), 3_600_000),
        ] {
            assert_eq!(successor(hold_off).hold_off_millis(), kept, "{hold_off:?}");
            assert_eq!(successor(hold_off).as_stored().hold_off, Duration::from_millis(kept));
        }
    }

    #[test]
    fn a_stored_successor_is_read_back_and_a_longer_one_is_none() {
        let kept = successor(Duration::from_secs(u64::MAX)).as_stored();
        assert_eq!(Successor::recorded("b", kept.hold_off_millis()), Some(kept));
        assert_eq!(Successor::recorded("b", 3_600_001), None);
        assert_eq!(Successor::recorded("b", u64::MAX), None);
        assert_eq!(Successor::recorded("", 1_000), None);
    }
    #[test]
    fn the_mark_of_an_election_that_has_moved_is_read_back_and_no_hold_off_is_one() {
        let moved = Successor::store("etcd://etcd-1:2379/tenure");
        assert_eq!(moved.as_stored(), moved);
        let read = Successor::recorded(&moved.identity, moved.hold_off_millis());
        assert_eq!(read, Some(moved));
        assert!(Successor::recorded("", Successor::ENDLESS_MILLIS).is_some_and(|it| it.is_store()));
        for hold_off in [Duration::ZERO, Successor::LONGEST_HOLD_OFF, Duration::from_secs(u64::MAX)]
        {
            assert!(!successor(hold_off).is_store());
            assert_ne!(successor(hold_off).hold_off_millis(), Successor::ENDLESS_MILLIS);
        }
    }
}
