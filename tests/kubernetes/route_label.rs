//! The route by label, with real processes that run as pods, and an in-process API server.

use testkit::faults::fault_proxy;
use testkit::kubernetes::{kube_server, routed};
use testkit::processes::process;

use std::time::Duration;

use fault_proxy::{Door, FaultProxy};
use kube_server::Fault;
use process::until;
use routed::{BOUND, Cluster, LONG, NAMESPACE, SHORT, agrees, leads, series};
use rustix::process::Signal;
use serde_json::json;

fn cluster() -> Cluster {
    Cluster::new(&["--kube-route=label"])
}

#[test]
fn the_label_follows_the_leader_and_is_withdrawn_before_the_lease_is_released() {
    let cluster = cluster();
    let mut a = cluster.start("web-1", LONG);
    let first = leads(&a);
    cluster.has_role("web-1", "active");
    assert_eq!(cluster.label("web-1").1, Some(first));
    let b = cluster.start("web-2", LONG);
    cluster.has_role("web-2", "passive");
    let route = agrees(&a, true);
    assert_eq!((&route["kind"], &route["says"]), (&"label".into(), &"active".into()));
    assert_eq!(series(&a, "tenure_route_agrees", ""), Some(1.0));
    // The change is slow but succeeds: until then no other candidate may lead.
    cluster.server.inject("patch pods", [Fault::Delay(Duration::from_millis(1_500))]);
    a.signal(Signal::TERM);
    let second = leads(&b);
    assert_eq!(cluster.label("web-1"), ("passive".to_owned(), Some(first)));
    assert!(a.wait(BOUND).success());
    cluster.has_role("web-2", "active");
    assert_eq!(cluster.label("web-2").1, Some(second));
    assert_eq!(cluster.active(), ["web-2"]);
    let pod = cluster.server.object("pods", NAMESPACE, "web-2").unwrap();
    assert_eq!(pod["metadata"]["labels"]["tenure.dev/election"], "orders");
    assert_eq!(pod["metadata"]["labels"]["app"], "web", "nothing else is touched");
}

#[test]
fn a_restarted_instance_withdraws_the_label_it_was_killed_with_and_keeps_the_newest_term() {
    let cluster = cluster();
    let b = cluster.start("web-2", SHORT);
    let newer = leads(&b) + 7;
    let left = json!({"labels": {"tenure.dev/role": "active"},
                      "annotations": {"tenure.dev/term": newer.to_string()}});
    cluster.server.put("pods", NAMESPACE, "web-1", json!({"metadata": left, "spec": {}}));
    let a = cluster.start("web-1", SHORT);
    cluster.has_role("web-1", "passive");
    assert_eq!(cluster.label("web-1").1, Some(newer));
    agrees(&a, true);
}

#[test]
fn a_partitioned_leader_corrects_its_label_when_it_reconnects() {
    let cluster = cluster();
    let [to_a, to_b] = [(); 2].map(|()| FaultProxy::start(cluster.server.address));
    let by = |name: &str, proxy: &FaultProxy| {
        cluster.start_with(name, SHORT, &[], &format!("http://{}", proxy.address))
    };
    let a = by("web-1", &to_a);
    leads(&a);
    cluster.has_role("web-1", "active");
    let b = by("web-2", &to_b);
    agrees(&b, true);
    to_a.door(Door::Deaf);
    to_b.door(Door::Shut);
    cluster.stop(&a);
    leads(&b);
    a.signal(Signal::CONT);
    until(BOUND, "it stands by", || (a.state()? == "standby").then_some(()));
    // Nothing could correct it: the label still selects the former leader, which the route state
    // reports.
    assert_eq!(cluster.active(), ["web-1"]);
    let route = agrees(&b, false);
    assert_eq!(route["says"], "passive");
    until(BOUND, "the error is reported", || b.status()?["route"]["last_error"].as_str().map(drop));
    assert_eq!(series(&b, "tenure_route_agrees", ""), Some(0.0));
    let warned =
        |it: &process::Process| it.log().matches("the route does not agree with the role").count();
    until(BOUND, "it is reported once", || (warned(&b) > 0).then_some(()));
    to_a.heal();
    cluster.has_role("web-1", "passive");
    assert!(cluster.active().is_empty(), "the new leader is cut off yet");
    to_b.heal();
    cluster.has_role("web-2", "active");
    let route = agrees(&b, true);
    assert!(route["last_error"].is_null(), "{route}");
    assert_eq!(warned(&b), 1);
    until(BOUND, "it is reported", || b.log().contains("agrees with the role again").then_some(()));
}

/// Delays a write of the old leader until the next one leads; the write was made for an earlier
/// version of the pod.
fn late_write(spoil: impl FnOnce(&mut serde_json::Value)) -> (Cluster, [process::Process; 2]) {
    let cluster = cluster();
    let a = cluster.start("web-1", SHORT);
    leads(&a);
    cluster.has_role("web-1", "active");
    let b = cluster.start("web-2", SHORT);
    agrees(&b, true);
    cluster.server.take_log();
    cluster.server.inject("patch pods", [Fault::Delay(Duration::from_secs(8))]);
    cluster.server.modify("pods", NAMESPACE, "web-1", spoil);
    // It reads, finds that its label was changed, and corrects it.
    let is_under_way = || cluster.server.pending() == 0;
    until(BOUND, "the write is under way", || is_under_way().then_some(()));
    cluster.stop(&a);
    leads(&b);
    cluster.has_role("web-2", "active");
    (cluster, [a, b])
}

