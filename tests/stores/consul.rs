//! Consul itself: the conformance suite without TLS and access control and with them, what its blocking
//! queries tell, the key of the term, and what `tenure doctor` finds.

use testkit::consul::server::ConsulServer;
use testkit::ports::free_port;
use testkit::stores::register_lock::RegisterLock;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::watched::tells_of_each_change_of_hands;
use testkit::stores::{bids, conformance};

use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, finding, news, soon};
use conformance::Harness;
use reqwest::Method;
use tenure::config::{ConsulSettings, SecretSource};
use tenure::store::{LeaseAdmin, Presence, Verdict, consul};
use url::Url;

testkit::conformance!(plain, RegisterLock<ConsulServer, Plain>, observed);
testkit::conformance!(secured, RegisterLock<ConsulServer, Secured>, observed);

fn open(settings: &ConsulSettings) -> Arc<dyn LeaseAdmin> {
    consul::open(settings).unwrap()
}

#[tokio::test]
async fn a_blocking_query_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(ConsulServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    tells_of_each_change_of_hands(&*leader, &*standby).await;
}

#[tokio::test]
async fn a_blocking_query_survives_a_restart() {
    let mut server = on_thread(ConsulServer::start).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    soon(news(&*standby)).await;
    let waiting = tokio::spawn(async move { news(&*standby).await });
    server = tokio::task::spawn_blocking(move || {
        server.restart(0..1);
        server
    })
    .await
    .unwrap();
    let a = bid_on(&*leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    told.expect("it is told of the acquisition, or of what it missed").unwrap();
    drop(server);
}

#[tokio::test]
async fn the_term_stands_in_a_key_of_its_own() {
    let server = on_thread(ConsulServer::shared).await;
    let store = open(&server.settings("term"));
    for (number, floor, term) in [(A, 41, "41"), (B, 0, "42")] {
        let bid = bid_on(&*store, number).await;
        soon(store.acquire(&bid)).await.unwrap();
        soon(store.write_term(&bid, floor)).await.unwrap();
        let index = async || {
            let (server, path) = (Arc::clone(&server), "kv/tenure/term/term?consistent");
            on_thread(move || server.ask(Method::GET, path, None)[0]["ModifyIndex"].clone()).await
        };
        let written = index().await;
        soon(store.renew(&bid)).await.unwrap();
        assert_eq!(index().await, written, "a renewal does not change it");
        let asked = Arc::clone(&server);
        let shown = on_thread(move || asked.get("term", "term")).await;
        assert_eq!(shown.as_deref(), Some(term.as_bytes()));
        soon(store.release(&bid)).await.unwrap();
    }
}

/// A key that a session has locked is written all the same: locks of Consul are advisory.
#[tokio::test]
async fn a_lock_of_another_program_stops_nobody() {
    let server = on_thread(ConsulServer::shared).await;
    let store = open(&server.settings("locked"));
    soon(store.create(1)).await.unwrap();
    let locking = Arc::clone(&server);
    on_thread(move || locking.lock("locked")).await;
    let bid = bid_on(&*store, A).await;
    soon(store.acquire(&bid)).await.unwrap();
    assert!(soon(store.renew(&bid)).await.is_ok());
}

#[tokio::test]
async fn doctor_finds_an_unknown_token_and_shows_none() {
    let server = on_thread(ConsulServer::shared_secured).await;
    let token = "5f1c1d1e-7e57-4000-8000-0000000000ff".to_owned();
    let unknown = Some(SecretSource::Value(token.clone()));
    let found =
        open(&ConsulSettings { token: unknown, ..server.settings("examined") }).examine().await;
    assert_eq!(finding(&found, "server").verdict, Verdict::Passed, "{found:?}");
    assert_eq!(finding(&found, "credential").verdict, Verdict::Failed, "{found:?}");
    assert_eq!(finding(&found, "permissions").verdict, Verdict::Skipped, "{found:?}");
    assert!(!format!("{found:?}").contains(&token));
    let found =
        open(&ConsulSettings { token: None, ..server.settings("examined") }).examine().await;
    assert_eq!(finding(&found, "keys").verdict, Verdict::Failed, "{found:?}");
}

#[tokio::test]
async fn doctor_names_the_keys_that_a_token_may_not_use() {
    let server = on_thread(ConsulServer::shared_secured).await;
    let settings = ConsulSettings { prefix: "elsewhere".to_owned(), ..server.settings("examined") };
    let found = open(&settings).examine().await;
    let rights = finding(&found, "keys");
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
    let servers = finding(&found, "server");
    assert_eq!(servers.verdict, Verdict::Warning, "{found:?}");
    assert!(servers.detail.contains("cannot connect to"), "{servers:?}");
    let record = finding(&found, "record");
    assert_eq!(record.verdict, Verdict::Warning);
    assert!(record.remedy.as_deref().unwrap().contains("--create"), "{record:?}");
    let cluster = finding(&found, "cluster");
    assert_eq!(cluster.verdict, Verdict::Warning, "one server may not fail: {cluster:?}");
    assert!(finding(&found, "version").detail.contains("Consul 1."), "{found:?}");
    let passed = ["version", "credential", "token", "keys", "permissions", "timings"];
    for subject in passed {
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
