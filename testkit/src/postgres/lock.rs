//! The lock of an election in PostgreSQL, with the operations of others on it, for the conformance
//! suite.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::config::PostgresSettings;
use tenure::store::LeaseAdmin;
use tenure::store::postgres::Postgres;

use super::pooler::Pooler;
use super::server::PostgresServer;
use crate::stores::conformance::Harness;

/// What the candidates of a lock connect to.
pub trait Ground: Send + Sync {
    /// Starts what the test needs.
    fn start() -> Self;

    /// Returns the server.
    fn server(&self) -> &PostgresServer;

    /// Returns the port that candidates use.
    fn port(&self) -> u16 {
        self.server().port
    }
}

/// The server itself, without TLS.
pub struct Plain(Arc<PostgresServer>);

impl Ground for Plain {
    fn start() -> Self {
        Self(PostgresServer::shared())
    }

    fn server(&self) -> &PostgresServer {
        &self.0
    }
}

/// The server itself, with TLS and certificates of its users.
pub struct Secured(Arc<PostgresServer>);

impl Ground for Secured {
    fn start() -> Self {
        Self(PostgresServer::shared_secured())
    }

    fn server(&self) -> &PostgresServer {
        &self.0
    }
}

/// A pooler in transaction mode.
pub struct Pooled(Arc<PostgresServer>, Pooler);

impl Ground for Pooled {
    fn start() -> Self {
        let server = PostgresServer::shared();
        let pooler = Pooler::before(&server);
        Self(server, pooler)
    }

    fn server(&self) -> &PostgresServer {
        &self.0
    }

    fn port(&self) -> u16 {
        self.1.port
    }
}

/// A lock whose time passes when the test says so: the end of its lease is moved.
pub struct PostgresLock<G> {
    ground: Arc<G>,
    settings: PostgresSettings,
}

impl<G: Ground + 'static> PostgresLock<G> {
    /// Runs statements on the row, on a thread that may block.
    async fn sql(&self, statements: String) -> String {
        let ground = Arc::clone(&self.ground);
        let asked = tokio::task::spawn_blocking(move || ground.server().sql(&statements));
        asked.await.expect("the statements are executed")
    }

    fn row(&self) -> String {
        format!("election = '{}'", self.settings.election)
    }
}

impl<G: Ground + 'static> Harness for PostgresLock<G> {
    const LEASE: Duration = Duration::from_secs(60);
    const FOREIGN: &'static [&'static str] = &[
        "format = 2",
        "claim = 'locked', ends = clock_timestamp() + interval '1 hour'",
        "nonce = 'somebody'",
    ];

    async fn start() -> Self {
        static LOCKS: AtomicU64 = AtomicU64::new(0);
        let ground = tokio::task::spawn_blocking(|| Arc::new(G::start())).await.expect("a server");
        let port = ground.port();
        let election = format!("lock-{}", LOCKS.fetch_add(1, Ordering::Relaxed));
        let settings = ground.server().settings_at(&[port], &election);
        Self { ground, settings }
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
