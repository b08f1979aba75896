//! `tenure status`: shows what one sidecar knows of the election, as a table or as the JSON
//! document. It does not read the store.

use std::process::ExitCode;
use std::time::Duration;

use time::OffsetDateTime;

use super::client::{Sidecar, UrlArgs};
use super::document::{Document, Heard, date, time_of_day};
use super::terminal::{self, Colour, Output, Style, columns, harmless, harmless_json};
use crate::clock::{self, Moment};
use crate::config::Environment;
use crate::status::words::{self, spoken};

mod candidates;
mod facts;

use candidates::candidates;
use facts::facts;

/// The sidecar, and the format of the output.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
With --peers, the table shows every candidate, whichever instance is asked: the leader first, then in
the order in which they are next in line. A candidate without contact for lease-duration has the role
unknown. Without peers, an instance sees only the lease: itself, the holder and a named successor.

Examples:
  tenure status
  tenure status --url http://10.0.3.7:4040
  tenure status -o json | jq -r '.candidates[] | select(.heir).identity'   who is next in line
  tenure status --url unix:/run/orders/tenure.sock -o json | jq .holder")]
pub struct Args {
    #[command(flatten)]
    url: UrlArgs,
    /// The format of the output; json is the status document
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
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
            let text = if args.json || args.output == Output::Json {
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

/// Formats the last transitions of this instance, newest first.
fn changes(document: &Document, style: Style) -> String {
    let head = ["transitions, UTC", "state", "why"].map(|it| style.paint(Colour::Dim, it));
    let mut rows = vec![head.to_vec()];
    for it in document.transitions.iter().take(CHANGES) {
        let at = date(&it.at).map_or_else(|| harmless(&it.at), shown);
        let term = it.term.map(|it| format!(", term {it}")).unwrap_or_default();
        let why = words::why(&it.from, &it.to, &it.reason);
        let why = format!("{}{term}", harmless(&why));
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
             candidate  role    state   term  left  note\n\
             web-1      active  leader  42    8.1s  this instance leads\n\
             Other candidates are not known here: without peers, an instance sees only the lease.\n\
             With --peers, this table shows every candidate, and who is next in line.\n\
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
            "warnings":["mend\u001bthis"],"health":{"well":false,"probes":[{"probe":"tcp://db:1","well":false,"said":"re\u001bfused",
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
            "warning    mend this\n",
            "health     unhealthy; tcp://db:1: re fused\n",
            "route      label reports active, and active for web-9, which is wrong; for bidden\n",
            "web-2      passive    standby  -     -     this instance is a standby; requests to the store fail: no answer\n",
            "web-1      holder     -        42    -\n",
            "web-3      successor  -        -     -     other candidates wait for it, for 10s\n",
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
        let note =
            "this instance is a standby and holds off for 59m0s; `tenure resume` ends that\n";
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
        let row = "web-1      passive  draining  42    4.2s  this instance is draining, then releases the \
                   lease\n";
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
