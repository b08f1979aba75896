//! How long it takes at most until there is a leader, from what the candidates and the store are at now.
//!
//! The rules bound each step: the lease is released or runs out, some candidate reads that, bids, and
//! writes its term. The worst of each is summed up, for the candidate that is first in the worst case; the
//! examination allows a tenth more. Messages of a healthy link take at most its latency.

use std::time::Duration;

use tenure::election::Standing;
use tenure::lease::Successor;

use super::due;
use super::examine::Step;
use super::free::{Free, PUBLISHED};
use super::operate::identity;
use super::process::{Node, Process};
use super::requests::Course;
use super::settings::Timings;
use super::store::{Kind, Reports};
use super::world::World;
use super::{MILLI, SECOND, Span, span};

/// How long it takes at most until a candidate learns that its leadership ended before its child started.
pub const UNLAUNCHED: Span = 450 * MILLI;

/// A tick of the timers.
const TICK: Span = MILLI;

impl Node {
    /// Returns the settings of its process, or of the one that starts next.
    fn settings(&self) -> &Timings {
        let restarted = self.plan.restarted.as_ref().filter(|_| self.process.is_none());
        restarted.unwrap_or(&self.plan.timings)
    }

    /// Returns the true time in which its clocks advance by a wait, and its timer fires.
    pub(super) fn waits(&self, wait: Duration) -> Span {
        if wait.is_zero() { 0 } else { self.clocks.timer(wait) + TICK }
    }

    /// Returns whether its process may have been asked to resign.
    fn is_leaving(&self) -> bool {
        let standing = self.process.as_ref().map(|it| &it.status.standing);
        matches!(standing, Some(Standing::Draining { .. } | Standing::Stopped))
    }

    pub(super) fn period(&self) -> Duration {
        self.settings().retry_period
    }

    /// Returns the longest time between two reads.
    fn between_reads(&self) -> Span {
        let slow = if self.is_put_off() { due::slow_period(self.period()) } else { Duration::ZERO };
        self.waits(slow.max(self.period() * 3 / 2)) + self.trip(1)
    }

    /// Returns whether its reads may be put off by notices.
    fn is_put_off(&self) -> bool {
        self.process.as_ref().is_some_and(|it| it.pace.is_put_off())
    }

    /// Returns how long an operation of so many requests takes on a healthy link.
    pub(super) fn trip(&self, requests: u64) -> Span {
        (requests + 1) * self.settings().latency()
    }
}

