//! The candidates among the pods that `kubectl get pods --output=json` lists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Cluster;
use crate::cli::terminal::harmless;

/// The label of the pods with the name of their election.
pub(super) const LABEL: &str = "tenure.dev/election";

/// The label of the pods with the name of their Helm release.
const RELEASE: &str = "app.kubernetes.io/instance";

/// The name of the container that runs Tenure, in the charts and the Kustomize component.
const CONTAINER: &str = "tenure";

/// The path of the binary in Tenure's image.
const PROGRAM: &str = "/tenure";

/// A pod with Tenure in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) namespace: String,
    pub(super) pod: String,
    /// The election, if the pod says.
    pub(super) election: Option<String>,
    /// The Helm release, if the pod says.
    pub(super) release: Option<String>,
    /// The container that runs Tenure.
    pub(super) container: String,
    /// Whether the pod has that container.
    pub(super) has_container: bool,
    /// The path of the binary in that container.
    pub(super) program: String,
    /// The admin listener, if a flag names it; commands in the container do not know it then.
    pub(super) admin: Option<String>,
    /// Why the container does not run, so that it is not asked.
    pub(super) not_running: Option<String>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    init_containers: Vec<Container>,
    containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    restart_policy: Option<String>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    value: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    phase: String,
    #[serde(default)]
    container_statuses: Vec<ContainerStatus>,
    #[serde(default)]
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: String,
    /// The state's name, with its details.
    #[serde(default)]
    state: Map<String, Value>,
}

impl Container {
    fn program(&self) -> Option<&str> {
        let program = self.command.first()?;
        (Path::new(program).file_name()? == CONTAINER).then_some(program)
    }

    /// Returns the value of a setting as a flag, which beats the variable.
    fn flag(&self, name: &str) -> Option<&str> {
        let flag = format!("--{name}");
        let mut words = self.command.iter().chain(&self.args);
        while let Some(word) = words.next() {
            match word.strip_prefix(&flag) {
                Some("") => return words.next().map(String::as_str),
                Some(rest) if rest.starts_with('=') => return Some(&rest[1..]),
                // Then comes the command of `exec`.
                None if word == "--" => return None,
                _ => {}
            }
        }
        None
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find(|it| it.name == name)?.value.as_deref()
    }
}

impl Pod {
    /// Returns the container that runs Tenure: the one that was named, else `tenure`, else one whose
    /// command is Tenure. Other init containers have ended when the pod runs.
    fn container(&self, name: Option<&str>) -> Option<&Container> {
        let sidecars = self.spec.init_containers.iter();
        let sidecars = sidecars.filter(|it| it.restart_policy.as_deref() == Some("Always"));
        let all: Vec<&Container> = sidecars.chain(&self.spec.containers).collect();
        let named = |name: &str| all.iter().find(|it| it.name == name);
        let found = match name {
            Some(name) => named(name),
            None => named(CONTAINER).or_else(|| all.iter().find(|it| it.program().is_some())),
        };
        found.copied()
    }

    /// Returns why a container does not run, from the kubelet's last report.
    fn not_running(&self, container: &str) -> Option<String> {
        let all = &self.status.init_container_statuses;
        let mut all = all.iter().chain(&self.status.container_statuses);
        let Some(status) = all.find(|it| it.name == container) else {
            return (self.status.phase != "Running")
                .then(|| format!("the pod is {}", self.status.phase.to_lowercase()));
        };
        if status.state.is_empty() || status.state.contains_key("running") {
            return None;
        }
        let (state, details) = status.state.iter().next()?;
        let reason = details["reason"].as_str().unwrap_or("no reason given");
        Some(format!("the container is {state}: {reason}"))
    }

    /// Returns the candidate; `None` if all containers of the pod have ended for good.
    fn candidate(self, container: Option<&str>) -> Option<Candidate> {
        if ["Succeeded", "Failed"].contains(&self.status.phase.as_str()) {
            return None;
        }
        let found = self.container(container);
        let name = found.map_or(container.unwrap_or(CONTAINER), |it| &it.name).to_owned();
        let not_running = found.and_then(|_| self.not_running(&name));
        let label = |name: &str| self.metadata.labels.get(name).cloned();
        let setting = found.and_then(|it| {
            it.flag("election").or_else(|| it.variable("TENURE_ELECTION")).map(str::to_owned)
        });
        Some(Candidate {
            election: label(LABEL).or(setting),
            release: label(RELEASE),
            program: found.and_then(Container::program).unwrap_or(PROGRAM).to_owned(),
            admin: found.and_then(|it| it.flag("admin")).map(str::to_owned),
            has_container: found.is_some(),
            container: name,
            not_running,
            namespace: self.metadata.namespace,
            pod: self.metadata.name,
        })
    }
}

/// Returns the candidates among the listed pods.
pub(super) fn candidates(list: &str, container: Option<&str>) -> Result<Vec<Candidate>, String> {
    let list: List = serde_json::from_str(list).map_err(|error| {
        format!(
            "kubectl get pods printed something other than a list of pods: {error}\n  check the \
             kubectl that is first in PATH"
        )
    })?;
    Ok(list.items.into_iter().filter_map(|it| it.candidate(container)).collect())
}

/// Returns whether a text may be the name of an election, and so a part of a selector.
pub(super) fn is_label_value(text: &str) -> bool {
    let is_allowed = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it);
    (1..=63).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Returns the error for a selector without candidates; `others` are those of other elections.
