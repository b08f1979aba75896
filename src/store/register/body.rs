//! The content of the object that keeps a lease: who claims it, and the record of the last leadership.
//! Sends no request and reads no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::lease::{
    Bid, Cause, Change, Claim, Failure, Nonce, Record, Snapshot, Successor, Version,
};
use crate::store::json::{self, FORMAT, LARGEST_TERM, StoredHolder, StoredSuccessor};

/// The version of an object that does not exist.
const MISSING: &str = "missing";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBody {
    tenure: u64,
    /// Random in each write, since the version of an object may be a digest of its content: without it,
    /// two states apart in time could have one version.
    write: String,
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredClaim {
    nonce: String,
    /// The candidate, for people.
    identity: String,
    lease_ms: u64,
    /// Counts the renewals, so that each of them changes the claim.
    renewals: u64,
    /// Whether an operator is breaking the lease: it runs out, and is not renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    breaking: bool,
}

/// Who claims the lease. Its time is counted by each observer, from the first sight of it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    nonce: Nonce,
    /// The candidate, as it names itself.
    pub(super) identity: String,
    pub(super) lease_duration: Duration,
    renewals: u64,
    pub(super) is_breaking: bool,
}

/// The content of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    /// The claim; `None` if the lease is free.
    pub(super) held: Option<Held>,
    /// The record; without a term if there is none.
    pub(super) record: Record,
}

impl Body {
    /// Reads the content of an object, or returns why it is none of Tenure's. `place` names the object.
    pub(super) fn read(content: &[u8], place: &str) -> Result<Self, Failure> {
        Self::decode(content).map_err(|what| {
            let message = format!(
                "{place} {what}; nothing was overwritten: set another election, or another place in --store, or \
                 delete it if nothing else uses it"
            );
            Failure::new(Cause::Record, message)
        })
    }

    fn decode(content: &[u8]) -> Result<Self, String> {
        let StoredBody { claim, term, nonce, holder, successor, .. } = json::decode(content)?;
        let held = claim.map(|it| {
            Ok::<_, String>(Held {
                nonce: json::nonce(&it.nonce)?,
                identity: it.identity,
                lease_duration: Duration::from_millis(it.lease_ms),
                renewals: it.renewals,
                is_breaking: it.breaking,
            })
        });
        if term.is_none() && nonce.is_some() {
            return Err("has a nonce without a term".to_owned());
        }
        let record = json::record(term, nonce.as_deref(), holder, successor)?;
        Ok(Self { held: held.transpose()?, record })
    }

    /// Returns the content for one write.
    pub(super) fn content(&self) -> Vec<u8> {
        let Record { term, holder, nonce, successor } = &self.record;
        json::encode(&StoredBody {
            tenure: FORMAT,
            write: Uuid::new_v4().simple().to_string(),
            claim: self.held.as_ref().map(|it| StoredClaim {
                nonce: it.nonce.to_string(),
                identity: it.identity.clone(),
                lease_ms: u64::try_from(it.lease_duration.as_millis()).unwrap_or(u64::MAX),
                renewals: it.renewals,
                breaking: it.is_breaking,
            }),
            term: *term,
            nonce: nonce.as_ref().map(ToString::to_string),
            holder: holder.as_deref().map(StoredHolder::of),
            successor: successor.as_ref().map(StoredSuccessor::of),
        })
    }

    /// Returns the record; of a holder that has not written its own yet, the term of the last one alone.
    pub(super) fn shown_record(&self) -> Record {
        let is_of_holder = |it: &Held| it.is_breaking || self.record.nonce == Some(it.nonce);
        match self.held.as_ref().is_none_or(is_of_holder) {
            true => self.record.clone(),
            false => Record { term: self.record.term, ..Record::default() },
        }
    }

    /// Returns what a read of this version shows.
    pub(super) fn snapshot(&self, version: Version) -> Snapshot {
        let claim = self.held.as_ref().map(Held::claim);
        let record = self.shown_record();
        let ends_in = claim.as_ref().map(|it| it.lease_duration);
        Snapshot { free: claim.is_none(), record, version, claim, ends_in }
    }

    /// Returns whether this acquisition holds the lease.
    pub(super) fn is_of(&self, bid: &Bid) -> bool {
        self.is_to_end(bid) && self.held.as_ref().is_some_and(|it| !it.is_breaking)
    }

    /// Returns whether this acquisition may free the lease: it holds it, or held it until an operator
    /// broke it.
    pub(super) fn is_to_end(&self, bid: &Bid) -> bool {
        self.held.as_ref().is_some_and(|it| it.nonce == bid.nonce)
    }

