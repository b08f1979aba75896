//! The watchdog: a small process between Tenure and the command. It ends the command by its own
//! clock by the time the belief in the lease ends, and at once when Tenure is gone.
//!
//! It is the command's parent and the subreaper of all descendants. It has a process group of its
//! own, so that signals to Tenure's group do not reach it, and it blocks all signals. It reads the
//! clock at each order, at each exit of a child, at each deadline, and at least every [`STEP`]. A
//! SIGSTOP to it has no lasting effect, since the reaper continues it; a freeze of the whole cgroup
//! has, and afterwards it acts by the clock again.
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
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, set_child_subreaper, waitid,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::deadline::{Action, Rule};
use super::descendants::{ROUND, children, signal_all, signal_children, signal_group};
use super::launch::{LAUNCH, OURSELVES};
use super::wire::{RECORD, WatchdogCommand, WatchdogEvent};
use crate::clock;

/// The first argument of a watchdog.
pub(super) const WATCHDOG: &str = "watchdog-of-exec";

/// The longest sleep. The timer runs by `CLOCK_BOOTTIME`, which advances during suspend; the other
/// lease clock may run ahead of it.
const STEP: Duration = Duration::from_millis(200);

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
        Ok(started) => {
            report(WatchdogEvent::Started(started.main.as_raw_nonzero().get()));
            let Started { main, ended, timer } = started;
            let main = Main::Running(main);
            Watchdog { rule, main, ended, timer, open: true, partial: Vec::new() }.keep();
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

/// A started command, and what the watchdog waits on.
struct Started {
    main: Pid,
    /// Readable when a child has exited or stopped.
    ended: SignalFd,
    timer: OwnedFd,
}

/// Starts the launcher in its own process group.
fn start(command: Vec<OsString>, stdin: OwnedFd) -> std::io::Result<Started> {
    SigSet::all().thread_block()?;
    let mut child_ended = SigSet::empty();
    child_ended.add(nix::sys::signal::SIGCHLD);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let ended = SignalFd::with_flags(&child_ended, flags)?;
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    set_child_subreaper(Some(getpid()))?;
    let child = Command::new(OURSELVES)
        .arg0("tenure")
        .arg(LAUNCH)
        .arg(getpid().to_string())
        .args(command)
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .spawn()?;
    let main = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(Started { main: main.ok_or(Errno::SRCH)?, ended, timer })
}

/// Sends a report to Tenure, unless it is gone.
fn report(event: WatchdogEvent) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = send(std::io::stdin(), &event.to_bytes(), flags);
}

/// The command's process. Its id is also that of its group, which may be signalled as long as the
/// process has not been waited for: until then no other process or group can get the id.
#[derive(Clone, Copy, Debug)]
enum Main {
    Running(Pid),
    /// It has exited, and has not been waited for.
    Exited(Pid),
    /// It has been waited for, after all other children.
    Gone,
}

/// Asks for a change of a child's state, without blocking.
fn look(child: WaitId<'_>, options: WaitIdOptions) -> Result<Option<WaitIdStatus>, Errno> {
    waitid(child, options | WaitIdOptions::NOHANG)
}

struct Watchdog {
    rule: Rule,
    main: Main,
    ended: SignalFd,
    timer: OwnedFd,
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
                    self.signal(Signal::KILL);
                    ROUND
                }
            };
            self.sleep(pause);
            self.listen();
        }
        report(WatchdogEvent::Gone);
    }

    /// Reaps all children that have exited, the command last; returns whether any child is left.
    fn reap(&mut self) -> bool {
        // Drained before the reaping, so that an exit in between is not missed.
        while matches!(self.ended.read_signal(), Ok(Some(_))) {}
        if let Main::Running(main) = self.main {
            self.look_at(main);
        }
        let main = match self.main {
            Main::Running(main) | Main::Exited(main) => Some(main),
            Main::Gone => None,
        };
        let mut others = 0;
        for child in children().into_iter().filter(|it| Some(*it) != main) {
            let reaped = look(WaitId::Pid(child), WaitIdOptions::EXITED);
            others += usize::from(!matches!(reaped, Ok(Some(_)) | Err(Errno::CHILD)));
        }
        match self.main {
            Main::Running(_) => return true,
            Main::Exited(main) if others == 0 => {
                self.main = Main::Gone;
                let _ = look(WaitId::Pid(main), WaitIdOptions::EXITED);
            }
            Main::Exited(_) | Main::Gone => {}
        }
        // The kernel's list of children can miss one; this cannot.
        let any = look(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        !matches!(any, Err(Errno::CHILD))
    }

    /// Reports whether the command has stopped or exited, without waiting for it.
    fn look_at(&mut self, main: Pid) {
        if let Ok(Some(status)) = look(WaitId::Pid(main), WaitIdOptions::STOPPED)
            && let Some(signal) = status.stopping_signal()
        {
            report(WatchdogEvent::Stopped(signal));
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let Ok(Some(status)) = look(WaitId::Pid(main), options) else {
            return;
        };
        self.main = Main::Exited(main);
        report(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => WatchdogEvent::Exited(code),
            (None, signal) => WatchdogEvent::Signalled(signal.unwrap_or_default()),
        });
        if let Some(signal) = self.rule.main_ended(clock::now()) {
            self.end_with(signal);
        }
    }

    /// Sends a signal to the command's group and all children.
    fn signal(&self, signal: Signal) {
        match self.main {
            Main::Running(main) | Main::Exited(main) => signal_all(main, signal),
            Main::Gone => signal_children(signal),
        }
    }

    /// Sends a signal that ends the command, and continues stopped processes so that they receive
    /// it.
    fn end_with(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            self.signal(signal);
            self.signal(Signal::CONT);
        }
    }

    /// Sleeps until a file descriptor is readable, for at most `pause`.
    fn sleep(&self, pause: Duration) {
        let socket = std::io::stdin();
        let mut sources = [
            PollFd::new(&self.ended, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&socket, PollFlags::IN),
        ];
        // A socket whose peer is closed would always be readable.
        let sources = if self.open { &mut sources[..] } else { &mut sources[..2] };
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(pause.as_secs()).unwrap_or_default(),
                // Zero would stop the timer.
                tv_nsec: i64::from(pause.subsec_nanos().max(1)),
            },
        };
        // Setting the timer also takes back that it is readable.
        if timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).is_ok() {
            let _ = poll(sources, None);
        }
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
                if let Some(signal) = Signal::from_named_raw(signal)
                    && let Main::Running(main) | Main::Exited(main) = self.main
                {
                    signal_group(main, signal);
                }
            }
            _ => self.end_with(signal),
        }
    }
}
