//! Redis itself: the conformance suite without TLS and with it, and what its messages tell, its sign-in asks
//! for, and its replicas answer.

use testkit::processes::process::until;
use testkit::redis::lock::RedisLock;
use testkit::redis::server::{Keeps, RedisServer, USER};
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::{bids, conformance};

use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, failure, news, soon};
use conformance::Harness;
use tenure::config::{RedisSettings, SecretSource, StoreTls};
use tenure::lease::{Cause, Nonce, StoreError};
use tenure::store::redis::Redis;
use tenure::store::{LeaseAdmin, LeaseStore};

testkit::conformance!(plain, RedisLock<Plain>);
testkit::conformance!(secured, RedisLock<Secured>);

fn open(settings: &RedisSettings) -> Redis {
    Redis::open(settings).unwrap()
}

/// Sends a command as the administrator.
async fn ask(server: &Arc<RedisServer>, command: &'static [&'static str]) -> String {
    let server = Arc::clone(server);
    on_thread(move || server.ask(command)).await
}

/// Waits until a channel has this many subscribers.
async fn subscribers(server: &Arc<RedisServer>, channel: &'static str, count: usize) {
    let shared = Arc::clone(server);
    on_thread(move || {
        let expected = format!("{channel}\n{count}");
        until(Duration::from_secs(20), "it is subscribed to", || {
            (shared.ask(&["PUBSUB", "NUMSUB", channel]) == expected).then_some(())
        });
    })
    .await;
}

#[tokio::test]
async fn a_message_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(RedisServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    let a = bid_on(&leader, A).await;
    // Both listen from their first question on.
    tokio::select! {
        early = news(&leader) => panic!("{early:?}"),
        early = news(&standby) => panic!("{early:?}"),
        () = subscribers(&server, "tenure:{watched}:changes", 2) => {}
    }
    soon(leader.acquire(&a)).await.unwrap();
    assert_eq!(soon(news(&standby)).await, Some(Nonce(A)));
    soon(leader.write_term(&a, 1)).await.unwrap();
    assert_eq!(soon(news(&standby)).await, Some(Nonce(A)), "the term is news too");
    let own = tokio::time::timeout(Duration::from_millis(200), news(&leader)).await;
    assert!(own.is_err(), "what it did itself is none: {own:?}");
    for _ in 0..3 {
        soon(leader.renew(&a)).await.unwrap();
    }
    let elsewhere = open(&server.settings("another"));
    let c = bid_on(&elsewhere, B).await;
    soon(elsewhere.acquire(&c)).await.unwrap();
    let quiet = tokio::time::timeout(Duration::from_millis(500), news(&standby)).await;
    assert!(quiet.is_err(), "neither a renewal nor another election is any: {quiet:?}");
    soon(leader.release(&a)).await.unwrap();
    assert_eq!(soon(news(&standby)).await, None);
    // What happens while nobody waits is not missed.
    let b = bid_on(&standby, B).await;
    soon(standby.acquire(&b)).await.unwrap();
    assert_eq!(soon(news(&leader)).await, Some(Nonce(B)));
    soon(standby.break_lease(true)).await.unwrap();
    assert_eq!(soon(news(&leader)).await, None);
}

#[tokio::test]
async fn connections_that_have_ended_are_replaced() {
    let server = Arc::new(on_thread(RedisServer::start).await);
    let (store, other) = (open(&server.settings("ended")), open(&server.settings("ended")));
    let a = bid_on(&store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    let channel = "tenure:{ended}:changes";
    let listening = tokio::spawn(async move { news(&other).await });
    for _ in 0..3 {
        let shared = Arc::clone(&server);
        on_thread(move || shared.end_connections()).await;
        soon(store.renew(&a)).await.expect("on another connection");
    }
    // A store that asks nothing does not know that its server is there again.
    assert!(!listening.is_finished());
    listening.abort();
    let standby = Arc::new(open(&server.settings("ended")));
    soon(standby.read()).await.unwrap();
    let waiting = Arc::clone(&standby);
    let listening = tokio::spawn(async move { news(&*waiting).await });
    subscribers(&server, channel, 1).await;
    let shared = Arc::clone(&server);
    on_thread(move || shared.end_connections()).await;
    soon(standby.read()).await.expect("it is alive");
    subscribers(&server, channel, 1).await;
    soon(store.release(&a)).await.unwrap();
    assert_eq!(soon(listening).await.unwrap(), None);
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
    let a = bid_on(&store, A).await;
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
            (shared.ask(&["EXISTS", "tenure:{found}:lease"]) == "1").then_some(())
        });
    })
    .await;
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
async fn a_late_bid_is_refused_once_another_has_led() {
    let server = on_thread(RedisServer::shared).await;
    let store = open(&server.settings("late"));
    for _ in 0..2 {
        // The first time there is no record yet.
        let (late, b) = (bid_on(&store, A).await, bid_on(&store, B).await);
        soon(store.acquire(&b)).await.unwrap();
        soon(store.release(&b)).await.unwrap();
        let outcome = soon(store.acquire(&late)).await;
        assert!(matches!(outcome, Err(StoreError::Refused(_))), "{outcome:?}");
        assert!(soon(store.read()).await.unwrap().free);
    }
}

