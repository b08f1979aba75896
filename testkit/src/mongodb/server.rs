//! mongo-java-server on a free port of loopback, which ends with the test's process, behind a front.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bson::{Document, doc};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tenure::config::{Address, MongoSettings, MongoUser, SecretSource, StoreTls};
use tenure::store::{LeaseAdmin, mongodb};
use tenure::tls::KeyPair;
use url::Host;

use super::front::{Front, Users};
use super::wire::Client;
use crate::faults::tls_front::{Authority, TlsFront, UNTIL};
use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run;
use crate::stores::bids::REQUEST_TIMEOUT;
use crate::stores::register_lock::RegisterServer;
use crate::stores::servers::{PATIENCE, Shared, SharedServer};

/// The database and the collection of all elections.
pub const DATABASE: &str = "app";
pub const COLLECTION: &str = "tenure";

/// The user of the elections.
pub const USER: (&str, &str) = ("elections", "correct horse");

/// TLS before the front, with the certificate of a client.
struct Secured {
    authority: Authority,
    ca: PathBuf,
    client: KeyPair,
    tls: TlsFront,
}

impl Secured {
    fn before(front: u16, home: &Path) -> Self {
        let authority = Authority::new("MongoDB of the tests");
        let shown = || authority.sign("127.0.0.1", UNTIL);
        let tls = TlsFront::start(([127, 0, 0, 1], front).into(), shown());
        tls.ask_for_certificates(&authority);
        tls.show(shown());
        let client = KeyPair { cert: home.join("client.crt"), key: home.join("client.key") };
        let it = Self { ca: authority.write(home), client, tls, authority };
        it.sign_client();
        it
    }

    fn sign_client(&self) {
        let (certificate, key) = self.authority.sign_pem("elections", UNTIL);
        std::fs::write(&self.client.cert, certificate).expect("written");
        std::fs::write(&self.client.key, key).expect("written");
        use std::os::unix::fs::PermissionsExt;
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&self.client.key, private).expect("private");
    }
}

/// A running server.
pub struct MongoServer {
    /// The port of mongo-java-server itself.
    pub port: u16,
    pub process: Process,
    pub front: Front,
    /// Another, that says that it is not MongoDB, and asks for no user.
    compatible: Front,
    file: PathBuf,
    secured: Option<Secured>,
    home: TempDir,
}

impl MongoServer {
    /// Starts one without TLS, with a user.
    pub fn start() -> Self {
        Self::with(false, None)
    }

    /// Starts one with TLS, whose users have certificates.
    pub fn secured() -> Self {
        Self::with(true, None)
    }

    /// Starts one without TLS that keeps its documents in this directory.
    pub fn on(directory: &Path) -> Self {
        Self::with(false, Some(directory))
    }

    fn with(tls: bool, directory: Option<&Path>) -> Self {
        for _ in 0..5 {
            if let Some(it) = Self::try_start(tls, directory) {
                return it;
            }
        }
        panic!("mongo-java-server ended five times before it was ready");
    }

    /// Returns `None` if another process took the port first.
    fn try_start(tls: bool, directory: Option<&Path>) -> Option<Self> {
        let home = tempfile::tempdir().expect("a directory");
        let file = directory.unwrap_or(home.path()).join("documents");
        let port = free_port();
        let mut process = spawn(home.path(), port, &file);
        let is_ready = until(PATIENCE, "mongo-java-server is ready", || {
            let ended = process.has_ended();
            (ended || answers(port)).then_some(!ended)
        });
        if !is_ready {
            return None;
        }
        let password = || Users::Password(USER.0, USER.1.to_owned());
        let users = if tls { Users::Certificate } else { password() };
        let front = Front::before(port, users);
        let secured = tls.then(|| Secured::before(front.port, home.path()));
        let compatible = Front::before(port, Users::All);
        compatible.change(|it| (it.is_mongodb, it.is_member) = (false, false));
        Some(Self { port, process, front, compatible, file, secured, home })
    }

    /// Returns the settings of an election.
    pub fn settings(&self, election: &str) -> MongoSettings {
        let port = self.secured.as_ref().map_or(self.front.port, |it| it.tls.address.port());
        self.settings_at(&[port], election)
    }

