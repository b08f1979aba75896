//! One candidate of the model: the election that ships, its clock, and its requests on the way.
//!
//! What it does not do: it decides nothing. It follows the driver's rule: one event, then drain.

use std::sync::Arc;
use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{
    Answer, Config, Election, Entropy, Input, Notice, Op, Reason, Request, RequestId, Standing,
    Status,
};
use tenure::lease::{Candidate, Cause, Failure, LeaseId, Nonce, Rules, StoreError};

/// One tick of the model. The margin of one tick is then as long as the pause that R10 overlooks.
pub const TICK: Duration = Duration::from_secs(1);

/// In ticks: what the store counts from each grant.
pub const LEASE_DURATION: u8 = 3;

const RENEW_DEADLINE: u32 = 2;

/// One candidate, with all that is on its way to the store and back.
#[derive(Clone, Debug)]
pub struct Peer {
    pub election: Election,
    /// Which candidate this is; it enters its ids alone.
    pub number: u8,
    pub now: Moment,
    /// The lease that it has, bids for, or owes.
    pub lease: Option<LeaseId>,
    /// The term that it has just begun to lead in.
    pub began: Option<u64>,
    /// How many leases it has bid for, in all its lives.
    pub drawn: u64,
    /// The request that the driver waits for.
    pub wire: Option<Message>,
    /// A second one, that nobody waits for: late, or a duplicate.
    pub late: Option<Message>,
    /// What the slowest publisher still says of a leadership that is over.
    pub said: Option<Said>,
    /// Whether it ever sent a request while another was under way.
    pub hasty: bool,
    /// The lease that lapsed while it led, and from when that lease counts.
    pub lapsed: Option<(LeaseId, Moment)>,
    /// Whether it ever released a lapsed lease before its whole length was over.
    pub early: bool,
    /// Whether it was told to stop.
    pub stopping: bool,
    /// Whether the publishers have yet to report that they say passive.
    pub unannounced: bool,
}

/// A status that was published, with the lease that it rests on.
#[derive(Clone, Debug)]
pub struct Said {
    pub status: Status,
    pub lease: Option<LeaseId>,
}

/// A request on its way, or its answer.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: RequestId,
    pub op: Op,
    /// What the store answered, once it has.
    pub answer: Option<Result<Answer, StoreError>>,
    /// Whether the process that sent it is gone.
    pub orphan: bool,
}

fn config(number: u8) -> Config {
    let candidate =
        Candidate { identity: "one".to_owned(), instance: number.to_string(), address: None };
    Config {
        candidate: Arc::new(candidate),
        rules: Rules { longest_lease: None, missing_is_free: true },
        lease_duration: TICK * LEASE_DURATION.into(),
        renew_deadline: TICK * RENEW_DEADLINE,
        retry_period: TICK,
        request_timeout: TICK,
        activation_delay: Duration::ZERO,
        drain_timeout: Duration::ZERO,
        health: None,
        has_workload: false,
        observe: false,
    }
}

impl Peer {
    pub fn new(number: u8) -> Self {
        let start = TICK * 1_000;
        let now = Moment { boot: start, raw: start, wall: start };
        Self {
            election: Election::new(config(number), now),
            number,
            now,
            lease: None,
            began: None,
            drawn: 0,
            wire: None,
            late: None,
            said: None,
            hasty: false,
            lapsed: None,
            early: false,
            stopping: false,
            unannounced: false,
        }
    }

    /// The process begins anew; what it had sent may still be on its way.
    pub fn restart(&mut self, keep: bool) {
        self.election = Election::new(config(self.number), self.now);
        self.lease = None;
        self.lapsed = None;
        let wire = self.wire.take();
        if keep {
            self.late = wire;
        }
        // The answer of a request has nobody to come to.
        self.late.take_if(|late| late.answer.is_some());
        if let Some(late) = &mut self.late {
            late.orphan = true;
        }
        // The listener is gone. What the killed one's file still says it would itself say for as
        // long, had it not been killed and never been called again.
        self.unannounced = false;
        self.stopping = false;
    }

    /// A tick of true time, which the wall clock shows; the lease clocks may miss it.
    pub fn tick(&mut self, slow: bool) {
        self.now.wall += TICK;
        if !slow {
            self.now.boot += TICK;
            self.now.raw += TICK;
        }
        self.said = None;
    }

