//! Faults of ZooKeeper itself, with real candidates: its servers are killed, stopped, partitioned and without
//! quorum, answers break off, requests are late and repeated, notifications are lost, an older copy is
//! restored, the disk is full, rights are taken away, certificates are replaced. Faults 46, 50 and 51.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::cluster::{Cluster, PATIENCE, Timings, logs};
use testkit::processes::process::until;
use testkit::zookeeper::proxy::MessageProxy;
use testkit::zookeeper::server::{PATH, ZookeeperServer};

use rustix::process::Signal;
use tenure::store::zookeeper;

use super::on_server::{
    LONG, compete, keeps_its_term, lapses, lease_of, outlasts, outlasts_a_stop,
    outlasts_taken_rights, outlasts_two_leases, renews_on, survives_a_stopped_leader,
    survives_half_answers, wait_for_two_leases,
};

fn on(server: &ZookeeperServer) -> Cluster {
    compete(server.arguments(), server.variables(), lease_of(6), &["a", "b", "c"])
}

/// Lets candidates compete at this port of loopback.
fn at(port: u16, timings: Timings, names: &[&str]) -> Cluster {
    let store = format!("zookeeper://127.0.0.1:{port}/{PATH}");
    compete(vec!["--store".to_owned(), store], Vec::new(), timings, names)
}

#[test]
fn fault_46_zookeeper_is_killed_and_restarted() {
    let mut server = ZookeeperServer::start();
    outlasts(on(&server), &mut server, |it| it.kill(0..1), |it| it.restart(0..1));
}

#[test]
fn fault_46_zookeeper_is_stopped_for_two_leases() {
    let server = ZookeeperServer::start();
    outlasts_a_stop(on(&server), |it| server.signal(0, it), || server.becomes_ready(0));
}

#[test]
fn fault_46_connections_to_zookeeper_are_reset_half_way_through_an_answer() {
    let server = ZookeeperServer::start();
    // The length of each message, of which none has 16 MiB.
    let proxy = HalfAnswer::before(server.members[0].port, b"\0");
    survives_half_answers(at(proxy.port, LONG, &["a", "b"]), &proxy, 5);
}

#[test]
fn fault_46_a_server_of_zookeeper_without_quorum_refuses_nothing() {
    let mut server = ZookeeperServer::three();
    outlasts_two_leases(on(&server), &mut server, |it| it.kill(1..3), |it| it.restart(1..3));
}

#[test]
fn fault_46_the_leader_of_zookeeper_is_stopped_for_two_leases_and_changes_nothing() {
    let server = ZookeeperServer::three();
    let (leader, signal) = (|| server.leader(), |at, it| server.signal(at, it));
    survives_a_stopped_leader(on(&server), leader, signal, |at| server.becomes_ready(at));
}

/// Its clients still reach it, and it answers reads for a while.
#[test]
fn fault_46_the_leader_of_zookeeper_is_partitioned_from_the_others_for_two_leases() {
    let server = ZookeeperServer::three();
    let cut = |at, signal| server.partition(at, signal == Signal::STOP);
    let heals = |at| server.becomes_ready(at);
    survives_a_stopped_leader(on(&server), || server.leader(), cut, heals);
}

#[test]
fn fault_46_requests_to_zookeeper_are_delivered_late_and_twice() {
    let server = ZookeeperServer::start();
    let proxy = MessageProxy::before(server.members[0].port);
    let mut cluster = at(proxy.port, lease_of(12), &["a", "b"]);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    for _ in 0..3 {
        proxy.delay(1);
        until(PATIENCE, "a request is late", || (proxy.pending() == 0).then_some(()));
        renews_on(&cluster.candidates[leader]);
    }
    assert_eq!(cluster.term(leader), term);
    // The release, and the bid of the other.
    cluster.releases(leader);
    proxy.delay(4);
    cluster.candidates[leader].signal(Signal::TERM);
    cluster.leads(1 - leader, PATIENCE);
    until(PATIENCE, "all were late", || (proxy.pending() == 0).then_some(()));
    renews_on(&cluster.candidates[1 - leader]);
    assert_eq!(cluster.verdict().terms.len(), 2, "one after the other, in one term each");
}

/// A copy in which nobody holds the lease. Its server refuses all clients that have seen more than it has.
#[test]
fn fault_50_zookeeper_is_restored_from_an_older_copy_and_one_leads_without_a_restart() {
    let mut server = ZookeeperServer::start();
    let store = zookeeper::open(&server.settings("default")).expect("good settings");
    testkit::blocking(async { store.create(7).await.expect("created") });
    let copy = server.copy();
    let cluster = on(&server);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    server.restore(copy.path());
    lapses(&cluster.candidates[leader]);
    let next = cluster.settle();
    assert!(cluster.term(next) > term, "the record has an older one");
    logs(&cluster.candidates[next], "if the ensemble was restored");
    assert_eq!(cluster.verdict().terms.len(), 2);
}

#[test]
fn fault_51_notifications_of_zookeeper_are_lost_while_the_connections_live() {
    let server = ZookeeperServer::start();
    let proxy = MessageProxy::before(server.members[0].port);
    let cluster = at(proxy.port, lease_of(6), &["a", "b"]);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    proxy.silence();
    until(PATIENCE, "some are lost", || (proxy.kept_back() > 1).then_some(()));
    wait_for_two_leases(&cluster);
    assert_eq!(cluster.term(leader), term, "reads show that it renews");
    cluster.candidates[leader].signal(Signal::KILL);
    cluster.leads(1 - leader, PATIENCE);
    assert_eq!(cluster.verdict().terms.len(), 2);
}

#[test]
fn fault_46_the_disk_of_zookeeper_is_full() {
    let disk = SmallDisk::new(8 * 1024);
    let mut server = ZookeeperServer::start_in(disk.path());
    let empty = |it: &mut ZookeeperServer| {
        disk.empty();
        it.restart(0..1);
    };
    outlasts(on(&server), &mut server, |_| disk.fill(), empty);
}

#[test]
fn fault_46_rights_are_taken_away_in_zookeeper_while_leading() {
    let server = ZookeeperServer::secured();
    let (take, give) = (|| server.take_rights("default"), || server.give_rights("default"));
    outlasts_taken_rights(on(&server), take, give, &["correct-horse"]);
}

#[test]
fn fault_46_certificates_of_zookeeper_are_replaced_while_leading() {
    let server = ZookeeperServer::secured();
    keeps_its_term(on(&server), || server.replace_certificates());
}
