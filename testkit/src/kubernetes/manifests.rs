//! Kubernetes manifests: rendered by helm or kustomize, found by kind and name, and validated
//! against the strict schemas of each version, without a cluster.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{LazyLock, Mutex};

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
    let mut child = tool_with_pipes(tool, arguments).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Returns the command of a tool, with pipes for its input and output.
fn tool_with_pipes(tool: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(crate::paths::tool(tool));
    command.args(arguments).current_dir(place(".")).stdin(Stdio::piped()).stdout(Stdio::piped());
    crate::tools::collect_rarely(&mut command);
    command
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

/// A kubeconform for one version of Kubernetes, which validates what it reads for as long as the tests
/// run: reading a schema takes longer than all validations with it.
struct Validator {
    version: &'static str,
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    /// How many times it was used.
    used: usize,
}

/// One for each of several versions of Kubernetes, among them the oldest that the charts support and the
/// newest.
static VALIDATORS: LazyLock<Vec<Mutex<Validator>>> = LazyLock::new(|| {
    let versions = ["1.29.0", "1.33.0", "1.37.0"];
    versions.into_iter().map(|it| Mutex::new(Validator::start(it))).collect()
});

impl Validator {
    fn start(version: &'static str) -> Self {
        let schemas = crate::paths::tool("kubernetes-schemas");
        // Resources of the Prometheus operator are not part of Kubernetes.
        let skip = "PodMonitor,PrometheusRule,Kustomization,Component";
        let how = ["-strict", "-verbose", "-n", "1", "-skip", skip, "-kubernetes-version", version];
        let location = ["-schema-location", schemas.to_str().unwrap(), "-"];
        let mut command = tool_with_pipes("kubeconform", &[&how[..], &location[..]].concat());
        // It ends with its input, when the tests end.
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { version, process, output, used: 0 }
    }

    /// Returns what kubeconform reports about each object, by lines.
    fn reports(&mut self, manifests: &str) -> Vec<String> {
        self.used += 1;
        let end = format!("end-{}", self.used);
        let last = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": end}});
        let (input, output) = (self.process.stdin.as_mut().unwrap(), &mut self.output);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                write!(input, "{manifests}\n---\n{last}\n---\n").unwrap();
                input.flush().unwrap();
            });
            let last = format!("stdin - ServiceAccount {end} is valid");
            let mut found = Vec::new();
            loop {
                match output.next().transpose().unwrap() {
                    Some(line) if line == last => return found,
                    Some(line) => found.push(line),
                    None => panic!("kubeconform has ended: {found:?}"),
                }
            }
        })
    }
}

/// Validates several manifests, as [`assert_valid`] does.
pub fn assert_all_valid<'a>(all: impl IntoIterator<Item = &'a Manifests>) {
    all.into_iter().for_each(|it| assert_valid(&it.text));
}

/// Validates manifests against the strict schemas of several versions of Kubernetes.
pub fn assert_valid(manifests: &str) {
    for validator in &*VALIDATORS {
        let (version, reports) = {
            let mut validator = validator.lock().unwrap();
            (validator.version, validator.reports(manifests))
        };
        let is_good = |it: &&String| it.ends_with(" is valid") || it.ends_with(" skipped");
        let (good, bad): (Vec<_>, Vec<_>) = reports.iter().partition(is_good);
        assert!(bad.is_empty(), "Kubernetes {version}: {bad:#?}");
        assert!(good.iter().any(|it| it.ends_with(" is valid")), "nothing to validate: {good:?}");
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
