//! The chart on a real control plane, with real Tenure processes for its pods: it rolls out in each
//! routing mode, its Services follow the leader, and drained nodes evict one pod at a time.

use testkit::kubernetes::{control_plane, kubectl, kubelet};
use testkit::processes::process;

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::MutexGuard;
use std::time::Duration;

use control_plane::ControlPlane;
use kubectl::Kubectl;
use kubelet::Kubelet;
use process::until;
use serde_json::json;
use testkit::paths::tool;

/// The timeout for any expected change, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Returns the control plane with three nodes.
fn cluster() -> MutexGuard<'static, ControlPlane> {
    let mut plane = ControlPlane::shared();
    plane.start_workers(3);
    plane
}

/// The chart, installed in a namespace of its own.
struct Release<'a> {
    kubectl: &'a Kubectl,
    name: String,
    mode: &'a str,
    replicas: usize,
    kubelet: Kubelet,
    _leaves: Leaves<'a>,
}

/// Deletes the pods of a release from the Nodes that all releases share, because no kubelet would
/// end them when they are evicted.
struct Leaves<'a> {
    kubectl: &'a Kubectl,
    namespace: String,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let of = ["--all", "--namespace", &self.namespace];
        self.kubectl.ask(&[&["delete", "deployments"], &of[..]].concat());
        let at_once = ["--force", "--grace-period=0"];
        self.kubectl.ask(&[&["delete", "pods"], &of[..], &at_once].concat());
    }
}

impl<'a> Release<'a> {
    /// Installs the chart under this name, and waits until it has rolled out.
    fn install(plane: &'a ControlPlane, name: &str, mode: &'a str, replicas: usize) -> Self {
        let name = name.to_owned();
        let kubectl = &plane.kubectl;
        kubectl.run(&["create", "namespace", &name]);
        let kubelet = Kubelet::start(plane, &name);
        let _leaves = Leaves { kubectl, namespace: name.clone() };
        let it = Self { kubectl, name, mode, replicas, kubelet, _leaves };
        it.helm("install", "1");
        it.rolls_out("1");
        it
    }

    /// Installs the chart by Helm, or upgrades it to another version of the pods.
    fn helm(&self, verb: &str, version: &str) {
        let values = json!({
            "replicas": self.replicas,
            "routing": {"mode": self.mode},
            "container": {"image": "service:1", "ports": [{"name": "http", "containerPort": 8080}]},
            "podAnnotations": {"version": version},
            "election": {"leaseDuration": "5s", "renewDeadline": "3500ms", "retryPeriod": "700ms",
                         "requestTimeout": "1500ms"},
        });
        let file = self.kubectl.home.join(format!("{}.values", self.name));
        std::fs::write(&file, values.to_string()).unwrap();
        let ran = Command::new(tool("helm"))
            .args([verb, &self.name, concat!(env!("CARGO_MANIFEST_DIR"), "/helm/tenure")])
            .args(["--namespace", &self.name, "--values"])
            .arg(file)
            .arg("--kubeconfig")
            .arg(self.kubectl.kubeconfig())
            .env("HOME", &self.kubectl.home)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }

    /// Waits until all pods have this version and, unless readiness is leadership, are ready.
    fn rolls_out(&self, version: &str) {
        if self.mode != "probe" {
            let deployment = format!("deployment/{}", self.name);
            self.kubectl.run(&[
                "rollout",
                "status",
                &deployment,
                "-n",
                &self.name,
                "--timeout=180s",
            ]);
        }
        until(PATIENCE, "all pods are of the new version", || {
            let all = self.kubectl.get(&self.name, &["pods"]);
            let all = all["items"].as_array()?;
            let new = all.iter().filter(|it| it["metadata"]["annotations"]["version"] == version);
            (new.count() == self.replicas && all.len() == self.replicas).then_some(())
        });
    }

