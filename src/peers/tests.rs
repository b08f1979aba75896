//! What the unit tests of this module share: a clock that the test sets, and made-up values.

use std::cell::Cell;
use std::time::Duration;

use super::report::{Report, Reporter};
use crate::clock::Moment;
use crate::config::Rank;
use crate::election::{Belief, LeaseView, Standing, State, Status, StoreHealth};
use crate::metrics::Metrics;
use crate::status::{About, Published};

thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });

/// Returns the moment at which the clocks have advanced for `seconds`.
pub(super) fn at(seconds: u64) -> Moment {
    let reading = Duration::from_secs(1_000 + seconds);
    Moment { boot: reading, raw: reading, wall: reading }
}

pub(super) fn now() -> Moment {
    at(NOW.get())
}

pub(super) fn pass(seconds: u64) {
    NOW.set(NOW.get() + seconds);
}

pub(super) fn about() -> About {
    About {
        election: "orders".to_owned(),
        identity: "us".to_owned(),
        instance: "us-1".to_owned(),
        boot_id: String::new(),
        store: "memory",
        store_url: "memory:".to_owned(),
        lease_duration: Duration::from_secs(15),
    }
}

pub(super) fn reporter() -> Reporter {
    let rank = Rank { priority: 50, zone: None, preempt_after: None };
    Reporter { about: about(), address: None, rank }
}

pub(super) fn metrics() -> Metrics {
    Metrics::new(&about(), false)
}

pub(super) fn report(name: &str, state: State) -> Report {
    Report {
        identity: name.to_owned(),
        instance: format!("{name}-1"),
        address: None,
        zone: None,
        priority: 50,
        state,
        failing: None,
        holds_off: false,
    }
}

/// Returns the belief of a renewal that was sent at this second.
pub(super) fn belief(sent: u64) -> Belief {
    Belief { sent: at(sent), length: Duration::from_secs(10), suspended: false }
}

pub(super) fn published(standing: Standing) -> Published {
    Published::first(Status {
        standing,
        since: at(0),
        holder: None,
        successor: None,
        hold_off: None,
        workload_term: None,
        store: StoreHealth::default(),
        released_term: None,
        contact_due: None,
        lease: LeaseView::default(),
        wait: None,
    })
}
