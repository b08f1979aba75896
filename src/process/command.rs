//! Runs one command line to its end: without a shell, in its own process group, for a bounded time,
//! with its output in the log.
//!
//! When the command ends, its whole process group is killed, background processes included. A
//! process that is to outlive the command must start its own session.

use std::os::unix::process::ExitStatusExt;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::output::Collected;
pub(crate) use super::output::Output;
use crate::config::{CommandLine, OURS_ALONE};

/// How long a killed process may take to disappear; one in uninterruptible sleep is abandoned.
const GONE: Duration = Duration::from_secs(1);

/// How long a pipe is read after the command has ended. Its output is in the pipe by then; only a
/// process that left the group can still hold the pipe open.
const LAST_LINES: Duration = Duration::from_millis(100);

/// A variable of the command's environment; `None` removes an inherited one.
pub(crate) type Variable = (&'static str, Option<String>);

/// How long a command may run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// From the beginning of its start to SIGTERM to its group.
    pub(crate) time: Duration,
    /// From SIGTERM to SIGKILL; zero for SIGKILL at once.
    pub(crate) grace: Duration,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandExit {
    /// By itself, with this exit code.
    Exited(i32),
    /// By a signal that Tenure did not send.
    Killed(i32),
    /// By Tenure, because its time was over.
    TimedOut,
    /// It could not be started, for this reason.
    NotStarted(String),
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandResult {
    /// How it ended.
    pub(crate) end: CommandExit,
    /// The first line of its standard error that is not blank, else of its standard output.
    pub(crate) first_line: Option<String>,
}

/// A command that is being started, on a thread of its own, since its program may lie on a file
/// system that hangs. Dropping this value kills the command.
pub(crate) struct Starting(JoinHandle<std::io::Result<Group>>);

/// Starts a command.
pub(crate) fn start(line: &CommandLine, environment: &[Variable]) -> Starting {
    let mut command = Command::new(&line.program);
    command
        .args(&line.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    for name in OURS_ALONE {
        command.env_remove(name);
    }
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Starting(tokio::task::spawn_blocking(move || Group::of(command.spawn()?)))
}

/// Runs a command to its end. Dropping the future kills the whole group.
pub(crate) async fn run(
    line: &CommandLine,
    environment: &[Variable],
    bounds: Bounds,
    output: Output,
) -> CommandResult {
    let mut alarm = pin!(tokio::time::sleep(bounds.time));
    let mut starting = start(line, environment);
    match starting.started(alarm.as_mut()).await {
        Ok(group) => group.finish(alarm, bounds.grace, output).await,
        Err(end) => CommandResult { end, first_line: None },
    }
}

impl Starting {
    /// Waits until the command is started or `alarm` fires; may be called again after that.
    pub(crate) async fn started(&mut self, alarm: Pin<&mut Sleep>) -> Result<Group, CommandExit> {
        tokio::select! {
            started = &mut self.0 => match started {
                Ok(Ok(group)) => Ok(group),
                Ok(Err(error)) => Err(CommandExit::NotStarted(error.to_string())),
                Err(error) => Err(CommandExit::NotStarted(error.to_string())),
            },
            () = alarm => Err(CommandExit::TimedOut),
        }
    }
}

/// A running command with its process group, which is killed on drop.
pub(crate) struct Group {
    child: Child,
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    /// The id of the group, until its leader has been reaped and the rest been killed.
    id: Option<Pid>,
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Group {
    fn of(mut child: Child) -> std::io::Result<Self> {
        let id = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let (out, err) = (child.stdout.take(), child.stderr.take());
        Ok(Self { child, out, err, id })
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // An error means that the group is empty already.
            let _ = kill_process_group(id, signal);
        }
    }

    /// Waits for the command to end; when `alarm` fires, ends it.
    pub(crate) async fn finish(
        mut self,
        mut alarm: Pin<&mut Sleep>,
        grace: Duration,
        output: Output,
    ) -> CommandResult {
        let mut collected = Collected::new(output);
        let mut rung = false;
        let exited = loop {
            let (mut out, mut err) = ([0; 4096], [0; 4096]);
            tokio::select! {
                status = self.child.wait() => break status.ok(),
                read = read(&mut self.out, &mut out) => collected.out(&out[..read]).await,
                read = read(&mut self.err, &mut err) => collected.err(&err[..read]).await,
                () = alarm.as_mut(), if !rung => {
                    rung = true;
                    break self.end(grace, &mut collected).await;
                }
            }
        };
        // The leader was reaped just now, so its id cannot belong to another group yet.
        self.signal(Signal::KILL);
        self.id = None;
        let _ = tokio::time::timeout(LAST_LINES, self.read_on(&mut collected)).await;
        let first_line = collected.finish();
        let end =
            if rung { CommandExit::TimedOut } else { exited.map_or(CommandExit::Exited(-1), how) };
        CommandResult { end, first_line }
    }

    /// Sends SIGTERM to the group, and SIGKILL after `grace`; reads its output meanwhile.
    async fn end(&mut self, grace: Duration, collected: &mut Collected) -> Option<ExitStatus> {
        if !grace.is_zero() {
            self.signal(Signal::TERM);
            let asked = tokio::time::timeout(grace, self.wait(collected)).await;
            if let Ok(status) = asked {
                return status;
            }
        }
        self.signal(Signal::KILL);
        tokio::time::timeout(GONE, self.wait(collected)).await.ok().flatten()
    }

    async fn wait(&mut self, collected: &mut Collected) -> Option<ExitStatus> {
        loop {
            let (mut out, mut err) = ([0; 4096], [0; 4096]);
            tokio::select! {
                status = self.child.wait() => return status.ok(),
                read = read(&mut self.out, &mut out) => collected.out(&out[..read]).await,
                read = read(&mut self.err, &mut err) => collected.err(&err[..read]).await,
            }
        }
    }

    /// Reads the rest of both pipes.
    async fn read_on(&mut self, collected: &mut Collected) {
        while self.out.is_some() || self.err.is_some() {
            let (mut out, mut err) = ([0; 4096], [0; 4096]);
            tokio::select! {
                read = read(&mut self.out, &mut out) => collected.out(&out[..read]).await,
                read = read(&mut self.err, &mut err) => collected.err(&err[..read]).await,
            }
        }
    }
}

/// Reads from a pipe and drops it at its end; never resolves without a pipe.
async fn read<R: AsyncReadExt + Unpin>(pipe: &mut Option<R>, into: &mut [u8]) -> usize {
    let Some(open) = pipe else {
        return std::future::pending().await;
    };
    let read = open.read(into).await.unwrap_or_default();
    if read == 0 {
        *pipe = None;
    }
    read
}

fn how(status: ExitStatus) -> CommandExit {
    match (status.code(), status.signal()) {
        (Some(code), _) => CommandExit::Exited(code),
        (None, signal) => CommandExit::Killed(signal.unwrap_or_default()),
    }
}
