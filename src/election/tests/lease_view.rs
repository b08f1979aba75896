//! What is shown of the lease: when its holder renewed last, and why a leadership ended.

use super::*;
use crate::election::{Ending, Leaving, PeerNotice};
use crate::lease::Claim;

/// How a store shows a lease that was renewed last at one time, in milliseconds from the start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Its end, as `file:` does.
    End,
    /// A claim that each observer counts, as a Lease does.
    Claim,
    /// Nothing, as Azure does.
    Nothing,
}

impl Kind {
    /// Returns what a read shows at `now`.
    fn shows(self, renewed: u64, now: u64) -> Answer {
        let left = LEASE.saturating_sub(now - renewed);
        let Answer::Snapshot(it) = held(Some(8)) else { unreachable!() };
        Answer::Snapshot(match self {
            Self::End => Snapshot { free: left == 0, ends_in: Some(ms(left)), ..it },
            Self::Claim => {
                let spec = Version(format!("renewed at {renewed}").into());
                Snapshot { claim: Some(Claim { spec, lease_duration: ms(LEASE) }), ..it }
            }
            Self::Nothing => Snapshot { free: left == 0, ..it },
        })
    }
}

impl Bench {
    fn elapsed(&self) -> u64 {
        u64::try_from((self.now.boot - start().boot).as_millis()).unwrap()
    }

    fn holding(&mut self, term: u64, sent_ago: u64) {
        let (sent_ago, lease, next) = (ms(sent_ago), ms(LEASE), ms(RETRY - sent_ago));
        self.event(Input::Peer(PeerNotice::Holding { term, sent_ago, lease, next }));
    }

    /// Lets a leader of term 8 renew each `period` until `dies`, and this candidate watch it until `end`.
    /// Returns when the holder was first seen overdue, each time.
    fn watch(&mut self, kind: Kind, period: u64, dies: u64, end: u64) -> Vec<u64> {
        let (mut late, mut all) = (false, Vec::new());
        while self.elapsed() < end {
            let now = self.elapsed();
            if self.request.as_ref().is_some_and(|it| it.op.name() == "read") {
                // Reads are as far apart as they may be, then as close.
                self.jitter = if now.is_multiple_of(3) { 1.0 } else { 0.0 };
                let renewed = now.min(dies) / period * period;
                self.answer(Ok(kind.shows(renewed, now)));
            }
            let is_late = self.is_late();
            if is_late && !late {
                all.push(now);
            }
            late = is_late;
            if self.election.status().holder.is_none() {
                return all;
            }
            self.sleep(50);
            self.tick();
        }
        all
    }

    fn is_late(&self) -> bool {
        let renewals = self.election.status().lease.renewals;
        renewals.is_some_and(|it| {
            let shows = it.by_store || it.by_stream || it.last.is_some();
            shows && it.age(self.now) >= it.allowed
        })
    }

    fn last(&self) -> Option<(String, Option<Ending>)> {
        let last = self.election.status().lease.last_holder?;
        Some((last.holder.candidate.identity.clone(), last.ending))
    }

    fn leaving(&self) -> Option<Leaving> {
        self.election.status().lease.renewals?.leaving
    }
}

#[test]
fn a_leader_that_renews_is_never_overdue_and_a_dead_one_is_before_its_lease_ends() {
    for kind in [Kind::End, Kind::Claim] {
        for period in [500, RETRY, RETRY + 200] {
            let mut bench = Bench::new(config());
            let found = bench.watch(kind, period, 300_000, 300_000);
            assert_eq!(found, [0; 0], "{kind:?}, renewed each {period}");
            let dies = 10_000 / period * period;
            let mut bench = Bench::new(config());
            let found = bench.watch(kind, period, dies, 40_000);
            let [at] = found[..] else { panic!("{kind:?}, renewed each {period}: {found:?}") };
            // Seen by a read, then two and a half periods, and the longest time of a request.
            assert!((dies + 5_000..=dies + 10_000).contains(&at), "{kind:?} {period}: {at}");
        }
    }
}

