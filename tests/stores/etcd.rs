//! etcd itself: the conformance suite without TLS and users and with them, what its watch tells, a restore
//! from older data, and what `tenure doctor` finds.

use testkit::etcd::server::EtcdServer;
use testkit::ports::free_port;
use testkit::processes::process::Process;
use testkit::stores::register_lock::RegisterLock;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::watched::tells_of_each_change_of_hands;
use testkit::stores::{bids, conformance};

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, finding, news, soon};
use conformance::Harness;
use tenure::config::{EtcdSettings, EtcdUser, SecretSource};
use tenure::lease::{Bid, Cause, StoreError, Version};
use tenure::store::{LeaseAdmin, Verdict, etcd};
use url::Url;

testkit::conformance!(plain, RegisterLock<EtcdServer, Plain>, observed);
testkit::conformance!(secured, RegisterLock<EtcdServer, Secured>, observed);

fn open(settings: &EtcdSettings) -> Arc<dyn LeaseAdmin> {
    etcd::open(settings).unwrap()
}

#[tokio::test]
async fn a_watch_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(EtcdServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    tells_of_each_change_of_hands(&*leader, &*standby).await;
}

#[tokio::test]
async fn a_watch_survives_compaction_and_a_restart() {
    let mut server = on_thread(EtcdServer::start).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    soon(news(&*standby)).await;
    for number in [A, B] {
        let it = bid_on(&*leader, number).await;
        soon(leader.acquire(&it)).await.unwrap();
        soon(leader.release(&it)).await.unwrap();
    }
    server = tokio::task::spawn_blocking(move || {
        let found = server.ask("/v3/kv/range", &serde_json::json!({"key": "YQ=="}));
        let revision = serde_json::json!({"revision": found["header"]["revision"]});
        server.ask("/v3/kv/compaction", &revision);
        server.restart(0..1);
        server
    })
    .await
    .unwrap();
    let waiting = tokio::spawn(async move { news(&*standby).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let a = bid_on(&*leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    told.expect("it is told of the acquisition, or of what it missed").unwrap();
    drop(server);
}

#[tokio::test]
async fn doctor_finds_a_wrong_password_and_shows_none() {
    let server = on_thread(EtcdServer::shared_secured).await;
    let secret = |text: &str| SecretSource::Value(text.to_owned());
    let user = EtcdUser { name: secret("elections"), password: secret("hunter2") };
    let settings = EtcdSettings { user: Some(user), ..server.settings("examined") };
    let found = open(&settings).examine().await;
    assert_eq!(finding(&found, "server").verdict, Verdict::Passed, "{found:?}");
    assert_eq!(finding(&found, "credential").verdict, Verdict::Failed, "{found:?}");
    assert_eq!(finding(&found, "permissions").verdict, Verdict::Skipped, "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2"));
    let settings = EtcdSettings { user: None, ..server.settings("examined") };
    let found = open(&settings).examine().await;
    assert_eq!(finding(&found, "credential").verdict, Verdict::Failed, "{found:?}");
}

#[tokio::test]
async fn doctor_names_the_keys_that_a_user_may_not_use() {
    let server = on_thread(EtcdServer::shared_secured).await;
    let settings = EtcdSettings { prefix: "elsewhere".to_owned(), ..server.settings("examined") };
    let found = open(&settings).examine().await;
    let rights = finding(&found, "keys");
    assert_eq!(rights.verdict, Verdict::Failed, "{found:?}");
    let remedy = rights.remedy.as_deref().unwrap();
    assert!(remedy.contains("readwrite /elsewhere/examined/"), "{remedy}");
    assert_eq!(finding(&found, "credential").verdict, Verdict::Passed, "{found:?}");
}

#[tokio::test]
async fn doctor_names_a_member_that_is_gone_and_an_election_without_a_term() {
    let server = on_thread(EtcdServer::shared).await;
    let mut settings = server.settings("without-a-term");
    settings.members.insert(0, Url::parse(&format!("http://127.0.0.1:{}/", free_port())).unwrap());
    let found = open(&settings).examine().await;
    let members = finding(&found, "server");
    assert_eq!(members.verdict, Verdict::Warning, "{found:?}");
    assert!(members.detail.contains("cannot connect to"), "{members:?}");
    let record = finding(&found, "record");
    assert_eq!(record.verdict, Verdict::Warning);
    assert!(record.remedy.as_deref().unwrap().contains("--create"), "{record:?}");
    let passed = ["version", "cluster", "credential", "keys", "permissions", "space", "timings"];
    for subject in passed {
        assert_eq!(finding(&found, subject).verdict, Verdict::Passed, "{found:?}");
    }
}

#[tokio::test]
async fn members_of_two_clusters_are_refused() {
    let (one, two) = (on_thread(EtcdServer::shared).await, on_thread(EtcdServer::start).await);
    let mut settings = one.settings("examined");
    settings.members.extend(two.settings("examined").members);
    let store = open(&settings);
    let found = store.examine().await;
    let cluster = finding(&found, "cluster");
    assert_eq!(cluster.verdict, Verdict::Failed, "{found:?}");
    assert!(cluster.detail.contains("2 different clusters"), "{cluster:?}");
    let (cause, message) = bids::failure(soon(store.read()).await);
    assert!(cause == Cause::Settings && message.contains("2 different clusters"), "{message}");
}

/// Revisions come a second time then.
#[tokio::test]
async fn what_was_written_before_a_restore_is_no_condition_after_it() {
    let mut server = on_thread(EtcdServer::start).await;
    let settings = server.settings("restored");
    let (one, other) = (open(&settings), open(&settings));
    let a = bid_on(&*one, A).await;
    soon(one.acquire(&a)).await.unwrap();
    server = on_thread(move || {
        server.save();
        server
    })
    .await;
    let written = soon(renewed(&*one, &a)).await;
    server = on_thread(move || {
        server.restore();
        server
    })
    .await;
    // As if a lease-duration had passed since.
    let b = soon(read_again(&*other)).await;
    soon(other.acquire(&b)).await.unwrap();
    let late = soon(one.renew(&Bid { written, ..a.clone() })).await;
    assert!(matches!(late, Err(StoreError::RetryNow(_))), "{late:?}");
    assert!(matches!(soon(one.renew(&a)).await, Err(StoreError::Refused(_))));
    assert!(soon(other.renew(&b)).await.is_ok());
    drop(server);
}

/// Renews once the server is back, which may take an attempt.
async fn renewed(store: &dyn LeaseAdmin, bid: &Bid) -> Option<Version> {
    loop {
        if let Ok(written) = store.renew(bid).await {
            return written;
        }
    }
}

async fn read_again(store: &dyn LeaseAdmin) -> Bid {
    loop {
        if let Ok(snapshot) = store.read().await {
            return Bid { seen: snapshot.version, ..bids::bid(B) };
        }
    }
}

#[tokio::test]
async fn the_term_stands_in_a_key_of_its_own() {
    let server = on_thread(EtcdServer::shared).await;
    let store = open(&server.settings("term"));
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    for (floor, term) in [(41, "41"), (0, "41")] {
        soon(store.write_term(&a, floor)).await.unwrap();
        let server = Arc::clone(&server);
        let shown = on_thread(move || server.get("term", "term")).await;
        assert_eq!(shown.as_deref(), Some(term.as_bytes()));
    }
    soon(store.release(&a)).await.unwrap();
    let b = bid_on(&*store, B).await;
    soon(store.acquire(&b)).await.unwrap();
    soon(store.write_term(&b, 0)).await.unwrap();
    let shown = on_thread(move || server.get("term", "term")).await;
    assert_eq!(shown.as_deref(), Some(&b"42"[..]));
}

/// Debian's etcd 3.4.
#[tokio::test]
async fn the_oldest_version_that_is_supported_works() {
    let (home, port) = (tempfile::tempdir().unwrap(), free_port());
    let [client, peer] = [port, free_port()].map(|it| format!("http://127.0.0.1:{it}"));
    let mut command = Command::new("/usr/bin/etcd");
    command
        .args(["--log-level", "error", "--logger", "zap", "--data-dir"])
        .arg(home.path().join("data"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")])
        .stdin(Stdio::null());
    let _etcd = Process::spawn("etcd 3.4, of Debian's package etcd-server", command);
    let shared = on_thread(EtcdServer::shared).await;
    let url = Url::parse(&format!("{client}/")).unwrap();
    let settings = EtcdSettings { members: vec![url], ..shared.settings("examined") };
    let store = open(&settings);
    let answers = async {
        while store.read().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), answers).await.expect("it starts");
    let found = store.examine().await;
    for (subject, words) in [("version", "etcd 3.4."), ("space", "unless --quota-backend-bytes")] {
        let found = finding(&found, subject);
        assert_eq!(found.verdict, Verdict::Passed, "{found:?}");
        assert!(found.detail.contains(words), "{found:?}");
    }
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    assert!(soon(store.renew(&a)).await.is_ok());
    soon(store.release(&a)).await.unwrap();
}