    /// Returns the settings of an election at these ports of loopback.
    pub fn settings_at(&self, ports: &[u16], election: &str) -> MongoSettings {
        let secret = |text: &str| SecretSource::Value(text.to_owned());
        let address = |port: &u16| Address { host: Host::Ipv4([127, 0, 0, 1].into()), port: *port };
        let user = MongoUser { name: secret(USER.0), password: secret(USER.1) };
        MongoSettings {
            servers: ports.iter().map(address).collect(),
            database: DATABASE.to_owned(),
            collection: COLLECTION.to_owned(),
            election: election.to_owned(),
            user: self.secured.is_none().then_some(user),
            auth_source: DATABASE.to_owned(),
            accepts_compatible: false,
            tls: self
                .secured
                .as_ref()
                .map(|it| StoreTls { ca_file: Some(it.ca.clone()), own: Some(it.client.clone()) }),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Returns the settings of an election on mongo-java-server as it is, without users and a replica set, in a
    /// collection of this name.
    pub fn bare_settings(&self, collection: &str, election: &str) -> MongoSettings {
        let settings = self.settings_at(&[self.compatible.port], election);
        let collection = collection.to_owned();
        MongoSettings { collection, user: None, accepts_compatible: true, ..settings }
    }

    /// Returns the arguments that name this store, for `tenure`.
    pub fn arguments(&self) -> Vec<String> {
        let Some(it) = &self.secured else { return store(&[self.front.port]) };
        let mut arguments = store(&[it.tls.address.port()]);
        for (name, path) in [
            ("--store-ca-file", &it.ca),
            ("--store-cert", &it.client.cert),
            ("--store-key", &it.client.key),
        ] {
            arguments.extend([name.to_owned(), path.display().to_string()]);
        }
        arguments
    }

    /// Returns the variables of the user, for `tenure`; none where certificates sign in.
    pub fn variables(&self) -> Vec<(String, String)> {
        if self.secured.is_some() { Vec::new() } else { variables() }
    }

    /// Sends a command as the administrator, in the database of the elections.
    fn ask(&self, mut command: Document) -> Document {
        command.insert("$db", DATABASE);
        self.front.ask(&command)
    }

    /// Returns the document of an election.
    fn document(&self, election: &str) -> Option<Document> {
        let found = self.ask(doc! {"find": COLLECTION, "filter": {"_id": election}, "limit": 1});
        let cursor = found.get_document("cursor").expect("a cursor");
        let first = cursor.get_array("firstBatch").expect("a batch").first().cloned();
        first.and_then(|it| it.as_document().cloned())
    }

    /// Kills it, and starts it again with the same port and documents.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(self.home.path(), self.port, &self.file);
        self.becomes_ready();
    }

    /// Waits until it answers.
    pub fn becomes_ready(&self) {
        until(PATIENCE, "mongo-java-server is ready", || answers(self.port).then_some(()));
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.process.pid(), signal).expect("it takes a signal");
    }

    /// Replaces the certificates of the server and of its users, each with a new key of the same authority.
    pub fn replace_certificates(&self) {
        let it = self.secured.as_ref().expect("a server with TLS");
        it.sign_client();
        it.tls.show(it.authority.sign("127.0.0.1", UNTIL));
    }
}

impl SharedServer for MongoServer {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<MongoServer> = Shared::new();
        SHARED.get(Self::start)
    }

    fn shared_secured() -> Arc<Self> {
        static SHARED: Shared<MongoServer> = Shared::new();
        SHARED.get(Self::secured)
    }
}

impl RegisterServer for MongoServer {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        mongodb::open(&self.settings(election)).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        self.document(election).map(|it| it.to_vec().expect("a document")).unwrap_or_default()
    }

    fn value(&self, election: &str) -> Vec<u8> {
        let document = self.document(election).expect("a document");
        document.get_str("lease").expect("a text").into()
    }

    fn put(&self, election: &str, value: &str) {
        let version = uuid::Uuid::new_v4().to_string();
        let document = match value {
            "none" => doc! {"_id": election, "write": 7, "name": "something else"},
            value => doc! {"_id": election, "write": version, "lease": value},
        };
        let update = doc! {"q": {"_id": election}, "u": document, "upsert": true};
        self.ask(doc! {"update": COLLECTION, "updates": [update]});
    }

    fn delete(&self, election: &str) {
        let delete = doc! {"q": {"_id": election}, "limit": 1};
        self.ask(doc! {"delete": COLLECTION, "deletes": [delete]});
    }
}

/// Returns the arguments that name a store at these ports of loopback, for `tenure`.
pub fn store(ports: &[u16]) -> Vec<String> {
    let all: Vec<_> = ports.iter().map(|it| format!("127.0.0.1:{it}")).collect();
    vec!["--store".to_owned(), format!("mongodb://{}/{DATABASE}", all.join(","))]
}

/// Returns the variables of the user, for `tenure`.
pub fn variables() -> Vec<(String, String)> {
    [("MONGODB_USERNAME", USER.0), ("MONGODB_PASSWORD", USER.1)]
        .map(|(name, it)| (name.to_owned(), it.to_owned()))
        .into()
}

fn answers(port: u16) -> bool {
    let ping = doc! {"ping": 1, "$db": "admin"};
    Client::connect(port).and_then(|mut it| it.ask(&ping)).is_some()
}

fn spawn(home: &Path, port: u16, file: &Path) -> Process {
    let arguments = [port.to_string(), file.display().to_string()];
    let arguments = arguments.each_ref().map(String::as_str);
    run(home, "mongo-java-server", &arguments)
}
