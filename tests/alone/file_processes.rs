//! The file store in real processes that are killed and stopped at random moments.

use testkit::processes::{file_child, process};

use std::path::Path;

use file_child::{
    GO, LEASE, bid, draw, has_reported, now, open, pause, random, reports, start, start_as, until,
};
use process::{Process, has_stopped};
use rustix::process::{Signal, kill_process};
use tempfile::TempDir;
use tenure::clock;
use tenure::lease::{Cause, StoreError};
use tenure::store::LeaseStore;

/// The entry point of the child processes; does nothing otherwise.
#[test]
fn file_child() {
    file_child::play_role();
}

fn scratch() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn a_record_is_whole_at_every_moment_and_after_every_kill() {
    let scratch = scratch();
    let store = open(scratch.path());
    let mut last = 0;
    for round in 0..25 {
        let mut process = start("write", scratch.path());
        until("a term", || !reports(&process, "term").is_empty());
        let end = clock::now();
        let length = random(30);
        while end.elapsed_max(clock::now()) < length {
            now(store.read()).expect("a whole record, read while it is written");
        }
        process.kill();
        let terms: Vec<u64> =
            reports(&process, "term").iter().map(|term| term.parse().expect("a term")).collect();
        let snapshot = now(store.read()).expect("a whole record");
        let term = snapshot.record.term.expect("a term");
        assert!(terms.is_sorted_by(|a, b| a < b) && terms[0] > last, "{last} {terms:?}");
        assert!(term >= terms[terms.len() - 1], "round {round}: {term} after {terms:?}");
        assert_eq!(reports(&process, "error"), Vec::<String>::new());
        last = term;
    }
}

/// One leadership, as its leader reported it.
#[derive(Debug)]
struct Tenure {
    term: u64,
    from: u128,
    until: u128,
}

fn numbers(line: &str) -> Vec<u128> {
    line.split(' ').map(|number| number.parse().expect("a number")).collect()
}

fn tenures(process: &Process) -> Vec<Tenure> {
    let mut tenures: Vec<Tenure> = Vec::new();
    for line in reports(process, "claim") {
        let [term, from, until] = numbers(&line)[..] else { panic!("{line}") };
        let term = u64::try_from(term).expect("a term");
        match tenures.last_mut() {
            Some(last) if last.term == term => last.until = last.until.max(until),
            _ => tenures.push(Tenure { term, from, until }),
        }
    }
    for line in reports(process, "resign") {
        let [term, at] = numbers(&line)[..] else { panic!("{line}") };
        if let Some(tenure) = tenures.iter_mut().find(|it| u128::from(it.term) == term) {
            tenure.until = tenure.until.min(at);
        }
    }
    tenures
}

#[test]
fn candidates_killed_or_stopped_at_any_time_never_overlap_and_terms_increase() {
    let scratch = scratch();
    let mut processes: Vec<_> = (0..3).map(|_| start("contend", scratch.path())).collect();
    let mut gone = Vec::new();
    let mut signals = 0;
    until("a leader", || processes.iter().any(|it| !reports(it, "claim").is_empty()));
    // Enough signals to hit a process that writes the lease late, and until each process has led.
    while signals < 40 || processes.iter().any(|it| reports(it, "claim").is_empty()) {
        signals += 1;
        assert!(signals < 400, "some process never led");
        let victim = usize::try_from(draw() % 3).expect("small");
        pause(random(60));
        if draw().is_multiple_of(4) {
            processes[victim].kill();
            let next = start("contend", scratch.path());
            gone.push(std::mem::replace(&mut processes[victim], next));
        } else {
            kill_process(processes[victim].pid(), Signal::STOP).expect("signalled");
            pause(random(if draw().is_multiple_of(2) { 1200 } else { 20 }));
            processes[victim].signal(Signal::CONT);
        }
    }
    for process in &mut processes {
        process.kill();
    }
    let all: Vec<_> = processes.iter().chain(&gone).collect();
    for process in &all {
        assert_eq!(reports(process, "error"), Vec::<String>::new());
    }
    let mut tenures: Vec<_> = all.iter().flat_map(|it| tenures(it)).collect();
    tenures.sort_by_key(|it| it.from);
    assert!(tenures.len() > 10, "hardly anybody led: {tenures:?}");
    for pair in tenures.windows(2) {
        assert!(pair[0].until <= pair[1].from, "two led at once: {pair:?}");
        assert!(pair[0].term < pair[1].term, "a term fell or was shared: {pair:?}");
    }
}

