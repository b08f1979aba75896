//! The watchdog: a small process between Tenure and the command. It ends the command by its own
//! clock by the time the belief in the lease ends, and at once when Tenure is gone.
//!
//! It is the command's parent and the subreaper of all descendants. It has a process group of its
//! own, so that signals to Tenure's group do not reach it, and it inherits from the reaper that all signals are blocked. It reads the
//! clock at each order, at each exit of a child, at each deadline, and at least every `STEP`. A
//! SIGSTOP to it has no lasting effect, since the reaper continues it; a freeze of the whole cgroup
//! has, and afterwards it acts by the clock again.
//!
//! It uses no async runtime, writes no log and needs very little memory. [`Watchdog`] decides; the
//! process around it only waits between two turns, so that the simulator can run it too.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, WaitIdOptions, getpid, set_child_subreaper};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::deadline::{Action, Rule};
use super::descendants::{ROUND, signal_all, signal_children};
use super::kernel::{Change, Kernel, Linux};
use super::launch::{LAUNCH, OURSELVES};
use super::wire::{End, RECORD, WatchdogCommand, WatchdogEvent};

/// The first argument of a watchdog.
pub(super) const WATCHDOG: &str = "watchdog-of-exec";

/// The longest sleep. The timer runs by `CLOCK_BOOTTIME`, which advances during suspend; the other
/// lease clock may run ahead of it.
const STEP: Duration = Duration::from_millis(200);

