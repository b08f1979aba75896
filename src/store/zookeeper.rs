//! The `zookeeper:` store: the lease in two nodes of ZooKeeper, over connections of our own.
//!
//! The claim is in the data of the record, which is never deleted, and counts while there is a node below it
//! that is deleted with the session that created it. Every write is a transaction that compares the version
//! of the record, so that a late copy of a request does nothing once anything was written since.
//!
//! **Renewals.** A renewal begins a session, and in one transaction deletes the node of the lease and creates
//! it again under that session. To touch the old session would be cheaper, as ZooKeeper's own clients do
//! with pings in the background, but a server answers a ping without asking its leader, which hears of it
//! half a tick later or never. A new session counts from when the leader hears of it, which is after the
//! request was sent; a later leader counts it from its own start. Nothing keeps a session alive unasked, so
//! that a lease that is not renewed ends.
//!
//! **What is definite.** Answers to reads are those of one server, which may be behind. What a read shows
//! is refused only after a transaction has compared it (R4). A server that is behind what this instance has
//! seen does not take its connections, so terms do not seem to go back.
//!
//! The backend retries nothing and keeps nothing but its connections. Only [`LeaseStore::changed`] waits.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;

use self::access::{Access, Call};
use self::connection::Answer;
use self::errors::{NO_NODE, NODE_EXISTS, ZookeeperError};
use self::record::{Held, Nodes, Seen};
use self::watching::Watching;
use self::wire::{Mode, Op, Outcome, Reader, Request};
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, MOST_LISTED, Presence};
use crate::config::ZookeeperSettings;
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, Rules, Snapshot, StoreError, Successor, Version,
};

mod access;
mod connection;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod record;
mod watching;
mod wire;

/// A lease in ZooKeeper.
pub struct Zookeeper {
    settings: ZookeeperSettings,
    nodes: Nodes,
    access: Access,
    watching: tokio::sync::Mutex<Watching>,
}

impl fmt::Debug for Zookeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zookeeper").field("record", &self.nodes.record).finish_non_exhaustive()
    }
}

