//! The hold-off after a command that ended by itself.

use std::time::Duration;

/// After the first end, and after a run of at least [`WELL`].
const FIRST: Duration = Duration::from_secs(1);

/// The longest hold-off.
const LONGEST: Duration = Duration::from_secs(60);

/// A run of this length counts as successful.
const WELL: Duration = Duration::from_secs(60);

/// The next hold-off.
#[derive(Clone, Copy, Debug)]
pub(super) struct BackOff(Duration);

impl BackOff {
    pub(super) fn new() -> Self {
        Self(FIRST)
    }

    /// Returns the hold-off after a run of this length: 1 s, doubling up to 1 min, and reset to 1 s
    /// by a run of at least 1 min.
    pub(super) fn after(&mut self, ran: Duration) -> Duration {
        if ran >= WELL {
            self.0 = FIRST;
        }
        let now = self.0;
        self.0 = (now * 2).min(LONGEST);
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_to_a_bound_and_begins_anew_after_a_good_run() {
        let mut it = BackOff::new();
        let waits: Vec<_> = (0..8).map(|_| it.after(Duration::ZERO).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(it.after(WELL).as_secs(), 1);
        assert_eq!(it.after(WELL / 2).as_secs(), 2);
    }
}