/// Waits until the late write is answered with this status.
fn answered(cluster: &Cluster, status: u16) {
    until(BOUND, "the late write arrives", || {
        let log = cluster.server.log();
        let late = |it: &kube_server::Logged| {
            it.op == "patch pods"
                && it.path.ends_with("web-1")
                && it.body["metadata"]["labels"]["tenure.dev/role"] == "active"
                && it.status == status
        };
        log.iter().any(late).then_some(())
    });
}

#[test]
fn a_late_write_of_an_older_leader_undoes_nothing() {
    let (cluster, [_a, b]) = late_write(|it| {
        it["metadata"]["annotations"]["tenure.dev/term"] = "1".into();
    });
    let taken = ("passive".to_owned(), Some(leads(&b)));
    assert_eq!(cluster.label("web-1"), taken);
    answered(&cluster, 409);
    assert_eq!(cluster.label("web-1"), taken);
}

#[test]
fn a_late_write_that_is_accepted_is_undone_by_the_leader() {
    let (cluster, [_a, b]) = late_write(|it| {
        it["metadata"]["labels"]["tenure.dev/role"] = "passive".into();
    });
    answered(&cluster, 200);
    cluster.has_role("web-1", "passive");
    assert_eq!(cluster.label("web-1").1, Some(leads(&b)));
    agrees(&b, true);
}

#[test]
fn a_write_of_unknown_outcome_is_superseded_before_the_lease_is_released() {
    let cluster = cluster();
    let mut a = cluster.start("web-1", LONG);
    leads(&a);
    cluster.has_role("web-1", "active");
    cluster.server.inject("patch pods", [Fault::Delay(Duration::from_secs(5))]);
    cluster.server.modify("pods", NAMESPACE, "web-1", |it| {
        it["metadata"]["labels"]["tenure.dev/role"] = "passive".into();
    });
    until(BOUND, "the write is under way", || (cluster.server.pending() == 0).then_some(()));
    // The label is passive already, and the write that would change it has yet to arrive.
    a.signal(Signal::TERM);
    assert!(a.wait(BOUND).success());
    answered(&cluster, 409);
    assert_eq!(cluster.label("web-1").0, "passive");
}

#[test]
fn without_rights_to_the_route_it_leads_and_reports_the_missing_rights() {
    let cluster = cluster();
    cluster.server.account("poor", NAMESPACE, "web");
    cluster.server.write_token("poor");
    let mut a = cluster.start("web-1", LONG);
    leads(&a);
    let route = until(BOUND, "the error is reported", || {
        let route = a.status()?["route"].clone();
        route["last_error"].is_string().then_some(route)
    });
    let words = route["last_error"].as_str().unwrap();
    assert!(words.contains("system:serviceaccount:team:web cannot"), "{words}");
    assert!(words.contains("kubectl create role"), "{words}");
    assert_eq!((&route["agrees"], &route["says"]), (&false.into(), &serde_json::Value::Null));
    let forbidden = series(&a, "tenure_route_requests_total", r#"outcome="forbidden""#);
    assert!(forbidden.unwrap() >= 1.0);
    assert_eq!(series(&a, "tenure_route_requests_total", r#"outcome="ok""#), Some(0.0));
    let b = cluster.start("web-2", LONG);
    a.signal(Signal::TERM);
    leads(&b);
    assert!(a.wait(BOUND).success());
    // Once the permissions are granted, no restart is needed.
    cluster.server.allow("poor", NAMESPACE, "pods", &["get", "list", "patch"]);
    cluster.has_role("web-2", "active");
    agrees(&b, true);
}

#[test]
fn an_unresponsive_or_unreachable_api_server_delays_no_election() {
    let cluster = cluster();
    let a = cluster.start("web-1", SHORT);
    leads(&a);
    cluster.has_role("web-1", "active");
    let term = leads(&a);
    cluster.server.impose("any", Fault::Hang);
    // Longer than the lease, during which each renewal is in time.
    let ends = std::time::Instant::now() + Duration::from_secs(5);
    while std::time::Instant::now() < ends {
        assert_eq!(a.status().unwrap()["term"], term);
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(a);
    let mut a = cluster.start("web-1", LONG);
    leads(&a);
    let mut b = cluster.start("web-2", LONG);
    a.signal(Signal::TERM);
    // Two minutes before the lease would expire.
    leads(&b);
    assert!(a.wait(BOUND).success());
    cluster.server.heal();
    cluster.server.stop();
    let c = cluster.start("web-3", LONG);
    b.signal(Signal::TERM);
    leads(&c);
    assert!(b.wait(BOUND).success());
    cluster.server.resume();
    cluster.has_role("web-3", "active");
    until(BOUND, "the others are passive", || (cluster.active() == ["web-3"]).then_some(()));
}

#[test]
fn a_leader_whose_pod_was_deleted_or_replaced_resigns() {
    for replaced in [false, true] {
        let cluster = cluster();
        let mut a = cluster.start("web-1", SHORT);
        let first = leads(&a);
        agrees(&a, true);
        let b = cluster.start("web-2", SHORT);
        agrees(&b, true);
        cluster.server.delete("pods", NAMESPACE, "web-1");
        if replaced {
            cluster.server.put("pods", NAMESPACE, "web-1", json!({"spec": {"containers": []}}));
        }
        assert!(a.wait(BOUND).success());
        let log = a.log();
        assert!(log.contains("the pod web-1 does not exist any more"), "{log}");
        assert!(leads(&b) > first);
        cluster.has_role("web-2", "active");
    }
}
