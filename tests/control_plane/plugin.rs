//! `kubectl tenure` with kubectl and a real API server with RBAC. There is no kubelet that could run a
//! command in a pod, so each `kubectl exec` fails; tests/cli/kubectl.rs has the commands themselves.

use testkit::kubernetes::control_plane::ControlPlane;
use testkit::kubernetes::plugin::Plugin;
use testkit::paths::tool;
use testkit::processes::process::Ran;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::rollout::Release;

const NAMESPACE: &str = "plugin";

/// One account may list pods and run commands in none, the other may do nothing.
const ACCOUNTS: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: lister, namespace: plugin}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: nobody, namespace: plugin}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: lister, namespace: plugin}
rules: [{apiGroups: [''], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lister, namespace: plugin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lister}
subjects: [{kind: ServiceAccount, name: lister, namespace: plugin}]
";

/// Writes a kubeconfig for a service account.
fn kubeconfig_of(account: &str, plane: &ControlPlane) -> PathBuf {
    let text = std::fs::read_to_string(plane.kubectl.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let token = plane.token(NAMESPACE, account, Duration::from_secs(600));
    config["users"][0]["user"]["token"] = std::fs::read_to_string(token).unwrap().into();
    let file = plane.file(&format!("kubeconfig-of-{account}"));
    std::fs::write(&file, config.to_string()).unwrap();
    file
}

/// Asserts that the command fails with these texts in its output.
fn assert_fails(ran: &Ran, texts: &[&str]) {
    let output = format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, 1, "{output}");
    for text in texts {
        assert!(output.contains(text), "{text} in {output}");
    }
}

#[test]
fn the_candidates_of_the_chart_are_found_by_their_labels_and_each_failure_has_its_reason() {
    let plane = ControlPlane::shared();
    let release = Release::install(NAMESPACE, "none", 2);
    let leader = release.settles();
    let election = release.full_name();
    let directory = tempfile::tempdir().unwrap();
    let plugin = Plugin::install(directory.path(), tool("kubectl").parent().unwrap());
    let run = |kubeconfig: &Path, arguments: &[&str]| {
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        plugin.run(&[arguments, &[&kubeconfig, "--timeout=60s"]].concat())
    };
    let admin = release.kubectl.kubeconfig();

    // kubectl finds the plugin itself.
    let listed = Command::new(tool("kubectl"))
        .args(["tenure", "status", "--help"])
        .env("PATH", directory.path())
        .env("HOME", directory.path())
        .output()
        .unwrap();
    let help = String::from_utf8_lossy(&listed.stdout);
    assert!(help.contains("Usage: kubectl tenure status [OPTIONS] [NAME]"), "{listed:?}");

    let ran = run(&admin, &["status", &election, "-n", NAMESPACE]);
    let pods = release.kubectl.list(NAMESPACE, "pods", "");
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let row = format!("{election}  {name}  unknown  -      -     -     no answer: ");
        assert_fails(&ran, &[&row]);
    }
    assert_fails(&ran, &[&format!("{election}: unknown leader: no valid answer from ")]);

    let ran = run(&admin, &["status", "-A", "--output", "json"]);
    assert_fails(&ran, &[]);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let mut elections = document["elections"].as_array().unwrap().iter();
    let found = elections.find(|it| it["election"] == *election && it["namespace"] == NAMESPACE);
    let candidates = found.unwrap()["candidates"].as_array().unwrap();
    let error = candidates.iter().find(|it| it["pod"] == *leader).unwrap()["error"].as_str();
    assert!(error.is_some_and(|it| !it.is_empty()), "{document}");

    let ran = run(&admin, &["step-down", &election, "-n", NAMESPACE]);
    assert_fails(&ran, &["the leader may be a pod that did not answer", &leader]);

    let ran = run(&admin, &["status", NAMESPACE, "-n", NAMESPACE]);
    assert_fails(
        &ran,
        &[&format!("{NAMESPACE} is a Helm release, and its election is {election}")],
    );
    let ran = run(&admin, &["status", &election, "-n", "default"]);
    let words = format!(
        "no running pod in the namespace default has the label tenure.dev/election={election}"
    );
    assert_fails(&ran, &[&words]);
    let ran = run(&admin, &["status", "--context", "elsewhere"]);
    assert_fails(
        &ran,
        &["context was not found for specified context: elsewhere", "check the context"],
    );

    plane.kubectl.apply(ACCOUNTS);
    let ran = run(&kubeconfig_of("lister", plane), &["status", &election, "-n", NAMESPACE]);
    assert_fails(&ran, &[&leader, "is forbidden: User", "cannot create resource \"pods/exec\""]);
    let ran = run(&kubeconfig_of("nobody", plane), &["status", &election, "-n", NAMESPACE]);
    assert_fails(&ran, &["cannot list resource \"pods\"", "permission `list` on `pods`"]);
}
