//! Hands the terminal to the command while it needs it.
//!
//! Ctrl-C goes to the terminal's foreground process group. That is Tenure's, which forwards the
//! signal once. But the kernel stops a command that reads or configures the terminal from the
//! background. The command's group is then put in the foreground until it ends, and receives Ctrl-C
//! itself. Nothing is changed if Tenure runs in the background.

use nix::sys::signal::{SIGTTOU, SigSet};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

/// The terminal's foreground: that of Tenure, or of the command.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    lent: bool,
}

impl Terminal {
    /// Puts a group in the foreground instead of Tenure's; returns false if Tenure's was not.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        let stdin = std::io::stdin();
        if tcgetpgrp(&stdin) == Ok(getpgrp()) {
            self.lent = tcsetpgrp(&stdin, group).is_ok();
        }
        self.lent
    }

    /// Puts Tenure's group in the foreground again.
    pub(super) fn take_back(&mut self) {
        if !std::mem::take(&mut self.lent) {
            return;
        }
        // A background process that changes the foreground group is stopped unless it blocks
        // SIGTTOU.
        let mut stops = SigSet::empty();
        stops.add(SIGTTOU);
        if stops.thread_block().is_ok() {
            let _ = tcsetpgrp(std::io::stdin(), getpgrp());
            let _ = stops.thread_unblock();
        }
    }

    /// Returns whether the command's group is in the foreground.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
