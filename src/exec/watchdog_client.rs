//! Tenure's side of the watchdog: starts it, sends it orders, and receives its reports.
//!
//! Tenure never waits for a watchdog. A deadline that it does not accept is dropped; the one that
//! it was sent before still applies. An order to end the command is never lost: if it is not
//! accepted, the connection is closed, and the watchdog kills the command.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures::future::BoxFuture;
use rustix::io::Errno;
use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, send, sendmsg, shutdown,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

pub use super::launch::OURSELVES;
use super::reaper::REAPER;
use super::wire::{End, RECORD, WatchdogCommand, WatchdogEvent};
use crate::config::Withheld;

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
    /// The variables that the command does not inherit.
    pub withheld: Withheld,
}

/// A watchdog with its command. Dropping it kills the command at once.
pub struct WatchdogClient {
    link: Box<dyn Link>,
    partial: Vec<u8>,
}

/// The process of a reaper and the socket to its watchdog: the real ones, or those of a test.
pub trait Link {
    /// Sends SIGCONT to the reaper, if it runs.
    fn resume(&self);

    /// Sends bytes without waiting; returns how many were accepted.
    ///
    /// # Errors
    /// When none were.
    fn send(&self, bytes: &[u8]) -> Result<usize, Errno>;

    /// Sends nothing more: after what it has not read yet, the watchdog reads the end of the stream.
    fn close(&self);

    /// Appends some bytes; returns how many, or 0 at the end of the stream.
    fn receive<'a>(&'a mut self, into: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<usize>>;

    /// Waits for the reaper to exit.
    fn ended(&mut self) -> BoxFuture<'_, ()>;

    /// Returns the reaper's process id while it runs.
    fn id(&self) -> Option<u32>;
}

impl WatchdogClient {
    /// Starts a watchdog, which starts the command with the additional variables, under a belief
    /// whose deadline is `end`. The command inherits stdin, stdout and stderr.
    ///
    /// # Errors
    /// When a process cannot be started.
    pub fn start(task: &Task, variables: &[(&str, &OsStr)], end: End) -> io::Result<Self> {
        let (ours, its) = Socket::pair()?;
        let mut command = Command::new(&task.tenure);
        for (name, value) in task.withheld.changes() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let reaper = command
            .arg0("tenure")
            .arg(REAPER)
            .arg(task.stop_timeout.as_nanos().to_string())
            .arg(&task.program)
            .arg(&task.name)
            .args(&task.arguments)
            // These describe the outer `exec`, if there is one.
            .env_remove("TENURE_URL")
            .env_remove("TENURE_STATUS_FILE")
            .envs(variables.iter().copied())
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(its)))
            .spawn()?;
        let stdin = io::stdin();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [stdin.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        let order = WatchdogCommand::Belief(end).to_bytes();
        sendmsg(&ours, &[IoSlice::new(&order)], &mut control, SendFlags::NOSIGNAL)?;
        ours.set_nonblocking(true)?;
        let socket = UnixStream::from_std(ours)?;
        Ok(Self::over(Box::new(Process { reaper, socket })))
    }

    /// Returns the client of a watchdog that has been sent its first order.
    #[doc(hidden)]
    #[must_use]
    pub fn over(link: Box<dyn Link>) -> Self {
        Self { link, partial: Vec::new() }
    }

    /// Sends an order without waiting; returns false if the watchdog did not accept it, because it
    /// is gone or has left hundreds of orders unread. First sends SIGCONT to the reaper, which
    /// continues the watchdog, since a stopped one could not end the command.
    pub fn order(&self, order: WatchdogCommand) -> bool {
        self.link.resume();
        let sent = loop {
            match self.link.send(&order.to_bytes()) {
                Err(Errno::INTR) => {}
                sent => break sent,
            }
        };
        let is_end = matches!(order, WatchdogCommand::Terminate { .. } | WatchdogCommand::Kill);
        if sent != Ok(RECORD) && (is_end || sent.is_ok()) {
            self.link.close();
        }
        sent == Ok(RECORD)
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
            if let Ok(0) | Err(_) = self.link.receive(&mut self.partial).await {
                return None;
            }
        }
    }

    /// Waits for the reaper to exit, after the watchdog and its last report.
    pub async fn ended(&mut self) {
        self.link.ended().await;
    }

    /// Returns the reaper's process id while it runs; the watchdog is its child.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.link.id()
    }
}

/// The real process and socket.
struct Process {
    reaper: Child,
    socket: UnixStream,
}

impl Link for Process {
    fn resume(&self) {
        if let Some(id) = self.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
            let _ = kill_process(id, Signal::CONT);
        }
    }

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        // Not by the runtime's `try_write`, which fails on a new socket until it has been polled.
        send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn close(&self) {
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    fn receive<'a>(&'a mut self, into: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(self.socket.read_buf(into))
    }

    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let _ = self.reaper.wait().await;
        })
    }

    fn id(&self) -> Option<u32> {
        self.reaper.id()
    }
}
