//! R3 and R8: maintenance of the machine makes a leader hand over, and keeps a candidate from competing.

use super::*;

const DRAIN: u64 = 6_000;

fn health() -> Option<HealthRule> {
    Some(HealthRule { probes: 1, failures: 1, successes: 1 })
}

#[test]
fn a_leader_hands_over_at_once_when_maintenance_is_imminent() {
    let mut bench = Bench::leader();
    bench.maintenance(true);
    assert_eq!((bench.leads(), bench.state()), (false, State::Unhealthy));
    assert_eq!(bench.reason(), Some(Reason::Maintenance));
    assert!(bench.request.is_none(), "nobody has said passive yet");
    bench.publish_acked();
    bench.expect("release");
}

#[test]
fn a_leader_drains_before_maintenance() {
    let mut bench = Bench::leader_with(Config { drain_timeout: ms(DRAIN), ..config() });
    bench.maintenance(true);
    assert_eq!((bench.leads(), bench.state()), (false, State::Draining));
    assert_eq!(bench.reason(), Some(Reason::Maintenance));
    bench.publish_acked();
    // Cancelled meanwhile: the leadership stays given up, and the candidate competes again.
    bench.maintenance(false);
    assert_eq!((bench.leads(), bench.state()), (false, State::Draining));
    bench.command(Command::Drained(None)).unwrap();
    bench.expect("release");
    assert_eq!(bench.state(), State::Standby);
}

#[test]
fn a_standby_does_not_bid_until_maintenance_is_over() {
    let mut bench = Bench::new(config());
    bench.maintenance(true);
    assert_eq!(bench.state(), State::Starting, "the store has not been reached yet");
    for _ in 0..3 {
        bench.answer(Ok(free(Some(7))));
        assert_eq!(bench.state(), State::Unhealthy);
        bench.next("read");
    }
    bench.answer(Ok(free(Some(7))));
    bench.maintenance(false);
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::MaintenanceOver)));
    bench.next("read");
    bench.answer(Ok(free(Some(7))));
    bench.expect("acquire");
}

#[test]
fn a_grant_that_arrives_in_maintenance_is_released() {
    let mut bench = Bench::bidding();
    let lease = bench.lease();
    bench.maintenance(true);
    assert_eq!(bench.state(), State::Unhealthy);
    bench.answer(Ok(grant(Some(7))));
    assert_eq!(bench.state(), State::Unhealthy);
    bench.expect("release");
    assert_eq!(bench.lease(), lease);

    let mut bench = Bench::bidding();
    bench.answer(unknown());
    bench.maintenance(true);
    bench.expect("release");
}

#[test]
fn a_candidate_that_does_not_lead_yet_gives_the_lease_up() {
    let mut bench = Bench::activating_with(config());
    bench.maintenance(true);
    assert_eq!((bench.state(), bench.reason()), (State::Unhealthy, Some(Reason::Maintenance)));
    bench.answer(Ok(Answer::Term(8)));
    assert!(!bench.leads());
    bench.expect("release");
}

#[test]
fn a_healthy_service_does_not_end_maintenance_nor_the_other_way_round() {
    let mut bench = Bench::new(Config { health: health(), ..config() });
    bench.answer(Ok(held(Some(7))));
    bench.maintenance(true);
    bench.probe_result(true, None);
    assert_eq!(bench.state(), State::Unhealthy, "its machine is not fit");
    bench.maintenance(false);
    assert_eq!(bench.state(), State::Standby);
    bench.maintenance(true);
    bench.probe_result(false, None);
    bench.maintenance(false);
    assert_eq!(bench.state(), State::Unhealthy, "its service is not fit");
    bench.probe_result(true, None);
    assert_eq!((bench.state(), bench.reason()), (State::Standby, Some(Reason::Recovered)));
}

#[test]
fn a_pause_and_a_resignation_outlast_maintenance() {
    let mut bench = Bench::new(config());
    bench.answer(Ok(held(Some(7))));
    bench.maintenance(true);
    bench.command(Command::Pause).unwrap();
    bench.maintenance(false);
    assert_eq!(bench.state(), State::Paused);
    bench.maintenance(true);
    bench.command(Command::Resume).unwrap();
    assert_eq!(bench.state(), State::Unhealthy);
    bench.resign();
    bench.maintenance(false);
    assert_eq!(bench.state(), State::Stopped);
}

#[test]
fn the_same_news_again_changes_nothing() {
    let mut bench = Bench::leader();
    bench.maintenance(false);
    assert!(bench.leads());
    bench.maintenance(true);
    let seen = bench.notices.len();
    bench.maintenance(true);
    assert_eq!(bench.notices.len(), seen);
}
