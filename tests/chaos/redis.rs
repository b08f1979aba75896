//! Faults of Redis itself, with real candidates: the server is killed and stopped, a replica is promoted with
//! and without the last writes, answers break off, the disk is full, rights are taken away, certificates are
//! replaced. Fault 46.

use testkit::blocking;
use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::muffled::Muffled;
use testkit::faults::small_disk::SmallDisk;
use testkit::ports::free_port;
use testkit::processes::{cluster, process};
use testkit::redis::server::{Keeps, RedisServer, store, variables};

use cluster::{Cluster, PATIENCE};
use process::until;
use tenure::store::redis;

use super::on_server::{
    LONG, compete, keeps_its_term, lapses, lease_of, outlasts, outlasts_a_restore, outlasts_a_stop,
    outlasts_taken_rights, renews_on, survives_a_failover, survives_a_silent_watch,
    survives_half_answers,
};

fn on(arguments: Vec<String>) -> Cluster {
    compete(arguments, variables(), lease_of(8), &["a", "b", "c"])
}

fn killed_and_restarted(keeps: Keeps) {
    let mut server = RedisServer::keeping(keeps);
    outlasts(on(server.arguments()), &mut server, RedisServer::kill, RedisServer::restart);
}

#[test]
fn fault_46_redis_is_killed_and_restarted() {
    killed_and_restarted(Keeps::All);
}

/// Neither lease nor term is left. Whoever finds no term waits for a lease-duration, and writes one that is
/// above all others.
#[test]
fn fault_46_redis_is_killed_and_restarted_and_has_kept_nothing() {
    killed_and_restarted(Keeps::Nothing);
}

#[test]
fn fault_46_redis_is_stopped_for_two_leases() {
    let server = RedisServer::start();
    outlasts_a_stop(on(server.arguments()), |it| server.signal(it), || server.becomes_ready());
}

#[test]
fn fault_46_connections_to_redis_are_reset_half_way_through_an_answer() {
    let server = RedisServer::start();
    // The script of a write returns three parts.
    let proxy = HalfAnswer::before(server.port, b"*3\r\n:1\r\n");
    let cluster = compete(store(&[proxy.port]), variables(), LONG, &["a", "b"]);
    survives_half_answers(cluster, &proxy, 5);
}

#[test]
fn fault_46_a_primary_of_redis_is_lost_and_its_replica_promoted_that_has_every_write() {
    let mut server = RedisServer::start();
    let replica = server.replica();
    survives_a_failover(on(store(&[server.port, replica.port])), |term| {
        until(PATIENCE, "the replica has the term", || has_term(&replica, term).then_some(()));
        server.kill();
        replica.promote();
    });
}

fn has_term(server: &RedisServer, term: u64) -> bool {
    server.ask(&["HGET", "tenure:{default}:record", "term"]) == term.to_string()
}

