//! The HTML page at `/`: rendered at each request, complete without JavaScript, and refreshed by a
//! script whenever `/watch` reports a change.
//!
//! All text is rendered here; the script replaces what differs, and advances times from the sending
//! of its request. When the validity of a response is over, the page says so instead of showing the
//! old status. The page loads nothing from other hosts, sends nothing, and has no controls;
//! operators' commands go to the admin listener.

use std::fmt::Write;
use std::time::Duration;

use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use alarm::{Alarm, Tone};

use crate::clock::Moment;
use crate::election::{Standing, State};
use crate::lease::text::is_printable;
use crate::status::document::{Document, rfc3339};
use crate::status::leader::UNSEEN;
use crate::status::words::{self, spoken};
use crate::status::{About, HolderJudgement, Published, Role, whole_ms};

mod alarm;
mod candidates;
mod facts;

const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The content security policy: the page may run its own script and style, identified by these
/// hashes, and send requests to its origin. A change of script or style needs a new hash here,
/// which the tests print.
const POLICY: &str = "default-src 'none'; script-src \
                      'sha256-N9tzBeYSU9WVZ4Vf8wmoW3o8ynu1jln6sD3IyCTO+xg='; style-src \
                      'sha256-7Lm4nt8wR8fYRgXO/Tr1YCAzvKiJHtOhfMqRPsB6k3Q='; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors \
                      'none'; require-trusted-types-for 'script'";

/// How long the page may show the status of a passive instance: two and a half times the longest
/// interval between two events.
const PASSIVE_HOLDS_MS: u64 = 25_000;

/// How long it may show a status in which the leader is in doubt.
const DOUBT_HOLDS_MS: u64 = 2_000;

/// Names with more characters do not fit on a line in the largest type.
const LONG_NAME: usize = 20;

/// The paths that the page links to.
const LINKS: [&str; 7] = ["status", "watch", "metrics", "leader", "standby", "readyz", "livez"];

/// Returns the page as it is at `now`.
pub(super) fn answer(published: &Published, about: &About, now: Moment) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, page(published, about, now)).into_response()
}

