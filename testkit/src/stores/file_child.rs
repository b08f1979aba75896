//! Child processes that use a `file:` store: the test binary, started again with a role in its
//! environment.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use tenure::clock;
use tenure::config::FileSettings;
use tenure::lease::{Bid, Candidate, LeaseId, Nonce, StoreError, Version};
use tenure::store::LeaseStore;
use tenure::store::file::FileStore;
use uuid::Uuid;

/// The variable with the role of a child.
const ROLE: &str = "STORE_TEST_ROLE";
const DIRECTORY: &str = "STORE_TEST_DIRECTORY";

/// The lease-duration of the competing processes.
pub const LEASE: Duration = Duration::from_millis(300);

/// How long a competing process believes in a grant, counted from the sending.
pub const BELIEF: Duration = Duration::from_millis(200);

/// Returns settings for a directory that was named explicitly.
pub fn named(directory: &Path) -> FileSettings {
    FileSettings {
        directory: directory.to_owned(),
        is_default: false,
        election: "orders".to_owned(),
    }
}

/// Returns the bid of a new acquisition, for a version.
pub fn bid(seen: Version, lease_duration: Duration) -> Bid {
    Bid {
        lease: LeaseId::from_random(Uuid::new_v4().as_u128()),
        nonce: Nonce(Uuid::new_v4().as_u128()),
        candidate: Arc::new(Candidate {
            identity: "a".to_owned(),
            instance: std::process::id().to_string(),
            address: None,
        }),
        lease_duration,
        seen,
    }
}

/// A process with a role, killed with SIGKILL when it is dropped.
pub struct Process {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Process {
    pub fn start(role: &str, directory: &Path) -> Self {
        Self::of(Command::new(std::env::current_exe().unwrap()), role, directory)
    }

    /// Starts a role through another command that executes this test binary.
    pub fn of(mut command: Command, role: &str, directory: &Path) -> Self {
        let mut child = command
            .args(["--exact", "file_store::the_other_process", "--nocapture"])
            .env(ROLE, role)
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Returns the next line of a child that contains a word, from after the word; `None` at the
    /// end.
    pub fn line(&mut self, word: &str) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, rest)) = line.split_once(word) {
                return Some(rest.trim().to_owned());
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Kills it and returns its remaining lines.
    pub fn kill(mut self, word: &str) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.line(word)).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(line: std::fmt::Arguments<'_>) {
    // A single write per line, so that a kill leaves complete lines.
    let line = format!("{line}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}

/// Plays the role of a process that a test has started; otherwise does nothing. The test binary
/// must have a test `file_store::the_other_process` that calls it.
pub async fn the_other_process() {
    let (Ok(role), Some(directory)) = (std::env::var(ROLE), std::env::var_os(DIRECTORY)) else {
        return;
    };
    let directory = Path::new(&directory);
    let store = FileStore::open(&named(directory));
    match role.as_str() {
        "bid" => {
            let outcome = match store.read().await {
                Ok(snapshot) => store.acquire(&bid(snapshot.version, LEASE)).await.map(|_| ()),
                Err(error) => Err(error),
            };
            say(format_args!("outcome: {outcome:?}"));
        }
        "lock" => {
            let file = std::fs::File::create(directory.join("orders.lock")).unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
            say(format_args!("locked"));
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        "compete" => compete(&store).await,
        role => panic!("no such role: {role}"),
    }
}

/// Bids, writes a term, renews and releases in a loop, and reports the times in which it believed
/// to lead.
async fn compete(store: &FileStore) {
    loop {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let Ok(snapshot) = store.read().await else {
            continue;
        };
        if !snapshot.free {
            continue;
        }
        let bid = bid(snapshot.version, LEASE);
        let sent = clock::now();
        if store.acquire(&bid).await.is_err() {
            continue;
        }
        let Ok(term) = store.write_term(&bid, 1).await else {
            continue;
        };
        let mut until = sent.boot + BELIEF;
        let from = clock::now().boot;
        if from < until {
            say(format_args!("store: from {term} {}", from.as_nanos()));
            for _ in 0..10 {
                let sent = clock::now();
                match store.renew(&bid).await {
                    Ok(()) if clock::now().boot < until => until = sent.boot + BELIEF,
                    Err(StoreError::Unknown(_) | StoreError::RetryNow(_)) => {}
                    Ok(()) | Err(_) => break,
                }
            }
            let until = until.min(clock::now().boot);
            say(format_args!("store: until {term} {}", until.as_nanos()));
        }
        let _ = store.release(&bid).await;
    }
}
