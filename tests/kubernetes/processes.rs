//! Real sidecars on one Lease: together with a candidate of another kind, after a deletion, and under
//! an operator's commands.

use testkit::kubernetes::kube_server;
use testkit::processes::{cluster, process};

use std::time::Duration;

use cluster::{Cluster, PATIENCE, Timings};
use kube_server::KubeServer;
use process::{Process, Ran, run_verb, until};
use serde_json::{Value, json};
use tenure::clock;

/// Timings with a lease of three seconds.
const SHORT: Timings = Timings {
    lease_duration: Duration::from_secs(3),
    renew_deadline: Duration::from_millis(2_000),
    retry_period: Duration::from_millis(400),
    request_timeout: Duration::from_millis(1_000),
};

/// Timings with a lease that does not expire during a test, and reads so rare that only a watch is
/// fast.
const LONG: Timings = Timings {
    lease_duration: Duration::from_secs(300),
    renew_deadline: Duration::from_secs(200),
    retry_period: Duration::from_secs(90),
    request_timeout: Duration::from_secs(5),
};

/// Creates a Lease with a term, so that its next leader need not hold it before it is active.
fn put_with_term(server: &KubeServer) {
    let record = json!({"metadata": {"annotations": {"tenure.dev/term": "7"}}, "spec": {}});
    server.put("leases", "team", "orders", record);
}

/// Creates a cluster on the Lease `team/orders` of a server.
fn cluster(server: &KubeServer, timings: Timings) -> Cluster {
    let mut store = vec!["--store".to_owned(), "kubernetes:team/orders".to_owned()];
    store.extend(server.arguments());
    Cluster::on(store, Vec::new(), timings)
}

fn lease(server: &KubeServer) -> Value {
    server.object("leases", "team", "orders").expect("a Lease")
}

fn reach(candidate: &Process, state: &str) {
    until(PATIENCE, &format!("{} is {state}", candidate.name), || {
        (candidate.state()? == state).then_some(())
    });
}

/// Starts a leader with a short lease, whose end is recorded, and a standby; returns its term too.
fn leader_and_standby(server: &KubeServer) -> (Cluster, u64) {
    let mut cluster = cluster(server, SHORT);
    cluster.join("a", &[], &[]);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    cluster.records(leader);
    cluster.join("b", &[], &[]);
    reach(&cluster.candidates[1], "standby");
    (cluster, term)
}

/// Waits until a candidate leads in a term above this one, and returns the term.
fn later_term(cluster: &Cluster, first: u64) -> u64 {
    until(PATIENCE, "a candidate leads in a later term", || {
        let all = cluster.candidates.iter().filter_map(|it| it.status()?["term"].as_u64());
        all.max().filter(|it| *it > first)
    })
}

/// Runs a verb that accesses the store.
fn verb(cluster: &Cluster, verb: &[&str]) -> Ran {
    let shared = cluster.arguments();
    run_verb(
        &verb.iter().copied().chain(shared.iter().map(String::as_str)).collect::<Vec<_>>(),
        &[],
    )
}

#[test]
fn a_foreign_holder_keeps_the_lease_for_its_own_duration() {
    let server = KubeServer::start();
    let theirs = |server: &KubeServer, transitions: i64| {
        let date = clock::now().date();
        let (date, time) = (date.date(), date.time());
        let text = format!("{date}T{time}");
        let text = format!("{}Z", text.get(..26).unwrap_or("2026-11-20T09:00:00.000000"));
        let spec = json!({
            "holderIdentity": "another-kind_4f6d",
            // Longer than that of Tenure's candidates, but the holder's own duration counts.
            "leaseDurationSeconds": 5,
            "acquireTime": "2026-11-20T09:00:00.000000Z",
            "renewTime": text,
            "leaseTransitions": transitions,
        });
        server.modify("leases", "team", "orders", |it| it["spec"] = spec);
    };
    server.put("leases", "team", "orders", json!({}));
    theirs(&server, 6);
    // Long enough for a busy machine: leadership must not be lost.
    let timings = Timings {
        lease_duration: Duration::from_secs(4),
        renew_deadline: Duration::from_secs(3),
        ..SHORT
    };
    let mut cluster = cluster(&server, timings);
    cluster.join("a", &[], &[]);
    reach(&cluster.candidates[0], "standby");
    let mut renewed = clock::now();
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(500));
        assert!(!cluster.candidates[0].is_leader());
        renewed = clock::now();
        theirs(&server, 6);
    }
    let holder = cluster.candidates[0].status().unwrap()["holder"].clone();
    assert!(holder.is_null() || holder["identity"] == "another-kind_4f6d", "{holder}");
    // Not at each question: each write of a slow candidate would meet a conflict.
    let mut touched = clock::now();
    until(PATIENCE, "Tenure leads", || {
        if touched.elapsed_min(clock::now()) >= Duration::from_millis(500) {
            server.touch("leases", "team", "orders");
            touched = clock::now();
        }
        cluster.candidates[0].is_leader().then_some(())
    });
    let waited = renewed.elapsed_min(clock::now());
    assert!(waited >= Duration::from_secs(5), "their time was not over: {waited:?}");
    let stands = lease(&server);
    assert_eq!(stands["spec"]["leaseTransitions"], 7);
    let first = cluster.term(0);
    assert!(first > 7, "{first}");

    // In the other direction: if another takes the lease, it is lost, whatever Tenure's record
    // says.
    cluster.records(0);
    theirs(&server, 8);
    until(PATIENCE, "Tenure has stepped down", || {
        (!cluster.candidates[0].is_leader()).then_some(())
    });
    reach(&cluster.candidates[0], "standby");
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "another-kind_4f6d");
    until(PATIENCE, "Tenure leads again", || cluster.candidates[0].is_leader().then_some(()));
    assert!(cluster.term(0) > first);
    cluster.verdict();
}

