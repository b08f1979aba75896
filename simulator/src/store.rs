//! The simulated store: a blob by Microsoft's lease tables, a Lease of Kubernetes, an object in a bucket,
//! a document of MongoDB, two keys of etcd, a row of PostgreSQL, a key of Consul, two keys of Redis, nodes of ZooKeeper, or a record on one host, with a clock of its own.
//!
//! It loses nothing and returns no errors; the network and the faults do.

use std::sync::Arc;
use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{
    Cause, Failure, LeaseId, Nonce, Record, Rules, StoreError, Successor, Version,
};

use super::clock::{self, EPOCH};
use super::{Instant, Span, span};

pub mod blob_lease;

mod blob;
mod cluster;
mod ensemble;
pub mod register;
mod row;
mod session;
mod third_party;

use blob_lease::{Lease, Refusal};
use cluster::Cluster;

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An Azure blob: a lease by the tables, and a record.
    Blob,
    /// A Lease of Kubernetes: an object with compare-and-set, whose observers measure the time.
    Object,
    /// An object in a bucket: the same, but it notifies nobody, and may answer that another request was
    /// being served.
    Bucket,
    /// A document of MongoDB: the same as an object, of which a primary that steps down may deny a write that
    /// it has done.
    Document,
    /// Two keys of etcd: a claim under a lease that the cluster counts, and a record.
    Cluster,
    /// A row of PostgreSQL: a claim until a time of the server's clock, and a record.
    Row,
    /// A key of Consul, which a session has locked that the servers count, and a record in it.
    Session,
    /// Two keys of Redis: the same, but the lease ends with a millisecond of the server's clock, which is
    /// stepped, and a restart may forget both.
    Keys,
    /// Nodes of ZooKeeper: a claim that lasts as long as its session, and a record.
    Ensemble,
    /// A record on one host, as in `file:` and `memory:`.
    Host,
}

impl Kind {
    /// Returns whether it is one value that is compared and set, of whose lease observers measure the time.
    pub fn is_register(self) -> bool {
        matches!(self, Self::Object | Self::Bucket | Self::Document)
    }

    /// Returns whether it notifies standbys of changes.
    pub fn notifies(self) -> bool {
        !matches!(self, Self::Blob | Self::Bucket)
    }

