//! Faults of a server of S3 itself, with real candidates: it is killed and stopped, answers break off, the
//! disk is full, rights are taken away, its certificate is replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::{cluster, process};
use testkit::s3::server::{S3Server, at, variables};

use std::time::Duration;

use cluster::{Cluster, PATIENCE, Timings, logs};
use process::until;
use rustix::process::Signal;

use super::on_server::{LONG, lapses, reach, renews_on, requests, wait_for_two_leases};

/// A lease with a margin of two seconds, and a renew-deadline for a busy machine.
const ON_S3: Timings = Timings {
    lease_duration: Duration::from_secs(8),
    renew_deadline: Duration::from_secs(6),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_millis(1_500),
};

fn on(server: &S3Server) -> Cluster {
    let mut cluster = Cluster::on(server.arguments(), variables(), ON_S3);
    for name in ["a", "b", "c"] {
        cluster.join(name, &[], &[]);
    }
    cluster
}

#[test]
fn fault_46_a_server_of_s3_is_killed_and_restarted() {
    let mut server = S3Server::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    server.process.kill();
    lapses(&cluster.candidates[leader]);
    server.restart();
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_a_server_of_s3_is_stopped_for_two_leases() {
    let server = S3Server::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    server.signal(Signal::STOP);
    lapses(&cluster.candidates[leader]);
    wait_for_two_leases(&ON_S3);
    assert!(cluster.candidates.iter().all(|it| !it.is_leader()), "nobody can have acquired it");
    server.signal(Signal::CONT);
    server.becomes_ready();
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_connections_to_s3_are_reset_half_way_through_an_answer() {
    let server = S3Server::start();
    let proxy = HalfAnswer::before(server.port, b"HTTP/1.1");
    let endpoint = format!("http://127.0.0.1:{}", proxy.port);
    let mut cluster = Cluster::on(at(&endpoint), variables(), LONG);
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
    // A bid whose answer breaks off is found by its nonce.
    cluster.releases(leader);
    proxy.cut(20);
    cluster.candidates[leader].signal(Signal::TERM);
    cluster.leads(1 - leader, PATIENCE);
    assert_eq!(cluster.verdict().terms.len(), 2, "one after the other, in one term each");
}

#[test]
fn fault_46_the_disk_of_a_server_of_s3_is_full() {
    let disk = SmallDisk::new(2_048);
    let server = S3Server::on(disk.path());
    let cluster = on(&server);
    let leader = cluster.settle();
    disk.fill();
    lapses(&cluster.candidates[leader]);
    disk.empty();
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_rights_to_a_bucket_are_taken_away_while_leading() {
    let server = S3Server::start();
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
        assert!(!log.contains("correct horse"), "the secret key: {log}");
    }
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_the_certificate_of_a_server_of_s3_is_replaced_while_leading() {
    let mut server = S3Server::secured();
    let cluster = on(&server);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    for _ in 0..3 {
        server.replace_certificate();
        renews_on(&cluster.candidates[leader]);
    }
    assert_eq!(cluster.term(leader), term);
    assert_eq!(cluster.verdict().terms.len(), 1);
}
