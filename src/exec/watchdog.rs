//! The watchdog: a small process between Tenure and the command. It ends the command by its own
//! clock by the time the belief in the lease ends, and at once when Tenure is gone.
//!
//! It is the command's parent and the subreaper of all descendants. It has a process group of its
//! own, so that signals to Tenure's group do not reach it, and it blocks all signals. It reads the
//! clock at each order, at each exit of a child, and at least every [`STEP`]. It can only be
//! stopped by a SIGSTOP to itself, until Tenure's next order continues it, or by a freeze of the
//! whole cgroup; afterwards it acts by the clock again.
//!
//! It uses no async runtime, writes no log and needs very little memory.

use std::ffi::OsString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, wait};

use super::deadline::{Action, Rule};
use super::descendants::{signal_all, signal_group};
use super::launch::{LAUNCH, OURSELVES};
use super::wire::{RECORD, WatchdogCommand, WatchdogEvent};
use crate::clock;

/// The first argument of a watchdog.
pub(super) const WATCHDOG: &str = "watchdog-of-exec";

/// The longest sleep: timers do not advance during suspend, so the clock is read this often.
const STEP: Duration = Duration::from_millis(200);

/// The pause between two rounds of SIGKILL, for processes that were forked in between.
const ROUND: Duration = Duration::from_millis(20);

/// Runs the watchdog of `command` (program, name, arguments) until no process of it is left.
/// Standard input is the socket to Tenure.
pub(super) fn run(stop_timeout: Duration, command: Vec<OsString>) -> ExitCode {
    let socket = std::io::stdin();
    let Some((WatchdogCommand::Belief(end), stdin)) = first_order(socket.as_fd()) else {
        return ExitCode::from(2);
    };
    let mut rule = Rule::new(stop_timeout, end, clock::now());
    // Tenure may have been stopped since it started this process, so that another may lead now.
    if !matches!(rule.judge(clock::now()), Action::Wait(_)) {
        report(WatchdogEvent::Overdue);
        report(WatchdogEvent::Gone);
        return ExitCode::SUCCESS;
    }
    match start(command, stdin) {
        Ok((main, ended)) => {
            report(WatchdogEvent::Started(main.as_raw_nonzero().get()));
            Watchdog { rule, main, ended, status: None, open: true, partial: Vec::new() }.keep();
            ExitCode::SUCCESS
        }
        Err(error) => {
            report(WatchdogEvent::Failed(error.raw_os_error().unwrap_or_default()));
            ExitCode::FAILURE
        }
    }
}

/// Receives the first order, together with the command's standard input.
fn first_order(socket: impl AsFd) -> Option<(WatchdogCommand, OwnedFd)> {
    let mut bytes = [0; RECORD];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).ok()?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let stdin = files.next()?;
    (got.bytes == RECORD).then(|| (WatchdogCommand::of_bytes(&bytes), stdin))
}

/// Starts the launcher in its own process group; also returns a file descriptor that is readable
/// when a child exits.
fn start(command: Vec<OsString>, stdin: OwnedFd) -> std::io::Result<(Pid, SignalFd)> {
    SigSet::all().thread_block()?;
    let mut child_ended = SigSet::empty();
    child_ended.add(nix::sys::signal::SIGCHLD);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let ended = SignalFd::with_flags(&child_ended, flags)?;
    rustix::process::set_child_subreaper(Some(getpid()))?;
    let child = Command::new(OURSELVES)
        .arg0("tenure")
        .arg(LAUNCH)
        .arg(getpid().to_string())
        .args(command)
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .spawn()?;
    let main = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok((main.ok_or(Errno::SRCH)?, ended))
}

/// Sends a report to Tenure, unless it is gone.
fn report(event: WatchdogEvent) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = send(std::io::stdin(), &event.to_bytes(), flags);
}

struct Watchdog {
    rule: Rule,
    /// The command's process id, which is also that of its group.
    main: Pid,
    /// Readable when a child has exited or stopped.
    ended: SignalFd,
    /// The exit status of the command, once it has exited.
    status: Option<WaitStatus>,
    /// Whether the socket to Tenure is open.
    open: bool,
    /// An order that has been received partially.
    partial: Vec<u8>,
}

impl Watchdog {
    fn keep(&mut self) {
        while self.reap() {
            let before = self.rule.is_overdue();
            let action = self.rule.judge(clock::now());
            if self.rule.is_overdue() && !before {
                report(WatchdogEvent::Overdue);
            }
            let pause = match action {
                Action::Wait(left) => left.min(STEP),
                Action::Signal(signal) => {
                    self.end_with(signal);
                    continue;
                }
                Action::Kill => {
                    signal_all(self.main, Signal::KILL);
                    ROUND
                }
            };
            self.sleep(pause);
            self.listen();
        }
        report(WatchdogEvent::Gone);
    }

    /// Reaps all children that have exited; returns whether any child is left.
    fn reap(&mut self) -> bool {
        // Drained before the reaping, so that an exit in between is not missed.
        while matches!(self.ended.read_signal(), Ok(Some(_))) {}
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((id, status))) if id == self.main => self.main_changed(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn main_changed(&mut self, status: WaitStatus) {
        if let Some(signal) = status.stopping_signal() {
            report(WatchdogEvent::Stopped(signal));
            return;
        }
        self.status = Some(status);
        report(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => WatchdogEvent::Exited(code),
            (None, signal) => WatchdogEvent::Signalled(signal.unwrap_or_default()),
        });
        if let Some(signal) = self.rule.main_ended(clock::now()) {
            self.end_with(signal);
        }
    }

    /// Sends a signal that ends the command, and continues stopped processes so that they receive
    /// it.
    fn end_with(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            signal_all(self.main, signal);
            signal_all(self.main, Signal::CONT);
        }
    }

    /// Sleeps until a file descriptor is readable, for at most `pause`.
    fn sleep(&self, pause: Duration) {
        let socket = std::io::stdin();
        let mut sources =
            [PollFd::new(&self.ended, PollFlags::IN), PollFd::new(&socket, PollFlags::IN)];
        // A socket whose peer is closed would always be readable.
        let sources = if self.open { &mut sources[..] } else { &mut sources[..1] };
        let pause = Timespec {
            tv_sec: i64::try_from(pause.as_secs()).unwrap_or_default(),
            tv_nsec: i64::from(pause.subsec_nanos()),
        };
        let _ = poll(sources, Some(&pause));
    }

    /// Receives and executes Tenure's orders.
    fn listen(&mut self) {
        let mut bytes = [0; 8 * RECORD];
        while self.open {
            match recv(std::io::stdin(), &mut bytes, RecvFlags::DONTWAIT) {
                Ok((got, _)) if got > 0 => {
                    self.partial.extend_from_slice(&bytes[..got]);
                    while let Some((order, _)) = self.partial.split_first_chunk::<RECORD>() {
                        let order = WatchdogCommand::of_bytes(order);
                        self.partial.drain(..RECORD);
                        self.obey(order);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Tenure is gone.
                Ok(_) | Err(_) => {
                    self.open = false;
                    self.obey(WatchdogCommand::Kill);
                }
            }
        }
    }

    fn obey(&mut self, order: WatchdogCommand) {
        let Some(signal) = self.rule.obey(order, clock::now()) else {
            return;
        };
        match order {
            WatchdogCommand::Signal(_) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    signal_group(self.main, signal);
                }
            }
            _ => self.end_with(signal),
        }
    }
}
