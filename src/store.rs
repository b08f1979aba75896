//! The lease store as the election sees it: the trait [`LeaseStore`], its answers and its errors.
//!
//! A *backend* is one kind of store and has a file of its own below this one; none knows another. A
//! backend decides nothing, retries nothing, never sleeps and caches nothing. One call is one
//! attempt under the deadline that the caller sets by dropping the future, and returns what the
//! store answered.
//!
//! Stores differ in three ways:
//! - *Where the time is counted.* By the store (Azure, a file on one host), or by each observer:
//!   [`Sight::claim`] tells whether the lease has changed since the last read.
//! - *Where the term comes from.* [`LeaseStore::inaugurate`] returns it, whether it is a number of
//!   the store or a counter in the record.
//! - *Whether the store can notify.* [`LeaseStore::changed`] wakes a standby before its next poll.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::config::{Settings, StoreSettings};

pub mod azure;
mod failure;
pub mod file;
pub mod kubernetes;
pub mod memory;
mod successor;

pub use failure::{Cause, Failure, StoreError};
pub use successor::Successor;

/// A place that keeps one lease, with the record of its holder.
///
/// Every call is one attempt. Its future may be dropped at any await, and the request may still
/// reach the store later; the caller takes that into account (R3, R5). An error is
/// [`StoreError::Unknown`] until the backend can prove that it is definite (R4).
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Returns the name of the kind of store for status, logs and messages: `azure`, `file`,
    /// `kubernetes`, `memory`.
    fn kind(&self) -> &'static str;

    /// Returns the properties of this kind of store that the election depends on.
    fn rules(&self) -> Rules;

    /// Reads the lease and its record in one cheap request that changes nothing.
    ///
    /// A lock that does not exist yet is free and has no term. A record that Tenure did not write
    /// is [`StoreError::Foreign`].
    async fn look(&self) -> Result<Sight, StoreError>;

    /// Acquires the lease if it is free, or again if `bid.lease` already holds it; the store counts
    /// `bid.lease_duration` anew either way. Creates the lock first if it is missing, overwriting
    /// nothing.
    ///
    /// Returns the record as found, which is that of an earlier leadership, since only
    /// [`inaugurate`](Self::inaugurate) writes this bid's. [`StoreError::Refused`] means that
    /// another candidate holds the lease.
    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError>;

    /// Writes the record of this bid (holder, nonce and term) under the lease, and returns the
    /// term, which is larger than the recorded one and at least `floor` (R7).
    ///
    /// If the record already has `bid.nonce`, returns the term that was written then, by an earlier
    /// attempt whose answer was lost. [`StoreError::Refused`] means that this bid does not hold the
    /// lease.
    async fn inaugurate(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError>;

    /// Makes the store count `bid.lease_duration` anew. [`StoreError::Refused`] means that the
    /// lease is definitely lost.
    async fn renew(&self, bid: &Bid) -> Result<(), StoreError>;

    /// Writes to this bid's record, under the lease, which candidate should lead next; the others
    /// defer to it. Term, holder and nonce stay, an earlier successor is replaced, and the next
    /// write of a term clears it.
    ///
    /// The value written is that of [`Successor::as_stored`]; if the record already has it, nothing
    /// is written. The lease is not extended. [`StoreError::Refused`] means that this bid does not
    /// hold the lease, or did not write the record.
    async fn nominate(&self, bid: &Bid, successor: &Successor) -> Result<(), StoreError>;

    /// Frees the lease and keeps the record. [`StoreError::Refused`] means that this bid no longer
    /// held the lease, which has the same effect.
    async fn release(&self, bid: &Bid) -> Result<(), StoreError>;

    /// Breaks the lease, whichever candidate holds it, for an operator (R12); the record stays.
    ///
    /// By default the lease runs out: no candidate can acquire it before its granted time is over,
    /// and its holder's renewals are refused from now on. That is safe. Other safe requests of the
    /// holder may still succeed until then: a release, and in some stores the write of a term.
    /// [`StoreError::Refused`] means that the lease has no end at which it could run out.
    ///
    /// With `at_once` the lease is free when the call returns, but its holder believes in it until
    /// its next renewal or its deadline: two instances may lead meanwhile. Use it only for a holder
    /// known to be dead.
    ///
    /// May be repeated: a lease that is being broken is still held, and does not run out later for
    /// it.
    async fn break_lease(&self, at_once: bool) -> Result<Broken, StoreError>;

    /// Resolves when there is a reason to read now. It is never evidence of anything, and never
    /// resolves if the store cannot notify.
    async fn changed(&self) {
        std::future::pending().await
    }

    /// Checks everything that this store needs, for `tenure doctor`, in the order in which an
    /// operator would fix it. Does not touch the lease or its record; permissions that need a real
    /// write are tried on a separate probe object.
    async fn examine(&self) -> Vec<Finding>;

    /// Creates what is missing, and writes a first term of at least `floor` if there is none, so
    /// that the first leader need not hold the lease (R11). Returns a description of each thing
    /// created; empty if nothing was missing.
    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError>;
}

/// Opens the store that the settings name. Sends no request yet: a store that cannot be reached, or
/// denies access, shows in the election, which retries until it answers.
///
/// # Errors
/// Returns an error if the store's client cannot be built.
pub fn open(settings: &Settings) -> anyhow::Result<Arc<dyn LeaseStore>> {
    Ok(match &settings.store {
        StoreSettings::File(file) => Arc::new(file::FileStore::open(file)),
        StoreSettings::Azure(azure) => Arc::new(azure::Azure::open(azure.as_ref().clone())?),
        StoreSettings::Kubernetes(lease) => Arc::new(kubernetes::Kubernetes::open(lease)?),
        StoreSettings::Memory => Arc::new(memory::Memory::new()),
    })
}

/// The properties of a kind of store that the election depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The longest lease that any candidate can hold in this store, for R11's hold; `None` if only
    /// this candidate's own lease-duration is known.
    pub longest_lease: Option<Duration>,
    /// Whether a missing record needs no hold, because deleting it frees the lease behind the
    /// holder's back (`file:` and `memory:`).
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
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
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
    /// The successor that this candidate named.
    pub successor: Option<Successor>,
}

/// The result of breaking the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The lease was not held, and nothing was changed.
    NotHeld,
    /// The lease was held, and its holder can no longer renew it.
    Held {
        /// The record as found. It may be that of an earlier leadership, if the holder had not
        /// written its own yet.
        record: Record,
        /// The longest time from this answer until the lease can be acquired; zero if it was freed
        /// at once.
        free_in: Duration,
    },
}

/// The result of a granted acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The record as found under the lease.
    pub record: Record,
    /// The date by the store's clock, if the store sends one.
    pub date: Option<OffsetDateTime>,
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

/// Proves in the record which acquisition wrote it (R7). Not a secret, and not a lease id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(pub u128);

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

/// The store's name for one state of the lock (an `ETag`, a counter). Opaque: only equality means
/// anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub Arc<str>);

/// One line of the report of `tenure doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The subject, in a word or two: `container`, `clock skew`.
    pub subject: Cow<'static, str>,
    /// The result.
    pub verdict: Verdict,
    /// The details, for people.
    pub detail: String,
    /// What to do about it, if anything.
    pub remedy: Option<String>,
}

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Well,
    /// It works, but an operator should know about it.
    Doubtful,
    /// It does not work; `tenure doctor` exits with 1.
    Wrong,
    /// Not checked, because of an earlier finding.
    Skipped,
}
