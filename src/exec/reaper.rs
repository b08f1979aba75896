//! The reaper: the watchdog's parent, which outlives it. When the watchdog is killed, alone or
//! together with Tenure, the descendants of the command become the reaper's children, and it kills
//! them all.
//!
//! It does nothing else, but to continue a watchdog that was stopped. It keeps the watchdog's end
//! of the socket open, so that Tenure sees the end of the stream only when no process is left.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::sys::signal::SigSet;
use rustix::event::{Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

use super::descendants::{ROUND, signal_children};
use super::launch::{CANNOT_RUN, OURSELVES};
use super::watchdog::WATCHDOG;

/// The first argument of a reaper.
pub(super) const REAPER: &str = "reaper-of-exec";

/// Starts a watchdog with the same arguments and standard input, and waits until it and all
/// processes that it leaves behind are gone.
pub(super) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let Ok(watchdog) = start(arguments) else {
        return ExitCode::from(CANNOT_RUN);
    };
    while is_left(watchdog) {}
    loop {
        signal_children(Signal::KILL);
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                let round = Timespec::try_from(ROUND).ok();
                let _ = poll(&mut [], round.as_ref());
            }
            Err(_) => return ExitCode::SUCCESS,
        }
    }
}

fn start(arguments: impl Iterator<Item = OsString>) -> std::io::Result<Pid> {
    SigSet::all().thread_block()?;
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let mut command = Command::new(OURSELVES);
    let child = command.arg0("tenure").arg(WATCHDOG).args(arguments).process_group(0).spawn()?;
    let watchdog = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(watchdog.ok_or(Errno::SRCH)?)
}

/// Waits for a child to stop or exit, and continues the watchdog if it has stopped. Returns whether
/// the watchdog is left.
fn is_left(watchdog: Pid) -> bool {
    match wait(WaitOptions::UNTRACED) {
        Ok(Some((id, status))) if id == watchdog => {
            let stopped = status.stopping_signal().is_some();
            if stopped {
                // It has not been waited for, so its id is its own.
                let _ = kill_process(watchdog, Signal::CONT);
            }
            stopped
        }
        Ok(_) | Err(Errno::INTR) => true,
        Err(_) => false,
    }
}
