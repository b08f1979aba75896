//! The alerts, tested by promtool: each scenario of `monitoring/tests` passes, and fails when its
//! rule is broken.

use testkit::http::status;
use testkit::tools::{promtool, rule_breaks};

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use promtool::{promtool, succeeds};
use rule_breaks::BREAKS;
use serde_json::Value;
use status::{Feed, about, candidate, now, table};
use tenure::election::{Standing, TRANSITIONS};
use tenure::metrics::{ALERTED_TRANSITIONS, HOOKS, Metrics};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the rules, in the format of Prometheus and of a PrometheusRule.
fn rules() -> Value {
    let file = config::File::from_str(&read("monitoring/rules.yaml"), config::FileFormat::Yaml);
    config::Config::builder().add_source(file).build().unwrap().try_deserialize().unwrap()
}

fn alerts() -> Vec<Value> {
    let rules = rules();
    let groups = rules["groups"].as_array().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn names() -> BTreeSet<String> {
    alerts().iter().map(|it| it["alert"].as_str().unwrap().to_owned()).collect()
}

/// Returns the names of the files in a folder with this ending, without the ending.
fn stems(folder: &str, ending: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
    names.filter_map(|it| Some(it.strip_suffix(ending)?.to_owned())).collect()
}

/// One scenario, as a file of its own.
struct Scenario {
    /// The alert that it is about, or `normal`.
    of: String,
    name: String,
    text: String,
}

fn scenarios() -> Vec<Scenario> {
    let alerts = names();
    let mut scenarios = Vec::new();
    for file in stems("monitoring/tests", ".yaml") {
        let text = read(&format!("monitoring/tests/{file}.yaml"));
        let (head, tests) = text.split_once("\ntests:\n").unwrap();
        for test in tests.split("  - name: ").skip(1) {
            let name = test.lines().next().unwrap().to_owned();
            let of = match &*file {
                "days" => alerts.iter().find(|it| test.contains(it.as_str())).unwrap().clone(),
                file => file.to_owned(),
            };
            let text = format!("{head}\ntests:\n  - name: {test}");
            scenarios.push(Scenario { of, name, text });
        }
    }
    scenarios
}

/// Writes rules and scenarios in the layout of `monitoring`, and returns the scenarios' files.
fn lay(directory: &Path, rules: &str, scenarios: &[&Scenario]) -> Vec<PathBuf> {
    fs::write(directory.join("rules.yaml"), rules).unwrap();
    let tests = directory.join("tests");
    fs::create_dir(&tests).unwrap();
    let lay = |(number, scenario): (usize, &&Scenario)| {
        let file = tests.join(format!("{number}.yaml"));
        fs::write(&file, &scenario.text).unwrap();
        file
    };
    scenarios.iter().enumerate().map(lay).collect()
}

/// Returns the rules with one alert alone, which is broken: `words`, which must occur once, are
/// replaced. The other alerts would only cost time: no scenario is about two.
fn broken(rules: &str, (alert, words, instead): &(&str, &str, &str)) -> String {
    let head = &rules[..rules.find("- alert: ").unwrap()];
    let start = rules.find(&format!("- alert: {alert}\n")).unwrap();
    let length = rules[start + 1..].find("- alert: ").map_or(rules.len() - start, |it| it + 1);
    let block = &rules[start..start + length];
    assert_eq!(block.matches(words).count(), 1, "{alert} has not once {words:?}:\n{block}");
    format!("{head}{}\n", block.replace(words, instead).trim_end())
}

#[test]
fn prometheus_accepts_the_rules() {
    succeeds(&promtool(&["check", "rules"], &[root().join("monitoring/rules.yaml")]));
}

#[test]
fn each_scenario_ends_as_stated() {
    let files = stems("monitoring/tests", ".yaml");
    let files = files.iter().map(|it| root().join(format!("monitoring/tests/{it}.yaml")));
    succeeds(&promtool(&["test", "rules"], &files.collect::<Vec<_>>()));
    let mut with_scenarios = names();
    with_scenarios.extend(["days", "normal"].map(str::to_owned));
    assert_eq!(stems("monitoring/tests", ".yaml"), with_scenarios);
}

/// Returns the scenarios that fail when an alert is broken: its own, and for an alert without a
/// delay also the normal ones.
fn failing<'a>(
    rules: &str,
    scenarios: &'a [Scenario],
    change: &(&str, &str, &str),
) -> Vec<&'a Scenario> {
    let hasty = change.2 == "for: 0s";
    let is_concerned = |it: &&Scenario| it.of == change.0 || (hasty && it.of == "normal");
    let concerned: Vec<_> = scenarios.iter().filter(is_concerned).collect();
    let directory = tempfile::tempdir().unwrap();
    let files = lay(directory.path(), &broken(rules, change), &concerned);
    let failed = promtool::failed(&promtool(&["test", "rules"], &files), &files);
    concerned.into_iter().zip(failed).filter_map(|(it, failed)| failed.then_some(it)).collect()
}

