//! The events of the leader's stream: formats them as Server-Sent Events, reads them, and bounds what
//! is read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::election::State;
use crate::lease::text::is_name;
use crate::status::{CandidateEntry, whole_ms};

/// The most bytes of a line.
pub(super) const LONGEST_LINE: usize = 4 * 1024;

/// The most bytes of the data of an event.
pub(super) const LONGEST_EVENT: usize = 64 * 1024;

/// The longest time that an event may name; no lease-duration is longer.
const LONGEST_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// An event of the leader's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PeerEvent {
    /// The leader's renewal was granted.
    Holding(Holding),
    /// The leader drains, and releases the lease afterwards.
    Draining(Draining),
    /// The store has confirmed the release.
    Released(Released),
    /// The leadership is over, and the lease may not be.
    Ended(Ended),
    /// All candidates.
    Candidates(Vec<CandidateEntry>),
    /// The process of the leader ends.
    Stopping,
}

/// The data of `holding`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holding {
    pub(super) term: u64,
    /// How long ago the renewal was sent.
    pub(super) sent_ago_ms: u64,
    /// How long the lease lasts after each grant.
    pub(super) lease_ms: u64,
    /// When the next renewal is due.
    pub(super) next_ms: u64,
}

/// The data of `draining`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Draining {
    pub(super) term: u64,
    /// The instance that is next in line, if any is.
    pub(super) heir: Option<String>,
    /// The rest of drain-timeout.
    pub(super) remaining_ms: u64,
}

/// The data of `released`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Released {
    pub(super) term: u64,
    /// The instance that is next in line, if any is.
    pub(super) heir: Option<String>,
}

/// The data of `ended`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) term: u64,
    /// Why, one of the reasons of transitions.
    pub(super) reason: String,
}

/// The kinds of events, by their names in the stream.
const KINDS: [&str; 6] = ["holding", "draining", "released", "candidates", "stopping", "ended"];

impl PeerEvent {
    /// Returns the name of the event in the stream.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Holding(_) => KINDS[0],
            Self::Draining(_) => KINDS[1],
            Self::Released(_) => KINDS[2],
            Self::Candidates(_) => KINDS[3],
            Self::Stopping => KINDS[4],
            Self::Ended(_) => KINDS[5],
        }
    }

    /// Formats the event for the stream. A table that would be too long loses its last candidates.
    pub(super) fn format(&self) -> String {
        let kind = self.kind();
        let one_line = |data: String| format!("event: {kind}\ndata: {data}\n\n");
        match self {
            Self::Holding(it) => one_line(json(it)),
            Self::Draining(it) => one_line(json(it)),
            Self::Released(it) => one_line(json(it)),
            Self::Ended(it) => one_line(json(it)),
            Self::Stopping => one_line("{}".to_owned()),
            Self::Candidates(all) => {
                // A line for each candidate, of which none is too long.
                let mut text = format!("event: {kind}\ndata: [\n");
                let mut length = 0;
                for (at, entry) in all.iter().enumerate() {
                    let line = json(entry);
                    length += line.len() + 2;
                    if length + 4 > LONGEST_EVENT {
                        break;
                    }
                    text += &format!("data: {}{line}\n", if at == 0 { "" } else { "," });
                }
                text + "data: ]\n\n"
            }
        }
    }

    fn parse(kind: &str, data: &[u8]) -> Option<Self> {
        let event = match kind {
            "holding" => Self::Holding(serde_json::from_slice(data).ok()?),
            "draining" => Self::Draining(serde_json::from_slice(data).ok()?),
            "released" => Self::Released(serde_json::from_slice(data).ok()?),
            "candidates" => Self::Candidates(serde_json::from_slice(data).ok()?),
            "ended" => Self::Ended(serde_json::from_slice(data).ok()?),
            _ => Self::Stopping,
        };
        event.is_valid().then_some(event)
    }

    /// Returns whether a candidate can have sent it.
    fn is_valid(&self) -> bool {
        let fits = |ms: u64| Duration::from_millis(ms) <= LONGEST_TIME;
        let is_heir = |it: &Option<String>| it.as_deref().is_none_or(is_name);
        match self {
            Self::Holding(it) => fits(it.sent_ago_ms) && fits(it.lease_ms) && fits(it.next_ms),
            Self::Draining(it) => is_heir(&it.heir) && fits(it.remaining_ms),
            Self::Released(it) => is_heir(&it.heir),
            Self::Ended(it) => is_name(&it.reason),
            Self::Candidates(all) => all.iter().all(is_valid_entry),
            Self::Stopping => true,
        }
    }
}