#[test]
fn a_leader_with_other_timings_is_overdue_a_few_times_at_most() {
    for kind in [Kind::End, Kind::Claim] {
        for period in [4_000, 5_000, 6_000] {
            let mut bench = Bench::new(config());
            let found = bench.watch(kind, period, 600_000, 600_000);
            assert!(found.len() <= 4, "{kind:?}, renewed each {period}: {found:?}");
            assert!(found.iter().all(|it| *it < 120_000), "{kind:?} {period}: {found:?}");
        }
    }
}

#[test]
fn a_store_that_shows_no_renewals_never_makes_a_leader_overdue() {
    let mut bench = Bench::new(config());
    assert_eq!(bench.watch(Kind::Nothing, RETRY, 100_000, 100_000), [0; 0]);
    let renewals = bench.election.status().lease.renewals.unwrap();
    assert!(!renewals.by_store && renewals.last.is_none() && renewals.end.is_none());
}

#[test]
fn the_stream_tells_of_renewals_and_its_end_makes_the_leader_overdue() {
    for kind in [Kind::Nothing, Kind::End, Kind::Claim] {
        let mut bench = Bench::new(config());
        bench.answer(Ok(kind.shows(0, 0)));
        let course = |bench: &mut Bench, end: u64| {
            while bench.elapsed() < end {
                bench.sleep(1_000);
                bench.tick();
                if bench.elapsed().is_multiple_of(RETRY) {
                    bench.holding(8, 50);
                }
                assert!(!bench.is_late(), "{kind:?} at {}", bench.elapsed());
            }
        };
        course(&mut bench, 20_000);
        bench.event(Input::Peer(PeerNotice::Lost));
        assert!(!bench.election.status().lease.renewals.unwrap().by_stream);
        // The lease was renewed last at 20 s; a read shows a renewal that was told already.
        let found = bench.watch(kind, RETRY, 20_000, 34_900);
        let [at] = found[..] else { panic!("{kind:?}: {found:?}") };
        assert!((23_900..24_200).contains(&at), "{kind:?}: {at}");
    }
}

#[test]
fn a_lease_that_is_held_beyond_what_the_stream_told_was_renewed_unseen() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(Kind::Nothing.shows(0, 0)));
    bench.holding(8, 50);
    bench.event(Input::Peer(PeerNotice::Lost));
    assert_eq!(bench.watch(Kind::Nothing, RETRY, 60_000, 15_000).len(), 1);
    assert!(bench.is_late());
    bench.watch(Kind::Nothing, RETRY, 60_000, 17_100);
    assert!(!bench.is_late(), "it holds the lease, and a renewal cannot be seen");
}

#[test]
fn a_leader_that_tells_its_end_leads_no_longer_until_it_renews() {
    let lost = || PeerNotice::Ended { term: 8, reason: Some(Reason::Lost) };
    let mut bench = Bench::new(config());
    bench.answer(Ok(Kind::End.shows(0, 0)));
    bench.holding(8, 50);
    bench.event(Input::Peer(PeerNotice::Ended { term: 7, reason: None }));
    assert_eq!(bench.leaving(), None, "of an earlier term");
    bench.event(Input::Peer(PeerNotice::Draining { term: 8, is_heir: false }));
    assert_eq!(bench.leaving(), Some(Leaving::Draining));
    bench.holding(8, 50);
    assert_eq!(bench.leaving(), Some(Leaving::Draining), "a drain renews");
    bench.event(Input::Peer(lost()));
    assert_eq!(bench.leaving(), Some(Leaving::Ended(Some(Ending::Told(Reason::Lost)))));
    bench.holding(8, 50);
    assert_eq!(bench.leaving(), None, "the end was forged");
    bench.event(Input::Peer(lost()));
    bench.event(Input::Peer(PeerNotice::Lost));
    bench.watch(Kind::End, RETRY, 0, 16_000);
    assert_eq!(bench.last(), Some(("other".to_owned(), Some(Ending::Told(Reason::Lost)))));
}

