//! Scheduled events of Azure: a leader hands over before maintenance of its machine, and does not compete
//! before it is over.

use testkit::azure::metadata_server;
use testkit::processes::process;

use std::time::Duration;

use metadata_server::{MetadataServer, Reply};
use process::{Process, until};
use serde_json::Value;
use time::OffsetDateTime;

/// Enough for several questions, one each 5 s, on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

const MINUTES: Duration = Duration::from_secs(15 * 60);
const DAYS: Duration = Duration::from_secs(7 * 24 * 3600);

fn now() -> OffsetDateTime {
    tenure::clock::now().date()
}

fn start(name: &str, store: &str, service: &MetadataServer) -> Process {
    let arguments = [
        ["--store", store],
        ["--lease-duration", "3s"],
        ["--renew-deadline", "2s"],
        ["--retry-period", "300ms"],
        ["--request-timeout", "500ms"],
        ["--drain-timeout", "300ms"],
        ["--scheduled-events", &service.setting()],
    ];
    Process::run(name, arguments.as_flattened(), &[])
}

fn store() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file://{}", directory.path().display());
    (directory, url)
}

/// Returns what the status document says of maintenance.
fn maintenance(process: &Process) -> Value {
    process.status().map_or(Value::Null, |it| it["maintenance"].clone())
}

/// Waits until a service has been asked so often again that its present events are known.
fn asked_again(service: &MetadataServer) {
    let before = service.questions();
    until(BOUND, "it is asked twice", || (service.questions() >= before + 2).then_some(()));
}

