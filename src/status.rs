//! The published status: active and passive, milliseconds, dates, JSON; with the state of the health
//! probes and the route, and the acknowledgements of the publishers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::Moment;
use crate::election::{State, Status, Transition};

mod probe_document;
mod probe_state;
pub mod publish_acks;
mod route_state;
pub(crate) mod words;

pub use probe_document::{HealthDocument, ProbeDocument};
pub use probe_state::{Board, Entry, Said};
pub use route_state::{Agreement, RouteBoard, RouteDocument};

/// How many transitions are kept.
pub const REMEMBERED: usize = 20;

/// One publication of the driver.
#[derive(Clone, Debug)]
pub struct Published {
    /// The status.
    pub status: Status,
    /// Grows with each change of the status, but not with renewals; by [`Self::step`], to leave
    /// room for the change that the clock alone makes (see [`Self::index_at`]).
    pub index: u64,
    /// Grows with each publication.
    pub sequence: u64,
    /// The last [`REMEMBERED`] transitions, newest first.
    pub history: Arc<[Past]>,
    /// When the holder of this status was first seen.
    pub holder_seen: Option<Moment>,
}

/// A past transition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Past {
    /// When the driver recorded it.
    pub at: Moment,
    /// The states and the reason.
    pub transition: Transition,
}

/// What does not change while the process runs.
#[derive(Clone, Debug)]
pub struct About {
    /// Name of the election.
    pub election: String,
    /// The identity of this instance, for people.
    pub identity: String,
    /// The unique id of this instance.
    pub instance: String,
    /// The boot id, which readings of the boot clock refer to.
    pub boot_id: String,
    /// The kind of store.
    pub store: &'static str,
    /// The last results of the health probes; empty if there are none.
    pub health: Board,
    /// The last state of the route; empty if there is none.
    pub route: RouteBoard,
}

/// The heartbeat of the election loop: the driver increments it, others see that it has changed.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// Counts a turn of the loop.
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of turns.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The role, the only one visible outside: active or passive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Leads at this instant.
    Active,
    /// Does not lead.
    Passive,
}

impl Role {
    /// Returns the role as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }
}

/// The status document, judged at one instant.
#[derive(Clone, Debug, Serialize)]
pub struct Document<'a> {
    /// Name of the election.
    pub election: &'a str,
    /// The identity of this instance, for people.
    pub identity: &'a str,
    /// The unique id of this instance.
    pub instance: &'a str,
    /// The state.
    pub state: &'static str,
    /// Active or passive.
    pub role: Role,
    /// The term of this instance, while it holds it.
    pub term: Option<u64>,
    /// How long the role active is valid, counted from the sending of the request; 0 when passive.
    pub valid_for_ms: u64,
    /// The reading of the boot clock until which the role active is valid; 0 when passive.
    pub valid_until_boottime_ns: u64,
    /// The boot id, which that reading refers to.
    pub boot_id: &'a str,
    /// When the state began; leader and jeopardy count as one state. RFC 3339.
    pub since: String,
    /// Grows with each change, by one or more.
    pub index: u64,
    /// The holder of the lease that was last seen.
    pub holder: Option<HolderDocument<'a>>,
    /// The successor that the record names.
    pub successor: Option<SuccessorDocument<'a>>,
    /// The rest of this instance's hold-off, after it gave up leadership.
    pub hold_off_remaining_ms: Option<u64>,
    /// How long work begun as leader stays protected while this instance drains.
    pub drain_remaining_ms: Option<u64>,
    /// The health of the store.
    pub store: StoreDocument<'a>,
    /// The last results of the health probes; `null` if there are none.
    pub health: Option<HealthDocument>,
    /// The state of the route; `null` if there is none.
    pub route: Option<RouteDocument>,
    /// The last transitions, newest first.
    pub transitions: Vec<TransitionDocument>,
    /// Tenure's version.
    pub version: &'static str,
}

/// The holder in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct HolderDocument<'a> {
    /// Its identity.
    pub identity: &'a str,
    /// The address of its service, if it published one.
    pub address: Option<&'a str>,
    /// Its term.
    pub term: u64,
}

/// The successor in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct SuccessorDocument<'a> {
    /// Its identity.
    pub identity: &'a str,
    /// How long the others defer to it.
    pub hold_off_ms: u64,
}

/// The store in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct StoreDocument<'a> {
    /// The kind of store.
    pub kind: &'static str,
    /// The time since the last successful request; `null` if there was none.
    pub last_success_ms_ago: Option<u64>,
    /// The number of failures since then.
    pub failures: u32,
    /// The error of the last one.
    pub last_error: Option<&'a str>,
}

