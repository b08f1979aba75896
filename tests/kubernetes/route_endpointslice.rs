//! The route by EndpointSlice, with real processes that run as pods, and an in-process API server.

use testkit::kubernetes::{kube_server, routed};
use testkit::processes::process;

use std::time::Duration;

use kube_server::Fault;
use kube_server::answers::Answer;
use kube_server::kinds::Kind;
use process::{Process, until};
use routed::{BOUND, Cluster, LONG, NAMESPACE, SHORT, agrees, leads, series};
use rustix::process::Signal;
use serde_json::{Value, json};

const SLICE: &str = "web.orders";

fn cluster_with(spec: Value) -> Cluster {
    let cluster = Cluster::new(&["--kube-route=endpointslice", "--kube-service=web"]);
    cluster.server.put("services", NAMESPACE, "web", json!({ "spec": spec }));
    cluster
}

fn cluster() -> Cluster {
    cluster_with(json!({"ports": [{"name": "http", "port": 80, "targetPort": 8080}]}))
}

fn slice(cluster: &Cluster) -> Option<Value> {
    cluster.server.object("endpointslices", NAMESPACE, SLICE)
}

/// Returns the addresses in the slice, and its term.
fn route(cluster: &Cluster) -> (Vec<String>, Option<String>) {
    let slice = slice(cluster).unwrap_or_default();
    let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
    let addresses = endpoints.iter().flat_map(|it| it["addresses"].as_array().unwrap().clone());
    let addresses = addresses.map(|it| it.as_str().unwrap().to_owned()).collect();
    let term = slice["metadata"]["annotations"]["tenure.dev/term"].as_str().map(str::to_owned);
    (addresses, term)
}

fn leads_to(cluster: &Cluster, address: &str) {
    until(BOUND, &format!("the Service leads to {address}"), || {
        (route(cluster).0 == [address]).then_some(())
    });
}

#[test]
fn the_service_routes_to_the_leader_and_to_no_pod_before_the_lease_is_released() {
    let cluster = cluster();
    let mut a = cluster.start("web-1", LONG);
    let first = leads(&a);
    leads_to(&cluster, "10.0.0.1");
    let made = slice(&cluster).unwrap();
    let pod = cluster.server.object("pods", NAMESPACE, "web-1").unwrap();
    assert_eq!(made["addressType"], "IPv4");
    assert_eq!(made["ports"], json!([{"name": "http", "protocol": "TCP", "port": 8080}]));
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/service-name"], "web");
    let manager = "endpointslice.kubernetes.io/managed-by";
    assert_eq!(made["metadata"]["labels"][manager], "tenure.dev");
    let owners = &made["metadata"]["ownerReferences"];
    assert_eq!(owners.as_array().unwrap().len(), 1, "with two, it outlives the pod: {owners}");
    assert_eq!(owners[0]["kind"], "Pod");
    assert_eq!(owners[0]["uid"], pod["metadata"]["uid"]);
    assert_eq!(made["endpoints"][0]["targetRef"]["uid"], pod["metadata"]["uid"]);
    assert_eq!(made["endpoints"][0]["nodeName"], "node-1");
    assert_eq!(route(&cluster).1, Some(first.to_string()));
    let b = cluster.start("web-2", LONG);
    agrees(&b, true);
    assert_eq!(b.status().unwrap()["route"]["says"], "passive");
    // The change is slow but succeeds: until then no other candidate may lead.
    cluster.server.inject("update endpointslices", [Fault::Delay(Duration::from_millis(1_500))]);
    a.signal(Signal::TERM);
    let second = leads(&b);
    assert!(a.wait(BOUND).success());
    let log = cluster.server.take_log();
    let mut writes = log.iter().filter(|it| it.op == "update endpointslices");
    let first_write = writes.next().unwrap();
    assert_eq!((&first_write.body["endpoints"], first_write.status), (&json!([]), 200));
    leads_to(&cluster, "10.0.0.2");
    assert_eq!(route(&cluster).1, Some(second.to_string()));
    agrees(&b, true);
}

