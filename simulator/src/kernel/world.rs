//! One machine with `tenure exec`, in a time of its own: whose turn it is, and what happens when.
//!
//! Every call of a process, every message to the driver, and the instants before and at each timer are
//! *places*, counted from the start. A script has its events at places. A process that is stopped at a
//! place stays in its call, and the others run on above it; it continues when they wait or have ended
//! (so two processes are never both in the middle of a turn and take calls by turns).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use rustix::io::Errno;
use tenure::clock::Moment;
use tenure::exec::kernel::Change;
use tokio::sync::oneshot;

use super::calls::as_process;
use super::check::Checks;
use super::event::{Event, Script};
use super::lease::Lease;
use super::program::Program;
use super::signal::CONT;
use super::table::{INIT, Role, TENURE, Table};
use super::tenure::Tenure;
use crate::{Instant, MILLI, SECOND, Span};

/// How long the course goes on after the last event, if one lasts for a while, and else.
const AFTER: [Span; 2] = [18 * SECOND, 9 * SECOND];

/// For how long after an event the next one is tried.
const WINDOW: Span = 2_500 * MILLI;

/// How long after the last event all that was stopped is continued.
const CONTINUED: Span = 5 * SECOND;

/// A tick of the timers of a runtime.
const TICK: Duration = Duration::from_millis(1);

/// The time from SIGTERM to SIGKILL.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// What Tenure waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A report of the watchdog of this term.
    Report(u64),
    /// The exit of this process.
    Exit(i32),
}

/// Ends the turn of a process that was killed in it, or whose course is over.
struct Killed;

pub struct World {
    pub table: RefCell<Table>,
    programs: RefCell<BTreeMap<i32, Program>>,
    pub tenure: RefCell<Option<Tenure>>,
    pub lease: RefCell<Lease>,
    timers: RefCell<Vec<(Instant, oneshot::Sender<()>)>>,
    waiting: RefCell<Vec<(Waiting, Waker)>>,
    events: RefCell<VecDeque<(usize, Event)>>,
    place: Cell<usize>,
    window: Cell<usize>,
    /// The processes that are in the middle of a turn, and whether each was kept from running in it.
    pub turns: RefCell<Vec<(i32, bool)>>,
    /// Whether a process was kept from running because another one was, which no machine does.
    pub is_tangled: Cell<bool>,
    pub fork_fails: Cell<bool>,
    pub checks: RefCell<Checks>,
    last_event: Cell<Instant>,
    is_continued: Cell<bool>,
    pub script: Script,
}

/// How a course went.
#[derive(Debug)]
pub struct Outcome {
    /// The violated property, if any.
    pub violation: Option<String>,
    /// The number of places.
    pub places: usize,
    /// The last place within a while after the last event.
    pub window: usize,
    /// What happened, if it was asked for.
    pub log: Vec<String>,
}

/// Plays a script.
pub fn play(script: &Script, log: bool) -> Outcome {
    let world = Rc::new(World {
        table: RefCell::new(Table::new(log)),
        programs: RefCell::default(),
        tenure: RefCell::default(),
        lease: RefCell::default(),
        timers: RefCell::default(),
        waiting: RefCell::default(),
        events: RefCell::new(script.events.iter().copied().collect()),
        place: Cell::new(0),
        window: Cell::new(0),
        turns: RefCell::default(),
        is_tangled: Cell::new(false),
        fork_fails: Cell::new(false),
        checks: RefCell::default(),
        last_event: Cell::new(0),
        is_continued: Cell::new(false),
        script: script.clone(),
    });
    let tenure = as_process(&world, TENURE, || Tenure::start(&world));
    *world.tenure.borrow_mut() = Some(tenure);
    world.run(|_| false);
    if !world.has_failed() {
        world.check_end();
    }
    let tenure = world.tenure.take();
    as_process(&world, TENURE, || drop(tenure));
    let mut table = world.table.borrow_mut();
    Outcome {
        violation: table.violation.take(),
        places: world.place.get(),
        window: world.window.get(),
        log: table.log.take().unwrap_or_default(),
    }
}

impl World {
    /// Returns the readings of the clocks.
    pub fn moment(&self) -> Moment {
        let table = self.table.borrow();
        let at = |it| Duration::from_secs(1_000) + Duration::from_nanos(it);
        Moment { boot: at(table.now), raw: at(table.awake()), wall: at(table.now) }
    }

