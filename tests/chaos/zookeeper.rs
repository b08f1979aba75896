//! Faults of ZooKeeper itself, with real candidates: its servers are killed, stopped and without quorum,
//! answers break off, the disk is full, rights are taken away, certificates are replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::cluster::Cluster;
use testkit::zookeeper::server::{PATH, ZookeeperServer};

use super::on_server::{
    LONG, compete, keeps_its_term, lease_of, outlasts, outlasts_a_stop, outlasts_taken_rights,
    outlasts_two_leases, survives_a_stopped_leader, survives_half_answers,
};

fn on(server: &ZookeeperServer) -> Cluster {
    compete(server.arguments(), server.variables(), lease_of(9), &["a", "b", "c"])
}

#[test]
fn fault_46_zookeeper_is_killed_and_restarted() {
    let mut server = ZookeeperServer::start();
    // The sessions have outlived the restart, and count their time anew.
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
    let store = format!("zookeeper://127.0.0.1:{}/{PATH}", proxy.port);
    let arguments = vec!["--store".to_owned(), store];
    survives_half_answers(compete(arguments, Vec::new(), LONG, &["a", "b"]), &proxy, 5);
}

#[test]
fn fault_46_a_server_of_zookeeper_without_quorum_refuses_nothing() {
    let mut server = ZookeeperServer::three();
    outlasts_two_leases(on(&server), &mut server, |it| it.kill(1..3), |it| it.restart(1..3));
}

/// When it goes on, it finds all sessions ended that it knows of, and those since then are unknown to it.
#[test]
fn fault_46_the_leader_of_zookeeper_is_stopped_for_two_leases_and_ends_no_live_session() {
    let server = ZookeeperServer::three();
    let (leader, signal) = (|| server.leader(), |at, it| server.signal(at, it));
    survives_a_stopped_leader(on(&server), leader, signal, |at| server.becomes_ready(at));
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
