//! Who is shown as the leader after a break, a kill and the loss of the store: nobody who does not lead.

use testkit::ports::free_port;
use testkit::processes::process;

use std::path::Path;

use process::{BOUND, Process, run_verb, until};
use serde_json::Value;

/// A renewal is overdue after 1.75 s, or 1 s after the stream told of the last one.
const TIMINGS: [&str; 8] = [
    "--lease-duration",
    "6s",
    "--renew-deadline",
    "4s",
    "--retry-period",
    "500ms",
    "--request-timeout",
    "500ms",
];

fn store(directory: &Path) -> String {
    format!("file://{}", directory.join("lease").display())
}

fn candidate(name: &str, directory: &Path, peers: bool) -> Process {
    let (store, address) = (store(directory), format!("127.0.0.1:{}", free_port()));
    let mut flags = vec!["--store", &store, "--listen", &address];
    if peers {
        flags.extend(["--peers", "--peer-address", &address]);
    }
    flags.extend(TIMINGS);
    Process::run(name, &flags, &[])
}

/// Starts a leader web-1 and a standby web-2 that has seen it.
fn pair(directory: &Path, peers: bool) -> (Process, Process) {
    let first = candidate("web-1", directory, peers);
    until(BOUND, "web-1 leads", || first.is_leader().then_some(()));
    let second = candidate("web-2", directory, peers);
    until(BOUND, "web-2 names web-1", || {
        let document = second.status()?;
        let holder = &document["holder"];
        let is_told = !peers || holder["renewals_shown_by"] == "peers";
        (is_told
            && holder["renewed_ms_ago"].is_u64()
            && shown(&second).contains("leader     web-1"))
        .then_some(())
    });
    (first, second)
}

/// Returns what `tenure status` shows of an instance.
fn shown(of: &Process) -> String {
    run_verb(&["status", "--url", &format!("http://{}", of.address)], &[]).out
}

fn holder_when(of: &Process, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    until(BOUND, what, || Some(of.status()?["holder"].clone()).filter(&is_so))
}

#[test]
fn a_leader_whose_lease_was_broken_is_shown_as_the_leader_by_nobody() {
    for peers in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = pair(directory.path(), peers);
        let broken = run_verb(&["break", "--store", &store(directory.path()), "--yes"], &[]);
        assert_eq!(broken.code, 0, "{} {}", broken.out, broken.err);
        let own = holder_when(&first, "web-1 knows", |it| it["leaving"] == "lost");
        assert_eq!(own["overdue"], true, "{own}");
        let text = shown(&first);
        assert!(text.contains("leader     none: web-1 no longer leads"), "{text}");
        let doubted = |it: &Value| it["overdue"] == true;
        let holder = holder_when(&second, "web-2 doubts web-1", doubted);
        assert_eq!(holder["leaving"], if peers { "lost".into() } else { Value::Null }, "{holder}");
        let left = holder["lease_ends_within_ms"].as_u64().unwrap();
        assert!(left > 1_000 && left < 6_000, "long before the lease ends: {holder}");
        let text = shown(&second);
        assert!(text.contains("its lease ends in at most"), "{text}");
        assert!(!text.contains("active"), "{text}");
    }
}

#[test]
fn a_killed_leader_is_overdue_in_seconds_and_gone_when_the_next_one_leads() {
    for peers in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let (mut first, second) = pair(directory.path(), peers);
        let index = second.status().unwrap()["index"].as_u64().unwrap();
        first.kill();
        let path = format!("/watch?index={index}&wait=10s");
        let told = until(BOUND, "/watch tells of it", || {
            let (_, body) = process::get_within(BOUND, second.address, &path)?;
            let document: Value = serde_json::from_str(&body).ok()?;
            (document["holder"]["overdue"] == true).then_some(document)
        });
        let left = told["holder"]["lease_ends_within_ms"].as_u64().unwrap();
        assert!(left > 1_000, "long before the lease ends: {told}");
        let text = shown(&second);
        assert!(text.contains("leader     web-1 has not renewed for"), "{text}");
        assert!(!text.contains("active"), "{text}");
        until(BOUND, "web-2 leads", || second.is_leader().then_some(()));
        let document = second.status().unwrap();
        let last = &document["last_holder"];
        assert_eq!((&last["identity"], &last["reason"]), (&"web-1".into(), &"expired".into()));
        if peers {
            let is_gone = |it: &Value| it["identity"] == "web-1" && it["gone"] == true;
            until(BOUND, "web-1 is gone", || {
                second.status()?["candidates"].as_array()?.iter().any(is_gone).then_some(())
            });
            assert!(shown(&second).contains("gone, since "));
        }
    }
}

#[test]
fn a_standby_without_its_store_names_no_leader_and_is_not_ready_to_take_over() {
    let directory = tempfile::tempdir().unwrap();
    let (_first, second) = pair(directory.path(), false);
    assert!(shown(&second).contains("ready to take over"));
    let lease = directory.path().join("lease");
    std::fs::rename(&lease, directory.path().join("away")).unwrap();
    std::fs::write(&lease, "not a directory").unwrap();
    until(BOUND, "reads fail", || {
        let failures = second.status()?["store"]["failures"].as_u64()?;
        (failures > 0).then_some(())
    });
    let text = shown(&second);
    assert!(!text.contains("ready to take over") && text.contains("last error"), "{text}");
    let text = until(BOUND, "web-1 is doubted", || {
        Some(shown(&second)).filter(|it| it.contains("no renewal of web-1 was seen for"))
    });
    assert!(!text.contains("active"), "{text}");
    let holder = holder_when(&second, "web-1 is unknown", |it| it["stale"] == true);
    let renewed = holder["renewed_ms_ago"].as_u64().unwrap();
    assert!(renewed < 6_500, "at the latest when the lease must be over: {holder}");
    let text = shown(&second);
    assert!(text.contains("leader     unknown (last seen: web-1, term "), "{text}");
}
