//! The stages of `exec` that are separate processes: the same executable, selected by the first
//! argument before any other initialization, so that they stay small.
//!
//! ```text
//! tenure exec ── reaper ── watchdog ── launcher, which executes CMD
//! ```

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::getpid;

use super::launch::LAUNCH;
pub use super::launch::{CANNOT_RUN, NOT_FOUND, OURSELVES};
use super::reaper::REAPER;
use super::watchdog::WATCHDOG;
use super::{init, launch, reaper, watchdog};

/// Runs the stage named by the first argument, if there is one.
#[must_use]
pub fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let stage = arguments.next()?;
    if stage == REAPER {
        Some(reaper::run(arguments))
    } else if stage == WATCHDOG {
        Some(keep(arguments))
    } else if stage == LAUNCH {
        Some(launch::run(arguments))
    } else if stage == "exec" && getpid().is_init() {
        Some(init::run())
    } else {
        None
    }
}

/// Checks that the stages can be started, before a lease is acquired.
///
/// # Errors
/// When `/proc` is not mounted, or does not give access to this executable.
pub fn reachable() -> std::io::Result<()> {
    Ok(rustix::fs::access(OURSELVES, rustix::fs::Access::EXEC_OK)?)
}

/// Runs `STOP-TIMEOUT-NS PROGRAM NAME ARGUMENT…`, with the socket to Tenure as standard input.
fn keep(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let timeout = arguments.next().and_then(|it| it.to_str()?.parse().ok());
    match timeout {
        Some(nanos) => watchdog::run(Duration::from_nanos(nanos), arguments.collect()),
        None => ExitCode::from(2),
    }
}
