//! A storage account for real processes, on the in-process server or on Azurite, with the
//! operations of an operator or a third party. Tests share an Azurite, but never a container.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tenure::config::AzureSettings;
use tenure::store::LeaseAdmin;
use tenure::store::azure::Azure;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::azure::azurite::{self, Azurite};
use crate::azure::blob_server::{self, BlobServer};
use crate::http::raw::Raw;
use crate::processes::cluster::{Cluster, ON_BLOBS, PATIENCE};
use crate::processes::process::until;

/// The election, and so the blob.
const ELECTION: &str = "orders";

/// The term in the record before the first leader.
pub const FIRST_TERM: u64 = 1_000;

/// An account with a container for one test.
pub struct Account {
    settings: AzureSettings,
    raw: Raw,
    server: Server,
    runtime: Runtime,
}

enum Server {
    Tables(
        BlobServer,
        #[expect(dead_code, reason = "its end ends the thread")] oneshot::Sender<()>,
    ),
    Azurite(#[expect(dead_code, reason = "the last one ends it")] Arc<Azurite>),
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

impl Account {
    /// Starts the in-process server on a thread, with a running clock.
    pub fn by_the_tables() -> Self {
        let (started, is_started) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        std::thread::spawn(move || {
            runtime().block_on(async {
                started.send(BlobServer::start_live().await).expect("the test waits for it");
                let _ = ended.await;
            });
        });
        let server = is_started.recv().expect("it starts");
        let settings = server.settings("locks", ELECTION);
        Self::new(settings, Server::Tables(server, end), runtime())
    }

    /// Creates a container in the Azurite that all running tests share; it ends with the last of
    /// them.
    pub fn on_azurite() -> Self {
        static CONTAINERS: AtomicU32 = AtomicU32::new(0);
        let azurite = Azurite::shared();
        let number = CONTAINERS.fetch_add(1, Ordering::Relaxed);
        let settings = azurite.settings(&format!("locks-{number}"), ELECTION);
        Self::new(settings, Server::Azurite(azurite), runtime())
    }

    fn new(settings: AzureSettings, server: Server, runtime: Runtime) -> Self {
        Self { raw: Raw::new(&settings), settings, server, runtime }
    }

    /// Creates a cluster on a record with a first term, so that no candidate holds at the start
    /// (R11).
    pub fn cluster(&self, names: &[&str]) -> Cluster {
        self.runtime.block_on(async {
            let store = Azure::open(self.settings.clone()).expect("the settings are good");
            store.create(FIRST_TERM).await.expect("made");
        });
        let store = [
            "--store".to_owned(),
            format!("azure://{}/{}", self.settings.account, self.settings.container),
            "--election".to_owned(),
            ELECTION.to_owned(),
            "--azure-endpoint".to_owned(),
            self.settings.endpoint.to_string(),
        ];
        let key = match &self.server {
            Server::Tables(..) => blob_server::KEY,
            Server::Azurite(_) => azurite::KEY,
        };
        let variables = vec![("AZURE_STORAGE_KEY".to_owned(), key.to_owned())];
        let mut cluster = Cluster::on(store.into(), variables, ON_BLOBS);
        for name in names {
            cluster.join(name, &[], &[]);
        }
        cluster
    }

    /// Returns the in-process server. Panics if this is an Azurite.
    pub fn tables(&self) -> &BlobServer {
        match &self.server {
            Server::Tables(server, _) => server,
            Server::Azurite(_) => panic!("an Azurite takes no orders"),
        }
    }

    /// Waits until no answer given before is valid, then lets every lease of the in-process server
    /// expire. On Azurite they expire by themselves.
    pub fn let_leases_end(&self) {
        #[allow(clippy::disallowed_methods, reason = "answers hold by the real clock")]
        std::thread::sleep(ON_BLOBS.renew_deadline);
        if let Server::Tables(server, _) = &self.server {
            server.advance(ON_BLOBS.lease_duration);
        }
    }

    /// Performs a call as a third party would.
    pub fn by_hand<T>(&self, call: impl AsyncFnOnce(&Raw) -> T) -> T {
        self.runtime.block_on(call(&self.raw))
    }

    /// Waits until the blob is in a lease state.
    pub fn until_lease_is(&self, state: &str) {
        until(PATIENCE, &format!("the lease is {state}"), || {
            (self.by_hand(async |raw| raw.lease_state().await) == state).then_some(())
        });
    }
}
