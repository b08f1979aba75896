//! Process 1 of a container: it reaps whoever loses the parent, and stands before the Tenure that
//! does the work, so that none of the latter's own children is taken from it.
//!
//! What it does not do: nothing else. When it ends, the kernel ends everything in its namespace.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SigSet};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

use super::launch::{CANNOT_RUN, OURSELVES, complain};

/// The code of a signal that the kernel sent, as a terminal's keys make it do: it goes to the whole
/// group, so that Tenure has it already.
const BY_KERNEL: i32 = 0x80;

/// Runs Tenure with our own arguments below us; ends as it does.
pub(super) fn run() -> ExitCode {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let mut taken = SigSet::all();
    // What stops and continues is for everyone himself.
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

/// Waits for all who have ended; gives Tenure's code if it is among them.
fn reap(tenure: Pid) -> Option<u8> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((id, status))) if id == tenure => return Some(code(status)),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return None,
        }
    }
}

/// As a shell says it.
fn code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or(status.terminating_signal().map(|it| 128 + it));
    code.and_then(|it| u8::try_from(it).ok()).unwrap_or(1)
}
