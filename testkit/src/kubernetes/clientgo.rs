//! A process of tests/clientgo, a candidate that uses the library client-go.
//!
//! Its `/leader` reports whether its own lease is still valid, by the last write that the API
//! server accepted.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::kubernetes::lease_ground::{Ground, LEASE};
use crate::paths::tool;
use crate::processes::cluster::{PATIENCE, Timings};
use crate::processes::process::{get, until};

/// A client-go candidate.
pub struct Neighbour {
    pub name: String,
    pub address: SocketAddr,
    child: Child,
}

impl Neighbour {
    /// Starts a candidate and waits until it listens. It competes again after it has lost its
    /// lease. With `releases` it sets `ReleaseOnCancel`.
    ///
    /// With `ReleaseOnCancel`, a candidate whose renewal failed while the API server was
    /// unreachable may release a Lease that another holds by then. Set it only for candidates that
    /// are asked to exit.
    pub fn start(
        name: &str,
        ground: &Ground,
        token: &Path,
        timings: Timings,
        releases: bool,
    ) -> Self {
        let text = |length: Duration| format!("{}ms", length.as_millis());
        let says = ground.plane.file(&format!("{name}.listening"));
        let log = ground.plane.file(&format!("{name}.log"));
        let child = Command::new(tool("clientgo"))
            .args(["-api", &ground.plane.url(), "-namespace", &ground.namespace, "-name", LEASE])
            .args(["-identity", name, "-answer", "lease", "-lost", "again"])
            .arg(format!("-release-on-cancel={releases}"))
            .args(["-lease-duration", &text(timings.lease_duration)])
            .args(["-renew-deadline", &text(timings.renew_deadline)])
            .args(["-retry-period", &text(timings.retry_period)])
            .arg("-token-file")
            .arg(token)
            .arg("-ca-file")
            .arg(ground.plane.ca_file())
            .stdin(Stdio::null())
            .stdout(File::create(&says).expect("a file"))
            .stderr(File::create(log).expect("a file"))
            .spawn()
            .expect("clientgo starts");
        let address = until(PATIENCE, "the neighbour listens", || {
            let said = std::fs::read_to_string(&says).ok()?;
            let said: serde_json::Value = serde_json::from_str(&said).ok()?;
            said["listening"].as_str()?.parse().ok()
        });
        Self { name: name.to_owned(), address, child }
    }

    pub fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(self.child.id().try_into().expect("a process id")).expect("not 0");
        kill_process(id, signal).expect("the process takes a signal");
    }

    /// Waits until it exits.
    pub fn wait(&mut self) {
        until(PATIENCE, "the neighbour ends", || {
            self.child.try_wait().expect("the process can be asked")
        });
    }

    /// Returns whether its lease is valid.
    pub fn holds(&self) -> bool {
        get(self.address, "/leader").is_some_and(|(code, _)| code == 200)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
