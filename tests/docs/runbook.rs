//! The commands of docs/operating.md and docs/drain.md, run verbatim.

use testkit::processes::process;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use process::{Process, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A pair of candidates of which web-1 leads, and the environment of its operator.
struct Pair {
    variables: Vec<(&'static str, String)>,
    candidates: [Process; 2],
    _directory: tempfile::TempDir,
}

impl Pair {
    fn start(drain_timeout: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("lease")).unwrap();
        let store = format!("file://{}", directory.path().join("lease").display());
        let start = |name: &str| {
            let admin = format!("unix:{}", directory.path().join(name).display());
            let arguments =
                ["--store", &store, "--admin", &admin, "--drain-timeout", drain_timeout];
            Process::run(name, &arguments, &[])
        };
        let first = start("web-1");
        until(PATIENCE, "web-1 leads", || first.is_leader().then_some(()));
        let second = start("web-2");
        let stands_by = || (second.state()? == "standby").then_some(());
        until(PATIENCE, "web-2 stands by", stands_by);
        let admin = format!("unix:{}", directory.path().join("web-1").display());
        let variables = vec![
            ("TENURE_STORE", store),
            ("TENURE_ADMIN", admin),
            ("TENURE_URL", format!("http://{}", first.address)),
        ];
        Self { variables, candidates: [first, second], _directory: directory }
    }

    /// Runs a block of commands, each of which must succeed.
    fn run(&self, block: &str) {
        let tenure = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
        let path = format!("{}:/usr/bin:/bin", tenure.display());
        let output = Command::new("sh")
            .args(["-euxc", block])
            .env_clear()
            .env("PATH", path)
            .envs(self.variables.iter().map(|(name, value)| (*name, value.as_str())))
            .output()
            .unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{block}\n{out}\n{err}");
    }
}

/// Returns the shell blocks of a page.
fn blocks(page: &str) -> Vec<&str> {
    let blocks: Vec<_> = page
        .split("```sh\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert!(!blocks.is_empty());
    blocks
}

#[test]
fn the_commands_of_the_runbook_work_as_described() {
    for block in blocks(include_str!("../../docs/operating.md")) {
        let pair = Pair::start("0s");
        pair.run(block);
        let [first, second] = &pair.candidates;
        let leaves = ["step-down", "transfer", "wait --for passive"];
        if leaves.iter().any(|it| block.contains(it)) {
            until(PATIENCE, &format!("web-2 leads after {block}"), || {
                second.is_leader().then_some(())
            });
        }
        assert!(!(first.is_leader() && second.is_leader()), "{block}");
    }
}

#[test]
fn the_commands_of_the_page_on_drains_end_a_drain_early() {
    for block in blocks(include_str!("../../docs/drain.md")) {
        let pair = Pair::start("1m");
        pair.run(block);
        until(Duration::from_secs(40), "web-2 leads", || {
            pair.candidates[1].is_leader().then_some(())
        });
    }
}
