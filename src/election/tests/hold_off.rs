//! Hold-off, deference to a named successor, health and the processes of a term: who may bid, and
//! when.

use super::*;
use crate::lease::Successor;

const HOLD_OFF: u64 = 8_000;

fn named(free: bool, identity: &str) -> Answer {
    let successor = Some(Successor { identity: identity.into(), hold_off: ms(HOLD_OFF) });
    let record = Record { successor, ..record(Some(7)) };
    Answer::Snapshot(Snapshot {
        free,
        record,
        version: Version("1".into()),
        claim: None,
        ends_in: None,
    })
}

/// Answers every read alike until a bid is in flight; returns how many milliseconds that took.
fn until_bid(bench: &mut Bench, snapshot: &Answer) -> u64 {
    for waited in 0..200_000 {
        match bench.request.as_ref().map(|it| it.op.name()) {
            Some("acquire") => return waited,
            Some(_) => bench.answer(Ok(snapshot.clone())),
            None => {}
        }
        bench.sleep(1);
        bench.tick();
    }
    panic!("no bid in 200 s");
}

#[test]
fn others_let_a_named_successor_go_first_from_their_first_sight_of_the_lease_free() {
    let mut bench = Bench::new(config());
    for _ in 0..6 {
        bench.next("read");
        bench.answer(Ok(named(false, "heir")));
    }
    bench.next("read");
    let waited = until_bid(&mut bench, &named(true, "heir"));
    assert!((HOLD_OFF..HOLD_OFF + 2 * RETRY).contains(&waited), "{waited}");
}

#[test]
fn the_slower_clock_counts_that_wait() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(named(true, "heir")));
    bench.now.boot += ms(HOLD_OFF);
    bench.now.wall += ms(HOLD_OFF);
    bench.tick();
    bench.expect("read");
    bench.answer(Ok(named(true, "heir")));
    assert!(bench.request.is_none());
    bench.now.raw += ms(HOLD_OFF);
    bench.tick();
    bench.answer(Ok(named(true, "heir")));
    bench.expect("acquire");
}

#[test]
fn a_clock_that_goes_back_starts_that_wait_anew_and_no_more() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(named(true, "heir")));
    bench.now.boot -= ms(3_600_000);
    let waited = until_bid(&mut bench, &named(true, "heir"));
    assert!((HOLD_OFF..HOLD_OFF + 2 * RETRY).contains(&waited), "{waited}");
}

#[test]
fn a_successor_that_let_go_again_is_not_waited_for_twice() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(named(true, "heir")));
    bench.next("read");
    // The successor acquired the lease, and died before it wrote a term.
    bench.answer(Ok(named(false, "heir")));
    bench.pass(HOLD_OFF);
    bench.expect("read");
    bench.answer(Ok(named(true, "heir")));
    bench.expect("acquire");
}

#[test]
fn the_named_successor_does_not_wait_and_reads_more_often() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(named(false, "us")));
    assert_eq!(bench.next("read"), RETRY / 4);
    bench.answer(Ok(named(true, "us")));
    bench.expect("acquire");
}

#[test]
fn a_candidate_that_is_not_named_or_does_not_compete_reads_no_more_often() {
    for (name, observe) in [("heir", false), ("us", true)] {
        let mut bench = Bench::new(Config { observe, ..config() });
        bench.answer(Ok(named(false, name)));
        assert_eq!(bench.next("read"), RETRY);
    }
}

#[test]
fn being_named_ends_an_earlier_hold_off() {
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(60_000) }).unwrap();
    bench.publish_acked();
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(named(false, "heir")));
    bench.next("read");
    bench.answer(Ok(named(true, "heir")));
    assert!(bench.request.is_none(), "it bids in its hold-off");
    bench.next("read");
    bench.answer(Ok(named(true, "us")));
    bench.expect("acquire");
}

#[test]
fn a_hold_off_does_not_outlast_the_leadership_that_ended_it() {
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(600_000) }).unwrap();
    bench.publish_acked();
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(named(true, "us")));
    bench.expect("acquire");
    bench.answer(Ok(grant(Some(8))));
    bench.expect("write-term");
    bench.answer(Ok(Answer::Term(9)));
    assert!(bench.leads());
    assert_eq!(bench.election.status().hold_off, None);
    assert_eq!(bench.election.status().successor, None, "it has succeeded");
}

#[test]
fn resume_ends_a_hold_off_that_status_tells_of() {
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(600_000) }).unwrap();
    bench.publish_acked();
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    assert!(bench.request.is_none());
    let left = |bench: &Bench| bench.election.status().hold_off.map(|it| it.remaining(bench.now));
    assert_eq!(left(&bench), Some(ms(600_000)));
    assert_eq!(bench.command(Command::Resume), Ok(Progress::Done));
    assert_eq!(left(&bench), None);
    bench.next("read");
    bench.answer(Ok(free(Some(8))));
    bench.expect("acquire");
}

