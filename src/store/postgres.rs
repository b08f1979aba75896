//! The `postgres:` store: the lease in a row of a table, through simple queries of one transaction each.
//!
//! A claim ends at a time of the server's clock, which each statement compares when it has the row. It is
//! claimed only where there is none, or where it has ended; the record is changed only under the claim,
//! and nothing is ever deleted. No lock and no transaction outlives a request, so a pooler in transaction
//! mode may be in between.
//!
//! **What it rests on.** One primary, whose clock is not set forward by more than the margin that
//! lease-duration leaves after renew-deadline. After a failover the new primary must have the last
//! commits, which only a synchronous standby has for sure, and a clock within the same margin. A commit
//! that its standbys may not have got counts as unknown.
//!
//! The backend retries nothing and keeps nothing but its connection, and treats an outcome as definite
//! only if the server has committed the transaction that shows it (R4). Notifications, where the
//! connection is direct, wake standbys; they are never evidence of anything.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use self::access::Access;
use self::connection::Rows;
use self::errors::{PostgresError, standby};
use self::row::{Held, Seen, version_of};
use self::statements::{PROLOGUE, Statements};
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, MOST_LISTED, Presence};
use crate::config::PostgresSettings;
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, Rules, Snapshot, StoreError, Successor, Version,
};

mod access;
mod connection;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod password_file;
mod row;
mod statements;
#[cfg(test)]
mod tests;

/// The outcome of a write.
enum Written {
    /// The row was written, and is this now.
    Done(Seen),
    /// It was not: it is this.
    Not(Seen),
}

/// A lease in PostgreSQL.
pub struct Postgres {
    settings: PostgresSettings,
    statements: Statements,
    access: Access,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("row", &self.place()).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which
    /// blocks.
    ///
    /// # Errors
    /// Returns an error if the files of TLS are not usable.
    pub fn open(settings: &PostgresSettings) -> anyhow::Result<Self> {
        Ok(Self {
            access: Access::open(settings, settings.request_timeout)?,
            statements: Statements::new(settings),
            settings: settings.clone(),
        })
    }

    /// Names the row, for messages.
    fn place(&self) -> String {
        let PostgresSettings { database, table, election, .. } = &self.settings;
        format!("{election:?} of {database}/{table}")
    }

    /// Reads the row; without a table there is none.
    async fn see(&self) -> Result<Seen, StoreError> {
        match self.access.ask(&self.statements.read()).await {
            Ok(answer) => self.seen(answer.get(PROLOGUE)),
            Err(PostgresError::NoTable(_)) => Ok(Seen::nothing()),
            Err(error) => Err(error.into()),
        }
    }

    fn seen(&self, rows: Option<&Rows>) -> Result<Seen, StoreError> {
        let none = Rows::new();
        let seen = Seen::of(rows.unwrap_or(&none), &self.place()).map_err(StoreError::Foreign)?;
        if seen.is_of_standby { Err(standby("the server").into()) } else { Ok(seen) }
    }

    /// Sends a transaction that writes.
    async fn write(&self, transaction: &str) -> Result<Written, StoreError> {
        self.outcome(&self.access.ask(transaction).await?)
    }

    /// Sends a transaction that may write the first row, and creates the table first if it is missing.
    async fn write_first(&self, transaction: &str) -> Result<Written, StoreError> {
        match self.access.ask(transaction).await {
            Err(PostgresError::NoTable(_)) => {
                self.access.ask(&self.statements.create_table()).await?;
                self.write(transaction).await
            }
            answer => self.outcome(&answer?),
        }
    }

    fn outcome(&self, answer: &[Rows]) -> Result<Written, StoreError> {
        let seen = self.seen(answer.get(PROLOGUE + 1))?;
        let is_written = answer.get(PROLOGUE).is_some_and(|rows| !rows.is_empty());
        Ok(if is_written { Written::Done(seen) } else { Written::Not(seen) })
    }

    /// Returns the claim, if it is of this bid and not being broken.
    fn ours<'a>(&self, seen: &'a Seen, bid: &Bid) -> Result<&'a Held, StoreError> {
        let ours = seen.held.as_ref().filter(|it| it.is_of(bid) && !it.is_breaking);
        ours.ok_or_else(|| self.not_ours(seen))
    }

    fn not_ours(&self, seen: &Seen) -> StoreError {
        let place = self.place();
        refused(match &seen.held {
            Some(held) if held.is_breaking => format!("an operator broke the lease {place}"),
            Some(held) => format!("the lease {place} is held by {:?}", held.identity),
            None => format!("the lease {place} was freed, expired, or was never held"),
        })
    }

    /// Returns the error for a row that was not written though it could have been by now.
    fn conflict(&self) -> StoreError {
        let message = format!("the row {} was modified concurrently", self.place());
        StoreError::RetryNow(Failure::new(Cause::Lease, message))
    }
}