/// Runs the watchdog of `command` (program, name, arguments) until no process of it is left.
/// Standard input is the socket to Tenure.
pub(super) fn run(stop_timeout: Duration, command: Vec<OsString>) -> ExitCode {
    let Some((WatchdogCommand::Belief(end), stdin)) = first_order(io::stdin()) else {
        return ExitCode::from(2);
    };
    let mut sources = None;
    let start = || {
        sources = Some(Sources::open()?);
        start(command, stdin)
    };
    let watchdog = Watchdog::start(&Linux, stop_timeout, end, start);
    if let (Some(mut watchdog), Some(sources)) = (watchdog, sources) {
        while let Some(pause) = watchdog.turn() {
            sources.wait(pause, watchdog.is_connected());
        }
    }
    ExitCode::SUCCESS
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

/// Starts the launcher in its own process group.
fn start(command: Vec<OsString>, stdin: OwnedFd) -> io::Result<Pid> {
    set_child_subreaper(Some(getpid()))?;
    let child = Command::new(OURSELVES)
        .arg0("tenure")
        .arg(LAUNCH)
        .arg(getpid().to_string())
        .args(command)
        .process_group(0)
        .stdin(Stdio::from(stdin))
        .spawn()?;
    Ok(Pid::from_child(&child))
}

/// What the watchdog waits on, beside its socket.
struct Sources {
    /// Readable when a child has exited or stopped.
    child_signals: SignalFd,
    timer: OwnedFd,
}

impl Sources {
    /// Opens the files. All signals are blocked already, by the reaper.
    fn open() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(nix::sys::signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let child_signals = SignalFd::with_flags(&signals, flags)?;
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        Ok(Self { child_signals, timer })
    }

    /// Waits until a child has changed, `pause` is over, or the socket is readable, if it is open.
    fn wait(&self, pause: Duration, open: bool) {
        let socket = io::stdin();
        let mut sources = [
            PollFd::new(&self.child_signals, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&socket, PollFlags::IN),
        ];
        // A socket whose peer is closed would always be readable.
        let sources = if open { &mut sources[..] } else { &mut sources[..2] };
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
        // Before the next turn, so that an exit during it is not missed.
        while matches!(self.child_signals.read_signal(), Ok(Some(_))) {}
    }
}

/// The command's process. Its id is also that of its group, which may be signalled as long as the
/// process has not been waited for: until then no other process or group can get the id.
#[derive(Clone, Copy, Debug)]
enum Main {
    Running(Pid),
    /// It has exited, and has not been waited for.
    Exited(Pid),
    /// It is waited for, or has been, after all other children.
    Gone,
}

/// The decisions of a watchdog.
pub struct Watchdog {
    kernel: &'static dyn Kernel,
    rule: Rule,
    main: Main,
    /// Whether the socket to Tenure is open.
    open: bool,
    /// An order that has been received partially.
    partial: Vec<u8>,
}

impl Watchdog {
    /// Starts the command with `start`, under a belief whose deadline is `end`. Returns `None` if
    /// there is nothing to watch.
    pub fn start(
        kernel: &'static dyn Kernel,
        stop_timeout: Duration,
        end: End,
        start: impl FnOnce() -> io::Result<Pid>,
    ) -> Option<Self> {
        let report = |event: WatchdogEvent| kernel.send(&event.to_bytes());
        let mut rule = Rule::new(stop_timeout, end, kernel.now());
        // Tenure may have been stopped since it started this process, so that another may lead now.
        if !matches!(rule.judge(kernel.now()), Action::Wait(_)) {
            report(WatchdogEvent::Overdue);
            report(WatchdogEvent::Gone);
            return None;
        }
        match start() {
            Ok(main) => {
                // It has not been waited for, so its id is its own.
                let since = kernel.stat(main).map_or(0, |it| it.since);
                report(WatchdogEvent::Started { id: main.as_raw_nonzero().get(), since });
                let main = Main::Running(main);
                Some(Self { kernel, rule, main, open: true, partial: Vec::new() })
            }
            Err(error) => {
                report(WatchdogEvent::Failed(error.raw_os_error().unwrap_or_default()));
                None
            }
        }
    }

    /// Returns whether orders can still come.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.open
    }

    /// Does what is due. Returns for how long at most to wait for a child, an order or the time
    /// before the next turn; `None` when no process is left.
    pub fn turn(&mut self) -> Option<Duration> {
        self.listen();
        while self.reap() {
            let before = self.rule.is_overdue();
            let action = self.rule.judge(self.kernel.now());
            if self.rule.is_overdue() && !before {
                self.report(WatchdogEvent::Overdue);
            }
            match action {
                Action::Wait(left) => return Some(left.min(STEP)),
                Action::Signal(signal) => self.end_with(signal),
                Action::Kill => {
                    self.signal(Signal::KILL);
                    return Some(ROUND);
                }
            }
        }
        self.report(WatchdogEvent::Gone);
        None
    }

    /// Sends a report to Tenure, unless it is gone.
    fn report(&self, event: WatchdogEvent) {
        self.kernel.send(&event.to_bytes());
    }

    /// Reaps all children that have exited, the command last; returns whether any child is left.
    fn reap(&mut self) -> bool {
        if let Main::Running(main) = self.main {
            self.look_at(main);
        }
        loop {
            let main = match self.main {
                Main::Running(main) | Main::Exited(main) => Some(main),
                Main::Gone => None,
            };
            let mut others = 0;
            for child in self.kernel.children().into_iter().filter(|it| Some(*it) != main) {
                let reaped = self.kernel.wait(Some(child), WaitIdOptions::EXITED);
                others += usize::from(!matches!(reaped, Ok(Some(_)) | Err(Errno::CHILD)));
            }
            match self.main {
                Main::Running(_) => return true,
                // It is reaped like the others now.
                Main::Exited(_) if others == 0 => self.main = Main::Gone,
                Main::Exited(_) | Main::Gone => break,
            }
        }
        // The kernel's list of children can miss one; this cannot.
        let any = self.kernel.wait(None, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        !matches!(any, Err(Errno::CHILD))
    }

    /// Reports whether the command has stopped or exited, without waiting for it.
    fn look_at(&mut self, main: Pid) {
        if let Ok(Some(Change::Stopped(signal))) =
            self.kernel.wait(Some(main), WaitIdOptions::STOPPED)
        {
            self.report(WatchdogEvent::Stopped(signal));
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        self.report(match self.kernel.wait(Some(main), options) {
            Ok(Some(Change::Exited(code))) => WatchdogEvent::Exited(code),
            Ok(Some(Change::Killed(signal))) => WatchdogEvent::Signalled(signal),
            _ => return,
        });
        self.main = Main::Exited(main);
        if let Some(signal) = self.rule.main_ended(self.kernel.now()) {
            self.end_with(signal);
        }
    }

    /// Sends a signal to the command's group and all children.
    fn signal(&self, signal: Signal) {
        match self.main {
            Main::Running(main) | Main::Exited(main) => signal_all(self.kernel, main, signal),
            Main::Gone => signal_children(self.kernel, signal),
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

    /// Receives and executes Tenure's orders.
    fn listen(&mut self) {
        while self.open {
            match self.kernel.receive(&mut self.partial) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // Tenure is gone.
                Ok(0) | Err(_) => {
                    self.open = false;
                    self.obey(WatchdogCommand::Kill);
                }
                Ok(_) => {
                    while let Some((order, _)) = self.partial.split_first_chunk::<RECORD>() {
                        let order = WatchdogCommand::of_bytes(order);
                        self.partial.drain(..RECORD);
                        self.obey(order);
                    }
                }
            }
        }
    }

    fn obey(&mut self, order: WatchdogCommand) {
        let Some(signal) = self.rule.obey(order, self.kernel.now()) else {
            return;
        };
        match order {
            WatchdogCommand::Signal(_) => {
                if let Some(signal) = Signal::from_named_raw(signal)
                    && let Main::Running(main) | Main::Exited(main) = self.main
                {
                    self.kernel.signal_group(main, signal);
                }
            }
            _ => self.end_with(signal),
        }
    }
}
