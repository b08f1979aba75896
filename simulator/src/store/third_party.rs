//! Changes of the store by operators and third parties.

use std::time::Duration;

use tenure::lease::{LeaseId, Nonce, Record};
use tenure::store::BreakOutcome;

use super::blob_lease::Lease;
use super::{Instant, Kind, Store};

/// Returns the lease id of a third party.
pub(super) fn third_party(number: u64) -> LeaseId {
    LeaseId::from_random(u128::from(number) | 1 << 100)
}

impl Store {
    /// Breaks the lease, after a period, or by letting it run out (`None`). Does nothing if it is not
    /// held.
    pub fn break_lease(&mut self, period: Option<Duration>, now: Instant) -> BreakOutcome {
        let time = self.time(now);
        if self.kind.is_register() {
            return self.break_value(period.is_some(), time);
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

    /// Changes the lease id. In a register, a candidate of another kind acquires the lease, and does not renew it.
    pub fn change_lease(&mut self, number: u64, now: Instant) {
        if self.kind.is_register() {
            return self.take_value(number, None, false, self.time(now));
        }
        self.is_leased(now);
        if let Lease::Leased { id, .. } = &mut self.lease {
            *id = third_party(number);
        }
    }

    /// Acquires the lease for a third party, if it is free.
    pub fn take_by_other(&mut self, number: u64, length: Duration, now: Instant) {
        let time = self.time(now);
        if self.kind.is_register() {
            return self.take_value(number, Some(length), true, time);
        }
        let _ = self.lease.acquire(third_party(number), Some(length), time);
    }

    /// Deletes the record, and also the lease if `whole`.
    pub fn lose(&mut self, whole: bool, now: Instant) {
        match whole {
            _ if !self.kind.is_register() => {}
            true => return self.delete_value(self.time(now)),
            false if !self.exists => return,
            false => {
                return self.edit_value(self.time(now), |body| body.record = Record::default());
            }
        }
        self.record = Record::default();
        if whole {
            self.lease = Lease::Available;
            self.exists = self.kind == Kind::Host;
        }
        self.touched();
    }

    /// Writes to a field outside of lease and record: a label, an annotation.
    pub fn touch(&mut self, now: Instant) {
        if self.exists {
            self.edit_value(self.time(now), |_| {});
        }
    }

    /// Restores a record with a lower term; frees the lease if `freed`.
    pub fn set_back(&mut self, by: u64, freed: bool, now: Instant) {
        let Some(term) = self.record.term else { return };
        self.record.term = Some(term.saturating_sub(by).max(1));
        self.record.nonce = Some(Nonce(u128::from(by) << 64));
        if self.kind.is_register() {
            let record = self.record.clone();
            return self.edit_value(self.time(now), |body| {
                body.record = record;
                body.held.take_if(|_| freed);
            });
        }
        if freed {
            self.lease = Lease::Available;
        }
        self.touched();
    }

    /// Writes a first record.
    pub fn seed(&mut self, term: u64) {
        self.exists = true;
        self.record = Record { term: Some(term), nonce: Some(Nonce(1)), ..Record::default() };
        if self.kind.is_register() {
            let record = self.record.clone();
            return self.edit_value(Duration::ZERO, |body| body.record = record);
        }
        self.touched();
    }
}
