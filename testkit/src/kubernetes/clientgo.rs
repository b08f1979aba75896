//! A process of tests/clientgo, a candidate that uses the library client-go.
//!
//! Its `/leader` reports whether its own lease is still valid, by the last write that the API
//! server accepted.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::kubernetes::lease_ground::{Ground, LEASE};
use crate::paths::tool;
use crate::processes::cluster::Timings;
use crate::processes::process::Process;

/// Starts a candidate and waits until it listens. It competes again after it has lost its lease.
/// With `releases` it sets `ReleaseOnCancel`.
///
/// With `ReleaseOnCancel`, a candidate whose renewal failed while the API server was unreachable may
/// release a Lease that another holds by then. Set it only for candidates that are asked to exit.
pub fn start(
    name: &str,
    ground: &Ground,
    token: &Path,
    timings: Timings,
    releases: bool,
) -> Process {
    let text = |length: Duration| format!("{}ms", length.as_millis());
    let mut command = Command::new(tool("clientgo"));
    command
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
        .stdin(Stdio::null());
    Process::spawn(name, command).listening()
}