    /// Returns whether a bid need create nothing first.
    fn exists_from_the_start(self) -> bool {
        matches!(
            self,
            Self::Host | Self::Cluster | Self::Row | Self::Keys | Self::Session | Self::Ensemble
        )
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
    /// The leases of the cluster.
    cluster: Cluster,
    /// The claim in the row.
    row: Option<row::Claim>,
    /// The claim of a session of the ensemble.
    session: Option<ensemble::Claim>,
    /// The key that a session has locked.
    key: session::Key,
    /// By how much the clocks of the servers that may count the row's time differ, or one is stepped.
    apart: Duration,
    /// By how many nanoseconds the clock of the present one is ahead.
    ahead: i64,
    failovers: u64,
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
    /// The candidate's lease was found in this version: the write is left.
    Third { seen: u64 },
    /// A bid found no claim in the cluster: it gets a lease.
    Free,
    /// A bid has a lease of the cluster, by this request or an earlier one: the claim is left.
    Unclaimed { is_new: bool },
    /// A new lease of the cluster since then for the claim that this change wrote: the move is left.
    Granted { seen: u64, since: Duration },
    /// The same, after the candidate was told that this change had come before.
    Again { seen: u64, since: Duration },
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
            exists: kind.exists_from_the_start(),
            lease: Lease::Available,
            value: register::Value::default(),
            cluster: Cluster::default(),
            row: None,
            key: session::Key::default(),
            session: None,
            apart: Duration::ZERO,
            ahead: 0,
            failovers: 0,
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

    /// Returns the maximum number of requests of an operation on the lease.
    pub fn most_requests(&self, op: &Op) -> u64 {
        match (self.kind, op) {
            (_, Op::Acquire(_)) => self.requests_of_bid(),
            (Kind::Object | Kind::Bucket | Kind::Session | Kind::Ensemble | Kind::Document, _) => 2,
            // With the read, the grant and two attempts of a renewal.
            (Kind::Cluster, _) => 4,
            _ => 1,
        }
    }

    /// Returns the maximum number of requests of a bid.
    pub fn requests_of_bid(&self) -> u64 {
        match self.kind {
            Kind::Blob => 4,
            // A claim under a lease of an earlier request is counted anew.
            Kind::Cluster => 6,
            // With the session, and the end of one that came too late.
            Kind::Session => 4,
            Kind::Object | Kind::Bucket | Kind::Document => 3,
            Kind::Ensemble => 2,
            Kind::Host | Kind::Row | Kind::Keys => 1,
        }
    }

    /// Returns the properties that the election depends on.
    pub fn rules(&self) -> Rules {
        match self.kind {
            Kind::Blob => {
                Rules { longest_lease: Some(Duration::from_secs(60)), missing_is_free: false }
            }
            Kind::Object
            | Kind::Bucket
            | Kind::Document
            | Kind::Cluster
            | Kind::Row
            | Kind::Keys
            | Kind::Session
            | Kind::Ensemble => Rules { longest_lease: None, missing_is_free: false },
            Kind::Host => Rules { longest_lease: None, missing_is_free: true },
        }
    }

    /// Returns the time of the store's clock.
    pub fn time(&self, now: Instant) -> Duration {
        let drift = clock::drift(now.cast_signed(), self.ppm);
        Duration::from_nanos((EPOCH + now).saturating_add_signed(drift + self.ahead))
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
        match self.kind {
            Kind::Object | Kind::Bucket | Kind::Document => return self.stands(lease),
            Kind::Cluster => return self.claims(lease),
            Kind::Row | Kind::Keys => return self.has_row(lease),
            Kind::Session => return self.has_lock(lease),
            Kind::Ensemble => return self.has_session(lease),
            Kind::Blob | Kind::Host => (),
        }
        matches!(&self.lease, Lease::Leased { id, .. } if *id == lease)
    }

    /// Returns until when this lease is held, by an accurate clock.
    pub fn leased_until(&self, lease: LeaseId) -> Option<Instant> {
        if self.stands(lease) {
            return Some(super::span(self.claimed_until()) - EPOCH);
        }
        if let Some(claim) = self.cluster.claim.filter(|_| self.claims(lease)) {
            return Some(super::span(claim.counted.ends) - EPOCH);
        }
        if let Some(claim) = self.row.filter(|_| self.has_row(lease)) {
            return Some((super::span(claim.ends) - EPOCH).saturating_add_signed(-self.ahead));
        }
        if let Some(lock) = self.key.lock.filter(|_| self.has_lock(lease)) {
            return Some(super::span(lock.ends) - EPOCH);
        }
        if let Some(claim) = self.session.filter(|_| self.has_session(lease)) {
            return Some(super::span(claim.ends) - EPOCH);
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
        let until = match (self.cluster.claim, &self.lease) {
            _ if self.kind.is_register() => self.claimed_until(),
            _ if self.kind == Kind::Session => self.kept_until(),
            _ if self.session.is_some() => self.session.map_or(Duration::ZERO, |it| it.deleted),
            _ if self.row.is_some() => self.row.map_or(Duration::ZERO, |it| it.ends),
            (Some(claim), _) => claim.counted.deleted,
            (_, Lease::Leased { until: Some(until), .. } | Lease::Breaking { until, .. }) => *until,
            _ => return 0,
        };
        let rest = span(until.saturating_sub(self.time(now))).cast_signed();
        (rest - clock::drift(rest, self.ppm) + clock::drift(clock::drift(rest, self.ppm), self.ppm))
            .cast_unsigned()
    }

    /// Returns the acquisition that a notice names as the holder.
    pub fn held_by(&mut self, now: Instant) -> Option<Nonce> {
        match self.kind {
            Kind::Object | Kind::Bucket | Kind::Document => {
                unreachable!("its reports have what it holds")
            }
            Kind::Cluster => self.cluster.claim.and_then(|it| it.nonce),
            Kind::Row | Kind::Keys => self.live(self.time(now)).and_then(|it| it.nonce),
            Kind::Session => self.key.lock.and_then(|it| it.nonce),
            Kind::Ensemble => self.session.and_then(|it| it.nonce),
            Kind::Blob | Kind::Host => self.record.nonce.filter(|_| self.is_leased(now)),
        }
    }

    /// Returns whether the lease is held.
    pub fn is_leased(&mut self, now: Instant) -> bool {
        let time = self.time(now);
        match self.kind {
            Kind::Object | Kind::Bucket | Kind::Document => time < self.claimed_until(),
            Kind::Cluster => self.cluster.claim.is_some_and(|it| time < it.counted.deleted),
            Kind::Row | Kind::Keys => self.live(time).is_some(),
            Kind::Session => self.is_kept(time),
            Kind::Ensemble => self.session.is_some_and(|it| time < it.deleted),
            Kind::Blob | Kind::Host => matches!(self.lease.state(time), "leased" | "breaking"),
        }
    }

    fn touched(&mut self) {
        self.changes += 1;
        self.version = Version(Arc::from(self.changes.to_string()));
        self.news += u64::from(self.kind == Kind::Host);
    }

    /// Records a change that standbys are notified of.
    fn changed_hands(&mut self) {
        self.touched();
        self.news += 1;
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
        match self.kind {
            Kind::Object | Kind::Bucket | Kind::Document => {
                unreachable!("the register asks for values")
            }
            Kind::Cluster => return self.step_cluster(op, stage, time, wrote),
            Kind::Row | Kind::Keys => return self.step_row(op, time, wrote),
            Kind::Session => return self.step_key(op, stage, time, wrote),
            Kind::Ensemble => return self.step_nodes(op, stage, time, wrote),
            Kind::Blob | Kind::Host => (),
        }
        match (op, stage) {
            (Op::Read, _) => Step::Done(Ok(Answer::Snapshot(self.snapshot(time)))),
            (Op::Acquire(bid), Stage::First | Stage::Made) => self.take(bid, stage, time),
            (Op::Acquire(_), Stage::Missing) => {
                self.exists = true;
                Step::More(Stage::Made)
            }
            (Op::Acquire(_), _) => Step::Done(self.grant(time)),
            (Op::WriteTerm { bid, .. }, Stage::First) => self.read(bid),
            (Op::WriteTerm { bid, floor }, Stage::Second { seen } | Stage::Third { seen }) => {
                let written = self.write(bid, *floor, seen, time);
                if let Ok((term, true)) = written {
                    *wrote = Some((term, bid.nonce));
                }
                Step::Done(written.map(|(term, _)| Answer::Term(term)))
            }
            (Op::Renew(bid), _) => Step::Done(self.renew(bid, time).map(|()| Answer::Done)),
            (Op::SetSuccessor { bid, .. }, Stage::First) => self.read_ours(bid),
            (
                Op::SetSuccessor { bid, successor },
                Stage::Second { seen } | Stage::Third { seen },
            ) => {
                let named = self.name(bid, successor, seen, time);
                Step::Done(named.map(|()| Answer::Done))
            }
            (Op::Release(bid), _) => Step::Done(self.release(bid, time).map(|()| Answer::Done)),
            (_, Stage::Missing | Stage::Made) => unreachable!("only a bid makes a blob"),
            (
                _,
                Stage::Free | Stage::Unclaimed { .. } | Stage::Granted { .. } | Stage::Again { .. },
            ) => unreachable!("only a cluster has claims"),
        }
    }
}
