//! The loss of the leader's stream: a read at once, and more at the end of the lease that the last notice
//! bounds.

use super::*;
use crate::lease::Claim;

/// How much of the lease was over when the last notice arrived: the earliest end is so much earlier.
const SENT_AGO: u64 = 50;

/// How long after the latest end the store is still read.
const GRACE: u64 = 300;

/// Creates a standby whose leader has just been lost, with a read in flight.
fn lost(is_heir: bool, jitter: f32) -> Bench {
    let mut bench = Bench::standby();
    bench.jitter = jitter;
    bench.notify(PeerNotice::Candidates { is_heir });
    bench.notify(holding(8));
    bench.notify(PeerNotice::Lost);
    bench.expect("read");
    bench
}

/// Returns the reads of these that are not those of a poll.
fn at_the_end(reads: &[u64]) -> Vec<u64> {
    let earliest = LEASE - SENT_AGO;
    let is_at_the_end = |at: &&u64| (earliest..=LEASE + GRACE + 151).contains(*at);
    reads.iter().filter(is_at_the_end).copied().collect()
}

#[test]
fn a_lost_stream_is_followed_by_a_read_at_once_and_then_as_without_peers() {
    let mut bench = Bench::notified();
    bench.pass(RETRY);
    assert_eq!(bench.notify(PeerNotice::Lost), PeerOutcome::Applied);
    bench.expect("read");
    bench.answer(Ok(held(Some(8))));
    for _ in 0..3 {
        assert_eq!(bench.next("read"), RETRY);
        bench.answer(Ok(held(Some(8))));
    }
}

#[test]
fn a_stream_that_is_silent_for_two_retry_periods_is_lost() {
    let mut bench = Bench::notified();
    assert_eq!(bench.next("read"), 2 * RETRY);
    bench.answer(Ok(held(Some(8))));
    assert_eq!(bench.next("read"), RETRY);

    // However soon the next renewal is announced.
    let mut bench = Bench::standby();
    let (sent_ago, lease, next) = (ms(50), ms(LEASE), ms(100));
    bench.notify(PeerNotice::Holding { term: 8, sent_ago, lease, next });
    assert_eq!(bench.next("read"), 2 * RETRY);
}

#[test]
fn the_driver_is_asked_to_call_when_a_stream_has_been_silent_for_too_long() {
    let mut bench = Bench::notified();
    assert_eq!(bench.election.poll_timeout(bench.now), ms(2 * RETRY));
    bench.pass(2 * RETRY);
    bench.expect("read");
}

#[test]
fn a_leader_that_renews_less_often_is_not_lost_before_its_next_renewal() {
    let mut bench = Bench::standby();
    let next = ms(3 * RETRY);
    bench.notify(PeerNotice::Holding { term: 8, sent_ago: ms(50), lease: ms(60_000), next });
    assert_eq!(bench.next("read"), 4 * RETRY);
}

#[test]
fn a_stream_that_was_not_there_is_not_lost() {
    let mut bench = Bench::standby();
    assert_eq!(bench.notify(PeerNotice::Lost), PeerOutcome::Repeated);
    assert!(bench.request.is_none());
    assert_eq!(bench.next("read"), RETRY);

    let mut bench = Bench::notified();
    bench.notify(PeerNotice::Lost);
    bench.answer(Ok(held(Some(8))));
    assert_eq!(bench.notify(PeerNotice::Lost), PeerOutcome::Repeated);
    assert!(bench.request.is_none());
}

#[test]
fn a_loss_during_a_read_is_followed_by_a_read() {
    let mut bench = Bench::notified();
    bench.next_while_notified(8);
    bench.notify(PeerNotice::Lost);
    bench.answer(Ok(held(Some(8))));
    bench.expect("read");
}

