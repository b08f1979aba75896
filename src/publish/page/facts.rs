//! Renders the facts of the election, of this instance, its store, its probes and its machine.

use std::fmt::Write;
use std::time::Duration;

use super::{ago, date, escaped, while_known};
use crate::clock::Moment;
use crate::status::document::{Document, HealthDocument, StoreDocument};
use crate::status::words::spoken;
use crate::status::{Published, Role, whole_ms};

/// Renders the facts, each a label with its lines.
pub(super) fn facts(published: &Published, document: &Document<'_>, now: Moment) -> String {
    let mut text = String::new();
    let holder = document.holder.as_ref();
    let term = document.term.or(holder.map(|it| it.term));
    let none = if document.last_holder.is_some() { "none" } else { "none known" };
    fact(&mut text, "Term", &term.map_or(none.to_owned(), |it| it.to_string()), &[]);
    if document.role == Role::Active {
        let since = published.status.since;
        let words = while_known(&format!("for {}", ago(whole_ms(since.elapsed_max(now)))));
        let label = "<span data-over=\"Led since\">Leads since</span>";
        fact(&mut text, label, &date(since.date()), &[words]);
    } else if let (None, Some(seen), Some(_)) =
        (document.term, published.holder_seen, document.leader())
    {
        let words = while_known(&format!("for {}", ago(whole_ms(seen.elapsed_max(now)))));
        fact(&mut text, "Seen as leader since", &date(seen.date()), &[words]);
    }
    let words = match published.state_since(now) {
        Some(since) => {
            let lasts = ago(whole_ms(since.elapsed_max(now)));
            while_known(&format!("{}, for {lasts}", document.state))
        }
        None => while_known(&document.state),
    };
    fact(&mut text, "This instance", &escaped(&document.identity), &[words]);
    store(&mut text, &document.store);
    for it in &document.warnings {
        let _ = writeln!(
            text,
            "<div class=\"wide\"><dt>Warning</dt><dd class=\"warn\">{}</dd></div>",
            escaped(it)
        );
    }
    if let Some(successor) = &document.successor {
        let hold_off = spoken(Duration::from_millis(successor.hold_off_ms));
        let _ = writeln!(
            text,
            "<div class=\"wide\"><dt>Successor</dt><dd>{}</dd><dd>other candidates wait for it, \
             for {hold_off}</dd></div>",
            escaped(&successor.identity)
        );
    }
    if let Some(health) = &document.health {
        probes(&mut text, health);
    }
    if let Some(it) = &document.maintenance {
        let _ = writeln!(
            text,
            "<div class=\"wide\"><dt>Maintenance of this machine</dt><dd class=\"warn\">{}</dd>\
             <dd>event {}</dd></div>",
            escaped(&it.announcement()),
            escaped(&it.event_id)
        );
    }
    text
}

fn store(text: &mut String, store: &StoreDocument<'_>) {
    let heard = store
        .last_success_ms_ago
        .map_or("never reached".to_owned(), |ms| format!("answered {} ago", ago(ms)));
    let _ = writeln!(
        text,
        "<div class=\"wide\"><dt>Store</dt><dd>{}</dd><dd class=\"soft\">{heard}</dd></div>",
        escaped(&store.name())
    );
    if let Some(to) = &store.moved_to {
        let _ = writeln!(
            text,
            "<div class=\"wide\"><dt>The election has moved to</dt><dd class=\"warn\">{}</dd>\
             <dd>nobody leads in this store</dd></div>",
            escaped(to)
        );
    }
    if let Some(error) = &store.last_error {
        let times = match store.failures {
            0 | 1 => "Last store error".to_owned(),
            failures => format!("Last store error, {failures} in a row"),
        };
        let _ = writeln!(
            text,
            "<div class=\"wide\"><dt>{times}</dt><dd class=\"warn\">{}</dd></div>",
            escaped(error)
        );
    }
}

fn probes(text: &mut String, health: &HealthDocument<'_>) {
    let all = if health.well { "Healthy" } else { "Unhealthy" };
    let _ = write!(text, "<div class=\"wide\"><dt>{all}</dt>");
    for probe in &health.probes {
        let (class, label) = match probe.well {
            Some(true) => ("", "succeeded"),
            Some(false) => (" class=\"warn\"", "failed"),
            None => ("", "not run yet"),
        };
        let said = probe.said.as_deref().map(|it| format!(": {}", escaped(it))).unwrap_or_default();
        let when = probe.ms_ago.map(|ms| format!(", {} ago", ago(ms))).unwrap_or_default();
        let _ =
            write!(text, "<dd{class}><b>{}</b> {label}{said}{when}</dd>", escaped(&probe.probe));
    }
    text.push_str("</div>\n");
}

/// Renders one fact; its values are escaped already.
fn fact(text: &mut String, label: &str, value: &str, more: &[String]) {
    let _ = write!(text, "<div><dt>{label}</dt><dd>{value}</dd>");
    for line in more {
        let _ = write!(text, "<dd>{line}</dd>");
    }
    text.push_str("</div>\n");
}