    /// Returns the addresses of a Service's ready endpoints.
    fn endpoints(&self, service: &str) -> BTreeSet<String> {
        let label = format!("kubernetes.io/service-name={service}");
        let slices = self.kubectl.get(&self.name, &["endpointslices", "--selector", &label]);
        let slices = slices["items"].as_array().unwrap().iter();
        let endpoints = slices.flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
        let ready = endpoints.filter(|it| it["conditions"]["ready"] != false);
        let addresses = ready.flat_map(|it| it["addresses"].as_array().unwrap());
        addresses.map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    /// Waits until one pod leads and the endpoints are those of the routing mode; returns its name.
    fn settles(&self) -> String {
        let mut seen = String::new();
        until(PATIENCE, &format!("{} settles", self.name), || {
            let leaders = self.kubelet.leaders();
            let [(leader, address)] = &leaders[..] else { return None };
            let (service, wanted) = match self.mode {
                "none" => (self.name.clone(), self.kubelet.addresses()),
                "probe" => (self.name.clone(), vec![address.clone()]),
                _ => (format!("{}-leader", self.name), vec![address.clone()]),
            };
            let (wanted, found) = (wanted.into_iter().collect(), self.endpoints(&service));
            let now = format!("{leader} leads; {service} leads to {found:?}, due are {wanted:?}");
            if now != seen {
                // Helps to understand a failure.
                eprintln!("{now}");
                seen = now;
            }
            let says = found == wanted && self.labels_say(leader) && self.lease_says(leader);
            says.then(|| leader.clone())
        })
    }

    /// Returns whether the leader holds the Lease of the release.
    fn lease_says(&self, leader: &str) -> bool {
        let lease = self.kubectl.get(&self.name, &["lease", &self.name]);
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        holder.starts_with(&format!("{leader}_"))
    }

    /// Returns whether only the leader has the label, or no pod in modes without labels.
    fn labels_say(&self, leader: &str) -> bool {
        let active = ["pods", "--selector", "tenure.dev/role=active"];
        let active = self.kubectl.get(&self.name, &active);
        let active = active["items"].as_array().unwrap();
        match self.mode {
            "label" => active.len() == 1 && active[0]["metadata"]["name"] == leader,
            _ => active.is_empty(),
        }
    }
}

/// Installs the chart, kills the leader's process, and rolls out another version.
fn rolls_out_and_follows(mode: &str) {
    let plane = cluster();
    for replicas in [1, 3] {
        let release = Release::install(&plane, &format!("{mode}-{replicas}"), mode, replicas);
        let leader = release.settles();
        release.kubelet.kill(&leader);
        let next = release.settles();
        assert!(replicas == 1 || next != leader, "{next} leads after {leader}");
        release.helm("upgrade", "2");
        release.rolls_out("2");
        release.settles();
        let verdict = release.kubelet.judge();
        assert!(verdict.terms.len() >= 3, "{verdict:?}");
    }
}

#[test]
fn without_routing_the_chart_rolls_out_and_its_service_leads_to_all_pods() {
    rolls_out_and_follows("none");
}

#[test]
fn the_label_follows_the_leader_and_the_service_the_label() {
    rolls_out_and_follows("label");
}

#[test]
fn the_endpointslice_follows_the_leader() {
    rolls_out_and_follows("endpointslice");
}

#[test]
fn with_leadership_as_readiness_the_chart_rolls_out_all_the_same() {
    rolls_out_and_follows("probe");
}

#[test]
fn drained_nodes_take_one_pod_at_a_time() {
    let plane = cluster();
    let release = Release::install(&plane, "drained", "label", 3);
    release.settles();
    let drain = |node: &str, patience: &str| {
        let asked = ["drain", node, "--delete-emptydir-data", "--timeout", patience];
        plane.kubectl.ask(&asked)
    };
    let pods = plane.kubectl.get(&release.name, &["pods"]);
    let pods = pods["items"].as_array().unwrap();
    let nodes: BTreeSet<_> =
        pods.iter().map(|it| it["spec"]["nodeName"].as_str().unwrap().to_owned()).collect();
    let nodes: Vec<_> = nodes.into_iter().collect();
    assert_eq!(nodes.len(), 3, "a pod on each: {nodes:?}");
    // The replacement of the first pod is not ready yet, so the second must not be evicted.
    release.kubelet.hold_back(true);
    let first = drain(&nodes[0], "60s");
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let refused = drain(&nodes[1], "8s");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("disruption budget"), "{said}");
    release.kubelet.hold_back(false);
    release.settles();
    for node in &nodes {
        plane.kubectl.run(&["uncordon", &nodes[0]]);
        let drained = drain(node, "120s");
        assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
        release.settles();
        plane.kubectl.run(&["uncordon", node]);
    }
    release.kubelet.judge();
}
