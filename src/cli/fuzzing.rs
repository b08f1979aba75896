//! Properties of the parsers of the subcommands, for arbitrary answers and files.

use std::time::Duration;

use super::document::{Document, Heard};
use super::events::EventParser;
use super::terminal::{Style, harmless_json};
use super::watch_lines::Lines;
use super::{status, status_file};
use crate::clock::Moment;
use crate::lease::text::is_printable;

/// Feeds answers of a sidecar and status files to the parsers. The first byte of the input is where
/// the stream is split, which must not change the events; no event may contain characters that
/// cannot be shown.
pub fn client(data: &[u8]) {
    let Some((&at, bytes)) = data.split_first() else { return };
    let mut whole = EventParser::default();
    whole.take(bytes);
    let expected: Vec<String> = std::iter::from_fn(|| whole.next()).collect();
    assert!(expected.iter().all(|it| it.chars().all(is_printable)), "{expected:?}");

    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    let mut parts = EventParser::default();
    parts.take(head);
    let mut found: Vec<String> = std::iter::from_fn(|| parts.next()).collect();
    parts.take(tail);
    found.extend(std::iter::from_fn(|| parts.next()));
    assert_eq!(found, expected);

    let Ok(text) = str::from_utf8(bytes) else { return };
    let _ = serde_json::from_str::<Document>(text);
    if let Ok(file) = status_file::parse(text) {
        // Role and deadline must come from the text. JSON may escape a letter of the role.
        let deadline = file.valid_until_boottime_ns.to_string();
        assert!(text.contains(file.role.as_str()) || text.contains('\\'), "{file:?}");
        assert!(text.contains(&deadline), "{file:?}");
    }
}

/// Shows a status document as `tenure status` and `tenure watch` do: an answer is valid for no longer
/// than it says, and nothing in it can steer a terminal.
pub fn status_document(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(document) = serde_json::from_str::<Document>(text) else { return };
    let at = |seconds| Moment {
        boot: Duration::from_secs(seconds),
        raw: Duration::from_secs(seconds),
        wall: Duration::from_secs(1_800_000_000 + seconds),
    };
    let (sent, now) = (at(100), at(101));
    let heard = Heard { document: document.clone(), raw: text.to_owned(), sent };
    assert!(heard.remaining(now) <= Duration::from_millis(document.valid_for_ms));
    let style = Style { colour: false, signs: false };
    let mut lines = Lines::new(style);
    let mut shown = status::table(&heard, now, style);
    shown += &lines.of(Document { transitions: Vec::new(), ..document.clone() }, now);
    shown += &lines.of(document, now);
    assert!(shown.chars().all(|it| is_printable(it) || it == '\n'), "{shown:?}");
    let safe = harmless_json(text);
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    assert_eq!(value(&safe), value(text));
}
