//! A lease in a register: one value of a store that is changed by compare-and-set, and by nothing else.
//!
//! Each change is a write of the whole value, on the condition that the value is still the one that the
//! change is based on: the one that the last write of the bid returned, or else one that was just read.
//! No server counts the time: each observer counts it by its own clock. No wall clock is compared.
//!
//! All safety rests on the condition. So before the first bid it is tried on a value of its own, and where
//! the server does not honour it, nobody leads.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::OnceCell;

use self::body::{Body, Noticed};
use self::error::RegisterError;
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, MOST_LISTED, Presence};
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, Record, Rules, Snapshot, StoreError, Successor, Version,
};

mod body;
pub(super) mod doctor;
pub(super) mod error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod proof;
#[cfg(test)]
mod tests;

/// A value of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The one with the lease and the record.
    Lease,
    /// The one on which conditions are tried. It stays, and all candidates of the election share it.
    Trial,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum If<'a> {
    /// There is no value yet.
    Absent,
    /// The value is the one with this tag.
    Tagged(&'a str),
}

/// A value as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tagged {
    /// The server's name for this state of the value.
    pub(super) tag: String,
    pub(super) content: Vec<u8>,
    /// The date by the server's clock, if it sent one.
    pub(super) date: Option<OffsetDateTime>,
}

/// The outcome of a write that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The server's name for the new state of the value.
    pub(super) tag: String,
    /// The date by the server's clock, if it sent one.
    pub(super) date: Option<OffsetDateTime>,
}

/// A server with such values. Each call is one request.
#[async_trait]
pub(super) trait Register: Send + Sync + 'static {
    /// Returns the name of the kind of store.
    fn kind(&self) -> &'static str;

    /// Names a value, for messages: `the object s3://bucket/key`.
    fn place(&self, slot: Slot) -> String;

    /// Names the server that answered, for `tenure doctor`, and how it is reached.
    fn answered(&self) -> String;

    /// Names the credential, for `tenure doctor`; `None` if there is none yet.
    fn credential(&self) -> Option<String>;

    /// Reads a value; `None` if there is none.
    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError>;

    /// Writes a value on a condition; `None` if the server says that it does not hold, so that nothing was
    /// written.
    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        content: Vec<u8>,
    ) -> Result<Option<Written>, RegisterError>;

    /// Returns the names of other elections in the same place, sorted; `None` if they cannot be listed.
    async fn others(&self) -> Option<Vec<String>>;

    /// Resolves when the server reports unasked that the value of the lease has changed, or may have, with
    /// its content then, or `None` without one. Never resolves where a server reports nothing.
    async fn told(&self) -> Option<Vec<u8>> {
        std::future::pending().await
    }

    /// Checks everything that this store needs, for `tenure doctor`.
    async fn examine(&self) -> Vec<Finding>;
}

/// A lease in a register.
pub(super) struct Registered<R> {
    register: R,
    /// Whether the server has been seen to honour conditions.
    proven: OnceCell<()>,
    /// What the server reported last, unasked.
    noticed: Mutex<Noticed>,
}

impl<R: Register> fmt::Debug for Registered<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("place", &self.place()).finish_non_exhaustive()
    }
}

impl<R: Register> Registered<R> {
    pub(super) fn new(register: R) -> Self {
        Self { register, proven: OnceCell::new(), noticed: Mutex::default() }
    }

    fn place(&self) -> String {
        self.register.place(Slot::Lease)
    }

    /// Reads the value; `None` if there is none.
    async fn see(&self) -> Result<Option<(Tagged, Body)>, StoreError> {
        let Some(read) = self.register.get(Slot::Lease).await? else { return Ok(None) };
        let body = Body::read(&read.content, &self.place()).map_err(StoreError::Foreign)?;
        Ok(Some((read, body)))
    }

