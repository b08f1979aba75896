//! etcd itself: the conformance suite without TLS and users and with them, what its watch tells, and
//! what `tenure doctor` finds.

use testkit::etcd::lock::EtcdLock;
use testkit::etcd::server::EtcdServer;
use testkit::ports::free_port;
use testkit::processes::process::Process;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::{bids, conformance};

use std::process::{Command, Stdio};
use std::time::Duration;

use bids::{A, B, news, soon};
use conformance::Harness;
use tenure::config::{EtcdSettings, EtcdUser, SecretSource};
use tenure::lease::{Bid, Nonce, Version};
use tenure::store::etcd::Etcd;
use tenure::store::{Finding, LeaseAdmin, LeaseStore, Verdict};
use url::Url;

testkit::conformance!(plain, EtcdLock<Plain>);
testkit::conformance!(secured, EtcdLock<Secured>);

fn open(settings: &EtcdSettings) -> Etcd {
    Etcd::open(settings).unwrap()
}

/// Returns the bid of a candidate for the present version.
async fn bid(store: &Etcd, number: u128) -> Bid {
    let Version(seen) = soon(store.read()).await.unwrap().version;
    Bid { seen: Version(seen), ..bids::bid(number) }
}

#[tokio::test]
async fn a_watch_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(EtcdServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    assert_eq!(soon(news(&standby)).await, None, "it begins with the present state");
    let a = bid(&leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    assert_eq!(soon(news(&standby)).await, Some(Nonce(A)));
    soon(leader.write_term(&a, 1)).await.unwrap();
    assert_eq!(soon(news(&standby)).await, Some(Nonce(A)), "the term is news too");
    for _ in 0..3 {
        soon(leader.renew(&a)).await.unwrap();
    }
    let quiet = tokio::time::timeout(Duration::from_millis(500), news(&standby)).await;
    assert!(quiet.is_err(), "a renewal is none: {quiet:?}");
    soon(leader.release(&a)).await.unwrap();
    assert_eq!(soon(news(&standby)).await, None);
    // What happens while nobody waits is not missed.
    let b = bid(&leader, B).await;
    soon(leader.acquire(&b)).await.unwrap();
    soon(leader.break_lease(true)).await.unwrap();
    let mut told = soon(news(&standby)).await;
    if told == Some(Nonce(B)) {
        told = soon(news(&standby)).await;
    }
    assert_eq!(told, None, "the last state counts");
}

#[tokio::test]
async fn a_watch_survives_compaction_and_a_restart() {
    let mut server = on_thread(EtcdServer::start).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    soon(news(&standby)).await;
    for number in [A, B] {
        let it = bid(&leader, number).await;
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
    let waiting = tokio::spawn(async move { news(&standby).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let a = bid(&leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    told.expect("it is told of the acquisition, or of what it missed").unwrap();
    drop(server);
}

fn finding<'a>(found: &'a [Finding], subject: &str) -> &'a Finding {
    found.iter().find(|it| it.subject == subject).unwrap_or_else(|| panic!("{subject}: {found:?}"))
}

#[tokio::test]
async fn doctor_finds_a_wrong_password_and_shows_none() {
    let server = on_thread(EtcdServer::shared_secured).await;
    let secret = |text: &str| SecretSource::Value(text.to_owned());
    let user = EtcdUser { name: secret("elections"), password: secret("hunter2") };
    let settings = EtcdSettings { user: Some(user), ..server.settings("examined") };
    let found = open(&settings).examine().await;
    assert_eq!(finding(&found, "members").verdict, Verdict::Passed, "{found:?}");
    assert_eq!(finding(&found, "sign-in").verdict, Verdict::Failed, "{found:?}");
    assert_eq!(finding(&found, "permissions").verdict, Verdict::Skipped, "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2"));
    let settings = EtcdSettings { user: None, ..server.settings("examined") };
    let found = open(&settings).examine().await;
    assert_eq!(finding(&found, "sign-in").verdict, Verdict::Failed, "{found:?}");
}

#[tokio::test]
async fn doctor_names_the_keys_that_a_user_may_not_use() {
    let server = on_thread(EtcdServer::shared_secured).await;
    let settings = EtcdSettings { prefix: "elsewhere".to_owned(), ..server.settings("examined") };
    let found = open(&settings).examine().await;
    let rights = finding(&found, "permissions");
    assert_eq!(rights.verdict, Verdict::Failed, "{found:?}");
    let remedy = rights.remedy.as_deref().unwrap();
    assert!(remedy.contains("readwrite /elsewhere/examined/"), "{remedy}");
    assert_eq!(finding(&found, "sign-in").verdict, Verdict::Passed, "{found:?}");
}

#[tokio::test]
async fn doctor_names_a_member_that_is_gone_and_an_election_without_a_term() {
    let server = on_thread(EtcdServer::shared).await;
    let mut settings = server.settings("without-a-term");
    settings.members.insert(0, Url::parse(&format!("http://127.0.0.1:{}/", free_port())).unwrap());
    let found = open(&settings).examine().await;
    let members = finding(&found, "members");
    assert_eq!(members.verdict, Verdict::Warning, "{found:?}");
    assert!(members.detail.contains("cannot connect to"), "{members:?}");
    let keys = finding(&found, "keys");
    assert_eq!(keys.verdict, Verdict::Warning);
    assert!(keys.remedy.as_deref().unwrap().contains("--create"), "{keys:?}");
    for subject in ["version", "cluster", "sign-in", "permissions", "lease", "timings"] {
        assert_eq!(finding(&found, subject).verdict, Verdict::Passed, "{found:?}");
    }
}

#[tokio::test]
async fn doctor_tells_two_clusters_apart() {
    let (one, two) = (on_thread(EtcdServer::shared).await, on_thread(EtcdServer::start).await);
    let mut settings = one.settings("examined");
    settings.members.extend(two.settings("examined").members);
    let found = open(&settings).examine().await;
    let members = finding(&found, "members");
    assert_eq!(members.verdict, Verdict::Failed, "{found:?}");
    assert!(members.detail.contains("2 different clusters"), "{members:?}");
}

/// Debian's etcd 3.4.
#[tokio::test]
async fn doctor_names_a_version_that_ends_live_leases() {
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
    let version = finding(&found, "version");
    assert_eq!(version.verdict, Verdict::Passed, "{found:?}");
    assert!(
        version.detail.contains("etcd 3.4.") && version.detail.contains("15247"),
        "{version:?}"
    );
    let a = bid(&store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    assert!(soon(store.renew(&a)).await.is_ok(), "it works all the same");
    soon(store.release(&a)).await.unwrap();
}
