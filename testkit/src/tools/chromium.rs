//! A real headless Chromium, controlled by the DevTools protocol over a pipe.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The timeout of any call; Chromium starts slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A Chromium with one tab; killed when it is dropped.
pub struct Chromium {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    /// Messages of the console and the log: errors, warnings, violations of the content security
    /// policy.
    pub complaints: Vec<String>,
    _home: tempfile::TempDir,
}

impl Chromium {
    pub async fn start() -> Self {
        let home = tempfile::tempdir().expect("a directory can be made");
        // The protocol uses the descriptors 3 and 4. The process group of its own contains all
        // processes that Chromium starts.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking"])
            .arg(format!("--user-data-dir={}", home.path().display()))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .expect("a shell");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut it =
            Self { child, to, from, session: None, next: 0, complaints: Vec::new(), _home: home };
        let target = it.call("Target.createTarget", json!({"url": "about:blank"})).await;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = it.call("Target.attachToTarget", attach).await;
        it.session = Some(session["sessionId"].as_str().expect("a session").to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            it.call(&format!("{domain}.enable"), json!({})).await;
        }
        it
    }

    /// Makes one call of the protocol.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let mut call = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        let mut bytes = call.to_string().into_bytes();
        bytes.push(0);
        let sent = self.to.write_all(&bytes).await;
        sent.expect("Chromium runs; install the package chromium");
        loop {
            let message = self.message().await;
            if message["id"] == self.next {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
        }
    }

    /// Reads one message, and records messages of the console and the log.
    async fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.from.read_until(0, &mut bytes)).await;
        let length = read.expect("Chromium answers in time").expect("a pipe");
        assert!(length > 0, "Chromium runs; install the package chromium");
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).expect("JSON");
        let logged = ["Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"];
        if logged.iter().any(|it| message["method"] == *it) {
            self.complaints.push(message["params"].to_string());
        }
        message
    }

    /// Opens a URL, and waits until the page is loaded.
    pub async fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url})).await;
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'").await;
    }

    /// Returns the value of an expression in the page.
    pub async fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params).await;
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Returns the visible text of the page.
    pub async fn text(&mut self) -> String {
        self.value("document.body.innerText").await.as_str().expect("text").to_owned()
    }

    /// Waits until an expression is true in the page.
    pub async fn until(&mut self, expression: &str) {
        let start = tenure::clock::now();
        while self.value(expression).await != true {
            let waited = start.elapsed_min(tenure::clock::now());
            if waited > PATIENCE {
                panic!("in vain until {expression}: {}", self.text().await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Sets the size of the window, and the color scheme.
    pub async fn emulate(&mut self, width: u32, height: u32, scheme: &str) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 2, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await;
        self.call("Emulation.setScrollbarsHidden", json!({"hidden": true})).await;
        let feature = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", feature).await;
    }

    /// Disconnects the page from the network, or reconnects it.
    pub async fn offline(&mut self, offline: bool) {
        let limits = json!({"offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        self.call("Network.emulateNetworkConditions", limits).await;
    }

    /// Enables or disables JavaScript for pages that are opened from now on.
    pub async fn scripts(&mut self, on: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": !on})).await;
    }

    /// Returns a screenshot of the page, as a PNG in base64.
    pub async fn picture(&mut self) -> String {
        let params = json!({"captureBeyondViewport": true});
        let shot = self.call("Page.captureScreenshot", params).await;
        shot["data"].as_str().expect("a picture").to_owned()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let Some(pid) = self.child.id().and_then(|it| i32::try_from(it).ok()) else { return };
        if let Some(group) = rustix::process::Pid::from_raw(pid) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// Writes a screenshot for manual inspection, if `TENURE_PICTURES` names a directory.
pub fn keep(name: &str, picture: &str) {
    #[allow(clippy::disallowed_methods, reason = "screenshots for a person, not for the test")]
    let Ok(directory) = std::env::var("TENURE_PICTURES") else { return };
    let coded = Path::new(&directory).join(format!("{name}.png.base64"));
    std::fs::write(coded, picture).expect("the directory is there");
}
