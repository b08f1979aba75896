//! The judgement of the holder at one instant: whether it may be named as the leader. All that is shown, in
//! documents, tables, pages, logs and hooks, goes by this.

use std::time::Duration;

use crate::clock::Moment;
use crate::election::{Ending, Leaving, Renewals, Standing, Status};

/// What is known of the holder at one instant. It is the leader only if none of `overdue`, `stale` and
/// `leaving` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderJudgement {
    /// Whether its next renewal is late, by whatever shows its renewals.
    pub overdue: bool,
    /// Whether its lease must be over, or could not be read for renew-deadline.
    pub stale: bool,
    /// How long ago it last renewed, as far as was seen.
    pub renewed: Option<Duration>,
    /// The time within which its lease ends, if no renewal follows.
    pub ends_within: Option<Duration>,
    /// What shows its renewals: `store`, `peers` or `nothing`.
    pub shown_by: &'static str,
    /// That it no longer leads, by its own word: `draining`, the reason for which its leadership ended, or
    /// `ended` if that is not known.
    pub leaving: Option<&'static str>,
}

impl HolderJudgement {
    /// Judges the holder of a status at `now`; `None` without a holder.
    #[must_use]
    pub fn of(status: &Status, now: Moment) -> Option<Self> {
        status.holder.as_ref()?;
        let is_own = status.lease.is_own;
        let renewals = status.lease.renewals.as_ref();
        let ended = leaving(status, is_own);
        let is_late = renewals.is_some_and(|it| is_late(it, now));
        let has_led = is_own && status.standing.state().is_leading() && !status.is_leader(now);
        Some(Self {
            overdue: is_late || matches!(ended, Some(Leaving::Ended(_))),
            stale: has_led || until_stale(status, is_own, now).is_some_and(|it| it.is_zero()),
            renewed: renewals.and_then(|it| it.last.map(|_| it.age(now))),
            ends_within: renewals.and_then(|it| it.ends_within(now)),
            shown_by: renewals.map_or("nothing", |it| match it {
                _ if it.by_stream => "peers",
                _ if it.by_store => "store",
                _ => "nothing",
            }),
            leaving: ended.map(|it| match it {
                Leaving::Draining => "draining",
                Leaving::Ended(ending) => ending.map_or("ended", Ending::as_str),
            }),
        })
    }

    /// Returns whether the holder may be named as the leader.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        !self.overdue && !self.stale && self.leaving.is_none()
    }

    /// Returns how long until the judgement changes by the clock alone; `None` if it does not.
    #[must_use]
    pub fn until_change(status: &Status, now: Moment) -> Option<Duration> {
        status.holder.as_ref()?;
        let is_own = status.lease.is_own;
        let renewals = status.lease.renewals.as_ref().filter(|it| shows(it));
        let late = renewals.map(|it| it.allowed.saturating_sub(it.age(now)));
        let belief = Some(status.remaining(now));
        let edges = [late, until_stale(status, is_own, now), belief];
        edges.into_iter().flatten().filter(|it| !it.is_zero()).min()
    }
}

/// Returns how the holder's leadership ends. That of this instance has ended if it does not lead, though
/// the store shows its lease until that has run out.
fn leaving(status: &Status, is_own: bool) -> Option<Leaving> {
    match &status.standing {
        Standing::Leader { .. } => None,
        Standing::Draining { .. } if is_own => Some(Leaving::Draining),
        _ if is_own => {
            let last = status.lease.last_holder.as_ref();
            let last = last.filter(|it| status.holder.as_ref() == Some(&it.holder));
            Some(Leaving::Ended(last.and_then(|it| it.ending)))
        }
        _ => {
            let told = status.lease.renewals.as_ref().and_then(|it| it.leaving);
            // A leader names a successor in the record when it drains.
            told.or(status.successor.as_ref().map(|_| Leaving::Draining))
        }
    }
}

/// Returns whether renewals can be seen, or were told: without either, none is ever late.
fn shows(renewals: &Renewals) -> bool {
    renewals.by_store || renewals.by_stream || renewals.last.is_some()
}

fn is_late(renewals: &Renewals, now: Moment) -> bool {
    shows(renewals) && renewals.age(now) >= renewals.allowed
}

