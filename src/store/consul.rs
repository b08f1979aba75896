//! The `consul:` store: the lease in one key of Consul, which a session has locked.
//!
//! The servers count the time of the session and free the key with it; its value, with the record, stays. The
//! key is changed only as it was read, in one transaction, so that a late copy of a request does nothing once
//! the key has been written again.
//!
//! **Renewals.** A session may live on without the lock, so a renewal reads the key as a quorum has it, and then
//! counts the TTL of the session anew. No quorum stands behind that: a server that was deposed renews in vain, and
//! one that has just become the leader may not know the session yet. Servers count twice the TTL, and a new leader
//! counts from its election on, so that a session that was renewed in vain ends no sooner than it was asked for.
//!
//! **Lock-delay.** Consul may end a session before its time: when the agent that it was created at leaves the
//! cluster, when an operator destroys it, or when an attempt to end it that failed earlier is repeated. The
//! lock-delay, as long as the lease, keeps others from the key from then on. A release gives the lock back
//! first, which no lock-delay follows. Health checks, which end sessions of candidates that are alive, are left
//! out.
//!
//! The backend retries nothing and keeps nothing but its connection, and treats an error as definite
//! only if Consul says so (R4). Only [`LeaseStore::changed`] waits, until something changes.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use uuid::Uuid;

use self::api::{Api, Call, Changed};
use self::record::{Claim, Content, Seen};
use self::watching::Noticed;
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, Presence};
use crate::config::ConsulSettings;
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, Rules, Snapshot, StoreError, Successor, Version,
};

mod api;
mod doctor;
mod errors;
mod find;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod record;
mod token;
mod watching;
mod wire;

/// From the end of a session to that of its lock, at most: the servers take a moment to agree.
const AGREEMENT: Duration = Duration::from_secs(1);

/// A lease in Consul.
pub struct Consul {
    settings: ConsulSettings,
    key: String,
    api: Api,
    noticed: Mutex<Noticed>,
}

impl fmt::Debug for Consul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consul").field("key", &self.key).finish_non_exhaustive()
    }
}

impl Consul {
    /// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which
    /// blocks.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub fn open(settings: &ConsulSettings) -> anyhow::Result<Self> {
        let api = Api::open(settings, settings.request_timeout)?;
        let key = format!("{}/{}/lease", settings.prefix, settings.election);
        Ok(Self { settings: settings.clone(), key, api, noticed: Mutex::default() })
    }

    /// Reads the key.
    async fn see(&self, call: &mut Call<'_>) -> Result<Seen, StoreError> {
        let entry = call.get(&self.key).await?;
        Seen::of(entry.as_ref(), &self.key).map_err(StoreError::Foreign)
    }

    /// Performs an operation if the key is still as it was read.
    async fn change(
        &self,
        call: &mut Call<'_>,
        seen: &Seen,
        operation: Value,
    ) -> Result<Changed, StoreError> {
        Ok(call.txn(&[wire::is_at(&self.key, seen.index), operation]).await?)
    }

    /// Writes the key, whose lock stays, if it is still as it was read; returns whether it was.
    async fn write(
        &self,
        call: &mut Call<'_>,
        seen: &Seen,
        content: &Content,
    ) -> Result<bool, StoreError> {
        let set = wire::set(&self.key, &content.bytes());
        Ok(self.change(call, seen, set).await? == Changed::Done)
    }

    /// Gives the lock of a session back, if the key is still as it was read; returns whether it was.
    async fn unlock(
        &self,
        call: &mut Call<'_>,
        seen: &Seen,
        session: Uuid,
    ) -> Result<bool, StoreError> {
        let free = seen.content.with_claim(None);
        let unlock = wire::unlock(&self.key, &free.bytes(), session);
        if self.change(call, seen, unlock).await? != Changed::Done {
            return Ok(false);
        }
        call.tidy_up(session).await;
        Ok(true)
    }

    /// Returns the session that holds the lease for this bid, if it is not being broken.
    fn ours(&self, seen: &Seen, bid: &Bid) -> Result<Uuid, StoreError> {
        let is_breaking = seen.claim().is_some_and(|it| it.is_breaking);
        seen.session_of(bid).filter(|_| !is_breaking).ok_or_else(|| self.not_ours(seen))
    }

    /// Counts the time of a session anew, which has just held the lease for this bid.
    async fn count_anew(
        &self,
        call: &mut Call<'_>,
        bid: &Bid,
        session: Uuid,
    ) -> Result<(), StoreError> {
        if call.renew_session(session).await? {
            return Ok(());
        }
        let now = self.see(call).await?;
        self.ours(&now, bid)?;
        let message = format!(
            "{} does not know the session that has locked {}, as one that has just become the leader",
            call.server(),
            self.key
        );
        Err(StoreError::Unknown(Failure::new(Cause::Unavailable, message)))
    }

    /// Returns the grant of a lease that this bid has already, whose time is counted anew.
    async fn again(&self, call: &mut Call<'_>, bid: &Bid, seen: Seen) -> Result<Grant, StoreError> {
        let session = self.ours(&seen, bid)?;
        self.count_anew(call, bid, session).await?;
        Ok(Grant { record: seen.content.record, date: call.date, version: None })
    }

    fn not_ours(&self, seen: &Seen) -> StoreError {
        let key = &self.key;
        refused(match (seen.claim(), seen.session) {
            (Some(claim), _) if claim.is_breaking => {
                format!("an operator broke the lease of {key}")
            }
            (Some(claim), _) => format!("the lease of {key} is held by {:?}", claim.identity),
            (None, Some(_)) => {
                format!("the key {key} is locked by a session that is none of Tenure's")
            }
            (None, None) => format!("the lease of {key} was freed, expired, or was never held"),
        })
    }

    /// Returns the error for a key that was changed between read and write: by another candidate, or by
    /// an earlier request of this one whose answer was lost.
    fn conflict(&self) -> StoreError {
        let message = format!("the key {} was modified concurrently", self.key);
        StoreError::RetryNow(Failure::new(Cause::Lease, message))
    }

    /// Returns why a bid was refused, though nobody holds the lease.
    fn not_granted(&self, why: &Changed) -> StoreError {
        refused(match why {
            Changed::Delayed => format!(
                "Consul keeps the lock of {} from others, for a lease-duration after its session has ended",
                self.key
            ),
            _ => format!("the key {} has changed since it was read", self.key),
        })
    }
}

