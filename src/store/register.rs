//! A lease in a register: one value of a store that is compared and set, and changed by nothing else.
//!
//! - The value has a claim, of the holder, and the record of the last leadership ([`Body`]). Each write
//!   replaces all of it, on the condition that it is still the state that the write is based on.
//! - A renewal gives the claim another random number. An observer that has seen the same number for the
//!   whole lease, by its own slower clock, may bid, by a write on exactly the state that it read. No clock
//!   of a server counts, and no two clocks are compared.
//! - A renewal is based on the last write of its bid; a bid, a release and a break are based on a read.
//! - What a read shows may not last: a claim or term that a read finds as this bid's own, after an unknown
//!   outcome, counts only once another write on it is acknowledged.
//! - A bid that is given up may still be delivered. So its release writes the state that the bid was based
//!   on once more, and the condition of the bid no longer holds.
//! - Reports of a watch move reads and waits; they are never evidence that the lease is free.
//!
//! All safety rests on the conditions. So before the first bid they are tried on a value of their own
//! (`proof`), and where a server does not honour them, nobody leads. A store is a [`Register`], and has no
//! part in the algorithm, which is [`Registered`].

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{Notify, OnceCell};

pub use self::body::{Body, Held};
pub use self::error::RegisterError;
use self::proof::Trial;
use self::reports::Reports;
pub use self::server::{If, Register, Slot, Tagged, Told, Trials, Written};
use super::LeaseStore;
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, Record, Rules, Snapshot, StoreError, Successor, Version,
};

mod admin;
mod body;
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
pub(super) mod doctor;
mod error;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod proof;
mod reports;
mod server;
#[cfg(test)]
mod tests;

/// A lease in a register.
pub struct Registered<R> {
    register: R,
    /// Whether the server has been seen to honour conditions one after the other.
    proven: OnceCell<Trial>,
    /// The same in a race: on its own, since each request must have an answer in time.
    raced: OnceCell<()>,
    reports: Mutex<Reports>,
    /// Whether the watch is to be opened anew.
    reopen: Notify,
}

impl<R: Register> fmt::Debug for Registered<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("place", &self.place()).finish_non_exhaustive()
    }
}

impl<R: Register> Registered<R> {
    /// Creates the lease of a register; sends no request.
    pub fn new(register: R) -> Self {
        Self {
            register,
            proven: OnceCell::new(),
            raced: OnceCell::new(),
            reports: Mutex::default(),
            reopen: Notify::new(),
        }
    }

    fn place(&self) -> String {
        self.register.place(Slot::Lease)
    }

    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the value, with its tag; `None` if there is none.
    async fn see(&self) -> Result<Option<(String, Body)>, StoreError> {
        let read = self.register.get(Slot::Lease).await?;
        let body = read.as_ref().map(|it| it.body.clone()).transpose().map_err(|what| {
            StoreError::Foreign(Failure::new(Cause::Record, foreign(&self.place(), &what)))
        })?;
        if self.reports().read(body.as_ref().unwrap_or(&Body::default())) {
            self.reopen.notify_one();
        }
        Ok(read.map(|it| it.tag).zip(body))
    }

    /// Writes the value on a condition; `None` if that does not hold.
    async fn try_write(
        &self,
        condition: If<'_>,
        body: &mut Body,
    ) -> Result<Option<(Version, Written)>, StoreError> {
        body.stamp(self.register.draw());
        let is_news = self.reports().is_news(body);
        let written = match is_news {
            true => self.register.put(Slot::Lease, condition, body).await?,
            false => self.register.put_renewal(condition, body).await?,
        };
        Ok(written.map(|it| {
            self.reports().wrote(body);
            (body::version(&it.tag, body), it)
        }))
    }

    async fn write(
        &self,
        condition: If<'_>,
        mut body: Body,
    ) -> Result<(Version, Body), StoreError> {
        let written = self.try_write(condition, &mut body).await?;
        let (version, _) = written.ok_or_else(|| self.conflict())?;
        Ok((version, body))
    }

