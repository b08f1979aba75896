//! Runs one command line to its end: without a shell, in its own process group, for a bounded time,
//! with its output in the log.
//!
//! When the command ends, its whole process group is killed, background processes included. A
//! process that is to outlive the command must start its own session.

use std::os::unix::process::ExitStatusExt;
use std::pin::{Pin, pin};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::signal::unix::{self, SignalKind};
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::output::Collected;
pub(crate) use super::output::Output;
use crate::config::{CommandLine, Withheld};

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

/// Starts a command with Tenure's environment but for what is withheld, and these variables.
pub(crate) fn start(line: &CommandLine, withheld: &Withheld, environment: &[Variable]) -> Starting {
    let mut command = Command::new(&line.program);
    command
        .args(&line.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let added = environment.iter().map(|(name, value)| (*name, value.as_deref()));
    for (name, value) in withheld.changes().chain(added) {
        match value {
            // A NUL would keep the command from being started.
            Some(value) => command.env(name, value.replace('\0', "")),
            None => command.env_remove(name),
        };
    }
    Starting(tokio::task::spawn_blocking(move || Group::of(command.spawn()?)))
}

/// Runs a command to its end. Dropping the future kills the whole group.
pub(crate) async fn run(
    line: &CommandLine,
    withheld: &Withheld,
    environment: &[Variable],
    bounds: Bounds,
    output: Output,
) -> CommandResult {
    let mut alarm = pin!(tokio::time::sleep(bounds.time));
    let mut starting = start(line, withheld, environment);
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
    /// The id of the group and its leader. The leader is waited for after the last signal to the
    /// group, so no other process or group can have the id; `None` after that.
    id: Option<Pid>,
    /// Resolves when a child of this process has exited.
    child_exited: unix::Signal,
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
        Ok(Self { child, out, err, id, child_exited: unix::signal(SignalKind::child())? })
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
        let rung = tokio::select! {
            () = self.exited(&mut collected) => false,
            () = alarm.as_mut() => true,
        };
        let has_exited = !rung || self.end(grace, &mut collected).await;
        self.signal(Signal::KILL);
        let exited = self.reap(has_exited).await;
        let _ = tokio::time::timeout(LAST_LINES, self.read_on(&mut collected)).await;
        let first_line = collected.finish();
        let end =
            if rung { CommandExit::TimedOut } else { exited.map_or(CommandExit::Exited(-1), how) };
        CommandResult { end, first_line }
    }

    /// Sends SIGTERM to the group, and SIGKILL after `grace`; reads its output meanwhile. Returns
    /// whether the command has exited.
    async fn end(&mut self, grace: Duration, collected: &mut Collected) -> bool {
        if !grace.is_zero() {
            self.signal(Signal::TERM);
            if tokio::time::timeout(grace, self.exited(collected)).await.is_ok() {
                return true;
            }
        }
        self.signal(Signal::KILL);
        tokio::time::timeout(GONE, self.exited(collected)).await.is_ok()
    }

    /// Reads the output until the command has exited, and does not wait for it in the kernel's
    /// sense: it stays a zombie, and its id its own.
    async fn exited(&mut self, collected: &mut Collected) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        while let Some(id) = self.id
            && matches!(waitid(WaitId::Pid(id), options), Ok(None))
        {
            let (mut out, mut err) = ([0; 4096], [0; 4096]);
            tokio::select! {
                _ = self.child_exited.recv() => {}
                read = read(&mut self.out, &mut out) => collected.out(&out[..read]).await,
                read = read(&mut self.err, &mut err) => collected.err(&err[..read]).await,
            }
        }
    }

    /// Waits for the command if it has exited; it cannot be signalled from here on.
    async fn reap(&mut self, has_exited: bool) -> Option<ExitStatus> {
        self.id = None;
        if has_exited { self.child.wait().await.ok() } else { None }
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

#[cfg(test)]
mod tests {
    use rustix::process::test_kill_process;

    use super::*;

    #[tokio::test]
    async fn the_id_of_a_command_is_its_own_until_its_group_was_killed() {
        let arguments = vec!["-c".to_owned(), "sleep 60 & exit 3".to_owned()];
        let line = CommandLine { program: "/bin/sh".into(), arguments };
        let mut alarm = pin!(tokio::time::sleep(Duration::from_secs(20)));
        let mut group =
            start(&line, &Withheld::default(), &[]).started(alarm.as_mut()).await.ok().unwrap();
        let id = group.id.unwrap();
        group.exited(&mut Collected::new(Output::FirstLine)).await;
        assert!(test_kill_process(id).is_ok(), "a zombie");
        let result = group.finish(alarm, Duration::ZERO, Output::FirstLine).await;
        assert_eq!(result.end, CommandExit::Exited(3));
        assert!(test_kill_process(id).is_err(), "it has been waited for");
    }
}
