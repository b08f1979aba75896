//! Commands of operators, and checks that candidates obey them: drains, hold-offs, pauses.

use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{
    Answer, Command, Input, Op, Progress, Reason, Refusal, Standing, State, Transition,
};
use tenure::lease::{Bid, LeaseId, Nonce, Successor};

use super::checker;
use super::due::Sighting;
use super::faults::{Kind, TransferTarget};
use super::process::Process;
use super::service::is_voluntary;
use super::world::World;
use super::{Instant, MILLI, Span, span};

/// A leadership that ended voluntarily: work begun in it may continue under the lease.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    pub term: Option<u64>,
    pub lease: Option<LeaseId>,
    pub began: Moment,
    pub length: Duration,
    /// Whether the service or its processes have ended the work.
    pub over: bool,
    /// When it began, in true time.
    pub since: Instant,
}

impl Work {
    /// Returns whether the lease must not be released yet, by the slower of the candidate's clocks.
    fn goes_on(&self, now: Moment) -> bool {
        !self.over && self.began.elapsed_min(now) < self.length
    }
}

/// A hold-off, as the checker counts it.
#[derive(Clone, Copy, Debug)]
pub struct HoldOff {
    nonce: Option<Nonce>,
    pub length: Duration,
    pub from: Option<Moment>,
    /// Whether a later leader was seen to name this candidate as successor.
    called: bool,
}

impl Process {
    /// Restarts the waits whose start is later than a clock that went back, before the status of a turn
    /// is taken over. A drain that had lapsed before the turn counts from its start all the same; one that
    /// lapses in this turn counts from here, since the core restarts the wait first.
    pub fn restart_if_back(&mut self, now: Moment) {
        let drains = matches!(self.status.standing, Standing::Draining { .. });
        if let Some(work) = self.work.as_mut().filter(|_| drains)
            && work.began.went_back(now)
        {
            work.began = now;
        }
        if let Some((ended, ..)) = &mut self.passive_since
            && ended.went_back(now)
        {
            *ended = now;
        }
    }

    /// Records that the candidate must hold off after its current lease.
    fn begin_hold_off(&mut self, length: Duration) {
        let nonce = self.nonce;
        self.hold_off =
            (!length.is_zero()).then_some(HoldOff { nonce, length, from: None, called: false });
    }

    /// Records the result of a read.
    pub fn note_read(&mut self, answer: &Answer, node: u8, now: Moment) {
        let Answer::Snapshot(sight) = answer else { return };
        self.sighting = Sighting::update(self.sighting.take(), sight.claim.as_ref(), now);
        let over = self.sighting.as_ref().is_some_and(|it| it.left(now).is_zero());
        if let Some(hold_off) = &mut self.hold_off {
            if sight.free || over || sight.record.nonce != hold_off.nonce {
                hold_off.from.get_or_insert(now);
            }
            let successor = sight.record.successor.as_ref();
            let named = successor.is_some_and(|it| it.identity == identity(node));
            hold_off.called = named && sight.record.nonce != hold_off.nonce;
            if hold_off.from.is_some_and(|from| from.went_back(now)) {
                hold_off.from = Some(now);
            }
            if hold_off.from.is_some_and(|from| from.elapsed_min(now) >= hold_off.length) {
                self.hold_off = None;
            }
        }
    }
}

