//! R3, R4, R5 and R7: how a standby becomes leader, and how it does not.

use super::*;

#[test]
fn r3_an_answer_counts_once_and_for_the_current_request_only() {
    let mut bench = Bench::bidding();
    let old = bench.request.clone().expect("the bid");
    bench.answer(refused());
    bench.event(Input::Answer { id: old.id, answer: Ok(grant(Some(7))) });
    assert_eq!(bench.state(), State::Standby, "a grant that was refused before");
    bench.next("read");
    bench.event(Input::Answer { id: old.id, answer: Ok(free(Some(7))) });
    bench.expect("read");
}

#[test]
fn r4_an_unknown_bid_makes_no_leader_and_is_repeated_with_its_id_without_a_look() {
    let mut bench = Bench::bidding();
    let (lease, began) = (bench.lease(), bench.now);
    for _ in 0..2 {
        bench.answer(unknown());
        assert_eq!(bench.state(), State::Standby);
        bench.next("acquire");
        assert_eq!(bench.lease(), lease);
    }
    bench.answer(Ok(grant(Some(7))));
    bench.answer(Ok(Answer::Term(8)));
    let since = began.elapsed_max(bench.now);
    assert_eq!(bench.remaining(), ms(DEADLINE) - since, "counts from the first sending");
}

#[test]
fn r5_a_grant_that_comes_when_its_belief_would_be_over_is_released() {
    let mut bench = Bench::bidding();
    let lease = bench.lease();
    bench.sleep(DEADLINE);
    bench.answer(Ok(grant(Some(7))));
    assert_eq!(bench.state(), State::Standby);
    assert_ne!(bench.reason(), Some(Reason::Lapsed), "nothing began, so nothing ends");
    bench.expect("release");
    assert_eq!(bench.lease(), lease);
    bench.answer(Ok(Answer::Done));
    assert_eq!(bench.next("read"), RETRY);
}

#[test]
fn r5_a_grant_is_released_if_a_clock_has_run_ahead_since_its_bid() {
    for forward in [
        |now: &mut Moment| now.boot += ms(DEADLINE),
        |now: &mut Moment| now.raw += ms(DEADLINE),
        |now: &mut Moment| now.wall += ms(1_001), // R10
    ] {
        let mut bench = Bench::bidding();
        forward(&mut bench.now);
        bench.answer(Ok(grant(Some(7))));
        assert_eq!(bench.state(), State::Standby);
        assert_eq!(bench.reason(), Some(Reason::StoreReached), "nothing began, so nothing ends");
        bench.expect("release");
    }
}

#[test]
fn r5_the_faster_clock_ends_a_bid() {
    for forward in
        [|now: &mut Moment| now.boot += ms(LEASE), |now: &mut Moment| now.raw += ms(LEASE)]
    {
        let mut bench = Bench::bidding();
        bench.answer(unknown());
        forward(&mut bench.now);
        bench.tick();
        bench.expect("release");
    }
}

#[test]
fn r5_a_back_off_counts_from_the_release() {
    let given_up = || {
        let mut bench = Bench::bidding();
        bench.answer(unknown());
        bench.sleep(LEASE);
        bench.tick();
        bench.expect("release");
        bench
    };
    for answer in [Ok(Answer::Done), refused()] {
        let mut bench = given_up();
        bench.sleep(REQUEST);
        bench.answer(answer);
        assert_eq!(bench.next("read"), LEASE);
    }
    // A release whose outcome stays unknown ends too.
    let mut bench = given_up();
    bench.sleep(2 * REQUEST);
    bench.answer(unknown());
    assert!(bench.notices.contains(&Notice::ReleaseUnknown));
    assert_eq!(bench.next("read"), LEASE);
}

#[test]
fn r5_a_bid_unknown_for_a_lease_duration_is_released_and_its_id_is_dead() {
    let mut bench = Bench::bidding();
    let (lease, began) = (bench.lease(), bench.now);
    while bench.request.as_ref().is_some_and(|it| it.op.name() == "acquire") {
        bench.sleep(1_000);
        bench.answer(unknown());
        bench.pass(RETRY);
    }
    let gave_up = began.elapsed_max(bench.now);
    assert!(gave_up >= ms(LEASE) && gave_up < ms(LEASE + RETRY + 1_500), "{gave_up:?}");
    bench.expect("release");
    assert_eq!(bench.lease(), lease);
    bench.answer(Ok(Answer::Done));
    assert!(bench.next("read") >= LEASE / 2, "it backs off, so that another may try");
    bench.answer(Ok(free(Some(7))));
    assert_ne!(bench.lease(), lease);
}

#[test]
fn a_bid_is_for_the_configured_lease_duration() {
    let bench = Bench::bidding();
    let Some(Request { op: Op::Acquire(bid), .. }) = &bench.request else {
        panic!("no bid: {:?}", bench.request);
    };
    assert_eq!(bid.lease_duration, ms(LEASE));
    assert_eq!(bench.election.lease_duration(), ms(LEASE));
}