#[test]
fn the_heir_reads_from_the_earliest_end_of_the_lease_until_after_the_latest() {
    let mut bench = lost(true, 0.3);
    let reads = at_the_end(&bench.reads_within(LEASE + 2 * GRACE, &held(Some(8))));
    let first = LEASE - SENT_AGO;
    assert!(reads.contains(&first), "{reads:?}");
    let expected: Vec<u64> = (0..4).map(|step| first + step * 350 / 3).collect();
    let missing: Vec<_> =
        expected.iter().filter(|at| !reads.iter().any(|it| it.abs_diff(**at) <= 1)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {reads:?}");
    let polls = bench.reads_within(3 * RETRY, &held(Some(8)));
    assert!(polls.windows(2).all(|it| it[1] - it[0] >= RETRY / 2), "it reads on: {polls:?}");
}

#[test]
fn the_others_read_50_to_150_ms_later() {
    for (jitter, delay) in [(0.0, 50), (1.0, 150)] {
        let mut bench = lost(false, jitter);
        let reads = at_the_end(&bench.reads_within(2 * LEASE, &held(Some(8))));
        let first = LEASE - SENT_AGO + delay;
        let is_first = |at: &u64| (first..=first + 1).contains(at);
        assert!(reads.iter().any(is_first), "{reads:?} with jitter {jitter}");
        let last = LEASE + GRACE + delay;
        assert!(reads.iter().any(|at| at.abs_diff(last) <= 2), "{reads:?} with jitter {jitter}");
        assert!(reads.iter().all(|at| *at >= first || at % (RETRY / 2) == 0), "{reads:?}");
    }
}

#[test]
fn a_lease_that_goes_on_after_a_loss_is_never_bid_for() {
    // The leader is cut off from this candidate alone, and renews.
    for is_heir in [true, false] {
        let mut bench = lost(is_heir, 0.5);
        bench.reads_within(3 * LEASE, &held(Some(8)));
        assert_eq!(bench.state(), State::Standby);
    }
}

#[test]
fn what_is_read_as_free_at_the_end_of_the_lease_is_bid_for() {
    let mut bench = lost(true, 0.5);
    bench.reads_within(LEASE - SENT_AGO, &held(Some(8)));
    bench.expect("read");
    bench.answer(Ok(free(Some(8))));
    bench.expect("acquire");
}

#[test]
fn a_stream_that_returns_ends_the_reads_of_its_loss() {
    let mut bench = lost(true, 0.5);
    bench.answer(Ok(held(Some(8))));
    bench.notify(holding(8));
    assert!(bench.next_while_notified(8) >= SLOW);
}

#[test]
fn a_read_that_takes_long_at_the_end_of_the_lease_is_followed_by_one_of_those_it_delayed() {
    let mut bench = lost(true, 0.5);
    bench.reads_within(LEASE - SENT_AGO, &held(Some(8)));
    bench.expect("read");
    bench.sleep(GRACE);
    bench.answer(Ok(held(Some(8))));
    bench.expect("read");
    bench.answer(Ok(held(Some(8))));
    assert!(bench.request.is_none(), "the others would have been sent meanwhile");
}

#[test]
fn a_release_after_a_loss_ends_the_reads_of_the_loss() {
    let mut bench = lost(true, 0.5);
    bench.answer(Ok(held(Some(8))));
    bench.notify(released(8, true));
    let reads = bench.reads_within(2 * LEASE, &held(Some(8)));
    assert!(reads.iter().all(|at| at % RETRY == 0), "{reads:?}");
}

#[test]
fn a_slow_renewal_spreads_these_reads_and_adds_none() {
    let mut bench = Bench::standby();
    bench.notify(PeerNotice::Candidates { is_heir: true });
    let sent_ago = ms(1_800);
    bench.notify(PeerNotice::Holding { term: 8, sent_ago, lease: ms(LEASE), next: ms(RETRY) });
    bench.notify(PeerNotice::Lost);
    let reads = bench.reads_within(LEASE + GRACE + 1, &held(Some(8)));
    for step in 0..4 {
        let at = LEASE - 1_800 + step * 2_100 / 3;
        assert!(reads.iter().any(|it| it.abs_diff(at) <= 2), "{at} is missing in {reads:?}");
    }
}

#[test]
fn where_the_store_says_when_the_lease_ends_it_is_read_then() {
    let ends_in = |millis: u64| {
        let Answer::Snapshot(snapshot) = held(Some(8)) else { unreachable!() };
        Answer::Snapshot(Snapshot { ends_in: Some(ms(millis)), ..snapshot })
    };
    for (is_heir, delay) in [(true, 0), (false, 62)] {
        let mut bench = lost(is_heir, 0.5);
        bench.answer(Ok(ends_in(1_300)));
        let waited = bench.next("read");
        assert!(waited.abs_diff(1_300 + delay) <= 1, "not when the store says: {waited}");
        bench.answer(Ok(ends_in(1)));
        assert!(bench.next("read") <= 1 + delay + 125);
    }
    // Two clocks judge that end, so it is read for a while longer.
    let mut bench = lost(true, 0.5);
    bench.answer(Ok(ends_in(RETRY - 100)));
    bench.pass(RETRY - 100);
    assert_eq!(bench.reads_within(GRACE + RETRY, &held(Some(8)))[..4], [0, 100, 200, 300]);
    // It is renewed meanwhile, as the notices say.
    let mut bench = Bench::notified();
    bench.next_while_notified(8);
    bench.answer(Ok(ends_in(LEASE)));
    assert!(bench.next_while_notified(8) >= SLOW);
}

#[test]
fn where_observers_count_the_time_the_read_after_a_loss_begins_it() {
    let claimed = |spec: &str| {
        let claim = Some(Claim { spec: Version(spec.into()), lease_duration: ms(LEASE) });
        let Answer::Snapshot(snapshot) = held(Some(8)) else { unreachable!() };
        Answer::Snapshot(Snapshot { claim, ..snapshot })
    };
    let mut bench = Bench::new(config());
    bench.answer(Ok(claimed("renewal 1")));
    bench.notify(PeerNotice::Candidates { is_heir: true });
    assert!(bench.next_while_notified(8) >= SLOW);
    bench.answer(Ok(claimed("renewal 15")));
    bench.pass(RETRY);
    bench.notify(holding(8));
    bench.notify(PeerNotice::Lost);
    // The last renewal is seen here for the first time.
    let reads = bench.reads_within(LEASE, &claimed("renewal 16"));
    let gaps = reads.windows(2).map(|it| it[1] - it[0]);
    assert!(gaps.min() >= Some(RETRY / 2), "no more than polls: {reads:?}");
    bench.next("read");
    bench.answer(Ok(claimed("renewal 16")));
    bench.expect("acquire");
}
