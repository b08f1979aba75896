//! PostgreSQL itself on a free port of loopback, which ends with the test's process. It refuses to run
//! as root, and runs as Debian's user for it then.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::Signal;
use tempfile::TempDir;
use tenure::config::{Address, PostgresPassword, PostgresSettings, PostgresTable, SecretSource};
use tenure::store::LeaseAdmin;
use tenure::store::postgres;
use url::Host;

use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run_as;
use crate::stores::bids::REQUEST_TIMEOUT;
use crate::stores::certificates::Certificates;
use crate::stores::register_lock::RegisterServer;
use crate::stores::servers::{PATIENCE, Shared, SharedServer};

/// The database of all elections.
pub const DATABASE: &str = "app";

/// The user of the elections, who owns the database.
pub const USER: (&str, &str) = ("elections", "correct horse");

/// What PostgreSQL keeps of that password after one round of hashing, instead of the 4,096 that it does by
/// itself: the candidates of all tests sign in, and share the cores. The secured server has all rounds.
const ONE_ROUND: &str = "SCRAM-SHA-256$1:MDEyMzQ1Njc4OWFiY2RlZg==$\
    Wmmhj45Nue8NrsYDbtU+KyrFOFsDqD29KMHYrLDk3bE=:0jdS90P8cvF2I/Ju4EYJ6EV5ZGo92TrLttAjR39uJFE=";

/// The administrator, who needs no password on loopback.
const ADMIN: &str = "admin";

/// Returns the options of setpriv for a user other than root.
pub(super) fn user() -> &'static [&'static str] {
    if rustix::process::geteuid().is_root() {
        &["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    } else {
        &[]
    }
}

/// Gives a directory to the user that the server runs as.
pub(super) fn hand_over(home: &Path) {
    if rustix::process::geteuid().is_root() {
        let done = Command::new("chown").args(["-R", "postgres:postgres"]).arg(home).status();
        assert!(
            done.expect("chown runs").success(),
            "the user postgres of Debian's package postgresql"
        );
    }
}

/// Returns a program of the newest version that is installed.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok()).max();
    let newest = newest.expect("Debian's package postgresql: tests/tools/packages installs it");
    PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin/{name}"))
}

/// Runs a program of the package to its end, as the user of the server.
fn complete(name: &str, arguments: &[&str]) {
    let mut command = Command::new("setpriv");
    command.args(user()).arg(program(name)).args(arguments).current_dir("/");
    let output = command.stdin(Stdio::null()).output().expect("setpriv of util-linux runs");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {words}");
}

/// A running server.
pub struct PostgresServer {
    pub port: u16,
    pub process: Process,
    files: Option<Certificates>,
    home: PathBuf,
    _temporary: Option<TempDir>,
}

impl PostgresServer {
    /// Starts one without TLS.
    pub fn start() -> Self {
        Self::with(false)
    }

    /// Starts one with TLS that requires a certificate of its users beside the password.
    pub fn secured() -> Self {
        Self::with(true)
    }

    /// Starts one without TLS, with its data in a directory.
    pub fn start_in(home: &Path) -> Self {
        Self::made(home, None, None)
    }

    /// Creates the table, so that the tests that share the server do not create it at the same time.
    fn with_table(self) -> Self {
        let store = postgres::open(&self.settings("first")).expect("good settings");
        crate::blocking(store.create(1)).expect("created");
        self
    }