#[test]
fn r5_each_acquisition_has_an_id_of_its_own() {
    let mut bench = Bench::bidding();
    let mut seen = vec![bench.lease()];
    for _ in 0..5 {
        bench.answer(refused());
        bench.next("read");
        bench.answer(Ok(free(Some(7))));
        bench.expect("acquire");
        assert!(!seen.contains(&bench.lease()));
        seen.push(bench.lease());
    }
}

#[test]
fn r5_a_term_that_cannot_be_written_gives_the_lease_up_after_a_lease_duration() {
    // Also if the boot clock alone runs: the faster clock counts.
    for raw_runs in [true, false] {
        let mut bench = Bench::activating_with(config());
        let began = bench.now;
        loop {
            match bench.request.as_ref().map(|it| it.op.name()) {
                Some("write-term") => bench.answer(unknown()),
                Some("renew") => bench.answer(Ok(Answer::Done)),
                Some("release") => break,
                Some(other) => panic!("{other}"),
                None => {
                    bench.now.boot += ms(10);
                    bench.now.raw += if raw_runs { ms(10) } else { Duration::ZERO };
                    bench.tick();
                }
            }
            assert_ne!(bench.state(), State::Leader, "active without a term");
        }
        assert_eq!(began.elapsed_max(bench.now), ms(LEASE));
        assert_eq!(bench.reason(), Some(Reason::WriteFailed));
        bench.answer(Ok(Answer::Done));
        assert!(bench.next("read") >= LEASE / 2, "it backs off, so that another may try");
    }
}

#[test]
fn a_store_slower_than_the_retry_period_is_given_the_term() {
    let slow = RETRY + RETRY / 4;
    let mut bench = Bench::bidding_with(Config { request_timeout: ms(2 * RETRY), ..config() });
    for _ in 0..3 {
        let name = bench.request.as_ref().expect("a request").op.name();
        bench.sleep(slow);
        match name {
            "acquire" => bench.answer(Ok(grant(Some(7)))),
            "renew" => bench.answer(Ok(Answer::Done)),
            _ => {
                bench.expect("write-term");
                bench.answer(Ok(Answer::Term(8)));
                return assert!(bench.leads());
            }
        }
    }
    panic!("renewals alone were sent");
}

#[test]
fn a_renewal_that_is_overdue_goes_before_the_immediate_retry_of_the_term() {
    let mut bench = Bench::activating_with(config());
    bench.expect("write-term");
    bench.sleep(RETRY + 1);
    bench.answer(broken());
    bench.expect("renew");
    bench.answer(Ok(Answer::Done));
    bench.expect("write-term");
}

#[test]
fn r5_a_lease_on_a_foreign_record_is_released_and_never_led_on() {
    for at_write in [false, true] {
        let mut bench = Bench::bidding();
        if at_write {
            bench.answer(Ok(grant(Some(7))));
        }
        bench.answer(foreign());
        assert_eq!(bench.state(), State::Standby);
        bench.expect("release");
        bench.answer(Ok(Answer::Done));
        assert!(bench.next("read") >= LEASE / 2);
    }
}

#[test]
fn r7_a_candidate_is_not_active_before_the_term_is_written() {
    let mut bench = Bench::bidding();
    bench.answer(Ok(grant(Some(7))));
    assert!(!bench.leads());
    bench.expect("write-term");
    bench.answer(unknown());
    assert!(!bench.leads());
    bench.next("write-term");
    bench.answer(Ok(Answer::Term(8)));
    assert!(bench.leads());
    assert_eq!(bench.election.status().term(), Some(8));
    let holder = bench.election.status().holder.expect("it holds the lease itself");
    assert_eq!((holder.candidate.identity.as_str(), holder.term), ("us", 8));
}

#[test]
fn r7_a_term_written_when_no_time_is_left_makes_no_leader() {
    let mut bench = Bench::activating_with(config());
    bench.sleep(DEADLINE);
    bench.answer(Ok(Answer::Term(8)));
    assert_eq!((bench.leads(), bench.reason()), (false, Some(Reason::Lapsed)));
}

#[test]
fn r7_a_refused_term_means_that_the_lease_is_lost() {
    let mut bench = Bench::activating_with(config());
    bench.answer(refused());
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Lost)));
    bench.next("read");
}

#[test]
fn a_standby_bids_only_for_what_it_saw_free() {
    let mut bench = Bench::new(config());
    for _ in 0..5 {
        bench.answer(Ok(held(Some(7))));
        bench.next("read");
    }
    let holder = bench.election.status().holder.expect("seen");
    assert_eq!((holder.candidate.identity.as_str(), holder.term), ("other", 7));
    let changes = bench.notices.iter().filter(|it| matches!(it, Notice::HolderChanged(_)));
    assert_eq!(changes.collect::<Vec<_>>(), [&Notice::HolderChanged(Some(holder))]);
}

#[test]
fn a_record_seen_while_free_does_not_name_a_later_holder() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(free(Some(7))));
    bench.answer(refused());
    bench.next("read");
    bench.answer(Ok(held(Some(7))));
    assert_eq!(bench.election.status().holder, None, "whoever holds it has written no term yet");
    bench.next("read");
    bench.answer(Ok(held(Some(8))));
    assert!(bench.election.status().holder.is_some_and(|holder| holder.term == 8));
}

