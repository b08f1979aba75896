//! etcd itself: the conformance suite without TLS and users and with them, what its watch tells, and
//! what `tenure doctor` finds.

use testkit::etcd::lock::EtcdLock;
use testkit::etcd::server::EtcdServer;
use testkit::ports::free_port;
use testkit::processes::process::Process;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::watched::tells_of_each_change_of_hands;
use testkit::stores::{bids, conformance};

use std::process::{Command, Stdio};
use std::time::Duration;

use bids::{A, B, bid_on, finding, news, soon};
use conformance::Harness;
use tenure::config::{EtcdSettings, EtcdUser, SecretSource};
use tenure::store::etcd::Etcd;
use tenure::store::{LeaseAdmin, LeaseStore, Verdict};
use url::Url;

testkit::conformance!(plain, EtcdLock<Plain>);
testkit::conformance!(secured, EtcdLock<Secured>);

fn open(settings: &EtcdSettings) -> Etcd {
    Etcd::open(settings).unwrap()
}

#[tokio::test]
async fn a_watch_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(EtcdServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    tells_of_each_change_of_hands(&leader, &standby).await;
}

#[tokio::test]
async fn a_watch_survives_compaction_and_a_restart() {
    let mut server = on_thread(EtcdServer::start).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    soon(news(&standby)).await;
    for number in [A, B] {
        let it = bid_on(&leader, number).await;
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
    let a = bid_on(&leader, A).await;
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
    let a = bid_on(&store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    assert!(soon(store.renew(&a)).await.is_ok(), "it works all the same");
    soon(store.release(&a)).await.unwrap();
}
