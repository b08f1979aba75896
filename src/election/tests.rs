//! One test for each rule, by name: a candidate under test, with a store and clocks that the test
//! moves by hand.

mod belief;
mod bidding;
mod expiry;
mod hold_off;
mod lease_view;
mod maintenance;
mod peer;
mod random;
mod record;
mod resigning;
mod step_down;
mod wait;
mod wakeup;

use std::sync::Arc;
use std::time::Duration;

use super::{
    Answer, Command, Config, Election, Entropy, HealthRule, Input, Notice, Op, Progress, Reason,
    Refusal, Request, State, TRANSITIONS, Transition,
};
use crate::clock::Moment;
use crate::lease::{
    Cause, Change, Failure, Grant, LeaseId, Nonce, Record, Rules, Snapshot, StoreError, Version,
};

const LEASE: u64 = 15_000;
const DEADLINE: u64 = 10_000;
const RETRY: u64 = 2_000;
const REQUEST: u64 = 2_000;

/// Unix time in milliseconds at the start of a test.
const EPOCH: u64 = 1_800_000_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn start() -> Moment {
    Moment { boot: ms(5_000_000), raw: ms(4_000_000), wall: ms(EPOCH) }
}

/// The rules of a store on one host.
const LOCAL: Rules = Rules { longest_lease: None, missing_is_free: true };

/// The rules of Azure.
const REMOTE: Rules =
    Rules { longest_lease: Some(Duration::from_secs(60)), missing_is_free: false };

fn config() -> Config {
    Config {
        candidate: Arc::new(candidate("us")),
        rules: LOCAL,
        lease_duration: ms(LEASE),
        renew_deadline: ms(DEADLINE),
        retry_period: ms(RETRY),
        request_timeout: ms(REQUEST),
        activation_delay: Duration::ZERO,
        drain_timeout: Duration::ZERO,
        health: None,
        has_workload: false,
        wait: None,
        observe: false,
        priority: Config::DEFAULT_PRIORITY,
    }
}

fn candidate(name: &str) -> crate::lease::Candidate {
    crate::lease::Candidate {
        identity: name.into(),
        instance: format!("{name}-1"),
        address: None,
        peer: None,
    }
}

/// The candidate under test, with its clocks and the request in flight.
struct Bench {
    election: Election,
    now: Moment,
    request: Option<Request>,
    notices: Vec<Notice>,
    drawn: u128,
    jitter: f32,
}

impl Bench {
    fn new(config: Config) -> Self {
        let now = start();
        let election = Election::new(config, now);
        let mut bench =
            Self { election, now, request: None, notices: Vec::new(), drawn: 0, jitter: 0.5 };
        bench.tick();
        bench
    }

    /// Creates a candidate that was just elected in term 8.
    fn leader() -> Self {
        Self::leader_with(config())
    }

    fn leader_with(config: Config) -> Self {
        let mut bench = Self::activating_with(config);
        bench.expect("write-term");
        bench.answer(Ok(Answer::Term(8)));
        assert_eq!(bench.state(), State::Leader);
        bench
    }

    /// Creates a candidate that was just granted the lease on the record of term 7.
    fn activating_with(config: Config) -> Self {
        let mut bench = Self::bidding_with(config);
        bench.answer(Ok(grant(Some(7))));
        assert_eq!(bench.state(), State::Activating);
        bench
    }

    /// Creates a candidate whose first bid is in flight.
    fn bidding() -> Self {
        Self::bidding_with(config())
    }

    fn bidding_with(config: Config) -> Self {
        let mut bench = Self::new(config);
        bench.expect("read");
        bench.answer(Ok(free(Some(7))));
        bench.expect("acquire");
        bench
    }

    fn entropy(&mut self) -> Entropy {
        self.drawn += 1;
        Entropy { lease: self.drawn << 64, nonce: Nonce(self.drawn), jitter: self.jitter }
    }

    /// Takes the request and the notices of the election, after each event, as the driver does.
    fn drain(&mut self) {
        if let Some(request) = self.election.poll_request() {
            assert!(self.request.is_none(), "two requests in flight: {request:?}");
            self.request = Some(request);
        }
        while let Some(notice) = self.election.poll_notice() {
            if let Notice::Transition(Transition { from, to, reason, .. }) = notice {
                assert!(TRANSITIONS.contains(&(from, to, reason)), "not in the table: {notice:?}");
            }
            self.notices.push(notice);
        }
    }

    /// Hands in an input, and takes what the election outputs.
    fn handle(&mut self, input: Input) -> Result<Progress, Refusal> {
        let entropy = self.entropy();
        let outcome = self.election.handle(input, self.now, entropy);
        self.drain();
        outcome
    }

    /// Hands in an input that is no command, which is never refused.
    fn event(&mut self, input: Input) {
        assert_eq!(self.handle(input), Ok(Progress::Done));
    }

