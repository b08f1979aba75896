//! The stages of `exec` that are processes of their own: this program again, told apart by its
//! first argument before anything else is set up, so that they stay small.
//!
//! ```text
//! tenure exec ── keeper ── launch, which becomes CMD
//! ```
//!
//! What it does not do: it parses no settings, starts no runtime and writes no log.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::getpid;

use super::keeper::KEEPER;
use super::launch::LAUNCH;
pub use super::launch::{CANNOT_RUN, NOT_FOUND, OURSELVES};
use super::{init, keeper, launch};

/// Runs the stage that the first argument names, if it names one.
#[must_use]
pub fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let stage = arguments.next()?;
    if stage == KEEPER {
        Some(keep(arguments))
    } else if stage == LAUNCH {
        Some(launch::run(arguments))
    } else if stage == "exec" && getpid().is_init() {
        Some(init::run())
    } else {
        None
    }
}

/// Whether the stages can be started at all, so that nothing is acquired where they cannot.
///
/// # Errors
/// When `/proc` is not there, or keeps this program from itself.
pub fn reachable() -> std::io::Result<()> {
    Ok(rustix::fs::access(OURSELVES, rustix::fs::Access::EXEC_OK)?)
}

/// `STOP-TIMEOUT-NS PROGRAM NAME ARGUMENT…`, with the socket to Tenure as standard input.
fn keep(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let timeout = arguments.next().and_then(|it| it.to_str()?.parse().ok());
    match timeout {
        Some(nanos) => keeper::run(Duration::from_nanos(nanos), arguments.collect()),
        None => ExitCode::from(2),
    }
}
