//! The table of all candidates of the election: the leader knows who is connected to its stream, and sends
//! the same table to all of them. In the status document it is judged at one instant: what was not
//! heard of for a lease-duration has no known role.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{About, HolderJudgement, Judgement, Published, Role, whole_ms};
use crate::clock::Moment;
use crate::election::{Ending, Holder, Reason, State};

/// The table of candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateTable {
    /// When this instance made it as the leader, received it from the leader, or last heard of a stream
    /// that has ended. The times of contacts in it count up to here.
    pub at: Moment,
    /// Whether it is from this leader, or from a stream that is still open; otherwise it is the last
    /// one known.
    pub is_current: bool,
    /// All candidates, the leader first, then in the order in which they are next in line. Empty until
    /// the first contact with a leader.
    pub candidates: Arc<[CandidateEntry]>,
}

/// One candidate, in the table and in the leader's stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateEntry {
    /// Its identity, for people.
    pub identity: String,
    /// Its unique id.
    pub instance: String,
    /// The address of its service, if it has one.
    #[serde(default)]
    pub address: Option<String>,
    /// Its zone, if it has one.
    #[serde(default)]
    pub zone: Option<String>,
    /// Its priority, 0 to 100.
    pub priority: u8,
    /// Its state, one of [`State`]'s words.
    pub state: String,
    /// The health probe that keeps it from competing, in words; `None` if none does.
    #[serde(default)]
    pub failing: Option<String>,
    /// Whether it is the leader, or connected to it.
    pub connected: bool,
    /// How long ago it last contacted the leader, in milliseconds; 0 while it is connected.
    pub contact_ms_ago: u64,
    /// Whether it is next in line.
    pub heir: bool,
    /// Whether it was connected and is gone.
    #[serde(default)]
    pub gone: bool,
}

/// One candidate in the status document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CandidateDocument<'a> {
    /// Its identity, for people.
    #[serde(default)]
    pub identity: Cow<'a, str>,
    /// Its unique id.
    #[serde(default)]
    pub instance: Cow<'a, str>,
    /// Active or passive, as far as is known; `null` if the last contact is longer than lease-duration
    /// ago, or if it reports a leadership that the store does not confirm.
    #[serde(default)]
    pub role: Option<Role>,
    /// Its state at the last contact.
    #[serde(default)]
    pub state: Cow<'a, str>,
    /// The health probe that keeps it from competing, in words; `null` if none does.
    #[serde(default)]
    pub failing: Option<Cow<'a, str>>,
    /// Its zone, if it has one.
    #[serde(default)]
    pub zone: Option<Cow<'a, str>>,
    /// Its priority, 0 to 100; `null` before the leader has reported it.
    #[serde(default)]
    pub priority: Option<u8>,
    /// The address of its service, if it has one.
    #[serde(default)]
    pub address: Option<Cow<'a, str>>,
    /// Whether it is the leader, or connected to it.
    #[serde(default)]
    pub connected: bool,
    /// How long ago it last contacted the leader; 0 while it is connected, `null` if it never has.
    #[serde(default)]
    pub contact_ms_ago: Option<u64>,
    /// Whether it is next in line.
    #[serde(default)]
    pub heir: bool,
    /// Whether it was connected and is gone: its last contact tells since when.
    #[serde(default)]
    pub gone: bool,
    /// Of the holder: whether its next renewal is late, so that its role is not known.
    #[serde(default)]
    pub overdue: bool,
    /// Of the holder: how long ago it last renewed; `null` if unknown.
    #[serde(default)]
    pub renewed_ms_ago: Option<u64>,
    /// Of the holder: the time within which its lease ends, if no renewal follows; `null` if unknown.
    #[serde(default)]
    pub lease_ends_within_ms: Option<u64>,
}

impl CandidateTable {
    /// Returns whether both tables differ in what a reader should be told at once: anything but the times of
    /// contacts.
    #[must_use]
    pub fn differs(&self, other: &Self) -> bool {
        let timeless =
            |entry: &CandidateEntry| CandidateEntry { contact_ms_ago: 0, ..entry.clone() };
        self.is_current != other.is_current
            || !self.candidates.iter().map(timeless).eq(other.candidates.iter().map(timeless))
    }

    /// Returns the table as the last one known, of a stream that has ended and was last heard of at
    /// `heard`.
    #[must_use]
    pub fn ended(&self, heard: Moment) -> Self {
        let entry = |entry: &CandidateEntry| CandidateEntry {
            contact_ms_ago: self.contact_ms_ago(entry, heard),
            ..entry.clone()
        };
        Self {
            at: heard,
            is_current: false,
            candidates: self.candidates.iter().map(entry).collect(),
        }
    }

