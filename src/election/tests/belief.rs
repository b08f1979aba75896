//! R1, R2, R4, R6, R9 and R10: how long a leader believes, and what extends its belief.

use super::*;

#[test]
fn r1_belief_counts_from_the_sending_and_not_from_the_answer() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.sleep(1_500);
    bench.answer(Ok(Answer::Done));
    assert_eq!(bench.remaining(), ms(DEADLINE - 1_500));
}

#[test]
fn r1_a_grant_counts_from_the_sending_of_its_bid() {
    let mut bench = Bench::bidding();
    bench.sleep(1_000);
    bench.answer(Ok(grant(Some(7))));
    bench.sleep(500);
    bench.answer(Ok(Answer::Term(8)));
    assert_eq!(bench.remaining(), ms(DEADLINE - 1_500));
}

#[test]
fn r1_belief_is_judged_when_asked_and_needs_no_turn_of_the_loop() {
    let mut bench = Bench::leader();
    bench.sleep(DEADLINE - 1);
    assert!(bench.leads());
    bench.sleep(1);
    assert!(!bench.leads(), "active at the deadline, with no event in between");
    assert_eq!(bench.state(), State::Jeopardy);
}

#[test]
fn r2_the_clock_that_ran_further_ends_a_belief() {
    for forward in [
        |now: &mut Moment| now.boot += ms(60_000), // suspend: the raw clock stood still
        |now: &mut Moment| now.raw += ms(60_000),
    ] {
        let mut bench = Bench::leader();
        forward(&mut bench.now);
        assert!(!bench.leads(), "active at the first question after a minute");
        bench.tick();
        assert_eq!(bench.reason(), Some(Reason::Lapsed));
    }
}

#[test]
fn r4_unknown_never_extends_a_belief() {
    let mut bench = Bench::leader();
    for _ in 0..3 {
        bench.next("renew");
        let before = bench.remaining();
        bench.answer(unknown());
        assert_eq!(bench.remaining(), before);
    }
    assert_eq!(bench.state(), State::Jeopardy);
    assert!(bench.leads(), "failures alone do not end it");
    bench.next("renew");
    bench.answer(Ok(Answer::Done));
    assert_eq!((bench.state(), bench.reason()), (State::Leader, Some(Reason::Renewed)));
}

#[test]
fn r4_a_refused_renewal_ends_a_tenure_at_once_and_nothing_is_released() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.answer(refused());
    assert_eq!((bench.leads(), bench.reason()), (false, Some(Reason::Lost)));
    bench.next("read");
}

#[test]
fn r6_a_late_renewal_does_not_revive_a_tenure() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.sleep(DEADLINE);
    bench.answer(Ok(Answer::Done));
    assert_eq!((bench.leads(), bench.reason()), (false, Some(Reason::Lapsed)));
    bench.publish_acked();
    bench.next("release");
    bench.answer(Ok(Answer::Done));
    bench.next("read");
}

#[test]
fn r6_a_renewal_that_was_sent_in_time_and_is_granted_too_late_revives_nothing() {
    let mut bench = Bench::leader();
    for _ in 0..20 {
        bench.next("renew");
        if bench.remaining() <= ms(RETRY) {
            break;
        }
        bench.answer(unknown());
    }
    bench.sleep(RETRY);
    assert!(!bench.leads());
    bench.answer(Ok(Answer::Done));
    assert_eq!((bench.leads(), bench.reason()), (false, Some(Reason::Lapsed)));
}

#[test]
fn r6_a_lapsed_tenure_is_never_renewed_again() {
    let mut bench = Bench::leader();
    for _ in 0..2 * DEADLINE / 100 {
        match bench.request {
            _ if !bench.leads() => break,
            Some(_) => bench.answer(unknown()),
            None => bench.pass(100),
        }
    }
    assert!(!bench.leads(), "it leads on without a granted renewal");
    for _ in 0..50 {
        if let Some(request) = &bench.request {
            assert_ne!(request.op.name(), "renew");
            bench.answer(unknown());
        }
        bench.pass(500);
    }
}

#[test]
fn r9_the_first_retry_after_a_broken_connection_is_immediate_and_the_next_ones_wait_longer() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.answer(broken());
    bench.expect("renew");
    assert_eq!(bench.state(), State::Leader, "one broken connection is no jeopardy");
    for wait in [RETRY / 4, RETRY / 2, RETRY, RETRY] {
        bench.answer(broken());
        assert_eq!(bench.next("renew"), wait);
    }
}

/// Returns a failure in which the store asks to wait for so many milliseconds.
fn busy(wait: u64) -> Result<Answer, StoreError> {
    let failure = Failure::new(Cause::Throttled, "busy");
    Err(StoreError::Unknown(Failure { retry_after: Some(ms(wait)), ..failure }))
}

