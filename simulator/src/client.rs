//! A client beside each candidate: it acts on an answer until its own sending time plus the
//! validity it was told, by a clock of its own, and writes to the resource with the term.

use super::{Instant, Span};

/// One client of one candidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client {
    /// How much faster than true time its clock runs, in millionths.
    pub ppm: i64,
    /// The question that it waits for an answer to; earlier ones are stale.
    pub question: u32,
    /// When that was sent.
    pub sent: Instant,
    /// What it was answered, on its way.
    pub answer: Option<Answer>,
    /// Until when it acts, on whose word.
    pub acting: Option<Acting>,
}

/// A candidate's answer to a client: active.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub term: u64,
    pub life: u32,
    pub valid_for_ms: u64,
}

/// A client that acts.
#[derive(Clone, Copy, Debug)]
pub struct Acting {
    pub term: u64,
    pub life: u32,
    pub until: Instant,
}

impl Client {
    /// A client whose clock drifts so.
    pub fn new(ppm: i64) -> Self {
        Self { ppm, ..Self::default() }
    }

    /// Takes the answer that comes back now; `None` was passive.
    pub fn told(&mut self, now: Instant) -> Option<Acting> {
        let answer = self.answer.take();
        self.acting = answer.map(|it| Acting {
            term: it.term,
            life: it.life,
            until: self.sent + self.wait(it.valid_for_ms),
        });
        self.acting.filter(|it| it.until > now)
    }

    /// How long its clock takes for a validity, in true time.
    fn wait(&self, valid_for_ms: u64) -> Span {
        let nanos = i128::from(valid_for_ms) * 1_000_000 * 1_000_000;
        u64::try_from(nanos / i128::from(1_000_000 + self.ppm)).unwrap_or_default()
    }
}

/// The resource that the leader works on: it refuses a term lower than one it has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resource {
    /// The largest term seen, and whose it was.
    seen: Option<(u64, u8, u32)>,
}

impl Resource {
    /// Takes a write, or refuses it; an error if it cannot tell two leaders apart.
    pub fn write(&mut self, term: u64, node: u8, life: u32) -> Result<bool, (u8, u32)> {
        match self.seen {
            Some((seen, ..)) if term < seen => Ok(false),
            Some((seen, by, its)) if term == seen && (by, its) != (node, life) => Err((by, its)),
            _ => {
                self.seen = Some((term, node, life));
                Ok(true)
            }
        }
    }

    /// Forgets what it saw: the record of terms was lost, or set back by an operator.
    pub fn forget(&mut self) {
        self.seen = None;
    }
}
