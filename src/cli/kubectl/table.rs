//! How elections and their candidates are shown: one table, or one JSON document.

use serde_json::{Value, json};

use super::election::{Answer, Election, Row, Standing, Verdict};
use crate::cli::terminal::{Colour, Style, columns, harmless, harmless_json};
use crate::clock::Moment;
use crate::status::words::spoken;

/// Formats one table of all candidates, then a line for each election that says who leads.
pub(super) fn table(
    elections: &[Election],
    is_everywhere: bool,
    now: Moment,
    style: Style,
) -> String {
    let mut head = vec!["election", "pod", "role", "state", "term", "left", "note"];
    if is_everywhere {
        head.insert(0, "namespace");
    }
    let mut rows: Vec<Vec<String>> =
        vec![head.iter().map(|it| style.paint(Colour::Dim, it)).collect()];
    let mut summaries = String::new();
    for election in elections {
        let mut place = vec![election.title()];
        if is_everywhere {
            place.insert(0, harmless(&election.namespace));
        }
        rows.extend(
            election
                .rows
                .iter()
                .map(|row| place.iter().cloned().chain(row.cells(now, style)).collect()),
        );
        let summary = election.summary(now);
        let summary = match election.verdict(now) {
            Verdict::One(_) => summary,
            Verdict::Nobody | Verdict::Unknown => style.paint(Colour::Yellow, &summary),
            Verdict::Several(_) => style.paint(Colour::Red, &summary),
        };
        summaries += &format!("{}: {summary}\n", place.join("/"));
    }
    format!("{}\n{summaries}", columns(&rows))
}

/// Formats all elections as one JSON document.
pub(super) fn json(elections: &[Election], now: Moment) -> String {
    let elections: Vec<Value> = elections.iter().map(|it| it.json(now)).collect();
    let text = format!("{:#}\n", json!({ "elections": elections }));
    harmless_json(&text)
}

impl Election {
    fn json(&self, now: Moment) -> Value {
        let (verdict, leader) = match self.verdict(now) {
            Verdict::One(leader) => ("one", Some(&leader.candidate.pod)),
            Verdict::Nobody => ("none", None),
            Verdict::Unknown => ("unknown", None),
            Verdict::Several(_) => ("several", None),
        };
        json!({
            "namespace": self.namespace,
            "election": self.name,
            "leaders": verdict,
            "leader": leader,
            "summary": self.summary(now),
            "candidates": self.rows.iter().map(|it| it.json(now)).collect::<Vec<_>>(),
        })
    }
}

impl Row {
    fn cells(&self, now: Moment, style: Style) -> Vec<String> {
        let dash = || "-".to_owned();
        let standing = self.standing(now);
        let (role, colour) = match standing {
            Standing::Active => ("active", Colour::Green),
            Standing::Passive => ("passive", Colour::Dim),
            Standing::NotRunning => ("-", Colour::Yellow),
            Standing::Unknown => ("unknown", Colour::Red),
        };
        let document = self.document();
        let colour = match document {
            Some(it) if standing != Standing::Unknown => {
                Colour::of_state(standing == Standing::Active, &it.state)
            }
            _ => colour,
        };
        let left = match &self.answer {
            Answer::Status(heard) => Some(heard.remaining(now)).filter(|it| !it.is_zero()),
            _ => None,
        };
        vec![
            harmless(&self.candidate.pod),
            style.paint(colour, role),
            document.map_or_else(dash, |it| harmless(&it.state)),
            document.and_then(|it| it.term).map_or_else(dash, |it| it.to_string()),
            left.map_or_else(dash, spoken),
            harmless(&self.note(now)),
        ]
    }

    fn json(&self, now: Moment) -> Value {
        let role = match self.standing(now) {
            Standing::Active => "active",
            Standing::Passive => "passive",
            Standing::NotRunning => "not-running",
            Standing::Unknown => "unknown",
        };
        let (status, error, remaining) = match &self.answer {
            Answer::Status(heard) => {
                let status: Value = serde_json::from_str(&heard.raw).unwrap_or_default();
                (status, None, u64::try_from(heard.remaining(now).as_millis()).ok())
            }
            Answer::NotRunning(why) | Answer::Failed(why) => (Value::Null, Some(why), None),
        };
        json!({
            "pod": self.candidate.pod,
            "role": role,
            "remaining_ms": remaining,
            "error": error,
            "status": status,
        })
    }
}
