//! The lock of an election in MongoDB, with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bson::{Document, doc};
use serde_json::{Value, json};
use tenure::config::MongoSettings;
use tenure::store::{LeaseAdmin, mongodb};

use super::server::{COLLECTION, DATABASE, MongoServer};
use crate::stores::conformance::{Harness, ObservedHarness};
use crate::stores::observed::Observers;

/// The server that a lock is on.
pub trait Ground {
    /// Returns the server that the tests share.
    fn server() -> Arc<MongoServer>;
}

/// With a user, and without TLS.
pub struct Plain;

impl Ground for Plain {
    fn server() -> Arc<MongoServer> {
        MongoServer::shared()
    }
}

/// With TLS, and a certificate for a user.
pub struct Secured;

impl Ground for Secured {
    fn server() -> Arc<MongoServer> {
        MongoServer::shared_secured()
    }
}

/// A lock, with observers whose clock the test advances.
pub struct MongoLock<G> {
    server: Arc<MongoServer>,
    observers: Observers,
    settings: MongoSettings,
    _ground: PhantomData<G>,
}

impl<G: Ground + 'static> MongoLock<G> {
    /// Sends a command as the administrator, on a thread that may block.
    async fn ask(&self, mut command: Document) -> Document {
        command.insert("$db", DATABASE);
        let server = Arc::clone(&self.server);
        let asked = tokio::task::spawn_blocking(move || server.front.ask(&command));
        asked.await.expect("an answer")
    }

    fn id(&self) -> Document {
        doc! {"_id": &self.settings.election}
    }

    async fn document(&self) -> Option<Document> {
        let answer = self.ask(doc! {"find": COLLECTION, "filter": self.id(), "limit": 1}).await;
        let cursor = answer.get_document("cursor").expect("a cursor");
        let first = cursor.get_array("firstBatch").expect("a batch").first().cloned();
        first.and_then(|it| it.as_document().cloned())
    }

    async fn put(&self, mut document: Document) {
        document.extend(self.id());
        let update = doc! {"q": self.id(), "u": document, "upsert": true};
        self.ask(doc! {"update": COLLECTION, "updates": [update]}).await;
    }

    async fn modify(&self, change: impl FnOnce(&mut Value)) {
        let document = self.document().await.expect("a document");
        let content = document.get_str("lease").expect("a text");
        let mut content = serde_json::from_str(content).expect("JSON");
        change(&mut content);
        self.plant(&content.to_string()).await;
    }
}

impl<G: Ground + 'static> Harness for MongoLock<G> {
    const LEASE: Duration = Duration::from_secs(15);
    const FOREIGN: &'static [&'static str] = &[
        "",
        "not JSON",
        // A document of another shape.
        "none",
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
        let store = mongodb::open(&self.settings).expect("the settings are good");
        Arc::new(self.observers.handle(store))
    }

    async fn advance(&self, by: Duration) {
        // A standby must have read the document before time passes.
        let _ = self.candidate().read().await;
        self.observers.pass(by);
    }

    async fn delete(&self) {
        let delete = doc! {"q": self.id(), "limit": 1};
        self.ask(doc! {"delete": COLLECTION, "deletes": [delete]}).await;
    }

    async fn plant(&self, foreign: &str) {
        let version = uuid::Uuid::new_v4().to_string();
        self.put(match foreign {
            "none" => doc! {"version": 7, "name": "something else"},
            content => doc! {"version": version, "lease": content},
        })
        .await;
    }

    async fn bytes(&self) -> Vec<u8> {
        self.document().await.map(|it| it.to_vec().expect("a document")).unwrap_or_default()
    }
}

impl<G: Ground + 'static> ObservedHarness for MongoLock<G> {
    async fn touch(&self) {
        let drawn = uuid::Uuid::new_v4().to_string();
        self.modify(|it| it["write"] = drawn.into()).await;
    }

    async fn usurp(&self) {
        let claim = json!({"nonce": "f00", "identity": "z", "lease_ms": 15_000, "renewals": 0});
        self.modify(|it| it["claim"] = claim).await;
    }
}
