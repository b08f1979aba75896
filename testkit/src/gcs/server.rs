//! fake-gcs-server on a free port of loopback, which ends with the test's process, behind a front that asks
//! for tokens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tenure::config::{GcsSettings, GoogleCredential, StoreTls};
use tenure::store::{LeaseAdmin, gcs};
use url::Url;

use super::front::Front;
use crate::blocking;
use crate::faults::tls_front::{Authority, TlsFront, UNTIL};
use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run;
use crate::stores::bids::REQUEST_TIMEOUT;
use crate::stores::register_lock::RegisterServer;
use crate::stores::servers::{PATIENCE, Shared, SharedServer};

/// The bucket of all elections, and the prefix in it.
pub const BUCKET: &str = "leases";
pub const PREFIX: &str = "team";

/// TLS before the front.
struct Secured {
    authority: Authority,
    ca: PathBuf,
    tls: TlsFront,
}

/// A running emulator.
pub struct GcsServer {
    /// The port of the emulator itself.
    pub port: u16,
    pub process: Process,
    /// The front with the tokens.
    pub front: Front,
    arguments: Vec<String>,
    secured: Option<Secured>,
    client: reqwest::Client,
    home: TempDir,
}

impl GcsServer {
    /// Starts one without TLS.
    pub fn start() -> Self {
        Self::with(false, None)
    }

    /// Starts one with TLS.
    pub fn secured() -> Self {
        Self::with(true, None)
    }

    /// Starts one without TLS that keeps its objects in this directory.
    pub fn on(directory: &Path) -> Self {
        Self::with(false, Some(directory))
    }

    fn with(tls: bool, directory: Option<&Path>) -> Self {
        for _ in 0..5 {
            if let Some(it) = Self::try_start(tls, directory) {
                let body = serde_json::json!({"name": BUCKET}).to_string();
                it.ask("POST", "storage/v1/b?project=x", body.into_bytes());
                return it;
            }
        }
        panic!("fake-gcs-server ended five times before it was ready");
    }

    /// Returns `None` if another process took the port first.
    fn try_start(tls: bool, directory: Option<&Path>) -> Option<Self> {
        let home = tempfile::tempdir().expect("a directory");
        let objects = directory.unwrap_or(home.path()).join("objects");
        let port = free_port();
        let arguments = [
            "-backend=filesystem",
            &format!("-filesystem-root={}", objects.display()),
            "-scheme=http",
            "-host=127.0.0.1",
            &format!("-port={port}"),
            "-log-level=error",
        ];
        let arguments = arguments.map(str::to_owned).to_vec();
        let process = spawn(home.path(), &arguments);
        let front = Front::before(port);
        let secured = tls.then(|| {
            let authority = Authority::new("Google of the tests");
            let shown = authority.sign("127.0.0.1", UNTIL);
            let address = ([127, 0, 0, 1], front.port).into();
            let (ca, tls) = (authority.write(home.path()), TlsFront::start(address, shown));
            Secured { authority, ca, tls }
        });
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = client.build().expect("a client");
        let mut it = Self { port, process, front, arguments, secured, client, home };
        until(PATIENCE, "fake-gcs-server is ready", || {
            let ended = it.process.has_ended();
            (ended || it.answers()).then_some(!ended)
        })
        .then_some(it)
    }

    fn answers(&self) -> bool {
        self.try_ask("GET", "storage/v1/b?project=x", Vec::new()).is_some()
    }

    /// Returns the URL of the front.
    pub fn url(&self) -> String {
        match &self.secured {
            Some(it) => format!("https://{}", it.tls.address),
            None => self.plain_url(),
        }
    }

