//! Tenure's side of the watchdog: starts it, sends it orders, and receives its reports.
//!
//! Tenure never waits for a watchdog. An order that it does not accept is dropped; the deadline
//! that it was sent before still applies.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

pub use super::launch::OURSELVES;
use super::watchdog::WATCHDOG;
use super::wire::{End, RECORD, WatchdogCommand, WatchdogEvent};
use crate::config::OURS_ALONE;

/// The command line of a watchdog.
#[derive(Clone, Debug)]
pub struct Task {
    /// Tenure's executable: [`OURSELVES`], except in tests.
    pub tenure: PathBuf,
    /// The program's file.
    pub program: OsString,
    /// The program's `argv[0]`.
    pub name: OsString,
    /// The program's arguments.
    pub arguments: Vec<OsString>,
    /// The time from SIGTERM to SIGKILL, which is sent at the deadline of the belief.
    pub stop_timeout: Duration,
}

/// A watchdog with its command. Dropping it kills the command at once.
#[derive(Debug)]
pub struct WatchdogClient {
    child: Child,
    socket: UnixStream,
    partial: Vec<u8>,
}

impl WatchdogClient {
    /// Starts a watchdog, which starts the command with the additional variables, under a belief
    /// whose deadline is `end`. The command inherits stdin, stdout and stderr.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn start<'a>(
        task: &Task,
        variables: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
        end: End,
    ) -> std::io::Result<Self> {
        let (ours, its) = Socket::pair()?;
        let mut command = Command::new(&task.tenure);
        for name in OURS_ALONE {
            command.env_remove(name);
        }
        let child = command
            .arg0("tenure")
            .arg(WATCHDOG)
            .arg(task.stop_timeout.as_nanos().to_string())
            .arg(&task.program)
            .arg(&task.name)
            .args(&task.arguments)
            // These describe the outer `exec`, if there is one.
            .env_remove("TENURE_URL")
            .env_remove("TENURE_STATUS_FILE")
            .envs(variables)
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(its)))
            .spawn()?;
        let stdin = std::io::stdin();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [stdin.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        let order = WatchdogCommand::Belief(end).to_bytes();
        sendmsg(&ours, &[IoSlice::new(&order)], &mut control, SendFlags::NOSIGNAL)?;
        ours.set_nonblocking(true)?;
        Ok(Self { child, socket: UnixStream::from_std(ours)?, partial: Vec::new() })
    }

    /// Sends an order; returns false if the watchdog did not accept it, because it is gone or too
    /// slow. First sends SIGCONT, since a stopped watchdog could not end the command.
    pub fn order(&self, order: WatchdogCommand) -> bool {
        if let Some(id) = self.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
            let _ = kill_process(id, Signal::CONT);
        }
        let bytes = order.to_bytes();
        // A record is written partially only if the buffer is full, after thousands of unread
        // orders.
        matches!(self.socket.try_write(&bytes), Ok(RECORD))
    }

    /// Returns the next report, or `None` if the watchdog is gone.
    ///
    /// Cancel safe: dropping the future loses no report.
    pub async fn report(&mut self) -> Option<WatchdogEvent> {
        loop {
            if let Some((bytes, _)) = self.partial.split_first_chunk::<RECORD>() {
                let report = WatchdogEvent::of_bytes(bytes);
                self.partial.drain(..RECORD);
                if report.is_some() {
                    return report;
                }
                continue;
            }
            self.socket.readable().await.ok()?;
            let mut bytes = [0; RECORD];
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return None,
                Ok(got) => self.partial.extend_from_slice(&bytes[..got]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits for the watchdog to exit, after its last report.
    pub async fn ended(&mut self) {
        let _ = self.child.wait().await;
    }

    /// Returns the watchdog's process id while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }
}
