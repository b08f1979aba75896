//! Consul itself on free ports of loopback, which ends with the test's process.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use azure_core::base64;
use reqwest::Method;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::config::{ConsulSettings, SecretSource};
use tenure::store::{LeaseAdmin, consul};
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

/// The token of the elections, whose policy allows what docs/stores/consul.md names.
pub const TOKEN: &str = "5f1c1d1e-7e57-4000-8000-00000000e1ec";

/// The token of the administrator.
const ROOT: &str = "5f1c1d1e-7e57-4000-8000-000000000000";

/// The rights of the token of the elections.
fn rules() -> String {
    format!(r#"key_prefix "{PREFIX}/" {{ policy = "write" }}"#)
}

/// One server.
pub struct Server {
    /// The port of its API.
    pub port: u16,
    pub process: Process,
    home: PathBuf,
    name: String,
}

impl Server {
    /// Starts one of the servers at these ports (API, RPC, gossip) of the whole cluster.
    fn start(home: &Path, at: usize, ports: &[[u16; 3]], files: Option<&Certificates>) -> Self {
        let (name, [api, rpc, gossip]) = (format!("m{at}"), ports[at]);
        let others: Vec<_> = ports.iter().map(|[.., it]| format!("127.0.0.1:{it}")).collect();
        let mut settings = json!({
            "node_name": name,
            "data_dir": home.join(&name),
            "server": true,
            "bootstrap_expect": ports.len(),
            "bind_addr": "127.0.0.1",
            "client_addr": "127.0.0.1",
            "retry_join": others,
            "retry_interval": "500ms",
            "log_level": "warn",
            "disable_update_check": true,
            "disable_host_node_id": true,
            // The timings of a production cluster.
            "performance": {"raft_multiplier": 1},
            // Its log takes its room in steps of this size.
            "raft_logstore": {"wal": {"segment_size_mb": 1}},
            "connect": {"enabled": false},
            "ports": {
                "http": api, "https": -1, "server": rpc, "serf_lan": gossip, "serf_wan": -1, "dns": -1,
                "grpc": -1, "grpc_tls": -1,
            },
        });
        if let Some(files) = files {
            settings["ports"]["https"] = api.into();
            settings["ports"]["http"] = (-1).into();
            settings["tls"] = json!({"https": {
                "ca_file": files.ca, "cert_file": files.server.cert, "key_file": files.server.key,
                "verify_incoming": true,
            }});
            settings["acl"] = json!({
                "enabled": true, "default_policy": "deny",
                "tokens": {"initial_management": ROOT, "agent": ROOT},
            });
        }
        std::fs::write(home.join(format!("{name}.json")), settings.to_string()).expect("written");
        let process = spawn(home, &name);
        Self { port: api, process, home: home.to_owned(), name }
    }

    /// Kills it, and starts it again with the same ports and data.
    fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(&self.home, &self.name);
    }
}

fn spawn(home: &Path, name: &str) -> Process {
    run(home, "consul", &["agent", "-config-file", &format!("{name}.json")])
}

/// A running cluster.
pub struct ConsulServer {
    pub servers: Vec<Server>,
    files: Option<Certificates>,
    client: reqwest::Client,
    /// The number of the policy of the elections.
    policy: String,
    home: TempDir,
}

impl ConsulServer {
    /// Starts one server, without TLS and access control.
    pub fn start() -> Self {
        Self::with(1, false, &std::env::temp_dir())
    }

    /// Starts one server that keeps its data below a directory.
    pub fn start_in(directory: &Path) -> Self {
        Self::with(1, false, directory)
    }

    /// Starts three servers, without TLS and access control.
    pub fn three() -> Self {
        Self::with(3, false, &std::env::temp_dir())
    }

    /// Starts one server with TLS that requires a certificate of its clients, and denies what no token
    /// allows.
    pub fn secured() -> Self {
        let mut it = Self::with(1, true, &std::env::temp_dir());
        it.add_token();
        it
    }

    fn with(servers: usize, secured: bool, directory: &Path) -> Self {
        for _ in 0..5 {
            if let Some(it) = Self::try_start(servers, secured, directory) {
                return it;
            }
        }
        panic!("Consul ended five times before it was ready");
    }

