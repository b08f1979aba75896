//! The names of the charts' objects: those of two releases, subcharts or aliases are never equal,
//! so that two elections never share a Lease, and every name is a string.

use testkit::kubernetes::{chart_values as values, manifests};

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use manifests::{Manifests, helm_release, place, text};
use values::{everything, port, with};

const LIBRARY: &str = "helm/tenure-lib";
const APPLICATION: &str = "helm/tenure";

/// Writes a chart with these dependencies, each a chart's folder with an alias, and templates.
fn write_chart(folder: &Path, name: &str, charts: &[(&Path, &str)], templates: &[(&str, &str)]) {
    fs::create_dir_all(folder.join("charts")).unwrap();
    fs::create_dir_all(folder.join("templates")).unwrap();
    let mut dependencies = String::new();
    for (chart, alias) in charts {
        let of = chart.file_name().unwrap().to_str().unwrap();
        let link = folder.join("charts").join(of);
        if !link.exists() {
            std::os::unix::fs::symlink(chart, link).unwrap();
        }
        dependencies += &format!("  - {{name: {of}, version: \"*\", alias: {alias}}}\n");
    }
    let head = format!("apiVersion: v2\nname: {name}\nversion: 0.1.0\ndependencies:\n");
    fs::write(folder.join("Chart.yaml"), head + &dependencies).unwrap();
    for (name, text) in templates {
        fs::write(folder.join("templates").join(name), text).unwrap();
    }
}

/// Returns the kind, namespace and name of each object.
fn names(rendered: &Manifests) -> Vec<(String, String, String)> {
    let word = |it: &Value| it.as_str().unwrap_or_else(|| panic!("{it} is no string")).to_owned();
    let metadata = |it: &Value, key: &str| word(&it["metadata"][key]);
    let all = rendered.all.iter();
    all.map(|it| (word(&it["kind"]), metadata(it, "namespace"), metadata(it, "name"))).collect()
}

fn assert_no_two_are_equal(names: &[(String, String, String)]) {
    let mut seen = BTreeSet::new();
    for name in names {
        assert!(seen.insert(name), "two objects are {name:?}");
    }
}

