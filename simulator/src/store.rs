//! The simulated store: a blob by Microsoft's lease tables, a Lease of Kubernetes, or a record on
//! one host, with a clock of its own.
//!
//! It loses nothing and returns no errors; the network and the faults do.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure::election::{Answer, Op};
use tenure::lease::{
    Bid, Cause, Failure, Grant, LeaseId, Nonce, Record, Rules, Snapshot, StoreError, Successor,
    Version,
};
use tenure::store::BreakOutcome;
use time::OffsetDateTime;

use super::Instant;
use super::clock::EPOCH;

pub mod blob_lease;

mod object;

use blob_lease::{Lease, Refusal};
use object::Standing;

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An Azure blob: a lease by the tables, and a record.
    Blob,
    /// A Lease of Kubernetes: an object with compare-and-set, whose observers measure the time.
    Object,
    /// A record on one host, as in `file:` and `memory:`.
    Host,
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
    /// The lease in the object.
    standing: Option<Standing>,
    /// Counts the leases in the object, for its version.
    specs: u64,
    record: Record,
    /// Counts the changes of the record (blob), of record and lease (host), or of anything (object).
    changes: u64,
    /// Counts the changes that standbys are notified of.
    news: u64,
    /// The previous states of the object, the last first.
    earlier: VecDeque<Snapshot>,
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
    /// The candidate's lease was found in this version of the object: the write is left.
    Third { seen: u64 },
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

