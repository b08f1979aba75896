//! The lock of an election in a bucket, with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::config::GcsSettings;
use tenure::store::{LeaseAdmin, gcs};

use super::server::{BUCKET, GcsServer};
use crate::stores::conformance::{Harness, ObservedHarness};
use crate::stores::observed::Observers;

/// The server that a lock is on.
pub trait Ground {
    /// Returns the server that the tests share.
    fn server() -> Arc<GcsServer>;
}

/// Without TLS.
pub struct Plain;

impl Ground for Plain {
    fn server() -> Arc<GcsServer> {
        GcsServer::shared()
    }
}

/// With TLS.
pub struct Secured;

impl Ground for Secured {
    fn server() -> Arc<GcsServer> {
        GcsServer::shared_secured()
    }
}

/// A lock, with observers whose clock the test advances.
pub struct GcsLock<G> {
    server: Arc<GcsServer>,
    observers: Observers,
    settings: GcsSettings,
    _ground: PhantomData<G>,
}

impl<G: Ground + 'static> GcsLock<G> {
    /// Sends a request for the object, on a thread that may block.
    async fn ask(&self, method: &'static str, path: String, body: Vec<u8>) -> Vec<u8> {
        let server = Arc::clone(&self.server);
        let asked = tokio::task::spawn_blocking(move || server.ask(method, &path, body));
        asked.await.expect("an answer")
    }

    fn path(&self) -> String {
        format!("storage/v1/b/{BUCKET}/o/{}", self.settings.name().replace('/', "%2F"))
    }
}

impl<G: Ground + 'static> Harness for GcsLock<G> {
    const LEASE: Duration = Duration::from_secs(15);
    const FOREIGN: &'static [&'static str] = &[
        "",
        "not JSON",
        "{\"name\": \"something else\"}",
        "{\"tenure\": 2, \"write\": \"w\"}",
        "{\"tenure\": 1, \"write\": \"w\", \"term\": \"seven\"}",
        "{\"tenure\": 1, \"write\": \"w\", \"nonce\": \"1\"}",
        "{\"tenure\": 1, \"write\": \"w\", \"term\": 7, \"successor\": {\"identity\": \"b\", \"hold_off_ms\": 1}}",
        "{\"tenure\": 1, \"write\": \"w\", \"claim\": {\"nonce\": \"x\", \"identity\": \"a\", \"lease_ms\": 1, \"renewals\": 0}}",
    ];
    const OBSERVED: bool = true;

    async fn start() -> Self {
        static LOCKS: AtomicU64 = AtomicU64::new(0);
        let server = tokio::task::spawn_blocking(G::server).await.expect("a server");
        let election = format!("lock-{}", LOCKS.fetch_add(1, Ordering::Relaxed));
        let (settings, observers) = (server.settings(&election), Observers::default());
        Self { settings, server, observers, _ground: PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        let store = gcs::open(&self.settings).expect("the settings are good");
        Arc::new(self.observers.handle(store))
    }

    async fn advance(&self, by: Duration) {
        // A standby must have read the object before time passes.
        let _ = self.candidate().read().await;
        self.observers.pass(by);
    }

    async fn delete(&self) {
        self.ask("DELETE", self.path(), Vec::new()).await;
    }

    async fn plant(&self, foreign: &str) {
        let name = self.settings.name();
        let path = format!("upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}");
        self.ask("POST", path, foreign.as_bytes().to_vec()).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        self.ask("GET", format!("{}?alt=media", self.path()), Vec::new()).await
    }
}

impl<G: Ground + 'static> GcsLock<G> {
    async fn modify(&self, change: impl FnOnce(&mut Value)) {
        let mut content = serde_json::from_slice(&self.bytes().await).expect("JSON");
        change(&mut content);
        self.plant(&content.to_string()).await;
    }
}

impl<G: Ground + 'static> ObservedHarness for GcsLock<G> {
    async fn touch(&self) {
        let drawn = uuid::Uuid::new_v4().to_string();
        self.modify(|it| it["write"] = drawn.into()).await;
    }

    async fn usurp(&self) {
        let claim = json!({"nonce": "f00", "identity": "z", "lease_ms": 15_000, "renewals": 0});
        self.modify(|it| it["claim"] = claim).await;
    }
}
