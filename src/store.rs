//! The lease store as the election sees it: the trait [`LeaseStore`], its answers and its errors.
//!
//! A *backend* is one kind of store and lives in a file of its own below this one; none knows
//! another. What a backend does not do: it decides nothing, retries nothing, sleeps nowhere and
//! caches nothing. One call is one attempt under the deadline that the caller sets by dropping the
//! future, and says what came back.
//!
//! Stores differ in three things, and the trait has a place for each:
//! - *Who counts the time.* The store itself (Azure, a file on one host), or each observer, for
//!   whom the record just stands there: [`Sight::claim`] tells whether it still is the same.
//! - *Where the term comes from.* [`LeaseStore::inaugurate`] returns it, whether it is the store's
//!   own number or a counter in the record.
//! - *Whether the store can tell.* [`LeaseStore::changed`] wakes a standby before its next poll.

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

/// A place where one lease is kept, with the record of who holds it.
///
/// Every call is one attempt. Its future may be dropped at any await, and the request may still
/// reach the store later; whoever calls knows that (R3, R5). An error is [`StoreError::Unknown`]
/// until the backend can prove that it is definite (R4).
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Names the kind of store for status, logs and messages: `azure`, `file`,
    /// `kubernetes`, `memory`.
    fn kind(&self) -> &'static str;

    /// Says what the election must know about this kind of store.
    fn rules(&self) -> Rules;

    /// Says who holds the lease and whether it is free, in one cheap read that changes nothing.
    ///
    /// A lock that does not exist yet is a free one without a term. A record that is not ours is
    /// [`StoreError::Foreign`].
    async fn look(&self) -> Result<Sight, StoreError>;

    /// Takes the lease if it is free, or again if `bid.lease` already has it; the store counts
    /// `bid.lease_duration` anew either way. Makes the lock first where it is missing, overwriting
    /// nothing.
    ///
    /// Returns the record as found: that of an earlier tenure, since ours is written by
    /// [`inaugurate`](Self::inaugurate) alone. [`StoreError::Refused`] means that another holds it.
    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError>;

    /// Writes our record (holder, nonce and term) under the lease and returns the term, which is
    /// larger than the recorded one and at least `floor` (R7).
    ///
    /// Where the record already bears `bid.nonce` it returns the term written then: an earlier
    /// attempt whose answer was lost. [`StoreError::Refused`] means that the lease is not ours.
    async fn inaugurate(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError>;

    /// Has the store count `bid.lease_duration` anew. [`StoreError::Refused`] means that the lease
    /// is lost for certain.
    async fn renew(&self, bid: &Bid) -> Result<(), StoreError>;

    /// Names in our record, under the lease, who should lead next: the others let that candidate go
    /// first. Term, holder and nonce stay, an earlier successor of ours is replaced, and the next
    /// term write clears it.
    ///
    /// It is written as [`Successor::as_stored`] makes it; where that stands there already,
    /// nothing is written. It counts nothing anew. [`StoreError::Refused`] means that lease or
    /// record are not ours.
    async fn nominate(&self, bid: &Bid, successor: &Successor) -> Result<(), StoreError>;

    /// Frees the lease, keeping the record. [`StoreError::Refused`] means that it was not ours any
    /// more, which comes to the same.
    async fn release(&self, bid: &Bid) -> Result<(), StoreError>;

    /// Ends whoever's lease there is, for an operator (R12); the record stays.
    ///
    /// By default the lease runs out: nobody can have it before the time that it was granted for is
    /// over, and from now on its holder's renewals are refused. That is safe. What stays safe
    /// besides may stay possible until then: a release, in some stores a term's write too.
    /// [`StoreError::Refused`] means that the lease has no end that it could run out at.
    ///
    /// With `at_once` it is free when the call returns, and its holder goes on believing until its
    /// next renewal or its deadline: two may lead meanwhile. For a holder known to be dead.
    ///
    /// May be repeated: a lease that is being broken is held still, and runs out no later for it.
    async fn break_lease(&self, at_once: bool) -> Result<Broken, StoreError>;

    /// Resolves when there is a reason to look now. It is never evidence of anything, and never
    /// resolves where the store cannot tell.
    async fn changed(&self) {
        std::future::pending().await
    }

    /// Goes through everything that this store needs to work for us, for `tenure doctor`, in the
    /// order in which a person would mend it. Leaves the lease and its record alone; what must be
    /// tried in earnest is tried on a probe of its own.
    async fn examine(&self) -> Vec<Finding>;

    /// Makes what is missing and writes a first term of at least `floor` where there is none, so
    /// that the first leader need not hold (R11). Says in words what it made; empty when nothing
    /// was missing.
    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError>;
}