/// Returns the lease id of a third party.
pub fn third_party(number: u64) -> LeaseId {
    LeaseId::from_random(u128::from(number) | 1 << 100)
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
            standing: None,
            specs: 0,
            record: Record::default(),
            changes: 0,
            news: 0,
            earlier: VecDeque::new(),
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
            (Kind::Blob, Op::Acquire(_)) => 4,
            (Kind::Object, Op::Acquire(_)) => 3,
            (Kind::Object, _) => 2,
            _ => 1,
        }
    }

    /// Returns what a read of the object showed this many changes ago, if known.
    pub fn earlier(&self, back: u8) -> Option<Snapshot> {
        self.earlier.get(usize::from(back) - 1).cloned()
    }

    /// Returns the properties that the election depends on.
    pub fn rules(&self) -> Rules {
        match self.kind {
            Kind::Blob => {
                Rules { longest_lease: Some(Duration::from_secs(60)), missing_is_free: false }
            }
            Kind::Object => Rules { longest_lease: None, missing_is_free: false },
            Kind::Host => Rules { longest_lease: None, missing_is_free: true },
        }
    }

    /// Returns the time of the store's clock.
    pub fn time(&self, now: Instant) -> Duration {
        let drift = now.cast_signed() * self.ppm / 1_000_000;
        Duration::from_nanos((EPOCH + now).saturating_add_signed(drift))
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
        if self.kind == Kind::Object {
            return self.stands(lease);
        }
        matches!(&self.lease, Lease::Leased { id, .. } if *id == lease)
    }

    /// Returns until when this lease is held, by an accurate clock.
    pub fn leased_until(&self, lease: LeaseId) -> Option<Instant> {
        if let Some(standing) = self.standing.as_ref().filter(|_| self.stands(lease)) {
            return Some(super::span(standing.until) - EPOCH);
        }
        match &self.lease {
            Lease::Leased { id, until: Some(until), .. } if *id == lease => {
                Some(super::span(*until) - EPOCH)
            }
            _ => None,
        }
    }

    /// Returns whether the lease is held.
    pub fn is_leased(&mut self, now: Instant) -> bool {
        if self.kind == Kind::Object {
            let time = self.time(now);
            return self.standing.as_ref().is_some_and(|it| time < it.until);
        }
        let time = self.time(now);
        matches!(self.lease.state(time), "leased" | "breaking")
    }

    fn touched(&mut self) {
        if self.kind == Kind::Object {
            self.earlier.truncate(usize::from(Self::KEPT) - 1);
            self.earlier.push_front(self.see());
        }
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
        if self.kind == Kind::Object {
            return self.step_object(op, stage, time, wrote);
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
        }
    }

    fn snapshot(&mut self, time: Duration) -> Snapshot {
        let free = !matches!(self.lease.state(time), "leased" | "breaking");
        Snapshot { free, record: self.record.clone(), version: self.version.clone(), claim: None }
    }

    /// Acquires the lease of a blob. A missing blob is created only after a bid has found it missing.
    fn take(&mut self, bid: &Bid, stage: Stage, time: Duration) -> Step {
        if self.kind == Kind::Host {
            return Step::Done(self.take_as_seen(bid, time));
        }
        if !self.exists {
            return match stage {
                Stage::First => Step::More(Stage::Missing),
                _ => Step::Done(Err(refused(Refusal(404, "BlobNotFound")))),
            };
        }
        match self.lease.acquire(bid.lease, Some(bid.lease_duration), time) {
            Ok(()) => Step::More(Stage::Second { seen: 0 }),
            Err(refusal) => Step::Done(Err(refused(refusal))),
        }
    }

    /// Acquires the lease on one host, which must be unchanged since it was read as free.
    fn take_as_seen(&mut self, bid: &Bid, time: Duration) -> Result<Answer, StoreError> {
        let again = self.is_of(bid);
        let free = !matches!(self.lease.state(time), "leased" | "breaking");
        if !again && (!free || self.version != bid.seen) {
            return Err(refused(Refusal(409, "not as it was seen")));
        }
        self.extend(bid, time);
        if !again {
            self.touched();
        }
        Ok(Answer::Grant(Grant { record: self.record.clone(), date: None }))
    }

    fn is_of(&self, bid: &Bid) -> bool {
        matches!(&self.lease, Lease::Leased { id, .. } | Lease::Expired { id, .. } if *id == bid.lease)
    }

    fn extend(&mut self, bid: &Bid, time: Duration) {
        let length = Some(bid.lease_duration);
        let until = Some(time + bid.lease_duration);
        self.lease = Lease::Leased { id: bid.lease, length, until };
    }

    fn grant(&self, time: Duration) -> Result<Answer, StoreError> {
        if !self.exists {
            let gone = Failure::new(Cause::Unavailable, "the blob was gone after the grant");
            return Err(StoreError::Unknown(gone));
        }
        let seconds = i64::try_from(time.as_secs()).unwrap_or_default();
        let date = OffsetDateTime::from_unix_timestamp(seconds).ok();
        Ok(Answer::Grant(Grant { record: self.record.clone(), date }))
    }

    fn read(&self, bid: &Bid) -> Step {
        match self.record.term {
            _ if !self.exists => Step::Done(Err(refused(Refusal(404, "BlobNotFound")))),
            Some(term) if self.record.nonce == Some(bid.nonce) => {
                Step::Done(Ok(Answer::Term(term)))
            }
            _ => Step::More(Stage::Second { seen: self.changes }),
        }
    }

    /// Writes the record under the lease. Returns the term, and whether it was written now.
    fn write(
        &mut self,
        bid: &Bid,
        floor: u64,
        seen: u64,
        time: Duration,
    ) -> Result<(u64, bool), StoreError> {
        if !self.exists {
            return Err(refused(Refusal(404, "BlobNotFound")));
        }
        self.lease.check_write(Some(&bid.lease), time).map_err(refused)?;
        if self.record.nonce == Some(bid.nonce) {
            return Ok((self.record.term.unwrap_or_default(), false));
        }
        if seen != self.changes {
            return Err(refused(Refusal(412, "ConditionNotMet")));
        }
        let term = (self.record.term.unwrap_or(0) + 1).max(floor);
        let (holder, nonce) = (Some(Arc::clone(&bid.candidate)), Some(bid.nonce));
        self.record = Record { term: Some(term), holder, nonce, successor: None };
        self.lease.written(time);
        self.touched();
        Ok((term, true))
    }

    fn read_ours(&self, bid: &Bid) -> Step {
        if self.exists && self.record.nonce == Some(bid.nonce) {
            return Step::More(Stage::Second { seen: self.changes });
        }
        Step::Done(Err(refused(Refusal(412, "the record is another's"))))
    }

    /// Writes a successor's name under the lease.
    fn name(
        &mut self,
        bid: &Bid,
        successor: &Successor,
        seen: u64,
        time: Duration,
    ) -> Result<(), StoreError> {
        self.lease.check_write(Some(&bid.lease), time).map_err(refused)?;
        if seen != self.changes {
            return Err(refused(Refusal(412, "ConditionNotMet")));
        }
        let successor = Some(successor.as_stored());
        if self.record.successor != successor {
            self.record.successor = successor;
            self.lease.written(time);
            self.touched();
        }
        Ok(())
    }

    fn renew(&mut self, bid: &Bid, time: Duration) -> Result<(), StoreError> {
        if !self.exists {
            return Err(refused(Refusal(404, "BlobNotFound")));
        }
        self.lease.renew(&bid.lease, time).map_err(refused)
    }

    fn release(&mut self, bid: &Bid, time: Duration) -> Result<(), StoreError> {
        if !self.exists {
            return Err(refused(Refusal(404, "BlobNotFound")));
        }
        self.lease.release(&bid.lease, time).map_err(refused)?;
        if self.kind == Kind::Host {
            self.touched();
        }
        Ok(())
    }
}

