//! The driver of one election: selects one event, hands it to the election with the time, and
//! drains its output.
//!
//! Everything that may happen is awaited in one `select` and handled completely before the next
//! event, so that the election never sees two at once. Nothing here may take long: no publisher,
//! client, log or disk is awaited, and the store's call is one more branch of the select.
//!
//! The driver decides nothing. When it wakes up, it reads the clock and calls the election.

mod control;
mod event_log;
pub(crate) mod instance;
mod publisher;

use std::sync::Arc;

use futures::future::{BoxFuture, Fuse, FusedFuture, FutureExt};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::clock::{LONGEST_SLEEP, Moment};
use crate::election::{
    Answer, Election, Entropy, Input, Notice, Op, Progress, Refusal, Request, RequestId,
};
use crate::lease::{Cause, Change, Failure, Nonce, StoreError};
use crate::metrics::Metrics;
use crate::status::document::ActivationDocument;
use crate::status::{About, Heartbeat};
use crate::store::LeaseStore;
use crate::timer::{Timer, within};
pub use control::{Control, Inbox, Message};
pub use event_log::EventLog;
pub use publisher::Publisher;

/// The driver of one election, with all that it uses.
pub struct Driver {
    /// What does not change while the driver runs.
    pub about: About,
    /// The election.
    pub election: Election,
    /// The store that keeps the lease.
    pub store: Arc<dyn LeaseStore>,
    /// The publisher of the status; the driver is the only writer.
    pub publisher: Publisher,
    /// The metrics.
    pub metrics: Metrics,
    /// The queue of messages.
    pub inbox: Inbox,
    /// Proof that the loop runs.
    pub heartbeat: Heartbeat,
    /// The reporter to the log.
    pub log: EventLog,
    /// Reads the time: [`crate::clock::now`], or a clock of a test.
    pub now: fn() -> Moment,
    /// Wakes the loop, and ends a call that takes too long: [`crate::timer::sleep`], or a timer of a
    /// test.
    pub timer: Timer,
    /// Draws the randomness of one turn: [`entropy`], or that of a seed.
    pub entropy: fn() -> Entropy,
}

/// An event for the driver.
enum Event {
    Answered(Answered),
    Message(Message),
    PublishAcked,
    Changed(Change),
    Timeout,
}

/// The reply to a command, sent once the status is published.
struct Reply {
    to: oneshot::Sender<Result<Progress, Refusal>>,
    outcome: Result<Progress, Refusal>,
}

/// A request that has ended, with its answer.
struct Answered {
    id: RequestId,
    answer: Result<Answer, StoreError>,
}

/// The call to the store that is in flight, if any.
type Call<'a> = Fuse<BoxFuture<'a, Answered>>;

impl Driver {
    /// Drives the election until it has resigned, on request, and nothing is left to do. The last
    /// status published is stopped.
    pub async fn run(mut self) {
        let store = Arc::clone(&self.store);
        let mut changed = store.changed();
        let mut call: Call<'_> = Fuse::terminated();

        let mut reply: Option<Reply> = None;

        loop {
            if let Some(request) = self.drain() {
                call = self.send(&store, request).fuse();
            }
            if let Some(Reply { to, outcome }) = reply.take() {
                // The receiver may be gone; the command has been carried out all the same.
                let _ = to.send(outcome);
            }
            if self.election.is_finished() {
                return;
            }
            let now = (self.now)();
            let sleep = self.election.poll_timeout(now).min(self.publisher.until_change(now));
            let sleep = sleep.min(LONGEST_SLEEP);
            let event = tokio::select! {
                biased;
                answered = &mut call, if !call.is_terminated() => Event::Answered(answered),
                Some(message) = self.inbox.recv() => Event::Message(message),
                () = self.publisher.publish_acked() => Event::PublishAcked,
                change = &mut changed => Event::Changed(change),
                () = (self.timer)(sleep) => Event::Timeout,
            };
            if matches!(event, Event::Changed(_)) {
                changed = store.changed();
            }
            reply = self.handle(event);
        }
    }

    /// Hands one event to the election, with the present time. Returns the reply to a command, which
    /// is sent once the status is published: a step-down is not acknowledged before every reader can
    /// see passive.
    fn handle(&mut self, event: Event) -> Option<Reply> {
        let (input, to) = match event {
            Event::Answered(Answered { id, mut answer }) => {
                self.admit(&mut answer);
                self.log.answered(&answer, (self.now)());
                let expires = self.store.credential_expires();
                self.metrics.credential_expires(expires);
                self.log.credential(expires, (self.now)());
                (Input::Answer { id, answer }, None)
            }
            Event::Message(Message::Input { input, reply }) => (input, reply),
            Event::Message(Message::Probe { probe, result, begun_in }) => {
                let healthy = result.succeeded;
                self.publisher.probe(probe, result);
                (Input::ProbeResult { probe, healthy, begun_in }, None)
            }
            Event::Message(Message::Route(report)) => {
                self.publisher.route(report);
                // The timer is behind the inbox, so a message must not keep it from being handled.
                (Input::Timeout, None)
            }
            Event::Message(Message::Candidates(table)) => {
                self.publisher.candidates(table);
                (Input::Timeout, None)
            }
            Event::Message(Message::Maintenance(announced)) => {
                let imminent = announced.as_ref().is_some_and(|it| it.imminent);
                self.publisher.maintenance(announced);
                (Input::Maintenance { imminent }, None)
            }
            Event::PublishAcked => (Input::PublishAcked, None),
            Event::Changed(change) => (Input::Changed(change), None),
            Event::Timeout => (Input::Timeout, None),
        };
        let outcome = self.election.handle(input, (self.now)(), (self.entropy)());
        to.map(|to| Reply { to, outcome })
    }

