//! Notices that are forged, repeated without end, or have the largest durations: they cost some reads,
//! or the slow period, and nothing else.

use super::*;

/// The notices that an attacker would send.
fn forged() -> Vec<PeerNotice> {
    let largest = Duration::MAX;
    let mut all = Vec::new();
    for term in [0, 8, u64::MAX] {
        for (sent_ago, lease) in
            [(Duration::ZERO, largest), (largest, Duration::ZERO), (largest, largest)]
        {
            all.push(PeerNotice::Holding { term, sent_ago, lease, next: largest });
        }
        all.push(PeerNotice::Draining { term, is_heir: true });
        all.push(released(term, true));
    }
    all.extend([PeerNotice::Candidates { is_heir: true }, PeerNotice::Lost]);
    all
}

#[test]
fn no_forged_notice_makes_a_bid_or_overflows() {
    for first in forged() {
        for second in forged() {
            let mut bench = Bench::standby();
            for notice in [first.clone(), second.clone(), PeerNotice::Lost] {
                bench.notify(notice);
                bench.reads_within(7, &held(Some(8)));
            }
            assert_eq!(bench.state(), State::Standby);
        }
    }
}

#[test]
fn the_term_of_a_notice_is_not_taken_for_a_recorded_one() {
    for forged in [holding(u64::MAX), released(u64::MAX, false)] {
        let mut bench = Bench::standby();
        bench.notify(forged);
        assert_eq!(bench.notify(holding(8)), PeerOutcome::Applied, "it hides no true notice");
        bench.notify(PeerNotice::Lost);
        bench.notices.clear();
        bench.answer(Ok(held(Some(8))));
        assert_eq!(bench.notices, [], "the record has not gone back");
    }
}

#[test]
fn a_forged_holding_never_puts_a_read_off_beyond_the_slow_period() {
    let largest = Duration::MAX;
    let forged = PeerNotice::Holding { term: 8, sent_ago: largest, lease: largest, next: largest };
    let mut bench = Bench::standby();
    for (round, jitter) in (0..10).zip([0.0, 1.0, 0.3].into_iter().cycle()) {
        // At each millisecond, with any jitter.
        let mut waited = 0;
        while bench.request.is_none() {
            bench.jitter = if waited % 2 == 0 { jitter } else { 1.0 - jitter };
            bench.notify(forged.clone());
            bench.sleep(1);
            bench.tick();
            waited += 1;
            assert!(waited <= SLOW + SPREAD, "no read in {waited} ms in round {round}");
        }
        bench.answer(Ok(held(Some(8))));
    }
    // Free is free, whatever a notice says.
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    bench.expect("acquire");
}

#[test]
fn a_forged_holding_alone_delays_the_loss_by_no_more_than_the_slow_period() {
    let next = Duration::MAX;
    let mut bench = Bench::standby();
    bench.notify(PeerNotice::Holding { term: 8, sent_ago: ms(0), lease: ms(LEASE), next });
    let waited = bench.next("read");
    assert!(waited <= SLOW, "{waited}");
    bench.answer(Ok(held(Some(8))));
    assert!(bench.next("read") <= RETRY);
}

#[test]
fn a_stream_that_is_lost_and_found_without_end_puts_no_read_off() {
    let mut bench = Bench::standby();
    let mut last = 0;
    for at in 0..20_000 {
        if bench.request.is_some() {
            bench.answer(Ok(held(Some(8))));
            last = at;
        }
        bench.notify(holding(8));
        bench.notify(PeerNotice::Lost);
        bench.notify(holding(8));
        assert!(at - last <= RETRY, "no read since {last}, now {at}");
        bench.sleep(1);
        bench.tick();
    }
}

#[test]
fn a_due_read_that_has_to_wait_is_not_put_off() {
    // A release is pending for as long as the read is due.
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(0) }).unwrap();
    bench.pass(RETRY);
    bench.notify(holding(8));
    bench.publish_acked();
    while bench.request.as_ref().is_some_and(|it| it.op.name() == "release") {
        bench.answer(Ok(Answer::Done));
    }
    bench.expect("read");
}

#[test]
fn at_most_four_reads_in_a_retry_period_are_caused_by_notices() {
    let mut bench = Bench::standby();
    let mut sent: Vec<u64> = Vec::new();
    for at in 0..20_000 {
        // Releases of rising terms, from an attacker, and a stream that is lost each time.
        bench.notify(released(8 + at, true));
        bench.notify(holding(8 + at));
        bench.notify(PeerNotice::Lost);
        if bench.request.is_some() {
            sent.push(at);
            bench.answer(Ok(held(Some(8))));
        }
        bench.sleep(1);
        bench.tick();
    }
    for (fifth, first) in sent.iter().skip(4).zip(&sent) {
        assert!(fifth - first >= RETRY, "five reads from {first} to {fifth} ms");
    }
    // 4 in each of the 10 retry-periods.
    assert_eq!(sent.len(), 40, "{sent:?}");
}

#[test]
fn a_clock_that_went_back_delays_nothing() {
    let mut bench = Bench::notified();
    bench.now.boot -= ms(600_000);
    bench.now.raw -= ms(600_000);
    bench.tick();
    bench.expect("read");
    bench.answer(Ok(held(Some(8))));
    let waited = bench.next("read");
    assert!(waited <= RETRY, "the stream is lost: {waited}");
}
