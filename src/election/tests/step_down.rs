//! R3 and R8: voluntary step-down, with its drain.

use super::*;
use crate::lease::Successor;

const DRAIN: u64 = 6_000;

fn draining() -> Config {
    Config { drain_timeout: ms(DRAIN), ..config() }
}

fn step_down(bench: &mut Bench, hold_off: u64) -> Result<Progress, Refusal> {
    bench.command(Command::StepDown { hold_off: ms(hold_off) })
}

fn successor() -> Successor {
    Successor { identity: "heir".into(), hold_off: ms(5_000) }
}

/// Answers renewals for this many milliseconds, as a healthy store does.
fn renew_for(bench: &mut Bench, millis: u64) {
    for _ in 0..millis {
        if bench.request.as_ref().is_some_and(|it| it.op.name() == "renew") {
            bench.answer(Ok(Answer::Done));
        }
        bench.sleep(1);
        bench.tick();
    }
}

#[test]
fn a_leader_that_leaves_is_passive_at_once_and_renews_until_its_drain_is_over() {
    let mut bench = Bench::leader_with(draining());
    bench.resign();
    assert_eq!((bench.leads(), bench.state()), (false, State::Draining));
    assert_eq!(bench.election.status().term(), Some(8), "the work of that term goes on");
    bench.publish_acked();
    renew_for(&mut bench, DRAIN - 1);
    assert_eq!(bench.state(), State::Draining);
    bench.sleep(1);
    bench.tick();
    assert_eq!((bench.state(), bench.reason()), (State::Stopped, Some(Reason::DrainOver)));
    bench.expect("release");
}

#[test]
fn the_slower_clock_counts_a_drain() {
    let mut bench = Bench::leader_with(draining());
    bench.resign();
    bench.publish_acked();
    bench.now.boot += ms(DRAIN);
    bench.now.wall += ms(DRAIN);
    bench.tick();
    assert_eq!(bench.state(), State::Draining);
}

#[test]
fn a_clock_that_goes_back_starts_a_drain_anew_and_no_more() {
    let mut bench = Bench::leader_with(Config { drain_timeout: ms(3_000), ..config() });
    bench.resign();
    bench.publish_acked();
    bench.sleep(1_000);
    bench.now.boot -= ms(3_600_000);
    bench.tick();
    renew_for(&mut bench, 2_999);
    assert_eq!(bench.state(), State::Draining);
    renew_for(&mut bench, 1);
    assert_eq!(bench.state(), State::Stopped);
}

#[test]
fn a_drain_ends_early_when_the_service_says_so() {
    let mut bench = Bench::leader_with(draining());
    step_down(&mut bench, 1_000).unwrap();
    bench.publish_acked();
    bench.pass(100);
    assert_eq!(bench.command(Command::Drained(Some(7))), Err(Refusal { state: State::Draining }));
    assert_eq!(bench.state(), State::Draining, "that was the work of an earlier term");
    assert_eq!(bench.command(Command::Drained(Some(8))), Ok(Progress::Done));
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Drained)));
    bench.expect("release");
}

#[test]
fn a_drained_lease_is_released_only_when_all_publishers_acknowledged_passive() {
    let mut bench = Bench::leader_with(draining());
    step_down(&mut bench, 1_000).unwrap();
    bench.command(Command::Drained(None)).unwrap();
    assert!(bench.request.is_none(), "nobody has said passive yet");
    bench.publish_acked();
    bench.expect("release");
}

