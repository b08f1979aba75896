//! Faults of Consul itself, with real candidates: its servers are killed, stopped and without quorum, the
//! agent of a session leaves, answers break off, the disk is full, rights are taken away, certificates are replaced. Fault 46.

use testkit::consul::server::{ConsulServer, PREFIX, Server, TOKEN};
use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::processes::cluster::{Cluster, PATIENCE, Timings};
use testkit::processes::process::{Process, until};

use std::cell::RefCell;
use std::time::Duration;

use rustix::process::Signal;

use super::on_server::{
    LONG, compete, keeps_its_term, outlasts, outlasts_taken_rights, outlasts_two_leases, renews_on,
    survives_half_answers, wait_for_two_leases,
};

/// The shortest lease that Consul has, with a margin of two seconds, and a renew-deadline for a busy machine.
const ON_CONSUL: Timings = Timings {
    lease_duration: Duration::from_secs(10),
    renew_deadline: Duration::from_secs(8),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_millis(1_500),
};

fn on(server: &ConsulServer) -> Cluster {
    compete(server.arguments(), server.variables(), ON_CONSUL, &["a", "b", "c"])
}

#[test]
fn fault_46_consul_is_killed_and_restarted() {
    let server = RefCell::new(ConsulServer::start());
    let cluster = on(&server.borrow());
    let restart = || {
        server.borrow_mut().servers[0].restart();
        server.borrow().becomes_ready(0);
    };
    // The sessions have outlived the restart, and count their time anew.
    outlasts(cluster, || server.borrow_mut().servers[0].process.kill(), restart);
}

#[test]
fn fault_46_consul_is_stopped_for_two_leases() {
    let server = ConsulServer::start();
    let go_on = || {
        server.signal(0, Signal::CONT);
        server.becomes_ready(0);
    };
    outlasts_two_leases(on(&server), &ON_CONSUL, || server.signal(0, Signal::STOP), go_on);
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
    let server = RefCell::new(ConsulServer::three());
    let cluster = on(&server.borrow());
    let kill = || {
        let servers = &mut server.borrow_mut().servers;
        servers[1..].iter_mut().for_each(|it| it.process.kill());
    };
    let restart = || {
        server.borrow_mut().servers[1..].iter_mut().for_each(Server::restart);
        (0..3).for_each(|at| server.borrow().becomes_ready(at));
    };
    outlasts_two_leases(cluster, &ON_CONSUL, kill, restart);
}

/// A server that wakes up may answer as the leader that it was, and end sessions whose renewals it has missed.
#[test]
fn fault_46_the_leader_of_consul_is_stopped_for_two_leases_and_ends_no_live_session() {
    let server = ConsulServer::three();
    let cluster = on(&server);
    cluster.settle();
    let stopped = server.leader();
    server.signal(stopped, Signal::STOP);
    wait_for_two_leases(&ON_CONSUL);
    // The other two have a leader by now, whichever of the candidates that leaves in the lead.
    let leader = cluster.settle();
    let term = cluster.term(leader);
    server.signal(stopped, Signal::CONT);
    server.becomes_ready(stopped);
    renews_on(&cluster.candidates[leader]);
    assert_eq!(cluster.term(leader), term);
    cluster.verdict();
}

/// Returns how often a candidate has bid in vain: the series is there from the first time on.
fn refused_bids(candidate: &Process) -> u64 {
    let (_, text) = candidate.get("/metrics").expect("it answers");
    let is_it = |line: &&str| line.contains(r#"op="acquire",outcome="refused""#);
    let line = text.lines().filter(|it| it.starts_with("tenure_store_requests_total")).find(is_it);
    line.map_or(0, |it| it.rsplit(' ').next().unwrap().parse().expect("a number"))
}

/// Consul ends the session of the leader at once, which does not know it until its next renewal: a candidate that
/// is told of it may bid before.
#[test]
fn fault_46_the_agent_of_the_session_leaves_while_leading() {
    let server = ConsulServer::start();
    let cluster = on(&server);
    let leader = cluster.settle();
    let others = || cluster.candidates.iter().enumerate().filter(|it| it.0 != leader);
    let bids = || others().map(|it| refused_bids(it.1)).sum::<u64>();
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
    wait_for_two_leases(&ON_CONSUL);
    disk.empty();
    server.servers[0].restart();
    server.becomes_ready(0);
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
