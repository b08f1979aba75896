//! The pages under docs/kubernetes: their YAML is valid, their commands refer to existing things, and
//! the script for a real cluster completes with fake programs.

use testkit::kubernetes::{manifests, yaml};

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use manifests::{assert_valid, helm, place, render, run, text};
use serde_json::{Value, json};
use tenure::config::{Ending, Environment, Flags, SETTINGS, Verb, load};

/// Returns the pages with their paths.
fn pages() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(place("docs/kubernetes")).unwrap();
    let mut all: Vec<_> = folder
        .map(|it| format!("docs/kubernetes/{}", it.unwrap().file_name().into_string().unwrap()))
        .filter(|it| it.ends_with(".md"))
        .map(|path| (path.clone(), text(&path)))
        .collect();
    all.push(("README.md".to_owned(), text("README.md")));
    all.sort();
    all
}

/// Returns the code blocks of a page in one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let rest = page.split(&fence).skip(1);
    rest.map(|it| it.split("\n```").next().unwrap().to_owned()).collect()
}

/// Returns the commands of all pages, one per line, with the path of the page.
fn commands() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (path, page) in pages() {
        for block in blocks(&page, "sh") {
            let joined = block.replace("\\\n", " ");
            all.extend(joined.lines().map(|it| (path.clone(), it.trim().to_owned())));
        }
    }
    all
}

#[test]
fn the_yaml_of_the_pages_parses_and_whole_objects_are_valid() {
    let mut objects = String::new();
    for (path, page) in pages() {
        for block in blocks(&page, "yaml") {
            for document in yaml::documents(&block) {
                assert!(document.is_object(), "{path}: {block}");
                if document["kind"].is_string() {
                    objects.push_str(&format!("---\n{block}\n"));
                } else if document["routing"].is_object() {
                    render(&document);
                }
            }
        }
        for block in blocks(&page, "json") {
            serde_json::from_str::<Value>(&block).unwrap_or_else(|it| panic!("{path}: {it}"));
        }
    }
    assert_valid(&objects);
}

#[test]
fn the_shell_of_the_pages_parses() {
    for (path, page) in pages() {
        for block in blocks(&page, "sh") {
            let checked = Command::new("bash").args(["-n", "-c", &block]).output().unwrap();
            assert!(checked.status.success(), "{path}: {block}");
        }
    }
}

#[test]
fn the_helm_commands_of_the_pages_render_valid_objects() {
    let (mut seen, mut objects) = (0, String::new());
    for (path, command) in commands() {
        let words = shlex::split(&command).unwrap_or_default();
        let Some(("helm", verb @ ("install" | "template" | "upgrade"))) =
            words.first().map(String::as_str).zip(words.get(1).map(String::as_str))
        else {
            continue;
        };
        let mut arguments = vec!["template"];
        let end = words.iter().position(|it| it == "|").unwrap_or(words.len());
        let rest = words[2..end].iter().map(String::as_str);
        arguments.extend(rest.filter(|it| !["--create-namespace", "--reuse-values"].contains(it)));
        if verb == "upgrade" {
            arguments.extend(["--set", "container.image=x:1"]);
        }
        let filled: Vec<String> = arguments.iter().map(|it| filled(it)).collect();
        let filled: Vec<&str> = filled.iter().map(String::as_str).collect();
        let ran = run("helm", &filled, "");
        let why = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{path}: {command}: {why}");
        objects += &String::from_utf8(ran.stdout).unwrap();
        seen += 1;
    }
    assert!(seen >= 5, "{seen}");
    assert_valid(&objects);
}

/// Returns a word with the variables of the pages replaced.
fn filled(word: &str) -> String {
    [
        ("$RELEASE", "orders"),
        ("$NAMESPACE", "shop"),
        ("$ACCOUNT", "myaccount"),
        ("$CONTAINER", "elections"),
        ("$CLIENT_ID", "6c7d2c1e-0000-4000-8000-1234567890ab"),
    ]
    .into_iter()
    .fold(word.to_owned(), |it, (name, value)| it.replace(name, value))
}

