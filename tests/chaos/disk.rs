//! Faults of the disk with the status files: full, read-only, gone; and paths that are not files. A
//! real leader uses a real, small disk. Test names contain the number of the fault.

use testkit::faults::small_disk::SmallDisk;
use testkit::processes::{cluster, process};

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cluster::{Cluster, PATIENCE, STEADY, logs};
use process::{Process, run_verb, until};
use rustix::process::Signal;
use tenure::clock;

fn errors(candidate: &Process) -> u64 {
    let (_, text) = candidate.get("/metrics").expect("it answers");
    let line = text.lines().find(|it| it.starts_with("tenure_status_file_errors_total"));
    line.and_then(|it| it.rsplit(' ').next()?.parse().ok()).expect("the metric is there")
}

/// Returns the exit code of `tenure check` for a file: 0 active, 1 passive, 2 unknown.
fn check(file: &Path) -> i32 {
    let output = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["check", "--file"])
        .arg(file)
        .output()
        .unwrap();
    output.status.code().unwrap()
}

/// Runs a leader whose status file is on a disk that fails and recovers meanwhile. `after` is the
/// result of `tenure check` during the failure.
fn breaks_and_is_mended(file: &Path, after: i32, breaks: impl FnOnce(), mend: impl FnOnce()) {
    let mut cluster = Cluster::empty(STEADY);
    cluster.join("a", &["--status-file", file.to_str().unwrap()], &[]);
    cluster.settle();
    cluster.join("b", &[], &[]);
    cluster.settle();
    let leader = &cluster.candidates[0];
    let term = cluster.term(0);
    until(PATIENCE, "the file is active", || (check(file) == 0).then_some(()));
    breaks();
    let broken = clock::now();
    until(PATIENCE, "an error is counted", || (errors(leader) > 0).then_some(()));
    until(PATIENCE, "the file has expired", || (check(file) == after).then_some(()));
    std::thread::sleep(STEADY.lease_duration.saturating_sub(broken.elapsed_min(clock::now())));
    assert!(leader.is_leader() && cluster.term(0) == term, "the loop is unharmed");
    assert_eq!(cluster.check_file(&leader.name), 0, "and so is the other file");
    let log = leader.log();
    assert_eq!(log.matches("failed to write the status file").count(), 1, "logged once: {log}");
    assert!(log.contains(file.to_str().unwrap()) && log.contains("ERROR"), "{log}");
    mend();
    until(PATIENCE, "the file is active again", || (check(file) == 0).then_some(()));
    logs(leader, "can be written again");
    assert_eq!(cluster.verdict().terms.len(), 1);
}

#[test]
fn fault_29_a_full_disk_is_reported_and_delays_no_renewal() {
    let disk = SmallDisk::new(16);
    let file = disk.path().join("status.json");
    let mend = || fs::remove_file(disk.path().join("filler")).unwrap();
    breaks_and_is_mended(&file, 1, || disk.fill(), mend);
}

#[test]
fn fault_29_a_disk_that_becomes_read_only_is_reported_and_delays_no_renewal() {
    let disk = SmallDisk::new(16);
    let file = disk.path().join("status.env");
    let remount = |how: &str| disk.mount(&["-o", how]);
    breaks_and_is_mended(&file, 1, || remount("remount,ro"), || remount("remount,rw"));
}

#[test]
fn fault_29_a_directory_deleted_under_a_leader_is_reported_and_delays_no_renewal() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let mend = || fs::create_dir(&inner).unwrap();
    breaks_and_is_mended(
        &inner.join("status.json"),
        2,
        || fs::remove_dir_all(&inner).unwrap(),
        mend,
    );
}

#[test]
fn fault_29_a_status_file_on_a_disk_of_4_kib_is_never_active_past_its_deadline() {
    // One page holds the first status, but no temporary file next to it.
    let disk = SmallDisk::new(4);
    let file = disk.path().join("status.json");
    let mut cluster = Cluster::empty(STEADY);
    cluster.join("a", &["--status-file", file.to_str().unwrap()], &[]);
    cluster.settle();
    until(PATIENCE, "an error is counted", || (errors(&cluster.candidates[0]) > 0).then_some(()));
    // The first status may be active already where the writer was slow to start.
    until(PATIENCE, "the file is passive", || (check(&file) == 1).then_some(()));
    assert!(cluster.candidates[0].is_leader());
    cluster.verdict();
}

