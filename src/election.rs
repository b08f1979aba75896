//! The election core, pure: what a candidate believes, and what it requests of the store.
//!
//! [`Election`] is a value. It takes events and the time (`handle_*`), changes its role
//! (`become_*`, nowhere else) and outputs what has to be done (`poll_*`).
//!
//! The election does no I/O, reads no clock, draws no randomness, logs nothing and never waits.
//! Only the driver calls it; everything else reads the [`Status`] that it returns.
//!
//! The rules R1 to R12 are listed in the documentation of the crate.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod config;
mod expiry;
mod health;
mod hold_off;
mod input;
mod lease_view;
mod model_state;
mod notices;
mod peer;
mod reason;
mod request;
mod retry;
mod role;
mod schedule;
mod status;
mod step_down;
mod store_answers;
mod store_health;
mod stream;
#[cfg(test)]
mod tests;
mod transitions;
mod wait;
mod wakeup;

use std::collections::VecDeque;
use std::time::Duration;

pub use config::Config;
pub use expiry::Observation;
use health::Health;
pub use health::HealthRule;
use hold_off::Deference;
pub use hold_off::HoldOff;
pub use input::{Command, Input, Progress, Refusal};
pub use lease_view::{Activation, Ending, LastHolder, LeaseView, Leaving, Renewals};
pub use model_state::StateValue;
pub use peer::{PeerNotice, PeerOutcome};
pub use reason::{Reason, TRANSITIONS, Transition};
pub use request::{Answer, Entropy, Notice, Op, Request, RequestId};
use retry::RetryTimer;
use role::{PendingRelease, Role};
pub use status::{Belief, Holder, Standing, State, Status};
pub use store_answers::LARGEST_TERM;
pub use store_health::{FailingWrites, StoreHealth};
use stream::LeaderStream;
pub use wait::Wait;
use wakeup::Hints;

use crate::clock::Moment;
use crate::lease::{Record, StoreError, Successor};

/// One candidate's part in one election.
///
/// The driver hands in one [`Input`] by [`handle`](Self::handle), with a [`Moment`] read just
/// before; drains [`poll_request`](Self::poll_request), sending each request at once, and
/// [`poll_notice`](Self::poll_notice); publishes [`status`](Self::status); and calls again after
/// [`poll_timeout`](Self::poll_timeout), or earlier. Calling too often is harmless. Calling late is
/// safe, since every decision compares two Moments.
///
/// A request counts as sent when the event that caused it was handled, which is never later than
/// the true sending: an error towards safety.
#[derive(Clone, Debug)]
pub struct Election {
    config: Config,
    role: Role,
    since: Moment,
    in_flight: Option<InFlight>,
    /// Whether a wake-up came while the answer that sets the time of the next read or renewal was
    /// awaited.
    woken: bool,
    /// What limits the reads of a standby that wake-ups bring forward.
    hints: Hints,
    outbox: Option<Request>,
    notices: VecDeque<Notice>,
    pending_release: Option<PendingRelease>,
    health: Health,
    paused: bool,
    /// Whether maintenance of the machine is imminent.
    maintenance: bool,
    hold_off: Option<HoldOff>,
    deference: Option<Deference>,
    /// The observed lease whose end is awaited, where observers count the time.
    observation: Option<Observation>,
    /// What is known of the leader's stream.
    stream: LeaderStream,
    /// When the lease was first seen free, until it is seen held.
    seen_free: Option<Moment>,
    /// The term whose processes may still run.
    workload_term: Option<u64>,
    /// The term of the last leadership, once the store has confirmed its release.
    released_term: Option<u64>,
    store_reached: bool,
    store: StoreHealth,
    holder: Option<Holder>,
    /// What is shown of the lease and its holders.
    lease_view: LeaseView,
    successor: Option<Successor>,
    /// The record seen while the lease was free; it does not belong to a later holder.
    free_record: Record,
    /// The largest term ever seen; a recorded term below this is an alarm (R11).
    highest_term: u64,
    /// The defect of the record that was last reported, so that each is reported once.
    reported_defect: Option<Notice>,
    /// The state that was last reported.
    state: State,
    next_id: u64,
    /// The bound of the wait for the first lease; `None` if it has none, or is over with a lease.
    wait: Option<Wait>,
}

/// The request in flight (R3).
#[derive(Clone, Debug)]
struct InFlight {
    id: RequestId,
    op: Op,
    sent: Moment,
    /// Whether the request was sent while the belief was suspended by a clock jump, so that its
    /// grant may end the suspension.
    after_jump: bool,
}

