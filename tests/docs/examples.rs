//! The examples of how a service uses Tenure, run with and without a leader.

use testkit::processes::process;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use process::{Process, until};

/// A running example; killed with the test.
struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs an example and returns the first line that it prints.
fn first_line(program: &str, arguments: &[&str], url: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let child = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .env("TENURE_URL", url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} is missing ({error}): run tests/run --tools"));
    let mut example = Example(child);
    let mut line = String::new();
    BufReader::new(example.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn tells_leader_from_nobody(program: &str, arguments: &[&str]) {
    let candidate = Process::run("a", &["--store", "memory:"], &[]);
    until(Duration::from_secs(20), "it leads", || candidate.is_leader().then_some(()));
    let term = candidate.status().unwrap()["term"].as_u64().unwrap();
    let line = first_line(program, arguments, &format!("http://{}", candidate.address));
    assert!(line.starts_with(&format!("leader in term {term}")), "{line}");
    let nobody = format!("http://{}", candidate.address);
    drop(candidate);
    assert_eq!(first_line(program, arguments, &nobody), "standby");
}

#[test]
fn the_shell_example_distinguishes_a_leader_from_no_leader() {
    tells_leader_from_nobody("sh", &["ask.sh"]);
}

#[test]
fn the_python_example_distinguishes_a_leader_from_no_leader() {
    tells_leader_from_nobody("python3", &["ask.py"]);
}

#[test]
fn the_go_example_distinguishes_a_leader_from_no_leader() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("ask");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg("ask.go")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples"))
        .status()
        .expect("Go is missing: install golang");
    assert!(built.success());
    tells_leader_from_nobody(program.to_str().unwrap(), &[]);
}

#[test]
fn the_javascript_example_distinguishes_a_leader_from_no_leader() {
    tells_leader_from_nobody("node", &["ask.mjs"]);
}

/// Starts a process of the example with an embedded candidate; killed with the test.
fn embedded(store: &str) -> (Example, std::io::Lines<BufReader<std::process::ChildStdout>>) {
    let program = Path::new(env!("CARGO_BIN_EXE_tenure")).with_file_name("examples/embedded");
    let child = Command::new(program).arg(store).stdout(Stdio::piped()).spawn();
    let mut example = Example(child.expect("it is missing: cargo build --example embedded"));
    let lines = BufReader::new(example.0.stdout.take().unwrap()).lines();
    (example, lines)
}

#[test]
fn the_embedded_example_hands_over_without_losing_work() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().display());
    let (mut first, lines) = embedded(&store);
    let mut lines = lines.map(Result::unwrap);
    let term = |line: &str| line.strip_prefix("leads in term ")?.parse::<u64>().ok();
    let older = lines.find_map(|line| term(&line)).expect("it leads");
    let job = format!("job 1 with the fencing token {older}");
    assert!(lines.any(|line| line == job), "{job}");
    let (_second, mut successor) = embedded(&store);
    assert!(successor.next().unwrap().unwrap().contains("competes"));
    let id = rustix::process::Pid::from_raw(first.0.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let rest: Vec<String> = lines.collect();
    assert!(rest.iter().any(|line| line.contains("none of them cut off")), "{rest:?}");
    assert!(rest.last().unwrap().ends_with("has left"), "{rest:?}");
    assert!(first.0.wait().unwrap().success());
    let newer = successor.map(Result::unwrap).find_map(|line| term(&line)).expect("it follows");
    assert!(newer > older);
}
