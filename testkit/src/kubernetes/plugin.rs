//! The plugin of kubectl: the binary by the name under which kubectl finds it.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::paths::tenure;
use crate::processes::process::{Process, Ran};

/// The plugin, and the kubectl that it finds.
pub struct Plugin {
    program: PathBuf,
    path: String,
    home: PathBuf,
}

impl Plugin {
    /// Installs the plugin in a directory. `path` is its `PATH`.
    pub fn install(directory: &Path, path: &Path) -> Self {
        let program = directory.join("kubectl-tenure");
        symlink(tenure(), &program).expect("a link");
        let path = format!("{}:/usr/bin:/bin", path.display());
        Self { program, path, home: directory.to_owned() }
    }

    /// Runs it without other variables.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.run_in(&self.path, arguments)
    }

    /// Runs it with another `PATH`.
    pub fn run_in(&self, path: &str, arguments: &[&str]) -> Ran {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear().env("PATH", path).env("HOME", &self.home);
        Process::spawn("kubectl-tenure", {
            command.stdin(Stdio::null());
            command
        })
        .end()
    }
}
