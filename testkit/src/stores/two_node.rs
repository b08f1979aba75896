//! Two real elections, a store and clocks that a test advances in steps of true time, to show the
//! effect of a single fault of the clocks. There is no randomness; for random schedules see the
//! simulator.

use std::sync::Arc;
use std::time::Duration;

use tenure::clock::Moment;
use tenure::election::{
    Answer, Config, Election, Entropy, Input, Notice, Op, Reason, Request, RequestId, Status,
};
use tenure::lease::{
    Candidate, Cause, Failure, Grant, LeaseId, Nonce, Record, Rules, Snapshot, StoreError, Version,
};

pub const LEASE: u64 = 15_000;
pub const DEADLINE: u64 = 10_000;
pub const RETRY: u64 = 2_000;
pub const REQUEST: u64 = 2_000;

/// The retry-period of the standby, which leads as soon as the store grants the lease.
const EAGER: u64 = 20;

/// One step of true time, in milliseconds.
const STEP: u64 = 5;

pub fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The time in which clients acted on the answers of a candidate in one term, in true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reign {
    pub who: usize,
    pub term: u64,
    pub from: u64,
    pub until: u64,
}

/// The rates of a node's clocks, relative to true time.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub boot: f64,
    pub raw: f64,
    pub wall: f64,
}

/// A candidate with its clocks.
pub struct Node {
    pub election: Election,
    pub clock: Moment,
    pub rates: Rates,
    /// Until when, in true time, the whole machine stands still, including its clocks.
    pub frozen_until: u64,
    /// Whether its requests are lost on the way to the store.
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
            has_workload: false,
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

    /// Returns whether a request at this moment would be answered with leader. The election does
    /// not run for it.
    pub fn says_leader(&self) -> bool {
        self.published.is_leader(self.clock)
    }

    /// Returns whether it had a state transition with this reason.
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

    /// Runs one turn of its driver; returns the request to send.
    fn turn(&mut self, entropy: Entropy) -> Option<Request> {
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
                let _ = self.election.handle(Input::Answer { id, answer }, now, entropy);
            }
            None => {
                let _ = self.election.handle(Input::Timeout, now, entropy);
            }
        }
        // There are no status files, so passive is published at once.
        let _ = self.election.handle(Input::PublishAcked, now, entropy);
        let request = self.election.poll_request();
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

/// The store, which measures true time.
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
            Op::Read => Ok(Answer::Snapshot(Snapshot {
                free: held.is_none(),
                record: self.record.clone(),
                version: Version("".into()),
                claim: None,
            })),
            Op::Acquire(bid) if held.is_none_or(|id| id == bid.lease) => {
                self.lease = Some((bid.lease, now + LEASE));
                Ok(Answer::Grant(Grant { record: self.record.clone(), date: None }))
            }
            Op::WriteTerm { bid, floor } if held == Some(bid.lease) => {
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

/// Both candidates, the store, and clients that poll each candidate at every step.
pub struct World {
    pub now: u64,
    pub nodes: [Node; 2],
    store: Store,
    drawn: u128,
    reigns: Vec<Reign>,
}

impl World {
    /// Creates a world in which the first candidate, with index 0, leads.
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

    /// Advances true time.
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

    /// Advances true time until a candidate leads; panics after a minute.
    pub fn pass_until_leads(&mut self, who: usize) {
        for _ in 0..60_000 / STEP {
            if self.nodes[who].says_leader() {
                return;
            }
            self.pass(STEP);
        }
        panic!("candidate {who} does not lead within a minute");
    }

    /// Sends a client's request. The client acts on the answer for its validity, by an accurate
    /// clock.
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
        let entropy =
            Entropy { lease: self.drawn << 64 | 7, nonce: Nonce(self.drawn), jitter: 0.5 };
        let Some(request) = self.nodes[who].turn(entropy) else {
            return;
        };
        if !self.nodes[who].cut_off {
            let answer = self.store.ask(&request.op, self.now);
            self.nodes[who].arrived = Some((request.id, answer));
        }
    }

    /// Returns all leaderships so far, ordered by their start.
    pub fn reigns(&self) -> &[Reign] {
        &self.reigns
    }

    /// Returns the pairs of overlapping leaderships of two candidates, the earlier one first.
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
