//! Formats what a status document tells about the leader.

use super::document::Document;
use super::terminal::{Colour, Style, harmless};
use crate::status::leader::UNSEEN;

/// Formats who leads, as far as the document tells.
pub(super) fn leader(document: &Document, style: Style) -> String {
    if let Some(doubt) = document.doubt() {
        return style.paint(Colour::Yellow, &harmless(&doubt));
    }
    let name = document.leader().unwrap_or_default();
    let holder = document.holder.as_ref().filter(|it| it.identity == name);
    let mut text = harmless(name);
    if let Some(address) = holder.and_then(|it| it.address.as_deref()) {
        text.push_str(&format!(" at {}", harmless(address)));
    }
    // Compared by term: two candidates may have the same identity.
    let is_own = document.term.is_some() && document.term == holder.map(|it| it.term);
    if is_own {
        text.push_str(", this instance");
    } else if document.is_unseen() {
        text.push_str(&format!("; {UNSEEN}"));
    }
    text
}

/// Formats the term, of this instance or of the holder that was seen.
pub(super) fn term(document: &Document) -> String {
    let term = document.term.or(document.holder.as_ref().map(|it| it.term));
    match (term, &document.last_holder) {
        (Some(term), _) => term.to_string(),
        (None, Some(last)) => format!("none (last: {})", last.term),
        (None, None) => "none known".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(state: &str, more: &str) -> (String, String) {
        let text = format!(
            r#"{{"identity":"web-2","state":"{state}","role":"passive","valid_for_ms":0,"index":1,
            {more}}}"#
        );
        let document: Document = serde_json::from_str(&text).unwrap();
        (leader(&document, Style { colour: false, signs: false }), term(&document))
    }

    #[test]
    fn a_holder_that_hands_over_is_draining_and_not_the_leader() {
        let holder = r#""holder":{"identity":"web-1","term":42}"#;
        assert_eq!(rendered("standby", holder), ("web-1".to_owned(), "42".to_owned()));
        let successor = format!(r#"{holder},"successor":{{"identity":"web-3"}}"#);
        let words = "none: web-1 is draining, for a transfer to web-3";
        assert_eq!(rendered("standby", &successor).0, words);
        let own = format!(r#"{successor},"term":42"#);
        assert_eq!(rendered("draining", &own).0, "none: web-1, this instance, is draining");
    }

    #[test]
    fn a_holder_seen_too_long_ago_is_not_shown_as_the_leader() {
        let stale = r#""holder":{"identity":"web-1","term":42,"seen_ms_ago":192000,"stale":true}"#;
        let words = "unknown (last seen: web-1, term 42, 3m12s ago)";
        assert_eq!(rendered("standby", stale).0, words);
    }

    #[test]
    fn the_last_holder_is_named_while_no_leader_is_known() {
        let last = r#""last_holder":{"identity":"web-1","term":42,"until":"2026-11-21T00:49:33Z"}"#;
        let (leader, term) = rendered("standby", last);
        assert_eq!(leader, "no leader known (last: web-1, term 42, until 00:49:33 UTC)");
        assert_eq!(term, "none (last: 42)");
        let nothing = rendered("starting", r#""holder":null"#);
        assert_eq!(nothing, ("no leader known".to_owned(), "none known".to_owned()));
    }
}