    fn with(tls: bool) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let files = tls.then(|| Certificates::make(home.path(), "PostgreSQL of the tests"));
        let path = home.path().to_owned();
        Self::made(&path, Some(home), files)
    }

    fn made(home: &Path, temporary: Option<TempDir>, files: Option<Certificates>) -> Self {
        hand_over(home);
        let data = home.join("data");
        let data = data.to_str().expect("a path in UTF-8");
        let options = [
            "--username",
            ADMIN,
            "--encoding",
            "UTF8",
            "--no-locale",
            "--no-sync",
            "--wal-segsize=1",
        ];
        complete("initdb", &[&["--pgdata", data], &options[..]].concat());
        let tls = files.is_some();
        let sign_in = if tls { "scram-sha-256 clientcert=verify-ca" } else { "scram-sha-256" };
        let kind = if tls { "hostssl" } else { "host" };
        let rules = format!(
            "host all {ADMIN} 127.0.0.1/32 trust\n\
             host replication {ADMIN} 127.0.0.1/32 trust\n\
             {kind} all all 127.0.0.1/32 {sign_in}\n"
        );
        std::fs::write(format!("{data}/pg_hba.conf"), rules).expect("written");
        let it = Self::run(home, temporary, files);
        let password = if tls { USER.1 } else { ONE_ROUND };
        it.sql_in("postgres", &format!("CREATE ROLE {} LOGIN PASSWORD '{password}'", USER.0));
        it.sql_in("postgres", &format!("CREATE DATABASE {DATABASE} OWNER {}", USER.0));
        it
    }

    /// Starts a standby of this server.
    pub fn standby(&self) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        hand_over(home.path());
        let data = home.path().join("data");
        let data = data.to_str().expect("a path in UTF-8");
        let from =
            format!("host=127.0.0.1 port={} user={ADMIN} application_name=standby", self.port);
        complete(
            "pg_basebackup",
            &[
                "--pgdata",
                data,
                "--dbname",
                &from,
                "--write-recovery-conf",
                "--checkpoint",
                "fast",
                "--no-sync",
            ],
        );
        let path = home.path().to_owned();
        Self::run(&path, Some(home), None)
    }

    fn run(home: &Path, temporary: Option<TempDir>, files: Option<Certificates>) -> Self {
        for _ in 0..5 {
            let port = free_port();
            let mut process = spawn(home, port, files.as_ref());
            let is_ready = until(PATIENCE, "PostgreSQL is ready", || {
                let ended = process.has_ended();
                (ended || psql(port, "postgres", "SELECT 1").is_ok()).then_some(!ended)
            });
            // Another process may have taken the port first.
            if is_ready {
                let home = home.to_owned();
                return Self { port, process, files, home, _temporary: temporary };
            }
        }
        panic!("PostgreSQL ended five times before it was ready");
    }

    /// Kills it, and starts it again with the same port and data.
    pub fn restart(&mut self) {
        self.kill();
        self.process = spawn(&self.home, self.port, self.files.as_ref());
        self.becomes_ready();
    }

    /// Kills the server with all its processes, which then have left no shared memory.
    pub fn kill(&mut self) {
        self.process.kill();
        let lock = self.home.join("data/postmaster.pid");
        // The others notice that the first is gone.
        until(PATIENCE, "PostgreSQL is gone", || {
            psql(self.port, "postgres", "SELECT 1").is_err().then_some(())
        });
        let _ = std::fs::remove_file(lock);
    }

    /// Copies its data.
    pub fn save(&mut self) {
        self.kill();
        copy(&self.home.join("data"), &self.home.join("saved"));
        self.restart();
    }

    /// Replaces its data by those that were copied.
    pub fn restore(&mut self) {
        self.kill();
        copy(&self.home.join("saved"), &self.home.join("data"));
        self.restart();
    }

    /// Waits until it answers.
    pub fn becomes_ready(&self) {
        until(PATIENCE, "PostgreSQL is ready", || {
            psql(self.port, "postgres", "SELECT 1").ok().map(drop)
        });
    }

    /// Sends a signal to the server with all its processes.
    pub fn signal(&self, signal: Signal) {
        let first = self.process.pid();
        let (parent, all) = (first.as_raw_nonzero().get().to_string(), "/proc");
        for entry in std::fs::read_dir(all).expect("/proc").flatten() {
            let status = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // After the name in brackets come the state and the parent.
            let of = status.rsplit_once(')').and_then(|it| it.1.split_whitespace().nth(1));
            if of == Some(parent.as_str())
                && let Some(id) = entry.file_name().to_str().and_then(|it| it.parse().ok())
                && let Some(process) = rustix::process::Pid::from_raw(id)
            {
                let _ = rustix::process::kill_process(process, signal);
            }
        }
        rustix::process::kill_process(first, signal).expect("it takes a signal");
    }

    /// Runs statements as the administrator in the database of the elections; returns the rows, with `|`
    /// between columns.
    pub fn sql(&self, statements: &str) -> String {
        self.sql_in(DATABASE, statements)
    }

    fn sql_in(&self, database: &str, statements: &str) -> String {
        psql(self.port, database, statements).unwrap_or_else(|why| panic!("{statements}: {why}"))
    }

    /// Returns `psql` for a session of the administrator in a database of this server, of which the test gives
    /// the rest.
    pub fn psql(&self, database: &str) -> Command {
        session(self.port, database)
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.sql_in("postgres", "SELECT pg_promote()");
    }

    /// Returns whether statements of the administrator fail.
    pub fn fails(&self, statements: &str) -> bool {
        psql(self.port, DATABASE, statements).is_err()
    }

    /// Returns the settings of an election on this server.
    pub fn settings(&self, election: &str) -> PostgresSettings {
        self.settings_at(&[self.port], election)
    }

    /// Returns the settings of an election at these ports of loopback.
    pub fn settings_at(&self, ports: &[u16], election: &str) -> PostgresSettings {
        let secret = |text: &str| SecretSource::Value(text.to_owned());
        let address = |port: &u16| Address { host: Host::Ipv4([127, 0, 0, 1].into()), port: *port };
        PostgresSettings {
            servers: ports.iter().map(address).collect(),
            database: DATABASE.to_owned(),
            table: PostgresTable { schema: None, name: "tenure".to_owned() },
            election: election.to_owned(),
            user: secret(USER.0),
            password: Some(PostgresPassword::Secret(secret(USER.1))),
            tls: self.files.as_ref().map(Certificates::settings),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Returns the arguments that name this store, for `tenure`.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = store(&[self.port]);
        arguments.extend(self.files.iter().flat_map(Certificates::arguments));
        arguments
    }

    /// Replaces the certificates of the server and of its users, each with a new key of the same
    /// authority.
    pub fn replace_certificates(&self) {
        let files = self.files.as_ref().expect("a server with TLS");
        files.replace();
        hand_over(&self.home);
        self.sql("SELECT pg_reload_conf()");
    }

    /// Returns a directory of the server's life.
    pub fn home(&self) -> &Path {
        &self.home
    }
}

