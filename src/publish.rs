//! The status in outside words: active and passive, milliseconds, dates, JSON.
//!
//! What it does not do: it never writes a status and never asks the election. It reads what the
//! driver published, and judges it by the clock at each question.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::clock::Moment;
use crate::election::{State, Status, Transition};

pub mod acknowledgements;
mod board;
pub mod file;
mod health;
pub mod http;
pub mod metrics;
mod route;
pub mod systemd;
pub(crate) mod words;

pub use board::{Board, Entry, Said};
pub use health::{HealthDocument, ProbeDocument};
pub use route::{Agreement, RouteBoard, RouteDocument};

/// How many transitions are remembered.
pub const REMEMBERED: usize = 20;

/// One publication of the driver.
#[derive(Clone, Debug)]
pub struct Published {
    /// The status.
    pub status: Status,
    /// Grows with each change that people would call one, not with renewals; by [`Self::step`], to
    /// leave room for the change that the clock alone makes (see [`Self::index_at`]).
    pub index: u64,
    /// Grows with each publication.
    pub sequence: u64,
    /// The last [`REMEMBERED`] changes of state, newest first.
    pub history: Arc<[Past]>,
    /// When the holder of this status was first seen.
    pub holder_seen: Option<Moment>,
}

/// A change of state that has been.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Past {
    /// When the driver took note of it.
    pub at: Moment,
    /// What changed, and why.
    pub transition: Transition,
}

/// What does not change while the process runs.
#[derive(Clone, Debug)]
pub struct About {
    /// Name of the election.
    pub election: String,
    /// Who we are, for people.
    pub identity: String,
    /// Who we are, for certain.
    pub instance: String,
    /// Which boot the boot-time readings count from.
    pub boot_id: String,
    /// The kind of store.
    pub store: &'static str,
    /// What the health probes last say; empty where none are set.
    pub health: Board,
    /// What the route last said; empty where none is set.
    pub route: RouteBoard,
}

/// Proof that the election loop turns: the driver beats, others see that the count has grown.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// One more turn of the loop.
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many turns there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Active or passive: the only roles that exist outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Leads at this instant.
    Active,
    /// Does not.
    Passive,
}

impl Role {
    /// The role as a word.
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
    /// Who we are, for people.
    pub identity: &'a str,
    /// Who we are, for certain.
    pub instance: &'a str,
    /// The state's name.
    pub state: &'static str,
    /// Active or passive.
    pub role: Role,
    /// Our term, while it is ours.
    pub term: Option<u64>,
    /// How long the role active holds, from the asker's sending of the question; 0 when passive.
    pub valid_for_ms: u64,
    /// Until which reading of the boot clock it holds; 0 when passive.
    pub valid_until_boottime_ns: u64,
    /// Which boot that reading counts from.
    pub boot_id: &'a str,
    /// Since when the state lasts; leader and jeopardy count as one. RFC 3339.
    pub since: String,
    /// Grows with each change, by one or more.
    pub index: u64,
    /// Who was last seen to hold the lease.
    pub holder: Option<HolderDocument<'a>>,
    /// Whom the record names to lead next.
    pub successor: Option<SuccessorDocument<'a>>,
    /// For how long this instance lets others go first yet, after it gave leadership up.
    pub hold_off_remaining_ms: Option<u64>,
    /// How long work begun as leader stays protected, while it is being drained.
    pub drain_remaining_ms: Option<u64>,
    /// How the store answers.
    pub store: StoreDocument<'a>,
    /// What the health probes say; `null` where none are set.
    pub health: Option<HealthDocument>,
    /// What the route says; `null` where none is set.
    pub route: Option<RouteDocument>,
    /// The last changes of state, newest first.
    pub transitions: Vec<TransitionDocument>,
    /// Our version.
    pub version: &'static str,
}

/// The holder in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct HolderDocument<'a> {
    /// Its identity.
    pub identity: &'a str,
    /// The address of its service, if it gave one.
    pub address: Option<&'a str>,
    /// Its term.
    pub term: u64,
}

/// The successor in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct SuccessorDocument<'a> {
    /// Its identity.
    pub identity: &'a str,
    /// How long the others wait for it.
    pub hold_off_ms: u64,
}

/// The store in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct StoreDocument<'a> {
    /// The kind of store.
    pub kind: &'static str,
    /// How long ago it last answered well; `null` if it never did.
    pub last_success_ms_ago: Option<u64>,
    /// Failures since then.
    pub failures: u32,
    /// The last of them, in words.
    pub last_error: Option<&'a str>,
}

/// A change of state in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct TransitionDocument {
    /// When it was noted, RFC 3339.
    pub at: String,
    /// The state before.
    pub from: &'static str,
    /// The state after.
    pub to: &'static str,
    /// Why.
    pub reason: &'static str,
    /// The term that began, goes on, or ended.
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

/// What a question is answered from, judged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The state.
    pub state: State,
    /// How long we lead yet; zero when passive.
    pub remaining: Duration,
    /// Our term, while it is ours.
    pub term: Option<u64>,
}

impl Judgement {
    /// Judges a status at `now`.
    #[must_use]
    pub fn of(status: &Status, now: Moment) -> Self {
        Self { state: status.state(now), remaining: status.remaining(now), term: status.term() }
    }

    /// How long the role active holds in whole milliseconds, rounded down: an error towards safety.
    #[must_use]
    pub fn valid_for_ms(&self) -> u64 {
        whole_ms(self.remaining)
    }

    /// The role. Active needs a whole millisecond left, so that it never comes with a 0.
    #[must_use]
    pub fn role(&self) -> Role {
        if self.valid_for_ms() > 0 { Role::Active } else { Role::Passive }
    }
}

impl Published {
    /// The first publication of a process, in which nothing has changed yet.
    #[must_use]
    pub fn first(status: Status) -> Self {
        Self { status, index: 1, sequence: 1, history: Arc::default(), holder_seen: None }
    }

    /// The index at `now`: one more than was published once a leader's belief is over, which is a
    /// change that nobody publishes.
    #[must_use]
    pub fn index_at(&self, now: Moment) -> u64 {
        let judgement = Judgement::of(&self.status, now);
        let over = judgement.state.is_leading() && judgement.role() == Role::Passive;
        self.index + u64::from(over)
    }

    /// By how much the index grows with a change of this status: past all that it has ever been.
    #[must_use]
    pub fn step(&self) -> u64 {
        if self.status.standing.state().is_leading() { 2 } else { 1 }
    }

    /// Makes the status document as it is true at `now`.
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
            hold_off_remaining_ms: self.status.aside.map(|it| whole_ms(it.remaining(now))),
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

/// Whole milliseconds, rounded down.
fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Until which reading of the boot clock the role active holds; 0 when passive.
#[must_use]
pub fn valid_until_boottime_ns(judgement: &Judgement, now: Moment) -> u64 {
    match judgement.role() {
        Role::Passive => 0,
        Role::Active => {
            u64::try_from((now.boot + judgement.remaining).as_nanos()).unwrap_or(u64::MAX)
        }
    }
}

/// A date for people and machines, in whole milliseconds.
#[must_use]
pub fn rfc3339(date: OffsetDateTime) -> String {
    let date = date.replace_millisecond(date.millisecond()).unwrap_or(date);
    date.format(&Rfc3339).expect("a date of this era can be written")
}
