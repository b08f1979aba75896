//! The simulated store: a blob by Microsoft's lease tables, a Lease of Kubernetes, or a record on
//! one host, with a clock of its own.
//!
//! What it does not do: it loses nothing and errs never; the network and the faults do.

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

/// Which kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A blob of Azure: a lease by the tables, the record beside it.
    Blob,
    /// A Lease of Kubernetes: an object that is compared and set, whose observers count the time.
    Object,
    /// A record on one host, as `file:` and `memory:` keep it.
    Host,
}

/// A lease and its record.
#[derive(Clone, Debug)]
pub struct Store {
    kind: Kind,
    /// How much faster than true time the store's clock runs, in millionths.
    ppm: i64,
    /// Whether there is a blob at all.
    exists: bool,
    lease: Lease<LeaseId>,
    /// Whose lease stands in the object.
    standing: Option<Standing>,
    /// Counts what stood there.
    specs: u64,
    record: Record,
    /// Counts the changes of the record (blob), of record and lease (host), of anything (object).
    changes: u64,
    /// Counts the changes that a standby is told of.
    news: u64,
    /// What looks at the object saw, the last first.
    earlier: VecDeque<Snapshot>,
    version: Version,
}

/// How far an operation of several requests has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Nothing is done yet.
    #[default]
    First,
    /// The bid was answered that there is no blob: its candidate asks for one to be made.
    Missing,
    /// The blob was made, by this bid or another: its candidate asks for the lease again.
    Made,
    /// The lease was granted, or the record read in this version: one request is left.
    Second { seen: u64 },
    /// Ours was found in this version of the object: it is left to write.
    Third { seen: u64 },
}

/// What came of one request.
#[derive(Debug)]
pub enum Step {
    /// The operation has ended.
    Done(Result<Answer, StoreError>),
    /// It goes on with another request.
    More(Stage),
}

fn refused(Refusal(_, code): Refusal) -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, code))
}

/// The lease id of a third party.
pub fn stranger(number: u64) -> LeaseId {
    LeaseId::from_random(u128::from(number) | 1 << 100)
}

impl Store {
    /// How many changes ago a look may be told of.
    pub const KEPT: u8 = 4;

    /// A store whose clock drifts so.
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

    /// Which kind it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many requests an operation on the lease takes at most.
    pub fn most_requests(&self, op: &Op) -> u64 {
        match (self.kind, op) {
            (Kind::Blob, Op::Acquire(_)) => 4,
            (Kind::Object, Op::Acquire(_)) => 3,
            (Kind::Object, _) => 2,
            _ => 1,
        }
    }

    /// What looks at an object saw so many changes ago, if it is known.
    pub fn earlier(&self, back: u8) -> Option<Snapshot> {
        self.earlier.get(usize::from(back) - 1).cloned()
    }

    /// What the election must know of it.
    pub fn rules(&self) -> Rules {
        match self.kind {
            Kind::Blob => {
                Rules { longest_lease: Some(Duration::from_secs(60)), missing_is_free: false }
            }
            Kind::Object => Rules { longest_lease: None, missing_is_free: false },
            Kind::Host => Rules { longest_lease: None, missing_is_free: true },
        }
    }

    /// The store's own time.
    pub fn time(&self, now: Instant) -> Duration {
        let drift = now.cast_signed() * self.ppm / 1_000_000;
        Duration::from_nanos((EPOCH + now).saturating_add_signed(drift))
    }

    /// The term of the record.
    pub fn term(&self) -> Option<u64> {
        self.record.term
    }

    /// What the record bears as its writer's.
    pub fn nonce(&self) -> Option<Nonce> {
        self.record.nonce
    }

    /// Whom the record names to follow.
    pub fn successor(&self) -> Option<&Successor> {
        self.record.successor.as_ref()
    }

    /// Counts what standbys are told of: a renewal is no news, and a blob tells nobody.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Whether this lease is the one that is held, and not breaking.
    pub fn is_leased_to(&self, lease: LeaseId) -> bool {
        if self.kind == Kind::Object {
            return self.stands(lease);
        }
        matches!(&self.lease, Lease::Leased { id, .. } if *id == lease)
    }

    /// Until when this lease is held, by a store's clock that runs true.
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

    /// Whether somebody has the lease.
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

    /// The object changed in a way that a standby is told of.
    fn changed_hands(&mut self) {
        self.touched();
        self.news += 1;
    }

    /// Does one request of an operation. `wrote` is set to the term that it wrote.
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
            (Op::Read, _) => Step::Done(Ok(Answer::Snapshot(self.look(time)))),
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

    fn look(&mut self, time: Duration) -> Snapshot {
        let free = !matches!(self.lease.state(time), "leased" | "breaking");
        Snapshot { free, record: self.record.clone(), version: self.version.clone(), claim: None }
    }

    /// A request for the lease makes no blob: what is missing is made for a bid that was told so.
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

    /// On one host the lease is taken only as it was seen free.
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

    /// Writes the record under the lease; says whether it did, or had before.
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

/// What others do to it behind the candidates' backs.
impl Store {
    /// An operator breaks the lease, after a period or (`None`) letting it run out. Nothing to
    /// break is nothing done.
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

    /// Somebody gives the lease an id of their own; an object's, a candidate of another kind takes
    /// it, and does not renew it.
    pub fn change_lease(&mut self, number: u64, now: Instant) {
        if let Some(length) = self.standing.as_ref().map(|it| it.length) {
            self.take_object(number, length, false, self.time(now));
        }
        self.is_leased(now);
        if let Lease::Leased { id, .. } = &mut self.lease {
            *id = stranger(number);
        }
    }

    /// A third party takes the lease if it is free.
    pub fn squat(&mut self, number: u64, length: Duration, now: Instant) {
        let time = self.time(now);
        if self.kind == Kind::Object {
            self.take_object(number, length, true, time);
            return;
        }
        let _ = self.lease.acquire(stranger(number), Some(length), time);
    }

    /// The record is lost; the lease too, if it was deleted as a whole.
    pub fn lose(&mut self, whole: bool) {
        self.record = Record::default();
        if whole {
            self.lease = Lease::Available;
            self.standing = None;
            self.exists = self.kind == Kind::Host;
        }
        self.changed_hands();
    }

    /// Somebody writes beside lease and record: a label, an annotation of their own.
    pub fn touch(&mut self) {
        if self.kind == Kind::Object && self.exists {
            self.touched();
        }
    }

    /// The record shows a lower term of a holder long gone; the lease is freed, if `freed`.
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

    /// A first record of a term that was written long ago.
    pub fn seed(&mut self, term: u64) {
        self.exists = true;
        self.record = Record { term: Some(term), nonce: Some(Nonce(1)), ..Record::default() };
        self.touched();
    }

    /// The store's date in milliseconds, as whole seconds tell it.
    pub fn unix_millis(&self, now: Instant) -> u64 {
        self.time(now).as_secs() * 1_000
    }
}