impl Zookeeper {
    /// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which
    /// blocks.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub fn open(settings: &ZookeeperSettings) -> anyhow::Result<Self> {
        Ok(Self {
            access: Access::open(settings, settings.request_timeout)?,
            nodes: Nodes::new(settings),
            settings: settings.clone(),
            watching: tokio::sync::Mutex::default(),
        })
    }

    /// Names the record, for messages.
    fn place(&self) -> &str {
        &self.nodes.record
    }

    /// Reads the record.
    async fn see(&self, call: &mut Call<'_>) -> Result<Seen, StoreError> {
        let [data] = call.ask([Request::Data(&self.nodes.record)]).await?;
        self.seen(&data)
    }

    fn seen(&self, data: &Answer) -> Result<Seen, StoreError> {
        Seen::of(data.found(Reader::data)?, &self.nodes).map_err(StoreError::Foreign)
    }

    /// Replaces the data of the record, if it is still as it was seen, with other operations. Returns what
    /// the record is instead if nothing was done.
    async fn write(
        &self,
        call: &mut Call<'_>,
        seen: &Seen,
        data: &[u8],
        more: &[Op<'_>],
    ) -> Result<Result<Outcome, Seen>, StoreError> {
        let path = self.nodes.record.as_str();
        let set = |version| Op::Set { path, data, version };
        let first = match &seen.node {
            Some((_, state)) => vec![set(state.version)],
            // Set once more, since only the answer to that has the date.
            None => vec![self.create(path, data, Mode::Persistent), set(0)],
        };
        let ops = [&first, more].concat();
        let mut done = call.transact(&ops).await?;
        if done == Err(NO_NODE) && seen.node.is_none() {
            self.make_folders(call).await?;
            done = call.transact(&ops).await?;
        }
        match done {
            Ok(outcome) => Ok(Ok(outcome)),
            Err(_) => self.see(call).await.map(Err),
        }
    }

    fn create<'a>(&self, path: &'a str, data: &'a [u8], mode: Mode) -> Op<'a> {
        Op::Create { path, data, mode, acl: self.access.acl() }
    }

    /// Creates the nodes that all others are below, as far as they are missing.
    async fn make_folders(&self, call: &mut Call<'_>) -> Result<(), ZookeeperError> {
        for path in self.nodes.folders() {
            match call.transact(&[self.create(path, b"", Mode::Persistent)]).await? {
                Ok(_) | Err(NODE_EXISTS) => (),
                Err(code) => return Err(errors::reported(code, path)),
            }
        }
        Ok(())
    }

    /// Returns an error that follows from what was seen, once a transaction has found it unchanged; else that
    /// it has changed.
    async fn surely(
        &self,
        call: &mut Call<'_>,
        seen: &Seen,
        error: StoreError,
    ) -> Result<StoreError, StoreError> {
        let version = seen.node.as_ref().map(|(_, state)| state.version);
        let check = Op::Check { path: &self.nodes.record, version };
        let is_there = call.transact(&[check]).await?;
        let is_unchanged = match version {
            Some(_) => is_there.is_ok(),
            None => is_there == Err(NO_NODE),
        };
        Ok(if is_unchanged { error } else { self.conflict() })
    }

    /// Gives the lease to a bid, in the session of this call.
    async fn take(&self, mut call: Call<'_>, seen: Seen, bid: &Bid) -> Result<Grant, StoreError> {
        let lease = self.nodes.lease.as_str();
        let create = self.create(lease, b"", Mode::Ephemeral);
        let both = [Op::Delete { path: lease }, create.clone()];
        let more = if seen.held.is_some() { &both[..] } else { &both[1..] };
        match self.write(&mut call, &seen, &seen.claimed(bid), more).await {
            Ok(Ok(outcome)) => {
                call.keep(bid.nonce);
                Ok(Grant { record: seen.record, date: date(&outcome), version: None })
            }
            Ok(Err(now)) => {
                call.close();
                // What the record is now was read behind the transaction that failed.
                Err(match &now.held {
                    Some(held) if !held.is_of(bid) || held.is_breaking => self.not_ours(&now),
                    None if seen.held.is_some() => self.not_ours(&now),
                    None if now.version() != seen.version() => self.outdated(),
                    _ => self.conflict(),
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Ends a call that grants no lease.
    async fn refuse<T>(
        &self,
        mut call: Call<'_>,
        seen: &Seen,
        error: StoreError,
    ) -> Result<T, StoreError> {
        let error = self.surely(&mut call, seen, error).await?;
        call.close();
        Err(error)
    }

    /// Returns the claim, if it is of this bid and not being broken.
    fn ours<'a>(&self, seen: &'a Seen, bid: &Bid) -> Result<&'a Held, StoreError> {
        let ours = seen.held.as_ref().filter(|it| it.is_of(bid) && !it.is_breaking);
        ours.ok_or_else(|| self.not_ours(seen))
    }

    fn not_ours(&self, seen: &Seen) -> StoreError {
        let place = self.place();
        refused(match &seen.held {
            Some(held) if held.is_breaking => format!("an operator broke the lease of {place}"),
            Some(held) => format!("the lease of {place} is held by {:?}", held.identity),
            None => format!("the lease of {place} was freed, expired, or was never held"),
        })
    }

    fn outdated(&self) -> StoreError {
        refused(format!("the record {} has changed since it was read", self.place()))
    }

    /// Returns the error for a record that was changed between read and write: by another candidate, or by
    /// an earlier request of this one whose answer was lost.
    fn conflict(&self) -> StoreError {
        let message = format!("the node {} was modified concurrently", self.place());
        StoreError::RetryNow(Failure::new(Cause::Lease, message))
    }

    /// Returns the error for a claim that was changed between read and write.
    fn changed_since(&self, now: &Seen, bid: &Bid) -> StoreError {
        self.ours(now, bid).map_or_else(|lost| lost, |_| self.conflict())
    }

    /// Writes data of the record under the claim of a bid.
    async fn write_under(
        &self,
        call: &mut Call<'_>,
        seen: &Seen,
        data: &[u8],
    ) -> Result<Result<Outcome, Seen>, StoreError> {
        let check = Op::Check { path: &self.nodes.lease, version: None };
        self.write(call, seen, data, &[check]).await
    }

    /// Returns for how long a session may outlast its time: the servers look for those that have ended once
    /// in a tick, of which the shortest session has two by default.
    async fn tick(&self) -> Duration {
        let shortest = self.access.lengths().await.map(|(shortest, _)| shortest);
        shortest.unwrap_or(self.settings.lease_duration) / 2
    }
}

#[async_trait]
impl LeaseStore for Zookeeper {
    fn kind(&self) -> &'static str {
        "zookeeper"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: false }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let mut call = self.access.call().await?;
        // Shows at the start, and not only to the first leader.
        call.keeps(self.settings.lease_duration)?;
        self.see(&mut call).await.map(Seen::snapshot)
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let mut call = self.access.session(bid.lease_duration).await?;
        let seen = self.see(&mut call).await?;
        let fault = match &seen.held {
            Some(_) => self.ours(&seen, bid).err(),
            None => (seen.version() != bid.seen).then(|| self.outdated()),
        };
        match fault {
            None => self.take(call, seen, bid).await,
            Some(fault) => self.refuse(call, &seen, fault).await,
        }
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let mut call = self.access.call().await?;
        let seen = self.see(&mut call).await?;
        if let Err(lost) = self.ours(&seen, bid) {
            return Err(self.surely(&mut call, &seen, lost).await?);
        }
        if let Some(term) = seen.term_of(bid) {
            return Ok(term);
        }
        let term = seen.next_term(floor).ok_or_else(|| {
            let message = format!("the node {} has the largest possible term", self.place());
            StoreError::Foreign(Failure::new(Cause::Record, message))
        })?;
        match self.write_under(&mut call, &seen, &seen.led(bid, term, None)).await? {
            Ok(_) => Ok(term),
            Err(now) => {
                self.ours(&now, bid)?;
                now.term_of(bid).ok_or_else(|| self.conflict())
            }
        }
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let mut call = self.access.session(bid.lease_duration).await?;
        let seen = self.see(&mut call).await?;
        match self.ours(&seen, bid).err() {
            None => self.take(call, seen, bid).await.map(|_| None),
            Some(lost) => self.refuse(call, &seen, lost).await,
        }
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let mut call = self.access.call().await?;
        let seen = self.see(&mut call).await?;
        if let Err(lost) = self.ours(&seen, bid) {
            return Err(self.surely(&mut call, &seen, lost).await?);
        }
        let Some(term) = seen.term_of(bid) else {
            let message = "this candidate did not write the record, so no successor was written";
            return Err(self.surely(&mut call, &seen, refused(message.to_owned())).await?);
        };
        if seen.record.successor.as_ref() == Some(&successor.as_stored()) {
            return Ok(None);
        }
        let data = seen.led(bid, term, Some(successor));
        match self.write_under(&mut call, &seen, &data).await? {
            Ok(_) => Ok(None),
            Err(now) => Err(self.changed_since(&now, bid)),
        }
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let mut call = self.access.call().await?;
        let seen = self.see(&mut call).await?;
        let is_ours = |seen: &Seen| seen.held.as_ref().is_some_and(|it| it.is_of(bid));
        if is_ours(&seen) {
            let delete = Op::Delete { path: &self.nodes.lease };
            return match self.write(&mut call, &seen, &seen.freed(), &[delete]).await? {
                Ok(_) => {
                    self.access.let_go(bid.nonce);
                    Ok(())
                }
                Err(now) if is_ours(&now) => Err(self.conflict()),
                Err(now) => Err(self.not_ours(&now)),
            };
        }
        let lost = self.not_ours(&seen);
        let Some((data, _)) = &seen.node else {
            return Err(self.surely(&mut call, &seen, lost).await?);
        };
        // Written again, so that a late copy of the bid claims nothing.
        match self.write(&mut call, &seen, data, &[]).await? {
            Ok(_) => {
                self.access.let_go(bid.nonce);
                Err(lost)
            }
            Err(_) => Err(self.conflict()),
        }
    }

    async fn changed(&self) -> Change {
        Change::News { held_by: self.watch().await }
    }
}

#[async_trait]
impl LeaseAdmin for Zookeeper {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let tick = if at_once { Duration::ZERO } else { self.tick().await };
        let mut call = self.access.call().await?;
        let asked = [Request::Data(&self.nodes.record), Request::State(&self.nodes.lease)];
        let [data, lease] = call.ask(asked).await?;
        let seen = self.seen(&data)?;
        let concurrently = || {
            let message = "the lease was modified concurrently, so nothing was broken: try again";
            StoreError::Unknown(Failure::new(Cause::Lease, message))
        };
        let Some(held) = &seen.held else {
            let version = seen.version();
            let is_sure = self.surely(&mut call, &seen, self.outdated()).await?;
            let is_sure = matches!(is_sure, StoreError::Refused(_));
            tracing::debug!(version = &*version.0, is_sure, "found no lease to break");
            return if is_sure { Ok(BreakOutcome::NotHeld) } else { Err(concurrently()) };
        };
        let delete = [Op::Delete { path: &self.nodes.lease }];
        let check = [Op::Check { path: &self.nodes.lease, version: None }];
        let (data, more) = if at_once { (seen.freed(), &delete) } else { (seen.broken(), &check) };
        let Ok(outcome) = self.write(&mut call, &seen, &data, more).await? else {
            return Err(concurrently());
        };
        let free_in = match connection::state(&lease)? {
            _ if at_once => Duration::ZERO,
            // From the creation of the node to now, by the clock of the ensemble's leader.
            Some(state) => {
                let passed = outcome.changed_ms.unwrap_or(0).saturating_sub(state.created_ms);
                let passed = Duration::from_millis(u64::try_from(passed).unwrap_or(0));
                held.length.saturating_sub(passed) + tick
            }
            None => held.length + tick,
        };
        Ok(BreakOutcome::Held { record: seen.record, free_in })
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        let mut call = self.access.call().await?;
        let asked = [Request::State(&self.nodes.record), Request::Children(&self.nodes.path)];
        let [record, children] = call.ask(asked).await?;
        if connection::state(&record)?.is_some() {
            return Ok(Presence::Exists);
        }
        let missing = format!("no node {} in ZooKeeper", self.place());
        let others = children.found(Reader::children)?.map(|mut names| {
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
        let mut call = self.access.call().await?;
        let seen = self.see(&mut call).await?;
        if seen.record.term.is_some() {
            return Ok(Vec::new());
        }
        match self.write(&mut call, &seen, &seen.first(floor), &[]).await? {
            Ok(_) => {
                let place = self.place();
                Ok(vec![format!("created the node {place} with the first term {floor}")])
            }
            Err(_) => Err(self.conflict()),
        }
    }
}

/// Returns when a transaction was done, by the clock of the ensemble's leader.
fn date(outcome: &Outcome) -> Option<OffsetDateTime> {
    let millis = i128::from(outcome.changed_ms?);
    OffsetDateTime::from_unix_timestamp_nanos(millis.checked_mul(1_000_000)?).ok()
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}

#[cfg(test)]
mod tests;
