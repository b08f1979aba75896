//! The lock of an election that a store keeps as one value with a version, and whose time observers measure,
//! with the operations of others on it, for the conformance suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::store::LeaseAdmin;

use super::conformance::{ANY_LENGTH, Harness, ObservedHarness};
use super::observed::Observers;
use super::servers::{Ground, SharedServer, on_thread, place};

/// A server of such a store. Its functions block.
pub trait RegisterServer: SharedServer {
    /// Opens the store of an election.
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin>;

    /// Returns everything that the store keeps for an election.
    fn bytes(&self, election: &str) -> Vec<u8>;

    /// Returns the value.
    fn value(&self, election: &str) -> Vec<u8> {
        self.bytes(election)
    }

    /// Writes the value, whatever the store has.
    fn put(&self, election: &str, value: &str);

    fn delete(&self, election: &str);
}

/// A lock, with observers whose clock the test advances.
pub struct RegisterLock<S, G> {
    server: Arc<S>,
    election: String,
    observers: Observers,
    _ground: PhantomData<G>,
}

impl<S: RegisterServer, G: Ground> RegisterLock<S, G> {
    /// Lets the server work on a thread that may block.
    async fn on_server<T: Send + 'static>(
        &self,
        work: impl FnOnce(&S, &str) -> T + Send + 'static,
    ) -> T {
        let (server, election) = (Arc::clone(&self.server), self.election.clone());
        on_thread(move || work(&server, &election)).await
    }

    async fn modify(&self, change: impl FnOnce(&mut Value)) {
        let value = self.on_server(S::value).await;
        let mut value = serde_json::from_slice(&value).expect("JSON");
        change(&mut value);
        self.plant(&value.to_string()).await;
    }
}

impl<S: RegisterServer, G: Ground> Harness for RegisterLock<S, G> {
    const LEASE: Duration = Duration::from_secs(15);
    const LENGTHS: &'static [Duration] = ANY_LENGTH;
    const FOREIGN: &'static [&'static str] = &[
        "",
        "not JSON",
        // Of MongoDB, a document of another shape.
        "none",
        "{\"name\": \"something else\"}",
        "{\"tenure\": 1, \"write\": \"0\"}",
        "{\"tenure\": 3, \"write\": \"0\"}",
        "{\"tenure\": 2, \"write\": \"w\"}",
        "{\"tenure\": 2, \"write\": \"0\", \"term\": \"seven\"}",
        "{\"tenure\": 2, \"write\": \"0\", \"nonce\": \"1\"}",
        "{\"tenure\": 2, \"write\": \"0\", \"term\": 7, \"successor\": {\"identity\": \"b\", \"hold_off_ms\": 1}}",
        "{\"tenure\": 2, \"write\": \"0\", \"claim\": {\"nonce\": \"x\", \"identity\": \"a\", \"lease_ms\": 1, \"renewal\": \"0\", \"writes\": 0}}",
    ];
    const OBSERVED: bool = true;

    async fn start() -> Self {
        let (server, election) = place::<G, S>().await;
        Self { server, election, observers: Observers::default(), _ground: PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(self.observers.handle(self.server.open(&self.election)))
    }

    async fn advance(&self, by: Duration) {
        // A standby must have read the value before time passes.
        let _ = self.candidate().read().await;
        self.observers.pass(by);
    }

    async fn delete(&self) {
        self.on_server(S::delete).await;
    }

    async fn plant(&self, foreign: &str) {
        let value = foreign.to_owned();
        self.on_server(move |server, election| server.put(election, &value)).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        self.on_server(S::bytes).await
    }
}

impl<S: RegisterServer, G: Ground> ObservedHarness for RegisterLock<S, G> {
    async fn touch(&self) {
        let drawn = uuid::Uuid::new_v4().simple().to_string();
        self.modify(|it| it["write"] = drawn.into()).await;
    }

    async fn usurp(&self) {
        let claim = json!({
            "nonce": "f00", "identity": "z", "lease_ms": 15_000, "renewal": "f01", "writes": 1
        });
        self.modify(|it| it["claim"] = claim).await;
    }
}
