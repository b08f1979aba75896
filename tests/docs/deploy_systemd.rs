//! The systemd units, verified by systemd-analyze, and their system call filters, compared with the
//! system calls of Tenure. No unit is started.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The highest permitted exposure level of a unit; 10 is no sandbox at all.
const BOUND: f64 = 2.0;

/// Writes the units for `orders` with the binary under test, and analyzes one of them.
fn analyze(home: &Path, unit: &str, arguments: &[&str]) -> (bool, String) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd");
    for template in ["tenure", "tenure-exec"] {
        let text = fs::read_to_string(source.join(format!("{template}@.service"))).unwrap();
        assert!(text.contains("/usr/local/bin/tenure"), "{template} starts Tenure");
        let text = text.replace("/usr/local/bin/tenure", env!("CARGO_BIN_EXE_tenure"));
        fs::write(home.join(format!("{template}@orders.service")), text).unwrap();
    }
    fs::write(home.join("orders.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    let output = Command::new("systemd-analyze")
        .args(arguments)
        .arg(home.join(unit))
        .output()
        .expect("systemd-analyze runs: tests/run --tools installs Debian's systemd");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn systemd_analyze_accepts_the_units() {
    for unit in ["tenure@orders.service", "tenure-exec@orders.service"] {
        let home = tempfile::tempdir().unwrap();
        let (well, text) = analyze(home.path(), unit, &["verify", "--man=no"]);
        assert!(well && text.is_empty(), "{unit}: {text}");
    }
}

#[test]
fn the_units_have_the_exposure_of_the_readme() {
    for unit in ["tenure@orders.service", "tenure-exec@orders.service"] {
        let home = tempfile::tempdir().unwrap();
        let (_, text) = analyze(home.path(), unit, &["security", "--offline=true", "--no-pager"]);
        let line = text.lines().find(|it| it.contains("Overall exposure level")).expect("a score");
        let score = line.rsplit_once(": ").unwrap().1.split(' ').next().unwrap();
        assert!(score.parse::<f64>().unwrap() <= BOUND, "{line}");
    }
}

/// Returns the system calls of a group, including nested groups.
fn group(name: &str) -> BTreeSet<String> {
    let output = Command::new("systemd-analyze").args(["syscall-filter", name]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let members = text.lines().skip(1).map(str::trim).filter(|it| !it.starts_with('#'));
    members
        .filter(|it| !it.is_empty())
        .flat_map(|it| if it.starts_with('@') { group(it) } else { [it.to_owned()].into() })
        .collect()
}

/// Returns the system calls that a unit permits.
fn let_through(unit: &str) -> BTreeSet<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd");
    let text = fs::read_to_string(source.join(unit)).unwrap();
    let mut calls = BTreeSet::new();
    for filter in text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let named = filter.trim_start_matches('~').split(' ').flat_map(group);
        if filter.starts_with('~') {
            let refused: BTreeSet<_> = named.collect();
            calls.retain(|call| !refused.contains(call));
        } else {
            calls.extend(named);
        }
    }
    assert!(calls.contains("openat") && !calls.contains("reboot"), "{calls:?}");
    calls
}

/// Returns the system calls of Tenure and its child processes, until it exits by itself.
fn system_calls(home: &Path, arguments: &[&str]) -> BTreeSet<String> {
    let trace = home.join("trace");
    let status = Command::new("timeout")
        .args(["60", "strace", "-f", "-qq", "-o"])
        .arg(&trace)
        .arg(env!("CARGO_BIN_EXE_tenure"))
        .args(arguments)
        .env("TENURE_STORE", format!("file://{}", home.join("store").display()))
        .status()
        .expect("strace runs: tests/run --tools installs it");
    assert!(status.success(), "{status}");
    let text = fs::read_to_string(trace).unwrap();
    let call = |line: &str| {
        let rest = line.split_once(' ')?.1.trim_start();
        let rest = rest.strip_prefix("<... ").unwrap_or(rest);
        let end = rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '_')?;
        (end > 0).then(|| rest[..end].to_owned())
    };
    text.lines().filter_map(call).collect()
}

#[test]
fn the_units_filters_allow_every_system_call_of_tenure() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name).display().to_string();
    let (status, admin) = (at("status.json"), format!("unix:{}", at("admin.sock")));
    // Its hook terminates it when it leads.
    let end = "sh -c 'kill -TERM $PPID'";
    let run = ["run", "--status-file", &status, "--admin", &admin, "--on-active", end];
    let beside = ["--health", "exec:true", "--listen", "127.0.0.1:0", "--election", "beside"];
    let alone = system_calls(home.path(), &[&run[..], &beside].concat());
    let exec = ["exec", "--once", "--listen", "127.0.0.1:0", "--", "sleep", "0.1"];
    for (unit, calls) in
        [("tenure@.service", alone), ("tenure-exec@.service", system_calls(home.path(), &exec))]
    {
        let refused: Vec<_> = calls.difference(&let_through(unit)).cloned().collect();
        assert!(calls.contains("execve") && calls.len() > 30, "{unit}: {calls:?}");
        assert!(refused.is_empty(), "{unit} refuses {refused:?}");
    }
}
