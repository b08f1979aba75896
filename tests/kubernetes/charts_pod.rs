//! The values that most charts have, and how they reach the pods: images and registries, scheduling,
//! labels and annotations, the number of pods.

use testkit::kubernetes::{chart_values as values, manifests};

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use manifests::{
    Manifests, assert_all_valid, assert_valid, containers, helm, helm_release, place, render,
    try_render,
};
use values::{port, with};

const APPLICATION: &str = "helm/tenure";

fn refusal(values: &Value) -> String {
    try_render(values).map(|it| it.text).unwrap_err()
}

/// Returns the pod of `helm test`.
fn pod_of_the_test(rendered: &Manifests) -> &Value {
    rendered.the("Pod", "orders-tenure-exactly-one")
}

#[test]
fn the_pods_have_the_settings_of_a_pod_that_are_set() {
    let both = json!({
        "affinity": {"nodeAffinity": {}}, "priorityClassName": "high",
        "runtimeClassName": "gvisor", "schedulerName": "bin-packing",
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "dnsConfig": {"nameservers": ["10.0.0.10"]},
        "hostAliases": [{"ip": "10.0.0.9", "hostnames": ["db"]}],
    });
    let pod = json!({"dnsPolicy": "None", "hostNetwork": true, "shareProcessNamespace": true});
    let rendered = render(&with(both.clone(), pod.clone()));
    for (key, value) in both.as_object().unwrap() {
        assert_eq!(rendered.pod()[key], *value, "{key}");
        assert_eq!(pod_of_the_test(&rendered)["spec"][key], *value, "{key}");
    }
    for (key, value) in pod.as_object().unwrap() {
        assert_eq!(rendered.pod()[key], *value, "{key}");
    }
    assert_valid(&rendered.text);
    let plain = render(&json!({}));
    for key in both.as_object().unwrap().keys().chain(pod.as_object().unwrap().keys()) {
        assert!(plain.pod()[key].is_null(), "{key}");
    }
}

#[test]
fn all_pods_run_on_linux() {
    let rendered = render(&json!({"nodeSelector": {"pool": "a"}}));
    let expected = json!({"kubernetes.io/os": "linux", "pool": "a"});
    assert_eq!(rendered.pod()["nodeSelector"], expected);
    assert_eq!(pod_of_the_test(&rendered)["spec"]["nodeSelector"], expected);
}

