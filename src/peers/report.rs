//! What a candidate says of itself to its peers.

use std::time::Duration;

use crate::clock::Moment;
use crate::config::Rank;
use crate::election::State;
use crate::status::{About, CandidateEntry, Published, whole_ms};

/// What a candidate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// The identity, for people.
    pub(super) identity: String,
    /// The unique id.
    pub(super) instance: String,
    /// The address of the service.
    pub(super) address: Option<String>,
    /// The zone.
    pub(super) zone: Option<String>,
    /// The priority, 0 to 100.
    pub(super) priority: u8,
    /// The state.
    pub(super) state: State,
    /// The failing health probe in words, while the state is unhealthy.
    pub(super) failing: Option<String>,
    /// Whether it lets others lead after a step-down.
    pub(super) holds_off: bool,
}

/// What does not change in the report of this instance.
#[derive(Clone, Debug)]
pub(super) struct Reporter {
    pub(super) about: About,
    pub(super) address: Option<String>,
    pub(super) rank: Rank,
}

impl Reporter {
    /// Returns the report at `now`.
    pub(super) fn report(&self, published: &Published, now: Moment) -> Report {
        Report {
            identity: self.about.identity.clone(),
            instance: self.about.instance.clone(),
            address: self.address.clone(),
            zone: self.rank.zone.clone(),
            priority: self.rank.priority,
            state: published.status.state(now),
            failing: published.failing_probe(),
            holds_off: published.status.hold_off.is_some_and(|it| !it.remaining(now).is_zero()),
        }
    }
}

impl Report {
    /// Returns whether it would lead if the lease were free.
    pub(super) fn is_eligible(&self) -> bool {
        self.state == State::Standby && !self.holds_off
    }

    /// Returns the report of a line of the table; `None` for a state that this version does not know.
    pub(super) fn of(entry: &CandidateEntry) -> Option<Self> {
        Some(Self {
            identity: entry.identity.clone(),
            instance: entry.instance.clone(),
            address: entry.address.clone(),
            zone: entry.zone.clone(),
            priority: entry.priority,
            state: State::ALL.into_iter().find(|it| it.as_str() == entry.state)?,
            failing: entry.failing.clone(),
            holds_off: false,
        })
    }

    /// Returns its line of the table; it was last contacted before `silent_for`, or is connected.
    pub(super) fn entry(&self, silent_for: Option<Duration>, is_heir: bool) -> CandidateEntry {
        CandidateEntry {
            identity: self.identity.clone(),
            instance: self.instance.clone(),
            address: self.address.clone(),
            zone: self.zone.clone(),
            priority: self.priority,
            state: self.state.as_str().to_owned(),
            failing: self.failing.clone(),
            connected: silent_for.is_none(),
            contact_ms_ago: silent_for.map_or(0, whole_ms),
            heir: is_heir,
            gone: silent_for.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{at, published};
    use super::*;
    use crate::election::Standing;
    use crate::lease::text::is_name;
    use crate::status::{ProbeResult, ProbeState};

    fn with(standing: Standing, probes: Vec<ProbeState>) -> Published {
        Published { probes, ..published(standing) }
    }

    fn probe(succeeded: bool, message: &str) -> ProbeState {
        let last = Some(ProbeResult { succeeded, message: message.to_owned(), at: at(0) });
        ProbeState { probe: "http://127.0.0.1:8080/healthz".to_owned(), last }
    }

    #[test]
    fn the_probe_that_keeps_a_candidate_from_competing_is_named_in_a_few_words() {
        let all = || vec![probe(true, "200"), probe(false, "503"), probe(false, "refused")];
        let found = with(Standing::Unhealthy, all()).failing_probe();
        assert_eq!(found.as_deref(), Some("http://127.0.0.1:8080/healthz: 503"));
        assert_eq!(with(Standing::Standby, all()).failing_probe(), None);
        assert_eq!(with(Standing::Unhealthy, vec![probe(true, "200")]).failing_probe(), None);
        let found =
            with(Standing::Unhealthy, vec![probe(false, &"x\n".repeat(200))]).failing_probe();
        assert!(is_name(&found.unwrap()));
        let new = ProbeState { last: None, ..probe(true, "") };
        let found = with(Standing::Unhealthy, vec![new]).failing_probe().unwrap();
        assert!(found.ends_with("has not run yet"), "{found}");
    }
}