impl SharedServer for PostgresServer {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<PostgresServer> = Shared::new();
        SHARED.get(|| Self::start().with_table())
    }

    fn shared_secured() -> Arc<Self> {
        static SHARED: Shared<PostgresServer> = Shared::new();
        SHARED.get(|| Self::secured().with_table())
    }
}

impl RegisterServer for PostgresServer {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        postgres::open(&self.settings(election)).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        self.sql(&format!("SELECT * FROM tenure WHERE election = '{election}'")).into()
    }

    fn value(&self, election: &str) -> Vec<u8> {
        self.sql(&format!("SELECT body FROM tenure WHERE election = '{election}'")).into()
    }

    fn put(&self, election: &str, value: &str) {
        self.sql(&format!(
            "INSERT INTO tenure AS t VALUES ('{election}', gen_random_uuid(), $value${value}$value$) \
             ON CONFLICT (election) DO UPDATE SET write = excluded.write, body = excluded.body"
        ));
    }

    fn delete(&self, election: &str) {
        self.sql(&format!("DELETE FROM tenure WHERE election = '{election}'"));
    }
}

/// Returns the arguments that name a store at these ports of loopback, for `tenure`.
pub fn store(ports: &[u16]) -> Vec<String> {
    let all: Vec<_> = ports.iter().map(|it| format!("127.0.0.1:{it}")).collect();
    vec!["--store".to_owned(), format!("postgres://{}/{DATABASE}", all.join(","))]
}

/// Returns the variables of the user, for `tenure`.
pub fn variables() -> Vec<(String, String)> {
    [("PGUSER", USER.0), ("PGPASSWORD", USER.1)].map(|(name, it)| (name.into(), it.into())).into()
}

/// Makes a directory a copy of another.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
    assert!(copied.success(), "{}", from.display());
}

fn spawn(home: &Path, port: u16, files: Option<&Certificates>) -> Process {
    let data = home.join("data").display().to_string();
    let mut settings = vec![
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        "max_connections=300".to_owned(),
        "shared_buffers=16MB".to_owned(),
        "log_min_messages=fatal".to_owned(),
        "wal_level=replica".to_owned(),
        // In files of the server, not in /dev/shm, where they would outlast a server that is killed.
        "dynamic_shared_memory_type=mmap".to_owned(),
    ];
    if let Some(files) = files {
        let text = |path: &Path| path.display().to_string();
        settings.extend([
            "ssl=on".to_owned(),
            format!("ssl_cert_file={}", text(&files.server.cert)),
            format!("ssl_key_file={}", text(&files.server.key)),
            format!("ssl_ca_file={}", text(&files.ca)),
        ]);
    }
    let mut arguments = vec!["-D", &data];
    arguments.extend(settings.iter().flat_map(|it| ["-c", it.as_str()]));
    run_as(home, "postgres", &program("postgres"), user(), &arguments)
}

fn session(port: u16, database: &str) -> Command {
    let mut command = Command::new(program("psql"));
    command
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", &port.to_string()])
        .args(["-U", ADMIN, "-d", database])
        .env("PGCONNECT_TIMEOUT", "10");
    command
}

fn psql(port: u16, database: &str, statements: &str) -> Result<String, String> {
    let mut command = session(port, database);
    command.args(["-c", statements]).stdin(Stdio::null());
    let output = command.output().expect("psql runs");
    let text = |it: &[u8]| String::from_utf8_lossy(it).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
