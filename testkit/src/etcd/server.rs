//! etcd itself on free ports of loopback, which ends with the test's process.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use azure_core::base64;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::config::{EtcdSettings, EtcdUser, SecretSource};
use tenure::store::{LeaseAdmin, etcd};
use url::Url;

use crate::blocking;
use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run;
use crate::stores::bids::REQUEST_TIMEOUT;
use crate::stores::certificates::Certificates;
use crate::stores::register_lock::RegisterServer;
use crate::stores::servers::{PATIENCE, Shared, SharedServer};

/// The prefix of all elections.
pub const PREFIX: &str = "tenure";

/// The user of the elections, who may read and write below the prefix.
pub const USER: (&str, &str) = ("elections", "correct horse");

/// The administrator.
const ROOT: (&str, &str) = ("root", "battery staple");

/// One member.
pub struct Member {
    /// The port for clients.
    pub port: u16,
    pub process: Process,
    home: PathBuf,
    arguments: Vec<String>,
}

impl Member {
    /// Starts the only member of a cluster without TLS, with its data in a directory.
    pub fn alone(home: &Path) -> Self {
        let (port, peer) = (free_port(), free_port());
        Self::start(home, "default", port, peer, &format!("default=http://127.0.0.1:{peer}"), None)
    }

    fn start(
        home: &Path,
        name: &str,
        port: u16,
        peer: u16,
        cluster: &str,
        files: Option<&Certificates>,
    ) -> Self {
        let scheme = if files.is_some() { "https" } else { "http" };
        let (client, peer) =
            (format!("{scheme}://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer}"));
        let text = |path: &Path| path.display().to_string();
        let mut arguments = vec![
            format!("--name={name}"),
            format!("--data-dir={}", text(&home.join(name))),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=error".to_owned(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={cluster}"),
        ];
        if let Some(files) = files {
            arguments.extend([
                format!("--cert-file={}", text(&files.server.cert)),
                format!("--key-file={}", text(&files.server.key)),
                format!("--trusted-ca-file={}", text(&files.ca)),
                "--client-cert-auth".to_owned(),
                // The least, because the tests sign in often.
                "--bcrypt-cost=4".to_owned(),
            ]);
        }
        let process = spawn(home, &arguments);
        Self { port, process, home: home.to_owned(), arguments }
    }

    /// Kills it, and starts it again with the same ports and data.
    fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(&self.home, &self.arguments);
    }
}

fn spawn(home: &Path, arguments: &[String]) -> Process {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(home, "etcd", &arguments)
}

/// A running cluster.
pub struct EtcdServer {
    pub members: Vec<Member>,
    files: Option<Certificates>,
    client: reqwest::Client,
    /// The token of the administrator.
    root: Mutex<Option<String>>,
    home: TempDir,
}

impl EtcdServer {
    /// Starts one member, without TLS and users.
    pub fn start() -> Self {
        Self::with(1, false)
    }

    /// Starts three members, without TLS and users.
    pub fn three() -> Self {
        Self::with(3, false)
    }

    /// Starts one member with TLS that requires a certificate of its clients, and users.
    pub fn secured() -> Self {
        let it = Self::with(1, true);
        it.add_users();
        it
    }

    fn with(members: usize, tls: bool) -> Self {
        for _ in 0..5 {
            if let Some(it) = Self::try_start(members, tls) {
                return it;
            }
        }
        panic!("etcd ended five times before it was ready");
    }

    /// Returns `None` if another process took a port first.
    fn try_start(members: usize, tls: bool) -> Option<Self> {
        let home = tempfile::tempdir().expect("a directory");
        let files = tls.then(|| Certificates::make(home.path(), "etcd of the tests"));
        let ports: Vec<_> = (0..members).map(|at| (at, free_port(), free_port())).collect();
        let names = ports.iter().map(|(at, _, peer)| format!("m{at}=http://127.0.0.1:{peer}"));
        let cluster = names.collect::<Vec<_>>().join(",");
        let start = |&(at, port, peer): &(usize, u16, u16)| {
            Member::start(home.path(), &format!("m{at}"), port, peer, &cluster, files.as_ref())
        };
        let members = ports.iter().map(start).collect();
        let client = Certificates::http_client(files.as_ref());
        let mut it = Self { members, client, files, root: Mutex::default(), home };
        until(PATIENCE, "etcd is ready", || {
            let ended = it.members.iter_mut().any(|it| it.process.has_ended());
            let ready = || (0..it.members.len()).all(|at| it.is_ready(at));
            (ended || ready()).then_some(!ended)
        })
        .then_some(it)
    }

