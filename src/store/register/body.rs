//! The value of an election: who claims the lease, and the record of the last leadership. Sends no request
//! and reads no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lease::{Bid, Claim, Label, Nonce, Record, Snapshot, Successor, Version};
use crate::store::json::{self, LARGEST_TERM, StoredHolder, StoredSuccessor};

/// The format that this version reads and writes. In format 1 a claim counted its renewals, so that one
/// that a failover had lost could come back equal.
const FORMAT: u64 = 2;

/// The version of a value that does not exist.
const MISSING: &str = "missing";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBody {
    tenure: u64,
    write: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<StoredClaim>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    term: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nonce: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<StoredHolder>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    successor: Option<StoredSuccessor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredClaim {
    nonce: String,
    /// The candidate, for people.
    identity: String,
    lease_ms: u64,
    renewal: String,
    writes: u64,
    /// Whether an operator is breaking the lease: it runs out, and is not renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    breaking: bool,
}

/// Who claims the lease. Its time is counted by each observer, from the first sight of its renewal on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Identifies the acquisition.
    pub nonce: Nonce,
    /// The candidate, as it names itself.
    pub identity: String,
    /// How long the lease lasts after each renewal.
    pub lease_duration: Duration,
    /// Random in each renewal, and unchanged by other writes: what observers compare.
    pub renewal: Nonce,
    /// Counts the writes under this claim, only to tell a report from an older one.
    pub writes: u64,
    /// Whether an operator has broken the lease, so that it runs out.
    pub is_breaking: bool,
}

/// The value of an election, or that of its trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Random in each write. A store's name for a state may be a digest of the content: without it, two
    /// states apart in time could have one name.
    pub write: Nonce,
    /// The claim; `None` if the lease is free.
    pub held: Option<Held>,
    /// The record; without a term if there is none.
    pub record: Record,
}

impl StoredBody {
    fn of(body: &Body) -> Self {
        let Record { term, holder, nonce, successor } = &body.record;
        Self {
            tenure: FORMAT,
            write: body.write.to_string(),
            claim: body.held.as_ref().map(|it| StoredClaim {
                nonce: it.nonce.to_string(),
                identity: it.identity.clone(),
                lease_ms: u64::try_from(it.lease_duration.as_millis()).unwrap_or(u64::MAX),
                renewal: it.renewal.to_string(),
                writes: it.writes,
                breaking: it.is_breaking,
            }),
            term: *term,
            nonce: nonce.as_ref().map(ToString::to_string),
            holder: holder.as_deref().map(StoredHolder::of),
            successor: successor.as_ref().map(StoredSuccessor::of),
        }
    }

    /// Returns the value, or what is wrong with it.
    fn read(self) -> Result<Body, String> {
        let Self { write, claim, term, nonce, holder, successor, .. } = self;
        let held = claim.map(|it| {
            Ok::<_, String>(Held {
                nonce: json::nonce(&it.nonce)?,
                identity: it.identity,
                lease_duration: Duration::from_millis(it.lease_ms),
                renewal: json::nonce(&it.renewal)?,
                writes: it.writes,
                is_breaking: it.breaking,
            })
        });
        if term.is_none() && nonce.is_some() {
            return Err("has a nonce without a term".to_owned());
        }
        let record = json::record(term, nonce.as_deref(), holder, successor)?;
        Ok(Body { write: json::nonce(&write)?, held: held.transpose()?, record })
    }
}

impl Default for Body {
    fn default() -> Self {
        Self { write: Nonce(0), held: None, record: Record::default() }
    }
}

impl Body {
    /// Reads a value.
    ///
    /// # Errors
    /// Returns why it is none of Tenure's, or of another format, to follow its name.
    pub fn decode(content: &[u8]) -> Result<Self, String> {
        json::decode::<StoredBody>(content, FORMAT)?.read()
    }

