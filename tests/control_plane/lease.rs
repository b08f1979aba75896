//! Candidates on a Lease of a real kube-apiserver, each with the token of a service account with
//! minimal permissions, under faults of processes and of the API server.

use testkit::kubernetes::{control_plane, lease_ground};
use testkit::processes::{cluster, process};

use std::time::Duration;

use cluster::{Cluster, PATIENCE, Timings, logs};
use control_plane::ControlPlane;
use lease_ground::Ground;
use process::until;
use rustix::process::Signal;
use tenure::clock;

/// About a fifth of the defaults, in whole seconds where a Lease requires them.
const TIMINGS: Timings = Timings {
    lease_duration: Duration::from_secs(3),
    renew_deadline: Duration::from_millis(2_200),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_secs(1),
};

/// Creates a cluster with these candidates on the Lease of a namespace of its own.
fn cluster(ground: &Ground, names: &[&str], timings: Timings) -> Cluster {
    let token = ground.token();
    ground.create_lease(&token);
    let mut cluster = Cluster::on(ground.arguments(&token), Vec::new(), timings);
    for name in names {
        cluster.join(name, &[], &[]);
    }
    cluster
}

/// Waits until no candidate leads.
fn until_nobody_leads(cluster: &Cluster) {
    until(PATIENCE, "no candidate leads", || {
        (!cluster.candidates.iter().any(process::Process::is_leader)).then_some(())
    });
}

/// Asserts that `kubectl get lease` shows a leader by its identity and instance.
fn kubectl_shows(ground: &Ground, cluster: &Cluster, leader: usize) {
    let status = cluster.candidates[leader].status().unwrap();
    let [identity, instance] =
        ["identity", "instance"].map(|it| status[it].as_str().unwrap().to_owned());
    assert_eq!(ground.holder(), format!("{identity}_{instance}"));
}

#[test]
fn five_candidates_never_overlap_through_the_faults_of_processes_and_of_the_api_server() {
    let mut plane = ControlPlane::stoppable();
    let mut cluster = {
        let ground = Ground::new(&plane, "five");
        let cluster = cluster(&ground, &["a", "b", "c", "d", "e"], TIMINGS);
        kubectl_shows(&ground, &cluster, cluster.settle());
        cluster
    };
    let arrive = |cluster: &mut Cluster, gone: process::Process| {
        let name = gone.name.split('-').next().unwrap().to_owned();
        drop(gone);
        cluster.join(&name, &[], &[]);
        cluster.settle()
    };
    // SIGTERM.
    let leader = cluster.settle();
    cluster.releases(leader);
    let mut stopped = cluster.candidates.remove(leader);
    stopped.signal(Signal::TERM);
    cluster.next_leader(clock::now());
    assert!(stopped.wait(PATIENCE).success(), "an orderly end");
    let leader = arrive(&mut cluster, stopped);
    // kill -9.
    let mut killed = cluster.candidates.remove(leader);
    killed.kill();
    cluster.next_leader(clock::now());
    let leader = arrive(&mut cluster, killed);
    // SIGSTOP for more than two lease-durations.
    cluster.candidates[leader].signal(Signal::STOP);
    until(PATIENCE, "another leads", || {
        let mut others = (0..5).filter(|it| *it != leader);
        others.any(|it| cluster.candidates[it].is_leader()).then_some(())
    });
    std::thread::sleep(TIMINGS.lease_duration);
    cluster.candidates[leader].signal(Signal::CONT);
    assert_ne!(cluster.settle(), leader);
    // The API server hangs for two lease-durations.
    plane.stop_api();
    until_nobody_leads(&cluster);
    std::thread::sleep(TIMINGS.lease_duration * 2);
    assert!(!cluster.candidates.iter().any(process::Process::is_leader));
    plane.continue_api();
    cluster.settle();
    // The API server is killed.
    plane.kill_api();
    until_nobody_leads(&cluster);
    plane.restart_api();
    let leader = cluster.settle();
    kubectl_shows(&Ground { plane: &plane, namespace: "five".to_owned() }, &cluster, leader);
    let verdict = cluster.verdict();
    assert!(verdict.terms.len() >= 4, "{verdict:?}");
}

