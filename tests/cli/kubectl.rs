//! `kubectl tenure` with a kubectl that lists given pods and runs `tenure` on this host for `exec`:
//! its choice of the pod, its table, and whole commands on a real election.

use testkit::kubernetes::plugin;
use testkit::processes::{cluster, process, sidecar};

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use cluster::{Cluster, PATIENCE, STEADY};
use plugin::Plugin;
use process::{Ran, until};
use serde_json::{Value, json};
use sidecar::Sidecar;
use tempfile::TempDir;
use testkit::paths::tenure;

/// Lists the pods of the file named after the selector, and runs `tenure` with the variables of the
/// file named after the pod. Without that file it fails as kubectl does.
const KUBECTL: &str = r#"#!/bin/sh
cd "$(dirname "$0")" || exit 9
echo "$*" >>calls
list='{"items":[]}'
while [ $# -gt 0 ]; do
  case "$1" in
    --selector=*)
      file="pods-$(echo "${1#--selector=}" | tr / _).json"
      [ ! -f "$file" ] || list="$(cat "$file")" ;;
    exec)
      pod="$2"
      while [ "$1" != -- ]; do shift; done
      shift 2
      if [ ! -f "$pod.env" ]; then
        echo 'error: Internal error occurred: unable to upgrade connection: container not found ("tenure")' >&2
        exit 1
      fi
      . "./$pod.env"
      "$TENURE" "$@"
      code=$?
      [ $code = 0 ] || echo "command terminated with exit code $code" >&2
      exit $code ;;
  esac
  shift
done
if [ -f fails ]; then cat fails >&2; exit 1; fi
if [ -f endless ]; then exec yes; fi
echo "$list"
"#;

/// The kubectl of a test, with its pods.
struct Shop {
    directory: TempDir,
    plugin: Plugin,
}

impl Shop {
    fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let kubectl = directory.path().join("kubectl");
        std::fs::write(&kubectl, KUBECTL).unwrap();
        std::fs::set_permissions(&kubectl, PermissionsExt::from_mode(0o755)).unwrap();
        let plugin = Plugin::install(directory.path(), directory.path());
        Self { directory, plugin }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Lists these pods for the selector of their election, and for that of all elections.
    fn lists(&self, pods: &[Value]) {
        let list = json!({ "items": pods }).to_string();
        for selector in ["tenure.dev_election", "tenure.dev_election=orders"] {
            std::fs::write(self.file(&format!("pods-{selector}.json")), &list).unwrap();
        }
    }

    /// Connects a pod to a sidecar on this host.
    fn connect(&self, pod: &str, url: &str, more: &str) {
        let text = format!("TENURE={}\nexport TENURE_URL={url}\n{more}\n", tenure());
        std::fs::write(self.file(&format!("{pod}.env")), text).unwrap();
    }

    /// Returns how often kubectl was called with these words.
    fn calls(&self, words: &str) -> usize {
        let calls = std::fs::read_to_string(self.file("calls")).unwrap_or_default();
        calls.lines().filter(|it| it.contains(words)).count()
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.plugin.run(arguments)
    }
}

/// Returns a pod as the chart makes it.
fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "labels": {
            "tenure.dev/election": "orders", "app.kubernetes.io/instance": "release"}},
        "spec": {
            "initContainers": [{"name": "tenure", "restartPolicy": "Always", "args": ["run"]}],
            "containers": [{"name": "service"}],
        },
        "status": {"phase": "Running", "initContainerStatuses": [
            {"name": "tenure", "state": {"running": {}}}]},
    })
}

