//! Requests for the value of a register in transit, and the reports of its watch.

use tenure::election::{Input, Op};
use tenure::store::register::{RegisterError, Tagged};

use super::checker::Leadership;
use super::examine::Step;
use super::faults::Error;
use super::network::Message;
use super::operate;
use super::queue::Event;
use super::register::{Asked, Client, Got, Next, Outcome};
use super::store::Store;
use super::world::World;
use super::{MILLI, Span};

impl World<'_> {
    /// Begins an operation, whose first request takes this long.
    pub(super) fn begin_call(&mut self, mut message: Message, there: Span) {
        let Some(client) = self.client(message.node) else { return };
        match client.begin(message.op.clone()) {
            Next::Sends(asked) => {
                message.asked = Some(Box::new(asked));
                self.send_on(message, there);
            }
            Next::Ends(answer) => {
                message.answer = Some(answer);
                let message = self.post.insert(message);
                self.queue.plan(self.now, Event::Deliver { message });
            }
        }
    }

    fn client(&mut self, node: u8) -> Option<&mut Client> {
        self.nodes[usize::from(node)].process.as_mut()?.client.as_mut()
    }

    /// Sends a request; a write may arrive twice.
    fn send_on(&mut self, message: Message, there: Span) {
        let is_write = matches!(message.asked.as_deref(), Some(Asked::Put(..)));
        if let Some(later) = message.fate.again.filter(|_| is_write) {
            let copy = self.post.insert(Message { copy: true, ..message.clone() });
            self.plan_arrival(self.now + there + later, copy);
        }
        let message = self.post.insert(message);
        self.plan_arrival(self.now + there, message);
    }

    /// Delivers a request to the store.
    pub(super) fn ask_value(&mut self, index: u32) {
        let message = self.post.get(index);
        let Message { node, copy, fate, .. } = *message;
        let (asked, op) = (message.asked.take(), message.op.clone());
        let Some(asked) = asked else { return };
        let is_write = matches!(*asked, Asked::Put(..));
        let conflicts = self.store.kind().oddities().is_some_and(|it| it.conflicts);
        let outcome = match fate.error {
            Some(Error::Unknown) => Err(erred(conflicts && is_write)),
            Some(Error::Foreign)
                if matches!(*asked, Asked::Get)
                    && matches!(op, Op::Read | Op::WriteTerm { .. } | Op::Acquire(_)) =>
            {
                let body = Err("is of another's making".to_owned());
                Ok(Got::Value(Some(Tagged { tag: "0".to_owned(), body, date: None })))
            }
            _ => self.serve_value(index, &asked, &op),
        };
        if copy {
            return self.post.remove(index);
        }
        let is_done = matches!(outcome, Ok(Got::Written(Some(_))));
        let outcome = match fate.error {
            Some(Error::UnknownYetDone) => {
                if is_done {
                    self.store.disown();
                }
                Err(erred(conflicts && is_write))
            }
            _ => outcome,
        };
        let is_granted = is_done && outcome.is_ok();
        match fate.back {
            Some(back) => {
                self.post.get(index).got = Some(Box::new(outcome));
                self.queue.plan(self.now + back, Event::Deliver { message: index });
            }
            None => self.post.remove(index),
        }
        match op {
            Op::Renew(_) if is_granted => self.spring_renewal_trap(node),
            Op::Acquire(_) if is_granted => self.spring_grant_trap(node),
            _ => {}
        }
    }

    fn serve_value(&mut self, index: u32, asked: &Asked, op: &Op) -> Outcome {
        let Message { node, life, seen_term, fate, .. } = *self.post.get(index);
        let (time, news) = (self.store.time(self.now), self.store.news());
        let back = fate.stale.filter(|_| matches!(op, Op::Read));
        let (got, wrote) = self.store.ask(asked, operate::bid(op), back, time);
        if let Some((term, nonce)) = wrote {
            self.has_written(Leadership { term, nonce, node, life, revoked_at: None }, seen_term);
        }
        if self.store.news() != news {
            self.wake_standbys();
        }
        self.record_leases();
        Ok(got)
    }

    /// Delivers what a request is answered with; returns whether that ends the operation.
    pub(super) fn proceed(&mut self, index: u32) -> bool {
        let message = self.post.get(index);
        let Message { node, life, id, .. } = *message;
        let outcome = message.got.take();
        // The connection of a call that was given up is closed.
        let waits = self.is_waiting(node, life, id);
        let client = if waits { self.client(node) } else { None };
        let Some((client, outcome)) = client.zip(outcome) else {
            self.post.remove(index);
            return false;
        };
        let next = client.proceed(*outcome);
        self.open_watch_anew(node);
        match next {
            Next::Sends(asked) => {
                let message =
                    Message { asked: Some(Box::new(asked)), ..self.post.get(index).clone() };
                self.post.remove(index);
                self.send_on(message, 0);
                false
            }
            Next::Ends(answer) => {
                self.post.get(index).answer = Some(answer);
                self.log(|world| world.post.describe(index));
                true
            }
        }
    }

    /// Reports the value to most candidates; while there are faults, to some of them late, twice, or as it was
    /// before: an earlier claim makes an observer wait anew, for longer than a bound without faults allows.
    pub(super) fn report_value(&mut self) {
        if !self.store.kind().notifies() {
            return;
        }
        let is_faulty = self.examination.step() == Step::Phase;
        for node in 0..self.nodes.len() as u8 {
            let drawn = self.rng.u8(..160);
            if drawn >= 128 {
                continue;
            }
            let at = self.now + self.rng.u64(MILLI..50 * MILLI);
            let back = match drawn {
                0..=15 if is_faulty => self.rng.u8(1..=Store::KEPT),
                _ => 0,
            };
            self.queue.plan(at, Event::Told { node, back });
            if is_faulty && drawn.is_multiple_of(16) {
                let again = at + self.rng.u64(..5_000 * MILLI);
                self.queue.plan(again, Event::Told { node, back });
            }
        }
    }

    /// Tells a candidate the value as it was `back` changes ago, unless its watch is dead.
    pub(super) fn tell(&mut self, node: u8, back: u8) {
        let told = self.store.report(back);
        let dies = self.examination.step() == Step::Phase && self.rng.u8(..100) == 0;
        let Some(client) = self.client(node).filter(|it| !it.is_deaf) else { return };
        client.is_deaf = dies;
        for change in client.told(told) {
            self.log(|_| format!("the watch of candidate {node} reports {change:?}"));
            self.turn(node, Input::Changed(change));
        }
    }

    /// Lets a dead watch report again that its candidate has opened anew, first the present value.
    fn open_watch_anew(&mut self, node: u8) {
        let Some(client) = self.client(node).filter(|it| it.is_deaf) else { return };
        if client.reopens() {
            client.is_deaf = false;
            let at = self.now + self.rng.u64(MILLI..50 * MILLI);
            self.queue.plan(at, Event::Told { node, back: 0 });
        }
    }
}

/// Returns an error after which nobody knows whether the request was done.
fn erred(conflicts: bool) -> RegisterError {
    let message = "the store erred".to_owned();
    if conflicts { RegisterError::Concurrent(message) } else { RegisterError::Unavailable(message) }
}
