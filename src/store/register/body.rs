//! The content of the object that keeps a lease: who claims it, and the record of the last leadership.
//! Sends no request and reads no clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::lease::{
    Bid, Cause, Change, Claim, Failure, Nonce, Record, Snapshot, Successor, Version,
};
use crate::store::json::{self, FORMAT, LARGEST_TERM, StoredHolder, StoredSuccessor};

/// The version of an object that does not exist.
const MISSING: &str = "missing";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredBody {
    tenure: u64,
    /// Random in each write, since the version of an object may be a digest of its content: without it,
    /// two states apart in time could have one version.
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
    /// Counts the renewals, so that each of them changes the claim.
    renewals: u64,
    /// Whether an operator is breaking the lease: it runs out, and is not renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    breaking: bool,
}

/// Who claims the lease. Its time is counted by each observer, from the first sight of it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    nonce: Nonce,
    /// The candidate, as it names itself.
    pub(super) identity: String,
    pub(super) lease_duration: Duration,
    renewals: u64,
    pub(super) is_breaking: bool,
}

/// The content of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    /// The claim; `None` if the lease is free.
    pub(super) held: Option<Held>,
    /// The record; without a term if there is none.
    pub(super) record: Record,
}

impl Body {
    /// Reads the content of an object, or returns why it is none of Tenure's. `place` names the object.
    pub(super) fn read(content: &[u8], place: &str) -> Result<Self, Failure> {
        Self::decode(content).map_err(|what| {
            let message = format!(
                "{place} {what}; nothing was overwritten: set another election, or another place in --store, or \
                 delete it if nothing else uses it"
            );
            Failure::new(Cause::Record, message)
        })
    }

    fn decode(content: &[u8]) -> Result<Self, String> {
        let StoredBody { claim, term, nonce, holder, successor, .. } = json::decode(content)?;
        let held = claim.map(|it| {
            Ok::<_, String>(Held {
                nonce: json::nonce(&it.nonce)?,
                identity: it.identity,
                lease_duration: Duration::from_millis(it.lease_ms),
                renewals: it.renewals,
                is_breaking: it.breaking,
            })
        });
        if term.is_none() && nonce.is_some() {
            return Err("has a nonce without a term".to_owned());
        }
        let record = json::record(term, nonce.as_deref(), holder, successor)?;
        Ok(Self { held: held.transpose()?, record })
    }

