//! The launcher, the last stage of `exec`: ties its life to the watchdog's, then executes the
//! command in its own process.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::SigSet;
use rustix::process::Pid;

use super::kernel::{Kernel, Linux};

/// This executable, even if its file has been replaced or deleted.
pub const OURSELVES: &str = "/proc/self/exe";

/// The first argument of this stage.
pub(super) const LAUNCH: &str = "launch-of-exec";

/// A shell's exit code for a command that cannot be executed.
pub const CANNOT_RUN: u8 = 126;

/// A shell's exit code for a command that was not found.
pub const NOT_FOUND: u8 = 127;

/// Runs `WATCHDOG PROGRAM NAME ARGUMENT…`: sets the parent death signal, then executes the program.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let watchdog = arguments.next().and_then(|it| Pid::from_raw(it.to_str()?.parse().ok()?));
    let (Some(watchdog), Some(program), Some(name)) =
        (watchdog, arguments.next(), arguments.next())
    else {
        return ExitCode::from(2);
    };
    if !bind(&Linux, watchdog) {
        return ExitCode::from(CANNOT_RUN);
    }
    // `exec` resets SIGPIPE to its default, but not the signal mask, which is the watchdog's.
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

/// Ties the life of this process to the watchdog's; returns whether that succeeded.
pub fn bind(kernel: &dyn Kernel, watchdog: Pid) -> bool {
    // If the watchdog died before the first call, no signal would come.
    kernel.die_with_parent() && kernel.parent() == Some(watchdog)
}

/// Reports on standard error why a program could not be executed.
pub(super) fn complain(program: &OsStr, error: &std::io::Error) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "tenure: {}: {error}", program.display());
}
