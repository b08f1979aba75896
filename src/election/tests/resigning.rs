//! R3 and R8: how a candidate resigns and releases its lease.

use super::*;

#[test]
fn r8_passive_waits_for_nothing() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.resign();
    assert_eq!((bench.leads(), bench.state()), (false, State::Stopped));
    assert!(!bench.election.is_finished());
}

#[test]
fn r8_a_lease_is_not_released_before_all_publishers_acknowledged_passive() {
    let mut bench = Bench::leader();
    bench.resign();
    bench.pass(REQUEST - 1);
    assert!(bench.request.is_none(), "nobody has said passive yet");
    bench.publish_acked();
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    assert!(bench.election.is_finished());
}

#[test]
fn r8_a_silent_publisher_delays_a_release_by_one_request_timeout() {
    let mut bench = Bench::leader();
    bench.resign();
    assert_eq!(bench.next("release"), REQUEST);
}

#[test]
fn r8_the_slower_clock_counts_that_wait() {
    let mut bench = Bench::leader();
    bench.resign();
    bench.now.boot += ms(REQUEST);
    bench.now.wall += ms(REQUEST);
    bench.tick();
    assert!(bench.request.is_none());
    bench.now.raw += ms(REQUEST);
    bench.tick();
    assert!(bench.request.is_some());
}

#[test]
fn r8_a_lapse_waits_for_the_announcement_too() {
    let patience = 2 * REQUEST;
    let mut bench = Bench::leader_with(Config { request_timeout: ms(patience), ..config() });
    bench.next("renew");
    bench.sleep(DEADLINE);
    bench.answer(unknown());
    assert_eq!(bench.reason(), Some(Reason::Lapsed));
    bench.pass(patience - 1);
    assert!(bench.request.is_none());
    bench.publish_acked();
    bench.expect("release");
}

#[test]
fn r3_a_release_waits_for_the_request_in_flight() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.resign();
    bench.publish_acked();
    bench.expect("renew");
    bench.pass(1_500);
    bench.answer(Ok(Answer::Done));
    bench.expect("release");
    assert!(!bench.leads());
}

#[test]
fn r3_a_grant_that_comes_after_resigning_is_released_and_never_active() {
    for answer in [Ok(grant(Some(7))), unknown(), broken()] {
        let mut bench = Bench::bidding();
        let lease = bench.lease();
        bench.resign();
        bench.answer(answer);
        assert_eq!(bench.state(), State::Stopped);
        bench.expect("release");
        assert_eq!(bench.lease(), lease);
        bench.answer(Ok(Answer::Done));
        assert!(bench.election.is_finished());
    }
}

#[test]
fn r3_a_bid_that_certainly_had_no_effect_leaves_nothing_to_release() {
    let mut bench = Bench::bidding();
    bench.answer(unsent());
    bench.resign();
    assert!(bench.election.is_finished());

    // Another attempt may have had an effect, or may have one yet.
    let mut bench = Bench::bidding();
    bench.answer(unknown());
    bench.next("acquire");
    bench.answer(unsent());
    bench.resign();
    bench.expect("release");

    // Nor does one that proves to have had none only after the candidate has left.
    let mut bench = Bench::bidding();
    bench.resign();
    bench.answer(unsent());
    assert!(bench.request.is_none() && bench.election.is_finished());
    let mut bench = Bench::bidding();
    bench.answer(unknown());
    bench.next("acquire");
    bench.resign();
    bench.answer(unsent());
    bench.expect("release");
    let mut bench = Bench::bidding();
    bench.answer(unsent());
    bench.next("acquire");
    bench.resign();
    bench.answer(unknown());
    bench.expect("release");
}

#[test]
fn writes_fail_from_the_first_failure_to_an_answer_and_reads_do_not_end_that() {
    let since = |bench: &Bench| bench.election.status().store.failing_writes.map(|it| it.since);
    let error = |bench: &Bench| bench.election.status().store.error().is_some();
    let mut bench = Bench::bidding();
    bench.answer(unknown());
    let first = bench.now;
    bench.sleep(LEASE);
    bench.tick();
    bench.expect("release");
    bench.answer(unknown());
    assert_eq!(since(&bench), Some(first));
    bench.sleep(2 * REQUEST);
    bench.tick();
    bench.next("read");
    bench.answer(Ok(free(Some(7))));
    assert!(since(&bench) == Some(first) && error(&bench), "a read says nothing about writes");
    bench.expect("acquire");
    bench.answer(refused());
    assert!(since(&bench).is_none() && !error(&bench));

    let mut bench = Bench::bidding();
    bench.answer(unknown());
    bench.sleep(LEASE);
    bench.tick();
    bench.answer(Ok(Answer::Done));
    assert_eq!(since(&bench), None);

    let mut bench = Bench::bidding();
    bench.answer(unknown());
    bench.sleep(LEASE);
    bench.tick();
    bench.answer(unknown());
    assert_eq!(bench.election.status().store.failures, 2);
    bench.sleep(2 * REQUEST);
    bench.tick();
    bench.next("read");
    bench.answer(Ok(held(Some(8))));
    assert_eq!(since(&bench), None, "another candidate could write");
    assert_eq!(bench.election.status().store.failures, 0, "the store has answered");
}

