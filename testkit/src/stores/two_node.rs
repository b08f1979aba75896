//! Two real elections, a store and clocks that a test moves by hand, in steps of true time: enough
//! to watch one fault of the clocks. Judged by what clients hold to be true.
//!
//! What it does not do: it draws nothing by chance; schedules without end are the simulator's.

use std::sync::Arc;
use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{
    Answer, Chance, Config, Election, Notice, Op, Reason, Request, RequestId, Status,
};
use tenure::store::{
    Candidate, Cause, Failure, Grant, LeaseId, Nonce, Record, Rules, Sight, StoreError, Version,
};

pub const LEASE: u64 = 15_000;
pub const DEADLINE: u64 = 10_000;
pub const RETRY: u64 = 2_000;
pub const REQUEST: u64 = 2_000;

/// Between two looks of the one that stands by: it leads as soon as the store lets it.
const EAGER: u64 = 20;

/// One step of true time, in milliseconds.
const STEP: u64 = 5;

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Who acted on whose word, from when to when by true time, in which term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    pub who: usize,
    pub term: u64,
    pub from: u64,
    pub until: u64,
}

/// How fast a node's clocks run, against true time.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub boot: f64,
    pub raw: f64,
    pub wall: f64,
}

/// One candidate with its clocks.
pub struct Node {
    pub election: Election,
    pub clock: Moment,
    pub rates: Rates,
    /// Until when, by true time, the whole machine stands still, its clocks with it.
    pub frozen_until: u64,
    /// Whether its requests reach the store.
    pub cut_off: bool,
    pub notices: Vec<Notice>,
    published: Status,
    in_flight: Option<(RequestId, Moment, Duration)>,
    arrived: Option<(RequestId, Result<Answer, StoreError>)>,
}

impl Node {
    fn new(name: &str, retry_period: u64, offset: u64) -> Self {
        let candidate =
            Candidate { identity: name.to_owned(), instance: format!("{name}-1"), address: None };
        let config = Config {
            candidate: Arc::new(candidate),
            rules: Rules { longest_lease: None, missing_is_free: true },
            lease_duration: ms(LEASE),
            renew_deadline: ms(DEADLINE),
            retry_period: ms(retry_period),
            request_timeout: ms(REQUEST),
            activation_delay: Duration::ZERO,
            drain_timeout: Duration::ZERO,
            health: None,
            escorts: false,
            observe: false,
        };
        let clock = Moment {
            boot: ms(9_000_000 + offset),
            raw: ms(100_000 + 7 * offset),
            wall: ms(1_800_000_000_000 + offset),
        };
        let election = Election::new(config, clock);
        let published = election.status();
        Self {
            election,
            clock,
            rates: Rates { boot: 1.0, raw: 1.0, wall: 1.0 },
            frozen_until: 0,
            cut_off: false,
            notices: Vec::new(),
            published,
            in_flight: None,
            arrived: None,
        }
    }

    /// What somebody who asks right now is told: nothing of the election runs for it.
    pub fn says_leader(&self) -> bool {
        self.published.is_leader(self.clock)
    }

    /// Whether its state has changed for this reason.
    pub fn has_told(&self, reason: Reason) -> bool {
        let is = |it: &Notice| matches!(it, Notice::Transition(it) if it.reason == reason);
        self.notices.iter().any(is)
    }

    pub fn term(&self) -> Option<u64> {
        self.published.term()
    }

    fn pass(&mut self, step: u64) {
        let by = |rate: f64| Duration::from_secs_f64(step as f64 * rate / 1_000.0);
        self.clock.boot += by(self.rates.boot);
        self.clock.raw += by(self.rates.raw);
        self.clock.wall += by(self.rates.wall);
    }

    /// One turn of its driver; gives the request to send.
    fn turn(&mut self, chance: Chance) -> Option<Request> {
        let now = self.clock;
        if let Some((id, sent, timeout)) = self.in_flight
            && self.arrived.is_none()
            && sent.elapsed_max(now) >= timeout
        {
            let failure = Failure::new(Cause::Timeout, "no answer");
            self.arrived = Some((id, Err(StoreError::Unknown(failure))));
        }
        match self.arrived.take() {
            Some((id, answer)) => {
                self.in_flight = None;
                self.election.handle_answer(id, answer, now, chance);
            }
            None => self.election.handle_timeout(now, chance),
        }
        // No file is to be written: passive is said as soon as it is published.
        self.election.handle_announced(now, chance);
        let request = self.election.poll_command();
        while let Some(notice) = self.election.poll_notice() {
            self.notices.push(notice);
        }
        self.published = self.election.status();
        if let Some(request) = &request {
            self.in_flight = Some((request.id, now, request.timeout));
        }
        request
    }
}

