//! The simulated value that is compared and set. It does what a request says, and knows nothing of leases;
//! what it has of them is for the checker, and for third parties that write it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure::lease::{Bid, Claim, LeaseId, Nonce, Record};
use tenure::store::BreakOutcome;
use tenure::store::register::{Body, Held, Tagged, Told, Written};
use time::OffsetDateTime;

use super::third_party::third_party;
use super::{Reports, Store};
use crate::register::{Asked, Got};

/// A state of the value.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    tag: u64,
    /// The value; `None` if there is none.
    body: Option<Arc<Body>>,
    /// The lease of the claim.
    lease: Option<LeaseId>,
    /// When the claim was renewed, by the store's clock.
    renewed: Duration,
    /// Whether its writer was told that it is done, so that no failover of a careful store loses it.
    is_acknowledged: bool,
}

/// The value.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    now: State,
    /// The previous states, the last first.
    earlier: VecDeque<State>,
    tags: u64,
}

impl State {
    fn held(&self) -> Option<&Held> {
        self.body.as_ref()?.held.as_ref()
    }

    fn record(&self) -> Record {
        self.body.as_ref().map(|it| it.record.clone()).unwrap_or_default()
    }

    /// Returns whether no more than the claim's renewal tells it from an earlier state.
    fn is_renewal_of(&self, earlier: &Self) -> bool {
        let held = |it: &Self| it.held().map(|it| (it.nonce, it.is_breaking));
        held(self) == held(earlier) && self.record() == earlier.record()
    }

    fn tagged(&self, time: Duration) -> Option<Tagged> {
        let body = self.body.as_ref()?;
        let seconds = i64::try_from(time.as_secs()).unwrap_or(0);
        let date = OffsetDateTime::from_unix_timestamp(seconds).ok();
        Some(Tagged { tag: self.tag.to_string(), body: Ok(Body::clone(body)), date })
    }

    fn told(&self) -> Told {
        self.body.as_ref().map_or(Told::Gone, |it| Told::Body(Body::clone(it)))
    }

    /// When the claim is over for an observer that saw its renewal.
    fn until(&self) -> Duration {
        self.held().map_or(Duration::ZERO, |it| self.renewed + it.lease_duration)
    }
}

impl Store {
    /// Performs a request of an operation for this bid. A read shows the state of `back` changes ago. Returns
    /// also the term that was written, and for which acquisition.
    pub fn ask(
        &mut self,
        asked: &Asked,
        bid: Option<&Bid>,
        back: Option<u8>,
        time: Duration,
    ) -> (Got, Option<(u64, Nonce)>) {
        let (tag, body) = match asked {
            Asked::Get => {
                let state = back.and_then(|back| self.value.earlier.get(usize::from(back) - 1));
                let value = state.unwrap_or(&self.value.now).tagged(time);
                return (Got::Value(value), None);
            }
            Asked::Put(tag, body) => (tag, body),
        };
        let present = self.value.now.body.as_ref().map(|_| self.value.now.tag.to_string());
        if present != *tag {
            return (Got::Written(None), None);
        }
        let nonce = body.record.nonce;
        let is_new = nonce != self.record.nonce && bid.is_some_and(|bid| Some(bid.nonce) == nonce);
        let wrote = body.record.term.zip(nonce).filter(|_| is_new);
        let lease = bid.filter(|bid| body.held.as_ref().is_some_and(|it| it.nonce == bid.nonce));
        self.set(Some(Arc::clone(body)), lease.map(|it| it.lease), time);
        let tagged = self.value.now.tagged(time);
        let written = tagged.map(|Tagged { tag, date, .. }| Written { tag, date });
        (Got::Written(written), wrote)
    }

    /// Makes this the value. A claim that stays is of the same lease as before, unless `lease` says whose.
    fn set(&mut self, body: Option<Arc<Body>>, lease: Option<LeaseId>, time: Duration) {
        self.value.tags += 1;
        let before = std::mem::take(&mut self.value.now);
        let held = body.as_ref().and_then(|it| it.held.as_ref());
        let same = |it: &&Held| before.held().is_some_and(|before| before.nonce == it.nonce);
        let is_kept = held.filter(same).is_some();
        let is_renewed = held.map(|it| it.renewal) != before.held().map(|it| it.renewal);
        self.value.now = State {
            tag: self.value.tags,
            lease: lease.or(before.lease.filter(|_| is_kept)),
            renewed: if is_renewed { time } else { before.renewed },
            is_acknowledged: true,
            body,
        };
        self.value.earlier.truncate(usize::from(Self::KEPT) - 1);
        self.value.earlier.push_front(before);
        let before = &self.value.earlier[0];
        let is_told =
            self.reports() != Some(Reports::Hint) || !self.value.now.is_renewal_of(before);
        self.news += u64::from(is_told);
        self.changed_value();
    }

