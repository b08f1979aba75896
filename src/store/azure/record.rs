//! The record of a leadership in the metadata of a blob. Values are escaped as in a URL, since
//! metadata travel in headers, where blanks at the ends would be lost and other characters refused.

use std::collections::HashMap;
use std::sync::Arc;

use azure_core::http::headers::Headers;

use super::header;
use crate::lease::{Bid, Candidate, Cause, Failure, Nonce, Record, Successor};

const TERM: &str = "tenure_term";
const IDENTITY: &str = "tenure_identity";
const INSTANCE: &str = "tenure_instance";
const ADDRESS: &str = "tenure_address";
const PEER: &str = "tenure_peer";
const NONCE: &str = "tenure_nonce";
const SUCCESSOR: &str = "tenure_successor";
const HOLD_OFF: &str = "tenure_hold_off_ms";
pub(super) const OURS: [&str; 8] =
    [TERM, IDENTITY, INSTANCE, ADDRESS, PEER, NONCE, SUCCESSOR, HOLD_OFF];

/// The metadata of a blob, by name in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Metadata(HashMap<String, String>);

/// Returns the metadata from the answer to a read.
pub(super) fn metadata(headers: &Headers) -> Metadata {
    let named = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().to_ascii_lowercase();
        let name = name.strip_prefix("x-ms-meta-")?;
        Some((name.to_owned(), value.as_str().to_owned()))
    });
    Metadata(named.collect())
}

/// Reads the record of a blob from the answer to a read, and refuses one that Tenure did not write.
pub(super) fn read(headers: &Headers, blob: &str) -> Result<Record, Failure> {
    let Metadata(fields) = metadata(headers);
    let foreign = |why: String| {
        let message = format!(
            "the blob {blob} was not written by Tenure: {why}; choose another election or \
             --azure-blob-prefix, or delete the blob if it is not in use"
        );
        Failure::new(Cause::Record, message)
    };
    if !OURS.iter().any(|name| fields.contains_key(*name)) {
        let mut others: Vec<&str> = fields.keys().map(String::as_str).collect();
        others.sort_unstable();
        if let Some(first) = others.first() {
            return Err(foreign(format!("it has metadata of another application ({first})")));
        }
        return match header(headers, "content-length") {
            None | Some("0") => Ok(Record::default()),
            Some(_) => Err(foreign("it has content but no term".to_owned())),
        };
    }
    let number = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(text) if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() => {
            let number = text.parse::<u64>();
            Ok(Some(number.map_err(|_| foreign(format!("its {name} is too large")))?))
        }
        Some(_) => Err(foreign(format!("its {name} is not a number"))),
    };
    let term = number(TERM)?;
    let text = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(value) => match unescape(value) {
            Some(value) => Ok(Some(value)),
            None => Err(foreign(format!("its {name} is not escaped as Tenure does"))),
        },
    };
    let nonce = match fields.get(NONCE) {
        None => None,
        Some(value) => {
            Some(value.parse::<Nonce>().map_err(|_| foreign(format!("its {NONCE} is invalid")))?)
        }
    };
    let (identity, instance) = (text(IDENTITY)?, text(INSTANCE)?);
    let (address, peer) = (text(ADDRESS)?, text(PEER)?);
    let holder = identity.map(|identity| {
        Arc::new(Candidate { identity, instance: instance.unwrap_or_default(), address, peer })
    });
    let successor = match (text(SUCCESSOR)?, number(HOLD_OFF)?) {
        (Some(identity), Some(hold_off)) => Successor::recorded(&identity, hold_off),
        (None, None) => None,
        _ => return Err(foreign(format!("it has only one of {SUCCESSOR} and {HOLD_OFF}"))),
    };
    Ok(Record { term, holder, nonce, successor })
}

impl Metadata {
    /// Replaces the record of an earlier leadership with that of a bid; what others have added
    /// stays.
    pub(super) fn write_term(self, bid: &Bid, term: u64) -> HashMap<String, String> {
        let mut fields = self.without_ours();
        let mut put = |name: &str, value: String| fields.insert(name.to_owned(), value);
        put(TERM, term.to_string());
        put(IDENTITY, escape(&bid.candidate.identity));
        put(INSTANCE, escape(&bid.candidate.instance));
        if let Some(address) = bid.candidate.address.as_deref().filter(|it| !it.is_empty()) {
            put(ADDRESS, escape(address));
        }
        if let Some(peer) = bid.candidate.peer.as_deref().filter(|it| !it.is_empty()) {
            put(PEER, escape(peer));
        }
        put(NONCE, bid.nonce.to_string());
        fields
    }

    /// Adds the successor to the present record.
    pub(super) fn set_successor(self, successor: &Successor) -> HashMap<String, String> {
        let Self(mut fields) = self;
        fields.insert(SUCCESSOR.to_owned(), escape(&successor.identity));
        fields.insert(HOLD_OFF.to_owned(), successor.hold_off_millis().to_string());
        fields
    }

    /// Replaces a record without a term with a first term that has no holder.
    pub(super) fn first_term(self, term: u64) -> HashMap<String, String> {
        let mut fields = self.without_ours();
        fields.insert(TERM.to_owned(), term.to_string());
        fields
    }