#[test]
fn each_scenario_fails_when_its_rule_is_broken() {
    let (rules, scenarios) = (read("monitoring/rules.yaml"), scenarios());
    // A break that Prometheus rejects would fail every scenario.
    let directory = tempfile::tempdir().unwrap();
    let write = |(number, change)| {
        let file = directory.path().join(format!("{number}.yaml"));
        fs::write(&file, broken(&rules, change)).unwrap();
        file
    };
    let files: Vec<_> = BREAKS.iter().enumerate().map(write).collect();
    succeeds(&promtool(&["check", "rules"], &files));
    let judge = |it| (it, failing(&rules, &scenarios, it));
    let (left, right) = BREAKS.split_at(BREAKS.len() / 2);
    let judged: Vec<_> = std::thread::scope(|scope| {
        let halves =
            [left, right].map(|half| scope.spawn(|| half.iter().map(judge).collect::<Vec<_>>()));
        halves.into_iter().flat_map(|it| it.join().unwrap()).collect()
    });
    let unnoticed: Vec<_> =
        judged.iter().filter(|(_, failed)| failed.is_empty()).map(|(it, _)| it).collect();
    let failed: BTreeSet<_> =
        judged.iter().flat_map(|(_, failed)| failed).map(|it| (&it.of, &it.name)).collect();
    let unbroken: Vec<_> =
        scenarios.iter().map(|it| (&it.of, &it.name)).filter(|it| !failed.contains(it)).collect();
    assert!(
        unnoticed.is_empty() && unbroken.is_empty(),
        "no scenario notices {unnoticed:#?}\nnothing breaks {unbroken:#?}"
    );
}

#[test]
fn each_alert_has_a_summary_and_a_page() {
    assert_eq!(names(), stems("docs/runbooks", ".md"));
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let annotations = alert["annotations"].as_object().unwrap();
        assert!(annotations.keys().eq(["description", "runbook_url", "summary"]), "{name}");
        let url = annotations["runbook_url"].as_str().unwrap();
        assert_eq!(url, format!("https://tenure.dev/docs/runbooks/{name}.md"));
        for words in ["summary", "description"] {
            assert!(annotations[words].as_str().unwrap().ends_with('.'), "{name}: {words}");
        }
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        let page = read(&format!("docs/runbooks/{name}.md"));
        assert!(page.starts_with(&format!("# {name}\n")), "{name}");
        for part in
            ["## What it means", "## What to look at", "## What to do", "## When it is harmless"]
        {
            assert!(page.contains(&format!("\n{part}\n")), "{name} has no part {part}");
        }
        let commands =
            page.split("## What to look at").nth(1).unwrap().split("\n## ").next().unwrap();
        assert!(commands.contains("```sh\n"), "{name} has no commands to look with");
    }
}

/// Returns, for each aggregation of an expression, what follows the name of its operator; for each
/// vector matching, the labels that it matches on.
fn groupings(expression: &str) -> (Vec<&str>, Vec<&str>) {
    let operators = ["sum", "min", "max", "avg", "count", "count_values", "group", "quantile"];
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let (mut aggregations, mut matchings) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(start) = expression[at..].find(is_name).map(|it| at + it) {
        let rest = &expression[start..];
        let (word, after) = rest.split_at(rest.find(|it| !is_name(it)).unwrap_or(rest.len()));
        if operators.contains(&word) {
            aggregations.push(after);
        } else if ["on", "ignoring"].contains(&word) {
            matchings.push(after);
        }
        at = start + word.len();
    }
    (aggregations, matchings)
}

