//! The structure of the charts: library and application, values and their documentation, versions
//! and packages.

use testkit::kubernetes::{chart_values as values, manifests, yaml};

use std::fs;

use serde_json::{Value, json};

use manifests::{assert_restricted, assert_valid, containers, helm, place, render, run, text};
use values::{everything, with};

const LIBRARY: &str = "helm/tenure-lib";
const APPLICATION: &str = "helm/tenure";

#[test]
fn another_chart_can_include_the_sidecar_of_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("shop");
    fs::create_dir_all(chart.join("charts")).unwrap();
    std::os::unix::fs::symlink(place(LIBRARY), chart.join("charts/tenure-lib")).unwrap();
    fs::create_dir_all(chart.join("templates")).unwrap();
    let readme = text("helm/tenure-lib/README.md");
    let blocks: Vec<&str> =
        readme.split("```yaml\n").skip(1).map(|it| it.split("```").next().unwrap()).collect();
    let [dependency, values, template] = blocks[..] else { panic!("{blocks:?}") };
    let head = "apiVersion: v2\nname: shop\nversion: 1.0.0\n";
    let here = dependency.replace("repository: REPOSITORY", "repository: \"\"");
    fs::write(chart.join("Chart.yaml"), format!("{head}{here}")).unwrap();
    fs::write(chart.join("values.yaml"), values).unwrap();
    fs::write(chart.join("templates/shop.yaml"), template).unwrap();
    let render = |values: &Value| helm(chart.to_str().unwrap(), values, &[]);
    let rendered = render(&json!({})).unwrap();
    assert_valid(&rendered.text);
    let names: Vec<&Value> = containers(rendered.pod()).iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["tenure", "shop"]);
    assert_eq!(rendered.container("tenure")["restartPolicy"], "Always");
    assert!(rendered.flags().contains(&"--lease-duration=30s".to_owned()));
    assert!(rendered.flags().contains(&"--store=kubernetes:orders-shop".to_owned()));
    assert_eq!(rendered.each("Role").len(), 2);
    let guard = rendered.the("ConfigMap", "orders.shop.tenure.moves-only-with-election.moved");
    assert_eq!(guard["data"], json!({"lease": "kubernetes:shop/orders-shop"}));
    let moved = render(&json!({"tenure": {"election": {"moved": true}}})).unwrap();
    assert!(moved.each("ConfigMap").is_empty());
    assert_eq!(moved.workload()["spec"]["strategy"]["type"], "Recreate");
    for pod in rendered.pods() {
        assert_restricted(pod);
    }
    let refused = render(&json!({"tenure": {"election": {"retryPeriod": "2"}}})).unwrap_err();
    assert!(refused.contains("at '/election/retryPeriod'"), "{refused}");
    let refused = render(&json!({"tenure": {"election": {"renewDeadline": "1s"}}})).unwrap_err();
    assert!(refused.contains("election.renewDeadline is 1s"), "{refused}");
}

/// Returns every value of a file as a path, and whether the line above documents it.
fn documented(values: &str) -> Vec<(String, bool)> {
    let lines: Vec<&str> = values.lines().collect();
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let depth = line.len() - line.trim_start().len();
        let Some((key, _)) = line.trim_start().split_once(':') else { continue };
        if line.trim_start().starts_with(['#', '-', '{']) || key.contains(' ') {
            continue;
        }
        path.retain(|(of, _)| *of < depth);
        path.push((depth, key));
        let name = path.iter().map(|(_, it)| *it).collect::<Vec<_>>().join(".");
        let above = lines[..at].iter().rev().map(|it| it.trim());
        let comment = above.take_while(|it| it.starts_with('#')).any(|it| it.starts_with("# -- "));
        found.push((name, comment));
    }
    found
}

#[test]
fn every_value_is_documented_and_in_the_schema() {
    for chart in [LIBRARY, APPLICATION] {
        let values = text(&format!("{chart}/values.yaml"));
        let schema: Value =
            serde_json::from_str(&text(&format!("{chart}/values.schema.json"))).unwrap();
        let documented = documented(&values);
        for (path, comment) in &documented {
            let inner = documented.iter().any(|(it, _)| it.starts_with(&format!("{path}.")));
            let of_known = documented
                .iter()
                .any(|(it, described)| *described && path.starts_with(&format!("{it}.")));
            assert!(*comment || inner || of_known, "{chart}: {path} has no comment");
        }
        let mut open = vec![(String::new(), &schema)];
        while let Some((path, it)) = open.pop() {
            for (key, inner) in it["properties"].as_object().into_iter().flatten() {
                let name = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                let section = name.split('.').next().unwrap();
                let outside = ["global", "tenure-lib"].contains(&section);
                let items = name.contains("Probe.");
                let known = documented.iter().any(|(it, _)| *it == name);
                assert!(known || outside || items, "{chart}: {name} is not in values.yaml");
                open.push((name, inner));
            }
        }
    }
}

#[test]
fn older_kubernetes_is_refused() {
    let least = json!({"container": {"image": "x:1"}});
    let refused = helm(APPLICATION, &least, &["--kube-version", "1.28.9"]).unwrap_err();
    assert!(refused.contains("kubeVersion: >=1.29.0-0"), "{refused}");
    for version in ["1.29.0", "1.31.5-gke.100", "1.37.0"] {
        assert!(helm(APPLICATION, &least, &["--kube-version", version]).is_ok(), "{version}");
    }
}

#[test]
fn the_charts_have_the_version_of_the_program() {
    for chart in [LIBRARY, APPLICATION] {
        let chart = yaml::document(&text(&format!("{chart}/Chart.yaml")));
        assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    }
    let chart = yaml::document(&text("helm/tenure/Chart.yaml"));
    assert_eq!(chart["dependencies"][0]["version"], env!("CARGO_PKG_VERSION"));
    let image = render(&json!({})).container("tenure")["image"].clone();
    assert_eq!(image, concat!("ghcr.io/tenure-dev/tenure:", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_package_of_the_chart_is_self_contained() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().to_str().unwrap();
    let ran = run("helm", &["package", APPLICATION, "--destination", to], "");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let package = folder.path().join(format!("tenure-{}.tgz", env!("CARGO_PKG_VERSION")));
    let values = with(json!({"container": {"image": "x:1"}}), everything());
    let packed = helm(package.to_str().unwrap(), &values, &[]).unwrap();
    let loose = helm(APPLICATION, &values, &[]).unwrap();
    assert_eq!(packed.all, loose.all);
}
