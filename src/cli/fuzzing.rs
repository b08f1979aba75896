//! Properties of the parsers of the subcommands, for arbitrary answers and files.

use super::document::Document;
use super::events::EventParser;
use super::status_file;

/// Feeds answers of a sidecar and status files to the parsers. The first byte of the input is where
/// the stream is split, which must not change the events; no event may contain control characters.
pub fn client(data: &[u8]) {
    let Some((&at, bytes)) = data.split_first() else { return };
    let mut whole = EventParser::default();
    whole.take(bytes);
    let expected: Vec<String> = std::iter::from_fn(|| whole.next()).collect();
    assert!(!expected.iter().any(|it| it.contains(char::is_control)), "{expected:?}");

    let (head, tail) = bytes.split_at(usize::from(at).min(bytes.len()));
    let mut parts = EventParser::default();
    parts.take(head);
    let mut found: Vec<String> = std::iter::from_fn(|| parts.next()).collect();
    parts.take(tail);
    found.extend(std::iter::from_fn(|| parts.next()));
    assert_eq!(found, expected);

    let Ok(text) = str::from_utf8(bytes) else { return };
    let _ = serde_json::from_str::<Document>(text);
    if let Ok(said) = status_file::parse(text) {
        // Role and deadline must come from the text. JSON may escape a letter of the role.
        let deadline = said.valid_until_boottime_ns.to_string();
        assert!(text.contains(said.role.as_str()) || text.contains('\\'), "{said:?}");
        assert!(text.contains(&deadline), "{said:?}");
    }
}
