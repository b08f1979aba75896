//! Faults of ZooKeeper itself, with real candidates: its servers are killed, stopped and without quorum,
//! answers break off, the disk is full, rights are taken away, certificates are replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::cluster::{Cluster, Timings};
use testkit::zookeeper::server::{Member, PATH, ZookeeperServer};

use std::cell::RefCell;
use std::time::Duration;

use rustix::process::Signal;

use super::on_server::{
    LONG, compete, keeps_its_term, outlasts, outlasts_taken_rights, outlasts_two_leases, renews_on,
    survives_half_answers, wait_for_two_leases,
};

/// A lease with a margin of two seconds, and a renew-deadline for a busy machine.
const ON_ZOOKEEPER: Timings = Timings {
    lease_duration: Duration::from_secs(9),
    renew_deadline: Duration::from_secs(7),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_millis(1_500),
};

fn on(server: &ZookeeperServer) -> Cluster {
    compete(server.arguments(), server.variables(), ON_ZOOKEEPER, &["a", "b", "c"])
}

#[test]
fn fault_46_zookeeper_is_killed_and_restarted() {
    let server = RefCell::new(ZookeeperServer::start());
    let cluster = on(&server.borrow());
    let restart = || {
        server.borrow_mut().members[0].restart();
        server.borrow().becomes_ready(0);
    };
    // The sessions have outlived the restart, and count their time anew.
    outlasts(cluster, || server.borrow_mut().members[0].process.kill(), restart);
}

#[test]
fn fault_46_zookeeper_is_stopped_for_two_leases() {
    let server = ZookeeperServer::start();
    let go_on = || {
        server.signal(0, Signal::CONT);
        server.becomes_ready(0);
    };
    outlasts_two_leases(on(&server), &ON_ZOOKEEPER, || server.signal(0, Signal::STOP), go_on);
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
    let server = RefCell::new(ZookeeperServer::three());
    let cluster = on(&server.borrow());
    let kill = || {
        let members = &mut server.borrow_mut().members;
        members[1..].iter_mut().for_each(|it| it.process.kill());
    };
    let restart = || {
        server.borrow_mut().members[1..].iter_mut().for_each(Member::restart);
        (0..3).for_each(|member| server.borrow().becomes_ready(member));
    };
    outlasts_two_leases(cluster, &ON_ZOOKEEPER, kill, restart);
}

/// When it goes on, it finds all sessions ended that it knows of, and those since then are unknown to it.
#[test]
fn fault_46_the_leader_of_zookeeper_is_stopped_for_two_leases_and_ends_no_live_session() {
    let server = ZookeeperServer::three();
    let cluster = on(&server);
    cluster.settle();
    let stopped = server.leader();
    server.signal(stopped, Signal::STOP);
    wait_for_two_leases(&ON_ZOOKEEPER);
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
fn fault_46_the_disk_of_zookeeper_is_full() {
    let disk = SmallDisk::new(8 * 1024);
    let server = RefCell::new(ZookeeperServer::start_in(disk.path()));
    let cluster = on(&server.borrow());
    let empty = || {
        disk.empty();
        server.borrow_mut().members[0].restart();
        server.borrow().becomes_ready(0);
    };
    outlasts(cluster, || disk.fill(), empty);
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
