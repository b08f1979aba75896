//! A candidate of the file store in a process of its own: the test binary, started again with
//! `TENURE_TEST_ROLE` set.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Signal, getpid, kill_process};
use tenure::clock::{self, Moment};
use tenure::lease::{Bid, Snapshot, StoreError, Version};
use tenure::store::LeaseStore;
use tenure::store::file::FileStore;

use crate::processes::process::Process;
use crate::stores::file_place::{self, named};

/// The variable with the role of the process.
const ROLE: &str = "TENURE_TEST_ROLE";
const DIRECTORY: &str = "TENURE_TEST_DIRECTORY";

/// The file whose presence lets a process continue that was stopped in the critical section.
pub const GO: &str = "go";

/// The lease-duration of a candidate process.
pub const LEASE: Duration = Duration::from_millis(600);
const BELIEF: Duration = Duration::from_millis(400);

/// Plays the role that this process was started for; returns if there is none.
pub fn play_role() {
    #[allow(clippy::disallowed_methods, reason = "the test binary's own way of telling roles")]
    let (role, directory) = (std::env::var(ROLE), std::env::var(DIRECTORY));
    let (Ok(role), Ok(directory)) = (role, directory) else {
        return;
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let directory = Path::new(&directory);
    // A process whose test is gone ends by itself.
    let life = Duration::from_secs(120);
    let _ = runtime.block_on(async { tokio::time::timeout(life, play(&role, directory)).await });
    // Skips the rest of the test harness.
    std::process::exit(0);
}

async fn play(role: &str, directory: &Path) {
    match role {
        "contend" => contend(&open(directory)).await,
        "write" => write(&open(directory)).await,
        "lock" => {
            let file = std::fs::File::create(directory.join("orders.lock")).expect("opened");
            flock(&file, FlockOperation::NonBlockingLockExclusive).expect("locked");
            report("locked");
            std::future::pending().await
        }
        "bid once" => bid_once(&open(directory), directory).await,
        "stop before writing" => bid_once(&stopping(directory, true), directory).await,
        "stop after the last look at the clock" => {
            bid_once(&stopping(directory, false), directory).await
        }
        role => panic!("no such role: {role}"),
    }
}

pub fn open(directory: &Path) -> FileStore {
    FileStore::open(&named(directory))
}

/// Opens a store whose process stops itself in the critical section, just before the record is
/// renamed: before or after the last reading of the clock.
fn stopping(directory: &Path, before: bool) -> FileStore {
    let readings = AtomicU32::new(0);
    let go = directory.join(GO);
    FileStore::with_clock(&named(directory), move || {
        let stop = || {
            kill_process(getpid(), Signal::STOP).expect("stopped");
            // Another thread may be stopped first, and this one must not run ahead of it.
            until("the signal to continue", || go.exists());
        };
        let is_last = readings.fetch_add(1, Ordering::SeqCst) == 2;
        if is_last && before {
            stop();
        }
        let now = clock::now();
        if is_last && !before {
            stop();
        }
        now
    })
}

pub fn draw() -> u128 {
    uuid::Uuid::new_v4().as_u128()
}

/// Returns a new bid for the current version.
pub async fn bid(store: &FileStore) -> Bid {
    let seen = store.read().await.map_or(Version("".into()), |snapshot| snapshot.version);
    file_place::bid(seen, LEASE)
}

/// Sends a line to the parent, past the harness's capture; exits if the parent is gone.
fn report(line: &str) {
    // A single write, so that a kill leaves complete lines.
    if std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes()).is_err() {
        std::process::exit(1);
    }
}

/// Repeats a call while the outcome is unknown, for one lease at most.
async fn definite<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> Option<T> {
    let began = clock::now();
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(StoreError::Refused(_)) => return None,
            Err(StoreError::Unknown(_)) if began.elapsed_max(clock::now()) < LEASE => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Err(StoreError::Unknown(_)) => return None,
            Err(error) => {
                report(&format!("error {error}"));
                return None;
            }
        }
    }
}

fn claim(term: u64, sent: Moment) -> bool {
    let now = clock::now();
    let believes = sent.elapsed_max(now) < BELIEF;
    if believes {
        let until = sent.boot + BELIEF;
        report(&format!("claim {term} {} {}", now.boot.as_nanos(), until.as_nanos()));
    }
    believes
}

/// Competes, leads for a while, resigns, and repeats, with as little time between calls as
/// possible.
async fn contend(store: &FileStore) {
    loop {
        if !definite(async || store.read().await)
            .await
            .is_some_and(|snapshot: Snapshot| snapshot.free)
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        }
        let bid = bid(store).await;
        let mut sent = clock::now();
        if definite(async || store.acquire(&bid).await).await.is_none() {
            continue;
        }
        let Some(term) = definite(async || store.write_term(&bid, 1).await).await else {
            continue;
        };
        let mut renewals = draw() % 40;
        while renewals > 0 && claim(term, sent) {
            renewals -= 1;
            let renewal = clock::now();
            if store.renew(&bid).await.is_ok() && sent.elapsed_max(clock::now()) < BELIEF {
                sent = renewal;
            }
        }
        report(&format!("resign {term} {}", clock::now().boot.as_nanos()));
        let _ = store.release(&bid).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes one term after the other.
async fn write(store: &FileStore) {
    loop {
        let bid = bid(store).await;
        if definite(async || store.acquire(&bid).await).await.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        }
        if let Some(term) = definite(async || store.write_term(&bid, 1).await).await {
            report(&format!("term {term}"));
        }
        definite(async || store.release(&bid).await).await;
    }
}

async fn bid_once(store: &FileStore, directory: &Path) {
    // Reads through another store, so that this does not count as a reading of the clock.
    let bid = bid(&open(directory)).await;
    match store.acquire(&bid).await {
        Ok(_) => report("granted"),
        Err(error) => report(&format!("error {:?} {error}", error.failure().cause)),
    }
}

/// Starts a process with a role.
pub fn start(role: &str, directory: &Path) -> Process {
    start_as(role, directory, None)
}

pub fn start_as(role: &str, directory: &Path, user: Option<u32>) -> Process {
    // Through this link even a user without access to the build directory can execute it.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "file_processes::file_child", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(DIRECTORY, directory)
        .current_dir("/")
        .stdin(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Process::spawn(role, command)
}

/// Returns the complete lines that a process has written and that begin with `kind`, without it.
pub fn reports(process: &Process, kind: &str) -> Vec<String> {
    let out = process.out();
    let whole = out.split_inclusive('\n').filter_map(|it| it.strip_suffix('\n'));
    let reports = whole.filter_map(|it| it.strip_prefix(kind)?.strip_prefix(' '));
    reports.map(str::to_owned).collect()
}

pub fn has_reported(process: &Process, line: &str) -> bool {
    process.out().lines().any(|it| it == line)
}

#[allow(clippy::disallowed_methods, reason = "a test's own thread; no election runs on it")]
pub fn pause(length: Duration) {
    std::thread::sleep(length);
}

/// Waits for a condition, for 30 s at most.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..15_000 {
        if holds() {
            return;
        }
        pause(Duration::from_millis(2));
    }
    panic!("{what} has not come in 30 s");
}

pub fn now<T>(ask: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(ask)
}

pub fn random(below: u64) -> Duration {
    Duration::from_millis(u64::try_from(draw() % u128::from(below)).expect("small"))
}
