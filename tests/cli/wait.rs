//! `tenure wait` from the user's view, with a fake sidecar that serves the documented status.

use testkit::processes::{process, sidecar};

use std::process::Command;

use process::{BOUND, Process, run_verb};
use sidecar::Sidecar;

#[test]
fn wait_ends_when_its_condition_holds_and_with_1_on_timeout() {
    let sidecar = Sidecar::start();
    let url = sidecar.url();
    assert_eq!(run_verb(&["wait", "--for", "passive", "--url", &url], &[]).code, 0);

    let ran = run_verb(&["wait", "--for", "active", "--timeout", "100ms", "--url", &url], &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("not active within 100ms; last: passive, standby"), "{}", ran.err);

    let polls = sidecar.count("/watch?index=");
    let waiting = Process::verb(&["wait", "--for", "active", "--url", &url], &[]);
    sidecar.wait_for("/watch?index=1");
    sidecar.report("active", "leader", Some(42), 60_000);
    assert_eq!(waiting.end().code, 0);
    assert!(sidecar.count("/watch?index=") <= polls + 1, "by one long poll, and not by asking on");

    let waiting = Process::verb(&["wait", "--for", "passive", "--url", &url], &[]);
    sidecar.wait_for("/watch?index=2");
    sidecar.report("passive", "standby", None, 0);
    assert_eq!(waiting.end().code, 0);
}

#[test]
fn wait_survives_a_sidecar_that_is_not_up_yet_or_restarts() {
    let sidecar = Sidecar::start();
    let (address, url) = (sidecar.address, sidecar.url());
    drop(sidecar);
    let mut waiting = Process::verb(&["wait", "--for", "active", "--url", &url], &[]);
    process::until(BOUND, "it reports that nothing answers", || {
        waiting.log().contains("nothing answers").then_some(())
    });

    let sidecar = Sidecar::start_at(address);
    sidecar.wait_for("/watch?index=");
    drop(sidecar);
    let sidecar = Sidecar::start_at(address);
    sidecar.report("active", "leader", Some(43), 60_000);
    assert_eq!(waiting.wait(BOUND).code(), Some(0));
}

#[test]
fn wait_pauses_between_polls_that_end_at_once() {
    let sidecar = Sidecar::start();
    sidecar.end_polls_at_once();
    let url = sidecar.url();
    let ran = run_verb(&["wait", "--for", "active", "--timeout", "2s", "--url", &url], &[]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    // Four per second at most.
    let polls = sidecar.count("/watch?index=");
    assert!((1..=9).contains(&polls), "{polls} polls in 2 s");
}

#[test]
fn wait_at_most_succeeds_on_timeout() {
    let sidecar = Sidecar::start();
    let url = sidecar.url();
    sidecar.report("active", "leader", Some(42), 60_000);
    let ran = run_verb(&["wait", "--for", "passive", "--at-most", "100ms", "--url", &url], &[]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("not passive within 100ms"), "{}", ran.err);

    let waiting = Process::verb(&["wait", "--for=passive", "--at-most=1h", "--url", &url], &[]);
    sidecar.wait_for("/watch?index=");
    sidecar.report("passive", "standby", None, 0);
    assert_eq!(waiting.end().code, 0);

    let both = run_verb(&["wait", "--for", "passive", "--at-most", "1s", "--timeout", "1s"], &[]);
    assert_eq!(both.code, 2, "{}", both.err);
}

#[test]
fn wait_for_exactly_one_requires_an_answer_of_every_address() {
    let sidecars: Vec<Sidecar> = (0..3).map(|_| Sidecar::start()).collect();
    for (number, it) in sidecars.iter().enumerate() {
        it.call(&format!("pod-{number}"));
    }
    let urls: Vec<String> = sidecars.iter().map(Sidecar::url).collect();
    let ask = |of: &str, timeout: &str| {
        let mut arguments = vec!["wait", "--for=exactly-one", "--of", of, "--timeout", timeout];
        arguments.extend(urls.iter().flat_map(|it| ["--url", it.as_str()]));
        Process::verb(&arguments, &[])
    };
    let none = ask("3", "1s").end();
    assert_eq!(none.code, 1);
    assert!(none.err.contains("last: 0 of 3 active, 3 expected to answer"), "{}", none.err);

    let waiting = ask("3", "1h");
    sidecars[1].wait_for("/status");
    sidecars[1].report("active", "leader", Some(42), 60_000);
    assert_eq!(waiting.end().code, 0);

    let more = ask("4", "1s").end();
    assert_eq!(more.code, 1, "one of four is missing");
    assert!(more.err.contains("last: 1 of 3 active, 4 expected to answer"), "{}", more.err);

    sidecars[2].report("active", "leader", Some(43), 60_000);
    let two = ask("3", "1h").end();
    assert_eq!(two.code, 1);
    let expected = "pod-1 (term 42) and pod-2 (term 43) are active at the same time";
    assert!(two.err.contains(expected), "{}", two.err);
}

#[test]
fn wait_for_exactly_one_refuses_a_silent_address_and_counts_an_instance_once() {
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 60_000);
    let url = sidecar.url();
    let gone = Sidecar::start();
    let silent = gone.url();
    drop(gone);
    let goal = ["wait", "--for=exactly-one", "--timeout=1s", "--url", &url, "--url"];
    let with = |other: &str, more: &[&str]| {
        let arguments = goal.iter().chain([&other]).chain(more);
        run_verb(&arguments.copied().collect::<Vec<_>>(), &[])
    };
    let ran = with(&silent, &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("last: 1 of 1 active, 1 expected to answer; nothing"), "{}", ran.err);

    assert_eq!(with(&url, &[]).code, 0, "two addresses of one instance are no two leaders");
    assert_eq!(with(&url, &["--of", "2"]).code, 1, "nor two candidates");
}

#[test]
fn wait_for_a_role_is_about_one_sidecar() {
    let ran =
        run_verb(&["wait", "--for=active", "--url", "http://a:1", "--url", "http://b:1"], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("--url is given several times"), "{}", ran.err);
}

#[test]
fn as_process_1_a_verb_that_waits_ends_by_a_signal_as_any_process_does() {
    let place = tempfile::tempdir().unwrap();
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        for verb in [&["wait", "--for", "active"][..], &["watch"]] {
            let socket = format!("unix:{}", place.path().join("nobody.sock").display());
            let mut command = Command::new("unshare");
            command
                .args(["--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"])
                .arg(env!("CARGO_BIN_EXE_tenure"))
                .args(verb)
                .args(["--url", &socket]);
            let verb = Process::spawn("unshare", command);
            process::until(BOUND, "it sends a request", || {
                verb.log().contains("nobody.sock").then_some(())
            });
            let children = format!("/proc/{0}/task/{0}/children", verb.id());
            let first = std::fs::read_to_string(children).unwrap();
            let sent = Command::new("kill").args(["-s", signal, first.trim()]).status();
            assert!(sent.unwrap().success());
            assert_eq!(verb.end().code, code);
        }
    }
}
