//! The properties of `exec`, checked at each call that could break one, and at each instant once all
//! that can run has run.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{Belief, Standing};
use tenure::exec::SupervisorExit;
use tenure::exec::wire::{End, RECORD, WatchdogCommand};

use super::event::Event;
use super::inject::CODE;
use super::link::Known;
use super::signal::{CONT, KILL, TERM, USR1};
use super::table::{Process, Role, TENURE};
use super::world::{STOP_TIMEOUT, World};
use crate::{Instant, MILLI, Span};

/// A few rounds of SIGKILL, for processes that have left the group, and until Tenure says so.
const ROUNDS: Span = 100 * MILLI;

/// What the checks remember.
#[derive(Debug, Default)]
pub struct Checks {
    /// The launchers with their watchdogs.
    pub launched: Vec<(i32, i32)>,
    /// What an operator asked for while Tenure was in the middle of a turn.
    pub asked_in_turn: Vec<Event>,
    /// The last published belief of each term.
    beliefs: BTreeMap<u64, Belief>,
    /// The term of the published leadership, and whether it drains.
    leads: Option<(u64, bool)>,
    /// The launcher of each term.
    mains: BTreeMap<u64, i32>,
    /// How often the end of each term was reported.
    reports: BTreeMap<u64, u32>,
    /// By when a term that was to be ended soon must have ended, although it was renewed since.
    doomed: BTreeMap<u64, Instant>,
    /// Since when each process outside of its group should be dead.
    outlived: BTreeMap<i32, Instant>,
    /// Since when the end of a term could be reported.
    unreported: BTreeMap<u64, Instant>,
    /// How the supervisor ended.
    pub exit: Option<SupervisorExit>,
}

impl World {
    /// Records what is published.
    pub fn note_standing(&self, standing: &Standing) {
        let checks = &mut *self.checks.borrow_mut();
        let leads = match standing {
            Standing::Leader { term, belief, .. } => Some((*term, *belief, false)),
            Standing::Draining { term, belief, .. } => Some((*term, *belief, true)),
            _ => None,
        };
        if let Some((term, belief, _)) = leads {
            checks.beliefs.insert(term, belief);
        }
        let leads = leads.map(|(term, _, drains)| (term, drains));
        if leads != checks.leads {
            checks.leads = leads;
            self.table.borrow_mut().note(|| format!("published: {leads:?}"));
        }
    }

    fn violated(&self, text: impl FnOnce() -> String) {
        self.table.borrow_mut().violated(text);
    }

    /// Returns the processes of a command that have not exited.
    fn work(&self) -> Vec<(i32, Process)> {
        let table = self.table.borrow();
        let living = table.all.iter().filter(|(_, it)| it.role.is_work() && it.ended.is_none());
        living.map(|(id, it)| (*id, *it)).collect()
    }

    /// Returns whether a process is kept from running: it is stopped, or in the middle of a turn.
    fn is_prevented(&self, id: i32) -> bool {
        !self.table.borrow().runs(id) || self.turns.borrow().iter().any(|it| it.0 == id)
    }

    /// Returns the process that must end a process of a command.
    fn guard(&self, of: &Process) -> Option<i32> {
        let table = self.table.borrow();
        let guard = [Role::Watchdog, Role::Reaper].map(|it| table.find(it, of.term));
        let in_group = self.checks.borrow().mains.get(&of.term) == Some(&of.group);
        // A launcher without its watchdog exits by itself, and executes nothing.
        let is_known = in_group && of.role != Role::Launcher;
        let tenure = Some(TENURE).filter(|it| table.lives(*it) && is_known);
        guard[0].or(guard[1]).or(tenure)
    }

    fn known(&self, term: u64) -> Known {
        self.table
            .borrow()
            .links
            .iter()
            .rfind(|it| it.term == term)
            .map(|it| it.known)
            .unwrap_or_default()
    }

    /// Checks that a signal has a reason.
    pub fn judge_signal(&self, from: i32, to: i32, signal: i32) {
        let (sender, target, now) = {
            let table = self.table.borrow();
            (table.get(from).copied(), table.get(to).copied(), table.now)
        };
        let (Some(sender), Some(target)) = (sender, target) else { return };
        if target.ended.is_some() || signal == CONT || sender.role == Role::Init {
            return;
        }
        let term = target.term;
        let has_guard = |role| self.table.borrow().find(role, term).is_some();
        let may = match sender.role {
            Role::Watchdog => self.may_signal(term, signal, now),
            Role::Reaper => signal == KILL && !has_guard(Role::Watchdog),
            _ => signal == KILL && !has_guard(Role::Watchdog) && !has_guard(Role::Reaper),
        };
        if !may {
            self.violated(|| format!("{:?} sends signal {signal} without a reason", sender.role));
        }
    }

