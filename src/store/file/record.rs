//! The record of a `file:` store: its format on disk, and the state of the lease in it. Opens no
//! file and reads no clock.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lease::{Bid, Candidate, Nonce, Record, Successor, Version};

/// The format that this version reads and writes; its presence marks a file as a record of Tenure.
const FORMAT: u64 = 1;

/// A reading of the boot clock, with the boot it belongs to.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// The boot id: readings of different boots cannot be compared.
    pub(super) boot_id: String,
    /// `CLOCK_BOOTTIME`.
    pub(super) boot: Duration,
}

/// The record as stored in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    tenure: u64,
    /// Counts the writes.
    revision: u64,
    term: Option<u64>,
    nonce: Option<String>,
    holder: Option<StoredHolder>,
    /// Omitted if there is none, as in records of versions without successors.
    #[serde(skip_serializing_if = "Option::is_none")]
    successor: Option<StoredSuccessor>,
    lease: Option<StoredLease>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHolder {
    identity: String,
    instance: String,
    address: Option<String>,
    /// Omitted if there is none, as in records of versions without peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSuccessor {
    identity: String,
    hold_off_ms: u64,
}

/// The lease as the store keeps it. Only the owner can read the file, since knowing the id is
/// enough to release the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLease {
    id: String,
    boot_id: String,
    from_boottime_ns: u64,
    until_boottime_ns: u64,
    /// Whether an operator is breaking the lease: it runs out, and is not renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    breaking: bool,
}

/// The marker alone, read first to tell a newer format from a file of something else.
#[derive(Deserialize)]
struct Marker {
    tenure: u64,
}

impl Stored {
    /// Returns the empty record from which the first one is written.
    pub(super) fn first() -> Self {
        Self {
            tenure: FORMAT,
            revision: 0,
            term: None,
            nonce: None,
            holder: None,
            successor: None,
            lease: None,
        }
    }

