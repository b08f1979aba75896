//! The stages of `exec` that are processes of their own: this program again, told apart by its
//! first argument before anything else is set up, so that they stay small.
//!
//! ```text
//! tenure exec ── keeper ── launch, which becomes CMD
//! ```
//!
//! What it does not do: it parses no settings, starts no runtime and writes no log.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::{init, keeper};

/// This program, also where its file was replaced or deleted meanwhile.
pub const OURSELVES: &str = "/proc/self/exe";

/// The first argument of a keeper.
pub(super) const KEEPER: &str = "keeper-of-exec";

/// The first argument of the last stage.
pub(super) const LAUNCH: &str = "launch-of-exec";

/// What a shell says of a command that is there and cannot be run.
pub const CANNOT_RUN: u8 = 126;

/// What a shell says of a command that is not there.
pub const NOT_FOUND: u8 = 127;

/// Runs the stage that the first argument names, if it names one.
#[must_use]
pub fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let stage = arguments.next()?;
    if stage == KEEPER {
        Some(keep(arguments))
    } else if stage == LAUNCH {
        Some(launch(arguments))
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

/// `KEEPER PROGRAM NAME ARGUMENT…`: dies with its keeper from here on, and becomes the command.
fn launch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let keeper = arguments.next().and_then(|it| Pid::from_raw(it.to_str()?.parse().ok()?));
    let (Some(keeper), Some(program), Some(name)) = (keeper, arguments.next(), arguments.next())
    else {
        return ExitCode::from(2);
    };
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    // A keeper that died before that will send no signal any more.
    if bound.is_err() || getppid() != Some(keeper) {
        return ExitCode::from(CANNOT_RUN);
    }
    // It also gives SIGPIPE its default back, but passes the keeper's mask of signals on.
    if SigSet::empty().thread_set_mask().is_err() {
        return ExitCode::from(CANNOT_RUN);
    }
    let error = Command::new(&program).arg0(&name).args(arguments).exec();
    complain(&program, &error);
    ExitCode::from(match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    })
}

pub(super) fn complain(program: &OsStr, error: &std::io::Error) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "tenure: {}: {error}", program.display());
}
