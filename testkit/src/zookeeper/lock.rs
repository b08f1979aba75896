//! The lock of an election in ZooKeeper, with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::clock;
use tenure::config::ZookeeperSettings;
use tenure::store::LeaseAdmin;
use tenure::store::zookeeper::Zookeeper;

use super::server::{PATH, TICK, ZookeeperServer};
use crate::stores::conformance::Harness;

/// The server that a lock is on.
pub trait Ground {
    /// Returns the server that the tests share.
    fn server() -> Arc<ZookeeperServer>;
}

/// Without TLS and users.
pub struct Plain;

impl Ground for Plain {
    fn server() -> Arc<ZookeeperServer> {
        ZookeeperServer::shared()
    }
}

/// With TLS, certificates of clients, and users.
pub struct Secured;

impl Ground for Secured {
    fn server() -> Arc<ZookeeperServer> {
        ZookeeperServer::shared_secured()
    }
}

/// A lock in real time.
pub struct ZookeeperLock<G> {
    server: Arc<ZookeeperServer>,
    settings: ZookeeperSettings,
    _ground: PhantomData<G>,
}

impl<G: Ground + 'static> ZookeeperLock<G> {
    /// Lets ZooKeeper's own shell work, on a thread that may block.
    async fn shell(&self, commands: String) -> String {
        let server = Arc::clone(&self.server);
        tokio::task::spawn_blocking(move || server.shell(&commands)).await.expect("an answer")
    }

    fn record(&self) -> String {
        format!("/{PATH}/{}/record", self.settings.election)
    }
}

impl<G: Ground + 'static> Harness for ZookeeperLock<G> {
    // Two ticks are short beside its thirds.
    const LEASE: Duration = Duration::from_secs(15);
    const FOREIGN: &'static [&'static str] = &[
        "",
        "locked",
        "{\"name\": \"something else\"}",
        "{\"tenure\": 2, \"changes\": 3, \"term\": 7}",
        "{\"tenure\": 1, \"changes\": 3, \"term\": \"seven\"}",
        "{\"tenure\": 1, \"changes\": 3, \"claim\": {\"nonce\": \"me\", \"identity\": \"a\", \"lease_ms\": 1}}",
    ];
    const COUNTS_BY_ONE: bool = false;

    async fn start() -> Self {
        static LOCKS: AtomicU64 = AtomicU64::new(0);
        let server = tokio::task::spawn_blocking(G::server).await.expect("a server");
        let election = format!("lock-{}", LOCKS.fetch_add(1, Ordering::Relaxed));
        let settings =
            ZookeeperSettings { lease_duration: Self::LEASE, ..server.settings(&election) };
        Self { settings, server, _ground: PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(Zookeeper::open(&self.settings).expect("the settings are good"))
    }

    async fn advance(&self, by: Duration) {
        let start = clock::now();
        while start.elapsed_min(clock::now()) < by {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // What has ended by now, the server ends up to a tick later.
        let store = self.candidate();
        while start.elapsed_min(clock::now()) < by + TICK * 2
            && !store.read().await.is_ok_and(|it| it.free)
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn delete(&self) {
        self.shell(format!("deleteall {}", self.record())).await;
    }

    async fn plant(&self, foreign: &str) {
        let (election, record) = (&self.settings.election, self.record());
        let commands = [
            format!("create /{PATH} ''"),
            format!("create /{PATH}/{election} ''"),
            format!("create {record} ''"),
            format!("set {record} '{foreign}'"),
        ];
        self.shell(commands.join("\n")).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        let printed = self.shell(format!("get -s {}", self.record())).await;
        assert!(printed.contains("mZxid"), "no state of the node: {printed}");
        printed.into_bytes()
    }
}