/// The store: it counts by true time.
#[derive(Default)]
struct Store {
    lease: Option<(LeaseId, u64)>,
    record: Record,
}

impl Store {
    fn ask(&mut self, op: &Op, now: u64) -> Result<Answer, StoreError> {
        let held = self.lease.filter(|(_, until)| now < *until).map(|(id, _)| id);
        let refused = || StoreError::Refused(Failure::new(Cause::Lease, "not yours"));
        match op {
            Op::Look => Ok(Answer::Sight(Sight {
                free: held.is_none(),
                record: self.record.clone(),
                version: Version("".into()),
                claim: None,
            })),
            Op::Acquire(bid) if held.is_none_or(|id| id == bid.lease) => {
                self.lease = Some((bid.lease, now + LEASE));
                Ok(Answer::Grant(Grant { record: self.record.clone(), date: None }))
            }
            Op::Inaugurate { bid, floor } if held == Some(bid.lease) => {
                if self.record.nonce != Some(bid.nonce) {
                    let next = self.record.term.map_or(*floor, |it| (it + 1).max(*floor));
                    self.record = Record {
                        term: Some(next),
                        holder: Some(Arc::clone(&bid.candidate)),
                        nonce: Some(bid.nonce),
                        successor: None,
                    };
                }
                Ok(Answer::Term(self.record.term.expect("it was written")))
            }
            Op::Renew(bid) if held == Some(bid.lease) => {
                self.lease = Some((bid.lease, now + LEASE));
                Ok(Answer::Done)
            }
            Op::Release(bid) if held == Some(bid.lease) => {
                self.lease = None;
                Ok(Answer::Done)
            }
            _ => Err(refused()),
        }
    }
}

/// Both candidates, the store, and the clients that ask each at every step.
pub struct World {
    pub now: u64,
    pub nodes: [Node; 2],
    store: Store,
    drawn: u128,
    reigns: Vec<Reign>,
}

impl World {
    /// A world in which the first candidate leads; by its index 0.
    pub fn led_by_the_first() -> Self {
        let mut world = Self {
            now: 0,
            nodes: [Node::new("a", RETRY, 0), Node::new("b", EAGER, 33_000)],
            store: Store::default(),
            drawn: 0,
            reigns: Vec::new(),
        };
        world.nodes[1].frozen_until = 1_000;
        world.pass(5_000);
        assert!(world.nodes[0].says_leader() && !world.nodes[1].says_leader());
        world
    }

    /// Lets true time pass.
    pub fn pass(&mut self, millis: u64) {
        let end = self.now + millis;
        while self.now < end {
            self.now += STEP;
            for who in 0..self.nodes.len() {
                if self.now < self.nodes[who].frozen_until {
                    continue;
                }
                self.nodes[who].pass(STEP);
                self.ask_as_a_client(who);
                self.turn(who);
            }
        }
    }

    /// Lets true time pass until a candidate leads; panics when it takes too long.
    pub fn pass_until_leads(&mut self, who: usize) {
        for _ in 0..60_000 / STEP {
            if self.nodes[who].says_leader() {
                return;
            }
            self.pass(STEP);
        }
        panic!("candidate {who} does not lead within a minute");
    }

    /// A client asks, and acts on the answer for as long as it may by a clock that runs well.
    fn ask_as_a_client(&mut self, who: usize) {
        let node = &self.nodes[who];
        let left = node.published.remaining(node.clock);
        let Some(term) = node.term().filter(|_| !left.is_zero()) else {
            return;
        };
        let until = self.now + u64::try_from(left.as_millis()).expect("not long");
        let known = self.reigns.iter_mut().find(|it| it.who == who && it.term == term);
        match known {
            Some(reign) => reign.until = reign.until.max(until),
            None => self.reigns.push(Reign { who, term, from: self.now, until }),
        }
    }

    fn turn(&mut self, who: usize) {
        self.drawn += 1;
        let chance = Chance { lease: self.drawn << 64 | 7, nonce: Nonce(self.drawn), jitter: 0.5 };
        let Some(request) = self.nodes[who].turn(chance) else {
            return;
        };
        if !self.nodes[who].cut_off {
            let answer = self.store.ask(&request.op, self.now);
            self.nodes[who].arrived = Some((request.id, answer));
        }
    }

    /// Every reign so far, by its first word.
    pub fn reigns(&self) -> &[Reign] {
        &self.reigns
    }

    /// Two reigns of two candidates at one time, the older first.
    pub fn duals(&self) -> Vec<(Reign, Reign)> {
        let mut duals = Vec::new();
        for (index, one) in self.reigns.iter().enumerate() {
            for other in &self.reigns[index + 1..] {
                if one.who != other.who && one.from < other.until && other.from < one.until {
                    duals.push((*one, *other));
                }
            }
        }
        duals
    }
}
