//! The value of the key of an election: which acquisition has locked it, and the record of the last
//! leadership, which is never deleted. Sends no request.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::wire::Entry;
use crate::lease::{Bid, Cause, Failure, Nonce, Record, Snapshot, Successor, Version};
use crate::store::json::{self, FORMAT, LARGEST_TERM, StoredHolder, StoredSuccessor, encode};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredValue {
    tenure: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<StoredClaim>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<StoredHolder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    successor: Option<StoredSuccessor>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredClaim {
    nonce: String,
    /// The candidate, for people.
    identity: String,
    /// Whether an operator is breaking the lease: it runs out, and is not renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    breaking: bool,
}

/// The acquisition that locked the key. It counts only as long as a session has the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) nonce: Nonce,
    /// The candidate, as it names itself.
    pub(super) identity: String,
    pub(super) is_breaking: bool,
}

impl Claim {
    pub(super) fn of(bid: &Bid) -> Self {
        let identity = bid.candidate.identity.clone();
        Self { nonce: bid.nonce, identity, is_breaking: false }
    }
}

/// The value of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) claim: Option<Claim>,
    /// The record; without a term if there is none.
    pub(super) record: Record,
}

impl Content {
    fn read(value: &[u8]) -> Result<Self, String> {
        let StoredValue { claim, term, nonce, holder, successor, .. } =
            json::decode(value, FORMAT)?;
        let claim = claim.map(|it| {
            let StoredClaim { nonce, identity, breaking } = it;
            json::nonce(&nonce).map(|nonce| Claim { nonce, identity, is_breaking: breaking })
        });
        if term.is_none() && nonce.is_some() {
            return Err("has a nonce without a term".to_owned());
        }
        let record = json::record(term, nonce.as_deref(), holder, successor)?;
        Ok(Self { claim: claim.transpose()?, record })
    }

    /// Returns the bytes to write.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let Record { term, holder, nonce, successor } = &self.record;
        encode(&StoredValue {
            tenure: FORMAT,
            claim: self.claim.as_ref().map(|it| StoredClaim {
                nonce: it.nonce.to_string(),
                identity: it.identity.clone(),
                breaking: it.is_breaking,
            }),
            term: *term,
            nonce: nonce.as_ref().map(ToString::to_string),
            holder: holder.as_deref().map(StoredHolder::of),
            successor: successor.as_ref().map(StoredSuccessor::of),
        })
    }

    /// Returns the same record under another claim.
    pub(super) fn with_claim(&self, claim: Option<Claim>) -> Self {
        Self { claim, record: self.record.clone() }
    }

    /// Returns the record of a bid under the same claim.
    pub(super) fn with_term(&self, bid: &Bid, term: u64) -> Self {
        let holder = Some(bid.candidate.clone());
        let record = Record { term: Some(term), holder, nonce: Some(bid.nonce), successor: None };
        Self { claim: self.claim.clone(), record }
    }

    /// Returns the same record with another successor.
    pub(super) fn with_successor(&self, successor: &Successor) -> Self {
        let successor = Some(successor.as_stored());
        Self { claim: self.claim.clone(), record: Record { successor, ..self.record.clone() } }
    }

    /// Returns the same claim with a term and nothing else.
    pub(super) fn with_first_term(&self, term: u64) -> Self {
        let record = Record { term: Some(term), ..Record::default() };
        Self { claim: self.claim.clone(), record }
    }

    /// Returns the same record under a claim that is being broken.
    pub(super) fn breaking(&self) -> Self {
        let claim = self.claim.clone().map(|it| Claim { is_breaking: true, ..it });
        self.with_claim(claim)
    }
}

/// The key as it was at one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The session that has the lock; `None` if the lease is free.
    pub(super) session: Option<Uuid>,
    pub(super) content: Content,
    /// The index of the last write of the key, to which Consul counts taking and losing the lock; 0 if there is
    /// no key.
    pub(super) index: u64,
}

impl Seen {
    /// Reads the key, or returns why it is none of Tenure's.
    pub(super) fn of(entry: Option<&Entry>, key: &str) -> Result<Self, Failure> {
        let Some(entry) = entry else {
            return Ok(Self { session: None, content: Content::default(), index: 0 });
        };
        let foreign = |what: String| {
            let message = format!(
                "the key {key} in Consul {what}; nothing was overwritten: set another prefix or \
                 election, or delete the key if nothing else uses it"
            );
            Failure::new(Cause::Record, message)
        };
        let value = entry.value.as_ref().map_or(&[][..], |it| &it.0);
        let content = Content::read(value).map_err(foreign)?;
        let session = entry.session.as_deref().filter(|it| !it.is_empty()).map(Uuid::parse_str);
        let session = session.transpose();
        let session = session.map_err(|_| foreign("is locked by no session".to_owned()))?;
        Ok(Self { session, content, index: entry.modify_index })
    }

    /// Returns what a read shows.
    pub(super) fn snapshot(self) -> Snapshot {
        Snapshot {
            free: self.session.is_none(),
            version: self.version(),
            record: self.content.record,
            claim: None,
            ends_in: None,
        }
    }

    /// Returns the version that a bid compares.
    pub(super) fn version(&self) -> Version {
        Version(self.index.to_string().into())
    }

    /// Returns the claim, if the lease is held by an acquisition of Tenure's.
    pub(super) fn claim(&self) -> Option<&Claim> {
        self.content.claim.as_ref().filter(|_| self.session.is_some())
    }

    /// Returns the session that has the lock for this bid, whether or not the lease is being broken.
    pub(super) fn session_of(&self, bid: &Bid) -> Option<Uuid> {
        self.session.filter(|_| self.claim().is_some_and(|it| it.nonce == bid.nonce))
    }

    /// Returns the term of the record, if this bid wrote it.
    pub(super) fn term_of(&self, bid: &Bid) -> Option<u64> {
        let record = &self.content.record;
        record.term.filter(|_| record.nonce == Some(bid.nonce))
    }

    /// Returns the term to write: above the last one, at least `floor`, and at least the index of the last
    /// write of the key, which rises even where the record was lost. `None` if there is none above.
    pub(super) fn next_term(&self, floor: u64) -> Option<u64> {
        let next = self.content.record.term.unwrap_or(0).checked_add(1)?;
        Some(next.max(floor).max(self.index)).filter(|it| *it <= LARGEST_TERM)
    }
}

/// How long the lock of a session lasts after its last renewal: Consul ends a session up to twice its TTL
/// later, and then keeps the lock from others.
pub(super) fn longest(ttl: Duration, lock_delay: Duration) -> Duration {
    ttl.saturating_mul(2).saturating_add(lock_delay)
}

#[cfg(test)]
mod tests;
