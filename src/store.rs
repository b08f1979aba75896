//! The lease store: the traits [`LeaseStore`], which has what an election calls, and [`LeaseAdmin`],
//! which has what an operator does.
//!
//! A *backend* is one kind of store and has a file of its own below this one; none knows another. A
//! backend decides nothing, retries nothing, never sleeps and caches nothing. One call is one
//! attempt under the deadline that the caller sets by dropping the future, and returns what the
//! store answered.
//!
//! There are two families. Azure, `file:` and `memory:` have leases of their own, whose time the store counts.
//! Everything else is a value that is compared and set, a [`register`], whose time each observer counts:
//! [`Snapshot::claim`] tells whether the lease has changed since the last read. A Lease of Kubernetes is one
//! in the fields of client-go.
//!
//! Where a store can notify, [`LeaseStore::changed`] wakes a standby before its next poll, and a leader that
//! has lost the lease before its next renewal.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::config::{Settings, StoreSettings};
use crate::lease::{Bid, Change, Grant, Record, Rules, Snapshot, StoreError, Successor, Version};

pub mod azure;
#[cfg(any(feature = "consul", feature = "etcd", feature = "gcs", feature = "s3"))]
mod client;
#[cfg(feature = "consul")]
pub mod consul;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod file;
mod finding;
#[cfg(feature = "gcs")]
pub mod gcs;
mod json;
pub mod kubernetes;
pub mod memory;
#[cfg(feature = "mongodb")]
pub mod mongodb;
#[cfg(any(
    feature = "consul",
    feature = "etcd",
    feature = "gcs",
    feature = "mongodb",
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "zookeeper"
))]
mod network;
mod network_error;
#[cfg(any(
    feature = "consul",
    feature = "etcd",
    feature = "postgres",
    feature = "redis",
    feature = "zookeeper"
))]
mod next_server;
mod pause;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "gcs", feature = "s3"))]
mod query;
#[cfg(feature = "redis")]
pub mod redis;
pub mod register;
mod renewed;
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(any(
    feature = "consul",
    feature = "etcd",
    feature = "mongodb",
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "zookeeper"
))]
mod secret;
#[cfg(any(
    feature = "consul",
    feature = "etcd",
    feature = "gcs",
    feature = "mongodb",
    feature = "postgres",
    feature = "redis",
    feature = "s3",
    feature = "zookeeper"
))]
mod server_finding;
#[cfg(any(feature = "postgres", feature = "redis", feature = "zookeeper"))]
mod stream;
#[cfg(any(feature = "consul", feature = "etcd"))]
mod turns;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

pub use finding::{Finding, Verdict};

/// A place that keeps one lease, with the record of its holder.
///
/// Every call is one attempt. Its future may be dropped at any await, and the request may still
/// reach the store later; the caller takes that into account (R3, R5). An error is
/// [`StoreError::Unknown`] until the backend can prove that it is definite (R4).
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Returns the name of the kind of store for status, logs and messages: `azure`, `consul`, `etcd`,
    /// `file`, `gcs`, `kubernetes`, `memory`, `mongodb`, `postgres`, `redis`, `s3`, `zookeeper`.
    fn kind(&self) -> &'static str;

    /// Returns the properties of this kind of store that the election depends on.
    fn rules(&self) -> Rules;

    /// Reads the lease and its record in one cheap request that changes nothing.
    ///
    /// A lock that does not exist yet is free and has no term. A record that Tenure did not write
    /// is [`StoreError::Foreign`].
    async fn read(&self) -> Result<Snapshot, StoreError>;

    /// Acquires the lease if it is free, or again if `bid.lease` already holds it; the store counts
    /// `bid.lease_duration` anew either way. Creates the lock first if it is missing, overwriting
    /// nothing.
    ///
    /// Returns the record as found, which is that of an earlier leadership, since only
    /// [`write_term`](Self::write_term) writes this bid's. [`StoreError::Refused`] means that
    /// another candidate holds the lease.
    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError>;

    /// Writes the record of this bid (holder, nonce and term) under the lease, and returns the
    /// term, which is larger than the recorded one and at least `floor` (R7).
    ///
    /// If the record already has `bid.nonce`, returns the term that was written then, by an earlier
    /// attempt whose answer was lost. [`StoreError::Refused`] means that this bid does not hold the
    /// lease.
    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError>;

    /// Makes the store count `bid.lease_duration` anew. [`StoreError::Refused`] means that the
    /// lease is definitely lost.
    ///
    /// A store that compares and sets returns the version that it wrote, for [`Bid::written`]; given
    /// that, it writes without a read before, and if the lock has changed since, it fails with
    /// [`StoreError::RetryNow`].
    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError>;

    /// Writes to this bid's record, under the lease, which candidate should lead next; the others
    /// defer to it. Term, holder and nonce stay, an earlier successor is replaced, and the next
    /// write of a term clears it.
    ///
    /// The value written is that of [`Successor::as_stored`]; if the record already has it, nothing
    /// is written. The lease is not extended. Returns the version like [`renew`](Self::renew).
    /// [`StoreError::Refused`] means that this bid does not hold the lease, or did not write the
    /// record.
    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError>;

    /// Frees the lease and keeps the record. [`StoreError::Refused`] means that this bid no longer
    /// held the lease, which has the same effect.
    async fn release(&self, bid: &Bid) -> Result<(), StoreError>;

    /// Returns when the credential expires that is in use now; `None` if it does not, or the store renews
    /// it by itself. Asks nobody.
    fn credential_expires(&self) -> Option<OffsetDateTime> {
        None
    }

    /// Resolves when there is a reason to read now, or when the holder of an observer-timed lease has
    /// renewed it; no other renewal is reported. It is never evidence of anything, and never resolves if
    /// the store cannot notify.
    async fn changed(&self) -> Change {
        std::future::pending().await
    }
}