    /// Returns the content for one write.
    pub(super) fn content(&self) -> Vec<u8> {
        let Record { term, holder, nonce, successor } = &self.record;
        json::encode(&StoredBody {
            tenure: FORMAT,
            write: Uuid::new_v4().simple().to_string(),
            claim: self.held.as_ref().map(|it| StoredClaim {
                nonce: it.nonce.to_string(),
                identity: it.identity.clone(),
                lease_ms: u64::try_from(it.lease_duration.as_millis()).unwrap_or(u64::MAX),
                renewals: it.renewals,
                breaking: it.is_breaking,
            }),
            term: *term,
            nonce: nonce.as_ref().map(ToString::to_string),
            holder: holder.as_deref().map(StoredHolder::of),
            successor: successor.as_ref().map(StoredSuccessor::of),
        })
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
    pub(super) fn take(&mut self, bid: &Bid) {
        self.held = Some(Held {
            nonce: bid.nonce,
            identity: bid.candidate.identity.clone(),
            lease_duration: whole_millis(bid.lease_duration),
            renewals: 0,
            is_breaking: false,
        });
    }

    /// Changes the claim, so that every observer waits anew.
    pub(super) fn renew(&mut self, bid: &Bid) {
        if let Some(held) = &mut self.held {
            held.lease_duration = whole_millis(bid.lease_duration);
            held.renewals = held.renewals.wrapping_add(1);
        }
    }

    /// Makes the claim one that runs out, for which every observer waits anew.
    pub(super) fn mark_broken(&mut self) {
        if let Some(held) = &mut self.held {
            held.is_breaking = true;
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
    fn claim(&self) -> Claim {
        let Self { nonce, renewals, is_breaking, lease_duration, .. } = self;
        let spec = format!("{nonce} {renewals} {is_breaking} {}", lease_duration.as_millis());
        Claim { spec: Version(spec.into()), lease_duration: *lease_duration }
    }
}

/// What a server reported last of a value, unasked.
#[derive(Default)]
pub(super) struct Noticed {
    /// A digest of what is of interest to a standby.
    news: Option<String>,
    /// The claim whose time observers count.
    claim: Option<Claim>,
}

impl Noticed {
    /// Records the content of the value, or that there is none; returns `None` if that is of no interest.
    pub(super) fn take(&mut self, content: Option<&[u8]>) -> Option<Change> {
        // What is none of Tenure's shows in the read that follows.
        let body = content.map(|it| Body::decode(it).map_err(|_| it));
        let held = body.as_ref().and_then(|it| it.as_ref().ok()?.held.as_ref());
        let claim = held.map(Held::claim);
        let held_by = held.filter(|it| !it.is_breaking).map(|it| it.nonce);
        let record = body.as_ref().map(|it| it.as_ref().map(|it| &it.record));
        let news = format!("{:?}", (held.map(|it| (it.nonce, it.is_breaking)), record));
        let known = self.news.replace(news);
        let counted = std::mem::replace(&mut self.claim, claim);
        if known != self.news {
            return Some(Change::News { held_by });
        }
        self.claim.clone().filter(|_| counted != self.claim).map(Change::Renewal)
    }
}

/// Rounds up to what the content can say; rounding down would be too short for observers.
fn whole_millis(duration: Duration) -> Duration {
    let rest = u64::from(!duration.subsec_nanos().is_multiple_of(1_000_000));
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis.saturating_add(rest))
}

/// Returns the version of an object: the server's name for it, and all of its content.
pub(super) fn version(tag: &str, content: &[u8]) -> Version {
    Version(format!("{tag}\n{}", String::from_utf8_lossy(content)).into())
}

/// Returns the server's name and the content of a version; `None` if the object did not exist.
pub(super) fn of_version(version: &Version) -> Option<(String, Body)> {
    let (tag, content) = version.0.split_once('\n')?;
    Some((tag.to_owned(), Body::decode(content.as_bytes()).ok()?))
}

/// Returns the result of reading an object that does not exist.
pub(super) fn missing() -> Snapshot {
    Body::default().snapshot(Version(MISSING.into()))
}

/// Returns whether a bid is for an object that did not exist.
pub(super) fn is_missing(seen: &Version) -> bool {
    &*seen.0 == MISSING
}

/// Returns the content of an object with a term and nothing else.
pub(super) fn first(term: u64) -> Body {
    Body { held: None, record: Record { term: Some(term), ..Record::default() } }
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
        body.take(&bid());
        body
    }

    fn led() -> Body {
        let mut body = held();
        assert!(body.write_term(&bid(), 0));
        body
    }

    #[test]
    fn a_claim_counts_its_renewals_and_has_the_length_of_the_last_one() {
        let mut body = held();
        let mut claims = Vec::new();
        for _ in 0..3 {
            let content: Value = serde_json::from_slice(&body.content()).unwrap();
            claims.push(content["claim"].clone());
            body.renew(&Bid { lease_duration: Duration::from_secs(20), ..bid() });
        }
        let of = |renewals: u64, lease_ms: u64| {
            let nonce = "00000000000000000000000000000007";
            json!({"nonce": nonce, "identity": "a", "lease_ms": lease_ms, "renewals": renewals})
        };
        assert_eq!(claims, [of(0, 15_000), of(1, 20_000), of(2, 20_000)]);
    }

    #[test]
    fn what_no_candidate_writes_is_refused() {
        for (fields, words) in [
            (r#""tenure": 2"#, "it has format 2"),
            (r#""tenure": 1, "term": -1"#, "it is corrupt"),
            (r#""tenure": 1, "more": 1"#, "it is corrupt"),
            (r#""tenure": 1, "nonce": "7""#, "it has a nonce without a term"),
            (r#""tenure": 1, "term": 1, "nonce": "x""#, "it has a nonce that is not hexadecimal"),
            (
                r#""tenure": 1, "term": 1, "successor": {"identity": "b", "hold_off_ms": 1}"#,
                "it names a holder or a successor without a nonce",
            ),
            (
                r#""tenure": 1, "claim": {"nonce": "x", "identity": "a", "lease_ms": 1, "renewals": 0}"#,
                "it has a nonce that is not hexadecimal",
            ),
        ] {
            let content = format!(r#"{{"write": "", {fields}}}"#);
            let failure = Body::read(content.as_bytes(), "it").unwrap_err();
            assert!(failure.message.starts_with(words), "{failure}");
            assert_eq!(failure.cause, Cause::Record);
        }
        assert_eq!(Body::read(br#"{"write": "", "tenure": 1}"#, "it"), Ok(Body::default()));
    }

    #[test]
    fn a_holder_that_wrote_no_record_is_shown_with_the_last_term_alone() {
        let led = led();
        let mut freed = led.clone();
        freed.free();
        let mut taken = led.clone();
        taken.take(&other());
        let mut broken = taken.clone();
        broken.mark_broken();
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
        body.mark_broken();
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
        let version = version("\"tag\"", &led().content());
        assert_eq!(of_version(&version), Some(("\"tag\"".to_owned(), led())));
        assert!(!is_missing(&version));
        let missing = missing();
        assert!(missing.free && is_missing(&missing.version));
        assert_eq!(of_version(&missing.version), None);
    }

    #[test]
    fn standbys_are_told_of_renewals_and_of_news_once() {
        let mut noticed = Noticed::default();
        let mut body = held();
        let news = |held_by| Some(Change::News { held_by });
        let ours = Some(bid().nonce);
        assert_eq!(noticed.take(Some(&body.content())), news(ours));
        assert_eq!(noticed.take(Some(&body.content())), None, "the same in another write");
        body.renew(&bid());
        let claim = body.held.as_ref().map(Held::claim);
        assert_eq!(noticed.take(Some(&body.content())), claim.map(Change::Renewal));
        assert!(body.write_term(&bid(), 0));
        assert_eq!(noticed.take(Some(&body.content())), news(ours));
        body.mark_broken();
        assert_eq!(noticed.take(Some(&body.content())), news(None), "nobody may renew it");
        body.free();
        assert_eq!(noticed.take(Some(&body.content())), news(None));
        assert_eq!(noticed.take(None), news(None));
        assert_eq!(noticed.take(None), None);
        assert_eq!(noticed.take(Some(b"of another")), news(None));
    }
}