    /// Whether anybody who asks this candidate, or reads its file, is told that it leads.
    pub fn is_active(&self) -> bool {
        self.believes() || self.said.as_ref().is_some_and(|it| it.status.is_leader(self.now))
    }

    pub fn believes(&self) -> bool {
        self.election.status().is_leader(self.now)
    }

    pub fn term(&self) -> Option<u64> {
        let said = self.said.as_ref().and_then(|it| it.status.term());
        self.election.status().term().or(said)
    }

    pub fn standing(&self) -> Standing {
        self.election.status().standing
    }

    /// Whether the election has something to do, or its clock has jumped.
    pub fn is_due(&self) -> bool {
        let jumped = matches!(self.standing(), Standing::Leader { belief, .. }
            if !belief.suspended && belief.sent.jumped(self.now));
        jumped || self.election.poll_timeout(self.now).is_zero()
    }

    fn entropy(&self) -> Entropy {
        let bits = self.bits(self.drawn + 1);
        Entropy { lease: bits, nonce: Nonce(bits), jitter: 0.5 }
    }

    fn bits(&self, drawn: u64) -> u128 {
        ((u128::from(self.number) + 1) << 32) | u128::from(drawn)
    }

    /// One turn of the driver.
    pub fn turn(&mut self, input: Input) {
        let before = self.election.status();
        let lease = self.lease;
        let entropy = self.entropy();
        let _ = self.election.handle(input, self.now, entropy);
        let after = self.election.status();
        self.lease = lease_of(&self.election);
        while let Some(notice) = self.election.poll_notice() {
            if let (Notice::Transition(change), Standing::Leader { belief, .. }) =
                (notice, &before.standing)
                && change.reason == Reason::Lapsed
            {
                self.lapsed = lease.map(|lease| (lease, belief.sent));
            }
        }
        if let Some(request) = self.election.poll_request() {
            self.send(request);
        }
        self.lapsed.take_if(|(lease, _)| self.lease != Some(*lease));
        match (before.term(), after.term()) {
            (None, began) => self.began = began,
            (Some(_), None) => {
                self.unannounced = true;
                if before.is_leader(self.now) {
                    self.said = Some(Said { status: before, lease });
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, request: Request) {
        self.hasty |= self.wire.is_some();
        let Request { id, op, timeout: _ } = request;
        let whole = TICK * LEASE_DURATION.into();
        let lasts = |(lease, sent): (LeaseId, Moment)| {
            op.lease() == Some(lease) && sent.elapsed_min(self.now) < whole
        };
        self.early |= matches!(op, Op::Release(_)) && self.lapsed.is_some_and(lasts);
        if matches!(&op, Op::Acquire(bid) if bid.nonce.0 == self.bits(self.drawn + 1)) {
            self.drawn += 1;
        }
        self.wire = Some(Message { id, op, answer: None, orphan: false });
    }

    /// Hands the current answer to the election.
    pub fn take_answer(&mut self, again: bool) {
        let Some(message) = self.wire.take() else { return };
        if again {
            self.late = Some(message.clone());
        }
        let Some(answer) = message.answer else { return };
        self.turn(Input::Answer { id: message.id, answer });
    }

    /// The driver gives up waiting: the connection broke, or the request's time is up.
    pub fn fail(&mut self, keep: bool) {
        let Some(message) = self.wire.take() else { return };
        let id = message.id;
        if keep {
            self.late = Some(message);
        }
        let failure = Failure::new(Cause::Network, "the connection broke");
        self.turn(Input::Answer { id, answer: Err(StoreError::RetryNow(failure)) });
    }

    pub fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Whether time that passes now is time that it waits for something that could be done.
    pub fn is_waiting(&self) -> bool {
        self.wire.is_some() || self.unannounced || self.has_lease() && self.is_due()
    }
}

fn lease_of(election: &Election) -> Option<LeaseId> {
    let mut lease = None;
    election.model_state(&mut |piece| {
        if let tenure::election::StateValue::Lease(id) = piece {
            lease.get_or_insert(id);
        }
    });
    lease
}