#[test]
fn a_lease_that_can_be_acquired_does_not_show_that_its_record_can_be_written() {
    let failing = |bench: &Bench| bench.election.status().store.failing_writes;
    let mut bench = Bench::activating_with(config());
    bench.answer(Err(StoreError::Unknown(Failure::new(Cause::Auth, "denied"))));
    let first = bench.now;
    bench.sleep(LEASE);
    bench.tick();
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    assert_eq!(failing(&bench).map(|it| it.since), Some(first));

    bench.sleep(2 * REQUEST);
    bench.tick();
    bench.next("read");
    bench.answer(unknown());
    let store = bench.election.status().store;
    assert_ne!(store.error(), store.failing_writes.as_ref().map(|it| &it.error));
    bench.next("read");
    bench.answer(Ok(free(Some(7))));
    let store = bench.election.status().store;
    assert_eq!(store.error(), store.failing_writes.as_ref().map(|it| &it.error));

    bench.expect("acquire");
    bench.answer(Ok(grant(Some(7))));
    assert!(failing(&bench).is_some());
    bench.expect("write-term");
    bench.answer(Ok(Answer::Term(8)));
    assert_eq!(failing(&bench), None);
}

#[test]
fn r3_a_bid_refused_after_resigning_leaves_nothing_to_release() {
    let mut bench = Bench::bidding();
    bench.resign();
    bench.answer(refused());
    assert!(bench.election.is_finished());
}

#[test]
fn r3_a_term_written_after_resigning_is_released_and_never_led() {
    let mut bench = Bench::activating_with(config());
    bench.resign();
    bench.answer(Ok(Answer::Term(8)));
    assert_eq!(bench.state(), State::Stopped);
    bench.expect("release");
}

#[test]
fn a_standby_and_one_that_only_looks_leave_at_once() {
    let mut bench = Bench::new(config());
    bench.expect("read");
    bench.resign();
    assert!(bench.election.is_finished(), "a read in flight is nothing to wait for");
}

#[test]
fn resigning_while_activating_releases_at_once() {
    let mut bench = Bench::activating_with(Config { activation_delay: ms(5_000), ..config() });
    bench.resign();
    bench.expect("release");
}

#[test]
fn an_unknown_release_is_tried_again_within_two_request_timeouts() {
    for (answer, wait) in [(unknown(), RETRY / 4), (broken(), 0)] {
        let mut bench = Bench::leader();
        bench.resign();
        bench.publish_acked();
        bench.answer(answer);
        assert_eq!(bench.next("release"), wait);
        bench.answer(Ok(Answer::Done));
        assert!(bench.election.is_finished());
        assert!(!bench.notices.contains(&Notice::ReleaseUnknown));
    }
}

#[test]
fn r3_a_resignation_ends_within_two_request_timeouts_whatever_the_store_does() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.resign();
    let began = bench.now;
    let mut left = REQUEST;
    while !bench.election.is_finished() {
        if let Some(request) = &bench.request {
            // Each request takes all of its timeout.
            let taken = u64::try_from(request.timeout.as_millis()).expect("short").min(left);
            bench.pass(taken);
            bench.answer(unknown());
            left = REQUEST;
        } else {
            bench.pass(10);
        }
        assert!(began.elapsed_max(bench.now) <= ms(2 * REQUEST + 10), "it takes too long");
    }
    assert!(bench.notices.contains(&Notice::ReleaseUnknown), "it is said");
}

#[test]
fn the_store_is_waited_for_no_longer_than_the_attempts_at_a_release_last() {
    let mut bench = Bench::leader();
    bench.resign();
    bench.publish_acked();
    let timeout = |bench: &Bench| bench.request.as_ref().map(|it| it.timeout);
    assert_eq!(timeout(&bench), Some(ms(REQUEST)));
    bench.sleep(REQUEST);
    bench.answer(unknown());
    bench.next("release");
    assert_eq!(timeout(&bench), Some(ms(REQUEST - RETRY / 4)));
}

#[test]
fn the_faster_clock_ends_the_attempts_at_a_release() {
    for forward in [
        |now: &mut Moment| now.boot += ms(2 * REQUEST),
        |now: &mut Moment| now.raw += ms(2 * REQUEST),
    ] {
        let mut bench = Bench::leader();
        bench.resign();
        bench.publish_acked();
        bench.answer(unknown());
        forward(&mut bench.now);
        bench.tick();
        assert!(bench.election.is_finished() && bench.notices.contains(&Notice::ReleaseUnknown));
    }
}

