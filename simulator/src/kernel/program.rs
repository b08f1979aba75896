//! The programs of Tenure's own processes, and when each of them has something to do.

use std::io;
use std::rc::Rc;

use rustix::io::Errno;
use rustix::process::Pid;
use tenure::exec::launch;
use tenure::exec::reaper::{Pause, Reaper};
use tenure::exec::watchdog::Watchdog;
use tenure::exec::wire::{RECORD, WatchdogCommand};

use super::calls::{Simulated, execute, fork};
use super::link::Link;
use super::table::{INIT, Role, Table};
use super::world::{STOP_TIMEOUT, World};
use crate::{Instant, MILLI, Span};

/// The program of one of Tenure's own processes, and what it waits for.
pub enum Program {
    ReaperStarts,
    Reaper(Reaper),
    ReaperWaits(Reaper, i32),
    ReaperSleeps(Reaper, Instant),
    WatchdogStarts,
    WatchdogSleeps(Watchdog, Instant),
    Launcher,
}

impl Program {
    /// Returns whether it has something to do.
    pub fn is_ready(&self, table: &Table, id: i32) -> bool {
        let term = table.get(id).map_or(0, |it| it.term);
        let link = || table.links.iter().rfind(|it| it.term == term);
        match self {
            Self::ReaperStarts | Self::Reaper(_) | Self::Launcher => true,
            Self::ReaperWaits(_, watchdog) => table.has_changed(*watchdog),
            Self::ReaperSleeps(_, until) => table.awake() >= *until,
            Self::WatchdogStarts => link().is_some_and(Link::has_first),
            Self::WatchdogSleeps(watchdog, until) => {
                table.now >= *until
                    || table.get(id).is_some_and(|it| it.child_signal)
                    || watchdog.is_connected() && link().is_some_and(Link::is_readable)
            }
        }
    }

    /// Returns when it continues by itself.
    pub fn wakes_at(&self, slept: Span) -> Option<Instant> {
        match self {
            Self::ReaperSleeps(_, until) => Some(*until + slept),
            Self::WatchdogSleeps(_, until) => Some(*until),
            _ => None,
        }
    }

    /// Takes a turn; returns how it goes on, unless the process exits or runs the command from here.
    pub fn turn(self, world: &Rc<World>, id: i32) -> Option<Self> {
        match self {
            Self::ReaperStarts => {
                world.table.borrow_mut().at(id).subreaper = true;
                let watchdog = fork(Role::Watchdog, true).ok()?;
                let mut table = world.table.borrow_mut();
                let term = table.at(id).term;
                table.link(term).join(watchdog);
                world.add(watchdog, Self::WatchdogStarts);
                Some(Self::Reaper(Reaper::new(&Simulated, Pid::from_raw(watchdog)?)))
            }
            Self::Reaper(mut reaper)
            | Self::ReaperWaits(mut reaper, _)
            | Self::ReaperSleeps(mut reaper, _) => {
                let pause = reaper.turn()?;
                let table = world.table.borrow();
                Some(match pause {
                    Pause::ForWatchdog => {
                        let watchdog = table.children(id).into_iter().next().unwrap_or_default();
                        Self::ReaperWaits(reaper, watchdog)
                    }
                    Pause::Round => Self::ReaperSleeps(reaper, table.awake() + 20 * MILLI),
                })
            }
            Self::WatchdogStarts => {
                let mut table = world.table.borrow_mut();
                let (now, term) = (table.now, table.at(id).term);
                let first = table.link(term).receive(RECORD, now).ok()?;
                drop(table);
                let first = first.first_chunk().map(WatchdogCommand::of_bytes);
                let Some(WatchdogCommand::Belief(end)) = first else { return None };
                let start = || world.start_command(id);
                let watchdog = Watchdog::start(&Simulated, STOP_TIMEOUT, end, start)?;
                Self::watch(watchdog, world)
            }
            Self::WatchdogSleeps(watchdog, _) => Self::watch(watchdog, world),
            Self::Launcher => {
                let watchdog = world.table.borrow().get(id).map_or(INIT, |it| it.parent);
                let watchdog = world.launched_by(id).unwrap_or(watchdog);
                if launch::bind(&Simulated, Pid::from_raw(watchdog)?) {
                    execute();
                }
                None
            }
        }
    }

    fn watch(mut watchdog: Watchdog, world: &World) -> Option<Self> {
        let pause = watchdog.turn()?;
        let until = world.table.borrow().now + crate::span(pause);
        Some(Self::WatchdogSleeps(watchdog, until))
    }
}

impl World {
    /// Starts the launcher, as a watchdog.
    fn start_command(&self, watchdog: i32) -> io::Result<Pid> {
        self.table.borrow_mut().at(watchdog).subreaper = true;
        let launcher = fork(Role::Launcher, true)?;
        self.judge_start(launcher, watchdog);
        self.checks.borrow_mut().launched.push((launcher, watchdog));
        self.add(launcher, Program::Launcher);
        Pid::from_raw(launcher).ok_or_else(|| Errno::SRCH.into())
    }

    /// Returns the watchdog that has started a launcher.
    fn launched_by(&self, launcher: i32) -> Option<i32> {
        let checks = self.checks.borrow();
        checks.launched.iter().find(|it| it.0 == launcher).map(|it| it.1)
    }
}
