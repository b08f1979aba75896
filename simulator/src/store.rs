//! The simulated store: a blob by Microsoft's lease tables, a record on one host, or a value that is compared
//! and set, with a clock of its own.
//!
//! It loses nothing and returns no errors; the network and the faults do.

use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{
    Cause, Failure, LeaseId, Nonce, Record, Rules, StoreError, Successor, Version,
};

use super::clock::{self, EPOCH};
use super::{Instant, Span, span};

pub mod blob_lease;

mod blob;
pub mod register;
mod third_party;

use blob_lease::{Lease, Refusal};

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An Azure blob: a lease by the tables, and a record.
    Blob,
    /// A record on one host, as in `file:` and `memory:`.
    Host,
    /// One value that is compared and set, of whose lease observers measure the time.
    Register(Oddities),
}

/// How the servers of a register may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oddities {
    /// What standbys are told of changes; `None` if nothing.
    pub reports: Option<Reports>,
    /// Whether a write may be answered that another is being served, whether or not it was done: an object
    /// store's 409, or a primary that steps down.
    pub conflicts: bool,
}

/// What a register reports unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// The value.
    Content,
    /// That it may have changed.
    Hint,
}

impl Kind {
    /// Returns whether it is a register.
    pub fn is_register(self) -> bool {
        matches!(self, Self::Register(_))
    }

    /// Returns what a register does differently.
    pub fn oddities(self) -> Option<Oddities> {
        match self {
            Self::Register(oddities) => Some(oddities),
            Self::Blob | Self::Host => None,
        }
    }

    /// Returns whether it notifies standbys of changes.
    pub fn notifies(self) -> bool {
        match self {
            Self::Blob => false,
            Self::Host => true,
            Self::Register(it) => it.reports.is_some(),
        }
    }
}

/// A lease and its record.
#[derive(Clone, Debug)]
pub struct Store {
    kind: Kind,
    /// The rate error of the store's clock, in parts per million.
    ppm: i64,
    /// Whether the blob or object exists.
    exists: bool,
    lease: Lease<LeaseId>,
    /// The value that is compared and set.
    value: register::Value,
    /// How long after the last renewal that it keeps a failover may lose others.
    loses: Duration,
    record: Record,
    /// Counts the changes of the record (blob), or of record and lease (host).
    changes: u64,
    /// Counts the changes that standbys are notified of.
    news: u64,
    version: Version,
}

/// The progress of an operation that takes several requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is done yet.
    #[default]
    First,
    /// The bid found no blob: the next request creates it.
    Missing,
    /// The blob was created, by this bid or another: the next request acquires the lease.
    Made,
    /// The lease was granted, or the record was read in this version: one request is left.
    Second { seen: u64 },
}

/// The result of one request.
#[derive(Debug)]
pub enum Step {
    /// The operation has ended.
    Done(Result<Answer, StoreError>),
    /// The operation continues with another request.
    More(Stage),
}

fn refused(Refusal(_, code): Refusal) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, code))
}

impl Store {
    /// The number of changes by which a read may be stale.
    pub const KEPT: u8 = 4;