#[test]
fn a_restart_of_the_api_server_within_the_deadline_costs_no_term() {
    let mut plane = ControlPlane::stoppable();
    let patient = Timings {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(50),
        ..TIMINGS
    };
    let cluster = cluster(&Ground::new(&plane, "patient"), &["a", "b"], patient);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    plane.restart_api();
    until(PATIENCE, "the leader renews again", || {
        let status = cluster.candidates[leader].status()?;
        (status["valid_for_ms"].as_u64()? > 49_000).then_some(())
    });
    assert_eq!((cluster.settle(), cluster.term(leader)), (leader, term));
    assert_eq!(cluster.verdict().terms.len(), 1);
}

#[test]
fn a_release_is_seen_by_watch_also_after_the_api_server_was_restarted() {
    let mut plane = ControlPlane::stoppable();
    // By polling alone, the next leader would need up to half a minute.
    let rare = Timings {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(50),
        retry_period: Duration::from_secs(20),
        request_timeout: Duration::from_secs(5),
    };
    let mut cluster = cluster(&Ground::new(&plane, "watch"), &["a", "b", "c"], rare);
    for restart in [false, true] {
        let leader = cluster.settle();
        if restart {
            plane.restart_api();
            // The leader watches too.
            until(PATIENCE, "each candidate watches again", || {
                (plane.watches_of_leases() >= cluster.candidates.len()).then_some(())
            });
        }
        cluster.releases(leader);
        let mut stopped = cluster.candidates.remove(leader);
        stopped.signal(Signal::TERM);
        let (_, after) = cluster.next_leader(clock::now());
        assert!(after < Duration::from_secs(10), "restarted: {restart}; after {after:?}");
        assert!(stopped.wait(PATIENCE).success(), "an orderly end");
    }
    cluster.verdict();
}

#[test]
fn a_leader_without_its_rights_steps_down_names_the_missing_ones_and_recovers_with_them() {
    let plane = ControlPlane::shared();
    let ground = Ground::new(plane, "rights");
    let cluster = cluster(&ground, &["a"], TIMINGS);
    let leader = cluster.settle();
    ground.take_rights();
    until_nobody_leads(&cluster);
    let error = until(PATIENCE, "the status has the reason", || {
        let status = cluster.candidates[leader].status()?;
        let error = status["store"]["last_error"].as_str()?;
        error.contains("leases in the namespace rights").then(|| error.to_owned())
    });
    for word in ["kubectl create role", "coordination.k8s.io"] {
        assert!(error.contains(word), "{word} in {error}");
    }
    logs(&cluster.candidates[leader], "coordination.k8s.io");
    ground.give_rights();
    cluster.settle();
    cluster.verdict();
}

#[test]
fn a_leader_with_an_expired_token_steps_down_reports_it_and_recovers_with_a_new_one() {
    let plane = ControlPlane::shared();
    let ground = Ground::new(plane, "token");
    // Valid long enough to lead; the API server caches the result of an authentication for ten
    // seconds.
    let token = ground.short_token(Duration::from_secs(20));
    let mut cluster = Cluster::on(ground.arguments(&token), Vec::new(), TIMINGS);
    cluster.join("a", &[], &[]);
    cluster.settle();
    until_nobody_leads(&cluster);
    // An answer may also have come too late on a busy machine.
    until(PATIENCE, "the status has the reason", || {
        let status = cluster.candidates[0].status()?;
        status["store"]["last_error"].as_str()?.contains("token").then_some(())
    });
    std::fs::copy(ground.token(), token).unwrap();
    cluster.settle();
    cluster.verdict();
}
