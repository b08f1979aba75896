//! The `etcd:` store: the lease in a key of etcd, through its JSON gateway.
//!
//! What the value holds, and each change of it, is in `register`; here are the requests. A write is one
//! transaction, and one entry in the log of the cluster. It compares the revision of the last write of the key,
//! and also the value: in a cluster that was restored from a snapshot, revisions come a second time. The term
//! stands once more in a key of its own, which the same transaction writes, so that transactions of others can
//! compare it.
//!
//! Reads and writes go through a quorum. A member that has none gives no answer that counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::base64;
use futures::future::{join, join_all};
use tokio::time::timeout;

use self::gateway::{Call, Gateway};
use self::watching::Watching;
use self::wire::{Header, KeyValue};
use super::register::{
    self, Body, If, Register, RegisterError, Registered, Slot, Tagged, Told, Trials, Written,
};
use super::{Finding, LeaseAdmin, MOST_LISTED};
use crate::config::EtcdSettings;

mod access;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod gateway;
#[cfg(test)]
mod tests;
mod watching;
mod wire;

/// The last part of the key of an election.
const RECORD: &str = "record";

/// How many keys are read to find other elections: two or three for each, and some that are none.
const MOST_KEYS: usize = MOST_LISTED * 4;

/// The keys of an election, in one cluster.
struct Cluster {
    settings: EtcdSettings,
    gateway: Gateway,
    known: Mutex<Known>,
    watching: tokio::sync::Mutex<Watching>,
}

/// Which clusters the members belong to.
struct Known {
    /// The id of each member's, as it has last answered.
    clusters: Vec<Option<u64>>,
    /// Whether each member has been asked.
    is_compared: bool,
}

/// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which blocks.
///
/// # Errors
/// Returns an error if the files of TLS are not usable.
pub fn open(settings: &EtcdSettings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(Arc::new(Registered::new(Cluster::open(settings, settings.request_timeout)?)))
}

impl Cluster {
    fn open(settings: &EtcdSettings, bound: Duration) -> anyhow::Result<Self> {
        let members = settings.members.len();
        Ok(Self {
            gateway: Gateway::open(settings, bound)?,
            known: Mutex::new(Known { clusters: vec![None; members], is_compared: members == 1 }),
            settings: settings.clone(),
            watching: tokio::sync::Mutex::default(),
        })
    }

    /// Returns what the keys begin with.
    fn folder(&self) -> String {
        format!("/{}/{}/", self.settings.prefix, self.settings.election)
    }

    fn key(&self, slot: Slot) -> String {
        let name = match slot {
            Slot::Lease => RECORD,
            Slot::Trial => "doctor",
        };
        self.folder() + name
    }

    /// Reads a value, as a quorum has it.
    async fn read(
        &self,
        call: &mut Call<'_>,
        slot: Slot,
    ) -> Result<(Header, Option<KeyValue>), RegisterError> {
        let key = self.key(slot);
        let (header, range) = call.range(&wire::only(&key)).await?;
        let mut found = range.kvs;
        match found.pop() {
            Some(it) if !found.is_empty() || it.key.0 != key.as_bytes() => {
                let member = call.member();
                let message = format!("{member} answered with another key than it was asked for");
                Err(RegisterError::Invalid(message))
            }
            found => Ok((header, found)),
        }
    }

    /// Asks all members but one which cluster they belong to, unless that was done, and waits for their
    /// answers for a part of request-timeout. Those that give none by then are compared when they do.
    async fn compare_members(&self, but: usize) {
        if std::mem::replace(&mut self.known().is_compared, true) {
            return;
        }
        let ask = async |at: usize| {
            let mut call = self.gateway.call_to(at);
            let asked = self.read(&mut call, Slot::Lease);
            let answer = timeout(self.gateway.bound / 4, asked).await;
            self.known().clusters[at] =
                answer.ok().and_then(Result::ok).map(|it| it.0.cluster_id.0);
        };
        let others = (0..self.settings.members.len()).filter(|it| *it != but);
        join_all(others.map(ask)).await;
    }

    /// Records which cluster a member belongs to.
    fn answered_by(&self, at: usize, header: Header) -> Result<(), RegisterError> {
        self.known().clusters[at] = Some(header.cluster_id.0);
        self.is_one()
    }

