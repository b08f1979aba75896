//! Faults of a stand-in for MongoDB, with real candidates: the server is killed and stopped, is without a
//! majority, fails over, answers break off, the disk is full, rights are taken away, certificates are
//! replaced. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::mongodb::front::{Front, Users};
use testkit::mongodb::server::{MongoServer, USER, store, variables};
use testkit::processes::cluster::Cluster;

use std::cell::Cell;

use super::on_server::{
    LONG, compete, keeps_its_term, lease_of, outlasts, outlasts_a_stop, outlasts_taken_rights,
    outlasts_two_leases, survives_half_answers,
};

fn on(server: &MongoServer) -> Cluster {
    compete(server.arguments(), server.variables(), lease_of(8), &["a", "b", "c"])
}

#[test]
fn fault_46_mongodb_is_killed_and_restarted() {
    let mut server = MongoServer::start();
    outlasts(on(&server), &mut server, |it| it.process.kill(), MongoServer::restart);
}

#[test]
fn fault_46_mongodb_is_stopped_for_two_leases() {
    let server = MongoServer::start();
    outlasts_a_stop(on(&server), |it| server.signal(it), || server.becomes_ready());
}

/// Its writes are done on the primary alone, which says so, and are rolled back.
#[test]
fn fault_46_a_primary_of_mongodb_without_a_majority_grants_nothing() {
    let mut server = MongoServer::start();
    let has = |server: &MongoServer, majority| server.front.change(|it| it.has_majority = majority);
    outlasts_two_leases(on(&server), &mut server, |it| has(it, false), |it| has(it, true));
}

#[test]
fn fault_46_mongodb_fails_over_and_the_leader_keeps_its_term() {
    let server = MongoServer::start();
    let other = Front::before(server.port, Users::Password(USER.0, USER.1.to_owned()));
    let ports = [server.front.port, other.port];
    let is_other = Cell::new(false);
    let fail_over = || {
        is_other.set(!is_other.get());
        let primary = format!("127.0.0.1:{}", ports[usize::from(is_other.get())]);
        for (front, is_primary) in [(&server.front, !is_other.get()), (&other, is_other.get())] {
            front.change(|it| (it.is_primary, it.primary) = (is_primary, Some(primary.clone())));
        }
    };
    let members = ports.map(|it| format!("127.0.0.1:{it}"));
    for front in [&server.front, &other] {
        front.change(|it| it.members = members.clone().into());
    }
    let primary = members[0].clone();
    other.change(|it| (it.is_primary, it.primary) = (false, Some(primary)));
    keeps_its_term(compete(store(&ports), variables(), LONG, &["a", "b", "c"]), fail_over);
}

#[test]
fn fault_46_connections_to_mongodb_are_reset_half_way_through_an_answer() {
    let server = MongoServer::start();
    // Each new connection would sign in, which takes a debug build long.
    server.front.change(|it| it.users = Users::All);
    // The answer to a replacement has 137 bytes.
    let proxy = HalfAnswer::before(server.front.port, b"\x89\0\0\0");
    let cluster = compete(store(&[proxy.port]), Vec::new(), LONG, &["a", "b"]);
    survives_half_answers(cluster, &proxy, 5);
}

#[test]
fn fault_46_the_disk_of_mongodb_is_full() {
    let disk = SmallDisk::new(4_096);
    let mut server = MongoServer::on(disk.path());
    let empty = |it: &mut MongoServer| {
        disk.empty();
        it.restart();
    };
    outlasts(on(&server), &mut server, |_| disk.fill(), empty);
}

#[test]
fn fault_46_rights_are_taken_away_in_mongodb_while_leading() {
    let server = MongoServer::start();
    let denies = |denied| server.front.change(|it| it.denies = denied);
    outlasts_taken_rights(on(&server), || denies(true), || denies(false), &[USER.1]);
}

#[test]
fn fault_46_certificates_of_mongodb_are_replaced_while_leading() {
    let server = MongoServer::secured();
    keeps_its_term(on(&server), || server.replace_certificates());
}