    /// Returns `None` if another process took a port first.
    fn try_start(servers: usize, secured: bool, directory: &Path) -> Option<Self> {
        let home = tempfile::tempdir_in(directory).expect("a directory");
        let files = secured.then(|| Certificates::make(home.path(), "Consul of the tests"));
        let ports: Vec<_> = (0..servers).map(|_| [(); 3].map(|()| free_port())).collect();
        let start = |at| Server::start(home.path(), at, &ports, files.as_ref());
        let servers = (0..servers).map(start).collect();
        let client = Certificates::http_client(files.as_ref());
        let mut it = Self { servers, client, files, policy: String::new(), home };
        until(PATIENCE, "Consul is ready", || {
            let ended = it.servers.iter_mut().any(|it| it.process.has_ended());
            let ready = || (0..it.servers.len()).all(|at| it.is_ready(at));
            (ended || ready()).then_some(!ended)
        })
        .then_some(it)
    }

    /// Returns whether a server has a leader, and is in the catalog.
    fn is_ready(&self, at: usize) -> bool {
        let path = format!("catalog/node/{}?consistent", self.servers[at].name);
        let answer = self.try_ask(at, Method::GET, &path, None);
        answer.is_some_and(|(code, node)| code == 200 && node.is_object())
    }

    /// Waits until a server is ready.
    pub fn becomes_ready(&self, at: usize) {
        until(PATIENCE, "the server of Consul is ready", || self.is_ready(at).then_some(()));
    }

    /// Kills some servers.
    pub fn kill(&mut self, servers: Range<usize>) {
        self.servers[servers].iter_mut().for_each(|it| it.process.kill());
    }

    /// Kills some servers, starts them again with the same ports and data, and waits until each is ready.
    pub fn restart(&mut self, servers: Range<usize>) {
        self.servers[servers].iter_mut().for_each(Server::restart);
        (0..self.servers.len()).for_each(|at| self.becomes_ready(at));
    }

    /// Returns the number of the server that leads the cluster, as the others see it.
    pub fn leader(&self) -> usize {
        until(PATIENCE, "Consul has a leader", || {
            let (_, nodes) = self.try_ask(0, Method::GET, "operator/raft/configuration", None)?;
            let leader = nodes["Servers"].as_array()?.iter().find(|it| it["Leader"] == true)?;
            self.servers.iter().position(|it| leader["Node"] == it.name.as_str())
        })
    }

