//! Hand-made statuses of every kind, and a clock that the test sets.
//!
//! The clock is local to the thread: a test and what it starts run on one thread.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{Belief, Holder, LeaseView, Renewals, Standing, Status, StoreHealth};
use tenure::lease::{Candidate, Cause, Failure, Nonce, StoreError};
use tenure::status::{About, CandidateEntry, CandidateTable, Past, Published};
use tokio::sync::watch;

/// The first readings: boot and raw with different totals, and a date in 2026.
const START: Moment = Moment {
    boot: Duration::from_secs(1_000),
    raw: Duration::from_secs(5_000),
    wall: Duration::from_secs(1_795_165_200),
};

thread_local!(static NOW: Cell<Moment> = const { Cell::new(START) });

/// Returns the readings of the clock.
pub fn now() -> Moment {
    NOW.get()
}

/// Advances all three clocks.
pub fn pass(by: Duration) {
    let now = NOW.get();
    NOW.set(Moment { boot: now.boot + by, raw: now.raw + by, wall: now.wall + by });
}

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the description of an instance with identity `us` in the election `orders`.
pub fn about() -> About {
    About {
        election: "orders".to_owned(),
        identity: "us".to_owned(),
        instance: "us-1".to_owned(),
        boot_id: "5ca1ab1e-0000-4000-8000-000000000000".to_owned(),
        store: "azure",
        store_url: "https://acct.blob.core.windows.net/box/orders".to_owned(),
        lease_duration: ms(15_000),
    }
}

/// Returns the standing of a leader whose last renewal was sent now.
pub fn leading(term: u64, length: Duration) -> Standing {
    let belief = Belief { sent: now(), length, suspended: false };
    Standing::Leader { term, belief, jeopardy: false }
}

/// Returns the standing of the same leader when its renewals fail.
pub fn in_jeopardy(term: u64, length: Duration) -> Standing {
    let belief = Belief { sent: now(), length, suspended: false };
    Standing::Leader { term, belief, jeopardy: true }
}

/// The nonce of every record.
pub const NONCE: Nonce = Nonce(0xfeed);

/// Returns a status whose standing began now, with a store that has just answered. A leader is its own
/// holder.
pub fn status(standing: Standing) -> Status {
    let contacted = standing != Standing::Starting;
    let store = StoreHealth { last_success: contacted.then(now), ..StoreHealth::default() };
    let is_own = standing.term().is_some();
    let lease =
        LeaseView { read_within: ms(10_000), is_own, is_held: is_own, ..LeaseView::default() };
    Status {
        holder: standing.term().and_then(|term| holder("us", None, term)),
        standing,
        since: now(),
        successor: None,
        hold_off: None,
        workload_term: None,
        released_term: None,
        contact_due: None,
        lease,
        store,
        wait: None,
    }
}

/// Returns a holder with identity `name`.
pub fn holder(name: &str, address: Option<&str>, term: u64) -> Option<Holder> {
    let candidate = Candidate {
        identity: name.to_owned(),
        instance: format!("{name}-1"),
        address: address.map(str::to_owned),
        peer: None,
    };
    Some(Holder { candidate: Arc::new(candidate), term, nonce: Some(NONCE) })
}

/// Returns the renewals of a holder that the store shows: the last one now, the next overdue after 7 s, the
/// end of the lease after 15 s.
pub fn renewals() -> Option<Renewals> {
    let mut renewals = Renewals::first(now(), ms(7_000));
    renewals.by_store = true;
    renewals.last = Some((now(), Duration::ZERO));
    renewals.end = Some((now(), ms(15_000)));
    Some(renewals)
}

/// Returns the health of a store that has failed `failures` times in a row since its last answer.
pub fn failing(failures: u32, words: &str) -> StoreHealth {
    let failure = Failure::new(Cause::Network, words.to_owned());
    StoreHealth {
        last_success: Some(now()),
        failures,
        last_failure: Some(Arc::new(StoreError::Unknown(failure))),
        ..StoreHealth::default()
    }
}

/// Returns a candidate that is connected to the leader, with identity `name`.
pub fn candidate(name: &str, state: &str) -> CandidateEntry {
    CandidateEntry {
        identity: name.to_owned(),
        instance: format!("{name}-1"),
        address: None,
        zone: None,
        priority: 50,
        state: state.to_owned(),
        failing: None,
        connected: true,
        contact_ms_ago: 0,
        heir: false,
        gone: false,
    }
}

/// Returns a table of candidates that was received now, of a stream that is open.
pub fn table(candidates: impl Into<Arc<[CandidateEntry]>>) -> CandidateTable {
    CandidateTable { at: now(), is_current: true, candidates: candidates.into() }
}

/// Publishes statuses instead of the driver.
pub struct Feed(watch::Sender<Published>);

impl Feed {
    /// Publishes a first status, with index 1.
    pub fn new(standing: Standing) -> Self {
        Self(watch::channel(Published::first(status(standing))).0)
    }

    pub fn subscribe(&self) -> watch::Receiver<Published> {
        self.0.subscribe()
    }

    /// Publishes a change.
    pub fn change(&self, status: Status) {
        self.0.send_modify(|last| {
            last.replace_status(status, now());
            last.index += 1;
            last.sequence += 1;
        });
    }

    /// Publishes a renewal, which does not change the index.
    pub fn renew(&self, standing: Standing) {
        self.0.send_modify(|last| {
            last.status.standing = standing;
            last.sequence += 1;
        });
    }

    /// Publishes the last results of probes, or the route.
    pub fn record(&self, record: impl FnOnce(&mut Published)) {
        self.0.send_modify(record);
    }

    /// Publishes a change of the candidates.
    pub fn report_candidates(&self, table: CandidateTable) {
        self.0.send_modify(|last| {
            last.candidates = Some(table);
            last.index += 1;
            last.sequence += 1;
        });
    }

    /// Publishes past transitions, newest first.
    pub fn remember(&self, past: Vec<Past>) {
        self.0.send_modify(|last| last.history = past.into());
    }

    pub fn last(&self) -> Published {
        self.0.borrow().clone()
    }
}
