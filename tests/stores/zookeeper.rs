//! ZooKeeper itself: the conformance suite without TLS and users and with them, the nodes of an election,
//! ensembles, connections, and what `tenure doctor` finds.

use testkit::ports::free_port;
use testkit::stores::register_lock::{RegisterLock, RegisterServer};
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::{bids, conformance};
use testkit::zookeeper::server::{PATH, ZookeeperServer};

use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, finding, news, soon};
use conformance::Harness;
use tenure::config::{Address, SecretSource, ZookeeperSettings};
use tenure::lease::{Bid, Cause, Change, Nonce, StoreError};
use tenure::store::{LeaseAdmin, MOST_LISTED, Presence, Verdict, zookeeper};

testkit::conformance!(plain, RegisterLock<ZookeeperServer, Plain>, observed);
testkit::conformance!(secured, RegisterLock<ZookeeperServer, Secured>, observed);

fn open(settings: &ZookeeperSettings) -> Arc<dyn LeaseAdmin> {
    zookeeper::open(settings).unwrap()
}

/// Lets ZooKeeper's own shell work.
async fn shell(server: &Arc<ZookeeperServer>, commands: String) -> String {
    let server = Arc::clone(server);
    on_thread(move || server.shell(&commands)).await
}

/// Returns a leader of an election, with its bid.
async fn leading(server: &ZookeeperServer, election: &str) -> (Arc<dyn LeaseAdmin>, Bid) {
    let leader = open(&server.settings(election));
    let mut bid = bid_on(&*leader, A).await;
    soon(leader.acquire(&bid)).await.unwrap();
    soon(leader.write_term(&bid, 1)).await.unwrap();
    bid.written = soon(leader.renew(&bid)).await.unwrap();
    (leader, bid)
}

#[tokio::test]
async fn a_watch_tells_of_each_change_and_of_each_renewal_as_one() {
    let server = on_thread(ZookeeperServer::shared).await;
    let standby = open(&server.settings("watched"));
    assert_eq!(soon(news(&*standby)).await, None, "it begins with the present state");
    let (leader, mut bid) = leading(&server, "watched").await;
    while soon(standby.read()).await.unwrap().record.nonce != Some(Nonce(A)) {}
    for _ in 0..3 {
        bid.written = soon(leader.renew(&bid)).await.unwrap();
        let renewed = soon(leader.read()).await.unwrap().claim.unwrap();
        let is_told =
            async { while standby.changed().await != Change::Renewal(renewed.clone()) {} };
        soon(is_told).await;
    }
    soon(leader.break_lease(false)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, None, "a broken lease is lost");
    soon(leader.release(&bid)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, None);
    // What is missed while nobody listens shows when the next watch begins.
    let dropped = tokio::time::timeout(Duration::from_millis(50), standby.changed()).await;
    assert!(dropped.is_err(), "{dropped:?}");
    let next = bid_on(&*leader, B).await;
    soon(leader.acquire(&next)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, Some(Nonce(B)));
    shell(&server, format!("delete /{PATH}/watched/record")).await;
    assert_eq!(soon(news(&*standby)).await, None, "it was deleted");
    let created = bid_on(&*leader, A).await;
    soon(leader.acquire(&created)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, Some(Nonce(A)), "it is there again");
}

/// Anybody who may create nodes may create one there, and no rights on the record are needed to.
#[tokio::test]
async fn a_node_of_others_below_the_record_holds_nothing() {
    let server = on_thread(ZookeeperServer::shared).await;
    let (leader, bid) = leading(&server, "with-a-child").await;
    let child = format!("create /{PATH}/with-a-child/record/lease ''");
    shell(&server, child).await;
    let standby = open(&server.settings("with-a-child"));
    let dead = soon(standby.read()).await.unwrap();
    // Its time is over, as the observer counts it.
    let next = Bid { seen: dead.version, ..bids::bid(B) };
    soon(standby.acquire(&next)).await.unwrap();
    assert_eq!(soon(standby.write_term(&next, 1)).await, Ok(2));
    assert!(matches!(soon(leader.renew(&bid)).await, Err(StoreError::RetryNow(_))));
    let lost = soon(leader.renew(&Bid { written: None, ..bid })).await;
    assert!(matches!(lost, Err(StoreError::Refused(_))), "{lost:?}");
    soon(standby.release(&next)).await.unwrap();
    assert!(soon(standby.read()).await.unwrap().free);
}