    fn url(&self, at: usize) -> String {
        let scheme = if self.files.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.servers[at].port)
    }

    /// Returns the settings of an election on all servers.
    pub fn settings(&self, election: &str) -> ConsulSettings {
        let url = |at| Url::parse(&format!("{}/", self.url(at))).expect("a URL");
        let files = self.files.as_ref();
        ConsulSettings {
            servers: (0..self.servers.len()).map(url).collect(),
            prefix: PREFIX.to_owned(),
            election: election.to_owned(),
            token: files.map(|_| SecretSource::Value(TOKEN.to_owned())),
            tls: files.map(Certificates::settings),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Returns the arguments that name this store, for `tenure`.
    pub fn arguments(&self) -> Vec<String> {
        let all: Vec<_> = self.servers.iter().map(|it| format!("127.0.0.1:{}", it.port)).collect();
        let mut arguments =
            vec!["--store".to_owned(), format!("consul://{}/{PREFIX}", all.join(","))];
        arguments.extend(self.files.iter().flat_map(Certificates::arguments));
        arguments
    }

    /// Returns the variable of the token, for `tenure`.
    pub fn variables(&self) -> Vec<(String, String)> {
        let token = ("CONSUL_HTTP_TOKEN".to_owned(), TOKEN.to_owned());
        if self.files.is_some() { vec![token] } else { Vec::new() }
    }

    /// Replaces the certificates of the server and of the clients, each with a new key of the same
    /// authority. The server reads its files on a signal.
    pub fn replace_certificates(&self) {
        let files = self.files.as_ref().expect("a cluster with TLS");
        files.replace();
        self.signal(0, Signal::HUP);
    }

    /// Sends a signal to a server.
    pub fn signal(&self, at: usize, signal: Signal) {
        kill_process(self.servers[at].process.pid(), signal).expect("it takes a signal");
    }

    /// Returns whether the first server writes a value of 200 KB.
    pub fn writes(&self) -> bool {
        let value = base64::encode(vec![b'x'; 200_000]);
        let set = json!([{"KV": {"Verb": "set", "Key": "filler", "Value": value}}]);
        let answer = self.try_ask(0, Method::PUT, "txn", Some(&set));
        answer.is_some_and(|(code, _)| code == 200)
    }

    /// Sends a request to the first server as the administrator, and returns its answer.
    pub fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = self.try_ask(0, method, path, body).expect("an answer");
        assert!(code == 200 || code == 404, "{path} {body:?}: {code} {answer}");
        answer
    }

    fn try_ask(
        &self,
        at: usize,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Option<(u16, Value)> {
        let mut request = self.client.request(method, format!("{}/v1/{path}", self.url(at)));
        if self.files.is_some() {
            request = request.header("x-consul-token", ROOT);
        }
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        blocking(async {
            let answer = request.send().await.ok()?;
            let code = answer.status().as_u16();
            Some((code, serde_json::from_slice(&answer.bytes().await.ok()?).unwrap_or_default()))
        })
    }

    /// Adds the token of the elections, with its policy.
    fn add_token(&mut self) {
        let policy = json!({"Name": "elections", "Rules": rules()});
        let made = self.ask(Method::PUT, "acl/policy", Some(&policy));
        self.policy = made["ID"].as_str().expect("an ID").to_owned();
        let token = json!({"SecretID": TOKEN, "Policies": [{"Name": "elections"}]});
        self.ask(Method::PUT, "acl/token", Some(&token));
    }

    fn allow(&self, rules: &str) {
        let policy = json!({"ID": self.policy, "Name": "elections", "Rules": rules});
        self.ask(Method::PUT, &format!("acl/policy/{}", self.policy), Some(&policy));
    }

    /// Takes the rights of the token away.
    pub fn take_rights(&self) {
        self.allow("");
    }

    /// Gives the rights back.
    pub fn give_rights(&self) {
        self.allow(&rules());
    }

    /// Returns a directory of the cluster's life.
    pub fn home(&self) -> &Path {
        self.home.path()
    }
}

impl ConsulServer {
    fn key(election: &str, name: &str) -> String {
        format!("{PREFIX}/{election}/{name}")
    }

    /// Returns the value of a key of an election; `None` if there is none.
    pub fn get(&self, election: &str, name: &str) -> Option<Vec<u8>> {
        let found =
            self.ask(Method::GET, &format!("kv/{}?consistent", Self::key(election, name)), None);
        let found = found.get(0)?;
        Some(base64::decode(found["Value"].as_str().unwrap_or_default()).expect("base64"))
    }

    /// Locks the key of an election by a session.
    pub fn lock(&self, election: &str) {
        let made = self.ask(Method::PUT, "session/create", Some(&json!({"TTL": "86400s"})));
        let session = made["ID"].as_str().expect("an ID");
        let value = base64::encode(self.value(election));
        let lock = json!({"Verb": "lock", "Key": Self::key(election, "lease"), "Value": value, "Session": session});
        self.ask(Method::PUT, "txn", Some(&json!([{"KV": lock}])));
    }

    /// Keeps a copy of the data of the only server, which restarts.
    pub fn save(&mut self) {
        self.copy("m0", "saved");
    }

    /// Replaces the data of the only server by the copy, as a restore on new servers does; it restarts.
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
}

impl RegisterServer for ConsulServer {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        consul::open(&self.settings(election)).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        let all = ["lease", "term"].map(|it| self.get(election, it).unwrap_or_default());
        all.join(&b'\n')
    }

    fn value(&self, election: &str) -> Vec<u8> {
        self.get(election, "lease").unwrap_or_default()
    }

    fn put(&self, election: &str, value: &str) {
        let (key, value) = (Self::key(election, "lease"), base64::encode(value));
        let set = json!([{"KV": {"Verb": "set", "Key": key, "Value": value}}]);
        self.ask(Method::PUT, "txn", Some(&set));
    }

    fn delete(&self, election: &str) {
        self.ask(Method::DELETE, &format!("kv/{}", Self::key(election, "lease")), None);
    }
}

impl SharedServer for ConsulServer {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<ConsulServer> = Shared::new();
        SHARED.get(Self::start)
    }

    fn shared_secured() -> Arc<Self> {
        static SHARED: Shared<ConsulServer> = Shared::new();
        SHARED.get(Self::secured)
    }
}