    /// Returns the URL of the front without TLS, which gives tokens too.
    pub fn plain_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.front.port)
    }

    /// Returns the settings of an election, with the service account of this machine.
    pub fn settings(&self, election: &str) -> GcsSettings {
        let url = |text: &str| Url::parse(&format!("{text}/")).expect("a URL");
        GcsSettings {
            bucket: BUCKET.to_owned(),
            prefix: Some(PREFIX.to_owned()),
            election: election.to_owned(),
            server: url(&self.url()),
            credential: GoogleCredential::Machine { endpoint: url(&self.plain_url()) },
            tls: self
                .secured
                .as_ref()
                .map(|it| StoreTls { ca_file: Some(it.ca.clone()), own: None }),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Returns the arguments that name this store, for `tenure`.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--store".to_owned(), format!("gs://{BUCKET}/{PREFIX}")];
        if let Some(it) = &self.secured {
            arguments.extend(["--store-ca-file".to_owned(), it.ca.display().to_string()]);
        }
        arguments
    }

    /// Returns the variables by which `tenure` finds the server at this URL, with the login of a user.
    pub fn variables(&self, url: &str) -> Vec<(String, String)> {
        let login = self.home.path().join("login.json");
        let token_uri = format!("{}/token", self.plain_url());
        let content = serde_json::json!({
            "type": "authorized_user", "client_id": "id", "client_secret": "the-client-secret",
            "refresh_token": "the-refresh-token", "token_uri": token_uri,
        });
        std::fs::write(&login, content.to_string()).expect("written");
        let login = login.display().to_string();
        [("STORAGE_EMULATOR_HOST", url.to_owned()), ("GOOGLE_APPLICATION_CREDENTIALS", login)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// Returns the path of the object of an election.
    fn path(&self, election: &str) -> String {
        let name = self.settings(election).name();
        format!("storage/v1/b/{BUCKET}/o/{}", name.replace('/', "%2F"))
    }

    /// Kills it, and starts it again with the same port and objects.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(self.home.path(), &self.arguments);
        self.becomes_ready();
    }

    /// Waits until it answers.
    pub fn becomes_ready(&self) {
        until(PATIENCE, "fake-gcs-server is ready", || self.answers().then_some(()));
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.process.pid(), signal).expect("it takes a signal");
    }

    /// Presents another certificate from now on, with a new key of the same authority.
    pub fn replace_certificate(&self) {
        let it = self.secured.as_ref().expect("a server with TLS");
        it.tls.show(it.authority.sign("127.0.0.1", UNTIL));
    }

    /// Sends a request to the emulator itself, which succeeds; returns the body of the answer.
    pub fn ask(&self, method: &str, path: &str, body: Vec<u8>) -> Vec<u8> {
        let (status, answer) = self.try_ask(method, path, body).expect("an answer");
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer:?}");
        answer
    }

    fn try_ask(&self, method: &str, path: &str, body: Vec<u8>) -> Option<(u16, Vec<u8>)> {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let url = format!("http://127.0.0.1:{}/{path}", self.port);
        let request = self.client.request(method, url).body(body);
        blocking(async {
            let answer = request.send().await.ok()?;
            let status = answer.status().as_u16();
            Some((status, answer.bytes().await.ok()?.to_vec()))
        })
    }
}

impl SharedServer for GcsServer {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<GcsServer> = Shared::new();
        SHARED.get(Self::start)
    }

    fn shared_secured() -> Arc<Self> {
        static SHARED: Shared<GcsServer> = Shared::new();
        SHARED.get(Self::secured)
    }
}

impl RegisterServer for GcsServer {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        gcs::open(&self.settings(election)).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        self.ask("GET", &format!("{}?alt=media", self.path(election)), Vec::new())
    }

    fn put(&self, election: &str, value: &str) {
        let name = self.settings(election).name();
        let path = format!("upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}");
        self.ask("POST", &path, value.as_bytes().to_vec());
    }

    fn delete(&self, election: &str) {
        self.ask("DELETE", &self.path(election), Vec::new());
    }
}

fn spawn(home: &Path, arguments: &[String]) -> Process {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(home, "fake-gcs-server", &arguments)
}
