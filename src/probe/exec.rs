//! The probe `exec:CMD`: succeeds if the command exits with 0 within the timeout. Its output is not
//! logged; after a failure the first line is part of the result. On timeout, its process group is
//! killed without a SIGTERM.

use std::pin::pin;
use std::time::Duration;

use super::Outcome;
use crate::config::{CommandLine, Withheld};
use crate::process::command::{self, CommandExit, Output, Starting};

/// A probe of this kind.
pub(super) struct Exec {
    pub(super) line: CommandLine,
    pub(super) withheld: Withheld,
    /// A start that timed out and still runs: a hanging file system takes up one thread, not one
    /// for each run.
    pub(super) starting: Option<Starting>,
}

impl Exec {
    /// Runs the command; returns `None` on timeout.
    pub(super) async fn probe(&mut self, bound: Duration) -> Option<Outcome> {
        let mut alarm = pin!(tokio::time::sleep(bound));
        if let Some(late) = &mut self.starting {
            // It belongs to an earlier run, so the command is killed by the drop.
            if let Err(CommandExit::TimedOut) = late.started(alarm.as_mut()).await {
                return None;
            }
        }
        let starting = self.starting.insert(command::start(&self.line, &self.withheld, &[]));
        let started = starting.started(alarm.as_mut()).await;
        if !matches!(started, Err(CommandExit::TimedOut)) {
            self.starting = None;
        }
        let ended = match started {
            Ok(group) => group.finish(alarm, Duration::ZERO, Output::FirstLine).await,
            Err(CommandExit::TimedOut) => return None,
            Err(end) => command::CommandResult { end, first_line: None },
        };
        let line = ended.first_line.map(|line| format!(": {line}")).unwrap_or_default();
        Some(match ended.end {
            CommandExit::TimedOut => return None,
            CommandExit::Exited(0) => Outcome::success("exit code 0".to_owned()),
            CommandExit::Exited(code) => Outcome::failure(format!("exit code {code}{line}")),
            CommandExit::Killed(signal) => {
                Outcome::failure(format!("killed by signal {signal}{line}"))
            }
            CommandExit::NotStarted(why) => Outcome::failure(format!("failed to start: {why}")),
        })
    }
}
