//! The dashboard and the alerts, in a real Prometheus that scrapes real candidates.

use testkit::processes::process;
use testkit::tools::prometheus;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use process::{Process, until};
use prometheus::Prometheus;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn monitoring(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring").join(name)
}

fn dashboard() -> Value {
    serde_json::from_str(&std::fs::read_to_string(monitoring("dashboard.json")).unwrap()).unwrap()
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().unwrap_or_else(|| panic!("no list {name}"))
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_else(|| panic!("no text {name} in {of}"))
}

/// Returns the queries of the panels, as Grafana sends them with all values selected.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let targets = |panel: &Value| {
        let title = text(panel, "title").to_owned();
        let expression = |target| {
            text(target, "expr")
                .replace("$cluster", ".*")
                .replace("$namespace", ".*")
                .replace("$election", ".*")
                .replace("$__rate_interval", "2m")
        };
        list(panel, "targets").iter().map(|it| (title.clone(), expression(it))).collect::<Vec<_>>()
    };
    list(dashboard, "panels").iter().flat_map(targets).collect()
}

/// Starts three candidates, of which the first leads; the API server of their route does not exist.
fn candidates(directory: &Path) -> Vec<Process> {
    let lease = directory.join("lease");
    std::fs::create_dir(&lease).unwrap();
    let store = format!("file://{}", lease.display());
    let token = directory.join("token");
    std::fs::write(&token, "of nobody").unwrap();
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], testkit::ports::free_port()));
    let (api, token) = (format!("http://{nobody}"), token.display().to_string());
    let timings = "--lease-duration 2s --renew-deadline 1300ms --retry-period 300ms \
                   --request-timeout 500ms --election orders --kube-route label --on-active true";
    let mut arguments: Vec<_> = timings.split_whitespace().collect();
    arguments.extend(["--store", &store, "--kube-api", &api, "--kube-token-file", &token]);
    let mut candidates = Vec::new();
    for name in ["orders-0", "orders-1", "orders-2"] {
        let variables = [("POD_NAMESPACE", "shop"), ("POD_NAME", name)];
        let address = format!("127.0.0.1:{}", testkit::ports::free_port());
        let mut arguments = arguments.clone();
        arguments.extend(["--peers", "--listen", &address, "--peer-address", &address]);
        candidates.push(Process::run(name, &arguments, &variables));
        until(PATIENCE, "the first leads", || candidates[0].is_leader().then_some(()));
    }
    candidates
}

#[test]
fn each_query_has_data_and_no_rule_fails_after_a_leader_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let mut candidates = candidates(directory.path());
    let targets: Vec<_> = candidates.iter().map(|it| it.address).collect();
    let prometheus = Prometheus::start(
        directory.path(),
        &monitoring("rules.yaml"),
        &targets,
        &[("cluster", "eu"), ("namespace", "shop")],
    );
    let leads = |name: &str| {
        let query = format!("tenure_is_leader{{identity=\"{name}\"}} == 1");
        until(PATIENCE, &format!("{name} is seen to lead"), || prometheus.query(&query));
    };
    leads("orders-0");
    candidates[0].kill();
    let next =
        until(PATIENCE, "another leads", || candidates[1..].iter().find(|it| it.is_leader()));
    leads(&next.name);

    let dashboard = dashboard();
    for (title, query) in queries(&dashboard) {
        until(PATIENCE, &format!("{title} has data by {query}"), || prometheus.query(&query));
    }
    for variable in &list(&dashboard["templating"], "list")[1..] {
        values(&prometheus, text(variable, "definition"));
    }

    let rules = until(PATIENCE, "all rules are evaluated", || {
        let groups = prometheus.ask("rules", &[])?;
        let rules = list(&list(&groups, "groups")[0], "rules").to_vec();
        rules.iter().all(|it| it["health"] != "unknown").then_some(rules)
    });
    for rule in &rules {
        assert_eq!(rule["health"], "ok", "{}", rule["lastError"]);
    }
    let two = prometheus.query("ALERTS{alertname=\"TenureTwoLeaders\"}");
    assert_eq!(two, None, "a crash and what followed looked like two leaders");
}