    fn tick(&mut self) {
        self.event(Input::Timeout);
    }

    /// Advances all clocks without calling the election.
    fn sleep(&mut self, millis: u64) {
        self.now.boot += ms(millis);
        self.now.raw += ms(millis);
        self.now.wall += ms(millis);
    }

    /// Advances all clocks, and calls the election whenever it asks for that, as the driver does.
    fn pass(&mut self, millis: u64) {
        let mut left = ms(millis);
        for _ in 0..100_000 {
            let step = self.election.poll_timeout(self.now).min(ms(1_000)).min(left);
            self.now.boot += step;
            self.now.raw += step;
            self.now.wall += step;
            left -= step;
            self.tick();
            if left.is_zero() {
                return;
            }
        }
        panic!("the election asks to be called without end");
    }

    /// Answers the request in flight.
    fn answer(&mut self, answer: Result<Answer, StoreError>) {
        let id = self.request.take().expect("a request is under way").id;
        self.event(Input::Answer { id, answer });
    }

    /// Lets time pass until the named request is in flight; returns how many milliseconds that
    /// took.
    fn next(&mut self, name: &str) -> u64 {
        for waited in 0..200_000 {
            if self.request.is_some() {
                self.expect(name);
                return waited;
            }
            self.sleep(1);
            self.tick();
        }
        panic!("no {name} in 200 s");
    }

    fn expect(&self, name: &str) {
        assert_eq!(self.request.as_ref().map(|it| it.op.name()), Some(name));
    }

    fn wake_up(&mut self) {
        self.report(None);
    }

    /// Hands in a report of the store that names this holder.
    fn report(&mut self, held_by: Option<Nonce>) {
        self.event(Input::Changed(Change::News { held_by }));
    }

    fn resign(&mut self) {
        self.event(Input::Resign);
    }

    fn command(&mut self, command: Command) -> Result<Progress, Refusal> {
        self.handle(Input::Command(command))
    }

    /// Hands in the result of the one probe, which began in this term.
    fn probe_result(&mut self, healthy: bool, term: Option<u64>) {
        self.event(Input::ProbeResult { probe: 0, healthy, begun_in: term });
    }

    fn maintenance(&mut self, imminent: bool) {
        self.event(Input::Maintenance { imminent });
    }

    fn workload_exited(&mut self, term: u64, hold_off: Option<Duration>) {
        self.event(Input::WorkloadExited { term, hold_off });
    }

    /// Returns the nonce of the lease that the candidate holds.
    fn nonce(&self) -> Nonce {
        self.election.role.held_lease().expect("the lease is held").bid.nonce
    }

    fn publish_acked(&mut self) {
        self.event(Input::PublishAcked);
    }

    fn state(&self) -> State {
        self.election.status().state(self.now)
    }

    fn leads(&self) -> bool {
        self.election.status().is_leader(self.now)
    }

    fn remaining(&self) -> Duration {
        self.election.status().remaining(self.now)
    }

    /// Returns the lease of the request in flight.
    fn lease(&self) -> LeaseId {
        self.request.as_ref().and_then(|it| it.op.lease()).expect("a request for a lease")
    }

    /// Returns the reason of the last transition.
    fn reason(&self) -> Option<Reason> {
        self.notices.iter().rev().find_map(|notice| match notice {
            Notice::Transition(transition) => Some(transition.reason),
            _ => None,
        })
    }
}

fn record(term: Option<u64>) -> Record {
    let holder = term.map(|_| Arc::new(candidate("other")));
    Record { term, holder, nonce: term.map(|term| Nonce(u128::from(term) << 100)), successor: None }
}

fn snapshot(free: bool, term: Option<u64>) -> Answer {
    Answer::Snapshot(Snapshot {
        free,
        record: record(term),
        version: Version("1".into()),
        claim: None,
        ends_in: None,
    })
}

fn free(term: Option<u64>) -> Answer {
    snapshot(true, term)
}

fn held(term: Option<u64>) -> Answer {
    snapshot(false, term)
}

fn grant(term: Option<u64>) -> Answer {
    Answer::Grant(Grant { record: record(term), date: None, version: None })
}

fn failure() -> Failure {
    Failure::new(Cause::Network, "in a test")
}

fn unsent() -> Result<Answer, StoreError> {
    let failure = Failure::new(Cause::Settings, "read-only");
    Err(StoreError::Unknown(Failure { had_no_effect: true, ..failure }))
}

fn unknown() -> Result<Answer, StoreError> {
    Err(StoreError::Unknown(failure()))
}

fn broken() -> Result<Answer, StoreError> {
    Err(StoreError::RetryNow(failure()))
}

fn refused() -> Result<Answer, StoreError> {
    Err(StoreError::Refused(failure()))
}

fn foreign() -> Result<Answer, StoreError> {
    Err(StoreError::Foreign(failure()))
}