    /// Returns the true time, and that of a clock that stands still in a suspend.
    pub fn time(&self) -> (Instant, Instant) {
        let table = self.table.borrow();
        (table.now, table.awake())
    }

    fn has_failed(&self) -> bool {
        self.table.borrow().violation.is_some()
    }

    fn is_over(&self) -> bool {
        let now = self.table.borrow().now;
        self.has_failed() || now >= self.ends_at()
    }

    fn ends_at(&self) -> Instant {
        let [long, short] = AFTER;
        let after = if self.script.has(Event::lasts) { long } else { short };
        self.last_event.get() + after
    }

    pub fn set_timer(&self, after: Duration, fires: oneshot::Sender<()>) {
        let at = self.table.borrow().awake() + crate::span(after.max(TICK));
        let mut timers = self.timers.borrow_mut();
        timers.retain(|(_, it)| !it.is_closed());
        timers.push((at, fires));
    }

    pub fn wake_when(&self, what: Waiting, waker: Waker) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|(it, _)| *it != what);
        waiting.push((what, waker));
    }

    pub fn add(&self, id: i32, program: Program) {
        self.programs.borrow_mut().insert(id, program);
    }

    /// Sends a signal, and judges whether it may be sent.
    pub fn signal(&self, from: i32, to: i32, signal: i32) -> Result<(), Errno> {
        self.judge_signal(from, to, signal);
        self.table.borrow_mut().signal(from, to, signal)
    }

    /// Passes a place in a turn of a process, where it may be preempted, stopped and killed.
    pub fn preempt(self: &Rc<Self>, id: i32, name: &str) {
        self.pass(name);
        let runs = |it: &Self| it.table.borrow().runs(id);
        if !runs(self) {
            let mut turns = self.turns.borrow_mut();
            turns.iter_mut().filter(|it| it.0 == id).for_each(|it| it.1 = true);
            // Those below it cannot run on until it does, so they may be late.
            self.is_tangled.set(self.is_tangled.get() || turns.len() > 1);
            drop(turns);
            self.run(|it| !it.table.borrow().lives(id) || runs(it));
        }
        if !runs(self) {
            resume_unwind(Box::new(Killed));
        }
    }

    /// Passes a place: what the script has for it happens, and all that this makes ready runs.
    pub fn pass(self: &Rc<Self>, name: &str) {
        let place = self.place.get() + 1;
        self.place.set(place);
        if self.table.borrow().now <= self.last_event.get() + WINDOW {
            self.window.set(place);
        }
        self.table.borrow_mut().note(|| format!("  {place} {name}"));
        let mut happened = false;
        loop {
            let is_here = self.events.borrow().front().is_some_and(|(at, _)| *at <= place);
            let event = is_here.then(|| self.events.borrow_mut().pop_front()).flatten();
            let Some((_, event)) = event else { break };
            self.table.borrow_mut().note(|| format!("EVENT {event:?}"));
            self.happen(event);
            self.last_event.set(self.table.borrow().now);
            happened = true;
        }
        if happened {
            while self.take_turn() {}
        }
    }

    /// Lets the world go on until a condition holds or the course is over.
    fn run(self: &Rc<Self>, until: impl Fn(&Self) -> bool) {
        while !until(self) && !self.is_over() {
            if !self.take_turn() {
                self.check();
                self.advance();
            }
        }
    }

    /// Lets one process that has something to do take a turn.
    fn take_turn(self: &Rc<Self>) -> bool {
        if self.has_failed() {
            return false;
        }
        if self.table.borrow_mut().expire() {
            return true;
        }
        self.wake();
        self.take_turn_of_tenure() || self.take_turn_of_another()
    }

    fn wake(&self) {
        let awake = self.table.borrow().awake();
        let due: Vec<_> = self.timers.borrow_mut().extract_if(.., |it| it.0 <= awake).collect();
        for (_, fires) in due {
            // Its task may have gone on.
            let _ = fires.send(());
        }
        let mut table = self.table.borrow_mut();
        let mut waiting = self.waiting.borrow_mut();
        let ready = waiting.extract_if(.., |(what, _)| match *what {
            Waiting::Report(term) => {
                let link = table.link(term);
                !link.to_tenure.is_empty() || link.is_over()
            }
            Waiting::Exit(id) => !table.lives(id),
        });
        let ready: Vec<_> = ready.collect();
        drop(table);
        ready.into_iter().for_each(|(_, waker)| waker.wake());
    }

    fn take_turn_of_tenure(self: &Rc<Self>) -> bool {
        if !self.table.borrow().lives(TENURE) {
            let tenure = self.tenure.take();
            as_process(self, TENURE, || drop(tenure));
            return false;
        }
        if !self.table.borrow().runs(TENURE) {
            return false;
        }
        self.ask_again();
        let Some(mut tenure) = self.tenure.take() else { return false };
        let turn = self.turn(TENURE, || {
            let took = tenure.take_turn(self);
            (took, tenure)
        });
        let Some((took, tenure)) = turn else { return true };
        if tenure.has_ended() {
            self.table.borrow_mut().end(TENURE, Change::Exited(0));
            as_process(self, TENURE, || drop(tenure));
        } else {
            *self.tenure.borrow_mut() = Some(tenure);
        }
        took
    }

    fn take_turn_of_another(self: &Rc<Self>) -> bool {
        let table = self.table.borrow();
        self.programs.borrow_mut().retain(|id, _| table.lives(*id));
        let is_ready =
            |(id, program): &(&i32, &Program)| table.runs(**id) && program.is_ready(&table, **id);
        let ready = self.programs.borrow().iter().find(is_ready).map(|(id, _)| *id);
        drop(table);
        let Some(id) = ready else { return false };
        let program = self.programs.borrow_mut().remove(&id);
        self.table.borrow_mut().at(id).child_signal = false;
        match self.turn(id, || program.and_then(|it| it.turn(self, id))) {
            Some(Some(next)) => {
                self.programs.borrow_mut().insert(id, next);
            }
            Some(None) => {
                let is_own = self.table.borrow().get(id).is_some_and(|it| it.role != Role::Main);
                if is_own {
                    self.table.borrow_mut().end(id, Change::Exited(0));
                }
            }
            None => {}
        }
        true
    }

    /// Runs a turn of a process; `None` if it was killed in it.
    fn turn<T>(self: &Rc<Self>, id: i32, work: impl FnOnce() -> T) -> Option<T> {
        self.turns.borrow_mut().push((id, false));
        let done = catch_unwind(AssertUnwindSafe(|| as_process(self, id, work)));
        self.turns.borrow_mut().pop();
        match done {
            Ok(done) => Some(done),
            Err(cause) if cause.is::<Killed>() => None,
            Err(cause) => resume_unwind(cause),
        }
    }

    /// Lets the time pass to the next instant at which something happens.
    fn advance(self: &Rc<Self>) {
        let (now, slept) = {
            let table = self.table.borrow();
            (table.now, table.slept)
        };
        let continues = self.last_event.get() + CONTINUED;
        if now >= continues && !self.is_continued.get() && self.events.borrow().is_empty() {
            self.is_continued.set(true);
            self.continue_all();
            return;
        }
        let next = self.next_instant(now, slept);
        // What happens just before an instant finds everything as it was.
        let before = next - MILLI / 2;
        let matters = !self.events.borrow().is_empty() || now <= self.last_event.get() + WINDOW;
        let stops = matters && now < before;
        let (name, next) = if stops { ("before", before) } else { ("time", next) };
        self.table.borrow_mut().now = next;
        self.pass(name);
    }

    /// Returns the next instant at which something happens.
    fn next_instant(&self, now: Instant, slept: Span) -> Instant {
        let timers = self.timers.borrow();
        let timers = timers.iter().filter(|it| !it.1.is_closed()).map(|it| it.0 + slept);
        let programs = self.programs.borrow();
        let programs = programs.values().filter_map(|it| it.wakes_at(slept));
        let tenure = self.tenure.borrow();
        let tenure = tenure.as_ref().and_then(Tenure::wakes_at).map(|it| it + slept);
        let change = self.table.borrow().next_change();
        let answer = self.lease.borrow().next().map(|it| it + slept);
        let bounds = [self.last_event.get() + CONTINUED, self.ends_at()];
        let due = timers.chain(programs).chain(tenure).chain(change).chain(answer).chain(bounds);
        due.filter(|at| *at > now).min().unwrap_or(now + SECOND)
    }

    /// Continues what was stopped, with all that still waits for it.
    fn continue_all(&self) {
        let mut table = self.table.borrow_mut();
        let stopped: Vec<_> =
            table.all.iter().filter(|(_, it)| it.stopped).map(|(id, _)| *id).collect();
        for id in stopped {
            let _ = table.signal(INIT, id, CONT);
        }
    }
}
