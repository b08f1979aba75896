//! The lock of an election in Consul, with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tenure::config::ConsulSettings;
use tenure::store::LeaseAdmin;
use tenure::store::consul::Consul;

use super::server::{ConsulServer, PREFIX};
use crate::stores::conformance::Harness;
use crate::stores::servers::{Ground, on_thread, pass, place};

/// A lock in real time.
pub struct ConsulLock<G> {
    server: Arc<ConsulServer>,
    settings: ConsulSettings,
    _ground: PhantomData<G>,
}

impl<G: Ground> ConsulLock<G> {
    /// Sends a request about the key on a thread that may block.
    async fn ask(&self, method: Method, body: Option<Value>) -> Value {
        let server = Arc::clone(&self.server);
        let path = format!("kv/{PREFIX}/{}/lease", self.settings.election);
        let asked = move || server.ask(method, &path, body.as_ref());
        on_thread(asked).await
    }

    /// Returns whether the lock was lost with its session, and not given back.
    async fn was_lost(&self) -> bool {
        let entry = &self.ask(Method::GET, None).await[0];
        let value = entry["Value"].as_str().and_then(|it| azure_core::base64::decode(it).ok());
        let value: Value = serde_json::from_slice(&value.unwrap_or_default()).unwrap_or_default();
        entry["Session"].is_null() && value["claim"].is_object()
    }
}

impl<G: Ground> Harness for ConsulLock<G> {
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
        let (server, election) = place::<G, ConsulServer>().await;
        Self { settings: server.settings(&election), server, _ground: PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(Consul::open(&self.settings).expect("the settings are good"))
    }

    /// The servers of Consul end a session after twice its TTL: their time passes half as fast.
    async fn advance(&self, by: Duration) {
        pass(by * 2 + Duration::from_millis(500)).await;
        if self.was_lost().await {
            // The lock-delay.
            pass(Self::LEASE).await;
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
        on_thread(asked).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(&self.ask(Method::GET, None).await).expect("JSON")
    }
}
