//! The `zookeeper:` store: the lease in the data of one node, which is replaced on the condition of its
//! version and never deleted.
//!
//! What the node holds, and each change of it, is in `register`; here are the requests. A session is only the
//! transport: no node ends with one, and none is taken up again.
//!
//! **What it rests on.** Writes go through the leader of the ensemble, which compares the version in their
//! order. Versions begin with 0 in a node that is made anew, and nothing compares which node it is; so the
//! answer to a write tells, and a write on another node than the one that was read is a loss. A read asks
//! the server to catch up with the leader first (`sync`).
//!
//! **The term** stands also in a node of its own, which is written in the same transaction and with each
//! new term only, so that its version is one that other transactions may compare.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use self::access::{Access, Call};
use self::errors::{BAD_VERSION, NO_NODE, NODE_EXISTS, reported};
use self::watching::Watching;
use self::wire::{Mode, Op, Reader, Request, State};
use super::register::{
    self, Body, If, Register, RegisterError, Registered, Slot, Tagged, Told, Trials, Written,
};
use super::{Finding, LeaseAdmin};
use crate::config::ZookeeperSettings;

mod access;
mod connection;
mod doctor;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod watching;
mod wire;

/// The nodes of an election.
struct Ensemble {
    settings: ZookeeperSettings,
    access: Access,
    watching: Mutex<Watching>,
    nodes: Nodes,
}

/// The paths of the nodes.
struct Nodes {
    /// What all elections are below.
    path: String,
    /// What the others are below.
    folder: String,
    record: String,
    term: String,
    trial: String,
}

/// Names one state of a node: the transaction that created it, its version, and the term in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    created: i64,
    version: i32,
    term: Option<u64>,
}

/// Creates the store from its settings. Reaches no network yet, but reads the files of TLS, which blocks.
///
/// # Errors
/// Returns an error if the files of TLS are not usable.
pub fn open(settings: &ZookeeperSettings) -> anyhow::Result<Arc<dyn LeaseAdmin>> {
    Ok(Arc::new(Registered::new(Ensemble::open(settings, settings.request_timeout)?)))
}

impl Nodes {
    fn new(settings: &ZookeeperSettings) -> Self {
        let path = format!("/{}", settings.path);
        let folder = format!("{path}/{}", settings.election);
        let below = |name| format!("{folder}/{name}");
        let (record, term, trial) = (below("record"), below("term"), below("trial"));
        Self { path, folder, record, term, trial }
    }

    /// Returns the nodes that the others are below, the highest first.
    fn folders(&self) -> impl Iterator<Item = &str> {
        let ends = self.folder.match_indices('/').skip(1).map(|(at, _)| &self.folder[..at]);
        ends.chain([self.folder.as_str()])
    }
}

impl Tag {
    fn of(state: &State, term: Option<u64>) -> Self {
        Self { created: state.created, version: state.version, term }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let (created, version) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let term = parts.next()?;
        let term = if term.is_empty() { None } else { Some(term.parse().ok()?) };
        parts.next().is_none().then_some(Self { created, version, term })
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let term = self.term.map(|it| it.to_string()).unwrap_or_default();
        write!(f, "{}.{}.{term}", self.created, self.version)
    }
}