    /// Returns the value as stores keep it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        json::encode(&StoredBody::of(self))
    }

    /// Makes it another state, by a nonce that no other write has.
    pub(super) fn stamp(&mut self, write: Nonce) {
        self.write = write;
        if let Some(held) = &mut self.held {
            held.writes = held.writes.saturating_add(1);
        }
    }

    /// Returns the record; of a holder that has not written its own yet, the term of the last one alone.
    pub(super) fn shown_record(&self) -> Record {
        let is_of_holder = |it: &Held| it.is_breaking || self.record.nonce == Some(it.nonce);
        match self.held.as_ref().is_none_or(is_of_holder) {
            true => self.record.clone(),
            false => Record { term: self.record.term, ..Record::default() },
        }
    }

    /// Returns what a read of this version shows.
    pub(super) fn snapshot(&self, version: Version) -> Snapshot {
        let claim = self.held.as_ref().map(Held::claim);
        let record = self.shown_record();
        let ends_in = claim.as_ref().map(|it| it.lease_duration);
        Snapshot { free: claim.is_none(), record, version, claim, ends_in }
    }

    /// Returns whether this acquisition holds the lease.
    pub(super) fn is_of(&self, bid: &Bid) -> bool {
        self.is_to_end(bid) && self.held.as_ref().is_some_and(|it| !it.is_breaking)
    }

    /// Returns whether this acquisition may free the lease: it holds it, or held it until an operator
    /// broke it.
    pub(super) fn is_to_end(&self, bid: &Bid) -> bool {
        self.held.as_ref().is_some_and(|it| it.nonce == bid.nonce)
    }

    /// Makes a bid the holder.
    pub(super) fn take(&mut self, bid: &Bid, renewal: Nonce) {
        self.held = Some(Held {
            nonce: bid.nonce,
            identity: bid.candidate.identity.clone(),
            lease_duration: whole_millis(bid.lease_duration),
            renewal,
            writes: 0,
            is_breaking: false,
        });
    }

    /// Changes the claim, so that every observer waits anew.
    pub(super) fn renew(&mut self, bid: &Bid, renewal: Nonce) {
        if let Some(held) = &mut self.held {
            held.lease_duration = whole_millis(bid.lease_duration);
            held.renewal = renewal;
        }
    }

    /// Makes the claim one that runs out, for which every observer waits anew.
    pub(super) fn mark_broken(&mut self, renewal: Nonce) {
        if let Some(held) = &mut self.held {
            held.is_breaking = true;
            held.renewal = renewal;
        }
    }

    /// Frees the lease; the record stays.
    pub(super) fn free(&mut self) {
        self.held = None;
    }

    /// Returns the term of the record, if this bid wrote it.
    pub(super) fn term_of(&self, bid: &Bid) -> Option<u64> {
        self.record.term.filter(|_| self.record.nonce == Some(bid.nonce))
    }

    /// Replaces the record of an earlier leadership with that of a bid, whose term is above the last one
    /// and at least `floor`. Returns whether there is such a term.
    pub(super) fn write_term(&mut self, bid: &Bid, floor: u64) -> bool {
        let next = self.record.term.unwrap_or(0).checked_add(1);
        let Some(term) = next.map(|it| it.max(floor)).filter(|it| *it <= LARGEST_TERM) else {
            return false;
        };
        let holder = Some(bid.candidate.clone());
        self.record = Record { term: Some(term), holder, nonce: Some(bid.nonce), successor: None };
        true
    }

    /// Writes which candidate should lead next.
    pub(super) fn set_successor(&mut self, successor: &Successor) {
        self.record.successor = Some(successor.as_stored());
    }
}

impl Held {
    /// Returns the claim that observers compare: a renewal changes it, and no other write does.
    pub fn claim(&self) -> Claim {
        let spec = Version(self.renewal.to_string().into());
        Claim { spec, lease_duration: self.lease_duration }
    }
}

/// Rounds up to what the content can say; rounding down would be too short for observers.
fn whole_millis(duration: Duration) -> Duration {
    let rest = u64::from(!duration.subsec_nanos().is_multiple_of(1_000_000));
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis.saturating_add(rest))
}

/// Returns the version of a value: the server's name for it, with all of its content.
pub(super) fn version(tag: &str, body: &Body) -> Version {
    Version(Label::of(tag, body.clone()))
}

/// Returns the server's name and the value of a version; `None` if there was no value.
pub(super) fn of_version(version: &Version) -> Option<(String, Body)> {
    Some((version.0.to_string(), version.0.state::<Body>()?.clone()))
}

/// Returns the result of reading a value that does not exist.
pub(super) fn missing() -> Snapshot {
    Body::default().snapshot(Version(MISSING.into()))
}

/// Returns whether a bid is for a value that did not exist.
pub(super) fn is_missing(seen: &Version) -> bool {
    &*seen.0 == MISSING && of_version(seen).is_none()
}

