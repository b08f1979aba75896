//! Redis itself on free ports of loopback, which ends with the test's process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::Signal;
use tempfile::TempDir;
use tenure::config::{Address, RedisSettings, SecretSource};
use tenure::store::{LeaseAdmin, redis};
use url::Host;

use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run_as;
use crate::stores::bids::REQUEST_TIMEOUT;
use crate::stores::certificates::Certificates;
use crate::stores::register_lock::RegisterServer;
use crate::stores::servers::{PATIENCE, Shared, SharedServer};

/// The database of all elections.
pub const DATABASE: u16 = 3;

/// The user of the elections.
pub const USER: (&str, &str) = ("elections", "correct horse");

/// The rights of that user, as the page on Redis has them.
pub const RIGHTS: &str = "~tenure:* &tenure:* -@all +select +eval +info +time +exists +hget +hmget +hset +hdel \
                          +publish +subscribe +scan +config|get";

/// What a server keeps of its data when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Everything that it has answered.
    All,
    /// What it has written a second ago.
    MostOf,
    Nothing,
}

/// A running server.
pub struct RedisServer {
    /// The port of candidates, with TLS if it has any.
    pub port: u16,
    /// The port of the administrator, who needs no password.
    admin: u16,
    pub process: Process,
    arguments: Vec<String>,
    files: Option<Certificates>,
    home: PathBuf,
    _temporary: Option<TempDir>,
}

/// A running Sentinel.
pub struct Sentinel {
    pub port: u16,
    _process: Process,
    _home: TempDir,
}

impl RedisServer {
    /// Starts one without TLS that loses nothing.
    pub fn start() -> Self {
        Self::keeping(Keeps::All)
    }

    /// Starts one without TLS that keeps this much of its data.
    pub fn keeping(keeps: Keeps) -> Self {
        Self::with(keeps, false, &[])
    }

    /// Starts one with TLS that requires a certificate of its users beside the password.
    pub fn secured() -> Self {
        Self::with(Keeps::All, true, &[])
    }

    /// Starts a replica of this server.
    pub fn replica(&self) -> Self {
        let of = format!("127.0.0.1 {}", self.admin);
        let it = Self::with(Keeps::All, false, &["--replicaof", &of]);
        until(PATIENCE, "the replica is in step", || {
            it.ask(&["INFO", "replication"]).contains("master_link_status:up").then_some(())
        });
        it
    }

    /// Starts a Sentinel that watches this server.
    pub fn sentinel(&self) -> Sentinel {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("sentinel.conf");
        let port = free_port();
        let watches =
            format!("port {port}\nbind 127.0.0.1\nsentinel monitor m 127.0.0.1 {} 1\n", self.admin);
        std::fs::write(&file, watches).expect("written");
        let arguments = [file.display().to_string(), "--sentinel".to_owned()];
        let process = spawn(home.path(), &arguments);
        until(PATIENCE, "the Sentinel answers", || answers(port).then_some(()));
        Sentinel { port, _process: process, _home: home }
    }

    /// Starts one without TLS, with its data in a directory, of which it keeps this much.
    pub fn start_in(home: &Path, keeps: Keeps) -> Self {
        Self::made(home, None, keeps, false, &[])
    }

    fn with(keeps: Keeps, tls: bool, settings: &[&str]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().to_owned();
        Self::made(&path, Some(home), keeps, tls, settings)
    }

    fn made(
        home: &Path,
        temporary: Option<TempDir>,
        keeps: Keeps,
        tls: bool,
        settings: &[&str],
    ) -> Self {
        let users = home.join("users.acl");
        std::fs::write(&users, "").expect("written");
        let files = tls.then(|| Certificates::make(home, "Redis of the tests"));
        let text = |path: &Path| path.display().to_string();
        let [appends, syncs] = match keeps {
            Keeps::All => ["yes", "always"],
            Keeps::MostOf => ["yes", "everysec"],
            Keeps::Nothing => ["no", "no"],
        };
        for _ in 0..5 {
            let (admin, port) = (free_port(), free_port());
            let port = if tls { port } else { admin };
            let (admin_text, port_text) = (admin.to_string(), port.to_string());
            let fixed = [
                ["--bind", "127.0.0.1"],
                ["--port", &admin_text],
                ["--dir", &text(home)],
                ["--aclfile", &text(&users)],
                ["--save", ""],
                ["--appendonly", appends],
                ["--appendfsync", syncs],
                ["--loglevel", "warning"],
                ["--repl-diskless-sync-delay", "0"],
                ["--shutdown-on-sigterm", "nosave"],
            ];
            let mut arguments: Vec<String> =
                fixed.concat().into_iter().map(str::to_owned).collect();
            if let Some(files) = &files {
                let secured = [
                    ["--tls-port", &port_text],
                    ["--tls-cert-file", &text(&files.server.cert)],
                    ["--tls-key-file", &text(&files.server.key)],
                    ["--tls-ca-cert-file", &text(&files.ca)],
                    ["--tls-auth-clients", "yes"],
                ];
                arguments.extend(secured.concat().into_iter().map(str::to_owned));
            }
            arguments.extend(settings.iter().map(|it| (*it).to_owned()));
            let mut process = spawn(home, &arguments);
            // Another process may have taken a port first.
            let is_ready = until(PATIENCE, "Redis is ready", || {
                let ended = process.has_ended();
                (ended || answers(admin)).then_some(!ended)
            });
            if is_ready {
                let home = home.to_owned();
                let it =
                    Self { port, admin, process, arguments, files, home, _temporary: temporary };
                it.give_rights();
                return it;
            }
        }
        panic!("Redis ended five times before it was ready");
    }