#[test]
fn a_deleted_lease_makes_its_next_leader_wait() {
    let server = KubeServer::start();
    let (cluster, first) = leader_and_standby(&server);
    // The new Lease is created after the last read that finds none.
    let mut missing = clock::now();
    server.delete("leases", "team", "orders");
    let made = until(PATIENCE, "another Lease is made", || {
        let before = clock::now();
        let found = server.object("leases", "team", "orders").map(|_| clock::now());
        if found.is_none() {
            missing = before;
        }
        found
    });
    let (next, _) = cluster.next_leader(made);
    // The candidate that created it may still be active in its old term; the new term is higher.
    let term = later_term(&cluster, first);
    let waited = missing.elapsed_min(clock::now());
    assert!(waited >= SHORT.lease_duration, "R11's hold was {waited:?}, of candidate {next}");
    assert_eq!(lease(&server)["metadata"]["annotations"]["tenure.dev/term"], term.to_string());
    cluster.settle();
    cluster.verdict();
}

#[test]
fn an_operator_breaks_a_lease_and_its_leader_steps_down() {
    let server = KubeServer::start();
    let (cluster, first) = leader_and_standby(&server);
    let ran = verb(&cluster, &["break", "--yes"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains('a') && !ran.out.is_empty(), "{}", ran.out);
    let broken = clock::now();
    later_term(&cluster, first);
    let waited = broken.elapsed_min(clock::now());
    cluster.settle();
    cluster.verdict();
    // Only a release by the broken holder ends it sooner, after it has become passive.
    assert!(waited < PATIENCE);

    let cluster = self::cluster(&server, LONG);
    server.put(
        "leases",
        "team",
        "orders",
        json!({"spec": {"holderIdentity": "dead_1", "leaseDurationSeconds": 3600,
                        "renewTime": "2026-11-20T09:00:00.000000Z"}}),
    );
    let ran = verb(&cluster, &["break", "--now", "--yes"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "");
    let ran = verb(&cluster, &["break", "--now", "--yes"]);
    assert!(ran.out.contains("is not held"), "{}{}", ran.out, ran.err);
}

#[test]
fn a_transfer_gives_the_lease_to_the_named_successor() {
    let server = KubeServer::start();
    put_with_term(&server);
    let mut cluster = cluster(&server, LONG);
    let directory = tempfile::tempdir().unwrap();
    let admin = format!("unix:{}", directory.path().join("admin").display());
    cluster.join("a", &["--admin", &admin], &[]);
    until(PATIENCE, "the first leads", || cluster.candidates[0].is_leader().then_some(()));
    cluster.records(0);
    for name in ["b", "c", "d"] {
        cluster.join(name, &[], &[]);
    }
    cluster.candidates[1..].iter().for_each(|it| reach(it, "standby"));
    cluster.releases(0);
    let at = clock::now();
    let ran = run_verb(&["transfer", "--to", "c", "--admin", &admin], &[]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    until(PATIENCE, "c leads", || cluster.candidates[2].is_leader().then_some(()));
    assert!(at.elapsed_min(clock::now()) < Duration::from_secs(60), "it was notified in time");
    let term = cluster.term(2);
    let stands = lease(&server);
    assert_eq!(stands["metadata"]["annotations"]["tenure.dev/term"], term.to_string());
    assert_eq!(stands["metadata"]["annotations"]["tenure.dev/successor"], Value::Null);
    cluster.records(2);
    cluster.verdict();
}
