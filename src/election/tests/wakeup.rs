//! A holder's wake-ups, which hasten a renewal and decide nothing, and the versions that writes return.

use super::*;

const ANOTHER: Option<Nonce> = Some(Nonce(77));

#[test]
fn a_leader_renews_at_once_when_the_store_reports_another_holder() {
    for held_by in [ANOTHER, None] {
        let mut bench = Bench::leader();
        bench.pass(100);
        bench.report(held_by);
        assert!(bench.leads(), "a report is no evidence");
        bench.expect("renew");
        bench.answer(refused());
        assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Lost)));
    }
}

#[test]
fn a_report_of_another_holder_that_is_wrong_costs_one_renewal() {
    let mut bench = Bench::leader();
    bench.pass(100);
    bench.report(ANOTHER);
    bench.expect("renew");
    bench.answer(Ok(Answer::Done));
    assert!(bench.leads());
    assert_eq!(bench.next("renew"), RETRY, "it counts like any other");
}

#[test]
fn a_report_that_names_its_own_acquisition_causes_no_renewal() {
    let mut bench = Bench::leader();
    let own = Some(bench.nonce());
    for _ in 0..20 {
        bench.report(own);
        assert!(bench.request.is_none());
    }
    assert_eq!(bench.next("renew"), RETRY);
    bench.report(own);
    bench.answer(Ok(Answer::Done));
    assert!(bench.request.is_none(), "nor does one during a renewal");
}

#[test]
fn reports_without_end_cause_four_renewals_in_a_retry_period() {
    let mut bench = Bench::leader();
    let mut renewals = 0;
    for _ in 0..10 * RETRY {
        bench.pass(1);
        bench.report(ANOTHER);
        if bench.request.is_some() {
            bench.expect("renew");
            renewals += 1;
            bench.answer(Ok(Answer::Done));
        }
    }
    assert_eq!(renewals, 41, "four in each of ten retry-periods, and one at the end of the last");
}

#[test]
fn a_report_during_a_renewal_is_followed_by_another_one() {
    // The one under way may have been granted before the change.
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.report(ANOTHER);
    bench.answer(Ok(Answer::Done));
    bench.expect("renew");
    bench.answer(Ok(Answer::Done));
    assert!(bench.request.is_none(), "one report is one renewal");
}

#[test]
fn reports_of_its_own_bid_and_term_cause_no_renewal() {
    let mut bench = Bench::bidding();
    bench.report(None);
    bench.answer(Ok(grant(Some(7))));
    bench.report(None);
    bench.expect("write-term");
    bench.answer(Ok(Answer::Term(8)));
    assert!(bench.leads() && bench.request.is_none());
    assert_eq!(bench.next("renew"), RETRY);
}

#[test]
fn a_draining_holder_renews_at_once_when_the_store_reports_another_holder() {
    let mut bench = Bench::leader_with(Config { drain_timeout: ms(5_000), ..config() });
    bench.resign();
    assert_eq!(bench.state(), State::Draining);
    bench.report(ANOTHER);
    bench.expect("renew");
    bench.answer(refused());
    assert_eq!((bench.state(), bench.reason()), (State::Stopped, Some(Reason::Lost)));
    assert!(bench.election.is_finished(), "nothing is left to release");
}

fn version(name: &str) -> Version {
    Version(name.into())
}

/// Returns the version that the request in flight writes on.
fn written(bench: &Bench) -> Option<String> {
    match &bench.request.as_ref().expect("a request is under way").op {
        Op::Acquire(bid)
        | Op::WriteTerm { bid, .. }
        | Op::Renew(bid)
        | Op::SetSuccessor { bid, .. }
        | Op::Release(bid) => bid.written.as_ref().map(|it| it.0.to_string()),
        Op::Read => panic!("a read writes nothing"),
    }
}

#[test]
fn each_write_is_given_the_version_that_the_last_one_returned() {
    let mut bench = Bench::bidding();
    assert_eq!(written(&bench), None);
    let granted = Grant { record: record(Some(7)), date: None, version: Some(version("grant")) };
    bench.answer(Ok(Answer::Grant(granted)));
    bench.expect("write-term");
    assert_eq!(written(&bench).as_deref(), Some("grant"));
    bench.answer(Ok(Answer::Term(8)));
    for name in ["first", "second"] {
        bench.next("renew");
        assert_eq!(written(&bench), (name == "second").then(|| "first".to_owned()));
        bench.answer(Ok(Answer::Written(version(name))));
    }
    bench.resign();
    bench.publish_acked();
    bench.expect("release");
    assert_eq!(written(&bench).as_deref(), Some("second"));
    bench.answer(unknown());
    bench.next("release");
    assert_eq!(written(&bench), None);
}

#[test]
fn after_any_other_outcome_than_a_write_the_store_reads_first() {
    for outcome in [broken(), unknown(), Ok(Answer::Done)] {
        let mut bench = Bench::leader();
        bench.next("renew");
        bench.answer(Ok(Answer::Written(version("first"))));
        bench.next("renew");
        assert_eq!(written(&bench).as_deref(), Some("first"));
        bench.answer(outcome);
        bench.next("renew");
        assert_eq!(written(&bench), None);
        assert!(bench.leads(), "a conflict costs no leadership");
    }
}

#[test]
fn the_version_of_a_renewal_that_ends_after_the_leadership_is_that_of_the_release() {
    let mut bench = Bench::leader();
    bench.next("renew");
    bench.answer(Ok(Answer::Written(version("first"))));
    bench.next("renew");
    bench.resign();
    bench.publish_acked();
    bench.expect("renew");
    bench.answer(Ok(Answer::Written(version("second"))));
    bench.expect("release");
    assert_eq!(written(&bench).as_deref(), Some("second"));
}

#[test]
fn a_candidate_that_has_stepped_down_reads_its_own_release_later() {
    let mut bench = Bench::leader();
    bench.command(Command::StepDown { hold_off: ms(8_000) }).unwrap();
    bench.publish_acked();
    bench.expect("release");
    bench.answer(Ok(Answer::Done));
    bench.report(None);
    assert!(bench.request.is_none(), "the next leader reads now");
    assert_eq!(bench.next("read"), RETRY * 3 / 8, "the jitter is a half");
    bench.answer(Ok(held(Some(9))));
    bench.report(ANOTHER);
    bench.expect("read");
}
