//! The chart on a real control plane, with real Tenure processes for its pods: it rolls out in each
//! routing mode, its Services follow the leader, and drained nodes evict one pod at a time.

use testkit::kubernetes::{control_plane, kubectl, kubelet};
use testkit::processes::process;

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use control_plane::ControlPlane;
use kubectl::Kubectl;
use kubelet::Kubelet;
use process::until;
use serde_json::{Value, json};
use testkit::kubernetes::manifests::lay_over;
use testkit::paths::tool;

/// The timeout for any expected change, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The chart, installed in a namespace and on Nodes of its own.
pub(crate) struct Release {
    pub(crate) kubectl: &'static Kubectl,
    pub(crate) name: String,
    mode: &'static str,
    replicas: usize,
    /// Values that are merged over the usual ones.
    more: Value,
    kubelet: Kubelet,
}

impl Release {
    /// Installs the chart in this routing mode, and waits until it has rolled out.
    pub(crate) fn install(name: &str, mode: &'static str, replicas: usize) -> Self {
        let plane = ControlPlane::shared();
        let kubectl = &plane.kubectl;
        plane.add_nodes(name, 3);
        kubectl.run(&["create", "namespace", name]);
        let kubelet = Kubelet::start(plane, name);
        let (name, more) = (name.to_owned(), json!({}));
        let it = Self { kubectl, name, mode, replicas, more, kubelet };
        it.helm("install", "1");
        it.rolls_out("1");
        it
    }

    /// Returns the name of the Lease, the Deployment and the Service for all pods.
    pub(crate) fn full_name(&self) -> String {
        format!("{}-tenure", self.name)
    }

    /// Installs the chart by Helm, or upgrades it to another version of the pods.
    fn helm(&self, verb: &str, version: &str) {
        self.try_helm(verb, version).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Like [`Self::helm`], but returns Helm's error.
    fn try_helm(&self, verb: &str, version: &str) -> Result<(), String> {
        let mut values = json!({
            "replicas": self.replicas,
            "nodeSelector": {"pool": self.name},
            "routing": {"mode": self.mode},
            "container": {"image": "service:1", "ports": [{"name": "http", "containerPort": 8080}]},
            "podAnnotations": {"version": version},
            "election": {"leaseDuration": "5s", "renewDeadline": "3500ms", "retryPeriod": "700ms",
                         "requestTimeout": "1500ms"},
        });
        lay_over(&mut values, &self.more);
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
        let error = String::from_utf8_lossy(&ran.stderr).into_owned();
        if ran.status.success() { Ok(()) } else { Err(error) }
    }

    /// Waits until all pods have this version and, unless readiness is leadership, are ready.
    fn rolls_out(&self, version: &str) {
        if self.mode != "probe" {
            let deployment = format!("deployment/{}", self.full_name());
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
            let all = self.kubectl.list(&self.name, "pods", "");
            let new = all.iter().filter(|it| it["metadata"]["annotations"]["version"] == version);
            (new.count() == self.replicas && all.len() == self.replicas).then_some(())
        });
    }