/// Returns what follows each occurrence of `begin` in a page, as far as the characters match.
fn words<'a>(page: &'a str, begin: &'a str, of: fn(char) -> bool) -> Vec<&'a str> {
    let starts = page.match_indices(begin).map(|(at, _)| &page[at + begin.len()..]);
    starts.map(|it| it.split(|c| !of(c)).next().unwrap()).collect()
}

#[test]
fn settings_and_values_named_in_the_pages_exist() {
    let values = yaml::document(&text("helm/tenure/values.yaml"));
    for (path, page) in pages().into_iter().filter(|(path, _)| path != "README.md") {
        for begin in ["kube-", "azure-", "store", "renew-", "lease-", "retry-", "health", "on-"] {
            let whole = |rest: &str| format!("{begin}{rest}");
            let of = |c: char| c.is_ascii_lowercase() || c == '-';
            for flag in words(&page, &format!("`--{begin}"), of).into_iter().map(whole) {
                assert!(SETTINGS.iter().any(|it| it.name == flag), "{path}: --{flag}");
            }
        }
        for name in words(&page, "`TENURE_", |c| c.is_ascii_uppercase() || c == '_') {
            let setting = name.to_lowercase().replace('_', "-");
            let known = SETTINGS.iter().any(|it| it.name == setting);
            assert!(known || ["url", "admin"].contains(&&*setting), "{path}: TENURE_{name}");
        }
        for group in
            ["election", "azure", "routing", "sidecar", "pdb", "networkPolicy", "serviceAccount"]
        {
            for begin in [format!("`{group}."), format!("--set {group}.")] {
                let of = |c: char| c.is_ascii_alphanumeric() || c == '.';
                for key in
                    words(&page, &begin, of).into_iter().filter(|it| *it != "workload.identity")
                {
                    let keys = format!("/{group}/{}", key.trim_end_matches('.').replace('.', "/"));
                    assert!(values.pointer(&keys).is_some(), "{path}: {group}.{key}");
                }
            }
        }
    }
}

#[test]
fn each_page_is_in_the_index_and_that_in_the_readme() {
    let index = text("docs/kubernetes/README.md");
    for (path, _) in pages() {
        let name = path.rsplit('/').next().unwrap();
        assert!(name == "README.md" || index.contains(&format!("({name})")), "{path}");
    }
    assert!(text("README.md").contains("(docs/kubernetes/README.md)"));
}

#[test]
fn the_sums_of_the_page_on_grace_periods_match_tenure() {
    let page = text("docs/kubernetes/grace.md");
    let rows = [
        (json!({}), 5, 30),
        (json!({"sidecar": {"serviceStopSeconds": 55}}), 5, 60),
        (json!({"election": {"drainTimeout": "20s"}}), 25, 50),
        (json!({"election": {"drainTimeout": "20s", "onDrain": "http://127.0.0.1/"}}), 47, 72),
    ];
    let table: Vec<&str> =
        page.lines().skip_while(|it| !it.starts_with("| values |")).skip(2).take(4).collect();
    for ((values, ending, whole), line) in rows.into_iter().zip(table) {
        let rendered = render(&values);
        assert_eq!(rendered.pod()["terminationGracePeriodSeconds"], whole, "{values}");
        let mut flags = Flags::from([("store", vec!["memory:".to_owned()])]);
        for (key, flag) in [("drainTimeout", "drain-timeout"), ("onDrain", "on-drain")] {
            if let Some(value) = values["election"][key].as_str() {
                flags.insert(flag, vec![value.to_owned()]);
            }
        }
        let settings = load(&flags, &Environment::of([("A", "")]), Verb::Run).unwrap().settings;
        assert_eq!(Ending::of(&settings).seconds(), ending, "{values}");
        assert!(line.contains(&format!("{ending} s |")), "{line}");
        let period = line.trim_end_matches([' ', '|']).rsplit(['|', '=']).next().unwrap().trim();
        assert_eq!(period, whole.to_string(), "{line}");
    }
}

