//! Kubernetes manifests: rendered by helm or kustomize, found by kind and name, and validated
//! against the strict schemas of each version, without a cluster.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::kubernetes::yaml;

/// The release name for which charts are rendered.
pub const RELEASE: &str = "orders";

/// Returns the absolute path of a file in the repository.
pub fn place(path: &str) -> PathBuf {
    crate::paths::repository().join(path)
}

/// Reads a file of the repository.
pub fn text(path: &str) -> String {
    std::fs::read_to_string(place(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs one of the tools with a text as its input.
pub fn run(tool: &str, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(crate::paths::tool(tool))
        .args(arguments)
        .current_dir(place("."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Rendered objects.
#[derive(Clone, Debug)]
pub struct Manifests {
    pub text: String,
    pub all: Vec<Value>,
}

/// Renders a chart with values as [`RELEASE`] in the namespace `shop`, or returns helm's error.
pub fn helm(chart: &str, values: &Value, flags: &[&str]) -> Result<Manifests, String> {
    helm_release(RELEASE, "shop", chart, values, flags)
}

/// Renders a chart as a release in a namespace, or returns helm's error.
pub fn helm_release(
    release: &str,
    namespace: &str,
    chart: &str,
    values: &Value,
    flags: &[&str],
) -> Result<Manifests, String> {
    let mut arguments = vec!["template", release, chart, "--namespace", namespace, "--values", "-"];
    arguments.extend(flags);
    let ran = run("helm", &arguments, &values.to_string());
    if !ran.status.success() {
        return Err(String::from_utf8(ran.stderr).unwrap());
    }
    Ok(Manifests::of(String::from_utf8(ran.stdout).unwrap()))
}

/// Renders the chart `tenure` with these values, merged with the required ones.
pub fn try_render(values: &Value) -> Result<Manifests, String> {
    let mut all = json!({"container": {"image": "registry.example/orders:1"}});
    lay_over(&mut all, values);
    helm("helm/tenure", &all, &[])
}

/// Like [`try_render`], but panics on an error.
pub fn render(values: &Value) -> Manifests {
    try_render(values).unwrap_or_else(|error| panic!("{values}: {error}"))
}

/// Merges values, as helm does.
pub fn lay_over(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                lay_over(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above.clone(),
    }
}

impl Manifests {
    /// Parses manifests.
    pub fn of(text: String) -> Self {
        let all = yaml::documents(&text);
        Self { text, all }
    }

    /// Returns all objects of a kind.
    pub fn each(&self, kind: &str) -> Vec<&Value> {
        self.all.iter().filter(|it| it["kind"] == kind).collect()
    }

    /// Returns the object with this kind and name.
    pub fn the(&self, kind: &str, name: &str) -> &Value {
        let mut found = self.each(kind);
        found.retain(|it| it["metadata"]["name"] == name);
        assert_eq!(found.len(), 1, "{kind} {name} in:\n{}", self.text);
        found[0]
    }

    /// Returns the only Deployment, StatefulSet or DaemonSet.
    pub fn workload(&self) -> &Value {
        let mut found = self.each("Deployment");
        found.extend(self.each("StatefulSet"));
        found.extend(self.each("DaemonSet"));
        assert_eq!(found.len(), 1, "{}", self.text);
        found[0]
    }

    /// Returns the specification of its pods.
    pub fn pod(&self) -> &Value {
        &self.workload()["spec"]["template"]["spec"]
    }

    /// Returns the container with this name, which may be an init container.
    pub fn container(&self, name: &str) -> &Value {
        let mut found = containers(self.pod());
        found.retain(|it| it["name"] == name);
        assert_eq!(found.len(), 1, "container {name} in:\n{}", self.text);
        found[0]
    }

    /// Returns the settings of the sidecar as flags, including those from environment variables.
    pub fn flags(&self) -> Vec<String> {
        let container = self.container("tenure");
        let all = container["args"].as_array().unwrap();
        assert_eq!(all[0], "run");
        let flags = all[1..].iter().map(|it| it.as_str().unwrap().to_owned());
        let variables = container["env"].as_array().unwrap().iter().filter_map(|it| {
            let name = it["name"].as_str().unwrap().strip_prefix("TENURE_")?;
            let flag = name.to_lowercase().replace('_', "-");
            (name != "URL").then(|| format!("--{flag}={}", it["value"].as_str().unwrap()))
        });
        flags.chain(variables).collect()
    }

    /// Returns the specifications of all pods, including those of helm tests.
    pub fn pods(&self) -> Vec<&Value> {
        let of = |it: &'_ Value| it["spec"]["template"]["spec"].is_object();
        let templates = self.all.iter().filter(|it| of(it));
        let templates = templates.map(|it| &it["spec"]["template"]["spec"]);
        templates.chain(self.each("Pod").into_iter().map(|it| &it["spec"])).collect()
    }
}

/// Returns the containers of a pod, init containers first.
pub fn containers(pod: &Value) -> Vec<&Value> {
    let all = ["initContainers", "containers"].map(|it| pod[it].as_array());
    all.into_iter().flatten().flatten().collect()
}

/// Validates several manifests, as [`assert_valid`] does; reading the schemas takes most of its time.
pub fn assert_all_valid<'a>(all: impl IntoIterator<Item = &'a Manifests>) {
    let texts: Vec<&str> = all.into_iter().map(|it| it.text.as_str()).collect();
    assert_valid(&texts.join("\n---\n"));
}

/// Validates manifests against the strict schemas of several versions of Kubernetes, among them the
/// oldest that the charts support and the newest.
pub fn assert_valid(manifests: &str) {
    let schemas = crate::paths::tool("kubernetes-schemas");
    // Resources of the Prometheus operator are not part of Kubernetes.
    let skip = "PodMonitor,PrometheusRule,Kustomization,Component";
    for version in ["1.29.0", "1.33.0", "1.37.0"] {
        let arguments = ["-strict", "-summary", "-skip", skip, "-kubernetes-version", version];
        let location = ["-schema-location", schemas.to_str().unwrap(), "-"];
        let ran = run("kubeconform", &[&arguments[..], &location[..]].concat(), manifests);
        let stdout = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "Kubernetes {version}: {stdout}");
        assert!(!stdout.contains("Valid: 0"), "{stdout}");
    }
}

/// Asserts that a pod complies with the profile `restricted` of the pod security standards and, as
/// Tenure promises, has read-only root file systems and no service links.
pub fn assert_restricted(pod: &Value) {
    assert_eq!(pod["enableServiceLinks"], false, "{pod}");
    for key in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
        assert!(pod[key].is_null(), "{key}: {pod}");
    }
    for volume in pod["volumes"].as_array().into_iter().flatten() {
        assert!(volume["hostPath"].is_null(), "{volume}");
    }
    for container in containers(pod) {
        let own = &container["securityContext"];
        let counts = |key: &str| match &own[key] {
            Value::Null => &pod["securityContext"][key],
            own => own,
        };
        let name = &container["name"];
        assert_eq!(*counts("runAsNonRoot"), true, "{name}");
        assert_ne!(*counts("runAsUser"), 0, "{name}");
        assert_eq!(counts("seccompProfile")["type"], "RuntimeDefault", "{name}");
        assert_eq!(own["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(own["capabilities"], json!({"drop": ["ALL"]}), "{name}");
        assert_eq!(own["readOnlyRootFilesystem"], true, "{name}");
        assert_ne!(own["privileged"], true, "{name}");
        for port in container["ports"].as_array().into_iter().flatten() {
            assert!(port["hostPort"].is_null(), "{name}: {port}");
        }
    }
}

/// Asserts that each probe of a pod connects to the pod itself, with a numeric port.
pub fn assert_plain_probes(pod: &Value) {
    for container in containers(pod) {
        for kind in ["startupProbe", "readinessProbe", "livenessProbe"] {
            for how in ["httpGet", "tcpSocket"] {
                let probe = &container[kind][how];
                assert!(probe["host"].is_null(), "{container}");
                assert!(probe.is_null() || probe["port"].is_u64(), "{container}");
            }
        }
    }
}

/// A permission that a Role grants: namespace, group, resource, verb, and the name that it is
/// restricted to.
pub type Granted = (String, String, String, String, Option<String>);

impl Manifests {
    /// Returns all permissions of the Roles, after a check that each is bound to its
    /// ServiceAccount.
    pub fn granted(&self) -> BTreeSet<Granted> {
        assert!(self.each("ClusterRole").is_empty() && self.each("ClusterRoleBinding").is_empty());
        let words = |it: &Value| -> Vec<String> {
            let all = it.as_array().into_iter().flatten();
            all.map(|it| it.as_str().unwrap().to_owned()).collect()
        };
        let mut all = BTreeSet::new();
        for role in self.each("Role") {
            let name = role["metadata"]["name"].as_str().unwrap();
            let binding = self.the("RoleBinding", name);
            assert_eq!(binding["metadata"]["namespace"], role["metadata"]["namespace"]);
            assert_eq!(binding["roleRef"]["name"], name);
            let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
            for rule in role["rules"].as_array().unwrap() {
                let mut names: Vec<Option<String>> =
                    words(&rule["resourceNames"]).into_iter().map(Some).collect();
                if names.is_empty() {
                    names.push(None);
                }
                for group in words(&rule["apiGroups"]) {
                    for resource in words(&rule["resources"]) {
                        for verb in words(&rule["verbs"]) {
                            for name in &names {
                                let (namespace, group) = (namespace.to_owned(), group.clone());
                                let (resource, verb) = (resource.clone(), verb.clone());
                                all.insert((namespace, group, resource, verb, name.clone()));
                            }
                        }
                    }
                }
            }
        }
        all
    }
}