    /// Returns the addresses of a Service's ready endpoints.
    fn endpoints(&self, service: &str) -> BTreeSet<String> {
        let label = format!("kubernetes.io/service-name={service}");
        let slices = self.kubectl.list(&self.name, "endpointslices", &label);
        let endpoints =
            slices.iter().flat_map(|it| it["endpoints"].as_array().into_iter().flatten());
        let ready = endpoints.filter(|it| it["conditions"]["ready"] != false);
        let addresses = ready.flat_map(|it| it["addresses"].as_array().unwrap());
        addresses.map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    /// Waits until one pod leads and the endpoints are those of the routing mode; returns its name.
    pub(crate) fn settles(&self) -> String {
        let mut seen = String::new();
        until(PATIENCE, &format!("{} settles", self.name), || {
            let leaders = self.kubelet.leaders();
            let [(leader, address)] = &leaders[..] else { return None };
            let (service, wanted) = match self.mode {
                "none" => (self.full_name(), self.kubelet.addresses()),
                "probe" => (self.full_name(), vec![address.clone()]),
                _ => (self.leader_service(self.mode), vec![address.clone()]),
            };
            let (wanted, found) = (wanted.into_iter().collect(), self.endpoints(&service));
            let now = format!("{leader} leads; {service} leads to {found:?}, due are {wanted:?}");
            if now != seen {
                // Helps to understand a failure.
                eprintln!("{now}");
                seen = now;
            }
            let named = found == wanted && self.labels_name(leader) && self.lease_names(leader);
            named.then(|| leader.clone())
        })
    }

    /// Returns the name of the Service that follows the leader.
    fn leader_service(&self, mode: &str) -> String {
        let suffix = if mode == "endpointslice" { "leader-ip" } else { "leader" };
        format!("{}-{suffix}", self.full_name())
    }

    /// Returns whether the leader holds the Lease of the release.
    fn lease_names(&self, leader: &str) -> bool {
        let moved = self.more["election"]["store"].as_str();
        let name = moved.map_or(self.full_name(), |it| it.replace("kubernetes:", ""));
        let lease = self.kubectl.get(&self.name, "leases", &name);
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        holder.starts_with(&format!("{leader}_"))
    }

    /// Returns whether only the leader has the label, or no pod in modes without labels.
    fn labels_name(&self, leader: &str) -> bool {
        let active = self.kubectl.list(&self.name, "pods", "tenure.dev/role=active");
        match self.mode {
            "label" => active.len() == 1 && active[0]["metadata"]["name"] == leader,
            _ => active.is_empty(),
        }
    }
}

/// Installs the chart, kills the leader's process, and rolls out another version.
fn rolls_out_and_follows(mode: &'static str) {
    for replicas in [1, 3] {
        let release = Release::install(&format!("{mode}-{replicas}"), mode, replicas);
        let leader = release.settles();
        release.kubelet.kill(&leader);
        // The killed pod itself, restarted, may win against those that have waited longer.
        release.settles();
        release.helm("upgrade", "2");
        release.rolls_out("2");
        release.settles();
        let verdict = release.kubelet.verdict();
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
fn an_upgrade_that_moves_the_election_is_refused_unless_it_stops_all_old_pods_first() {
    const GUARD: &str = "moved.tenure.moves-only-with-election.moved";
    let mut release = Release::install("moved", "none", 2);
    let lease =
        |release: &Release| release.kubectl.get("moved", "configmaps", GUARD)["data"].clone();
    let workload = |release: &Release| {
        let deployment = release.kubectl.get("moved", "deployments", "moved-tenure");
        deployment["metadata"]["generation"].as_u64().unwrap()
    };
    release.settles();
    let (before, first) = (workload(&release), json!({"lease": "kubernetes:moved/moved-tenure"}));
    assert_eq!(lease(&release), first);

    for more in [
        json!({"election": {"store": "kubernetes:elsewhere"}}),
        json!({"fullnameOverride": "elsewhere"}),
    ] {
        release.more = more;
        let refused = release.try_helm("upgrade", "2").unwrap_err();
        assert!(refused.contains("to kubernetes:moved/elsewhere, and old and new"), "{refused}");
        assert!(refused.contains("set election.moved=true for this upgrade"), "{refused}");
        assert_eq!(workload(&release), before);
        assert_eq!(release.kubectl.list("moved", "deployments", "").len(), 1);
    }
    // Argo CD renders without a cluster: the API server refuses, with the name of the ConfigMap.
    let change = json!({"data": {"lease": "kubernetes:moved/elsewhere"}}).to_string();
    let patch = ["patch", "configmap", GUARD, "-n", "moved", "--type=merge", "--patch", &change];
    let refused = release.kubectl.ask(&patch);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("field is immutable"), "{message}");
    assert!(message.contains(GUARD), "{message}");
    assert_eq!(lease(&release), first);
    // What does not move the election is not refused.
    release.more = json!({"election": {"logLevel": "debug"}});
    release.helm("upgrade", "2");
    release.rolls_out("2");
    release.settles();

    release.more = json!({"election": {"store": "kubernetes:elsewhere", "moved": true}});
    // An old pod that waited for a ready new one could lead beside it.
    release.kubelet.hold_back(true);
    release.helm("upgrade", "3");
    until(PATIENCE, "a pod leads by the new Lease", || {
        let leases = release.kubectl.list("moved", "leases", "");
        let new = leases.iter().find(|it| it["metadata"]["name"] == "elsewhere")?;
        let holder = new["spec"]["holderIdentity"].as_str()?;
        let leaders = release.kubelet.leaders();
        leaders.iter().any(|(name, _)| holder.starts_with(&format!("{name}_"))).then_some(())
    });
    let pods = release.kubectl.list("moved", "pods", "");
    assert!(pods.iter().all(|it| it["metadata"]["annotations"]["version"] == "3"), "{pods:#?}");
    release.kubelet.hold_back(false);
    release.rolls_out("3");
    release.settles();
    assert!(release.kubectl.list("moved", "configmaps", "app.kubernetes.io/name").is_empty());
    release.more = json!({"election": {"store": "kubernetes:elsewhere"}});
    let pods = release.kubelet.addresses();
    release.helm("upgrade", "3");
    assert_eq!(lease(&release), json!({"lease": "kubernetes:moved/elsewhere"}));
    release.settles();
    assert_eq!(release.kubelet.addresses(), pods, "no pod is restarted");
    // No two leaders at once, although they held two Leases.
    release.kubelet.verdict();
}

#[test]
fn an_upgrade_to_another_mode_leaves_no_dead_address_behind_either_service() {
    for (previous, mode) in [("label", "endpointslice"), ("endpointslice", "label")] {
        let mut release = Release::install(&format!("from-{previous}"), previous, 2);
        release.settles();
        release.mode = mode;
        release.more = json!({"routing": {"previousMode": previous}});
        release.helm("upgrade", "2");
        release.rolls_out("2");
        release.settles();
        // The old leader still had the rights to withdraw its route.
        let service = release.leader_service(previous);
        until(PATIENCE, "the Service of the previous mode leads nowhere", || {
            release.endpoints(&service).is_empty().then_some(())
        });
        release.more = json!({});
        release.helm("upgrade", "2");
        let all = release.kubectl.list(&release.name, "services", "");
        assert!(all.iter().all(|it| it["metadata"]["name"] != service.as_str()), "{all:?}");
        release.settles();
        release.kubelet.verdict();
    }
}

#[test]
fn drained_nodes_take_one_pod_at_a_time() {
    let release = Release::install("drained", "label", 3);
    release.settles();
    let drain = |node: &str, patience: &str| {
        let arguments = ["drain", node, "--delete-emptydir-data", "--timeout", patience];
        release.kubectl.ask(&arguments)
    };
    let pods = release.kubectl.list(&release.name, "pods", "");
    let nodes: BTreeSet<_> =
        pods.iter().map(|it| it["spec"]["nodeName"].as_str().unwrap().to_owned()).collect();
    let nodes: Vec<_> = nodes.into_iter().collect();
    assert_eq!(nodes.len(), 3, "a pod on each: {nodes:?}");
    // The replacement of the first pod is not ready yet, so the second must not be evicted.
    release.kubelet.hold_back(true);
    let first = drain(&nodes[0], "60s");
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let refused = drain(&nodes[1], "8s");
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("disruption budget"), "{message}");
    release.kubelet.hold_back(false);
    release.settles();
    for node in &nodes {
        release.kubectl.run(&["uncordon", &nodes[0]]);
        let drained = drain(node, "120s");
        assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
        release.settles();
        release.kubectl.run(&["uncordon", node]);
    }
    release.kubelet.verdict();
}
