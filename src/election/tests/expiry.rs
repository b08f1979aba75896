//! R2 where no store counts the time: how an observer waits for the end of a lease.

use super::*;
use crate::lease::Claim;

/// The claim after the holder has renewed for the `renewal`-th time.
fn claim(renewal: u64) -> Claim {
    Claim { spec: Version(renewal.to_string().into()), lease_duration: ms(ITS_LEASE) }
}

/// The store shows a renewal.
fn show(bench: &mut Bench, renewal: u64) {
    bench.event(Input::Changed(Change::Renewal(claim(renewal))));
}

/// The duration of the observed lease, longer than that of the candidate.
const ITS_LEASE: u64 = 20_000;

/// A read of a Lease in its `version`, whose holder has renewed it for the `renewal`-th time.
fn claimed(renewal: u64, version: u64) -> Result<Answer, StoreError> {
    Ok(Answer::Snapshot(Snapshot {
        free: false,
        record: record(Some(7)),
        version: Version(version.to_string().into()),
        claim: Some(claim(renewal)),
        ends_in: None,
    }))
}

/// Answers reads until the candidate bids; returns how many milliseconds that took.
fn until_it_bids(bench: &mut Bench, mut read: impl FnMut() -> Result<Answer, StoreError>) -> u64 {
    let mut waited = 0;
    while bench.request.as_ref().is_none_or(|it| it.op.name() == "read") {
        assert!(waited < 10 * ITS_LEASE, "it never bids");
        if bench.request.is_none() {
            waited += bench.next("read");
        }
        bench.answer(read());
    }
    bench.expect("acquire");
    waited
}

#[test]
fn r2_an_observer_bids_once_it_has_seen_one_claim_for_its_whole_duration() {
    let mut bench = Bench::new(config());
    bench.sleep(1_500);
    bench.answer(claimed(1, 1));
    assert_eq!(bench.election.status().holder.map(|it| it.term), Some(7));
    let waited = until_it_bids(&mut bench, || claimed(1, 1));
    let soon = ITS_LEASE..=ITS_LEASE + RETRY / 8;
    assert!(soon.contains(&waited), "{waited}: from the answer's receipt, and not a poll later");
    assert_eq!(bench.election.status().holder, None);
}

#[test]
fn an_observer_reads_when_the_lease_that_it_observes_ends_and_not_a_poll_later() {
    let period = 3_000;
    let mut bench = Bench::new(Config { retry_period: ms(period), ..config() });
    bench.answer(claimed(1, 1));
    let waited = until_it_bids(&mut bench, || claimed(1, 1));
    assert!((ITS_LEASE..=ITS_LEASE + period / 8).contains(&waited), "{waited}");
}

/// By as much as it sees the last renewal late, it waits longer for a holder that is gone.
#[test]
fn an_observer_without_reports_reads_soon_after_each_renewal() {
    for jitter in [0.25, 0.5, 1.0] {
        let mut bench = Bench::new(config());
        bench.jitter = jitter;
        let (mut reads, mut age) = (0, 0);
        let mut seen = 0;
        // The holder renews every retry-period.
        for at in 0..60_000 {
            if bench.request.is_some() {
                bench.expect("read");
                reads += 1;
                let renewal = (at + 700) / RETRY;
                if renewal != seen {
                    age += (at + 700) % RETRY;
                    seen = renewal;
                }
                bench.answer(claimed(renewal, renewal));
            }
            bench.sleep(1);
            bench.tick();
        }
        assert!(age / seen <= RETRY * 2 / 5, "{} with jitter {jitter}", age / seen);
        assert!(reads <= 36, "{reads} in a minute");
    }
}

