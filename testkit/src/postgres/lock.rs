//! The lock of an election in PostgreSQL, with the operations of others on it, for the conformance
//! suite.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tenure::config::PostgresSettings;
use tenure::store::LeaseAdmin;
use tenure::store::postgres::Postgres;

use super::pooler::Pooler;
use super::server::PostgresServer;
use crate::stores::conformance::Harness;
use crate::stores::servers::{Ground, on_thread, place};

/// A lock whose time passes when the test says so: the end of its lease is moved. Its candidates may
/// connect through a pooler in transaction mode.
pub struct PostgresLock<G, const POOLED: bool = false> {
    server: Arc<PostgresServer>,
    settings: PostgresSettings,
    _pooler: Option<Pooler>,
    _ground: PhantomData<G>,
}

impl<G: Ground, const POOLED: bool> PostgresLock<G, POOLED> {
    /// Runs statements on the row, on a thread that may block.
    async fn sql(&self, statements: String) -> String {
        let server = Arc::clone(&self.server);
        on_thread(move || server.sql(&statements)).await
    }

    fn row(&self) -> String {
        format!("election = '{}'", self.settings.election)
    }
}

impl<G: Ground, const POOLED: bool> Harness for PostgresLock<G, POOLED> {
    const LEASE: Duration = Duration::from_secs(60);
    const FOREIGN: &'static [&'static str] = &[
        "format = 2",
        "claim = 'locked', ends = clock_timestamp() + interval '1 hour'",
        "nonce = 'somebody'",
    ];

    async fn start() -> Self {
        let (server, election) = place::<G, PostgresServer>().await;
        let of = Arc::clone(&server);
        let pooler = on_thread(move || POOLED.then(|| Pooler::before(&of))).await;
        let port = pooler.as_ref().map_or(server.port, |it| it.port);
        let settings = server.settings_at(&[port], &election);
        Self { server, settings, _pooler: pooler, _ground: PhantomData }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(Postgres::open(&self.settings).expect("the settings are good"))
    }

    async fn advance(&self, by: Duration) {
        let (row, millis) = (self.row(), by.as_millis());
        let earlier = format!("ends = ends - interval '{millis} milliseconds'");
        self.sql(format!("UPDATE tenure SET {earlier} WHERE {row}")).await;
    }

    async fn delete(&self) {
        self.sql(format!("DELETE FROM tenure WHERE {}", self.row())).await;
    }

    async fn plant(&self, foreign: &str) {
        self.candidate().create(1).await.expect("a row");
        self.sql(format!("UPDATE tenure SET {foreign} WHERE {}", self.row())).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        self.sql(format!("SELECT * FROM tenure WHERE {}", self.row())).await.into_bytes()
    }
}