    /// Creates an empty store with this rate error.
    pub fn new(kind: Kind, ppm: i64) -> Self {
        Self {
            kind,
            ppm,
            exists: kind == Kind::Host,
            lease: Lease::Available,
            value: register::Value::default(),
            loses: Duration::ZERO,
            record: Record::default(),
            changes: 0,
            news: 0,
            version: Version("0".into()),
        }
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Lets a failover lose renewals that were sent up to this long after the last one that it keeps.
    #[must_use]
    pub fn losing(self, loses: Duration) -> Self {
        Self { loses, ..self }
    }

    /// Returns the maximum number of requests of an operation on the lease.
    pub fn most_requests(&self, op: &Op) -> u64 {
        match (self.kind, op) {
            (_, Op::Acquire(_)) => self.requests_of_bid(),
            (Kind::Register(_), _) => 2,
            _ => 1,
        }
    }

    /// Returns the maximum number of requests of a bid.
    pub fn requests_of_bid(&self) -> u64 {
        match self.kind {
            Kind::Blob => 4,
            Kind::Host => 1,
            Kind::Register(_) => 3,
        }
    }

    /// Returns the properties that the election depends on.
    pub fn rules(&self) -> Rules {
        let longest_lease = (self.kind == Kind::Blob).then_some(Duration::from_secs(60));
        Rules { longest_lease, missing_is_free: self.kind == Kind::Host }
    }

    /// Returns the time of the store's clock.
    pub fn time(&self, now: Instant) -> Duration {
        let drift = clock::drift(now.cast_signed(), self.ppm);
        Duration::from_nanos((EPOCH + now).saturating_add_signed(drift))
    }

    /// Returns the store's date in unix milliseconds, rounded down to seconds.
    pub fn unix_millis(&self, now: Instant) -> u64 {
        self.time(now).as_secs() * 1_000
    }

    /// Returns the term of the record.
    pub fn term(&self) -> Option<u64> {
        self.record.term
    }

    /// Returns the nonce of the acquisition that wrote the record.
    pub fn nonce(&self) -> Option<Nonce> {
        self.record.nonce
    }

    /// Returns the successor that the record names.
    pub fn successor(&self) -> Option<&Successor> {
        self.record.successor.as_ref()
    }

    /// Returns the number of changes that standbys are notified of. A renewal is not one, and a blob
    /// notifies nobody.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Returns whether this lease is held, and not breaking.
    pub fn is_leased_to(&self, lease: LeaseId) -> bool {
        if self.kind.is_register() {
            return self.stands(lease);
        }
        matches!(&self.lease, Lease::Leased { id, .. } if *id == lease)
    }

    /// Returns until when this lease is held, by an accurate clock.
    pub fn leased_until(&self, lease: LeaseId) -> Option<Instant> {
        if self.stands(lease) {
            return Some(super::span(self.claimed_until()) - EPOCH);
        }
        match &self.lease {
            Lease::Leased { id, until: Some(until), .. } if *id == lease => {
                Some(super::span(*until) - EPOCH)
            }
            _ => None,
        }
    }

    /// Returns the true time until the lease is over, by the store's clock or by that of an observer that
    /// has seen its last renewal.
    pub fn rest(&self, now: Instant) -> Span {
        let until = match &self.lease {
            _ if self.kind.is_register() => self.claimed_until(),
            Lease::Leased { until: Some(until), .. } | Lease::Breaking { until, .. } => *until,
            _ => return 0,
        };
        let rest = span(until.saturating_sub(self.time(now))).cast_signed();
        (rest - clock::drift(rest, self.ppm) + clock::drift(clock::drift(rest, self.ppm), self.ppm))
            .cast_unsigned()
    }

    /// Returns the acquisition that a notice names as the holder.
    pub fn held_by(&mut self, now: Instant) -> Option<Nonce> {
        self.record.nonce.filter(|_| self.is_leased(now))
    }

    /// Returns whether the lease is held.
    pub fn is_leased(&mut self, now: Instant) -> bool {
        let time = self.time(now);
        match self.kind {
            Kind::Register(_) => time < self.claimed_until(),
            Kind::Blob | Kind::Host => matches!(self.lease.state(time), "leased" | "breaking"),
        }
    }

    fn touched(&mut self) {
        self.changes += 1;
        self.version = Version(self.changes.to_string().into());
        self.news += u64::from(self.kind == Kind::Host);
    }

    /// Performs one request of an operation. `wrote` is set to the term that it wrote.
    pub fn step(
        &mut self,
        op: &Op,
        stage: Stage,
        now: Instant,
        wrote: &mut Option<(u64, Nonce)>,
    ) -> Step {
        let time = self.time(now);
        assert!(!self.kind.is_register(), "a register is asked for its value");
        match (op, stage) {
            (Op::Read, _) => Step::Done(Ok(Answer::Snapshot(self.snapshot(time)))),
            (Op::Acquire(bid), Stage::First | Stage::Made) => self.take(bid, stage, time),
            (Op::Acquire(_), Stage::Missing) => {
                self.exists = true;
                Step::More(Stage::Made)
            }
            (Op::Acquire(_), _) => Step::Done(self.grant(time)),
            (Op::WriteTerm { bid, .. }, Stage::First) => self.read(bid),
            (Op::WriteTerm { bid, floor }, Stage::Second { seen }) => {
                let written = self.write(bid, *floor, seen, time);
                if let Ok((term, true)) = written {
                    *wrote = Some((term, bid.nonce));
                }
                Step::Done(written.map(|(term, _)| Answer::Term(term)))
            }
            (Op::Renew(bid), _) => Step::Done(self.renew(bid, time).map(|()| Answer::Done)),
            (Op::SetSuccessor { bid, .. }, Stage::First) => self.read_ours(bid),
            (Op::SetSuccessor { bid, successor }, Stage::Second { seen }) => {
                let named = self.name(bid, successor, seen, time);
                Step::Done(named.map(|()| Answer::Done))
            }
            (Op::Release(bid), _) => Step::Done(self.release(bid, time).map(|()| Answer::Done)),
            (_, Stage::Missing | Stage::Made) => unreachable!("only a bid makes a blob"),
        }
    }
}
