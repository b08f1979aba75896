//! Formats the candidates as one table: all of them with peers, else those that an instance can know
//! of, which are itself, the holder of the lease and the successor.

use std::time::Duration;

use crate::cli::document::{CandidateDocument, Document, Heard, Role, time_of_day};
use crate::cli::terminal::{Colour, Style, columns, harmless};
use crate::clock::Moment;
use crate::status::words::spoken;

/// The headings. A column in which no candidate has a value is left out, but for the first
/// [`ALWAYS`].
const HEADINGS: [&str; 11] = [
    "candidate",
    "role",
    "state",
    "term",
    "left",
    "health",
    "priority",
    "zone",
    "address",
    "last contact",
    "note",
];

/// How many columns are always shown.
const ALWAYS: usize = 5;

/// Stands for what is not known, or is not there.
const NOTHING: &str = "-";

/// What is said below the table without peers.
const WITHOUT_PEERS: &str = "\
Other candidates are not known here: without peers, an instance sees only the lease.
With --peers, this table shows every candidate, and who is next in line.
";

/// What is said below the table with peers, before the first contact with a leader.
const WITHOUT_CONTACT: &str = "\
Other candidates are not known yet: no leader has been contacted.
";

/// One row; `None` is shown as [`NOTHING`].
#[derive(Default)]
struct Row {
    name: String,
    role: String,
    state: Option<String>,
    term: Option<u64>,
    left: Option<Duration>,
    health: Option<String>,
    priority: Option<u8>,
    zone: Option<String>,
    address: Option<String>,
    contact: Option<String>,
    note: String,
}

/// Formats the candidates, and what is not known of them.
pub(super) fn candidates(heard: &Heard, now: Moment, style: Style) -> String {
    let document = &heard.document;
    let all = document.candidates.as_deref().unwrap_or_default();
    let mut rows: Vec<Row> = all.iter().map(|it| candidate(it, heard, now, style)).collect();
    let own = all.iter().position(|it| it.instance == document.instance);
    let own = own.unwrap_or_else(|| {
        rows.push(Row { name: harmless(&document.identity), ..Row::default() });
        rows.len() - 1
    });
    add_own(&mut rows[own], heard, now, style);
    add_holder(&mut rows, document);
    add_successor(&mut rows, document);
    let mut text = table(&rows, style);
    match all.iter().any(|it| it.contact_ms_ago.is_some()) {
        true => {}
        false if document.candidates.is_some() => text.push_str(WITHOUT_CONTACT),
        false => text.push_str(WITHOUT_PEERS),
    }
    text
}

/// Returns the row of a candidate by what the leader has told of it.
fn candidate(it: &CandidateDocument<'_>, heard: &Heard, now: Moment, style: Style) -> Row {
    let (role, colour) = match it.role {
        _ if it.gone => ("gone", Colour::Dim),
        Some(role) => (role.as_str(), Colour::of_state(role == Role::Active, &it.state)),
        None => ("unknown", Colour::Yellow),
    };
    let health = match &it.failing {
        Some(_) => style.paint(Colour::Red, "failing"),
        None => "healthy".to_owned(),
    };
    let next = it.heir.then(|| "next in line".to_owned());
    let gone = it.gone.then(|| gone_since(it, now));
    let failing = it.failing.as_deref().map(|it| style.paint(Colour::Red, &harmless(it)));
    Row {
        name: harmless(&it.identity),
        role: style.paint(colour, role),
        state: Some(harmless(&it.state)),
        health: it.role.map(|_| health),
        priority: it.priority,
        zone: it.zone.as_deref().map(harmless),
        address: it.address.as_deref().map(harmless),
        contact: Some(contact(it, heard, now)),
        note: next.into_iter().chain(gone).chain(failing).collect::<Vec<_>>().join("; "),
        ..Row::default()
    }
}

/// Formats since when a candidate is gone.
fn gone_since(it: &CandidateDocument<'_>, now: Moment) -> String {
    let ago = Duration::from_millis(it.contact_ms_ago.unwrap_or_default());
    let since = now.date() - time::Duration::try_from(ago).unwrap_or_default();
    format!("gone, since {} UTC", time_of_day(since))
}

/// Formats when a candidate last contacted the leader.
fn contact(it: &CandidateDocument<'_>, heard: &Heard, now: Moment) -> String {
    match it.contact_ms_ago {
        _ if it.connected => "connected".to_owned(),
        None => "never".to_owned(),
        Some(ms) => {
            let ago = Duration::from_millis(ms) + heard.sent.elapsed_max(now);
            format!("{} ago", spoken(ago))
        }
    }
}