pub(super) fn not_found(
    selector: &str,
    name: Option<&str>,
    is_everywhere: bool,
    cluster: &Cluster,
    others: &[Candidate],
) -> String {
    let place = match (&cluster.namespace, is_everywhere) {
        (_, true) => "in any namespace".to_owned(),
        (Some(namespace), _) => format!("in the namespace {namespace}"),
        (None, _) => "in the namespace of kubectl's context".to_owned(),
    };
    let mut text = format!("no running pod {place} has the label {selector}");
    let elections: BTreeSet<&str> = others.iter().filter_map(|it| it.election.as_deref()).collect();
    let elections: Vec<String> = elections.into_iter().map(harmless).collect();
    let of_release = others.iter().find(|it| name.is_some() && it.release.as_deref() == name);
    if let Some(election) = of_release.and_then(|it| it.election.as_deref()) {
        let (name, election) = (name.unwrap_or_default(), harmless(election));
        text += &format!("\n  {name} is a Helm release, and its election is {election}");
    } else if !elections.is_empty() {
        text += &format!("\n  the elections there are: {}", elections.join(", "));
    } else if !is_everywhere {
        text += "\n  name another namespace with -n, or see all with kubectl tenure status -A; pods \
                 without this label are found with --selector";
    } else {
        text += "\n  pods without this label are found with --selector";
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(pod: &Value, container: Option<&str>) -> Vec<Candidate> {
        candidates(&json!({"items": [pod]}).to_string(), container).unwrap()
    }

    /// Returns a pod as the charts make it, changed by the test.
    fn pod(change: impl FnOnce(&mut Value)) -> Value {
        let mut pod = json!({
            "metadata": {"name": "web-1", "namespace": "shop", "labels": {
                "tenure.dev/election": "orders", "app.kubernetes.io/instance": "release"}},
            "spec": {
                "initContainers": [
                    {"name": "migrate"},
                    {"name": "tenure", "restartPolicy": "Always", "args": ["run"],
                     "env": [{"name": "POD_NAME", "valueFrom": {}}]},
                ],
                "containers": [{"name": "service", "command": ["/bin/service"]}],
            },
            "status": {"phase": "Running", "initContainerStatuses": [
                {"name": "tenure", "state": {"running": {"startedAt": "x"}}}]},
        });
        change(&mut pod);
        pod
    }

    #[test]
    fn a_pod_of_the_chart_is_a_candidate() {
        let candidate = Candidate {
            namespace: "shop".to_owned(),
            pod: "web-1".to_owned(),
            election: Some("orders".to_owned()),
            release: Some("release".to_owned()),
            container: "tenure".to_owned(),
            has_container: true,
            program: "/tenure".to_owned(),
            admin: None,
            not_running: None,
        };
        assert_eq!(found(&pod(|_| {}), None), [candidate]);
    }

    #[test]
    fn a_pod_without_the_label_is_a_candidate_of_the_election_in_its_settings() {
        let of = |container: Value| {
            let pod = pod(|it| {
                it["metadata"]["labels"] = json!({"app": "web"});
                it["spec"] = json!({"containers": [container]});
                it["status"] = json!({"phase": "Running"});
            });
            found(&pod, None).pop().unwrap()
        };
        let worker = of(json!({"name": "job", "command": ["/shared/tenure", "exec", "--election",
            "batch", "--admin=unix:/run/a", "--", "./job", "--election=other"]}));
        assert_eq!(worker.election.as_deref(), Some("batch"));
        assert_eq!((worker.container.as_str(), worker.program.as_str()), ("job", "/shared/tenure"));
        assert_eq!(worker.admin.as_deref(), Some("unix:/run/a"));
        let by_variable = of(json!({"name": "tenure", "args": ["run"],
            "env": [{"name": "TENURE_ELECTION", "value": "orders"}]}));
        assert_eq!(by_variable.election.as_deref(), Some("orders"));
        let of_command = of(json!({"name": "job", "command": ["/tenure", "exec", "--", "x",
            "--election=other"]}));
        assert_eq!(of_command.election, None, "the flags of the command are its own");
    }

    #[test]
    fn the_container_is_named_or_known() {
        let two = pod(|it| {
            it["spec"]["containers"] = json!([{"name": "job", "command": ["/x/tenure"]}]);
        });
        let container = |name| found(&two, name).pop().unwrap().container;
        assert_eq!(container(None), "tenure", "the usual name comes first");
        assert_eq!(container(Some("job")), "job");
        let none = pod(|it| it["spec"]["initContainers"][1]["restartPolicy"] = Value::Null);
        assert!(!found(&none, None)[0].has_container, "an init container has ended");
        assert!(!found(&two, Some("other"))[0].has_container);
    }

    #[test]
    fn a_container_that_does_not_run_is_not_asked_and_an_ended_pod_is_no_candidate() {
        let not_running = |change: fn(&mut Value)| found(&pod(change), None)[0].not_running.clone();
        let waits = not_running(|it| {
            it["status"]["initContainerStatuses"][0]["state"] =
                json!({"waiting": {"reason": "CrashLoopBackOff"}});
        });
        assert_eq!(waits.as_deref(), Some("the container is waiting: CrashLoopBackOff"));
        let pending = not_running(|it| it["status"] = json!({"phase": "Pending"}));
        assert_eq!(pending.as_deref(), Some("the pod is pending"));
        let unreported = not_running(|it| it["status"] = json!({"phase": "Running"}));
        assert_eq!(unreported, None, "then it is asked");
        for phase in ["Succeeded", "Failed"] {
            assert_eq!(found(&pod(|it| it["status"]["phase"] = phase.into()), None), []);
        }
    }

    #[test]
    fn what_is_no_list_of_pods_is_an_error() {
        for text in ["", "{}", "<html>", r#"{"items":[{}]}"#] {
            let error = candidates(text, None).unwrap_err();
            assert!(error.contains("other than a list of pods"), "{error}");
        }
    }
}
