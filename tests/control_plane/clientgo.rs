//! Tenure and client-go candidates on one Lease: each respects the other's lease. Checked by what
//! each reports of its own lease, and by the versions of the Lease.

use testkit::kubernetes::{clientgo, control_plane, lease_ground};
use testkit::processes::{cluster, process};

use std::time::Duration;

use cluster::{Cluster, PATIENCE, Timings};
use control_plane::ControlPlane;
use lease_ground::Ground;
use process::{Process, until};
use rustix::process::Signal;
use tenure::clock;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const TIMINGS: Timings = Timings {
    lease_duration: Duration::from_secs(5),
    renew_deadline: Duration::from_millis(3_500),
    retry_period: Duration::from_millis(700),
    request_timeout: Duration::from_millis(1_500),
};

/// Parses a time in the Lease.
fn moment(lease: &serde_json::Value, field: &str) -> OffsetDateTime {
    let text = lease["spec"][field].as_str().unwrap_or_else(|| panic!("no {field}: {lease}"));
    OffsetDateTime::parse(text, &Rfc3339).unwrap()
}

/// Asserts that no version of the Lease has a new holder before the previous lease expired, unless
/// it was released; returns the number of changes of the holder.
fn assert_no_lease_was_cut_short(versions: &[serde_json::Value]) -> usize {
    let holder = |it: &serde_json::Value| {
        it["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    };
    let mut hands = 0;
    for pair in versions.windows(2) {
        let (before, after) = (holder(&pair[0]), holder(&pair[1]));
        if after.is_empty() || before == after {
            continue;
        }
        hands += 1;
        let (old, new) = (
            pair[0]["spec"]["leaseTransitions"].as_i64(),
            pair[1]["spec"]["leaseTransitions"].as_i64(),
        );
        assert!(new > old, "a change of hands counts: {pair:?}");
        if !before.is_empty() {
            let length = pair[0]["spec"]["leaseDurationSeconds"].as_i64().unwrap();
            let end = moment(&pair[0], "renewTime") + time::Duration::seconds(length);
            assert!(moment(&pair[1], "acquireTime") >= end, "taken before its time: {pair:?}");
        }
    }
    hands
}

/// Waits until a candidate of Tenure leads.
fn tenure_leads(cluster: &Cluster) {
    cluster.next_leader(clock::now());
}

#[test]
fn tenure_and_client_go_never_hold_one_lease_at_once() {
    let plane = ControlPlane::start();
    let ground = Ground::new(&plane, "neighbours");
    let token = ground.token();
    let start = |name: &str, releases| clientgo::start(name, &ground, &token, TIMINGS, releases);
    let holds = |it: &Process| until(PATIENCE, "client-go holds", || it.is_leader().then_some(()));
    // A client-go candidate leads first, and releases.
    let mut first = start("library-1", true);
    holds(&first);
    let watch = plane.kubectl.follow(&ground.namespace, "lease", lease_ground::LEASE);
    let mut cluster = Cluster::on(ground.arguments(&token), Vec::new(), TIMINGS);
    cluster.recorder.follow(&first.name, first.address);
    cluster.join("a", &[], &[]);
    std::thread::sleep(TIMINGS.lease_duration * 2);
    assert!(first.is_leader() && !cluster.candidates[0].is_leader(), "a holder is respected");
    first.signal(Signal::TERM);
    first.wait(PATIENCE);
    tenure_leads(&cluster);
    // Tenure releases, and a client-go candidate takes over.
    let second = start("library-2", false);
    cluster.recorder.follow(&second.name, second.address);
    std::thread::sleep(TIMINGS.lease_duration * 2);
    assert!(
        !second.is_leader() && cluster.candidates[0].is_leader(),
        "client-go leaves Tenure its lease"
    );
    cluster.releases(0);
    let mut gone = cluster.candidates.remove(0);
    gone.signal(Signal::TERM);
    assert!(gone.wait(PATIENCE).success());
    holds(&second);
    // The client-go candidate is stopped for longer than its lease.
    cluster.join("b", &[], &[]);
    second.signal(Signal::STOP);
    tenure_leads(&cluster);
    second.signal(Signal::CONT);
    // Tenure is killed.
    cluster.records(0);
    let mut gone = cluster.candidates.remove(0);
    gone.kill();
    holds(&second);
    // The client-go candidate is killed.
    cluster.join("c", &[], &[]);
    second.signal(Signal::KILL);
    tenure_leads(&cluster);
    cluster.records(0);
    // The API server hangs for two lease-durations.
    let third = start("library-3", false);
    cluster.recorder.follow(&third.name, third.address);
    plane.stop_api();
    until(PATIENCE, "the lease is free", || (!cluster.candidates[0].is_leader()).then_some(()));
    std::thread::sleep(TIMINGS.lease_duration * 2);
    plane.continue_api();
    until(PATIENCE, "one candidate holds", || {
        (cluster.candidates[0].is_leader() || third.is_leader()).then_some(())
    });
    let hands = assert_no_lease_was_cut_short(&watch.versions());
    assert!(hands >= 5, "{hands} changes of hands");
    // client-go counts terms differently, so only the terms of Tenure are checked.
    let verdict = cluster.recorder.finish(&["library-1", "a-1"]);
    assert_eq!(verdict.duals, Vec::<String>::new());
    let ours = |name: &str| !name.starts_with("library");
    let terms: Vec<u64> =
        verdict.terms.iter().filter(|(_, name)| ours(name)).map(|(term, _)| *term).collect();
    assert!(terms.len() >= 3 && terms.is_sorted_by(|a, b| a < b), "{terms:?}");
}
