//! The one check of what a store answers about others: every answer passes it on its way to the
//! election, so that nothing behind it meets a text that cannot be shown.

use std::sync::Arc;
use std::time::Duration;

use super::text::{INVALID_NAME, is_name, is_printable};
use super::{Candidate, Grant, PeerUrl, Record, Snapshot, Successor};

/// A lease that lasts longer than this many times one's own lease-duration is an alarm.
const MUCH_LONGER: u32 = 100;

/// Something in a store that no candidate of Tenure writes there. It is reported, and the election
/// goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// The record has a name that is not 1 to 128 printable characters; it was replaced.
    Name,
    /// The record has the URL of a peer that no candidate can have; it was removed.
    Peer,
    /// The lease is held for much longer than any candidate asks for; [`Duration::MAX`] if it has no
    /// end.
    EndlessLease(Duration),
}

impl Anomaly {
    /// Returns whether both are of one kind: the time that a lease lasts changes with each read.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Snapshot {
    /// Replaces what cannot be shown, and returns what is wrong for a candidate with this
    /// lease-duration.
    pub fn admit(&mut self, lease_duration: Duration) -> Vec<Anomaly> {
        let record = self.record.admit();
        let ends_in = self.ends_in.filter(|it| *it > lease_duration.saturating_mul(MUCH_LONGER));
        record.into_iter().chain(ends_in.map(Anomaly::EndlessLease)).collect()
    }
}

impl Grant {
    /// Replaces what cannot be shown, and returns what is wrong.
    pub fn admit(&mut self) -> Vec<Anomaly> {
        self.record.admit()
    }
}

impl Record {
    /// Replaces names that cannot be shown, and returns whether there were any. A successor with
    /// such a name is no candidate, and is removed, as is a peer that may not be contacted. The mark of
    /// an election that has moved stays whatever it names.
    pub fn admit(&mut self) -> Vec<Anomaly> {
        let invalid = |text: &str| !is_name(text);
        let poisoned = self.holder.as_ref().is_some_and(|it| {
            // Records without an instance are those of other versions.
            let instance = !it.instance.is_empty() && invalid(&it.instance);
            invalid(&it.identity) || instance || it.address.as_deref().is_some_and(invalid)
        });
        let peer = self.holder.as_ref().and_then(|it| it.peer.as_deref());
        let is_misled = peer.is_some_and(|it| PeerUrl::parse(it).is_none());
        if let Some(holder) = self.holder.as_mut().filter(|_| poisoned || is_misled) {
            let clean = |text: &str| if is_name(text) { text } else { INVALID_NAME }.to_owned();
            *holder = Arc::new(Candidate {
                identity: clean(&holder.identity),
                instance: clean(&holder.instance),
                address: holder.address.as_deref().map(clean),
                peer: holder.peer.clone().filter(|_| !is_misled),
            });
        }
        let is_poison = |it: &Successor| match it.is_store() {
            true => it.identity != INVALID_NAME && !is_place(&it.identity),
            false => invalid(&it.identity),
        };
        let named = self.successor.take_if(|it| is_poison(it));
        if named.as_ref().is_some_and(Successor::is_store) {
            self.successor = Some(Successor::store(INVALID_NAME));
        }
        let name = (poisoned || named.is_some()).then_some(Anomaly::Name);
        name.into_iter().chain(is_misled.then_some(Anomaly::Peer)).collect()
    }
}

