//! The values of the two keys of an election, and what they mean together: the claim, which belongs to
//! the lease and ends with it, and the record, which is never deleted. Sends no request.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::wire::{KeyValue, Range};
use crate::config::EtcdSettings;
use crate::lease::{Bid, Cause, Failure, LeaseId, Nonce, Record, Snapshot, Successor, Version};
use crate::store::json::{self, FORMAT, LARGEST_TERM, StoredHolder, StoredSuccessor, encode};

/// The keys of an election.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// What both begin with.
    folder: String,
    /// The key of the claim.
    pub(super) lease: String,
    /// The key of the record.
    pub(super) record: String,
    /// The end of the range of both.
    pub(super) end: String,
}

impl Keys {
    /// Returns the keys that the settings name.
    pub(super) fn new(settings: &EtcdSettings) -> Self {
        let folder = format!("/{}/{}/", settings.prefix, settings.election);
        let (lease, record) = (format!("{folder}lease"), format!("{folder}record"));
        Self { end: format!("{record}\0"), folder, lease, record }
    }

    /// Returns the key for the trials of `tenure doctor`, which is in the same folder, so that the
    /// same permissions apply, and outside of the range.
    pub(super) fn trial(&self) -> String {
        format!("{}doctor", self.folder)
    }

    /// Returns what the keys begin with.
    pub(super) fn folder(&self) -> &str {
        &self.folder
    }
}

/// Returns the lease in etcd that belongs to a bid: 63 bits of its id, never 0.
pub(super) fn lease_number(lease: LeaseId) -> i64 {
    let bits = lease.to_bits();
    let folded = (bits ^ (bits >> 64)) & u128::from(i64::MAX.unsigned_abs());
    i64::try_from(folded).unwrap_or(i64::MAX).max(1)
}

/// The value of the key that belongs to the lease: which acquisition holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredClaim {
    tenure: u64,
    nonce: String,
    /// The candidate, for people.
    identity: String,
    /// Whether an operator is breaking the lease: it runs out, and is not renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    breaking: bool,
}

/// The value of the key that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRecord {
    tenure: u64,
    term: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<StoredHolder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    successor: Option<StoredSuccessor>,
}

/// The claim as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) nonce: Nonce,
    /// The candidate, as it names itself.
    pub(super) identity: String,
    pub(super) is_breaking: bool,
    /// The lease that the claim ends with; 0 if it has no end.
    pub(super) lease: i64,
    /// The revision at which the claim came into being.
    pub(super) created: i64,
    /// The revision at which it was last written.
    pub(super) written: i64,
}

impl Held {
    /// Returns whether the claim is of this bid, whether or not it is being broken.
    pub(super) fn is_of(&self, bid: &Bid) -> bool {
        self.nonce == bid.nonce
    }

    /// Returns the value that says that the claim is being broken.
    pub(super) fn broken(&self) -> Vec<u8> {
        encode(&StoredClaim {
            tenure: FORMAT,
            nonce: self.nonce.to_string(),
            identity: self.identity.clone(),
            breaking: true,
        })
    }
}

/// What the keys held at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The claim, if the lease is held.
    pub(super) held: Option<Held>,
    /// The record; without a term if there is none.
    pub(super) record: Record,
    /// The revision at which the record was last written; 0 if there is none.
    pub(super) recorded: i64,
    /// Whether either key exists.
    pub(super) exists: bool,
    /// The revision of the whole key space.
    pub(super) revision: i64,
}

impl Seen {
    /// Reads both keys, or returns why one of them is none of Tenure's.
    pub(super) fn of(range: &Range, keys: &Keys) -> Result<Self, Failure> {
        let find = |name: &str| range.kvs.iter().find(|it| it.key.0 == name.as_bytes());
        let (claim, record) = (find(&keys.lease), find(&keys.record));
        Ok(Self {
            held: claim.map(|it| held(it, &keys.lease)).transpose()?,
            record: record
                .map(|it| self::record(it, &keys.record))
                .transpose()?
                .unwrap_or_default(),
            recorded: record.map_or(0, |it| it.mod_revision.0),
            exists: claim.is_some() || record.is_some(),
            revision: range.header.revision.0,
        })
    }

