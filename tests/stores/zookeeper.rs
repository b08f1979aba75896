//! ZooKeeper itself: the conformance suite without TLS and users and with them, its queue, ensembles, late
//! requests, and what `tenure doctor` finds.

use testkit::ports::free_port;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::watched::tells_of_each_change_of_hands;
use testkit::stores::{bids, conformance};
use testkit::zookeeper::lock::ZookeeperLock;
use testkit::zookeeper::server::{TICK, ZookeeperServer};

use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, finding, news, soon};
use conformance::Harness;
use tenure::config::{Address, SecretSource, ZookeeperSettings};
use tenure::lease::{Bid, Cause, Nonce, StoreError};
use tenure::store::zookeeper::Zookeeper;
use tenure::store::{LeaseAdmin, LeaseStore, MOST_LISTED, Presence, Verdict};

testkit::conformance!(plain, ZookeeperLock<Plain>);
testkit::conformance!(secured, ZookeeperLock<Secured>);

/// The number of a third candidate.
const C: u128 = 0xC;

fn open(settings: &ZookeeperSettings) -> Zookeeper {
    Zookeeper::open(settings).unwrap()
}

/// Waits for news for half a second.
async fn quiet(store: &Zookeeper) -> bool {
    tokio::time::timeout(TICK, news(store)).await.is_err()
}

#[tokio::test]
async fn a_watch_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(ZookeeperServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    tells_of_each_change_of_hands(&leader, &standby).await;
}