/// A transition in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct TransitionDocument {
    /// When it was recorded, RFC 3339.
    pub at: String,
    /// The state before.
    pub from: &'static str,
    /// The state after.
    pub to: &'static str,
    /// The reason.
    pub reason: &'static str,
    /// The term that began, continues, or ended.
    pub term: Option<u64>,
}

impl From<&Past> for TransitionDocument {
    fn from(past: &Past) -> Self {
        let Transition { from, to, reason, term, .. } = past.transition;
        Self {
            at: rfc3339(past.at.date()),
            from: from.as_str(),
            to: to.as_str(),
            reason: reason.as_str(),
            term,
        }
    }
}

/// The basis of a response, judged at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The state.
    pub state: State,
    /// How much longer this instance is known to lead; zero when passive.
    pub remaining: Duration,
    /// The term of this instance, while it holds it.
    pub term: Option<u64>,
}

impl Judgement {
    /// Judges a status at `now`.
    #[must_use]
    pub fn of(status: &Status, now: Moment) -> Self {
        Self { state: status.state(now), remaining: status.remaining(now), term: status.term() }
    }

    /// Returns how long the role active is valid in whole milliseconds, rounded down, which errs on
    /// the safe side.
    #[must_use]
    pub fn valid_for_ms(&self) -> u64 {
        whole_ms(self.remaining)
    }

    /// Returns the role. Active requires a whole millisecond, so that it is never reported with 0
    /// ms.
    #[must_use]
    pub fn role(&self) -> Role {
        if self.valid_for_ms() > 0 { Role::Active } else { Role::Passive }
    }
}

impl Published {
    /// Returns the first publication of a process, without any transition.
    #[must_use]
    pub fn first(status: Status) -> Self {
        Self { status, index: 1, sequence: 1, history: Arc::default(), holder_seen: None }
    }

    /// Returns the index at `now`: one more than was published once a leader's belief is over,
    /// since that change is not published.
    #[must_use]
    pub fn index_at(&self, now: Moment) -> u64 {
        let judgement = Judgement::of(&self.status, now);
        let over = judgement.state.is_leading() && judgement.role() == Role::Passive;
        self.index + u64::from(over)
    }

    /// Returns the increment of the index for a change of this status, which exceeds any value that
    /// [`Self::index_at`] has returned.
    #[must_use]
    pub fn step(&self) -> u64 {
        if self.status.standing.state().is_leading() { 2 } else { 1 }
    }

    /// Returns the status document as it is at `now`.
    #[must_use]
    pub fn document<'a>(&'a self, about: &'a About, now: Moment) -> Document<'a> {
        let judgement = Judgement::of(&self.status, now);
        let store = &self.status.store;
        Document {
            election: &about.election,
            identity: &about.identity,
            instance: &about.instance,
            state: judgement.state.as_str(),
            role: judgement.role(),
            term: judgement.term,
            valid_for_ms: judgement.valid_for_ms(),
            valid_until_boottime_ns: valid_until_boottime_ns(&judgement, now),
            boot_id: &about.boot_id,
            since: rfc3339(self.status.since.date()),
            index: self.index_at(now),
            holder: self.status.holder.as_ref().map(|holder| HolderDocument {
                identity: &holder.candidate.identity,
                address: holder.candidate.address.as_deref(),
                term: holder.term,
            }),
            successor: self.status.successor.as_ref().map(|successor| SuccessorDocument {
                identity: &successor.identity,
                hold_off_ms: whole_ms(successor.hold_off),
            }),
            hold_off_remaining_ms: self.status.hold_off.map(|it| whole_ms(it.remaining(now))),
            drain_remaining_ms: self.status.drain_remaining(now).map(whole_ms),
            store: StoreDocument {
                kind: about.store,
                last_success_ms_ago: store.last_success.map(|then| whole_ms(then.elapsed_max(now))),
                failures: store.failures,
                last_error: store.last_error.as_ref().map(|error| error.failure().message.as_ref()),
            },
            health: HealthDocument::of(&about.health, now),
            route: about.route.document(judgement.role(), now),
            transitions: self.history.iter().map(TransitionDocument::from).collect(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Returns whole milliseconds, rounded down.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the reading of the boot clock until which the role active is valid; 0 when passive.
#[must_use]
pub fn valid_until_boottime_ns(judgement: &Judgement, now: Moment) -> u64 {
    match judgement.role() {
        Role::Passive => 0,
        Role::Active => {
            u64::try_from((now.boot + judgement.remaining).as_nanos()).unwrap_or(u64::MAX)
        }
    }
}

/// Formats a date in whole milliseconds.
#[must_use]
pub fn rfc3339(date: OffsetDateTime) -> String {
    let date = date.replace_millisecond(date.millisecond()).unwrap_or(date);
    date.format(&Rfc3339).expect("a date of this era can be written")
}
