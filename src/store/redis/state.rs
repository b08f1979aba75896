//! The two keys of an election, as they are in Redis and as they are read. Sends no request.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;

use super::reply::Reply;
use crate::lease::{Bid, Candidate, Cause, Failure, Nonce, Record, Snapshot, Successor, Version};

/// The format that this version reads and writes.
const FORMAT: &str = "1";

/// A key is there until its last millisecond is over.
const TICK: Duration = Duration::from_millis(1);

/// The length of a nonce, which a claim begins with.
const NONCE: usize = 32;

/// The claim as it was read: which acquisition holds the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) nonce: Nonce,
    /// The candidate, as it names itself.
    pub(super) identity: String,
    pub(super) is_breaking: bool,
    /// How long it lasts, by the server's clock; [`Duration::MAX`] if it has no end.
    pub(super) left: Duration,
}

impl Held {
    /// Returns whether the claim is of this bid, whether or not it is being broken.
    pub(super) fn is_of(&self, bid: &Bid) -> bool {
        self.nonce == bid.nonce
    }
}

/// What the keys held when a request was done, and whether it has written them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) is_written: bool,
    /// The claim, if the lease is held.
    pub(super) held: Option<Held>,
    /// The record; without a term if there is none.
    pub(super) record: Record,
    /// The number of changes that a bid is for: all but renewals, and breaks that let the lease run out; 0
    /// without a record.
    pub(super) version: String,
    /// Whether either key is there.
    pub(super) exists: bool,
    /// The server's date.
    pub(super) date: Option<OffsetDateTime>,
}

impl Seen {
    /// Reads what the script returns, or returns why it is none of Tenure's.
    pub(super) fn of(reply: &Reply, place: &str) -> Result<Self, Failure> {
        let [
            Reply::Number(written),
            seconds,
            micros,
            Reply::Number(left),
            claim,
            Reply::Number(exists),
            Reply::Array(fields),
        ] = reply.parts()
        else {
            return Err(foreign(place, "were not returned as asked for"));
        };
        let held = match claim {
            Reply::Nothing => None,
            claim => Some(claimed(claim.text().unwrap_or_default(), *left, place)?),
        };
        let mut seen = Self {
            is_written: *written == 1,
            exists: *exists == 1 || held.is_some(),
            held,
            record: Record::default(),
            version: "0".to_owned(),
            date: date(seconds.text(), micros.text()),
        };
        if *exists == 1 {
            seen.read(fields, place)?;
        }
        Ok(seen)
    }

    /// Reads the fields of the record.
    fn read(&mut self, fields: &[Reply], place: &str) -> Result<(), Failure> {
        if fields.iter().any(|it| it.text().is_none() && *it != Reply::Nothing) {
            return Err(foreign(place, "have a field that is not text"));
        }
        let Ok(
            [format, version, term, nonce, holder, instance, address, peer, successor, hold_off],
        ) = <&[Reply; 10]>::try_from(fields).map(|it| it.each_ref().map(Reply::text))
        else {
            return Err(foreign(place, "were not returned as asked for"));
        };
        if format != Some(FORMAT) {
            let found = format.unwrap_or("none");
            let what =
                format!("have format {found:.20}, but this version supports format {FORMAT} alone");
            return Err(foreign(place, &what));
        }
        let is_number = |it: &&str| number::<u64>(it).is_some();
        let version = version.filter(is_number);
        version.ok_or_else(|| foreign(place, "have no version"))?.clone_into(&mut self.version);
        let term = term.map(|it| {
            let positive = number::<i64>(it).and_then(|it| u64::try_from(it).ok());
            positive
                .filter(|it| *it > 0)
                .ok_or_else(|| foreign(place, "have a term that is no positive number"))
        });
        let successor = match (successor, hold_off.and_then(number)) {
            (Some(identity), Some(hold_off)) => Successor::recorded(identity, hold_off),
            _ => None,
        };
        let holder = holder.map(|identity| {
            Arc::new(Candidate {
                identity: identity.to_owned(),
                instance: instance.unwrap_or_default().to_owned(),
                address: address.map(str::to_owned),
                peer: peer.map(str::to_owned),
            })
        });
        let nonce = nonce.map(|it| parsed(it, place)).transpose()?;
        self.record = Record { term: term.transpose()?, holder, nonce, successor };
        Ok(())
    }

    /// Returns what a read shows.
    pub(super) fn snapshot(self) -> Snapshot {
        Snapshot {
            free: self.held.is_none(),
            version: Version(self.version.into()),
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

/// Reads the value of the lease.
fn claimed(value: &str, left: i64, place: &str) -> Result<Held, Failure> {
    let parts = value.split_at_checked(NONCE).and_then(|(nonce, rest)| {
        let held = rest.strip_prefix(" held ").map(|it| (nonce, it, false));
        held.or_else(|| rest.strip_prefix(" broken ").map(|it| (nonce, it, true)))
    });
    let (nonce, identity, is_breaking) =
        parts.ok_or_else(|| foreign(place, "have a lease that names no acquisition"))?;
    Ok(Held {
        nonce: parsed(nonce, place)?,
        identity: identity.to_owned(),
        is_breaking,
        left: u64::try_from(left).map_or(Duration::MAX, |it| Duration::from_millis(it) + TICK),
    })
}

fn date(seconds: Option<&str>, micros: Option<&str>) -> Option<OffsetDateTime> {
    let whole = OffsetDateTime::from_unix_timestamp(number(seconds?)?).ok()?;
    whole.checked_add(time::Duration::microseconds(number::<u32>(micros?)?.into()))
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn parsed(nonce: &str, place: &str) -> Result<Nonce, Failure> {
    nonce.parse().map_err(|_| foreign(place, "have a nonce that is not hexadecimal"))
}

/// Returns the failure for keys that Tenure did not write.
fn foreign(place: &str, what: &str) -> Failure {
    let what: String = what.chars().filter(|it| crate::lease::text::is_printable(*it)).collect();
    let message = format!(
        "the keys {place} in Redis {what}; nothing was overwritten: set another --election or database, or \
         delete the keys if nothing else uses them"
    );
    Failure::new(Cause::Record, message)
}
