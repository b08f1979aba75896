//! The `mongodb:` store: the lease in a document of a collection, which is replaced on the condition of its
//! last write's random number and never deleted.
//!
//! What the document holds, and each change of it, is in `register`; here are the commands, which MongoDB's own
//! client sends, without its retries.
//!
//! **What it rests on.** A write counts only when a majority of the replica set has acknowledged it, so that
//! no failover takes it back; any other outcome is unknown. On a server without a replica set, it is on that
//! server's disk. What is assumed of the server is in `wire`, with its sources.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::Document;
use tokio::sync::Mutex;

use self::access::Access;
use self::errors::not_mongodb;
use self::watching::Watching;
use self::wire::{Commands, Stored};
use super::register::{
    self, Body, If, Register, RegisterError, Registered, Slot, Tagged, Told, Trials, Written,
};
use super::{Finding, LeaseAdmin, MOST_LISTED};
use crate::config::MongoSettings;

mod access;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
mod watching;
mod wire;

/// The end of the name on which conditions are tried. No election has an underscore in its name.
const TRIAL: &str = "_trial";

/// A collection.
struct Collection {
    settings: MongoSettings,
    access: Access,
    commands: Commands,
    /// The change stream.
    watching: Mutex<Watching>,
}

/// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which blocks.
///
/// # Errors
/// Returns an error if the files of TLS are not usable.
pub fn open(settings: &MongoSettings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(Arc::new(Registered::new(Collection::open(settings, settings.request_timeout)?)))
}

impl Collection {
    fn open(settings: &MongoSettings, bound: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            access: Access::open(settings, bound)?,
            commands: Commands::new(settings, bound),
            settings: settings.clone(),
            watching: Mutex::default(),
        })
    }

    /// Returns the name of a document.
    fn name(&self, slot: Slot) -> String {
        let election = &self.settings.election;
        match slot {
            Slot::Lease => election.clone(),
            Slot::Trial => format!("{election}{TRIAL}"),
        }
    }

    /// Sends a write; returns its answer, and whether it was done.
    async fn write(&self, command: Document) -> Result<(bool, Document), RegisterError> {
        let answer = self.access.ask(|_| command).await?;
        Ok((wire::is_written(&answer).ok_or_else(|| self.unlike())?, answer))
    }

    fn servers(&self) -> String {
        wire::servers(&self.settings)
    }

    fn unlike(&self) -> RegisterError {
        not_mongodb(&self.servers())
    }
}

#[async_trait]
impl Register for Collection {
    fn kind(&self) -> &'static str {
        "mongodb"
    }

    fn place(&self, slot: Slot) -> String {
        let MongoSettings { database, collection, .. } = &self.settings;
        format!("the document {} of {database}.{collection}", self.name(slot))
    }

    fn answered(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "TLS" } else { "no TLS" };
        format!("{} answered, with {scheme}", self.servers())
    }

    fn credential(&self) -> Option<String> {
        let has_certificate = self.settings.tls.as_ref().is_some_and(|it| it.own.is_some());
        Some(match (&self.settings.user, has_certificate) {
            (Some(_), _) => {
                format!("the user of MONGODB_USERNAME in {}", self.settings.auth_source)
            }
            (None, true) => "the certificate of --store-cert".to_owned(),
            (None, false) => "requests without a user".to_owned(),
        })
    }

    fn trials(&self) -> Trials {
        Trials::InARace
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        let name = self.name(slot);
        let answer =
            self.access.ask(|is_replicated| self.commands.find(&name, is_replicated)).await?;
        let found = wire::found(&answer).map_err(|()| self.unlike())?;
        Ok(found.map(|Stored { write, content }| Tagged {
            tag: write,
            body: Body::decode(content.as_bytes()),
            date: wire::date(&answer),
        }))
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        let name = self.name(slot);
        let command = match condition {
            If::Absent => self.commands.insert(&name, body),
            If::Tagged(tag) => self.commands.replace(&name, tag, body),
        };
        match self.write(command).await {
            Ok((false, _)) | Err(RegisterError::Condition(_)) => Ok(None),
            Ok((true, answer)) => {
                Ok(Some(Written { tag: body.write.to_string(), date: wire::date(&answer) }))
            }
            Err(error) => Err(error),
        }
    }

    async fn others(&self) -> Option<Vec<String>> {
        let answer = self.access.ask(|_| self.commands.names(MOST_LISTED * 2)).await.ok()?;
        Some(register::elections(wire::listed(&answer).iter().map(String::as_str)))
    }

    async fn told(&self) -> Told {
        self.watch().await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }
}
