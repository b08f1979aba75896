//! A wall clock that lies to one process, by the library of Debian's package `faketime`.
//!
//! What it does not do: it reaches what a program asks of the C library, and no raw system call.
//! Of Tenure's three clocks that is the wall's alone, and beside them the timers of its runtime;
//! the boot and the raw clock, by which a belief ends, are read past it.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// The lie that one process is told, which can be changed while it runs.
pub struct FakeTime {
    directory: TempDir,
    library: String,
    timers_too: bool,
}

impl FakeTime {
    /// A lie as `faketime` writes it (`+0`, `-3600`, `+0 x1.08`), about the wall clock, and about
    /// the monotonic clock of the runtime's timers too where that is asked.
    pub fn new(lie: &str, timers_too: bool) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let fake = Self { directory, library: library(), timers_too };
        fake.say(lie);
        fake
    }

    /// Tells another lie from now on.
    pub fn say(&self, lie: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, lie).expect("written");
        std::fs::rename(new, self.file()).expect("replaced");
    }

    /// The environment of the process that is lied to.
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

/// What `faketime` itself would preload.
fn library() -> String {
    let output =
        Command::new("faketime").args(["-f", "+0", "sh", "-c", "echo $LD_PRELOAD"]).output();
    let output = output.expect("faketime is there: run tests/run, or install the package faketime");
    let library = String::from_utf8(output.stdout).expect("a path");
    assert!(library.contains("libfaketime"), "{library:?}");
    library.trim().to_owned()
}
