//! `exec:CMD`: well is an exit with 0 within the time.
//!
//! What it does not do: its output does not come into the log; the first line is said where it
//! fails. Over its time it is killed with its group, without asking: a probe has nothing to end.

use std::pin::pin;
use std::time::Duration;

use super::Finding;
use crate::command::{self, End, Output, Starting};
use crate::config::CommandLine;

/// One probe of this kind.
pub(super) struct Exec {
    pub(super) line: CommandLine,
    /// A start that did not end in time: a disk that hangs holds one thread, however often.
    pub(super) starting: Option<Starting>,
}

impl Exec {
    /// Runs the command; `None` when the time was over.
    pub(super) async fn probe(&mut self, bound: Duration) -> Option<Finding> {
        let mut alarm = pin!(tokio::time::sleep(bound));
        if let Some(late) = &mut self.starting {
            // What starts so late was meant for an earlier probe: it ends as it is dropped.
            if let Err(End::TimedOut) = late.started(alarm.as_mut()).await {
                return None;
            }
        }
        let starting = self.starting.insert(command::start(&self.line, &[]));
        let started = starting.started(alarm.as_mut()).await;
        if !matches!(started, Err(End::TimedOut)) {
            self.starting = None;
        }
        let ended = match started {
            Ok(group) => group.finish(alarm, Duration::ZERO, Output::FirstLine).await,
            Err(End::TimedOut) => return None,
            Err(end) => command::Ended { end, first_line: None },
        };
        let line = ended.first_line.map(|line| format!(": {line}")).unwrap_or_default();
        Some(match ended.end {
            End::TimedOut => return None,
            End::Exited(0) => Finding::well("exit code 0".to_owned()),
            End::Exited(code) => Finding::unwell(format!("exit code {code}{line}")),
            End::Killed(signal) => Finding::unwell(format!("ended by signal {signal}{line}")),
            End::NotStarted(why) => Finding::unwell(format!("could not be started: {why}")),
        })
    }
}
