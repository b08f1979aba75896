//! A kubelet for tests: for each pod of a namespace with a node, it runs `tenure run` with the
//! arguments of the pod's container, the pod's name and address, and a token of its service
//! account. It reports the result of the readiness probe in the pod's status, restarts the process
//! when it has exited, and stops it when the pod is deleted.
//!
//! It runs no containers, and considers the service next to Tenure ready.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::blocking;
use crate::kubernetes::control_plane::ControlPlane;
use crate::kubernetes::kubectl::{Kubectl, collection};
use crate::processes::process::Process;
use crate::recorder::{Recorder, Verdict};

/// The interval between reads of the pods.
const INTERVAL: Duration = Duration::from_millis(200);

/// A running pod.
struct Pod {
    candidate: Process,
    address: String,
    /// The arguments for a restart.
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    probe: String,
    restarts: u32,
    ending: bool,
}

/// The state that the kubelet shares with the test.
struct State {
    pods: BTreeMap<String, Pod>,
    recorder: Recorder,
    /// The instances that were asked to exit.
    released: Vec<String>,
    starts: u8,
    /// While it is set, no further pod becomes ready.
    holds_back: bool,
}

/// The cluster's namespace, API server and directory.
struct Place {
    kubectl: Kubectl,
    namespace: String,
    /// The arguments to reach the API server from this host, without a token.
    api: Vec<String>,
    /// The directory for the pods' files, in that of the control plane, so that a failed test can
    /// show the logs.
    directory: PathBuf,
}

