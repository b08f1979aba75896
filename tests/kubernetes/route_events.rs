//! Events of each leadership, and the report of `tenure doctor` about routing, with real processes
//! that run as pods, and an in-process API server.

use testkit::kubernetes::{kube_server, routed};
use testkit::processes::process;

use std::process::Command;

use kube_server::{Fault, KubeServer};
use process::{Process, until};
use routed::{BOUND, Cluster, LONG, NAMESPACE, SHORT, leads};
use rustix::process::Signal;
use serde_json::{Value, json};

fn events(cluster: &Cluster) -> Vec<Value> {
    let mut events = cluster.server.objects("events", NAMESPACE);
    events.sort_by_key(|it| it["eventTime"].as_str().unwrap_or_default().to_owned());
    events
}

#[test]
fn a_term_that_lapsed_is_a_warning_event() {
    let cluster = Cluster::new(&["--kube-route=label"]);
    let a = cluster.start("web-1", SHORT);
    leads(&a);
    let b = cluster.start("web-2", SHORT);
    cluster.stop(&a);
    leads(&b);
    a.signal(Signal::CONT);
    let event = until(BOUND, "it is reported", || {
        events(&cluster).into_iter().find(|it| it["reason"] == "StoppedLeading")
    });
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["regarding"]["name"], "web-1");
}

#[test]
fn outside_of_a_pod_events_are_about_the_lease() {
    let server = KubeServer::start();
    let store = ["--store=kubernetes:team/orders", "--election=orders"].map(str::to_owned);
    let arguments: Vec<String> = server.arguments().into_iter().chain(store).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut a = Process::run("host-1", &arguments, &[]);
    leads(&a);
    a.signal(Signal::TERM);
    assert!(a.wait(BOUND).success());
    let lease = server.object("leases", NAMESPACE, "orders").unwrap();
    let events = server.objects("events", NAMESPACE);
    assert_eq!(events.len(), 2, "{events:?}");
    for event in events {
        assert_eq!(event["regarding"]["kind"], "Lease");
        assert_eq!(event["regarding"]["apiVersion"], "coordination.k8s.io/v1");
        assert_eq!(event["regarding"]["uid"], lease["metadata"]["uid"]);
    }
    assert!(server.count("pods") == 0, "it has no business with pods");
}

#[test]
fn forbidden_events_are_logged_once_and_delay_nothing() {
    let cluster = Cluster::new(&["--kube-route=label"]);
    cluster.server.account("poor", NAMESPACE, "web");
    cluster.server.allow("poor", NAMESPACE, "pods", &["get", "list", "patch"]);
    cluster.server.write_token("poor");
    let mut a = cluster.start("web-1", LONG);
    leads(&a);
    until(BOUND, "it is reported", || a.log().contains("Events are disabled").then_some(()));
    a.signal(Signal::TERM);
    assert!(a.wait(BOUND).success());
    assert_eq!(a.log().matches("Events are disabled").count(), 1, "{}", a.log());
    assert!(events(&cluster).is_empty());
}

#[test]
fn events_that_hang_delay_neither_the_route_nor_shutdown() {
    let cluster = Cluster::new(&["--kube-route=label"]);
    cluster.server.impose("events", Fault::Hang);
    let mut a = cluster.start("web-1", LONG);
    leads(&a);
    cluster.has_role("web-1", "active");
    let b = cluster.start("web-2", LONG);
    a.signal(Signal::TERM);
    leads(&b);
    assert!(a.wait(BOUND).success());
    assert_eq!(cluster.label("web-1").0, "passive");
    cluster.has_role("web-2", "active");
}

/// Returns the exit code and the report of doctor about routing.
fn doctor(cluster: &Cluster, route: &[&str], pod: &str) -> (i32, String) {
    let directory = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["doctor", "--election", "orders", "--store"])
        .arg(format!("file://{}", directory.path().display()))
        .args(cluster.server.arguments())
        .args(route)
        .envs([("POD_NAME", pod), ("POD_NAMESPACE", NAMESPACE), ("POD_IP", "10.0.0.1")])
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap(), stdout)
}

#[test]
fn doctor_examines_the_route() {
    let cluster = Cluster::new(&[]);
    let label = ["--kube-route=label"];
    let slice = ["--kube-route=endpointslice", "--kube-service=web"];
    cluster.server.put("pods", NAMESPACE, "web-1", json!({"spec": {"containers": []}}));
    let (code, stdout) = doctor(&cluster, &label, "web-1");
    assert_eq!(code, 0, "{stdout}");
    for part in ["route: all 3 permissions in the namespace team are granted", "pod: web-1 exists"]
    {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    let (code, stdout) = doctor(&cluster, &label, "web-9");
    assert!(code == 1 && stdout.contains("metadata.name"), "{stdout}");
    let (code, stdout) = doctor(&cluster, &slice, "web-1");
    assert!(code == 1 && stdout.contains("create a Service without selector"), "{stdout}");
    let spec = json!({"spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.server.put("services", NAMESPACE, "web", spec);
    let (code, stdout) = doctor(&cluster, &slice, "web-1");
    assert!(code == 1 && stdout.contains("the Service web has a selector"), "{stdout}");
    cluster.server.modify("services", NAMESPACE, "web", |it| it["spec"]["selector"] = json!({}));
    let (code, stdout) = doctor(&cluster, &slice, "web-1");
    assert_eq!(code, 0, "{stdout}");
    assert!(stdout.contains("web.orders does not exist; the first leader creates it"), "{stdout}");

    cluster.server.account("poor", NAMESPACE, "web");
    cluster.server.allow("poor", NAMESPACE, "pods", &["get", "list"]);
    cluster.server.write_token("poor");
    let (code, stdout) = doctor(&cluster, &label, "web-1");
    assert_eq!(code, 1, "{stdout}");
    for part in [
        "cannot patch pods in the namespace team",
        "apiGroups [\"\"], resources [pods], verbs [patch]",
        "cannot create events",
    ] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    assert!(!stdout.contains("cannot list pods"), "{stdout}");
}
