//! R11 and the activation delay: when the lease is held, for how long, and which term follows.

use super::*;
use crate::election::LARGEST_TERM;

fn remote() -> Config {
    Config { rules: REMOTE, ..config() }
}

/// Answers renewals until the write of the term is sent; returns how many milliseconds that took.
fn hold_until_written(bench: &mut Bench) -> u64 {
    for waited in 0..200_000 {
        match bench.request.as_ref().map(|it| it.op.name()) {
            Some("write-term") => return waited,
            Some("renew") => bench.answer(Ok(Answer::Done)),
            Some(other) => panic!("{other}"),
            None => {}
        }
        assert_eq!(bench.state(), State::Activating);
        assert!(!bench.leads(), "active during the hold");
        bench.sleep(1);
        bench.tick();
    }
    panic!("no term in 200 s");
}

fn floor(bench: &Bench) -> u64 {
    match bench.request.as_ref().map(|it| &it.op) {
        Some(Op::WriteTerm { floor, .. }) => *floor,
        other => panic!("{other:?}"),
    }
}

#[test]
fn r11_a_missing_record_holds_the_lease_for_the_longest_that_the_store_allows() {
    let mut bench = Bench::bidding_with(remote());
    bench.sleep(700);
    bench.answer(Ok(grant(None)));
    assert_eq!(hold_until_written(&mut bench), 60_000, "counted from the grant's answer");
    assert!(floor(&bench) >= EPOCH, "unix milliseconds");
    assert!(bench.notices.contains(&Notice::RecordMissing { hold: ms(60_000) }));
}

#[test]
fn r11_the_slower_clock_counts_the_hold() {
    let mut bench = Bench::bidding_with(remote());
    bench.answer(Ok(grant(None)));
    for _ in 0..61 {
        bench.now.boot += ms(1_000);
        bench.now.raw += ms(500);
        bench.now.wall += ms(1_000);
        bench.tick();
        if bench.request.is_some() {
            bench.expect("renew");
            bench.answer(Ok(Answer::Done));
        }
    }
    assert_eq!(bench.state(), State::Activating, "31 s by the raw clock");
}

#[test]
fn r11_the_first_holder_in_a_local_store_need_not_hold_for_a_missing_record() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(free(None)));
    bench.answer(Ok(grant(None)));
    bench.expect("write-term");
    assert!(floor(&bench) >= EPOCH);
    let is_alarm = |it: &Notice| matches!(it, Notice::RecordMissing { .. });
    assert!(!bench.notices.iter().any(is_alarm), "{:?}", bench.notices);
}

/// A directory that was renamed or removed frees the lease behind the holder's back, in every store.
#[test]
fn r11_a_record_that_goes_missing_after_a_term_was_seen_is_held_for_in_every_store() {
    for (rules, hold) in [(LOCAL, LEASE), (REMOTE, 60_000)] {
        let mut bench = Bench::new(Config { rules, ..config() });
        bench.answer(Ok(held(Some(EPOCH))));
        bench.next("read");
        bench.answer(Ok(free(None)));
        assert!(bench.notices.contains(&Notice::RecordMissing { hold: ms(hold) }));
        bench.answer(Ok(grant(None)));
        // A renewal that is due in the same millisecond goes first.
        let held = hold_until_written(&mut bench);
        assert!((hold..hold + 10).contains(&held), "{held}");
        assert!(floor(&bench) > EPOCH, "above all that was seen");
    }
}

/// A leader that finds its own record gone knows its own term.
#[test]
fn r11_a_leader_whose_record_is_gone_holds_before_it_leads_again_in_every_store() {
    for (rules, hold) in [(LOCAL, LEASE), (REMOTE, 60_000)] {
        let mut bench = Bench::leader_with(Config { rules, ..config() });
        bench.next("renew");
        bench.answer(refused());
        bench.next("read");
        bench.answer(Ok(free(None)));
        bench.answer(Ok(grant(None)));
        let held = hold_until_written(&mut bench);
        assert!((hold..hold + 10).contains(&held), "{held}");
    }
}

#[test]
fn r11_a_term_that_fell_is_an_alarm_and_a_hold_in_every_store() {
    for (rules, hold) in [(LOCAL, LEASE), (REMOTE, 60_000)] {
        let mut bench = Bench::new(Config { rules, ..config() });
        bench.answer(Ok(held(Some(EPOCH * 2))));
        bench.next("read");
        bench.answer(Ok(free(Some(7))));
        assert!(bench.notices.contains(&Notice::TermFell { seen: EPOCH * 2, found: 7 }));
        bench.answer(Ok(grant(Some(7))));
        // A renewal that is due in the same millisecond goes first.
        let held = hold_until_written(&mut bench);
        assert!((hold..hold + 10).contains(&held), "{held}");
        assert_eq!(floor(&bench), EPOCH * 2 + 1, "above all that was seen");
    }
}

