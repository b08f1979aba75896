//! Consul itself: the conformance suite without TLS and access control and with them, what its blocking
//! queries tell, the lock-delay, and what `tenure doctor` finds.

use testkit::consul::lock::ConsulLock;
use testkit::consul::server::ConsulServer;
use testkit::ports::free_port;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::watched::tells_of_each_change_of_hands;
use testkit::stores::{bids, conformance};

use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, finding, news, outcome, soon};
use conformance::Harness;
use tenure::clock;
use tenure::config::{ConsulSettings, SecretSource};
use tenure::lease::Bid;
use tenure::store::consul::Consul;
use tenure::store::{LeaseAdmin, LeaseStore, Presence, Verdict};
use url::Url;

testkit::conformance!(plain, ConsulLock<Plain>);
testkit::conformance!(secured, ConsulLock<Secured>);

fn open(settings: &ConsulSettings) -> Consul {
    Consul::open(settings).unwrap()
}

#[tokio::test]
async fn a_blocking_query_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(ConsulServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    tells_of_each_change_of_hands(&leader, &standby).await;
}

#[tokio::test]
async fn a_blocking_query_survives_a_restart() {
    let mut server = on_thread(ConsulServer::start).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    soon(news(&standby)).await;
    let waiting = tokio::spawn(async move { news(&standby).await });
    server = tokio::task::spawn_blocking(move || {
        server.restart(0..1);
        server
    })
    .await
    .unwrap();
    let a = bid_on(&leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    told.expect("it is told of the acquisition, or of what it missed").unwrap();
    drop(server);
}

/// The session of the leader ends with the agent that it was created at. The leader does not know it until its
/// next renewal.
#[tokio::test]
async fn a_session_that_ends_before_its_time_keeps_the_lock_from_others_for_a_lease() {
    const LEASE: Duration = Duration::from_secs(10);
    let server = Arc::new(on_thread(ConsulServer::start).await);
    let store = open(&server.settings("left"));
    let a = Bid { lease_duration: LEASE, ..bid_on(&store, A).await };
    soon(store.acquire(&a)).await.unwrap();
    let term = soon(store.write_term(&a, 1)).await.unwrap();
    soon(store.renew(&a)).await.unwrap();
    let renewed = clock::now();
    let leaving = Arc::clone(&server);
    on_thread(move || leaving.leave_and_join(0)).await;
    assert!(soon(store.read()).await.unwrap().free, "Consul has ended it");
    let mut refused = 0;
    loop {
        let b = bid_on(&store, B).await;
        let granted = soon(store.acquire(&b)).await;
        if granted.is_ok() {
            break;
        }
        assert_eq!(outcome(&granted), "refused", "{granted:?}");
        refused += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // The holder believes in it for less than a lease after it has sent its last renewal.
    let passed = renewed.elapsed_max(clock::now());
    assert!(refused > 0 && passed >= LEASE, "{passed:?}");
    assert_eq!(outcome(&soon(store.renew(&a)).await), "refused");
    assert_eq!(soon(store.read()).await.unwrap().record.term, Some(term));
}

#[tokio::test]
async fn doctor_finds_an_unknown_token_and_shows_none() {
    let server = on_thread(ConsulServer::shared_secured).await;
    let token = "5f1c1d1e-7e57-4000-8000-0000000000ff".to_owned();
    let unknown = Some(SecretSource::Value(token.clone()));
    let found =
        open(&ConsulSettings { token: unknown, ..server.settings("examined") }).examine().await;
    assert_eq!(finding(&found, "servers").verdict, Verdict::Passed, "{found:?}");
    assert_eq!(finding(&found, "token").verdict, Verdict::Failed, "{found:?}");
    assert_eq!(finding(&found, "permissions").verdict, Verdict::Skipped, "{found:?}");
    assert!(!format!("{found:?}").contains(&token));
    let found =
        open(&ConsulSettings { token: None, ..server.settings("examined") }).examine().await;
    assert_eq!(finding(&found, "permissions").verdict, Verdict::Failed, "{found:?}");
}

#[tokio::test]
async fn doctor_names_the_keys_that_a_token_may_not_use() {
    let server = on_thread(ConsulServer::shared_secured).await;
    let settings = ConsulSettings { prefix: "elsewhere".to_owned(), ..server.settings("examined") };
    let found = open(&settings).examine().await;
    let rights = finding(&found, "permissions");
    assert_eq!(rights.verdict, Verdict::Failed, "{found:?}");
    let remedy = rights.remedy.as_deref().unwrap();
    assert!(remedy.contains("key_prefix \"elsewhere/examined/\""), "{remedy}");
}

#[tokio::test]
async fn doctor_names_a_server_that_is_gone_and_an_election_without_a_term() {
    let server = on_thread(ConsulServer::shared).await;
    let mut settings = server.settings("without-a-term");
    settings.servers.insert(0, Url::parse(&format!("http://127.0.0.1:{}/", free_port())).unwrap());
    let found = open(&settings).examine().await;
    let servers = finding(&found, "servers");
    assert_eq!(servers.verdict, Verdict::Warning, "{found:?}");
    assert!(servers.detail.contains("cannot connect to"), "{servers:?}");
    let key = finding(&found, "key");
    assert_eq!(key.verdict, Verdict::Warning);
    assert!(key.remedy.as_deref().unwrap().contains("--create"), "{key:?}");
    let cluster = finding(&found, "cluster");
    assert_eq!(cluster.verdict, Verdict::Warning, "one server may not fail: {cluster:?}");
    assert!(finding(&found, "version").detail.contains("Consul 1."), "{found:?}");
    assert!(finding(&found, "session").detail.contains("\"m0\""), "{found:?}");
    for subject in ["version", "token", "permissions", "session", "timings"] {
        assert_eq!(finding(&found, subject).verdict, Verdict::Passed, "{found:?}");
    }
}

#[tokio::test]
async fn a_misspelt_election_is_found_beside_the_others() {
    let server = on_thread(ConsulServer::shared).await;
    let there = open(&server.settings("found"));
    soon(there.create(1)).await.unwrap();
    assert_eq!(soon(there.presence()).await, Ok(Presence::Exists));
    let presence = soon(open(&server.settings("fuond")).presence()).await.unwrap();
    let Presence::Missing { missing, others } = presence else { panic!("it does not exist") };
    assert!(missing.contains("tenure/fuond/lease"), "{missing}");
    assert!(others.unwrap().contains(&"found".to_owned()));
}
