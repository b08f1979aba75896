//! Deserializes the status document, as far as the subcommands use it, and judges its validity.
//!
//! An answer is valid for as long as it says, counted from the sending of the request.

use std::time::Duration;

use serde::Deserialize;
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use crate::clock::Moment;

/// Active or passive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// It leads.
    Active,
    /// It does not.
    Passive,
}

impl Role {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }
}

/// The status document. Fields that are not needed to judge it may be missing, so that one version
/// of Tenure can read the document of another.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Document {
    pub(super) role: Role,
    pub(super) state: String,
    pub(super) valid_for_ms: u64,
    pub(super) index: u64,
    #[serde(default)]
    pub(super) election: String,
    #[serde(default)]
    pub(super) identity: String,
    #[serde(default)]
    pub(super) instance: String,
    #[serde(default)]
    pub(super) term: Option<u64>,
    #[serde(default)]
    pub(super) since: Option<String>,
    #[serde(default)]
    pub(super) holder: Option<Holder>,
    #[serde(default)]
    pub(super) store: Option<Store>,
    #[serde(default)]
    pub(super) drain_remaining_ms: Option<u64>,
    #[serde(default)]
    pub(super) successor: Option<Successor>,
    #[serde(default)]
    pub(super) hold_off_remaining_ms: Option<u64>,
    #[serde(default)]
    pub(super) health: Option<Health>,
    #[serde(default)]
    pub(super) route: Option<Route>,
    /// The last state transitions, newest first.
    #[serde(default)]
    pub(super) transitions: Vec<Transition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Holder {
    pub(super) identity: String,
    #[serde(default)]
    pub(super) address: Option<String>,
    #[serde(default)]
    pub(super) term: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Store {
    pub(super) kind: String,
    #[serde(default)]
    pub(super) last_success_ms_ago: Option<u64>,
    #[serde(default)]
    pub(super) failures: u64,
    #[serde(default)]
    pub(super) last_error: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Successor {
    pub(super) identity: String,
    #[serde(default)]
    pub(super) hold_off_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Health {
    pub(super) well: bool,
    #[serde(default)]
    pub(super) probes: Vec<Probe>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Route {
    pub(super) agrees: bool,
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) says: Option<String>,
    #[serde(default)]
    pub(super) other: Option<String>,
    #[serde(default)]
    pub(super) last_error: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Probe {
    pub(super) probe: String,
    #[serde(default)]
    pub(super) well: Option<bool>,
    #[serde(default)]
    pub(super) said: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Transition {
    pub(super) at: String,
    pub(super) to: String,
    pub(super) reason: String,
    #[serde(default)]
    pub(super) from: String,
    #[serde(default)]
    pub(super) term: Option<u64>,
}

/// Parses a date of the document, and converts it to UTC.
pub(super) fn date(text: &str) -> Option<OffsetDateTime> {
    let date = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    Some(date.to_offset(UtcOffset::UTC))
}

/// A status document with the time at which it was requested.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) document: Document,
    /// The document as it was received.
    pub(super) raw: String,
    /// When the request was sent.
    pub(super) sent: Moment,
}

impl Heard {
    /// Returns for how long after `now` the instance is known to lead, counted from the sending of
    /// the request; zero if it is passive or if the clocks have jumped.
    pub(super) fn remaining(&self, now: Moment) -> Duration {
        if self.document.role == Role::Passive || self.sent.jumped(now) {
            return Duration::ZERO;
        }
        let valid = Duration::from_millis(self.document.valid_for_ms);
        valid.saturating_sub(self.sent.elapsed_max(now))
    }

    /// Returns the role at `now`.
    pub(super) fn role(&self, now: Moment) -> Role {
        if self.remaining(now).is_zero() { Role::Passive } else { Role::Active }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(role: &str, valid_for_ms: u64) -> Heard {
        let raw = format!(
            r#"{{"role":"{role}","state":"leader","valid_for_ms":{valid_for_ms},"index":1}}"#
        );
        let start = Duration::from_secs(100);
        let sent = Moment { boot: start, raw: start, wall: start };
        Heard { document: serde_json::from_str(&raw).unwrap(), raw, sent }
    }

    fn later(of: Moment, ms: u64) -> Moment {
        let ms = Duration::from_millis(ms);
        Moment { boot: of.boot + ms, raw: of.raw + ms, wall: of.wall + ms }
    }

    #[test]
    fn an_answer_counts_from_the_sending_of_its_question() {
        let it = heard("active", 1_000);
        assert_eq!(it.remaining(later(it.sent, 400)), Duration::from_millis(600));
        assert_eq!(it.role(later(it.sent, 999)), Role::Active);
        assert_eq!(it.role(later(it.sent, 1_000)), Role::Passive);
    }

    #[test]
    fn passive_has_nothing_left_whatever_else_it_says() {
        let it = heard("passive", 1_000);
        assert_eq!(it.remaining(it.sent), Duration::ZERO);
    }

    #[test]
    fn a_clock_jump_ends_the_validity_of_a_response() {
        let it = heard("active", 60_000);
        let mut now = later(it.sent, 10);
        now.wall += Duration::from_secs(5);
        assert_eq!(it.role(now), Role::Passive);
    }
}