    /// Writes the value on a condition; `None` if that does not hold.
    async fn try_write(
        &self,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<(Version, Written)>, StoreError> {
        let content = body.content();
        let written = self.register.put(Slot::Lease, condition, content.clone()).await?;
        Ok(written.map(|it| (body::version(&it.tag, &content), it)))
    }

    /// Changes the value for a bid by one write, and returns it as it is then, with its version. `edit`
    /// returns whether there is anything to change. The change is made to what the last write of the bid
    /// returned; only a read can refuse it, or show that there is nothing to change.
    async fn change(
        &self,
        bid: &Bid,
        edit: impl Fn(&mut Body) -> Result<bool, StoreError> + Send,
    ) -> Result<(Version, Body), StoreError> {
        if let Some((tag, mut body)) = bid.written.as_ref().and_then(body::of_version)
            && edit(&mut body) == Ok(true)
        {
            return self.write(&tag, body).await;
        }
        let (read, mut body) = self.see().await?.ok_or_else(|| self.gone())?;
        match edit(&mut body)? {
            true => self.write(&read.tag, body).await,
            false => Ok((body::version(&read.tag, &read.content), body)),
        }
    }

    async fn write(&self, tag: &str, body: Body) -> Result<(Version, Body), StoreError> {
        let written = self.try_write(If::Tagged(tag), &body).await?;
        let (version, _) = written.ok_or_else(|| self.conflict())?;
        Ok((version, body))
    }

    /// Acquires or renews the lease in this state; returns the record found in it, or `None` if it has
    /// changed since.
    async fn take(
        &self,
        (tag, mut body): (String, Body),
        bid: &Bid,
    ) -> Result<Option<Grant>, StoreError> {
        let seen = || body::of_version(&bid.seen);
        if body.is_of(bid) {
            body.renew(bid);
        } else if seen().is_some_and(|it| it.0 == tag) {
            body.take(bid);
        } else {
            return Err(self.not_ours(&body));
        }
        let written = self.try_write(If::Tagged(&tag), &body).await?;
        Ok(written.map(|it| grant(body.record, it)))
    }

    /// Tries on a value of its own whether the server honours conditions, unless that was seen before.
    async fn prove(&self) -> Result<(), StoreError> {
        let proof = || async { proof::prove(&self.register).await.map(drop) };
        self.proven.get_or_try_init(proof).await.copied()
    }

    fn check_ours(&self, body: &Body, bid: &Bid) -> Result<(), StoreError> {
        if body.is_of(bid) { Ok(()) } else { Err(self.not_ours(body)) }
    }

    fn gone(&self) -> StoreError {
        refused(format!("{} was deleted", self.place()))
    }

    fn not_ours(&self, body: &Body) -> StoreError {
        let place = self.place();
        refused(match &body.held {
            Some(held) if held.is_breaking => format!("an operator broke the lease in {place}"),
            Some(held) => format!("the lease in {place} is held by {:?}", held.identity),
            None => format!("the lease in {place} was freed, or has changed since it was read"),
        })
    }

    /// Returns the error for a value that was changed between read and write: by another candidate, or by
    /// an earlier request of this one whose answer was lost.
    fn conflict(&self) -> StoreError {
        let message = format!("{} was modified concurrently; it is read again", self.place());
        StoreError::RetryNow(Failure::new(Cause::Lease, message))
    }
}

#[async_trait]
impl<R: Register> LeaseStore for Registered<R> {
    fn kind(&self) -> &'static str {
        self.register.kind()
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: false }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        Ok(match self.see().await? {
            None => body::missing(),
            Some((read, body)) => body.snapshot(body::version(&read.tag, &read.content)),
        })
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        self.prove().await?;
        if body::is_missing(&bid.seen) {
            let mut body = Body::default();
            body.take(bid);
            if let Some(written) = self.try_write(If::Absent, &body).await? {
                tracing::warn!("created {}, which was missing", self.place());
                return Ok(grant(Record::default(), written));
            }
        }
        let mut seen = body::of_version(&bid.seen);
        // The write in between may have been an earlier request of this bid.
        for _ in 0..2 {
            let found = match seen.take() {
                Some(found) => found,
                None => {
                    let (read, body) = self.see().await?.ok_or_else(|| self.gone())?;
                    (read.tag, body)
                }
            };
            if let Some(grant) = self.take(found, bid).await? {
                return Ok(grant);
            }
        }
        Err(self.conflict())
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let edit = |body: &mut Body| {
            self.check_ours(body, bid)?;
            if body.term_of(bid).is_some() {
                return Ok(false);
            }
            if body.write_term(bid, floor) {
                return Ok(true);
            }
            let message = format!("{} has the largest possible term", self.place());
            Err(StoreError::Foreign(Failure::new(Cause::Record, message)))
        };
        let (_, body) = self.change(bid, edit).await?;
        body.term_of(bid).ok_or_else(|| self.not_ours(&body))
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let edit = |body: &mut Body| {
            self.check_ours(body, bid)?;
            body.renew(bid);
            Ok(true)
        };
        self.change(bid, edit).await.map(|it| Some(it.0))
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let edit = |body: &mut Body| {
            self.check_ours(body, bid)?;
            if body.term_of(bid).is_none() {
                let message =
                    "this candidate did not write the record, so no successor was written";
                return Err(refused(message.to_owned()));
            }
            if body.record.successor.as_ref() == Some(&successor.as_stored()) {
                return Ok(false);
            }
            body.set_successor(successor);
            Ok(true)
        };
        self.change(bid, edit).await.map(|it| Some(it.0))
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let edit = |body: &mut Body| {
            if !body.is_to_end(bid) {
                return Err(self.not_ours(body));
            }
            body.free();
            Ok(true)
        };
        self.change(bid, edit).await.map(drop)
    }

    async fn changed(&self) -> Change {
        loop {
            let content = self.register.told().await;
            let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(change) = noticed.take(content.as_deref()) {
                return change;
            }
        }
    }
}

