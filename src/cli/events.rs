//! An incremental parser of Server-Sent Events. The caller bounds its memory by
//! [`EventParser::held`].

use crate::cli::terminal::harmless;

/// Parses Server-Sent Events. Of each event it keeps only the data; Tenure's events carry nothing
/// else of use.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    buffer: Vec<u8>,
    data: Vec<String>,
}

impl EventParser {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns how many bytes are buffered of an incomplete line or event.
    pub(super) fn held(&self) -> usize {
        self.buffer.len() + self.data.iter().map(|line| line.len() + 1).sum::<usize>()
    }

    /// Returns the next complete event, with control characters replaced and its data lines joined
    /// by spaces, which leaves JSON valid.
    pub(super) fn next(&mut self) -> Option<String> {
        while let Some(end) = self.buffer.iter().position(|it| *it == b'\n') {
            let line: Vec<u8> = self.buffer.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches(['\n', '\r']);
            if line.is_empty() {
                if !self.data.is_empty() {
                    return Some(harmless(&std::mem::take(&mut self.data).join(" ")));
                }
            } else if let Some(data) = line.strip_prefix("data:") {
                self.data.push(data.strip_prefix(' ').unwrap_or(data).to_owned());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_are_read_by_the_rules_of_their_format() {
        let mut parser = EventParser::default();
        parser.take(b": hello\n\nid: 4\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata:x\n\ndata: y\n");
        assert_eq!(parser.next().as_deref(), Some("{\"a\": 1}"));
        assert_eq!(parser.next().as_deref(), Some("x"));
        assert_eq!(parser.next(), None, "it may go on");
        parser.take(b"\n");
        assert_eq!(parser.next().as_deref(), Some("y"));
    }

    #[test]
    fn lines_of_an_event_that_never_ends_are_counted() {
        let mut parser = EventParser::default();
        for _ in 0..1_000 {
            parser.take(b"data:0123456789\ndata:\n");
            assert_eq!(parser.next(), None);
        }
        assert!(parser.held() >= 12_000, "{}", parser.held());
        parser.take(b"\n");
        assert!(parser.next().is_some());
        assert_eq!(parser.held(), 0);
    }

    proptest! {
        #[test]
        fn where_a_stream_is_cut_does_not_matter(
            text in "((data: ?|id:|:)?[a-zä ]{0,5}\r?\n){0,12}", at in 0_usize..100,
        ) {
            let bytes = text.as_bytes();
            let mut whole = EventParser::default();
            whole.take(bytes);
            let expected: Vec<_> = std::iter::from_fn(|| whole.next()).collect();
            let (head, tail) = bytes.split_at(at.min(bytes.len()));
            let mut parts = EventParser::default();
            parts.take(head);
            let mut found: Vec<_> = std::iter::from_fn(|| parts.next()).collect();
            parts.take(tail);
            found.extend(std::iter::from_fn(|| parts.next()));
            prop_assert_eq!(found, expected);
        }
    }
}