#[test]
fn a_restarted_instance_removes_the_address_it_was_killed_with() {
    let cluster = cluster();
    let mut a = cluster.start("web-1", SHORT);
    leads(&a);
    leads_to(&cluster, "10.0.0.1");
    a.kill();
    let a = cluster.start_with("web-1", SHORT, &["--observe"], &cluster.server.url());
    agrees(&a, true);
    assert!(route(&cluster).0.is_empty(), "it never leads, and the Service leads to it");
}

#[test]
fn a_late_write_of_an_older_leader_is_refused() {
    let cluster = cluster();
    let a = cluster.start("web-1", SHORT);
    leads(&a);
    leads_to(&cluster, "10.0.0.1");
    let b = cluster.start("web-2", SHORT);
    agrees(&b, true);
    cluster.server.inject("update endpointslices", [Fault::Delay(Duration::from_secs(8))]);
    cluster.server.modify("endpointslices", NAMESPACE, SLICE, |it| it["endpoints"] = json!([]));
    until(BOUND, "a write is under way", || (cluster.server.pending() == 0).then_some(()));
    cluster.stop(&a);
    let term = leads(&b);
    leads_to(&cluster, "10.0.0.2");
    until(BOUND, "the late write is refused", || {
        let log = cluster.server.log();
        log.iter().any(|it| it.op == "update endpointslices" && it.status == 409).then_some(())
    });
    assert_eq!(route(&cluster), (vec!["10.0.0.2".to_owned()], Some(term.to_string())));
    a.signal(Signal::CONT);
    until(BOUND, "it stands by", || (a.state()? == "standby").then_some(()));
    agrees(&a, true);
    assert_eq!(route(&cluster).0, ["10.0.0.2"]);
}

#[test]
fn a_slice_deleted_during_a_write_is_recreated_at_once() {
    let cluster = cluster();
    let a = cluster.start("web-1", LONG);
    leads(&a);
    leads_to(&cluster, "10.0.0.1");
    cluster.server.inject("update endpointslices", [Fault::Delay(Duration::from_secs(1))]);
    cluster.server.modify("endpointslices", NAMESPACE, SLICE, |it| it["endpoints"] = json!([]));
    until(BOUND, "a write is under way", || (cluster.server.pending() == 0).then_some(()));
    cluster.server.delete("endpointslices", NAMESPACE, SLICE);
    leads_to(&cluster, "10.0.0.1");
    agrees(&a, true);
    let log = cluster.server.log();
    let of_slices: Vec<_> = log.iter().filter(|it| it.op.ends_with("endpointslices")).collect();
    let lost = of_slices.iter().rposition(|it| it.op.starts_with("update")).unwrap();
    assert_ne!(of_slices[lost].status, 200, "it was deleted too late");
    let after: Vec<_> = of_slices[lost + 1..].iter().map(|it| it.op.as_str()).collect();
    assert_eq!(after[..2], ["get endpointslices", "create endpointslices"]);
    assert!(!a.log().contains("route: "), "{}", a.log());
}

#[test]
fn a_slice_that_is_being_created_is_emptied_before_the_lease_is_released() {
    let cluster = cluster();
    cluster.server.inject("create endpointslices", [Fault::Delay(Duration::from_secs(5))]);
    let mut a = cluster.start("web-1", LONG);
    leads(&a);
    until(BOUND, "it is under way", || (cluster.server.pending() == 0).then_some(()));
    a.signal(Signal::TERM);
    assert!(a.wait(BOUND).success());
    until(BOUND, "it arrives", || {
        let log = cluster.server.log();
        let late = |it: &kube_server::Logged| {
            it.op == "create endpointslices" && it.body["endpoints"] != json!([])
        };
        log.iter().any(late).then_some(())
    });
    assert_eq!(route(&cluster).0, Vec::<String>::new(), "the Service leads to one who has left");
}