#[test]
fn each_rule_keeps_elections_of_clusters_apart() {
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let expression = alert["expr"].as_str().unwrap();
        let (aggregations, matchings) = groupings(expression);
        for it in aggregations {
            assert!(it.starts_with(" by (cluster, namespace, election"), "{name}: …{it}");
        }
        for it in matchings {
            let labels = it.trim_start_matches(" (").split(')').next().unwrap();
            let is_apart = labels.is_empty() || labels.split(", ").next() == Some("cluster");
            assert!(is_apart, "{name}: …{it}");
        }
        let summary = alert["annotations"]["summary"].as_str().unwrap();
        for label in ["$labels.cluster", "$labels.namespace"] {
            assert!(summary.contains(label), "{name}: {summary}");
        }
    }
}

#[test]
fn the_file_is_the_spec_of_a_prometheusrule() {
    let rules = rules();
    assert!(rules.as_object().unwrap().keys().eq(["groups"]), "more than groups");
    for group in rules["groups"].as_array().unwrap() {
        assert!(group.as_object().unwrap().keys().eq(["name", "rules"]), "{}", group["name"]);
        for rule in group["rules"].as_array().unwrap() {
            let known = ["alert", "annotations", "expr", "for", "labels"];
            let unknown = rule.as_object().unwrap().keys().find(|it| !known.contains(&it.as_str()));
            assert_eq!(unknown, None, "{}", rule["alert"]);
        }
    }
}

/// Returns the names of Tenure's metrics in an expression.
fn metrics(text: &str) -> BTreeSet<&str> {
    text.split(|it: char| !(it.is_ascii_alphanumeric() || it == '_'))
        .filter(|it| it.starts_with("tenure_"))
        .collect()
}

/// Returns the selectors of a metric in an expression, each as its matchers: label, operator, value.
fn selectors<'a>(expression: &'a str, metric: &str) -> Vec<Vec<(&'a str, &'a str, &'a str)>> {
    let head = format!("{metric}{{");
    let parts: Vec<_> = expression.split(&head).skip(1).collect();
    let matchers = |part: &'a str| {
        let inside = part.split('}').next().unwrap();
        let matcher = |it: &'a str| {
            let label = it.split(['=', '!']).next().unwrap();
            let (operator, value) = it[label.len()..].split_once('"').unwrap();
            (label, operator, value.trim_end_matches('"'))
        };
        inside.split(',').map(matcher).collect()
    };
    parts.into_iter().map(matchers).collect()
}

#[test]
fn each_transition_that_an_alert_counts_has_a_series_from_the_start() {
    let mut counted = Vec::new();
    for alert in alerts() {
        for selector in selectors(alert["expr"].as_str().unwrap(), "tenure_transitions_total") {
            counted.extend(TRANSITIONS.into_iter().filter(|(from, to, reason)| {
                selector.iter().all(|(label, operator, value)| {
                    let is = match *label {
                        "from" => from.as_str(),
                        "to" => to.as_str(),
                        "reason" => reason.as_str(),
                        _ => panic!("no label {label}"),
                    };
                    match *operator {
                        "=" => is == *value,
                        "=~" => value.split('|').any(|it| it == is),
                        _ => panic!("{operator} is not known here"),
                    }
                })
            }));
        }
    }
    assert!(ALERTED_TRANSITIONS.iter().all(|it| counted.contains(it)), "{counted:?}");
    assert!(counted.iter().all(|it| ALERTED_TRANSITIONS.contains(it)), "{counted:?}");
}

/// Returns the metrics of an instance with all optional features.
fn all_metrics() -> String {
    let metrics = Metrics::new(&about(), true);
    HOOKS.iter().for_each(|it| metrics.expect_hook(it));
    let feed = Feed::new(Standing::Starting);
    // A state has a series once a candidate was in it.
    feed.report_candidates(table([candidate("us", "starting")]));
    metrics.text(&feed.last(), 0, now())
}

#[test]
fn rules_scenarios_dashboard_and_pages_name_existing_metrics() {
    let all = all_metrics();
    let mut texts = vec![read("monitoring/rules.yaml"), read("monitoring/dashboard.json")];
    texts.extend(scenarios().into_iter().map(|it| it.text));
    texts.extend(names().iter().map(|it| read(&format!("docs/runbooks/{it}.md"))));
    for text in &texts {
        let unknown: Vec<_> = metrics(text).difference(&metrics(&all)).copied().collect();
        assert!(unknown.is_empty(), "no metrics: {unknown:?}");
    }
}
