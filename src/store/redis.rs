//! The `redis:` store: the lease in a key of Redis or Valkey that expires, and the record in another that
//! does not, through one script for each request.
//!
//! The lease is claimed only where there is none, and the record is changed only under the claim. The term
//! is a counter in the record, which is never deleted.
//!
//! **What it rests on.** One server that loses no write, whose wall clock is not set forward by more than
//! the margin that lease-duration leaves after renew-deadline. A replica gets writes after they were
//! answered, so that after a failover two instances may lead until the old one's deadline, in the same
//! term. `WAIT` would not help: a replica that has a write need not be the one that is promoted. Locks on
//! several independent servers are refused, see docs/choosing.md.
//!
//! The backend retries nothing and keeps nothing but its connections, and treats an outcome as definite
//! only if the script that shows it was executed by a primary (R4). Messages of a channel wake standbys;
//! they are never evidence of anything.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use self::access::Access;
use self::scripts::{Command, Scripts, command};
use self::state::{Held, Seen};
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, MOST_LISTED, Presence};
use crate::config::RedisSettings;
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, Rules, Snapshot, StoreError, Successor, Version,
};

mod access;
mod connection;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod reply;
mod scripts;
mod state;
#[cfg(test)]
mod tests;

/// How many keys are looked at to find other elections.
const MOST_SCANNED: &str = "10000";

/// A lease in Redis.
pub struct Redis {
    settings: RedisSettings,
    scripts: Scripts,
    access: Access,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("lease", &self.place()).finish_non_exhaustive()
    }
}

impl Redis {
    /// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which
    /// blocks.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub fn open(settings: &RedisSettings) -> anyhow::Result<Self> {
        Ok(Self {
            access: Access::open(settings, settings.request_timeout)?,
            scripts: Scripts::new(&settings.election),
            settings: settings.clone(),
        })
    }

    /// Names the keys, for messages.
    fn place(&self) -> String {
        let RedisSettings { election, database, .. } = &self.settings;
        format!("tenure:{{{election}}}:* of database {database}")
    }

    /// Executes the script; returns what the keys hold then.
    async fn ask(&self, request: &Command) -> Result<Seen, StoreError> {
        let reply = self.access.ask(request).await?;
        Seen::of(&reply, &self.place()).map_err(StoreError::Foreign)
    }

    /// Returns the claim, if it is of this bid and not being broken.
    fn ours<'a>(&self, seen: &'a Seen, bid: &Bid) -> Result<&'a Held, StoreError> {
        let ours = seen.held.as_ref().filter(|it| it.is_of(bid) && !it.is_breaking);
        ours.ok_or_else(|| self.not_ours(seen))
    }

    fn not_ours(&self, seen: &Seen) -> StoreError {
        let election = &self.settings.election;
        refused(match &seen.held {
            Some(held) if held.is_breaking => format!("an operator broke the lease {election:?}"),
            Some(held) => format!("the lease {election:?} is held by {:?}", held.identity),
            None => format!("the lease {election:?} was freed, expired, or was never held"),
        })
    }

    /// Returns the error for keys that were not written though they could have been.
    fn conflict(&self) -> StoreError {
        let message = format!("the keys {} were modified concurrently", self.place());
        StoreError::RetryNow(Failure::new(Cause::Lease, message))
    }

    /// Returns the names of some elections of this database; `None` if the user may not scan it.
    async fn elections(&self) -> Option<Vec<String>> {
        let scan = ["SCAN", "0", "MATCH", "tenure:{*}:record", "COUNT", MOST_SCANNED];
        let reply = self.access.ask(&command(&scan)).await.ok()?;
        let keys = reply.parts().get(1)?.parts().iter().filter_map(reply::Reply::text);
        let name =
            |it: &str| it.strip_prefix("tenure:{")?.strip_suffix("}:record").map(str::to_owned);
        let mut names: Vec<_> = keys.filter_map(name).collect();
        names.sort();
        names.dedup();
        names.truncate(MOST_LISTED);
        Some(names)
    }
}

#[async_trait]
impl LeaseStore for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: false }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        self.ask(&self.scripts.read()).await.map(Seen::snapshot)
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let now = self.ask(&self.scripts.acquire(bid)).await?;
        if now.is_written {
            return Ok(Grant { record: now.record, date: now.date, version: None });
        }
        if now.held.is_some() {
            return Err(self.not_ours(&now));
        }
        let message = format!("the record of {} has changed since it was read", self.place());
        Err(refused(message))
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let now = self.ask(&self.scripts.write_term(bid, counter(floor)?)).await?;
        self.ours(&now, bid)?;
        now.term_of(bid).ok_or_else(|| self.conflict())
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let now = self.ask(&self.scripts.renew(bid)).await?;
        if now.is_written {
            return Ok(None);
        }
        Err(self.ours(&now, bid).map_or_else(|lost| lost, |_| self.conflict()))
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let now = self.ask(&self.scripts.set_successor(bid, successor)).await?;
        self.ours(&now, bid)?;
        if now.term_of(bid).is_none() {
            let message = "this candidate did not write the record, so no successor was written";
            return Err(refused(message.to_owned()));
        }
        let is_there = now.record.successor.as_ref() == Some(&successor.as_stored());
        if is_there { Ok(None) } else { Err(self.conflict()) }
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let now = self.ask(&self.scripts.release(bid)).await?;
        if now.is_written { Ok(()) } else { Err(self.not_ours(&now)) }
    }

    async fn changed(&self) -> Change {
        loop {
            let told = self.access.message(&self.scripts.channel).await;
            if let Some((sender, claim)) = told.split_once(' ')
                && sender != self.scripts.sender
            {
                return Change::News { held_by: claim.parse().ok() };
            }
        }
    }
}

#[async_trait]
impl LeaseAdmin for Redis {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let seen = self.ask(&self.scripts.read()).await?;
        let Some(held) = &seen.held else { return Ok(BreakOutcome::NotHeld) };
        if !at_once && held.left == Duration::MAX {
            let message = format!(
                "the key {} has no expiry, so that it does not run out",
                self.scripts.lease
            );
            return Err(refused(message));
        }
        let held = if held.is_breaking && !at_once {
            held.clone()
        } else {
            let now = self.ask(&self.scripts.break_lease(&seen.version, at_once)).await?;
            if !now.is_written {
                let message =
                    "the lease was modified concurrently, so nothing was broken: try again";
                return Err(StoreError::Unknown(Failure::new(Cause::Lease, message)));
            }
            now.held.unwrap_or_else(|| Held { left: Duration::ZERO, ..held.clone() })
        };
        Ok(BreakOutcome::Held { record: seen.record, free_in: held.left })
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        if self.ask(&self.scripts.read()).await?.exists {
            return Ok(Presence::Exists);
        }
        let missing = format!("no key {} in Redis", self.place());
        Ok(Presence::Missing { missing, others: self.elections().await })
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let floor = counter(floor)?;
        let now = self.ask(&self.scripts.first_term(floor)).await?;
        match (now.is_written, now.record.term) {
            (true, _) => {
                let key = &self.scripts.record;
                Ok(vec![format!("created the key {key} with the first term {floor}")])
            }
            (false, Some(_)) => Ok(Vec::new()),
            (false, None) => Err(self.conflict()),
        }
    }
}

/// Converts a floor to what a counter of Redis can hold.
fn counter(floor: u64) -> Result<i64, StoreError> {
    i64::try_from(floor).map_err(|_| {
        let message = "the largest possible term is reached: Redis has none above 2^63 - 1";
        StoreError::Foreign(Failure::new(Cause::Record, message))
    })
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}
