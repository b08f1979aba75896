//! kubectl, as the administrator of the tests' control plane.
//!
//! What it does not do: it starts nothing that it would talk to.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::paths::tool;
use crate::processes::process::until;

/// How long kubectl may take to follow an object, on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the cluster is, and where files about it go.
#[derive(Clone)]
pub struct Kubectl {
    pub home: PathBuf,
}

impl Kubectl {
    /// The administrator's.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.join("kubeconfig")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(tool("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments);
        command.env("HOME", &self.home).stdin(Stdio::null());
        command
    }

    /// What kubectl answers.
    pub fn ask(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("kubectl starts")
    }

    /// The same, of what must succeed.
    pub fn run(&self, arguments: &[&str]) -> String {
        succeeded(arguments, &self.ask(arguments))
    }

    /// One object or a list of them, as JSON.
    pub fn get(&self, namespace: &str, what: &[&str]) -> serde_json::Value {
        let asked = [&["get", "--namespace", namespace, "--output", "json"], what].concat();
        serde_json::from_str(&self.run(&asked)).expect("JSON")
    }

    /// Creates or changes the objects of these manifests.
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

    /// Keeps each version of an object from now on.
    pub fn follow(&self, namespace: &str, kind: &str, name: &str) -> Followed {
        let file = self.home.join(format!("{namespace}-{kind}-{name}.versions"));
        let asked = ["get", "--watch", "--output", "json", "--namespace", namespace, kind];
        let child = self
            .command(&asked)
            .args(["--field-selector", &format!("metadata.name={name}")])
            .stdout(File::create(&file).expect("a file"))
            .spawn()
            .expect("kubectl starts");
        let it = Followed { child, file };
        until(PATIENCE, "kubectl follows", || (!it.versions().is_empty()).then_some(()));
        it
    }
}

/// An object that is followed, until it is dropped.
pub struct Followed {
    child: Child,
    file: PathBuf,
}

impl Followed {
    /// What it has been so far.
    pub fn versions(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&self.file).expect("the file is there");
        // The last may not be whole yet.
        serde_json::Deserializer::from_str(&text).into_iter().map_while(Result::ok).collect()
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn succeeded(arguments: &[&str], output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {}: {said}", arguments.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
