//! The terminal, lent to the command while it wants it.
//!
//! Ctrl-C goes to the terminal's foreground group. That is ours, so that we hear it and pass it on
//! once; but a command that reads the terminal, or sets it up, is stopped by the kernel until its
//! group is in the foreground. Then it is lent the place until it ends, and Ctrl-C is its own.
//!
//! What it does not do: it lends nothing that is not ours, as when we run in the background.

use nix::sys::signal::{SIGTTOU, SigSet};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal's foreground, ours or lent.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    lent: bool,
}

impl Terminal {
    /// Puts a group in the foreground in our place; false if that was not ours.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        let stdin = std::io::stdin();
        if !self.lent && isatty(&stdin) && tcgetpgrp(&stdin) == Ok(getpgrp()) {
            self.lent = tcsetpgrp(&stdin, group).is_ok();
        }
        self.lent
    }

    /// Takes the place back.
    pub(super) fn take_back(&mut self) {
        if !std::mem::take(&mut self.lent) {
            return;
        }
        // Whoever sets the terminal from the background is stopped, unless this signal is blocked.
        let mut stops = SigSet::empty();
        stops.add(SIGTTOU);
        if stops.thread_block().is_ok() {
            let _ = tcsetpgrp(std::io::stdin(), getpgrp());
            let _ = stops.thread_unblock();
        }
    }

    /// Whether the command has it.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
