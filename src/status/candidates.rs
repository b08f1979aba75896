//! The table of all candidates of the election: the leader knows who is connected to its stream, and sends
//! the same table to all of them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Moment;

/// The table of candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateTable {
    /// When this instance made it as the leader, or received it from the leader.
    pub at: Moment,
    /// Whether it is from this leader, or from a stream that is still open; otherwise it is the last
    /// one known.
    pub is_current: bool,
    /// All candidates, the leader first, then in the order in which they are next in line.
    pub candidates: Arc<[CandidateEntry]>,
}

/// One candidate, in the table, in the leader's stream and in the status document.
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
    /// Its state, one of [`State`](crate::election::State)'s words.
    pub state: String,
    /// The failing health probe in words; `None` if it is healthy, or has no probe.
    #[serde(default)]
    pub failing: Option<String>,
    /// Whether it is the leader, or connected to it.
    pub connected: bool,
    /// How long ago it last contacted the leader, in milliseconds; 0 while it is connected.
    pub contact_ms_ago: u64,
    /// Whether it is next in line.
    pub heir: bool,
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
}
