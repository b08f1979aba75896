//! A rollout that moves the election to another lease would have two leaders: the ConfigMap by which
//! such an upgrade is refused, and what `election.moved` changes. The refusal itself is tested in the
//! ring `control_plane`.

use testkit::kubernetes::{chart_values as values, manifests};

use std::collections::BTreeSet;

use serde_json::{Value, json};

use manifests::{Manifests, helm_release, render};
use values::{azure, port, with};

const APPLICATION: &str = "helm/tenure";
const GUARD: &str = "orders.tenure.moves-only-with-election.moved";

/// Returns the identity of the lease that a release has recorded.
pub(super) fn lease(values: &Value) -> String {
    let rendered = render(values);
    let guard = rendered.the("ConfigMap", GUARD);
    assert_eq!(guard["immutable"], true);
    let data = guard["data"].as_object().unwrap();
    assert_eq!(data.len(), 1, "{data:?}");
    data["lease"].as_str().unwrap().to_owned()
}

#[test]
fn the_identity_is_all_that_tells_two_leases_apart() {
    let blob = "azure://orders/locks";
    for (values, expected) in [
        (json!({}), "kubernetes:shop/orders-tenure".to_owned()),
        (json!({"fullnameOverride": "till"}), "kubernetes:shop/till".to_owned()),
        (json!({"nameOverride": "till"}), "kubernetes:shop/orders-till".to_owned()),
        (json!({"store": "kubernetes:till"}), "kubernetes:shop/till".to_owned()),
        (json!({"election": {"store": "kubernetes:a/till"}}), "kubernetes:a/till".to_owned()),
        (
            json!({"election": {"kubeApi": "https://b:6443"}}),
            "kubernetes:shop/orders-tenure at https://b:6443".to_owned(),
        ),
        (azure(), format!("{blob}/shop/orders-tenure")),
        (
            with(azure(), json!({"store": "azure://orders/locks/"})),
            format!("{blob}/shop/orders-tenure"),
        ),
        (with(azure(), json!({"election": {"election": "till"}})), format!("{blob}/shop/till")),
        (
            with(azure(), json!({"election": {"azureBlobPrefix": "eu/shop/"}})),
            format!("{blob}/eu/shop/orders-tenure"),
        ),
        (
            with(azure(), json!({"election": {"azureBlobPrefix": ""}})),
            format!("{blob}/orders-tenure"),
        ),
        (
            with(azure(), json!({"election": {"azureEndpoint": "https://a.b"}})),
            format!("{blob}/shop/orders-tenure at https://a.b"),
        ),
        (json!({"store": "file:///locks"}), "file:///locks/orders-tenure".to_owned()),
    ] {
        assert_eq!(lease(&values), expected, "{values}");
    }
    // What is not part of it can change in a rollout.
    for same in [
        json!({"election": {"election": "till", "leaseDuration": "30s"}}),
        json!({"replicas": 3, "routing": {"mode": "label"}, "container": port()}),
        json!({"container": {"image": "registry.example/orders:2"}}),
    ] {
        assert_eq!(lease(&same), lease(&json!({})), "{same}");
    }
}

#[test]
fn the_name_of_the_guard_depends_on_release_and_chart_alone_and_names_the_remedy() {
    for values in [
        json!({"fullnameOverride": "till", "nameOverride": "till"}),
        with(azure(), json!({"election": {"election": "till"}})),
        json!({"kind": "StatefulSet"}),
    ] {
        assert!(!lease(&values).is_empty());
    }
    let names: BTreeSet<String> = ["a", "a-b", &"a".repeat(53)]
        .into_iter()
        .map(|release| {
            let values = json!({"container": {"image": "x:1"}});
            let rendered = helm_release(release, "shop", APPLICATION, &values, &[]).unwrap();
            let [guard] = rendered.each("ConfigMap")[..] else { panic!("{}", rendered.text) };
            guard["metadata"]["name"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|it| it.ends_with("election.moved")), "{names:?}");
}

#[test]
fn a_moved_election_has_no_guard_and_stops_all_old_pods_first() {
    let moved = json!({"election": {"moved": true}});
    let rolling = json!({"strategy": {"rollingUpdate": {"maxSurge": 2}}});
    let probe = json!({"routing": {"mode": "probe"}});
    for more in [json!({}), rolling, probe, azure()] {
        let rendered = render(&with(moved.clone(), more));
        assert!(rendered.each("ConfigMap").is_empty(), "{}", rendered.text);
        assert_eq!(rendered.workload()["spec"]["strategy"], json!({"type": "Recreate"}));
        assert!(!rendered.text.contains("TENURE_MOVED"), "it is no setting of Tenure");
    }
    let none = json!({"kind": "StatefulSet", "replicas": 0});
    assert_eq!(render(&with(moved, none)).workload()["spec"]["replicas"], 0);
}

#[test]
fn argo_cd_applies_the_guard_first_and_the_rights_before_the_workload() {
    let wave = "argocd.argoproj.io/sync-wave";
    let check = |rendered: &Manifests, waves: [Option<&str>; 3]| {
        for object in &rendered.all {
            let kind = object["kind"].as_str().unwrap();
            let found = object["metadata"]["annotations"][wave].as_str();
            let due = match kind {
                "ConfigMap" => waves[0],
                "Role" | "RoleBinding" | "ServiceAccount" => waves[1],
                _ => waves[2],
            };
            assert_eq!(found, due, "{kind} {}", object["metadata"]["name"]);
        }
    };
    let routed = json!({"routing": {"mode": "label"}, "container": port()});
    for values in [routed.clone(), with(azure(), routed.clone())] {
        check(&render(&values), [Some("-2"), Some("-1"), None]);
    }
    // One who gives all objects a wave keeps their order.
    let late = with(routed, json!({"commonAnnotations": {wave: "5"}}));
    check(&render(&late), [Some("3"), Some("4"), Some("5")]);
}
