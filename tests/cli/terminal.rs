//! `tenure status` and `tenure watch` on a terminal, with a real sidecar.

use testkit::processes::{process, sidecar};

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use process::{BOUND, Process, run_verb, until};
use rustix::process::Signal;
use sidecar::Sidecar;

/// Runs `tenure` on a pseudo-terminal, created by util-linux's `script`.
fn on_a_terminal(arguments: &str, variables: &[(&str, &str)]) -> Process {
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_tenure"));
    let mut script = Command::new("script");
    script
        .args(["-qfec", &command, "/dev/null"])
        .env_clear()
        .env("TERM", "xterm")
        .env("PATH", "/usr/bin:/bin")
        .env("SHELL", "/bin/sh")
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    Process::spawn("script, of the package bsdutils", script)
}

/// Starts a candidate with a short retry-period, so that the test need not wait.
fn candidate(name: &str, directory: &Path) -> Process {
    let store = format!("file://{}", directory.join("lease").display());
    let arguments = ["--store", &store, "--retry-period", "200ms"];
    let it = Process::run(name, &arguments, &[]);
    let holder = |it: &Process| it.status()?["holder"]["identity"].as_str().map(str::to_owned);
    until(Duration::from_secs(20), "a leader is seen", || holder(&it));
    it
}

#[test]
fn watch_on_a_terminal_prints_a_line_for_each_change() {
    let directory = tempfile::tempdir().unwrap();
    let (mut first, second) =
        (candidate("first", directory.path()), candidate("second", directory.path()));
    let watch = format!("watch --url http://{}", second.address);
    for (variables, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let mut watching = on_a_terminal(&watch, variables);
        let mut numbers = 0..;
        let mut next = || watching.line(numbers.next().unwrap(), BOUND).unwrap();
        let (head, line) = (next(), next());
        assert!(head.contains("UTC       state       term"), "{head}");
        assert!(line.contains("standby") && line.contains("first  "), "{line}");
        assert!(line.trim_end().ends_with("present state"), "{line}");
        assert_eq!(line.contains('\x1b'), coloured, "{line}");
        if coloured {
            continue;
        }
        first.signal(Signal::TERM);
        let mut seen = vec![next()];
        while !seen.last().unwrap().contains("the term was written") {
            seen.push(next());
        }
        let line = seen.last().unwrap();
        assert!(line.contains("  leader      ") && line.contains("  second  "), "{line}");
        let column = |it: &str, word| it.find(word).unwrap();
        assert_eq!(column(line, "second"), column(&head, "holder"), "{head}\n{line}");
        assert_eq!(column(line, "the term"), column(&head, "why"), "{head}\n{line}");
        assert!(seen.iter().any(|it| it.contains("the lease was acquired")), "{seen:?}");
        assert!(seen.iter().all(|it| !it.contains('{')), "{seen:?}");
    }
    first.wait(BOUND);
}

#[test]
fn colours_follow_the_flag_the_variables_and_the_terminal() {
    let sidecar = Sidecar::start();
    sidecar.report("active", "leader", Some(42), 60_000);
    let status = format!("status --url {}", sidecar.url());
    let forced = [("CLICOLOR_FORCE", "1")];
    let (plain, dumb) = ([("NO_COLOR", "1")], [("TERM", "dumb")]);
    for (flag, variables, on_terminal, in_pipe) in [
        ("", &[][..], true, false),
        ("", &forced, true, true),
        ("", &plain, false, false),
        ("", &[("NO_COLOR", "")], true, false),
        ("", &dumb, false, false),
        (" --color always", &plain, true, true),
        (" --color=never", &forced, false, false),
        (" --color auto", &forced, true, true),
    ] {
        for (line, code) in
            [(status.as_str(), 0), ("status --help", 0), ("status --no-such-flag", 2)]
        {
            let line = format!("{line}{flag}");
            let shown = on_a_terminal(&line, variables).end();
            assert_eq!(shown.code, code, "{line}: {}", shown.out);
            assert_eq!(
                shown.out.contains('\x1b'),
                on_terminal,
                "{line} {variables:?}: {}",
                shown.out
            );
            let arguments: Vec<&str> = line.split(' ').collect();
            let piped = run_verb(&arguments, variables);
            let text = piped.out + &piped.err;
            assert_eq!(text.contains('\x1b'), in_pipe, "{line} {variables:?}: {text}");
        }
    }
    let ran = run_verb(&["status", "--color", "often"], &[]);
    assert!(ran.code == 2 && ran.err.contains("always"), "{}", ran.err);
}

#[test]
fn watch_in_a_pipe_prints_json_despite_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let it = candidate("it", directory.path());
    let url = format!("http://{}", it.address);
    let mut watching = Process::verb(&["watch", "--url", &url], &[("TERM", "xterm")]);
    let line = watching.line(0, BOUND).unwrap();
    let document: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(document["identity"], "it");
}

#[test]
fn status_shows_the_candidates_and_the_last_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) =
        (candidate("first", directory.path()), candidate("second", directory.path()));
    let url = |it: &Process| format!("http://{}", it.address);
    let table = run_verb(&["status", "--url", &url(&first)], &[]).out;
    for words in [
        "\ncandidate  role    state   term",
        "\nfirst      active  ",
        "this instance leads\n",
        "the term was written, term",
    ] {
        assert!(table.contains(words), "{words} in {table}");
    }
    let table = run_verb(&["status", "--url", &url(&second)], &[]).out;
    for words in [
        "\nsecond     passive  standby  -",
        "\nfirst      holder   -",
        "the store answered for the",
    ] {
        assert!(table.contains(words), "{words} in {table}");
    }
    let document = run_verb(&["status", "--json", "--url", &url(&first)], &[]).out;
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    let states: Vec<_> =
        document["transitions"].as_array().unwrap().iter().map(|it| it["to"].clone()).collect();
    assert_eq!(states, ["leader", "activating", "standby"]);

    let shown = on_a_terminal(&format!("status --url {}", url(&second)), &[]).end();
    assert!(shown.out.contains('\x1b'), "{}", shown.out);
}