/// Versions begin anew, and the server compares nothing else.
#[tokio::test]
async fn a_write_on_a_node_that_was_made_anew_is_a_loss_whatever_its_version() {
    let server = on_thread(ZookeeperServer::shared).await;
    let (leader, bid) = leading(&server, "made-anew").await;
    let record = format!("/{PATH}/made-anew/record");
    let state = shell(&server, format!("stat {record}")).await;
    let version = state.lines().find_map(|it| it.strip_prefix("dataVersion = ")).unwrap();
    let mut commands = vec![format!("delete {record}"), format!("create {record} 'x'")];
    commands.extend((0..version.parse().unwrap()).map(|_| format!("set {record} 'y'")));
    shell(&server, commands.join("\n")).await;
    let lost = soon(leader.renew(&bid)).await;
    let Err(StoreError::Refused(failure)) = lost else { panic!("{lost:?}") };
    assert!(failure.message.contains("deleted and made anew"), "{failure}");
}

#[tokio::test]
async fn the_term_stands_in_a_node_whose_version_changes_with_it_alone() {
    let server = on_thread(ZookeeperServer::shared).await;
    let (leader, mut bid) = leading(&server, "compared").await;
    let term = format!("/{PATH}/compared/term");
    let first = shell(&server, format!("get -s {term}")).await;
    assert!(first.starts_with("1\n") && first.contains("dataVersion = 1"), "{first}");
    for _ in 0..3 {
        bid.written = soon(leader.renew(&bid)).await.unwrap();
    }
    soon(leader.release(&bid)).await.unwrap();
    let next = Bid { seen: soon(leader.read()).await.unwrap().version, ..bids::bid(B) };
    soon(leader.acquire(&next)).await.unwrap();
    assert_eq!(shell(&server, format!("get -s {term}")).await, first);
    assert_eq!(soon(leader.write_term(&next, 1)).await, Ok(2));
    let second = shell(&server, format!("get -s {term}")).await;
    assert!(second.starts_with("2\n") && second.contains("dataVersion = 2"), "{second}");
    // It is made again, if somebody has deleted it.
    shell(&server, format!("delete {term}")).await;
    soon(leader.release(&next)).await.unwrap();
    let third = Bid { seen: soon(leader.read()).await.unwrap().version, ..bids::bid(A) };
    soon(leader.acquire(&third)).await.unwrap();
    assert_eq!(soon(leader.write_term(&third, 1)).await, Ok(3));
    assert!(shell(&server, format!("get {term}")).await.starts_with('3'));
}

fn address(port: u16) -> Address {
    Address { host: url::Host::Ipv4([127, 0, 0, 1].into()), port }
}

#[tokio::test]
async fn the_next_server_is_asked_when_one_does_not_answer() {
    let server = on_thread(ZookeeperServer::shared).await;
    let mut settings = server.settings("two-addresses");
    settings.servers.insert(0, address(free_port()));
    let store = open(&settings);
    let first = soon(store.read()).await;
    assert!(matches!(first, Err(StoreError::RetryNow(_))), "one call is one attempt: {first:?}");
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    soon(store.renew(&a)).await.unwrap();
}

/// Each connection may be to another server, which may be behind.
#[tokio::test]
async fn an_ensemble_of_three_is_one_store_to_its_candidates() {
    let ensemble = on_thread(ZookeeperServer::three).await;
    let settings = ensemble.settings("ensemble");
    let on = |at: usize| {
        let servers = vec![settings.servers[at].clone()];
        open(&ZookeeperSettings { servers, ..settings.clone() })
    };
    let stores = [on(0), on(1), on(2)];
    for round in 0..9 {
        let holder = &stores[round % 3];
        let bid = bid_on(&**holder, 100 + round as u128).await;
        soon(holder.acquire(&bid)).await.unwrap();
        assert_eq!(soon(holder.write_term(&bid, 1)).await, Ok(1 + round as u64));
        for other in &stores {
            assert!(!soon(other.read()).await.unwrap().free, "a read catches up first");
        }
        soon(holder.release(&bid)).await.unwrap();
    }
    let found = open(&settings).examine().await;
    let servers = finding(&found, "server");
    assert_eq!(servers.verdict, Verdict::Passed, "{found:?}");
    assert!(servers.detail.contains("(leader)") && servers.detail.contains("(follower)"));
}

