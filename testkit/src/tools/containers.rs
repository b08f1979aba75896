//! Containers of an image, run by podman and runc as root, without a registry, and without a
//! network unless one is requested.
//!
//! Each [`Engine`] has its own state in a directory of its own, and uses the images that
//! [`image`](crate::tools::image) has built. Containers, mounts and the directory are deleted with
//! it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::tools::image::{stdout_of, storage};

/// The timeout of a test.
pub const BOUND: Duration = Duration::from_secs(60);

/// The restrictions of a hardened container. By default, podman would mount a few writable
/// directories.
pub const TIGHT: &[&str] = &[
    "--read-only",
    "--read-only-tmpfs=false",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
];

/// Limits that can be set without CAP_SYS_RESOURCE, and cgroups without systemd.
const SETTINGS: &str = r#"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"#;

/// podman with a state of its own.
pub struct Engine {
    home: TempDir,
}

impl Engine {
    pub fn new() -> Self {
        let home = tempfile::tempdir_in(crate::paths::scratch()).expect("a directory");
        std::fs::write(home.path().join("containers.conf"), SETTINGS).expect("written");
        Self { home }
    }

    /// Returns a podman command with these arguments.
    pub fn podman(&self, arguments: &[&str]) -> Command {
        let mut images = std::ffi::OsString::from("overlay.imagestore=");
        images.push(storage().join("root"));
        // Longer than any test waits, so that a hang does not block the whole run.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", "300", "podman"]);
        for (option, place) in [("--root", "root"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.arg(option).arg(self.home.path().join(place));
        }
        command
            .args(["--storage-driver", "overlay", "--storage-opt"])
            .arg(images)
            .args(arguments)
            .env("CONTAINERS_CONF", self.home.path().join("containers.conf"))
            .stdin(Stdio::null());
        command
    }

    /// Returns a command that runs a container of an image in the foreground.
    pub fn container(&self, options: &[&str], image: &str, arguments: &[&str]) -> Command {
        let mut command = self.podman(&["run", "--rm", "--pull=never"]);
        if !options.iter().any(|it| it.starts_with("--network")) {
            command.arg("--network=none");
        }
        command.args(options).arg(image).args(arguments);
        command
    }

    /// Runs a container until it exits.
    pub fn run(&self, options: &[&str], image: &str, arguments: &[&str]) -> Output {
        self.container(options, image, arguments).output().expect("podman runs")
    }

    /// Starts a named container in the background.
    pub fn start(
        &self,
        name: &str,
        options: &[&str],
        image: &str,
        arguments: &[&str],
    ) -> Started<'_> {
        let log = self.home.path().join(format!("{name}.log"));
        let file = std::fs::File::create(&log).expect("a log");
        let child = self
            .container(&[&["--name", name], options].concat(), image, arguments)
            .stdout(file.try_clone().expect("a log"))
            .stderr(file)
            .spawn()
            .expect("podman runs");
        Started { engine: self, name: name.to_owned(), log, child }
    }

    /// Creates a directory that belongs to the image's user.
    pub fn volume(&self, name: &str) -> PathBuf {
        let place = self.home.path().join(name);
        std::fs::create_dir(&place).expect("a directory");
        std::os::unix::fs::chown(&place, Some(65532), Some(65532)).expect("root may");
        place
    }

    pub fn path(&self) -> &Path {
        self.home.path()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for arguments in [&["pod", "rm"][..], &["rm"]] {
            let _ = self.podman(arguments).args(["--force", "--all", "--time=0"]).output();
        }
        // podman bind-mounts its own storage, and does not unmount it.
        let _ = Command::new("umount").arg(self.home.path().join("root/overlay")).output();
    }
}

/// A container in the background, whose log is printed if the test fails.
pub struct Started<'a> {
    engine: &'a Engine,
    name: String,
    log: PathBuf,
    child: Child,
}

impl Started<'_> {
    /// Returns its output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Runs another command in it, and returns the exit code and output.
    pub fn exec(&self, command: &[&str]) -> Output {
        let mut exec = self.engine.podman(&["exec", &self.name]);
        exec.args(command).output().expect("podman runs")
    }

    /// Returns the process id of its process 1 on this host.
    pub fn process(&self) -> i32 {
        let arguments = ["inspect", "--format", "{{.State.Pid}}", &self.name];
        stdout_of(self.engine.podman(&arguments)).parse().expect("a number")
    }

    /// Waits until it exits, and returns the exit code.
    pub fn ended(&mut self) -> i32 {
        let status =
            until("the container ends", || self.child.try_wait().expect("it can be asked"));
        status.code().expect("a code")
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of {} ---\n{}", self.name, self.log());
        }
        let _ = self.engine.podman(&["rm", "--force", "--time=0", &self.name]).output();
        let _ = self.child.wait();
    }
}

/// Polls until there is a result.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begun = tenure::clock::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed_min(tenure::clock::now()) < BOUND, "not within {BOUND:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