    /// Returns what a read shows.
    pub(super) fn snapshot(self) -> Snapshot {
        let is_endless = self.held.as_ref().is_some_and(|it| it.lease == 0);
        Snapshot {
            free: self.held.is_none(),
            version: self.version(),
            record: self.record,
            claim: None,
            ends_in: is_endless.then_some(Duration::MAX),
        }
    }

    /// Returns the version that a bid compares: the last write of the record.
    pub(super) fn version(&self) -> Version {
        Version(self.recorded.to_string().into())
    }

    /// Returns whether a bid was made for this version.
    pub(super) fn is_in_version(&self, version: &Version) -> bool {
        self.version() == *version
    }

    /// Returns the term of the record, if this bid wrote it.
    pub(super) fn term_of(&self, bid: &Bid) -> Option<u64> {
        self.record.term.filter(|_| self.record.nonce == Some(bid.nonce))
    }

    /// Returns the term to write under a claim: above the last one, at least `floor`, and at least the
    /// revision at which the claim came into being, which rises even where the record was lost. `None`
    /// if there is none above.
    pub(super) fn next_term(&self, held: &Held, floor: u64) -> Option<u64> {
        let next = self.record.term.unwrap_or(0).checked_add(1)?;
        let term = next.max(floor).max(u64::try_from(held.created).unwrap_or(0));
        (term <= LARGEST_TERM).then_some(term)
    }
}

/// Returns the value of a new claim.
pub(super) fn claim(bid: &Bid) -> Vec<u8> {
    encode(&StoredClaim {
        tenure: FORMAT,
        nonce: bid.nonce.to_string(),
        identity: bid.candidate.identity.clone(),
        breaking: false,
    })
}

/// Returns the value of the record of a bid.
pub(super) fn of_bid(bid: &Bid, term: u64, successor: Option<&Successor>) -> Vec<u8> {
    encode(&StoredRecord {
        tenure: FORMAT,
        term,
        nonce: Some(bid.nonce.to_string()),
        holder: Some(StoredHolder::of(&bid.candidate)),
        successor: successor.map(StoredSuccessor::of),
    })
}

/// Returns the value of a record that has a term and nothing else.
pub(super) fn first(term: u64) -> Vec<u8> {
    encode(&StoredRecord { tenure: FORMAT, term, nonce: None, holder: None, successor: None })
}

fn held(found: &KeyValue, key: &str) -> Result<Held, Failure> {
    let foreign = |what: String| foreign(key, &what);
    let stored: StoredClaim = json::decode(&found.value.0, FORMAT).map_err(foreign)?;
    Ok(Held {
        nonce: json::nonce(&stored.nonce).map_err(foreign)?,
        identity: stored.identity,
        is_breaking: stored.breaking,
        lease: found.lease.0,
        created: found.create_revision.0,
        written: found.mod_revision.0,
    })
}

fn record(found: &KeyValue, key: &str) -> Result<Record, Failure> {
    let foreign = |what: String| foreign(key, &what);
    let stored: StoredRecord = json::decode(&found.value.0, FORMAT).map_err(foreign)?;
    let StoredRecord { term, nonce, holder, successor, .. } = stored;
    json::record(Some(term), nonce.as_deref(), holder, successor).map_err(foreign)
}

fn foreign(key: &str, what: &str) -> Failure {
    let message = format!(
        "the key {key} in etcd {what}; nothing was overwritten: set another prefix or election, or \
         delete the key if nothing else uses it"
    );
    Failure::new(Cause::Record, message)
}

#[cfg(test)]
mod tests;
