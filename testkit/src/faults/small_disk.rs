//! A small disk that can be full, read-only or gone; root alone can mount one.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// A tmpfs; unmounted when it is dropped.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts one of this size.
    pub fn new(kib: u32) -> Self {
        let disk = Self(tempfile::tempdir().unwrap());
        let size = format!("size={kib}k");
        disk.mount(&["-t", "tmpfs", "-o", &size, "tenure-test"]);
        disk
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Mounts it with other options.
    pub fn mount(&self, arguments: &[&str]) {
        let output = Command::new("mount").args(arguments).arg(self.path()).output().unwrap();
        assert!(
            output.status.success(),
            "a tmpfs can be mounted by root alone: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Writes until it is full.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).unwrap();
        while filler.write_all(&[0; 512]).is_ok() {}
    }

    /// Removes what filled it.
    pub fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> std::path::PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because a process may still have a file open here.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}