#[async_trait]
impl<R: Register> LeaseAdmin for Registered<R> {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let Some((read, mut body)) = self.see().await? else { return Ok(BreakOutcome::NotHeld) };
        let Some(held) = &body.held else { return Ok(BreakOutcome::NotHeld) };
        let free_in = if at_once { Duration::ZERO } else { held.lease_duration };
        let record = body.shown_record();
        if at_once {
            body.free();
        } else if held.is_breaking {
            return Ok(BreakOutcome::Held { record, free_in });
        } else {
            body.mark_broken();
        }
        if self.try_write(If::Tagged(&read.tag), &body).await?.is_none() {
            let message = "the lease was modified concurrently, so nothing was broken: try again";
            return Err(StoreError::Unknown(Failure::new(Cause::Lease, message)));
        }
        Ok(BreakOutcome::Held { record, free_in })
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        if self.register.get(Slot::Lease).await?.is_some() {
            return Ok(Presence::Exists);
        }
        let missing = format!("no {}", self.place().trim_start_matches("the "));
        Ok(Presence::Missing { missing, others: self.register.others().await })
    }

    async fn examine(&self) -> Vec<Finding> {
        self.register.examine().await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let place = self.place();
        let Some((read, mut body)) = self.see().await? else {
            return match self.try_write(If::Absent, &body::first(floor)).await? {
                Some(_) => Ok(vec![format!("created {place} with the first term {floor}")]),
                None => Err(self.conflict()),
            };
        };
        if body.record.term.is_some() {
            return Ok(Vec::new());
        }
        body.record.term = Some(floor);
        self.write(&read.tag, body).await?;
        Ok(vec![format!("wrote the first term {floor} to {place}")])
    }
}

/// Returns the grant of an acquisition that found this record, from the answer to its write.
fn grant(record: Record, (version, written): (Version, Written)) -> Grant {
    Grant { record, date: written.date, version: Some(version) }
}

/// Returns those of the names that an election may have, sorted, at most [`MOST_LISTED`]: neither those of
/// trials, nor what others or the server itself keep beside them.
pub(super) fn elections<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_election = |it: &&str| {
        it.bytes().next().is_some_and(is_plain)
            && it.bytes().all(|it| is_plain(it) || it == b'-' || it == b'.')
    };
    let mut names: Vec<_> = names.filter(is_election).map(str::to_owned).collect();
    names.sort();
    names.truncate(MOST_LISTED);
    names
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}