#[test]
fn looks_are_spread_by_half_of_the_retry_period() {
    for (jitter, wait) in [(0.0, RETRY / 2), (0.5, RETRY), (1.0, RETRY * 3 / 2)] {
        let mut bench = Bench::new(config());
        bench.jitter = jitter;
        bench.answer(Ok(held(Some(7))));
        assert_eq!(bench.next("read"), wait);
    }
}

#[test]
fn a_store_that_is_away_is_asked_again_within_the_retry_period_and_not_in_a_storm() {
    let mut bench = Bench::new(config());
    bench.jitter = 1.0;
    for wait in [RETRY / 4, RETRY / 2, RETRY, RETRY] {
        bench.answer(unknown());
        assert_eq!(bench.state(), State::Starting);
        assert_eq!(bench.next("read"), wait);
    }
    assert_eq!(bench.election.status().store.last_success, None);
    bench.answer(Ok(held(Some(7))));
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::StoreReached)));
    assert_eq!(bench.election.status().store.last_success, Some(bench.now));
}

#[test]
fn the_driver_is_asked_to_call_when_the_next_request_is_due() {
    let timeout = |bench: &Bench| bench.election.poll_timeout(bench.now);
    let mut bench = Bench::new(config());
    assert_eq!(timeout(&bench), Duration::MAX, "an answer must arrive first");
    bench.answer(Ok(held(Some(7))));
    assert_eq!(timeout(&bench), ms(RETRY));
    let mut bench = Bench::bidding();
    bench.answer(unknown());
    assert_eq!(timeout(&bench), ms(RETRY / 4 * 3 / 4));
    let mut bench = Bench::leader();
    assert_eq!(timeout(&bench), ms(RETRY));
    bench.next("renew");
    assert_eq!(timeout(&bench), ms(DEADLINE - RETRY), "the belief may end before an answer");
    bench.answer(Ok(Answer::Done));
    bench.resign();
    assert_eq!(timeout(&bench), ms(REQUEST), "the release waits no longer for publishers");
}

#[test]
fn a_wake_up_brings_the_next_look_forward_and_nothing_else() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(held(Some(7))));
    bench.wake_up();
    bench.expect("read");
}

#[test]
fn a_wake_up_during_a_read_or_a_bid_is_followed_by_a_read_at_once() {
    // The answer may be of before the change, and the next poll is seconds away.
    let mut bench = Bench::new(config());
    bench.expect("read");
    bench.wake_up();
    bench.answer(Ok(held(Some(7))));
    bench.expect("read");
    bench.answer(Ok(held(Some(7))));
    assert!(bench.request.is_none(), "one wake-up is one read");

    let mut bench = Bench::bidding();
    bench.wake_up();
    bench.answer(refused());
    bench.expect("read");
    bench.answer(Ok(held(Some(7))));
    assert!(bench.request.is_none(), "one wake-up is one read");

    // So it is when the bid is given up without a request in flight.
    let mut bench = Bench::bidding();
    bench.wake_up();
    bench.answer(unsent());
    assert!(bench.request.is_none());
    bench.command(Command::Pause).unwrap();
    bench.expect("read");

    // A grant leaves nothing to read, then or after the leadership.
    let mut bench = Bench::bidding();
    bench.wake_up();
    bench.answer(Ok(grant(Some(7))));
    bench.answer(refused());
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Lost)));
    assert!(bench.next("read") > 0, "the wake-up was of an earlier role");
}

#[test]
fn an_observer_never_bids() {
    let mut bench = Bench::new(Config { observe: true, ..config() });
    for _ in 0..10 {
        bench.answer(Ok(free(Some(7))));
        assert_eq!(bench.state(), State::Observing);
        bench.next("read");
    }
}

#[test]
fn r9_one_of_many_tries_an_unknown_bid_again_after_a_share_of_the_pace() {
    for (jitter, waited) in [(0.0, RETRY / 8), (0.5, RETRY / 4 * 3 / 4), (1.0, RETRY / 4)] {
        let mut bench = Bench::bidding();
        bench.jitter = jitter;
        bench.answer(unknown());
        assert_eq!(bench.next("acquire"), waited, "jitter {jitter}");
    }
}

#[test]
fn the_holder_of_a_lease_without_an_end_is_not_the_one_that_the_record_names() {
    let endless = |free| {
        let Answer::Snapshot(seen) = snapshot(free, Some(7)) else { unreachable!() };
        Answer::Snapshot(Snapshot { ends_in: Some(Duration::MAX), ..seen })
    };
    let mut bench = Bench::new(config());
    bench.answer(Ok(held(Some(7))));
    assert!(bench.election.status().holder.is_some());
    for (answer, has_no_end) in [
        (endless(false), true),
        (held(Some(7)), false),
        (endless(false), true),
        (free(Some(7)), false),
    ] {
        bench.next("read");
        bench.answer(Ok(answer));
        let status = bench.election.status();
        // Once it is being broken, the store no longer says that it has no end.
        assert_eq!(status.holder, None);
        assert_eq!(status.store.lease_has_no_end, has_no_end);
    }
}
