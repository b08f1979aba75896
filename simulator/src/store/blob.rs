//! The simulated blob, by Microsoft's lease tables, and the record on one host, which must be unchanged
//! since it was read as free.

use std::sync::Arc;
use std::time::Duration;

use tenure::election::Answer;
use tenure::lease::{Bid, Cause, Failure, Grant, Record, Snapshot, StoreError, Successor};
use time::OffsetDateTime;

use super::blob_lease::{Lease, Refusal};
use super::{Kind, Stage, Step, Store, refused};

impl Store {
    pub(super) fn snapshot(&mut self, time: Duration) -> Snapshot {
        let free = !matches!(self.lease.state(time), "leased" | "breaking");
        Snapshot {
            free,
            record: self.record.clone(),
            version: self.version.clone(),
            claim: None,
            ends_in: self.host_lease_left(time),
        }
    }

    /// Returns how long the lease in a record on one host lasts, which the record says.
    fn host_lease_left(&self, time: Duration) -> Option<Duration> {
        match &self.lease {
            Lease::Leased { until: Some(until), .. } if self.kind == Kind::Host => {
                Some(until.saturating_sub(time))
            }
            _ => None,
        }
    }

    /// Acquires the lease of a blob. A missing blob is created only after a bid has found it missing.
    pub(super) fn take(&mut self, bid: &Bid, stage: Stage, time: Duration) -> Step {
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
        Ok(Answer::Grant(Grant { record: self.record.clone(), date: None, version: None }))
    }

    fn is_of(&self, bid: &Bid) -> bool {
        matches!(&self.lease, Lease::Leased { id, .. } | Lease::Expired { id, .. } if *id == bid.lease)
    }

    fn extend(&mut self, bid: &Bid, time: Duration) {
        let length = Some(bid.lease_duration);
        let until = Some(time + bid.lease_duration);
        self.lease = Lease::Leased { id: bid.lease, length, until };
    }

    pub(super) fn grant(&self, time: Duration) -> Result<Answer, StoreError> {
        if !self.exists {
            let gone = Failure::new(Cause::Unavailable, "the blob was gone after the grant");
            return Err(StoreError::Unknown(gone));
        }
        let seconds = i64::try_from(time.as_secs()).unwrap_or_default();
        let date = OffsetDateTime::from_unix_timestamp(seconds).ok();
        Ok(Answer::Grant(Grant { record: self.record.clone(), date, version: None }))
    }

    pub(super) fn read(&self, bid: &Bid) -> Step {
        match self.record.term {
            _ if !self.exists => Step::Done(Err(refused(Refusal(404, "BlobNotFound")))),
            Some(term) if self.record.nonce == Some(bid.nonce) => {
                Step::Done(Ok(Answer::Term(term)))
            }
            _ => Step::More(Stage::Second { seen: self.changes }),
        }
    }

    /// Writes the record under the lease. Returns the term, and whether it was written now.
    pub(super) fn write(
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

    pub(super) fn read_ours(&self, bid: &Bid) -> Step {
        if self.exists && self.record.nonce == Some(bid.nonce) {
            return Step::More(Stage::Second { seen: self.changes });
        }
        Step::Done(Err(refused(Refusal(412, "the record is another's"))))
    }

    /// Writes a successor's name under the lease.
    pub(super) fn name(
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

    pub(super) fn renew(&mut self, bid: &Bid, time: Duration) -> Result<(), StoreError> {
        if !self.exists {
            return Err(refused(Refusal(404, "BlobNotFound")));
        }
        self.lease.renew(&bid.lease, time).map_err(refused)
    }

    pub(super) fn release(&mut self, bid: &Bid, time: Duration) -> Result<(), StoreError> {
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