#[test]
fn resume_ends_the_wait_for_a_successor_that_never_comes_until_another_is_named() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(named(true, "typo")));
    assert!(bench.request.is_none());
    assert_eq!(bench.command(Command::Resume), Ok(Progress::Done));
    bench.next("read");
    bench.answer(Ok(named(true, "typo")));
    bench.expect("acquire");
    bench.answer(Ok(Answer::Done));
    assert_eq!(bench.command(Command::Resume), Err(Refusal { state: State::Standby }));
}

#[test]
fn resume_is_refused_where_no_wait_keeps_the_candidate_from_bidding() {
    let mut observer = Bench::new(Config { observe: true, ..config() });
    observer.answer(Ok(named(true, "heir")));
    let refused = Err(Refusal { state: State::Observing });
    assert_eq!(observer.command(Command::Resume), refused, "it never bids");
    let mut named_leader = Bench::new(config());
    named_leader.answer(Ok(named(true, "us")));
    named_leader.answer(Ok(grant(Some(7))));
    named_leader.answer(Ok(Answer::Term(8)));
    let refused = Err(Refusal { state: State::Leader });
    assert_eq!(named_leader.command(Command::Resume), refused);
}

#[test]
fn a_transfer_to_the_own_identity_still_holds_off() {
    let mut bench = Bench::leader();
    let nonce = bench.nonce();
    let successor = Successor { identity: "us".into(), hold_off: ms(5_000) };
    bench.command(Command::Transfer(successor.clone())).unwrap();
    bench.publish_acked();
    bench.answer(Ok(Answer::Done));
    bench.next("release");
    bench.answer(Ok(Answer::Done));
    let record =
        Record { nonce: Some(nonce), successor: Some(successor.as_stored()), ..record(Some(8)) };
    bench.next("read");
    let version = Version("1".into());
    bench.answer(Ok(Answer::Snapshot(Snapshot {
        free: true,
        record,
        version,
        claim: None,
        ends_in: None,
    })));
    assert!(bench.request.is_none(), "another of that name is to lead");
}

#[test]
fn a_successor_whose_time_is_over_looks_as_others_do() {
    let mut bench = Bench::new(config());
    for _ in 0..100 {
        bench.answer(Ok(named(false, "us")));
        let waited = bench.next("read");
        if waited == RETRY {
            return;
        }
    }
    panic!("it reads too often without end");
}

#[test]
fn the_faster_clock_ends_the_time_of_a_successor() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(named(false, "us")));
    bench.now.boot += ms(HOLD_OFF);
    bench.tick();
    bench.answer(Ok(named(false, "us")));
    assert_eq!(bench.next("read"), RETRY);
}

#[test]
fn health_gates_the_candidacy_from_the_start() {
    let mut bench = Bench::new(healthy());
    for _ in 0..2 {
        bench.next("read");
        bench.answer(Ok(free(Some(7))));
        assert_eq!(bench.state(), State::Unhealthy);
        bench.probe_result(true, None);
    }
    assert_eq!(bench.state(), State::Standby);
    bench.next("read");
    bench.answer(Ok(free(Some(7))));
    bench.expect("acquire");
}

fn healthy() -> Config {
    let health = Some(HealthRule { probes: 1, failures: 3, successes: 2 });
    Config { health, drain_timeout: ms(2_000), ..config() }
}

fn leader_beside_a_service() -> Bench {
    let mut bench = Bench::new(healthy());
    bench.probe_result(true, None);
    bench.probe_result(true, None);
    bench.answer(Ok(free(Some(7))));
    bench.expect("acquire");
    bench.answer(Ok(grant(Some(7))));
    bench.answer(Ok(Answer::Term(8)));
    assert_eq!(bench.state(), State::Leader);
    bench
}

#[test]
fn a_leader_whose_service_fails_so_often_in_a_row_drains_and_stands_aside() {
    let mut bench = leader_beside_a_service();
    for healthy in [false, false, true, false, false] {
        bench.probe_result(healthy, Some(8));
        assert!(bench.leads());
    }
    bench.probe_result(false, Some(8));
    assert_eq!((bench.state(), bench.reason()), (State::Draining, Some(Reason::Unhealthy)));
    bench.publish_acked();
    bench.command(Command::Drained(None)).unwrap();
    bench.expect("release");
    assert_eq!(bench.state(), State::Unhealthy);
    bench.answer(Ok(Answer::Done));
    bench.probe_result(true, None);
    bench.probe_result(true, None);
    assert_eq!(bench.state(), State::Standby);
    let waited = until_bid(&mut bench, &free(Some(8)));
    assert!(waited >= LEASE, "a healthy peer should win: {waited}");
}