    fn may_signal(&self, term: u64, signal: i32, now: Instant) -> bool {
        let known = self.known(term);
        let left = known.end.map_or(Duration::ZERO, |it| it.remaining(self.moment()));
        let checks = &mut *self.checks.borrow_mut();
        let main = checks.mains.get(&term).copied().unwrap_or_default();
        let has_main = self.table.borrow().lives(main);
        match signal {
            USR1 => self.script.has(|it| it == Event::Forward),
            TERM => {
                if left <= STOP_TIMEOUT {
                    checks.doomed.entry(term).or_insert(now + crate::span(left));
                }
                known.killed || known.terminated.is_some() || !has_main || left <= STOP_TIMEOUT
            }
            KILL => {
                let terminated = known.terminated.is_some_and(|(_, until)| until <= now);
                let doomed = checks.doomed.get(&term).is_some_and(|at| *at <= now);
                known.killed || terminated || doomed || !has_main || left.is_zero()
            }
            _ => known.terminated.is_some(),
        }
    }

    /// Checks that an order is what the published status requires.
    pub fn judge_order(&self, term: u64, bytes: &[u8]) {
        let Some(bytes) = bytes.first_chunk::<RECORD>() else { return };
        let order = WatchdogCommand::of_bytes(bytes);
        self.table.borrow_mut().note(|| format!("order {order:?} in term {term}"));
        let checks = self.checks.borrow();
        let leads = checks.leads.filter(|it| it.0 == term);
        let end = checks.beliefs.get(&term).map(|it| End::of(it.sent, it.length));
        let fits = match order {
            WatchdogCommand::Belief(it) => leads.is_some() && Some(it) == end,
            WatchdogCommand::Terminate { .. } => leads.is_some_and(|it| it.1),
            WatchdogCommand::Kill => leads.is_none(),
            WatchdogCommand::Signal(_) => self.script.has(|it| it == Event::Forward),
        };
        drop(checks);
        if !fits {
            self.violated(|| format!("order {order:?} in term {term}"));
        }
    }

    /// Checks that a command may start.
    pub fn judge_start(&self, launcher: i32, watchdog: i32) {
        let now = self.moment();
        let term = self.table.borrow().get(watchdog).map_or(0, |it| it.term);
        let was_kept = self.turns.borrow().iter().any(|it| it.0 == watchdog && it.1);
        let checks = &mut *self.checks.borrow_mut();
        let leads = checks.beliefs.get(&term).is_some_and(|it| !it.until_end(now).is_zero());
        let is_second = checks.mains.insert(term, launcher).is_some();
        let is_over = checks.reports.contains_key(&term);
        if is_second || is_over || !leads && !was_kept {
            let why = if leads { "again, or after its end" } else { "without leadership" };
            self.violated(|| format!("the command starts in term {term} {why}"));
        }
    }

    /// Checks that a term may be reported to have no processes.
    pub fn judge_report(&self, term: u64) {
        self.table.borrow_mut().note(|| format!("the end of term {term} is reported"));
        let is_again = {
            let checks = &mut *self.checks.borrow_mut();
            let count = checks.reports.entry(term).or_default();
            *count += 1;
            *count > 1 || !checks.beliefs.contains_key(&term)
        };
        if is_again {
            self.violated(|| format!("the end of term {term} is reported again, or unknown"));
        }
        self.judge_dead(Some(term), "reported dead");
    }

    /// Checks that the lease may be released.
    pub fn judge_release(&self) {
        self.judge_dead(None, "released");
    }

    fn judge_dead(&self, term: Option<u64>, what: &str) {
        let mut work = self.work();
        work.retain(|(_, it)| term.is_none_or(|term| term == it.term));
        if let Some((id, it)) = work.iter().find(|(_, it)| self.guard(it).is_some()) {
            self.violated(|| format!("{what} while {id} of term {} lives", it.term));
        }
    }

    /// Checks each process once all that can run has run.
    pub fn check(&self) {
        let moment = self.moment();
        for (id, it) in self.work() {
            self.check_process(id, &it, moment);
        }
        self.check_reports();
    }