#[test]
fn a_drain_reports_its_own_deadline_and_how_long_the_lease_is_certain() {
    let mut bench = Bench::leader_with(draining());
    let work = |bench: &Bench| bench.election.status().work_remaining(bench.now);
    assert_eq!(bench.election.status().drain_remaining(bench.now), None);
    bench.sleep(1_000);
    assert_eq!(work(&bench), ms(DEADLINE - 1_000));
    step_down(&mut bench, 0).unwrap();
    let remaining = |bench: &Bench| {
        let status = bench.election.status();
        (status.drain_remaining(bench.now).unwrap(), status.protected_for(bench.now).unwrap())
    };
    assert_eq!(remaining(&bench), (ms(DRAIN), ms(DEADLINE - 1_000)));
    assert_eq!(work(&bench), ms(DRAIN));
    bench.sleep(4_000);
    bench.now.boot += ms(1_000);
    assert_eq!(remaining(&bench), (ms(1_000), ms(DEADLINE - 6_000)), "by the faster clock");
    let mut bench = Bench::leader_with(Config { drain_timeout: ms(60_000), ..config() });
    bench.sleep(4_000);
    step_down(&mut bench, 0).unwrap();
    assert_eq!(remaining(&bench), (ms(60_000), ms(DEADLINE - 4_000)));
    assert_eq!(work(&bench), ms(DEADLINE - 4_000));
    bench.sleep(DEADLINE);
    bench.tick();
    assert_eq!((bench.state(), work(&bench)), (State::Standby, Duration::ZERO));
}

#[test]
fn the_end_of_a_leadership_says_how_long_it_lasted_by_the_faster_clock() {
    for drain in [0, DRAIN] {
        let mut bench = Bench::leader_with(Config { drain_timeout: ms(drain), ..config() });
        bench.sleep(1_000);
        bench.now.boot += ms(500);
        step_down(&mut bench, 0).unwrap();
        if drain > 0 {
            bench.command(Command::Drained(None)).unwrap();
        }
        let ended = bench.notices.iter().rev().find_map(|it| match it {
            Notice::Transition(transition) => Some((transition.term, transition.leadership)),
            _ => None,
        });
        assert_eq!(ended, Some((Some(8), Some(ms(1_500)))));
    }
}

#[test]
fn a_drain_whose_lease_lapses_gives_it_back_when_the_drain_would_have_been_over() {
    let long = 12_000;
    let mut bench = Bench::leader_with(Config { drain_timeout: ms(long), ..config() });
    step_down(&mut bench, 0).unwrap();
    bench.publish_acked();
    bench.next("renew");
    let mut passed = RETRY;
    while bench.state() == State::Draining {
        if bench.request.is_some() {
            bench.answer(unknown());
        }
        bench.sleep(1);
        bench.tick();
        passed += 1;
    }
    assert_eq!(bench.reason(), Some(Reason::Lapsed));
    bench.request = None;
    let waited = bench.next("release");
    assert!(passed + waited >= long, "{passed} + {waited}");
}

#[test]
fn a_drain_that_lapses_as_a_clock_goes_back_waits_for_its_whole_length_from_there() {
    let mut bench = Bench::leader_with(draining());
    step_down(&mut bench, 0).unwrap();
    bench.publish_acked();
    bench.next("renew");
    bench.sleep(DEADLINE);
    bench.now.boot -= ms(3_600_000);
    bench.tick();
    assert_eq!(bench.reason(), Some(Reason::Lapsed));
    bench.answer(unknown());
    assert_eq!(bench.next("release"), DRAIN);
}

#[test]
fn a_lease_lost_while_draining_is_not_given_back() {
    let mut bench = Bench::leader_with(draining());
    step_down(&mut bench, 0).unwrap();
    bench.publish_acked();
    bench.next("renew");
    bench.answer(refused());
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Lost)));
    bench.next("read");
}

#[test]
fn resigning_while_draining_ends_the_drain_no_sooner_and_leaves_for_good() {
    let mut bench = Bench::leader_with(draining());
    step_down(&mut bench, 0).unwrap();
    bench.publish_acked();
    bench.pass(1_000);
    bench.resign();
    assert_eq!(bench.state(), State::Draining);
    bench.command(Command::Drained(None)).unwrap();
    assert_eq!(bench.state(), State::Stopped);
}

#[test]
fn a_hold_off_counts_from_the_first_read_after_the_release() {
    let mut bench = Bench::leader();
    step_down(&mut bench, 5_000).unwrap();
    bench.publish_acked();
    bench.expect("release");
    bench.sleep(1_500);
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    let mut waited = 0;
    while bench.request.as_ref().is_none_or(|it| it.op.name() != "acquire") {
        if bench.request.is_some() {
            bench.answer(Ok(free(Some(8))));
        } else {
            bench.sleep(1);
            bench.tick();
            waited += 1;
        }
    }
    assert!((5_000..5_000 + 3 * RETRY).contains(&waited), "{waited}");
}

