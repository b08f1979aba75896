//! The values of a lease: bids, grants, records, ids and errors, as the election and every store use
//! them.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

mod anomaly;
mod failure;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod peer_url;
mod successor;
pub mod text;

pub use anomaly::Anomaly;
pub use failure::{Cause, Failure, StoreError};
pub use peer_url::PeerUrl;
pub use successor::Successor;

/// The properties of a kind of store that the election depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The longest lease that any candidate can hold in this store, for R11's hold; `None` if only
    /// this candidate's own lease-duration is known.
    pub longest_lease: Option<Duration>,
    /// Whether a missing record needs no hold by an instance that has seen no term in this store
    /// (`file:` and `memory:`): a new directory has no earlier holder.
    pub missing_is_free: bool,
}

/// One running instance that competes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name for people; several candidates may have the same.
    pub identity: String,
    /// Random for each process: distinguishes two candidates with the same identity.
    pub instance: String,
    /// The address of the service next to the candidate, published while it leads.
    pub address: Option<String>,
    /// The URL of its stream for its peers, as [`PeerUrl`] formats it; `None` without peers.
    pub peer: Option<String>,
}

/// The parameters of one acquisition; the same in each of its requests, to the end.
#[derive(Clone, Debug)]
pub struct Bid {
    /// The lease that this bid is for.
    pub lease: LeaseId,
    /// Identifies the record that this acquisition writes.
    pub nonce: Nonce,
    /// The candidate that bids.
    pub candidate: Arc<Candidate>,
    /// How long the store keeps the lease after each grant.
    pub lease_duration: Duration,
    /// The version that was seen free, for stores that compare and set.
    pub seen: Version,
    /// The version that the last write of this bid returned; `None` if its outcome is unknown or its
    /// store returns none. A store that compares and sets writes on it without a read before.
    pub written: Option<Version>,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Whether the store allows the lease to be acquired now. Where observers count the time, only
    /// after a release.
    pub free: bool,
    /// The record of the last term that was written. If the present holder did not write it, its
    /// term alone.
    pub record: Record,
    /// The version that was read.
    pub version: Version,
    /// The claim whose time each observer counts, if the lease is held and no store counts; always
    /// `None` if the store counts.
    pub claim: Option<Claim>,
    /// How long the lease lasts without a renewal, if the store says so; [`Duration::MAX`] if it has
    /// no end.
    pub ends_in: Option<Duration>,
}

impl Snapshot {
    /// Returns whether the lease is held and has no end, as no candidate of Tenure holds it: the record is
    /// not the holder's.
    #[must_use]
    pub fn has_no_end(&self) -> bool {
        !self.free && self.ends_in == Some(Duration::MAX)
    }
}

/// A lease in the record of an observer-timed store. It is over for an observer that has seen it
/// unchanged for its whole duration (R2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The holder and the renewal: each renewal changes this, and no other write does, so that
    /// other changes to the object do not start the wait anew.
    pub spec: Version,
    /// How long the lease lasts after each renewal, as written by its holder.
    pub lease_duration: Duration,
}

/// What a store reports unasked. It is never evidence that a lease is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something other than a renewal has changed, or may have.
    News {
        /// The acquisition that holds the lease; `None` if none does, or the store cannot tell.
        held_by: Option<Nonce>,
    },
    /// The holder of an observer-timed lease has renewed it.
    Renewal(Claim),
}

/// What the store keeps next to the lease: written at the start of a leadership, kept after its
/// end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The last term written; `None` if there is no record yet, or it was lost (R11).
    pub term: Option<u64>,
    /// The candidate that wrote this term.
    pub holder: Option<Arc<Candidate>>,
    /// The acquisition that wrote the record.
    pub nonce: Option<Nonce>,
    /// The successor that this candidate named, or the store that the election has moved to.
    pub successor: Option<Successor>,
}

impl Record {
    /// Returns the place of the store that the election has moved to; `None` if it is still here.
    #[must_use]
    pub fn moved_to(&self) -> Option<&str> {
        self.successor.as_ref().filter(|it| it.is_store()).map(|it| it.identity.as_str())
    }

