//! ZooKeeper itself on free ports of loopback, which ends with the test's process.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tenure::config::{Address, SecretSource, StoreTls, ZookeeperSettings};
use tenure::tls::KeyPair;
use url::Host;

use super::shell::Shell;
use crate::faults::tls_front::Authority;
use crate::paths::tool;
use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run_as;
use crate::stores::bids::REQUEST_TIMEOUT;

/// The timeout until a server is ready, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The path of all elections.
pub const PATH: &str = "tenure";

/// The user of the elections, and its password.
pub const USER: &str = "elections:correct-horse";

/// The last year in which the certificates are valid.
const UNTIL: i32 = 2_099;

/// The shortest session is of two of them.
pub const TICK: Duration = Duration::from_millis(500);

/// Java for a small program that runs for a moment.
pub(super) const JAVA: [&str; 4] =
    ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no"];

/// One server.
pub struct Member {
    /// The port without TLS.
    pub port: u16,
    /// The port with TLS, if it has one.
    pub secure: Option<u16>,
    pub process: Process,
    home: PathBuf,
}

impl Member {
    /// Starts a server with this configuration and the number `id`.
    fn start(home: PathBuf, id: usize, ports: [u16; 2], more: &str, is_secure: bool) -> Self {
        let [port, secure] = ports;
        let tick = TICK.as_millis();
        let data = home.join("data");
        std::fs::create_dir_all(&data).expect("a directory");
        std::fs::write(data.join("myid"), id.to_string()).expect("written");
        let configuration = format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime={tick}\n\
             maxSessionTimeout=60000\nadmin.enableServer=false\nmaxClientCnxns=0\n{more}",
            data.display()
        );
        std::fs::write(home.join("zoo.cfg"), configuration).expect("written");
        let secure = is_secure.then_some(secure);
        Self { port, secure, process: spawn(&home), home }
    }

    /// Kills it, and starts it again with the same ports and data.
    fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(&self.home);
    }

    /// Returns what the server says of itself, if it takes connections.
    fn told(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"srvr").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn has_mode(&self, mode: &str) -> bool {
        self.told().is_some_and(|it| it.contains(&format!("Mode: {mode}")))
    }
}

pub(super) fn jars() -> String {
    format!("{}/*", tool("zookeeper").display())
}

fn spawn(home: &Path) -> Process {
    let (jars, configuration) = (jars(), home.join("zoo.cfg"));
    let server = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
    let configuration = configuration.to_str().expect("a path in UTF-8");
    let arguments =
        [&JAVA[..], &["-Dzookeeper.preAllocSize=64", "-cp", &jars, server, configuration]].concat();
    run_as(home, "zookeeper", Path::new("java"), &[], &arguments)
}

/// The certificates of an ensemble with TLS.
struct Files {
    authority: Authority,
    ca: PathBuf,
    server: PathBuf,
    client: KeyPair,
}

impl Files {
    fn make(home: &Path) -> Self {
        let authority = Authority::new("ZooKeeper of the tests");
        let ca = authority.write(home);
        let client = KeyPair { cert: home.join("client.crt"), key: home.join("client.key") };
        let it = Self { ca, server: home.join("server.pem"), client, authority };
        it.sign();
        it
    }

    /// Writes new certificates, with new keys.
    fn sign(&self) {
        let write = |path: &Path, text: &str| {
            // A reader sees the old file or the new one.
            let beside = path.with_extension("new");
            std::fs::write(&beside, text).expect("written");
            std::fs::rename(&beside, path).expect("renamed");
        };
        let (certificate, key) = self.authority.sign_pem("127.0.0.1", UNTIL);
        write(&self.server, &(key + &certificate));
        let (certificate, key) = self.authority.sign_pem("127.0.0.1", UNTIL);
        write(&self.client.cert, &certificate);
        write(&self.client.key, &key);
    }