#[test]
fn r3_a_renewal_without_effect_that_ends_after_the_leadership_leaves_the_lease_to_release() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.resign();
    bench.publish_acked();
    bench.answer(unsent());
    bench.expect("release");
}

#[test]
fn r8_whatever_follows_the_deadline_finds_the_lease_lapsed() {
    let health = Some(HealthRule { probes: 1, failures: 1, successes: 1 });
    let step_down = Command::StepDown { hold_off: Duration::ZERO };
    let events: [&dyn Fn(&mut Bench); 5] = [
        &|bench| bench.probe_result(false, Some(8)),
        &|bench| bench.maintenance(true),
        &|bench| bench.resign(),
        &|bench| _ = bench.command(Command::Pause),
        &|bench| _ = bench.command(step_down.clone()),
    ];
    for event in events {
        let mut bench = Bench::new(Config { health, ..config() });
        bench.probe_result(true, None);
        bench.answer(Ok(free(Some(7))));
        bench.answer(Ok(grant(Some(7))));
        bench.answer(Ok(Answer::Term(8)));
        bench.sleep(DEADLINE);
        event(&mut bench);
        let lapsed = |it: &Notice| {
            matches!(it, Notice::Transition(Transition { reason: Reason::Lapsed, .. }))
        };
        assert!(bench.notices.iter().any(lapsed), "the deadline came first");
        bench.publish_acked();
        assert!(bench.request.is_none(), "released while an answer still holds");
    }
}

#[test]
fn a_lapsed_leader_competes_anew_for_a_new_term_once_its_release_is_over() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.sleep(DEADLINE);
    bench.answer(unknown());
    bench.publish_acked();
    bench.next("release");
    for _ in 0..10 {
        if bench.request.as_ref().is_none_or(|it| it.op.name() != "release") {
            break;
        }
        bench.answer(unknown());
        bench.pass(RETRY);
    }
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    bench.answer(Ok(grant(Some(8))));
    let Some(Op::WriteTerm { floor, .. }) = bench.request.as_ref().map(|it| it.op.clone()) else {
        panic!("{:?}", bench.request);
    };
    assert_eq!(floor, 9);
}

#[test]
fn a_clock_that_goes_back_starts_the_wait_for_publishers_anew_and_no_more() {
    let mut bench = Bench::leader();
    bench.resign();
    bench.sleep(500);
    bench.now.boot -= ms(3_600_000);
    bench.tick();
    assert_eq!(bench.next("release"), REQUEST);
}

/// Creates a leader whose last renewal timed out, and whose belief is over.
fn lapsed() -> (Bench, Moment) {
    let mut bench = Bench::leader();
    let sent = bench.now;
    bench.next("renew");
    bench.sleep(DEADLINE - RETRY);
    bench.answer(unknown());
    assert_eq!(bench.reason(), Some(Reason::Lapsed));
    bench.publish_acked();
    (bench, sent)
}

#[test]
fn r8_a_lapsed_lease_is_not_released_while_a_client_may_act_on_an_answer() {
    // Clients count by clocks of their own, for whose drift the margin exists.
    let (mut bench, sent) = lapsed();
    assert!(bench.request.is_none(), "released with the margin to go");
    bench.next("release");
    assert_eq!(sent.elapsed_min(bench.now), ms(LEASE));
}

#[test]
fn r8_a_lapse_by_a_clock_set_forward_waits_for_the_other_clock() {
    let mut bench = Bench::leader();
    bench.now.boot += ms(DEADLINE);
    bench.tick();
    assert_eq!(bench.reason(), Some(Reason::Lapsed));
    bench.publish_acked();
    for _ in 0..LEASE - DEADLINE + 2 * REQUEST {
        assert!(!bench.notices.contains(&Notice::ReleaseUnknown), "it may be released yet");
        bench.sleep(1);
        bench.tick();
        let name = bench.request.as_ref().map(|it| it.op.name());
        assert_ne!(name, Some("release"), "released while an answer still holds");
    }
    assert!(bench.notices.contains(&Notice::ReleaseUnknown));
    bench.next("read");
}

#[test]
fn a_leader_that_slept_past_its_lease_owes_nothing() {
    for drains in [false, true] {
        let mut bench = Bench::leader_with(Config { drain_timeout: ms(60_000), ..config() });
        if drains {
            bench.command(Command::StepDown { hold_off: Duration::ZERO }).unwrap();
        }
        bench.now.boot += ms(LEASE);
        bench.tick();
        assert_eq!(bench.reason(), Some(Reason::Lapsed));
        assert!(bench.next("read") <= RETRY * 3 / 2);
    }
}

