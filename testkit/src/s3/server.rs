//! versitygw on a free port of loopback, which ends with the test's process.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tenure::config::{AwsCredential, S3Settings, SecretSource, StoreTls};
use tenure::store::{LeaseAdmin, s3};
use url::Url;

use crate::paths::tool;
use crate::ports::free_port;
use crate::processes::process::{Process, until};
use crate::processes::tool::run;
use crate::s3::front;
use crate::stores::bids::REQUEST_TIMEOUT;
use crate::stores::certificates::Certificates;
use crate::stores::register_lock::RegisterServer;
use crate::stores::servers::{PATIENCE, Shared, SharedServer};

/// The bucket of all elections, and the prefix in it.
pub const BUCKET: &str = "leases";
pub const PREFIX: &str = "team";

/// The user of the elections, who may read and write objects in the bucket, and list it.
pub const USER: (&str, &str) = ("elections", "correct horse");

/// The administrator.
const ROOT: (&str, &str) = ("root", "battery staple");

/// A running server.
pub struct S3Server {
    pub port: u16,
    /// The port of what makes its reads atomic.
    front: Option<u16>,
    pub process: Process,
    arguments: Vec<String>,
    files: Option<Certificates>,
    home: TempDir,
}

impl S3Server {
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
                it.set_up();
                return it;
            }
        }
        panic!("versitygw ended five times before it was ready");
    }

    /// Returns `None` if another process took the port first.
    fn try_start(tls: bool, directory: Option<&Path>) -> Option<Self> {
        let home = tempfile::tempdir().expect("a directory");
        let files = tls.then(|| Certificates::make(home.path(), "S3 of the tests"));
        let made = |name: &str| {
            let path = directory.unwrap_or(home.path()).join(name);
            std::fs::create_dir_all(&path).expect("a directory");
            path.display().to_string()
        };
        let port = free_port();
        let mut arguments = vec![
            format!("--access={}", ROOT.0),
            format!("--secret={}", ROOT.1),
            format!("--port=127.0.0.1:{port}"),
            format!("--iam-dir={}", made("users")),
            "--quiet".to_owned(),
            "--keep-alive".to_owned(),
        ];
        if let Some(files) = &files {
            arguments.push(format!("--cert={}", files.server.cert.display()));
            arguments.push(format!("--key={}", files.server.key.display()));
        }
        arguments.extend(["posix".to_owned(), made("objects")]);
        let process = spawn(home.path(), &arguments);
        let mut it = Self { port, front: None, process, arguments, files, home };
        until(PATIENCE, "versitygw is ready", || {
            let ended = it.process.has_ended();
            (ended || it.answers()).then_some(!ended)
        })
        .then_some(it)
    }

    fn answers(&self) -> bool {
        self.try_ask("GET", "", &[]).is_some_and(|it| it.0 == 200)
    }

    /// Adds the user, the bucket and the user's rights to it.
    fn set_up(&self) {
        let mut command = Command::new(tool("versitygw"));
        command.args([
            "admin",
            "--access",
            ROOT.0,
            "--secret",
            ROOT.1,
            "--endpoint-url",
            &self.url(),
        ]);
        if self.files.is_some() {
            command.arg("--allow-insecure");
        }
        command.args(["create-user", "--access", USER.0, "--secret", USER.1, "--role", "user"]);
        let output = command.stdin(Stdio::null()).output().expect("versitygw runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        self.ask("PUT", BUCKET, b"");
        self.give_rights();
    }

    /// Returns the settings of an election.
    pub fn settings(&self, election: &str) -> S3Settings {
        let secret = |text: &str| SecretSource::Value(text.to_owned());
        S3Settings {
            bucket: BUCKET.to_owned(),
            prefix: Some(PREFIX.to_owned()),
            election: election.to_owned(),
            url: Url::parse(&format!("{}/{BUCKET}", self.url())).expect("a URL"),
            region: "us-east-1".to_owned(),
            credential: AwsCredential::Keys {
                id: secret(USER.0),
                secret: secret(USER.1),
                token: None,
            },
            tls: self.files.as_ref().map(|it| StoreTls { ca_file: Some(it.ca.clone()), own: None }),
            request_timeout: REQUEST_TIMEOUT,
        }
    }

    /// Returns the path of the object of an election.
    fn path(&self, election: &str) -> String {
        format!("{BUCKET}/{}", self.settings(election).key())
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        let scheme = if self.files.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.front.unwrap_or(self.port))
    }

    /// Returns the arguments that name this store, for `tenure`.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = at(&self.url());
        if let Some(files) = &self.files {
            arguments.extend(["--store-ca-file".to_owned(), files.ca.display().to_string()]);
        }
        arguments
    }

    /// Kills it, and starts it again with the same port and objects.
    pub fn restart(&mut self) {
        self.process.kill();
        self.process = spawn(self.home.path(), &self.arguments);
        self.becomes_ready();
    }

    /// Waits until it answers.
    pub fn becomes_ready(&self) {
        until(PATIENCE, "versitygw is ready", || self.answers().then_some(()));
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.process.pid(), signal).expect("it takes a signal");
    }

    /// Replaces its certificate by another, with a new key of the same authority, which takes a restart.
    pub fn replace_certificate(&mut self) {
        self.files.as_ref().expect("a server with TLS").replace();
        self.restart();
    }

    /// Lets the user read and write objects, and list the bucket.
    pub fn give_rights(&self) {
        let allow = |actions: &[&str], resource: &str| {
            serde_json::json!({
                "Effect": "Allow", "Principal": {"AWS": [USER.0]}, "Action": actions,
                "Resource": format!("arn:aws:s3:::{BUCKET}{resource}"),
            })
        };
        let policy = serde_json::json!({"Version": "2012-10-17", "Statement": [
            allow(&["s3:GetObject", "s3:PutObject"], "/*"), allow(&["s3:ListBucket"], ""),
        ]});
        self.ask("PUT", &format!("{BUCKET}?policy="), policy.to_string().as_bytes());
    }

    /// Takes all rights of the user away.
    pub fn take_rights(&self) {
        self.ask("DELETE", &format!("{BUCKET}?policy="), b"");
    }

    /// Sends a request as the administrator, which succeeds; returns the body of the answer.
    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> Vec<u8> {
        let (status, answer) = self.try_ask(method, path, body).expect("an answer");
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer:?}");
        answer
    }

    /// Sends a request as the administrator, signed by curl; returns the status of the answer and its body.
    pub fn try_ask(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let mut curl = Command::new("curl")
            .args(["--silent", "--show-error", "--insecure", "--max-time", "10"])
            .args(["--request", method, "--write-out", "%{stderr}%{http_code}"])
            .args([
                "--aws-sigv4",
                "aws:amz:us-east-1:s3",
                "--user",
                &format!("{}:{}", ROOT.0, ROOT.1),
            ])
            .args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "--data-binary", "@-"])
            .arg(format!("{}/{path}", self.url()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("curl runs");
        curl.stdin.take().expect("a pipe").write_all(body).expect("curl reads");
        let output = curl.wait_with_output().expect("curl ends");
        let status = String::from_utf8_lossy(&output.stderr).trim().parse().ok();
        Some((status.filter(|_| output.status.success())?, output.stdout))
    }
}

