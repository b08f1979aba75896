//! Warnings: what a person should mend although this instance works. They are judged when they are asked
//! for, from what the store and the peers have shown.

use super::{About, Published};
use crate::clock::Moment;

/// How many instances a warning names.
const MOST_NAMED: usize = 3;

impl Published {
    /// Returns the warnings at `now`, each a sentence.
    #[must_use]
    pub fn warnings(&self, about: &About, now: Moment) -> Vec<String> {
        shared_identity(&about.identity, &self.twins(about, now)).into_iter().collect()
    }

    /// Returns the live instances that have the identity of this one, the holder first.
    fn twins(&self, about: &About, now: Moment) -> Vec<&str> {
        let is_twin = |identity: &str, instance: &str| {
            identity == about.identity && instance != about.instance && !instance.is_empty()
        };
        // A predecessor that was killed is the holder too, until its lease has run out.
        let is_alive = || {
            let seen =
                self.holder_seen.is_some_and(|it| it.elapsed_min(now) > about.lease_duration);
            seen && !self.is_out_of_contact(about, now)
        };
        let holder = self.status.holder.as_ref().map(|it| &it.candidate);
        let holder = holder.filter(|it| is_twin(&it.identity, &it.instance) && is_alive());
        let mut all: Vec<_> = holder.map(|it| &*it.instance).into_iter().collect();
        let table = self.candidates.iter().filter(|it| it.is_current);
        let connected = table.flat_map(|it| it.candidates.iter()).filter(|it| it.connected);
        let connected = connected.filter(|it| is_twin(&it.identity, &it.instance));
        let mut others: Vec<_> = connected.map(|it| &*it.instance).collect();
        // The order of the line changes, which is no other warning.
        others.sort_unstable();
        others.retain(|it| !all.contains(it));
        all.append(&mut others);
        all
    }
}

/// Returns the warning of instances that have one identity, which is also said of a holder that is read from
/// the store; `None` without any.
pub(crate) fn shared_identity(identity: &str, instances: &[&str]) -> Option<String> {
    let (first, more) = instances.split_first()?;
    let named = more
        .iter()
        .take(MOST_NAMED - 1)
        .fold((*first).to_owned(), |named, it| format!("{named}, {it}"));
    let rest = match instances.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    let others = match more.len() {
        0 => "another live instance has".to_owned(),
        more => format!("{} other live instances have", more + 1),
    };
    Some(format!(
        "{others} this identity, {identity}, too (instance {named}{rest}): tables and logs cannot tell them \
         apart, so give each an --identity of its own"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::election::Holder;
    use crate::lease::Candidate;
    use crate::status::tests::{about, at, standby};
    use crate::status::{CandidateEntry, CandidateTable};

    /// Returns a standby that sees this holder since 100 s, and has read the store up to `now`.
    fn holder(identity: &str, instance: &str, now: Moment) -> Published {
        let (identity, instance) = (identity.to_owned(), instance.to_owned());
        let candidate = Arc::new(Candidate { identity, instance, address: None, peer: None });
        let mut it = standby(None);
        it.status.holder = Some(Holder { candidate, term: 7, nonce: None });
        it.status.store.last_success = Some(now);
        it.holder_seen = Some(at(100));
        it
    }

    fn entry(identity: &str, instance: &str, connected: bool) -> CandidateEntry {
        CandidateEntry {
            identity: identity.to_owned(),
            instance: instance.to_owned(),
            address: None,
            zone: None,
            priority: 50,
            state: "standby".to_owned(),
            failing: None,
            connected,
            contact_ms_ago: 0,
            heir: false,
            gone: false,
        }
    }

    fn table(entries: Vec<CandidateEntry>, is_current: bool) -> Published {
        let table = CandidateTable { at: at(100), is_current, candidates: entries.into() };
        Published { candidates: Some(table), ..standby(None) }
    }

    #[test]
    fn a_live_holder_with_this_identity_is_a_warning() {
        for (identity, instance, seconds, is_warned) in [
            ("us", "us-2", 15, false),
            ("us", "us-2", 16, true),
            ("us", "us-1", 16, false),
            ("us", "", 16, false),
            ("them", "us-2", 16, false),
        ] {
            let now = at(100 + seconds);
            let found = holder(identity, instance, now).warnings(&about(), now);
            assert_eq!(found.len(), usize::from(is_warned), "{identity} {instance}: {found:?}");
            assert!(found.iter().all(|it| it.contains("identity, us, too (instance us-2)")));
        }
    }

    #[test]
    fn a_holder_that_cannot_be_read_any_more_is_no_warning() {
        let silent = holder("us", "us-2", at(110));
        assert_eq!(silent.warnings(&about(), at(120)).len(), 1);
        assert_eq!(silent.warnings(&about(), at(126)), [""; 0]);
    }

    #[test]
    fn a_connected_candidate_with_this_identity_is_a_warning_at_once() {
        let twins = || vec![entry("us", "us-1", true), entry("us", "us-2", true)];
        let found = |it: Published| it.warnings(&about(), at(100));
        let words = &found(table(twins(), true))[0];
        assert!(words.starts_with("another live instance has"), "{words}");
        assert_eq!(found(table(twins(), false)), [""; 0], "the last table known");
        let gone = vec![entry("us", "us-2", false), entry("them", "us-3", true)];
        assert_eq!(found(table(gone, true)), [""; 0]);
        let many = (2..8).map(|it| entry("us", &format!("us-{it}"), true)).collect();
        let words = &found(table(many, true))[0];
        assert!(words.starts_with("6 other live instances have"), "{words}");
        assert!(words.contains("(instance us-2, us-3, us-4 and 3 more)"), "{words}");
    }

    #[test]
    fn a_holder_that_is_in_the_table_too_is_named_once() {
        let mut it = holder("us", "us-2", at(120));
        it.candidates = table(vec![entry("us", "us-2", true)], true).candidates;
        let found = it.warnings(&about(), at(120));
        assert!(found[0].starts_with("another live instance has"), "{found:?}");
    }
}
