//! The environment of a run as a value: its variables, and the facts of the machine that defaults
//! depend on. [`Environment::of_process`] is the only reader of the real ones, so that tests need
//! not modify the process's environment.
//!
//! An empty variable counts as not set, because Helm, Compose and shells write `NAME=` for "no
//! value".

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// The chassis asset tag of Azure virtual machines.
const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

/// The directory where Kubernetes mounts the credentials of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Variables by which systemd addresses this process only. Hooks, probes and commands do not
/// inherit them, so that none of them can notify systemd in Tenure's name.
pub const OURS_ALONE: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Variables and facts of the machine.
#[derive(Clone, Debug)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    not_utf8: BTreeSet<String>,
    /// The host name.
    pub host_name: String,
    /// The effective user id.
    pub uid: u32,
    /// Whether logs go to a terminal.
    pub on_terminal: bool,
    /// Where the system keeps runtime directories: `/run`.
    pub run: PathBuf,
    /// The directory of the service account's credentials.
    pub service_account: PathBuf,
    /// Whether this machine is an Azure virtual machine.
    pub on_azure: bool,
    /// Whether the settings are given by a program, not by a command line.
    pub by_program: bool,
}

impl Environment {
    /// Reads the environment of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let mut variables = BTreeMap::new();
        let mut not_utf8 = BTreeSet::new();
        for (name, value) in std::env::vars_os() {
            let Ok(name) = name.into_string() else {
                continue;
            };
            match value.into_string() {
                Ok(value) => {
                    variables.insert(name, value);
                }
                Err(_) => {
                    not_utf8.insert(name);
                }
            }
        }
        let tag = std::fs::read_to_string("/sys/class/dmi/id/chassis_asset_tag");
        Self {
            variables,
            not_utf8,
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            uid: rustix::process::geteuid().as_raw(),
            on_terminal: std::io::stderr().is_terminal(),
            run: PathBuf::from("/run"),
            service_account: PathBuf::from(SERVICE_ACCOUNT),
            on_azure: tag.is_ok_and(|it| it.trim() == AZURE_TAG),
            by_program: false,
        }
    }

    /// Creates an environment of the given variables, with neutral facts of the machine.
    pub fn of<K: Into<String>, V: Into<String>>(
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self {
            variables: variables.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
            not_utf8: BTreeSet::new(),
            host_name: "host".to_owned(),
            uid: 1_000,
            on_terminal: false,
            run: PathBuf::from("/nonexistent"),
            service_account: PathBuf::from("/nonexistent"),
            on_azure: false,
            by_program: false,
        }
    }

    /// Prepares the environment for a program that gives all settings itself: removes the variables
    /// that would provide settings (`TENURE_…`).
    #[must_use]
    pub fn for_program(mut self) -> Self {
        self.variables.retain(|name, _| !name.starts_with("TENURE_"));
        self.not_utf8.retain(|name| !name.starts_with("TENURE_"));
        self.by_program = true;
        self
    }

    /// Returns the environment without a variable.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.variables.remove(name);
        self.not_utf8.remove(name);
        self
    }

    /// Returns the variable's value, or `None` if it is not set or empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|it| !it.is_empty())
    }

    /// Returns whether the variable is set to a value that is not UTF-8.
    #[must_use]
    pub fn is_not_utf8(&self, name: &str) -> bool {
        self.not_utf8.contains(name)
    }

    /// Returns the names of all variables that are set.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.variables.keys().chain(&self.not_utf8).map(String::as_str)
    }

    /// Returns whether this process runs in a Kubernetes pod.
    #[must_use]
    pub fn in_kubernetes(&self) -> bool {
        self.get("KUBERNETES_SERVICE_HOST").is_some()
    }

    /// Returns whether systemd started this process as a service.
    #[must_use]
    pub fn under_systemd(&self) -> bool {
        self.get("INVOCATION_ID").is_some()
    }

    /// Chooses the runtime directory: `$XDG_RUNTIME_DIR/tenure`, else `/run/tenure` if it belongs
    /// to this user or can be created, else `/tmp/tenure-UID`. Creates nothing.
    #[must_use]
    pub fn runtime_directory(&self) -> PathBuf {
        if let Some(base) = self.get("XDG_RUNTIME_DIR").map(Path::new).filter(|it| it.is_absolute())
        {
            return base.join("tenure");
        }
        let run = self.run.join("tenure");
        if self.is_usable(&run) { run } else { PathBuf::from(format!("/tmp/tenure-{}", self.uid)) }
    }

    fn is_usable(&self, directory: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let may_write = Access::WRITE_OK | Access::EXEC_OK;
        match std::fs::symlink_metadata(directory) {
            Ok(found) => {
                found.is_dir()
                    && found.uid() == self.uid
                    && rustix::fs::access(directory, may_write).is_ok()
            }
            Err(_) => rustix::fs::access(&self.run, may_write).is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_not_set() {
        let environment = Environment::of([("A", ""), ("B", "x")]);
        assert_eq!((environment.get("A"), environment.get("B")), (None, Some("x")));
    }

    #[test]
    fn the_runtime_directory_is_xdg_then_run_then_tmp() {
        let run = tempfile::tempdir().unwrap();
        let mut environment = Environment::of([("XDG_RUNTIME_DIR", "/run/user/7")]);
        environment.run = run.path().to_owned();
        assert_eq!(environment.runtime_directory(), Path::new("/run/user/7/tenure"));

        let mut environment = Environment::of([("XDG_RUNTIME_DIR", "relative")]);
        environment.uid = rustix::process::geteuid().as_raw();
        environment.run = run.path().to_owned();
        assert_eq!(environment.runtime_directory(), run.path().join("tenure"));

        std::fs::write(run.path().join("tenure"), "not a directory").unwrap();
        let tmp = PathBuf::from(format!("/tmp/tenure-{}", environment.uid));
        assert_eq!(environment.runtime_directory(), tmp);

        environment.run = PathBuf::from("/nonexistent");
        assert_eq!(environment.runtime_directory(), tmp);
    }
}
