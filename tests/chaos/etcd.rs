//! Faults of etcd itself, with real candidates: its members are killed, stopped and without quorum,
//! answers break off, rights are taken away, certificates are replaced, requests are late and come twice, older
//! data is restored, a watch is silent. Faults 14, 46, 50 and 51.

use testkit::etcd::server::{EtcdServer, PREFIX};
use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::muffled::Muffled;
use testkit::processes::cluster::Cluster;

use super::on_server::{
    LONG, compete, keeps_its_term, late_and_twice, lease_of, outlasts, outlasts_a_restore,
    outlasts_a_stop, outlasts_taken_rights, outlasts_two_leases, survives_a_silent_watch,
    survives_a_stopped_leader, survives_half_answers, survives_late_requests,
};

fn on(server: &EtcdServer) -> Cluster {
    compete(server.arguments(), server.variables(), lease_of(6), &["a", "b", "c"])
}

/// Lets two candidates compete through a proxy.
fn behind(port: u16) -> Cluster {
    let arguments = vec!["--store".to_owned(), format!("etcd://127.0.0.1:{port}/{PREFIX}")];
    compete(arguments, Vec::new(), lease_of(6), &["a", "b"])
}

#[test]
fn fault_46_etcd_is_killed_and_restarted() {
    let mut server = EtcdServer::start();
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

#[test]
fn fault_46_the_leader_of_etcd_is_stopped_for_two_leases_and_continues() {
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

#[test]
fn fault_14_requests_to_etcd_are_late_and_come_twice() {
    let server = EtcdServer::start();
    let port = late_and_twice(server.members[0].port, "/v3/kv/txn");
    survives_late_requests(behind(port));
}

#[test]
fn fault_50_older_data_of_etcd_is_restored_while_an_instance_leads() {
    let mut server = EtcdServer::start();
    outlasts_a_restore(on(&server), &mut server, EtcdServer::save, EtcdServer::restore);
}

#[test]
fn fault_51_the_watch_on_etcd_is_silent_while_its_connection_lives() {
    let server = EtcdServer::start();
    let proxy = Muffled::before(server.members[0].port, "/v3/watch");
    survives_a_silent_watch(behind(proxy.port), &proxy);
}