#[test]
fn a_newer_term_in_the_slice_is_kept_and_reported() {
    let cluster = cluster();
    let a = cluster.start("web-1", SHORT);
    let term = leads(&a);
    leads_to(&cluster, "10.0.0.1");
    agrees(&a, true);
    cluster.server.modify("endpointslices", NAMESPACE, SLICE, |it| {
        it["metadata"]["annotations"]["tenure.dev/term"] = (term + 1).to_string().into();
        it["endpoints"] = json!([]);
    });
    let route_of = agrees(&a, false);
    assert_eq!(route_of["says"], "passive");
    let words = route_of["last_error"].as_str().unwrap();
    assert!(
        words.contains(&format!("has term {}, but this instance led in term {term}", term + 1)),
        "{words}"
    );
    assert!(route(&cluster).0.is_empty());
    assert_eq!(leads(&a), term, "the election does not mind");
}

#[test]
fn a_service_with_a_selector_is_refused_and_reported_by_standbys_too() {
    let cluster = cluster_with(json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}));
    let a = cluster.start("web-1", SHORT);
    leads(&a);
    let b = cluster.start("web-2", SHORT);
    for candidate in [&a, &b] {
        until(BOUND, "it is reported", || {
            let status = candidate.status()?;
            let words = status["route"]["last_error"].as_str()?;
            words.contains("has a selector").then_some(())
        });
    }
    assert!(slice(&cluster).is_none());
    cluster.server.modify("services", NAMESPACE, "web", |it| it["spec"]["selector"] = json!({}));
    leads_to(&cluster, "10.0.0.1");
    agrees(&a, true);
    until(BOUND, "the error is gone", || {
        b.status()?["route"]["last_error"].is_null().then_some(())
    });
}

#[test]
fn an_address_of_the_other_family_is_refused() {
    let cluster = cluster();
    let mut a = cluster.start("web-1", SHORT);
    leads(&a);
    leads_to(&cluster, "10.0.0.1");
    cluster.server.modify("endpointslices", NAMESPACE, SLICE, |it| {
        it["addressType"] = "IPv6".into();
    });
    let route_of = agrees(&a, true);
    assert_eq!(route_of["says"], "active", "it has not looked yet");
    until(BOUND, "it is reported", || {
        let status = a.status()?;
        let words = status["route"]["last_error"].as_str()?;
        (words.contains("IPv6") && words.contains("delete it")).then_some(())
    });
    a.signal(Signal::TERM);
    assert!(a.wait(BOUND).success());
}

