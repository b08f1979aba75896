//! One run of the command, in one term: what its keeper was told, and what it has said.
//!
//! What it does not do: it knows no other term, and decides nothing about the lease.

use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::course::{Ended, Why};
use super::descendants::{group_lives, signal_group};
use super::handle::Keeper;
use super::signals::{CONT, TSTP, TTIN, TTOU};
use super::terminal::Terminal;
use super::wire::{End, Order, Report};
use crate::clock::Moment;
use crate::election::Standing;

/// Between two looks at a group whose keeper is gone.
const LOOK: Duration = Duration::from_millis(20);

/// A command that runs, or has run, in a term.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) term: u64,
    pub(super) since: Moment,
    /// Why it was asked to end, if it was.
    pub(super) why: Option<Why>,
    /// How it ended; another signal's work where nobody could tell.
    pub(super) ended: Option<Ended>,
    keeper: Keeper,
    group: Option<Pid>,
    /// The end of belief that the keeper knows.
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

    /// Tells the keeper what the status says of its term: `signal` is what a command is asked to end
    /// by when we leave by will.
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
        // By the lease clocks alone: after a jump of the wall clock a renewal is under way, and the
        // command goes on unless that is not granted by the old deadline (R10).
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

    /// Passes a signal on.
    pub(super) fn pass_on(&self, signal: i32) {
        self.keeper.order(Order::Signal(signal));
    }

    /// The next report; nothing more when the keeper is gone.
    pub(super) async fn report(&mut self) -> Option<Report> {
        self.keeper.report().await
    }

    /// Takes in a report. Says whether nothing is left.
    pub(super) fn take(&mut self, report: Report) -> bool {
        match report {
            Report::Started(id) => {
                self.group = Pid::from_raw(id);
                tracing::info!(term = self.term, pid = id, "command started");
            }
            Report::Failed(error) => {
                let error = std::io::Error::from_raw_os_error(error);
                tracing::error!(term = self.term, %error, "command could not be started");
                self.ended = Some(Ended::Exited(super::stage::CANNOT_RUN.into()));
            }
            Report::Overdue => {
                self.why.get_or_insert(Why::Lost);
                tracing::warn!(term = self.term, "belief nears its end: command is asked to end");
            }
            Report::Stopped(signal) => self.stopped(signal),
            Report::Exited(_) | Report::Signalled(_) => {
                self.ended = Ended::of(report);
                match report {
                    Report::Signalled(signal) => {
                        tracing::info!(term = self.term, signal, "command was ended by a signal");
                    }
                    Report::Exited(code) => {
                        tracing::info!(term = self.term, code, "command ended");
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
            // A leader that stands still would keep the others waiting: Ctrl-Z does nothing.
            TSTP => self.pass_on(CONT),
            _ => {}
        }
    }

    /// Whether the command ended by a Ctrl-C that was its own.
    pub(super) fn was_interrupted(&self) -> bool {
        self.terminal.is_lent() && self.ended.is_some_and(Ended::is_interrupt)
    }

    /// Waits for the keeper's process. If it was killed, the command was with it; whoever is left of
    /// the group is ended here.
    pub(super) async fn end(&mut self, orderly: bool) {
        self.terminal.take_back();
        self.keeper.ended().await;
        if orderly {
            return;
        }
        tracing::error!(
            term = self.term,
            "the command's keeper was killed, and the command with it"
        );
        if let Some(group) = self.group {
            while group_lives(group) {
                signal_group(group, Signal::KILL);
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}