#[test]
fn the_slower_clock_counts_a_hold_off() {
    let mut bench = Bench::leader();
    step_down(&mut bench, 5_000).unwrap();
    bench.publish_acked();
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    bench.now.boot += ms(5_000);
    bench.now.wall += ms(5_000);
    bench.tick();
    bench.answer(Ok(free(Some(8))));
    assert!(bench.request.is_none(), "it is over by one clock alone");
    let left = bench.election.status().hold_off.map(|it| it.remaining(bench.now));
    assert_eq!(left, Some(ms(5_000)));
    bench.now.raw += ms(5_000);
    bench.tick();
    bench.answer(Ok(free(Some(8))));
    bench.expect("acquire");
}

#[test]
fn a_clock_that_goes_back_starts_a_hold_off_anew_and_no_more() {
    let mut bench = Bench::leader();
    step_down(&mut bench, 8_000).unwrap();
    bench.publish_acked();
    bench.answer(Ok(Answer::Done));
    let left = |bench: &Bench| bench.election.status().hold_off.map(|it| it.remaining(bench.now));
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    bench.next("read");
    bench.now.boot -= ms(3_600_000);
    bench.answer(Ok(free(Some(8))));
    assert_eq!(left(&bench), Some(ms(8_000)));
    bench.sleep(5_000);
    assert_eq!(left(&bench), Some(ms(3_000)), "not when the clock has caught up");
}

#[test]
fn a_hold_off_does_not_start_while_the_own_lease_is_held() {
    let mut bench = Bench::leader();
    let nonce = bench.nonce();
    step_down(&mut bench, 3_000).unwrap();
    bench.publish_acked();
    // The outcome of the release is never known.
    while bench.request.as_ref().is_some_and(|it| it.op.name() == "release") {
        bench.answer(unknown());
        bench.pass(REQUEST);
    }
    let mut ours = record(Some(8));
    ours.nonce = Some(nonce);
    for _ in 0..5 {
        bench.next("read");
        let version = Version("1".into());
        bench.answer(Ok(Answer::Snapshot(Snapshot {
            free: false,
            record: ours.clone(),
            version,
            claim: None,
            ends_in: None,
        })));
    }
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    assert!(bench.request.is_none(), "the hold-off begins now");
}

#[test]
fn verbs_in_the_wrong_state_are_refused_and_name_it() {
    let mut standby = Bench::new(config());
    standby.answer(Ok(held(Some(7))));
    let refused = Err(Refusal { state: State::Standby });
    assert_eq!(step_down(&mut standby, 0), refused);
    assert_eq!(standby.command(Command::Transfer(successor())), refused);
    assert_eq!(standby.command(Command::Resume), refused);
    assert_eq!(standby.command(Command::Drained(None)), refused);
    let mut activating = Bench::activating_with(config());
    let refused = Err(Refusal { state: State::Activating });
    assert_eq!(activating.command(Command::Transfer(successor())), refused);
    let mut observer = Bench::new(Config { observe: true, ..config() });
    observer.answer(Ok(held(Some(7))));
    assert_eq!(observer.command(Command::Pause), Err(Refusal { state: State::Observing }));
    let mut leaving = Bench::leader_with(draining());
    leaving.resign();
    assert_eq!(leaving.command(Command::Pause), Err(Refusal { state: State::Draining }));
    leaving.publish_acked();
    leaving.command(Command::Drained(None)).unwrap();
    assert_eq!(leaving.command(Command::Pause), Err(Refusal { state: State::Stopped }));
}

#[test]
fn an_activating_candidate_steps_down_at_once() {
    let mut bench = Bench::activating_with(draining());
    assert_eq!(step_down(&mut bench, 1_000), Ok(Progress::Begun));
    assert_eq!(bench.state(), State::Standby);
    bench.answer(Ok(Answer::Term(8)));
    assert!(!bench.leads());
    bench.expect("release");
}

