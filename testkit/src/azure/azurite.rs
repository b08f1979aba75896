//! A real Azurite on a free port of loopback, which ends with the test.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::config::{AzureCredential, AzureSettings, SecretSource};
use tokio::net::TcpStream;
use url::Url;

use crate::blocking;
use crate::processes::process::Process;
use crate::stores::servers::Shared;

/// The account of every Azurite.
pub const ACCOUNT: &str = "devstoreaccount1";

/// The published key of that account.
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A running Azurite with empty storage in memory.
pub struct Azurite {
    /// The account's endpoint.
    pub endpoint: Url,
    _process: Process,
    _directory: TempDir,
}

/// A certificate for 127.0.0.1 with its key, as files.
pub struct Certificate {
    /// The certificate, which is self-signed.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
    _directory: Option<TempDir>,
}

impl Certificate {
    /// Generates a certificate.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
        let (certificate, key) =
            (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        Self { certificate, key, _directory: Some(directory) }
    }

    /// Uses an existing certificate.
    pub fn at(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { certificate: certificate.into(), key: key.into(), _directory: None }
    }
}

impl Azurite {
    /// Starts an Azurite over plain HTTP.
    pub async fn start() -> Self {
        Self::with("http", &[]).await
    }

    /// Returns the one that all running tests share; it ends with the last of them.
    pub fn shared() -> Arc<Self> {
        static SHARED: Shared<Azurite> = Shared::new();
        SHARED.get(|| blocking(Self::start()))
    }

    /// Starts an Azurite over HTTPS that also accepts tokens of Entra, without a check of their
    /// signature.
    pub async fn with_sign_in(certificate: &Certificate) -> Self {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        let (cert, key) = (text(&certificate.certificate), text(&certificate.key));
        Self::with("https", &["--oauth", "basic", "--cert", &cert, "--key", &key]).await
    }

    async fn with(scheme: &str, more: &[&str]) -> Self {
        let program = crate::paths::tool("azurite").join("node_modules/.bin/azurite-blob");
        for _ in 0..5 {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let port = crate::ports::free_port();
            let mut command = Command::new(&program);
            command
                .args(["--inMemoryPersistence", "--disableTelemetry", "--silent"])
                .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
                .args(more)
                .current_dir(directory.path())
                .stdin(Stdio::null());
            let mut process = Process::spawn("azurite-blob, which needs Node", command);
            if listens(&mut process, port).await {
                let endpoint = format!("{scheme}://127.0.0.1:{port}/{ACCOUNT}");
                let endpoint = Url::parse(&endpoint).expect("a URL");
                return Self { endpoint, _process: process, _directory: directory };
            }
        }
        panic!("Azurite ended five times before it listened");
    }

    /// Returns settings for a blob, signed with the account key.
    pub fn settings(&self, container: &str, blob: &str) -> AzureSettings {
        settings(&self.endpoint, KEY, container, blob)
    }
}

/// Returns settings for a blob of the account on a server, signed with a key.
pub fn settings(endpoint: &Url, key: &str, container: &str, blob: &str) -> AzureSettings {
    AzureSettings {
        endpoint: endpoint.clone(),
        is_endpoint_given: true,
        account: ACCOUNT.to_owned(),
        container: container.to_owned(),
        blob: blob.to_owned(),
        credential: AzureCredential::Key(SecretSource::Value(key.to_owned())),
        request_timeout: Duration::from_secs(2),
        proxy: None,
        no_proxy: None,
    }
}

/// Waits until the process listens; false if it exited because another process took its port.
async fn listens(process: &mut Process, port: u16) -> bool {
    let listening = async {
        loop {
            if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return !process.has_ended();
            }
            if process.has_ended() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), listening).await.expect("listens within a minute")
}