/// The kubelet of a namespace; stops with all its processes when it is dropped.
pub struct Kubelet {
    state: Arc<Mutex<State>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kubelet {
    /// Starts a kubelet for the pods of a namespace.
    pub fn start(plane: &ControlPlane, namespace: &str) -> Self {
        let ca = plane.ca_file().display().to_string();
        let place = Place {
            kubectl: plane.kubectl.clone(),
            namespace: namespace.to_owned(),
            api: vec!["--kube-api".to_owned(), plane.url(), "--kube-ca-file".to_owned(), ca],
            directory: plane.file(&format!("pods-of-{namespace}")),
        };
        std::fs::create_dir(&place.directory).expect("a directory");
        let state = Arc::new(Mutex::new(State {
            pods: BTreeMap::new(),
            recorder: Recorder::every(Duration::from_millis(10)),
            released: Vec::new(),
            starts: 0,
            holds_back: false,
        }));
        let over = Arc::new(AtomicBool::default());
        let (its, end) = (Arc::clone(&state), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                place.reconcile(&its);
                std::thread::sleep(INTERVAL);
            }
        });
        Self { state, over, thread: Some(thread) }
    }

    /// Returns the pods whose process leads, with their addresses.
    pub fn leaders(&self) -> Vec<(String, String)> {
        let state = lock(&self.state);
        let leading = state.pods.iter().filter(|(_, pod)| pod.candidate.is_leader());
        leading.map(|(name, pod)| (name.clone(), pod.address.clone())).collect()
    }

    /// Returns the addresses of all running pods that are not terminating.
    pub fn addresses(&self) -> Vec<String> {
        let state = lock(&self.state);
        let mut all: Vec<_> =
            state.pods.values().filter(|it| !it.ending).map(|it| it.address.clone()).collect();
        all.sort();
        all
    }

    /// Prevents further pods from becoming ready, or permits it again.
    pub fn hold_back(&self, holds_back: bool) {
        lock(&self.state).holds_back = holds_back;
    }

    pub fn kill(&self, pod: &str) {
        lock(&self.state).pods.get_mut(pod).expect("it runs").candidate.kill();
    }

    /// Stops everything, and checks the recorded claims.
    pub fn verdict(mut self) -> Verdict {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("it runs").join();
        ended.expect("the kubelet did not panic");
        let mut state = lock(&self.state);
        state.pods.clear();
        let recorder = std::mem::replace(&mut state.recorder, Recorder::start());
        let released: Vec<&str> = state.released.iter().map(String::as_str).collect();
        let verdict = recorder.finish(&released);
        verdict.assert_safe();
        verdict
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Place {
    fn reconcile(&self, state: &Mutex<State>) {
        let all = self.kubectl.list(&self.namespace, "pods", "");
        let name = |pod: &Value| pod["metadata"]["name"].as_str().expect("a name").to_owned();
        let mut state = lock(state);
        let there: Vec<String> = all.iter().map(name).collect();
        state.pods.retain(|name, _| there.contains(name));
        for pod in &all {
            let (name, goes) = (name(pod), pod["metadata"]["deletionTimestamp"].is_string());
            if state.pods.contains_key(&name) {
                if goes { self.end(&mut state, &name) } else { self.probe(&mut state, &name, pod) }
            } else if goes {
                self.forget(&name);
            } else if pod["spec"]["nodeName"].is_string() {
                self.begin(&mut state, &name, pod);
            }
        }
    }

    /// Starts the process of a pod.
    fn begin(&self, state: &mut State, name: &str, pod: &Value) {
        state.starts += 1;
        let address = format!("10.1.0.{}", state.starts);
        let container = tenure(pod);
        let home = self.directory.join(state.starts.to_string());
        std::fs::create_dir(&home).expect("a directory");
        let variables = variables(container, pod, &address, &home);
        let arguments = self.arguments(container, &variables, &self.token(&home, name, pod), &home);
        let probe = container["readinessProbe"]["httpGet"]["path"].as_str().expect("a probe");
        let candidate = start(name, &arguments, &variables);
        state.recorder.follow(&candidate.name, candidate.address);
        let probe = probe.to_owned();
        let (restarts, ending) = (0, false);
        let it = Pod { candidate, address, arguments, variables, probe, restarts, ending };
        state.pods.insert(name.to_owned(), it);
        self.probe(state, name, pod);
    }

    /// Returns the container's arguments, adapted to this host: the API server's address, and any
    /// port.
    fn arguments(
        &self,
        container: &Value,
        variables: &[(String, String)],
        token: &Path,
        home: &Path,
    ) -> Vec<String> {
        let flags = container["args"].as_array().expect("arguments").iter();
        let flags = flags.map(|it| it.as_str().expect("a text"));
        let flags = flags.filter(|it| *it != "run" && !it.starts_with("--listen="));
        let flags = flags.map(|it| expanded(it, variables, home));
        let token = ["--kube-token-file".to_owned(), token.display().to_string()];
        flags.chain(self.api.iter().cloned()).chain(token).collect()
    }

    /// Creates a token of the pod's service account that is valid as long as the pod exists.
    fn token(&self, home: &Path, name: &str, pod: &Value) -> PathBuf {
        let account = pod["spec"]["serviceAccountName"].as_str().expect("an account");
        let uid = pod["metadata"]["uid"].as_str().expect("a uid");
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
        let request = json!({"spec": {"audiences": [], "boundObjectRef": bound}});
        let path = format!("{}/{account}/token", collection(&self.namespace, "serviceaccounts"));
        let (status, answer) = blocking(self.kubectl.api.post(&path, request));
        assert_eq!(status, 201, "{answer}");
        let file = home.join("token");
        std::fs::write(&file, answer["status"]["token"].as_str().expect("a token"))
            .expect("written");
        file
    }

    /// Restarts the process if it has exited, and updates the pod's status if it differs from the
    /// probe's result: the node controller also writes it, for the pods of a Node without recent
    /// heartbeats.
    fn probe(&self, state: &mut State, name: &str, pod: &Value) {
        let holds_back = state.holds_back;
        let it = state.pods.get_mut(name).expect("it runs");
        if it.candidate.has_ended() {
            it.restarts += 1;
            let again = format!("{name}-again-{}", it.restarts);
            it.candidate = start(name, &it.arguments, &it.variables);
            it.candidate.name = again;
            state.recorder.follow(&it.candidate.name, it.candidate.address);
        }
        let ready = it.candidate.get(&it.probe).is_some_and(|(code, _)| code == 200);
        if reported_ready(pod, &it.address) == Some(ready) || (holds_back && ready) {
            return;
        }
        let status = status(pod, &it.address, ready);
        self.patch(name, json!({"status": status}));
    }

    fn patch(&self, name: &str, patch: Value) {
        let path = format!("{}/{name}/status", collection(&self.namespace, "pods"));
        // The pod may be gone by now.
        blocking(self.kubectl.api.patch(&path, patch));
    }

    /// Terminates a pod's process as a kubelet does, and deletes the pod when it has exited.
    fn end(&self, state: &mut State, name: &str) {
        let it = state.pods.get_mut(name).expect("it runs");
        if !it.ending {
            it.ending = true;
            state.released.push(it.candidate.name.clone());
            it.candidate.signal(Signal::TERM);
        }
        if it.candidate.has_ended() {
            self.forget(name);
        }
    }

    /// Deletes the pod, which has no process left.
    fn forget(&self, name: &str) {
        let path = format!("{}/{name}", collection(&self.namespace, "pods"));
        blocking(self.kubectl.api.delete(&path, json!({"gracePeriodSeconds": 0})));
    }
}

fn start(name: &str, arguments: &[String], variables: &[(String, String)]) -> Process {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let variables: Vec<_> =
        variables.iter().map(|(it, value)| (it.as_str(), value.as_str())).collect();
    Process::run(name, &arguments, &variables)
}

/// Returns the sidecar's container, which may be an init container.
fn tenure(pod: &Value) -> &Value {
    let lists = ["initContainers", "containers"].map(|it| pod["spec"][it].as_array());
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|it| it["name"] == "tenure").expect("a container named tenure")
}

