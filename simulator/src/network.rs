//! The fate of each message, drawn when it is sent from the weather of the link and the errors of
//! the store.

use fastrand::Rng;

use tenure::election::{Answer, Op, RequestId};
use tenure::lease::{Cause, Failure, StoreError};

use super::faults::{Error, Weather};
use super::peers::PeerLink;
use super::register::{self, Asked};
use super::store::{Stage, Store};
use super::{MILLI, Span};

/// The connection of a node to the store: the sum of all lasting faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    pub weather: Weather,
    /// Whether it is cut: by refused connections (`true`) or silently (`false`).
    pub cut: Option<bool>,
    /// The kind of error that the store returns, and the share of requests in percent.
    pub error: Option<(Error, u8)>,
    /// What this candidate alone cannot do while it is examined.
    pub defect: Option<Defect>,
    /// Its streams from and to other candidates.
    pub peers: PeerLink,
}

/// A fault of one candidate that looks healthy: it can acquire the lease, and nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Its writes fail.
    CannotWrite,
    /// The answers to its bids are lost.
    LosesGrants,
}

/// The fate of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    /// The delay until it reaches the store; `None` if it never does.
    pub there: Option<Span>,
    /// The delay between two requests of one operation.
    pub between: Span,
    /// The delay until the answer arrives; `None` if it never does.
    pub back: Option<Span>,
    /// The request reaches the store a second time, this much later.
    pub again: Option<Span>,
    /// The connection breaks: the candidate notices at once, but does not know the outcome.
    pub broken: bool,
    /// The connection is refused: the candidate knows that nothing was sent.
    pub refused: bool,
    /// The store returns an error.
    pub error: Option<Error>,
    /// A read returns the state before this many changes.
    pub stale: Option<u8>,
}

/// A request or its answer in transit.
#[derive(Clone, Debug)]
pub struct Message {
    pub node: u8,
    /// The life of the node's process that sent it.
    pub life: u32,
    pub id: RequestId,
    pub op: Op,
    pub stage: Stage,
    /// The request for the value of a register, until it arrives, and then what it is answered with.
    pub asked: Option<Box<Asked>>,
    pub got: Option<Box<register::Outcome>>,
    /// Whether the network made it of another.
    pub copy: bool,
    pub fate: Fate,
    pub answer: Option<Result<Answer, StoreError>>,
    /// The highest term that its sender had seen.
    pub seen_term: u64,
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms =
            |span: Option<Span>| span.map_or("never".into(), |it| format!("{} ms", it / MILLI));
        write!(f, "there after {}, back after {}", ms(self.there), ms(self.back))?;
        if let Some(again) = self.again {
            write!(f, ", there again after {} ms", again / MILLI)?;
        }
        if self.broken {
            write!(f, ", connection broken")?;
        }
        if let Some(back) = self.stale {
            write!(f, ", stale by {back} changes")?;
        }
        self.error.map_or(Ok(()), |error| write!(f, ", the store errs: {error:?}"))
    }
}

/// Returns true with a probability in percent, and counts it as a fault.
fn happens(rng: &mut Rng, percent: u8, faults: &mut u64) -> bool {
    let happens = percent > 0 && rng.u8(..100) < percent;
    *faults += u64::from(happens);
    happens
}

/// Draws the delay of a message on a healthy link, of at most `latency`.
fn delay(rng: &mut Rng, latency: Span) -> Span {
    match rng.u8(..50) {
        0 => rng.u64(latency / 10..latency),
        _ => rng.u64(latency / 200..latency / 10),
    }
}

impl Fate {
    /// Draws a fate, and counts the faults in it.
    pub fn draw(rng: &mut Rng, link: &Link, latency: Span, op: &Op, faults: &mut u64) -> Self {
        let (there, back) = (delay(rng, latency), delay(rng, latency));
        let mut fate =
            Self { there: Some(there), between: back, back: Some(back), ..Self::default() };
        match (link.defect, op) {
            (Some(Defect::CannotWrite), Op::WriteTerm { .. }) => {
                fate.error = Some(Error::Unknown);
            }
            (Some(Defect::LosesGrants), Op::Acquire(_)) => fate.back = None,
            _ => {}
        }
        if let Some(refused) = link.cut {
            *faults += 1;
            fate.there = None;
            (fate.broken, fate.refused) = (refused, refused);
            return fate;
        }
        let weather = &link.weather;
        if weather.delay > 0 {
            if happens(rng, weather.late, faults) {
                fate.there = Some(there + rng.u64(..weather.delay));
            }
            if happens(rng, weather.late, faults) {
                fate.back = Some(back + rng.u64(..weather.delay));
            }
            if happens(rng, weather.twice, faults) {
                fate.again = Some(rng.u64(..weather.delay));
            }
            if happens(rng, weather.lost_before, faults) {
                fate.there = None;
            }
            if happens(rng, weather.lost_after, faults) {
                fate.back = None;
            }
            if happens(rng, weather.broken, faults) {
                fate.broken = true;
                *if rng.bool() { &mut fate.there } else { &mut fate.back } = None;
            }
        }
        if happens(rng, weather.stale, faults) {
            fate.stale = Some(rng.u8(1..=Store::KEPT));
        }
        if let Some((error, share)) = link.error
            && happens(rng, share, faults)
        {
            fate.error = Some(error);
        }
        fate
    }

    /// Returns whether the request succeeds in good time.
    pub fn is_well(&self, link: &Link, latency: Span) -> bool {
        let in_time = |span: Option<Span>| span.is_some_and(|it| it < latency);
        let single = self.again.is_none() && !self.broken && self.error.is_none();
        let single = single && self.stale.is_none();
        single && link.defect.is_none() && in_time(self.there) && in_time(self.back)
    }

    /// Returns when the candidate learns the outcome, counted from the sending; `None` if it never
    /// does. An operation of several requests takes longer by the delays between them.
    pub fn answered_after(&self, requests: u64) -> Option<Span> {
        let more = (requests - 1) * self.between;
        match (self.there, self.back) {
            (Some(there), Some(back)) => Some(there + more + back),
            // The candidate notices when the other side has closed the connection.
            (there, back) if self.broken => Some(there.or(back).unwrap_or(self.between) + more),
            _ => None,
        }
    }
}

/// Returns the error of a connection that broke, or was refused.
pub fn broken(refused: bool) -> StoreError {
    let failure = Failure::new(Cause::Network, "the connection broke");
    StoreError::RetryNow(Failure { had_no_effect: refused, ..failure })
}

/// Returns the error of a request that timed out.
pub fn timeout() -> StoreError {
    StoreError::Unknown(Failure::new(Cause::Timeout, "no answer in time"))
}
