//! Messages in transit between candidates and the store. Late and duplicate answers are delivered
//! too.

use std::time::Duration;

use tenure::election::{Answer, Input, Op, Request, RequestId};
use tenure::lease::{Cause, Change, Failure, StoreError};

use super::checker::{self, Leadership};
use super::faults::Error;
use super::network::{self, Fate, Message};
use super::operate;
use super::queue::Event;
use super::requests::Asked;
use super::store::{Kind, Stage, Step};
use super::timeline;
use super::window::Window;
use super::world::World;
use super::{Instant, MILLI};

/// The messages by index, and the free indexes.
#[derive(Debug, Default)]
pub struct Post {
    messages: Vec<Message>,
    spare: Vec<u32>,
}

impl Post {
    pub(super) fn get(&mut self, index: u32) -> &mut Message {
        &mut self.messages[index as usize]
    }

    /// Returns the node that an answer is for.
    pub fn addressee(&self, index: u32) -> u8 {
        self.messages[index as usize].node
    }

    pub(super) fn insert(&mut self, message: Message) -> u32 {
        if let Some(free) = self.spare.pop() {
            self.messages[free as usize] = message;
            return free;
        }
        self.messages.push(message);
        self.messages.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, index: u32) {
        self.spare.push(index);
    }

    /// Describes an answer for the trace.
    pub(super) fn describe(&self, index: u32) -> String {
        let message = &self.messages[index as usize];
        let outcome = match &message.answer {
            None => "nothing".to_owned(),
            Some(Ok(Answer::Snapshot(sight))) => {
                format!("free: {}, {:?}", sight.free, sight.record.term)
            }
            Some(Ok(Answer::Grant(grant))) => format!("granted on term {:?}", grant.record.term),
            Some(Ok(Answer::Term(term))) => format!("term {term}"),
            Some(Ok(Answer::Done | Answer::Written(_))) => "done".to_owned(),
            Some(Err(error)) => format!("{}: {error}", error.outcome()),
        };
        format!("store: {} of candidate {}: {outcome}", message.op.name(), message.node)
    }
}

