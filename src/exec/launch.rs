//! The last stage of `exec`: dies with its keeper from here on, and becomes the command.
//!
//! What it does not do: nothing of it is left once the command runs.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// This program, also where its file was replaced or deleted meanwhile.
pub const OURSELVES: &str = "/proc/self/exe";

/// The first argument of this stage.
pub(super) const LAUNCH: &str = "launch-of-exec";

/// What a shell says of a command that is there and cannot be run.
pub const CANNOT_RUN: u8 = 126;

/// What a shell says of a command that is not there.
pub const NOT_FOUND: u8 = 127;

/// `KEEPER PROGRAM NAME ARGUMENT…`: dies with its keeper from here on, and becomes the command.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
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

/// Says on standard error why a program could not be run.
pub(super) fn complain(program: &OsStr, error: &std::io::Error) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "tenure: {}: {error}", program.display());
}