/// Changes by operators and third parties.
impl Store {
    /// Breaks the lease, after a period, or by letting it run out (`None`). Does nothing if it is not
    /// held.
    pub fn break_lease(&mut self, period: Option<Duration>, now: Instant) -> BreakOutcome {
        let time = self.time(now);
        if self.kind == Kind::Object {
            return self.break_object(period.is_some(), time);
        }
        if !self.is_leased(now) {
            return BreakOutcome::NotHeld;
        }
        let record = self.record.clone();
        let Ok(free_in) = self.lease.break_lease(period, time) else {
            return BreakOutcome::NotHeld;
        };
        if self.kind == Kind::Host && free_in.is_zero() {
            self.touched();
        }
        BreakOutcome::Held { record, free_in }
    }

    /// Changes the lease id. In an object, a candidate of another kind acquires the lease, and does not
    /// renew it.
    pub fn change_lease(&mut self, number: u64, now: Instant) {
        if let Some(length) = self.standing.as_ref().map(|it| it.length) {
            self.take_object(number, length, false, self.time(now));
        }
        self.is_leased(now);
        if let Lease::Leased { id, .. } = &mut self.lease {
            *id = third_party(number);
        }
    }

    /// Acquires the lease for a third party, if it is free.
    pub fn take_by_other(&mut self, number: u64, length: Duration, now: Instant) {
        let time = self.time(now);
        if self.kind == Kind::Object {
            self.take_object(number, length, true, time);
            return;
        }
        let _ = self.lease.acquire(third_party(number), Some(length), time);
    }

    /// Deletes the record, and also the lease if `whole`.
    pub fn lose(&mut self, whole: bool) {
        self.record = Record::default();
        if whole {
            self.lease = Lease::Available;
            self.standing = None;
            self.exists = self.kind == Kind::Host;
        }
        self.changed_hands();
    }

    /// Writes to a field outside of lease and record: a label, an annotation.
    pub fn touch(&mut self) {
        if self.kind == Kind::Object && self.exists {
            self.touched();
        }
    }

    /// Restores a record with a lower term; frees the lease if `freed`.
    pub fn set_back(&mut self, by: u64, freed: bool) {
        let Some(term) = self.record.term else { return };
        self.record.term = Some(term.saturating_sub(by).max(1));
        self.record.nonce = Some(Nonce(u128::from(by) << 64));
        if freed {
            self.lease = Lease::Available;
            self.standing = None;
        }
        self.changed_hands();
    }

    /// Writes a first record.
    pub fn seed(&mut self, term: u64) {
        self.exists = true;
        self.record = Record { term: Some(term), nonce: Some(Nonce(1)), ..Record::default() };
        self.touched();
    }

    /// Returns the store's date in unix milliseconds, rounded down to seconds.
    pub fn unix_millis(&self, now: Instant) -> u64 {
        self.time(now).as_secs() * 1_000
    }
}