#[tokio::test]
async fn terms_are_exact_up_to_the_largest_which_has_no_successor() {
    let server = on_thread(RedisServer::shared).await;
    let store = open(&server.settings("largest"));
    let largest = i64::MAX.unsigned_abs();
    for (number, floor, expected) in
        [(1, largest - 2, largest - 2), (2, largest - 2, largest - 1), (3, largest, largest)]
    {
        let bid = bid_on(&store, number).await;
        soon(store.acquire(&bid)).await.unwrap();
        let above = soon(store.write_term(&bid, largest + 1)).await;
        assert!(matches!(above, Err(StoreError::Foreign(_))), "{above:?}");
        assert_eq!(soon(store.write_term(&bid, floor)).await.unwrap(), expected);
        soon(store.release(&bid)).await.unwrap();
    }
    let b = bid_on(&store, B).await;
    soon(store.acquire(&b)).await.unwrap();
    assert!(matches!(soon(store.write_term(&b, 1)).await, Err(StoreError::Foreign(_))));
}

#[tokio::test]
async fn the_record_never_ends_and_the_lease_always_does() {
    let server = on_thread(RedisServer::shared).await;
    let store = open(&server.settings("endless"));
    let a = bid_on(&store, A).await;
    let both = async || {
        let left = ask(&server, &["PTTL", "tenure:{endless}:lease"]).await;
        assert!((1..=15_000).contains(&left.parse::<i64>().unwrap()), "{left}");
        assert_eq!(ask(&server, &["PTTL", "tenure:{endless}:record"]).await, "-1");
    };
    soon(store.acquire(&a)).await.unwrap();
    both().await;
    soon(store.write_term(&a, 1)).await.unwrap();
    both().await;
    soon(store.renew(&a)).await.unwrap();
    both().await;
    soon(store.break_lease(false)).await.unwrap();
    both().await;
    // Somebody removed the end.
    ask(&server, &["PERSIST", "tenure:{endless}:lease"]).await;
    assert_eq!(soon(store.read()).await.unwrap().ends_in, Some(Duration::MAX));
    let broken = soon(store.break_lease(false)).await;
    assert!(matches!(broken, Err(StoreError::Refused(_))), "{broken:?}");
    soon(store.break_lease(true)).await.unwrap();
    assert!(soon(store.read()).await.unwrap().free);
}

#[tokio::test]
async fn a_restart_without_persistence_leaves_neither_lease_nor_term() {
    let server = on_thread(|| RedisServer::keeping(Keeps::Nothing)).await;
    let store = open(&server.settings("forgotten"));
    let a = bid_on(&store, A).await;
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
    let a = bid_on(&store, A).await;
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
    ask(&server, &["ACL", "SETUSER", USER.0, "+eval", "-pexpire"]).await;
    assert_eq!(failure(soon(store.renew(&a)).await).0, Cause::Auth, "within the script too");
    ask(&server, &["ACL", "SETUSER", USER.0, "+pexpire", "resetkeys"]).await;
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
    let a = bid_on(&store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    server.signal(Signal::STOP);
    for _ in 0..2 {
        assert_eq!(failure(soon(store.renew(&a)).await).0, Cause::Timeout);
    }
    server.signal(Signal::CONT);
    let renewing = async { while store.renew(&a).await.is_err() {} };
    soon(renewing).await;
}