fn warnings(process: &Process) -> Vec<String> {
    let log = process.log();
    let lines = log.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let warnings = lines.filter(|it| it["level"] == "WARN");
    warnings.map(|it| it["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_leader_hands_over_before_maintenance_and_competes_again_when_it_is_over() {
    let (_directory, store) = store();
    let first = MetadataServer::start("web_0");
    let services = [first.beside("web_1"), first];
    let candidates = ["web_1", "web_0"];
    let candidates: Vec<_> = candidates
        .iter()
        .zip(&services)
        .map(|(name, service)| start(name, &store, service))
        .collect();
    let leader = until(BOUND, "one leads", || candidates.iter().position(Process::is_leader));
    let (old, next) = (&candidates[leader], &candidates[1 - leader]);
    let service = &services[leader];

    // The events of a group reach all of its machines.
    let foreign = service.schedule("Redeploy", &["web_2", "web_10"], now() + MINUTES);
    asked_again(service);
    assert!(old.is_leader() && maintenance(old).is_null(), "that is another machine");

    let name = old.name.to_uppercase();
    let event = service.schedule("Reboot", &["web_2", &name], now() + MINUTES);
    until(BOUND, "the other leads", || next.is_leader().then_some(()));
    assert!(maintenance(next).is_null(), "it is on another machine");
    until(BOUND, "it is ineligible", || (old.state()? == "unhealthy").then_some(()));
    let status = old.status().unwrap();
    let shown = &status["maintenance"];
    assert_eq!((&shown["event_id"], &shown["type"]), (&event.clone().into(), &"Reboot".into()));
    assert_eq!((&shown["status"], &shown["imminent"]), (&"Scheduled".into(), &true.into()));
    assert!(shown["not_before"].as_str().unwrap().ends_with('Z'), "{shown}");
    let drained = status["transitions"].as_array().unwrap().iter();
    let mut drained = drained.filter(|it| it["reason"] == "maintenance");
    assert_eq!(drained.next().unwrap()["to"], "draining", "{status}");
    assert_eq!(old.get("/standby").unwrap().0, 503);
    assert_eq!(old.get("/readyz").unwrap().0, 200);
    let url = format!("http://{}", old.address);
    let table = Process::verb(&["status", "--url", &url], &[]).end().out;
    for words in ["machine    Reboot not before 20", "does not compete during maintenance"] {
        assert!(table.contains(words), "{words}: {table}");
    }

    service.begin(&event);
    until(BOUND, "it begins", || (maintenance(old)["status"] == "Started").then_some(()));
    assert!(maintenance(old)["not_before"].is_null());
    assert!(next.is_leader());
    service.finish(&event);
    until(BOUND, "it competes again", || (old.state()? == "standby").then_some(()));
    let status = old.status().unwrap();
    assert!(status["maintenance"].is_null(), "{status}");
    assert_eq!(status["transitions"][0]["reason"], "maintenance-over", "{status}");
    service.finish(&foreign);

    for service in &services {
        let requests = service.requests();
        assert!(requests.iter().all(|it| it.starts_with("GET ")), "it approves none: {requests:?}");
        let names = requests.iter().filter(|it| it.contains("/compute/name")).count();
        assert_eq!(names, 1, "{requests:?}");
    }
}

#[test]
fn an_event_that_is_days_away_is_shown_and_changes_nothing_yet() {
    let (_directory, store) = store();
    let service = MetadataServer::start("web_0");
    service.schedule("Redeploy", &["web_0"], now() + DAYS);
    let only = start("a", &store, &service);
    until(BOUND, "it is shown", || (maintenance(&only)["type"] == "Redeploy").then_some(()));
    asked_again(&service);
    assert_eq!(maintenance(&only)["imminent"], false);
    until(BOUND, "it leads", || only.is_leader().then_some(()));
}

#[test]
fn a_service_that_fails_is_a_warning_once_and_the_election_goes_on() {
    let (_directory, store) = store();
    let service = MetadataServer::start("web_0");
    service.schedule("Freeze", &["web_0"], now() + MINUTES);
    service.reply(Reply::Failure(500));
    let only = start("a", &store, &service);
    until(BOUND, "it leads", || only.is_leader().then_some(()));
    until(BOUND, "it is asked again", || (service.requests().len() >= 3).then_some(()));
    assert!(only.is_leader());
    let [warning] = &warnings(&only)[..] else { panic!("{:?}", warnings(&only)) };
    assert!(warning.contains("answered 500"), "{warning}");
    assert!(warning.contains("/metadata/instance/compute/name"), "{warning}");

    service.reply(Reply::Documented);
    until(BOUND, "it stops competing", || (only.state()? == "unhealthy").then_some(()));
    service.reply(Reply::Hang);
    until(BOUND, "that is a warning", || (warnings(&only).len() == 2).then_some(()));
    assert_eq!(only.state().as_deref(), Some("unhealthy"), "no answer is no end of an event");
}

#[test]
fn the_answer_that_enables_events_may_take_longer_than_others() {
    let (_directory, store) = store();
    let service = MetadataServer::start("web_0");
    // Longer than any other answer may take, and shorter than Azure's two minutes.
    service.delay_first(Duration::from_secs(8));
    service.schedule("Preempt", &["web_0"], now() + Duration::from_secs(30));
    let only = start("a", &store, &service);
    until(BOUND, "it leads meanwhile", || only.is_leader().then_some(()));
    until(BOUND, "it stops competing", || (only.state()? == "unhealthy").then_some(()));
    assert_eq!(warnings(&only), Vec::<String>::new());
}

#[test]
fn requests_carry_the_header_of_the_service_and_use_no_proxy() {
    let (_directory, store) = store();
    let service = MetadataServer::start("web_0");
    let proxy = "http://127.0.0.1:1";
    let source = service.setting();
    let arguments = ["--store", &store, "--scheduled-events", &source];
    let variables = [("HTTP_PROXY", proxy), ("http_proxy", proxy), ("ALL_PROXY", proxy)];
    let _process = Process::run("a", &arguments, &variables);
    until(BOUND, "events are asked for", || (service.questions() > 0).then_some(()));
    for head in service.heads() {
        assert!(head.iter().any(|it| it.eq_ignore_ascii_case("metadata: true")), "{head:?}");
    }
}

#[test]
fn doctor_names_the_machine_and_its_events() {
    let (_directory, store) = store();
    let service = MetadataServer::start("web_0");
    let source = service.setting();
    let doctor = || {
        let ran =
            Process::verb(&["doctor", "--store", &store, "--scheduled-events", &source], &[]).end();
        (ran.code, ran.out)
    };
    let (code, out) = doctor();
    assert!(code == 0 && out.contains("calls this machine web_0"), "{out}");
    assert!(out.contains("none is announced for this machine"), "{out}");
    let event = service.schedule("Freeze", &["web_0"], now() + MINUTES);
    let (code, out) = doctor();
    let words = format!("(event {event}): this instance does not compete until it is over");
    assert!(code == 0 && out.contains("Freeze not before ") && out.contains(&words), "{out}");
    service.reply(Reply::Failure(404));
    let (code, out) = doctor();
    assert!(code == 1 && out.contains("answered 404"), "{out}");
    assert!(out.contains("--scheduled-events off"), "{out}");
}
