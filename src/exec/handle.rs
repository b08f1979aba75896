//! Tenure's end of a keeper: starts it, sends it orders, and hears its reports.
//!
//! What it does not do: it never waits for a keeper. An order that a keeper does not take is
//! dropped; it still has the end of belief that it knows.

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

use super::keeper::KEEPER;
pub use super::launch::OURSELVES;
use super::wire::{End, Order, RECORD, Report};
use crate::config::OURS_ALONE;

/// What a keeper is started with.
#[derive(Clone, Debug)]
pub struct Task {
    /// The file of Tenure itself: [`OURSELVES`], but for tests.
    pub tenure: PathBuf,
    /// The program's file.
    pub program: OsString,
    /// What the program is told to be called.
    pub name: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// From SIGTERM to SIGKILL, both before the end of belief.
    pub stop_timeout: Duration,
}

/// A keeper with its command. Dropping it has the command killed at once.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
    socket: UnixStream,
    partial: Vec<u8>,
}

impl Keeper {
    /// Starts a keeper, and by it the command, with some more variables and under a belief that
    /// ends at `end`. The command's input and outputs are ours.
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
            .arg(KEEPER)
            .arg(task.stop_timeout.as_nanos().to_string())
            .arg(&task.program)
            .arg(&task.name)
            .args(&task.arguments)
            // What an `exec` around us has said of itself.
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
        let order = Order::Belief(end).to_bytes();
        sendmsg(&ours, &[IoSlice::new(&order)], &mut control, SendFlags::NOSIGNAL)?;
        ours.set_nonblocking(true)?;
        Ok(Self { child, socket: UnixStream::from_std(ours)?, partial: Vec::new() })
    }

    /// Gives an order; false if the keeper did not take it, since it is gone or too slow. One that
    /// somebody has stopped is woken to hear it: stopped, it would end nobody.
    pub fn order(&self, order: Order) -> bool {
        if let Some(id) = self.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
            let _ = kill_process(id, Signal::CONT);
        }
        let bytes = order.to_bytes();
        // A part of a record is taken only where the buffer is full, after thousands of orders that
        // nobody read.
        matches!(self.socket.try_write(&bytes), Ok(RECORD))
    }

    /// The next report; nothing more when the keeper is gone.
    ///
    /// Dropping the future loses no report.
    pub async fn report(&mut self) -> Option<Report> {
        loop {
            if let Some((bytes, _)) = self.partial.split_first_chunk::<RECORD>() {
                let report = Report::of_bytes(bytes);
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

    /// Waits for the keeper's own end, after its last report.
    pub async fn ended(&mut self) {
        let _ = self.child.wait().await;
    }

    /// The keeper's process id, while it runs.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }
}
