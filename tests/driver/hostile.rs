//! Hostile endpoints of health probes and webhooks: what they send costs their own request only.

use testkit::faults::flood;
use testkit::processes::process;

use std::time::{Duration, Instant};

use flood::{EARLY_HINTS, Flood};
use process::{Process, until};

/// The timeout of any expected change.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn fault_38_a_flood_from_an_endpoint_fails_its_own_probe_or_webhook() {
    let body = "HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n";
    let redirect = "HTTP/1.1 307 x\r\nlocation: /\r\ncontent-length: 0\r\n\r\n";
    for (head, flood, succeeds, words) in [
        ("", EARLY_HINTS, false, "no answer within 1s"),
        ("HTTP/1.1 200 OK\r\n", "a: b\r\n", false, "the head of the answer is too long"),
        ("HTTP/1.1 200 OK\r\na: ", "b", false, "the head of the answer is too long"),
        (body, "b", true, "200 OK"),
        (redirect, "", false, "307"),
    ] {
        let endpoint = Flood::start(head, flood);
        let health = ["--store", "memory:", "--health", &endpoint.url()];
        let observer = Process::run("a", &health, &[]);
        let said = until(PATIENCE, "the probe has a result", || {
            Some(observer.status()?["health"]["probes"][0]["said"].as_str()?.to_owned())
        });
        assert!(said.contains(words), "{head}{flood}: {said}");
        until(PATIENCE, "its connections are closed", || (endpoint.closed() > 0).then_some(()));
        assert_eq!(observer.get("/livez").unwrap().0, 200);

        let hook = ["--store", "memory:", "--on-active", &endpoint.url(), "--hook-timeout", "1s"];
        let leader = Process::run("b", &hook, &[]);
        let outcome = match words {
            _ if succeeds => "ok",
            "no answer within 1s" => "timeout",
            _ => "failed",
        };
        until(PATIENCE, "the webhook has run", || {
            let (_, text) = leader.get("/metrics")?;
            let is_ours = |line: &&str| {
                line.starts_with("tenure_hook_runs_total")
                    && line.contains("\"on-active\"")
                    && line.contains(&format!("\"{outcome}\""))
            };
            text.lines().find(is_ours)?.ends_with(" 1").then_some(())
        });
        assert!(leader.is_leader());
    }
}

#[test]
fn a_probe_that_changes_without_end_cannot_fill_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let health = format!("file:{}", file.display());
    let arguments = ["--store", "memory:", "--health", &health, "--health-interval", "20ms"];
    let began = Instant::now();
    let it = Process::run("a", &arguments, &[]);
    // As a service does that is up and down: each change is a line.
    until(PATIENCE, "lines are left out", || {
        if file.exists() { std::fs::remove_file(&file) } else { std::fs::write(&file, "") }
            .unwrap();
        std::thread::sleep(Duration::from_millis(45));
        let (_, text) = it.get("/metrics")?;
        let dropped = |line: &&str| line.starts_with("tenure_log_lines_dropped_total");
        let dropped: f64 = text.lines().find(dropped)?.rsplit(' ').next()?.parse().ok()?;
        (dropped > 40.0).then_some(())
    });
    let log = it.log();
    let most = 31 + began.elapsed().as_secs() / 2;
    for word in ["health probe failed", "health probe succeeded"] {
        let lines = log.lines().filter(|it| it.contains(word)).count() as u64;
        assert!(lines <= most, "{lines} lines of {word:?}, and {most} at most: {log}");
    }
    assert!(log.contains("log lines were left out"), "{log}");
}
