//! A real Kubernetes control plane on free ports of loopback: etcd and kube-apiserver with RBAC,
//! and on request kube-controller-manager, kube-scheduler and kwok, which simulates Nodes. The tests
//! of a process share one, each in a namespace of its own; a test that stops the API server has
//! another.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::blocking;
use crate::etcd::server::Member;
use crate::faults::tls_front::Authority;
use crate::kubernetes::kubectl::Kubectl;
use crate::kubernetes::raw_client::Raw;
use crate::paths::tool;
use crate::processes::process::{Process, until};
use crate::processes::tool::run;

/// The timeout until a component is ready, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The token of the administrator, who has all permissions.
const ADMIN: &str = "admin-of-the-tests";

pub struct ControlPlane {
    /// kubectl with all permissions.
    pub kubectl: Kubectl,
    directory: TempDir,
    api_port: u16,
    /// Before etcd, so that it is stopped first.
    api: Process,
    etcd: Member,
    /// The components that roll out Deployments, if started.
    workers: OnceLock<Vec<Process>>,
}

impl ControlPlane {
    /// Starts etcd and kube-apiserver, and waits until they are ready.
    pub fn start() -> Self {
        for _ in 0..5 {
            if let Some(it) = Self::try_start() {
                return it;
            }
        }
        panic!("etcd or kube-apiserver ended five times before it was ready");
    }

    /// Returns the one that the tests of a process share, which none of them stops.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<ControlPlane> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Returns one that a test may stop, ready; one test at a time has it.
    pub fn stoppable() -> MutexGuard<'static, Self> {
        static STOPPABLE: OnceLock<Mutex<ControlPlane>> = OnceLock::new();
        let it = STOPPABLE.get_or_init(|| Mutex::new(Self::start()));
        let mut it = it.lock().unwrap_or_else(PoisonError::into_inner);
        it.restore();
        it
    }

    /// Returns one with the garbage collector, which deletes objects whose owners are all gone. The
    /// tests that need it share it.
    pub fn collecting() -> &'static Self {
        static COLLECTING: OnceLock<ControlPlane> = OnceLock::new();
        COLLECTING.get_or_init(|| {
            let it = Self::start();
            it.workers.get_or_init(|| vec![it.start_manager("garbage-collector-controller")]);
            it
        })
    }

    /// Returns `None` if another process took a port first.
    fn try_start() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let home = directory.path();
        let api_port = crate::ports::free_port();
        make_keys(home);
        let api = Raw::new(&url(api_port), Some(&certificate(home)), ADMIN);
        let kubectl = Kubectl { home: home.to_owned(), api };
        let etcd = Member::alone(home);
        let api = start_api(home, etcd.port, api_port);
        let mut it = Self { kubectl, directory, api_port, api, etcd, workers: OnceLock::new() };
        it.write_kubeconfig();
        it.becomes_ready().then_some(it)
    }

    /// Waits until the API server is ready; returns false if it exits.
    fn becomes_ready(&mut self) -> bool {
        until(PATIENCE, "kube-apiserver is ready", || {
            let ended = self.api.has_ended() || self.etcd.process.has_ended();
            (ended || self.is_ready()).then_some(!ended)
        })
    }

    pub fn is_ready(&self) -> bool {
        let response = self.kubectl.api.send(Method::GET, "/readyz", Value::Null);
        let response =
            blocking(async { tokio::time::timeout(Duration::from_secs(2), response).await });
        response.is_ok_and(|it| it.is_ok_and(|it| it.status().is_success()))
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        url(self.api_port)
    }

    /// Returns the file of the certificate that clients must trust.
    pub fn ca_file(&self) -> PathBuf {
        certificate(self.directory.path())
    }

    /// Returns the path of a file in the control plane's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn api_process(&self) -> u32 {
        self.api.id()
    }

    fn write_kubeconfig(&self) {
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {
                "server": self.url(), "certificate-authority": self.ca_file()}}],
            "users": [{"name": "it", "user": {"token": ADMIN}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        });
        std::fs::write(self.kubectl.kubeconfig(), text.to_string()).expect("written");
    }

    /// Writes a service account's token with this lifetime to a file, and returns its path. The API
    /// server issues no token with less than ten minutes.
    pub fn token(&self, namespace: &str, account: &str, life: Duration) -> PathBuf {
        let life = format!("{}s", life.as_secs());
        let token =
            self.kubectl.run(&["create", "token", "-n", namespace, account, "--duration", &life]);
        let file = self.file(&format!("{namespace}-{account}.token"));
        std::fs::write(&file, token.trim()).expect("written");
        file
    }

    /// Suspends the API server with SIGSTOP, as an overloaded machine would.
    pub fn stop_api(&self) {
        self.api.signal(Signal::STOP);
    }

    pub fn continue_api(&self) {
        self.api.signal(Signal::CONT);
    }

    pub fn kill_api(&mut self) {
        self.api.kill();
    }

    /// Restarts the API server with the same port and data, and waits until it is ready.
    pub fn restart_api(&mut self) {
        self.api.kill();
        self.api = start_api(self.directory.path(), self.etcd.port, self.api_port);
        assert!(self.becomes_ready(), "kube-apiserver does not start again");
    }

    /// Returns how many watches of single Leases the API server serves at present.
    pub fn watches_of_leases(&self) -> usize {
        let (_, metrics) = blocking(self.kubectl.api.get("/metrics"));
        let lines = metrics.as_str().unwrap_or_default().lines();
        let mut watches = lines.filter(|it| {
            it.starts_with("apiserver_longrunning_requests{")
                && it.contains("resource=\"leases\"")
                && it.contains("scope=\"resource\"")
        });
        watches.find_map(|it| it.rsplit_once(' ')?.1.parse().ok()).unwrap_or_default()
    }

    /// Undoes what a failed test may have left.
    fn restore(&mut self) {
        if self.api.has_ended() {
            self.restart_api();
        }
        self.continue_api();
        assert!(self.becomes_ready(), "the control plane is gone");
    }

    /// Starts the components that roll out Deployments, unless they run, and waits for this number of
    /// new simulated Nodes with a label for pods to select them by.
    pub fn add_nodes(&self, pool: &str, nodes: usize) {
        self.workers.get_or_init(|| self.start_workers());
        for number in 0..nodes {
            self.kubectl.apply(&node(pool, number));
        }
        let path = format!("/api/v1/nodes?labelSelector=pool%3D{pool}");
        until(PATIENCE, &format!("the Nodes of {pool} take pods"), || {
            let (_, listed) = blocking(self.kubectl.api.get(&path));
            // A new Node has a taint until the controller has seen that it is ready.
            let takes = |it: &Value| {
                let conditions = it["status"]["conditions"].as_array();
                let mut conditions = conditions.into_iter().flatten();
                let ready = conditions.any(|it| it["type"] == "Ready" && it["status"] == "True");
                ready && it["spec"]["taints"].is_null()
            };
            let all = listed["items"].as_array()?;
            (all.len() == nodes && all.iter().all(takes)).then_some(())
        });
    }

    fn start_workers(&self) -> Vec<Process> {
        let home = self.directory.path();
        let kubeconfig = self.kubectl.kubeconfig().display().to_string();
        let stages = stages().display().to_string();
        let nobody = ["--secure-port", "0"];
        let scheduler = [&["--kubeconfig", &kubeconfig], &nobody[..], &["--leader-elect=false"]];
        let kwok = ["--kubeconfig", &kubeconfig, "--manage-all-nodes", "--config", &stages];
        vec![
            // Without the controller that deletes what has an owner that does not exist.
            self.start_manager("*,-garbage-collector-controller"),
            run(home, "kube-scheduler", &scheduler.concat()),
            run(home, "kwok", &kwok),
        ]
    }

    fn start_manager(&self, controllers: &str) -> Process {
        let home = self.directory.path();
        let kubeconfig = self.kubectl.kubeconfig().display().to_string();
        let key = home.join("accounts.key").display().to_string();
        let ca = self.ca_file().display().to_string();
        let controllers = format!("--controllers={controllers}");
        let manager = [
            "--kubeconfig",
            &kubeconfig,
            "--secure-port",
            "0",
            "--leader-elect=false",
            "--use-service-account-credentials=false",
            &controllers,
            "--service-account-private-key-file",
            &key,
            "--root-ca-file",
            &ca,
        ];
        run(home, "kube-controller-manager", &manager)
    }
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

