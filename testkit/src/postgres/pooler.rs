//! PgBouncer in transaction mode before a server, on a free port of loopback.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::store::{LeaseAdmin, postgres};

use super::server::{DATABASE, PostgresServer, USER, hand_over, user};
use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run_as;
use crate::stores::register_lock::RegisterServer;
use crate::stores::servers::{Shared, SharedServer};

/// The timeout until it is ready, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running pooler.
pub struct Pooler {
    pub port: u16,
    _process: Process,
    _home: TempDir,
}

impl Pooler {
    /// Starts one before a server without TLS, with one connection to it for all clients.
    pub fn before(server: &PostgresServer) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let (port, path) = (free_port(), home.path().join("pgbouncer.ini"));
        let users = home.path().join("users");
        let settings = format!(
            "[databases]\n{DATABASE} = host=127.0.0.1 port={} dbname={DATABASE}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = 1\nmax_client_conn = 500\n",
            server.port,
            users.display(),
        );
        std::fs::write(&path, settings).expect("written");
        std::fs::write(&users, format!("\"{}\" \"{}\"\n", USER.0, USER.1)).expect("written");
        hand_over(home.path());
        let arguments = [path.to_str().expect("a path in UTF-8")];
        let process =
            run_as(home.path(), "pgbouncer", "/usr/sbin/pgbouncer".as_ref(), user(), &arguments);
        until(PATIENCE, "PgBouncer listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        });
        Self { port, _process: process, _home: home }
    }

    /// Runs statements through the pooler as the user of the elections.
    pub fn sql(&self, statements: &str) -> String {
        let output = Command::new("psql")
            .args(["-XAtq", "-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-U", USER.0, "-d", DATABASE, "-c", statements])
            .env("PGPASSWORD", USER.1)
            .stdin(Stdio::null())
            .output()
            .expect("psql runs");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statements}: {words}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// The shared server, whose candidates connect through one pooler.
pub struct Pooled {
    server: Arc<PostgresServer>,
    pooler: Pooler,
}

impl SharedServer for Pooled {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<Pooled> = Shared::new();
        SHARED.get(|| {
            let server = PostgresServer::shared();
            Self { pooler: Pooler::before(&server), server }
        })
    }

    fn shared_secured() -> Arc<Self> {
        Self::shared()
    }
}

impl RegisterServer for Pooled {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        let settings = self.server.settings_at(&[self.pooler.port], election);
        postgres::open(&settings).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        self.server.bytes(election)
    }

    fn value(&self, election: &str) -> Vec<u8> {
        self.server.value(election)
    }

    fn put(&self, election: &str, value: &str) {
        self.server.put(election, value);
    }

    fn delete(&self, election: &str) {
        self.server.delete(election);
    }
}
