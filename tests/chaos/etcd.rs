//! Faults of etcd itself, with real candidates: its members are killed, stopped and without quorum,
//! answers break off, rights are taken away, certificates are replaced. Fault 46.

use testkit::etcd::server::{EtcdServer, PREFIX};
use testkit::faults::half_answer::HalfAnswer;
use testkit::processes::cluster::Cluster;

use super::on_server::{
    LONG, compete, keeps_its_term, lease_of, outlasts, outlasts_a_stop, outlasts_taken_rights,
    outlasts_two_leases, survives_a_stopped_leader, survives_half_answers,
};

fn on(server: &EtcdServer) -> Cluster {
    compete(server.arguments(), server.variables(), lease_of(9), &["a", "b", "c"])
}

#[test]
fn fault_46_etcd_is_killed_and_restarted() {
    let mut server = EtcdServer::start();
    // The leases have outlived the restart, and count their time anew.
    outlasts(on(&server), &mut server, |it| it.kill(0..1), |it| it.restart(0..1));
}

#[test]
fn fault_46_etcd_is_stopped_for_two_leases() {
    let server = EtcdServer::start();
    outlasts_a_stop(on(&server), |it| server.signal(0, it), || server.becomes_ready(0));
}

#[test]
fn fault_46_connections_are_reset_half_way_through_an_answer() {
    let server = EtcdServer::start();
    let proxy = HalfAnswer::before(server.members[0].port, b"HTTP/1.1");
    let store = format!("etcd://127.0.0.1:{}/{PREFIX}", proxy.port);
    let arguments = vec!["--store".to_owned(), store];
    survives_half_answers(compete(arguments, Vec::new(), LONG, &["a", "b"]), &proxy, 5);
}

#[test]
fn fault_46_a_member_without_quorum_refuses_nothing() {
    let mut server = EtcdServer::three();
    outlasts_two_leases(on(&server), &mut server, |it| it.kill(1..3), |it| it.restart(1..3));
}

/// A member that wakes up may still have leases ended whose keepalives it has missed (etcd's issue 15247).
#[test]
fn fault_46_the_leader_of_etcd_is_stopped_for_two_leases_and_ends_no_live_one() {
    let server = EtcdServer::three();
    let (leader, signal) = (|| server.leader(), |at, it| server.signal(at, it));
    survives_a_stopped_leader(on(&server), leader, signal, |at| server.becomes_ready(at));
}

#[test]
fn fault_46_rights_are_taken_away_while_leading() {
    let server = EtcdServer::secured();
    let (take, give) = (|| server.take_rights(), || server.give_rights());
    outlasts_taken_rights(on(&server), take, give, &["correct horse"]);
}

#[test]
fn fault_46_certificates_are_replaced_while_leading() {
    let server = EtcdServer::secured();
    keeps_its_term(on(&server), || server.replace_certificates());
}