impl Ensemble {
    fn open(settings: &ZookeeperSettings, bound: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            access: Access::open(settings, bound)?,
            watching: Mutex::default(),
            nodes: Nodes::new(settings),
            settings: settings.clone(),
        })
    }

    fn path(&self, slot: Slot) -> &str {
        match slot {
            Slot::Lease => &self.nodes.record,
            Slot::Trial => &self.nodes.trial,
        }
    }

    fn create<'a>(&self, path: &'a str, data: &'a [u8]) -> Op<'a> {
        Op::Create { path, data, mode: Mode::Persistent, acl: self.access.acl() }
    }

    /// Creates the nodes that a write needs, as far as they are missing.
    async fn make_nodes(&self, call: &mut Call<'_>) -> Result<(), RegisterError> {
        for path in self.nodes.folders().chain([self.nodes.term.as_str()]) {
            match call.transact(&[self.create(path, b"")]).await? {
                Ok(_) | Err((_, NODE_EXISTS)) => (),
                Err((_, code)) => return Err(reported(code, path)),
            }
        }
        Ok(())
    }

    fn servers(&self) -> String {
        self.settings.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

#[async_trait]
impl Register for Ensemble {
    fn kind(&self) -> &'static str {
        "zookeeper"
    }

    fn place(&self, slot: Slot) -> String {
        format!("the node {}", self.path(slot))
    }

    fn answered(&self) -> String {
        let scheme = if self.settings.tls.is_some() { "TLS" } else { "no TLS" };
        format!("{} answered, with {scheme}", self.servers())
    }

    fn credential(&self) -> Option<String> {
        Some(match &self.settings.auth {
            Some(_) => "the user of ZOOKEEPER_AUTH".to_owned(),
            None => "requests without a user: ZOOKEEPER_AUTH is not set".to_owned(),
        })
    }

    fn trials(&self) -> Trials {
        Trials::None
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        let path = self.path(slot);
        let mut call = self.access.call().await?;
        let [_, data] = call.ask([Request::Sync(path), Request::Data(path)]).await?;
        let found = data.found(Reader::data)?;
        Ok(found.map(|(data, state)| {
            let body = Body::decode(&data);
            let term = body.as_ref().ok().and_then(|it| it.record.term);
            Tagged { tag: Tag::of(&state, term).to_string(), body, date: None }
        }))
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        let (path, data, term) = (self.path(slot), body.encode(), body.record.term);
        let known = match condition {
            If::Absent => None,
            If::Tagged(tag) => {
                let unfit = || RegisterError::Invalid(format!("{tag} names no state of a node"));
                Some(Tag::parse(tag).ok_or_else(unfit)?)
            }
        };
        let set = |version| Op::Set { path, data: &data, version: Some(version) };
        let mut ops = match known {
            Some(tag) => vec![set(tag.version)],
            // Set once more, since only the answer to that has the state.
            None => vec![self.create(path, &data), set(0)],
        };
        let text = term.map(|it| it.to_string()).unwrap_or_default();
        if slot == Slot::Lease && known.and_then(|it| it.term) != term {
            let (path, data) = (self.nodes.term.as_str(), text.as_bytes());
            ops.push(Op::Set { path, data, version: None });
        }
        let mut call = self.access.call().await?;
        let mut done = call.transact(&ops).await?;
        if matches!(done, Err((part, NO_NODE)) if part > 0 || known.is_none()) {
            self.make_nodes(&mut call).await?;
            done = call.transact(&ops).await?;
        }
        let state = match done {
            Ok(state) => state,
            Err((_, NO_NODE | NODE_EXISTS | BAD_VERSION)) => return Ok(None),
            Err((_, code)) => return Err(reported(code, path)),
        };
        if known.is_some_and(|it| it.created != state.created) {
            return Err(RegisterError::Lost(format!(
                "the node {path} was deleted and made anew since it was read, and this write replaced what it \
                 had: whoever held the lease loses it, and the next candidate bids after a lease-duration"
            )));
        }
        Ok(Some(Written { tag: Tag::of(&state, term).to_string(), date: date(&state) }))
    }

    async fn others(&self) -> Option<Vec<String>> {
        let mut call = self.access.call().await.ok()?;
        let [children] = call.ask([Request::Children(&self.nodes.path)]).await.ok()?;
        let names = children.found(Reader::children).ok()??;
        Some(register::elections(names.iter().map(String::as_str)))
    }

    async fn told(&self) -> Told {
        self.watch().await
    }

    async fn examine(&self) -> Vec<Finding> {
        doctor::examine(self).await
    }
}

/// Returns when a node was changed last, by the clock of the ensemble's leader.
fn date(state: &State) -> Option<OffsetDateTime> {
    let nanos = i128::from(state.changed_ms).checked_mul(1_000_000)?;
    OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_read_as_it_was_written_and_nothing_else_is() {
        let known = Tag { created: 32, version: 3, term: None };
        for tag in [known, Tag { term: Some(u64::MAX), ..known }, Tag { version: -1, ..known }] {
            assert_eq!(Tag::parse(&tag.to_string()), Some(tag));
        }
        for unfit in ["", "32", "32.3", "32.3.x", "32.x.1", "x.3.1", "32.3.1.1"] {
            assert_eq!(Tag::parse(unfit), None, "{unfit}");
        }
    }
}
