//! Locations of the repository, the programs under test, the tools and scratch space.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Returns the root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("testkit/ is in the repository")
}

/// Returns the directory of the profile that this test was built with, such as `target/debug`.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let test = std::env::current_exe().expect("the path of this test");
        test.ancestors().nth(2).expect("target/PROFILE/deps/TEST").to_owned()
    })
}

/// Returns the path of the `tenure` binary, which cargo builds before the tests of its package.
pub fn tenure() -> &'static str {
    static TENURE: OnceLock<PathBuf> = OnceLock::new();
    let path = TENURE.get_or_init(|| built().join("tenure"));
    path.to_str().expect("a path in UTF-8")
}

/// Returns a directory of this checkout for temporary files that need a real filesystem.
pub fn scratch() -> PathBuf {
    let path = built().with_file_name("tmp");
    std::fs::create_dir_all(&path).expect("a directory for temporary files");
    path
}

/// Returns the path of a tool of `tests/tools/versions`, or fails with how to install it.
pub fn tool(name: &str) -> PathBuf {
    static FOUND: OnceLock<Mutex<HashMap<String, PathBuf>>> = OnceLock::new();
    let mut found =
        FOUND.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = found.get(name) {
        return path.clone();
    }
    let output = Command::new(repository().join("tests/tools/path")).arg(name).output();
    let output = output.expect("tests/tools/path runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}", stderr.trim());
    let path = PathBuf::from(String::from_utf8(output.stdout).expect("a path in UTF-8").trim());
    found.insert(name.to_owned(), path.clone());
    path
}