#[test]
fn the_pod_of_the_test_has_the_labels_and_the_network_of_the_others() {
    let values = json!({
        "podLabels": {"team": "shop"},
        "networkPolicy": {"statusFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]},
    });
    let rendered = render(&values);
    let labels = &pod_of_the_test(&rendered)["metadata"]["labels"];
    assert_eq!(labels["team"], "shop");
    let selects = |selector: &Value| {
        let all = selector["matchLabels"].as_object().unwrap();
        all.iter().all(|(key, value)| labels[key] == *value)
    };
    let sidecars = rendered.the("NetworkPolicy", "orders-tenure");
    let from = sidecars["spec"]["ingress"][0]["from"].as_array().unwrap();
    assert!(from.iter().any(|it| selects(&it["podSelector"])), "{from:?}");
    let own = rendered.the("NetworkPolicy", "orders-tenure-exactly-one");
    assert!(selects(&own["spec"]["podSelector"]), "{own}");
    let egress = &own["spec"]["egress"][1];
    let selector = &rendered.workload()["spec"]["selector"];
    assert_eq!(egress["to"][0]["podSelector"], *selector);
    assert_eq!(egress["ports"], json!([{"protocol": "TCP", "port": 4040}]));
    assert!(!selects(selector), "the Services and the workload do not select it");
    let without = render(&json!({"networkPolicy": {"enabled": false}}));
    assert!(without.each("NetworkPolicy").is_empty());
}

#[test]
fn the_workload_has_the_name_and_version_of_the_service() {
    let labels = |values: Value| render(&values).workload()["metadata"]["labels"].clone();
    let plain = labels(json!({}));
    assert_eq!(plain["app.kubernetes.io/name"], "orders");
    assert_eq!(plain["app.kubernetes.io/version"], "1");
    let version = |image: &str| {
        let labels = labels(json!({"container": {"image": image}}));
        labels["app.kubernetes.io/version"].as_str().map(str::to_owned)
    };
    let digest = format!("sha256:{}", "a".repeat(64));
    assert_eq!(version("mirror:5000/orders:v1.2-rc.1").as_deref(), Some("v1.2-rc.1"));
    assert_eq!(version(&format!("orders:1.2@{digest}")).as_deref(), Some("1.2"));
    assert_eq!(version(&format!("mirror:5000/orders@{digest}")), None);
    assert_eq!(version("mirror:5000/orders"), None);
    assert_eq!(version(&format!("orders:{}", "a".repeat(64))), None, "too long for a label");
    let named = labels(json!({"nameOverride": "till"}));
    assert_eq!(named["app.kubernetes.io/name"], "till");
}

#[test]
fn another_version_of_the_chart_restarts_no_pod() {
    let folder = tempfile::tempdir().unwrap();
    // With the library, to which the chart has a link.
    let copied =
        Command::new("cp").args(["-rL"]).arg(place(APPLICATION)).arg(folder.path()).status();
    assert!(copied.unwrap().success());
    let next = folder.path().join("tenure");
    for chart in ["Chart.yaml", "charts/tenure-lib/Chart.yaml"] {
        let text = fs::read_to_string(next.join(chart)).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert!(text.contains(version));
        fs::write(next.join(chart), text.replace(version, "9.9.9")).unwrap();
    }
    let values = json!({"container": {"image": "x:1"}, "sidecar": {"image": {"tag": "0.1.0"}}});
    let before = helm(APPLICATION, &values, &[]).unwrap();
    let after = helm(next.to_str().unwrap(), &values, &[]).unwrap();
    assert_eq!(before.workload()["spec"], after.workload()["spec"]);
    let chart = &after.workload()["metadata"]["labels"]["helm.sh/chart"];
    assert_eq!(chart, "tenure-9.9.9");
}

#[test]
fn common_labels_and_annotations_are_on_all_objects() {
    let rendered = render(&json!({
        "commonLabels": {"team": "shop"}, "commonAnnotations": {"owner": "us", "a": "b"},
        "container": port(), "routing": {"mode": "label"}, "autoscaling": {"enabled": true},
        "podMonitor": {"enabled": true}, "prometheusRule": {"enabled": true},
        "dashboard": {"enabled": true}, "service": {"annotations": {"a": "own"}},
    }));
    for object in &rendered.all {
        assert_eq!(object["metadata"]["labels"]["team"], "shop", "{object}");
        assert_eq!(object["metadata"]["annotations"]["owner"], "us", "{object}");
    }
    let annotations = &rendered.the("Service", "orders-tenure")["metadata"]["annotations"];
    assert_eq!(annotations["a"], "own");
    let template = &rendered.workload()["spec"]["template"]["metadata"];
    assert_eq!(template["labels"]["team"], "shop");
    assert!(template["annotations"]["owner"].is_null(), "it would restart the pods");
    let selector = &rendered.workload()["spec"]["selector"]["matchLabels"];
    assert!(selector["team"].is_null(), "a selector cannot be changed");
}

#[test]
fn keys_that_the_chart_has_too_are_merged() {
    let rendered = render(&json!({
        "podLabels": {"app.kubernetes.io/version": "blue", "app.kubernetes.io/name": "orders"},
        "podAnnotations": {"kubectl.kubernetes.io/default-container": "tenure"},
    }));
    // helm and the API server take the last of two equal keys, and other readers reject the text.
    assert_no_key_twice(&rendered.text);
    let metadata = &rendered.workload()["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"]["app.kubernetes.io/version"], "blue");
    let default = &metadata["annotations"]["kubectl.kubernetes.io/default-container"];
    assert_eq!(*default, "tenure");
    for (values, expected) in [
        (json!({"podLabels": {"app.kubernetes.io/instance": "x"}}), "app.kubernetes.io/instance"),
        (json!({"commonLabels": {"app.kubernetes.io/name": "x"}}), "app.kubernetes.io/name"),
        (json!({"podLabels": {"tenure.dev/election": "x"}}), "tenure.dev/election"),
    ] {
        let error = refusal(&values);
        assert!(error.contains(expected) && error.contains("remove it"), "{error}");
    }
}