#[test]
fn fault_29_on_a_full_disk_a_leader_that_resigns_withdraws_its_active_status() {
    let disk = SmallDisk::new(16);
    let file = disk.path().join("status.json");
    let mut cluster = Cluster::empty(STEADY);
    cluster.join("a", &["--status-file", file.to_str().unwrap()], &[]);
    cluster.settle();
    cluster.join("b", &[], &[]);
    cluster.settle();
    until(PATIENCE, "the file is active", || (check(&file) == 0).then_some(()));
    disk.fill();
    cluster.releases(0);
    let mut resigned = cluster.candidates.remove(0);
    resigned.signal(Signal::TERM);
    cluster.next_leader(clock::now());
    assert_ne!(check(&file), 0, "nobody says active by the time that another leads");
    assert!(resigned.wait(PATIENCE).success());
    cluster.settle();
    assert_eq!(cluster.verdict().terms.len(), 2);
}

#[test]
fn fault_29_a_standby_that_cannot_write_to_its_store_is_not_ready_and_ends_without_a_release() {
    let disk = SmallDisk::new(64);
    fs::set_permissions(disk.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let store = format!("file://{}", disk.path().display());
    let made = run_verb(&["doctor", "--store", &store, "--create", "--yes"], &[]);
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    disk.mount(&["-o", "remount,ro"]);
    let timings = "--lease-duration 2s --renew-deadline 1s --retry-period 200ms \
                   --request-timeout 300ms";
    let timings = timings.split_whitespace();
    let arguments: Vec<&str> = ["--store", &store].into_iter().chain(timings).collect();
    let mut standby = Process::run("a", &arguments, &[]);
    let is_ready = || Some(standby.get("/standby")?.0 == 200);
    until(PATIENCE, "it is ready", || is_ready()?.then_some(()));
    until(PATIENCE, "it is not ready", || (!is_ready()?).then_some(()));
    // Reads succeed, which says nothing about writes.
    until(PATIENCE, "it has read and is not ready", || {
        let status = standby.status()?;
        let is_read = status["store"]["last_success_ms_ago"].as_u64()? < 1_000;
        (is_read && status["can_take_over"] == false).then_some(())
    });
    assert_eq!(is_ready(), Some(false));
    let url = format!("http://{}", standby.address);
    let ran = run_verb(&["status", "--url", &url], &[]);
    assert!(ran.out.contains("cannot take over: "), "{}", ran.out);
    assert!(ran.out.contains("Read-only file system"), "{}", ran.out);
    standby.signal(Signal::TERM);
    assert!(standby.wait(PATIENCE).success());
    assert!(!standby.log().contains("release"), "it held nothing: {}", standby.log());
}

fn targets(directory: &Path) -> [PathBuf; 3] {
    let [link, folder, pipe] =
        ["link.json", "folder.json", "pipe.json"].map(|it| directory.join(it));
    fs::write(directory.join("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(directory.join("precious"), &link).unwrap();
    fs::create_dir(&folder).unwrap();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    [link, folder, pipe]
}

#[test]
fn fault_30_a_status_file_that_is_not_a_regular_file_fails_the_start_and_is_named() {
    let directory = tempfile::tempdir().unwrap();
    for target in targets(directory.path()) {
        // With a timeout, so that no process is left if one starts unexpectedly.
        let seconds = PATIENCE.as_secs().to_string();
        let mut child = Command::new("timeout")
            .args([&seconds, env!("CARGO_BIN_EXE_tenure")])
            .args(["run", "--store", "memory:", "--listen", "off", "--status-file"])
            .arg(&target)
            .stdout(Stdio::null())
            .stderr(fs::File::create(directory.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let ended = child.wait().unwrap();
        let log = fs::read_to_string(directory.path().join("log")).unwrap();
        assert_eq!(ended.code(), Some(2), "{log}");
        assert!(log.contains(target.to_str().unwrap()), "{log}");
    }
    assert_eq!(fs::read_to_string(directory.path().join("precious")).unwrap(), "precious");
}

#[test]
fn fault_30_a_status_file_that_becomes_a_symlink_is_reported_and_delays_no_renewal() {
    let directory = tempfile::tempdir().unwrap();
    let [file, precious] = ["status.json", "precious"].map(|it| directory.path().join(it));
    fs::write(&precious, "precious").unwrap();
    let breaks = || {
        // By a rename, so that the path always exists.
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        fs::rename(&link, &file).unwrap();
    };
    breaks_and_is_mended(&file, 2, breaks, || fs::remove_file(&file).unwrap());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}
