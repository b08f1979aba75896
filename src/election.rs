//! The election, pure: what a candidate believes, and what it asks of the store.
//!
//! [`Election`] is a value. It takes events and the time (`handle_*`), changes its role
//! (`become_*`, nowhere else) and gives out what is to be done (`poll_*`).
//!
//! What it does not do, and never will: I/O, reading a clock, drawing chance, logging, waiting.
//! Only the driver calls it; everybody else reads the [`Status`] that it leaves behind.
//!
//! The rules R1 to R12 that the comments name are those of the crate's documentation.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod answers;
mod becoming;
mod config;
mod departing;
mod health;
mod observation;
mod pace;
mod pieces;
mod request;
mod role;
mod status;
mod telling;
#[cfg(test)]
mod tests;
mod transition;
mod yielding;

use std::collections::VecDeque;
use std::time::Duration;

pub use config::Config;
use health::Health;
pub use health::HealthRule;
pub use observation::Observation;
use pace::Pace;
pub use pieces::Piece;
pub use request::{Answer, Chance, Notice, Op, Progress, Refusal, Request, RequestId, Will};
use role::{Owed, Role};
pub use status::{Belief, HoldOff, Holder, Standing, State, Status, StoreHealth};
pub use transition::{Reason, TRANSITIONS, Transition};
use yielding::{Aside, Courtesy};

use crate::clock::Moment;
use crate::store::{Record, StoreError, Successor};

/// One candidate's part in one election.
///
/// The driver keeps to one rule: hand in one event by a `handle_*`, with a [`Moment`] read just
/// before; then drain [`poll_command`](Self::poll_command), sending each request at once, and
/// [`poll_notice`](Self::poll_notice); publish [`status`](Self::status); and call again when
/// [`poll_timeout`](Self::poll_timeout) says so, or earlier. Being called too often is harmless;
/// being called late is safe, since every judgement compares two Moments:
///
/// - `handle_timeout`: time has passed, or may have;
/// - `handle_answer`: a request was answered, or its time is up (an unknown outcome);
/// - `handle_wakeup`: the store says that there may be something to see;
/// - `handle_announced`: all publishers have said passive since we ceased to lead (R8);
/// - `handle_probed`: the service beside us was asked whether it is well;
/// - `handle_vacated`: the processes of a term have ended, where the config says that there are any;
/// - `handle_will`: an operator, or the service, wants something of us;
/// - `handle_resign`: we shall leave, for good.
///
/// A command's request counts as sent when the event that caused it was handled, which is never
/// later than the true sending: an error towards safety.
#[derive(Clone, Debug)]
pub struct Election {
    config: Config,
    role: Role,
    since: Moment,
    in_flight: Option<InFlight>,
    outbox: Option<Request>,
    notices: VecDeque<Notice>,
    owed: Option<Owed>,
    health: Health,
    paused: bool,
    aside: Option<Aside>,
    courtesy: Option<Courtesy>,
    /// The lease that we wait to be over, where observers count the time.
    observation: Option<Observation>,
    /// The term whose processes may still run.
    occupied: Option<u64>,
    heard: bool,
    store: StoreHealth,
    holder: Option<Holder>,
    successor: Option<Successor>,
    /// The record that was seen while the lease was free: it names nobody who holds it later.
    past: Record,
    /// The largest term ever seen; the recorded one must never fall below it (R11).
    highest: u64,
    /// The defect of the record that was told last, so that it is told once.
    defect: Option<Notice>,
    /// The state that was told last.
    state: State,
    next_id: u64,
}

/// The one request that is under way (R3).
#[derive(Clone, Debug)]
struct InFlight {
    id: RequestId,
    op: Op,
    sent: Moment,
    /// Whether it was sent after a jump of the clocks was seen, so that it may end the suspension.
    after_jump: bool,
}