#[test]
fn two_leaders_of_separate_stores_raise_an_alert() {
    let directory = tempfile::tempdir().unwrap();
    let start = |name| {
        let arguments = ["--store", "memory:", "--election", "orders"];
        let candidate = Process::run(name, &arguments, &[]);
        until(PATIENCE, &format!("{name} leads"), || candidate.is_leader().then_some(()));
        candidate
    };
    let both = ["orders-0", "orders-1"].map(start);
    let targets = both.each_ref().map(|it| it.address);
    let prometheus = Prometheus::start(directory.path(), &monitoring("rules.yaml"), &targets, &[]);
    let query = "ALERTS{alertname=\"TenureTwoLeaders\", alertstate=\"firing\"}";
    let alerts = until(Duration::from_secs(120), "it is reported", || prometheus.query(query));
    let named: Vec<_> = alerts.iter().map(|it| text(&it["metric"], "identity")).collect();
    assert_eq!(named, ["orders-0"], "the older is the second leader");
}

/// Asserts that a variable of the form `label_values(SERIES, LABEL)` has values.
fn values(prometheus: &Prometheus, definition: &str) {
    let inside = definition.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
    let (series, label) = inside.and_then(|it| it.rsplit_once(", ")).unwrap();
    let series = series.replace("$cluster", ".*").replace("$namespace", ".*");
    let data = prometheus.ask(&format!("label/{label}/values"), &[("match[]", &series)]).unwrap();
    assert!(!data.as_array().unwrap().is_empty(), "no values by {definition}");
}

#[test]
fn grafana_renders_the_dashboard_with_any_data_source_and_election() {
    let dashboard = dashboard();
    let variables = list(&dashboard["templating"], "list");
    let names: Vec<_> = variables.iter().map(|it| text(it, "name")).collect();
    assert_eq!(names, ["datasource", "cluster", "namespace", "election"]);
    assert_eq!(text(&variables[0], "type"), "datasource");
    let mut ids = BTreeSet::new();
    let mut places = BTreeSet::new();
    for panel in list(&dashboard, "panels") {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is another's");
        assert!(text(panel, "description").ends_with('.'), "{title} is not described");
        assert_ne!(text(&panel["fieldConfig"]["defaults"], "unit"), "", "{title}");
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{title} is too wide");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(places.insert((x, y)), "{title} covers another");
            }
        }
        assert_eq!(text(&panel["datasource"], "uid"), "${datasource}", "{title}");
        for target in list(panel, "targets") {
            assert_eq!(text(&target["datasource"], "uid"), "${datasource}", "{title}");
            let query = text(target, "expr");
            let selectors = query.matches('{').count();
            let chosen = r#"{cluster=~"$cluster", namespace=~"$namespace", election=~"$election""#;
            let ours = query.matches(chosen).count();
            assert!(selectors == ours && ours > 0, "{title} shows more than what is chosen");
            let groupings = [" by (", " on ("].into_iter().flat_map(|it| query.split(it).skip(1));
            for labels in groupings {
                let is_apart = labels.starts_with("cluster, namespace, ");
                // The number of instances in each state is a total.
                assert!(is_apart || title == "Candidates", "{title}: {labels}");
            }
        }
    }
}

#[test]
fn the_dashboard_names_existing_alerts() {
    let rules = std::fs::read_to_string(monitoring("rules.yaml")).unwrap();
    let dashboard = dashboard();
    let mut named = 0;
    for panel in list(&dashboard, "panels") {
        let words = text(panel, "description").split(|it: char| !it.is_alphanumeric());
        for alert in words.filter(|it| it.starts_with("Tenure") && it.len() > "Tenure".len()) {
            assert!(rules.contains(&format!("- alert: {alert}\n")), "{alert}");
            named += 1;
        }
    }
    assert!(named > 5);
}