#[test]
fn the_times_of_the_pages_are_those_of_the_default_settings() {
    let settings = load(
        &Flags::from([("store", vec!["memory:".to_owned()])]),
        &Environment::of([("A", "")]),
        Verb::Run,
    );
    let timings = settings.unwrap().settings.timings;
    let seconds = [15, 10, 2, 2].map(Duration::from_secs);
    let own = [
        timings.lease_duration,
        timings.renew_deadline,
        timings.retry_period,
        timings.request_timeout,
    ];
    assert_eq!(own, seconds, "go through the sums of docs/kubernetes");
    let rendered = helm("helm/tenure", &json!({"container": {"image": "x:1"}}), &[]).unwrap();
    let strategy = &rendered.workload()["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(*strategy, json!({"maxSurge": 1, "maxUnavailable": 0}));
}

/// Fake programs that simulate a cluster of two pods: the leader is in a file, and a step-down or
/// the deletion of the leader's pod changes it to the other pod.
const STAND_INS: [(&str, &str); 3] = [
    ("docker", "case \"$1\" in save) : >\"$3\" ;; esac\n"),
    (
        "kind",
        "case \"$1\" in version) echo 0.30.0 ;; delete) echo \"$4\" >\"$STATE/deleted\" ;; esac\n",
    ),
    (
        "kubectl",
        r#"[ -f "$STATE/leader" ] || echo a >"$STATE/leader"
other() { if [ "$(cat "$STATE/leader")" = a ]; then echo b; else echo a; fi >"$STATE/next"; mv "$STATE/next" "$STATE/leader"; }
case "$*" in
  *"--raw /version"*) printf '{\n  "major": "1",\n  "minor": "34+",\n}\n' ;;
  *"exec a "*check* | *"get pod a"* | *"exec b "*check* | *"get pod b"*)
    case "$*" in *"exec $(cat "$STATE/leader") "* | *"get pod $(cat "$STATE/leader")"*) echo True ;; *) echo False; exit 1 ;; esac ;;
  *"get pods"*) printf 'pod/a\npod/b\n' ;;
  *step-down* | *"delete pod "*) other ;;
  *service*--follow*) printf '1.0 service got SIGTERM, leads: yes\n%s service ends, leads: yes\n' "$ENDS" ;;
  *tenure*--follow*) echo '6.1 {"from":"leader","to":"stopped"}' ;;
  *logs*) echo 'service began, the sidecar answers: yes' ;;
  *endpointslices*) printf '%s ' "$(cat "$STATE/leader")" ;;
  *"rollout status"* | *" wait "*) ;;
  *) echo "kubectl $*" >&2; exit 1 ;;
esac
"#,
    ),
];

/// Runs the script with the fake programs, in a cluster whose service ends at this time.
fn tried(ends: &str) -> (Option<i32>, String, bool) {
    let folder = tempfile::tempdir().unwrap();
    let helm = testkit::paths::tool("helm");
    let helm = format!(
        "[ \"$1\" != install ] || {{ shift; set -- template \"$@\"; }}\nexec {} \"$@\"\n",
        helm.display()
    );
    for (name, script) in STAND_INS.iter().copied().chain([("helm", helm.as_str())]) {
        let program = folder.path().join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let ran = Command::new("timeout")
        .args(["120", "deploy/kind/try"])
        .current_dir(place("."))
        .env("PATH", path)
        .env("STATE", &state)
        .env("TMPDIR", folder.path())
        .env("ENDS", ends)
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    (ran.status.code(), output.into_owned(), state.join("deleted").exists())
}

#[test]
fn the_script_for_a_real_cluster_completes_its_steps_and_deletes_the_cluster() {
    let (code, output, deleted) = tried("6.0");
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(output.matches("passed   ").count(), 7, "{output}");
    assert!(deleted, "{output}");
}

#[test]
fn the_script_for_a_real_cluster_names_a_check_that_fails() {
    let (code, output, deleted) = tried("6.2");
    assert_eq!(code, Some(1), "{output}");
    assert!(
        output.contains("FAILED    the service ended at 6.2, the sidecar released at 6.1"),
        "{output}"
    );
    assert!(deleted, "{output}");
}
