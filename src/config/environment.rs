//! The environment of a run as a value: its variables, and the facts of the machine that defaults
//! depend on. [`Environment::of_process`] is the only reader of the real ones, so that tests need
//! not modify the process's environment.
//!
//! An empty variable counts as not set, because Helm, Compose and shells write `NAME=` for "no
//! value".

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;

use super::faults::Problem;
use super::machine;

/// The chassis asset tag of Azure virtual machines.
const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

/// The directory where Kubernetes mounts the credentials of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Variables by which systemd addresses this process only. Hooks, probes and commands do not
/// inherit them, so that none of them can notify systemd in Tenure's name.
pub(super) const OURS_ALONE: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

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
    /// Where files survive a login session: `/var/tmp`.
    pub var_tmp: PathBuf,
    /// The mounts that this process sees, as in `/proc/self/mountinfo`.
    pub mounts: String,
    /// Returns an error if a TCP address cannot be listened on.
    pub can_bind: fn(SocketAddr) -> Result<(), Errno>,
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
            var_tmp: PathBuf::from("/var/tmp"),
            mounts: std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(),
            can_bind: machine::bind,
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
            var_tmp: PathBuf::from("/var/tmp"),
            mounts: String::new(),
            can_bind: |_| Ok(()),
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

    /// Chooses the directory of the default store, which must not depend on the login session:
    /// `/run/tenure` if this user can use or create it, else `/var/tmp/tenure-UID` if it is this
    /// user's alone or can be created. Creates nothing.
    pub(super) fn default_directory(&self) -> Result<DefaultDirectory, Problem> {
        let run = self.run.join("tenure");
        match std::fs::symlink_metadata(&run) {
            Ok(found)
                if found.is_dir() && [0, self.uid].contains(&found.uid()) && is_writable(&run) =>
            {
                let is_private = found.uid() == self.uid && found.mode() & 0o077 == 0;
                return Ok(DefaultDirectory { path: run, is_private });
            }
            Err(error) if error.kind() == ErrorKind::NotFound && is_writable(&self.run) => {
                return Ok(DefaultDirectory { path: run, is_private: true });
            }
            _ => {}
        }
        let path = self.var_tmp.join(format!("tenure-{}", self.uid));
        let problem = match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => "is a symbolic link".to_owned(),
            Ok(found) if !found.is_dir() => "is not a directory".to_owned(),
            Ok(found) if found.uid() != self.uid => format!("belongs to uid {}", found.uid()),
            Ok(found) if found.mode() & 0o077 != 0 => {
                format!("has mode {:04o}, which gives other users access", found.mode() & 0o7777)
            }
            _ if is_of_one_unit(&self.mounts, &self.var_tmp) => {
                "is private to this systemd unit (PrivateTmp)".to_owned()
            }
            Ok(_) => return Ok(DefaultDirectory { path, is_private: true }),
            Err(_) if is_writable(&self.var_tmp) => {
                return Ok(DefaultDirectory { path, is_private: true });
            }
            Err(_) => "cannot be created".to_owned(),
        };
        Err(Problem::new(
            format!(
                "is not set, {} cannot be used, and the default directory {} {problem}",
                run.display(),
                path.display()
            ),
            "set --store to a store that all candidates share, such as file:///DIRECTORY on one \
             host",
        ))
    }
}

/// The directory of the default store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DefaultDirectory {
    pub(super) path: PathBuf,
    /// Whether it must be accessible to this user only.
    pub(super) is_private: bool,
}

/// Returns whether systemd has mounted a directory of one unit here, by `/proc/self/mountinfo`:
/// each line has the root within the filesystem and the mount point as its fourth and fifth field.
fn is_of_one_unit(mounts: &str, directory: &Path) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, point) = (fields.next(), fields.next());
        root.is_some_and(|it| it.contains("/systemd-private-"))
            && point.is_some_and(|it| Path::new(it) == directory)
    })
}

fn is_writable(directory: &Path) -> bool {
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_empty_variable_is_not_set() {
        let environment = Environment::of([("A", ""), ("B", "x")]);
        assert_eq!((environment.get("A"), environment.get("B")), (None, Some("x")));
    }

    #[test]
    fn the_default_directory_does_not_depend_on_the_login_session() {
        let place = tempfile::tempdir().unwrap();
        let [run, var_tmp] = ["run", "var_tmp"].map(|it| place.path().join(it));
        let unit = format!(
            "9 1 8:1 /var/tmp/systemd-private-7/tmp {} rw - ext4 x rw\n",
            var_tmp.display()
        );
        let of_unit = |session: &str, mounts: &str| {
            let mut environment = Environment::of([("XDG_RUNTIME_DIR", session)]);
            environment.uid = rustix::process::geteuid().as_raw();
            (environment.run, environment.var_tmp) = (run.clone(), var_tmp.clone());
            mounts.clone_into(&mut environment.mounts);
            let directory = environment.default_directory();
            directory.map(|it| (it.path, it.is_private)).map_err(|it| it.problem)
        };
        let of = |session: &str| of_unit(session, "9 1 8:1 / / rw - ext4 x rw\n");
        let fallback = var_tmp.join(format!("tenure-{}", rustix::process::geteuid().as_raw()));
        let mode = |path: &Path, mode: u32| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        assert!(of("").unwrap_err().contains("cannot be created"));

        std::fs::create_dir(&var_tmp).unwrap();
        assert_eq!(of("/run/user/7"), Ok((fallback.clone(), true)));
        assert_eq!(of(""), of("/run/user/7"));
        assert!(of_unit("", &unit).unwrap_err().contains("PrivateTmp"), "another unit has its own");
        std::fs::create_dir(&fallback).unwrap();
        mode(&fallback, 0o755);
        assert!(of("").unwrap_err().contains("mode 0755"));
        mode(&fallback, 0o700);
        assert_eq!(of(""), Ok((fallback.clone(), true)));
        std::fs::remove_dir(&fallback).unwrap();
        std::os::unix::fs::symlink(&run, &fallback).unwrap();
        assert!(of("").unwrap_err().contains("symbolic link"));

        std::fs::create_dir(&run).unwrap();
        assert_eq!(of("/run/user/7"), Ok((run.join("tenure"), true)), "it can be created");
        std::fs::create_dir(run.join("tenure")).unwrap();
        mode(&run.join("tenure"), 0o755);
        assert_eq!(of(""), Ok((run.join("tenure"), false)), "made by root for a service");
        std::fs::remove_dir(run.join("tenure")).unwrap();
        std::fs::write(run.join("tenure"), "not a directory").unwrap();
        assert!(of("").is_err());
    }
}
