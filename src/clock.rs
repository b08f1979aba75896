//! Time as the election judges it: a [`Moment`] is one reading of three clocks, and [`now`] is the
//! only place in the program that reads them.
//!
//! What this module does not do: it sets no timers and never waits. A timer may tell somebody to
//! look at the clock; only the comparison of two Moments decides anything (R2).
//!
//! Totals of two clocks are never compared, since each counts from a start of its own. Only
//! advances are: [`Moment::elapsed_max`] ends a belief, [`Moment::elapsed_min`] ends a wait, so
//! that a clock which runs wrong errs towards safety in both.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use time::OffsetDateTime;

/// How much further than the lease clock the wall clock may advance before it says that a pause
/// went unseen (R10). A slew of 8 % stays below it over a belief of 10 s.
#[doc(hidden)]
pub const UNSEEN_PAUSE: Duration = Duration::from_secs(1);

/// One reading of three clocks, a value that is only ever compared with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// `CLOCK_BOOTTIME`: since boot, runs on in suspend; slewed by NTP.
    pub boot: Duration,
    /// `CLOCK_MONOTONIC_RAW`: since boot, not slewed; stops in suspend.
    pub raw: Duration,
    /// The wall clock, since the Unix epoch; may jump.
    pub wall: Duration,
}

/// Reads the clocks.
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

/// Names the boot that [`Moment::boot`] counts from, as the kernel does; `None` off Linux or
/// without `/proc`.
#[doc(hidden)]
#[must_use]
pub fn boot_id() -> Option<String> {
    // It cannot change under a process, and a later reading could want for descriptors.
    static BOOT_ID: OnceLock<String> = OnceLock::new();
    if let Some(known) = BOOT_ID.get() {
        return Some(known.clone());
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(BOOT_ID.get_or_init(|| text.trim().to_owned()).clone())
}

impl Moment {
    /// The larger advance of the two lease clocks (boot, raw) from `self` to `later`: what ends a
    /// belief. Zero where both stand still or went back.
    #[must_use]
    pub fn elapsed_max(self, later: Moment) -> Duration {
        let (boot, raw) = self.advances(later);
        boot.max(raw)
    }

    /// The smaller advance of the two lease clocks from `self` to `later`: what ends a wait.
    #[must_use]
    pub fn elapsed_min(self, later: Moment) -> Duration {
        let (boot, raw) = self.advances(later);
        boot.min(raw)
    }

    /// Whether no belief that counts from `self` may be trusted at `later` (R10): a clock went
    /// back, or the wall clock advanced over a second further than the lease clocks, as it
    /// does after a pause that no guest clock saw.
    #[must_use]
    pub fn jumped(self, later: Moment) -> bool {
        later.boot < self.boot
            || later.raw < self.raw
            || later.wall < self.wall
            || later.wall - self.wall > self.elapsed_max(later) + UNSEEN_PAUSE
    }

    /// The wall clock as a date, for people and for the term's start (R11).
    #[doc(hidden)]
    #[must_use]
    pub fn date(self) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + self.wall
    }

    fn advances(self, later: Moment) -> (Duration, Duration) {
        (later.boot.saturating_sub(self.boot), later.raw.saturating_sub(self.raw))
    }
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
        // Raw is far ahead of boot in total, as after an adjustment; only advances may count.
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
    fn the_machine_clocks_move_forward() {
        let before = now();
        let after = now();
        assert!(!before.jumped(after));
        assert!(before.boot > Duration::ZERO && before.raw > Duration::ZERO);
    }
}
