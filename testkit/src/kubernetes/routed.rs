//! Candidates that run as pods of a cluster: an in-process API server, a pod for each candidate,
//! and the lease in a directory, so that the cluster can fail independently of the election.

use std::fs::File;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kubernetes::kube_server::KubeServer;
use crate::processes::process::{Process, until};

/// The timeout for any expected change, on a busy machine.
pub const BOUND: Duration = Duration::from_secs(60);

/// The namespace of all objects.
pub const NAMESPACE: &str = "team";

/// Timings with a lease short enough to wait for its expiry.
pub const SHORT: &str = "--lease-duration=3s --renew-deadline=2s --retry-period=300ms \
                         --request-timeout=500ms";

/// Timings with a lease far longer than a graceful handover takes.
pub const LONG: &str = "--lease-duration=120s --renew-deadline=100s --retry-period=300ms \
                        --request-timeout=2s";

/// The cluster, and the store of its candidates.
pub struct Cluster {
    pub server: KubeServer,
    store: String,
    route: Vec<String>,
    directory: TempDir,
}

impl Cluster {
    /// Creates a cluster whose candidates get these arguments for the route.
    pub fn new(route: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("lease")).expect("a directory");
        let store = format!("file://{}", directory.path().join("lease").display());
        let route = route.iter().map(|it| (*it).to_owned()).collect();
        Self { server: KubeServer::start(), store, route, directory }
    }

    /// Starts a candidate as the pod with its name.
    pub fn start(&self, name: &str, timings: &str) -> Process {
        self.start_with(name, timings, &[], &self.server.url())
    }

    /// Like [`start`](Self::start), with more arguments, and with another URL for the API server.
    pub fn start_with(&self, name: &str, timings: &str, more: &[&str], api: &str) -> Process {
        if self.server.object("pods", NAMESPACE, name).is_none() {
            let pod = json!({
                "metadata": {"labels": {"app": "web"}},
                "spec": {"nodeName": "node-1", "containers": []},
            });
            self.server.put("pods", NAMESPACE, name, pod);
        }
        let token = self.server.token_file().display().to_string();
        let mut arguments = vec!["--store", &self.store, "--election", "orders", "--kube-api", api];
        arguments.extend(["--kube-token-file", &token]);
        arguments.extend(self.route.iter().map(String::as_str));
        arguments.extend(timings.split_whitespace());
        arguments.extend(more);
        let address = format!("10.0.0.{}", &name[name.len() - 1..]);
        let variables =
            [("POD_NAME", name), ("POD_NAMESPACE", NAMESPACE), ("POD_IP", address.as_str())];
        Process::run(name, &arguments, &variables)
    }

    /// Stops a candidate, but not while it has locked the lease's record, which would block the
    /// others.
    #[allow(clippy::disallowed_methods, reason = "tests wait on real processes, by the real clock")]
    pub fn stop(&self, candidate: &Process) {
        let lock = File::open(self.directory.path().join("lease/orders.lock")).expect("the lock");
        until(BOUND, "it is stopped without the lock", || {
            candidate.signal(Signal::STOP);
            // Its threads stop one after the other.
            std::thread::sleep(Duration::from_millis(20));
            let free = flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
            let _ = flock(&lock, FlockOperation::Unlock);
            if !free {
                candidate.signal(Signal::CONT);
            }
            free.then_some(())
        });
    }

    /// Returns role and term in a pod's label and annotation.
    pub fn label(&self, pod: &str) -> (String, Option<u64>) {
        let pod = self.server.object("pods", NAMESPACE, pod).expect("the pod is there");
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let role = text("/metadata/labels/tenure.dev~1role").unwrap_or_default();
        let term = text("/metadata/annotations/tenure.dev~1term");
        (role, term.map(|it| it.parse().expect("a number")))
    }

    /// Returns the pods with the role active.
    pub fn active(&self) -> Vec<String> {
        let pods = self.server.objects("pods", NAMESPACE);
        let active = |it: &&Value| it["metadata"]["labels"]["tenure.dev/role"] == "active";
        let name = |it: &Value| it["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        pods.iter().filter(active).map(name).collect()
    }

    /// Waits until a pod has a role.
    pub fn has_role(&self, pod: &str, role: &str) {
        let what = format!("the label of {pod} is {role}");
        until(BOUND, &what, || (self.label(pod).0 == role).then_some(()));
    }
}

/// Waits until a candidate leads, and returns its term.
pub fn leads(candidate: &Process) -> u64 {
    until(BOUND, &format!("{} leads", candidate.name), || {
        candidate.status()?["term"].as_u64().filter(|_| candidate.is_leader())
    })
}

/// Waits until route and role agree, or do not.
pub fn agrees(candidate: &Process, agrees: bool) -> Value {
    let what = format!("agreement of {} is {agrees}", candidate.name);
    until(BOUND, &what, || {
        let route = candidate.status()?["route"].clone();
        (route["agrees"] == agrees).then_some(route)
    })
}

/// Returns the value of a candidate's metric with this name prefix and label.
pub fn series(candidate: &Process, name: &str, label: &str) -> Option<f64> {
    let (_, text) = candidate.get("/metrics")?;
    let mut lines = text.lines().filter(|it| it.starts_with(name) && it.contains(label));
    lines.next()?.rsplit_once(' ')?.1.parse().ok()
}
