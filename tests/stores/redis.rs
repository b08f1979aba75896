//! Redis itself: the conformance suite without TLS and with it, and what its messages tell, its sign-in asks
//! for, and its replicas answer.

use testkit::processes::process::until;
use testkit::redis::server::{Keeps, RedisServer, USER};
use testkit::stores::register_lock::RegisterLock;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::{bids, conformance};

use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, failure, news, soon};
use conformance::Harness;
use tenure::config::{RedisSettings, SecretSource, StoreTls};
use tenure::lease::{Cause, StoreError};
use tenure::store::{LeaseAdmin, redis};

testkit::conformance!(plain, RegisterLock<RedisServer, Plain>, observed);
testkit::conformance!(secured, RegisterLock<RedisServer, Secured>, observed);

fn open(settings: &RedisSettings) -> Arc<dyn LeaseAdmin> {
    redis::open(settings).unwrap()
}

/// Sends a command as the administrator.
async fn ask(server: &Arc<RedisServer>, command: &'static [&'static str]) -> String {
    let server = Arc::clone(server);
    on_thread(move || server.ask(command)).await
}

/// Returns whether the store reports nothing for a while.
async fn is_quiet(store: &Arc<dyn LeaseAdmin>) -> bool {
    tokio::time::timeout(Duration::from_millis(500), store.changed()).await.is_err()
}

#[tokio::test]
async fn a_message_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(RedisServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    assert_eq!(soon(news(&*standby)).await, None, "what was before is missed");
    let mut a = bid_on(&*leader, A).await;
    a.written = soon(leader.acquire(&a)).await.unwrap().version;
    assert_eq!(soon(news(&*standby)).await, None);
    soon(leader.write_term(&a, 1)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, None, "the term is news too");
    a.written = None;
    for _ in 0..3 {
        a.written = soon(leader.renew(&a)).await.unwrap();
    }
    let elsewhere = open(&server.settings("another"));
    let c = bid_on(&*elsewhere, B).await;
    soon(elsewhere.acquire(&c)).await.unwrap();
    assert!(is_quiet(&standby).await, "neither a renewal nor another election is any");
    assert_eq!(soon(news(&*standby)).await, None, "on another connection");
    soon(leader.release(&a)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, None);
    assert_eq!(soon(news(&*leader)).await, None, "on a connection of its own");
    let again = bid_on(&*leader, B).await;
    soon(leader.acquire(&again)).await.unwrap();
    assert!(is_quiet(&leader).await, "what it did itself is none");
}

#[tokio::test]
async fn connections_that_have_ended_are_replaced() {
    let server = Arc::new(on_thread(RedisServer::start).await);
    let (store, standby) = (open(&server.settings("ended")), open(&server.settings("ended")));
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    for _ in 0..3 {
        assert_eq!(soon(news(&*standby)).await, None, "each connection begins with one");
        let shared = Arc::clone(&server);
        on_thread(move || shared.end_connections()).await;
        soon(store.renew(&a)).await.expect("on another connection");
    }
}