/// Returns a value with a term and nothing else.
pub(super) fn first(term: u64) -> Body {
    Body { record: Record { term: Some(term), ..Record::default() }, ..Body::default() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::lease::fuzzing::bid;

    fn other() -> Bid {
        Bid { nonce: Nonce(8), ..bid() }
    }

    fn held() -> Body {
        let mut body = Body::default();
        body.take(&bid(), Nonce(1));
        body
    }

    fn led() -> Body {
        let mut body = held();
        assert!(body.write_term(&bid(), 0));
        body
    }

    #[test]
    fn a_renewal_has_a_number_of_its_own_and_every_write_is_counted() {
        let mut body = held();
        let mut claims = Vec::new();
        for number in 1..=3 {
            body.stamp(Nonce(number));
            let content: Value = serde_json::from_slice(&body.encode()).unwrap();
            claims.push(content["claim"].clone());
            if number == 1 {
                body.renew(&Bid { lease_duration: Duration::from_secs(20), ..bid() }, Nonce(9));
            }
        }
        let of = |renewal: u64, writes: u64, lease_ms: u64| {
            let nonce = "00000000000000000000000000000007";
            let renewal = format!("{renewal:032x}");
            json!({"nonce": nonce, "identity": "a", "lease_ms": lease_ms, "renewal": renewal, "writes": writes})
        };
        assert_eq!(claims, [of(1, 1, 15_000), of(9, 2, 20_000), of(9, 3, 20_000)]);
    }

    #[test]
    fn what_no_candidate_writes_is_refused() {
        for (fields, words) in [
            (r#""tenure": 1"#, "has format 1 of an earlier version"),
            (r#""tenure": 3"#, "has format 3 of a later version"),
            (r#""tenure": 2, "term": -1"#, "is corrupt"),
            (r#""tenure": 2, "more": 1"#, "is corrupt"),
            (r#""tenure": 2, "nonce": "7""#, "has a nonce without a term"),
            (r#""tenure": 2, "term": 1, "nonce": "x""#, "has a nonce that is not hexadecimal"),
            (
                r#""tenure": 2, "term": 1, "successor": {"identity": "b", "hold_off_ms": 1}"#,
                "names a holder or a successor without a nonce",
            ),
            (
                r#""tenure": 2, "claim": {"nonce": "1", "identity": "a", "lease_ms": 1, "renewal": "x", "writes": 0}"#,
                "has a nonce that is not hexadecimal",
            ),
        ] {
            let content = format!(r#"{{"write": "0", {fields}}}"#);
            let what = Body::decode(content.as_bytes()).unwrap_err();
            assert!(what.starts_with(words), "{what}");
        }
        assert_eq!(Body::decode(br#"{"write": "0", "tenure": 2}"#), Ok(Body::default()));
    }

    #[test]
    fn a_holder_that_wrote_no_record_is_shown_with_the_last_term_alone() {
        let led = led();
        let mut freed = led.clone();
        freed.free();
        let mut taken = led.clone();
        taken.take(&other(), Nonce(2));
        let mut broken = taken.clone();
        broken.mark_broken(Nonce(3));
        for (body, is_whole) in [(&led, true), (&freed, true), (&taken, false), (&broken, true)] {
            let shown = body.shown_record();
            assert_eq!(shown.term, Some(1));
            assert_eq!(shown == led.record, is_whole, "{body:?}");
        }
    }

    #[test]
    fn a_broken_lease_is_no_longer_held_and_only_its_holder_may_free_it() {
        let mut body = held();
        let of = |body: &Body, bid: &Bid| (body.is_of(bid), body.is_to_end(bid));
        assert_eq!((of(&body, &bid()), of(&body, &other())), ((true, true), (false, false)));
        body.mark_broken(Nonce(3));
        assert_eq!((of(&body, &bid()), of(&body, &other())), ((false, true), (false, false)));
        body.free();
        assert_eq!(of(&body, &bid()), (false, false));
    }

    #[test]
    fn a_term_is_above_the_last_one_and_at_least_the_floor() {
        for (last, floor, expected) in [
            (None, 0, Some(1)),
            (Some(4), 0, Some(5)),
            (Some(4), 5, Some(5)),
            (Some(4), 9, Some(9)),
            (Some(LARGEST_TERM - 1), 0, Some(LARGEST_TERM)),
            (None, LARGEST_TERM, Some(LARGEST_TERM)),
            (Some(LARGEST_TERM), 0, None),
            (Some(u64::MAX), 0, None),
            (None, u64::MAX, None),
        ] {
            let mut body = held();
            body.record.term = last;
            let is_written = body.write_term(&bid(), floor);
            assert_eq!(
                (is_written, body.term_of(&bid())),
                (expected.is_some(), expected),
                "{last:?}"
            );
            assert_eq!(body.term_of(&other()), None);
        }
    }

    #[test]
    fn a_lease_lasts_whole_milliseconds_rounded_up() {
        for (asked, stored) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(1), 1),
            (Duration::from_nanos(1_000_001), 2),
            (Duration::from_millis(1_500), 1_500),
            (Duration::from_micros(1_999_001), 2_000),
            (Duration::MAX, u64::MAX),
        ] {
            assert_eq!(whole_millis(asked), Duration::from_millis(stored), "{asked:?}");
        }
    }

    #[test]
    fn a_version_has_all_of_a_value_and_that_of_a_missing_one_has_none() {
        let version = version("\"tag\"", &led());
        assert_eq!(of_version(&version), Some(("\"tag\"".to_owned(), led())));
        assert!(!is_missing(&version));
        let missing = missing();
        assert!(missing.free && is_missing(&missing.version));
        assert_eq!(of_version(&missing.version), None);
    }
}
