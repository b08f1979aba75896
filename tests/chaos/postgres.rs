//! Faults of PostgreSQL itself, with real candidates: the server is killed and stopped, its synchronous
//! standby is lost or promoted, answers break off, the disk is full, rights are taken away, certificates
//! are replaced, a pooler stands before it. Fault 46.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::muffled::Muffled;
use testkit::faults::small_disk::SmallDisk;
use testkit::postgres::pooler::Pooler;
use testkit::postgres::server::{PostgresServer, store, variables};
use testkit::processes::{cluster, process};

use cluster::{Cluster, PATIENCE};
use process::until;
use rustix::process::Signal;

use super::on_server::{
    LONG, compete, keeps_its_term, lapses, lease_of, outlasts, outlasts_a_restore, outlasts_a_stop,
    outlasts_taken_rights, outlasts_two_leases, renews_on, survives_a_failover,
    survives_a_silent_watch, survives_half_answers, wait_for_two_leases,
};

fn on(arguments: Vec<String>) -> Cluster {
    compete(arguments, variables(), lease_of(8), &["a", "b", "c"])
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
    let mut server = PostgresServer::start();
    outlasts(on(server.arguments()), &mut server, PostgresServer::kill, PostgresServer::restart);
}

#[test]
fn fault_46_postgres_is_stopped_for_two_leases() {
    let server = PostgresServer::start();
    let cluster = on(server.arguments());
    outlasts_a_stop(cluster, |it| server.signal(it), || server.becomes_ready());
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
    survives_a_failover(on(store(&[server.port, standby.port])), |_| {
        server.kill();
        standby.promote();
    });
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
    wait_for_two_leases(&cluster);
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
    let cluster = compete(both, variables(), lease_of(8), &["a", "b"]);
    cluster.settle();
    standby.promote();
    wait_for_two_leases(&cluster);
    let leader = cluster.settle();
    renews_on(&cluster.candidates[leader]);
    let write = || standby.sql("SELECT write FROM tenure");
    let before = write();
    until(PATIENCE, "it is renewed there", || (write() != before).then_some(()));
    // Of what it was asked meanwhile, the old one has let nobody know that it is done.
    drop(server);
    cluster.verdict();
}

#[test]
fn fault_46_a_primary_without_its_synchronous_standby_grants_nothing() {
    let (server, mut standby) = replicated();
    let cluster = on(server.arguments());
    outlasts_two_leases(cluster, &mut standby, PostgresServer::kill, PostgresServer::restart);
}

#[test]
fn fault_46_the_disk_of_postgres_is_full() {
    let disk = SmallDisk::new(200 * 1024);
    let mut server = PostgresServer::start_in(disk.path());
    let fill = |it: &mut PostgresServer| {
        disk.fill();
        let log = "SELECT pg_logical_emit_message(false, 'fills', repeat('x', 1000000))";
        until(PATIENCE, "the log has no room", || it.fails(log).then_some(()));
    };
    let empty = |it: &mut PostgresServer| {
        disk.empty();
        it.restart();
    };
    outlasts(on(server.arguments()), &mut server, fill, empty);
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
    let mut cluster = compete(store(&[pooler.port]), variables(), lease_of(8), &["a", "b"]);
    let leader = cluster.settle();
    renews_on(&cluster.candidates[leader]);
    cluster.releases(leader);
    cluster.candidates[leader].signal(Signal::TERM);
    cluster.leads(1 - leader, PATIENCE);
    assert_eq!(cluster.verdict().terms.len(), 2);
}

#[test]
fn fault_50_older_data_of_postgres_is_restored_while_an_instance_leads() {
    let mut server = PostgresServer::start();
    outlasts_a_restore(
        on(server.arguments()),
        &mut server,
        PostgresServer::save,
        PostgresServer::restore,
    );
}

#[test]
fn fault_51_notifications_of_postgres_are_lost_while_their_connection_lives() {
    let server = PostgresServer::start();
    let proxy = Muffled::before(server.port, "LISTEN tenure");
    let cluster = compete(store(&[proxy.port]), variables(), lease_of(8), &["a", "b"]);
    survives_a_silent_watch(cluster, &proxy);
}
