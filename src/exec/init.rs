//! Process 1 of a container: reaps orphans, and runs Tenure as a child process, so that it does not
//! reap the children that Tenure waits for. When it exits, the kernel kills everything in its PID
//! namespace.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SigSet};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

use super::launch::{CANNOT_RUN, OURSELVES, complain};
use crate::process::privacy::keep_memory_private;

/// The `si_code` of signals from the kernel, such as those of a terminal's keys. These go to the
/// whole process group, so that Tenure has received them already.
const BY_KERNEL: i32 = 0x80;

/// Runs Tenure as a child with the same arguments; returns its exit code.
pub(super) fn run() -> ExitCode {
    keep_memory_private();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut taken = SigSet::all();
    // Signals that stop and continue keep their default action.
    for one in [SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU] {
        taken.remove(one);
    }
    let signals = match taken.thread_block() {
        Ok(()) => SignalFd::with_flags(&taken, SfdFlags::SFD_CLOEXEC),
        Err(error) => Err(error),
    };
    let child = Command::new(OURSELVES).arg0(name).args(arguments).spawn();
    if let Err(error) = &child {
        complain(OsStr::new(OURSELVES), error);
    }
    let (Ok(signals), Ok(child)) = (signals, child) else {
        return ExitCode::from(CANNOT_RUN);
    };
    let Some(tenure) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
        return ExitCode::from(CANNOT_RUN);
    };
    loop {
        let Ok(Some(signal)) = signals.read_signal() else {
            continue;
        };
        let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
        if number == SIGCHLD as i32 {
            if let Some(code) = reap(tenure) {
                return ExitCode::from(code);
            }
        } else if signal.ssi_code != BY_KERNEL
            && let Some(signal) = Signal::from_named_raw(number)
        {
            let _ = kill_process(tenure, signal);
        }
    }
}

/// Reaps all children that have exited; returns Tenure's exit code if it was one of them.
fn reap(tenure: Pid) -> Option<u8> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((id, status))) if id == tenure => return Some(code(status)),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Returns the exit code as a shell would.
fn code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or(status.terminating_signal().map(|it| 128 + it));
    code.and_then(|it| u8::try_from(it).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use rustix::process::waitpid;

    use super::*;

    #[test]
    fn the_exit_code_is_that_of_a_shell() {
        for (script, expected) in [("exit 3", 3), ("kill -KILL $$", 137)] {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let ended = waitpid(Some(Pid::from_child(&child)), WaitOptions::empty()).unwrap();
            assert_eq!(ended.map(|(_, status)| code(status)), Some(expected), "{script}");
            assert!(child.wait().is_err(), "it is reaped already");
        }
    }
}
