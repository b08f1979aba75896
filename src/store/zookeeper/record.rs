//! The nodes of an election, and what they mean together. Sends no request.
//!
//! The record is a node that is never deleted; it has the claim too, so that every write of either is for
//! one version of it. The claim counts only while the node of the lease is below it, which is deleted with the
//! session that created it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::wire::State;
use crate::config::ZookeeperSettings;
use crate::lease::{Bid, Cause, Failure, Nonce, Record, Snapshot, Successor, Version};
use crate::store::json::{self, FORMAT, LARGEST_TERM, StoredHolder, StoredSuccessor, encode};

/// The paths of the nodes of an election.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    /// What all elections are below.
    pub(super) path: String,
    /// What the others are below.
    pub(super) folder: String,
    /// The record, with the claim.
    pub(super) record: String,
    /// The only node below the record: the lease.
    pub(super) lease: String,
    /// What the places of those who wait are below.
    pub(super) queue: String,
}

impl Nodes {
    /// Returns the nodes that the settings name.
    pub(super) fn new(settings: &ZookeeperSettings) -> Self {
        let path = format!("/{}", settings.path);
        let folder = format!("{path}/{}", settings.election);
        let record = format!("{folder}/record");
        Self {
            lease: format!("{record}/lease"),
            queue: format!("{folder}/queue"),
            path,
            folder,
            record,
        }
    }

    /// Returns the nodes that all of these are below, the highest first.
    pub(super) fn folders(&self) -> Vec<&str> {
        let ends = self.folder.match_indices('/').skip(1).map(|(at, _)| &self.folder[..at]);
        ends.chain([self.folder.as_str(), self.queue.as_str()]).collect()
    }
}

/// Which acquisition holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredClaim {
    nonce: String,
    /// The candidate, for people.
    identity: String,
    /// How long the lease lasts after each renewal.
    lease_ms: u64,
    /// Whether an operator is breaking the lease: it runs out, and is not renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    breaking: bool,
}

/// The data of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    tenure: u64,
    /// How often it was changed, but for renewals and breaks that let the lease run out.
    changes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<StoredHolder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    successor: Option<StoredSuccessor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<StoredClaim>,
}

/// The claim as it was read, of a lease that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) nonce: Nonce,
    /// The candidate, as it names itself.
    pub(super) identity: String,
    pub(super) is_breaking: bool,
    /// How long the lease lasts after each renewal.
    pub(super) length: Duration,
}

impl Held {
    /// Returns whether the claim is of this bid, whether or not it is being broken.
    pub(super) fn is_of(&self, bid: &Bid) -> bool {
        self.nonce == bid.nonce
    }
}

/// What the record held at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The claim, if the lease is held.
    pub(super) held: Option<Held>,
    /// The record; without a term if there is none.
    pub(super) record: Record,
    /// The data and the state of the node, if there is one.
    pub(super) node: Option<(Vec<u8>, State)>,
    stored: Stored,
}

impl Seen {
    /// The state of an election without a record.
    pub(super) fn nothing() -> Self {
        let stored = Stored {
            tenure: FORMAT,
            changes: 0,
            term: None,
            nonce: None,
            holder: None,
            successor: None,
            claim: None,
        };
        Self { held: None, record: Record::default(), node: None, stored }
    }

    /// Reads the record, or returns why it is none of Tenure's.
    pub(super) fn of(node: Option<(Vec<u8>, State)>, nodes: &Nodes) -> Result<Self, Failure> {
        let Some((data, state)) = node else { return Ok(Self::nothing()) };
        let foreign = |what: String| foreign(&nodes.record, &what);
        let stored: Stored = json::decode(&data, FORMAT).map_err(foreign)?;
        let Stored { term, nonce, holder, successor, claim, .. } = stored.clone();
        let claim = claim.map(claimed).transpose().map_err(foreign)?;
        let is_held = state.children != 0;
        if is_held && claim.is_none() {
            return Err(foreign("has a node below it that is not Tenure's".to_owned()));
        }
        Ok(Self {
            held: claim.filter(|_| is_held),
            record: json::record(term, nonce.as_deref(), holder, successor).map_err(foreign)?,
            node: Some((data, state)),
            stored,
        })
    }