#[test]
fn r11_the_store_s_date_counts_if_there_is_one() {
    let mut bench = Bench::bidding_with(remote());
    let date = time::OffsetDateTime::from_unix_timestamp(4_000_000_000).expect("a date");
    let grant = Grant { record: Record::default(), date: Some(date), version: None };
    bench.answer(Ok(Answer::Grant(grant)));
    hold_until_written(&mut bench);
    assert_eq!(floor(&bench), 4_000_000_000_000);
}

#[test]
fn r11_an_alarm_is_reported_once() {
    let mut bench = Bench::new(remote());
    for _ in 0..5 {
        bench.answer(Ok(held(None)));
        bench.next("read");
    }
    let told = |bench: &Bench| {
        bench.notices.iter().filter(|it| matches!(it, Notice::RecordMissing { .. })).count()
    };
    assert_eq!(told(&bench), 1);

    // A leader has mended the record, so it is another defect.
    let mut bench = Bench::bidding_with(remote());
    bench.answer(Ok(grant(None)));
    hold_until_written(&mut bench);
    bench.answer(Ok(Answer::Term(8)));
    bench.next("renew");
    bench.answer(refused());
    bench.next("read");
    bench.answer(Ok(held(None)));
    assert_eq!(told(&bench), 2);
}

#[test]
fn a_term_that_cannot_grow_is_released_and_reported() {
    for found in [LARGEST_TERM, u64::MAX] {
        let mut bench = Bench::bidding();
        bench.answer(Ok(grant(Some(found))));
        assert_eq!(bench.state(), State::Standby);
        bench.expect("release");
        assert!(bench.notices.contains(&Notice::TermTooLarge { found }));
        bench.answer(Ok(Answer::Done));
        assert!(bench.next("read") >= LEASE / 2, "it backs off, so that an operator may mend it");
        // It is not remembered: once mended, the record counts.
        bench.answer(Ok(free(Some(7))));
        bench.answer(Ok(grant(Some(7))));
        bench.expect("write-term");
        assert_eq!(floor(&bench), 8);
    }
    let mut bench = Bench::bidding();
    bench.answer(Ok(grant(Some(LARGEST_TERM - 1))));
    bench.expect("write-term");
    assert_eq!(floor(&bench), LARGEST_TERM);
}

#[test]
fn an_ordinary_record_is_followed_at_once_by_the_next_term() {
    let mut bench = Bench::bidding_with(remote());
    bench.answer(Ok(grant(Some(7))));
    bench.expect("write-term");
    assert_eq!(floor(&bench), 8);
    assert!(!alarmed(&bench), "{:?}", bench.notices);
}

#[test]
fn the_first_use_of_a_local_store_is_no_alarm() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(free(None)));
    bench.answer(Ok(grant(None)));
    bench.expect("write-term");
    assert!(!alarmed(&bench), "{:?}", bench.notices);
}

#[test]
fn a_local_record_that_is_lost_is_told() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(held(Some(1))));
    bench.next("read");
    bench.answer(Ok(free(None)));
    assert!(alarmed(&bench), "{:?}", bench.notices);
}

fn alarmed(bench: &Bench) -> bool {
    bench
        .notices
        .iter()
        .any(|it| matches!(it, Notice::RecordMissing { .. } | Notice::TermFell { .. }))
}

#[test]
fn the_activation_delay_holds_the_lease_before_the_term_is_written() {
    let delayed = Config { activation_delay: ms(5_000), ..config() };
    let mut bench = Bench::bidding_with(delayed);
    bench.sleep(500);
    bench.answer(Ok(grant(Some(7))));
    assert_eq!(hold_until_written(&mut bench), 5_000, "from the grant's answer");
}

#[test]
fn a_lease_lost_during_the_hold_leads_to_nothing() {
    let mut bench = Bench::bidding_with(remote());
    bench.answer(Ok(grant(None)));
    bench.next("renew");
    bench.answer(refused());
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Lost)));
}