#[test]
fn r9_a_wait_that_the_store_asks_for_is_kept_where_it_leaves_time_for_an_attempt() {
    // What is left of the belief when the first renewal fails, but for one attempt.
    let longest = DEADLINE - RETRY - REQUEST;
    for (asked, waited) in [
        (0, RETRY / 4),
        (RETRY / 4 + 1, RETRY / 4 + 1),
        (longest, longest),
        (longest + 1, RETRY / 4),
    ] {
        let mut bench = Bench::leader();
        bench.next("renew");
        bench.answer(busy(asked));
        assert_eq!(bench.state(), State::Jeopardy);
        assert_eq!(bench.next("renew"), waited, "{asked}");
        bench.answer(Ok(Answer::Done));
        assert_eq!(bench.state(), State::Leader, "in time");
    }
}

#[test]
fn r9_the_faster_clock_makes_a_renewal_due() {
    for forward in
        [|now: &mut Moment| now.boot += ms(RETRY), |now: &mut Moment| now.raw += ms(RETRY)]
    {
        let mut bench = Bench::leader();
        forward(&mut bench.now);
        bench.tick();
        bench.expect("renew");
    }
}

#[test]
fn r9_an_immediate_retry_has_a_sending_of_its_own() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.sleep(700);
    bench.answer(broken());
    bench.sleep(100);
    bench.answer(Ok(Answer::Done));
    assert_eq!(bench.remaining(), ms(DEADLINE - 100));
}

#[test]
fn r10_an_unseen_pause_leaves_nothing_until_a_renewal_sent_after_it_is_granted() {
    let mut bench = Bench::leader();
    bench.now.wall += ms(1_001);
    assert!(!bench.leads(), "judged at the question");
    bench.tick();
    assert_eq!((bench.state(), bench.reason()), (State::Jeopardy, Some(Reason::ClockJumped)));
    bench.expect("renew");
    bench.answer(Ok(Answer::Done));
    assert!(bench.leads());
    assert_eq!(bench.election.status().term(), Some(8), "the same term goes on");
}

#[test]
fn r10_a_renewal_sent_before_the_jump_does_not_restore_the_belief() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.now.wall += ms(5_000);
    bench.tick();
    bench.answer(Ok(Answer::Done));
    assert!(!bench.leads(), "that answer says nothing about the time after the pause");
    bench.expect("renew");
    bench.answer(Ok(Answer::Done));
    assert!(bench.leads());
}

#[test]
fn r10_not_even_when_the_clock_has_jumped_back_meanwhile() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.now.wall += ms(5_000);
    bench.tick();
    bench.now.wall -= ms(5_000);
    bench.answer(Ok(Answer::Done));
    assert!(!bench.leads(), "the jump was seen after that renewal was sent");
}

#[test]
fn r10_a_clock_that_jumps_back_again_restores_nothing() {
    let mut bench = Bench::leader();
    bench.now.wall += ms(3_600_000);
    bench.tick();
    bench.now.wall -= ms(3_600_000);
    assert!(!bench.leads());
    bench.answer(unknown());
    assert!(!bench.leads());
}

#[test]
fn r10_any_clock_that_goes_back_leaves_nothing() {
    for back in [
        |now: &mut Moment| now.boot -= ms(1_000),
        |now: &mut Moment| now.raw -= ms(1_000),
        |now: &mut Moment| now.wall -= ms(1_000),
    ] {
        let mut bench = Bench::leader();
        back(&mut bench.now);
        assert!(!bench.leads());
        bench.tick();
        bench.expect("renew");
        bench.answer(Ok(Answer::Done));
        assert!(bench.leads());
    }
}

#[test]
fn r10_a_suspended_tenure_lapses_at_its_old_deadline() {
    let mut bench = Bench::leader();
    bench.now.wall += ms(5_000);
    bench.tick();
    bench.answer(unknown());
    bench.sleep(DEADLINE);
    bench.tick();
    assert_eq!(bench.reason(), Some(Reason::Lapsed));
}

#[test]
fn leader_and_jeopardy_count_as_one_state_since_when() {
    let mut bench = Bench::leader();
    let since = bench.now;
    bench.next("renew");
    bench.answer(unknown());
    assert_eq!(bench.state(), State::Jeopardy);
    assert_eq!(bench.election.status().since, since);
    bench.next("renew");
    bench.answer(refused());
    assert_eq!((bench.state(), bench.election.status().since), (State::Standby, bench.now));
}

#[test]
fn a_belief_is_over_since_its_deadline_and_not_for_a_standby() {
    let mut bench = Bench::leader();
    let expired = |bench: &Bench| bench.election.status().expired_for(bench.now);
    bench.sleep(DEADLINE);
    assert_eq!(expired(&bench), Duration::ZERO);
    bench.sleep(7);
    assert_eq!(expired(&bench), ms(7));
    bench.now.boot += ms(3);
    assert_eq!(expired(&bench), ms(10), "by the faster clock");
    bench.tick();
    assert_eq!((bench.state(), expired(&bench)), (State::Standby, Duration::ZERO));
}