/// Adds to this instance's row what only it knows.
fn add_own(row: &mut Row, heard: &Heard, now: Moment, style: Style) {
    let document = &heard.document;
    let waited = heard.sent.elapsed_max(now);
    let role = heard.role(now);
    let left = Some(heard.remaining(now)).filter(|it| !it.is_zero());
    // Work of a drain ends with the drain, and is not protected beyond the lease.
    let drain = document
        .drain_remaining_ms
        .map(|ms| ms.min(document.protected_for_ms.unwrap_or(ms)))
        .map(|ms| Duration::from_millis(ms).saturating_sub(waited));
    let aside = document.hold_off_remaining_ms.filter(|_| document.state == "standby");
    let end = aside.map_or("", |_| "; `tenure resume` ends that");
    let does = harmless(&document.activity()) + end;
    let colour = Colour::of_state(role == Role::Active, &document.state);
    row.role = style.paint(colour, role.as_str());
    row.state = Some(harmless(&document.state));
    row.term = document.term;
    row.left = left.or(drain);
    row.add_note(&format!("this instance {does}"));
}

/// Adds the holder that the store has named, to its row or as one: it may take no part in the stream.
fn add_holder(rows: &mut Vec<Row>, document: &Document) {
    // Compared by term: two candidates may have the same identity.
    let is_own = |term| document.term.is_some() && document.term == Some(term);
    let Some(holder) = document.holder.as_ref().filter(|it| !is_own(it.term)) else { return };
    let name = harmless(&holder.identity);
    // One that is passive has the same name by accident, unless the holder itself has said that it is.
    let holds = |it: &CandidateDocument<'_>| {
        let may = it.role != Some(Role::Passive) || holder.leaving.is_some();
        may && it.identity == holder.identity
    };
    let all = document.candidates.as_deref().unwrap_or_default();
    let note = holder.doubt(document.store.failures == 0).map(|it| harmless(&it));
    if let Some(at) = all.iter().position(holds) {
        rows[at].term = Some(holder.term);
        return note.iter().for_each(|it| rows[at].add_note(it));
    }
    rows.push(Row {
        name,
        role: if holder.stale { "last seen" } else { "holder" }.to_owned(),
        term: Some(holder.term),
        note: note.unwrap_or_default(),
        address: holder.address.as_deref().map(harmless),
        ..Row::default()
    });
}

/// Adds the successor that the record names, to its row or as one: it may not exist.
fn add_successor(rows: &mut Vec<Row>, document: &Document) {
    let Some(successor) = &document.successor else { return };
    let hold_off = spoken(Duration::from_millis(successor.hold_off_ms));
    let note = format!("other candidates wait for it, for {hold_off}");
    let all = document.candidates.as_deref().unwrap_or_default();
    if let Some(at) = all.iter().position(|it| it.identity == successor.identity) {
        return rows[at].add_note(&note);
    }
    let name = harmless(&successor.identity);
    rows.push(Row { name, role: "successor".to_owned(), note, ..Row::default() });
}

impl Row {
    fn add_note(&mut self, note: &str) {
        let between = if self.note.is_empty() { "" } else { "; " };
        self.note.push_str(&format!("{between}{note}"));
    }

    fn cells(&self) -> [String; HEADINGS.len()] {
        let text = |it: &Option<String>| it.clone().unwrap_or_else(|| NOTHING.to_owned());
        let number = |it: Option<u64>| text(&it.map(|it| it.to_string()));
        [
            self.name.clone(),
            self.role.clone(),
            text(&self.state),
            number(self.term),
            text(&self.left.map(spoken)),
            text(&self.health),
            number(self.priority.map(u64::from)),
            text(&self.zone),
            text(&self.address),
            text(&self.contact),
            self.note.clone(),
        ]
    }
}