    /// Changes the value for a bid by one write, and returns it as it is then, with its version. The change
    /// is made to what the last write of the bid returned; only a read can refuse it.
    async fn change(
        &self,
        bid: &Bid,
        edit: impl Fn(&mut Body) -> Result<(), StoreError> + Send,
    ) -> Result<(Version, Body), StoreError> {
        if let Some((tag, mut body)) = bid.written.as_ref().and_then(body::of_version)
            && edit(&mut body).is_ok()
        {
            return self.write(If::Tagged(&tag), body).await;
        }
        let (tag, mut body) = self.see().await?.ok_or_else(|| self.gone())?;
        edit(&mut body)?;
        self.write(If::Tagged(&tag), body).await
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
            body.renew(bid, self.register.draw());
        } else if seen().is_some_and(|it| it.0 == tag) {
            body.take(bid, self.register.draw());
        } else {
            return Err(self.not_ours(&body));
        }
        let written = self.try_write(If::Tagged(&tag), &mut body).await?;
        Ok(written.map(|it| grant(body.record, it)))
    }

    /// Tries on a value of its own whether the server honours conditions, unless that was seen before.
    async fn prove(&self) -> Result<(), StoreError> {
        let trials = self.register.trials();
        if trials == Trials::None {
            return Ok(());
        }
        let trial = self.proven.get_or_try_init(|| proof::in_order(&self.register)).await?;
        if trials == Trials::InARace && trial.is_race_due() {
            self.raced.get_or_try_init(|| proof::in_a_race(&self.register)).await?;
        }
        Ok(())
    }

    /// Writes the state that a bid was based on once more, if it is still the present one: the bid may be
    /// delivered yet, and its condition must not hold then.
    async fn outdate(&self, bid: &Bid, found: Option<(String, Body)>) -> Result<(), StoreError> {
        let base = body::of_version(&bid.seen).map(|it| it.0);
        match found {
            None if body::is_missing(&bid.seen) => {
                self.write(If::Absent, Body::default()).await.map(drop)
            }
            Some((tag, body)) if base.as_ref() == Some(&tag) => {
                self.write(If::Tagged(&tag), body).await.map(drop)
            }
            _ => Ok(()),
        }
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
            Some((tag, body)) => body.snapshot(body::version(&tag, &body)),
        })
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        self.prove().await?;
        if body::is_missing(&bid.seen) {
            let mut body = Body::default();
            body.take(bid, self.register.draw());
            if let Some(written) = self.try_write(If::Absent, &mut body).await? {
                tracing::warn!("created {}, which was missing", self.place());
                return Ok(grant(Record::default(), written));
            }
        }
        let mut seen = body::of_version(&bid.seen);
        // The write in between may have been an earlier request of this bid.
        for _ in 0..2 {
            let found = match seen.take() {
                Some(found) => found,
                None => self.see().await?.ok_or_else(|| self.gone())?,
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
            // A term that a read has found is written once more: it may not be there for good.
            if body.term_of(bid).is_some() || body.write_term(bid, floor) {
                return Ok(());
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
            body.renew(bid, self.register.draw());
            Ok(())
        };
        self.change(bid, edit).await.map(|it| Some(it.0))
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let named = Some(successor.as_stored());
        let known = bid.written.as_ref().and_then(body::of_version);
        if known
            .is_some_and(|(_, body)| body.term_of(bid).is_some() && body.record.successor == named)
        {
            // It was acknowledged, and lasts; but only for as long as the lease is held.
            let (_, body) = self.see().await?.ok_or_else(|| self.gone())?;
            return self.check_ours(&body, bid).map(|()| bid.written.clone());
        }
        let edit = |body: &mut Body| {
            self.check_ours(body, bid)?;
            if body.term_of(bid).is_none() {
                let message =
                    "this candidate did not write the record, so no successor was written";
                return Err(refused(message.to_owned()));
            }
            body.set_successor(successor);
            Ok(())
        };
        self.change(bid, edit).await.map(|it| Some(it.0))
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let found = self.see().await?;
        let why = found.as_ref().map_or_else(|| self.gone(), |(_, body)| self.not_ours(body));
        match found {
            Some((tag, mut body)) if body.is_to_end(bid) => {
                body.free();
                self.write(If::Tagged(&tag), body).await.map(drop)
            }
            found => {
                self.outdate(bid, found).await?;
                Err(why)
            }
        }
    }

    async fn changed(&self) -> Change {
        loop {
            let told = tokio::select! {
                biased;
                () = self.reopen.notified() => continue,
                told = self.register.told() => told,
            };
            if let Some(change) = self.reports().told(told) {
                return change;
            }
        }
    }
}

/// Returns the grant of an acquisition that found this record, from the answer to its write.
fn grant(record: Record, (version, written): (Version, Written)) -> Grant {
    Grant { record, date: written.date, version: Some(version) }
}

/// Returns those of the names that an election may have, sorted, at most [`MOST_LISTED`](super::MOST_LISTED): neither those of
/// trials, nor what others or the server itself keep beside them.
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
pub(super) fn elections<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let is_election = |it: &&str| {
        it.bytes().next().is_some_and(is_plain)
            && it.bytes().all(|it| is_plain(it) || it == b'-' || it == b'.')
    };
    let mut names: Vec<_> = names.filter(is_election).map(str::to_owned).collect();
    names.sort();
    names.truncate(super::MOST_LISTED);
    names
}

/// Says that what a value has is none of Tenure's.
fn foreign(place: &str, what: &str) -> String {
    format!(
        "{place} {what}; nothing was overwritten: set another election, or another place in --store, or \
         delete it if nothing else uses it"
    )
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}
