//! A cgroup (version 1 or 2) below that of the test, to freeze processes or limit their CPU. It
//! contains only the processes that are added to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::processes::process::until;

/// The controller that the cgroup uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    Freezer,
    Cpu,
}

/// A cgroup. When it is dropped, its processes continue in the parent cgroup.
pub struct Cgroup {
    path: PathBuf,
    above: PathBuf,
    controller: Controller,
    is_v2: bool,
}

impl Cgroup {
    /// Creates a cgroup; panics with a hint if the machine does not permit that.
    pub fn new(controller: Controller) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let (above, is_v2) = place(controller);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = above.join(format!("tenure-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap_or_else(|error| {
            panic!(
                "no cgroup can be made below {}: {error}; run this test as root, where cgroups \
                 may be written (in a container: with its own, delegated hierarchy)",
                above.display()
            )
        });
        Self { path, above, controller, is_v2 }
    }

    /// Moves a process into it, with all its threads.
    pub fn take(&self, process: u32) {
        write(&self.path.join("cgroup.procs"), &process.to_string());
    }

    /// Freezes all processes in it, and returns when they are frozen.
    pub fn freeze(&self) {
        assert_eq!(self.controller, Controller::Freezer);
        let (file, order) = self.freezer(true);
        write(&file, order);
        until(Duration::from_secs(20), "all stand still", || {
            let (file, word) = if self.is_v2 {
                ("cgroup.events", "frozen 1")
            } else {
                ("freezer.state", "FROZEN")
            };
            let state = fs::read_to_string(self.path.join(file)).ok()?;
            state.contains(word).then_some(())
        });
    }

    /// Lets all processes in it go on.
    pub fn thaw(&self) {
        let (file, order) = self.freezer(false);
        write(&file, order);
    }

    /// Limits all processes in it together to one percent of one CPU.
    pub fn throttle(&self) {
        assert_eq!(self.controller, Controller::Cpu);
        if self.is_v2 {
            write(&self.path.join("cpu.max"), "1000 100000");
        } else {
            write(&self.path.join("cpu.cfs_period_us"), "100000");
            write(&self.path.join("cpu.cfs_quota_us"), "1000");
        }
    }

    /// Returns the number of periods in which they were throttled.
    pub fn throttled(&self) -> u64 {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).expect("the kernel reports it");
        let line = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        line.and_then(|it| it.parse().ok()).expect("the count")
    }

    /// Removes the CPU limit.
    pub fn unthrottle(&self) {
        if self.is_v2 {
            write(&self.path.join("cpu.max"), "max");
        } else {
            write(&self.path.join("cpu.cfs_quota_us"), "-1");
        }
    }

    fn freezer(&self, freeze: bool) -> (PathBuf, &'static str) {
        match (self.is_v2, freeze) {
            (true, true) => (self.path.join("cgroup.freeze"), "1"),
            (true, false) => (self.path.join("cgroup.freeze"), "0"),
            (false, true) => (self.path.join("freezer.state"), "FROZEN"),
            (false, false) => (self.path.join("freezer.state"), "THAWED"),
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        if self.controller == Controller::Freezer {
            let (file, order) = self.freezer(false);
            let _ = fs::write(file, order);
        }
        let inside = fs::read_to_string(self.path.join("cgroup.procs")).unwrap_or_default();
        for process in inside.lines() {
            let _ = fs::write(self.above.join("cgroup.procs"), process);
        }
        let _ = fs::remove_dir(&self.path);
    }
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{} ← {text}: {error}", file.display()));
}

/// Returns the directory of this process's cgroup in the hierarchy of the controller, and whether
/// that is version 2.
fn place(controller: Controller) -> (PathBuf, bool) {
    let name = match controller {
        Controller::Freezer => "freezer",
        Controller::Cpu => "cpu",
    };
    let mounts = fs::read_to_string("/proc/self/mounts").expect("Linux has /proc");
    let ours = fs::read_to_string("/proc/self/cgroup").expect("Linux has /proc");
    let mounted = |is_it: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (path, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
            is_it(kind, options).then(|| PathBuf::from(path))
        })
    };
    let below = |mount: PathBuf, wanted: &dyn Fn(&str) -> bool| {
        let path = ours.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            wanted(controllers).then(|| path.trim_start_matches('/'))
        });
        mount.join(path.unwrap_or_default())
    };
    let has = |list: &str| list.split(',').any(|it| it == name);
    if let Some(mount) = mounted(&|kind, options| kind == "cgroup" && has(options)) {
        return (below(mount, &has), false);
    }
    let mount = mounted(&|kind, _| kind == "cgroup2");
    let mount = mount.unwrap_or_else(|| panic!("no cgroup hierarchy with {name} is mounted"));
    (below(mount, &str::is_empty), true)
}
