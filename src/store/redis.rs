//! The `redis:` store: the lease in a hash of Redis or Valkey, which is changed on the condition of its field
//! `write` and never deleted. That is random in each write.
//!
//! What the hash holds, and each change of it, is in `register`; here are the scripts, of which a request
//! executes one.
//!
//! **What it rests on.** One server that loses no write. A replica gets writes after they were answered, so
//! that a failover may lose a claim: two instances lead then until the older one's next renewal is refused,
//! and a term can be given twice. `WAIT` would not help: a replica that has a write need not be the one that
//! is promoted. Locks on several independent servers are refused, see docs/choosing.md.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use self::access::Access;
use self::errors::not_redis;
use self::reply::Reply;
use self::scripts::{FORMAT, Scripts, command};
use self::watching::Watching;
use super::register::{
    self, Body, If, Register, RegisterError, Registered, Slot, Tagged, Told, Trials, Written,
};
use super::{Finding, LeaseAdmin};
use crate::config::RedisSettings;

mod access;
mod connection;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod reply;
mod scripts;
#[cfg(test)]
mod tests;
mod watching;

/// How many keys are looked at to find other elections.
const MOST_SCANNED: &str = "10000";

/// A database.
struct Database {
    settings: RedisSettings,
    scripts: Scripts,
    access: Access,
    /// The connection that messages arrive on.
    watching: Mutex<Watching>,
}

/// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which blocks.
///
/// # Errors
/// Returns an error if the files of TLS are not usable.
pub fn open(settings: &RedisSettings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(Arc::new(Registered::new(Database::open(settings, settings.request_timeout)?)))
}

impl Database {
    fn open(settings: &RedisSettings, bound: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            access: Access::open(settings, bound)?,
            scripts: Scripts::new(&settings.election),
            settings: settings.clone(),
            watching: Mutex::default(),
        })
    }

    fn servers(&self) -> String {
        self.settings.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    async fn put_as(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
        is_news: bool,
    ) -> Result<Option<Written>, RegisterError> {
        let write = |allows_oom| self.scripts.write(slot, condition, body, is_news, allows_oom);
        let reply = self.access.ask(write).await?;
        match reply.parts() {
            [Reply::Number(0), ..] => Ok(None),
            [Reply::Number(1), seconds, micros] => {
                let date = date(seconds, micros);
                Ok(Some(Written { tag: body.write.to_string(), date }))
            }
            _ => Err(not_redis(&self.servers())),
        }
    }

    /// Returns what a hash is that was read; `None` if there is none.
    fn tagged(&self, reply: &Reply) -> Result<Option<Tagged>, RegisterError> {
        let [exists, format, write, body, seconds, micros] = reply.parts() else {
            return Err(not_redis(&self.servers()));
        };
        if *exists == Reply::Number(0) {
            return Ok(None);
        }
        let body = match (format.text(), body.text()) {
            (Some(FORMAT), Some(body)) => Body::decode(body.as_bytes()),
            (Some("1"), _) => Err("has format 1 of an earlier version".to_owned()),
            _ => Err("is not Tenure's".to_owned()),
        };
        let tag = write.text().unwrap_or_default().to_owned();
        Ok(Some(Tagged { tag, body, date: date(seconds, micros) }))
    }
}

#[async_trait]
impl Register for Database {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn place(&self, slot: Slot) -> String {
        let key = self.scripts.key(slot);
        format!("the key {key} of database {} in Redis", self.settings.database)
    }

    fn answered(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "TLS" } else { "no TLS" };
        format!("{} answered, with {scheme}", self.servers())
    }

    fn credential(&self) -> Option<String> {
        let words = match (&self.settings.user, &self.settings.password) {
            (Some(_), _) => "the user of REDIS_USERNAME",
            (None, Some(_)) => "the default user, with REDIS_PASSWORD",
            (None, None) => "the default user, without a password",
        };
        Some(words.to_owned())
    }

    fn trials(&self) -> Trials {
        Trials::None
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        match self.access.ask(|_| self.scripts.read(slot)).await {
            Ok(reply) => self.tagged(&reply),
            Err(error) => Err(error),
        }
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
        let scan = ["SCAN", "0", "MATCH", "tenure:{*}:record", "COUNT", MOST_SCANNED];
        let reply = self.access.ask(|_| command(&scan)).await.ok()?;
        let keys = reply.parts().get(1)?.parts().iter().filter_map(Reply::text);
        let names = keys.filter_map(|it| it.strip_prefix("tenure:{")?.strip_suffix("}:record"));
        let mut names = register::elections(names);
        // A scan may return a key twice.
        names.dedup();
        Some(names)
    }

    async fn told(&self) -> Told {
        self.watch().await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }
}

/// Reads the date of the server.
fn date(seconds: &Reply, micros: &Reply) -> Option<OffsetDateTime> {
    let whole = OffsetDateTime::from_unix_timestamp(seconds.text()?.parse().ok()?).ok()?;
    whole.checked_add(time::Duration::microseconds(micros.text()?.parse::<u32>().ok()?.into()))
}
