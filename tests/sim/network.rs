//! What becomes of a message: drawn when it is sent, from the weather and the store's mood.

use fastrand::Rng;

use tenure::election::{Answer, Op, RequestId};
use tenure::store::{Cause, Failure, StoreError};

use super::faults::{Error, Weather};
use super::store::{Stage, Store};
use super::{MILLI, Span};

/// How a node is connected to the store now: the sum of all faults that last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Link {
    pub weather: Weather,
    /// Cut off, silently or by refusing connections.
    pub cut: Option<bool>,
    /// How the store errs, and in which share of requests.
    pub error: Option<(Error, u8)>,
    /// What this candidate alone can not do, for as long as it is examined.
    pub illness: Option<Illness>,
}

/// An illness of one candidate that looks healthy: it may ask for the lease, and no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Illness {
    /// Its writes fail.
    CannotWrite,
    /// The answers to its bids are lost.
    NeverHears,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fate {
    /// Until it reaches the store; `None` if it never does.
    pub there: Option<Span>,
    /// Between two requests of one operation.
    pub between: Span,
    /// Until the answer is back; `None` if it never comes.
    pub back: Option<Span>,
    /// It reaches the store once more, so much later.
    pub again: Option<Span>,
    /// The connection breaks: the candidate knows at once, and not what was done.
    pub broken: bool,
    /// The store errs.
    pub error: Option<Error>,
    /// What it is told was true so many changes ago, if it only looks.
    pub stale: Option<u8>,
}

/// A request on its way, there or back.
#[derive(Clone, Debug)]
pub struct Message {
    pub node: u8,
    /// Which life of the node's process sent it.
    pub life: u32,
    pub id: RequestId,
    pub op: Op,
    pub stage: Stage,
    /// Whether the network made it of another.
    pub copy: bool,
    pub fate: Fate,
    pub answer: Option<Result<Answer, StoreError>>,
    /// The largest term that its sender had been told.
    pub heard: u64,
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
            write!(f, ", told of {back} changes ago")?;
        }
        self.error.map_or(Ok(()), |error| write!(f, ", the store errs: {error:?}"))
    }
}

/// Whether something with a chance in percent happens, counting that it did.
fn strikes(rng: &mut Rng, percent: u8, faults: &mut u64) -> bool {
    let strikes = percent > 0 && rng.u8(..100) < percent;
    *faults += u64::from(strikes);
    strikes
}

/// How long a message is on its way when nothing is wrong.
fn delay(rng: &mut Rng) -> Span {
    match rng.u8(..50) {
        0 => rng.u64(20 * MILLI..200 * MILLI),
        _ => rng.u64(MILLI..20 * MILLI),
    }
}

impl Fate {
    /// Draws it, and counts what goes wrong.
    pub fn draw(rng: &mut Rng, link: &Link, op: &Op, faults: &mut u64) -> Self {
        let (there, back) = (delay(rng), delay(rng));
        let mut fate =
            Self { there: Some(there), between: back, back: Some(back), ..Self::default() };
        match (link.illness, op) {
            (Some(Illness::CannotWrite), Op::Inaugurate { .. }) => {
                fate.error = Some(Error::Unknown);
            }
            (Some(Illness::NeverHears), Op::Acquire(_)) => fate.back = None,
            _ => {}
        }
        if let Some(refused) = link.cut {
            *faults += 1;
            fate.there = None;
            fate.broken = refused;
            return fate;
        }
        let weather = &link.weather;
        if weather.delay > 0 {
            if strikes(rng, weather.late, faults) {
                fate.there = Some(there + rng.u64(..weather.delay));
            }
            if strikes(rng, weather.late, faults) {
                fate.back = Some(back + rng.u64(..weather.delay));
            }
            if strikes(rng, weather.twice, faults) {
                fate.again = Some(rng.u64(..weather.delay));
            }
            if strikes(rng, weather.lost_before, faults) {
                fate.there = None;
            }
            if strikes(rng, weather.lost_after, faults) {
                fate.back = None;
            }
            if strikes(rng, weather.broken, faults) {
                fate.broken = true;
                *if rng.bool() { &mut fate.there } else { &mut fate.back } = None;
            }
        }
        if strikes(rng, weather.stale, faults) {
            fate.stale = Some(rng.u8(1..=Store::KEPT));
        }
        if let Some((error, share)) = link.error
            && strikes(rng, share, faults)
        {
            fate.error = Some(error);
        }
        fate
    }

    /// Whether nothing is wrong with it.
    pub fn is_well(&self, link: &Link) -> bool {
        let slow = 200 * MILLI;
        let in_time = |span: Option<Span>| span.is_some_and(|it| it < slow);
        let single = self.again.is_none() && !self.broken && self.error.is_none();
        let single = single && self.stale.is_none();
        single && link.illness.is_none() && in_time(self.there) && in_time(self.back)
    }

    /// When the candidate hears of it, counted from the sending; `None` if never. How long the
    /// store takes for a second request of the operation is for `requests` to say.
    pub fn heard_after(&self, requests: u64) -> Option<Span> {
        let more = (requests - 1) * self.between;
        match (self.there, self.back) {
            (Some(there), Some(back)) => Some(there + more + back),
            // The connection broke: as soon as the other side closed it.
            (there, back) if self.broken => Some(there.or(back).unwrap_or(self.between) + more),
            _ => None,
        }
    }
}

/// What a candidate is told when its connection breaks.
pub fn broken() -> StoreError {
    StoreError::Broken(Failure::new(Cause::Network, "the connection broke"))
}

/// What a candidate is told when its patience is over.
pub fn timeout() -> StoreError {
    StoreError::Unknown(Failure::new(Cause::Timeout, "no answer in time"))
}