    /// Returns whether a member answers with a leader.
    fn is_ready(&self, at: usize) -> bool {
        let answer = self.try_ask(at, "/v3/maintenance/status", &json!({}), None);
        answer.is_some_and(|(code, it)| code == 200 && it["leader"].is_string())
    }

    /// Waits until a member answers with a leader.
    pub fn becomes_ready(&self, at: usize) {
        until(PATIENCE, "the member of etcd is ready", || self.is_ready(at).then_some(()));
    }

    /// Kills some members.
    pub fn kill(&mut self, members: Range<usize>) {
        self.members[members].iter_mut().for_each(|it| it.process.kill());
    }

    /// Kills some members, starts them again with the same ports and data, and waits until each answers with a leader.
    pub fn restart(&mut self, members: Range<usize>) {
        self.members[members].iter_mut().for_each(Member::restart);
        (0..self.members.len()).for_each(|at| self.becomes_ready(at));
    }

    /// Keeps a copy of the data of the only member, which restarts.
    pub fn save(&mut self) {
        self.copy("m0", "saved");
    }

    /// Replaces the data of the only member by the copy, as a restore from a snapshot does; it restarts.
    pub fn restore(&mut self) {
        self.copy("saved", "m0");
    }

    fn copy(&mut self, from: &str, to: &str) {
        self.kill(0..1);
        let [from, to] = [from, to].map(|it| self.home.path().join(it));
        let _ = std::fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-a").args([from, to]).status();
        assert!(copied.expect("cp runs").success());
        self.restart(0..1);
    }

    /// Returns the number of the member that leads the cluster.
    pub fn leader(&self) -> usize {
        until(PATIENCE, "etcd has a leader", || {
            (0..self.members.len()).find(|at| {
                let status = self.try_ask(*at, "/v3/maintenance/status", &json!({}), None);
                status.is_some_and(|(_, it)| it["header"]["member_id"] == it["leader"])
            })
        })
    }