#[test]
fn leadership_is_shown_stepped_down_from_and_transferred() {
    let shop = Shop::open();
    let mut cluster = Cluster::empty(STEADY);
    let names = ["web-1", "web-2", "web-3"];
    for name in names {
        let admin = format!("unix:{}", shop.file(&format!("{name}.sock")).display());
        cluster.join(name, &["--election", "orders", "--admin", &admin], &[]);
        let url = format!("http://{}", cluster.candidates.last().unwrap().address);
        shop.connect(name, &url, &format!("export TENURE_ADMIN={admin}"));
    }
    shop.lists(&names.map(pod));
    let first = cluster.settle();
    let term = cluster.term(first);

    let ran = shop.run(&["status", "orders", "-n", "shop", "--context", "prod"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[0].starts_with("election  pod    role     state"), "{}", ran.out);
    assert_eq!(
        lines.iter().filter(|it| it.starts_with("orders    web-")).count(),
        3,
        "{}",
        ran.out
    );
    assert!(lines[first + 1].contains(&format!("active   leader   {term}")), "{}", ran.out);
    let summary = format!("orders: {} (term {term}) leads", names[first]);
    assert_eq!(lines.last(), Some(&summary.as_str()), "{}", ran.out);
    let call = "--context=prod --namespace=shop exec web-2 --container tenure -- /tenure status";
    assert_eq!(shop.calls(call), 1);

    let ran = shop.run(&["step-down", "orders", "-n", "shop", "--hold-off", "3s"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let said = ran.out;
    let second = until(PATIENCE, "another leads", || {
        cluster.candidates.iter().position(process::Process::is_leader).filter(|it| *it != first)
    });

    cluster.releases(first);
    cluster.settle();
    let [old, new] = [first, second].map(|it| names[it]);
    let words = format!("{old}: {new} leads in term {} after ", cluster.term(second));
    assert!(said.starts_with(&words), "{said}");
    let third = (0..3).find(|it| ![first, second].contains(it)).unwrap();
    let ran = shop.run(&["transfer", "orders", "--to", names[third], "-o", "json"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["to"], names[third], "{answer}");
    assert_eq!(answer["leader"]["identity"], names[third], "{answer}");
    cluster.releases(second);
    cluster.leads(third, PATIENCE);
    cluster.settle();

    let ran = shop.run(&["transfer", "orders", "--to", names[third]]);
    assert!(ran.code == 1 && ran.err.contains("leads already"), "{}", ran.err);
    let insists =
        ["transfer", "orders", "--to", "web-9", "--force", "--hold-off", "1s", "--no-wait"];
    let ran = shop.run(&insists);
    let words = ["passive at once", "the other candidates wait for web-9 for 1s"];
    assert!(ran.code == 0 && words.iter().all(|it| ran.out.contains(it)), "{}{}", ran.out, ran.err);
    cluster.releases(third);
    let fourth = cluster.settle();
    let third = fourth;
    let ran = shop.run(&["transfer", "orders", "--to", "web-9"]);
    let others = format!("the other candidates are: {}", {
        let others: Vec<&str> = names.into_iter().filter(|it| *it != names[third]).collect();
        others.join(", ")
    });
    assert!(ran.code == 1 && ran.err.contains(&others), "{}", ran.err);

    let ran = shop.run(&["status", "-o", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    let election = &document["elections"][0];
    assert_eq!((&election["leaders"], &election["leader"]), (&"one".into(), &names[third].into()));
    assert_eq!(election["candidates"][third]["status"]["state"], "leader", "{election}");
    cluster.verdict();
}

#[test]
fn a_pod_that_does_not_answer_is_a_row_with_the_reason() {
    let shop = Shop::open();
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 60_000);
    shop.connect("web-1", &sidecar.url(), "");
    shop.connect("web-3", &sidecar.url(), "exec sleep 60");
    let gone = Sidecar::start();
    shop.connect("web-4", &gone.url(), "");
    drop(gone);
    let mut waiting = pod("web-5");
    waiting["status"]["initContainerStatuses"][0]["state"] =
        json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let mut other = pod("web-6");
    other["spec"]["initContainers"][0]["name"] = "other".into();
    let pods = ["web-1", "web-2", "web-3", "web-4"].map(pod).into_iter();
    shop.lists(&pods.chain([waiting, other]).collect::<Vec<_>>());
    let ran = shop.run(&["status", "orders", "--timeout", "2s"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let row = |pod: &str| {
        let line = ran.out.lines().find(|it| it.contains(&format!("orders    {pod}  ")));
        line.unwrap_or_else(|| panic!("no row of {pod}: {}", ran.out)).to_owned()
    };
    assert!(row("web-1").contains("active   leader  42"), "{}", ran.out);
    assert!(row("web-2").contains("unknown  -       -     -     no answer: error: Internal"));
    assert!(row("web-3").contains("no answer within 2s; allow more with --timeout"), "{}", ran.out);
    assert!(row("web-4").contains("no answer: nothing answers at http://"), "{}", ran.out);
    assert!(!row("web-4").contains("command terminated"), "{}", ran.out);
    assert!(row("web-5").contains("the container is waiting: CrashLoopBackOff"), "{}", ran.out);
    assert!(row("web-6").contains("the pod has no container tenure"), "{}", ran.out);
    assert_eq!(shop.calls("exec web-5") + shop.calls("exec web-6"), 0);
    let summary = "web-1 (term 42) leads; no valid answer from web-2, web-3, web-4, web-6\n";
    assert!(ran.out.ends_with(summary), "{}", ran.out);

    // The others do not keep a known leader from a command, which its own sidecar then refuses.
    let ran = shop.run(&["step-down", "orders", "--timeout", "2s"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("pod web-1: no admin address was given"), "{}", ran.err);

    sidecar.report("passive", "standby", None, 0);
    let ran = shop.run(&["step-down", "orders", "--timeout", "2s"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for words in [
        "unknown leader: no valid answer from web-2, web-3, web-4, web-6",
        "web-1 reports that web-1 (term 42) has the lease",
        "the leader may be a pod that did not answer\n  web-2: no answer: error: Internal",
    ] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
}

#[test]
fn a_pod_without_an_end_to_its_output_is_a_row_with_the_reason_and_hides_no_other() {
    let shop = Shop::open();
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 60_000);
    shop.connect("web-1", &sidecar.url(), "");
    // Lines without an end, one line without an end, errors without an end, and a document that is too long.
    let endless = ["yes", "cat /dev/zero", "yes >&2", "head -c 1048577 /dev/zero"];
    let pods = ["web-2", "web-3", "web-4", "web-5"];
    for (pod, command) in pods.iter().zip(endless) {
        shop.connect(pod, &sidecar.url(), &format!("{command}; exit"));
    }
    shop.lists(&["web-1"].iter().chain(&pods).map(|it| pod(it)).collect::<Vec<_>>());
    let ran = shop.run(&["status", "orders"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let line = |pod: &str| {
        let line = ran.out.lines().find(|it| it.contains(&format!("orders    {pod}  ")));
        line.unwrap_or_else(|| panic!("no row of {pod}: {}", ran.out)).to_owned()
    };
    assert!(line("web-1").contains("active   leader  42"), "{}", ran.out);
    for pod in pods {
        assert!(line(pod).ends_with("no answer: it printed more than 1 MiB"), "{}", ran.out);
    }

    shop.connect("web-1", &sidecar.url(), r#"[ "$1" != step-down ] || exec yes"#);
    shop.lists(&[pod("web-1")]);
    let ran = shop.run(&["step-down", "orders"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for words in ["pod web-1: it printed more than 1 MiB", "the command may have been carried out"]
    {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }

    // A list of pods without an end. The limit is small enough for the memory of any machine.
    std::fs::write(shop.file("endless"), "").unwrap();
    let ran = shop.run(&["status", "orders"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("it printed more than 64 MiB\n  select fewer pods"), "{}", ran.err);
}

#[test]
fn two_pods_that_report_active_are_asked_again_and_then_reported() {
    let shop = Shop::open();
    let [one, two] = ["web-1", "web-2"].map(|name| {
        let sidecar = Sidecar::start();
        sidecar.call(name);
        shop.connect(name, &sidecar.url(), "");
        sidecar
    });
    shop.lists(&["web-1", "web-2"].map(pod));
    one.report("active", "leader", Some(41), 60_000);
    two.report("active", "leader", Some(42), 60_000);
    let ran = shop.run(&["status", "orders"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let words = "orders: 2 pods report active at the same time: web-1 (term 41), web-2 (term 42); only \
                 the highest term";
    assert!(ran.out.contains(words), "{}", ran.out);
    assert_eq!((one.count("/status"), two.count("/status")), (2, 2), "each is asked again");

    let ran = shop.run(&["step-down", "orders"]);
    assert!(ran.code == 1 && ran.err.contains("delete the pod with the lower term"), "{}", ran.err);
    assert_eq!(shop.calls("/tenure step-down"), 0);

    // A handover between the answers: the second answer of the old leader is passive.
    let after = Sidecar::start();
    let switch = format!("[ ! -f asked ] || export TENURE_URL={}; touch asked", after.url());
    shop.connect("web-1", &one.url(), &switch);
    let ran = shop.run(&["status", "orders"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.ends_with("orders: web-2 (term 42) leads\n"), "{}", ran.out);
}

#[test]
fn a_command_without_a_leader_is_refused_with_the_reason() {
    let shop = Shop::open();
    let sidecar = Sidecar::start();
    sidecar.call("web-2");
    shop.connect("web-2", &sidecar.url(), "");
    shop.lists(&[pod("web-2")]);
    let ran = shop.run(&["step-down", "orders"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for words in [
        "orders: no leader among these pods: web-2 reports that web-1 (term 42) has the lease",
        "nothing was done: there is no leadership to give up",
        "docs/runbooks/TenureNoLeader.md",
    ] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
    assert_eq!(shop.run(&["status", "orders"]).code, 0, "all have answered");

    sidecar.report("passive", "draining", Some(42), 0);
    let ran = shop.run(&["transfer", "orders", "--to", "web-3"]);
    assert!(ran.code == 1 && ran.err.contains("no leader: web-2 is draining"), "{}", ran.err);

    // An unhealthy successor is refused before the leader gives up leadership.
    sidecar.report("passive", "unhealthy", None, 0);
    let leader = Sidecar::start();
    leader.report("active", "leader", Some(42), 60_000);
    shop.connect("web-1", &leader.url(), "");
    shop.lists(&["web-1", "web-2"].map(pod));
    let ran = shop.run(&["transfer", "orders", "--to", "web-2"]);
    assert!(ran.code == 1 && ran.err.contains("web-2 cannot take over: it is unh"), "{}", ran.err);
    assert_eq!(shop.calls("/tenure transfer"), 0);

    shop.connect("web-1", &leader.url(), r#"[ "$1" != step-down ] || exec sleep 60"#);
    let ran = shop.run(&["step-down", "orders", "--timeout", "2s"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    for words in ["pod web-1: no answer within 2s", "the command may have been carried out"] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
}

#[test]
fn an_election_that_is_not_found_comes_with_those_that_are() {
    let shop = Shop::open();
    let ran = shop.run(&["status"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    for words in ["no running pod in the namespace of kubectl's context", "-A", "--selector"] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
    shop.lists(&[pod("web-1")]);
    let ran = shop.run(&["step-down", "payments", "-n", "shop"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    let words = "no running pod in the namespace shop has the label tenure.dev/election=payments\n  the \
                 elections there are: orders\n";
    assert!(ran.err.contains(words), "{}", ran.err);
    let ran = shop.run(&["status", "release"]);
    let words = "release is a Helm release, and its election is orders";
    assert!(ran.code == 1 && ran.err.contains(words), "{}", ran.err);
}

#[test]
fn pods_without_the_label_are_found_by_a_selector() {
    let shop = Shop::open();
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 60_000);
    shop.connect("web-1", &sidecar.url(), "");
    let mut unlabelled = pod("web-1");
    unlabelled["metadata"]["labels"] = json!({"app": "web"});
    let list = json!({ "items": [unlabelled] }).to_string();
    std::fs::write(shop.file("pods-app=web.json"), list).unwrap();
    for arguments in [&["status", "-l", "app=web"][..], &["status", "orders", "-l", "app=web"]] {
        let ran = shop.run(arguments);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        assert!(ran.out.ends_with("orders: web-1 (term 42) leads\n"), "{}", ran.out);
    }
    assert_eq!(shop.run(&["status", "other", "-l", "app=web"]).code, 1);
}

#[test]
fn errors_of_kubectl_and_of_usage_have_their_exit_codes_and_remedies() {
    let shop = Shop::open();
    let nowhere = shop.plugin.run_in("/nonexistent", &["status"]);
    assert_eq!(nowhere.code, 1, "{}", nowhere.out);
    assert!(nowhere.err.contains("kubectl was not found in PATH\n  install it"), "{}", nowhere.err);

    std::fs::write(shop.file("fails"), "error: context \"prod\" does not exist\n").unwrap();
    let ran = shop.run(&["status", "--context", "prod"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    for words in
        ["error: context \"prod\" does not exist\n", "kubectl get pods failed", "`list` on `pods`"]
    {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }

    let bad: [&[&str]; 6] = [
        &[],
        &["step-down"],
        &["transfer", "orders"],
        &["status", "-A", "-n", "shop"],
        &["status", "Orders,app=x"],
        &["status", "--timeout", "5"],
    ];
    for arguments in bad {
        let ran = shop.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {}{}", ran.out, ran.err);
    }
    for arguments in [&["--help"][..], &["status", "--help"], &["transfer", "--help"]] {
        let ran = shop.run(arguments);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out.contains("Usage: kubectl tenure"), "{}", ran.out);
        let verb = if arguments.len() == 1 { "status" } else { arguments[0] };
        assert!(ran.out.contains(&format!("  kubectl tenure {verb} orders")), "{}", ran.out);
    }
    assert_eq!(shop.run(&["--version"]).code, 0);
}
