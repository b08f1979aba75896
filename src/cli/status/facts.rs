//! Formats what one sidecar knows of the election and of itself, one fact a line.

use std::time::Duration;

use super::{ago, since};
use crate::cli::document::{Document, HealthDocument, Heard, Role, RouteDocument};
use crate::cli::leader::{leader, term};
use crate::cli::terminal::{Colour, Style, harmless};
use crate::clock::Moment;
use crate::status::words::spoken;

/// Formats one fact a line, each after its label.
pub(super) fn facts(heard: &Heard, now: Moment, style: Style) -> String {
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
    rows.push(("store", harmless(&store.name())));
    if let Some(to) = &store.moved_to {
        let words = format!("{}; nobody leads in this store", harmless(to));
        rows.push(("moved to", style.paint(Colour::Red, &words)));
    }
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
    for it in &document.warnings {
        rows.push(("warning", style.paint(Colour::Yellow, &harmless(it))));
    }
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