    /// Makes a bid the holder.
    pub(super) fn take(&mut self, bid: &Bid) {
        self.held = Some(Held {
            nonce: bid.nonce,
            identity: bid.candidate.identity.clone(),
            lease_duration: whole_millis(bid.lease_duration),
            renewals: 0,
            is_breaking: false,
        });
    }

    /// Changes the claim, so that every observer waits anew.
    pub(super) fn renew(&mut self, bid: &Bid) {
        if let Some(held) = &mut self.held {
            held.lease_duration = whole_millis(bid.lease_duration);
            held.renewals = held.renewals.wrapping_add(1);
        }
    }

    /// Makes the claim one that runs out, for which every observer waits anew.
    pub(super) fn mark_broken(&mut self) {
        if let Some(held) = &mut self.held {
            held.is_breaking = true;
        }
    }

    /// Frees the lease; the record stays.
    pub(super) fn free(&mut self) {
        self.held = None;
    }

    /// Returns the term of the record, if this bid wrote it.
    pub(super) fn term_of(&self, bid: &Bid) -> Option<u64> {
        self.record.term.filter(|_| self.record.nonce == Some(bid.nonce))
    }

    /// Replaces the record of an earlier leadership with that of a bid, whose term is above the last one
    /// and at least `floor`. Returns whether there is such a term.
    pub(super) fn write_term(&mut self, bid: &Bid, floor: u64) -> bool {
        let next = self.record.term.unwrap_or(0).checked_add(1);
        let Some(term) = next.map(|it| it.max(floor)).filter(|it| *it <= LARGEST_TERM) else {
            return false;
        };
        let holder = Some(bid.candidate.clone());
        self.record = Record { term: Some(term), holder, nonce: Some(bid.nonce), successor: None };
        true
    }

    /// Writes which candidate should lead next.
    pub(super) fn set_successor(&mut self, successor: &Successor) {
        self.record.successor = Some(successor.as_stored());
    }
}

impl Held {
    /// Returns the claim that observers compare: a renewal changes it, and no other write does.
    fn claim(&self) -> Claim {
        let Self { nonce, renewals, is_breaking, lease_duration, .. } = self;
        let spec = format!("{nonce} {renewals} {is_breaking} {}", lease_duration.as_millis());
        Claim { spec: Version(spec.into()), lease_duration: *lease_duration }
    }
}

/// What a server reported last of a value, unasked.
#[derive(Default)]
pub(super) struct Noticed {
    /// A digest of what is of interest to a standby.
    news: Option<String>,
    /// The claim whose time observers count.
    claim: Option<Claim>,
}

impl Noticed {
    /// Records the content of the value, or that there is none; returns `None` if that is of no interest.
    pub(super) fn take(&mut self, content: Option<&[u8]>) -> Option<Change> {
        // What is none of Tenure's shows in the read that follows.
        let body = content.map(|it| Body::decode(it).map_err(|_| it));
        let held = body.as_ref().and_then(|it| it.as_ref().ok()?.held.as_ref());
        let claim = held.map(Held::claim);
        let held_by = held.filter(|it| !it.is_breaking).map(|it| it.nonce);
        let record = body.as_ref().map(|it| it.as_ref().map(|it| &it.record));
        let news = format!("{:?}", (held.map(|it| (it.nonce, it.is_breaking)), record));
        let known = self.news.replace(news);
        let counted = std::mem::replace(&mut self.claim, claim);
        if known != self.news {
            return Some(Change::News { held_by });
        }
        self.claim.clone().filter(|_| counted != self.claim).map(Change::Renewal)
    }
}

/// Rounds up to what the content can say; rounding down would be too short for observers.
fn whole_millis(duration: Duration) -> Duration {
    let rest = u64::from(!duration.subsec_nanos().is_multiple_of(1_000_000));
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis.saturating_add(rest))
}

/// Returns the version of an object: the server's name for it, and all of its content.
pub(super) fn version(tag: &str, content: &[u8]) -> Version {
    Version(format!("{tag}\n{}", String::from_utf8_lossy(content)).into())
}

/// Returns the server's name and the content of a version; `None` if the object did not exist.
pub(super) fn of_version(version: &Version) -> Option<(String, Body)> {
    let (tag, content) = version.0.split_once('\n')?;
    Some((tag.to_owned(), Body::decode(content.as_bytes()).ok()?))
}

/// Returns the result of reading an object that does not exist.
pub(super) fn missing() -> Snapshot {
    Body::default().snapshot(Version(MISSING.into()))
}

/// Returns whether a bid is for an object that did not exist.
pub(super) fn is_missing(seen: &Version) -> bool {
    &*seen.0 == MISSING
}

/// Returns the content of an object with a term and nothing else.
pub(super) fn first(term: u64) -> Body {
    Body { held: None, record: Record { term: Some(term), ..Record::default() } }
}
