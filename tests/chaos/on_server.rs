//! What the faults of the stores on servers have in common.

use testkit::processes::cluster::{PATIENCE, Timings, logs};
use testkit::processes::process::{Process, until};

use std::time::Duration;

use tenure::clock;

/// A lease for tests that wait for none to end: on a machine that is busy with other work, some requests in
/// a row may fail beside those that are made to.
pub(super) const LONG: Timings = Timings {
    lease_duration: Duration::from_secs(24),
    renew_deadline: Duration::from_secs(20),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_secs(4),
};

/// Waits until a candidate is in a state.
pub(super) fn reach(candidate: &Process, state: &str) {
    until(PATIENCE, &format!("{} is {state}", candidate.name), || {
        (candidate.state()? == state).then_some(())
    });
}

/// Returns the number of a candidate's requests with this operation and outcome, from the metrics.
pub(super) fn requests(candidate: &Process, op: &str, outcome: &str) -> u64 {
    let (_, text) = candidate.get("/metrics").expect("it answers");
    let words = format!(r#"op="{op}",outcome="{outcome}""#);
    let line = text
        .lines()
        .find(|it| it.starts_with("tenure_store_requests_total") && it.contains(&words));
    line.and_then(|it| it.rsplit(' ').next()?.parse().ok()).expect("the series is there")
}

/// Waits until a leader has lost its leadership at its own deadline, and not by an answer.
pub(super) fn lapses(candidate: &Process) {
    until(PATIENCE, "it is passive", || (!candidate.is_leader()).then_some(()));
    logs(candidate, r#""reason":"lapsed""#);
    assert_eq!(requests(candidate, "renew", "refused"), 0, "nothing is refused without a quorum");
}

/// Waits for two leases of real time.
pub(super) fn wait_for_two_leases(timings: &Timings) {
    let start = clock::now();
    while start.elapsed_min(clock::now()) < timings.lease_duration * 2 {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a leader has renewed some more times.
pub(super) fn renews_on(candidate: &Process) {
    let before = requests(candidate, "renew", "ok");
    until(PATIENCE, "it has renewed", || {
        (requests(candidate, "renew", "ok") >= before + 6).then_some(())
    });
}