#[test]
fn the_end_of_a_leadership_is_told_as_far_as_it_was_seen() {
    let other = |ending| Some(("other".to_owned(), ending));
    for (kind, ending) in [
        (Kind::End, Some(Ending::Expired)),
        (Kind::Claim, Some(Ending::Expired)),
        (Kind::Nothing, None),
    ] {
        let mut bench = Bench::new(config());
        bench.watch(kind, RETRY, 10_000, 60_000);
        assert_eq!(bench.last(), other(ending), "{kind:?}, dead");
    }
    for (kind, ending) in [
        (Kind::End, Some(Ending::Released)),
        (Kind::Claim, Some(Ending::Released)),
        (Kind::Nothing, None),
    ] {
        let mut bench = Bench::new(config());
        bench.watch(kind, RETRY, 10_000, 10_000);
        if bench.request.is_none() {
            bench.next("read");
        }
        bench.answer(Ok(free(Some(8))));
        assert_eq!(bench.last(), other(ending), "{kind:?}, released");
    }
}

#[test]
fn the_last_holder_stays_when_the_next_one_leads() {
    let mut bench = Bench::new(Config { observe: true, ..config() });
    assert_eq!(bench.election.status().lease.leaderless, None, "nothing is known yet");
    bench.answer(Ok(free(Some(7))));
    let since = bench.election.status().lease.leaderless;
    assert_eq!(since, Some(bench.now));
    bench.next("read");
    bench.answer(Ok(free(Some(7))));
    assert_eq!(bench.election.status().lease.leaderless, since);
    bench.next("read");
    bench.answer(Ok(held(Some(8))));
    assert_eq!((bench.last(), bench.election.status().lease.leaderless), (None, None));
    bench.next("read");
    let by =
        |name: &str, term| Record { holder: Some(Arc::new(candidate(name))), ..record(Some(term)) };
    let Answer::Snapshot(next) = held(Some(9)) else { unreachable!() };
    bench.answer(Ok(Answer::Snapshot(Snapshot { record: by("next", 9), ..next })));
    assert_eq!(bench.last(), Some(("other".to_owned(), None)));
    assert_eq!(bench.election.status().holder.unwrap().candidate.identity, "next");
}

#[test]
fn a_leadership_that_was_lost_stays_lost_while_the_store_shows_its_lease() {
    let mut bench = Bench::leader();
    let us = bench.election.status().holder;
    bench.next("renew");
    bench.answer(refused());
    let lost = Some(("us".to_owned(), Some(Ending::Told(Reason::Lost))));
    assert_eq!(bench.last(), lost);
    bench.next("read");
    bench.notices.clear();
    let record = Record {
        holder: us.as_ref().map(|it| Arc::clone(&it.candidate)),
        nonce: us.as_ref().and_then(|it| it.nonce),
        ..record(Some(8))
    };
    let Answer::Snapshot(shown) = held(Some(8)) else { unreachable!() };
    bench.answer(Ok(Answer::Snapshot(Snapshot { record, ..shown })));
    let status = bench.election.status();
    assert!(status.holder == us && status.lease.is_own && status.lease.is_held);
    let seen = |it: &Notice| matches!(it, Notice::HolderChanged(Some(_)));
    assert!(!bench.notices.iter().any(seen), "this instance is not a leader that was seen");
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    assert_eq!(bench.last(), lost);
}

#[test]
fn a_standby_that_leaves_says_nothing_of_why_the_leader_did() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(held(Some(8))));
    bench.resign();
    assert_eq!(bench.last(), Some(("other".to_owned(), None)));
}

#[test]
fn a_candidate_that_activates_tells_what_it_waits_for() {
    let activation = |bench: &Bench| {
        let it = bench.election.status().lease.activation?;
        Some((it.remaining(bench.now), it.for_earlier))
    };
    let mut bench = Bench::activating_with(Config { activation_delay: ms(3_000), ..config() });
    assert_eq!(activation(&bench), Some((ms(3_000), false)));
    bench.sleep(1_000);
    bench.tick();
    assert_eq!(activation(&bench), Some((ms(2_000), false)));
    let mut bench = Bench::new(Config { rules: REMOTE, ..config() });
    bench.answer(Ok(free(None)));
    bench.answer(Ok(grant(None)));
    assert_eq!(activation(&bench), Some((ms(60_000), true)));
    let bench = Bench::leader();
    assert_eq!(activation(&bench), None);
}