#[test]
fn r2_a_renewal_begins_the_wait_anew_and_changed_metadata_does_not() {
    let mut bench = Bench::new(config());
    let mut reads = 0;
    let waited = until_it_bids(&mut bench, || {
        reads += 1;
        claimed(if reads < 5 { reads } else { 4 }, reads)
    });
    assert!(waited >= ITS_LEASE + 3 * RETRY / 2, "{waited}");
    assert!(waited <= ITS_LEASE + 3 * RETRY * 3 / 2 + RETRY / 8, "{waited}");
    let Some(Request { op: Op::Acquire(bid), .. }) = &bench.request else {
        panic!("no bid: {:?}", bench.request);
    };
    assert_eq!(bid.seen, Version(reads.to_string().into()), "compares and sets what it saw last");
}

#[test]
fn r2_the_wait_begins_when_the_store_shows_a_renewal_and_ends_with_a_read() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    show(&mut bench, 2);
    assert!(bench.request.is_none(), "a renewal is no reason to read");
    let mut reads = 10;
    let waited = until_it_bids(&mut bench, || {
        reads += 1;
        claimed(2, reads)
    });
    assert!((ITS_LEASE..=ITS_LEASE + RETRY / 8).contains(&waited), "{waited}: from the report");
    let Some(Request { op: Op::Acquire(bid), .. }) = &bench.request else { panic!("no bid") };
    assert_eq!(bid.seen, Version(reads.to_string().into()), "on what it read last");

    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    bench.pass(ITS_LEASE);
    show(&mut bench, 2);
    assert!(
        bench.request.is_none_or(|it| it.op.name() == "read"),
        "what it read is over, and renewed"
    );
}

#[test]
fn r2_a_renewal_that_is_shown_late_lengthens_the_wait() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(2, 2));
    bench.pass(1_000);
    show(&mut bench, 1);
    let waited = until_it_bids(&mut bench, || claimed(2, 2));
    assert!(waited >= ITS_LEASE, "{waited}: from the read after it");
}

#[test]
fn a_leader_takes_no_renewal_for_that_of_another() {
    let mut bench = Bench::leader();
    show(&mut bench, 1);
    assert!(bench.leads() && bench.request.is_none());
}

#[test]
fn r2_an_observer_waits_by_the_slower_of_its_clocks() {
    let fasts: [fn(&mut Moment); 2] =
        [|now| now.boot += ms(ITS_LEASE), |now| now.raw += ms(ITS_LEASE)];
    for fast in fasts {
        let mut bench = Bench::new(config());
        bench.answer(claimed(1, 1));
        fast(&mut bench.now);
        bench.tick();
        bench.answer(claimed(1, 1));
        assert!(bench.request.is_none(), "one clock alone ended the wait");
        assert!(until_it_bids(&mut bench, || claimed(1, 1)) >= ITS_LEASE);
    }
}

#[test]
fn r2_a_clock_that_went_back_begins_the_wait_anew() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    bench.sleep(ITS_LEASE - 1);
    bench.now.raw -= ms(50 * ITS_LEASE);
    bench.tick();
    bench.answer(claimed(1, 1));
    let waited = until_it_bids(&mut bench, || claimed(1, 1));
    let anew = ITS_LEASE..=ITS_LEASE + RETRY / 8;
    assert!(anew.contains(&waited), "{waited}: not until the clock has caught up");
}

#[test]
fn r2_a_change_between_reads_restarts_the_wait() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    bench.sleep(10 * ITS_LEASE);
    bench.tick();
    bench.answer(claimed(2, 2));
    assert!(bench.request.is_none(), "it was renewed meanwhile");
    bench.sleep(10 * ITS_LEASE);
    bench.tick();
    bench.answer(claimed(2, 2));
    bench.expect("acquire");
}

#[test]
fn a_release_ends_the_wait_and_a_refused_bid_waits_for_what_it_finds_then() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    bench.next("read");
    bench.answer(Ok(free(Some(7))));
    bench.expect("acquire");
    bench.answer(refused());
    bench.next("read");
    bench.answer(claimed(1, 3));
    let waited = until_it_bids(&mut bench, || claimed(1, 3));
    assert!(waited >= ITS_LEASE, "{waited}: another wait");
}

