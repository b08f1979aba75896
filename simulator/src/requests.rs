//! Follows each request of a candidate and its answer, and checks that none comes early or late: the
//! reads and bids of a standby by their [pace](super::pace), the [renewals](super::renewals) of a holder.

use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{Answer, Op, Standing, State, Transition};
use tenure::lease::{Change, StoreError};

use super::checker::Kind;
use super::due::{Due, Sighting};
use super::process::{Node, Process};
use super::renewals::Renewals;
use super::world::World;
use super::{Instant, SECOND, Span, span};

/// What a candidate has of a leadership that has ended.
pub struct Kept {
    pub lease: Duration,
    pub period: Duration,
    /// Whether the whole lease is over by its faster clock.
    pub is_over: bool,
}

/// What the pace of a candidate depends on.
pub struct Reader<'a> {
    pub index: u8,
    pub lease: Duration,
    pub deadline: Duration,
    pub period: Duration,
    /// Whether nothing but the lease of another keeps it from bidding.
    pub competes: bool,
    pub sighting: Option<&'a Sighting>,
}

/// What a candidate does when it does not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Reads.
    Reads,
    /// Repeats a bid until its outcome is known.
    Bids,
    /// May have a lease to release before it reads again.
    Releases,
    /// Has the lease.
    Holds,
    /// Has resigned.
    Left,
}

/// A kind of request, for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Read,
    Bid,
    Renewal,
    Release,
    /// A write under the lease.
    Write,
}

impl Asked {
    fn of(op: &Op) -> Self {
        match op {
            Op::Read => Self::Read,
            Op::Acquire(_) => Self::Bid,
            Op::Renew(_) => Self::Renewal,
            Op::Release(_) => Self::Release,
            Op::WriteTerm { .. } | Op::SetSuccessor { .. } => Self::Write,
        }
    }
}

impl Process {
    /// Records a read, and returns whether so many intervals in a row were alike that they cannot
    /// have jitter.
    pub fn reads_at_one_pace(&mut self, now: Instant, period: Span) -> bool {
        let (last, before, alike) = self.reads;
        let gap = now - last;
        let again = gap > period / 2 && gap.abs_diff(before) < period / 100;
        self.reads = (now, gap, if again { alike + 1 } else { 0 });
        self.reads.2 >= 16
    }

    /// Returns when the next periodic request is due, and what it is; `None` if another request is in flight
    /// or comes first.
    fn next(&self) -> Option<(&Due, &'static str)> {
        match self.pace.course() {
            _ if self.waits_for.is_some() => None,
            Course::Holds => Some((self.renewals.due(), "renewal")),
            _ => self.pace.due(),
        }
    }
}

impl Process {
    /// Follows a report of the store. A holder may renew at once, unless the report names its own lease;
    /// the wait of an observer begins with a renewal.
    pub fn is_told(&mut self, change: &Change, now: Moment, period: Duration) {
        let held_by = match change {
            Change::News { held_by } => *held_by,
            Change::Renewal(claim) => {
                if self.pace.course() != Course::Holds {
                    self.sighting = Sighting::update(self.sighting.take(), Some(claim), now);
                    let left = self.sighting.as_ref().map_or(Duration::ZERO, |it| it.left(now));
                    self.pace.put_off(left, now, period);
                }
                return;
            }
        };
        match &self.status.standing {
            Standing::Leader { .. } | Standing::Draining { .. } if held_by == self.nonce => {}
            Standing::Leader { .. } | Standing::Draining { .. } if self.waits_for.is_some() => {
                self.pace.wake_later();
            }
            Standing::Leader { .. } | Standing::Draining { .. } => self.renewals.wake(),
            Standing::Activating | Standing::Stopped => {}
            _ if self.hold_off.as_ref().is_some_and(|it| it.from.is_none()) => {
                self.pace.hint(now, period);
            }
            _ => self.pace.wake(now, period),
        }
    }
}

impl Node {
    /// Records that time has passed for its process.
    pub fn pass(&mut self, now: Moment) {
        let lease = self.plan.timings.lease_duration;
        if let Some(process) = &mut self.process {
            process.pace.pass(lease, now);
        }
    }