    /// Replaces in an answer what could not be shown, and reports what no candidate writes. Every
    /// record of every store passes here before anything behind it is shown or run.
    fn admit(&mut self, answer: &mut Result<Answer, StoreError>) {
        match answer {
            Ok(Answer::Snapshot(it)) => {
                self.log.seen(&it.admit(self.election.lease_duration()));
            }
            Ok(Answer::Grant(it)) => self.log.anomalies(&it.admit()),
            _ => {}
        }
    }

    /// Publishes the status and the notices of the election, and returns the request to send, if
    /// any.
    fn drain(&mut self) -> Option<Request> {
        self.heartbeat.beat();
        let notices: Vec<Notice> = std::iter::from_fn(|| self.election.poll_notice()).collect();
        let transitions = notices.iter().filter_map(|it| match it {
            Notice::Transition(transition) => Some(*transition),
            _ => None,
        });
        // Passive is published before anything else is done, in particular before a release (R8).
        let status = self.election.status();
        self.log.store_health(&status.store);
        self.log.judged(&status, (self.now)());
        let activation = status.lease.activation.map(|it| ActivationDocument::of(it, (self.now)()));
        self.publisher.publish(status, transitions.clone(), self.now);
        transitions.for_each(|it| self.metrics.transition(&it));
        notices.iter().for_each(|it| {
            if let Notice::Peer { kind, outcome } = it {
                self.metrics.peer_notice(kind, outcome.as_str());
            }
        });
        notices.iter().for_each(|it| self.log.notice(it));
        if let Some(activation) = activation {
            self.log.activates(&notices, &activation);
        }
        let now = (self.now)();
        self.log.warnings(self.publisher.warnings(&self.about, now), now);
        self.election.poll_request()
    }

    /// Starts one call to the store, which ends with an answer within the request's timeout.
    fn send<'a>(
        &self,
        store: &'a Arc<dyn LeaseStore>,
        request: Request,
    ) -> BoxFuture<'a, Answered> {
        let Request { id, op, timeout } = request;
        let (metrics, now, timer) = (self.metrics.clone(), self.now, self.timer);
        Box::pin(async move {
            let sent = now();
            let answer = within(timer, timeout, ask(store.as_ref(), &op)).await;
            let answer = answer.unwrap_or_else(|| {
                let message =
                    format!("the store did not answer {} within {timeout:?}", describe(&op));
                Err(StoreError::Unknown(Failure::new(Cause::Timeout, message)))
            });
            let took = sent.elapsed_max(now());
            let outcome = answer.as_ref().map_or_else(StoreError::outcome, |_| "ok");
            metrics.request(op.name(), outcome, took);
            tracing::debug!(op = op.name(), outcome, ms = took.as_millis(), "store answered");
            Answered { id, answer }
        })
    }
}

/// Names a request in a message.
fn describe(op: &Op) -> &'static str {
    match op {
        Op::Read => "a read",
        Op::Acquire(_) => "the request for the lease",
        Op::WriteTerm { .. } => "the write of the term",
        Op::Renew(_) => "a renewal",
        Op::SetSuccessor { .. } => "the write of the successor",
        Op::Release(_) => "the release",
    }
}

/// Makes the store call for an operation: one attempt.
///
/// # Errors
/// Returns what the store answered.
pub async fn ask(store: &dyn LeaseStore, op: &Op) -> Result<Answer, StoreError> {
    match op {
        Op::Read => store.read().await.map(Answer::Snapshot),
        Op::Acquire(bid) => store.acquire(bid).await.map(Answer::Grant),
        Op::WriteTerm { bid, floor } => store.write_term(bid, *floor).await.map(Answer::Term),
        Op::Renew(bid) => store.renew(bid).await.map(Answer::from),
        Op::SetSuccessor { bid, successor } => {
            store.set_successor(bid, successor).await.map(Answer::from)
        }
        Op::Release(bid) => store.release(bid).await.map(|()| Answer::Done),
    }
}

/// Draws the entropy for one turn from the operating system.
#[must_use]
pub fn entropy() -> Entropy {
    let bits = Uuid::new_v4().as_u128();
    // 24 bits outside the version and variant fields, as many as a float holds exactly.
    let jitter = (bits & 0xff_ffff) as f32 / 16_777_216.0;
    Entropy { lease: Uuid::new_v4().as_u128(), nonce: Nonce(Uuid::new_v4().as_u128()), jitter }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jitter_is_spread_from_0_to_1() {
        let drawn: Vec<f32> = (0..1_000).map(|_| entropy().jitter).collect();
        assert!(drawn.iter().all(|it| (0.0..1.0).contains(it)));
        for tenth in 0..10 {
            assert!(drawn.iter().any(|it| (it * 10.0) as i32 == tenth), "none in tenth {tenth}");
        }
    }
}