/// Asserts that no mapping of labels or annotations has a key twice.
fn assert_no_key_twice(text: &str) {
    let mut seen = BTreeSet::new();
    let mut block = 0;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        if ["labels:", "annotations:"].contains(&line.trim()) || depth < block {
            seen.clear();
            block = depth;
        }
        let key = line.split(": ").next().unwrap().trim().trim_matches('"').to_owned();
        let is_of_block = depth == block + 2 && key.contains('/');
        assert!(!is_of_block || seen.insert(key), "twice: {line}");
    }
}

#[test]
fn images_come_from_the_registry_and_with_the_secrets_of_the_whole_umbrella() {
    let global = json!({"global": {
        "imageRegistry": "mirror.internal:5000", "imagePullSecrets": ["a", {"name": "b"}],
    }});
    let rendered = render(&with(global.clone(), json!({"imagePullSecrets": [{"name": "b"}, "c"]})));
    let tenure = concat!("mirror.internal:5000/tenure-dev/tenure:", env!("CARGO_PKG_VERSION"));
    assert_eq!(rendered.container("tenure")["image"], tenure);
    let pods = rendered.pods();
    assert_eq!(pods.len(), 2);
    for pod in pods {
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]));
        for container in containers(pod) {
            assert!(container["name"] == "service" || container["image"] == tenure, "{container}");
        }
    }
    assert_eq!(rendered.container("service")["image"], "registry.example/orders:1");
    let short = json!({"container": {"image": "shop/orders:1"},
                       "sidecar": {"image": {"repository": "tenure"}}});
    let rendered = render(&with(global, short));
    assert_eq!(rendered.container("service")["image"], "mirror.internal:5000/shop/orders:1");
    let tenure = concat!("mirror.internal:5000/tenure:", env!("CARGO_PKG_VERSION"));
    assert_eq!(rendered.container("tenure")["image"], tenure);
}

#[test]
fn the_image_can_be_given_by_repository_and_tag() {
    let image = |image: Value| {
        let values = json!({"image": image});
        let rendered = helm(APPLICATION, &values, &[]).unwrap();
        rendered.container("service").clone()
    };
    let plain = image(json!({"repository": "shop/orders", "tag": "1.2", "pullPolicy": "Always"}));
    assert_eq!(plain["image"], "shop/orders:1.2");
    assert_eq!(plain["imagePullPolicy"], "Always");
    assert_eq!(image(json!({"repository": "orders", "tag": 7}))["image"], "orders:7");
    let digest = format!("sha256:{}", "a".repeat(64));
    let by_digest = image(json!({"repository": "orders", "tag": "1", "digest": digest}));
    assert_eq!(by_digest["image"], format!("orders@{digest}"));
}

#[test]
fn names_of_other_charts_are_refused_with_the_name_that_is_meant() {
    let values = manifests::text("helm/tenure/values.yaml");
    let values = testkit::kubernetes::yaml::document(&values);
    let guard = manifests::text("helm/tenure/templates/_guards.tpl");
    let rows = guard.lines().filter_map(|it| it.strip_prefix("  \"")?.split_once("\" \""));
    let rows: Vec<(&str, &str)> =
        rows.map(|(name, meant)| (name, meant.trim_end_matches('"'))).collect();
    assert!(rows.len() > 25 && rows.iter().any(|it| it.0 == "extraEnv"), "{rows:?}");
    let all = rows.iter().map(|(name, _)| ((*name).to_owned(), json!({"a": "b"}))).collect();
    let error = refusal(&Value::Object(all));
    for (name, meant) in rows {
        assert!(values[name].is_null(), "{name} is a value");
        let path = format!("/{}", meant.split([' ', ',']).next().unwrap().replace('.', "/"));
        assert!(values.pointer(&path).is_some(), "{name}: {meant} is no value");
        assert!(error.contains(&format!("{name}: you mean {meant}")), "{error}");
    }
}

