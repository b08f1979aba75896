//! The `etcd:` store: the lease in two keys of etcd, through its JSON gateway.
//!
//! The claim belongs to a lease of etcd, whose time the cluster counts, and is deleted with it; the
//! record stays. The claim is put only where there is none, and the record is changed only under the
//! claim, each in one transaction. The lease has an id that follows from the bid's, so that a bid may
//! be repeated, and a late copy of a request does nothing that its bid did not ask for.
//!
//! **Renewals.** A renewal moves the claim to a new lease, in a transaction that compares the last write of
//! the claim. etcd's keepalive would be cheaper, but no quorum stands behind it: a member that was deposed
//! answers one in vain, and when it was paused it may end leases whose keepalives it has missed. It knows
//! nothing of a lease that was granted meanwhile. Of what a late copy asks for, nothing is done, since the
//! claim was written again. A lease without a claim ends by itself.
//!
//! The backend retries nothing and keeps nothing but its connection, and treats an error as definite
//! only if etcd says so (R4). Only [`LeaseStore::changed`] waits, until something changes.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use self::errors::EtcdError;
use self::gateway::{Call, Gateway};
use self::record::{Held, Keys, Seen, lease_number};
use self::watching::Noticed;
use self::wire::{Number, Range};
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, Presence};
use crate::config::EtcdSettings;
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, LeaseId, Record, Rules, Snapshot, StoreError, Successor,
    Version,
};

mod access;
mod doctor;
mod errors;
mod find;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod gateway;
mod record;
mod version;
mod watching;
mod wire;

/// From the end of a lease to the deletion of its keys, at most: etcd looks for leases that have ended
/// twice a second, and takes a moment to agree.
const DELETION: Duration = Duration::from_millis(500);

/// The outcome of a transaction.
enum Changed {
    /// Everything was changed, at this revision.
    At(i64),
    /// Nothing was: the keys are these.
    Not(Seen),
}

/// A lease in etcd.
pub struct Etcd {
    settings: EtcdSettings,
    keys: Keys,
    gateway: Gateway,
    noticed: Mutex<Noticed>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").field("keys", &self.place()).finish_non_exhaustive()
    }
}

