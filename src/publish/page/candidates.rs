//! Renders the table of candidates, or that they are not known.

use std::fmt::Write;

use super::{ago, escaped, while_known};
use crate::status::document::Document;
use crate::status::{CandidateDocument, Role};

/// What is said without peers.
const WITHOUT_PEERS: &str = "\
<p class=\"soft\">Other candidates are not known here: without peers, an instance sees only the lease. With \
<code>--peers</code>, this page shows every candidate, and who is next in line.</p>
";

/// What is said before the first contact with a leader.
const WITHOUT_CONTACT: &str = "\
<p class=\"soft\">Other candidates are not known yet: no leader has been contacted.</p>
";

/// The headings of the columns after the first, also the labels of their cells on a phone.
const HEADINGS: [&str; 4] = ["role", "health", "priority", "last contact"];

/// Renders the candidates, the leader first, then in the order in which they are next in line.
pub(super) fn candidates(document: &Document<'_>) -> String {
    let Some(all) = &document.candidates else {
        return WITHOUT_PEERS.to_owned();
    };
    let mut text = "<table class=\"line\">\n<thead><tr><th scope=\"col\">candidate</th>".to_owned();
    for heading in HEADINGS {
        let _ = write!(text, "<th scope=\"col\">{heading}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for it in all {
        candidate(&mut text, it, it.instance == document.instance);
    }
    text.push_str("</tbody></table>\n");
    if all.iter().all(|it| it.contact_ms_ago.is_none()) {
        text.push_str(WITHOUT_CONTACT);
    }
    text
}

fn candidate(text: &mut String, it: &CandidateDocument<'_>, is_own: bool) {
    let address = it.address.as_deref().map(escaped);
    let zone = it.zone.as_deref().map(|it| format!("zone {}", escaped(it)));
    let own = is_own.then(|| "this instance".to_owned());
    let more: Vec<_> = address.into_iter().chain(zone).chain(own).collect();
    let more = match more.is_empty() {
        true => String::new(),
        false => format!("<small>{}</small>", more.join(", ")),
    };
    let heir = if it.heir { "<small class=\"next\">next in line</small>" } else { "" };
    let _ = write!(text, "<tr><th scope=\"row\">{}{heir}{more}</th>", escaped(&it.identity));
    let on = if it.role == Some(Role::Active) { " class=\"on\"" } else { "" };
    let role = match it.role {
        _ if it.gone => "gone",
        None if it.overdue => "overdue",
        role => role.map_or("unknown", Role::as_str),
    };
    let state = while_known(&format!(", {}", escaped(&it.state)));
    let role = format!("<b{on} data-over=\"unknown\">{role}</b>{state}");
    let (class, health) = match (&it.failing, it.role) {
        (_, None) => ("", "unknown".to_owned()),
        (Some(failing), _) => (" class=\"warn\"", escaped(failing)),
        (None, _) => ("", "healthy".to_owned()),
    };
    let priority = it.priority.map_or("unknown".to_owned(), |it| it.to_string());
    let contact = match it.contact_ms_ago {
        _ if it.connected => while_known("connected"),
        Some(ms) if it.gone => format!("gone for {}", ago(ms)),
        None => "never".to_owned(),
        Some(ms) => format!("{} ago", ago(ms)),
    };
    let cells = [("", role), (class, health), ("", priority), ("", contact)];
    for (heading, (class, cell)) in HEADINGS.iter().zip(cells) {
        let _ = write!(text, "<td{class} data-label=\"{heading}\">{cell}</td>");
    }
    text.push_str("</tr>\n");
}
