//! `tenure status`: shows what one sidecar knows of the election, as a table or as the JSON
//! document. It does not read the store.

use std::process::ExitCode;
use std::time::Duration;

use time::OffsetDateTime;

use super::client::{Sidecar, UrlArgs};
use super::document::{Document, HealthDocument, Heard, Role, RouteDocument, date, time_of_day};
use super::leader::{leader, term};
use super::terminal::{self, Colour, Style, columns, harmless, harmless_json};
use crate::clock::{self, Moment};
use crate::config::Environment;
use crate::status::words::{self, spoken};

/// The sidecar, and the format of the output.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tenure status
  tenure status --url http://10.0.3.7:4040
  tenure status --url unix:/run/orders/tenure.sock --json | jq .holder")]
pub struct Args {
    #[command(flatten)]
    url: UrlArgs,
    /// Print the status document as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the status. Exits with 0 on success, 1 if it could not be had, 2 on a wrong URL.
pub async fn run(args: Args, environment: &Environment) -> ExitCode {
    let sidecar = match Sidecar::of(&args.url, environment) {
        Ok(sidecar) => sidecar,
        Err(fault) => {
            terminal::complain(&fault);
            return ExitCode::from(2);
        }
    };
    match sidecar.status().await {
        Ok(heard) => {
            let text = if args.json {
                format!("{}\n", harmless_json(heard.raw.trim_end()))
            } else {
                table(&heard, clock::now(), Style::of_stdout(environment))
            };
            terminal::print(&text, ExitCode::SUCCESS)
        }
        Err(trouble) => {
            terminal::complain(&trouble.to_string());
            ExitCode::FAILURE
        }
    }
}

/// How many of the last transitions are shown.
const CHANGES: usize = 8;

/// Formats the whole table: facts, candidates, last transitions.
pub(super) fn table(heard: &Heard, now: Moment, style: Style) -> String {
    let mut text = facts(heard, now, style);
    text.push('\n');
    text.push_str(&candidates(heard, now, style));
    if !heard.document.transitions.is_empty() {
        text.push('\n');
        text.push_str(&changes(&heard.document, style));
    }
    text
}

/// Formats one fact a line, each after its label.
fn facts(heard: &Heard, now: Moment, style: Style) -> String {
    let document = &heard.document;
    let remaining = heard.remaining(now);
    let mut rows = vec![
        ("election", harmless(&document.election)),
        ("leader", leader(document, style)),
        ("term", term(document)),
        ("instance", this_one(document, heard.role(now), style)),
    ];
    if let Some(mut since) = since(&document.since, now) {
        // The clock alone may have changed the state, without a transition.
        let last = document.transitions.first().filter(|it| it.to == document.state);
        if let ("jeopardy", Some(began)) = (&*document.state, last) {
            let lasts = ago(&began.at, now).unwrap_or_default();
            since.push_str(&format!(", the last {lasts} in jeopardy"));
        }
        rows.push(("since", since));
    }
    if !remaining.is_zero() {
        rows.push(("valid for", format!("{}, unless renewed", spoken(remaining))));
    }
    let store = &document.store;
    let label = if document.term.is_some() { "renewed" } else { "contacted" };
    let waited = heard.sent.elapsed_max(now);
    let ago = |ms| format!("{} ago", spoken(Duration::from_millis(ms) + waited));
    rows.push((label, store.last_success_ms_ago.map_or("never".to_owned(), ago)));
    rows.push(("store", harmless(&store.kind)));
    let error = match &store.last_error {
        None => "none".to_owned(),
        Some(error) => {
            let times = match store.failures {
                0 | 1 => String::new(),
                failures => format!(" ({failures} failures in a row)"),
            };
            style.paint(Colour::Red, &format!("{}{times}", harmless(error)))
        }
    };
    rows.push(("last error", error));
    if let Some(it) = &document.health {
        rows.push(("health", health(it, style)));
    }
    if let Some(it) = &document.maintenance {
        let words = format!("{} (event {})", it.announcement(), it.event_id);
        rows.push(("machine", style.paint(Colour::Yellow, &harmless(&words))));
    }
    if let Some(it) = &document.route {
        rows.push(("route", route(it, heard.role(now), style)));
    }
    rows.into_iter()
        .map(|(label, value)| {
            format!("{} {value}\n", style.paint(Colour::Dim, &format!("{label:<10}")))
        })
        .collect()
}

fn this_one(document: &Document, role: Role, style: Style) -> String {
    let colour = Colour::of_state(role == Role::Active, &document.state);
    let state = harmless(&document.state);
    let state = style.paint(colour, &format!("{state}, {}", role.as_str()));
    format!("{}: {state}", harmless(&document.identity))
}

/// Formats the health, with the last result of each failing probe.
fn health(health: &HealthDocument<'_>, style: Style) -> String {
    let failing = health.probes.iter().filter(|it| it.well == Some(false)).map(|it| {
        let result = it.said.as_deref().unwrap_or("failed");
        style.paint(Colour::Red, &format!("{}: {}", harmless(&it.probe), harmless(result)))
    });
    let label = if health.well { "healthy" } else { "unhealthy" };
    std::iter::once(label.to_owned()).chain(failing).collect::<Vec<_>>().join("; ")
}

/// Formats what the route reports, and whether that is right for this role.
fn route(route: &RouteDocument<'_>, role: Role, style: Style) -> String {
    let says = route.says.map_or("unknown", Role::as_str);
    let mut text = format!("{} reports {}", harmless(&route.kind), harmless(says));
    if let Some(other) = &route.other {
        text.push_str(&format!(", and active for {}", harmless(other)));
    }
    if !route.agrees {
        let is_wrong = route.says.is_some_and(|it| it != role) || route.other.is_some();
        let fault = if is_wrong { "which is wrong" } else { "which could not be verified" };
        text = style.paint(Colour::Red, &format!("{text}, {fault}"));
    }
    if let Some(error) = &route.last_error {
        text.push_str(&format!("; {}", style.paint(Colour::Red, &harmless(error))));
    }
    text
}

/// Formats the candidates that a sidecar can know of: itself, the holder and the successor.
fn candidates(heard: &Heard, now: Moment, style: Style) -> String {
    let document = &heard.document;
    let head = ["candidate", "role", "term", "left"].map(|it| style.paint(Colour::Dim, it));
    let number = |it: Option<u64>| it.map_or("-".to_owned(), |it| it.to_string());
    let row = |name: &str, role: &str, term, left: Option<Duration>, note: String| {
        let left = left.map_or("-".to_owned(), spoken);
        vec![harmless(name), role.to_owned(), number(term), left, note]
    };
    let role = heard.role(now);
    let left = Some(heard.remaining(now)).filter(|it| !it.is_zero());
    // Work of a drain ends with the drain, and is not protected beyond the lease.
    let drain = document
        .drain_remaining_ms
        .map(|ms| ms.min(document.protected_for_ms.unwrap_or(ms)))
        .map(|ms| Duration::from_millis(ms).saturating_sub(heard.sent.elapsed_max(now)));
    let aside = document.hold_off_remaining_ms.filter(|_| document.state == "standby");
    let does = match aside.map(|ms| spoken(Duration::from_millis(ms))) {
        Some(left) => format!("holds off for {left}; `tenure resume` ends that"),
        None => harmless(&document.activity()),
    };
    let note = format!("this instance {does}");
    let mut rows = vec![head.to_vec()];
    rows.push(row(&document.identity, role.as_str(), document.term, left.or(drain), note));
    // Compared by term: two candidates may have the same identity.
    let other = |term: Option<u64>| document.term.is_none() || document.term != term;
    if let Some(holder) = document.holder.as_ref().filter(|it| other(Some(it.term))) {
        let note =
            holder.address.as_deref().map_or(String::new(), |it| format!("at {}", harmless(it)));
        let role = if holder.stale { "last seen" } else { "holder" };
        rows.push(row(&holder.identity, role, Some(holder.term), None, note));
    }
    if let Some(successor) = &document.successor {
        let hold_off = spoken(Duration::from_millis(successor.hold_off_ms));
        let note = format!("other candidates wait for it, for {hold_off}");
        rows.push(row(&successor.identity, "successor", None, None, note));
    }
    columns(&rows)
}

/// Formats the last transitions of this instance, newest first.
fn changes(document: &Document, style: Style) -> String {
    let head = ["transitions, UTC", "state", "why"].map(|it| style.paint(Colour::Dim, it));
    let mut rows = vec![head.to_vec()];
    for it in document.transitions.iter().take(CHANGES) {
        let at = date(&it.at).map_or_else(|| harmless(&it.at), shown);
        let term = it.term.map(|it| format!(", term {it}")).unwrap_or_default();
        let why = format!("{}{term}", harmless(&words::reason(&it.reason)));
        rows.push(vec![at, harmless(&it.to), why]);
    }
    columns(&rows)
}

/// Formats a UTC date for people.
fn shown(date: OffsetDateTime) -> String {
    format!("{} {}", date.date(), time_of_day(date))
}

/// Formats how long ago a date was; `None` if it is not in the past.
fn ago(text: &str, now: Moment) -> Option<String> {
    Duration::try_from(now.date() - date(text)?).ok().map(spoken)
}

/// Formats a date in UTC, and how long ago it was.
fn since(text: &str, now: Moment) -> Option<String> {
    let date = date(text)?;
    let ago = ago(text, now).map(|it| format!(", {it} ago"));
    Some(format!("{} UTC{}", shown(date), ago.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { colour: false, signs: false };

    fn at(ms: u64) -> Moment {
        let start = Duration::from_secs(1_795_165_200) + Duration::from_millis(ms);
        Moment { boot: start, raw: start, wall: start }
    }

    fn rendered(raw: &str) -> String {
        let heard = Heard {
            document: serde_json::from_str(raw).unwrap(),
            raw: raw.to_owned(),
            sent: at(0),
        };
        table(&heard, at(100), PLAIN)
    }

    #[test]
    fn a_leaders_table_shows_all_facts() {
        let text = rendered(
            r#"{"election":"orders","identity":"web-1","state":"leader","role":"active","term":42,
            "valid_for_ms":8200,"since":"2026-11-20T07:57:48Z","index":17,
            "holder":{"identity":"web-1","address":"10.0.3.7:8080","term":42},
            "store":{"kind":"azure","last_success_ms_ago":412,"failures":0,"last_error":null},
            "transitions":[{"at":"2026-11-20T07:57:48.112Z","from":"activating","to":"leader",
            "reason":"term-written","term":42},{"at":"2026-11-20T07:57:47Z","from":"standby",
            "to":"activating","reason":"acquired","term":null}]}"#,
        );
        assert_eq!(
            text,
            "election   orders\n\
             leader     web-1 at 10.0.3.7:8080, this instance\n\
             term       42\n\
             instance   web-1: leader, active\n\
             since      2026-11-20 07:57:48 UTC, 1h2m ago\n\
             valid for  8.1s, unless renewed\n\
             renewed    0.5s ago\n\
             store      azure\n\
             last error none\n\
             \n\
             candidate  role    term  left\n\
             web-1      active  42    8.1s  this instance leads\n\
             \n\
             transitions, UTC     state       why\n\
             2026-11-20 07:57:48  leader      the term was written, term 42\n\
             2026-11-20 07:57:47  activating  the lease was acquired\n"
        );
    }

    #[test]
    fn a_standbys_table_shows_the_holder_and_the_errors() {
        let text = rendered(
            r#"{"election":"orders","identity":"web-2","state":"standby","role":"passive",
            "term":null,"valid_for_ms":0,"since":"2026-11-20T09:00:00Z","index":3,
            "holder":{"identity":"web-1","address":null,"term":42},
            "store":{"kind":"azure","last_success_ms_ago":null,"failures":3,
            "last_error":"no\nanswer"},"successor":{"identity":"web-3","hold_off_ms":10000},
            "health":{"well":false,"probes":[{"probe":"tcp://db:1","well":false,"said":"re\u001bfused",
            "ms_ago":12},{"probe":"file:/ok","well":true,"said":"fresh","ms_ago":3}]},
            "route":{"kind":"label","says":"active","other":"web-9","agrees":false,"since_ms":9000,
            "last_error":"for\u001bbidden"}}"#,
        );
        for line in [
            "leader     none: web-1 is draining, for a transfer to web-3\n",
            "term       42\n",
            "instance   web-2: standby, passive\n",
            "contacted  never\n",
            "last error no answer (3 failures in a row)\n",
            "health     unhealthy; tcp://db:1: re fused\n",
            "route      label reports active, and active for web-9, which is wrong; for bidden\n",
            "web-2      passive    -     -     this instance is a standby, ready to take over\n",
            "web-1      holder     42    -\n",
            "web-3      successor  -     -     other candidates wait for it, for 10s\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("valid for"));
    }

    #[test]
    fn a_standby_that_holds_off_shows_how_to_end_it() {
        let text = rendered(
            r#"{"identity":"web-1","state":"standby","role":"passive","valid_for_ms":0,"index":1,
            "hold_off_remaining_ms":3540000}"#,
        );
        let note = "this instance holds off for 59m0s; `tenure resume` ends that\n";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn jeopardy_shows_how_long_it_has_lasted() {
        let text = rendered(
            r#"{"identity":"web-1","state":"jeopardy","role":"active","valid_for_ms":9000,"index":1,
            "term":42,"since":"2026-11-20T08:59:35Z","transitions":[{"at":"2026-11-20T08:59:55Z",
            "from":"leader","to":"jeopardy","reason":"renewal-failed","term":42}]}"#,
        );
        let row = "UTC, 25s ago, the last 5.1s in jeopardy\n";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn a_standby_that_cannot_take_over_tells_why() {
        let text = rendered(
            r#"{"identity":"web-2","state":"standby","role":"passive","valid_for_ms":0,"index":1,
            "can_take_over":false,"store":{"last_error":"read-only"}}"#,
        );
        let note = "this instance is a standby, but cannot take over: read-only\n";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn a_drain_shows_the_time_left() {
        let text = rendered(
            r#"{"identity":"web-1","state":"draining","role":"passive","valid_for_ms":0,"index":1,
            "term":42,"holder":{"identity":"web-1","term":42},"drain_remaining_ms":4300}"#,
        );
        let row =
            "web-1      passive  42    4.2s  this instance is draining, then releases the lease\n";
        assert!(text.contains(row), "{text}");
        assert_eq!(text.matches("web-1").count(), 3, "holder and itself are one: {text}");
        assert!(text.contains("leader     none: web-1, this instance, is draining\n"), "{text}");
    }

    #[test]
    fn a_missing_leader_is_shown() {
        let text = rendered(r#"{"state":"starting","role":"passive","valid_for_ms":0,"index":1}"#);
        assert!(text.contains("no leader known") && text.contains("none known"), "{text}");
    }
}
