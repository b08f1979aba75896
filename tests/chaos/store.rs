//! Faults of the store's answers, with real candidates: errors, revoked permissions, answers that
//! are not the store's; and candidates with the same identity. Test names contain the number of the
//! fault.

use testkit::azure::{account, blob_server};
use testkit::processes::{cluster, process};

use std::time::Duration;

use account::Account;
use blob_server::Fault;
use cluster::{Cluster, ON_BLOBS, PATIENCE, SHORT, logs};
use process::{Process, until};
use rustix::process::Signal;
use tenure::clock;

use super::on_server::{reach, requests};

/// More faults than a test can use up.
const ENDLESS: usize = 10_000;

/// Lets three renewals fail, and asserts that this only changes the state to jeopardy for a while.
fn shrugged_off(account: &Account, cluster: &Cluster, leader: usize, fault: &Fault) {
    let term = cluster.term(leader);
    account.tables().inject("renew", vec![fault.clone(); 3]);
    reach(&cluster.candidates[leader], "jeopardy");
    reach(&cluster.candidates[leader], "leader");
    assert_eq!(cluster.term(leader), term, "{fault:?}");
}

#[test]
fn fault_18_transient_errors_are_retried_within_the_deadline_despite_retry_after() {
    let account = Account::by_the_tables();
    let cluster = account.cluster(&["a", "b"]);
    let leader = cluster.settle();
    for (status, code) in [(500, "InternalError"), (503, "ServerBusy"), (429, "")] {
        shrugged_off(&account, &cluster, leader, &Fault::Answer(status, code));
    }
    assert!(requests(&cluster.candidates[leader], "renew", "throttled") >= 6);
    assert!(requests(&cluster.candidates[leader], "renew", "unavailable") >= 3);
    assert_eq!(cluster.verdict().terms.len(), 1);
}

