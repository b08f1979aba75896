//! `released`: the heir reads at once, the others when it has had time to acquire the lease.

use super::*;
use crate::lease::Successor;

#[test]
fn the_heir_reads_at_once_after_a_release_and_bids_for_what_it_reads_as_free() {
    let mut bench = Bench::notified();
    assert_eq!(bench.notify(released(8, true)), PeerOutcome::Applied);
    bench.expect("read");
    bench.answer(Ok(free(Some(8))));
    bench.expect("acquire");
}

#[test]
fn the_heir_bids_for_nothing_that_it_reads_as_held() {
    let mut bench = Bench::notified();
    bench.notify(released(8, true));
    bench.answer(Ok(held(Some(8))));
    assert_eq!(bench.next("read"), RETRY, "as without peers");
}

#[test]
fn the_others_read_when_the_heir_has_had_time_to_acquire_the_lease() {
    for (jitter, wait) in [(0.0, RETRY / 4), (0.5, RETRY * 3 / 8), (1.0, RETRY / 2)] {
        let mut bench = Bench::notified();
        bench.jitter = jitter;
        bench.notify(released(8, false));
        assert!(bench.request.is_none());
        assert_eq!(bench.election.poll_timeout(bench.now), ms(wait));
        assert_eq!(bench.next("read"), wait, "jitter {jitter}");
        bench.answer(Ok(held(Some(9))));
        assert!(bench.request.is_none(), "no bid, and one read");
    }
}

#[test]
fn the_others_leave_the_lease_to_the_heir_where_the_store_reports_the_release_too() {
    for is_notified_first in [true, false] {
        let mut bench = Bench::notified();
        if is_notified_first {
            bench.notify(released(8, false));
        }
        bench.report(None);
        assert!(bench.request.is_none());
        if !is_notified_first {
            bench.notify(released(8, false));
        }
        assert_eq!(bench.next("read"), RETRY * 3 / 8, "the jitter is a half");
        bench.answer(Ok(held(Some(9))));
        bench.report(None);
        bench.expect("read");
    }
    let mut heir = Bench::notified();
    heir.notify(PeerNotice::Draining { term: 8, is_heir: true });
    heir.report(None);
    heir.expect("read");
    let mut alone = Bench::standby();
    alone.report(None);
    alone.expect("read");
}

#[test]
fn the_others_bid_if_the_heir_has_not() {
    let mut bench = Bench::notified();
    bench.notify(released(8, false));
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    bench.expect("acquire");
}

#[test]
fn a_release_during_a_read_is_followed_by_a_read() {
    // The answer may be of before the release.
    let mut bench = Bench::standby();
    bench.next("read");
    bench.notify(released(8, true));
    bench.answer(Ok(held(Some(8))));
    bench.expect("read");
    bench.answer(Ok(held(Some(8))));
    assert!(bench.request.is_none(), "one release is one read");
}

#[test]
fn a_release_of_a_later_term_counts_and_one_of_an_older_term_does_not() {
    let mut bench = Bench::notified();
    assert_eq!(bench.notify(released(7, true)), PeerOutcome::OldTerm);
    assert!(bench.request.is_none());
    assert!(bench.next_while_notified(8) >= SLOW - 1, "the stream is there");
    bench.answer(Ok(held(Some(8))));
    assert_eq!(bench.notify(released(9, true)), PeerOutcome::Applied);
    bench.expect("read");
}

#[test]
fn a_replayed_release_does_nothing() {
    let mut bench = Bench::notified();
    bench.notify(released(8, true));
    bench.answer(Ok(held(Some(8))));
    for _ in 0..5 {
        assert_eq!(bench.notify(released(8, true)), PeerOutcome::Repeated);
        assert!(bench.request.is_none());
    }
    assert_eq!(bench.next("read"), RETRY);
}

#[test]
fn a_forged_release_does_not_hide_the_true_one() {
    // One of a term far above, and one of this term while the leader goes on.
    for forged in [u64::MAX, 8] {
        let mut bench = Bench::notified();
        bench.notify(released(forged, true));
        bench.answer(Ok(held(Some(8))));
        bench.notify(holding(8));
        assert_eq!(bench.notify(released(8, true)), PeerOutcome::Applied, "after {forged}");
        bench.expect("read");
        bench.answer(Ok(free(Some(8))));
        bench.expect("acquire");
    }
}

#[test]
fn the_own_hold_off_counts_for_the_heir_too() {
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(60_000) }).unwrap();
    bench.publish_acked();
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(held(Some(9))));
    bench.notify(holding(9));
    bench.notify(released(9, true));
    bench.expect("read");
    bench.answer(Ok(free(Some(9))));
    assert!(bench.request.is_none(), "it holds off");
}

#[test]
fn a_named_successor_is_waited_for_after_a_release_too() {
    let named = |identity: &str| {
        let successor = Some(Successor { identity: identity.into(), hold_off: ms(8_000) });
        let Answer::Snapshot(snapshot) = free(Some(8)) else { unreachable!() };
        let record = Record { successor, ..snapshot.record };
        Answer::Snapshot(Snapshot { record, ..snapshot })
    };
    let mut bench = Bench::notified();
    bench.notify(PeerNotice::Draining { term: 8, is_heir: false });
    bench.notify(released(8, false));
    bench.next("read");
    bench.answer(Ok(named("heir")));
    assert!(bench.request.is_none(), "another is to lead");

    let mut bench = Bench::notified();
    bench.notify(PeerNotice::Draining { term: 8, is_heir: true });
    assert!(bench.request.is_none(), "the lease is still held");
    bench.notify(released(8, true));
    bench.answer(Ok(named("us")));
    bench.expect("acquire");
}

#[test]
fn a_release_is_announced_once_the_store_has_confirmed_it() {
    let announced = |bench: &Bench| bench.election.status().released_term;
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(0) }).unwrap();
    bench.publish_acked();
    bench.expect("release");
    assert_eq!(announced(&bench), None);
    bench.answer(unknown());
    assert_eq!(announced(&bench), None);
    bench.next("release");
    bench.answer(Ok(Answer::Done));
    assert_eq!(announced(&bench), Some(8));
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    assert_eq!(announced(&bench), Some(8));
    bench.answer(Ok(grant(Some(8))));
    assert_eq!(announced(&bench), None, "the lease is held again");
}

#[test]
fn a_release_of_a_drain_and_of_a_resignation_is_announced_too() {
    let mut bench = Bench::leader_with(Config { drain_timeout: ms(2_000), ..config() });
    bench.resign();
    assert_eq!(bench.state(), State::Draining);
    bench.command(Command::Drained(None)).unwrap();
    bench.publish_acked();
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    assert!(bench.election.is_finished());
    assert_eq!(bench.election.status().released_term, Some(8));
}

#[test]
fn a_release_without_effect_is_not_announced() {
    // The store refuses it, since the lease was lost before.
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(0) }).unwrap();
    bench.publish_acked();
    bench.answer(refused());
    assert_eq!(bench.election.status().released_term, None);

    // The lease was lost.
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.answer(refused());
    assert_eq!(bench.election.status().released_term, None);

    // It was held, and no term was led.
    let mut bench = Bench::bidding();
    bench.resign();
    bench.answer(Ok(grant(Some(7))));
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    assert_eq!(bench.election.status().released_term, None);
}