    /// Returns how long before `now` a candidate last contacted the leader.
    pub(crate) fn contact_ms_ago(&self, entry: &CandidateEntry, now: Moment) -> u64 {
        match entry.connected && self.is_current {
            true => 0,
            false => entry.contact_ms_ago.saturating_add(whole_ms(self.at.elapsed_max(now))),
        }
    }
}

impl Published {
    /// Returns the candidates as they are known at `now`, the active one first; `None` without peers.
    ///
    /// This instance is always among them, by its own status: the leader may not have reported it yet.
    pub(super) fn candidate_documents<'a>(
        &'a self,
        about: &'a About,
        now: Moment,
    ) -> Option<Vec<CandidateDocument<'a>>> {
        let table = self.candidates.as_ref()?;
        let judgement = Judgement::of(&self.status, now);
        let mut documents: Vec<_> =
            table.candidates.iter().map(|it| self.candidate(table, it, about, now)).collect();
        let own = documents.iter().position(|it| it.instance == about.instance);
        let own = own.unwrap_or_else(|| {
            documents.push(CandidateDocument::first(about));
            documents.len() - 1
        });
        let own = &mut documents[own];
        own.role = Some(judgement.role());
        own.state = judgement.state.as_str().into();
        own.failing = self.failing_probe().map(Cow::from);
        if judgement.role() == Role::Active {
            (own.connected, own.contact_ms_ago) = (true, Some(0));
        }
        // The table may be of an earlier leader; the order of the line stays.
        documents.sort_by_key(|it| it.role != Some(Role::Active));
        Some(documents)
    }

    /// Returns one candidate, by the table alone and by what the store says of the holder.
    fn candidate<'a>(
        &self,
        table: &CandidateTable,
        entry: &'a CandidateEntry,
        about: &About,
        now: Moment,
    ) -> CandidateDocument<'a> {
        let ago = table.contact_ms_ago(entry, now);
        let leads = [State::Leader, State::Jeopardy].iter().any(|it| it.as_str() == entry.state);
        let holder = self.status.holder.as_ref();
        let holder = holder.filter(|it| it.candidate.instance == entry.instance);
        let judged = holder.and_then(|_| HolderJudgement::of(&self.status, now));
        let ended = self.ended(entry).filter(|_| leads);
        let gone = entry.gone;
        let role = match leads {
            _ if gone || ago > whole_ms(about.lease_duration) => None,
            true if ended.is_some() => Some(Role::Passive),
            true => judged.filter(HolderJudgement::is_leader).map(|_| Role::Active),
            false => Some(Role::Passive),
        };
        CandidateDocument {
            identity: entry.identity.as_str().into(),
            instance: entry.instance.as_str().into(),
            role,
            state: ended.map_or(Cow::from(&entry.state), |it| it.as_str().into()),
            failing: entry.failing.as_deref().map(Cow::from),
            zone: entry.zone.as_deref().map(Cow::from),
            priority: Some(entry.priority),
            address: entry.address.as_deref().map(Cow::from),
            connected: entry.connected && table.is_current,
            contact_ms_ago: Some(ago),
            heir: entry.heir && !gone,
            gone,
            overdue: judged.is_some_and(|it| it.overdue || it.stale),
            renewed_ms_ago: judged.and_then(|it| it.renewed).map(whole_ms),
            lease_ends_within_ms: judged.and_then(|it| it.ends_within).map(whole_ms),
        }
    }

    /// Returns the state of a candidate that has told that its leadership is over, when no later state of it
    /// is known.
    fn ended(&self, entry: &CandidateEntry) -> Option<State> {
        let last = self.status.lease.last_holder.as_ref().map(|it| (&it.holder, it.ending));
        let present = self.status.holder.as_ref().map(|it| (it, self.status.lease.told()));
        let of_entry = |it: &(&Holder, Option<Ending>)| it.0.candidate.instance == entry.instance;
        match present.filter(of_entry).or(last.filter(of_entry))?.1? {
            Ending::Told(Reason::Resigned) => Some(State::Stopped),
            Ending::Told(Reason::Paused) => Some(State::Paused),
            Ending::Told(Reason::Unhealthy | Reason::Maintenance) => Some(State::Unhealthy),
            Ending::Told(_) | Ending::Released => Some(State::Standby),
            Ending::Expired => None,
        }
    }
}

impl<'a> CandidateDocument<'a> {
    /// Returns this instance, before the leader has reported it.
    fn first(about: &'a About) -> Self {
        Self {
            identity: about.identity.as_str().into(),
            instance: about.instance.as_str().into(),
            role: None,
            state: Cow::default(),
            failing: None,
            zone: None,
            priority: None,
            address: None,
            connected: false,
            contact_ms_ago: None,
            heir: false,
            gone: false,
            overdue: false,
            renewed_ms_ago: None,
            lease_ends_within_ms: None,
        }
    }
}
