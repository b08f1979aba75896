//! Time as the election judges it: a [`Moment`] is one reading of three clocks, and [`now`] is the
//! only function in the program that reads them.
//!
//! This module sets no timers and never waits. A timer may cause the clock to be read; only the
//! comparison of two Moments decides anything (R2).
//!
//! Totals of two clocks are never compared, since each counts from a start of its own. Only
//! advances are: [`Moment::elapsed_max`] ends a belief and [`Moment::elapsed_min`] ends a wait, so
//! that a clock that runs at the wrong rate errs towards safety in both.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use time::OffsetDateTime;

/// How far the wall clock may advance beyond the lease clocks before an unseen pause is assumed
/// (R10). A slew of 8 % stays below this over a belief of 10 s.
#[doc(hidden)]
pub const UNSEEN_PAUSE: Duration = Duration::from_secs(1);

/// The longest sleep of every task that goes by the lease clocks. Timers stop in suspend and clocks
/// jump, so the clock is read this often whatever a timer says (R2).
#[doc(hidden)]
pub const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// One reading of three clocks. Meaningful only in comparison with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_BOOTTIME`: time since boot, including suspend; slewed by NTP.
    pub boot: Duration,
    /// `CLOCK_MONOTONIC_RAW`: time since boot, excluding suspend; not slewed.
    pub raw: Duration,
    /// The wall clock: time since the Unix epoch; may jump.
    pub wall: Duration,
}

/// Reads the three clocks.
///
/// ```
/// let before = tenure::clock::now();
/// let after = tenure::clock::now();
/// assert!(before.elapsed_min(after) <= before.elapsed_max(after));
/// ```
#[must_use]
pub fn now() -> Moment {
    #[allow(clippy::disallowed_methods, reason = "the one reader of time")]
    let wall = std::time::SystemTime::now();
    Moment {
        boot: read(ClockId::Boottime),
        raw: read(ClockId::MonotonicRaw),
        wall: wall.duration_since(std::time::UNIX_EPOCH).unwrap_or_default(),
    }
}

fn read(clock: ClockId) -> Duration {
    let reading = clock_gettime(clock);
    Duration::new(
        u64::try_from(reading.tv_sec).unwrap_or_default(),
        u32::try_from(reading.tv_nsec).unwrap_or_default(),
    )
}

/// Returns the kernel's boot id, which identifies the boot that [`Moment::boot`] counts from;
/// `None` outside Linux or without `/proc`.
#[doc(hidden)]
#[must_use]
pub fn boot_id() -> Option<String> {
    // Cached: the id cannot change while the process lives, and a later read could fail for want of
    // file descriptors.
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    if let Some(known) = BOOT_ID.get() {
        return Some(known.clone());
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(BOOT_ID.get_or_init(|| text.trim().to_owned()).clone())
}

impl Moment {
    /// Returns the larger advance of the two lease clocks (boot, raw) from `self` to `later`, which
    /// ends a belief. Zero if neither advanced.
    #[must_use]
    #[inline]
    pub fn elapsed_max(self, later: Moment) -> Duration {
        let (boot, raw) = self.advances(later);
        forward(boot.max(raw))
    }

    /// Returns the smaller advance of the two lease clocks from `self` to `later`, which ends a
    /// wait.
    #[must_use]
    #[inline]
    pub fn elapsed_min(self, later: Moment) -> Duration {
        let (boot, raw) = self.advances(later);
        forward(boot.min(raw))
    }

    /// Reports whether a belief that counts from `self` must not be trusted at `later` (R10): a
    /// clock went back, or the wall clock advanced over 1 s further than the lease clocks, as it
    /// does after a pause that no guest clock saw.
    #[must_use]
    #[inline]
    pub fn jumped(self, later: Moment) -> bool {
        let (boot, raw) = self.advances(later);
        let wall = advance(self.wall, later.wall);
        boot < 0 || raw < 0 || wall < 0 || forward(wall - boot.max(raw)) > UNSEEN_PAUSE
    }

    /// Reports whether a lease clock shows less at `later` than at `self`, so that a wait from `self`
    /// must not count on it.
    #[must_use]
    #[inline]
    pub fn went_back(self, later: Moment) -> bool {
        let (boot, raw) = self.advances(later);
        boot < 0 || raw < 0
    }

    /// Returns the wall clock as a date, for display and for the floor of a term (R11).
    #[doc(hidden)]
    #[must_use]
    pub fn date(self) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + self.wall
    }

    #[inline]
    fn advances(self, later: Moment) -> (i64, i64) {
        (advance(self.boot, later.boot), advance(self.raw, later.raw))
    }
}

/// Returns by how many nanoseconds a clock advanced; negative if it went back. Correct for advances of
/// up to 292 years, whatever the readings are.
#[inline]
fn advance(from: Duration, to: Duration) -> i64 {
    (to.as_nanos() as i64).wrapping_sub(from.as_nanos() as i64)
}

/// Returns an advance as a duration; zero if the clock went back.
#[inline]
fn forward(advance: i64) -> Duration {
    Duration::from_nanos(advance.max(0).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(boot: u64, raw: u64, wall: u64) -> Moment {
        let ms = Duration::from_millis;
        Moment { boot: ms(boot), raw: ms(raw), wall: ms(wall) }
    }

    #[test]
    fn advances_are_compared_and_never_totals() {
        // Raw is far ahead of boot in total, as after an adjustment; only the advances may count.
        let sent = at(1_000, 900_000, 0);
        let now = at(4_000, 902_000, 3_000);
        assert_eq!(sent.elapsed_max(now), Duration::from_secs(3));
        assert_eq!(sent.elapsed_min(now), Duration::from_secs(2));
    }

    #[test]
    fn suspend_shows_in_the_larger_advance_only() {
        let sent = at(0, 0, 0);
        let woken = at(60_000, 1_000, 60_000);
        assert_eq!(sent.elapsed_max(woken), Duration::from_secs(60));
        assert_eq!(sent.elapsed_min(woken), Duration::from_secs(1));
        assert!(!sent.jumped(woken), "the boot clock saw the suspend, so it is no unseen pause");
    }

    #[test]
    fn the_wall_running_over_a_second_ahead_is_a_jump() {
        let sent = at(0, 0, 50_000);
        assert!(!sent.jumped(at(2_000, 2_000, 53_000)));
        assert!(sent.jumped(at(2_000, 2_000, 53_001)));
    }

    #[test]
    fn any_clock_going_back_is_a_jump() {
        let sent = at(5_000, 5_000, 5_000);
        assert!(sent.jumped(at(4_999, 6_000, 6_000)));
        assert!(sent.jumped(at(6_000, 4_999, 6_000)));
        assert!(sent.jumped(at(6_000, 6_000, 4_999)));
        assert!(!sent.jumped(at(6_000, 6_000, 6_000)));
    }

    #[test]
    fn readings_beyond_64_bits_of_nanoseconds_are_compared_too() {
        let late = at(u64::MAX / 2, u64::MAX / 3, u64::MAX);
        let second = Duration::from_secs(1);
        let later =
            Moment { boot: late.boot + second, raw: late.raw + second, wall: late.wall + second };
        assert_eq!((late.elapsed_min(later), late.elapsed_max(later)), (second, second));
        assert!(!late.jumped(later) && later.jumped(late) && later.went_back(late));
    }

    #[test]
    fn the_machine_clocks_move_forward() {
        let before = now();
        let after = now();
        assert!(!before.jumped(after));
        assert!(before.boot > Duration::ZERO && before.raw > Duration::ZERO);
    }
}
