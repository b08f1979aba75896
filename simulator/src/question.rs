//! Requests of clients to the status listener, and what clients do on the answers.

use tenure::status::{Judgement, Role};

use super::checker::Kind;
use super::client::{Acting, Answer};
use super::queue::Event;
use super::timeline;
use super::world::World;
use super::{MILLI, SECOND, span};

impl World<'_> {
    /// Sends a request of a client.
    pub(super) fn ask(&mut self, client: u8, again: bool) {
        let lease = span(self.nodes[usize::from(client)].plan.timings.lease_duration);
        let it = &mut self.clients[usize::from(client)];
        it.question += 1;
        it.sent = self.now;
        let stamp = it.question;
        let there = self.rng.u64(MILLI / 10..30 * MILLI);
        self.queue.plan(self.now + there, Event::Question { client, stamp });
        if again {
            let pause = match self.timeline {
                None => self.rng.u64(lease / 10..lease),
                Some(_) => SECOND,
            };
            let next = self.now + pause;
            self.queue.plan(next, Event::Ask { client, again });
        }
    }

    /// Delivers a request to the listener, which evaluates the published status by the clock.
    pub(super) fn question(&mut self, client: u8, stamp: u32) {
        let node = &self.nodes[usize::from(client)];
        let it = &mut self.clients[usize::from(client)];
        let Some(process) = node.process.as_ref().filter(|_| it.question == stamp) else {
            return;
        };
        let judgement = Judgement::of(&process.status, node.moment(self.now));
        let active = judgement.role() == Role::Active;
        let answer = judgement.term.filter(|_| active).map(|term| Answer {
            term,
            life: node.life,
            valid_for_ms: judgement.valid_for_ms(),
        });
        if let Some(timeline) = &mut self.timeline {
            timeline.answers.push((client, self.now, answer.is_some()));
        }
        if answer.is_none() && it.acting.is_none() {
            return;
        }
        it.answer = answer;
        let back = self.rng.u64(MILLI / 10..30 * MILLI);
        self.queue.plan(self.now + back, Event::Answered { client, stamp });
    }

    /// Delivers the answer: the client acts on it, or stops acting.
    pub(super) fn answered(&mut self, client: u8, stamp: u32) {
        let it = &mut self.clients[usize::from(client)];
        if it.question != stamp {
            return;
        }
        let Some(acting) = it.receive(self.now) else { return };
        if let Some(timeline) = &mut self.timeline {
            timeline::record(&mut timeline.acting, client, self.now, acting.until);
        }
        let taken = self.resource.write(acting.term, client, acting.life);
        if let (Err((node, _)), false) = (taken, self.checker.terms_void) {
            let say = || format!("candidates {client} and {node} led in one term, {}", acting.term);
            self.checker.report(Kind::TermFell, self.now, say);
        }
        self.check_acting(client, acting);
    }

    fn is_revoked(&self, client: u8, acting: Acting) -> bool {
        self.checker.is_revoked(acting.term, client, acting.life, self.now)
    }

    /// Checks that no other client acts, now that this one does, unless a leader ended its validity
    /// voluntarily.
    fn check_acting(&mut self, client: u8, acting: Acting) {
        if !self.scenario.faithful || self.is_revoked(client, acting) {
            return;
        }
        for (other, it) in self.clients.iter().enumerate() {
            let Some(its) = it.acting.filter(|its| its.until > self.now) else { continue };
            let other = other as u8;
            if other != client && !self.is_revoked(other, its) {
                let say = || {
                    format!(
                        "clients act on answers of {client} in term {} and of {other} in {}",
                        acting.term, its.term
                    )
                };
                return self.checker.report(Kind::DualClients, self.now, say);
            }
        }
    }
}
