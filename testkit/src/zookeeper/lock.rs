//! The lock of an election in ZooKeeper, with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tenure::clock;
use tenure::config::ZookeeperSettings;
use tenure::store::LeaseAdmin;
use tenure::store::zookeeper::Zookeeper;

use super::server::{PATH, TICK, ZookeeperServer};
use crate::stores::conformance::Harness;
use crate::stores::servers::{Ground, on_thread, pass, place};

/// A lock in real time.
pub struct ZookeeperLock<G> {
    server: Arc<ZookeeperServer>,
    settings: ZookeeperSettings,
    _ground: PhantomData<G>,
}

impl<G: Ground> ZookeeperLock<G> {
    /// Lets ZooKeeper's own shell work, on a thread that may block.
    async fn shell(&self, commands: String) -> String {
        let server = Arc::clone(&self.server);
        on_thread(move || server.shell(&commands)).await
    }

    fn record(&self) -> String {
        format!("/{PATH}/{}/record", self.settings.election)
    }
}

impl<G: Ground> Harness for ZookeeperLock<G> {
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
        let (server, election) = place::<G, ZookeeperServer>().await;
        let settings =
            ZookeeperSettings { lease_duration: Self::LEASE, ..server.settings(&election) };
        Self { settings, server, _ground: PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(Zookeeper::open(&self.settings).expect("the settings are good"))
    }

    async fn advance(&self, by: Duration) {
        let start = clock::now();
        pass(by).await;
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
