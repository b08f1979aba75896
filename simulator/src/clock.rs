//! The clocks of one machine: boot, raw and wall, each a straight line through true time until it
//! is disturbed.

use std::time::Duration;

use tenure::clock::Moment;

use super::{Instant, Span, span};

/// Unix time at the beginning of each episode, in nanoseconds.
pub const EPOCH: u64 = 1_800_000_000_000_000_000;

/// No timer of an episode is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 3_600);

/// Clocks that run at rates of their own.
#[derive(Clone, Debug)]
pub struct Clocks {
    /// When the readings were taken.
    at: Instant,
    boot: Line,
    raw: Line,
    wall: Line,
}

/// A reading, and how much faster than true time it grows, in millionths.
#[derive(Clone, Copy, Debug)]
struct Line {
    reading: u64,
    ppm: i64,
}

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Boot,
    Raw,
    Wall,
}

impl Line {
    fn read(self, elapsed: Span) -> u64 {
        // An episode is hours long: so many nanoseconds times a rate error fit.
        let elapsed = elapsed.cast_signed();
        self.reading.saturating_add_signed(elapsed + elapsed * self.ppm / 1_000_000)
    }
}

impl Clocks {
    /// Clocks that all drift alike; each counts from a start of its own.
    pub fn new(drift_ppm: i64, start: [u64; 2]) -> Self {
        let line = |reading| Line { reading, ppm: drift_ppm };
        Self { at: 0, boot: line(start[0]), raw: line(start[1]), wall: line(EPOCH) }
    }

    /// Reads them.
    pub fn read(&self, now: Instant) -> Moment {
        let elapsed = now - self.at;
        let read = |line: Line| Duration::from_nanos(line.read(elapsed));
        Moment { boot: read(self.boot), raw: read(self.raw), wall: read(self.wall) }
    }

    /// How far the boot clock, which timers follow, advances in a length of true time.
    pub fn timer(&self, wait: Duration) -> Span {
        let ppm = self.boot.ppm;
        let wait = span(wait.min(LONGEST_WAIT)).cast_signed();
        (wait - wait * ppm / (1_000_000 + ppm) + 1).cast_unsigned()
    }

    /// Makes them anew at this instant, so that a rate or a reading can be changed.
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

    /// Sets one forward or back.
    pub fn jump(&mut self, which: Which, by_ns: i64, now: Instant) {
        self.rebase(now);
        let line = self.line(which);
        line.reading = line.reading.saturating_add_signed(by_ns);
    }

    /// Slews boot and wall, as a time service does; raw runs on.
    pub fn slew(&mut self, ppm: i64, now: Instant) {
        self.rebase(now);
        self.boot.ppm = ppm;
        self.wall.ppm = ppm;
    }

    /// The last `length` was spent in a suspend: raw stood still.
    pub fn suspended(&mut self, length: Span, now: Instant) {
        self.jump(Which::Raw, -length.cast_signed(), now);
    }

    /// For the last `length` all clocks stood still; the wall clock was put right if `synced`.
    pub fn froze(&mut self, length: Span, synced: bool, now: Instant) {
        self.jump(Which::Boot, -length.cast_signed(), now);
        self.jump(Which::Raw, -length.cast_signed(), now);
        if !synced {
            self.jump(Which::Wall, -length.cast_signed(), now);
        }
    }
}
