//! The values that go in and out of the election: requests, answers, entropy, commands and notices.

use std::sync::Arc;
use std::time::Duration;

use crate::election::peer::PeerOutcome;
use crate::election::reason::Transition;
use crate::election::status::Holder;
use crate::lease::{Bid, Grant, LeaseId, Nonce, Snapshot, Successor, Version};

/// A request to the store, to be sent now. The driver hands in exactly one answer for each, an
/// unknown one when `timeout` is over.
#[derive(Clone, Debug)]
pub struct Request {
    /// Identifies the request; only an answer with this id counts (R3).
    pub id: RequestId,
    /// The operation.
    pub op: Op,
    /// How long the driver waits for the answer.
    pub timeout: Duration,
}

/// The id of one request of one election.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An operation of the store: one call of [`crate::store::LeaseStore`].
#[derive(Clone, Debug)]
pub enum Op {
    /// Read who holds the lease.
    Read,
    /// Acquire the lease.
    Acquire(Arc<Bid>),
    /// Write the term under the lease.
    WriteTerm {
        /// The acquisition.
        bid: Arc<Bid>,
        /// The least term.
        floor: u64,
    },
    /// Renew the lease.
    Renew(Arc<Bid>),
    /// Write the successor under the lease.
    SetSuccessor {
        /// The acquisition.
        bid: Arc<Bid>,
        /// The successor.
        successor: Successor,
    },
    /// Release the lease.
    Release(Arc<Bid>),
}

impl Op {
    /// The names of all operations, for metrics whose series exist from the start.
    pub const NAMES: [&'static str; 6] =
        ["read", "acquire", "write-term", "renew", "set-successor", "release"];

    /// Returns the name of the operation in metrics and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Acquire(_) => "acquire",
            Self::WriteTerm { .. } => "write-term",
            Self::Renew(_) => "renew",
            Self::SetSuccessor { .. } => "set-successor",
            Self::Release(_) => "release",
        }
    }

    /// Returns the lease that the request is for; `None` for a read.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseId> {
        match self {
            Self::Read => None,
            Self::Acquire(bid)
            | Self::WriteTerm { bid, .. }
            | Self::Renew(bid)
            | Self::SetSuccessor { bid, .. }
            | Self::Release(bid) => Some(bid.lease),
        }
    }
}

/// The store's answer to an [`Op`].
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The answer to a read.
    Snapshot(Snapshot),
    /// The answer to an acquisition.
    Grant(Grant),
    /// The answer to the write of a term: the term that was written.
    Term(u64),
    /// The answer to a renewal, the write of a successor, or a release.
    Done,
    /// Like [`Done`](Self::Done), with the version that was written, for [`Bid::written`].
    Written(Version),
}

impl Answer {
    /// Returns the version that was written, if the store returned one.
    pub(super) fn version(&self) -> Option<&Version> {
        match self {
            Self::Grant(grant) => grant.version.as_ref(),
            Self::Written(version) => Some(version),
            Self::Snapshot(_) | Self::Term(_) | Self::Done => None,
        }
    }
}

impl From<Option<Version>> for Answer {
    fn from(written: Option<Version>) -> Self {
        written.map_or(Self::Done, Self::Written)
    }
}

/// The entropy for one turn, drawn by the driver, since the election draws none.
#[derive(Clone, Copy, Debug)]
pub struct Entropy {
    /// 128 random bits for a lease id.
    pub lease: u128,
    /// 128 random bits for a nonce, independent of those of the lease.
    pub nonce: Nonce,
    /// Uniform in 0 to 1, for jitter.
    pub jitter: f32,
}

/// A notice for the log and the metrics.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// The state changed.
    Transition(Transition),
    /// Another holder or term was seen, or none.
    HolderChanged(Option<Holder>),
    /// The record is missing, or has no term (R11).
    RecordMissing {
        /// How long the lease is held before it may be active; zero where deleting the record frees
        /// the lease.
        hold: Duration,
    },
    /// The recorded term is lower than one seen before (R11).
    TermFell {
        /// The largest term seen.
        seen: u64,
        /// The term found.
        found: u64,
    },
    /// The recorded term is so large that none can follow: no lease is held on this record.
    TermTooLarge {
        /// The term found.
        found: u64,
    },
    /// The record says that the election has moved to the store at this place, or no longer says so.
    Moved(Option<Arc<str>>),
    /// The record names a successor.
    SuccessorNamed(Successor),
    /// The outcome of a release is unknown, or a lapsed lease was not over in the time for its
    /// release: at worst the lease runs out.
    ReleaseUnknown,
    /// A notice of the leader's stream was handled.
    Peer {
        /// One of [`PeerNotice::KINDS`](super::PeerNotice::KINDS).
        kind: &'static str,
        /// What it has changed.
        outcome: PeerOutcome,
    },
}
