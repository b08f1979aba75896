//! The `consul:` store: the lease in a key of Consul, which is changed by check-and-set and never deleted.
//!
//! What the value holds, and each change of it, is in `register`; here are the requests. A write is one
//! transaction, and one entry in the log of the servers, on the condition of the index of the last write of the
//! key. The term stands once more in a key of its own, which the same transaction writes. No session, lock or
//! health check takes part.
//!
//! Reads that decide are consistent: the leader of the servers confirms with a quorum that it still leads.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use self::api::Api;
use self::watching::Watching;
use self::wire::Entry;
use super::register::{
    self, Body, If, Register, RegisterError, Registered, Slot, Tagged, Told, Trials, Written,
};
use super::{Finding, LeaseAdmin};
use crate::config::ConsulSettings;

mod api;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
mod token;
mod watching;
mod wire;

/// The keys of an election, in one cluster.
struct Keys {
    settings: ConsulSettings,
    api: Api,
    watching: Mutex<Watching>,
}

/// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which blocks.
/// Must be called within a tokio runtime, in which a task reads the file of the token until the store is
/// dropped.
///
/// # Errors
/// Returns an error if the files of TLS are not usable.
pub fn open(settings: &ConsulSettings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(Arc::new(Registered::new(Keys::open(settings, settings.request_timeout)?)))
}

impl Keys {
    fn open(settings: &ConsulSettings, bound: Duration) -> anyhow::Result<Self> {
        let (api, settings) = (Api::open(settings, bound)?, settings.clone());
        Ok(Self { settings, api, watching: Mutex::default() })
    }

    /// Returns what the keys begin with.
    fn folder(&self) -> String {
        format!("{}/{}/", self.settings.prefix, self.settings.election)
    }

    fn key(&self, slot: Slot) -> String {
        let name = match slot {
            Slot::Lease => "lease",
            Slot::Trial => "doctor",
        };
        self.folder() + name
    }

    fn scheme(&self) -> &'static str {
        if self.settings.tls.is_some() { "over TLS" } else { "over plain HTTP" }
    }
}

#[async_trait]
impl Register for Keys {
    fn kind(&self) -> &'static str {
        "consul"
    }

    fn place(&self, slot: Slot) -> String {
        format!("the key {} in Consul", self.key(slot))
    }

    fn answered(&self) -> String {
        let all: Vec<_> = self.settings.servers.iter().map(url::Url::authority).collect();
        format!("{} answered {}", all.join(","), self.scheme())
    }

    fn credential(&self) -> Option<String> {
        let token = self.settings.token.is_some();
        Some(
            if token { "the token of CONSUL_HTTP_TOKEN" } else { "requests without a token" }
                .to_owned(),
        )
    }

    fn trials(&self) -> Trials {
        Trials::None
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        let mut call = self.api.call();
        let found = call.get(&self.key(slot)).await?;
        Ok(found.map(|it| Tagged {
            tag: it.modify_index.to_string(),
            body: Body::decode(&it.into_value()),
            date: call.date,
        }))
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        // An index of 0 is that of a key that does not exist.
        let index = match condition {
            If::Absent => Some(0),
            If::Tagged(tag) => tag.parse().ok().filter(|it| *it > 0),
        };
        let index = index
            .ok_or_else(|| RegisterError::Invalid(format!("{} has no index", self.place(slot))))?;
        let mut operations = vec![wire::cas(&self.key(slot), &body.encode(), index)];
        // Consul writes nothing where the value is the same.
        if let Some(term) = body.record.term.filter(|_| slot == Slot::Lease) {
            operations.push(wire::set(&(self.folder() + "term"), term.to_string().as_bytes()));
        }
        let mut call = self.api.call();
        let written = call.txn(&operations).await?;
        Ok(written.map(|index| Written { tag: index.to_string(), date: call.date }))
    }

    async fn others(&self) -> Option<Vec<String>> {
        let folder = format!("{}/", self.settings.prefix);
        // A token may be allowed to read its own election only.
        let found = self.api.call().list(&folder).await.ok()?;
        Some(register::elections(found.iter().filter_map(|it| election(it, &folder))))
    }

    async fn told(&self) -> Told {
        self.watch().await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }
}

/// Returns the election that a part of the keys may belong to.
fn election<'a>(part: &'a str, folder: &str) -> Option<&'a str> {
    part.strip_prefix(folder)?.strip_suffix('/')
}
