//! The health probes in the status document. Whether the instance competes is part of the state
//! instead.

use serde::Serialize;

use super::probe_state::{Board, Entry};
use crate::clock::Moment;

/// The health probes in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct HealthDocument {
    /// Whether the last result of every probe was a success.
    pub well: bool,
    /// Each probe, in the order of the settings.
    pub probes: Vec<ProbeDocument>,
}

/// One probe in the status document.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeDocument {
    /// The probe as configured, without credentials.
    pub probe: String,
    /// Whether its last result was a success; `null` before the first.
    pub well: Option<bool>,
    /// That result in words.
    pub said: Option<String>,
    /// The time since that result.
    pub ms_ago: Option<u64>,
}

impl HealthDocument {
    /// Reads a board at `now`; returns `None` if there are no probes.
    #[must_use]
    pub fn of(board: &Board, now: Moment) -> Option<Self> {
        let entries = board.entries();
        if entries.is_empty() {
            return None;
        }
        let well = entries.iter().all(|it| it.last.as_ref().is_some_and(|it| it.well));
        let probes = entries.into_iter().map(|it| ProbeDocument::of(it, now)).collect();
        Some(Self { well, probes })
    }
}

impl ProbeDocument {
    fn of(Entry { probe, last }: Entry, now: Moment) -> Self {
        let Some(last) = last else {
            return Self { probe, well: None, said: None, ms_ago: None };
        };
        let ago = last.at.elapsed_max(now).as_millis();
        let ms_ago = Some(u64::try_from(ago).unwrap_or(u64::MAX));
        Self { probe, well: Some(last.well), said: Some(last.words), ms_ago }
    }
}
