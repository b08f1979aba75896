//! Formats changes of status as lines of words: time, state, term, holder, reason.

use time::OffsetDateTime;

use super::document::{Document, Role, TransitionDocument, date};
use super::terminal::{Colour, Style, harmless};
use super::watch_news::news;
use crate::clock::Moment;
use crate::status::words;

/// The widths of the columns, in characters. A longer cell moves the rest of its line to the right.
const TIME: usize = 8;
const STATE: usize = 10;
const TERM: usize = 13;
const HOLDER: usize = 20;

/// Formats lines, each with what has changed since the last document.
pub(super) struct Lines {
    style: Style,
    last: Option<Document>,
}

/// The cells of one line.
struct Line<'a> {
    /// In UTC.
    at: OffsetDateTime,
    active: bool,
    state: &'a str,
    term: Option<u64>,
    holder: Option<&'a str>,
    why: String,
}

impl Lines {
    pub(super) fn new(style: Style) -> Self {
        Self { style, last: None }
    }

    /// Returns the lines for a document received at `now`: one for each transition since the last
    /// document, or one for any other change. The first call also returns the heading.
    pub(super) fn of(&mut self, document: Document, now: Moment) -> String {
        let mut text = String::new();
        if self.last.is_none() {
            let head = self.row("UTC", "state", "term", "holder", "why", |_, text| text.to_owned());
            text = format!("{}\n", self.style.paint(Colour::Dim, head.trim_end()));
        }
        let last = self.last.as_ref().filter(|it| it.instance == document.instance);
        let fresh = last.map_or(&[][..], |it| newer(&document.transitions, &it.transitions));
        for (age, it) in fresh.iter().enumerate().rev() {
            text.push_str(&self.line(&Line {
                at: date(&it.at).unwrap_or_else(|| now.date()),
                active: matches!(&*it.to, "leader" | "jeopardy"),
                state: &it.to,
                term: it.term,
                // The document does not say who held the lease at earlier transitions.
                holder: (age == 0).then(|| holder(&document)).flatten(),
                why: why(it, &document, age == 0),
            }));
        }
        if fresh.is_empty() {
            text.push_str(&self.line(&Line {
                at: now.date(),
                active: document.role == Role::Active,
                state: &document.state,
                term: document.term.or(document.holder.as_ref().map(|it| it.term)),
                holder: holder(&document),
                why: news(self.last.as_ref(), &document),
            }));
        }
        self.last = Some(document);
        text
    }

    fn line(&self, line: &Line<'_>) -> String {
        let (hour, minute, second) = line.at.to_hms();
        let term = line.term.map_or("-".to_owned(), |it| it.to_string());
        let colour = Colour::of_state(line.active, line.state);
        let text = self.row(
            &format!("{hour:02}:{minute:02}:{second:02}"),
            &harmless(line.state),
            &term,
            &line.holder.map_or("-".to_owned(), harmless),
            &harmless(&line.why),
            |style, state| style.paint(colour, state),
        );
        format!("{}\n", text.trim_end())
    }

    fn row(
        &self,
        time: &str,
        state: &str,
        term: &str,
        holder: &str,
        why: &str,
        paint: impl Fn(Style, &str) -> String,
    ) -> String {
        let state = paint(self.style, &format!("{state:<STATE$}"));
        format!("{time:<TIME$}  {state}  {term:<TERM$}  {holder:<HOLDER$}  {why}")
    }
}

fn holder(document: &Document) -> Option<&str> {
    document.leader()
}

/// Describes a transition; the present state, if `is_last`, with what it waits for.
fn why(it: &TransitionDocument<'_>, document: &Document, is_last: bool) -> String {
    let why = words::why(&it.from, &it.to, &it.reason);
    match document.activation.as_ref().filter(|_| is_last && it.to == "activating") {
        Some(activation) => format!("{why}; {}", activation.words()),
        None => why,
    }
}

/// Returns the transitions that are not in `before`, newest first.
fn newer<'a>(
    now: &'a [TransitionDocument<'static>],
    before: &[TransitionDocument<'static>],
) -> &'a [TransitionDocument<'static>] {
    let known = before.first().and_then(|last| now.iter().position(|it| it == last));
    &now[..known.unwrap_or(now.len())]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const PLAIN: Style = Style { colour: false, signs: false };

    fn at_nine() -> Moment {
        let reading = Duration::from_secs(1_795_165_200);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    fn document(state: &str, role: &str, holder: &str, transitions: &str, more: &str) -> Document {
        let text = format!(
            r#"{{"identity":"web-1","state":"{state}","role":"{role}","valid_for_ms":9,"index":1,
            "holder":{holder},"transitions":[{transitions}]{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    const THEM: &str = r#"{"identity":"web-2","term":41}"#;
    const US: &str = r#"{"identity":"web-1","term":42}"#;
    const HEARD: &str = r#"{"at":"2026-11-20T08:59:00Z","to":"standby","reason":"store-reached"}"#;
    const GRANTED: &str = r#"{"at":"2026-11-20T09:00:01Z","to":"activating","reason":"acquired"}"#;
    const LED: &str =
        r#"{"at":"2026-11-20T09:00:02Z","to":"leader","reason":"term-written","term":42}"#;

    #[test]
    fn each_change_is_one_line_below_another() {
        let mut lines = Lines::new(PLAIN);
        let text = [
            lines.of(document("standby", "passive", THEM, HEARD, ""), at_nine()),
            lines.of(document("standby", "passive", "null", HEARD, ""), at_nine()),
            // A document with two new transitions.
            lines.of(
                document("leader", "active", US, &format!("{LED},{GRANTED},{HEARD}"), ""),
                at_nine(),
            ),
            lines.of(
                document("jeopardy", "passive", US, &format!("{LED},{GRANTED},{HEARD}"), ""),
                at_nine(),
            ),
        ]
        .concat();
        assert_eq!(
            text,
            "UTC       state       term           holder                why\n\
             09:00:00  standby     41             web-2                 present state\n\
             09:00:00  standby     -              -                     no leader known\n\
             09:00:01  activating  -              -                     the lease was acquired\n\
             09:00:02  leader      42             web-1                 the term was written\n\
             09:00:00  jeopardy    42             web-1                 the lease expired\n"
        );
    }

    #[test]
    fn store_errors_and_another_process_are_shown() {
        let mut lines = Lines::new(PLAIN);
        let failing = r#","store":{"kind":"file","last_error":"no \u001b[31mroute"}"#;
        let mut line = |more: &str| {
            let text = lines.of(document("standby", "passive", THEM, HEARD, more), at_nine());
            text.lines().next_back().unwrap().split_once("web-2").unwrap().1.trim().to_owned()
        };
        assert_eq!(line(""), "present state");
        assert_eq!(line(failing), "store: no  [31mroute");
        assert_eq!(line(""), "the store answers again");
        assert_eq!(line(r#","instance":"j""#).as_str(), "another process answers");
    }
}