    /// Kills it, and starts it again with the same ports and data.
    pub fn restart(&mut self) {
        self.kill();
        self.process = spawn(&self.home, &self.arguments);
        self.becomes_ready();
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Copies its data.
    pub fn save(&mut self) {
        self.kill();
        copy(&self.home.join("appendonlydir"), &self.home.join("saved"));
        self.restart();
    }

    /// Replaces its data by those that were copied.
    pub fn restore(&mut self) {
        self.kill();
        copy(&self.home.join("saved"), &self.home.join("appendonlydir"));
        self.restart();
    }

    /// Waits until it answers.
    pub fn becomes_ready(&self) {
        until(PATIENCE, "Redis is ready", || answers(self.admin).then_some(()));
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Sends a command as the administrator in the database of the elections; returns the answer.
    pub fn ask(&self, command: &[&str]) -> String {
        self.try_ask(command).unwrap_or_else(|why| panic!("{command:?}: {why}"))
    }

    /// Like [`ask`](Self::ask), where the server may not do it.
    pub fn try_ask(&self, command: &[&str]) -> Result<String, String> {
        cli(self.admin, command)
    }

    /// Makes a replica a primary.
    pub fn promote(&self) {
        self.ask(&["REPLICAOF", "NO", "ONE"]);
    }

    /// Makes it a replica of another.
    pub fn follow(&self, other: &Self) {
        self.ask(&["REPLICAOF", "127.0.0.1", &other.admin.to_string()]);
    }

    /// Takes all rights of the user of the elections.
    pub fn take_rights(&self) {
        self.ask(&["ACL", "SETUSER", USER.0, "-@all"]);
    }

    /// Creates the user of the elections with its rights.
    pub fn give_rights(&self) {
        let password = format!(">{}", USER.1);
        let fixed = ["ACL", "SETUSER", USER.0, "reset", "on", &password];
        let rights: Vec<_> = fixed.into_iter().chain(RIGHTS.split_whitespace()).collect();
        self.ask(&rights);
        self.ask(&["ACL", "SAVE"]);
    }

    /// Ends the connections of all others.
    pub fn end_connections(&self) {
        for kind in ["normal", "pubsub"] {
            self.ask(&["CLIENT", "KILL", "TYPE", kind]);
        }
    }

    /// Replaces the certificates of the server and of its users, each with a new key of the same
    /// authority.
    pub fn replace_certificates(&self) {
        let files = self.files.as_ref().expect("a server with TLS");
        files.replace();
        let text = |path: &Path| path.display().to_string();
        let (cert, key) = (text(&files.server.cert), text(&files.server.key));
        self.ask(&["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key]);
    }

    /// Returns the settings of an election on this server.
    pub fn settings(&self, election: &str) -> RedisSettings {
        self.settings_at(&[self.port], election)
    }

    /// Returns the settings of an election at these ports of loopback.
    pub fn settings_at(&self, ports: &[u16], election: &str) -> RedisSettings {
        let secret = |text: &str| Some(SecretSource::Value(text.to_owned()));
        let address = |port: &u16| Address { host: Host::Ipv4([127, 0, 0, 1].into()), port: *port };
        RedisSettings {
            servers: ports.iter().map(address).collect(),
            database: DATABASE,
            election: election.to_owned(),
            user: secret(USER.0),
            password: secret(USER.1),
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
}

impl SharedServer for RedisServer {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<RedisServer> = Shared::new();
        SHARED.get(Self::start)
    }

    fn shared_secured() -> Arc<Self> {
        static SHARED: Shared<RedisServer> = Shared::new();
        SHARED.get(Self::secured)
    }
}

impl RegisterServer for RedisServer {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        redis::open(&self.settings(election)).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        self.ask(&["DUMP", &key(election)]).into()
    }

    fn value(&self, election: &str) -> Vec<u8> {
        self.ask(&["HGET", &key(election), "body"]).into()
    }

    fn put(&self, election: &str, value: &str) {
        let key = key(election);
        match value {
            "none" => {
                self.ask(&["DEL", &key]);
                self.ask(&["SET", &key, "words"]);
            }
            value => {
                let write = uuid::Uuid::new_v4().to_string();
                self.ask(&["HSET", &key, "format", "2", "write", &write, "body", value]);
            }
        }
    }

    fn delete(&self, election: &str) {
        self.ask(&["DEL", &key(election)]);
    }
}

fn key(election: &str) -> String {
    format!("tenure:{{{election}}}:record")
}

/// Returns the arguments that name a store at these ports of loopback, for `tenure`.
pub fn store(ports: &[u16]) -> Vec<String> {
    let all: Vec<_> = ports.iter().map(|it| format!("127.0.0.1:{it}")).collect();
    vec!["--store".to_owned(), format!("redis://{}/{DATABASE}", all.join(","))]
}

/// Returns the variables of the user, for `tenure`.
pub fn variables() -> Vec<(String, String)> {
    [("REDIS_USERNAME", USER.0), ("REDIS_PASSWORD", USER.1)]
        .map(|(name, it)| (name.into(), it.into()))
        .into()
}

/// Makes a directory a copy of another.
fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs");
    assert!(copied.success(), "{}", from.display());
}

fn spawn(home: &Path, arguments: &[String]) -> Process {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run_as(home, "redis-server", Path::new("redis-server"), &[], &arguments)
}

fn answers(port: u16) -> bool {
    cli(port, &["PING"]).is_ok_and(|it| it == "PONG")
}

fn cli(port: u16, command: &[&str]) -> Result<String, String> {
    let output = Command::new("redis-cli")
        .args(["-e", "-p", &port.to_string(), "-n", &DATABASE.to_string()])
        .args(command)
        .stdin(Stdio::null())
        .output()
        .expect("redis-cli of Debian's package redis-server: tests/tools/packages installs it");
    let text = |it: &[u8]| String::from_utf8_lossy(it).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