    /// Reads a record, or returns the reason why it is not one of Tenure.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Err("is empty".into());
        }
        let marker: Marker = serde_json::from_slice(bytes)
            .map_err(|error| format!("is corrupt or was not written by Tenure ({error})"))?;
        if marker.tenure > FORMAT {
            return Err(format!(
                "has format {}, but this version supports formats up to {FORMAT}",
                marker.tenure
            ));
        }
        let stored: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("is corrupt or was not written by Tenure ({error})"))?;
        if stored.tenure != FORMAT {
            return Err(format!("has the invalid format {}", stored.tenure));
        }
        if stored.nonce.as_deref().is_some_and(|nonce| nonce.parse::<Nonce>().is_err()) {
            return Err("has a nonce that is not hexadecimal".into());
        }
        if stored.term.is_none() && (stored.nonce.is_some() || stored.holder.is_some()) {
            return Err("names a holder without a term".into());
        }
        if stored.nonce.is_none() && stored.successor.is_some() {
            return Err("names a successor without a nonce".into());
        }
        Ok(stored)
    }

    /// Returns the bytes for the file.
    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Converts to the election's record.
    pub(super) fn record(&self) -> Record {
        Record {
            term: self.term,
            holder: self.holder.as_ref().map(|holder| {
                Arc::new(Candidate {
                    identity: holder.identity.clone(),
                    instance: holder.instance.clone(),
                    address: holder.address.clone(),
                    peer: holder.peer.clone(),
                })
            }),
            nonce: self.nonce.as_deref().and_then(|nonce| nonce.parse().ok()),
            successor: self
                .successor
                .as_ref()
                .and_then(|it| Successor::recorded(&it.identity, it.hold_off_ms)),
        }
    }

    /// Returns the version that a bid compares.
    pub(super) fn version(&self) -> Version {
        Version(self.revision.to_string().into())
    }

    /// Returns the record without what a renewal changes.
    pub(super) fn without_times(self) -> Self {
        let lease =
            self.lease.map(|it| StoredLease { from_boottime_ns: 0, until_boottime_ns: 0, ..it });
        Self { revision: 0, lease, ..self }
    }

    /// Returns the last term written.
    pub(super) fn term(&self) -> Option<u64> {
        self.term
    }

    /// Returns how much of the lease is left at `now`: zero if it is over, `None` if it was
    /// released.
    ///
    /// Another boot id alone does not free the lease: containers on one kernel may have boot ids of
    /// their own. If the boot id differs and the boot clock reads less than when the lease began,
    /// the machine has restarted, and the holder did not survive that. Otherwise a restart cannot
    /// be told, and the lease lasts until its end.
    pub(super) fn remaining(&self, now: &Reading) -> Option<Duration> {
        let lease = self.lease.as_ref()?;
        let rebooted =
            lease.boot_id != now.boot_id && now.boot < Duration::from_nanos(lease.from_boottime_ns);
        if rebooted {
            return Some(Duration::ZERO);
        }
        Some(Duration::from_nanos(lease.until_boottime_ns).saturating_sub(now.boot))
    }

    /// Returns whether the lease may be acquired at `now`.
    pub(super) fn is_free(&self, now: &Reading) -> bool {
        self.remaining(now).is_none_or(|remaining| remaining.is_zero())
    }

    /// Returns whether the lease, running or over, is held by this bid, in this boot.
    pub(super) fn is_of(&self, bid: &Bid, now: &Reading) -> bool {
        self.lease
            .as_ref()
            .is_some_and(|lease| lease.id == bid.lease.to_wire() && lease.boot_id == now.boot_id)
    }

    /// Grants the lease-duration from `began`; never shortens what an earlier request was granted.
    pub(super) fn extend(&mut self, bid: &Bid, began: &Reading) {
        let until = began.boot.saturating_add(bid.lease_duration).as_nanos();
        let mut until_boottime_ns = u64::try_from(until).unwrap_or(u64::MAX);
        if let (true, Some(lease)) = (self.is_of(bid, began), &self.lease) {
            until_boottime_ns = until_boottime_ns.max(lease.until_boottime_ns);
        }
        let from_boottime_ns = u64::try_from(began.boot.as_nanos()).unwrap_or(u64::MAX);
        let (id, boot_id) = (bid.lease.to_wire(), began.boot_id.clone());
        let breaking = false;
        self.lease =
            Some(StoredLease { id, boot_id, from_boottime_ns, until_boottime_ns, breaking });
    }

    /// Returns the acquisition that holds the lease: that of the record, which may be of before until
    /// the holder has written its term. `None` if the lease is free, or is being broken.
    pub(super) fn held_by(&self) -> Option<Nonce> {
        self.lease.as_ref().filter(|lease| !lease.breaking)?;
        self.nonce.as_deref()?.parse().ok()
    }

    /// Returns whether an operator is breaking the lease.
    pub(super) fn is_breaking(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.breaking)
    }

    /// Prevents renewals, so that the lease runs out.
    pub(super) fn let_run_out(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.breaking = true;
        }
    }

    /// Frees the lease.
    pub(super) fn free(&mut self) {
        self.lease = None;
    }

    /// Returns the term that this bid's acquisition has already written.
    pub(super) fn term_of(&self, bid: &Bid) -> Option<u64> {
        if self.record().nonce == Some(bid.nonce) { self.term } else { None }
    }

    /// Writes a term for the bid and returns it; `None` if there is no larger number.
    pub(super) fn write_term(&mut self, bid: &Bid, floor: u64) -> Option<u64> {
        let next = match self.term {
            Some(term) => term.checked_add(1)?,
            None => 0,
        };
        let term = next.max(floor);
        self.term = Some(term);
        self.nonce = Some(bid.nonce.to_string());
        self.holder = Some(StoredHolder {
            identity: bid.candidate.identity.clone(),
            instance: bid.candidate.instance.clone(),
            address: bid.candidate.address.clone(),
            peer: bid.candidate.peer.clone(),
        });
        self.successor = None;
        Some(term)
    }

    /// Writes the successor.
    pub(super) fn set_successor(&mut self, successor: &Successor) {
        self.successor = Some(StoredSuccessor {
            identity: successor.identity.clone(),
            hold_off_ms: successor.hold_off_millis(),
        });
    }

    /// Writes a term without a holder.
    pub(super) fn begin(&mut self, floor: u64) {
        self.term = Some(floor);
    }

    /// Counts a write.
    pub(super) fn touch(&mut self) {
        self.revision = self.revision.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lease::LeaseId;

    fn bid(bits: u128) -> Bid {
        Bid {
            lease: LeaseId::from_random(bits),
            nonce: Nonce(bits),
            candidate: Arc::new(Candidate {
                identity: "a".into(),
                instance: "1".into(),
                address: Some("[::1]:80".into()),
                peer: Some("http://[::1]:4040/peer".into()),
            }),
            lease_duration: Duration::from_secs(15),
            seen: Version("0".into()),
            written: None,
        }
    }

    fn at(boot: u64) -> Reading {
        Reading { boot_id: "this".into(), boot: Duration::from_secs(boot) }
    }

    fn held() -> Stored {
        let mut stored = Stored::first();
        stored.extend(&bid(7), &at(100));
        stored.write_term(&bid(7), 42);
        stored
    }

    #[test]
    fn a_record_is_written_in_lines_that_people_can_read() {
        let id = bid(7).lease.to_wire();
        let nonce = Nonce(7);
        let written = format!(
            r#"{{
  "tenure": 1,
  "revision": 0,
  "term": 42,
  "nonce": "{nonce}",
  "holder": {{
    "identity": "a",
    "instance": "1",
    "address": "[::1]:80",
    "peer": "http://[::1]:4040/peer"
  }},
  "lease": {{
    "id": "{id}",
    "boot_id": "this",
    "from_boottime_ns": 100000000000,
    "until_boottime_ns": 115000000000
  }}
}}
"#
        );
        assert_eq!(String::from_utf8(held().encode().unwrap()).unwrap(), written);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let stored = held();
        let decoded = Stored::decode(&stored.encode().unwrap()).unwrap();
        assert_eq!(decoded, stored);
        let Bid { candidate, nonce, .. } = bid(7);
        let record =
            Record { term: Some(42), holder: Some(candidate), nonce: Some(nonce), successor: None };
        assert_eq!(decoded.record(), record);
    }

    #[test]
    fn terms_begin_at_zero_and_are_above_the_last_and_not_below_the_floor() {
        for (last, floor, term) in
            [(None, 0, 0), (None, 9, 9), (Some(42), 0, 43), (Some(42), 99, 99)]
        {
            let mut stored = Stored { term: last, ..Stored::first() };
            assert_eq!(stored.write_term(&bid(7), floor), Some(term));
            assert_eq!(stored.term_of(&bid(7)), Some(term));
            assert_eq!(stored.term_of(&bid(8)), None);
        }
    }

    #[test]
    fn only_a_smaller_reading_of_another_boot_proves_a_restart() {
        for (boot_id, boot, left) in [
            ("this", 110, 5),
            // A clock that went back.
            ("this", 90, 25),
            // A container on the same kernel.
            ("other", 110, 5),
            ("other", 100, 15),
            ("other", 99, 0),
        ] {
            let now = Reading { boot_id: boot_id.into(), ..at(boot) };
            assert_eq!(held().remaining(&now), Some(Duration::from_secs(left)), "{boot_id} {boot}");
        }
    }

    #[test]
    fn a_renewal_changes_nothing_but_times_and_a_lease_that_ends_has_no_holder() {
        let mut stored = held();
        let before = stored.clone();
        stored.extend(&bid(7), &at(105));
        stored.touch();
        assert_ne!(stored.version(), before.version());
        assert_eq!(stored.clone().without_times(), before.without_times());
        assert_eq!(stored.held_by(), Some(Nonce(7)));
        let mut freed = stored.clone();
        freed.free();
        stored.let_run_out();
        assert_eq!((stored.held_by(), freed.held_by()), (None, None));
    }

    #[test]
    fn a_lease_is_over_at_its_deadline_and_in_another_boot() {
        let stored = held();
        assert!(!stored.is_free(&at(114)));
        assert!(stored.is_free(&at(115)));
        let rebooted = Reading { boot_id: "next".into(), boot: Duration::from_secs(5) };
        assert!(stored.is_free(&rebooted));
        assert!(!stored.is_of(&bid(7), &rebooted));
    }

    fn nominated() -> Stored {
        let mut stored = held();
        let hold_off = Duration::from_millis(10_250);
        stored.set_successor(&Successor { identity: "b".to_owned(), hold_off });
        stored
    }

    #[test]
    fn a_record_of_an_earlier_version_names_no_successor_and_is_not_being_broken() {
        let plain = String::from_utf8(held().encode().unwrap()).unwrap();
        for later in ["successor", "breaking"] {
            assert!(!plain.contains(later), "an earlier version would refuse it: {plain}");
        }
        let mut stored = nominated();
        stored.let_run_out();
        let written = stored.encode().unwrap();
        assert_eq!(Stored::decode(&written), Ok(stored.clone()));
        stored.write_term(&bid(8), 0);
        assert_eq!(stored.record().successor, None);
        stored.extend(&bid(8), &at(200));
        assert!(!stored.is_breaking());
    }

    #[test]
    fn a_successor_is_read_whole_or_refused_within_the_longest_hold_off() {
        let good = String::from_utf8(nominated().encode().unwrap()).unwrap();
        let hold_off = |text: &str| Stored::decode(good.replace("10250", text).as_bytes());
        assert_eq!(hold_off("10250"), Ok(nominated()));
        assert!(hold_off("3600000").unwrap().record().successor.is_some());
        assert_eq!(hold_off("3600001").unwrap().record().successor, None);
        for text in ["-1", "1.5", "\"1\"", "null", "99999999999999999999"] {
            hold_off(text).unwrap_err();
        }
        Stored::decode(good.replace("hold_off_ms", "hold_off").as_bytes()).unwrap_err();
        let nonce = format!("\"{}\"", Nonce(7));
        let fault = Stored::decode(good.replace(&nonce, "null").as_bytes()).unwrap_err();
        assert!(fault.contains("a successor without a nonce"), "{fault}");
    }

    #[test]
    fn an_older_request_never_shortens_what_a_newer_one_was_granted() {
        let mut stored = held();
        stored.extend(&bid(7), &at(90));
        assert!(!stored.is_free(&at(114)));
    }

    #[test]
    fn the_last_number_has_no_next_term() {
        let mut stored = held();
        stored.begin(u64::MAX);
        assert_eq!(stored.write_term(&bid(8), 0), None);
        assert_eq!(stored.term(), Some(u64::MAX));
    }

    #[test]
    fn a_foreign_record_is_refused_with_the_reason() {
        let good = String::from_utf8(held().encode().unwrap()).unwrap();
        for (bytes, words) in [
            (String::new(), "is empty"),
            (good[..good.len() / 2].to_owned(), "is corrupt"),
            ("{}".into(), "is corrupt or was not written by Tenure"),
            (good.replace("\"tenure\": 1", "\"tenure\": 2"), "has format 2"),
            (good.replace("\"tenure\": 1", "\"tenure\": 0"), "invalid format 0"),
            (good.replace("\"tenure\": 1", "\"tenure\": 2, \"more\": 3"), "has format 2"),
            (good.replace("42", "\"42\""), "invalid type: string"),
            (good.replace("42", "-42"), "-42"),
            (good.replace("42", "4.2"), "floating point"),
            (good.replace("42", "99999999999999999999"), "invalid type: floating point"),
            (good.replace("42", "null"), "a holder without a term"),
            (
                format!(r#"{{"tenure":1,"revision":0,"nonce":"{}"}}"#, Nonce(7)),
                "a holder without a term",
            ),
            (
                r#"{"tenure":1,"revision":0,"holder":{"identity":"a","instance":"1"}}"#.into(),
                "a holder without a term",
            ),
            (good.replace("\"term\"", "\"epoch\""), "unknown field `epoch`"),
            (good.replace("00007\"", "0000x\""), "not hexadecimal"),
        ] {
            let fault = Stored::decode(bytes.as_bytes()).unwrap_err();
            assert!(fault.contains(words), "{bytes}\n{fault}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
            let _ = Stored::decode(&bytes);
        }

        #[test]
        fn every_prefix_of_a_record_is_refused(cut in 0_usize..300) {
            let bytes = held().encode().unwrap();
            // Without its last brace the record is damaged; without the line break alone it is
            // whole.
            let cut = cut.min(bytes.len() - 2);
            prop_assert!(Stored::decode(&bytes[..cut]).is_err());
        }
    }
}