#[test]
fn fault_18_permanent_errors_end_the_leadership_at_its_deadline_without_a_storm() {
    let account = Account::by_the_tables();
    let cluster = account.cluster(&["a", "b"]);
    let leader = cluster.settle();
    let tables = account.tables();
    tables.take_log();
    tables.inject("any", vec![Fault::Answer(503, "ServerBusy"); ENDLESS]);
    reach(&cluster.candidates[leader], "standby");
    logs(&cluster.candidates[leader], r#""reason":"lapsed""#);
    let renewals = tables.take_log().iter().filter(|it| it.op == "renew").count();
    assert!((6..=24).contains(&renewals), "{renewals} in 8 s, a half-second apart at last");
    let begun = clock::now();
    std::thread::sleep(ON_BLOBS.lease_duration / 4);
    let requests = tables.take_log().len();
    let seconds = begun.elapsed_max(clock::now()).as_secs_f64();
    // Each sends one request per quarter of the period at most, when it has just begun to fail.
    assert!((requests as f64) < 2.0 * (seconds / 0.25 + 4.0), "{requests} in {seconds} s");
    tables.heal();
    account.let_leases_end();
    cluster.settle();
    assert_eq!(cluster.verdict().terms.len(), 2);
}

#[test]
fn fault_19_a_leader_without_access_is_active_until_its_deadline_and_reports_auth() {
    let account = Account::by_the_tables();
    let cluster = account.cluster(&["a", "b"]);
    let leader = &cluster.candidates[cluster.settle()];
    let revoked = clock::now();
    let fault = Fault::Answer(403, "AuthorizationPermissionMismatch");
    account.tables().inject("any", vec![fault; ENDLESS]);
    let mut last = Duration::ZERO;
    until(PATIENCE, "it is passive", || {
        let elapsed = revoked.elapsed_min(clock::now());
        if leader.is_leader() {
            last = elapsed;
            return None;
        }
        Some(())
    });
    assert!(last >= ON_BLOBS.renew_deadline / 2, "a 403 ends nothing by itself: {last:?}");
    assert!(last <= ON_BLOBS.renew_deadline + ON_BLOBS.retry_period, "{last:?}");
    logs(leader, r#""reason":"lapsed""#);
    assert!(requests(leader, "renew", "auth") > 0);
    logs(leader, r#""cause":"auth""#);
    account.tables().heal();
    account.let_leases_end();
    cluster.settle();
    assert_eq!(cluster.verdict().terms.len(), 2);
}

#[test]
fn fault_21_pages_and_redirects_are_no_answers_and_are_not_followed() {
    let (account, elsewhere) = (Account::by_the_tables(), Account::by_the_tables());
    let cluster = account.cluster(&["a", "b"]);
    let leader = cluster.settle();
    shrugged_off(&account, &cluster, leader, &Fault::Html);
    let to = format!("{}/locks/orders", elsewhere.tables().endpoint);
    shrugged_off(&account, &cluster, leader, &Fault::Redirect(to));
    assert!(elsewhere.tables().take_log().is_empty(), "nobody went there");
    assert_eq!(cluster.verdict().terms.len(), 1);
}

#[test]
fn fault_21_an_answer_that_names_another_lease_ends_the_leadership_at_once() {
    let account = Account::by_the_tables();
    let cluster = account.cluster(&["a", "b"]);
    let leader = cluster.settle();
    account.tables().inject("renew", [Fault::WrongLease]);
    reach(&cluster.candidates[leader], "standby");
    logs(&cluster.candidates[leader], r#""reason":"lost""#);
    account.let_leases_end();
    cluster.settle();
    assert_eq!(cluster.verdict().terms.len(), 2);
}

/// Runs three candidates with one identity: one is killed and restarted, another resigns, and none
/// of that affects the lease of another.
fn twins(mut cluster: Cluster, let_leases_end: impl Fn()) {
    let instance = |candidate: &Process| {
        let status = candidate.status().expect("it answers");
        (status["identity"].as_str().unwrap().to_owned(), status["instance"].to_string())
    };
    let leader = cluster.settle();
    let instances: Vec<_> = cluster.candidates.iter().map(instance).collect();
    assert!(instances.iter().all(|(identity, _)| identity == "twin"));
    let mut instances: Vec<_> = instances.into_iter().map(|(_, instance)| instance).collect();
    instances.sort_unstable();
    instances.dedup();
    assert_eq!(instances.len(), 3, "distinct instances");
    // Two leases later, since a namesake that was killed holds the lease for that long too.
    let standby = &cluster.candidates[(leader + 1) % 3];
    until(PATIENCE, "a warning of the namesake", || {
        let found = standby.status()?["warnings"][0].as_str()?.to_owned();
        found.contains("this identity, twin, too").then_some(())
    });
    logs(standby, "another live instance has this identity, twin, too");
    let own = cluster.candidates[leader].status().expect("it answers");
    assert_eq!(own["warnings"], serde_json::json!([]), "without peers it sees none but itself");

    let term = cluster.term(leader);
    let standby = (leader + 1) % 3;
    let mut resigns = cluster.candidates.remove(standby);
    resigns.signal(Signal::TERM);
    assert!(resigns.wait(PATIENCE).success());
    std::thread::sleep(cluster.timings.retry_period * 4);
    let leader = cluster.settle();
    assert_eq!(cluster.term(leader), term, "a namesake that goes takes no lease along");

    cluster.candidates[leader].kill();
    cluster.candidates.remove(leader);
    cluster.join("twin", &[], &[]);
    let_leases_end();
    let leader = cluster.settle();
    assert!(cluster.term(leader) > term, "who comes back takes up no lease of the dead one's");
    assert_eq!(cluster.verdict().terms.len(), 2);
}

#[test]
fn fault_26_candidates_with_the_same_identity_are_distinguished_on_a_file() {
    twins(Cluster::start(&["twin"; 3], SHORT), || ());
}

#[test]
fn fault_26_candidates_with_the_same_identity_are_distinguished_on_blobs() {
    let account = Account::by_the_tables();
    twins(account.cluster(&["twin"; 3]), || account.let_leases_end());
}
