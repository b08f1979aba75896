//! Statuses of every kind, made by hand, and a clock that a test sets.
//!
//! The clock is the thread's own: a test and what it starts run on one thread.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{Belief, Holder, Standing, Status, StoreHealth};
use tenure::publish::{About, Past, Published};
use tenure::store::{Candidate, Cause, Failure, StoreError};
use tokio::sync::watch;

/// What the clocks show at first: boot and raw on totals of their own, and a date of 2026.
const START: Moment = Moment {
    boot: Duration::from_secs(1_000),
    raw: Duration::from_secs(5_000),
    wall: Duration::from_secs(1_795_165_200),
};

thread_local!(static NOW: Cell<Moment> = const { Cell::new(START) });

/// The clock as it is set.
pub fn now() -> Moment {
    NOW.get()
}

/// Moves all three clocks on.
pub fn pass(by: Duration) {
    let now = NOW.get();
    NOW.set(Moment { boot: now.boot + by, raw: now.raw + by, wall: now.wall + by });
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An instance called `us` in the election `orders`.
pub fn about() -> About {
    About {
        election: "orders".to_owned(),
        identity: "us".to_owned(),
        instance: "us-1".to_owned(),
        boot_id: "5ca1ab1e-0000-4000-8000-000000000000".to_owned(),
        store: "azure",
        health: Default::default(),
        route: Default::default(),
    }
}

/// A leader whose last renewal was sent now.
pub fn leading(term: u64, length: Duration) -> Standing {
    let belief = Belief { sent: now(), length, suspended: false };
    Standing::Leader { term, belief, jeopardy: false }
}

/// The same leader, whose renewals fail.
pub fn in_jeopardy(term: u64, length: Duration) -> Standing {
    let belief = Belief { sent: now(), length, suspended: false };
    Standing::Leader { term, belief, jeopardy: true }
}

/// A standing that began now, in a store that has just answered.
pub fn status(standing: Standing) -> Status {
    let heard = standing != Standing::Starting;
    let store = StoreHealth { last_success: heard.then(now), failures: 0, last_error: None };
    Status {
        standing,
        since: now(),
        holder: None,
        successor: None,
        aside: None,
        occupied: None,
        store,
    }
}

/// A holder called `name`.
pub fn holder(name: &str, address: Option<&str>, term: u64) -> Option<Holder> {
    let candidate = Candidate {
        identity: name.to_owned(),
        instance: format!("{name}-1"),
        address: address.map(str::to_owned),
    };
    Some(Holder { candidate: Arc::new(candidate), term })
}

/// A store that has failed `failures` times in a row since it last answered.
pub fn failing(failures: u32, words: &str) -> StoreHealth {
    let failure = Failure::new(Cause::Network, words.to_owned());
    StoreHealth {
        last_success: Some(now()),
        failures,
        last_error: Some(Arc::new(StoreError::Unknown(failure))),
    }
}

/// The driver's place, taken by the test.
pub struct Feed(watch::Sender<Published>);

impl Feed {
    /// Publishes a first status, with the index 1.
    pub fn new(standing: Standing) -> Self {
        Self(watch::channel(Published::first(status(standing))).0)
    }

    pub fn subscribe(&self) -> watch::Receiver<Published> {
        self.0.subscribe()
    }

    /// Publishes a change.
    pub fn change(&self, status: Status) {
        self.0.send_modify(|last| {
            if last.status.holder != status.holder {
                last.holder_seen = status.holder.is_some().then(now);
            }
            last.status = status;
            last.index += 1;
            last.sequence += 1;
        });
    }

    /// Publishes what is no change for people: a renewal.
    pub fn renew(&self, standing: Standing) {
        self.0.send_modify(|last| {
            last.status.standing = standing;
            last.sequence += 1;
        });
    }

    /// Publishes transitions that have been, newest first.
    pub fn remember(&self, past: Vec<Past>) {
        self.0.send_modify(|last| last.history = past.into());
    }

    pub fn last(&self) -> Published {
        self.0.borrow().clone()
    }
}
