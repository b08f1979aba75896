//! The clocks of one machine: boot, raw and wall. Each is linear in true time until it is
//! disturbed.

use std::cell::Cell;
use std::time::Duration;

use tenure::clock::Moment;

use super::{Instant, Span, span};

/// Unix time at the start of each episode, in nanoseconds.
pub const EPOCH: u64 = 1_800_000_000_000_000_000;

/// The longest timer of an episode.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// Returns by how much a clock with this rate error, in parts per million, is ahead after `elapsed`. An
/// episode may take days, so that their product might overflow.
pub fn drift(elapsed: i64, ppm: i64) -> i64 {
    elapsed / 1_000_000 * ppm + elapsed % 1_000_000 * ppm / 1_000_000
}

/// Three clocks.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// The true time of the readings.
    at: Instant,
    boot: u64,
    raw: u64,
    wall: u64,
    /// How much faster than true time boot and wall advance, in parts per million.
    ppm: i64,
    /// The same of raw, which is never slewed.
    raw_ppm: i64,
    /// The last reading and its true time: one instant is read several times.
    last: Cell<(Instant, Moment)>,
}

/// Names one of the three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Boot,
    Raw,
    Wall,
}

impl Clocks {
    /// Creates clocks with the same drift; boot and raw begin at `start`, and the wall clock is ahead by
    /// so many nanoseconds.
    pub fn new(drift_ppm: i64, start: [u64; 2], wall_ahead: i64) -> Self {
        let [boot, raw] = start;
        let wall = EPOCH.saturating_add_signed(wall_ahead);
        let last = Cell::new((0, moment([boot, raw, wall])));
        Self { at: 0, boot, raw, wall, ppm: drift_ppm, raw_ppm: drift_ppm, last }
    }

    /// Returns the readings at `now`.
    pub fn read(&self, now: Instant) -> Moment {
        let (at, last) = self.last.get();
        if at == now {
            return last;
        }
        let read = moment(self.readings(now));
        self.last.set((now, read));
        read
    }

    fn readings(&self, now: Instant) -> [u64; 3] {
        let elapsed = (now - self.at).cast_signed();
        let advance = |ppm| elapsed + drift(elapsed, ppm);
        let (slewed, raw) = (advance(self.ppm), advance(self.raw_ppm));
        [
            self.boot.saturating_add_signed(slewed),
            self.raw.saturating_add_signed(raw),
            self.wall.saturating_add_signed(slewed),
        ]
    }

    /// Returns the true time in which the boot clock, which drives timers, advances by `wait`.
    pub fn timer(&self, wait: Duration) -> Span {
        let ppm = self.ppm;
        let wait = span(wait.min(LONGEST_WAIT)).cast_signed();
        (wait - wait * ppm / (1_000_000 + ppm) + 1).cast_unsigned()
    }

    /// Takes new readings at this instant, so that a rate or a reading can be changed.
    fn rebase(&mut self, now: Instant) {
        [self.boot, self.raw, self.wall] = self.readings(now);
        self.at = now;
    }

    /// Sets one clock forward or back.
    pub fn jump(&mut self, which: Which, by_ns: i64, now: Instant) {
        self.rebase(now);
        let reading = match which {
            Which::Boot => &mut self.boot,
            Which::Raw => &mut self.raw,
            Which::Wall => &mut self.wall,
        };
        *reading = reading.saturating_add_signed(by_ns);
        self.last.set((now, moment(self.readings(now))));
    }

    /// Changes the rate of boot and wall, as a time service does; raw is unaffected.
    pub fn slew(&mut self, ppm: i64, now: Instant) {
        self.rebase(now);
        self.ppm = ppm;
    }

    /// Accounts for a suspend of `length` that ends now: raw stood still.
    pub fn suspended(&mut self, length: Span, now: Instant) {
        self.stood(Which::Raw, length, now);
    }

    /// Accounts for a freeze of `length` that ends now: all clocks stood still, but the wall clock
    /// was corrected if `synced`.
    pub fn froze(&mut self, length: Span, synced: bool, now: Instant) {
        self.stood(Which::Boot, length, now);
        self.stood(Which::Raw, length, now);
        if !synced {
            self.stood(Which::Wall, length, now);
        }
    }

    /// Takes back what a clock has advanced in this time, at its own rate.
    fn stood(&mut self, which: Which, length: Span, now: Instant) {
        let ppm = if matches!(which, Which::Raw) { self.raw_ppm } else { self.ppm };
        let length = length.cast_signed();
        self.jump(which, -(length + drift(length, ppm)), now);
    }
}

fn moment(readings: [u64; 3]) -> Moment {
    let [boot, raw, wall] = readings.map(Duration::from_nanos);
    Moment { boot, raw, wall }
}