    fn without_ours(self) -> HashMap<String, String> {
        let Self(mut fields) = self;
        fields.retain(|name, _| !OURS.contains(&name.as_str()));
        fields
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'/' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            plain.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            plain.push(byte);
        }
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{LeaseId, Version};
    use proptest::prelude::*;
    use std::time::Duration;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::new();
        for (name, value) in pairs {
            headers.insert((*name).to_owned(), (*value).to_owned());
        }
        headers
    }

    fn foreign(pairs: &[(&str, &str)]) -> String {
        let failure = read(&headers(pairs), "locks/orders").unwrap_err();
        assert_eq!(failure.cause, Cause::Record);
        failure.message.into_owned()
    }

    fn bid(identity: String, address: Option<String>, peer: Option<String>) -> Bid {
        Bid {
            lease: LeaseId::from_random(1),
            nonce: Nonce(0xfeed),
            candidate: Arc::new(Candidate { identity, instance: "01J".to_owned(), address, peer }),
            lease_duration: Duration::from_secs(15),
            seen: Version("".into()),
            written: None,
        }
    }

    #[test]
    fn an_empty_blob_without_metadata_has_no_record_yet() {
        assert_eq!(read(&headers(&[("content-length", "0")]), "b"), Ok(Record::default()));
    }

    #[test]
    fn foreign_metadata_is_refused_with_the_reason() {
        assert!(foreign(&[("content-length", "5")]).contains("has content"));
        assert!(foreign(&[("x-ms-meta-owner", "x")]).contains("another application (owner)"));
        for term in ["", "-1", "+1", "1.5", "soon", "0x10"] {
            assert!(foreign(&[("x-ms-meta-tenure_term", term)]).contains("not a number"), "{term}");
        }
        let huge = "99999999999999999999";
        assert!(foreign(&[("x-ms-meta-tenure_term", huge)]).contains("too large"));
        assert!(foreign(&[("x-ms-meta-tenure_nonce", "zz")]).contains("tenure_nonce"));
        for escaped in ["%zz", "%0g", "%", "%f", "%ff"] {
            let why = foreign(&[("x-ms-meta-tenure_identity", escaped)]);
            assert!(why.contains("tenure_identity"), "{escaped}: {why}");
        }
    }

    #[test]
    fn of_several_metadata_of_others_the_first_by_name_is_shown() {
        let names: Vec<_> = ('a'..='z').map(|it| format!("x-ms-meta-{it}")).collect();
        let pairs: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
        assert!(foreign(&pairs).contains("another application (a)"));
    }

    #[test]
    fn only_what_a_header_could_lose_is_escaped() {
        let bid = bid("web-1.a_b~C é%".to_owned(), Some("http://[::1]:80/".to_owned()), None);
        let written = Metadata::default().write_term(&bid, 3);
        assert_eq!(written[IDENTITY], "web-1.a_b~C%20%C3%A9%25");
        assert_eq!(written[ADDRESS], "http://%5B::1%5D:80/");
        assert_eq!(written[TERM], "3");
    }

    #[test]
    fn a_term_without_a_holder_is_a_record() {
        let record = read(&headers(&[("x-ms-meta-tenure_term", "7")]), "b").unwrap();
        assert_eq!(record, Record { term: Some(7), ..Record::default() });
    }

    #[test]
    fn a_successor_is_read_whole_or_refused_within_the_longest_hold_off() {
        let with = |identity, hold_off| {
            [
                ("x-ms-meta-tenure_term", "7"),
                ("x-ms-meta-tenure_successor", identity),
                ("x-ms-meta-tenure_hold_off_ms", hold_off),
            ]
        };
        let read = |pairs: &[(&str, &str)]| read(&headers(pairs), "b").unwrap().successor;
        let hold_off = Duration::from_millis(10_250);
        let identity = "a b".to_owned();
        assert_eq!(read(&with("a%20b", "10250")), Some(Successor { identity, hold_off }));
        assert_eq!(read(&with("a", "3600001")), None);
        assert_eq!(read(&with("", "1")), None);
        for pairs in
            [with("a", "-1"), with("a", "soon"), with("a", ""), with("a", "99999999999999999999")]
        {
            assert!(foreign(&pairs).contains("tenure_hold_off_ms"), "{pairs:?}");
        }
        assert!(foreign(&with("%zz", "1")).contains("tenure_successor"));
        for half in [1, 2] {
            let pairs = [with("a", "1")[0], with("a", "1")[half]];
            assert!(foreign(&pairs).contains("only one of"), "{pairs:?}");
        }
    }

    #[test]
    fn metadata_of_others_is_kept() {
        let found = metadata(&headers(&[
            ("x-ms-meta-Team", "blue"),
            ("x-ms-meta-tenure_address", "old:1"),
            ("x-ms-meta-tenure_peer", "http://10.0.0.1:1/peer"),
            ("etag", "x"),
        ]));
        let written = found.write_term(&bid("a".to_owned(), None, None), 3);
        assert_eq!(written.get("team").map(String::as_str), Some("blue"));
        for name in [ADDRESS, PEER] {
            assert!(!written.contains_key(name), "{name} was the last holder's");
        }
    }

    proptest! {
        #[test]
        fn a_record_comes_back_as_it_was_written(
            identity in "[ -~]{1,128}",
            address in proptest::option::of("\\PC{1,40}"),
            peer in proptest::option::of("\\PC{1,40}"),
            term: u64,
        ) {
            let bid = bid(identity, address, peer);
            let written = Metadata::default().write_term(&bid, term);
            for value in written.values() {
                prop_assert!(value.bytes().all(|b| b.is_ascii_graphic()), "{}", value);
            }
            let pairs: Vec<(String, &str)> = written
                .iter()
                .map(|(name, value)| (format!("x-ms-meta-{name}"), value.as_str()))
                .collect();
            let pairs: Vec<(&str, &str)> = pairs.iter().map(|(n, v)| (n.as_str(), *v)).collect();
            let record = read(&headers(&pairs), "b").unwrap();
            prop_assert_eq!(record.term, Some(term));
            prop_assert_eq!(record.nonce, Some(bid.nonce));
            prop_assert_eq!(record.holder, Some(bid.candidate));
        }
    }
}