#[async_trait]
impl LeaseStore for Postgres {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: false }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        self.see().await.map(Seen::snapshot)
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let seen = version_of(bid).ok_or_else(|| self.conflict())?;
        match self.write_first(&self.statements.acquire(bid, seen)).await? {
            Written::Done(now) => Ok(Grant { record: now.record, date: now.date, version: None }),
            Written::Not(now) if now.held.is_some() => Err(self.not_ours(&now)),
            Written::Not(now) if now.version == seen => Err(self.conflict()),
            Written::Not(_) => {
                let message = format!("the row {} has changed since it was read", self.place());
                Err(refused(message))
            }
        }
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let statement = self.statements.write_term(bid, column(floor)?);
        let (Written::Done(now) | Written::Not(now)) = self.write(&statement).await?;
        self.ours(&now, bid)?;
        now.term_of(bid).ok_or_else(|| self.conflict())
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        match self.write(&self.statements.renew(bid)).await? {
            Written::Done(_) => Ok(None),
            Written::Not(now) => {
                Err(self.ours(&now, bid).map_or_else(|lost| lost, |_| self.conflict()))
            }
        }
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let (Written::Done(now) | Written::Not(now)) =
            self.write(&self.statements.set_successor(bid, successor)).await?;
        self.ours(&now, bid)?;
        if now.term_of(bid).is_none() {
            let message = "this candidate did not write the record, so no successor was written";
            return Err(refused(message.to_owned()));
        }
        let is_there = now.record.successor.as_ref() == Some(&successor.as_stored());
        if is_there { Ok(None) } else { Err(self.conflict()) }
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        match self.write(&self.statements.release(bid)).await? {
            Written::Done(_) => Ok(()),
            Written::Not(now) => Err(self.not_ours(&now)),
        }
    }

    async fn changed(&self) -> Change {
        loop {
            let told = self.access.notification().await;
            if let Some((election, claim)) = told.rsplit_once(' ')
                && election == self.settings.election
            {
                return Change::News { held_by: claim.parse().ok() };
            }
        }
    }
}

#[async_trait]
impl LeaseAdmin for Postgres {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        let seen = self.see().await?;
        let Some(held) = &seen.held else { return Ok(BreakOutcome::NotHeld) };
        let held = if held.is_breaking && !at_once {
            held.clone()
        } else {
            match self.write(&self.statements.break_lease(seen.version, at_once)).await? {
                Written::Done(now) => {
                    now.held.unwrap_or_else(|| Held { left: Duration::ZERO, ..held.clone() })
                }
                Written::Not(_) => {
                    let message =
                        "the lease was modified concurrently, so nothing was broken: try again";
                    return Err(StoreError::Unknown(Failure::new(Cause::Lease, message)));
                }
            }
        };
        Ok(BreakOutcome::Held { record: seen.record, free_in: held.left })
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        let elections = self.statements.elections(MOST_LISTED);
        let answer = match self.access.ask(&elections).await {
            Err(PostgresError::NoTable(_)) => {
                let PostgresSettings { database, table, .. } = &self.settings;
                let missing = format!("no table {table} in the database {database} of PostgreSQL");
                return Ok(Presence::Missing { missing, others: None });
            }
            answer => answer?,
        };
        if self.see().await?.version != 0 {
            return Ok(Presence::Exists);
        }
        let rows = answer.into_iter().nth(PROLOGUE).unwrap_or_default();
        let others = rows.into_iter().flatten().flatten().collect();
        let missing = format!("no row {} in PostgreSQL", self.place());
        Ok(Presence::Missing { missing, others: Some(others) })
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        let floor = column(floor)?;
        let mut created = Vec::new();
        let mut seen = self.access.ask(&self.statements.read()).await;
        if let Err(PostgresError::NoTable(_)) = seen {
            self.access.ask(&self.statements.create_table()).await?;
            created.push(format!("created the table {}", self.settings.table));
            seen = self.access.ask(&self.statements.read()).await;
        }
        if self.seen(seen?.get(PROLOGUE))?.record.term.is_some() {
            return Ok(created);
        }
        match self.write(&self.statements.first_term(floor)).await? {
            Written::Done(_) => {
                created
                    .push(format!("created the row {} with the first term {floor}", self.place()));
                Ok(created)
            }
            Written::Not(_) => Err(self.conflict()),
        }
    }
}

/// Converts a floor to what the column of the term can hold.
fn column(floor: u64) -> Result<i64, StoreError> {
    i64::try_from(floor).map_err(|_| largest())
}

fn largest() -> StoreError {
    let message = "the largest possible term is reached: PostgreSQL has none above 2^63 - 1";
    StoreError::Foreign(Failure::new(Cause::Record, message))
}

fn refused(message: String) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, message))
}