/// Returns a slice of the Service that Tenure does not manage.
fn foreign_slice(address: &str) -> Value {
    json!({
        "metadata": {"labels": {
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
        "ports": null,
    })
}

#[test]
fn an_endpoint_in_another_slice_of_the_service_is_disagreement() {
    let cluster = cluster();
    let a = cluster.start("web-1", SHORT);
    leads(&a);
    agrees(&a, true);
    let b = cluster.start("web-2", SHORT);
    agrees(&b, true);
    // As a change of routing.mode leaves it: the Service had a selector.
    cluster.server.put("endpointslices", NAMESPACE, "web-x7k2p", foreign_slice("10.0.0.77"));
    for candidate in [&a, &b] {
        let route = agrees(candidate, false);
        let other = route["other"].as_str().unwrap_or_default();
        assert!(other.contains("web-x7k2p") && other.contains("10.0.0.77"), "{route}");
        assert_eq!(series(candidate, "tenure_route_agrees", ""), Some(0.0));
    }
    assert!(a.is_leader(), "the election does not depend on the route");
    let unready = |it: &mut Value| it["endpoints"][0]["conditions"]["ready"] = false.into();
    cluster.server.modify("endpointslices", NAMESPACE, "web-x7k2p", unready);
    agrees(&a, true);
    agrees(&b, true);
    // A missing condition counts as ready.
    let unknown = |it: &mut Value| it["endpoints"][0]["conditions"] = json!({});
    cluster.server.modify("endpointslices", NAMESPACE, "web-x7k2p", unknown);
    agrees(&a, false);
    cluster.server.delete("endpointslices", NAMESPACE, "web-x7k2p");
    agrees(&a, true);
    assert_eq!(route(&cluster).0, ["10.0.0.1"]);
}

#[test]
fn a_slow_list_of_slices_does_not_delay_the_withdrawal() {
    let cluster = cluster();
    let mut a = cluster.start("web-1", LONG);
    leads(&a);
    agrees(&a, true);
    cluster.server.impose("list endpointslices", Fault::Hang);
    cluster.server.take_log();
    a.signal(Signal::TERM);
    assert!(a.wait(BOUND).success());
    let log = cluster.server.take_log();
    let write = log.iter().find(|it| it.op == "update endpointslices").unwrap();
    assert_eq!((&write.body["endpoints"], write.status), (&json!([]), 200));
}

/// Waits until a candidate has ended because its pod is gone.
fn resigns(mut candidate: Process) {
    assert!(candidate.wait(BOUND).success());
    let log = candidate.log();
    assert!(log.contains("the pod web-1 does not exist any more"), "{log}");
    assert!(log.contains("resigned"), "{log}");
}

#[test]
fn a_leader_whose_pod_was_deleted_or_replaced_resigns() {
    for replaced in [false, true] {
        let cluster = cluster();
        let a = cluster.start("web-1", SHORT);
        let first = leads(&a);
        agrees(&a, true);
        let b = cluster.start("web-2", SHORT);
        agrees(&b, true);
        cluster.server.delete("pods", NAMESPACE, "web-1");
        if replaced {
            cluster.server.put("pods", NAMESPACE, "web-1", json!({"spec": {"containers": []}}));
        }
        resigns(a);
        assert!(leads(&b) > first);
        leads_to(&cluster, "10.0.0.2");
    }
}

#[test]
fn a_leader_whose_pod_cannot_be_read_does_not_resign() {
    let cluster = cluster();
    let a = cluster.start("web-1", SHORT);
    let term = leads(&a);
    agrees(&a, true);
    // A single answer that it is missing is not confirmed.
    let missing = Answer::not_found(Kind::of("pods"), "web-1");
    cluster.server.inject("get pods", [Fault::Answer(missing)]);
    until(BOUND, "it is read", || (cluster.server.pending() == 0).then_some(()));
    for fault in [Fault::Hang, Fault::Answer(Answer::text(404, "404 page not found\n"))] {
        cluster.server.heal();
        agrees(&a, true);
        cluster.server.impose("get pods", fault);
        agrees(&a, false);
    }
    let asked = cluster.server.count("get pods");
    until(BOUND, "it is read again", || {
        (cluster.server.count("get pods") > asked + 1).then_some(())
    });
    assert_eq!(leads(&a), term);
    cluster.server.heal();
    agrees(&a, true);
}

#[test]
fn a_standby_removes_the_endpoint_of_a_pod_that_is_gone() {
    for replaced in [false, true] {
        let cluster = cluster();
        let mut a = cluster.start("web-1", SHORT);
        leads(&a);
        leads_to(&cluster, "10.0.0.1");
        agrees(&a, true);
        a.kill();
        let b = cluster.start_with("web-2", SHORT, &["--observe"], &cluster.server.url());
        agrees(&b, true);
        assert_eq!(route(&cluster).0, ["10.0.0.1"], "its process may restart in its pod");
        cluster.server.delete("pods", NAMESPACE, "web-1");
        if replaced {
            cluster.server.put("pods", NAMESPACE, "web-1", json!({"spec": {"containers": []}}));
        }
        until(BOUND, "it is removed", || route(&cluster).0.is_empty().then_some(()));
        agrees(&b, true);
        let logged = || b.log().contains("removed the endpoint of a pod that does not exist");
        until(BOUND, "it is logged", || logged().then_some(()));
    }
}

#[test]
fn a_standby_removes_the_endpoint_of_a_pod_that_has_ended() {
    let cluster = cluster();
    let mut a = cluster.start("web-1", SHORT);
    leads(&a);
    agrees(&a, true);
    a.kill();
    // As after an eviction: the object stays, its address is free.
    cluster.server.modify("pods", NAMESPACE, "web-1", |it| it["status"]["phase"] = "Failed".into());
    let _b = cluster.start_with("web-2", SHORT, &["--observe"], &cluster.server.url());
    until(BOUND, "it is removed", || route(&cluster).0.is_empty().then_some(()));
}
