//! The processes of one machine, as a kernel keeps them: who is whose parent, who has stopped or
//! exited and was not waited for, groups and sessions, and ids that are used again as soon as they
//! may be.

use std::collections::BTreeMap;

use rustix::io::Errno;
use tenure::exec::kernel::Change;

use super::link::Link;
use super::signal;
use crate::{Instant, SECOND, Span};

pub const INIT: i32 = 1;
pub const TENURE: i32 = 2;

/// What a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Init,
    Tenure,
    Reaper,
    Watchdog,
    /// The launcher, until it has executed the command.
    Launcher,
    /// The command.
    Main,
    /// A process that the command has started.
    Member,
    /// A process that Tenure has nothing to do with.
    Bystander,
}

impl Role {
    /// Returns whether the process is of a command.
    pub fn is_work(self) -> bool {
        matches!(self, Self::Launcher | Self::Main | Self::Member)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Process {
    pub role: Role,
    /// The term that it belongs to; 0 for none.
    pub term: u64,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    pub since: u64,
    /// How it ended; it has not been waited for.
    pub ended: Option<Change>,
    pub stopped: bool,
    /// A stop that its parent has not been told yet.
    pub unreported: bool,
    /// It does not run before this, and nobody is told: frozen, or without a CPU.
    pub stalled_until: Instant,
    /// It is in a call that no signal interrupts, until then.
    pub stuck_until: Instant,
    /// SIGKILL, while it is stuck.
    pub dying: bool,
    /// It ignores every signal that it can.
    pub stubborn: bool,
    /// It exits then, since it was asked to.
    pub exits_at: Option<Instant>,
    /// A signal that it has not received, since it was stopped or had not executed the command.
    pub pending: Option<i32>,
    /// When it was first asked to end.
    pub asked_at: Option<Instant>,
    pub bound: bool,
    pub subreaper: bool,
    /// SIGCHLD is pending.
    pub child_signal: bool,
}

#[derive(Debug)]
pub struct Table {
    pub all: BTreeMap<i32, Process>,
    /// The connection of each term, in the order of their start.
    pub links: Vec<Link>,
    /// True time, which is also the boot clock's.
    pub now: Instant,
    /// How long the machine was suspended.
    pub slept: Span,
    next: i32,
    starts: u64,
    /// Ids that have been waited for.
    free: Vec<i32>,
    pub violation: Option<String>,
    pub log: Option<Vec<String>>,
}

impl Table {
    pub fn new(log: bool) -> Self {
        let mut table = Self {
            all: BTreeMap::new(),
            links: Vec::new(),
            now: 0,
            slept: 0,
            next: INIT,
            starts: 0,
            free: Vec::new(),
            violation: None,
            log: log.then(Vec::new),
        };
        for role in [Role::Init, Role::Tenure, Role::Bystander] {
            table.spawn(INIT, role, 0, true);
        }
        table
    }

    /// Returns the reading of a clock that stands still while the machine is suspended.
    pub fn awake(&self) -> Instant {
        self.now - self.slept
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(log) = &mut self.log {
            let now = self.now;
            log.push(format!("{:>10.6} {}", now as f64 / SECOND as f64, text()));
        }
    }

    /// Records a violation; the first counts.
    pub fn violated(&mut self, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            let text = text();
            self.note(|| format!("VIOLATION: {text}"));
            self.violation = Some(text);
        }
    }

    /// Creates a process, in its parent's group or in one of its own.
    pub fn spawn(&mut self, parent: i32, role: Role, term: u64, own_group: bool) -> i32 {
        let id = self.next;
        self.next += 1;
        let of = self.all.get(&parent).copied();
        self.insert(id, parent, role, term);
        let new = self.at(id);
        if let Some(of) = of {
            new.session = of.session;
            new.group = if own_group { id } else { of.group };
        }
        self.note(|| format!("{role:?} {id} of term {term} starts"));
        id
    }

    fn insert(&mut self, id: i32, parent: i32, role: Role, term: u64) {
        self.starts += 1;
        let since = self.starts;
        let new = Process {
            role,
            term,
            parent,
            group: id,
            session: id,
            since,
            ended: None,
            stopped: false,
            unreported: false,
            stalled_until: 0,
            stuck_until: 0,
            dying: false,
            stubborn: false,
            exits_at: None,
            pending: None,
            asked_at: None,
            bound: false,
            subreaper: false,
            child_signal: false,
        };
        self.all.insert(id, new);
    }

    pub fn get(&self, id: i32) -> Option<&Process> {
        self.all.get(&id)
    }

    pub fn at(&mut self, id: i32) -> &mut Process {
        self.all.get_mut(&id).expect("the process is there")
    }

    /// Returns whether a process has not ended, and no bystander has got its id since.
    pub fn lives(&self, id: i32) -> bool {
        self.get(id).is_some_and(|it| it.ended.is_none() && it.role != Role::Bystander)
    }

    /// Returns whether a process can run now.
    pub fn runs(&self, id: i32) -> bool {
        let now = self.now;
        self.lives(id) && self.get(id).is_some_and(|it| !it.stopped && it.stalled_until <= now)
    }

    /// Returns the last living process of a role and term.
    pub fn find(&self, role: Role, term: u64) -> Option<i32> {
        let is = |it: &Process| it.role == role && it.term == term && it.ended.is_none();
        self.all.iter().rev().find(|(_, it)| is(it)).map(|(id, _)| *id)
    }

    pub fn children(&self, of: i32) -> Vec<i32> {
        self.all.iter().filter(|(_, it)| it.parent == of).map(|(id, _)| *id).collect()
    }

    /// Ends a process.
    pub fn end(&mut self, id: i32, change: Change) {
        let Some(it) = self.all.get_mut(&id).filter(|it| it.ended.is_none()) else { return };
        it.ended = Some(change);
        let parent = it.parent;
        self.note(|| format!("{id} ends: {change:?}"));
        for link in &mut self.links {
            link.leave(id);
        }
        for child in self.children(id) {
            let heir = self.subreaper_above(parent);
            self.at(child).parent = heir;
            if self.at(child).bound && self.lives(child) {
                self.kill(child);
            }
            self.inherit(heir, child);
        }
        self.inherit(parent, id);
    }

    /// Returns the process that orphans get as their parent.
    fn subreaper_above(&self, mut id: i32) -> i32 {
        while id != INIT {
            match self.get(id) {
                Some(it) if it.subreaper && it.ended.is_none() => return id,
                Some(it) => id = it.parent,
                None => return INIT,
            }
        }
        INIT
    }

    /// Tells a parent of its zombie; the first process waits for it at once.
    fn inherit(&mut self, parent: i32, child: i32) {
        if self.get(child).is_none_or(|it| it.ended.is_none()) {
            return;
        }
        self.child_signal(parent);
        if parent == INIT {
            self.reap(child);
        }
    }

    pub fn child_signal(&mut self, parent: i32) {
        if let Some(parent) = self.all.get_mut(&parent) {
            parent.child_signal = true;
        }
    }

    /// Removes a zombie. Its id goes to another process as soon as no group or session has it.
    fn reap(&mut self, id: i32) {
        self.all.remove(&id);
        self.free.push(id);
        let all = &self.all;
        let is_used = |id: i32| all.values().any(|it| it.group == id || it.session == id);
        let (kept, used_again): (Vec<_>, Vec<_>) = self.free.iter().partition(|id| is_used(**id));
        self.free = kept;
        for id in used_again {
            // In the same session, so that nothing but its start tells it from the one before.
            self.insert(id, INIT, Role::Bystander, 0);
            self.at(id).session = INIT;
        }
    }

    /// Returns a change of a child, as `waitid` does.
    pub fn wait(
        &mut self,
        parent: i32,
        child: Option<i32>,
        [exited, stopped, stays]: [bool; 3],
    ) -> Result<Option<Change>, Errno> {
        let mut children = self.children(parent);
        children.retain(|it| child.is_none_or(|child| child == *it));
        if children.is_empty() {
            return Err(Errno::CHILD);
        }
        for id in children {
            let it = self.at(id);
            if let Some(change) = it.ended.filter(|_| exited) {
                if !stays {
                    self.reap(id);
                }
                return Ok(Some(change));
            }
            if stopped && it.unreported {
                it.unreported = stays;
                return Ok(Some(Change::Stopped(signal::STOP)));
            }
        }
        Ok(None)
    }

    /// Returns whether a child has a change that its parent was not told.
    pub fn has_changed(&self, child: i32) -> bool {
        self.get(child).is_none_or(|it| it.ended.is_some() || it.unreported)
    }

    /// Ends what was about to end by itself, and returns whether anything did.
    pub fn expire(&mut self) -> bool {
        let now = self.now;
        let due = self.all.iter().find_map(|(id, it)| {
            if it.ended.is_some() || it.stuck_until > now || it.stalled_until > now {
                return None;
            }
            if it.dying {
                return Some((*id, Change::Killed(signal::KILL)));
            }
            let exits = it.exits_at.is_some_and(|at| at <= now) && !it.stopped;
            exits.then_some((*id, Change::Exited(0)))
        });
        if let Some((id, change)) = due {
            self.end(id, change);
        }
        due.is_some()
    }

    /// Returns the next instant at which a process changes by itself.
    pub fn next_change(&self) -> Option<Instant> {
        let living = self.all.values().filter(|it| it.ended.is_none());
        let times = living.flat_map(|it| {
            [it.exits_at.filter(|_| !it.stopped), Some(it.stalled_until), Some(it.stuck_until)]
        });
        times.flatten().filter(|at| *at > self.now).min()
    }

    /// Returns the connection of a term.
    pub fn link(&mut self, term: u64) -> &mut Link {
        self.links.iter_mut().rfind(|it| it.term == term).expect("the term has a connection")
    }

    /// Returns the processes of a group.
    pub fn group(&self, group: i32) -> Vec<i32> {
        self.all.iter().filter(|(_, it)| it.group == group).map(|(id, _)| *id).collect()
    }

    /// Returns the last term with processes; 0 if there was none.
    pub fn last_term(&self) -> u64 {
        self.links.last().map_or(0, |it| it.term)
    }
}