#[async_trait]
impl LeaseStore for Consul {
    fn kind(&self) -> &'static str {
        "consul"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: false }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        self.see(&mut self.api.call()).await.map(Seen::snapshot)
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let mut call = self.api.call();
        let seen = self.see(&mut call).await?;
        if seen.session.is_some() {
            return self.again(&mut call, bid, seen).await;
        }
        if seen.version() != bid.seen {
            return Err(self.not_granted(&Changed::Not));
        }
        let name = format!("tenure {}: {}", self.settings.election, bid.candidate.identity);
        let session = call.create_session(&name, bid.lease_duration).await?;
        let claimed = seen.content.with_claim(Some(Claim::of(bid)));
        let lock = wire::lock(&self.key, &claimed.bytes(), session);
        let why = match self.change(&mut call, &seen, lock).await? {
            Changed::Done => {
                let record = seen.content.record;
                return Ok(Grant { record, date: call.date, version: None });
            }
            why => why,
        };
        call.tidy_up(session).await;
        // An earlier request of this bid may have been granted meanwhile.
        let now = self.see(&mut call).await?;
        match now.session {
            Some(_) => self.again(&mut call, bid, now).await,
            None => Err(self.not_granted(&why)),
        }
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let mut call = self.api.call();
        let seen = self.see(&mut call).await?;
        self.ours(&seen, bid)?;
        if let Some(term) = seen.term_of(bid) {
            return Ok(term);
        }
        let term = seen.next_term(floor).ok_or_else(|| {
            let message = format!("the key {} has the largest possible term", self.key);
            StoreError::Foreign(Failure::new(Cause::Record, message))
        })?;
        match self.write(&mut call, &seen, &seen.content.with_term(bid, term)).await? {
            true => Ok(term),
            false => Err(self.conflict()),
        }
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let mut call = self.api.call();
        let session = self.ours(&self.see(&mut call).await?, bid)?;
        self.count_anew(&mut call, bid, session).await?;
        Ok(None)
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let mut call = self.api.call();
        let seen = self.see(&mut call).await?;
        self.ours(&seen, bid)?;
        if seen.term_of(bid).is_none() {
            let message = "this candidate did not write the record, so no successor was written";
            return Err(refused(message.to_owned()));
        }
        let named = seen.content.with_successor(successor);
        if named == seen.content || self.write(&mut call, &seen, &named).await? {
            return Ok(None);
        }
        Err(self.conflict())
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let mut call = self.api.call();
        let seen = self.see(&mut call).await?;
        let session = seen.session_of(bid).ok_or_else(|| self.not_ours(&seen))?;
        match self.unlock(&mut call, &seen, session).await? {
            true => Ok(()),
            false => Err(self.conflict()),
        }
    }

    async fn changed(&self) -> Change {
        Change::News { held_by: self.watch().await }
    }
}

#[async_trait]
impl LeaseAdmin for Consul {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let mut call = self.api.call();
        let seen = self.see(&mut call).await?;
        let Some(session) = seen.session else { return Ok(BreakOutcome::NotHeld) };
        let record = seen.content.record.clone();
        let (is_broken, free_in) = if at_once {
            (self.unlock(&mut call, &seen, session).await?, Duration::ZERO)
        } else {
            let free_in = self.runs_out_in(&mut call, &seen, session).await?;
            let broken = seen.content.breaking();
            let is_broken = broken == seen.content || self.write(&mut call, &seen, &broken).await?;
            (is_broken, free_in)
        };
        if !is_broken {
            let message = "the lease was modified concurrently, so nothing was broken: try again";
            return Err(StoreError::Unknown(Failure::new(Cause::Lease, message)));
        }
        Ok(BreakOutcome::Held { record, free_in })
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        self.find().await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let mut call = self.api.call();
        let seen = self.see(&mut call).await?;
        if seen.content.record.term.is_some() {
            return Ok(Vec::new());
        }
        match self.write(&mut call, &seen, &seen.content.with_first_term(floor)).await? {
            true => Ok(vec![format!("created the key {} with the first term {floor}", self.key)]),
            false => Err(self.conflict()),
        }
    }
}

impl Consul {
    /// Returns how long a lease that is not renewed lasts at most.
    async fn runs_out_in(
        &self,
        call: &mut Call<'_>,
        seen: &Seen,
        session: Uuid,
    ) -> Result<Duration, StoreError> {
        let endless = |why: &str| {
            refused(format!(
                "the key {} is locked by a session {why}, so that it does not run out",
                self.key
            ))
        };
        if seen.claim().is_none() {
            return Err(endless("that is none of Tenure's and renews as it likes"));
        }
        // One that has ended since the read has freed the key.
        let Some(session) = call.session(session).await? else { return Err(self.conflict()) };
        let ttl = session.ttl().ok_or_else(|| endless("without a TTL"))?;
        Ok(record::longest(ttl, session.lock_delay()).saturating_add(AGREEMENT))
    }
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}

#[cfg(test)]
mod tests;