/// Opens the store that the settings name. Nothing is asked of it yet: a store that is away, or
/// refuses us, is for the election to find out, again and again, until it is mended.
///
/// # Errors
/// When the store's client cannot be made, whatever the store.
pub fn open(settings: &Settings) -> anyhow::Result<Arc<dyn LeaseStore>> {
    Ok(match &settings.store {
        StoreSettings::File(file) => Arc::new(file::FileStore::open(file)),
        StoreSettings::Azure(azure) => Arc::new(azure::Azure::open(azure.as_ref().clone())?),
        StoreSettings::Kubernetes(lease) => Arc::new(kubernetes::Kubernetes::open(lease)?),
        StoreSettings::Memory => Arc::new(memory::Memory::new()),
    })
}

/// What the election must know about a kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The longest lease that anybody can hold in this store, for R11's hold; `None` where our own
    /// lease-duration is all that can be known.
    pub longest_lease: Option<Duration>,
    /// Whether a missing record needs no hold, because deleting it is freeing the lease behind the
    /// holder's back (`file:` and `memory:`).
    pub missing_is_free: bool,
}

/// One running instance that competes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name for people; several candidates may bear the same.
    pub identity: String,
    /// Random, drawn by each process: tells apart two candidates of one identity.
    pub instance: String,
    /// The address of the service next to the candidate, published while it leads.
    pub address: Option<String>,
}

/// What a candidate asks for in one acquisition; the same in each of its requests, to the end.
#[derive(Clone, Debug)]
pub struct Bid {
    /// The lease that this bid is for.
    pub lease: LeaseId,
    /// What the record will bear as proof that it is this acquisition's.
    pub nonce: Nonce,
    /// Who asks.
    pub candidate: Arc<Candidate>,
    /// How long the store keeps the lease after each grant.
    pub lease_duration: Duration,
    /// What was seen free, for stores that compare and set.
    pub seen: Version,
}

/// What a look saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Whether the store says that the lease may be had now. Where observers count the time, that
    /// is so only after a release.
    pub free: bool,
    /// The record of the last term that was written. Of a lease that is held by somebody who did not
    /// write it, its term alone.
    pub record: Record,
    /// The version that was seen.
    pub version: Version,
    /// What each observer counts the time of, where a lease is held and no store does; always
    /// `None` where the store counts.
    pub claim: Option<Claim>,
}

/// A lease that stands in the record of an observer-timed store, and is over for who has seen it
/// unchanged for its whole duration (R2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What stands there, holder and renewal: each renewal changes it, and nothing else does, so
    /// that whatever else is written beside it makes nobody wait anew.
    pub spec: Version,
    /// How long the lease lasts after each renewal, as its holder wrote it.
    pub lease_duration: Duration,
}

/// What the store holds beside the lease: written at the start of a tenure, kept after its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The last term written; `None` where there is no record yet, or it was lost (R11).
    pub term: Option<u64>,
    /// Whose term that was.
    pub holder: Option<Arc<Candidate>>,
    /// Which acquisition wrote it.
    pub nonce: Option<Nonce>,
    /// Whom that holder would have lead next.
    pub successor: Option<Successor>,
}

/// What breaking the lease came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Nobody held it, and nothing was changed.
    NotHeld,
    /// It was held, and its holder cannot renew it any more.
    Held {
        /// The record as found before. It may be that of an earlier tenure, where the holder had
        /// not written its own yet.
        record: Record,
        /// How long it lasts at most from the answer on, until somebody can have it: zero where it
        /// was freed at once.
        free_in: Duration,
    },
}

/// What came with a granted acquisition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The record as found under the lease.
    pub record: Record,
    /// The store's own date, where it tells one.
    pub date: Option<OffsetDateTime>,
}

/// A lease id: random per acquisition, never configured, derived, stored or reused (R5).
///
/// Whoever knows it can renew or release the lease, so `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseId(Uuid);

impl LeaseId {
    /// Makes a version 4 UUID of 128 random bits.
    #[must_use]
    pub fn from_random(bits: u128) -> Self {
        Self(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
    }

    /// The id in lower case with dashes, for the wire alone.
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

/// Proof in the record of which acquisition wrote it (R7). No secret, and no lease id.
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

/// The store's name for one state of the lock (an `ETag`, a counter). Opaque: two are equal or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(pub Arc<str>);

/// One line of what `tenure doctor` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a word or two: `container`, `clock skew`.
    pub subject: Cow<'static, str>,
    /// How it stands.
    pub verdict: Verdict,
    /// What was found, in words.
    pub detail: String,
    /// What to do about it, where something is to be done.
    pub remedy: Option<String>,
}

/// How a finding stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Well,
    /// It works, but an operator should know.
    Doubtful,
    /// It does not work; `tenure doctor` exits with 1.
    Wrong,
    /// Could not be looked at, because of something above it.
    Skipped,
}