impl World<'_> {
    /// Sends a command of an operator or the service to a candidate.
    pub(super) fn command(
        &mut self,
        node: u8,
        command: Command,
    ) -> Option<Result<Progress, Refusal>> {
        let asked = match &command {
            Command::StepDown { hold_off } => Some(*hold_off),
            Command::Transfer(successor) => Some(successor.hold_off),
            _ => None,
        };
        if let (Some(process), Some(hold_off)) = (&mut self.nodes[usize::from(node)].process, asked)
        {
            process.asked_hold_off = Some(span(hold_off));
        }
        let said = command.clone();
        let outcome = self.turn(node, Input::Command(command));
        self.log(|_| format!("candidate {node} is asked for {said:?}: {outcome:?}"));
        if let Some(process) = &mut self.nodes[usize::from(node)].process
            && outcome.is_some_and(|it| it.is_ok())
        {
            match said {
                Command::Pause => process.paused = true,
                // Without a pause, it ends the hold-off.
                Command::Resume => {
                    process.hold_off.take_if(|_| !process.paused);
                    process.paused = false;
                }
                _ => {}
            }
        }
        outcome
    }

    /// Injects an operator's command, and returns whether it was accepted.
    pub(super) fn operate(&mut self, node: usize, kind: Kind, length: Span) -> bool {
        let hold_off = Duration::from_nanos(length);
        let command = match kind {
            Kind::StepDown => Command::StepDown { hold_off },
            Kind::Transfer { to } => {
                let identity = match to {
                    TransferTarget::Node(successor) => identity(successor),
                    TransferTarget::Nobody => "nobody".to_owned(),
                };
                Command::Transfer(Successor { identity, hold_off })
            }
            Kind::TakeOut => Command::Pause,
            _ => return false,
        };
        self.command(node as u8, command).is_some_and(|it| it.is_ok())
    }

    /// Resumes a paused candidate.
    pub(super) fn resume(&mut self, node: usize) {
        let it = &mut self.nodes[node];
        if it.process.as_ref().is_some_and(|it| it.paused) {
            if it.asleep_until > self.now {
                it.resumes = true;
                return;
            }
            self.command(node as u8, Command::Resume);
        }
    }

    /// Records a state transition of a candidate.
    pub(super) fn changed(&mut self, node: u8, change: Transition, moment: Moment) {
        let Transition { from, to, reason, term, .. } = change;
        self.nodes[usize::from(node)].paced(&change, moment);
        self.open_windows(node, &change);
        if let (State::Activating, Reason::TermWritten, Some(process)) =
            (from, reason, &mut self.nodes[usize::from(node)].process)
        {
            // The leader that named it as successor has ended its hold-off.
            process.hold_off = None;
        }
        if from.is_leading() && !to.is_leading() && is_voluntary(reason) {
            self.gave_up(node, change, moment);
        }
        if from.is_leading() && matches!(reason, Reason::Lapsed | Reason::Lost) {
            self.close_streams(node);
        }
        if let (State::Leader, Reason::Renewed, Some(process)) =
            (to, reason, &mut self.nodes[usize::from(node)].process)
        {
            // It may lapse in the same turn, before any status has it. The belief before it may be of a
            // time that the clocks have not yet come to again.
            process.believed = Some(process.renewals.granted());
        }
        if let (true, Reason::Lapsed, Some(process)) =
            (from.is_leading(), reason, &mut self.nodes[usize::from(node)].process)
        {
            process.lapsed = process.lease.zip(process.believed);
        }
        if let (State::Activating, Some(process)) =
            (from, &mut self.nodes[usize::from(node)].process)
        {
            match (reason, process.asked_hold_off.take()) {
                (Reason::SteppedDown, Some(asked)) => process.begin_hold_off(nanos(asked)),
                (Reason::Unhealthy, _) => {
                    let lease = self.nodes[usize::from(node)].plan.timings.lease_duration;
                    let process = self.nodes[usize::from(node)].process.as_mut();
                    process.into_iter().for_each(|it| it.begin_hold_off(lease));
                }
                _ => {}
            }
        }
        let refused = self.nodes[usize::from(node)].process.as_ref().is_some_and(|it| it.refused);
        if reason == Reason::Lost && !refused {
            let say = || format!("candidate {node} lost a lease that the store did not refuse");
            self.checker.report(checker::Kind::LostUnrefused, self.now, say);
        }
        if from == State::Draining {
            self.drain_ended(node, reason, term, moment);
        }
    }

    /// Records that a leader stepped down voluntarily: its promises hold for as long as the drain
    /// may take.
    fn gave_up(&mut self, node: u8, change: Transition, moment: Moment) {
        let Transition { to, reason, term, .. } = change;
        let it = &mut self.nodes[usize::from(node)];
        let timings = it.plan.timings;
        let life = it.life;
        let drain =
            if reason == Reason::ChildEnded { Duration::ZERO } else { timings.drain_timeout };
        if let Some(process) = &mut it.process {
            let asked = process.asked_hold_off.take().map(nanos).unwrap_or_default();
            match reason {
                Reason::SteppedDown | Reason::Transferred | Reason::ChildEnded => {
                    process.begin_hold_off(asked);
                }
                Reason::Unhealthy => process.begin_hold_off(timings.lease_duration),
                _ => {}
            }
            process.work = Some(Work {
                term,
                lease: process.lease,
                began: moment,
                length: drain,
                over: false,
                since: self.now,
            });
        }
        if let Some(term) = term {
            self.checker.revoke(term, node, life, self.now + kept(drain));
        }
        if reason == Reason::Unhealthy {
            self.check_health_loss(node, term);
        }
        if to == State::Draining {
            self.notify_draining(node, term);
            self.plan_drained(node, span(drain));
        }
    }

    fn drain_ended(&mut self, node: u8, reason: Reason, term: Option<u64>, moment: Moment) {
        let it = &mut self.nodes[usize::from(node)];
        let (life, lease) = (it.life, span(it.plan.timings.lease_duration));
        let Some(process) = &mut it.process else { return };
        // Once the work has ended, the term counts as over, also if the lease lapsed before its
        // release.
        let ended = process.work.as_ref().is_some_and(|it| it.over);
        if let (true, Some(term)) = (reason == Reason::Drained || ended, term) {
            self.checker.revoke(term, node, life, self.now);
        }
        let lease_of_drain = process.lease.filter(|_| reason == Reason::Lapsed);
        let Some(work) = &mut process.work else { return };
        process.lapsed_drain = lease_of_drain.map(|it| (it, work.began, work.length));
        // A clock that goes back does not reopen a drain that is over.
        work.over |= !work.goes_on(moment);
        let undisturbed = process.disturbed_at.is_none_or(|at| at + 2 * lease < work.since);
        if reason == Reason::Lapsed && undisturbed {
            let say = || format!("candidate {node} let its lease lapse in a drain");
            self.checker.report(checker::Kind::DrainLapsed, self.now, say);
        }
    }

    /// Checks that a request is allowed now.
    pub(super) fn check_request(&mut self, node: u8, op: &Op, moment: Moment) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        let period = span(it.plan.timings.retry_period);
        let alike = matches!(op, Op::Read) && process.reads_at_one_pace(self.now, period);
        match op {
            Op::Read => self.check_read(node),
            Op::Acquire(bid) => self.check_bid(node, bid),
            _ => {}
        }
        let it = &self.nodes[usize::from(node)];
        let Some(process) = &it.process else { return };
        let violation = match op {
            Op::Release(bid) => self.too_early(node, bid, moment),
            Op::Read if alike => Some((checker::Kind::NoJitter, "after as long as ever")),
            Op::Acquire(_) if process.paused => {
                Some((checker::Kind::Ineligible, "although it is paused"))
            }
            Op::Acquire(_) if process.maintenance => {
                Some((checker::Kind::Ineligible, "although maintenance is imminent"))
            }
            Op::Acquire(_) if it.plan.probing.is_some() && !process.probe_results.is_healthy() => {
                Some((checker::Kind::Ineligible, "although its service is unhealthy"))
            }
            Op::Acquire(_)
                if it.workload.child.is_some_and(|child| Some(child.term) == process.led) =>
            {
                Some((checker::Kind::Ineligible, "while its old child lives"))
            }
            Op::Acquire(_) if process.hold_off.is_some_and(|it| !it.called) => {
                Some((checker::Kind::HoldOffBroken, "before its hold-off is over"))
            }
            _ => None,
        };
        if let Some((kind, why)) = violation {
            let name = op.name();
            self.checker.report(kind, self.now, || format!("candidate {node} sends {name} {why}"));
        }
        // A clock that goes back does not forbid a release that was allowed.
        if let (Op::Release(_), Some(process)) = (op, &mut self.nodes[usize::from(node)].process) {
            process.work = None;
        }
    }

    /// Records that all publishers of a candidate have published passive.
    pub(super) fn publish_acked(&mut self, node: u8) {
        if let Some(process) = &mut self.nodes[usize::from(node)].process
            && let Some((.., said)) = &mut process.passive_since
        {
            *said = true;
        }
    }

    fn too_early(
        &self,
        node: u8,
        bid: &Bid,
        moment: Moment,
    ) -> Option<(checker::Kind, &'static str)> {
        let it = &self.nodes[usize::from(node)];
        if it.workload.child.is_some_and(|child| child.lease == bid.lease) {
            return Some((checker::Kind::ReleasedEarly, "while the child of that lease lives"));
        }
        let waits = |(ended, nonce, said): (Moment, Option<Nonce>, bool)| {
            let says = if self.has_shells() { it.disk.says_passive() } else { said };
            !says
                && nonce == Some(bid.nonce)
                && ended.elapsed_min(moment) < it.plan.timings.request_timeout
        };
        let process = it.process.as_ref()?;
        if process.passive_since.is_some_and(waits) {
            return Some((checker::Kind::ReleasedEarly, "before all publishers say passive"));
        }
        let lasts = |(lease, sent): (LeaseId, Moment)| {
            lease == bid.lease && sent.elapsed_min(moment) < it.plan.timings.lease_duration
        };
        if process.lapsed.is_some_and(lasts) {
            return Some((checker::Kind::ReleasedEarly, "before its lapsed lease is over"));
        }
        let work = process.work;
        work.filter(|it| it.lease == Some(bid.lease) && it.goes_on(moment))
            .map(|_| (checker::Kind::ReleasedEarly, "before its drain is over"))
    }
}

/// Returns the identity of a candidate. Two candidates share an identity and differ only in their
/// instance.
pub fn identity(node: u8) -> String {
    format!("candidate-{}", node / 2)
}

/// Returns the bid that a request is for.
pub fn bid(op: &Op) -> Option<&Bid> {
    match op {
        Op::Read => None,
        Op::Acquire(bid) | Op::Renew(bid) | Op::Release(bid) => Some(bid),
        Op::WriteTerm { bid, .. } | Op::SetSuccessor { bid, .. } => Some(bid),
    }
}

/// Returns how long after a voluntary end a client still acts on an earlier answer, if it polls
/// often enough for the drain; the margin covers the drift of its clock.
pub fn kept(drain: Duration) -> Span {
    (span(drain) * 4 / 5).saturating_sub(50 * MILLI)
}

fn nanos(span: Span) -> Duration {
    Duration::from_nanos(span)
}
