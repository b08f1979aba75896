//! The headers of a request for the leader's stream, in which a candidate says who it is, and of its
//! answer.

use std::str;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::proof::{PROOF, prove};
use super::report::Report;
use crate::election::State;
use crate::lease::Nonce;
use crate::lease::text::is_name;

const ELECTION: HeaderName = HeaderName::from_static("tenure-election");
const IDENTITY: HeaderName = HeaderName::from_static("tenure-identity");
/// Of the candidate in a request, of the leader in an answer.
pub(super) const INSTANCE: HeaderName = HeaderName::from_static("tenure-instance");
const STATE: HeaderName = HeaderName::from_static("tenure-state");
const PRIORITY: HeaderName = HeaderName::from_static("tenure-priority");
const ADDRESS: HeaderName = HeaderName::from_static("tenure-address");
const ZONE: HeaderName = HeaderName::from_static("tenure-zone");
const FAILING: HeaderName = HeaderName::from_static("tenure-failing");
const HOLDS_OFF: HeaderName = HeaderName::from_static("tenure-holds-off");

/// What a candidate says of itself, all of which its proof covers.
pub(super) const SIGNED: [HeaderName; 9] =
    [ELECTION, IDENTITY, INSTANCE, STATE, PRIORITY, ADDRESS, ZONE, FAILING, HOLDS_OFF];

/// Returns the headers of a request by a candidate of an election, to the leader whose record has this
/// nonce.
pub(super) fn headers(election: &str, report: &Report, nonce: Nonce) -> HeaderMap {
    let Report { identity, instance, address, zone, priority, state, failing, holds_off } = report;
    let priority = priority.to_string();
    let given = [
        Some(election),
        Some(identity),
        Some(instance),
        Some(state.as_str()),
        Some(&priority),
        address.as_deref(),
        zone.as_deref(),
        failing.as_deref(),
        holds_off.then_some("yes"),
    ];
    // None of the texts has a control character, which alone would be refused.
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
    let values = SIGNED.into_iter().zip(given).filter_map(|(name, it)| Some((name, value(it?)?)));
    let mut headers: HeaderMap = values.collect();
    let proof = prove(nonce, &headers);
    headers.extend(value(&proof).map(|it| (PROOF, it)));
    headers
}

/// A valid request for the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subscription {
    pub(super) election: String,
    pub(super) report: Report,
}

/// The header of a request that is missing or invalid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidHeader(pub(super) &'static str);

impl Subscription {
    /// Reads the headers of a request.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, InvalidHeader> {
        let optional = |name: HeaderName, shown| match headers.get(name) {
            None => Ok(None),
            Some(value) => match str::from_utf8(value.as_bytes()) {
                Ok(text) if is_name(text) => Ok(Some(text.to_owned())),
                _ => Err(InvalidHeader(shown)),
            },
        };
        let needed = |name, shown| optional(name, shown)?.ok_or(InvalidHeader(shown));
        let state = needed(STATE, "Tenure-State")?;
        let state = State::ALL.into_iter().find(|it| it.as_str() == state);
        let priority = needed(PRIORITY, "Tenure-Priority")?.parse::<u8>().ok();
        let report = Report {
            identity: needed(IDENTITY, "Tenure-Identity")?,
            instance: needed(INSTANCE, "Tenure-Instance")?,
            address: optional(ADDRESS, "Tenure-Address")?,
            zone: optional(ZONE, "Tenure-Zone")?,
            priority: priority.filter(|it| *it <= 100).ok_or(InvalidHeader("Tenure-Priority"))?,
            state: state.ok_or(InvalidHeader("Tenure-State"))?,
            failing: optional(FAILING, "Tenure-Failing")?,
            holds_off: headers.contains_key(HOLDS_OFF),
        };
        Ok(Self { election: needed(ELECTION, "Tenure-Election")?, report })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_report_comes_back_as_it_was_sent() {
        let plain = report("web-1", State::Standby);
        let full = Report {
            address: Some("http://[::1]:80/ä".to_owned()),
            zone: Some("west 1".to_owned()),
            failing: Some("exec:/bin/a: exit code 1…".to_owned()),
            priority: 100,
            state: State::Unhealthy,
            ..plain.clone()
        };
        let holds_off = Report { holds_off: true, ..plain.clone() };
        for report in [plain, full, holds_off] {
            let read = Subscription::read(&headers("orders", &report, Nonce(1)));
            assert_eq!(read, Ok(Subscription { election: "orders".to_owned(), report }));
        }
    }

    #[test]
    fn what_is_missing_or_invalid_is_named() {
        let whole = headers("orders", &report("web-1", State::Standby), Nonce(1));
        for (name, value, shown) in [
            ("tenure-election", None, "Tenure-Election"),
            ("tenure-identity", None, "Tenure-Identity"),
            ("tenure-identity", Some(&b""[..]), "Tenure-Identity"),
            ("tenure-identity", Some(&[b'x'; 129]), "Tenure-Identity"),
            ("tenure-identity", Some("a\u{202e}b".as_bytes()), "Tenure-Identity"),
            ("tenure-instance", Some(b"\xff"), "Tenure-Instance"),
            ("tenure-state", Some(b"king"), "Tenure-State"),
            ("tenure-priority", Some(b"101"), "Tenure-Priority"),
            ("tenure-priority", Some(b"-1"), "Tenure-Priority"),
            ("tenure-zone", Some(b""), "Tenure-Zone"),
            ("tenure-failing", Some("\u{2028}".as_bytes()), "Tenure-Failing"),
        ] {
            let mut headers = whole.clone();
            headers.remove(name);
            if let Some(value) = value {
                headers.insert(name, HeaderValue::from_bytes(value).unwrap());
            }
            assert_eq!(Subscription::read(&headers), Err(InvalidHeader(shown)), "{name}");
        }
    }
}
