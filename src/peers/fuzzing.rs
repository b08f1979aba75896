//! Fuzz target for what peers send: the events of a stream, and the headers of a request for it.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::event::{EventReader, LONGEST_EVENT, LONGEST_LINE, PeerEvent, Read};
use super::subscription::{Subscription, headers};
use crate::lease::Nonce;
use crate::lease::text::is_name;

/// Reads bytes as a stream and as headers: what is accepted comes back as it was when it is sent again,
/// within the bounds, and every text in it can be shown.
pub fn peer_stream(data: &[u8]) {
    let (mut reader, mut bytes) = (EventReader::default(), data);
    while let Ok(Some(read)) = reader.read(&mut bytes) {
        if let Read::Event(event) = read {
            sent_again(&event);
        }
    }
    let Ok(Subscription { election, report }) = Subscription::read(&parsed(data)) else { return };
    let texts = [Some(&election), Some(&report.identity), report.zone.as_ref()];
    assert!(texts.into_iter().flatten().all(|it| is_name(it)), "{report:?}");
    let again = Subscription::read(&headers(&election, &report, Nonce(7)));
    assert_eq!(again, Ok(Subscription { election, report }));
}

fn sent_again(event: &PeerEvent) {
    let text = event.format();
    assert!(text.lines().all(|it| it.len() <= LONGEST_LINE), "{text}");
    let data: usize = text.lines().filter_map(|it| it.strip_prefix("data: ")).map(str::len).sum();
    assert!(data <= LONGEST_EVENT, "{data}");
    let read = EventReader::default().read(&mut text.as_bytes());
    match (event, read) {
        (PeerEvent::Candidates(sent), Ok(Some(Read::Event(PeerEvent::Candidates(read))))) => {
            // A table that is formatted longer than it was read may lose its end.
            assert!(sent.starts_with(&read), "{text}");
        }
        (sent, read) => assert_eq!(read, Ok(Some(Read::Event(sent.clone())))),
    }
}

fn parsed(data: &[u8]) -> HeaderMap {
    let pair = |line: &[u8]| {
        let at = line.iter().position(|it| *it == b':')?;
        let name = HeaderName::from_bytes(&line[..at]).ok()?;
        let value = HeaderValue::from_bytes(line[at + 1..].trim_ascii()).ok()?;
        Some((name, value))
    };
    data.split(|it| *it == b'\n').filter_map(pair).collect()
}
