//! Faults of an emulator of Google Cloud Storage, with real candidates: it is killed and stopped, answers break
//! off, the disk is full, rights are taken away, its certificate is replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::gcs::front::TOKEN;
use testkit::gcs::server::GcsServer;
use testkit::processes::{cluster, process};

use std::time::Duration;

use cluster::{Cluster, PATIENCE, Timings, logs};
use process::until;
use rustix::process::Signal;

use super::on_server::{LONG, lapses, reach, renews_on, requests, wait_for_two_leases};

/// A lease with a margin of two seconds, and a renew-deadline for a busy machine.
const ON_GCS: Timings = Timings {
    lease_duration: Duration::from_secs(9),
    renew_deadline: Duration::from_secs(7),
    retry_period: Duration::from_secs(2),
    request_timeout: Duration::from_millis(1_500),
};

fn on(server: &GcsServer) -> Cluster {
    let mut cluster = Cluster::on(server.arguments(), server.variables(&server.url()), ON_GCS);
    for name in ["a", "b", "c"] {
        cluster.join(name, &[], &[]);
    }
    cluster
}

#[test]
fn fault_46_google_cloud_storage_is_killed_and_restarted() {
    let mut server = GcsServer::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    server.process.kill();
    lapses(&cluster.candidates[leader]);
    server.restart();
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_google_cloud_storage_is_stopped_for_two_leases() {
    let server = GcsServer::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    server.signal(Signal::STOP);
    lapses(&cluster.candidates[leader]);
    wait_for_two_leases(&ON_GCS);
    assert!(cluster.candidates.iter().all(|it| !it.is_leader()), "nobody can have acquired it");
    server.signal(Signal::CONT);
    server.becomes_ready();
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_connections_to_google_cloud_storage_are_reset_half_way_through_an_answer() {
    let server = GcsServer::start();
    let proxy = HalfAnswer::before(server.front.port, b"HTTP/1.1");
    let endpoint = format!("http://127.0.0.1:{}", proxy.port);
    let mut cluster = Cluster::on(
        server.arguments(),
        server.variables(&endpoint),
        Timings { retry_period: ON_GCS.retry_period, ..LONG },
    );
    for name in ["a", "b"] {
        cluster.join(name, &[], &[]);
    }
    let leader = cluster.settle();
    let term = cluster.term(leader);
    for _ in 0..2 {
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
fn fault_46_the_disk_of_google_cloud_storage_is_full() {
    let disk = SmallDisk::new(2_048);
    let server = GcsServer::on(disk.path());
    let cluster = on(&server);
    let leader = cluster.settle();
    disk.fill();
    lapses(&cluster.candidates[leader]);
    disk.empty();
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_rights_to_a_bucket_of_google_are_taken_away_while_leading() {
    let server = GcsServer::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    server.front.deny(true);
    lapses(&cluster.candidates[leader]);
    assert!(requests(&cluster.candidates[leader], "renew", "auth") > 0);
    logs(&cluster.candidates[leader], r#""cause":"auth""#);
    server.front.deny(false);
    cluster.settle();
    for candidate in &cluster.candidates {
        let log = candidate.log();
        for secret in [TOKEN, "the-client-secret", "the-refresh-token"] {
            assert!(!log.contains(secret), "{secret}: {log}");
        }
    }
    assert!(cluster.verdict().terms.len() >= 2);
}

#[test]
fn fault_46_the_certificate_of_google_cloud_storage_is_replaced_while_leading() {
    let server = GcsServer::secured();
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
