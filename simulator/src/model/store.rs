//! The store of the model: one lease, by Microsoft's tables or in a register, and its record.
//!
//! Its time advances in whole ticks, the record is never lost, and a broken lease is equal to a free
//! one, since no request of the election distinguishes the two. A register has no time.

use tenure::election::{Answer, Op};
use tenure::lease::{
    Bid, Cause, Claim, Failure, Grant, LeaseId, Nonce, Record, Snapshot, StoreError, Version,
};

use super::peer::TICK;

/// The term in the record before the first leader.
pub const FIRST_TERM: u64 = 1;

/// The lease and its record.
#[derive(Clone, Debug)]
pub struct Store {
    pub lease: Lease,
    /// The ticks since the last grant.
    pub age: u8,
    /// The length of a lease in ticks.
    pub length: u8,
    /// Whether it is a register: observers compare the renewals, and a bid is for the writes that it saw.
    pub observed: bool,
    renewals: u64,
    writes: u64,
    pub term: u64,
    pub nonce: Nonce,
}

/// The holder of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    Free,
    Held(LeaseId),
    /// An operator broke it, and it runs out without a renewal.
    Breaking(LeaseId),
    /// It expired. The last holder may renew it until another acquires it.
    Expired(LeaseId),
}

impl Store {
    pub fn new(length: u8, observed: bool) -> Self {
        let (term, nonce) = (FIRST_TERM, Nonce(0));
        Self { lease: Lease::Free, age: 0, length, observed, renewals: 0, writes: 0, term, nonce }
    }

    /// Returns the version that a bid is for.
    pub fn version(&self) -> Version {
        Version(if self.observed { self.writes.to_string().into() } else { "".into() })
    }

    /// Returns the claim that observers compare, if there is one.
    pub fn claim(&self) -> Option<Claim> {
        let spec = Version(self.renewals.to_string().into());
        let lease_duration = TICK * self.length.into();
        (self.observed && !self.is_free()).then_some(Claim { spec, lease_duration })
    }

    /// An operator breaks the lease: it runs out, or is free at once.
    pub fn break_lease(&mut self, at_once: bool) {
        self.lease = match self.lease {
            Lease::Held(id) if !at_once => Lease::Breaking(id),
            _ => Lease::Free,
        };
        self.renewals += 1;
        self.writes += 1;
    }

    pub fn is_free(&self) -> bool {
        matches!(self.lease, Lease::Free | Lease::Expired(_))
    }

    /// Advances the store's clock, which is accurate, by a tick.
    pub fn tick(&mut self) {
        if self.observed {
            return;
        }
        self.age = (self.age + 1).min(self.length);
        if self.age == self.length {
            self.lease = match self.lease {
                Lease::Held(id) => Lease::Expired(id),
                Lease::Breaking(_) => Lease::Free,
                other => other,
            };
        }
    }

    /// Performs a request.
    pub fn serve(&mut self, op: &Op) -> Result<Answer, StoreError> {
        match op {
            Op::Read => Ok(Answer::Snapshot(Snapshot {
                free: self.is_free(),
                record: self.record(),
                version: self.version(),
                claim: self.claim(),
                ends_in: self.claim().map(|it| it.lease_duration),
            })),
            Op::Acquire(bid) => self.acquire(bid),
            Op::WriteTerm { bid, floor } => self.write_term(bid, *floor),
            Op::Renew(bid) => self.renew(bid),
            Op::Release(bid) => self.release(bid),
            Op::SetSuccessor { .. } => unreachable!("nobody names a successor here"),
        }
    }

    fn record(&self) -> Record {
        Record { term: Some(self.term), nonce: Some(self.nonce), ..Record::default() }
    }

    fn grant(&mut self, bid: &Bid) {
        self.lease = Lease::Held(bid.lease);
        self.age = 0;
        self.renewals += 1;
        self.writes += 1;
    }

    fn acquire(&mut self, bid: &Bid) -> Result<Answer, StoreError> {
        let again = self.lease == Lease::Held(bid.lease);
        let is_taken = if self.observed { bid.seen != self.version() } else { !self.is_free() };
        if !again && is_taken {
            return Err(refused());
        }
        self.grant(bid);
        Ok(Answer::Grant(Grant { record: self.record(), date: None, version: None }))
    }

    fn renew(&mut self, bid: &Bid) -> Result<Answer, StoreError> {
        if ![Lease::Held(bid.lease), Lease::Expired(bid.lease)].contains(&self.lease) {
            return Err(refused());
        }
        self.grant(bid);
        Ok(Answer::Done)
    }

    fn write_term(&mut self, bid: &Bid, floor: u64) -> Result<Answer, StoreError> {
        let is_breaking = !self.observed && self.lease == Lease::Breaking(bid.lease);
        if self.lease != Lease::Held(bid.lease) && !is_breaking {
            return Err(refused());
        }
        self.writes += 1;
        if self.nonce != bid.nonce {
            self.term = (self.term + 1).max(floor);
            self.nonce = bid.nonce;
        }
        Ok(Answer::Term(self.term))
    }

    fn release(&mut self, bid: &Bid) -> Result<Answer, StoreError> {
        if self.holder() != Some(bid.lease) {
            // A bid of a register that is given up must not hold later.
            self.writes += u64::from(bid.seen == self.version());
            return Err(refused());
        }
        self.lease = Lease::Free;
        self.writes += 1;
        Ok(Answer::Done)
    }

    /// Returns the holder, or the last one if the lease has expired.
    pub fn holder(&self) -> Option<LeaseId> {
        match self.lease {
            Lease::Free => None,
            Lease::Held(id) | Lease::Breaking(id) | Lease::Expired(id) => Some(id),
        }
    }
}

fn refused() -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, "the lease is another's"))
}