    fn check_process(&self, id: i32, it: &Process, moment: Moment) {
        let (now, tenure_lives) = {
            let table = self.table.borrow();
            (table.now, table.lives(TENURE))
        };
        let Some(guard) = self.guard(it) else { return };
        if it.stuck_until > now || it.stalled_until > now || self.is_prevented(guard) {
            return;
        }
        let tenure_runs = tenure_lives && !self.is_prevented(TENURE);
        let known = self.known(it.term);
        let checks = &mut *self.checks.borrow_mut();
        let leads = checks.leads.filter(|leads| leads.0 == it.term);
        let left = checks.beliefs.get(&it.term).map_or(Duration::ZERO, |it| it.until_end(moment));
        let terminated = known.terminated.is_some_and(|(_, until)| until <= now);
        let is_lost = tenure_runs && leads.is_none() || !tenure_lives;
        if left.is_zero() || is_lost || terminated {
            let in_group = checks.mains.get(&it.term) == Some(&it.group);
            let since = *checks.outlived.entry(id).or_insert(now);
            let late = if in_group { 0 } else { ROUNDS };
            if now > since + late || in_group {
                let why = if left.is_zero() { "its belief" } else { "its leadership" };
                self.violated(|| format!("process {id} of term {} outlives {why}", it.term));
            }
            return;
        }
        let drains = tenure_runs && leads.is_some_and(|it| it.1);
        let is_main = matches!(it.role, Role::Launcher | Role::Main);
        if is_main && (left <= STOP_TIMEOUT || drains) && it.asked_at.is_none() {
            self.violated(|| format!("no SIGTERM in term {} with {left:?} left", it.term));
        }
    }

    /// Checks that the end of each term is reported soon.
    fn check_reports(&self) {
        let awake = self.table.borrow().awake();
        let checks = &mut *self.checks.borrow_mut();
        if checks.exit.is_some() || self.is_prevented(TENURE) {
            checks.unreported.clear();
            return;
        }
        let table = self.table.borrow();
        let lives = |term| table.all.values().any(|it| it.term == term && it.ended.is_none());
        let quiet = table.links.iter().map(|it| it.term).filter(|term| !lives(*term));
        let quiet = quiet.filter(|term| !checks.reports.contains_key(term));
        let quiet: Vec<_> = quiet.collect();
        drop(table);
        for term in quiet {
            let since = *checks.unreported.entry(term).or_insert(awake);
            if awake > since + ROUNDS {
                self.violated(|| format!("the end of term {term} is not reported"));
            }
        }
    }

    /// Checks what the course has led to, long after its last event.
    pub fn check_end(&self) {
        let work = self.work();
        let checks = self.checks.borrow();
        let leads = checks.leads.map(|it| it.0);
        let main = work.iter().find(|it| it.1.role == Role::Main && Some(it.1.term) == leads);
        let is_harmless = self.script.is_harmless() && !self.is_tangled.get();
        let lives = self.table.borrow().lives(TENURE);
        let left = work.iter().find(|it| Some(it.1.term) != leads && self.guard(&it.1).is_some());
        if let Some((id, it)) = left {
            return self.violated(|| format!("process {id} of term {} is left", it.term));
        }
        if self.script.has(Event::ends_tenure) {
            let told = self.script.has(|it| it == Event::Term);
            if lives && told {
                self.violated(|| "Tenure does not exit".to_owned());
            }
        } else if self.script.once && checks.exit.is_some() {
            if lives || is_harmless {
                self.violated(|| {
                    "a command that ran once is over, or ended without need".to_owned()
                });
            }
        } else if main.is_none() {
            self.violated(|| "no command runs at the end".to_owned());
        }
        if is_harmless && (checks.mains.len() > 1 || main.is_none_or(|it| it.1.asked_at.is_some()))
        {
            self.violated(|| "the command was ended without need".to_owned());
        }
        let by_itself = |it: Event| it == Event::Exit || it == Event::Forward;
        if self.script.once
            && !self.script.has(|it| !by_itself(it))
            && checks.exit.is_some_and(|it| code(it) != CODE)
        {
            self.violated(|| format!("the exit code is {:?}", checks.exit));
        }
    }
}

fn code(exit: SupervisorExit) -> i32 {
    match exit {
        SupervisorExit::AtOnce(code) | SupervisorExit::AfterRelease { code, .. } => code.into(),
    }
}