#[tokio::test]
async fn a_release_wakes_the_first_in_line_alone_and_the_next_if_that_does_not_bid() {
    let server = on_thread(ZookeeperServer::shared).await;
    let settings = server.settings("queued");
    let leader = open(&settings);
    let a = bid_on(&leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    let (first, second) = (open(&settings), open(&settings));
    for standby in [&first, &second] {
        assert_eq!(soon(news(standby)).await, Some(Nonce(A)));
        assert!(quiet(standby).await, "it is in line now");
    }
    let waiting = tokio::spawn(async move {
        let told = news(&second).await;
        (second, told)
    });
    tokio::time::sleep(TICK).await;
    soon(leader.release(&a)).await.unwrap();
    assert_eq!(soon(news(&first)).await, None);
    tokio::time::sleep(TICK).await;
    assert!(!waiting.is_finished(), "it is not its turn");
    // The first neither bids nor leaves: the second is woken when its time is over.
    let first = tokio::spawn(async move { news(&first).await });
    let (second, told) = soon(waiting).await.unwrap();
    assert_eq!(told, None);
    let b = bid_on(&second, B).await;
    soon(second.acquire(&b)).await.unwrap();
    assert_eq!(soon(first).await.unwrap(), Some(Nonce(B)), "it is in line again");
}

#[tokio::test]
async fn the_leader_is_told_of_its_loss() {
    let server = on_thread(ZookeeperServer::shared).await;
    let settings = server.settings("lost");
    let (leader, operator) = (open(&settings), open(&settings));
    let a = bid_on(&leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    assert_eq!(soon(news(&leader)).await, Some(Nonce(A)));
    assert!(quiet(&leader).await);
    soon(operator.break_lease(true)).await.unwrap();
    assert_eq!(soon(news(&leader)).await, None);
}

/// A server kills the session of a client that was stopped, though its socket lives.
#[tokio::test]
async fn nothing_keeps_a_lease_alive_but_its_renewals() {
    let server = on_thread(ZookeeperServer::shared).await;
    let short = Duration::from_secs(2);
    let settings = ZookeeperSettings { lease_duration: short, ..server.settings("not-renewed") };
    let (leader, standby) = (open(&settings), open(&settings));
    let a = Bid { lease_duration: short, ..bid_on(&leader, A).await };
    soon(leader.acquire(&a)).await.unwrap();
    soon(leader.write_term(&a, 1)).await.unwrap();
    // The leader goes on with other requests, and watches.
    let ended = async {
        while !leader.read().await.unwrap().free {
            let told = tokio::time::timeout(Duration::from_millis(50), leader.changed());
            let _ = told.await;
        }
    };
    soon(ended).await;
    let b = Bid { lease_duration: short, ..bid_on(&standby, B).await };
    soon(standby.acquire(&b)).await.unwrap();
    let refused = soon(leader.renew(&a)).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
}

/// R3 and R5: a lease that was acquired later by the same instance outlives the release of an earlier bid.
#[tokio::test]
async fn a_late_release_of_an_earlier_bid_ends_no_session_of_a_later_one() {
    let server = on_thread(ZookeeperServer::shared).await;
    let store = open(&server.settings("two-bids"));
    let (a, b) = (bid_on(&store, A).await, bid_on(&store, B).await);
    soon(store.acquire(&b)).await.unwrap();
    let refused = soon(store.release(&a)).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    soon(store.write_term(&b, 1)).await.unwrap();
    soon(store.renew(&b)).await.unwrap();
    assert!(!soon(store.read()).await.unwrap().free);
}

#[tokio::test]
async fn a_bid_that_was_released_claims_nothing_when_it_arrives_late() {
    let server = on_thread(ZookeeperServer::shared).await;
    let settings = server.settings("late");
    let (store, other) = (open(&settings), open(&settings));
    soon(store.create(1)).await.unwrap();
    let a = bid_on(&store, A).await;
    for _ in 0..20 {
        // Dropped somewhere between its connection and its answer.
        let _ = tokio::time::timeout(Duration::from_millis(3), other.acquire(&a)).await;
        match soon(store.release(&a)).await {
            Ok(()) | Err(StoreError::Refused(_)) => (),
            // It was claimed in between.
            Err(StoreError::RetryNow(_)) => drop(soon(store.release(&a)).await),
            Err(error) => panic!("{error:?}"),
        }
        assert!(soon(store.read()).await.unwrap().free, "it stays released");
    }
}

#[tokio::test]
async fn a_lease_that_sessions_cannot_have_is_an_error_with_the_bound() {
    let server = on_thread(ZookeeperServer::shared).await;
    for (seconds, bound) in [(0.9, "for 1s at least"), (61.0, "for 60s at most")] {
        let lease_duration = Duration::from_secs_f64(seconds);
        let settings = ZookeeperSettings { lease_duration, ..server.settings("bounds") };
        let store = open(&settings);
        let read = soon(store.read()).await;
        let Err(StoreError::Unknown(failure)) = read else { panic!("{read:?}") };
        assert_eq!(failure.cause, Cause::Settings);
        assert!(failure.message.contains(bound), "{failure}");
        let bid = Bid { lease_duration, ..bids::bid(A) };
        let asked = soon(store.acquire(&bid)).await;
        assert!(matches!(asked, Err(StoreError::Unknown(_))), "{asked:?}");
        let found = store.examine().await;
        let sessions = finding(&found, "sessions");
        assert_eq!(sessions.verdict, Verdict::Failed, "{found:?}");
        assert!(sessions.detail.contains(bound), "{sessions:?}");
    }
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
    let a = bid_on(&store, A).await;
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
    let mut last = 0;
    for round in 0..9 {
        let (holder, others) =
            (&stores[round % 3], [&stores[(round + 1) % 3], &stores[(round + 2) % 3]]);
        let number = 100 + round as u128;
        let granted = async {
            loop {
                // A server that is behind shows a version of before.
                let bid = bid_on(holder, number).await;
                match holder.acquire(&bid).await {
                    Ok(_) => break bid,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let bid = soon(granted).await;
        let term = soon(definite(|| holder.write_term(&bid, 1))).await;
        assert!(term > last, "{term} after {last}");
        last = term;
        for other in others {
            let late = Bid { nonce: Nonce(7), ..bid.clone() };
            let refused = other.renew(&late).await;
            assert!(refused.is_err(), "{refused:?}");
        }
        soon(definite(|| holder.renew(&bid))).await;
        soon(definite(|| holder.release(&bid))).await;
    }
    let found = open(&settings).examine().await;
    let servers = finding(&found, "servers");
    assert_eq!(servers.verdict, Verdict::Passed, "{found:?}");
    assert!(servers.detail.contains("(leader)") && servers.detail.contains("(follower)"));
}

/// Repeats a call while its outcome is unknown.
async fn definite<T, F: Future<Output = Result<T, StoreError>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(it) => return it,
            Err(StoreError::RetryNow(_) | StoreError::Unknown(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[tokio::test]
async fn doctor_names_the_user_whose_nodes_they_are_and_shows_no_password() {
    let server = on_thread(ZookeeperServer::shared_secured).await;
    let settings = server.settings("examined");
    let (store, a) = (open(&settings), bids::bid(A));
    let a = Bid { seen: soon(store.read()).await.unwrap().version, ..a };
    soon(store.acquire(&a)).await.unwrap();
    let found = store.examine().await;
    let access = finding(&found, "access lists");
    assert_eq!(access.verdict, Verdict::Passed, "{found:?}");
    assert!(access.detail.contains("digest:elections"), "{access:?}");
    // Another user is kept out.
    let auth = Some(SecretSource::Value("digest:elections:hunter2".to_owned()));
    let other = ZookeeperSettings { auth, tls: server.settings("x").tls, ..settings };
    let plain =
        ZookeeperSettings { servers: vec![address(server.members[0].port)], tls: None, ..other };
    let stranger = open(&plain);
    let read = soon(stranger.read()).await;
    let Err(StoreError::Unknown(failure)) = read else { panic!("{read:?}") };
    assert_eq!(failure.cause, Cause::Auth, "{failure}");
    let found = stranger.examine().await;
    assert_eq!(finding(&found, "permissions").verdict, Verdict::Failed, "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2") && !format!("{failure}").contains("hunter2"));
}

#[tokio::test]
async fn doctor_names_a_server_that_is_gone_and_an_election_without_a_term() {
    let server = on_thread(ZookeeperServer::shared).await;
    let mut settings = server.settings("without-a-term");
    settings.servers.insert(0, address(free_port()));
    let found = open(&settings).examine().await;
    let servers = finding(&found, "servers");
    assert_eq!(servers.verdict, Verdict::Warning, "{found:?}");
    assert!(servers.detail.contains("cannot connect to"), "{servers:?}");
    assert!(servers.detail.contains("(standalone)"), "{servers:?}");
    let nodes = finding(&found, "nodes");
    assert_eq!(nodes.verdict, Verdict::Warning);
    assert!(nodes.remedy.as_deref().unwrap().contains("--create"), "{nodes:?}");
    assert!(finding(&found, "version").detail.contains("ZooKeeper 3.9."), "{found:?}");
    for subject in ["version", "sign-in", "sessions", "permissions", "access lists", "clock skew"] {
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
    let servers = finding(&found, "servers");
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

/// Beside each other, bids of three candidates over and over.
#[tokio::test]
async fn bids_of_several_candidates_never_overlap() {
    let server: Arc<ZookeeperServer> = on_thread(ZookeeperServer::shared).await;
    let settings = server.settings("bids");
    let held = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let tasks = [A, B, C].map(|number| {
        let (store, held) = (open(&settings), Arc::clone(&held));
        tokio::spawn(async move {
            let mut terms = Vec::new();
            for round in 0..200_u128 {
                let bid =
                    Bid { nonce: Nonce(number << 32 | round), ..bid_on(&store, number).await };
                if store.acquire(&bid).await.is_err() {
                    continue;
                }
                assert_eq!(held.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                terms.push(definite(|| store.write_term(&bid, 1)).await);
                held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                definite(|| store.release(&bid)).await;
            }
            terms
        })
    });
    let mut terms = Vec::new();
    for task in tasks {
        terms.extend(task.await.unwrap());
    }
    let all = terms.len();
    terms.sort_unstable();
    terms.dedup();
    assert!(all > 10 && terms.len() == all, "each term once");
}