#[test]
fn a_paused_candidate_looks_and_never_bids_until_it_resumes() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(held(Some(7))));
    assert_eq!(bench.command(Command::Pause), Ok(Progress::Done));
    assert_eq!(bench.command(Command::Pause), Ok(Progress::Done), "twice is as good as once");
    for _ in 0..3 {
        bench.next("read");
        bench.answer(Ok(free(Some(7))));
        assert_eq!(bench.state(), State::Paused);
    }
    assert_eq!(bench.command(Command::Resume), Ok(Progress::Done));
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Resumed)));
    bench.next("read");
    bench.answer(Ok(free(Some(7))));
    bench.expect("acquire");
}

#[test]
fn r3_a_grant_that_comes_after_a_pause_is_released_and_never_active() {
    let mut bench = Bench::bidding();
    assert_eq!(bench.command(Command::Pause), Ok(Progress::Begun));
    bench.answer(Ok(grant(Some(7))));
    assert_eq!(bench.state(), State::Paused);
    bench.expect("release");
}

#[test]
fn a_leader_that_pauses_drains_first_and_may_resume_meanwhile() {
    let mut bench = Bench::leader_with(draining());
    assert_eq!(bench.command(Command::Pause), Ok(Progress::Begun));
    assert_eq!(bench.state(), State::Draining);
    bench.command(Command::Drained(None)).unwrap();
    assert_eq!(bench.state(), State::Paused);
    let mut bench = Bench::leader_with(draining());
    bench.command(Command::Pause).unwrap();
    assert_eq!(bench.command(Command::Resume), Ok(Progress::Done));
    bench.command(Command::Drained(None)).unwrap();
    assert_eq!(bench.state(), State::Standby);
}

#[test]
fn a_transfer_names_the_successor_under_the_lease_before_it_is_released() {
    let mut bench = Bench::leader();
    assert_eq!(bench.command(Command::Transfer(successor())), Ok(Progress::Begun));
    assert_eq!((bench.leads(), bench.state()), (false, State::Draining));
    assert_eq!(bench.election.status().successor, Some(successor()), "the next in line");
    bench.publish_acked();
    bench.expect("set-successor");
    bench.answer(broken());
    bench.expect("set-successor");
    bench.answer(Ok(Answer::Done));
    assert_eq!(bench.election.status().successor, Some(successor()));
    assert!(bench.notices.contains(&Notice::SuccessorNamed(successor())));
    bench.expect("release");
    assert_eq!(bench.election.status().holder, None, "a released lease has no holder");
}

#[test]
fn a_successor_that_cannot_be_named_holds_up_a_drained_service_no_longer() {
    let mut bench = Bench::leader_with(Config { drain_timeout: ms(60_000), ..config() });
    bench.command(Command::Transfer(successor())).unwrap();
    bench.publish_acked();
    bench.command(Command::Drained(None)).unwrap();
    bench.expect("set-successor");
    bench.sleep(2 * REQUEST);
    bench.answer(unknown());
    bench.expect("release");
}

#[test]
fn a_successor_that_cannot_be_named_is_tried_again_later_and_not_in_a_storm() {
    let mut bench = Bench::leader();
    bench.command(Command::Transfer(successor())).unwrap();
    bench.expect("set-successor");
    bench.answer(unknown());
    assert_eq!(bench.next("set-successor"), RETRY / 4);
}

#[test]
fn a_successor_that_cannot_be_named_costs_two_request_timeouts_and_the_lease_is_given_back() {
    let mut bench = Bench::leader();
    bench.command(Command::Transfer(successor())).unwrap();
    bench.publish_acked();
    let mut waited = 0;
    while bench.request.as_ref().is_none_or(|it| it.op.name() != "release") {
        match &bench.request {
            Some(request) if request.op.name() == "renew" => bench.answer(Ok(Answer::Done)),
            Some(_) => bench.answer(unknown()),
            None => {}
        }
        bench.sleep(1);
        bench.tick();
        waited += 1;
    }
    assert!((2 * REQUEST..3 * REQUEST).contains(&waited), "{waited}");
}
