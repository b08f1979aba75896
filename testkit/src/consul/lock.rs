//! The lock of an election in Consul, with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tenure::clock;
use tenure::config::ConsulSettings;
use tenure::store::LeaseAdmin;
use tenure::store::consul::Consul;

use super::server::{ConsulServer, PREFIX};
use crate::stores::conformance::Harness;

/// The server that a lock is on.
pub trait Ground {
    /// Returns the server that the tests share.
    fn server() -> Arc<ConsulServer>;
}

/// Without TLS and access control.
pub struct Plain;

impl Ground for Plain {
    fn server() -> Arc<ConsulServer> {
        ConsulServer::shared()
    }
}

/// With TLS, certificates of clients, and access control.
pub struct Secured;

impl Ground for Secured {
    fn server() -> Arc<ConsulServer> {
        ConsulServer::shared_secured()
    }
}

/// A lock in real time.
pub struct ConsulLock<G> {
    server: Arc<ConsulServer>,
    settings: ConsulSettings,
    _ground: PhantomData<G>,
}

impl<G: Ground + 'static> ConsulLock<G> {
    /// Sends a request about the key on a thread that may block.
    async fn ask(&self, method: Method, body: Option<Value>) -> Value {
        let server = Arc::clone(&self.server);
        let path = format!("kv/{PREFIX}/{}/lease", self.settings.election);
        let asked = move || server.ask(method, &path, body.as_ref());
        tokio::task::spawn_blocking(asked).await.expect("an answer")
    }

    /// Returns whether the lock was lost with its session, and not given back.
    async fn was_lost(&self) -> bool {
        let entry = &self.ask(Method::GET, None).await[0];
        let value = entry["Value"].as_str().and_then(|it| azure_core::base64::decode(it).ok());
        let value: Value = serde_json::from_slice(&value.unwrap_or_default()).unwrap_or_default();
        entry["Session"].is_null() && value["claim"].is_object()
    }
}

/// Waits for some real time.
async fn wait(time: Duration) {
    let start = clock::now();
    while start.elapsed_min(clock::now()) < time {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

impl<G: Ground + 'static> Harness for ConsulLock<G> {
    // The shortest TTL that Consul has.
    const LEASE: Duration = Duration::from_secs(10);
    const FOREIGN: &'static [&'static str] = &[
        "",
        "locked",
        "{\"name\": \"something else\"}",
        "{\"tenure\": 2, \"term\": 7}",
        "{\"tenure\": 1, \"term\": \"seven\"}",
        "{\"tenure\": 1, \"term\": 7, \"successor\": {\"identity\": \"b\", \"hold_off_ms\": 1}}",
        "{\"tenure\": 1, \"claim\": {\"identity\": \"b\"}}",
    ];
    const COUNTS_BY_ONE: bool = false;
    // A break says when the lock is free at the latest: after twice the TTL, the lock-delay, and a moment.
    const LATENESS: Duration = Duration::from_secs(25);

    async fn start() -> Self {
        static LOCKS: AtomicU64 = AtomicU64::new(0);
        let server = tokio::task::spawn_blocking(G::server).await.expect("a server");
        let election = format!("lock-{}", LOCKS.fetch_add(1, Ordering::Relaxed));
        Self { settings: server.settings(&election), server, _ground: PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(Consul::open(&self.settings).expect("the settings are good"))
    }

    /// The servers of Consul end a session after twice its TTL: their time passes half as fast.
    async fn advance(&self, by: Duration) {
        wait(by * 2 + Duration::from_millis(500)).await;
        if self.was_lost().await {
            // The lock-delay.
            wait(Self::LEASE).await;
        }
    }

    async fn delete(&self) {
        self.ask(Method::DELETE, None).await;
    }

    async fn plant(&self, foreign: &str) {
        let key = format!("{PREFIX}/{}/lease", self.settings.election);
        let value = azure_core::base64::encode(foreign);
        let set = json!([{"KV": {"Verb": "set", "Key": key, "Value": value}}]);
        let server = Arc::clone(&self.server);
        let asked = move || server.ask(Method::PUT, "txn", Some(&set));
        tokio::task::spawn_blocking(asked).await.expect("an answer");
    }

    async fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.ask(Method::GET, None).await).expect("JSON")
    }
}