#[tokio::test]
async fn an_instance_has_two_connections_at_most() {
    let server = Arc::new(on_thread(ZookeeperServer::start).await);
    let (leader, mut bid) = leading(&server, "counted").await;
    let standby = open(&server.settings("counted"));
    let stores = [Arc::clone(&leader), standby];
    let watches = stores.map(|store| {
        tokio::spawn(async move {
            loop {
                store.changed().await;
                store.read().await.unwrap();
            }
        })
    });
    let mut most = 0;
    for _ in 0..50 {
        bid.written = soon(leader.renew(&bid)).await.unwrap();
        most = most.max(server.connections());
    }
    assert_eq!(most, 4, "of two instances");
    for watch in watches {
        assert!(!watch.is_finished());
        watch.abort();
    }
}

#[tokio::test]
async fn a_server_that_takes_sasl_alone_is_told_apart() {
    let server = on_thread(ZookeeperServer::with_sasl).await;
    let auth = Some(SecretSource::Value("digest:elections:hunter2".to_owned()));
    for auth in [None, auth] {
        let store = open(&ZookeeperSettings { auth, ..server.settings("sasl") });
        let (cause, message) = bids::failure(soon(store.read()).await);
        assert_eq!(cause, Cause::Auth, "{message}");
        assert!(message.contains("SASL") && message.contains("Tenure does not have"), "{message}");
        let found = store.examine().await;
        let credential = finding(&found, "credential");
        assert_eq!(credential.verdict, Verdict::Failed, "{found:?}");
        assert!(credential.detail.contains("SASL"), "{credential:?}");
        assert_eq!(finding(&found, "server").verdict, Verdict::Passed, "{found:?}");
    }
}