#[test]
fn the_number_of_pods_can_be_left_to_an_autoscaler() {
    let replicas = |values: Value| render(&values).workload()["spec"]["replicas"].clone();
    assert_eq!(replicas(json!({})), 2);
    assert_eq!(replicas(json!({"replicas": 3})), 3);
    assert_eq!(replicas(json!({"replicaCount": 5})), 5);
    assert_eq!(replicas(json!({"replicaCount": 0})), 0);
    assert_eq!(replicas(json!({"replicas": null})), Value::Null);

    let args =
        |rendered: &Manifests| pod_of_the_test(rendered)["spec"]["containers"][0]["args"].clone();
    let left = render(&json!({"replicas": null}));
    assert!(args(&left).as_array().unwrap().contains(&json!("--of=1")));

    let mut all = Vec::new();
    for kind in ["Deployment", "StatefulSet"] {
        let rendered = render(&json!({
            "kind": kind, "autoscaling": {"enabled": true, "minReplicas": 3,
                "targetMemoryUtilizationPercentage": 70,
                "metrics": [{"type": "External", "external": {"metric": {"name": "queue"},
                    "target": {"type": "AverageValue", "averageValue": "30"}}}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}},
        }));
        assert!(rendered.workload()["spec"]["replicas"].is_null(), "the autoscaler sets it");
        assert!(args(&rendered).as_array().unwrap().contains(&json!("--of=3")));
        let spec = &rendered.the("HorizontalPodAutoscaler", "orders-tenure")["spec"];
        let target = json!({"apiVersion": "apps/v1", "kind": kind, "name": "orders-tenure"});
        assert_eq!(spec["scaleTargetRef"], target);
        assert_eq!((&spec["minReplicas"], &spec["maxReplicas"]), (&json!(3), &json!(5)));
        let metrics = spec["metrics"].as_array().unwrap();
        let found: Vec<&Value> = metrics.iter().map(|it| &it["containerResource"]).collect();
        assert_eq!(found[0]["name"], "cpu");
        assert_eq!(found[0]["container"], "service", "not the sidecar");
        assert_eq!(found[0]["target"]["averageUtilization"], 80);
        assert_eq!(found[1]["target"]["averageUtilization"], 70);
        assert_eq!(metrics[2]["type"], "External");
        all.push(rendered);
    }
    assert_all_valid(&all);
}

#[test]
fn a_daemonset_has_a_candidate_on_each_node() {
    let mut all = Vec::new();
    for mode in ["none", "label", "endpointslice"] {
        let values = json!({"kind": "DaemonSet", "routing": {"mode": mode}, "container": port(),
                            "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}});
        let rendered = render(&values);
        let spec = &rendered.workload()["spec"];
        assert_eq!(rendered.workload()["kind"], "DaemonSet");
        assert_eq!(spec["updateStrategy"], values["updateStrategy"]);
        for key in ["replicas", "strategy", "serviceName", "podManagementPolicy"] {
            assert!(spec[key].is_null(), "{key}");
        }
        assert!(rendered.pod()["topologySpreadConstraints"].is_null());
        assert!(rendered.each("PodDisruptionBudget").is_empty(), "a drain does not evict them");
        all.push(rendered);
    }
    assert_all_valid(&all);
}

#[test]
fn an_alias_of_an_umbrella_is_the_name_of_its_pods() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("charts")).unwrap();
    std::os::unix::fs::symlink(place(APPLICATION), folder.path().join("charts/tenure")).unwrap();
    let head = "apiVersion: v2\nname: shop\nversion: 0.1.0\ndependencies:\n";
    for (alias, expected) in [(", alias: till", "till"), ("", "tenure")] {
        let dependency = format!("  - {{name: tenure, version: \"*\"{alias}}}\n");
        fs::write(folder.path().join("Chart.yaml"), format!("{head}{dependency}")).unwrap();
        let values = json!({expected: {"container": {"image": "x:1"}}});
        let chart = folder.path().to_str().unwrap();
        // Never the release's name, which the umbrella's own pods may have.
        let rendered = helm_release("shop", "prod", chart, &values, &[]).unwrap();
        let labels = &rendered.workload()["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/name"], expected);
    }
}