/// Returns whether a text can be the place of a store.
fn is_place(text: &str) -> bool {
    let fits = text.len() <= Successor::LONGEST_PLACE;
    fits && !text.is_empty() && text.chars().all(is_printable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Version;

    const OURS: Duration = Duration::from_secs(15);

    fn snapshot(identity: &str, address: Option<&str>) -> Snapshot {
        let candidate = Candidate {
            identity: identity.to_owned(),
            instance: "1".to_owned(),
            address: address.map(str::to_owned),
            peer: Some("http://10.0.3.7:4040/peer".to_owned()),
        };
        let record =
            Record { term: Some(7), holder: Some(Arc::new(candidate)), ..Record::default() };
        Snapshot { free: false, record, version: Version("1".into()), claim: None, ends_in: None }
    }

    #[test]
    fn what_a_candidate_writes_is_left_as_it_is() {
        let whole = snapshot("web 1", Some("10.0.3.7:8080"));
        let mut admitted = whole.clone();
        assert!(admitted.admit(OURS).is_empty());
        assert_eq!(admitted, whole);
    }

    #[test]
    fn a_poisoned_name_is_replaced_and_the_rest_stays() {
        let long = "x".repeat(200_000);
        for poison in ["a\0b", "\u{9b}31m", "a\u{202e}b", long.as_str(), ""] {
            let mut it = snapshot(poison, Some("10.0.3.7:8080"));
            assert_eq!(it.admit(OURS), [Anomaly::Name], "{poison:.20?}");
            assert_eq!(it, snapshot(INVALID_NAME, Some("10.0.3.7:8080")));
            assert!(it.admit(OURS).is_empty(), "it can be shown now");
            let mut it = snapshot("web-1", Some(poison));
            assert_eq!(it.admit(OURS), [Anomaly::Name]);
            assert_eq!(it, snapshot("web-1", Some(INVALID_NAME)));
            let successor = Successor { identity: poison.to_owned(), hold_off: OURS };
            let mut record = Record { successor: Some(successor), ..Record::default() };
            assert_eq!((record.admit(), record), (vec![Anomaly::Name], Record::default()));
        }
    }

    #[test]
    fn a_record_that_has_moved_stays_so_whatever_it_names() {
        let of =
            |place: &str| Record { successor: Some(Successor::store(place)), ..Record::default() };
        let url = format!("postgres://{}/app", ["db-1.example.com"; 20].join(","));
        let mut record = of(&url);
        assert!(record.admit().is_empty() && record.moved_to() == Some(&url));
        let long = "x".repeat(200_000);
        for poison in ["a\0b", "a\u{202e}b", long.as_str(), ""] {
            let mut record = of(poison);
            assert_eq!(record.admit(), [Anomaly::Name], "{poison:.20?}");
            assert_eq!(record, of(INVALID_NAME));
            assert!(record.admit().is_empty(), "it can be shown now");
            assert_eq!(record.named_successor(), None);
        }
    }

    #[test]
    fn a_peer_that_no_candidate_can_have_is_removed_and_the_rest_stays() {
        for peer in ["http://169.254.169.254:80/peer", "http://10.0.3.7:4040/latest", "", "\0"] {
            let mut it = snapshot("web-1", Some("10.0.3.7:8080"));
            let holder = it.record.holder.as_mut().map(Arc::make_mut).unwrap();
            let whole = holder.clone();
            holder.peer = Some(peer.to_owned());
            assert_eq!(it.admit(OURS), [Anomaly::Peer], "{peer:?}");
            let expected = Candidate { peer: None, ..whole };
            assert_eq!(it.record.holder.as_deref(), Some(&expected), "{peer:?}");
            assert!(it.admit(OURS).is_empty());
        }
    }

    #[test]
    fn a_lease_without_an_end_in_sight_is_reported() {
        for (seconds, reported) in [(15, false), (60, false), (1_500, false), (1_501, true)] {
            let ends_in = Some(Duration::from_secs(seconds));
            let mut it = Snapshot { ends_in, ..snapshot("web-1", None) };
            assert_eq!(!it.admit(OURS).is_empty(), reported, "{seconds}");
        }
        let mut it = Snapshot { ends_in: Some(Duration::MAX), ..snapshot("web-1", None) };
        assert_eq!(it.admit(OURS), [Anomaly::EndlessLease(Duration::MAX)]);
    }
}
