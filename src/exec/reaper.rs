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
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, waitid};

use super::descendants::{ROUND, signal_children};
use super::kernel::{Change, Kernel, Linux};
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
    let mut reaper = Reaper::new(&Linux, watchdog);
    while let Some(pause) = reaper.turn() {
        match pause {
            Pause::ForWatchdog => {
                let options =
                    WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
                let _ = waitid(WaitId::Pid(watchdog), options);
            }
            Pause::Round => {
                let round = Timespec::try_from(ROUND).ok();
                let _ = poll(&mut [], round.as_ref());
            }
        }
    }
    ExitCode::SUCCESS
}

fn start(arguments: impl Iterator<Item = OsString>) -> std::io::Result<Pid> {
    SigSet::all().thread_block()?;
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let mut command = Command::new(OURSELVES);
    let child = command.arg0("tenure").arg(WATCHDOG).args(arguments).process_group(0).spawn()?;
    Ok(Pid::from_child(&child))
}

/// What a reaper waits for before its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The watchdog to stop or exit.
    ForWatchdog,
    /// `ROUND`.
    Round,
}

/// The decisions of a reaper.
pub struct Reaper {
    kernel: &'static dyn Kernel,
    /// The watchdog, until it has been waited for.
    watchdog: Option<Pid>,
}

impl Reaper {
    /// Creates the reaper of this watchdog.
    pub fn new(kernel: &'static dyn Kernel, watchdog: Pid) -> Self {
        Self { kernel, watchdog: Some(watchdog) }
    }

    /// Does what is due. Returns what to wait for before the next turn; `None` when no process is
    /// left.
    pub fn turn(&mut self) -> Option<Pause> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
        while let Some(watchdog) = self.watchdog {
            match self.kernel.wait(Some(watchdog), options) {
                Ok(Some(Change::Stopped(_))) => {
                    // It has not been waited for, so its id is its own.
                    let _ = self.kernel.signal(watchdog, Signal::CONT);
                }
                Ok(None) | Err(Errno::INTR) => return Some(Pause::ForWatchdog),
                Ok(Some(_)) | Err(_) => self.watchdog = None,
            }
        }
        loop {
            signal_children(self.kernel, Signal::KILL);
            match self.kernel.wait(None, WaitIdOptions::EXITED) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Some(Pause::Round),
                Err(_) => return None,
            }
        }
    }
}