impl World<'_> {
    pub(super) fn send(&mut self, node: u8, Request { id, op, timeout }: Request) {
        let it = &mut self.nodes[usize::from(node)];
        let latency = it.plan.timings.latency();
        let fate = Fate::draw(&mut it.network, &it.link, latency, &op, &mut self.faults);
        let life = it.life;
        let mut seen_term = 0;
        if let Some(process) = &mut it.process {
            if process.waits_for.is_some() {
                let say = || format!("candidate {node} has two requests in flight");
                self.checker.report(checker::Kind::TwoRequests, self.now, say);
            }
            process.waits_for = Some(id);
            process.sent_at = self.now;
            process.lease = op.lease().or(process.lease);
            if let Some(bid) = operate::bid(&op) {
                process.nonce = Some(bid.nonce);
            }
            if !fate.is_well(&it.link, latency) {
                process.disturb(self.now);
            }
            seen_term = process.seen_term;
        }
        let requests = match &op {
            Op::Read => 1,
            Op::WriteTerm { .. } | Op::SetSuccessor { .. } => 2,
            Op::Acquire(_) | Op::Renew(_) | Op::Release(_) => self.store.most_requests(&op),
        };
        let patience = it.clocks.timer(timeout);
        let answered = fate.answered_after(requests);
        // A driver that keeps the limit itself gives none.
        let is_limited = timeout < Duration::MAX;
        if is_limited && answered.is_none_or(|after| after >= patience) {
            let at = self.now + patience;
            it.process.iter_mut().for_each(|it| it.given_up_at = at);
            self.queue.plan(at, Event::GiveUp { node, life, request: id.0 as u32 });
        }
        let name = op.name();
        self.log(|_| format!("candidate {node} sends {name}, {fate}"));
        let message = Message {
            node,
            life,
            id,
            op,
            stage: Stage::First,
            asked: None,
            got: None,
            copy: false,
            fate,
            answer: None,
            seen_term,
        };
        self.note_handover(node, &message.op, &message.fate);
        if let (true, Some(after)) = (fate.broken, answered) {
            let answer = Some(Err(network::broken(fate.refused)));
            let message = self.post.insert(Message { answer, ..message.clone() });
            self.queue.plan(self.now + after, Event::Deliver { message });
        }
        let Some(there) = fate.there else { return };
        if self.store.kind().is_register() {
            return self.begin_call(message, there);
        }
        if let Some(later) = fate.again {
            let copy = self.post.insert(Message { copy: true, ..message.clone() });
            self.plan_arrival(self.now + there + later, copy);
        }
        let message = self.post.insert(message);
        self.plan_arrival(self.now + there, message);
    }

    pub(super) fn plan_arrival(&mut self, at: Instant, message: u32) {
        self.last_arrival = self.last_arrival.max(at);
        self.queue.plan(at, Event::Arrive { message });
    }

    /// Delivers a request to the store.
    pub(super) fn arrive(&mut self, index: u32) {
        let message = self.post.get(index);
        if message.asked.is_some() {
            return self.ask_value(index);
        }
        let Message { node, life, id, copy, fate, .. } = *message;
        let done = match (fate.error, &message.op) {
            (Some(Error::Unknown), _) => Step::Done(Err(erred())),
            (Some(Error::Foreign), Op::Read | Op::WriteTerm { .. }) => Step::Done(Err(foreign())),
            _ => self.serve(index),
        };
        let op = &self.post.get(index).op;
        let (bids, renews) = (matches!(op, Op::Acquire(_)), matches!(op, Op::Renew(_)));
        let done = match done {
            Step::More(Stage::Missing) if copy || !self.is_waiting(node, life, id) => {
                // No candidate learns that the blob is missing, so none creates it.
                return self.post.remove(index);
            }
            Step::More(stage) => {
                self.post.get(index).stage = stage;
                return self.plan_arrival(self.now + fate.between, index);
            }
            Step::Done(answer) => answer,
        };
        let answer = match fate.error {
            Some(Error::UnknownYetDone) => Err(erred()),
            Some(Error::OtherLease) if bids || renews => Err(another()),
            Some(Error::Foreign) if bids && done.is_ok() => Err(foreign()),
            _ => done,
        };
        let (granted, renewed) = (answer.is_ok() && bids, answer.is_ok() && renews);
        self.post.get(index).answer = Some(answer);
        self.log(|world| world.post.describe(index));
        match fate.back {
            Some(back) => self.queue.plan(self.now + back, Event::Deliver { message: index }),
            None => self.post.remove(index),
        }
        if renewed {
            self.spring_renewal_trap(node);
        }
        if granted {
            self.spring_grant_trap(node);
        }
    }

    /// Performs one request in the store.
    fn serve(&mut self, index: u32) -> Step {
        let message = self.post.get(index);
        let Message { node, life, seen_term, .. } = *message;
        let mut wrote = None;
        let news = self.store.news();
        let done = self.store.step(&message.op, message.stage, self.now, &mut wrote);
        if let Some((term, nonce)) = wrote {
            let leadership = Leadership { term, nonce, node, life, revoked_at: None };
            self.has_written(leadership, seen_term);
        }
        if self.store.kind().notifies() && self.store.news() != news {
            self.wake_standbys();
        }
        self.record_leases();
        done
    }

    /// Records that the store wrote a term.
    pub(super) fn has_written(&mut self, leadership: Leadership, seen_term: u64) {
        let clock = self.least_clock(leadership.node);
        self.checker.written(leadership, seen_term, clock, self.now);
        self.mix(leadership.term);
    }

    /// Records in the timeline until when each candidate has the lease.
    pub(super) fn record_leases(&mut self) {
        if let Some(timeline) = &mut self.timeline {
            for it in &self.nodes {
                let lease = it.process.as_ref().and_then(|it| it.lease);
                let until = lease.and_then(|lease| self.store.leased_until(lease));
                if let Some(until) = until {
                    timeline::record(&mut timeline.lease, it.index, self.now, until);
                }
            }
        }
    }

    /// Returns the lowest unix milliseconds that a first term may begin with now: by the store's
    /// date, or otherwise by the candidate's wall clock.
    fn least_clock(&self, node: u8) -> u64 {
        let it = &self.nodes[usize::from(node)];
        let millis = match self.store.kind() {
            Kind::Blob | Kind::Register(_) => self.store.unix_millis(self.now),
            Kind::Host if !it.wall_disturbed => {
                u64::try_from(it.moment(self.now).wall.as_millis()).unwrap_or_default()
            }
            Kind::Host => 0,
        };
        // The clock was read when the lease was granted, and a hold may have followed.
        millis.saturating_sub(300_000)
    }

    pub(super) fn wake_standbys(&mut self) {
        if self.store.kind().is_register() {
            return self.report_value();
        }
        for node in 0..self.nodes.len() {
            if self.rng.u8(..10) < 8 {
                let at = self.now + self.rng.u64(MILLI..50 * MILLI);
                self.queue.plan(at, Event::Changed { node: node as u8 });
            }
        }
    }

    /// Wakes a candidate up: the store reports a change.
    pub(super) fn wake(&mut self, node: u8) {
        let held_by = self.store.held_by(self.now);
        self.log(|_| format!("the store reports a change to candidate {node}"));
        self.turn(node, Input::Changed(Change::News { held_by }));
    }

    /// Delivers an answer to its candidate, also late and duplicate ones.
    pub(super) fn deliver(&mut self, index: u32) {
        if self.post.get(index).got.is_some() && !self.proceed(index) {
            return;
        }
        let message = self.post.get(index);
        let it = &mut self.nodes[usize::from(message.node)];
        let Message { node, life, id, .. } = *message;
        let renews = matches!(message.op, Op::Renew(_));
        let bids = matches!(message.op, Op::Acquire(_));
        let released = match &message.op {
            Op::Release(bid) => Some(bid.nonce),
            _ => None,
        };
        let moment = it.moment(self.now);
        let answer = if it.life == life { message.answer.take() } else { None };
        self.post.remove(index);
        let Some(answer) = answer else { return };
        let counts = it.process.as_ref().is_some_and(|it| it.waits_for == Some(id));
        if let Some(process) = &mut it.process
            && process.waits_for == Some(id)
        {
            process.seen_term = process.seen_term.max(answered_term(&answer));
            // A candidate that was refused owes no release, even if an operator freed the lease.
            if matches!(answer, Err(StoreError::Refused(_))) {
                process.disturb(self.now);
            }
            process.refused = matches!(answer, Err(StoreError::Refused(_)));
            if let Ok(answer) = &answer {
                process.note_read(answer, node, moment);
            }
            if answer.is_ok() && renews {
                process.renewed_at = process.sent_at;
            }
        }
        if counts {
            self.note_snapshot(node, &answer);
            if let (true, Some(nonce)) = (answer.is_ok(), released) {
                self.notify_released(node, nonce);
            }
            if bids && matches!(answer, Err(StoreError::Refused(_))) {
                self.note_refused_bid(node);
            }
        }
        let renewed = renews && answer.is_ok();
        self.answer(node, id, answer);
        if renewed {
            self.notify_holding(node);
        }
    }

    pub(super) fn answer(&mut self, node: u8, id: RequestId, answer: Result<Answer, StoreError>) {
        let it = &mut self.nodes[usize::from(node)];
        if let Some(process) = &mut it.process
            && process.waits_for == Some(id)
        {
            process.waits_for = None;
            let bids = process.asked == Asked::Bid;
            it.is_answered(&answer, it.moment(self.now));
            if bids && matches!(answer, Err(StoreError::Unknown(_) | StoreError::RetryNow(_))) {
                self.open_window(node, Window::UnknownBid);
            }
        }
        self.turn(node, Input::Answer { id, answer });
    }
}

/// Returns the term in an answer; 0 if there is none.
fn answered_term(answer: &Result<Answer, StoreError>) -> u64 {
    match answer {
        Ok(Answer::Snapshot(sight)) => sight.record.term.unwrap_or(0),
        Ok(Answer::Grant(grant)) => grant.record.term.unwrap_or(0),
        Ok(Answer::Term(term)) => *term,
        _ => 0,
    }
}

fn erred() -> StoreError {
    StoreError::Unknown(Failure::new(Cause::Unavailable, "the store erred"))
}

fn foreign() -> StoreError {
    StoreError::Foreign(Failure::new(Cause::Record, "a record of another's making"))
}

fn another() -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, "the answer names another lease"))
}