/// Returns how long until the holder is stale, by what is known so far. A lease whose renewals cannot be
/// seen may have been renewed at its end.
fn until_stale(status: &Status, is_own: bool, now: Moment) -> Option<Duration> {
    if is_own && status.term().is_some() {
        return None;
    }
    let renewals = status.lease.renewals.as_ref();
    let end = renewals.filter(|it| it.by_store && !it.by_stream);
    let end = end.and_then(|it| it.ends_within(now));
    let read = status.store.last_success;
    let read = read.map(|it| status.lease.read_within.saturating_sub(it.elapsed_max(now)));
    end.into_iter().chain(read).min()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::election::{Belief, Holder, LeaseView, Reason, State, StoreHealth};
    use crate::lease::{Candidate, Successor};

    fn at(ms: u64) -> Moment {
        let reading = Duration::from_secs(100) + Duration::from_millis(ms);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Returns the renewals of a holder that renewed at 0 and is overdue after 7 s.
    fn renewals(by_store: bool, by_stream: bool) -> Renewals {
        let end = (by_store || by_stream).then(|| (at(0), s(15)));
        let last = end.map(|_| (at(0), Duration::ZERO));
        let mut renewals = Renewals::first(at(0), s(7));
        (renewals.last, renewals.end) = (last, end);
        (renewals.by_store, renewals.by_stream) = (by_store, by_stream);
        renewals
    }

    /// Returns a standby's status that was read last at `read` seconds.
    fn standby(renewals: Renewals, read: u64) -> Status {
        let candidate = Arc::new(Candidate {
            identity: "web-1".to_owned(),
            instance: "1".to_owned(),
            address: None,
            peer: None,
        });
        let renewals = Some(renewals);
        let store = StoreHealth { last_success: Some(at(read * 1_000)), ..StoreHealth::default() };
        Status {
            standing: Standing::Standby,
            since: at(0),
            holder: Some(Holder { candidate, term: 42, nonce: None }),
            successor: None,
            hold_off: None,
            workload_term: None,
            released_term: None,
            contact_due: None,
            lease: LeaseView { renewals, read_within: s(10), ..LeaseView::default() },
            store,
            wait: None,
        }
    }

    fn judged(status: &Status, ms: u64) -> HolderJudgement {
        HolderJudgement::of(status, at(ms)).expect("there is a holder")
    }

    #[test]
    fn a_holder_is_judged_at_each_instant_by_what_shows_its_renewals() {
        let leads = (false, false);
        let overdue = (true, false);
        let unknown = (true, true);
        for (by_store, by_stream, read, course) in [
            // The store is read: late after 7 s, over after 15 s.
            (
                true,
                false,
                15,
                &[
                    (0, leads),
                    (6_999, leads),
                    (7_000, overdue),
                    (14_999, overdue),
                    (15_000, unknown),
                ][..],
            ),
            // It cannot be read any more: unknown after renew-deadline.
            (
                true,
                false,
                0,
                &[(6_999, leads), (7_000, overdue), (9_999, overdue), (10_000, unknown)],
            ),
            // A stream, of a store that shows nothing: the lease may have been renewed at its end.
            (
                false,
                true,
                20,
                &[(6_999, leads), (7_000, overdue), (15_000, overdue), (20_000, overdue)],
            ),
            // Nothing shows renewals.
            (
                false,
                false,
                20,
                &[(0, leads), (20_000, leads), (29_999, leads), (30_000, (false, true))],
            ),
            (false, false, 0, &[(9_999, leads), (10_000, (false, true))]),
        ] {
            let status = standby(renewals(by_store, by_stream), read);
            for (ms, expected) in course {
                let it = judged(&status, *ms);
                assert_eq!((it.overdue, it.stale), *expected, "{by_store} {by_stream} {read} {ms}");
                assert_eq!(it.is_leader(), *expected == leads);
            }
        }
    }

    #[test]
    fn what_is_known_of_renewals_and_of_the_end_is_told() {
        let it = judged(&standby(renewals(true, false), 0), 7_000);
        assert_eq!((it.renewed, it.ends_within, it.shown_by), (Some(s(7)), Some(s(8)), "store"));
        let it = judged(&standby(renewals(false, true), 0), 20_000);
        assert_eq!((it.renewed, it.ends_within), (Some(s(20)), Some(s(0))));
        assert_eq!(it.shown_by, "peers");
        let it = judged(&standby(renewals(false, false), 0), 7_000);
        assert_eq!((it.renewed, it.ends_within, it.shown_by), (None, None, "nothing"));
    }

    #[test]
    fn each_change_by_the_clock_alone_is_announced_and_no_other() {
        let changes = |status: &Status| {
            let (mut now, mut found) = (0, Vec::new());
            while let Some(wait) = HolderJudgement::until_change(status, at(now)) {
                let before = judged(status, now);
                now += u64::try_from(wait.as_millis()).unwrap();
                let after = judged(status, now);
                assert_ne!((before.overdue, before.stale), (after.overdue, after.stale), "{now}");
                found.push(now);
                if found.len() == 2 {
                    break;
                }
            }
            found
        };
        assert_eq!(changes(&standby(renewals(true, false), 15)), [7_000, 15_000]);
        assert_eq!(changes(&standby(renewals(true, false), 0)), [7_000, 10_000]);
        assert_eq!(changes(&standby(renewals(false, false), 0)), [10_000]);
    }

    #[test]
    fn a_leader_that_has_told_that_it_leads_no_longer_is_not_the_leader() {
        for (leaving, word, overdue) in [
            (Leaving::Draining, "draining", false),
            (Leaving::Ended(Some(Ending::Told(Reason::Lost))), "lost", true),
            (Leaving::Ended(Some(Ending::Released)), "released", true),
            (Leaving::Ended(None), "ended", true),
        ] {
            let mut renewals = renewals(true, true);
            renewals.leaving = Some(leaving);
            let it = judged(&standby(renewals, 0), 1);
            assert_eq!((it.leaving, it.overdue, it.is_leader()), (Some(word), overdue, false));
        }
        let mut status = standby(renewals(true, true), 0);
        let hold_off = Duration::from_secs(10);
        status.successor = Some(Successor { identity: "web-3".to_owned(), hold_off });
        assert_eq!(judged(&status, 1).leaving, Some("draining"), "it has named a successor");
    }

    #[test]
    fn this_instance_is_the_leader_exactly_while_it_leads() {
        let mut status = standby(renewals(true, false), 0);
        status.lease.is_own = true;
        assert_eq!(judged(&status, 1).leaving, Some("ended"), "the lease runs out");
        let belief = Belief { sent: at(0), length: s(10), suspended: false };
        status.standing = Standing::Leader { term: 42, belief, jeopardy: false };
        assert_eq!(status.state(at(0)), State::Leader);
        for (ms, leads) in [(0, true), (6_999, true), (7_000, false), (10_000, false)] {
            assert_eq!(judged(&status, ms).is_leader(), leads, "{ms}");
        }
        assert!(judged(&status, 10_000).stale && !judged(&status, 9_999).stale);
    }
}
