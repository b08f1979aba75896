//! What goes in and out of the election: requests, answers, chance and notices.
//!
//! What it does not do: nothing here acts; these are values.

use std::time::Duration;

use crate::election::status::{Holder, State};
use crate::election::transition::Transition;
use crate::store::{Bid, Grant, LeaseId, Nonce, Sight, Successor};

/// A request to the store, to be sent now. Each gets exactly one answer from the driver, an
/// unknown one when its time is up.
#[derive(Clone, Debug)]
pub struct Request {
    /// Names the request; an answer counts for this one only (R3).
    pub id: RequestId,
    /// What to ask.
    pub op: Op,
    /// How long the driver waits for the answer.
    pub timeout: Duration,
}

/// Names one request of one election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What to ask of the store: one call of [`crate::store::LeaseStore`].
#[derive(Clone, Debug)]
pub enum Op {
    /// Look who holds the lease.
    Look,
    /// Acquire the lease.
    Acquire(Bid),
    /// Write the term under the lease.
    Inaugurate {
        /// For which acquisition.
        bid: Bid,
        /// The least term.
        floor: u64,
    },
    /// Renew the lease.
    Renew(Bid),
    /// Write under the lease who is to have it next.
    Nominate {
        /// For which acquisition.
        bid: Bid,
        /// Whom.
        successor: Successor,
    },
    /// Release the lease.
    Release(Bid),
}

impl Op {
    /// The names of all operations, for metrics whose series exist from the start.
    pub const NAMES: [&'static str; 6] =
        ["look", "acquire", "inaugurate", "renew", "nominate", "release"];

    /// The operation's name in metrics and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Look => "look",
            Self::Acquire(_) => "acquire",
            Self::Inaugurate { .. } => "inaugurate",
            Self::Renew(_) => "renew",
            Self::Nominate { .. } => "nominate",
            Self::Release(_) => "release",
        }
    }

    /// The lease that the request is for; a look is for none.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Look => None,
            Self::Acquire(bid)
            | Self::Inaugurate { bid, .. }
            | Self::Renew(bid)
            | Self::Nominate { bid, .. }
            | Self::Release(bid) => Some(bid.lease),
        }
    }
}

/// What the store answered to an [`Op`], in the same order.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To a look.
    Sight(Sight),
    /// To an acquisition.
    Grant(Grant),
    /// To an inauguration: the term that was written.
    Term(u64),
    /// To a renewal, a nomination or a release.
    Done,
}

/// Chance for one turn, drawn by the driver: the election draws none of its own.
#[derive(Clone, Copy, Debug)]
pub struct Chance {
    /// 128 random bits for a lease id.
    pub lease: u128,
    /// 128 random bits for a nonce, independent of the lease's.
    pub nonce: Nonce,
    /// Uniform in 0 to 1, for jitter.
    pub jitter: f32,
}

/// What somebody wants of this candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Will {
    /// That it gives its leadership up, and lets another win: it does not bid for so long, counted
    /// from its first look after the release that shows the lease free or another's.
    StepDown {
        /// For how long.
        hold_off: Duration,
    },
    /// That it gives its leadership up to this successor, for whom the others wait.
    Transfer(Successor),
    /// That it takes no part until it is told to resume, giving up what it has.
    Pause,
    /// That it takes part again.
    Resume,
    /// That it waits no longer: the service has ended its work as leader of this term, or of
    /// whichever term is being drained.
    Drained(Option<u64>),
}

/// How far a [`Will`] is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has begun: passive is said, the lease is given back as soon as may be.
    Begun,
    /// It is done.
    Done,
}

/// A [`Will`] that cannot be done in this state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In which.
    pub state: State,
}

/// Something that people should hear of.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The state changed.
    Transition(Transition),
    /// Another holder or term was seen, or none.
    HolderChanged(Option<Holder>),
    /// The record is missing or bears no term (R11).
    RecordMissing {
        /// How long the lease is held before active; zero where deleting is freeing.
        hold: Duration,
    },
    /// The recorded term is lower than one seen before (R11).
    TermFell {
        /// The largest term seen.
        seen: u64,
        /// The term found.
        found: u64,
    },
    /// The recorded term is so large that none can follow it: no lease is held on it.
    TermTooLarge {
        /// The term found.
        found: u64,
    },
    /// The record names who is to lead next.
    SuccessorNamed(Successor),
    /// The outcome of a release is unknown, or a lapsed lease was not released in the time that there
    /// was: at worst the lease runs out by itself.
    ReleaseUnknown,
}