    /// Follows a change of state of its process.
    pub fn paced(&mut self, change: &Transition, now: Moment) {
        let timings = self.plan.timings;
        let Some(process) = &mut self.process else { return };
        let (lease, period) = (timings.lease_duration, timings.retry_period);
        if let (State::Activating, Some(sent)) = (change.to, process.pace.first_sent()) {
            process.renewals = Renewals::of_grant(sent, period);
            // A report of the store during the bid counts for the first renewal.
            if process.pace.take_wakeup() {
                process.renewals.wake();
            }
        }
        let is_over = process.renewals.granted().elapsed_max(now) >= lease;
        process.pace.changed(change, Kept { lease, period, is_over }, now);
    }

    /// Records a request of its process; returns whether it comes too early.
    pub fn sends(&mut self, op: &Op, now: Moment) -> bool {
        let Some(process) = &mut self.process else { return false };
        process.asked = Asked::of(op);
        match process.asked {
            Asked::Renewal => {
                let is_early = process.renewals.is_early(now);
                process.renewals.sent(now);
                is_early && process.keeps_time(now)
            }
            _ => process.pace.sent(op, now),
        }
    }

    /// Records the answer to the request in flight, or that there is none in time.
    pub fn is_answered(&mut self, answer: &Result<Answer, StoreError>, now: Moment) {
        self.pass(now);
        let timings = self.plan.timings;
        let Some(process) = &mut self.process else { return };
        let well = self.plan.probing.is_none() || process.probe_results.is_healthy();
        // Whether processes of an earlier term live is not known here.
        let may_have_child = self.plan.has_workload && process.led.is_some();
        let stays_away = process.paused || process.maintenance || self.plan.observe;
        let competes = well && !stays_away && !may_have_child;
        let reader = Reader {
            index: self.index,
            lease: timings.lease_duration,
            deadline: timings.renew_deadline,
            period: timings.retry_period,
            competes,
            sighting: process.sighting.as_ref(),
        };
        let keeps_time = process.keeps_time(now);
        // After the end of the belief, a renewal does not count, even one that was sent later by a clock
        // that went back.
        let believes = process.renewals.granted().elapsed_max(now) < timings.renew_deadline;
        let pace = &mut process.pace;
        let is_definite = !matches!(answer, Err(StoreError::RetryNow(_) | StoreError::Unknown(_)));
        match process.asked {
            Asked::Read => pace.read_answered(answer, &reader, now),
            Asked::Bid => pace.bid_answered(answer, &reader, now),
            Asked::Renewal if pace.course() == Course::Holds && believes => {
                let period = timings.retry_period;
                process.renewals.answered(answer, keeps_time, period, now);
            }
            Asked::Release if is_definite => pace.released(now),
            _ => pace.late(answer, now),
        }
        pace.is_answered();
        if pace.apply_wakeup(now, timings.retry_period) {
            process.renewals.wake();
        }
    }
}

impl World<'_> {
    /// Checks that a request does not come before the rules allow it.
    pub(super) fn check_early(&mut self, node: u8, op: &Op, now: Moment) {
        if self.nodes[usize::from(node)].sends(op, now) {
            let name = op.name();
            let say = || {
                format!("candidate {node} sends {name} earlier than the rules allow, or in vain")
            };
            self.checker.report(Kind::TooEarly, self.now, say);
        }
    }

    /// Checks that the next read, bid or renewal is not overdue after the `wait` of the core.
    pub(super) fn check_late(&mut self, node: u8, now: Moment, wait: Duration) {
        let Some(process) = &self.nodes[usize::from(node)].process else { return };
        let Some((due, what)) = process.next() else { return };
        if due.is_late(now, wait) {
            let late = due.overdue(now) + wait.saturating_sub(due.left(now));
            let say = || format!("the {what} of candidate {node} is {late:?} later than allowed");
            self.checker.report(Kind::TooLate, self.now, say);
        }
    }

    /// Checks that no candidate has forgotten what it waits for.
    pub(super) fn check_forgotten(&mut self) {
        for node in 0..self.nodes.len() {
            let it = &self.nodes[node];
            let Some(process) =
                it.process.as_ref().filter(|_| it.asleep_until + 2 * SECOND < self.now)
            else {
                continue;
            };
            if process.disturbed_at.is_some_and(|at| self.now < at + 2 * SECOND) {
                continue;
            }
            let now = it.moment(self.now);
            // Its timers count by one clock, and a shell wakes up each second.
            let grace = 2 * SECOND + span(it.plan.timings.retry_period) / 2;
            if process.next().is_some_and(|(due, _)| due.overdue(now) > Duration::from_nanos(grace))
            {
                let say = || format!("candidate {node} has forgotten what it waits for");
                self.checker.report(Kind::TooLate, self.now, say);
            }
        }
    }
}