/// Returns whether a client asks for HTML explicitly, as browsers do and curl does not.
pub(super) fn is_wanted(accept: &str) -> bool {
    accept.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let html = parts.next().is_some_and(|it| it.eq_ignore_ascii_case("text/html"));
        html && !parts.any(|it| matches!(it, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn page(published: &Published, about: &About, now: Moment) -> String {
    let document = published.document(about, now);
    let active = document.role == Role::Active;
    let election = escaped(&document.election);
    let leader = document.leader();
    let alarm = Alarm::of(&document);
    let tone = alarm.as_ref().map_or(if active { Tone::Live } else { Tone::Calm }, |it| it.tone);
    let heard = document.store.last_success_ms_ago.is_some();
    let doubt = doubt(&document);
    let unknown = match &document.holder {
        None if heard => "No leader known",
        Some(it) if it.leaving.is_some() && !it.stale => "No leader",
        _ => "Unknown",
    };
    let jeopardy = if document.state == State::Jeopardy.as_str() { "Jeopardy: " } else { "" };
    let title = leader.map_or_else(
        || format!("{unknown}: {election}"),
        |it| format!("{jeopardy}{} leads {election}", escaped(it)),
    );
    let holder = document.holder.as_ref().filter(|it| Some(&*it.identity) == leader);
    let address = holder.and_then(|it| it.address.as_deref()).map(|it| {
        let address = escaped(it);
        format!("<p class=\"soft\">{address}</p>\n")
    });
    let long = leader.is_some_and(|it| it.chars().count() > LONG_NAME);
    fill(&[
        ("title", &title),
        ("icon", tone.icon()),
        ("unknown", Tone::Calm.icon()),
        ("tone", tone.as_str()),
        ("band", &alarm.map(|it| it.band()).unwrap_or_default()),
        ("style", STYLE),
        ("script", SCRIPT),
        ("index", &document.index.to_string()),
        ("role", document.role.as_str()),
        ("holds", &holds_ms(published, &document, now).to_string()),
        ("election", &election),
        ("last", if leader.is_some() { "Leader at last contact" } else { "At last contact" }),
        ("long", if long { " class=\"long\"" } else { "" }),
        ("leader", &leader.map_or_else(|| unknown.to_owned(), escaped)),
        ("address", address.as_deref().unwrap_or_default()),
        ("doubt", doubt.as_deref().unwrap_or_default()),
        ("say", &say(&document)),
        ("left", &left(published, &document)),
        ("facts", &facts::facts(published, &document, now)),
        ("candidates", &candidates::candidates(&document)),
        ("past", &past(&document)),
        ("links", &links()),
        ("version", &document.version),
        ("instance", &escaped(&document.instance)),
        ("now", &date(now.date())),
    ])
}

/// Returns how long the page may show this status: until its judgement changes by the clock alone. Figures
/// in a sentence about a leader in doubt are those of the answer, so it is asked for each second.
fn holds_ms(published: &Published, document: &Document<'_>, now: Moment) -> u64 {
    match document.role {
        Role::Active => document.valid_for_ms,
        Role::Passive if document.leader().is_none() => DOUBT_HOLDS_MS,
        Role::Passive => HolderJudgement::until_change(&published.status, now)
            .map_or(PASSIVE_HOLDS_MS, |it| whole_ms(it).min(PASSIVE_HOLDS_MS)),
    }
}

/// Renders why no leader is named, or what is not known of the one that is.
fn doubt(document: &Document<'_>) -> Option<String> {
    let unseen = || document.is_unseen().then(|| UNSEEN.to_owned());
    let mut text = escaped(&document.doubt().or_else(unseen)?);
    if let Some(last) = &document.last_holder
        && let Ok(until) = OffsetDateTime::parse(&last.until, &Rfc3339)
    {
        text = text.replacen(&words::utc(&last.until), &date(until), 1);
    }
    Some(format!("<p class=\"doubt\">{}</p>\n", while_known(&text)))
}

/// Describes what this instance does, in a sentence.
fn say(document: &Document<'_>) -> String {
    if document.role == Role::Active && document.state == State::Leader.as_str() {
        return "This instance is the leader.".to_owned();
    }
    let words = match &*document.state {
        // Its belief is over, and the election loop has not turned since.
        "jeopardy" if document.role == Role::Passive => {
            "led until the lease expired, and cannot renew it".to_owned()
        }
        _ => document.activity(),
    };
    format!("This instance, {}, {}.", escaped(&document.identity), escaped(&words))
}

/// Renders the rest of a leadership or a drain as a countdown, with a progress bar if the total is
/// known.
fn left(published: &Published, document: &Document<'_>) -> String {
    let (ms, words) = match (document.role, document.drain_remaining_ms, document.leaderless_ms) {
        (Role::Active, ..) => (document.valid_for_ms, "left, unless renewed"),
        (_, Some(ms), _) => (ms, "left to finish its work as leader"),
        (_, None, Some(ms)) => {
            let words = while_known(&format!("<b>{}</b> without a leader", ago(ms)));
            return format!("<div class=\"left\">{words}</div>\n");
        }
        (_, None, None) => return String::new(),
    };
    let mut text = format!(
        "<div class=\"left\"><b data-left=\"{ms}\">{}</b> {}",
        spoken(Duration::from_millis(ms)),
        while_known(words)
    );
    let whole = match &published.status.standing {
        Standing::Leader { belief, .. } => Some(belief.length),
        Standing::Draining { length, .. } => Some(*length),
        _ => None,
    };
    if let Some(whole) = whole.map(whole_ms) {
        let _ = write!(
            text,
            "<progress aria-hidden=\"true\" data-left=\"{ms}\" max=\"{whole}\" value=\"{ms}\">\
             </progress>"
        );
    }
    if let Some(ms) = document.protected_for_ms {
        let certain = spoken(Duration::from_millis(ms));
        let words = format!("; the lease is certain for <span data-left=\"{ms}\">{certain}</span>");
        text += &while_known(&words);
    }
    text + "</div>\n"
}

/// Renders the last transitions, newest first.
fn past(document: &Document<'_>) -> String {
    if document.transitions.is_empty() {
        return "<p>None yet: this instance has just started.</p>\n".to_owned();
    }
    let mut text = String::from("<table>\n");
    for it in &document.transitions {
        let at = OffsetDateTime::parse(&it.at, &Rfc3339).map_or_else(|_| it.at.to_string(), date);
        let term = it.term.map(|it| format!("term {it}")).unwrap_or_default();
        let on = match &*it.to {
            "leader" => " class=\"on\"",
            "jeopardy" => " class=\"risk\"",
            _ => "",
        };
        let _ = writeln!(
            text,
            "<tr><td>{at}</td><td><b{on}>{}</b></td><td>{}</td><td>{term}</td></tr>",
            it.to,
            words::why(&it.from, &it.to, &it.reason)
        );
    }
    text + "</table>\n"
}

fn links() -> String {
    LINKS.iter().fold(String::new(), |mut text, path| {
        let _ = write!(text, "<a href=\"{path}\">/{path}</a> ");
        text
    })
}

/// Marks text that is hidden when the validity of the response is over.
fn while_known(text: &str) -> String {
    format!("<span data-over=\"\">{text}</span>")
}

/// Renders a duration that the script advances.
fn ago(ms: u64) -> String {
    format!("<span data-ago=\"{ms}\">{}</span>", spoken(Duration::from_millis(ms)))
}

/// Renders a date in UTC, which the script replaces by that of the reader's zone: the day, then the time.
fn date(date: OffsetDateTime) -> String {
    let date = date.checked_to_offset(time::UtcOffset::UTC).unwrap_or(date);
    let (hour, minute, second) = date.to_hms();
    let month = date.month().to_string();
    format!(
        "<time datetime=\"{}\">{} {} {hour:02}:{minute:02}:{second:02} UTC</time>",
        rfc3339(date),
        date.day(),
        &month[..3],
    )
}

/// Escapes text for HTML elements and quoted attributes.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            it if is_printable(it) => safe.push(it),
            _ => safe.push(' '),
        }
    }
    safe
}

/// Fills the slots of the template in one pass, so that values are not searched for slots.
fn fill(slots: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(16 * 1024);
    for piece in FRAME.split("{{") {
        let (name, rest) = piece.split_once("}}").unwrap_or(("", piece));
        if let Some((_, value)) = slots.iter().find(|(it, _)| *it == name) {
            text.push_str(value);
        }
        text.push_str(rest);
    }
    text
}