impl Election {
    /// Creates a standby whose first read of the store is due at once.
    #[must_use]
    pub fn new(config: Config, now: Moment) -> Self {
        let health = Health::new(config.health);
        let wait = config.wait.map(|length| Wait::Bounded(now, length));
        Self {
            wait,
            config,
            role: Role::Standby { next_read: RetryTimer::at_once(now), bidding: None },
            since: now,
            in_flight: None,
            woken: false,
            hints: Hints::new(now),
            outbox: None,
            notices: VecDeque::new(),
            pending_release: None,
            health,
            paused: false,
            maintenance: false,
            hold_off: None,
            deference: None,
            observation: None,
            stream: LeaderStream::default(),
            seen_free: None,
            workload_term: None,
            released_term: None,
            store_reached: false,
            store: StoreHealth::default(),
            holder: None,
            lease_view: LeaseView::default(),
            successor: None,
            free_record: Record::default(),
            highest_term: 0,
            reported_defect: None,
            state: State::Starting,
            next_id: 0,
        }
    }

    /// Handles one event. Returns the outcome of a command; any other event is done.
    ///
    /// # Errors
    /// Returns [`Refusal`] if a command is not possible in this state; nothing has changed then.
    pub fn handle(
        &mut self,
        input: Input,
        now: Moment,
        entropy: Entropy,
    ) -> Result<Progress, Refusal> {
        match input {
            Input::Timeout => self.handle_timeout(now, entropy),
            Input::Answer { id, answer } => self.handle_answer(id, answer, now, entropy),
            Input::Changed(change) => self.handle_changed(change, now, entropy),
            Input::Peer(notice) => self.handle_peer(&notice, now, entropy),
            Input::PublishAcked => self.handle_publish_acked(now, entropy),
            Input::ProbeResult { probe, healthy, begun_in } => {
                self.handle_probe_result(probe, healthy, begun_in, now, entropy);
            }
            Input::Maintenance { imminent } => self.handle_maintenance(imminent, now, entropy),
            Input::WorkloadExited { term, hold_off } => {
                self.handle_workload_exited(term, hold_off, now, entropy);
            }
            Input::Command(command) => return self.handle_command(command, now, entropy),
            Input::Resign => self.handle_resign(now, entropy),
        }
        Ok(Progress::Done)
    }

    /// Handles the passing of time.
    fn handle_timeout(&mut self, now: Moment, entropy: Entropy) {
        self.apply_deadlines(now, entropy);
        self.queue_request(now);
    }

    /// Handles the answer to a request. Drops any answer but the first to the request in flight
    /// (R3).
    fn handle_answer(
        &mut self,
        id: RequestId,
        answer: Result<Answer, StoreError>,
        now: Moment,
        entropy: Entropy,
    ) {
        // The deadline first: an answer that arrives after it must find the leadership over (R6).
        self.apply_deadlines(now, entropy);
        if let Some(request) = self.in_flight.take_if(|current| current.id == id) {
            self.on_answer(request, answer, now, entropy);
            self.apply_wakeup(now);
            self.apply_deadlines(now, entropy);
        }
        self.queue_request(now);
    }

    /// Handles the acknowledgement by every publisher that this candidate is passive: a pending
    /// release may be sent (R8).
    fn handle_publish_acked(&mut self, now: Moment, entropy: Entropy) {
        if let Role::Draining(it) = &mut self.role {
            it.publish_acked = true;
        }
        if let Some(pending_release) = &mut self.pending_release {
            pending_release.publish_acked = true;
        }
        self.handle_timeout(now, entropy);
    }

    /// Returns the request to send now, if there is one.
    #[inline]
    pub fn poll_request(&mut self) -> Option<Request> {
        self.outbox.take()
    }

    /// Returns the next notice for the log and the metrics.
    #[inline]
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Returns how long from `now` until [`Input::Timeout`] should be handed in; [`Duration::MAX`] if an
    /// answer must arrive first. A clock may jump meanwhile, so the driver sleeps no longer than
    /// one second.
    #[must_use]
    pub fn poll_timeout(&self, now: Moment) -> Duration {
        let next = match (&self.in_flight, &self.pending_release) {
            (Some(_), _) => Duration::MAX,
            (None, Some(pending_release)) => self
                .until_release(pending_release, now)
                .min(self.time_to_release(pending_release, now)),
            (None, None) => self.until_next_request(now).min(self.stream.until_silent(now)),
        };
        let Some(held) = self.role.held_lease() else {
            return next.min(self.until_wait_ends(now));
        };
        next.min(held.belief.until_end(now)).min(self.until_drained(now))
    }