    /// Returns the candidate that is to lead next, if one is named.
    #[must_use]
    pub fn named_successor(&self) -> Option<&Successor> {
        self.successor.as_ref().filter(|it| !it.is_store())
    }
}

/// The result of a granted acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The record as found under the lease.
    pub record: Record,
    /// The date by the store's clock, if the store sends one.
    pub date: Option<OffsetDateTime>,
    /// The version that was written, for [`Bid::written`].
    pub version: Option<Version>,
}

/// A lease id: random per acquisition, never configured, derived, stored or reused (R5).
///
/// Knowing it is enough to renew or release the lease, so `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(Uuid);

impl LeaseId {
    /// Creates a version 4 UUID from 128 random bits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
    }

    /// Returns the id as a number of 128 bits, for requests to a store only.
    #[must_use]
    pub fn to_bits(self) -> u128 {
        self.0.as_u128()
    }

    /// Returns the id in lower case with dashes, for requests to a store only.
    #[must_use]
    pub fn to_wire(self) -> String {
        self.0.hyphenated().to_string()
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseId(…)")
    }
}

/// Proves in the record which acquisition wrote it (R7), and to a leader that a candidate can read the
/// record: so it is neither logged nor served. Not a lease id.
///
/// Its first 32 bits are a date, since every store keeps them: when the lease was last handed over to a named
/// successor, in seconds of unix time; 0 for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub u128);

impl Nonce {
    /// The number of random bits, after the date.
    const RANDOM: u32 = 96;

    /// Returns the same random bits after this date.
    #[must_use]
    pub fn with_handover(self, at: Option<OffsetDateTime>) -> Self {
        let seconds = at.and_then(|it| u32::try_from(it.unix_timestamp()).ok()).unwrap_or(0);
        let random = self.0 & ((1 << Self::RANDOM) - 1);
        Self((u128::from(seconds) << Self::RANDOM) | random)
    }

    /// Returns when the lease was last handed over to a named successor, as far as is known.
    #[must_use]
    pub fn handover(self) -> Option<OffsetDateTime> {
        let seconds = i64::try_from(self.0 >> Self::RANDOM).ok().filter(|it| *it > 0)?;
        OffsetDateTime::from_unix_timestamp(seconds).ok()
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl std::str::FromStr for Nonce {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

/// The store's name for one state of the lock (an `ETag`, a counter), or all of that state. Opaque:
/// only equality means anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub Label);

/// A name, and the state that has it, where the store bases its next write on that.
#[derive(Clone)]
pub struct Label {
    name: Arc<str>,
    state: Option<Arc<dyn Any + Send + Sync>>,
}

impl Label {
    /// Names a state, and keeps it.
    pub fn of<T: Any + Send + Sync>(name: &str, state: T) -> Self {
        Self { name: name.into(), state: Some(Arc::new(state)) }
    }

    /// Returns the state, if it was kept as this type.
    #[must_use]
    pub fn state<T: Any>(&self) -> Option<&T> {
        self.state.as_ref()?.downcast_ref()
    }
}

impl From<&str> for Label {
    fn from(name: &str) -> Self {
        Self { name: name.into(), state: None }
    }
}

impl From<String> for Label {
    fn from(name: String) -> Self {
        (*name).into()
    }
}

impl Deref for Label {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl PartialEq for Label {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Label {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_keeps_a_date_before_its_random_bits() {
        let drawn = Nonce(u128::MAX - 7);
        let never = drawn.with_handover(None);
        assert_eq!((never.handover(), never), (None, Nonce((1 << 96) - 8)));
        let at = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let dated = drawn.with_handover(Some(at));
        assert_eq!(dated.handover(), Some(at));
        assert_eq!(dated.with_handover(None), never, "the random bits stay");
        assert_eq!(dated.to_string().parse(), Ok(dated));
        let before = OffsetDateTime::from_unix_timestamp(-1).unwrap();
        assert_eq!(drawn.with_handover(Some(before)).handover(), None);
    }
}