impl World<'_> {
    /// Returns the bound on the time until a candidate leads, other than `except`, if the record names this
    /// successor or will.
    pub(super) fn bound_on_leader(&self, except: Option<u8>, named: Option<&Successor>) -> Span {
        let others = self.nodes.iter().filter(|it| Some(it.index) != except);
        let leads = others.filter_map(|it| self.leads_within(it)).min();
        let named = named.or(self.store.successor());
        let worst = leads.unwrap_or_else(|| self.time_to_leader(except, named, self.free()));
        worst + worst / 10 + 2 * TICK + self.allowance()
    }

    /// Returns the bound on the time until another leads, after a leader has been found unhealthy.
    pub(super) fn bound_on_leader_after(&self, leader: u8) -> Span {
        let it = &self.nodes[usize::from(leader)];
        let timings = &it.plan.timings;
        let drain = it.waits(timings.drain_timeout + timings.request_timeout * 2);
        let within = drain + PUBLISHED + it.trip(2) + it.trip(2);
        let free = Free { within, runs_out: false, may_be_renewed: false };
        let worst = self.time_to_leader(Some(leader), None, free);
        worst + worst / 10 + 2 * TICK + self.allowance()
    }

    fn time_to_leader(&self, except: Option<u8>, named: Option<&Successor>, free: Free) -> Span {
        let others = self.nodes.iter().filter(|it| Some(it.index) != except);
        let first = others.filter_map(|it| self.bids_within(it, named, free)).min();
        let wins = self.nodes.iter().filter(|it| !it.plan.observe).map(|it| {
            // A candidate that resigns is restarted with other settings.
            let later = it.plan.restarted.as_ref().filter(|_| it.is_leaving());
            self.win(it, it.settings()).max(later.map_or(0, |later| self.win(it, later)))
        });
        let wins = wins.max();
        // Without a candidate there is nothing to expect.
        first.unwrap_or(24 * 3_600 * SECOND) + wins.unwrap_or_default()
    }

    /// Returns how long until a holder of the lease leads, if it certainly keeps it.
    fn leads_within(&self, it: &Node) -> Option<Span> {
        let process = it.process.as_ref()?;
        if !self.holds(process) {
            return None;
        }
        let renewed = self.renewed_within(it, process);
        // The clock of a frozen machine may have stood still: then the lease ends before the belief.
        let is_kept =
            renewed * 11 / 10 < self.belief_left(it, process).min(self.store.rest(self.now));
        match &process.status.standing {
            Standing::Leader { .. } if is_kept && it.believes(self.now) => Some(0),
            Standing::Leader { .. } if is_kept => Some(renewed),
            Standing::Activating if is_kept => {
                // The write of its term may have failed, too.
                let retry = if self.is_settling() { it.waits(it.period()) } else { 0 };
                Some(renewed + retry + self.win(it, it.settings()))
            }
            _ => None,
        }
    }

    /// Returns whether what is in flight may have a fate of the phase of faults.
    pub(super) fn is_settling(&self) -> bool {
        self.examination.step() == Step::Settling
    }

    /// Returns how long the request in flight may take, whose fate may be one of the phase.
    pub(super) fn busy(&self, it: &Node, process: &Process) -> Span {
        match process.waits_for {
            Some(_) if !self.is_settling() => it.trip(4),
            Some(_) => {
                let ends = process.sent_at + it.clocks.timer(it.plan.timings.request_timeout);
                ends.max(process.given_up_at).saturating_sub(self.now) + TICK
            }
            None => 0,
        }
    }

    /// Returns how long until the next renewal is granted.
    pub(super) fn renewed_within(&self, it: &Node, process: &Process) -> Span {
        let next = match process.waits_for {
            Some(_) => self.busy(it, process) + it.waits(it.period()),
            None => it.waits(process.renewals.due().left(it.moment(self.now))),
        };
        next + it.trip(2)
    }

    /// Returns how long its belief lasts without a renewal.
    pub(super) fn belief_left(&self, it: &Node, process: &Process) -> Span {
        let elapsed = process.renewals.granted().elapsed_max(it.moment(self.now));
        it.waits(it.plan.timings.renew_deadline.saturating_sub(elapsed))
    }

    /// Returns how long a candidate takes to bid for a lease that is free by then.
    fn bids_within(&self, it: &Node, named: Option<&Successor>, free: Free) -> Option<Span> {
        let process = it.process.as_ref();
        let paused = process.is_some_and(|it| it.paused) && !it.resumes;
        if it.plan.observe || paused || process.is_none() && it.starts_at < self.now {
            return None;
        }
        let mut first = self.reads_within(it);
        let is_healthy = process.is_some_and(|it| it.probe_results.is_healthy());
        if let Some(probing) = it.plan.probing.filter(|_| !is_healthy) {
            let passes = u64::from(probing.rule.successes + 1);
            let starts = it.starts_at.saturating_sub(self.now);
            let healthy = starts + passes * (probing.interval + 100 * MILLI);
            first = first.max(healthy + it.between_reads());
        }
        if it.workload.is_pending && process.is_some_and(|it| it.pace.course() != Course::Holds) {
            first = first.max(UNLAUNCHED + it.between_reads());
        }
        let (end, known) = self.ends_for(it, first, free);
        let jitter =
            if known && !it.is_put_off() { it.waits(it.period() / 8) } else { it.between_reads() };
        // A read may come before the lease is free, and the next one at its latest.
        let is_read_after = self.reads_not_before(it) > end;
        let after = if is_read_after { 0 } else { end + it.trip(1) + jitter };
        let seen = first.max(after) + it.trip(1);
        let others = self.nodes.iter().filter(|other| other.index != it.index);
        let wasted = others
            .clone()
            .any(|it| it.process.as_ref().is_some_and(|it| it.pace.course() == Course::Bids));
        let longest = others.map(|it| it.trip(3)).max().unwrap_or_default();
        let wasted = if wasted { it.between_reads() + 2 * longest } else { 0 };
        Some(self.may_bid_within(it, named, seen) + wasted)
    }

    /// Returns how long until its next read at the latest, or the first after what it does now.
    fn reads_within(&self, it: &Node) -> Span {
        let Some(process) = &it.process else { return it.starts_at - self.now };
        let now = it.moment(self.now);
        let released = || self.released_within(it, process);
        let lease = it.waits(it.plan.timings.lease_duration);
        let later = if process.pace.backs_off() { lease * 3 / 2 } else { it.between_reads() };
        match process.pace.course() {
            Course::Reads if process.waits_for.is_none() => {
                it.waits(process.pace.left(now).max(self.put_off_by_reports(it)))
            }
            Course::Reads => self.busy(it, process) + it.between_reads(),
            Course::Bids => {
                let sent = process.pace.first_sent().map(|it| it.elapsed_max(now));
                let left = it
                    .waits(it.plan.timings.lease_duration.saturating_sub(sent.unwrap_or_default()));
                let backs_off = left <= released();
                released() + if backs_off { lease * 3 / 2 } else { it.between_reads() }
            }
            Course::Releases => released() + later,
            Course::Holds => {
                let ends = match &process.status.standing {
                    Standing::Draining { .. } => 0,
                    _ => self.belief_left(it, process) + lease,
                };
                ends + released() + it.between_reads()
            }
            Course::Left => released() + process.back_after,
        }
    }

    /// Returns how long reports of renewals that are under way may put its next read off.
    fn put_off_by_reports(&self, it: &Node) -> Duration {
        match self.store.kind().oddities().and_then(|it| it.reports) {
            Some(Reports::Content) => it.period() * 3 / 2 + Duration::from_millis(50),
            Some(Reports::Hint) | None => Duration::ZERO,
        }
    }

    /// Returns how long until its next read at the earliest, if it is known.
    fn reads_not_before(&self, it: &Node) -> Span {
        let process = it.process.as_ref();
        let reads =
            process.filter(|it| it.pace.course() == Course::Reads && it.waits_for.is_none());
        let wait = reads.map(|process| process.pace.not_before(it.moment(self.now)));
        wait.map_or(0, |wait| it.waits(wait))
    }

    /// Returns when the lease is free for this candidate, whose next read is after `first`, and whether it
    /// knows that in advance.
    fn ends_for(&self, it: &Node, first: Span, free: Free) -> (Span, bool) {
        match self.store.kind() {
            Kind::Blob => (free.within, false),
            Kind::Host => (free.within, free.runs_out && first + it.between_reads() < free.within),
            Kind::Register(_) => {
                let Some(claim) = self.store.claim() else { return (0, false) };
                if !free.runs_out {
                    return (free.within, false);
                }
                let seen = it.process.as_ref().and_then(|it| it.sighting.as_ref());
                let seen = seen.filter(|it| *it.claim() == claim && !free.may_be_renewed);
                let end = match seen {
                    Some(seen) => it.waits(seen.left(it.moment(self.now))),
                    None => {
                        let renewed = if free.may_be_renewed { free.within } else { 0 };
                        let counted = first + it.trip(1) + it.waits(claim.lease_duration);
                        counted.max(renewed + it.between_reads())
                    }
                };
                (end, true)
            }
        }
    }

    /// Returns when a candidate that has seen the lease free may bid: after its hold-off, and after waiting
    /// for a named successor.
    fn may_bid_within(&self, it: &Node, named: Option<&Successor>, seen: Span) -> Span {
        let held = it.process.as_ref().and_then(|it| it.hold_off).map(|it| it.length);
        let defers = named.filter(|named| named.identity != identity(it.index));
        match held.max(defers.map(|it| it.hold_off)).max(self.transferred()) {
            Some(longest) => seen + it.waits(longest) + it.between_reads() + it.trip(1),
            None => seen,
        }
    }

    /// Returns for how long a successor may still be named by a leader that hands over to it.
    fn transferred(&self) -> Option<Duration> {
        let processes = self.nodes.iter().filter_map(|it| it.process.as_ref());
        let begun = processes.filter_map(|it| it.hold_off).filter(|it| it.from.is_none());
        begun.map(|it| it.length).max().filter(|_| self.is_settling())
    }

    /// Returns the allowance beyond what follows from the state: none, unless that is not known exactly.
    /// After faults, beside a lying stream, and where settings differ, a lease that is read late, or
    /// acquired and lost once more, runs out a second time.
    fn allowance(&self) -> Span {
        let deceived = self.deceived_for();
        if deceived == 0 && !self.is_settling() && self.scenario.are_alike() {
            return 0;
        }
        let reads = self.nodes.iter().map(Node::between_reads).max().unwrap_or_default();
        let lease = self.scenario.longest(|it| it.lease_duration);
        deceived + lease * 11 / 10 + 2 * reads
    }

    /// Returns how long a candidate takes from its bid to leading.
    fn win(&self, it: &Node, timings: &Timings) -> Span {
        let bid = self.store.requests_of_bid();
        let hold = self.hold(timings.lease_duration).max(timings.activation_delay);
        it.waits(hold) + (bid + 1 + 2 * 3) * timings.latency()
    }

    /// Returns how long a next leader holds the lease before it is active: not at all, unless the record
    /// is missing, or its term is lower than one that a candidate has seen.
    fn hold(&self, lease: Duration) -> Duration {
        let seen = self.nodes.iter().filter_map(|it| it.process.as_ref()).map(|it| it.seen_term);
        let seen = seen.max().unwrap_or(0);
        match (self.store.kind(), self.store.term()) {
            (Kind::Host, None) if seen == 0 => Duration::ZERO,
            (_, Some(term)) if seen <= term => Duration::ZERO,
            (Kind::Blob, _) => Duration::from_secs(60),
            (Kind::Register(_) | Kind::Host, _) => lease,
        }
    }

    /// Returns how long a candidate with a defect may keep the lease from others that are healthy, and
    /// these then take to bid; `None` if it may take it again before one of them has read.
    pub(super) fn wasted_by(&self, defective: &Node, leader: u8) -> Option<Span> {
        let lease = span(defective.settings().lease_duration);
        let away = lease / 2 * 9 / 10;
        let others = self
            .nodes
            .iter()
            .filter(|it| it.index != leader && it.index != defective.index && it.is_fit());
        let reads = others.map(|it| it.between_reads() + it.trip(2)).min()?;
        let timeout = defective.waits(defective.settings().request_timeout);
        let keeps = self.win(defective, defective.settings())
            + defective.waits(defective.settings().lease_duration);
        (reads < away).then_some(keeps + timeout + defective.trip(3) + reads)
    }
}