    fn changed_value(&mut self) {
        self.record = self.value.now.record();
        self.exists = self.value.now.body.is_some();
        self.changes += 1;
    }

    fn reports(&self) -> Option<Reports> {
        self.kind.oddities().and_then(|it| it.reports)
    }

    /// Changes the value as a third party does.
    pub(super) fn edit_value(&mut self, time: Duration, edit: impl FnOnce(&mut Body)) {
        let mut body = self.value.now.body.as_deref().cloned().unwrap_or_default();
        body.write = self.drawn();
        edit(&mut body);
        self.set(Some(Arc::new(body)), None, time);
    }

    /// Returns a number that no candidate draws.
    fn drawn(&self) -> Nonce {
        Nonce(u128::from(self.value.tags + 1) << 8)
    }

    /// Deletes the value.
    pub(super) fn delete_value(&mut self, time: Duration) {
        self.set(None, None, time);
    }

    /// The server says of the last write that its outcome is unknown.
    pub fn disown(&mut self) {
        self.value.now.is_acknowledged = false;
    }

    /// Another server takes over, and loses the last writes: those that were not acknowledged and, of a
    /// store that may lose others, renewals of at most `most` after the last one that stays. Returns the
    /// acquisition whose term was lost, if any.
    pub fn fail_over_to_earlier(&mut self) -> Option<Nonce> {
        let most = self.loses;
        let before = self.value.now.clone();
        let is_lost = |kept: &State| {
            let is_recent = before.renewed.saturating_sub(kept.renewed) <= most;
            !before.is_acknowledged || is_recent && before.is_renewal_of(kept)
        };
        let kept = self.value.earlier.front().filter(|it| is_lost(it)).cloned()?;
        self.value.earlier.pop_front();
        self.value.now = kept;
        self.news += 1;
        self.changed_value();
        before.record().nonce.filter(|it| Some(*it) != self.record.nonce)
    }

    /// Keeps tags from being given again, after the store has returned to an earlier state.
    pub fn continue_tags(&mut self, before: &Self) {
        self.value.tags = self.value.tags.max(before.value.tags);
    }

    /// Returns the report of the state of `back` changes ago.
    pub fn report(&self, back: u8) -> Told {
        match back {
            _ if self.reports() == Some(Reports::Hint) => Told::Hint,
            0 => self.value.now.told(),
            _ => self.value.earlier.get(usize::from(back) - 1).unwrap_or(&self.value.now).told(),
        }
    }

    /// Returns what observers see of the lease, where they count its time.
    pub fn claim(&self) -> Option<Claim> {
        self.value.now.held().map(Held::claim)
    }

    /// Returns when the claim is over for an observer that saw its renewal.
    pub(super) fn claimed_until(&self) -> Duration {
        self.value.now.until()
    }

    /// Returns whether this lease has the claim, and is not broken.
    pub(super) fn stands(&self, lease: LeaseId) -> bool {
        let State { lease: stands, .. } = self.value.now;
        stands == Some(lease) && self.value.now.held().is_some_and(|it| !it.is_breaking)
    }

    /// An operator breaks the lease: it is nobody's, and observers wait for it anew, or, at once,
    /// it is free.
    pub(super) fn break_value(&mut self, at_once: bool, time: Duration) -> BreakOutcome {
        let Some(held) = self.value.now.held().cloned() else { return BreakOutcome::NotHeld };
        let record = self.record.clone();
        let renewal = self.drawn();
        if at_once || !held.is_breaking {
            self.edit_value(time, |body| match (&mut body.held, at_once) {
                (Some(held), false) => (held.is_breaking, held.renewal) = (true, renewal),
                (held, _) => *held = None,
            });
        }
        let free_in = if at_once { Duration::ZERO } else { held.lease_duration };
        BreakOutcome::Held { record, free_in }
    }

    /// A candidate of another kind takes the lease, for `length` or for as long as its holder has it: from
    /// whoever has it, or only if it is free.
    pub(super) fn take_value(
        &mut self,
        number: u64,
        length: Option<Duration>,
        free_only: bool,
        time: Duration,
    ) {
        let held = self.value.now.held().map(|it| it.lease_duration);
        let Some(lease_duration) =
            length.or(held).filter(|_| self.exists && !(free_only && held.is_some()))
        else {
            return;
        };
        let (nonce, renewal) = (Nonce(u128::from(number) | 1 << 100), self.drawn());
        self.edit_value(time, |body| {
            body.held = Some(Held {
                nonce,
                identity: "another".to_owned(),
                lease_duration,
                renewal,
                writes: 1,
                is_breaking: false,
            });
        });
        self.value.now.lease = Some(third_party(number));
    }
}
