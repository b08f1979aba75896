//! ZooKeeper itself on free ports of loopback, which ends with the test's process.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tenure::config::{Address, SecretSource, ZookeeperSettings};
use tenure::store::{LeaseAdmin, zookeeper};
use url::Host;

use super::shell::Shell;
use crate::paths::tool;
use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run_as;
use crate::stores::bids::REQUEST_TIMEOUT;
use crate::stores::certificates::Certificates;
use crate::stores::register_lock::RegisterServer;
use crate::stores::servers::{PATIENCE, Shared, SharedServer};

/// The path of all elections.
pub const PATH: &str = "tenure";

/// The user of the elections, and its password.
pub const USER: &str = "elections:correct-horse";

const TICK: Duration = Duration::from_millis(500);

/// What lets a server take no sessions without SASL.
const SASL: &str = "sessionRequireClientSASLAuth=true\n\
                    authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n";

/// Java for a small program that runs for a moment. The heap grows with the elections, which stay there: races
/// leave tens of thousands.
pub(super) const JAVA: [&str; 5] = [
    "-Xms32m",
    "-Xmx1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dzookeeper.forceSync=no",
];

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

    fn data(&self) -> PathBuf {
        self.home.join("data")
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

/// Returns the configuration of a port with TLS.
fn secured(files: &Certificates, port: u16) -> String {
    let (server, ca) = (files.in_one_file(), &files.ca);
    format!(
        "secureClientPort={port}\nsecureClientPortAddress=127.0.0.1\n\
         serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         ssl.keyStore.location={}\nssl.keyStore.type=PEM\n\
         ssl.trustStore.location={}\nssl.trustStore.type=PEM\nssl.clientAuth=need\n",
        server.display(),
        ca.display()
    )
}

/// A running ensemble.
pub struct ZookeeperServer {
    pub members: Vec<Member>,
    /// The ports on which the members speak to each other.
    inner: Vec<[u16; 2]>,
    files: Option<Certificates>,
    home: TempDir,
    /// The shell, once it was used.
    shell: Mutex<Option<Shell>>,
}

impl ZookeeperServer {
    /// Starts one server, without TLS and users.
    pub fn start() -> Self {
        Self::with(1, false, None, "")
    }

    /// Starts one server whose data are in a directory.
    pub fn start_in(data: &Path) -> Self {
        Self::with(1, false, Some(data), "")
    }

    /// Starts three servers, without TLS and users.
    pub fn three() -> Self {
        Self::with(3, false, None, "")
    }

    /// Starts one server with TLS that requires a certificate of its clients; they sign in as a user.
    pub fn secured() -> Self {
        Self::with(1, true, None, "")
    }

    /// Starts one server that takes no sessions without SASL.
    pub fn with_sasl() -> Self {
        Self::with(1, false, None, SASL)
    }

    fn with(members: usize, tls: bool, data: Option<&Path>, more: &str) -> Self {
        for _ in 0..5 {
            if let Some(it) = Self::try_start(members, tls, data, more) {
                return it;
            }
        }
        panic!("ZooKeeper ended five times before it was ready");
    }

    /// Returns `None` if another process took a port first.
    fn try_start(members: usize, tls: bool, data: Option<&Path>, all: &str) -> Option<Self> {
        let home = tempfile::tempdir().expect("a directory");
        let files = tls.then(|| Certificates::make(home.path(), "ZooKeeper of the tests"));
        let inner: Vec<_> = (0..members).map(|_| [free_port(), free_port()]).collect();
        let of_quorum: Vec<_> = (1..=members)
            .zip(&inner)
            .map(|(id, [quorum, election])| format!("server.{id}=127.0.0.1:{quorum}:{election}\n"))
            .collect();
        let quorum = format!("initLimit=20\nsyncLimit=4\n{}", of_quorum.concat());
        let start = |id| {
            let own = home.path().join(format!("member-{id}"));
            let own = data.map_or(own, Path::to_owned);
            std::fs::create_dir_all(&own).expect("a directory");
            let ports = [free_port(), free_port()];
            let mut more = all.to_owned();
            more.extend((members > 1).then_some(quorum.as_str()));
            more.extend(files.iter().map(|it| secured(it, ports[1])));
            Member::start(own, id, ports, &more, tls)
        };
        let members = (1..=members).map(start).collect();
        let mut it = Self { members, inner, files, home, shell: Mutex::default() };
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

    /// Copies the data of the only server.
    pub fn copy(&self) -> TempDir {
        let copy = tempfile::tempdir().expect("a directory");
        copy_all(&self.members[0].data(), copy.path());
        copy
    }

    /// Kills the only server, and starts it again with the data of a copy.
    pub fn restore(&mut self, copy: &Path) {
        self.end_shell();
        let member = &mut self.members[0];
        member.process.kill();
        std::fs::remove_dir_all(member.data()).expect("its data");
        copy_all(copy, &member.data());
        self.restart(0..1);
    }

    /// Cuts a member off from the others, but not from its clients, or lets it reach them again. Requires
    /// root, and `nft` of nftables.
    pub fn partition(&self, at: usize, cut: bool) {
        let [quorum, election] = self.inner[at];
        let table = format!("inet zookeeper{quorum}");
        let ports = format!("{{ {quorum}, {election} }}");
        let rules = format!(
            "table {table} {{\nchain in {{\ntype filter hook input priority 0\n\
             tcp dport {ports} drop\ntcp sport {ports} drop\n}}\n}}"
        );
        let rules = if cut { rules } else { format!("delete table {table}") };
        let done = Command::new("nft").arg(rules).status().expect("nft starts");
        assert!(done.success(), "nft: {done}");
    }

    /// Returns how many connections the first server has.
    pub fn connections(&self) -> usize {
        let told = self.members[0].told().expect("it answers");
        let count = told.lines().find_map(|it| it.strip_prefix("Connections: "));
        // One asks this.
        count.and_then(|it| it.trim().parse::<usize>().ok()).expect("a number") - 1
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
            tls: self.files.as_ref().map(Certificates::settings),
            lease_duration: Duration::from_secs(15),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Returns the arguments that name this store, for `tenure`.
    pub fn arguments(&self) -> Vec<String> {
        let all: Vec<_> = self.ports().map(|it| format!("127.0.0.1:{it}")).collect();
        let mut arguments =
            vec!["--store".to_owned(), format!("zookeeper://{}/{PATH}", all.join(","))];
        arguments.extend(self.files.iter().flat_map(Certificates::arguments));
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
        let files = self.files.as_ref().expect("an ensemble with TLS");
        files.replace();
        files.in_one_file();
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

impl SharedServer for ZookeeperServer {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<ZookeeperServer> = Shared::new();
        SHARED.get(Self::start)
    }

    fn shared_secured() -> Arc<Self> {
        static SHARED: Shared<ZookeeperServer> = Shared::new();
        SHARED.get(Self::secured)
    }
}

/// Returns the command line of ZooKeeper's own shell, to be followed by its arguments.
pub fn shell() -> String {
    format!("java {} -cp '{}' org.apache.zookeeper.ZooKeeperMain ", JAVA.join(" "), jars())
}

impl RegisterServer for ZookeeperServer {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        zookeeper::open(&self.settings(election)).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        let printed = self.shell(&format!("get -s {}", record(election)));
        assert!(printed.contains("mZxid"), "no state of the node: {printed}");
        printed.into_bytes()
    }

    fn value(&self, election: &str) -> Vec<u8> {
        self.shell(&format!("get {}", record(election))).trim_end().into()
    }

    fn put(&self, election: &str, value: &str) {
        let record = record(election);
        let commands = [
            format!("create /{PATH} ''"),
            format!("create /{PATH}/{election} ''"),
            format!("create {record} ''"),
            format!("set {record} '{value}'"),
        ];
        self.shell(&commands.join("\n"));
    }

    fn delete(&self, election: &str) {
        self.shell(&format!("delete {}", record(election)));
    }
}

/// Returns the path of the record of an election.
fn record(election: &str) -> String {
    format!("/{PATH}/{election}/record")
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a kind").is_dir() {
            true => copy_all(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).expect("a copy")),
        }
    }
}
