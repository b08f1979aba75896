//! Real `tenure exec` processes whose commands write heartbeats to one file, so that two commands
//! that live at the same time are detected.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Pid;
use tempfile::TempDir;

use crate::processes::process::Process;

/// A command that, like its child, writes who it is and the raw clock every 4 ms. A `stubborn` one
/// and its child ignore SIGTERM, SIGINT and SIGHUP. A `brittle` one and its child exit with 0 on
/// them. A `survived` one exits, but its child ignores them.
const BEATER: &str = r#"
import os, signal, sys, time
def set(how):
    for it in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(it, how)
kind = sys.argv[3]
set(signal.SIG_IGN if kind == "stubborn" else lambda *_: sys.exit(0))
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
whole = sys.argv[2] + " " + os.environ["TENURE_TERM"]
if os.fork() == 0 and kind == "survived":
    set(signal.SIG_IGN)
while True:
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    os.write(file, f"{whole} {os.getpid()} {now}\n".encode())
    time.sleep(0.004)
"#;

/// The timings of most tests, with a lease of 2 s.
pub const QUICK: &[&str] = &[
    "--lease-duration",
    "2s",
    "--renew-deadline",
    "1700ms",
    "--retry-period",
    "300ms",
    "--request-timeout",
    "300ms",
    "--stop-timeout",
    "500ms",
    "--drain-timeout",
    "1s",
];

/// A directory for tests: the store, logs, and the heartbeat file.
pub struct Place(TempDir);

/// The time from the first heartbeat to the last of all commands of one candidate in one term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    pub name: String,
    pub term: u64,
    pub first: Duration,
    pub last: Duration,
    /// The processes that wrote heartbeats.
    pub processes: Vec<u32>,
}

impl Place {
    pub fn new() -> Self {
        let it = Self(tempfile::tempdir().expect("a temporary directory"));
        std::fs::create_dir(it.path().join("store")).expect("made");
        it
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn store(&self) -> String {
        format!("file://{}", self.path().join("store").display())
    }

    fn beats(&self) -> PathBuf {
        self.path().join("beats")
    }

    /// Starts a candidate with a command that writes heartbeats.
    pub fn start(&self, name: &str, store: &[&str], more: &[&str], kind: &str) -> Process {
        let beats = self.beats();
        let beats = beats.to_str().expect("UTF-8");
        let command = ["python3", "-c", BEATER, beats, name, kind];
        Process::exec(name, &[store, more].concat(), &command)
    }

    /// Returns a `tenure exec` with short timings and a command, killed after a minute; not yet
    /// started.
    pub fn command(&self, flags: &[&str], command: &[&str]) -> Command {
        let mut it = Command::new("timeout");
        it.args(["--foreground", "60", crate::paths::tenure(), "exec", "--store", &self.store()])
            .args(["--listen", "127.0.0.1:0", "--log-level", "warn"])
            .args(QUICK)
            .args(flags)
            .arg("--")
            .args(command)
            .env("DIR", self.path())
            .env_remove("POD_NAME")
            .stdin(Stdio::null());
        it
    }

    /// Returns the lives so far, ordered by their start, one for each candidate and term.
    pub fn lives(&self) -> Vec<Life> {
        let text = std::fs::read_to_string(self.beats()).unwrap_or_default();
        // The last line may be read while it is written.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut lives: BTreeMap<(String, u64), Life> = BTreeMap::new();
        for line in whole.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [name, term, process, at] = words[..] else { panic!("{line}") };
            let (term, process) = (term.parse().expect(line), process.parse().expect(line));
            let at = Duration::from_nanos(at.parse().expect(line));
            let life = lives.entry((name.to_owned(), term)).or_insert_with(|| Life {
                name: name.to_owned(),
                term,
                first: at,
                last: at,
                processes: Vec::new(),
            });
            (life.first, life.last) = (life.first.min(at), life.last.max(at));
            if !life.processes.contains(&process) {
                life.processes.push(process);
            }
        }
        let mut lives: Vec<_> = lives.into_values().collect();
        lives.sort_by_key(|it| it.first);
        lives
    }

    /// Asserts that no two commands lived at the same time, and that terms only grew.
    pub fn assert_safe(&self) {
        let lives = self.lives();
        for pair in lives.windows(2) {
            assert!(pair[0].last < pair[1].first, "two at once: {pair:#?}");
            assert!(pair[0].term < pair[1].term, "{pair:#?}");
        }
    }
}

/// Returns the content of a file, once its last line is complete.
pub fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().filter(|it| it.ends_with('\n'))
}

/// Returns the reaper of a `tenure exec`, which is its only child.
pub fn reaper(exec: &Process) -> Option<Pid> {
    only_child(exec.pid())
}

/// Returns the watchdog of a `tenure exec`, which is the reaper's only child.
pub fn watchdog(exec: &Process) -> Option<Pid> {
    only_child(reaper(exec)?)
}

/// Returns the child of a process that has no other.
pub fn only_child(of: Pid) -> Option<Pid> {
    let listed = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?;
    Pid::from_raw(listed.split_whitespace().next()?.parse().ok()?)
}
