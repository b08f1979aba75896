//! Faults of Consul itself, with real candidates: its servers are killed, stopped and without quorum, the
//! agent of a session leaves, answers break off, the disk is full, rights are taken away, certificates are replaced. Fault 46.

use testkit::consul::server::{ConsulServer, PREFIX, TOKEN};
use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::cluster::{Cluster, PATIENCE};
use testkit::processes::process::until;

use rustix::process::Signal;

use super::on_server::{
    LONG, compete, counted, keeps_its_term, lease_of, outlasts, outlasts_a_stop,
    outlasts_taken_rights, outlasts_two_leases, renews_on, survives_a_stopped_leader,
    survives_half_answers, wait_for_two_leases,
};

/// The lease is the shortest that Consul has.
fn on(server: &ConsulServer) -> Cluster {
    compete(server.arguments(), server.variables(), lease_of(10), &["a", "b", "c"])
}

#[test]
fn fault_46_consul_is_killed_and_restarted() {
    let mut server = ConsulServer::start();
    // The sessions have outlived the restart, and count their time anew.
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

/// A server that wakes up may answer as the leader that it was, and end sessions whose renewals it has missed.
#[test]
fn fault_46_the_leader_of_consul_is_stopped_for_two_leases_and_ends_no_live_session() {
    let server = ConsulServer::three();
    let (leader, signal) = (|| server.leader(), |at, it| server.signal(at, it));
    survives_a_stopped_leader(on(&server), leader, signal, |at| server.becomes_ready(at));
}

/// Consul ends the session of the leader at once, which does not know it until its next renewal: a candidate that
/// is told of it may bid before.
#[test]
fn fault_46_the_agent_of_the_session_leaves_while_leading() {
    let server = ConsulServer::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    let others = || cluster.candidates.iter().enumerate().filter(|it| it.0 != leader);
    let bids = || others().filter_map(|it| counted(it.1, "acquire", "refused")).sum::<u64>();
    let before = bids();
    cluster.candidates[leader].signal(Signal::STOP);
    server.leave_and_join(0);
    // The others are told, and bid in vain until the stopped leader has ceased to believe.
    until(PATIENCE, "a candidate has bid in vain", || (bids() > before).then_some(()));
    let stopped = &cluster.candidates[leader];
    stopped.signal(Signal::CONT);
    until(PATIENCE, "its renewal is refused", || (!stopped.is_leader()).then_some(()));
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

/// Renewals write nothing, so that the leader may go on where Consul does.
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
