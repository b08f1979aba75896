//! The lock of an election in etcd, with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use azure_core::base64;
use serde_json::{Value, json};
use tenure::config::EtcdSettings;
use tenure::store::LeaseAdmin;
use tenure::store::etcd::Etcd;

use super::server::{EtcdServer, PREFIX};
use crate::stores::conformance::Harness;
use crate::stores::servers::{Ground, on_thread, pass, place};

/// A lock in real time.
pub struct EtcdLock<G> {
    server: Arc<EtcdServer>,
    settings: EtcdSettings,
    _ground: PhantomData<G>,
}

impl<G: Ground> EtcdLock<G> {
    fn key(&self, name: &str) -> String {
        base64::encode(format!("/{PREFIX}/{}/{name}", self.settings.election))
    }

    /// Asks on a thread that may block.
    async fn ask(&self, path: &'static str, body: Value) -> Value {
        let server = Arc::clone(&self.server);
        on_thread(move || server.ask(path, &body)).await
    }

    async fn get(&self, name: &str) -> Option<Value> {
        let found = self.ask("/v3/kv/range", json!({"key": self.key(name)})).await;
        found["kvs"].get(0).cloned()
    }

    /// Returns how long the claim lasts, in whole seconds, rounded down; `None` if there is none.
    async fn left(&self) -> Option<i64> {
        let claim = self.get("lease").await?;
        let found = self.ask("/v3/lease/timetolive", json!({"ID": claim["lease"]})).await;
        Some(found["TTL"].as_str().map_or(0, |it| it.parse().expect("a number")))
    }
}

impl<G: Ground> Harness for EtcdLock<G> {
    // Its thirds are whole seconds, which etcd rounds to.
    const LEASE: Duration = Duration::from_secs(21);
    const FOREIGN: &'static [&'static str] = &[
        "record=",
        "record=locked",
        "record={\"name\": \"something else\"}",
        "record={\"tenure\": 2, \"term\": 7}",
        "record={\"tenure\": 1, \"term\": \"seven\"}",
        "record={\"tenure\": 1, \"term\": 7, \"successor\": {\"identity\": \"b\", \"hold_off_ms\": 1}}",
        "lease=locked",
        "lease={\"tenure\": 1}",
    ];
    const COUNTS_BY_ONE: bool = false;

    async fn start() -> Self {
        let (server, election) = place::<G, EtcdServer>().await;
        Self { settings: server.settings(&election), server, _ground: PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(Etcd::open(&self.settings).expect("the settings are good"))
    }

    async fn advance(&self, by: Duration) {
        pass(by).await;
        // In its last second a lease may have ended already; its key is deleted a moment later.
        while self.left().await.is_some_and(|left| left < 1) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn delete(&self) {
        for name in ["lease", "record"] {
            self.ask("/v3/kv/deleterange", json!({"key": self.key(name)})).await;
        }
    }

    async fn plant(&self, foreign: &str) {
        let (name, value) = foreign.split_once('=').expect("KEY=VALUE");
        let body = json!({"key": self.key(name), "value": base64::encode(value)});
        self.ask("/v3/kv/put", body).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        let both = [self.get("lease").await, self.get("record").await];
        serde_json::to_vec(&both).expect("JSON")
    }
}
