//! Candidates on a Lease of a real kube-apiserver, each with the token of a service account with
//! minimal permissions, under faults of processes and of the API server.

use testkit::kubernetes::{control_plane, lease_ground};
use testkit::processes::{cluster as crew, process};

use std::time::Duration;

use control_plane::ControlPlane;
use crew::{Crew, PATIENCE, Timings, tells};
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
fn crew(ground: &Ground, names: &[&str], timings: Timings) -> Crew {
    let token = ground.token();
    ground.create_lease(&token);
    let mut crew = Crew::on(ground.arguments(&token), Vec::new(), timings);
    for name in names {
        crew.join(name, &[], &[]);
    }
    crew
}

/// Waits until no candidate leads.
fn until_nobody_leads(crew: &Crew) {
    until(PATIENCE, "nobody leads", || {
        (!crew.candidates.iter().any(process::Candidate::is_leader)).then_some(())
    });
}

/// Asserts that `kubectl get lease` shows a leader by its identity and instance.
fn kubectl_shows(ground: &Ground, crew: &Crew, leader: usize) {
    let status = crew.candidates[leader].status().unwrap();
    let [identity, instance] =
        ["identity", "instance"].map(|it| status[it].as_str().unwrap().to_owned());
    assert_eq!(ground.holder(), format!("{identity}_{instance}"));
}

#[test]
fn five_candidates_never_overlap_through_the_faults_of_processes_and_of_the_api_server() {
    let mut plane = ControlPlane::stoppable();
    let mut crew = {
        let ground = Ground::new(&plane, "five");
        let crew = crew(&ground, &["a", "b", "c", "d", "e"], TIMINGS);
        kubectl_shows(&ground, &crew, crew.settle());
        crew
    };
    let arrive = |crew: &mut Crew, gone: process::Candidate| {
        let name = gone.name.split('-').next().unwrap().to_owned();
        drop(gone);
        crew.join(&name, &[], &[]);
        crew.settle()
    };
    // SIGTERM.
    let leader = crew.settle();
    crew.lets_go(leader);
    let mut stopped = crew.candidates.remove(leader);
    stopped.signal(Signal::TERM);
    crew.next_leader(clock::now());
    assert!(stopped.wait(PATIENCE).success(), "an orderly end");
    let leader = arrive(&mut crew, stopped);
    // kill -9.
    let mut killed = crew.candidates.remove(leader);
    killed.crash();
    crew.next_leader(clock::now());
    let leader = arrive(&mut crew, killed);
    // SIGSTOP for more than two lease-durations.
    crew.candidates[leader].signal(Signal::STOP);
    until(PATIENCE, "another leads", || {
        let mut others = (0..5).filter(|it| *it != leader);
        others.any(|it| crew.candidates[it].is_leader()).then_some(())
    });
    std::thread::sleep(TIMINGS.lease_duration);
    crew.candidates[leader].signal(Signal::CONT);
    assert_ne!(crew.settle(), leader);
    // The API server hangs for two lease-durations.
    plane.stop_api();
    until_nobody_leads(&crew);
    std::thread::sleep(TIMINGS.lease_duration * 2);
    assert!(!crew.candidates.iter().any(process::Candidate::is_leader));
    plane.continue_api();
    crew.settle();
    // The API server is killed.
    plane.kill_api();
    until_nobody_leads(&crew);
    plane.restart_api();
    let leader = crew.settle();
    kubectl_shows(&Ground { plane: &plane, namespace: "five".to_owned() }, &crew, leader);
    let verdict = crew.judge();
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
    let crew = crew(&Ground::new(&plane, "patient"), &["a", "b"], patient);
    let leader = crew.settle();
    let term = crew.term(leader);
    plane.restart_api();
    until(PATIENCE, "the leader renews again", || {
        let status = crew.candidates[leader].status()?;
        (status["valid_for_ms"].as_u64()? > 49_000).then_some(())
    });
    assert_eq!((crew.settle(), crew.term(leader)), (leader, term));
    assert_eq!(crew.judge().terms.len(), 1);
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
    let mut crew = crew(&Ground::new(&plane, "watch"), &["a", "b", "c"], rare);
    for restart in [false, true] {
        let leader = crew.settle();
        if restart {
            plane.restart_api();
            // Until the standbys have reestablished their watches.
            std::thread::sleep(Duration::from_secs(10));
        }
        crew.lets_go(leader);
        let mut stopped = crew.candidates.remove(leader);
        stopped.signal(Signal::TERM);
        let (_, after) = crew.next_leader(clock::now());
        assert!(after < Duration::from_secs(10), "restarted: {restart}; after {after:?}");
        assert!(stopped.wait(PATIENCE).success(), "an orderly end");
    }
    crew.judge();
}

#[test]
fn without_its_rights_a_leader_ends_in_time_says_what_is_missing_and_comes_back_with_them() {
    let plane = ControlPlane::shared();
    let ground = Ground::new(plane, "rights");
    let crew = crew(&ground, &["a"], TIMINGS);
    let leader = crew.settle();
    ground.take_rights();
    until_nobody_leads(&crew);
    let said = until(PATIENCE, "the status says why", || {
        let status = crew.candidates[leader].status()?;
        Some(status["store"]["last_error"].as_str()?.to_owned())
    });
    for word in ["leases in the namespace rights", "kubectl create role", "coordination.k8s.io"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    tells(&crew.candidates[leader], "coordination.k8s.io");
    ground.give_rights();
    crew.settle();
    crew.judge();
}

#[test]
fn with_an_expired_token_a_leader_ends_in_time_says_so_and_comes_back_with_a_fresh_one() {
    let plane = ControlPlane::shared();
    let ground = Ground::new(plane, "token");
    // Valid long enough to lead; the API server caches the result of an authentication for ten
    // seconds.
    let token = ground.short_token(Duration::from_secs(20));
    let mut crew = Crew::on(ground.arguments(&token), Vec::new(), TIMINGS);
    crew.join("a", &[], &[]);
    crew.settle();
    until_nobody_leads(&crew);
    let said = until(PATIENCE, "the status says why", || {
        let status = crew.candidates[0].status()?;
        Some(status["store"]["last_error"].as_str()?.to_owned())
    });
    assert!(said.contains("token"), "{said}");
    std::fs::copy(ground.token(), token).unwrap();
    crew.settle();
    crew.judge();
}
