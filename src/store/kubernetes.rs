//! The `kubernetes:` store: the lease in a Lease (coordination.k8s.io/v1).
//!
//! Each change is a compare-and-set write of the whole Lease, by the resourceVersion of the state that
//! it is based on: the one that the last write of the bid returned, or else a quorum read. No server
//! counts the time: each observer counts it by its own clock, like the candidates of client-go, which
//! can compete for the same Lease.
//!
//! The backend retries nothing and keeps nothing, never compares a wall clock with the times in a
//! Lease, and treats an error as definite only if the server says so (R4). A write is done only if
//! the answer shows all of it. Only [`LeaseStore::changed`] waits, until something changes.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use self::watching::Watching;
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, MOST_LISTED, Presence};
use crate::clock;
use crate::config::KubernetesSettings;
use crate::kube::objects::Lease;
use crate::kube::{Dated, Kube, KubeError};
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, Record, Rules, Snapshot, StoreError, Successor, Version,
};

mod doctor;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod record;
mod token;
mod watching;

/// A lease kept in a Lease.
pub struct Kubernetes {
    settings: KubernetesSettings,
    kube: Kube,
    watching: Mutex<Watching>,
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes").field("lease", &self.place()).finish_non_exhaustive()
    }
}

impl Kubernetes {
    /// Creates the store from its settings. Reaches no network and reads no file yet.
    ///
    /// # Errors
    /// Returns an error if the URL of the API server is not usable for requests.
    pub fn open(settings: &KubernetesSettings) -> anyhow::Result<Self> {
        let kube = Kube::open(&settings.access, settings.request_timeout)?;
        Ok(Self { settings: settings.clone(), kube, watching: Mutex::default() })
    }

    /// Returns namespace and name of the Lease, for messages.
    fn place(&self) -> String {
        format!("{}/{}", self.settings.namespace, self.settings.name)
    }

