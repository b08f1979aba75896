//! Faults of PostgreSQL itself, with real candidates: the server is killed and stopped, its synchronous
//! standby is lost or promoted, answers break off, the disk is full, rights are taken away, certificates
//! are replaced, a pooler stands before it. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::small_disk::SmallDisk;
use testkit::postgres::pooler::Pooler;
use testkit::postgres::server::{PostgresServer, store, variables};
use testkit::processes::{cluster, process};

use std::cell::RefCell;
use std::time::Duration;

use cluster::{Cluster, PATIENCE, Timings};
use process::until;
use rustix::process::Signal;

use super::on_server::{
    LONG, compete, keeps_its_term, lapses, outlasts, outlasts_taken_rights, outlasts_two_leases,
    renews_on, survives_half_answers, wait_for_two_leases,
};

/// A lease with a margin of two seconds, and a renew-deadline for a busy machine.
const ON_POSTGRES: Timings = Timings {
    lease_duration: Duration::from_secs(8),
    renew_deadline: Duration::from_secs(6),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_millis(1_500),
};

fn on(arguments: Vec<String>) -> Cluster {
    compete(arguments, variables(), ON_POSTGRES, &["a", "b", "c"])
}

/// Returns a server whose commits wait for a standby, and that standby.
fn replicated() -> (PostgresServer, PostgresServer) {
    let server = PostgresServer::start();
    let standby = server.standby();
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    server.sql("SELECT pg_reload_conf()");
    (server, standby)
}

#[test]
fn fault_46_postgres_is_killed_and_restarted() {
    let server = RefCell::new(PostgresServer::start());
    let cluster = on(server.borrow().arguments());
    outlasts(cluster, || server.borrow_mut().kill(), || server.borrow_mut().restart());
}

#[test]
fn fault_46_postgres_is_stopped_for_two_leases() {
    let server = PostgresServer::start();
    let (stop, go_on) = (|| server.signal(Signal::STOP), || server.signal(Signal::CONT));
    outlasts_two_leases(on(server.arguments()), &ON_POSTGRES, stop, go_on);
}

#[test]
fn fault_46_connections_to_postgres_are_reset_half_way_through_an_answer() {
    let server = PostgresServer::start();
    // A transaction is answered by a CommandComplete of its first statement.
    let proxy = HalfAnswer::before(server.port, b"C\0\0\0\x08SET\0");
    let cluster = compete(store(&[proxy.port]), variables(), LONG, &["a", "b"]);
    survives_half_answers(cluster, &proxy, 5);
}

#[test]
fn fault_46_the_primary_is_lost_and_its_synchronous_standby_promoted() {
    let (mut server, standby) = replicated();
    let cluster = on(store(&[server.port, standby.port]));
    let leader = cluster.settle();
    let term = cluster.term(leader);
    server.kill();
    standby.promote();
    // Whoever leads then, the lease was not lost: the next term is above this one.
    let next = cluster.settle();
    assert!(cluster.term(next) >= term);
    renews_on(&cluster.candidates[next]);
    cluster.verdict();
}

/// What the page on PostgreSQL advises: no lease that the standby may not know of is left by then.
#[test]
fn fault_46_an_asynchronous_standby_is_promoted_a_lease_after_the_primary_was_lost() {
    let mut server = PostgresServer::start();
    let standby = server.standby();
    let cluster = on(store(&[server.port, standby.port]));
    let leader = cluster.settle();
    server.kill();
    lapses(&cluster.candidates[leader]);
    wait_for_two_leases(&ON_POSTGRES);
    standby.promote();
    let next = cluster.settle();
    renews_on(&cluster.candidates[next]);
    assert!(cluster.verdict().terms.len() >= 2);
}

/// The old primary goes on, cut off from nobody but its standby, which it waits for in vain.
#[test]
fn fault_46_a_synchronous_standby_is_promoted_while_the_primary_goes_on() {
    let (server, standby) = replicated();
    let both = store(&[server.port, standby.port]);
    let cluster = compete(both, variables(), ON_POSTGRES, &["a", "b"]);
    cluster.settle();
    standby.promote();
    wait_for_two_leases(&ON_POSTGRES);
    let leader = cluster.settle();
    renews_on(&cluster.candidates[leader]);
    let claim = "SELECT ends > clock_timestamp() FROM tenure";
    assert_eq!(standby.sql(claim), "t", "it is renewed there");
    // Of what it was asked meanwhile, the old one has let nobody know that it is done.
    drop(server);
    cluster.verdict();
}

#[test]
fn fault_46_a_primary_without_its_synchronous_standby_grants_nothing() {
    let (server, standby) = replicated();
    let standby = RefCell::new(standby);
    let (kill, restart) = (|| standby.borrow_mut().kill(), || standby.borrow_mut().restart());
    outlasts_two_leases(on(server.arguments()), &ON_POSTGRES, kill, restart);
}

#[test]
fn fault_46_the_disk_of_postgres_is_full() {
    let disk = SmallDisk::new(200 * 1024);
    let server = RefCell::new(PostgresServer::start_in(disk.path()));
    let cluster = on(server.borrow().arguments());
    let fill = || {
        disk.fill();
        let log = "SELECT pg_logical_emit_message(false, 'fills', repeat('x', 1000000))";
        let has_failed = || server.borrow().fails(log).then_some(());
        until(PATIENCE, "the log has no room", has_failed);
    };
    let empty = || {
        disk.empty();
        server.borrow_mut().restart();
    };
    outlasts(cluster, fill, empty);
}

#[test]
fn fault_46_rights_are_taken_away_in_postgres_while_leading() {
    let server = PostgresServer::start();
    let take = || drop(server.sql("ALTER TABLE tenure OWNER TO admin"));
    let give = || drop(server.sql("GRANT SELECT, INSERT, UPDATE ON tenure TO elections"));
    outlasts_taken_rights(on(server.arguments()), take, give, &["correct horse"]);
}

#[test]
fn fault_46_certificates_of_postgres_are_replaced_while_leading() {
    let server = PostgresServer::secured();
    keeps_its_term(on(server.arguments()), || {
        server.replace_certificates();
        // The next connection is made with the new ones.
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'elections'",
        );
    });
}

#[test]
fn fault_46_a_pooler_with_one_connection_serves_all_candidates() {
    let server = PostgresServer::start();
    let pooler = Pooler::before(&server);
    let mut cluster = compete(store(&[pooler.port]), variables(), ON_POSTGRES, &["a", "b"]);
    let leader = cluster.settle();
    renews_on(&cluster.candidates[leader]);
    cluster.releases(leader);
    cluster.candidates[leader].signal(Signal::TERM);
    cluster.leads(1 - leader, PATIENCE);
    assert_eq!(cluster.verdict().terms.len(), 2);
}