impl SharedServer for S3Server {
    fn shared() -> Arc<Self> {
        static SHARED: Shared<S3Server> = Shared::new();
        SHARED.get(|| {
            let it = Self::start();
            Self { front: Some(front::before(it.port)), ..it }
        })
    }

    fn shared_secured() -> Arc<Self> {
        static SHARED: Shared<S3Server> = Shared::new();
        SHARED.get(Self::secured)
    }
}

impl RegisterServer for S3Server {
    fn open(&self, election: &str) -> Arc<dyn LeaseAdmin> {
        s3::open(&self.settings(election)).expect("the settings are good")
    }

    fn bytes(&self, election: &str) -> Vec<u8> {
        self.ask("GET", &self.path(election), b"")
    }

    fn put(&self, election: &str, value: &str) {
        self.ask("PUT", &self.path(election), value.as_bytes());
    }

    fn delete(&self, election: &str) {
        self.ask("DELETE", &self.path(election), b"");
    }
}

/// Returns the arguments of the store at a server, for `tenure`.
pub fn at(endpoint: &str) -> Vec<String> {
    let store = format!("s3://{BUCKET}/{PREFIX}");
    ["--store", &store, "--s3-endpoint", endpoint].map(str::to_owned).into()
}

/// Returns the variables of the user, for `tenure`.
pub fn variables() -> Vec<(String, String)> {
    [("AWS_ACCESS_KEY_ID", USER.0), ("AWS_SECRET_ACCESS_KEY", USER.1)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

fn spawn(home: &Path, arguments: &[String]) -> Process {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    run(home, "versitygw", &arguments)
}