impl Etcd {
    /// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which
    /// blocks.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub fn open(settings: &EtcdSettings) -> anyhow::Result<Self> {
        let gateway = Gateway::open(settings, settings.request_timeout)?;
        let keys = Keys::new(settings);
        Ok(Self { settings: settings.clone(), keys, gateway, noticed: Mutex::default() })
    }

    /// Returns what the keys begin with, for messages.
    fn place(&self) -> &str {
        self.keys.folder()
    }

    /// Reads both keys.
    async fn see(&self, call: &mut Call<'_>) -> Result<Seen, StoreError> {
        self.seen(&call.range(&self.both()).await?)
    }

    /// The range of both keys.
    fn both(&self) -> serde_json::Value {
        wire::range(&self.keys.lease, &self.keys.end)
    }

    fn seen(&self, range: &Range) -> Result<Seen, StoreError> {
        Seen::of(range, &self.keys).map_err(StoreError::Foreign)
    }

    /// Performs changes if comparisons hold.
    async fn change(
        &self,
        call: &mut Call<'_>,
        compare: &[serde_json::Value],
        changes: &[serde_json::Value],
    ) -> Result<Changed, StoreError> {
        let both = serde_json::json!({"request_range": self.both()});
        let txn = call.txn(compare, changes, &[both]).await?;
        match txn.succeeded {
            true => Ok(Changed::At(txn.header.revision.0)),
            false => self.seen(&txn.into_range()).map(Changed::Not),
        }
    }

    /// Returns the claim, if it is of this bid and not being broken.
    fn ours<'a>(&self, seen: &'a Seen, bid: &Bid) -> Result<&'a Held, StoreError> {
        let ours = seen.held.as_ref().filter(|it| it.is_of(bid) && !it.is_breaking);
        ours.ok_or_else(|| self.not_ours(seen))
    }

    /// Grants a lease of at least the length of a bid, whose time counts from now.
    async fn grant(&self, call: &mut Call<'_>, lease: i64, bid: &Bid) -> Result<(), EtcdError> {
        let answer = call.grant(lease, seconds(bid)).await?;
        let member = call.member();
        if answer.id != Number(lease) {
            Err(EtcdError::Invalid(format!("{member} granted another lease than it was asked for")))
        } else if answer.ttl < Number(seconds(bid)) {
            Err(EtcdError::Invalid(format!(
                "{member} granted a shorter lease than it was asked for"
            )))
        } else {
            Ok(())
        }
    }

    /// Counts the time of a claim anew: moves it to a new lease, if it was last written at this revision,
    /// or is still of this bid.
    async fn count_anew(
        &self,
        call: &mut Call<'_>,
        bid: &Bid,
        written: i64,
    ) -> Result<Changed, StoreError> {
        let lease = lease_number(LeaseId::from_random(Uuid::new_v4().as_u128()));
        self.grant(call, lease, bid).await?;
        let changes = [wire::put_under(&self.keys.lease, &record::claim(bid), lease)];
        let at = |revision| [wire::is_at(&self.keys.lease, revision)];
        match self.change(call, &at(written), &changes).await? {
            // An earlier renewal may have been granted without an answer.
            Changed::Not(now) => match self.ours(&now, bid) {
                Ok(held) => self.change(call, &at(held.written), &changes).await,
                Err(_) => Ok(Changed::Not(now)),
            },
            done => Ok(done),
        }
    }

    /// Returns the grant of a claim that this bid has already, whose time is counted anew.
    async fn again(
        &self,
        call: &mut Call<'_>,
        bid: &Bid,
        (record, written): (Record, i64),
    ) -> Result<Grant, StoreError> {
        match self.count_anew(call, bid, written).await? {
            Changed::At(revision) => {
                Ok(Grant { record, date: call.date, version: Some(version_of(revision)) })
            }
            // It was freed in between, and may be bid for.
            Changed::Not(now) if now.held.is_none() => Err(self.conflict()),
            Changed::Not(now) => Err(self.changed_since(&now, bid)),
        }
    }

    /// Writes the record under the claim of a bid, if nothing has changed since it was read.
    async fn write(
        &self,
        call: &mut Call<'_>,
        seen: &Seen,
        held: &Held,
        value: &[u8],
    ) -> Result<Changed, StoreError> {
        let Keys { lease, record, .. } = &self.keys;
        let compare = [wire::is_at(lease, held.written), wire::is_at(record, seen.recorded)];
        self.change(call, &compare, &[wire::put(record, value)]).await
    }

    fn not_ours(&self, seen: &Seen) -> StoreError {
        let place = self.place();
        refused(match &seen.held {
            Some(held) if held.is_breaking => format!("an operator broke the lease of {place}"),
            Some(held) => format!("the lease of {place} is held by {:?}", held.identity),
            None => format!("the lease of {place} was freed, expired, or was never held"),
        })
    }

    /// Returns the error for keys that were changed between read and write: by another candidate, or by
    /// an earlier request of this one whose answer was lost.
    fn conflict(&self) -> StoreError {
        let message = format!("the keys {} were modified concurrently", self.place());
        StoreError::RetryNow(Failure::new(Cause::Lease, message))
    }

    /// Returns the error for a claim that was changed between read and write: it is lost, or an earlier
    /// request of this bid has changed it.
    fn changed_since(&self, now: &Seen, bid: &Bid) -> StoreError {
        self.ours(now, bid).map_or_else(|lost| lost, |_| self.conflict())
    }

    /// Returns how long a lease lasts at most, until its keys are deleted.
    async fn left(&self, call: &mut Call<'_>, lease: i64) -> Result<Duration, StoreError> {
        let Number(ttl) = call.time_to_live(lease).await?.ttl;
        // Rounded down; negative if it has ended.
        let whole = u64::try_from(ttl).map(|it| Duration::from_secs(it + 1));
        Ok(whole.unwrap_or_default() + DELETION)
    }
}