    /// Checks that all members that have answered belong to one cluster.
    fn is_one(&self) -> Result<(), RegisterError> {
        let mut known = self.known();
        let mut ids: Vec<_> = known.clusters.iter().flatten().collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() <= 1 {
            return Ok(());
        }
        let message = several_clusters(ids.len());
        // All may have been restored, and belong to another one now.
        known.is_compared = false;
        Err(RegisterError::Invalid(message))
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> String {
        let all: Vec<_> = self.settings.members.iter().map(url::Url::authority).collect();
        all.join(",")
    }

    fn scheme(&self) -> &'static str {
        if self.settings.tls.is_some() { "over TLS" } else { "over plain HTTP" }
    }
}

#[async_trait]
impl Register for Cluster {
    fn kind(&self) -> &'static str {
        "etcd"
    }

    fn place(&self, slot: Slot) -> String {
        format!("the key {} in etcd", self.key(slot))
    }

    fn answered(&self) -> String {
        format!("{} answered {}", self.members(), self.scheme())
    }

    fn credential(&self) -> Option<String> {
        let user = self.settings.user.is_some();
        Some(if user { "the user of ETCD_USERNAME" } else { "requests without a user" }.to_owned())
    }

    fn trials(&self) -> Trials {
        Trials::None
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        let mut call = self.gateway.call();
        let at = call.at();
        let (read, ()) = join(self.read(&mut call, slot), self.compare_members(at)).await;
        let (header, found) = read?;
        self.answered_by(at, header)?;
        Ok(found.map(|it| Tagged {
            tag: tag(it.mod_revision.0, &base64::encode(&it.value.0)),
            body: Body::decode(&it.value.0),
            date: call.date,
        }))
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        self.is_one()?;
        let (key, value) = (self.key(slot), base64::encode(body.encode()));
        let (compare, before) = match condition {
            If::Absent => (vec![wire::is_absent(&key)], None),
            If::Tagged(tag) => {
                let (revision, value) = tag.split_once(' ').unwrap_or((tag, ""));
                (vec![wire::is_at(&key, revision), wire::is_value(&key, value)], Some(value))
            }
        };
        let mut changes = vec![wire::put(&key, &value)];
        let term = body.record.term.filter(|it| before.and_then(term_of) != Some(*it));
        if let Some(term) = term.filter(|_| slot == Slot::Lease) {
            let key = self.folder() + "term";
            changes.push(wire::put(&key, &base64::encode(term.to_string())));
        }
        let mut call = self.gateway.call();
        let (header, txn) = call.txn(&compare, &changes).await?;
        self.answered_by(call.at(), header)?;
        let written = || Written { tag: tag(header.revision.0, &value), date: call.date };
        Ok(txn.succeeded.then(written))
    }

    async fn others(&self) -> Option<Vec<String>> {
        let folder = format!("/{}/", self.settings.prefix);
        let body = wire::names(&folder, MOST_KEYS);
        // A user may be allowed to read its own election only.
        let (_, found) = self.gateway.call().range(&body).await.ok()?;
        let keys = found.kvs.iter().filter_map(|it| str::from_utf8(&it.key.0).ok());
        Some(register::elections(keys.filter_map(|it| election(it, &folder))))
    }

    async fn told(&self) -> Told {
        self.watch().await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }
}

/// Names a state of a key: the revision of its last write, and its value in base64.
fn tag(revision: i64, value: &str) -> String {
    format!("{revision} {value}")
}

/// Returns the term in a value.
fn term_of(value: &str) -> Option<u64> {
    Body::decode(&base64::decode(value).ok()?).ok()?.record.term
}

/// Returns the election that a key belongs to, if it has the value of one.
fn election<'a>(key: &'a str, folder: &str) -> Option<&'a str> {
    let (name, last) = key.strip_prefix(folder)?.split_once('/')?;
    (last == RECORD).then_some(name)
}

fn several_clusters(clusters: usize) -> String {
    format!(
        "the members in --store belong to {clusters} different clusters, each of which could have a leader of \
         its own, so nobody leads: name members of one cluster"
    )
}
