//! The row of an election, as it is in the table and as it is read. Sends no request.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use super::connection::Rows;
use crate::lease::{Bid, Candidate, Cause, Failure, Nonce, Record, Snapshot, Successor, Version};

/// The format that this version reads and writes.
const FORMAT: &str = "1";

/// The claim as it was read: which acquisition holds the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) nonce: Nonce,
    /// The candidate, as it names itself.
    pub(super) identity: String,
    pub(super) is_breaking: bool,
    /// How long it lasts, by the server's clock.
    pub(super) left: Duration,
}

impl Held {
    /// Returns whether the claim is of this bid, whether or not it is being broken.
    pub(super) fn is_of(&self, bid: &Bid) -> bool {
        self.nonce == bid.nonce
    }
}

/// What the row held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The claim, if the lease is held.
    pub(super) held: Option<Held>,
    /// The record; without a term if there is none.
    pub(super) record: Record,
    /// The number of changes that a bid is for: all but renewals, and breaks that let the lease run out; 0
    /// without a row.
    pub(super) version: i64,
    /// The server's date.
    pub(super) date: Option<OffsetDateTime>,
    /// Whether the server only follows another, so that nothing of this counts.
    pub(super) is_of_standby: bool,
}

impl Seen {
    /// The state of an election that has no table.
    pub(super) fn nothing() -> Self {
        Self { held: None, record: Record::default(), version: 0, date: None, is_of_standby: false }
    }

    /// Reads the row that [`state`](super::statements::Statements::state) returns, or returns why it is
    /// none of Tenure's.
    pub(super) fn of(rows: &Rows, place: &str) -> Result<Self, Failure> {
        let row = rows.first().map(Vec::as_slice).unwrap_or_default();
        let Ok([is_of_standby, date, format, version, left, rest @ ..]) = <&[_; 16]>::try_from(row)
        else {
            return Err(foreign(place, "was not returned as asked for"));
        };
        let mut seen = Self {
            is_of_standby: is_of_standby.as_deref() == Some("t"),
            date: date.as_deref().and_then(microseconds),
            ..Self::nothing()
        };
        let Some(version) = version else { return Ok(seen) };
        if format.as_deref() != Some(FORMAT) {
            let found = format.as_deref().unwrap_or("none");
            let what =
                format!("has format {found}, but this version supports format {FORMAT} alone");
            return Err(foreign(place, &what));
        }
        seen.version = number(version).ok_or_else(|| foreign(place, "has no version"))?;
        let [
            claim,
            claimant,
            breaking,
            term,
            nonce,
            holder,
            instance,
            address,
            peer,
            successor,
            hold_off,
        ] = rest;
        let left = left.as_deref().and_then(number::<u64>).map(Duration::from_millis);
        if let (Some(claim), Some(left)) = (claim, left) {
            seen.held = Some(Held {
                nonce: parsed(claim, place)?,
                identity: claimant.clone().unwrap_or_default(),
                is_breaking: breaking.as_deref() == Some("t"),
                left,
            });
        }
        let term = term.as_deref().map(|it| {
            number(it).ok_or_else(|| foreign(place, "has a term that is no positive number"))
        });
        let successor = match (successor, hold_off.as_deref().and_then(number)) {
            (Some(identity), Some(hold_off)) => Successor::recorded(identity, hold_off),
            _ => None,
        };
        let holder = holder.clone().map(|identity| {
            Arc::new(Candidate {
                identity,
                instance: instance.clone().unwrap_or_default(),
                address: address.clone(),
                peer: peer.clone(),
            })
        });
        let nonce = nonce.as_deref().map(|it| parsed(it, place)).transpose()?;
        seen.record = Record { term: term.transpose()?, holder, nonce, successor };
        Ok(seen)
    }

    /// Returns what a read shows.
    pub(super) fn snapshot(self) -> Snapshot {
        Snapshot {
            free: self.held.is_none(),
            version: Version(self.version.to_string().into()),
            record: self.record,
            claim: None,
            ends_in: self.held.map(|it| it.left),
        }
    }

    /// Returns the term of the record, if this bid wrote it.
    pub(super) fn term_of(&self, bid: &Bid) -> Option<u64> {
        self.record.term.filter(|_| self.record.nonce == Some(bid.nonce))
    }
}

/// Returns the version that a bid was made for; `None` if no read returned it.
pub(super) fn version_of(bid: &Bid) -> Option<i64> {
    number(&bid.seen.0)
}

fn microseconds(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::from_unix_timestamp_nanos(number::<i128>(text)?.checked_mul(1_000)?).ok()
}

/// Parses a number without a sign that says nothing.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn parsed(nonce: &str, place: &str) -> Result<Nonce, Failure> {
    nonce.parse().map_err(|_| foreign(place, "has a nonce that is not hexadecimal"))
}

/// Returns the failure for a row that Tenure did not write.
pub(super) fn foreign(place: &str, what: &str) -> Failure {
    let message = format!(
        "the row {place} in PostgreSQL {what}; nothing was overwritten: set another --postgres-table or \
         --election, or delete the row if nothing else uses it"
    );
    Failure::new(Cause::Record, message)
}