#[test]
fn a_wake_up_does_not_cut_short_standing_back_for_others() {
    let mut bench = Bench::bidding();
    bench.answer(foreign());
    bench.answer(Ok(Answer::Done));
    bench.wake_up();
    assert!(bench.request.is_none());
}

#[test]
fn a_wake_up_counts_again_once_a_back_off_is_over() {
    let mut bench = Bench::bidding();
    bench.answer(foreign());
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(unknown());
    bench.wake_up();
    bench.expect("read");
}

#[test]
fn a_clock_that_goes_back_starts_a_hold_anew_and_no_more() {
    let mut bench = Bench::bidding_with(remote());
    bench.answer(Ok(grant(None)));
    bench.sleep(1_000);
    bench.now.boot -= ms(3_600_000);
    bench.tick();
    let held = hold_until_written(&mut bench);
    assert!((60_000..60_010).contains(&held), "{held}");
}

#[test]
fn r11_a_term_that_was_written_too_late_is_seen_all_the_same() {
    let mut bench = Bench::activating_with(config());
    bench.sleep(DEADLINE);
    bench.answer(Ok(Answer::Term(8)));
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(free(Some(7))));
    assert!(bench.notices.contains(&Notice::TermFell { seen: 8, found: 7 }));
}

/// A record of an election that has moved.
fn moved() -> Record {
    Record { successor: Some(crate::lease::Successor::store("gs://locks")), ..record(Some(7)) }
}

fn seen_moved() -> Answer {
    let Answer::Snapshot(seen) = free(Some(7)) else { unreachable!() };
    Answer::Snapshot(Snapshot { record: moved(), ..seen })
}

#[test]
fn nobody_bids_on_a_record_that_says_that_the_election_has_moved() {
    let mut bench = Bench::new(remote());
    for _ in 0..20 {
        bench.answer(Ok(seen_moved()));
        bench.next("read");
    }
    // Nor at the request of an operator.
    assert!(bench.command(Command::Resume).is_err());
    bench.answer(Ok(seen_moved()));
    bench.next("read");
    let status = bench.election.status();
    assert_eq!(status.store.moved_to.as_deref(), Some("gs://locks"));
    assert_eq!(status.successor, None, "it is no candidate");
    let told = Notice::Moved(Some("gs://locks".into()));
    assert_eq!(bench.notices.iter().filter(|it| **it == told).count(), 1);
    bench.answer(Ok(free(Some(8))));
    bench.expect("acquire");
    assert!(bench.notices.contains(&Notice::Moved(None)));
    assert_eq!(bench.election.status().store.moved_to, None);
}

#[test]
fn a_lease_is_released_and_no_term_written_if_the_election_has_moved_since_the_read() {
    let mut bench = Bench::bidding_with(remote());
    let grant = Grant { record: moved(), date: None, version: None };
    bench.answer(Ok(Answer::Grant(grant)));
    bench.expect("release");
    assert_eq!(bench.state(), State::Standby);
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(seen_moved()));
    bench.next("read");
}

#[test]
fn a_bid_keeps_when_the_lease_was_last_handed_over_to_a_named_successor() {
    let seconds = |bench: &Bench| {
        let bid = match bench.request.as_ref().map(|it| &it.op) {
            Some(Op::Acquire(bid)) => bid.nonce.handover(),
            other => panic!("{other:?}"),
        };
        bid.map(time::OffsetDateTime::unix_timestamp)
    };
    let bids_on = |record: Record| {
        let mut bench = Bench::new(config());
        let Answer::Snapshot(seen) = free(Some(7)) else { unreachable!() };
        bench.answer(Ok(Answer::Snapshot(Snapshot { record, ..seen })));
        seconds(&bench)
    };
    let now = i64::try_from(EPOCH / 1_000).unwrap();
    let earlier = time::OffsetDateTime::from_unix_timestamp(now - 300).unwrap();
    let of = |handover, identity: Option<&str>| Record {
        nonce: Some(Nonce(7).with_handover(handover)),
        successor: identity.map(|it| crate::lease::Successor {
            identity: it.to_owned(),
            hold_off: Duration::ZERO,
        }),
        ..record(Some(7))
    };
    assert_eq!(bids_on(of(None, None)), None);
    assert_eq!(bids_on(of(Some(earlier), None)), Some(now - 300), "whoever leads next");
    assert_eq!(bids_on(of(Some(earlier), Some("us"))), Some(now));
    assert_eq!(bids_on(of(None, Some("another"))), Some(now), "which did not come");
    assert_eq!(bids_on(Record { nonce: None, ..of(None, None) }), None);
}
