//! One candidate of the model: the production election, its clock, and its requests in transit.
//!
//! It makes no decisions, and follows the driver's rule: one input, then drain.

use std::sync::Arc;
use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{
    Answer, Config, Election, Entropy, Input, Notice, Op, Reason, Request, RequestId, Standing,
    StateValue, Status,
};
use tenure::lease::{Candidate, Cause, Failure, LeaseId, Nonce, Rules, StoreError, Version};

/// One tick of the model. The margin of one tick is then as long as the pause that R10 overlooks.
pub const TICK: Duration = Duration::from_secs(1);

/// The length of a lease after each grant, in ticks.
pub const LEASE_DURATION: u8 = 3;

const RENEW_DEADLINE: u32 = 2;

/// One candidate, with its requests and answers in transit.
#[derive(Clone, Debug)]
pub struct Peer {
    pub election: Election,
    /// The index of this candidate; only its ids depend on it.
    pub number: u8,
    pub now: Moment,
    /// The lease that it holds, bids for, or has to release.
    pub lease: Option<LeaseId>,
    /// The version that its last bid was for.
    pub seen: Option<Version>,
    /// The term in which it has just become leader.
    pub began: Option<u64>,
    /// The number of leases that it has bid for, over all its restarts.
    pub drawn: u64,
    /// The request that the driver waits for.
    pub wire: Option<Message>,
    /// A second request that the driver does not wait for: late, or a duplicate.
    pub late: Option<Message>,
    /// What the slowest publisher still reports of a leadership that is over.
    pub said: Option<Said>,
    /// Whether it ever sent a request while another was in flight.
    pub hasty: bool,
    /// The lease that lapsed while it led, and from when that lease counts.
    pub lapsed: Option<(LeaseId, Moment)>,
    /// Whether it ever released a lapsed lease before its whole length was over.
    pub early: bool,
    /// Whether it was told to resign.
    pub stopping: bool,
    /// Whether the publishers have yet to acknowledge passive.
    pub unannounced: bool,
}

/// A status that was published, with the lease that it rests on.
#[derive(Clone, Debug)]
pub struct Said {
    pub status: Status,
    pub lease: Option<LeaseId>,
}

/// A request in transit, or its answer.
#[derive(Clone, Debug)]
pub struct Message {
    pub id: RequestId,
    pub op: Op,
    /// The answer of the store, if it has answered.
    pub answer: Option<Result<Answer, StoreError>>,
    /// Whether the process that sent it has ended.
    pub orphan: bool,
}

fn config(number: u8) -> Config {
    let candidate = Candidate {
        identity: "one".to_owned(),
        instance: number.to_string(),
        address: None,
        peer: None,
    };
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
        wait: None,
        observe: false,
        priority: Config::DEFAULT_PRIORITY,
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
            seen: None,
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

    /// Restarts the process; its requests may still be in transit.
    pub fn restart(&mut self, keep: bool) {
        self.election = Election::new(config(self.number), self.now);
        self.lease = None;
        self.lapsed = None;
        let wire = self.wire.take();
        if keep {
            self.late = wire;
        }
        // No process receives the answer of the request.
        self.late.take_if(|late| late.answer.is_some());
        if let Some(late) = &mut self.late {
            late.orphan = true;
        }
        // The listener has ended. The file of the killed process reports what the process itself would
        // report for as long, if it had not been killed and were never called again.
        self.unannounced = false;
        self.stopping = false;
    }

    /// Advances true time and the wall clock by a tick, which the lease clocks may miss.
    pub fn tick(&mut self, slow: bool) {
        self.now.wall += TICK;
        if !slow {
            self.now.boot += TICK;
            self.now.raw += TICK;
        }
        self.said = None;
    }

    /// Returns whether this candidate or its file reports that it leads.
    pub fn is_active(&self) -> bool {
        self.believes() || self.said.as_ref().is_some_and(|it| it.status.is_leader(self.now))
    }

    pub fn believes(&self) -> bool {
        self.election.status().is_leader(self.now)
    }

    pub fn term(&self) -> Option<u64> {
        let said = self.said.as_ref().and_then(|it| it.status.term());
        self.election.standing().term().or(said)
    }

    pub fn standing(&self) -> Standing {
        self.election.standing()
    }

    /// Returns whether something is due in the election, or its clock has jumped.
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

    /// Runs one turn of the driver.
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
        if let Op::Acquire(bid) = &op {
            self.seen = Some(bid.seen.clone());
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

    /// Ends the wait of the driver: the connection broke, or the request timed out.
    pub fn fail(&mut self, keep: bool) {
        let Some(message) = self.wire.take() else { return };
        let id = message.id;
        if keep {
            self.late = Some(message);
        }
        let failure = Failure::new(Cause::Network, "the connection broke");
        self.turn(Input::Answer { id, answer: Err(StoreError::RetryNow(failure)) });
    }

    /// Returns the claim that it observes, and whether its time is over.
    pub fn observes(&self) -> Option<(Version, bool)> {
        let (mut claim, mut is_over) = (None, None);
        self.election.model_state(&mut |piece| match piece {
            StateValue::Claim(known) => claim = Some(known),
            StateValue::Wait(from, length) if claim.is_some() => {
                is_over.get_or_insert(from.elapsed_min(self.now) >= length);
            }
            _ => {}
        });
        claim.zip(is_over)
    }

    pub fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Returns whether it would wait through the next tick for something that is possible now.
    pub fn is_waiting(&self) -> bool {
        self.wire.is_some() || self.unannounced || self.has_lease() && self.is_due()
    }
}

fn lease_of(election: &Election) -> Option<LeaseId> {
    let mut lease = None;
    election.model_state(&mut |piece| {
        if let StateValue::Lease(id) = piece {
            lease.get_or_insert(id);
        }
    });
    lease
}
