//! Routes on a real kube-apiserver: label, EndpointSlice and Events of real processes that run as
//! pods, each with the token of a service account that has only the documented permissions.

use testkit::kubernetes::control_plane;
use testkit::processes::process;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use control_plane::ControlPlane;
use process::{Process, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use tenure::kube::rights::{Purpose, RIGHTS};

const PATIENCE: Duration = Duration::from_secs(60);

/// A leader stays leader on a machine on which an API server takes seconds: a test lists what the
/// route of a leader reports a moment after it was seen to lead.
const TIMINGS: [&str; 4] =
    ["--lease-duration=12s", "--renew-deadline=9s", "--retry-period=700ms", "--request-timeout=3s"];

/// A namespace with two pods, a Service, and an account with the permissions for one kind of route.
struct Ground {
    plane: &'static ControlPlane,
    namespace: &'static str,
    route: &'static [&'static str],
    token: PathBuf,
}

impl Ground {
    fn new(namespace: &'static str, purpose: Purpose, route: &'static [&'static str]) -> Self {
        Self::on(ControlPlane::shared(), namespace, purpose, route)
    }

    fn on(
        plane: &'static ControlPlane,
        namespace: &'static str,
        purpose: Purpose,
        route: &'static [&'static str],
    ) -> Self {
        let listed = RIGHTS.iter().filter(|it| {
            matches!(it.purpose, Purpose::Store | Purpose::Events) || it.purpose == purpose
        });
        let rules: Vec<Value> = listed
            .map(|it| {
                let mut rule = json!({"apiGroups": [it.resource.group],
                    "resources": [it.resource.plural], "verbs": [it.verb]});
                if it.named {
                    rule["resourceNames"] = match it.resource.plural {
                        "services" => json!(["web"]),
                        "endpointslices" => json!(["web.orders"]),
                        _ => json!(["orders"]),
                    };
                }
                rule
            })
            .collect();
        let meta = |name: &str| json!({"name": name, "namespace": namespace});
        // No Node takes them, and no other test's Node is drained of them. A controller creates the
        // account "default" at a time of its own.
        let pod = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(name),
                "spec": {"serviceAccountName": "web", "nodeSelector": {"pool": "none"},
                    "containers": [{"name": "web", "image": "web"}]}})
        };
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta("web")}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": meta("web"), "rules": rules}),
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": meta("web"),
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "web"},
                "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": namespace}]}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("web"),
                "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080},
                    {"name": "grpc", "port": 90, "appProtocol": "kubernetes.io/h2c"}]}}),
            pod("web-1"),
            pod("web-2"),
        ];
        let manifests: Vec<String> = objects.iter().map(Value::to_string).collect();
        plane.kubectl.apply(&manifests.join("\n---\n"));
        let token = plane.token(namespace, "web", Duration::from_secs(3600));
        Self { plane, namespace, route, token }
    }

    fn arguments(&self) -> Vec<String> {
        let given = [
            ("--election", "orders".to_owned()),
            ("--store", format!("kubernetes:{}/orders", self.namespace)),
            ("--kube-api", self.plane.url()),
            ("--kube-ca-file", self.plane.ca_file().display().to_string()),
            ("--kube-token-file", self.token.display().to_string()),
        ];
        let given = given.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        given.chain(self.route.iter().chain(&TIMINGS).map(|it| (*it).to_owned())).collect()
    }

    fn variables<'a>(&self, pod: &'a str, address: &'a str) -> [(&'static str, &'a str); 3] {
        [("POD_NAME", pod), ("POD_NAMESPACE", self.namespace), ("POD_IP", address)]
    }

    fn start(&self, pod: &str, address: &str) -> Process {
        let arguments = self.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Process::run(pod, &arguments, &self.variables(pod, address))
    }

    /// Creates the Lease with `tenure doctor`, and returns its output.
    fn doctor(&self) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_tenure"))
            .args(["doctor", "--create", "--yes"])
            .args(self.arguments())
            .envs(self.variables("web-1", "10.0.0.1"))
            .output()
            .unwrap();
        let findings = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{findings}");
        findings
    }

    fn pod(&self, name: &str) -> Value {
        self.plane.kubectl.get(self.namespace, "pods", name)
    }

    /// Returns the pods that a Service for the leader would select.
    fn active(&self) -> Vec<String> {
        let label = "tenure.dev/role=active,tenure.dev/election=orders";
        let pods = self.plane.kubectl.list(self.namespace, "pods", label);
        pods.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until the Service leads to an address, and returns its EndpointSlice.
    fn leads_to(&self, address: &str) -> Value {
        until(PATIENCE, &format!("the Service leads to {address}"), || {
            let of = "kubernetes.io/service-name=web";
            let mut found = self.plane.kubectl.list(self.namespace, "endpointslices", of);
            assert!(found.len() <= 1, "{found:?}");
            found.pop().filter(|it| it["endpoints"][0]["addresses"] == json!([address]))
        })
    }
}