    fn url(&self, at: usize) -> String {
        let scheme = if self.files.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.members[at].port)
    }

    /// Returns the settings of an election on all members.
    pub fn settings(&self, election: &str) -> EtcdSettings {
        let url = |at| Url::parse(&format!("{}/", self.url(at))).expect("a URL");
        let secret = |text: &str| SecretSource::Value(text.to_owned());
        EtcdSettings {
            members: (0..self.members.len()).map(url).collect(),
            prefix: PREFIX.to_owned(),
            election: election.to_owned(),
            user: self
                .files
                .as_ref()
                .map(|_| EtcdUser { name: secret(USER.0), password: secret(USER.1) }),
            tls: self.files.as_ref().map(Certificates::settings),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Returns the arguments that name this store, for `tenure`.
    pub fn arguments(&self) -> Vec<String> {
        let all: Vec<_> = self.members.iter().map(|it| format!("127.0.0.1:{}", it.port)).collect();
        let mut arguments =
            vec!["--store".to_owned(), format!("etcd://{}/{PREFIX}", all.join(","))];
        arguments.extend(self.files.iter().flat_map(Certificates::arguments));
        arguments
    }

    /// Returns the variables of the user, for `tenure`.
    pub fn variables(&self) -> Vec<(String, String)> {
        let user = [("ETCD_USERNAME", USER.0), ("ETCD_PASSWORD", USER.1)];
        let user = user.map(|(name, value)| (name.to_owned(), value.to_owned()));
        if self.files.is_some() { user.into() } else { Vec::new() }
    }

    /// Replaces the certificates of the server and of the clients, each with a new key of the same
    /// authority. etcd reads its files for each connection.
    pub fn replace_certificates(&self) {
        let files = self.files.as_ref().expect("a cluster with TLS");
        files.replace();
    }

    /// Sends a signal to a member, which holds a lock on its files all the time.
    pub fn signal(&self, at: usize, signal: Signal) {
        kill_process(self.members[at].process.pid(), signal).expect("it takes a signal");
    }

    /// Sends a request to the first member as the administrator, and returns its answer.
    pub fn ask(&self, path: &str, body: &Value) -> Value {
        let mut token = self.root.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for _ in 0..2 {
            let (code, answer) = self.try_ask(0, path, body, token.as_deref()).expect("an answer");
            if self.files.is_none() || code == 200 {
                assert_eq!(code, 200, "{path} {body}: {answer}");
                return answer;
            }
            // There is no token yet, or the server knows it no longer.
            token = Some(self.token());
            self.root.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&token);
        }
        panic!("the administrator may not {path} {body}");
    }

    fn token(&self) -> String {
        let body = json!({"name": ROOT.0, "password": ROOT.1});
        let (_, answer) = self.try_ask(0, "/v3/auth/authenticate", &body, None).expect("an answer");
        answer["token"].as_str().expect("a token").to_owned()
    }

    fn try_ask(
        &self,
        at: usize,
        path: &str,
        body: &Value,
        token: Option<&str>,
    ) -> Option<(u16, Value)> {
        let mut request = self.client.post(self.url(at) + path).body(body.to_string());
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        blocking(async {
            let answer = request.send().await.ok()?;
            let code = answer.status().as_u16();
            Some((code, serde_json::from_slice(&answer.bytes().await.ok()?).unwrap_or_default()))
        })
    }

    /// Adds the administrator, and the user with a role for the prefix, and asks everyone for a token
    /// from then on.
    fn add_users(&self) {
        let steps = [
            ("role/add", json!({"name": "root"})),
            ("user/add", json!({"name": ROOT.0, "password": ROOT.1})),
            ("user/grant", json!({"user": ROOT.0, "role": "root"})),
            ("role/add", json!({"name": "tenure"})),
            ("user/add", json!({"name": USER.0, "password": USER.1})),
            ("user/grant", json!({"user": USER.0, "role": "tenure"})),
            ("role/grant", json!({"name": "tenure", "perm": permission()})),
            ("enable", json!({})),
        ];
        for (path, body) in steps {
            let path = format!("/v3/auth/{path}");
            let (code, answer) = self.try_ask(0, &path, &body, None).expect("an answer");
            assert_eq!(code, 200, "{path}: {answer}");
        }
    }

    /// Takes the rights of the user away.
    pub fn take_rights(&self) {
        let body = json!({"role": "tenure", "key": permission()["key"], "range_end": permission()["range_end"]});
        self.ask("/v3/auth/role/revoke", &body);
    }

    /// Gives the rights back.
    pub fn give_rights(&self) {
        self.ask("/v3/auth/role/grant", &json!({"name": "tenure", "perm": permission()}));
    }

    /// Returns a directory of the cluster's life.
    pub fn home(&self) -> &Path {
        self.home.path()
    }
}

impl EtcdServer {
    /// Returns the key of an election's value, or of the term alone.
    fn key(election: &str, name: &str) -> Value {
        json!({"key": base64::encode(format!("/{PREFIX}/{election}/{name}"))})
    }

    /// Returns the value of a key of an election; `None` if there is none.
    pub fn get(&self, election: &str, name: &str) -> Option<Vec<u8>> {
        let found = self.ask("/v3/kv/range", &Self::key(election, name));
        let found = found["kvs"].get(0)?;
        Some(base64::decode(found["value"].as_str().unwrap_or_default()).expect("base64"))
    }
}

impl RegisterServer for EtcdServer {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        etcd::open(&self.settings(election)).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        let all = ["record", "term"].map(|it| self.get(election, it).unwrap_or_default());
        all.join(&b'\n')
    }

    fn value(&self, election: &str) -> Vec<u8> {
        self.get(election, "record").unwrap_or_default()
    }

    fn put(&self, election: &str, value: &str) {
        let mut body = Self::key(election, "record");
        body["value"] = base64::encode(value).into();
        self.ask("/v3/kv/put", &body);
    }

    fn delete(&self, election: &str) {
        self.ask("/v3/kv/deleterange", &Self::key(election, "record"));
    }
}

impl SharedServer for EtcdServer {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<EtcdServer> = Shared::new();
        SHARED.get(Self::start)
    }

    fn shared_secured() -> Arc<Self> {
        static SHARED: Shared<EtcdServer> = Shared::new();
        SHARED.get(Self::secured)
    }
}

/// Reading and writing below the prefix.
fn permission() -> Value {
    let (key, end) = (format!("/{PREFIX}/"), format!("/{PREFIX}0"));
    json!({"permType": "READWRITE", "key": base64::encode(key), "range_end": base64::encode(end)})
}