    /// Returns what a read shows.
    pub(super) fn snapshot(self) -> Snapshot {
        Snapshot {
            free: self.held.is_none(),
            version: self.version(),
            record: self.record,
            claim: None,
            ends_in: None,
        }
    }

    /// Returns the version that a bid compares.
    pub(super) fn version(&self) -> Version {
        Version(match &self.node {
            None => "0".into(),
            // A record that was deleted and created again is another one.
            Some((_, state)) => format!("{:x}.{}", state.created, self.stored.changes).into(),
        })
    }

    /// Returns the term of the record, if this bid wrote it.
    pub(super) fn term_of(&self, bid: &Bid) -> Option<u64> {
        self.record.term.filter(|_| self.record.nonce == Some(bid.nonce))
    }

    /// Returns the term to write under a claim: above the last one, at least `floor`, and at least the
    /// transaction that created the node of the lease, which rises even where the record was lost. `None` if
    /// there is none above.
    pub(super) fn next_term(&self, floor: u64) -> Option<u64> {
        let next = self.record.term.unwrap_or(0).checked_add(1)?;
        let created = self.node.as_ref().map_or(0, |(_, state)| state.children_changed);
        let term = next.max(floor).max(u64::try_from(created).unwrap_or(0));
        (term <= LARGEST_TERM).then_some(term)
    }

    /// Returns the data with the claim of a bid.
    pub(super) fn claimed(&self, bid: &Bid) -> Vec<u8> {
        let is_again = self.held.as_ref().is_some_and(|it| it.is_of(bid));
        let claim = StoredClaim {
            nonce: bid.nonce.to_string(),
            identity: bid.candidate.identity.clone(),
            lease_ms: u64::try_from(bid.lease_duration.as_millis()).unwrap_or(u64::MAX),
            breaking: false,
        };
        self.changed(!is_again, |it| it.claim = Some(claim))
    }

    /// Returns the data without a claim.
    pub(super) fn freed(&self) -> Vec<u8> {
        self.changed(true, |it| it.claim = None)
    }

    /// Returns the data with a claim that is being broken.
    pub(super) fn broken(&self) -> Vec<u8> {
        self.changed(false, |it| it.claim.iter_mut().for_each(|it| it.breaking = true))
    }

    /// Returns the data with the term of a bid.
    pub(super) fn led(&self, bid: &Bid, term: u64, successor: Option<&Successor>) -> Vec<u8> {
        self.changed(true, |it| {
            it.term = Some(term);
            it.nonce = Some(bid.nonce.to_string());
            it.holder = Some(StoredHolder::of(&bid.candidate));
            it.successor = successor.map(StoredSuccessor::of);
        })
    }

    /// Returns the data with a first term.
    pub(super) fn first(&self, term: u64) -> Vec<u8> {
        self.changed(true, |it| it.term = Some(term))
    }

    fn changed(&self, counts: bool, change: impl FnOnce(&mut Stored)) -> Vec<u8> {
        let mut next = self.stored.clone();
        next.changes = next.changes.wrapping_add(counts.into());
        change(&mut next);
        encode(&next)
    }
}

fn claimed(stored: StoredClaim) -> Result<Held, String> {
    Ok(Held {
        nonce: json::nonce(&stored.nonce)?,
        identity: stored.identity,
        is_breaking: stored.breaking,
        length: Duration::from_millis(stored.lease_ms),
    })
}

fn foreign(node: &str, what: &str) -> Failure {
    let message = format!(
        "the node {node} in ZooKeeper {what}; nothing was overwritten: set another path or election, or \
         delete the node if nothing else uses it"
    );
    Failure::new(Cause::Record, message)
}

#[cfg(test)]
mod tests;
