//! A false wall clock for one process, by the library of Debian's package `faketime`.
//!
//! It affects calls of the C library, not raw system calls. So of Tenure's three clocks only the
//! wall clock is false, and in addition the timers of the runtime; the boot and raw clocks, by
//! which a belief ends, are not affected.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// The false time of one process, which can be changed while the process runs.
pub struct FakeTime {
    directory: TempDir,
    library: String,
    timers_too: bool,
}

impl FakeTime {
    /// Creates a false time in the syntax of `faketime` (`+0`, `-3600`, `+0 x1.08`) for the wall
    /// clock, and for the monotonic clock of the runtime's timers if `timers_too`.
    pub fn new(lie: &str, timers_too: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let fake = Self { directory, library: library(), timers_too };
        fake.set(lie);
        fake
    }

    /// Changes the false time.
    pub fn set(&self, lie: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, lie).expect("written");
        std::fs::rename(new, self.file()).expect("replaced");
    }

    /// Returns the environment of the affected process.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let timers = if self.timers_too { "0" } else { "1" };
        vec![
            ("LD_PRELOAD", self.library.clone()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", timers.to_owned()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("lie")
    }
}

/// Returns the library that `faketime` would preload.
fn library() -> String {
    let output =
        Command::new("faketime").args(["-f", "+0", "sh", "-c", "echo $LD_PRELOAD"]).output();
    let output = output.expect("faketime is there: run tests/run, or install the package faketime");
    let library = String::from_utf8(output.stdout).expect("a path");
    assert!(library.contains("libfaketime"), "{library:?}");
    library.trim().to_owned()
}