fn table(rows: &[Row], style: Style) -> String {
    let rows: Vec<_> = rows.iter().map(Row::cells).collect();
    let is_shown = |at: &usize| {
        let is_note = *at == HEADINGS.len() - 1;
        *at < ALWAYS || is_note || rows.iter().any(|row| row[*at] != NOTHING)
    };
    let shown: Vec<usize> = (0..HEADINGS.len()).filter(is_shown).collect();
    let head = shown.iter().map(|at| style.paint(Colour::Dim, HEADINGS[*at])).collect();
    let cells = rows.iter().map(|row| shown.iter().map(|at| row[*at].clone()).collect());
    columns(&std::iter::once(head).chain(cells).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { colour: false, signs: false };

    const LEADER: &str = r#""identity":"web-1","instance":"1","role":"active","state":"leader",
        "priority":50,"zone":"a","address":"10.0.3.7:8080","connected":true,"contact_ms_ago":0"#;
    const HEIR: &str = r#""identity":"web-2","instance":"2","role":"passive","state":"standby",
        "priority":50,"zone":"b","connected":true,"contact_ms_ago":0,"heir":true"#;
    const ILL: &str = r#""identity":"web-3","instance":"3","role":"passive","state":"unhealthy",
        "failing":"tcp://db:1: re\u001bfused","priority":10,"connected":true,"contact_ms_ago":0"#;
    const GONE: &str = r#""identity":"web-4","instance":"4","role":null,"state":"standby",
        "priority":50,"connected":false,"contact_ms_ago":192000"#;

    /// Shows what web-2 knows 100 ms after the question.
    fn shown(candidates: &[&str], more: &str) -> String {
        let candidates: Vec<_> = candidates.iter().map(|it| format!("{{{it}}}")).collect();
        let raw = format!(
            r#"{{"identity":"web-2","instance":"2","state":"standby","role":"passive",
            "valid_for_ms":0,"index":1,"candidates":[{}]{more}}}"#,
            candidates.join(",")
        );
        let at = |ms| {
            let reading = Duration::from_secs(1_795_165_200) + Duration::from_millis(ms);
            Moment { boot: reading, raw: reading, wall: reading }
        };
        let document = serde_json::from_str(&raw).unwrap();
        super::candidates(&Heard { document, raw, sent: at(0) }, at(100), PLAIN)
    }

    const HOLDER: &str = r#","holder":{"identity":"web-1","address":"10.0.3.7:8080","term":42}"#;

    #[test]
    fn every_candidate_is_a_row_with_what_the_leader_has_told_of_it() {
        assert_eq!(
            shown(&[LEADER, HEIR, ILL, GONE], HOLDER),
            "\
candidate  role     state      term  left  health   priority  zone  address        last contact  note
web-1      active   leader     42    -     healthy  50        a     10.0.3.7:8080  connected
web-2      passive  standby    -     -     healthy  50        b     -              connected     next in line; this instance is a standby, ready to take over
web-3      passive  unhealthy  -     -     failing  10        -     -              connected     tcp://db:1: re fused
web-4      unknown  standby    -     -     -        50        -     -              3m12s ago
"
        );
    }

    #[test]
    fn a_column_without_a_value_is_left_out() {
        let text = shown(&[HEIR.replace(r#""zone":"b","#, "").as_str(), ILL], "");
        let head = text.lines().next().unwrap();
        assert_eq!(
            head.split_whitespace().collect::<Vec<_>>().join(" "),
            "candidate role state term left health priority last contact note"
        );
    }

    #[test]
    fn a_holder_and_a_successor_that_take_no_part_in_the_stream_have_rows_of_their_own() {
        let named = r#","successor":{"identity":"web-3","hold_off_ms":10000}"#;
        let text = shown(&[HEIR, ILL], &format!("{HOLDER}{named}"));
        let holder =
            "web-1      holder   -          42    -     -        -         -     10.0.3.7:8080";
        assert!(text.contains(holder), "{text}");
        let successor = "re fused; other candidates wait for it, for 10s\n";
        assert!(text.contains(successor) && text.matches("web-3").count() == 1, "{text}");
        let unknown = named.replace("web-3", "web-9");
        let text = shown(&[LEADER, HEIR], &format!("{HOLDER}{unknown}"));
        assert!(text.contains("\nweb-9      successor  "), "{text}");
        assert_eq!(text.matches("web-1").count(), 1, "{text}");
    }

    #[test]
    fn a_holder_that_has_said_that_it_leads_no_longer_has_one_row() {
        let former = LEADER.replace("active", "passive").replace(r#""leader""#, r#""standby""#);
        let left = HOLDER.replace(r#""term":42"#, r#""term":42,"overdue":true,"leaving":"lost""#);
        assert_eq!(shown(&[HEIR, &former], &left).matches("\nweb-1 ").count(), 1);
        assert_eq!(shown(&[HEIR, &former], HOLDER).matches("\nweb-1 ").count(), 2, "a namesake");
    }

    #[test]
    fn before_the_first_contact_nothing_is_claimed_of_others() {
        let own = r#""identity":"web-2","instance":"2","role":"passive","state":"standby""#;
        let text = shown(&[own], "");
        assert!(text.contains("  never  ") && text.ends_with(WITHOUT_CONTACT), "{text}");
    }
}
