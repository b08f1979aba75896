//! One run of the command, in one term: the orders sent to its watchdog, and the reports received.

use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::descendants::{group_lives, signal_group};
use super::exit::{Ended, Why};
use super::terminal::Terminal;
use super::watchdog_client::Keeper;
use super::wire::{End, Order, Report};
use crate::clock::Moment;
use crate::election::Standing;
use crate::process::signals::{CONT, TSTP, TTIN, TTOU};

/// The interval of checks on a group whose watchdog is gone.
const LOOK: Duration = Duration::from_millis(20);

/// A run of the command in a term.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) term: u64,
    pub(super) since: Moment,
    /// Why it was told to end, if it was.
    pub(super) why: Option<Why>,
    /// How it ended; `None` after the end if that is unknown.
    pub(super) ended: Option<Ended>,
    keeper: Keeper,
    group: Option<Pid>,
    /// The deadline that was sent to the watchdog.
    told: End,
    asked: bool,
    killed: bool,
    terminal: Terminal,
}

impl Running {
    pub(super) fn new(term: u64, since: Moment, keeper: Keeper, told: End) -> Self {
        Self {
            term,
            since,
            why: None,
            ended: None,
            keeper,
            group: None,
            told,
            asked: false,
            killed: false,
            terminal: Terminal::default(),
        }
    }

    /// Sends the watchdog what the status says of its term. `signal` is the signal that stops the
    /// command in a graceful handover.
    pub(super) fn follow(&mut self, standing: &Standing, signal: i32, now: Moment) {
        let belief = match standing {
            Standing::Leader { term, belief, .. } | Standing::Draining { term, belief, .. }
                if *term == self.term =>
            {
                belief
            }
            _ => {
                if !std::mem::replace(&mut self.killed, true) {
                    self.why.get_or_insert(Why::Lost);
                    self.keeper.order(Order::Kill);
                }
                return;
            }
        };
        // Only the lease clocks count: after a jump of the wall clock a renewal is in flight, and
        // the command keeps running unless that is not granted by the old deadline (R10).
        let end = End::of(belief.sent, belief.length);
        if end != self.told && self.keeper.order(Order::Belief(end)) {
            self.told = end;
        }
        if let Standing::Draining { began, length, .. } = standing
            && !std::mem::replace(&mut self.asked, true)
        {
            self.why.get_or_insert(Why::Lost);
            let within = length.saturating_sub(began.elapsed_max(now));
            self.keeper.order(Order::Terminate { signal, within });
        }
    }

    /// Forwards a signal to the command.
    pub(super) fn pass_on(&self, signal: i32) {
        self.keeper.order(Order::Signal(signal));
    }

    /// Returns the next report, or `None` if the watchdog is gone.
    pub(super) async fn report(&mut self) -> Option<Report> {
        self.keeper.report().await
    }

    /// Processes a report. Returns whether no process is left.
    pub(super) fn take(&mut self, report: Report) -> bool {
        match report {
            Report::Started(id) => {
                self.group = Pid::from_raw(id);
                tracing::info!(term = self.term, pid = id, "command started");
            }
            Report::Failed(error) => {
                let error = std::io::Error::from_raw_os_error(error);
                tracing::error!(term = self.term, %error, "failed to start the command");
                self.ended = Some(Ended::Exited(super::reexec::CANNOT_RUN.into()));
            }
            Report::Overdue => {
                self.why.get_or_insert(Why::Lost);
                tracing::warn!(
                    term = self.term,
                    "lease about to expire: sending SIGTERM to the command"
                );
            }
            Report::Stopped(signal) => self.stopped(signal),
            Report::Exited(_) | Report::Signalled(_) => {
                self.ended = Ended::of(report);
                match report {
                    Report::Signalled(signal) => {
                        if self.why.is_none() {
                            tracing::warn!(term = self.term, signal, "command killed by a signal");
                        } else {
                            tracing::info!(term = self.term, signal, "command killed by a signal");
                        }
                    }
                    Report::Exited(code) if code != 0 && self.why.is_none() => {
                        tracing::warn!(term = self.term, code, "command exited");
                    }
                    Report::Exited(code) => {
                        tracing::info!(term = self.term, code, "command exited");
                    }
                    _ => {}
                }
            }
            Report::Gone => return true,
        }
        matches!(report, Report::Failed(_))
    }

    fn stopped(&mut self, signal: i32) {
        let Some(group) = self.group else { return };
        match signal {
            TTIN | TTOU if self.terminal.lend(group) => self.pass_on(CONT),
            // Ctrl-Z has no effect: a stopped leader would block the other candidates.
            TSTP => self.pass_on(CONT),
            _ => {}
        }
    }

    /// Returns whether the command was ended by a Ctrl-C while it had the terminal.
    pub(super) fn was_interrupted(&self) -> bool {
        self.terminal.is_lent() && self.ended.is_some_and(Ended::is_interrupt)
    }

    /// Waits for the watchdog to exit. If it was killed, so was the command; then the rest of its
    /// group is killed here.
    pub(super) async fn end(&mut self, orderly: bool) {
        self.terminal.take_back();
        self.keeper.ended().await;
        if orderly {
            return;
        }
        tracing::error!(
            term = self.term,
            "the watchdog of the command was killed, and the command with it"
        );
        if let Some(group) = self.group {
            while group_lives(group) {
                signal_group(group, Signal::KILL);
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}
