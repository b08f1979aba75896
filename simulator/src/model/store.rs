//! The store of the model: one lease by Microsoft's tables, and its record.
//!
//! Its time advances in whole ticks, the record is never lost, and a broken lease is equal to a free
//! one, since no request of the election distinguishes the two.

use tenure::election::{Answer, Op};
use tenure::lease::{
    Bid, Cause, Failure, Grant, LeaseId, Nonce, Record, Snapshot, StoreError, Version,
};

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
    pub fn new(length: u8) -> Self {
        Self { lease: Lease::Free, age: 0, length, term: FIRST_TERM, nonce: Nonce(0) }
    }

    pub fn is_free(&self) -> bool {
        matches!(self.lease, Lease::Free | Lease::Expired(_))
    }

    /// Advances the store's clock, which is accurate, by a tick.
    pub fn tick(&mut self) {
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
                version: Version("".into()),
                claim: None,
                ends_in: None,
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
    }

    fn acquire(&mut self, bid: &Bid) -> Result<Answer, StoreError> {
        let again = self.lease == Lease::Held(bid.lease);
        if !again && !self.is_free() {
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
        if ![Lease::Held(bid.lease), Lease::Breaking(bid.lease)].contains(&self.lease) {
            return Err(refused());
        }
        if self.nonce != bid.nonce {
            self.term = (self.term + 1).max(floor);
            self.nonce = bid.nonce;
        }
        Ok(Answer::Term(self.term))
    }

    fn release(&mut self, bid: &Bid) -> Result<Answer, StoreError> {
        if self.holder() != Some(bid.lease) {
            return Err(refused());
        }
        self.lease = Lease::Free;
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
