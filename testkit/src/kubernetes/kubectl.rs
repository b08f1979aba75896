//! kubectl with the administrator's credentials for the tests' control plane. Reads go to the API
//! server without it, because they are polled, and each start of kubectl takes a tenth of a second
//! of a core.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::blocking;
use crate::kubernetes::raw_client::Raw;
use crate::paths::tool;
use crate::processes::process::{Process, until};

/// The timeout until kubectl watches an object, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// kubectl for one cluster; its files are in `home`.
#[derive(Clone)]
pub struct Kubectl {
    pub home: PathBuf,
    /// A client of the API server with the same credentials.
    pub api: Raw,
}

impl Kubectl {
    /// Returns the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.join("kubeconfig")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(tool("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments);
        command.env("HOME", &self.home).stdin(Stdio::null());
        command
    }

    /// Runs kubectl and returns its output.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("kubectl starts")
    }

    /// Like [`ask`](Self::ask), but panics unless it succeeds.
    pub fn run(&self, arguments: &[&str]) -> String {
        succeeded(arguments, &self.ask(arguments))
    }

    /// Returns an object of a namespace.
    pub fn get(&self, namespace: &str, resource: &str, name: &str) -> Value {
        self.read(&format!("{}/{name}", collection(namespace, resource)))
    }

    /// Returns the objects of a namespace with these labels.
    pub fn list(&self, namespace: &str, resource: &str, selector: &str) -> Vec<Value> {
        let selector = selector.replace('/', "%2F").replace('=', "%3D");
        let path = format!("{}?labelSelector={selector}", collection(namespace, resource));
        match self.read(&path)["items"].take() {
            Value::Array(items) => items,
            other => panic!("no list: {other}"),
        }
    }

    fn read(&self, path: &str) -> Value {
        let (status, answer) = blocking(self.api.get(path));
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    /// Creates or updates the objects of these manifests.
    pub fn apply(&self, manifests: &str) {
        let arguments = ["apply", "--filename", "-"];
        let mut command = self.command(&arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl starts");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(manifests.as_bytes()).expect("kubectl reads");
        drop(input);
        succeeded(&arguments, &child.wait_with_output().expect("kubectl ends"));
    }

    /// Records each version of an object from now on.
    pub fn follow(&self, namespace: &str, kind: &str, name: &str) -> Followed {
        let arguments = ["get", "--watch", "--output", "json", "--namespace", namespace, kind];
        let mut command = self.command(&arguments);
        command.args(["--field-selector", &format!("metadata.name={name}")]);
        let it = Followed(Process::spawn("kubectl", command));
        until(PATIENCE, "kubectl follows", || (!it.versions().is_empty()).then_some(()));
        it
    }
}

/// An object that is watched until this is dropped.
pub struct Followed(Process);

impl Followed {
    /// Returns the versions so far.
    pub fn versions(&self) -> Vec<Value> {
        let text = self.0.out();
        // The last may be incomplete.
        serde_json::Deserializer::from_str(&text).into_iter().map_while(Result::ok).collect()
    }
}

/// Returns the path of a namespace's objects.
pub fn collection(namespace: &str, resource: &str) -> String {
    let api = match resource {
        "leases" => "apis/coordination.k8s.io/v1",
        "deployments" => "apis/apps/v1",
        "endpointslices" => "apis/discovery.k8s.io/v1",
        _ => "api/v1",
    };
    format!("/{api}/namespaces/{namespace}/{resource}")
}

fn succeeded(arguments: &[&str], output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {}: {stderr}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
