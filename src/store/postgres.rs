//! The `postgres:` store: the lease in a row of a table, which is changed on the condition of its `write` and
//! never deleted. That is random in each write.
//!
//! What the row holds, and each change of it, is in `register`; here are the statements. Each request is one
//! simple query of one transaction, so that a pooler in transaction mode may be in between, and no lock
//! outlives it.
//!
//! **What it rests on.** One primary. After a failover the new primary must have the last commits, which only
//! a synchronous standby has for sure; a commit that its standbys may not have got counts as unknown.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use self::access::Access;
use self::errors::{not_postgres, standby};
use self::statements::Statements;
use self::watching::Watching;
use super::register::{
    self, Body, If, Register, RegisterError, Registered, Slot, Tagged, Told, Trials, Written,
};
use super::{Finding, LeaseAdmin, MOST_LISTED};
use crate::config::PostgresSettings;

mod access;
mod connection;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod password_file;
mod statements;
#[cfg(test)]
mod tests;
mod watching;

/// The end of the name of the row of trials. No election has an underscore in its name.
const TRIAL: &str = "_trial";

/// A table.
struct Table {
    settings: PostgresSettings,
    statements: Statements,
    access: Access,
    /// The connection that is told of news.
    watching: Mutex<Watching>,
}

/// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which blocks.
///
/// # Errors
/// Returns an error if the files of TLS are not usable.
pub fn open(settings: &PostgresSettings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(Arc::new(Registered::new(Table::open(settings, settings.request_timeout)?)))
}

impl Table {
    fn open(settings: &PostgresSettings, bound: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            access: Access::open(settings, bound)?,
            statements: Statements::new(settings, bound),
            settings: settings.clone(),
            watching: Mutex::default(),
        })
    }

    /// Returns the key of a row.
    fn key(&self, slot: Slot) -> String {
        let election = &self.settings.election;
        match slot {
            Slot::Lease => election.clone(),
            Slot::Trial => format!("{election}{TRIAL}"),
        }
    }

    fn servers(&self) -> String {
        self.settings.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Sends a write; returns the date by the server's clock, or `None` if its condition does not hold.
    async fn write(
        &self,
        statement: &str,
    ) -> Result<Option<Option<OffsetDateTime>>, RegisterError> {
        let rows = self.access.ask(statement).await?;
        Ok(rows.first().map(|row| date(row.first())))
    }

    async fn put_as(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
        is_news: bool,
    ) -> Result<Option<Written>, RegisterError> {
        let statement = self.statements.write(&self.key(slot), condition, body, is_news)?;
        let mut date = self.write(&statement).await;
        if condition == If::Absent && matches!(date, Err(RegisterError::Missing(_))) {
            self.access.ask(&self.statements.create_table()).await?;
            date = self.write(&statement).await;
        }
        Ok(date?.map(|date| Written { tag: body.write.to_string(), date }))
    }
}

#[async_trait]
impl Register for Table {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn place(&self, slot: Slot) -> String {
        let PostgresSettings { database, table, .. } = &self.settings;
        format!("the row {} of {database}/{table} in PostgreSQL", self.key(slot))
    }

    fn answered(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "TLS" } else { "no TLS" };
        format!("{} answered, with {scheme}", self.servers())
    }

    fn credential(&self) -> Option<String> {
        Some("the user of PGUSER".to_owned())
    }

    fn trials(&self) -> Trials {
        Trials::None
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        let rows = match self.access.ask(&self.statements.read(&self.key(slot))).await {
            Err(RegisterError::Missing(_)) => return Ok(None),
            answer => answer?,
        };
        let Some([Some(is_standby), at, tag, body]) = rows.first().map(Vec::as_slice) else {
            return Err(not_postgres(&self.servers()));
        };
        // A pooler may lead to another server meanwhile.
        if is_standby != "f" {
            return Err(standby("the server"));
        }
        let Some(tag) = tag else { return Ok(None) };
        let body = body.as_deref().unwrap_or_default();
        let body = Body::decode(body.as_bytes());
        Ok(Some(Tagged { tag: tag.clone(), body, date: date(Some(at)) }))
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        self.put_as(slot, condition, body, slot == Slot::Lease).await
    }

    async fn put_renewal(
        &self,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        self.put_as(Slot::Lease, condition, body, false).await
    }

    async fn others(&self) -> Option<Vec<String>> {
        let rows = self.access.ask(&self.statements.elections(MOST_LISTED * 2)).await.ok()?;
        Some(register::elections(rows.iter().flatten().flatten().map(String::as_str)))
    }

    async fn told(&self) -> Told {
        self.watch().await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }
}

/// Reads microseconds of unix time.
fn date(column: Option<&Option<String>>) -> Option<OffsetDateTime> {
    let micros: i128 = column?.as_deref()?.parse().ok()?;
    OffsetDateTime::from_unix_timestamp_nanos(micros.checked_mul(1_000)?).ok()
}