#[test]
fn a_probe_of_another_term_is_ignored() {
    let mut bench = leader_beside_a_service();
    for _ in 0..5 {
        bench.probe_result(false, None);
        bench.probe_result(false, Some(7));
    }
    assert!(bench.leads());
}

#[test]
fn r3_a_grant_after_failed_health_is_released_and_never_active() {
    let mut bench = Bench::new(healthy());
    bench.probe_result(true, None);
    bench.probe_result(true, None);
    bench.answer(Ok(free(Some(7))));
    bench.expect("acquire");
    for _ in 0..3 {
        bench.probe_result(false, None);
    }
    bench.answer(Ok(grant(Some(7))));
    assert_eq!(bench.state(), State::Unhealthy);
    bench.expect("release");
}

#[test]
fn r3_a_bid_that_may_be_granted_is_released_at_once_when_the_health_fails() {
    let mut bench = Bench::new(healthy());
    bench.probe_result(true, None);
    bench.probe_result(true, None);
    bench.answer(Ok(free(Some(7))));
    bench.answer(unknown());
    for _ in 0..3 {
        bench.probe_result(false, None);
    }
    bench.expect("release");
}

#[test]
fn failures_before_a_term_do_not_count_in_it() {
    let mut bench = Bench::new(healthy());
    for healthy in [true, true, false, false] {
        bench.probe_result(healthy, None);
    }
    bench.answer(Ok(free(Some(7))));
    bench.answer(Ok(grant(Some(7))));
    bench.answer(Ok(Answer::Term(8)));
    for leads in [true, true, false] {
        bench.probe_result(false, Some(8));
        assert_eq!(bench.leads(), leads);
    }
}

fn escorting() -> Config {
    Config { has_workload: true, drain_timeout: ms(4_000), ..config() }
}

#[test]
fn r8_a_lease_is_not_released_while_processes_of_its_term_live() {
    let mut bench = Bench::leader_with(escorting());
    bench.resign();
    bench.publish_acked();
    bench.pass(3_000);
    assert_ne!(bench.request.as_ref().map(|it| it.op.name()), Some("release"));
    bench.workload_exited(7, None);
    assert_eq!(bench.state(), State::Draining, "those were an earlier term's");
    bench.workload_exited(8, None);
    if bench.request.is_some() {
        bench.answer(Ok(Answer::Done));
    }
    bench.expect("release");
}

#[test]
fn a_drain_ends_with_the_processes_of_its_term() {
    let mut bench = Bench::leader_with(escorting());
    bench.command(Command::StepDown { hold_off: ms(0) }).unwrap();
    bench.publish_acked();
    bench.workload_exited(8, None);
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Drained)));
    bench.expect("release");
}

#[test]
fn r8_a_process_that_survives_keeps_the_lease_until_it_expires() {
    let mut bench = Bench::leader_with(escorting());
    bench.command(Command::StepDown { hold_off: ms(0) }).unwrap();
    bench.publish_acked();
    let mut drained = 0;
    for _ in 0..4 * LEASE {
        match bench.request.as_ref().map(|it| it.op.name()) {
            Some("renew") => bench.answer(Ok(Answer::Done)),
            Some("read") => bench.answer(Ok(free(Some(8)))),
            Some(other) => panic!("{other}"),
            None => {}
        }
        drained += u64::from(bench.state() == State::Draining);
        bench.sleep(1);
        bench.tick();
    }
    assert_eq!(drained, 4_000 + 2 * REQUEST, "drain-timeout, and the time to kill a process");
    assert_eq!(bench.state(), State::Standby);
    bench.workload_exited(8, None);
    until_bid(&mut bench, &free(Some(8)));
}

#[test]
fn processes_that_end_by_themselves_end_the_tenure_and_stand_back() {
    let mut bench = Bench::leader_with(escorting());
    bench.workload_exited(8, Some(ms(3_000)));
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::ChildEnded)));
    bench.publish_acked();
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    bench.next("read");
    assert!(until_bid(&mut bench, &free(Some(8))) >= 3_000);
}

#[test]
fn a_lost_tenure_whose_processes_live_bids_no_more_until_they_are_dead() {
    let mut bench = Bench::leader_with(escorting());
    bench.next("renew");
    bench.answer(refused());
    for _ in 0..3 {
        bench.next("read");
        bench.answer(Ok(free(Some(9))));
    }
    bench.workload_exited(8, None);
    bench.next("read");
    bench.answer(Ok(free(Some(9))));
    bench.expect("acquire");
}