/// Returns whether all texts of a candidate can be shown, and its numbers are in range.
fn is_valid_entry(entry: &CandidateEntry) -> bool {
    let CandidateEntry { identity, instance, address, zone, priority, state, failing, .. } = entry;
    let are_names =
        [Some(identity), Some(instance), address.as_ref(), zone.as_ref(), failing.as_ref()]
            .into_iter()
            .flatten()
            .all(|it| is_name(it));
    are_names && *priority <= 100 && State::ALL.iter().any(|it| it.as_str() == state)
}

fn json(data: &impl Serialize) -> String {
    serde_json::to_string(data).expect("texts and numbers are JSON")
}

/// Returns whole milliseconds, rounded up: for a time that must not be understated.
pub(super) fn ms_at_least(duration: Duration) -> u64 {
    whole_ms(duration).saturating_add(u64::from(!duration.subsec_nanos().is_multiple_of(1_000_000)))
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// An event.
    Event(PeerEvent),
    /// An event of this kind that no leader can have sent.
    Malformed(&'static str),
}

/// A line or an event is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Reads the events from the bytes of a stream, in whatever pieces they arrive.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    /// The bytes of an incomplete line.
    line: Vec<u8>,
    /// The kind of the event, if it is known.
    kind: Option<&'static str>,
    /// The data of the event, up to the last complete line.
    data: Vec<u8>,
}