fn leads(candidate: &Process) -> u64 {
    until(PATIENCE, &format!("{} leads", candidate.name), || {
        candidate.status()?["term"].as_u64().filter(|_| candidate.is_leader())
    })
}

fn agrees(candidate: &Process) {
    until(PATIENCE, &format!("the route of {} agrees", candidate.name), || {
        let route = candidate.status()?["route"].clone();
        (route["agrees"] == true && route["last_error"].is_null()).then_some(())
    });
}

/// Asserts that no request was rejected for a missing permission.
fn had_all_rights(candidates: &[&Process]) {
    for it in candidates {
        let log = it.log();
        assert!(!log.contains("RBAC rule is missing") && !log.contains("forbidden"), "{log}");
    }
}

#[test]
fn a_label_follows_the_leader_with_the_listed_rights_alone() {
    let ground = Ground::new("route-label", Purpose::Label, &["--kube-route=label"]);
    let findings = ground.doctor();
    assert!(findings.contains("route: all 3 permissions"), "{findings}");
    assert!(findings.contains("events: all 2 permissions"), "{findings}");
    let mut a = ground.start("web-1", "10.0.0.1");
    let first = leads(&a);
    agrees(&a);
    assert_eq!(ground.active(), ["web-1"]);
    assert_eq!(
        ground.pod("web-1")["metadata"]["annotations"]["tenure.dev/term"],
        first.to_string().as_str()
    );
    let mut b = ground.start("web-2", "10.0.0.2");
    agrees(&b);
    a.signal(Signal::TERM);
    assert!(a.wait(PATIENCE).success());
    assert_ne!(ground.active(), ["web-1"]);
    leads(&b);
    agrees(&b);
    assert_eq!(ground.active(), ["web-2"]);
    let described = ground.plane.kubectl.run(&["describe", "pod", "web-1", "-n", ground.namespace]);
    for words in [
        "BecameLeader".to_owned(),
        format!("web-1 became leader of orders in term {first}: the term was written"),
        "StoppedLeading".to_owned(),
        format!("web-1 stopped leading orders in term {first}: the instance is shutting down"),
        "tenure.dev/tenure".to_owned(),
    ] {
        assert!(described.contains(&words), "{words} in {described}");
    }
    // After a kill, the next leader takes the label.
    let a = ground.start("web-1", "10.0.0.1");
    agrees(&a);
    b.kill();
    let third = leads(&a);
    agrees(&a);
    assert_eq!(ground.active(), ["web-1"]);
    let taken = ground.pod("web-2");
    assert_eq!(taken["metadata"]["labels"]["tenure.dev/role"], "passive");
    assert_eq!(taken["metadata"]["annotations"]["tenure.dev/term"], third.to_string().as_str());
    had_all_rights(&[&a, &b]);
}

#[test]
fn an_endpointslice_follows_the_leader_with_the_listed_rights_alone() {
    let route = &["--kube-route=endpointslice", "--kube-service=web"];
    let ground = Ground::new("route-slice", Purpose::EndpointSlice, route);
    let findings = ground.doctor();
    assert!(findings.contains("route: all 6 permissions"), "{findings}");
    let mut a = ground.start("web-1", "10.0.0.1");
    let first = leads(&a);
    let slice = ground.leads_to("10.0.0.1");
    agrees(&a);
    assert_eq!(slice["metadata"]["annotations"]["tenure.dev/term"], first.to_string().as_str());
    assert_eq!(slice["endpoints"][0]["targetRef"]["uid"], ground.pod("web-1")["metadata"]["uid"]);
    let numbers: Vec<_> =
        slice["ports"].as_array().unwrap().iter().map(|it| it["port"].clone()).collect();
    assert_eq!(numbers, [8080, 90]);
    let versions = ground.plane.kubectl.follow(ground.namespace, "endpointslices", "web.orders");
    let b = ground.start("web-2", "10.0.0.2");
    agrees(&b);
    a.kill();
    leads(&b);
    ground.leads_to("10.0.0.2");
    agrees(&b);
    // In a single update; an up-to-date slice is not written again.
    let addresses = |it: &Value| it["endpoints"][0]["addresses"][0].clone();
    let seen = until(PATIENCE, "the change is seen", || {
        let seen: Vec<Value> = versions.versions().iter().map(addresses).collect();
        (seen.last()? == "10.0.0.2").then_some(seen)
    });
    assert_eq!(seen, ["10.0.0.1", "10.0.0.2"]);
    // When it runs in its pod again, it does not change the entry of another.
    let again = ground.start("web-1", "10.0.0.1");
    agrees(&again);
    ground.leads_to("10.0.0.2");
    let deleted = ["delete", "service", "web", "-n", ground.namespace];
    ground.plane.kubectl.run(&deleted);
    until(PATIENCE, "it is reported", || {
        let status = b.status()?;
        status["route"]["last_error"].as_str()?.contains("web does not exist").then_some(())
    });
    assert!(b.is_leader(), "the election does not depend on the route");
    had_all_rights(&[&a, &b]);
}