    /// Returns the status for the publishers.
    #[must_use]
    #[inline]
    pub fn status(&self) -> Status {
        Status {
            standing: self.standing(),
            since: self.since,
            holder: self.holder.clone(),
            successor: self.role.successor_to_write().or(self.successor.as_ref()).cloned(),
            hold_off: self.hold_off,
            workload_term: self.workload_term,
            released_term: self.released_term,
            contact_due: self.stream.put_off,
            lease: self.lease_view(),
            store: self.store.clone(),
            wait: self.wait.clone(),
        }
    }

    /// Returns the lease-duration of this candidate.
    #[must_use]
    pub fn lease_duration(&self) -> Duration {
        self.config.lease_duration
    }

    /// Returns whether this candidate has resigned and nothing is left to do.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let waits = self.in_flight.as_ref().is_some_and(|request| request.op.lease().is_some());
        matches!(self.role, Role::Resigned) && self.pending_release.is_none() && !waits
    }

    // Decisions that depend on time alone.

    /// Ends everything that is over at `now`: a belief, a bid, the write of a term, a drain, the
    /// attempts at a pending release.
    fn apply_deadlines(&mut self, now: Moment, entropy: Entropy) {
        self.check_for_jump(now);
        if let Role::Activating(it) = &mut self.role {
            it.restart_if_back(now);
        }
        if let Role::Draining(it) = &mut self.role {
            it.restart_if_back(now);
        }
        if let Some(pending_release) = &mut self.pending_release {
            pending_release.restart_if_back(now);
        }
        if self.stream.until_silent(now).is_zero() {
            self.on_stream_lost(now, entropy);
        }
        self.end_wait(now, entropy);
        let lease_duration = self.config.lease_duration;
        match &self.role {
            Role::Standby { bidding: Some(it), .. } if it.is_over(now, lease_duration) => {
                let bidding = it.clone();
                self.give_up_bid(bidding, now);
                self.back_off(now, entropy);
            }
            Role::Activating(it) if it.held.is_over(now) => {
                self.become_standby(Reason::Lapsed, now, entropy);
            }
            Role::Activating(it) if it.write_is_over(now, lease_duration) => {
                self.become_standby(Reason::WriteFailed, now, entropy);
                self.back_off(now, entropy);
            }
            Role::Leader(it) if it.held.is_over(now) => {
                self.become_standby(Reason::Lapsed, now, entropy);
            }
            Role::Draining(it) if it.held.is_over(now) => {
                self.end_drain(Reason::Lapsed, now, entropy);
            }
            Role::Draining(it) if self.until_drained(now).is_zero() => {
                let reason = if it.drained { Reason::Drained } else { Reason::DrainOver };
                self.end_drain(reason, now, entropy);
            }
            _ => {}
        }
        let pending_release = self.pending_release.as_ref().filter(|_| self.in_flight.is_none());
        if pending_release
            .is_some_and(|pending_release| self.time_to_release(pending_release, now).is_zero())
        {
            self.end_release(now);
            self.notices.push_back(Notice::ReleaseUnknown);
        }
    }

    /// Suspends the belief if the clocks have jumped, and makes a renewal due at once (R10).
    fn check_for_jump(&mut self, now: Moment) {
        let Some(held) = self.role.held_lease_mut() else {
            return;
        };
        if !held.belief.suspended && held.belief.sent.jumped(now) {
            held.belief.suspended = true;
            held.renewal.make_due(now);
            self.notify_transition(Reason::ClockJumped, None, now);
        }
    }

    /// Queues the next request, if none is in flight and one is due.
    fn queue_request(&mut self, now: Moment) {
        if self.in_flight.is_some() {
            return;
        }
        let Some(op) = self.next_request(now) else {
            return;
        };
        if let (Op::WriteTerm { .. }, Role::Activating(it)) = (&op, &mut self.role) {
            it.first_write.get_or_insert(now);
        }
        if matches!(op, Op::Read) {
            self.stream.read_sent(now, self.config.retry_period);
        }
        let timeout = match &self.pending_release {
            Some(pending_release) => {
                self.time_to_release(pending_release, now).min(self.config.request_timeout)
            }
            None => self.config.request_timeout,
        };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let after_jump = self.role.held_lease().is_some_and(|it| it.belief.suspended);
        self.in_flight = Some(InFlight { id, op: op.clone(), sent: now, after_jump });
        self.outbox = Some(Request { id, op, timeout });
    }
}
