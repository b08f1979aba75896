//! Faults of Consul itself, with real candidates: its servers are killed, stopped and without quorum, answers
//! break off, the disk is full, rights are taken away, certificates are replaced, requests are late and come
//! twice, older data is restored, a watch is silent. Faults 14, 46, 50 and 51.

use testkit::consul::server::{ConsulServer, PREFIX, TOKEN};
use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::muffled::Muffled;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::cluster::{Cluster, PATIENCE};
use testkit::processes::process::until;

use super::on_server::{
    LONG, compete, keeps_its_term, late_and_twice, lease_of, outlasts, outlasts_a_restore,
    outlasts_a_stop, outlasts_taken_rights, outlasts_two_leases, renews_on,
    survives_a_silent_watch, survives_a_stopped_leader, survives_half_answers,
    survives_late_requests, wait_for_two_leases,
};

fn on(server: &ConsulServer) -> Cluster {
    compete(server.arguments(), server.variables(), lease_of(6), &["a", "b", "c"])
}

/// Lets two candidates compete through a proxy.
fn behind(port: u16) -> Cluster {
    let arguments = vec!["--store".to_owned(), format!("consul://127.0.0.1:{port}/{PREFIX}")];
    compete(arguments, Vec::new(), lease_of(6), &["a", "b"])
}

#[test]
fn fault_46_consul_is_killed_and_restarted() {
    let mut server = ConsulServer::start();
    outlasts(on(&server), &mut server, |it| it.kill(0..1), |it| it.restart(0..1));
}

#[test]
fn fault_46_consul_is_stopped_for_two_leases() {
    let server = ConsulServer::start();
    outlasts_a_stop(on(&server), |it| server.signal(0, it), || server.becomes_ready(0));
}

#[test]
fn fault_46_connections_to_consul_are_reset_half_way_through_an_answer() {
    let server = ConsulServer::start();
    let proxy = HalfAnswer::before(server.servers[0].port, b"HTTP/1.1");
    let store = format!("consul://127.0.0.1:{}/{PREFIX}", proxy.port);
    let arguments = vec!["--store".to_owned(), store];
    survives_half_answers(compete(arguments, Vec::new(), LONG, &["a", "b"]), &proxy, 5);
}

#[test]
fn fault_46_a_server_of_consul_without_quorum_refuses_nothing() {
    let mut server = ConsulServer::three();
    outlasts_two_leases(on(&server), &mut server, |it| it.kill(1..3), |it| it.restart(1..3));
}

/// A server that wakes up may answer as the leader that it was.
#[test]
fn fault_46_the_leader_of_consul_is_stopped_for_two_leases_and_continues() {
    let server = ConsulServer::three();
    let (leader, signal) = (|| server.leader(), |at, it| server.signal(at, it));
    survives_a_stopped_leader(on(&server), leader, signal, |at| server.becomes_ready(at));
}

#[test]
fn fault_46_the_disk_of_consul_is_full() {
    let disk = SmallDisk::new(32 * 1024);
    let mut server = ConsulServer::start_in(disk.path());
    let cluster = on(&server);
    cluster.settle();
    disk.fill();
    until(PATIENCE, "the log has no room", || (!server.writes()).then_some(()));
    wait_for_two_leases(&cluster);
    disk.empty();
    server.restart(0..1);
    let leader = cluster.settle();
    renews_on(&cluster.candidates[leader]);
    cluster.verdict();
}

#[test]
fn fault_46_rights_are_taken_away_in_consul_while_leading() {
    let server = ConsulServer::secured();
    let (take, give) = (|| server.take_rights(), || server.give_rights());
    outlasts_taken_rights(on(&server), take, give, &[TOKEN]);
}

#[test]
fn fault_46_certificates_of_consul_are_replaced_while_leading() {
    let server = ConsulServer::secured();
    keeps_its_term(on(&server), || server.replace_certificates());
}

#[test]
fn fault_14_requests_to_consul_are_late_and_come_twice() {
    let server = ConsulServer::start();
    survives_late_requests(behind(late_and_twice(server.servers[0].port, "/v1/txn")));
}

#[test]
fn fault_50_older_data_of_consul_is_restored_while_an_instance_leads() {
    let mut server = ConsulServer::start();
    outlasts_a_restore(on(&server), &mut server, ConsulServer::save, ConsulServer::restore);
}

#[test]
fn fault_51_the_watch_on_consul_is_silent_while_its_connection_lives() {
    let server = ConsulServer::start();
    let proxy = Muffled::before(server.servers[0].port, "?index=");
    survives_a_silent_watch(behind(proxy.port), &proxy);
}