/// Starts a candidate that stops while it holds the lock, and asserts that meanwhile others can
/// change nothing, and get correct answers.
fn stopped_with_the_lock(role: &str, directory: &Path) -> Process {
    let process = start(role, directory);
    until("the stop", || has_stopped(process.pid()));
    let store = open(directory);
    let busy =
        now(async { store.acquire(&bid(&store).await).await }).expect_err("the lock is taken");
    assert!(matches!(&busy, StoreError::Unknown(it) if it.cause == Cause::Unavailable), "{busy:?}");
    assert!(busy.to_string().contains("stopped"), "{busy}");
    assert!(now(store.read()).expect("a read needs no lock").free);
    process
}

fn go_on_too_late(process: &Process, directory: &Path) {
    let begun = clock::now();
    until("the end of its lease", || begun.elapsed_min(clock::now()) > LEASE);
    std::fs::write(directory.join(GO), "").expect("written");
    process.signal(Signal::CONT);
}

#[test]
fn a_candidate_stopped_with_the_lock_writes_nothing_after_its_deadline() {
    let scratch = scratch();
    let process = stopped_with_the_lock("stop before writing", scratch.path());
    go_on_too_late(&process, scratch.path());
    until("an answer", || !reports(&process, "error").is_empty());
    assert!(reports(&process, "error")[0].contains("longer than the lease-duration"));
    assert!(!scratch.path().join("orders.json").exists());
}

#[test]
fn a_late_write_of_a_candidate_stopped_with_the_lock_has_already_expired() {
    let scratch = scratch();
    let role = "stop after the last look at the clock";
    let process = stopped_with_the_lock(role, scratch.path());
    go_on_too_late(&process, scratch.path());
    until("an answer", || has_reported(&process, "granted"));
    let store = open(scratch.path());
    assert!(scratch.path().join("orders.json").exists());
    assert!(now(store.read()).expect("a read").free);
    now(async { store.acquire(&bid(&store).await).await }).expect("granted at once");
}

#[test]
fn a_candidate_killed_with_the_lock_leaves_it_to_the_others() {
    let scratch = scratch();
    let role = "stop after the last look at the clock";
    stopped_with_the_lock(role, scratch.path()).kill();
    let store = open(scratch.path());
    assert!(scratch.path().join("orders.tmp").exists(), "killed before the rename");
    now(async { store.acquire(&bid(&store).await).await }).expect("granted at once");
    assert!(!scratch.path().join("orders.tmp").exists());
}

#[test]
fn a_read_only_directory_is_reported_until_it_is_writable() {
    let scratch = scratch();
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(scratch.path(), permissions).expect("chmod");
    };
    mode(0o555);
    // Root can write everywhere, so the candidate runs as another user.
    let user = rustix::process::geteuid().is_root().then_some(65_534);
    let process = start_as("bid once", scratch.path(), user);
    until("an answer", || !reports(&process, "error").is_empty());
    let error = reports(&process, "error").remove(0);
    assert!(
        error.starts_with("Settings ") && error.contains("orders.lock could not be opened"),
        "{error}"
    );
    assert!(error.contains(scratch.path().to_str().expect("UTF-8")), "{error}");
    assert!(error.contains("make the directory writable for this user"), "{error}");
    mode(if user.is_some() { 0o1777 } else { 0o755 });
    let process = start_as("bid once", scratch.path(), user);
    until("an answer", || has_reported(&process, "granted"));
}