#[test]
fn r8_a_resignation_releases_a_lapsed_lease_only_when_its_whole_length_is_over() {
    let (mut bench, sent) = lapsed();
    bench.pass(LEASE - DEADLINE - 2 * REQUEST + 500);
    bench.resign();
    let resigned = bench.now;
    assert!(bench.request.is_none(), "released while an answer still holds");
    assert!(!bench.election.is_finished());
    bench.next("release");
    assert_eq!(sent.elapsed_min(bench.now), ms(LEASE));
    bench.pass(100);
    bench.answer(Ok(Answer::Done));
    assert!(bench.election.is_finished());
    assert!(resigned.elapsed_max(bench.now) <= ms(2 * REQUEST));
    assert!(!bench.notices.contains(&Notice::ReleaseUnknown));
}

#[test]
fn r8_a_resignation_leaves_a_lapsed_lease_that_lasts_longer_to_run_out() {
    // By the other clock nothing of the lease is over yet.
    for (boot, raw) in [(DEADLINE, 0), (0, DEADLINE), (DEADLINE, 3_000)] {
        let mut bench = Bench::leader();
        bench.now.boot += ms(boot);
        bench.now.raw += ms(raw);
        bench.tick();
        assert_eq!(bench.reason(), Some(Reason::Lapsed));
        bench.publish_acked();
        bench.resign();
        assert!(bench.request.is_none(), "released while an answer still holds");
        assert!(bench.election.is_finished(), "there is nothing to wait for");
        assert!(bench.notices.contains(&Notice::ReleaseUnknown), "it is said");
    }
}

#[test]
fn r8_a_lease_left_to_run_out_waits_for_the_publishers_all_the_same() {
    for announces in [true, false] {
        let mut bench = Bench::leader();
        bench.now.boot += ms(DEADLINE);
        bench.resign();
        assert_eq!(bench.notices.iter().filter(|it| **it == Notice::ReleaseUnknown).count(), 0);
        bench.pass(REQUEST - 1);
        assert!(!bench.election.is_finished(), "a status file may still report active");
        if announces {
            bench.publish_acked();
        } else {
            bench.pass(1);
        }
        assert!(bench.request.is_none() && bench.election.is_finished());
    }
}

#[test]
fn r8_a_drain_timeout_shortens_no_lapsed_lease() {
    for drain in [1_000, 3 * LEASE] {
        let mut bench = Bench::leader_with(Config { drain_timeout: ms(drain), ..config() });
        let sent = bench.now;
        bench.next("renew");
        bench.sleep(LEASE - REQUEST - RETRY);
        bench.answer(unknown());
        bench.publish_acked();
        bench.resign();
        bench.next("release");
        assert_eq!(sent.elapsed_min(bench.now), ms(LEASE), "{drain}");
    }
}

#[test]
fn r8_no_pause_or_step_down_shortens_a_lapsed_lease() {
    let (mut bench, sent) = lapsed();
    let step_down = Command::StepDown { hold_off: Duration::ZERO };
    assert_eq!(bench.command(step_down), Err(Refusal { state: State::Standby }));
    assert_eq!(bench.command(Command::Pause), Ok(Progress::Begun));
    assert!(bench.request.is_none());
    bench.next("release");
    assert_eq!(sent.elapsed_min(bench.now), ms(LEASE));
}

#[test]
fn r8_a_resignation_that_finds_the_deadline_passed_takes_no_answer_back() {
    let mut bench = Bench::leader();
    bench.now.raw += ms(DEADLINE);
    bench.resign();
    bench.publish_acked();
    assert!(bench.request.is_none() && bench.election.is_finished());
}

#[test]
fn r8_processes_that_end_after_a_resignation_shorten_no_lapsed_lease() {
    let mut bench = Bench::leader_with(Config { has_workload: true, ..config() });
    let sent = bench.now;
    bench.next("renew");
    bench.sleep(DEADLINE - RETRY);
    bench.answer(unknown());
    bench.publish_acked();
    bench.resign();
    assert!(!bench.election.is_finished(), "a process of the term lives");
    bench.pass(LEASE - DEADLINE - REQUEST);
    bench.workload_exited(8, None);
    bench.next("release");
    assert_eq!(sent.elapsed_min(bench.now), ms(LEASE));
}

#[test]
fn r8_processes_that_end_after_the_deadline_shorten_no_lapsed_lease() {
    let mut bench = Bench::leader_with(Config { has_workload: true, ..config() });
    let sent = bench.now;
    bench.request = None;
    bench.sleep(DEADLINE);
    bench.workload_exited(8, None);
    assert_eq!(bench.reason(), Some(Reason::Lapsed), "the deadline came first");
    bench.publish_acked();
    assert!(bench.request.is_none(), "released while an answer still holds");
    bench.next("release");
    assert_eq!(sent.elapsed_min(bench.now), ms(LEASE));
}