#[async_trait]
impl LeaseStore for Etcd {
    fn kind(&self) -> &'static str {
        "etcd"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: false }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        self.see(&mut self.gateway.call()).await.map(Seen::snapshot)
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let mut call = self.gateway.call();
        let seen = self.see(&mut call).await?;
        if seen.held.is_some() {
            let written = self.ours(&seen, bid)?.written;
            return self.again(&mut call, bid, (seen.record, written)).await;
        }
        if !seen.is_in_version(&bid.seen) {
            let message = format!("the record of {} has changed since it was read", self.place());
            return Err(refused(message));
        }
        let lease = lease_number(bid.lease);
        let is_new = match self.grant(&mut call, lease, bid).await {
            Ok(()) => true,
            // By an earlier request of this bid, perhaps long ago.
            Err(EtcdError::LeaseExists(_)) => false,
            Err(error) => return Err(error.into()),
        };
        let compare =
            [wire::is_absent(&self.keys.lease), wire::is_at(&self.keys.record, seen.recorded)];
        let put = wire::put_under(&self.keys.lease, &record::claim(bid), lease);
        match self.change(&mut call, &compare, &[put]).await? {
            Changed::At(revision) if is_new => {
                let version = Some(version_of(revision));
                Ok(Grant { record: seen.record, date: call.date, version })
            }
            Changed::At(revision) => {
                let again = self.again(&mut call, bid, (seen.record, revision)).await;
                again.map_err(|error| match error {
                    // The claim was taken before it was lost, and others may have seen it.
                    StoreError::Refused(why) | StoreError::RetryNow(why) => {
                        StoreError::Unknown(why)
                    }
                    error => error,
                })
            }
            Changed::Not(seen) => {
                let written = self.ours(&seen, bid)?.written;
                self.again(&mut call, bid, (seen.record, written)).await
            }
        }
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let mut call = self.gateway.call();
        let seen = self.see(&mut call).await?;
        let held = self.ours(&seen, bid)?;
        if let Some(term) = seen.term_of(bid) {
            return Ok(term);
        }
        let term = seen.next_term(held, floor).ok_or_else(|| {
            let message = format!("the key {} has the largest possible term", self.keys.record);
            StoreError::Foreign(Failure::new(Cause::Record, message))
        })?;
        match self.write(&mut call, &seen, held, &record::of_bid(bid, term, None)).await? {
            Changed::At(_) => Ok(term),
            Changed::Not(now) => {
                self.ours(&now, bid)?;
                now.term_of(bid).ok_or_else(|| self.conflict())
            }
        }
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let mut call = self.gateway.call();
        let written = match bid.written.as_ref().and_then(revision_of) {
            Some(known) => known,
            None => self.ours(&self.see(&mut call).await?, bid)?.written,
        };
        match self.count_anew(&mut call, bid, written).await? {
            Changed::At(revision) => Ok(Some(version_of(revision))),
            Changed::Not(now) => Err(self.changed_since(&now, bid)),
        }
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let mut call = self.gateway.call();
        let seen = self.see(&mut call).await?;
        let held = self.ours(&seen, bid)?;
        let Some(term) = seen.term_of(bid) else {
            let message = "this candidate did not write the record, so no successor was written";
            return Err(refused(message.to_owned()));
        };
        if seen.record.successor.as_ref() == Some(&successor.as_stored()) {
            return Ok(Some(version_of(held.written)));
        }
        match self
            .write(&mut call, &seen, held, &record::of_bid(bid, term, Some(successor)))
            .await?
        {
            Changed::At(_) => Ok(Some(version_of(held.written))),
            Changed::Not(now) => Err(self.changed_since(&now, bid)),
        }
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let mut call = self.gateway.call();
        let seen = self.see(&mut call).await?;
        let ours = seen.held.as_ref().filter(|it| it.is_of(bid));
        if let Some(held) = ours {
            let compare = [wire::is_at(&self.keys.lease, held.written)];
            let changes = [wire::delete(&self.keys.lease)];
            if let Changed::Not(_) = self.change(&mut call, &compare, &changes).await? {
                return Err(self.conflict());
            }
        }
        // The lease of the bid itself, so that a late copy of the bid claims nothing under it.
        match call.revoke(lease_number(bid.lease)).await {
            Ok(()) | Err(EtcdError::LeaseMissing(_)) => (),
            Err(error) => return Err(error.into()),
        }
        ours.map(drop).ok_or_else(|| self.not_ours(&seen))
    }

    async fn changed(&self) -> Change {
        Change::News { held_by: self.watch().await }
    }
}

#[async_trait]
impl LeaseAdmin for Etcd {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let mut call = self.gateway.call();
        let seen = self.see(&mut call).await?;
        let Some(held) = seen.held else { return Ok(BreakOutcome::NotHeld) };
        let (key, record) = (&self.keys.lease, seen.record);
        if !at_once && held.lease == 0 {
            let message = format!("the key {key} belongs to no lease, so that it does not run out");
            return Err(refused(message));
        }
        let change = match at_once {
            true => Some(wire::delete(key)),
            false if held.is_breaking => None,
            false => Some(wire::replace(key, &held.broken())),
        };
        if let Some(change) = change {
            let record = wire::is_at(&self.keys.record, seen.recorded);
            let compare = [wire::is_at(key, held.written), record];
            if let Changed::Not(_) = self.change(&mut call, &compare, &[change]).await? {
                let message =
                    "the lease was modified concurrently, so nothing was broken: try again";
                return Err(StoreError::Unknown(Failure::new(Cause::Lease, message)));
            }
        }
        let free_in =
            if at_once { Duration::ZERO } else { self.left(&mut call, held.lease).await? };
        Ok(BreakOutcome::Held { record, free_in })
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        self.find().await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let mut call = self.gateway.call();
        let seen = self.see(&mut call).await?;
        if seen.record.term.is_some() {
            return Ok(Vec::new());
        }
        let key = &self.keys.record;
        let compare = [wire::is_at(key, seen.recorded)];
        let changes = [wire::put(key, &record::first(floor))];
        match self.change(&mut call, &compare, &changes).await? {
            Changed::At(_) => {
                Ok(vec![format!("created the key {key} with the first term {floor}")])
            }
            Changed::Not(_) => Err(self.conflict()),
        }
    }
}

/// Returns the version of a claim that was last written at this revision.
fn version_of(revision: i64) -> Version {
    Version(revision.to_string().into())
}

fn revision_of(version: &Version) -> Option<i64> {
    version.0.parse().ok()
}

/// Returns how long the lease of a bid is, in whole seconds, as the settings allow alone.
fn seconds(bid: &Bid) -> i64 {
    i64::try_from(bid.lease_duration.as_secs()).unwrap_or(i64::MAX)
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}

#[cfg(test)]
mod tests;