/// Returns the file with the API server's certificate and the authority that signed it.
fn certificate(home: &Path) -> PathBuf {
    home.join("certificates/apiserver.crt")
}

fn node(pool: &str, number: usize) -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": format!("{pool}-{number}"),
            "labels": {
                "pool": pool,
                "kubernetes.io/hostname": format!("{pool}-{number}"),
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/zone": format!("zone-{number}"),
            },
        },
        "status": {"allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"}},
    })
    .to_string()
}

/// Returns the file with the stages of kwok's Nodes.
fn stages() -> PathBuf {
    tool("kwok").with_file_name("stages.yaml")
}

/// Creates the API server's certificate, the key that signs the tokens of service accounts, and the
/// file with the administrator's token.
fn make_keys(home: &Path) {
    let authority = Authority::new("kubernetes");
    let (shown, key) = authority.sign_pem("127.0.0.1", 2099);
    std::fs::create_dir(home.join("certificates")).expect("a directory");
    std::fs::write(certificate(home), shown + &authority.certificate).expect("written");
    std::fs::write(certificate(home).with_extension("key"), key).expect("written");
    let made = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(home.join("accounts.key"))
        .arg("2048")
        .output()
        .expect("openssl starts");
    assert!(made.status.success(), "{made:?}");
    let line = format!("{ADMIN},admin,1,system:masters\n");
    std::fs::write(home.join("tokens.csv"), line).expect("written");
}

fn start_api(home: &Path, etcd_port: u16, port: u16) -> Process {
    let place = |name: &str| home.join(name).display().to_string();
    let settings = [
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", place("certificates")),
        format!("--service-account-key-file={}", place("accounts.key")),
        format!("--service-account-signing-key-file={}", place("accounts.key")),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        "--authorization-mode=RBAC".to_owned(),
        format!("--token-auth-file={}", place("tokens.csv")),
        "--endpoint-reconciler-type=none".to_owned(),
    ];
    run(home, "kube-apiserver", &settings.each_ref().map(String::as_str))
}