/// With `appendonly`, what replaces as much as it writes is not kept out by a limit that others have reached.
#[tokio::test]
async fn a_full_memory_ends_no_leadership() {
    let server = Arc::new(on_thread(RedisServer::start).await);
    let store = open(&server.settings("full"));
    let a = bid_on(&*store, A).await;
    ask(&server, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let full = Arc::clone(&server);
    let filled = on_thread(move || full.try_ask(&["SET", "filler", "x"])).await;
    assert!(filled.is_err_and(|it| it.contains("OOM")), "others may not write");
    soon(store.acquire(&a)).await.unwrap();
    soon(store.write_term(&a, 1)).await.unwrap();
    soon(store.renew(&a)).await.unwrap();
    soon(store.release(&a)).await.unwrap();
}

#[tokio::test]
async fn the_term_of_the_value_is_beside_it_for_the_users_commands() {
    let server = on_thread(RedisServer::shared).await;
    let store = open(&server.settings("beside"));
    let term = ["HGET", "tenure:{beside}:record", "term"];
    let mut last = String::new();
    for (number, floor) in [(1, 7), (2, 0), (3, i64::MAX.unsigned_abs() + 7)] {
        let bid = bid_on(&*store, number).await;
        soon(store.acquire(&bid)).await.unwrap();
        assert_eq!(
            on_thread({
                let server = Arc::clone(&server);
                move || server.ask(&term)
            })
            .await,
            last
        );
        last = soon(store.write_term(&bid, floor)).await.unwrap().to_string();
        assert_eq!(
            on_thread({
                let server = Arc::clone(&server);
                move || server.ask(&term)
            })
            .await,
            last
        );
        soon(store.release(&bid)).await.unwrap();
    }
    assert_eq!(last, (i64::MAX.unsigned_abs() + 7).to_string(), "terms are exact");
    assert_eq!(ask(&server, &["PTTL", "tenure:{beside}:record"]).await, "-1", "it has no end");
}

#[tokio::test]
async fn two_primaries_in_one_url_are_refused() {
    let server = on_thread(RedisServer::shared).await;
    let other = on_thread(RedisServer::start).await;
    for ports in [[server.port, other.port], [other.port, server.port]] {
        let store = open(&server.settings_at(&ports, "apart"));
        for _ in 0..2 {
            let (cause, words) = failure(soon(store.read()).await);
            assert!(cause == Cause::Settings && words.contains("are two primaries"), "{words}");
        }
    }
}

#[tokio::test]
async fn a_sentinel_is_named_as_one() {
    let (server, sentinel) = on_thread(|| {
        let server = RedisServer::start();
        let sentinel = server.sentinel();
        (server, sentinel)
    })
    .await;
    let with = server.settings_at(&[sentinel.port], "watched");
    let without = RedisSettings { user: None, password: None, ..with.clone() };
    for settings in [with, without] {
        let (cause, words) = failure(soon(open(&settings).read()).await);
        assert!(cause == Cause::Settings && words.contains("is a Sentinel"), "{words}");
        assert!(words.contains("SENTINEL masters"), "{words}");
    }
}

#[tokio::test]
async fn the_primary_is_found_among_its_replicas_and_no_answer_of_a_replica_counts() {
    let server = Arc::new(on_thread(RedisServer::start).await);
    let shared = Arc::clone(&server);
    let replica = Arc::new(on_thread(move || shared.replica()).await);
    let store = open(&server.settings_at(&[replica.port, server.port], "found"));
    let Err(StoreError::RetryNow(failure)) = soon(store.read()).await else {
        panic!("the first one is a replica")
    };
    assert!(failure.message.contains("is a replica"), "{failure}");
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    // Not even that of one that takes writes of its own, nor over a connection from before.
    ask(&replica, &["CONFIG", "SET", "replica-read-only", "no"]).await;
    let astray = open(&replica.settings("found"));
    for _ in 0..2 {
        let read = soon(astray.read()).await;
        assert!(matches!(read, Err(StoreError::RetryNow(_))), "{read:?}");
        let released = soon(astray.release(&a)).await;
        assert!(matches!(released, Err(StoreError::RetryNow(_))), "{released:?}");
    }
    let shared = Arc::clone(&replica);
    on_thread(move || {
        until(Duration::from_secs(20), "the replica has the lease", || {
            (shared.ask(&["EXISTS", "tenure:{found}:record"]) == "1").then_some(())
        });
    })
    .await;
    ask(&server, &["CONFIG", "SET", "replica-read-only", "no"]).await;
    let demoted = Arc::clone(&server);
    let promoted = Arc::clone(&replica);
    on_thread(move || {
        promoted.promote();
        demoted.follow(&promoted);
    })
    .await;
    let renewed = soon(store.renew(&a)).await;
    assert!(matches!(renewed, Err(StoreError::RetryNow(_))), "{renewed:?}");
    soon(store.renew(&a)).await.expect("the other has it by now");
}

#[tokio::test]
async fn a_restart_without_persistence_leaves_neither_lease_nor_term() {
    let server = on_thread(|| RedisServer::keeping(Keeps::Nothing)).await;
    let store = open(&server.settings("forgotten"));
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    soon(store.write_term(&a, 7)).await.unwrap();
    let server = on_thread(move || {
        let mut server = server;
        server.restart();
        server.give_rights();
        server
    })
    .await;
    let renewing = async {
        loop {
            match store.renew(&a).await {
                Err(StoreError::RetryNow(_)) => (),
                outcome => return outcome,
            }
        }
    };
    let outcome = soon(renewing).await;
    assert!(matches!(outcome, Err(StoreError::Refused(_))), "{outcome:?}");
    let snapshot = soon(store.read()).await.unwrap();
    assert!(snapshot.free && snapshot.record.term.is_none(), "{snapshot:?}");
    drop(server);
}

#[tokio::test]
async fn each_sign_in_is_known_and_credentials_are_read_again() {
    let server = Arc::new(on_thread(RedisServer::start).await);
    let settings = server.settings("signed-in");
    let secret = |text: &str| Some(SecretSource::Value(text.to_owned()));
    for (user, password) in
        [(secret(USER.0), secret("hunter2")), (secret("nobody"), secret("hunter2"))]
    {
        let store = open(&RedisSettings { user, password, ..settings.clone() });
        let outcome = soon(store.read()).await;
        assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
        assert_eq!(failure(outcome).0, Cause::Auth);
    }
    // The default user, without a password and with one that it does not ask for.
    let anybody = RedisSettings { user: None, password: None, ..settings.clone() };
    soon(open(&anybody).read()).await.unwrap();
    ask(&server, &["ACL", "SETUSER", "default", "off"]).await;
    let rejected = open(&anybody);
    assert_eq!(failure(soon(rejected.read()).await).0, Cause::Auth);
    drop(server);

    let server = Arc::new(on_thread(RedisServer::start).await);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("password");
    std::fs::write(&file, format!("{}\n", USER.1)).unwrap();
    let password = Some(SecretSource::File(file.clone()));
    let store = open(&RedisSettings { password, ..server.settings("signed-in") });
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    // Another password, and the connection is ended.
    ask(&server, &["ACL", "SETUSER", USER.0, "resetpass", ">next"]).await;
    let shared = Arc::clone(&server);
    on_thread(move || shared.end_connections()).await;
    assert_eq!(failure(soon(store.renew(&a)).await).0, Cause::Auth);
    std::fs::write(&file, "next").unwrap();
    soon(store.renew(&a)).await.expect("it is read again");
    // Rights that are taken are seen on the connection that is there, and given back on another.
    ask(&server, &["ACL", "SETUSER", USER.0, "-eval"]).await;
    assert_eq!(failure(soon(store.renew(&a)).await).0, Cause::Auth);
    ask(&server, &["ACL", "SETUSER", USER.0, "+eval", "-hset"]).await;
    assert_eq!(failure(soon(store.renew(&a)).await).0, Cause::Auth, "within the script too");
    ask(&server, &["ACL", "SETUSER", USER.0, "+hset", "resetkeys"]).await;
    assert_eq!(failure(soon(store.renew(&a)).await).0, Cause::Auth);
    ask(&server, &["ACL", "SETUSER", USER.0, "~tenure:{signed-in}:*", "resetchannels"]).await;
    soon(store.renew(&a)).await.expect("for one election alone");
    soon(store.release(&a)).await.expect("whether or not others can be told");
}

#[tokio::test]
async fn a_server_with_tls_and_one_without_are_told_apart() {
    let server = on_thread(RedisServer::shared).await;
    let secured = on_thread(RedisServer::shared_secured).await;
    let system = Some(StoreTls { ca_file: None, own: None });
    // TLS to a server that has none, which waits for more of the command that it takes it for.
    let request_timeout = Duration::from_secs(2);
    let tls = system.clone();
    let store = open(&RedisSettings { tls, request_timeout, ..server.settings("secret") });
    assert!(soon(store.read()).await.is_err());
    // None to a server with TLS.
    let store = open(&RedisSettings { tls: None, ..secured.settings("secret") });
    assert!(soon(store.read()).await.is_err());
    // A certificate of another authority.
    let store = open(&RedisSettings { tls: system, ..secured.settings("secret") });
    let outcome = soon(store.read()).await;
    assert!(format!("{outcome:?}").contains("--store-ca-file"), "{outcome:?}");
    // None of its own.
    let tls = secured.settings("secret").tls.map(|it| StoreTls { own: None, ..it });
    let store = open(&RedisSettings { tls, ..secured.settings("secret") });
    assert!(soon(store.read()).await.is_err());
}

#[tokio::test]
async fn no_request_outlasts_request_timeout() {
    use rustix::process::Signal;
    let server = on_thread(RedisServer::start).await;
    let request_timeout = Duration::from_millis(700);
    let store = open(&RedisSettings { request_timeout, ..server.settings("slow") });
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    server.signal(Signal::STOP);
    for _ in 0..2 {
        assert_eq!(failure(soon(store.renew(&a)).await).0, Cause::Timeout);
    }
    server.signal(Signal::CONT);
    let renewing = async { while store.renew(&a).await.is_err() {} };
    soon(renewing).await;
}
