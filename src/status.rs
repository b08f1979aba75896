//! The published status: what the election, the health probes and the route report, as one value
//! with one writer, the driver. Active or passive is judged when a reader asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Moment;
use crate::election::{State, Status, Transition};
use crate::lease::text::{LONGEST_NAME, excerpt};

mod activity;
mod candidates;
pub mod document;
mod holder;
pub(crate) mod leader;
mod maintenance;
mod probe_state;
pub mod publish_acks;
mod route_state;
pub(crate) mod warnings;
pub(crate) mod words;

pub use candidates::{CandidateDocument, CandidateEntry, CandidateTable};
pub use holder::HolderJudgement;
pub use maintenance::Maintenance;
pub use probe_state::{ProbeResult, ProbeState};
pub use route_state::{Agreement, RouteReport, RouteState, Verified};

/// How many transitions are kept.
pub const REMEMBERED: usize = 20;

/// One publication of the driver.
#[derive(Clone, Debug)]
pub struct Published {
    /// The status.
    pub status: Status,
    /// Grows with each change of the status, a probe or the route, but not with renewals; by
    /// [`Self::step`], to leave room for the change that the clock alone makes (see
    /// [`Self::index_at`]).
    pub index: u64,
    /// Grows with each publication.
    pub sequence: u64,
    /// The last [`REMEMBERED`] transitions, newest first.
    pub history: Arc<[Past]>,
    /// When the holder of this status was first seen.
    pub holder_seen: Option<Moment>,
    /// The last result of each health probe, in the order of the settings; empty without probes.
    pub probes: Vec<ProbeState>,
    /// The route; `None` without one.
    pub route: Option<RouteState>,
    /// The candidates; `None` without peers, empty before the first contact with a leader.
    pub candidates: Option<CandidateTable>,
    /// The next maintenance of this machine; `None` if none is announced, or nobody asks.
    pub maintenance: Option<Maintenance>,
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
    /// The URL of the lock, without secrets: other instances show the same exactly if they compete for
    /// the same lease, as far as settings tell.
    pub store_url: String,
    /// The length of a lease: what was seen longer ago is not certain any more.
    pub lease_duration: Duration,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Returns the first publication of a process, without any transition, probe and route.
    #[must_use]
    pub fn first(status: Status) -> Self {
        Self {
            status,
            index: 1,
            sequence: 1,
            history: Arc::default(),
            holder_seen: None,
            probes: Vec::new(),
            route: None,
            candidates: None,
            maintenance: None,
        }
    }

    /// Replaces the status, and records when a holder appeared.
    pub fn replace_status(&mut self, status: Status, now: Moment) {
        if self.status.holder != status.holder {
            self.holder_seen = status.holder.is_some().then_some(now);
        }
        self.status = status;
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

    /// Returns since when this instance has been in the state that it is in at `now`; `None` if the
    /// clock alone has changed the state.
    #[must_use]
    pub fn state_since(&self, now: Moment) -> Option<Moment> {
        match self.status.state(now) {
            // `since` counts leader and jeopardy as one.
            State::Jeopardy => {
                let past = self.history.first()?;
                (past.transition.to == State::Jeopardy).then_some(past.at)
            }
            _ => Some(self.status.since),
        }
    }

    /// Returns whether the store has not answered for longer than lease-duration at `now`, so that
    /// nothing last seen in it is certain any more. While the leader notifies this instance, that
    /// counts from when the store is to be read again.
    #[must_use]
    pub fn is_out_of_contact(&self, about: &About, now: Moment) -> bool {
        let last = self.status.store.last_success;
        let allowed = about.lease_duration + self.status.contact_due.unwrap_or_default();
        last.is_none_or(|last| last.elapsed_max(now) > allowed)
    }

    /// Returns whether this instance is a standby at `now` that would lead if the lease were free:
    /// neither reads nor writes of the store have failed for longer than lease-duration, and the election
    /// has not moved to another one.
    #[must_use]
    pub fn can_take_over(&self, about: &About, now: Moment) -> bool {
        let failing = self.status.store.failing_writes.as_ref();
        let writes_fail =
            failing.is_some_and(|it| it.since.elapsed_max(now) > about.lease_duration);
        let is_standby = self.status.state(now) == State::Standby;
        let is_here = self.status.store.moved_to.is_none();
        is_standby && is_here && !writes_fail && !self.is_out_of_contact(about, now)
    }

    /// Returns whether the last result of every probe was a success; true without probes.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.probes.iter().all(|probe| probe.last.as_ref().is_some_and(|last| last.succeeded))
    }

    /// Returns the first health probe that has not succeeded last, in a few words, while this keeps the
    /// instance from competing.
    #[must_use]
    pub fn failing_probe(&self) -> Option<String> {
        if self.status.standing.state() != State::Unhealthy {
            return None;
        }
        let has_failed = |it: &&ProbeState| it.last.as_ref().is_none_or(|last| !last.succeeded);
        let probe = self.probes.iter().find(has_failed)?;
        let result = probe.last.as_ref().map_or("has not run yet", |it| &it.message);
        let words = format!("{}: {result}", probe.probe);
        // The mark of a text that was cut is one more character.
        Some(excerpt(words.into(), LONGEST_NAME - 1).into_owned())
    }

    /// Returns whether role and route agree at `now`; `None` without a route.
    #[must_use]
    pub fn route_agreement(&self, now: Moment) -> Option<Agreement> {
        let role = Judgement::of(&self.status, now).role();
        Some(self.route.as_ref()?.agreement(role, self.status.expired_for(now), now))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::{LeaseView, Standing, StoreHealth};

    pub(super) fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    /// Returns the description of an instance with identity `us` and a lease of 15 s.
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

    /// Returns a standby that the store answered at 100 s.
    pub(super) fn standby(contact_due: Option<Duration>) -> Published {
        Published::first(Status {
            standing: Standing::Standby,
            since: at(0),
            holder: None,
            successor: None,
            hold_off: None,
            workload_term: None,
            released_term: None,
            contact_due,
            lease: LeaseView::default(),
            store: StoreHealth { last_success: Some(at(100)), ..StoreHealth::default() },
            wait: None,
        })
    }

    #[test]
    fn contact_is_lost_a_lease_duration_after_the_store_was_to_be_read() {
        let about = about();
        for (contact_due, last) in [(None, 115), (Some(Duration::from_secs(30)), 145)] {
            let published = standby(contact_due);
            assert!(!published.is_out_of_contact(&about, at(last)), "{contact_due:?}");
            assert!(published.can_take_over(&about, at(last)), "{contact_due:?}");
            assert!(published.is_out_of_contact(&about, at(last + 1)), "{contact_due:?}");
            assert!(!published.can_take_over(&about, at(last + 1)), "{contact_due:?}");
        }
    }

    #[test]
    fn a_standby_of_an_election_that_has_moved_cannot_take_over_and_says_where_it_is() {
        let mut published = standby(None);
        published.status.store.moved_to = Some("etcd://etcd-1/tenure".into());
        assert!(!published.can_take_over(&about(), at(100)));
        let (about, now) = (about(), at(100));
        let document = published.document(&about, now);
        assert_eq!(document.store.moved_to.as_deref(), Some("etcd://etcd-1/tenure"));
        let words = "does not compete: the election has moved to etcd://etcd-1/tenure";
        assert_eq!(document.activity(), words);
    }
}