#[test]
fn the_slice_is_deleted_after_the_pod_of_the_last_leader_and_not_before() {
    let route = &["--kube-route=endpointslice", "--kube-service=web"];
    let plane = ControlPlane::collecting();
    let ground = Ground::on(plane, "route-owner", Purpose::EndpointSlice, route);
    ground.doctor();
    let mut a = ground.start("web-1", "10.0.0.1");
    leads(&a);
    let slice = ground.leads_to("10.0.0.1");
    let owner = |object: &str, name: &str, uid: &Value| json!({"apiVersion": "v1", "kind": object, "name": name, "uid": uid});
    let uid = ground.pod("web-1")["metadata"]["uid"].clone();
    assert_eq!(slice["metadata"]["ownerReferences"], json!([owner("Pod", "web-1", &uid)]));
    // The other way to own it: by the Service and by the pod.
    let service = plane.kubectl.get(ground.namespace, "services", "web")["metadata"]["uid"].clone();
    let twice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "twice", "namespace": ground.namespace, "labels": {"owned": "twice"},
            "ownerReferences": [owner("Service", "web", &service), owner("Pod", "web-1", &uid)]},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]});
    plane.kubectl.apply(&twice.to_string());
    let mut b = ground.start("web-2", "10.0.0.2");
    agrees(&b);
    a.kill();
    leads(&b);
    ground.leads_to("10.0.0.2");
    let delete = |pod: &str| {
        let force = ["--force", "--grace-period=0"];
        plane.kubectl.run(&[&["delete", "pod", pod, "-n", ground.namespace][..], &force].concat());
    };
    delete("web-1");
    until(PATIENCE, "the garbage collector has handled the end of web-1", || {
        let twice = plane.kubectl.list(ground.namespace, "endpointslices", "owned=twice").pop();
        let twice = twice.expect("the Service still owns it: it keeps the address of a dead pod");
        let owners = twice["metadata"]["ownerReferences"].clone();
        (owners == json!([owner("Service", "web", &service)])).then_some(())
    });
    let same = ground.leads_to("10.0.0.2");
    assert_eq!(same["metadata"]["uid"], slice["metadata"]["uid"], "web-2 owns it now");
    agrees(&b);
    b.kill();
    delete("web-2");
    let of = "kubernetes.io/service-name=web";
    until(PATIENCE, "the slice is deleted with the pod of the last leader", || {
        plane.kubectl.list(ground.namespace, "endpointslices", of).is_empty().then_some(())
    });
    had_all_rights(&[&a, &b]);
}

#[test]
fn an_endpoint_of_another_slice_and_a_leader_without_its_pod_are_seen_with_the_listed_rights() {
    let route = &["--kube-route=endpointslice", "--kube-service=web"];
    let ground = Ground::new("route-stale", Purpose::EndpointSlice, route);
    ground.doctor();
    let mut a = ground.start("web-1", "10.0.0.1");
    leads(&a);
    agrees(&a);
    let stale = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-x7k2p", "namespace": ground.namespace,
            "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.77"]}]});
    ground.plane.kubectl.apply(&stale.to_string());
    until(PATIENCE, "it is reported", || {
        let route = a.status()?["route"].clone();
        let other = route["other"].as_str()?.to_owned();
        (other == "10.0.0.77 in the EndpointSlice web-x7k2p").then_some(())
    });
    let delete = |kind: &str, name: &str| {
        ground.plane.kubectl.run(&["delete", kind, name, "-n", ground.namespace]);
    };
    delete("endpointslice", "web-x7k2p");
    agrees(&a);
    let b = ground.start("web-2", "10.0.0.2");
    agrees(&b);
    delete("pod", "web-1");
    assert!(a.wait(PATIENCE).success());
    assert!(a.log().contains("the pod web-1 does not exist any more"), "{}", a.log());
    leads(&b);
    ground.leads_to("10.0.0.2");
    agrees(&b);
    had_all_rights(&[&a, &b]);
}