#[tokio::test]
async fn a_sign_in_that_has_changed_is_read_again_after_a_refusal() {
    let server = on_thread(ZookeeperServer::shared_secured).await;
    let (_leader, _) = leading(&server, "signed-in").await;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("auth");
    std::fs::write(&file, "digest:elections:hunter2\n").unwrap();
    let auth = Some(SecretSource::File(file.clone()));
    // Without a certificate, which signs in too.
    let servers = vec![address(server.members[0].port)];
    let settings = server.settings("signed-in");
    let store = open(&ZookeeperSettings { auth, servers, tls: None, ..settings });
    let (cause, message) = bids::failure(soon(store.read()).await);
    assert!(cause == Cause::Auth && message.contains("access denied"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
    std::fs::write(&file, format!("digest:{}\n", testkit::zookeeper::server::USER)).unwrap();
    soon(store.read()).await.unwrap();
    std::fs::remove_file(&file).unwrap();
    soon(store.read()).await.expect("the connection is signed in");
    let found = store.examine().await;
    assert!(finding(&found, "this host").detail.contains("failed to read"), "{found:?}");
    for subject in ["server", "credential"] {
        assert_eq!(finding(&found, subject).verdict, Verdict::Skipped, "none was asked");
    }
}

#[tokio::test]
async fn doctor_names_the_user_whose_nodes_they_are_and_shows_no_password() {
    let server = on_thread(ZookeeperServer::shared_secured).await;
    let settings = server.settings("examined");
    let (store, _) = leading(&server, "examined").await;
    let found = store.examine().await;
    let access = finding(&found, "access lists");
    assert_eq!(access.verdict, Verdict::Passed, "{found:?}");
    assert!(access.detail.contains("digest:elections"), "{access:?}");
    // Another user is kept out.
    let auth = Some(SecretSource::Value("digest:elections:hunter2".to_owned()));
    let servers = vec![address(server.members[0].port)];
    let stranger = open(&ZookeeperSettings { auth, servers, tls: None, ..settings });
    let (cause, message) = bids::failure(soon(stranger.read()).await);
    assert_eq!(cause, Cause::Auth, "{message}");
    let found = stranger.examine().await;
    assert_eq!(finding(&found, "path").verdict, Verdict::Failed, "{found:?}");
    assert!(!format!("{found:?}{message}").contains("hunter2"));
}

#[tokio::test]
async fn doctor_names_a_server_that_is_gone_and_an_election_without_a_term() {
    let server = on_thread(ZookeeperServer::shared).await;
    let mut settings = server.settings("without-a-term");
    settings.servers.insert(0, address(free_port()));
    let found = open(&settings).examine().await;
    let servers = finding(&found, "server");
    assert_eq!(servers.verdict, Verdict::Warning, "{found:?}");
    assert!(servers.detail.contains("cannot connect to"), "{servers:?}");
    assert!(servers.detail.contains("(standalone)"), "{servers:?}");
    let node = finding(&found, "node");
    assert_eq!(node.verdict, Verdict::Warning);
    assert!(node.remedy.as_deref().unwrap().contains("--create"), "{node:?}");
    assert!(finding(&found, "version").detail.contains("ZooKeeper 3.9."), "{found:?}");
    for subject in ["version", "credential", "path", "permissions", "access lists", "clock skew"] {
        assert_eq!(finding(&found, subject).verdict, Verdict::Passed, "{found:?}");
    }
}

#[tokio::test]
async fn a_misspelt_election_is_found_beside_the_others() {
    let server = on_thread(ZookeeperServer::shared).await;
    let open = |election: &str| {
        open(&ZookeeperSettings { path: "listed".to_owned(), ..server.settings(election) })
    };
    for number in (0..=MOST_LISTED).rev() {
        let there = open(&format!("e{number:02}"));
        soon(there.create(1)).await.unwrap();
        assert_eq!(soon(there.presence()).await.unwrap(), Presence::Exists);
    }
    let found = soon(open("oders").presence()).await.unwrap();
    let Presence::Missing { missing, others: Some(others) } = found else { panic!("{found:?}") };
    assert!(missing.contains("no node /listed/oders"), "{missing}");
    let listed: Vec<_> = (0..MOST_LISTED).map(|it| format!("e{it:02}")).collect();
    assert_eq!(others, listed, "sorted, and no more than that");
}

#[tokio::test]
async fn doctor_tells_two_ensembles_apart() {
    let (one, two) =
        (on_thread(ZookeeperServer::shared).await, on_thread(ZookeeperServer::start).await);
    let mut settings = one.settings("examined");
    settings.servers.extend(two.settings("examined").servers);
    let found = open(&settings).examine().await;
    let servers = finding(&found, "server");
    assert_eq!(servers.verdict, Verdict::Failed, "{found:?}");
    assert!(servers.detail.contains("different ensembles"), "{servers:?}");
}

#[tokio::test]
async fn a_port_with_tls_and_one_without_are_told_apart() {
    let server = on_thread(ZookeeperServer::shared_secured).await;
    let secure = server.settings("mixed");
    let plain = ZookeeperSettings {
        servers: vec![address(server.members[0].port)],
        request_timeout: Duration::from_secs(5),
        ..secure.clone()
    };
    let without = ZookeeperSettings { tls: None, auth: None, ..secure };
    for settings in [plain, without] {
        let read = soon(open(&settings).read()).await;
        let Err(StoreError::Unknown(failure) | StoreError::RetryNow(failure)) = read else {
            panic!("{read:?}")
        };
        assert!(failure.message.contains("127.0.0.1"), "{failure}");
    }
}

/// The value of format 1 belongs to an earlier version, whose leader may still lead.
#[tokio::test]
async fn the_former_format_is_refused_in_words() {
    let server = on_thread(ZookeeperServer::shared).await;
    let planted = Arc::clone(&server);
    on_thread(move || planted.put("former", r#"{"tenure":1,"changes":3,"term":7}"#)).await;
    let read = soon(open(&server.settings("former")).read()).await;
    let Err(StoreError::Foreign(failure)) = read else { panic!("{read:?}") };
    assert!(failure.message.contains("has format 1 of an earlier version"), "{failure}");
}
