//! Faults of etcd itself, with real candidates: its members are killed, stopped and without quorum,
//! answers break off, rights are taken away, certificates are replaced. Fault 46.

use testkit::etcd::server::{EtcdServer, PREFIX};
use testkit::faults::half_answer::HalfAnswer;
use testkit::processes::{cluster, process};

use std::time::Duration;

use cluster::{Cluster, PATIENCE, Timings, logs};
use process::until;
use rustix::process::Signal;

use super::on_server::{LONG, lapses, reach, renews_on, requests, wait_for_two_leases};

/// A lease with a margin of two seconds, and a renew-deadline for a busy machine.
const ON_ETCD: Timings = Timings {
    lease_duration: Duration::from_secs(9),
    renew_deadline: Duration::from_secs(7),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_millis(1_500),
};

fn on(server: &EtcdServer) -> Cluster {
    let mut cluster = Cluster::on(server.arguments(), server.variables(), ON_ETCD);
    for name in ["a", "b", "c"] {
        cluster.join(name, &[], &[]);
    }
    cluster
}

#[test]
fn fault_46_etcd_is_killed_and_restarted() {
    let mut server = EtcdServer::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    server.members[0].process.kill();
    lapses(&cluster.candidates[leader]);
    server.members[0].restart();
    server.becomes_ready(0);
    cluster.settle();
    // The leases have outlived the restart, and count their time anew.
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_etcd_is_stopped_for_two_leases() {
    let server = EtcdServer::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    server.signal(0, Signal::STOP);
    lapses(&cluster.candidates[leader]);
    wait_for_two_leases(&ON_ETCD);
    assert!(cluster.candidates.iter().all(|it| !it.is_leader()), "nobody can have acquired it");
    server.signal(0, Signal::CONT);
    server.becomes_ready(0);
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_connections_are_reset_half_way_through_an_answer() {
    let server = EtcdServer::start();
    let proxy = HalfAnswer::before(server.members[0].port, b"HTTP/1.1");
    let store = format!("etcd://127.0.0.1:{}/{PREFIX}", proxy.port);
    let mut cluster = Cluster::on(vec!["--store".to_owned(), store], Vec::new(), LONG);
    for name in ["a", "b"] {
        cluster.join(name, &[], &[]);
    }
    let leader = cluster.settle();
    let term = cluster.term(leader);
    for _ in 0..5 {
        proxy.cut(2);
        until(PATIENCE, "answers are cut", || (proxy.pending() == 0).then_some(()));
        renews_on(&cluster.candidates[leader]);
    }
    reach(&cluster.candidates[leader], "leader");
    assert_eq!(cluster.term(leader), term, "each is repeated on another connection");
    // A bid whose answer breaks off is repeated with its id.
    let first = cluster.candidates[leader].name.clone();
    cluster.releases(leader);
    proxy.cut(20);
    cluster.candidates[leader].signal(Signal::TERM);
    let other = 1 - leader;
    cluster.leads(other, PATIENCE);
    assert_eq!(cluster.verdict().terms.len(), 2, "after {first} the other, in one term");
}

#[test]
fn fault_46_a_member_without_quorum_refuses_nothing() {
    let mut server = EtcdServer::three();
    let cluster = on(&server);
    let leader = cluster.settle();
    for member in [1, 2] {
        server.members[member].process.kill();
    }
    lapses(&cluster.candidates[leader]);
    wait_for_two_leases(&ON_ETCD);
    assert!(cluster.candidates.iter().all(|it| !it.is_leader()), "nobody can have acquired it");
    for member in [1, 2] {
        server.members[member].restart();
    }
    (0..3).for_each(|member| server.becomes_ready(member));
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

/// A member that wakes up may still have leases ended whose keepalives it has missed (etcd's issue 15247).
#[test]
fn fault_46_the_leader_of_etcd_is_stopped_for_two_leases_and_ends_no_live_one() {
    let server = EtcdServer::three();
    let cluster = on(&server);
    cluster.settle();
    let stopped = server.leader();
    server.signal(stopped, Signal::STOP);
    wait_for_two_leases(&ON_ETCD);
    // The other two have a leader by now, whichever of the candidates that leaves in the lead.
    let leader = cluster.settle();
    let term = cluster.term(leader);
    server.signal(stopped, Signal::CONT);
    server.becomes_ready(stopped);
    renews_on(&cluster.candidates[leader]);
    assert_eq!(cluster.term(leader), term);
    cluster.verdict();
}

#[test]
fn fault_46_rights_are_taken_away_while_leading() {
    let server = EtcdServer::secured();
    let cluster = on(&server);
    let leader = cluster.settle();
    server.take_rights();
    lapses(&cluster.candidates[leader]);
    assert!(requests(&cluster.candidates[leader], "renew", "auth") > 0);
    logs(&cluster.candidates[leader], r#""cause":"auth""#);
    server.give_rights();
    cluster.settle();
    for candidate in &cluster.candidates {
        let log = candidate.log();
        assert!(!log.contains("correct horse"), "the password of the user: {log}");
    }
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_certificates_are_replaced_while_leading() {
    let server = EtcdServer::secured();
    let cluster = on(&server);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    for _ in 0..3 {
        server.replace_certificates();
        renews_on(&cluster.candidates[leader]);
    }
    assert_eq!(cluster.term(leader), term);
    assert_eq!(cluster.verdict().terms.len(), 1);
}