/// Returns the container's variables, each of which may refer to earlier ones.
fn variables(container: &Value, pod: &Value, address: &str, home: &Path) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    for it in container["env"].as_array().into_iter().flatten() {
        let name = it["name"].as_str().expect("a name").to_owned();
        let value = match it["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("status.podIP") => address,
            Some(field) => {
                let place = format!("/{}", field.replace('.', "/"));
                pod.pointer(&place).and_then(Value::as_str).expect("the pod has that")
            }
            None => it["value"].as_str().expect("a value"),
        };
        let value = expanded(value, &all, home);
        all.push((name, value));
    }
    all
}

/// Expands the variables in a text, and replaces the container's directory by that on this host.
fn expanded(text: &str, variables: &[(String, String)], home: &Path) -> String {
    let text = text.replace("/run/tenure", &home.display().to_string());
    variables.iter().fold(text, |it, (name, value)| it.replace(&format!("$({name})"), value))
}

/// Returns whether the pod's status says that it is ready; `None` if the status is not of the
/// running process.
fn reported_ready(pod: &Value, address: &str) -> Option<bool> {
    let status = &pod["status"];
    let ready = status["conditions"].as_array()?.iter().find(|it| it["type"] == "Ready")?;
    (status["podIP"] == address).then(|| ready["status"] == "True")
}

/// Returns the status of a running pod.
fn status(pod: &Value, address: &str, ready: bool) -> Value {
    let now = pod["metadata"]["creationTimestamp"].clone();
    let word = if ready { "True" } else { "False" };
    let conditions = [
        ("PodScheduled", "True"),
        ("Initialized", "True"),
        ("ContainersReady", word),
        ("Ready", word),
    ];
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status)| json!({"type": kind, "status": status, "lastTransitionTime": now}))
        .collect();
    let containers = |list: &str| -> Vec<Value> {
        let all = pod["spec"][list].as_array().into_iter().flatten();
        all.map(|it| {
            json!({
                "name": it["name"], "image": it["image"], "imageID": "", "restartCount": 0,
                "ready": ready || it["name"] != "tenure", "started": true,
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect()
    };
    json!({
        "phase": "Running", "startTime": now, "hostIP": "127.0.0.1",
        "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions,
        "containerStatuses": containers("containers"),
        "initContainerStatuses": containers("initContainers"),
    })
}