/// Returns a server with a first term, and a replica that has that, but no later write.
fn lagging() -> (RedisServer, RedisServer) {
    let server = RedisServer::start();
    let replica = server.replica();
    let first = redis::open(&server.settings("default")).unwrap();
    blocking(first.create(1)).unwrap();
    until(PATIENCE, "the replica has the first term", || has_term(&replica, 1).then_some(()));
    replica.ask(&["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    (server, replica)
}

/// Whoever has seen the term that was lost takes the lower one for a loss, and waits for a lease-duration.
#[test]
fn fault_46_a_replica_of_redis_is_promoted_without_the_last_term_that_its_candidates_have_seen() {
    let (mut server, replica) = lagging();
    let cluster = on(store(&[server.port, replica.port]));
    let leader = cluster.settle();
    let term = cluster.term(leader);
    until(PATIENCE, "each has read the term", || {
        let seen = |it: &process::Process| it.status()?["holder"]["term"].as_u64();
        cluster.candidates.iter().all(|it| seen(it) == Some(term)).then_some(())
    });
    server.kill();
    replica.promote();
    // By one document: the old leader may lose its leadership between two questions.
    let leads_on = |it: &process::Process| {
        it.status().is_some_and(|it| it["role"] == "active" && it["term"].as_u64() > Some(term))
    };
    let next =
        until(PATIENCE, "another term is led", || cluster.candidates.iter().position(leads_on));
    cluster.records(next);
    cluster.verdict();
}

/// The loss that README and the page on Redis admit, and no other: until the old leader's next renewal is refused,
/// or until its deadline where it reaches no server, two instances lead in the same term.
#[test]
fn fault_46_after_a_failover_of_redis_that_lost_a_term_it_is_given_twice_until_the_old_deadline() {
    let (mut server, replica) = lagging();
    let mut cluster = Cluster::on(Vec::new(), variables(), LONG);
    let at = |ports: &[u16]| store(ports).pop().unwrap();
    cluster.join("a", &["--store", &at(&[server.port])], &[]);
    assert_eq!(cluster.leads(0, PATIENCE), 2);
    server.kill();
    replica.promote();
    // It has seen neither the lease nor the term that were lost.
    cluster.join("b", &["--store", &at(&[server.port, replica.port])], &[]);
    assert_eq!(cluster.leads(1, PATIENCE), 2);
    lapses(&cluster.candidates[0]);
    renews_on(&cluster.candidates[1]);
    let verdict = cluster.recorder.finish(&[]);
    assert_eq!((verdict.duals.len(), &verdict.shared[..]), (1, &[2][..]), "{verdict:?}");
    assert!(verdict.falls.is_empty() && verdict.terms.len() == 2, "{verdict:?}");
}

/// With appendfsync always, Redis exits when it cannot write.
#[test]
fn fault_46_the_disk_of_redis_is_full() {
    let disk = SmallDisk::new(8 * 1024);
    let mut server = RedisServer::start_in(disk.path(), Keeps::All);
    let empty = |it: &mut RedisServer| {
        disk.empty();
        it.restart();
    };
    outlasts(on(server.arguments()), &mut server, |it| fill(&disk, it), empty);
}

/// With another policy, it takes no more writes until it can.
#[test]
fn fault_46_the_disk_of_redis_is_full_and_it_goes_on() {
    let disk = SmallDisk::new(8 * 1024);
    let mut server = RedisServer::start_in(disk.path(), Keeps::MostOf);
    outlasts(on(server.arguments()), &mut server, |it| fill(&disk, it), |_| disk.empty());
}

fn fill(disk: &SmallDisk, server: &RedisServer) {
    disk.fill();
    let value = "x".repeat(8 * 1024);
    let fails = || server.try_ask(&["SET", "filler", &value]).is_err();
    until(PATIENCE, "the log has no room", || fails().then_some(()));
}

#[test]
fn fault_46_rights_are_taken_away_in_redis_while_leading() {
    let server = RedisServer::start();
    let (take, give) = (|| server.take_rights(), || server.give_rights());
    outlasts_taken_rights(on(server.arguments()), take, give, &["correct horse"]);
}

#[test]
fn fault_46_certificates_of_redis_are_replaced_while_leading() {
    let server = RedisServer::secured();
    keeps_its_term(on(server.arguments()), || {
        server.replace_certificates();
        // The next connection is made with the new ones.
        server.end_connections();
    });
}

#[test]
fn fault_50_older_data_of_redis_is_restored_while_an_instance_leads() {
    let mut server = RedisServer::start();
    outlasts_a_restore(
        on(server.arguments()),
        &mut server,
        RedisServer::save,
        RedisServer::restore,
    );
}

#[test]
fn fault_51_notifications_of_redis_are_lost_while_their_connection_lives() {
    let server = RedisServer::start();
    let proxy = Muffled::before(server.port, "SUBSCRIBE");
    let cluster = compete(store(&[proxy.port]), variables(), lease_of(8), &["a", "b"]);
    survives_a_silent_watch(cluster, &proxy);
}
