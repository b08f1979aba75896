//! A client of each candidate: it acts on an answer for the given validity, counted by its own
//! clock from the sending of the request, and writes to the resource with the term.

use super::{Instant, Span};

/// A client of one candidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Client {
    /// How much faster than true time its clock runs, in parts per million.
    pub ppm: i64,
    /// The number of the outstanding request; answers to earlier ones are stale.
    pub question: u32,
    /// When that request was sent.
    pub sent: Instant,
    /// The answer on its way, if it is active.
    pub answer: Option<Answer>,
    /// The answer that the client acts on.
    pub acting: Option<Acting>,
}

/// An active answer of a candidate.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub term: u64,
    pub life: u32,
    pub valid_for_ms: u64,
}

/// An answer that a client acts on, and until when.
#[derive(Clone, Copy, Debug)]
pub struct Acting {
    pub term: u64,
    pub life: u32,
    pub until: Instant,
}

impl Client {
    /// Creates a client whose clock drifts by `ppm`.
    pub fn new(ppm: i64) -> Self {
        Self { ppm, ..Self::default() }
    }

    /// Processes the answer that arrives now (`None` is passive), and returns it if it is still
    /// valid.
    pub fn receive(&mut self, now: Instant) -> Option<Acting> {
        let answer = self.answer.take();
        self.acting = answer.map(|it| Acting {
            term: it.term,
            life: it.life,
            until: self.sent + self.wait(it.valid_for_ms),
        });
        self.acting.filter(|it| it.until > now)
    }

    /// Returns the true time in which the client's clock advances by a validity.
    fn wait(&self, valid_for_ms: u64) -> Span {
        let nanos = i128::from(valid_for_ms) * 1_000_000 * 1_000_000;
        u64::try_from(nanos / i128::from(1_000_000 + self.ppm)).unwrap_or_default()
    }
}

/// The resource that the leader writes to: it rejects terms lower than the highest seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resource {
    /// The highest term seen, with the node and life that wrote it.
    seen: Option<(u64, u8, u32)>,
}

impl Resource {
    /// Accepts or rejects a write. Fails if a different process wrote with the same term.
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

    /// Forgets the highest term: the record was lost, or set back by an operator.
    pub fn forget(&mut self) {
        self.seen = None;
    }
}