/// Returns the value of an environment variable of each sidecar.
fn of_each_sidecar(rendered: &Manifests, variable: &str) -> Vec<String> {
    let pods = rendered.each("Deployment").into_iter().map(|it| &it["spec"]["template"]["spec"]);
    let sidecars = pods.map(|it| it["initContainers"].as_array().unwrap().last().unwrap());
    let variables = sidecars.map(|it| it["env"].as_array().unwrap());
    let found = variables.map(|all| all.iter().find(|it| it["name"] == variable).unwrap());
    found.map(|it| it["value"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn aliases_in_one_umbrella_share_neither_lease_nor_role() {
    let folder = tempfile::tempdir().unwrap();
    let chart = place(APPLICATION);
    let aliases = [(&*chart, "cart"), (&*chart, "till"), (&*chart, "till-lease")];
    write_chart(folder.path(), "shop", &aliases, &[]);
    let one = json!({"container": with(port(), json!({"image": "x:1"})),
                     "routing": {"mode": "endpointslice"}});
    let values = json!({"cart": one, "till": one, "till-lease": one});
    for release in ["platform", &"p".repeat(53)] {
        let umbrella = folder.path().to_str().unwrap();
        let rendered = helm_release(release, "prod", umbrella, &values, &[]).unwrap();
        assert_no_two_are_equal(&names(&rendered));
        for variable in ["TENURE_ELECTION", "TENURE_STORE", "TENURE_KUBE_SERVICE"] {
            let found = of_each_sidecar(&rendered, variable);
            assert_eq!(BTreeSet::from_iter(&found).len(), 3, "{variable}: {found:?}");
        }
        assert_eq!(rendered.each("ConfigMap").len(), 3, "a guard of each election");
        let selectors: BTreeSet<String> = rendered
            .each("Deployment")
            .into_iter()
            .map(|it| it["spec"]["selector"].to_string())
            .collect();
        assert_eq!(selectors.len(), 3, "{selectors:?}");
    }
    let rendered =
        helm_release("platform", "prod", folder.path().to_str().unwrap(), &values, &[]).unwrap();
    let stores = BTreeSet::from_iter(of_each_sidecar(&rendered, "TENURE_STORE"));
    let expected = ["cart", "till", "till-lease"].map(|it| format!("kubernetes:platform-{it}"));
    assert_eq!(stores, BTreeSet::from(expected));
}

#[test]
fn subcharts_with_the_library_share_neither_lease_nor_role() {
    let folder = tempfile::tempdir().unwrap();
    let readme = text("helm/tenure-lib/README.md");
    let template = readme.split("```yaml\n").nth(3).unwrap().split("```").next().unwrap();
    // The names of its own objects are those that `helm create` gives.
    let template = template.replace(": shop\n", ": {{ .Release.Name }}-{{ .Chart.Name }}\n");
    let template = template.replace("\"shop\"", "(printf \"%s-%s\" .Release.Name .Chart.Name)");
    let (worker, umbrella) = (folder.path().join("worker"), folder.path().join("umbrella"));
    let library = place(LIBRARY);
    write_chart(&worker, "worker", &[(&library, "tenure")], &[("worker.yaml", &template)]);
    let aliases = [(&*worker, "cart"), (&*worker, "till")];
    write_chart(&umbrella, "umbrella", &aliases, &[]);
    let rendered =
        helm_release("shop", "prod", umbrella.to_str().unwrap(), &json!({}), &[]).unwrap();
    let stores = BTreeSet::from_iter(of_each_sidecar(&rendered, "TENURE_STORE"));
    let expected = ["cart", "till"].map(|it| format!("kubernetes:shop-{it}"));
    assert_eq!(stores, BTreeSet::from(expected));
    let roles: Vec<&str> = rendered
        .each("Role")
        .into_iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(BTreeSet::from_iter(&roles).len(), 4, "{roles:?}");
    // A chart has Roles of its own, by its name.
    assert!(roles.iter().all(|it| it.starts_with("tenure-")), "{roles:?}");

    // Without the parent there is no name, rather than one that other charts have too.
    let alone = template.replace("set .Subcharts.tenure \"Parent\" .Chart", ".Subcharts.tenure");
    assert_ne!(alone, template);
    fs::write(worker.join("templates/worker.yaml"), alone).unwrap();
    let render =
        |values: Value| helm_release("shop", "prod", worker.to_str().unwrap(), &values, &[]);
    let refused = render(json!({})).unwrap_err();
    assert!(refused.contains("set .Subcharts.tenure \"Parent\" .Chart"), "{refused}");
    let named = render(json!({"tenure": {"fullnameOverride": "till"}})).unwrap();
    assert_eq!(of_each_sidecar(&named, "TENURE_ELECTION"), ["till"]);
}

#[test]
fn names_follow_the_rule_of_helm_create() {
    let name = |release: &str, values: Value| {
        let values = with(json!({"container": {"image": "x:1"}}), values);
        let rendered = helm_release(release, "prod", APPLICATION, &values, &[]).unwrap();
        let name = rendered.workload()["metadata"]["name"].as_str().unwrap().to_owned();
        assert_eq!(of_each_sidecar(&rendered, "TENURE_ELECTION"), [name.as_str()]);
        assert_eq!(of_each_sidecar(&rendered, "TENURE_STORE"), [format!("kubernetes:{name}")]);
        assert_eq!(rendered.pod()["serviceAccountName"], name);
        name
    };
    assert_eq!(name("orders", json!({})), "orders-tenure");
    assert_eq!(name("orders-tenure", json!({})), "orders-tenure");
    assert_eq!(name("tenure", json!({})), "tenure");
    assert_eq!(name("orders", json!({"nameOverride": "till"})), "orders-till");
    assert_eq!(name("till-eu", json!({"nameOverride": "till"})), "till-eu");
    assert_eq!(name("orders", json!({"fullnameOverride": "till"})), "till");
    assert_eq!(name("orders", json!({"fullnameOverride": "t", "nameOverride": "n"})), "t");
    let long = name(&"a".repeat(53), json!({}));
    assert_eq!(long.len(), 52, "{long}");
}

#[test]
fn releases_whose_names_begin_alike_share_no_object() {
    let full = |name: &str| json!({"fullnameOverride": name});
    for [one, other] in [
        [("o", json!({})), ("o-lease", json!({}))],
        [("o", full("o")), ("o-lease", full("o-lease"))],
        [("o", full("o")), ("o-pod", full("o-pod"))],
    ] {
        let all = [one, other].map(|(release, values)| {
            let values = with(json!({"container": {"image": "x:1"}}), values);
            names(&helm_release(release, "prod", APPLICATION, &values, &[]).unwrap())
        });
        assert_no_two_are_equal(&all.concat());
    }
    // Two namespaces whose Leases are in a third one.
    let all = ["a", "b"].map(|namespace| {
        let values = json!({"container": {"image": "x:1"}, "store": "kubernetes:locks/first"});
        names(&helm_release("o", namespace, APPLICATION, &values, &[]).unwrap())
    });
    assert_no_two_are_equal(&all.concat());
}

#[test]
fn releases_whose_names_are_none_for_a_service_are_refused() {
    for release in ["my.release", "1orders"] {
        let render = |more: Value| {
            let values = with(json!({"container": {"image": "x:1"}}), more);
            helm_release(release, "prod", APPLICATION, &values, &[])
        };
        let error = render(json!({})).unwrap_err();
        assert!(error.contains(&format!("a Service cannot be named {release}-tenure")), "{error}");
        let named = render(json!({"fullnameOverride": "orders"})).unwrap();
        assert_eq!(named.workload()["metadata"]["name"], "orders");
    }
}

#[test]
fn names_that_look_like_other_values_are_strings() {
    let values = with(
        json!({"container": {"image": "x:1"}, "nameOverride": "7", "fullnameOverride": "null",
               "routing": {"mode": "label"}}),
        everything(),
    );
    let number = json!({"fullnameOverride": "true", "podMonitor": {"enabled": true}});
    let mut all = Vec::new();
    for values in [values.clone(), with(values, number)] {
        let rendered = helm_release("1217", "365", APPLICATION, &values, &[]).unwrap();
        let rest = ["-a", "-b"].map(|it| format!("1217{it}"));
        for object in &rendered.all {
            let metadata = &object["metadata"];
            if rest.iter().any(|it| metadata["name"] == it.as_str()) {
                continue;
            }
            assert!(metadata["name"].is_string() && metadata["namespace"] == "365", "{object}");
            let labels = metadata["labels"].as_object().unwrap();
            assert!(labels.values().all(Value::is_string), "{object}");
        }
        for binding in rendered.each("RoleBinding") {
            assert!(binding["roleRef"]["name"].is_string(), "{binding}");
            let subject = &binding["subjects"][0];
            assert!(subject["name"].is_string() && subject["namespace"] == "365", "{binding}");
        }
        for role in rendered.each("Role") {
            for rule in role["rules"].as_array().unwrap() {
                let names = rule["resourceNames"].as_array().into_iter().flatten();
                assert!(names.into_iter().all(Value::is_string), "{rule}");
            }
        }
        assert!(rendered.pod()["serviceAccountName"].is_string());
        all.push(rendered);
    }
    manifests::assert_all_valid(&all);
}