/// What an operator does to a lock, with `tenure break` and `tenure doctor`. No election calls it.
#[async_trait]
pub trait LeaseAdmin: LeaseStore {
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
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError>;

    /// Returns whether the lock of this election exists, and if not, which others are in its place:
    /// an operator may have misspelt a name. A lock of a store that has only one exists.
    async fn presence(&self) -> Result<Presence, StoreError> {
        Ok(Presence::Exists)
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
pub fn open(settings: &Settings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(match &settings.store {
        StoreSettings::File(file) => Arc::new(file::FileStore::open(file)),
        StoreSettings::Azure(azure) => Arc::new(azure::Azure::open(azure.as_ref().clone())?),
        StoreSettings::Kubernetes(lease) => Arc::new(kubernetes::Kubernetes::open(lease)?),
        #[cfg(feature = "consul")]
        StoreSettings::Consul(it) => consul::open(it)?,
        #[cfg(not(feature = "consul"))]
        StoreSettings::Consul(_) => anyhow::bail!("this build does not have the store consul:"),
        #[cfg(feature = "etcd")]
        StoreSettings::Etcd(it) => etcd::open(it)?,
        #[cfg(not(feature = "etcd"))]
        StoreSettings::Etcd(_) => anyhow::bail!("this build does not have the store etcd:"),
        #[cfg(feature = "postgres")]
        StoreSettings::Postgres(it) => postgres::open(it)?,
        #[cfg(not(feature = "postgres"))]
        StoreSettings::Postgres(_) => {
            anyhow::bail!("this build does not have the store postgres:")
        }
        #[cfg(feature = "redis")]
        StoreSettings::Redis(it) => redis::open(it)?,
        #[cfg(not(feature = "redis"))]
        StoreSettings::Redis(_) => anyhow::bail!("this build does not have the store redis:"),
        #[cfg(feature = "s3")]
        StoreSettings::S3(it) => s3::open(it)?,
        #[cfg(not(feature = "s3"))]
        StoreSettings::S3(_) => anyhow::bail!("this build does not have the store s3:"),
        #[cfg(feature = "gcs")]
        StoreSettings::Gcs(it) => gcs::open(it)?,
        #[cfg(not(feature = "gcs"))]
        StoreSettings::Gcs(_) => anyhow::bail!("this build does not have the store gs:"),
        #[cfg(feature = "mongodb")]
        StoreSettings::Mongo(it) => mongodb::open(it)?,
        #[cfg(not(feature = "mongodb"))]
        StoreSettings::Mongo(_) => anyhow::bail!("this build does not have the store mongodb:"),
        #[cfg(feature = "zookeeper")]
        StoreSettings::Zookeeper(it) => zookeeper::open(it)?,
        #[cfg(not(feature = "zookeeper"))]
        StoreSettings::Zookeeper(_) => {
            anyhow::bail!("this build does not have the store zookeeper:")
        }
        StoreSettings::Memory => Arc::new(memory::Memory::new()),
    })
}

/// The kinds of store that this build has.
pub const KINDS: &[&str] = &[
    "azure",
    #[cfg(feature = "consul")]
    "consul",
    #[cfg(feature = "etcd")]
    "etcd",
    "file",
    #[cfg(feature = "gcs")]
    "gcs",
    "kubernetes",
    "memory",
    #[cfg(feature = "mongodb")]
    "mongodb",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "s3")]
    "s3",
    #[cfg(feature = "zookeeper")]
    "zookeeper",
];

/// Whether a lock exists in its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It exists, held or not.
    Exists,
    /// It does not exist.
    Missing {
        /// What does not exist, and where: the lock, or the place where locks are kept.
        missing: String,
        /// The names of some locks in the same place, sorted, at most [`MOST_LISTED`]; `None` if
        /// they cannot be listed.
        others: Option<Vec<String>>,
    },
}

/// How many locks [`Presence`] names at most.
pub const MOST_LISTED: usize = 20;

/// The result of breaking the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BreakOutcome {
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
