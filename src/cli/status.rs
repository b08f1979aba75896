//! `tenure status`: who leads, as a table for people or as the document for programs.
//!
//! What it does not do: it asks the store nothing. It tells what one sidecar knows.

use std::process::ExitCode;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::client::{Sidecar, UrlArgs};
use super::document::{Document, Heard, Role};
use super::terminal::{self, Colour, Style, harmless};
use crate::clock::{self, Moment};
use crate::config::Environment;
use crate::publish::words::spoken;

/// Whom to ask, and how to show the answer.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tenure status
  tenure status --url http://10.0.3.7:4040
  tenure status --url unix:/run/orders/tenure.sock --json | jq .holder")]
pub struct Args {
    #[command(flatten)]
    url: UrlArgs,
    /// Print the status document instead
    #[arg(long)]
    json: bool,
}

/// Prints the status. 0 when it could be had, else 1; 2 when the URL is none.
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
                format!("{}\n", heard.raw.trim_end())
            } else {
                table(&heard, clock::now(), Style::of_stdout(environment))
            };
            let _ = terminal::print(&text);
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            terminal::complain(&trouble.to_string());
            ExitCode::FAILURE
        }
    }
}

/// The table: one fact a line, the label first.
fn table(heard: &Heard, now: Moment, style: Style) -> String {
    let document = &heard.document;
    let remaining = heard.remaining(now);
    let mut rows = vec![
        ("election", harmless(&document.election)),
        ("leader", leader(document, style)),
        ("term", term(document)),
        ("this one", this_one(document, heard.role(now), style)),
    ];
    if let Some(since) = document.since.as_deref().and_then(|it| since(it, now)) {
        rows.push(("since", since));
    }
    if !remaining.is_zero() {
        rows.push(("valid for", format!("{}, unless renewed before", spoken(remaining))));
    }
    if let Some(store) = &document.store {
        let label = if document.term.is_some() { "renewed" } else { "heard" };
        let waited = heard.sent.elapsed_max(now);
        let ago = |ms| format!("{} ago", spoken(Duration::from_millis(ms) + waited));
        rows.push((label, store.last_success_ms_ago.map_or("never yet".to_owned(), ago)));
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
    }
    rows.into_iter()
        .map(|(label, value)| {
            format!("{} {value}\n", style.paint(Colour::Dim, &format!("{label:<10}")))
        })
        .collect()
}

fn leader(document: &Document, style: Style) -> String {
    let Some(holder) = &document.holder else {
        return style.paint(Colour::Yellow, "nobody that we know of");
    };
    let mut text = harmless(&holder.identity);
    if let Some(address) = &holder.address {
        text.push_str(&format!(" at {}", harmless(address)));
    }
    // By the term: two candidates may bear one identity.
    if document.term.is_some() && document.term == holder.term {
        text.push_str(", this one");
    }
    text
}

fn term(document: &Document) -> String {
    let term = document.term.or(document.holder.as_ref().and_then(|it| it.term));
    term.map_or("none yet".to_owned(), |it| it.to_string())
}

fn this_one(document: &Document, role: Role, style: Style) -> String {
    let colour = match (role, document.state.as_str()) {
        (Role::Active, "leader") => Colour::Green,
        (Role::Active, _) | (_, "jeopardy" | "starting" | "activating" | "unhealthy") => {
            Colour::Yellow
        }
        (Role::Passive, _) => Colour::Dim,
    };
    let state = harmless(&document.state);
    let state = style.paint(colour, &format!("{state}, {}", role.as_str()));
    format!("{}: {state}", harmless(&document.identity))
}

/// A date in UTC, and how long ago that is.
fn since(text: &str, now: Moment) -> Option<String> {
    let date = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let utc = date.to_offset(time::UtcOffset::UTC);
    let (hour, minute, second) = utc.to_hms();
    let shown = format!("{} {hour:02}:{minute:02}:{second:02}", utc.date());
    let ago = Duration::try_from(now.date() - date).ok().map(|it| format!(", {} ago", spoken(it)));
    Some(format!("{shown} UTC{}", ago.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { colour: false, signs: false };

    fn at(ms: u64) -> Moment {
        let start = Duration::from_secs(1_795_165_200) + Duration::from_millis(ms);
        Moment { boot: start, raw: start, wall: start }
    }

    fn shown(raw: &str) -> String {
        let heard = Heard {
            document: serde_json::from_str(raw).unwrap(),
            raw: raw.to_owned(),
            sent: at(0),
        };
        table(&heard, at(100), PLAIN)
    }

    #[test]
    fn a_leaders_table_tells_everything_at_a_glance() {
        let text = shown(
            r#"{"election":"orders","identity":"web-1","state":"leader","role":"active","term":42,
            "valid_for_ms":8200,"since":"2026-11-20T07:57:48Z","index":17,
            "holder":{"identity":"web-1","address":"10.0.3.7:8080","term":42},
            "store":{"kind":"azure","last_success_ms_ago":412,"failures":0,"last_error":null}}"#,
        );
        assert_eq!(
            text,
            "election   orders\n\
             leader     web-1 at 10.0.3.7:8080, this one\n\
             term       42\n\
             this one   web-1: leader, active\n\
             since      2026-11-20 07:57:48 UTC, 1h2m ago\n\
             valid for  8.1s, unless renewed before\n\
             renewed    0.5s ago\n\
             store      azure\n\
             last error none\n"
        );
    }

    #[test]
    fn a_standby_tells_whom_it_follows_and_what_went_wrong() {
        let text = shown(
            r#"{"election":"orders","identity":"web-2","state":"standby","role":"passive",
            "term":null,"valid_for_ms":0,"since":"2026-11-20T09:00:00Z","index":3,
            "holder":{"identity":"web-1","address":null,"term":42},
            "store":{"kind":"azure","last_success_ms_ago":null,"failures":3,
            "last_error":"no\nanswer"}}"#,
        );
        for line in [
            "leader     web-1\n",
            "term       42\n",
            "this one   web-2: standby, passive\n",
            "heard      never yet\n",
            "last error no answer (3 failures in a row)\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("valid for"));
    }

    #[test]
    fn nobody_leading_is_said_in_words() {
        let text = shown(r#"{"state":"starting","role":"passive","valid_for_ms":0,"index":1}"#);
        assert!(text.contains("nobody that we know of") && text.contains("none yet"), "{text}");
    }
}
