//! Changes of the store by operators and third parties.

use std::time::Duration;

use tenure::lease::{LeaseId, Nonce, Record};
use tenure::store::BreakOutcome;

use super::blob_lease::Lease;
use super::cluster::Cluster;
use super::session::Key;
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
        match self.kind {
            Kind::Object | Kind::Bucket | Kind::Document => {
                return self.break_value(period.is_some(), time);
            }
            Kind::Cluster => return self.break_claim(period.is_some(), time),
            Kind::Row | Kind::Keys => return self.break_row(period.is_some(), time),
            Kind::Session => return self.break_lock(period.is_some(), time),
            Kind::Ensemble => return self.break_session(period.is_some(), time),
            Kind::Blob | Kind::Host => (),
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

    /// Changes the lease id. In a value, a cluster, a row, a key or keys, a candidate of another kind acquires the lease, and
    /// does not renew it.
    pub fn change_lease(&mut self, number: u64, now: Instant) {
        match self.kind {
            Kind::Cluster => return self.take_claim(number, None, false, self.time(now)),
            Kind::Row | Kind::Keys => return self.take_row(number, None, false, self.time(now)),
            Kind::Session => return self.take_lock(number, None, false, self.time(now)),
            Kind::Ensemble => return self.take_session(number, None, false, self.time(now)),
            Kind::Object | Kind::Bucket | Kind::Document => {
                return self.take_value(number, None, false, self.time(now));
            }
            Kind::Blob | Kind::Host => (),
        }
        self.is_leased(now);
        if let Lease::Leased { id, .. } = &mut self.lease {
            *id = third_party(number);
        }
    }

    /// Acquires the lease for a third party, if it is free.
    pub fn take_by_other(&mut self, number: u64, length: Duration, now: Instant) {
        let time = self.time(now);
        match self.kind {
            Kind::Object | Kind::Bucket | Kind::Document => {
                return self.take_value(number, Some(length), true, time);
            }
            Kind::Cluster => return self.take_claim(number, Some(length), true, time),
            Kind::Row | Kind::Keys => return self.take_row(number, Some(length), true, time),
            Kind::Session => return self.take_lock(number, Some(length), true, time),
            Kind::Ensemble => return self.take_session(number, Some(length), true, time),
            Kind::Blob | Kind::Host => (),
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
            self.cluster = Cluster::default();
            self.row = None;
            self.key = Key::default();
            self.session = None;
            self.exists = self.kind.exists_from_the_start();
        }
        self.changed_hands();
    }

    /// Writes to a field outside of lease and record: a label, an annotation. In a cluster or an
    /// ensemble, another member leads from now on; of PostgreSQL, a standby; in Consul, the agent of the session may leave instead. The clock of Redis is
    /// stepped.
    pub fn touch(&mut self, now: Instant) {
        match self.kind {
            Kind::Object | Kind::Bucket | Kind::Document if self.exists => {
                self.edit_value(self.time(now), |_| {});
            }
            Kind::Cluster => self.promote(self.time(now)),
            Kind::Row | Kind::Keys => self.fail_over(),
            Kind::Session => self.disturb(self.time(now)),
            Kind::Ensemble => self.elect(self.time(now)),
            _ => (),
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
            self.cluster.claim = None;
            self.row = None;
            self.key.lock = None;
            self.session = None;
        }
        self.changed_hands();
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