impl Election {
    /// Starts as standby, to look at once.
    #[must_use]
    pub fn new(config: Config, now: Moment) -> Self {
        let health = Health::new(config.health);
        Self {
            config,
            role: Role::Standby { looks: Pace::at_once(now), bidding: None },
            since: now,
            in_flight: None,
            outbox: None,
            notices: VecDeque::new(),
            owed: None,
            health,
            paused: false,
            aside: None,
            courtesy: None,
            observation: None,
            occupied: None,
            heard: false,
            store: StoreHealth::default(),
            holder: None,
            successor: None,
            past: Record::default(),
            highest: 0,
            defect: None,
            state: State::Starting,
            next_id: 0,
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Moment, chance: Chance) {
        self.judge(now, chance);
        self.ask(now);
    }

    /// A request was answered. Any but the current request's first answer is dropped (R3).
    pub fn handle_answer(
        &mut self,
        id: RequestId,
        answer: Result<Answer, StoreError>,
        now: Moment,
        chance: Chance,
    ) {
        // The deadline first: an answer that comes after it must find the tenure over (R6).
        self.judge(now, chance);
        if let Some(request) = self.in_flight.take_if(|current| current.id == id) {
            self.take_answer(request, answer, now, chance);
            self.judge(now, chance);
        }
        self.ask(now);
    }

    /// The store may have changed: look before the next poll. Never evidence.
    pub fn handle_wakeup(&mut self, now: Moment, chance: Chance) {
        if let Role::Standby { looks, bidding: None } = &mut self.role {
            looks.hasten(now);
        }
        self.handle_timeout(now, chance);
    }

    /// Every publisher has said passive since we ceased to lead: what is owed may go (R8).
    pub fn handle_announced(&mut self, now: Moment, chance: Chance) {
        if let Role::Draining(it) = &mut self.role {
            it.announced = true;
        }
        if let Some(owed) = &mut self.owed {
            owed.announced = true;
        }
        self.handle_timeout(now, chance);
    }

    /// The request to send now, if there is one.
    pub fn poll_command(&mut self) -> Option<Request> {
        self.outbox.take()
    }

    /// The next thing that people should hear of.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// How long from `now` until `handle_timeout` should be called, [`Duration::MAX`] if an answer
    /// must come first. A clock may jump meanwhile, so the driver sleeps no longer than a second.
    #[must_use]
    pub fn poll_timeout(&self, now: Moment) -> Duration {
        let belief = self.role.tenure().map_or(Duration::MAX, |it| it.belief.until_end(now));
        let next = match (&self.in_flight, &self.owed) {
            (Some(_), _) => Duration::MAX,
            (None, Some(owed)) => {
                self.until_release(owed, now).min(self.time_to_release(owed, now))
            }
            (None, None) => self.role.until_next_request(now),
        };
        belief.min(next).min(self.until_drained(now))
    }

    /// Where we stand: the value that publishers read.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            standing: self.standing(),
            since: self.since,
            holder: self.holder.clone(),
            successor: self.successor.clone(),
            aside: self.aside.map(|it| HoldOff { length: it.length, from: it.from }),
            occupied: self.occupied,
            store: self.store.clone(),
        }
    }

    /// Whether we have resigned and nothing is left to do.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let waits = self.in_flight.as_ref().is_some_and(|request| request.op.lease().is_some());
        matches!(self.role, Role::Resigned) && self.owed.is_none() && !waits
    }

    // What time alone decides.

    /// Ends what is over at `now`: a belief, a bid, a term's write, a resignation.
    fn judge(&mut self, now: Moment, chance: Chance) {
        self.notice_jump(now);
        if let Role::Activating(it) = &mut self.role {
            it.restart_if_back(now);
        }
        if let Role::Draining(it) = &mut self.role {
            it.restart_if_back(now);
        }
        if let Some(owed) = &mut self.owed {
            owed.restart_if_back(now);
        }
        let lease_duration = self.config.lease_duration;
        match &self.role {
            Role::Standby { bidding: Some(it), .. } if it.is_over(now, lease_duration) => {
                let bid = it.bid.clone();
                self.owe(bid, now, true);
                self.back_off(now, chance);
            }
            Role::Activating(it) if it.tenure.is_over(now) => {
                self.become_standby(Reason::Lapsed, now, chance);
            }
            Role::Activating(it) if it.write_is_over(now, lease_duration) => {
                self.become_standby(Reason::WriteFailed, now, chance);
                self.back_off(now, chance);
            }
            Role::Leader(it) if it.tenure.is_over(now) => {
                self.become_standby(Reason::Lapsed, now, chance);
            }
            Role::Draining(it) if it.tenure.is_over(now) => {
                self.end_drain(Reason::Lapsed, now, chance);
            }
            Role::Draining(it) if self.until_drained(now).is_zero() => {
                let reason = if it.drained { Reason::Drained } else { Reason::DrainOver };
                self.end_drain(reason, now, chance);
            }
            _ => {}
        }
        let owed = self.owed.as_ref().filter(|_| self.in_flight.is_none());
        if owed.is_some_and(|owed| self.time_to_release(owed, now).is_zero()) {
            self.owed = None;
            self.notices.push_back(Notice::ReleaseUnknown);
        }
    }

    /// Suspends the belief when the clocks jumped, and has it renewed at once (R10).
    fn notice_jump(&mut self, now: Moment) {
        let Some(tenure) = self.role.tenure_mut() else {
            return;
        };
        if !tenure.belief.suspended && tenure.belief.sent.jumped(now) {
            tenure.belief.suspended = true;
            tenure.renewal.hasten(now);
            self.tell_transition(Reason::ClockJumped, None, now);
        }
    }

    /// Sends the next request, if none is under way and one is due.
    fn ask(&mut self, now: Moment) {
        if self.in_flight.is_some() {
            return;
        }
        let Some(op) = self.next_request(now) else {
            return;
        };
        if let (Op::Inaugurate { .. }, Role::Activating(it)) = (&op, &mut self.role) {
            it.first_write.get_or_insert(now);
        }
        let timeout = match &self.owed {
            Some(owed) => self.time_to_release(owed, now).min(self.config.request_timeout),
            None => self.config.request_timeout,
        };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let after_jump = self.role.tenure().is_some_and(|it| it.belief.suspended);
        self.in_flight = Some(InFlight { id, op: op.clone(), sent: now, after_jump });
        self.outbox = Some(Request { id, op, timeout });
    }

    /// What is owed comes before all else, so that nothing is asked while a dead lease may live.
    fn next_request(&self, now: Moment) -> Option<Op> {
        match &self.owed {
            Some(owed) if self.until_release(owed, now).is_zero() => {
                Some(Op::Release(owed.bid.clone()))
            }
            Some(_) => None,
            None => self.role.next_request(now),
        }
    }

    /// How long until what is owed may be released: not while processes of its term live (R8).
    fn until_release(&self, owed: &Owed, now: Moment) -> Duration {
        match self.occupied {
            Some(_) => Duration::MAX,
            None => owed.left(now, self.config.request_timeout),
        }
    }

    /// What is left of the two request-timeouts in which a lease is released or left to run out:
    /// so long at most does a resignation take (R3). Where a lapsed lease must end first, what is left
    /// of it comes before them; where processes live that cannot be ended, the lease runs out.
    /// After a resignation nothing comes before them, and a lapsed lease that lasts longer runs out:
    /// then nothing is waited for but the publishers' word.
    fn time_to_release(&self, owed: &Owed, now: Moment) -> Duration {
        let first = match self.occupied {
            Some(_) => self.config.lease_duration,
            None if owed.leaving => Duration::ZERO,
            None => owed.promise_at_start(),
        };
        let request = self.config.request_timeout;
        let left = (first + request * 2).saturating_sub(owed.since.elapsed_max(now));
        let idle = owed.leaving && self.occupied.is_none();
        let said = owed.announcing_left(now, request).is_zero();
        if idle && said && owed.promise_left(now) > left { Duration::ZERO } else { left }
    }
}
