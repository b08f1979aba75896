//! `tenure check`: its exit codes by a sidecar that serves the documented status, and by status files.

use testkit::processes::{process, sidecar};

use std::path::Path;
use std::time::Duration;

use process::{BOUND, Process, run_verb, until};
use sidecar::Sidecar;

#[test]
fn check_answers_by_exit_code() {
    let sidecar = Sidecar::start();
    let url = sidecar.url();
    let check = |more: &[&str]| {
        let arguments: Vec<_> = ["check", "--url", &url].iter().chain(more).copied().collect();
        run_verb(&arguments, &[])
    };
    let ran = check(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "passive: standby\n"));

    sidecar.report("active", "leader", Some(42), 60_000);
    let ran = check(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("active: term 42, 5"), "{}", ran.out);
    assert_eq!(check(&["--min-remaining", "30s"]).code, 0);
    assert_eq!(check(&["--min-remaining", "61s"]).code, 1);

    // A sidecar never serves a status that is active with no time left; it must not be trusted.
    sidecar.report("active", "leader", Some(42), 0);
    assert_eq!(check(&[]).code, 1);

    sidecar.say_nonsense();
    let ran = check(&[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("other than a status"), "{}", ran.err);

    drop(sidecar);
    let ran = check(&[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("nothing answers") && ran.err.contains("tenure run"), "{}", ran.err);
    assert!(ran.out.is_empty());
    assert_eq!(run_verb(&["check", "--url", "ftp://x"], &[]).code, 2);
}

#[test]
fn check_tells_whether_a_sidecar_is_live_or_ready() {
    let scratch = tempfile::tempdir().unwrap();
    let store = format!("file://{}", scratch.path().display());
    let sidecar = Process::run("orders-1", &["--store", &store], &[]);
    let url = format!("http://{}", sidecar.address);
    until(BOUND, "it has reached the store", || sidecar.is_leader().then_some(()));
    for what in ["live", "ready"] {
        let ran = run_verb(&["check", "--for", what, "--url", &url], &[]);
        assert_eq!((ran.code, ran.out), (0, format!("{what}\n")), "{}", ran.err);
        let more = ["check", "--for", what, "--url", &url, "--min-remaining", "1s"];
        assert_eq!(run_verb(&more, &[]).code, 2, "neither has a time");
    }
    // Nothing answers at this API server, so the store was never reached.
    let flags = ["--store", "kubernetes:shop/orders", "--kube-api", "http://127.0.0.1:1"];
    let cut_off = Process::run("orders-1", &flags, &[]);
    let url = format!("http://{}", cut_off.address);
    let ran = run_verb(&["check", "--for", "ready", "--url", &url], &[]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "not ready\n"), "{}", ran.err);
    assert_eq!(run_verb(&["check", "--for", "live", "--url", &url], &[]).code, 0);
    drop(cut_off);
    let ran = run_verb(&["check", "--for", "live", "--url", &url], &[]);
    assert_eq!(ran.code, 2, "{}", ran.out);
}

#[test]
fn check_counts_from_sending_its_request() {
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 400);
    sidecar.delay(Duration::from_millis(500));
    let ran = run_verb(&["check", "--url", &sidecar.url()], &[]);
    assert_eq!(ran.code, 1, "what was true when it was said is over: {}", ran.out);
}

#[test]
fn check_gives_up_on_a_sidecar_that_hangs() {
    let sidecar = Sidecar::start();
    sidecar.delay(Duration::from_secs(8));
    let ran = run_verb(&["check", "--url", &sidecar.url()], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("no answer from") && ran.err.contains("within 2s"), "{}", ran.err);
}

#[test]
fn the_url_may_be_a_variable_or_a_unix_socket() {
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 60_000);
    assert_eq!(run_verb(&["check"], &[("TENURE_URL", &sidecar.url())]).code, 0);
    let address = sidecar.address.to_string();
    for url in [address.clone(), format!("{address}/status"), format!("{}/leader", sidecar.url())] {
        assert_eq!(run_verb(&["check", "--url", &url], &[]).code, 0, "{url}");
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    sidecar.also_at(&socket);
    let url = format!("unix:{}", socket.display());
    assert_eq!(run_verb(&["check", "--url", &url], &[("TENURE_URL", "ftp://unused")]).code, 0);
    let ran = run_verb(&["check", "--url", "unix:/nonexistent"], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("nothing answers at unix:/nonexistent"), "{}", ran.err);
}

/// Writes a status file in both formats.
fn write_files(directory: &Path, role: &str, boot_id: &str, until: Duration) -> [String; 2] {
    let until = until.as_nanos();
    let json = format!(
        r#"{{"role":"{role}","state":"leader","election":"o","identity":"i","term":42,
        "valid_until":"2026-11-20T09:00:00Z","valid_until_boottime_ns":{until},"boot_id":"{boot_id}"}}"#
    );
    let env = format!(
        "TENURE_ROLE='{role}'\nTENURE_STATE='leader'\nTENURE_ELECTION='o'\nTENURE_IDENTITY='i'\n\
         TENURE_TERM='42'\nTENURE_VALID_UNTIL='2026-11-20T09:00:00Z'\n\
         TENURE_VALID_UNTIL_BOOTTIME_NS='{until}'\nTENURE_BOOT_ID='{boot_id}'\n"
    );
    [("s.json", json), ("s.env", env)].map(|(name, text)| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    })
}

#[test]
fn check_trusts_a_file_of_this_boot_until_its_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let boot_id = tenure::clock::boot_id().unwrap();
    let now = tenure::clock::now().boot;
    let later = now + Duration::from_secs(60);
    let cases = [
        ("active", boot_id.as_str(), later, 0, "active: term 42, "),
        ("active", &boot_id, now, 1, "the file has expired"),
        ("active", "another", later, 1, "before the last boot"),
        ("passive", &boot_id, later, 1, "passive: leader"),
    ];
    for (role, boot_id, until, code, words) in cases {
        for file in write_files(directory.path(), role, boot_id, until) {
            let ran = run_verb(&["check", "--file", &file], &[]);
            assert_eq!(ran.code, code, "{file}: {}{}", ran.out, ran.err);
            assert!(ran.out.contains(words), "{words} in {}", ran.out);
        }
    }
    let [json, _] = write_files(directory.path(), "active", &boot_id, later);
    assert_eq!(run_verb(&["check", "--file", &json, "--min-remaining", "30s"], &[]).code, 0);
    assert_eq!(run_verb(&["check", "--file", &json, "--min-remaining", "61s"], &[]).code, 1);

    std::fs::write(&json, "{\"role\":").unwrap();
    assert_eq!(run_verb(&["check", "--file", &json], &[]).code, 2);
    let ran = run_verb(&["check", "--file", "/nonexistent.json"], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("/nonexistent.json could not be read"), "{}", ran.err);
}
