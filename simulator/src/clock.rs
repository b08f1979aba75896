//! The clocks of one machine: boot, raw and wall. Each is linear in true time until it is
//! disturbed.

use std::time::Duration;

use tenure::clock::Moment;

use super::{Instant, Span, span};

/// Unix time at the start of each episode, in nanoseconds.
pub const EPOCH: u64 = 1_800_000_000_000_000_000;

/// The longest timer of an episode.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// Three clocks, each with its own rate.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// The true time of the readings.
    at: Instant,
    boot: Line,
    raw: Line,
    wall: Line,
}

/// A reading, and how much faster than true time it advances, in parts per million.
#[derive(Clone, Copy, Debug)]
struct Line {
    reading: u64,
    ppm: i64,
}

/// Names one of the three clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Boot,
    Raw,
    Wall,
}

impl Line {
    fn read(self, elapsed: Span) -> u64 {
        // An episode takes hours, so nanoseconds times a rate error do not overflow.
        let elapsed = elapsed.cast_signed();
        self.reading.saturating_add_signed(elapsed + elapsed * self.ppm / 1_000_000)
    }
}

impl Clocks {
    /// Creates clocks with the same drift; boot and raw begin at `start`.
    pub fn new(drift_ppm: i64, start: [u64; 2]) -> Self {
        let line = |reading| Line { reading, ppm: drift_ppm };
        Self { at: 0, boot: line(start[0]), raw: line(start[1]), wall: line(EPOCH) }
    }

    /// Returns the readings at `now`.
    pub fn read(&self, now: Instant) -> Moment {
        let elapsed = now - self.at;
        let read = |line: Line| Duration::from_nanos(line.read(elapsed));
        Moment { boot: read(self.boot), raw: read(self.raw), wall: read(self.wall) }
    }

    /// Returns the true time in which the boot clock, which drives timers, advances by `wait`.
    pub fn timer(&self, wait: Duration) -> Span {
        let ppm = self.boot.ppm;
        let wait = span(wait.min(LONGEST_WAIT)).cast_signed();
        (wait - wait * ppm / (1_000_000 + ppm) + 1).cast_unsigned()
    }

    /// Takes new readings at this instant, so that a rate or a reading can be changed.
    fn rebase(&mut self, now: Instant) {
        let elapsed = now - self.at;
        for line in [&mut self.boot, &mut self.raw, &mut self.wall] {
            line.reading = line.read(elapsed);
        }
        self.at = now;
    }

    fn line(&mut self, which: Which) -> &mut Line {
        match which {
            Which::Boot => &mut self.boot,
            Which::Raw => &mut self.raw,
            Which::Wall => &mut self.wall,
        }
    }

    /// Sets one clock forward or back.
    pub fn jump(&mut self, which: Which, by_ns: i64, now: Instant) {
        self.rebase(now);
        let line = self.line(which);
        line.reading = line.reading.saturating_add_signed(by_ns);
    }

    /// Changes the rate of boot and wall, as a time service does; raw is unaffected.
    pub fn slew(&mut self, ppm: i64, now: Instant) {
        self.rebase(now);
        self.boot.ppm = ppm;
        self.wall.ppm = ppm;
    }

    /// Accounts for a suspend of `length` that ends now: raw stood still.
    pub fn suspended(&mut self, length: Span, now: Instant) {
        self.jump(Which::Raw, -length.cast_signed(), now);
    }

    /// Accounts for a freeze of `length` that ends now: all clocks stood still, but the wall clock
    /// was corrected if `synced`.
    pub fn froze(&mut self, length: Span, synced: bool, now: Instant) {
        self.jump(Which::Boot, -length.cast_signed(), now);
        self.jump(Which::Raw, -length.cast_signed(), now);
        if !synced {
            self.jump(Which::Wall, -length.cast_signed(), now);
        }
    }
}