    /// Reads the Lease; `None` if there is none.
    async fn read_lease(&self) -> Result<Option<Dated<Lease>>, StoreError> {
        match self.kube.get(&self.settings.namespace, &self.settings.name).await {
            Ok(read) => Ok(Some(read)),
            Err(KubeError::Missing(_)) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Changes the Lease for a bid by one write, and returns it as it is then. `edit` returns whether
    /// there is anything to change. The change is made to what the last write of the bid returned; only
    /// a read can refuse it, or show that there is nothing to change.
    async fn change(
        &self,
        bid: &Bid,
        edit: impl Fn(&mut Lease) -> Result<bool, StoreError> + Send,
    ) -> Result<Lease, StoreError> {
        if let Some(mut lease) = bid.written.as_ref().and_then(record::of_version)
            && edit(&mut lease) == Ok(true)
        {
            return self.write(&lease).await;
        }
        let mut lease = self.read_lease().await?.ok_or_else(|| self.gone())?.object;
        if edit(&mut lease)? { self.write(&lease).await } else { Ok(lease) }
    }

    /// Checks that this bid holds the Lease.
    fn check_ours(&self, lease: &Lease, bid: &Bid) -> Result<(), StoreError> {
        if record::is_of(lease, bid) { Ok(()) } else { Err(self.not_ours(lease)) }
    }

    /// Reads the record of the Lease.
    fn record(&self, lease: &Lease) -> Result<Record, StoreError> {
        record::read(lease, &self.place()).map_err(StoreError::Foreign)
    }

    /// Writes the Lease if it has not changed since this state of it. `Ok(None)` if it has; a write is
    /// done only if the answer shows it.
    async fn try_write(&self, lease: &Lease) -> Result<Option<Dated<Lease>>, StoreError> {
        match self.kube.replace(lease).await {
            Ok(answer) => self.shown(answer, lease).map(Some),
            Err(KubeError::Conflict(_)) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Writes the Lease if it has not changed since this state of it, or fails. Returns it as it was
    /// written.
    async fn write(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let written = self.try_write(lease).await?;
        written.map(|it| it.object).ok_or_else(|| conflict(self.place()))
    }

    /// Creates the Lease; `Ok(None)` if there is one.
    async fn try_create(&self, lease: &Lease) -> Result<Option<Dated<Lease>>, StoreError> {
        match self.kube.create(lease).await {
            Ok(answer) => self.shown(answer, lease).map(Some),
            Err(KubeError::Exists(_)) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Checks that an answer shows what was written: a webhook of the cluster may have changed it,
    /// even to what it was before.
    fn shown(&self, answer: Dated<Lease>, written: &Lease) -> Result<Dated<Lease>, StoreError> {
        if record::shows(&answer.object, written) {
            return Ok(answer);
        }
        let message = format!(
            "the Lease {} was modified while it was written: something in the cluster changes \
             Leases, most likely an admission webhook; exempt this Lease from it",
            self.place()
        );
        Err(StoreError::Unknown(Failure::new(Cause::Settings, message)))
    }

    /// Acquires or renews the Lease in this state; returns the record found in it, or `None` if the
    /// Lease has changed since.
    async fn take(&self, found: Lease, bid: &Bid) -> Result<Option<Grant>, StoreError> {
        let record = self.record(&found)?;
        let mut lease = found;
        if record::is_of(&lease, bid) {
            record::renew(&mut lease, bid, now());
        } else if record::is_in_version(&lease, &bid.seen) {
            record::take(&mut lease, bid, now());
        } else {
            return Err(self.not_ours(&lease));
        }
        let written = self.try_write(&lease).await?;
        Ok(written.map(|written| grant(record, written)))
    }

    fn gone(&self) -> StoreError {
        refused(format!("the Lease {} was deleted", self.place()))
    }

    fn not_ours(&self, lease: &Lease) -> StoreError {
        refused(match record::holder(lease) {
            Some(_) if record::is_broken(lease) => {
                format!("an operator broke the Lease {}", self.place())
            }
            Some(holder) => {
                format!("the Lease {} is held by {:?}", self.place(), record::shown(holder))
            }
            None => {
                format!("the Lease {} was freed, or has changed since it was read", self.place())
            }
        })
    }
}

#[async_trait]
impl LeaseStore for Kubernetes {
    fn kind(&self) -> &'static str {
        "kubernetes"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: false }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        match self.read_lease().await? {
            None => Ok(record::missing()),
            Some(read) => {
                record::snapshot(&read.object, &self.place()).map_err(StoreError::Foreign)
            }
        }
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        if record::is_missing(&bid.seen) {
            let (namespace, name) = (&self.settings.namespace, &self.settings.name);
            let lease = record::taken_anew(namespace, name, bid, now());
            if let Some(written) = self.try_create(&lease).await? {
                tracing::warn!(lease = self.place(), "created the missing Lease");
                return Ok(grant(Record::default(), written));
            }
        }
        let mut seen = record::of_version(&bid.seen);
        // The write in between may have been an earlier request of this bid.
        for _ in 0..2 {
            let found = match seen.take() {
                Some(lease) => lease,
                None => self.read_lease().await?.ok_or_else(|| self.gone())?.object,
            };
            if let Some(grant) = self.take(found, bid).await? {
                return Ok(grant);
            }
        }
        Err(conflict(self.place()))
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let edit = |lease: &mut Lease| {
            self.check_ours(lease, bid)?;
            let record = self.record(lease)?;
            if record::term_of(&record, bid).is_some() {
                return Ok(false);
            }
            let term = record::next_term(lease, record.term, floor).ok_or_else(|| {
                let message = format!("the Lease {} has the largest possible term", self.place());
                StoreError::Foreign(Failure::new(Cause::Record, message))
            })?;
            record::write_term(lease, bid, term);
            Ok(true)
        };
        let lease = self.change(bid, edit).await?;
        record::term_of(&self.record(&lease)?, bid).ok_or_else(|| self.not_ours(&lease))
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let edit = |lease: &mut Lease| {
            self.check_ours(lease, bid)?;
            record::renew(lease, bid, now());
            Ok(true)
        };
        self.change(bid, edit).await.map(|lease| Some(record::version(&lease)))
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let edit = |lease: &mut Lease| {
            self.check_ours(lease, bid)?;
            let record = self.record(lease)?;
            if record::term_of(&record, bid).is_none() {
                let message =
                    "this candidate did not write the record, so no successor was written";
                return Err(refused(message.to_owned()));
            }
            if record.successor.as_ref() == Some(&successor.as_stored()) {
                return Ok(false);
            }
            record::set_successor(lease, successor);
            Ok(true)
        };
        self.change(bid, edit).await.map(|lease| Some(record::version(&lease)))
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let edit = |lease: &mut Lease| {
            if !record::is_to_end(lease, bid) {
                return Err(self.not_ours(lease));
            }
            record::free(lease, now());
            Ok(true)
        };
        self.change(bid, edit).await.map(drop)
    }

    async fn changed(&self) -> Change {
        self.watch().await
    }
}

#[async_trait]
impl LeaseAdmin for Kubernetes {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let Some(Dated { object: mut lease, .. }) = self.read_lease().await? else {
            return Ok(BreakOutcome::NotHeld);
        };
        let Snapshot { record, claim: Some(claim), .. } =
            record::snapshot(&lease, &self.place()).map_err(StoreError::Foreign)?
        else {
            return Ok(BreakOutcome::NotHeld);
        };
        let free_in = if at_once { Duration::ZERO } else { claim.lease_duration };
        if at_once {
            record::free(&mut lease, now());
        } else if record::is_broken(&lease) {
            return Ok(BreakOutcome::Held { record, free_in });
        } else {
            record::mark_broken(&mut lease, now());
        }
        if self.try_write(&lease).await?.is_none() {
            let message = "the Lease was modified concurrently, so nothing was broken: try again";
            return Err(StoreError::Unknown(Failure::new(Cause::Lease, message)));
        }
        Ok(BreakOutcome::Held { record, free_in })
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        if self.read_lease().await?.is_some() {
            return Ok(Presence::Exists);
        }
        let namespace = &self.settings.namespace;
        let missing = format!("no Lease {:?} in the namespace {namespace}", self.settings.name);
        // Tenure itself never lists, so it may have no right to.
        let leases: Result<Vec<Lease>, _> = self.kube.list(namespace, "").await;
        let others = leases.ok().map(|leases| {
            let written = leases.into_iter().filter(record::is_written_by_tenure);
            let mut names: Vec<String> = written.map(|it| it.metadata.name).collect();
            names.sort();
            names.truncate(MOST_LISTED);
            names
        });
        Ok(Presence::Missing { missing, others })
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let place = self.place();
        let Some(Dated { object: mut lease, .. }) = self.read_lease().await? else {
            let (namespace, name) = (&self.settings.namespace, &self.settings.name);
            let lease = record::free_with_term(namespace, name, floor);
            return match self.try_create(&lease).await? {
                Some(_) => {
                    Ok(vec![format!("created the Lease {place} with the first term {floor}")])
                }
                None => Err(conflict(place)),
            };
        };
        if self.record(&lease)?.term.is_some() {
            return Ok(Vec::new());
        }
        record::put_term(&mut lease, floor);
        self.write(&lease).await?;
        Ok(vec![format!("wrote the first term {floor} to the Lease {place}")])
    }
}

/// Returns the wall clock, for people who read a Lease; never compared with a time written by
/// others.
fn now() -> OffsetDateTime {
    clock::now().date()
}

/// Returns the grant of an acquisition that found this record, from the answer to its write.
fn grant(record: Record, written: Dated<Lease>) -> Grant {
    let Dated { object, date } = written;
    Grant { record, date, version: Some(record::version(&object)) }
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}

/// Returns the error for a Lease that was changed between read and write: by another candidate, or
/// by an earlier request of this one whose answer was lost.
fn conflict(place: String) -> StoreError {
    let message = format!("the Lease {place} was modified concurrently; it is read again");
    StoreError::RetryNow(Failure::new(Cause::Lease, message))
}

/// Converts an error of the client, where nothing more is known: its outcome is never definite
/// (R4).
fn failed(error: KubeError) -> StoreError {
    let message = error.to_string();
    let cause = match error {
        KubeError::Conflict(_) => return StoreError::RetryNow(Failure::new(Cause::Lease, message)),
        KubeError::Disconnected(_) => {
            return StoreError::RetryNow(Failure::new(Cause::Network, message));
        }
        KubeError::Unauthorized(_) | KubeError::Forbidden(_) | KubeError::Files(_) => Cause::Auth,
        KubeError::Throttled { .. } => Cause::Throttled,
        KubeError::Timeout(_) => Cause::Timeout,
        KubeError::Network(_) => Cause::Network,
        KubeError::Missing(_) | KubeError::NoNamespace(_) | KubeError::Invalid(_) => {
            Cause::Settings
        }
        KubeError::Unavailable(_) | KubeError::Gone(_) | KubeError::Exists(_) => Cause::Unavailable,
    };
    StoreError::Unknown(Failure::new(cause, message))
}

#[cfg(test)]
mod tests;
