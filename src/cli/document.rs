//! The status document as the subcommands read it, and its validity: an answer is valid for as long
//! as it says, counted from the sending of the request.

use std::time::Duration;

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use crate::clock::Moment;
pub(super) use crate::status::document::{
    HealthDocument, HolderDocument, RouteDocument, TransitionDocument,
};
pub(super) use crate::status::{CandidateDocument, Role};

/// A status document that was received.
pub(super) type Document = crate::status::document::Document<'static>;

/// Parses a date of the document, and converts it to UTC; `None` if it has no such year there.
pub(super) fn date(text: &str) -> Option<OffsetDateTime> {
    let date = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    date.checked_to_offset(UtcOffset::UTC)
}

/// Formats the time of a date.
pub(super) fn time_of_day(date: OffsetDateTime) -> String {
    let (hour, minute, second) = date.to_hms();
    format!("{hour:02}:{minute:02}:{second:02}")
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
    fn a_date_is_converted_to_utc_where_it_has_a_year() {
        let shown = |text| date(text).map(|it| it.to_string());
        let first = shown("2026-11-20T00:30:00+01:00").unwrap();
        assert!(first.starts_with("2026-11-19 23:30:00"), "{first}");
        for beyond in ["9999-12-31T23:59:58-01:00", "yesterday", ""] {
            assert_eq!(shown(beyond), None);
        }
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