impl EventReader {
    /// Takes bytes until an event is complete, and returns it; `None` when all bytes are taken. Events
    /// of unknown kinds, which later versions may send, are passed over.
    pub(super) fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Read>, TooLong> {
        while let Some(end) = bytes.iter().position(|it| *it == b'\n') {
            self.take(&bytes[..end])?;
            *bytes = &bytes[end + 1..];
            if let Some(read) = self.end_line()? {
                return Ok(Some(read));
            }
        }
        self.take(bytes)?;
        *bytes = &[];
        Ok(None)
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.line.len() + bytes.len() > LONGEST_LINE {
            return Err(TooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<Option<Read>, TooLong> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if line.is_empty() {
            return Ok(self.end_event());
        }
        let (field, value) = match line.iter().position(|it| *it == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.kind = KINDS.into_iter().find(|it| it.as_bytes() == value),
            b"data" => {
                if self.data.len() + value.len() >= LONGEST_EVENT {
                    return Err(TooLong);
                }
                self.data.extend_from_slice(value);
                self.data.push(b'\n');
            }
            // A comment, or a field that later versions may send.
            _ => {}
        }
        Ok(None)
    }

    fn end_event(&mut self) -> Option<Read> {
        let data = std::mem::take(&mut self.data);
        let kind = self.kind.take()?;
        Some(PeerEvent::parse(kind, &data).map_or(Read::Malformed(kind), Read::Event))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(number: usize) -> CandidateEntry {
        CandidateEntry {
            identity: format!("web-{number}"),
            instance: format!("{number:032}"),
            address: Some("10.0.3.7:8080".to_owned()),
            zone: None,
            priority: 50,
            state: "standby".to_owned(),
            failing: None,
            connected: true,
            contact_ms_ago: 0,
            heir: number == 1,
            gone: false,
        }
    }

    fn events() -> Vec<PeerEvent> {
        let heir = Some("0190".to_owned());
        vec![
            PeerEvent::Holding(Holding {
                term: 7,
                sent_ago_ms: 3,
                lease_ms: 15_000,
                next_ms: 2_000,
            }),
            PeerEvent::Draining(Draining { term: 7, heir: heir.clone(), remaining_ms: 10_000 }),
            PeerEvent::Released(Released { term: 7, heir }),
            PeerEvent::Released(Released { term: u64::MAX, heir: None }),
            PeerEvent::Candidates((0..3).map(entry).collect()),
            PeerEvent::Candidates(Vec::new()),
            PeerEvent::Stopping,
            PeerEvent::Ended(Ended { term: 7, reason: "lost".to_owned() }),
        ]
    }

    fn read(pieces: &[&[u8]]) -> Result<Vec<Read>, TooLong> {
        let (mut reader, mut all) = (EventReader::default(), Vec::new());
        for piece in pieces {
            let mut bytes = *piece;
            while let Some(read) = reader.read(&mut bytes)? {
                all.push(read);
            }
        }
        Ok(all)
    }

    #[test]
    fn events_come_back_as_they_were_sent_in_whatever_pieces() {
        let text: String = events().iter().map(PeerEvent::format).collect();
        let expected: Vec<_> = events().into_iter().map(Read::Event).collect();
        for size in [1, 2, 7, 4_096] {
            let pieces: Vec<_> = text.as_bytes().chunks(size).collect();
            assert_eq!(read(&pieces).as_ref(), Ok(&expected), "{size}");
        }
        let windows = text.replace('\n', "\r\n");
        assert_eq!(read(&[windows.as_bytes()]), Ok(expected));
    }

    #[test]
    fn the_format_is_that_of_the_documentation() {
        let text = events()[0].format();
        let expected = "event: holding\ndata: {\"term\":7,\"sent_ago_ms\":3,\"lease_ms\":15000,\
                        \"next_ms\":2000}\n\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_no_leader_sends_is_malformed() {
        for (kind, data) in [
            ("holding", "{}"),
            ("holding", "{\"term\":-1,\"sent_ago_ms\":3,\"lease_ms\":1,\"next_ms\":2}"),
            ("holding", "{\"term\":1,\"sent_ago_ms\":3,\"lease_ms\":1,\"next_ms\":86400001}"),
            ("holding", "not JSON"),
            ("draining", "{\"term\":1,\"heir\":\"\",\"remaining_ms\":2}"),
            ("released", "{\"term\":1,\"heir\":\"a\\u0000b\"}"),
            ("released", ""),
            ("candidates", "{}"),
            ("ended", "{\"term\":1,\"reason\":\"a\\u0000b\"}"),
        ] {
            let text = format!("event: {kind}\ndata: {data}\n\n");
            assert_eq!(read(&[text.as_bytes()]), Ok(vec![Read::Malformed(kind)]), "{data}");
        }
        for bad in [
            CandidateEntry { identity: "a\u{202e}b".to_owned(), ..entry(1) },
            CandidateEntry { instance: String::new(), ..entry(1) },
            CandidateEntry { failing: Some("x".repeat(129)), ..entry(1) },
            CandidateEntry { priority: 101, ..entry(1) },
            CandidateEntry { state: "king".to_owned(), ..entry(1) },
        ] {
            let text = PeerEvent::Candidates(vec![entry(0), bad]).format();
            assert_eq!(read(&[text.as_bytes()]), Ok(vec![Read::Malformed("candidates")]));
        }
    }

    #[test]
    fn events_of_later_versions_and_comments_are_passed_over() {
        let text = ": hello\nid: 3\nretry\nevent: moved\ndata: {}\n\ndata: alone\n\n\n\
                    event: stopping\ndata: {\"why\":1}\n\n";
        assert_eq!(read(&[text.as_bytes()]), Ok(vec![Read::Event(PeerEvent::Stopping)]));
    }

    #[test]
    fn a_long_line_and_a_long_event_end_the_stream() {
        let line = vec![b'x'; LONGEST_LINE];
        assert_eq!(read(&[&line]), Ok(Vec::new()));
        assert_eq!(read(&[&line, b"x"]), Err(TooLong));
        assert_eq!(read(&[&[b'x'; LONGEST_LINE + 1]]), Err(TooLong));
        let data = format!("data: {}\n", "x".repeat(4_000));
        assert_eq!(read(&[data.repeat(16).as_bytes()]), Ok(Vec::new()));
        assert_eq!(read(&[data.repeat(17).as_bytes()]), Err(TooLong));
    }

    #[test]
    fn a_table_of_any_size_fits_and_each_of_its_lines_does() {
        let long = |length: usize| "\"".repeat(length);
        let widest = CandidateEntry {
            identity: "𠮷".repeat(128),
            instance: long(128),
            address: Some(long(128)),
            zone: Some(long(128)),
            failing: Some(long(128)),
            contact_ms_ago: u64::MAX,
            ..entry(0)
        };
        for (all, kept) in [(vec![entry(0); 129], 129), (vec![widest; 129], 30)] {
            let text = PeerEvent::Candidates(all).format();
            let Ok(found) = read(&[text.as_bytes()]) else { panic!("too long") };
            let [Read::Event(PeerEvent::Candidates(found))] = &found[..] else {
                panic!("{found:?}")
            };
            assert!(found.len() >= kept, "{}", found.len());
        }
    }

    #[test]
    fn a_time_is_rounded_up() {
        for (micros, ms) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(ms_at_least(Duration::from_micros(micros)), ms);
        }
        assert_eq!(ms_at_least(Duration::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_within_the_bounds(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..9),
        ) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = read(&pieces);
        }
    }
}