    fn configuration(&self, port: u16) -> String {
        let (server, ca) = (self.server.display(), self.ca.display());
        format!(
            "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
             serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
             ssl.keyStore.location={server}\nssl.keyStore.type=PEM\n\
             ssl.trustStore.location={ca}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n"
        )
    }
}

/// A running ensemble.
pub struct ZookeeperServer {
    pub members: Vec<Member>,
    files: Option<Files>,
    home: TempDir,
    /// The shell, once it was used.
    shell: Mutex<Option<Shell>>,
}

impl ZookeeperServer {
    /// Starts one server, without TLS and users.
    pub fn start() -> Self {
        Self::with(1, false, None)
    }

    /// Starts one server whose data are in a directory.
    pub fn start_in(data: &Path) -> Self {
        Self::with(1, false, Some(data))
    }

    /// Starts three servers, without TLS and users.
    pub fn three() -> Self {
        Self::with(3, false, None)
    }

    /// Starts one server with TLS that requires a certificate of its clients; they sign in as a user.
    pub fn secured() -> Self {
        Self::with(1, true, None)
    }

    /// Returns the plain one that all running tests share; it ends with the last of them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<ZookeeperServer>> = Mutex::new(Weak::new());
        share(&SHARED, Self::start)
    }

    /// Returns the secured one that all running tests share.
    pub fn shared_secured() -> Arc<Self> {
        static SHARED: Mutex<Weak<ZookeeperServer>> = Mutex::new(Weak::new());
        share(&SHARED, Self::secured)
    }

    fn with(members: usize, tls: bool, data: Option<&Path>) -> Self {
        for _ in 0..5 {
            if let Some(it) = Self::try_start(members, tls, data) {
                return it;
            }
        }
        panic!("ZooKeeper ended five times before it was ready");
    }

    /// Returns `None` if another process took a port first.
    fn try_start(members: usize, tls: bool, data: Option<&Path>) -> Option<Self> {
        let home = tempfile::tempdir().expect("a directory");
        let files = tls.then(|| Files::make(home.path()));
        let of_quorum: Vec<_> = (1..=members)
            .map(|id| format!("server.{id}=127.0.0.1:{}:{}\n", free_port(), free_port()))
            .collect();
        let quorum = format!("initLimit=20\nsyncLimit=4\n{}", of_quorum.concat());
        let start = |id| {
            let own = home.path().join(format!("member-{id}"));
            let own = data.map_or(own, Path::to_owned);
            std::fs::create_dir_all(&own).expect("a directory");
            let ports = [free_port(), free_port()];
            let mut more = if members > 1 { quorum.clone() } else { String::new() };
            more.extend(files.iter().map(|it| it.configuration(ports[1])));
            Member::start(own, id, ports, &more, tls)
        };
        let members = (1..=members).map(start).collect();
        let mut it = Self { members, files, home, shell: Mutex::default() };
        until(PATIENCE, "ZooKeeper is ready", || {
            let ended = it.members.iter_mut().any(|it| it.process.has_ended());
            let ready = || (0..it.members.len()).all(|at| it.is_ready(at));
            (ended || ready()).then_some(!ended)
        })
        .then_some(it)
    }

    fn is_ready(&self, at: usize) -> bool {
        let Member { port, secure, .. } = self.members[at];
        let listens = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        listens(secure.unwrap_or(port)) && self.members[at].has_mode("")
    }

    /// Waits until a server takes sessions.
    pub fn becomes_ready(&self, at: usize) {
        until(PATIENCE, "the server of ZooKeeper is ready", || self.is_ready(at).then_some(()));
    }

    /// Kills some servers.
    pub fn kill(&mut self, servers: Range<usize>) {
        self.end_shell();
        self.members[servers].iter_mut().for_each(|it| it.process.kill());
    }

    /// Kills some servers, starts them again with the same ports and data, and waits until each takes sessions.
    pub fn restart(&mut self, servers: Range<usize>) {
        self.end_shell();
        self.members[servers].iter_mut().for_each(Member::restart);
        (0..self.members.len()).for_each(|at| self.becomes_ready(at));
    }

    /// Ends the shell, whose session may not outlive its server.
    fn end_shell(&mut self) {
        *self.shell.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the number of the server that leads the ensemble.
    pub fn leader(&self) -> usize {
        until(PATIENCE, "the ensemble has a leader", || {
            (0..self.members.len()).find(|at| self.members[*at].has_mode("leader"))
        })
    }

    /// Returns the ports for candidates.
    fn ports(&self) -> impl Iterator<Item = u16> {
        self.members.iter().map(|it| it.secure.unwrap_or(it.port))
    }

    /// Returns the settings of an election on all servers.
    pub fn settings(&self, election: &str) -> ZookeeperSettings {
        let server = |port| Address { host: Host::Ipv4([127, 0, 0, 1].into()), port };
        ZookeeperSettings {
            servers: self.ports().map(server).collect(),
            path: PATH.to_owned(),
            election: election.to_owned(),
            auth: self.files.as_ref().map(|_| SecretSource::Value(format!("digest:{USER}"))),
            tls: self
                .files
                .as_ref()
                .map(|it| StoreTls { ca_file: Some(it.ca.clone()), own: Some(it.client.clone()) }),
            lease_duration: Duration::from_secs(15),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Returns the arguments that name this store, for `tenure`.
    pub fn arguments(&self) -> Vec<String> {
        let all: Vec<_> = self.ports().map(|it| format!("127.0.0.1:{it}")).collect();
        let mut arguments =
            vec!["--store".to_owned(), format!("zookeeper://{}/{PATH}", all.join(","))];
        if let Some(files) = &self.files {
            let text = |path: &Path| path.display().to_string();
            for (name, path) in [
                ("--store-ca-file", &files.ca),
                ("--store-cert", &files.client.cert),
                ("--store-key", &files.client.key),
            ] {
                arguments.extend([name.to_owned(), text(path)]);
            }
        }
        arguments
    }

    /// Returns the variables of the user, for `tenure`.
    pub fn variables(&self) -> Vec<(String, String)> {
        let auth = ("ZOOKEEPER_AUTH".to_owned(), format!("digest:{USER}"));
        if self.files.is_some() { vec![auth] } else { Vec::new() }
    }

    /// Replaces the certificates of the servers and of the clients, each with a new key of the same
    /// authority.
    pub fn replace_certificates(&self) {
        self.files.as_ref().expect("an ensemble with TLS").sign();
    }

    /// Sends a signal to a server.
    pub fn signal(&self, at: usize, signal: Signal) {
        kill_process(self.members[at].process.pid(), signal).expect("it takes a signal");
    }

    /// Lets ZooKeeper's own shell execute commands as the user of the elections, one in each line; returns
    /// what it prints.
    pub fn shell(&self, commands: &str) -> String {
        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        shell.get_or_insert_with(|| Shell::start(self.members[0].port)).execute(commands)
    }

    /// Lets the user of the elections read the nodes of one, and no more.
    pub fn take_rights(&self, election: &str) {
        self.shell(&format!("setAcl -R /{PATH}/{election} auth::ra"));
    }

    /// Gives all rights back.
    pub fn give_rights(&self, election: &str) {
        self.shell(&format!("setAcl -R /{PATH}/{election} auth::cdrwa"));
    }

    /// Returns a directory of the ensemble's life.
    pub fn home(&self) -> &Path {
        self.home.path()
    }
}

/// Returns the command line of ZooKeeper's own shell, to be followed by its arguments.
pub fn shell() -> String {
    format!("java {} -cp '{}' org.apache.zookeeper.ZooKeeperMain ", JAVA.join(" "), jars())
}

fn share(
    shared: &Mutex<Weak<ZookeeperServer>>,
    start: fn() -> ZookeeperServer,
) -> Arc<ZookeeperServer> {
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let started = Arc::new(start());
        *shared = Arc::downgrade(&started);
        started
    })
}