#[test]
fn a_candidate_that_only_observes_bids_for_nothing_that_is_over() {
    let mut bench = Bench::new(Config { observe: true, ..config() });
    bench.answer(claimed(1, 1));
    for _ in 0..20 {
        bench.next("read");
        bench.answer(claimed(1, 1));
    }
    assert!(bench.request.is_none());
    assert_eq!(bench.election.status().holder, None, "whose lease is over leads no more");
}

/// A read of a lease whose store says when it ends.
fn held_for(ends_in: Duration) -> Result<Answer, StoreError> {
    let version = Version("1".into());
    let (record, claim, ends_in) = (record(Some(7)), None, Some(ends_in));
    Ok(Answer::Snapshot(Snapshot { free: false, record, version, claim, ends_in }))
}

#[test]
fn a_standby_reads_when_the_lease_ends_if_the_store_says_so() {
    let mut bench = Bench::new(config());
    bench.answer(held_for(ms(300)));
    let waited = bench.next("read");
    assert!((300..=300 + RETRY / 8).contains(&waited), "{waited}");
}

#[test]
fn a_standby_polls_a_lease_without_an_end() {
    let mut bench = Bench::new(config());
    bench.answer(held_for(Duration::MAX));
    let waited = bench.next("read");
    assert!((RETRY / 2..=RETRY * 3 / 2).contains(&waited), "{waited}");
}

#[test]
fn an_observer_does_not_poll_while_renewals_are_reported() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    let (mut renewal, mut reads) = (1, 0);
    for _ in 0..60_000 / RETRY {
        bench.pass(RETRY);
        if bench.request.is_some() {
            bench.expect("read");
            reads += 1;
            bench.answer(claimed(renewal, renewal));
        }
        renewal += 1;
        show(&mut bench, renewal);
        let status = bench.election.status();
        let unread = status.store.last_success.map(|it| it.elapsed_max(bench.now));
        assert!(unread < Some(status.lease.read_within), "the holder is seen to renew");
        assert!(unread <= status.contact_due, "the store was not to be read before");
    }
    assert!((1..=3).contains(&reads), "{reads} in a minute: the watch may lag");
    let silent = bench.next("read");
    assert!((RETRY..=RETRY * 3 / 2).contains(&silent), "{silent}");
    bench.answer(claimed(renewal, renewal));
    let polled = bench.next("read");
    assert!((RETRY / 2..=RETRY * 3 / 2).contains(&polled), "{polled}: as without reports");
}

#[test]
fn observers_that_are_told_of_the_same_renewals_read_at_different_times() {
    let reads_after = |jitter| {
        let mut bench = Bench::new(config());
        bench.jitter = jitter;
        bench.answer(claimed(1, 1));
        (2..).find(|renewal| {
            bench.pass(RETRY / 20);
            show(&mut bench, *renewal);
            bench.request.is_some()
        })
    };
    assert!(reads_after(0.0) < reads_after(0.9));
}

#[test]
fn a_reported_renewal_puts_off_no_read_of_an_observer_that_was_told_of_news() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    bench.report(None);
    bench.expect("read");
    show(&mut bench, 2);
    bench.answer(unknown());
    show(&mut bench, 3);
    assert!(bench.next("read") <= RETRY / 2, "the read has failed");
}

#[test]
fn reports_without_end_cause_four_reads_in_a_retry_period() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    let mut reads = 0;
    for _ in 0..10 * RETRY {
        bench.pass(1);
        bench.report(None);
        if bench.request.is_some() {
            bench.expect("read");
            reads += 1;
            bench.answer(claimed(1, 1));
        }
    }
    assert!((40..=51).contains(&reads), "four in each of ten retry-periods, and polls: {reads}");
}

#[test]
fn a_clock_that_went_back_begins_the_count_of_these_reads_anew() {
    let mut bench = Bench::new(config());
    bench.answer(claimed(1, 1));
    for _ in 0..2 {
        for _ in 0..4 {
            bench.report(None);
            bench.expect("read");
            bench.answer(claimed(1, 1));
        }
        bench.now.boot -= ms(60_000);
        bench.now.raw -= ms(60_000);
    }
}
