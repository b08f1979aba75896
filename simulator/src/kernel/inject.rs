//! What each event does to the machine.

use tenure::election::Command;
use tenure::exec::kernel::Change;

use super::event::Event;
use super::signal::{KILL, STOP, TERM, USR1};
use super::table::{INIT, Role, TENURE, Table};
use super::world::World;
use crate::{MILLI, SECOND, Span};

/// Longer than a belief.
const LONG: Span = 5 * SECOND;

/// Shorter than the time between SIGTERM and SIGKILL.
const MOMENT: Span = 700 * MILLI;

/// The exit code of a command that exits by itself.
pub const CODE: i32 = 7;

impl World {
    /// Makes an event happen.
    pub fn happen(&self, event: Event) {
        let table = &mut *self.table.borrow_mut();
        let term = table.last_term();
        let main = table.find(Role::Main, term);
        let [watchdog, reaper] = [Role::Watchdog, Role::Reaper].map(|it| table.find(it, term));
        match event {
            Event::Exit => main.into_iter().for_each(|it| table.end(it, Change::Exited(CODE))),
            Event::Stubborn => work(table).for_each(|it| it.stubborn = true),
            Event::Fork | Event::Escape | Event::Orphan => {
                main.into_iter().for_each(|it| fork(table, it, event));
            }
            Event::Stuck => {
                let until = table.now + 3 * SECOND;
                main.into_iter().for_each(|it| table.at(it).stuck_until = until);
            }
            Event::StopCommand => signal(table, main, STOP),
            Event::StopWatchdog => signal(table, watchdog, STOP),
            Event::StopReaper => signal(table, reaper, STOP),
            Event::Freeze => {
                let until = table.now + LONG;
                let all = table.all.values_mut();
                all.filter(|it| it.term == term).for_each(|it| it.stalled_until = until);
            }
            Event::DelayWatchdog => stall(table, watchdog, MOMENT),
            Event::StallWatchdog => stall(table, watchdog, LONG),
            Event::DelayTenure => stall(table, Some(TENURE), MOMENT),
            Event::StallTenure => stall(table, Some(TENURE), LONG),
            Event::Suspend => {
                table.now += LONG;
                table.slept += LONG;
                self.turns.borrow_mut().iter_mut().for_each(|it| it.1 = true);
            }
            Event::KillTenure => kill(table, [Some(TENURE)]),
            Event::KillWatchdog => kill(table, [watchdog]),
            Event::KillReaper => kill(table, [reaper]),
            Event::KillBoth => kill(table, [watchdog, reaper]),
            Event::KillTenureToo => kill(table, [Some(TENURE), watchdog]),
            Event::Away => {
                let until = table.now + LONG;
                self.lease.borrow_mut().away_until = until;
            }
            Event::Lost => self.lease.borrow_mut().free(table.now),
            Event::Term | Event::Forward | Event::StepDown => self.ask(event),
            Event::Full => {
                let now = table.now;
                table.links.last_mut().into_iter().for_each(|it| it.fill(now));
            }
            Event::Breaks => table.links.last_mut().into_iter().for_each(|it| it.breaks = true),
            Event::NoFork => self.fork_fails.set(true),
        }
    }

    /// Asks Tenure for something. What is in the middle of a turn is asked after it.
    fn ask(&self, event: Event) {
        let mut tenure = self.tenure.borrow_mut();
        let Some(tenure) = tenure.as_mut() else {
            self.checks.borrow_mut().asked_in_turn.push(event);
            return;
        };
        match event {
            Event::Term => tenure.signal(TERM),
            Event::Forward => tenure.signal(USR1),
            _ => tenure.command(Command::StepDown { hold_off: std::time::Duration::ZERO }),
        }
    }

    /// Asks what was asked for in the middle of a turn.
    pub fn ask_again(&self) {
        let asked = std::mem::take(&mut self.checks.borrow_mut().asked_in_turn);
        asked.into_iter().for_each(|event| self.ask(event));
    }
}

fn work(table: &mut Table) -> impl Iterator<Item = &mut super::table::Process> {
    table.all.values_mut().filter(|it| it.role.is_work())
}

fn signal(table: &mut Table, to: Option<i32>, number: i32) {
    if let Some(to) = to {
        let _ = table.signal(INIT, to, number);
    }
}

fn kill<const N: usize>(table: &mut Table, all: [Option<i32>; N]) {
    // At once, so that none of them sees the end of another.
    for id in all.into_iter().flatten() {
        signal(table, Some(id), KILL);
    }
}

fn stall(table: &mut Table, id: Option<i32>, length: Span) {
    let until = table.now + length;
    if let Some(id) = id.filter(|it| table.lives(*it)) {
        table.at(id).stalled_until = until;
    }
}

fn fork(table: &mut Table, main: i32, event: Event) {
    if !table.runs(main) {
        return;
    }
    let term = table.at(main).term;
    let parent = match event {
        Event::Orphan => table.spawn(main, Role::Member, term, false),
        _ => main,
    };
    let new = table.spawn(parent, Role::Member, term, false);
    let it = table.at(new);
    it.stubborn = true;
    if event != Event::Fork {
        (it.group, it.session) = (new, new);
    }
    if event == Event::Orphan {
        table.end(parent, Change::Exited(0));
    }
}
