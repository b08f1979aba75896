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
mod config;
mod pace;
mod pieces;
mod request;
mod role;
mod status;
mod telling;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

pub use config::Config;
use pace::Pace;
pub use pieces::Piece;
pub use request::{Answer, Chance, Notice, Op, Request, RequestId};
use role::{Activating, Bidding, Leader, Owed, Role, Tenure};
pub use status::{
    Belief, Holder, Reason, Standing, State, Status, StoreHealth, TRANSITIONS, Transition,
};
use telling::Ended;

use crate::clock::Moment;
use crate::store::{Bid, Grant, Record, StoreError};

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
    heard: bool,
    store: StoreHealth,
    holder: Option<Holder>,
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
        Self {
            config,
            role: Role::Standby { looks: Pace::at_once(now), bidding: None },
            since: now,
            in_flight: None,
            outbox: None,
            notices: VecDeque::new(),
            owed: None,
            heard: false,
            store: StoreHealth::default(),
            holder: None,
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
        if let Some(owed) = &mut self.owed {
            owed.announced = true;
        }
        self.handle_timeout(now, chance);
    }

    /// We shall leave: passive at once; whatever lease may be ours is released when the request
    /// in flight has ended (R3), so within two request-timeouts.
    pub fn handle_resign(&mut self, now: Moment, chance: Chance) {
        self.judge(now, chance);
        if !matches!(self.role, Role::Resigned) {
            self.become_resigned(now);
        }
        self.ask(now);
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
                let patience = self.config.request_timeout;
                owed.left(now, patience).min(self.time_to_release(owed, now))
            }
            (None, None) => self.role.until_next_request(now),
        };
        belief.min(next)
    }

    /// Where we stand: the value that publishers read.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            standing: self.standing(),
            since: self.since,
            holder: self.holder.clone(),
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
            Some(owed) if owed.left(now, self.config.request_timeout).is_zero() => {
                Some(Op::Release(owed.bid.clone()))
            }
            Some(_) => None,
            None => self.role.next_request(now),
        }
    }

    /// What is left of the two request-timeouts in which a lease is released or left to run out:
    /// so long at most does a resignation take (R3). Where a promise must end first, the margin
    /// comes before them.
    fn time_to_release(&self, owed: &Owed, now: Moment) -> Duration {
        let margin = self.config.lease_duration.saturating_sub(self.config.renew_deadline);
        let first = owed.promised.map_or(Duration::ZERO, |_| margin);
        (first + self.config.request_timeout * 2).saturating_sub(owed.since.elapsed_max(now))
    }

    // The roles, and nowhere else do they change.

    /// The lease is granted: hold it for as long as R11 and the activation delay want, then have
    /// the term written.
    fn become_activating(&mut self, bidding: Bidding, grant: &Grant, now: Moment) {
        debug_assert!(matches!(self.role, Role::Standby { .. }) && self.owed.is_none());
        let hold = self.hold_for(&grant.record).max(self.config.activation_delay);
        let floor = match grant.record.term {
            Some(found) if found >= self.highest => found + 1, // take_grant saw to the overflow
            _ => self.fresh_floor(grant, now),
        };
        let sent = bidding.first_sent;
        let belief = Belief { sent, length: self.config.renew_deadline, suspended: false };
        let renewal = Pace::after(sent, self.config.retry_period);
        self.role = Role::Activating(Activating {
            tenure: Tenure { bid: bidding.bid, belief, renewal },
            granted: now,
            hold,
            floor,
            write: Pace::at_once(now),
            first_write: None,
        });
        self.set_holder(None);
        self.tell_transition(Reason::Granted, None, now);
    }

    /// The term is written under the lease: lead, while the belief lasts (R7).
    fn become_leader(&mut self, term: u64, now: Moment) {
        let Role::Activating(Activating { tenure, .. }) = &self.role else {
            unreachable!("only a candidate that holds the lease writes a term");
        };
        let tenure = tenure.clone();
        self.role = Role::Leader(Leader { tenure, term, since: now, jeopardy: false });
        self.defect = None;
        let candidate = Arc::clone(&self.config.candidate);
        self.set_holder(Some(Holder { candidate, term }));
        self.tell_transition(Reason::Inaugurated, None, now);
    }

    /// The tenure is over against our will. The lease is owed back unless the store said that it
    /// is not ours; its id is dead either way (R5, R6).
    fn become_standby(&mut self, reason: Reason, now: Moment, chance: Chance) {
        debug_assert!(self.role.tenure().is_some(), "only a tenure ends");
        let looks = Pace::spread(now, self.config.retry_period, chance.jitter);
        self.leave_tenure(Role::Standby { looks, bidding: None }, reason, now);
    }

    /// We leave by will, for good.
    fn become_resigned(&mut self, now: Moment) {
        debug_assert!(!matches!(self.role, Role::Resigned));
        if let Some(owed) = &mut self.owed {
            owed.take_back(now);
        }
        self.leave_tenure(Role::Resigned, Reason::Resigned, now);
    }

    /// Leaves whatever lease or bid the role has for another role.
    fn leave_tenure(&mut self, to: Role, reason: Reason, now: Moment) {
        let ended = match mem::replace(&mut self.role, to) {
            Role::Standby { bidding, .. } => {
                if let Some(Bidding { bid, .. }) = bidding {
                    self.owe(bid, now, true);
                }
                None
            }
            Role::Activating(it) => {
                self.owe(it.tenure.bid, now, true);
                None
            }
            Role::Leader(it) => {
                let (sent, length) = (it.tenure.belief.sent, self.config.lease_duration);
                // Found out when the lease was over by itself: nothing is left to give back.
                let over = reason == Reason::Lapsed && sent.elapsed_max(now) >= length;
                if !over {
                    self.owe(it.tenure.bid, now, false);
                }
                if let (Reason::Lapsed, Some(owed)) = (reason, &mut self.owed) {
                    owed.promised = Some((sent, length));
                }
                Some(Ended { term: it.term, lasted: it.since.elapsed_max(now) })
            }
            Role::Resigned => None,
        };
        if reason == Reason::Lost {
            self.owed = None;
        }
        self.set_holder(None);
        self.tell_transition(reason, ended, now);
    }

    /// Remembers to release a lease that may be ours; `announced` if nobody ever heard active.
    fn owe(&mut self, bid: Bid, now: Moment, announced: bool) {
        debug_assert!(self.owed.is_none(), "one lease at a time");
        let pace = Pace::at_once(now);
        self.owed = Some(Owed { bid, since: now, announced, promised: None, pace });
    }

    /// Drops a bid and stays away for about a lease-duration, so that another may try (R5).
    fn back_off(&mut self, now: Moment, chance: Chance) {
        if let Role::Standby { looks, bidding } = &mut self.role {
            *bidding = None;
            *looks = Pace::apart(now, self.config.lease_duration, chance.jitter);
        }
    }
}
