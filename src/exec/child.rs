//! One run of the command, in one term: the orders sent to its watchdog, and the reports received.

use rustix::process::Pid;

use super::descendants::{OtherGroup, ROUND};
use super::exit::{ExitStatus, StopReason};
use super::kernel::Kernel;
use super::terminal::Terminal;
use super::watchdog_client::WatchdogClient;
use super::wire::{End, WatchdogCommand, WatchdogEvent};
use crate::clock::Moment;
use crate::election::Standing;
use crate::process::signals::{CONT, TSTP, TTIN, TTOU};
use crate::timer::Timer;

/// A run of the command in a term.
pub(super) struct Child {
    pub(super) term: u64,
    pub(super) since: Moment,
    /// Why it was asked to stop, if it was.
    pub(super) why: Option<StopReason>,
    /// How it ended; `None` after the end if that is unknown.
    pub(super) ended: Option<ExitStatus>,
    kernel: &'static dyn Kernel,
    watchdog: WatchdogClient,
    group: Option<Pid>,
    /// The same group, for the case that watchdog and reaper are killed.
    rest: Option<OtherGroup>,
    /// The deadline that was sent to the watchdog.
    sent: End,
    asked: bool,
    killed: bool,
    terminal: Terminal,
}

impl Child {
    pub(super) fn new(
        kernel: &'static dyn Kernel,
        term: u64,
        since: Moment,
        watchdog: WatchdogClient,
        sent: End,
    ) -> Self {
        Self {
            term,
            since,
            why: None,
            ended: None,
            kernel,
            watchdog,
            group: None,
            rest: None,
            sent,
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
                    self.why.get_or_insert(StopReason::Lost);
                    self.watchdog.order(WatchdogCommand::Kill);
                }
                return;
            }
        };
        // Only the lease clocks count: after a jump of the wall clock a renewal is in flight, and
        // the command keeps running unless that is not granted by the old deadline (R10).
        let end = End::of(belief.sent, belief.length);
        if end != self.sent && self.watchdog.order(WatchdogCommand::Belief(end)) {
            self.sent = end;
        }
        if let Standing::Draining { began, length, .. } = standing
            && !std::mem::replace(&mut self.asked, true)
        {
            self.why.get_or_insert(StopReason::Lost);
            let within = length.saturating_sub(began.elapsed_max(now));
            self.watchdog.order(WatchdogCommand::Terminate { signal, within });
        }
    }

    /// Forwards a signal to the command.
    pub(super) fn pass_on(&self, signal: i32) {
        self.watchdog.order(WatchdogCommand::Signal(signal));
    }

    /// Returns the next report, or `None` if the watchdog is gone.
    pub(super) async fn report(&mut self) -> Option<WatchdogEvent> {
        self.watchdog.report().await
    }

    /// Processes a report. Returns whether no process is left.
    pub(super) fn take(&mut self, report: WatchdogEvent) -> bool {
        match report {
            WatchdogEvent::Started { id, since } => {
                self.group = Pid::from_raw(id);
                self.rest = self.group.map(|it| OtherGroup::led_by(self.kernel, it, since));
                tracing::info!(term = self.term, pid = id, "command started");
            }
            WatchdogEvent::Failed(error) => {
                let error = std::io::Error::from_raw_os_error(error);
                tracing::error!(term = self.term, %error, "failed to start the command");
                self.ended = Some(ExitStatus::Exited(super::reexec::CANNOT_RUN.into()));
            }
            WatchdogEvent::Overdue => {
                self.why.get_or_insert(StopReason::Lost);
                tracing::warn!(
                    term = self.term,
                    "lease about to expire: sending SIGTERM to the command"
                );
            }
            WatchdogEvent::Stopped(signal) => self.stopped(signal),
            WatchdogEvent::Exited(_) | WatchdogEvent::Signalled(_) => {
                self.ended = ExitStatus::of(report);
                match report {
                    WatchdogEvent::Signalled(signal) => {
                        if self.why.is_none() {
                            tracing::warn!(term = self.term, signal, "command killed by a signal");
                        } else {
                            tracing::info!(term = self.term, signal, "command killed by a signal");
                        }
                    }
                    WatchdogEvent::Exited(code) if code != 0 && self.why.is_none() => {
                        tracing::warn!(term = self.term, code, "command exited");
                    }
                    WatchdogEvent::Exited(code) => {
                        tracing::info!(term = self.term, code, "command exited");
                    }
                    _ => {}
                }
            }
            WatchdogEvent::Gone => return true,
        }
        matches!(report, WatchdogEvent::Failed(_))
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
        self.terminal.is_lent() && self.ended.is_some_and(ExitStatus::is_interrupt)
    }

    /// Waits for the reaper to exit, and so for the last process of the command. If both it and the
    /// watchdog were killed, so was the command; then the rest of its group is killed here.
    pub(super) async fn end(&mut self, orderly: bool, timer: Timer) {
        self.terminal.take_back();
        self.watchdog.ended().await;
        if orderly {
            return;
        }
        tracing::error!(
            term = self.term,
            "the watchdog of the command was killed, and the command with it"
        );
        while self.rest.is_some_and(|it| it.kill(self.kernel)) {
            timer(ROUND).await;
        }
    }
}
