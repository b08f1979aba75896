//! One race: the clients, what they call, and when the store's time passes, drawn from a seed.
//!
//! A race has rounds. In a round some clients make one to three calls each, one after the other and
//! at the same time as the other clients; the store's time may pass meanwhile, or between rounds.
//! What a client calls depends on what it was answered: it bids for what it has read, writes its
//! term, repeats bids, and also acts for bids that have lost.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures::poll;
use tenure::clock::{self, Moment};
use tenure::election::Observation;
use tenure::lease::{
    Bid, Candidate, Cause, LeaseId, Nonce, Snapshot, StoreError, Successor, Version,
};
use tenure::store::{BreakOutcome, LeaseAdmin};
use tokio::task::JoinSet;

use super::history::{Answer, Asked, Call, History, Instant, Outcome};
use super::model::Model;

/// The calls that a race has at most.
const MOST_CALLS: usize = 48;

/// How long a call may take, in a test that hangs otherwise.
const PATIENCE: Duration = Duration::from_secs(20);

/// A lock for one race, unused or with a first term, as [`Model::first_term`] says.
pub struct Lock {
    pub model: Model,
    /// Opens the lock as another client would, sharing nothing but the store.
    pub open: Box<dyn Fn() -> Arc<dyn LeaseAdmin> + Send + Sync>,
    pub clock: Arc<RaceClock>,
    /// The lease durations that bids have; from the shortest to the longest that the store allows.
    pub lengths: &'static [Duration],
    /// Makes the next request of a client fail, after it was performed or before.
    pub disturb: Option<Box<dyn Fn(bool) + Send + Sync>>,
    /// What must live as long as the lock.
    pub keep: Box<dyn std::any::Any + Send + Sync>,
}

/// The clock that counts the leases of a race.
pub struct RaceClock {
    /// The time that has certainly passed for the store, and that it may have passed, in nanoseconds:
    /// they differ only while it passes.
    passed: AtomicU64,
    reading: AtomicU64,
    passes: Passes,
}

/// What lets time pass.
pub enum Passes {
    /// The race, for a store that reads [`RaceClock::reading`].
    Here,
    /// The race, by telling a server.
    There(Box<dyn Fn(Duration) + Send + Sync>),
    /// Nothing: it is the machine's time.
    Itself,
}

impl RaceClock {
    pub fn new(passes: Passes) -> Arc<Self> {
        let start = AtomicU64::new(1_000_000_000_000);
        let passed = AtomicU64::new(start.load(Ordering::SeqCst));
        Arc::new(Self { passed, reading: start, passes })
    }

    /// Returns the present time for the store, or the latest that it can be.
    pub fn reading(&self) -> Duration {
        self.now(&self.reading)
    }

    fn now(&self, nanos: &AtomicU64) -> Duration {
        match self.passes {
            Passes::Itself => clock::now().boot,
            _ => Duration::from_nanos(nanos.load(Ordering::SeqCst)),
        }
    }

    /// Returns [`reading`](Self::reading) as all clocks.
    pub fn moment(&self) -> Moment {
        let now = self.reading();
        Moment { boot: now, raw: now, wall: now }
    }

    fn pass(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).expect("not so long");
        self.reading.fetch_add(nanos, Ordering::SeqCst);
        if let Passes::There(tell) = &self.passes {
            tell(by);
        }
        self.passed.fetch_add(nanos, Ordering::SeqCst);
    }
}

/// What all clients of a race share.
struct Shared {
    lock: Lock,
    order: AtomicU64,
    /// Whether clients stop waiting for some answers.
    drops: bool,
}

impl Shared {
    fn order(&self) -> u64 {
        self.order.fetch_add(1, Ordering::SeqCst)
    }

    fn before(&self) -> Instant {
        // The time first: it may be earlier, but not later than the instant.
        let time = self.lock.clock.now(&self.lock.clock.passed);
        Instant { order: self.order(), time }
    }

    fn after(&self) -> Instant {
        let order = self.order();
        Instant { order, time: self.lock.clock.reading() }
    }
}

/// One client.
struct Client {
    index: usize,
    rng: Rng,
    store: Arc<dyn LeaseAdmin>,
    candidate: Arc<Candidate>,
    shared: Arc<Shared>,
    /// The last read, and whether it shows to this client that the lease is free.
    seen: Option<(Snapshot, bool)>,
    observation: Option<Observation>,
    bid: Option<Bid>,
    bids: u128,
    granted: bool,
    calls: Vec<Call>,
}

/// Runs the race with this seed on a lock, and returns its history.
pub async fn race(seed: u64, lock: Lock) -> History {
    let mut rng = Rng::with_seed(seed);
    let sequential = rng.u8(..4) == 0;
    let drops = !sequential && rng.u8(..4) == 0;
    let disturbed = rng.u8(..3) == 0;
    let clients = rng.usize(2..=5);
    let shared = Arc::new(Shared { lock, order: AtomicU64::new(1), drops });
    let mut clients: Vec<_> =
        (0..clients).map(|index| Client::new(index, rng.fork(), &shared)).collect();
    let (mut rounds, mut calls) = (rng.usize(3..=8), 0);
    if sequential {
        rounds *= 3;
    }
    for _ in 0..rounds {
        let taking_part = if sequential { 1 } else { rng.usize(1..=clients.len()) };
        if calls + 3 * taking_part > MOST_CALLS {
            break;
        }
        if let (true, Some(disturb)) = (disturbed && rng.u8(..4) == 0, &shared.lock.disturb) {
            disturb(rng.bool());
        }
        rng.shuffle(&mut clients);
        let mut round = JoinSet::new();
        for mut client in clients.drain(..taking_part) {
            let many = rng.usize(1..=3);
            calls += many;
            round.spawn(async move {
                for _ in 0..many {
                    client.call().await;
                }
                client
            });
        }
        let (passes, by) = (rng.u8(..10), some_time(&mut rng, shared.lock.lengths));
        if passes < 2 && !sequential {
            tokio::task::yield_now().await;
            shared.lock.clock.pass(by);
        }
        clients.extend(round.join_all().await);
        // They come back in any order, and the next round is to be the same for a seed.
        clients.sort_by_key(|it| it.index);
        if (2..6).contains(&passes) {
            shared.lock.clock.pass(by);
        }
    }
    // What is left at the end tells about calls without an answer.
    clients[0].ask(Asked::Read).await;
    let mut history = Vec::new();
    for client in clients {
        let first = history.len();
        history.extend(client.calls.into_iter().map(|call| {
            let after = call.after.map(|it| first + it);
            Call { after, ..call }
        }));
    }
    in_order(history)
}

/// Sorts calls by when they were made.
fn in_order(calls: Vec<Call>) -> History {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|it| calls[*it].invoked.order);
    let place = |old: usize| order.iter().position(|it| *it == old);
    let sorted = order.iter().map(|old| {
        let call = calls[*old].clone();
        Call { after: call.after.and_then(place), ..call }
    });
    History(sorted.collect())
}

/// Draws how much time passes: around the lease durations of the store, where leases end.
fn some_time(rng: &mut Rng, lengths: &[Duration]) -> Duration {
    let length = lengths[rng.usize(..lengths.len())];
    let millisecond = Duration::from_millis(1);
    match rng.u8(..8) {
        0 => millisecond,
        1 => length / 2,
        2 => length.saturating_sub(Duration::from_nanos(1)),
        3 => length.saturating_sub(millisecond),
        4 => length + millisecond,
        5 => length + Duration::from_secs(1),
        _ => length,
    }
}

impl Client {
    fn new(index: usize, mut rng: Rng, shared: &Arc<Shared>) -> Self {
        // Some have the same name, as two instances of one service.
        let identity = format!("candidate {} (100 %)", rng.usize(..=index));
        let address = rng.bool().then(|| "[::1]:80".to_owned());
        let candidate =
            Candidate { identity, instance: format!("client-{index}"), address, peer: None };
        Self {
            index,
            rng,
            store: (shared.lock.open)(),
            candidate: Arc::new(candidate),
            shared: Arc::clone(shared),
            seen: None,
            observation: None,
            bid: None,
            bids: 0,
            granted: false,
            calls: Vec::new(),
        }
    }

    /// Makes one call.
    async fn call(&mut self) {
        let asked = self.draw();
        self.ask(asked).await;
    }

    /// Draws what to ask.
    fn draw(&mut self) -> Asked {
        let floor = [1, 1, 1, 5, 1000][self.rng.usize(..5)];
        let Some((_, free)) = self.seen else {
            return if self.rng.u8(..10) == 0 { self.draw_break() } else { Asked::Read };
        };
        // Where the store counts the time, it refuses what was read as held.
        let may_bid = free || !self.shared.lock.model.observed && self.rng.u8(..5) == 0;
        if self.bid.is_none() {
            return match self.rng.u8(..10) {
                0 => self.draw_break(),
                1..8 if may_bid => self.new_bid(),
                _ => Asked::Read,
            };
        }
        if std::mem::take(&mut self.granted) && self.rng.u8(..3) > 0 {
            return Asked::WriteTerm { floor };
        }
        match self.rng.u8(..100) {
            0..18 if may_bid => self.new_bid(),
            0..30 => Asked::Read,
            30..40 => Asked::Acquire,
            40..56 => Asked::WriteTerm { floor },
            56..72 => Asked::Renew,
            72..84 => Asked::Release,
            84..92 => self.draw_successor(),
            _ => self.draw_break(),
        }
    }

    fn draw_break(&mut self) -> Asked {
        Asked::Break { at_once: self.rng.bool() }
    }

    fn draw_successor(&mut self) -> Asked {
        let identity = ["b", "candidate 0 (100 %)"][self.rng.usize(..2)].to_owned();
        let hold_off = [0, 1_500_000, 10_000_000_000, 7_200_000_000_000][self.rng.usize(..4)];
        Asked::SetSuccessor(Successor { identity, hold_off: Duration::from_nanos(hold_off) })
    }

    /// Makes a bid for what was read last.
    fn new_bid(&mut self) -> Asked {
        self.bids += 1;
        let number = (self.index as u128 + 1) * 100 + self.bids;
        let lengths = self.shared.lock.lengths;
        let (seen, _) = self.seen.as_ref().expect("it has read");
        self.bid = Some(Bid {
            lease: LeaseId::from_random(self.rng.u128(..)),
            nonce: Nonce(number),
            candidate: Arc::clone(&self.candidate),
            lease_duration: lengths[self.rng.usize(..lengths.len())],
            seen: seen.version.clone(),
            written: None,
        });
        Asked::Acquire
    }

    /// Asks, and records it.
    async fn ask(&mut self, asked: Asked) {
        let bid = match asked {
            Asked::Read | Asked::Break { .. } => None,
            _ => self.bid.clone(),
        };
        let shared = Arc::clone(&self.shared);
        let polls = (shared.drops && self.rng.u8(..12) == 0).then(|| self.rng.usize(1..6));
        let store = Arc::clone(&self.store);
        let invoked = shared.before();
        let answer = wait(polls, request(&*store, &asked, bid.as_ref())).await;
        let returned = shared.after();
        let mut written = None;
        let outcome = match answer {
            None => Outcome::Open { until: None },
            Some(Ok((answer, version))) => {
                written = version;
                Outcome::Answered(answer)
            }
            Some(Err(error)) => judge(error),
        };
        if bid.is_some() {
            self.keep_version(written);
        }
        self.learn(&asked, &outcome);
        let after = None;
        self.record(Call { client: self.index, asked, bid, invoked, returned, outcome, after });
    }

    /// Adds a call to the history, in the parts that the store performs it in.
    fn record(&mut self, call: Call) {
        let model = &self.shared.lock.model;
        let decided = matches!(call.outcome, Outcome::Answered(_)) && call.bid.is_some();
        if decided && model.ends_dropped {
            for earlier in &mut self.calls {
                if let Outcome::Open { until: until @ None } = &mut earlier.outcome {
                    *until = Some(call.returned.order);
                }
            }
        }
        if !model.in_parts {
            self.calls.push(call);
            return;
        }
        let part = |asked, outcome, after| Call { asked, outcome, after, ..call.clone() };
        let first = Some(self.calls.len());
        match (&call.asked, &call.outcome) {
            (Asked::Acquire, outcome) => {
                let create = part(Asked::Create, Outcome::Open { until: None }, None);
                let mut parts = vec![part(Asked::Acquire, outcome.clone(), None)];
                if let Outcome::Answered(Answer::Granted(Some(record))) = outcome {
                    parts[0].outcome = Outcome::Answered(Answer::Granted(None));
                    let record = Outcome::Answered(Answer::Record(record.clone()));
                    parts.push(part(Asked::ReadRecord, record, first));
                }
                self.calls.extend(parts);
                self.calls.extend(model.first_term.is_none().then_some(create));
            }
            (Asked::Break { .. }, Outcome::Answered(Answer::Broken(BreakOutcome::Held { .. }))) => {
                let done = Outcome::Answered(Answer::Done);
                self.calls.push(part(Asked::FindHeld, done, None));
                self.calls.push(Call { after: first, ..call });
            }
            _ => self.calls.push(call),
        }
    }

    /// Notes the version that a call for the bid returned. Where there is none, the bid may keep that of
    /// before, on which nothing can be written any more.
    fn keep_version(&mut self, written: Option<Version>) {
        let keeps_old = written.is_none() && self.rng.u8(..3) == 0;
        if let (Some(bid), false) = (&mut self.bid, keeps_old) {
            bid.written = written;
        }
    }

    /// Notes what the client knows from an answer.
    fn learn(&mut self, asked: &Asked, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(Answer::Snapshot(snapshot)) => {
                let now = self.shared.lock.clock.moment();
                self.observation =
                    Observation::update(self.observation.take(), snapshot.claim.as_ref(), now);
                let waited = self.observation.as_ref().is_some_and(|it| it.left(now).is_zero());
                self.seen = Some((snapshot.clone(), snapshot.free || waited));
            }
            Outcome::Answered(Answer::Granted(_)) => self.granted = true,
            Outcome::Answered(Answer::Refused | Answer::Done)
                if matches!(asked, Asked::Acquire | Asked::Release) && self.rng.bool() =>
            {
                self.bid = None;
            }
            _ => (),
        }
    }
}

/// Makes a request, and after a conflict with a version of before another one without it, as the
/// election does.
async fn request(
    store: &dyn LeaseAdmin,
    asked: &Asked,
    bid: Option<&Bid>,
) -> Result<(Answer, Option<Version>), StoreError> {
    let answer = attempt(store, asked, bid).await;
    match (&answer, bid) {
        (Err(StoreError::RetryNow(failure)), Some(bid))
            if failure.cause == Cause::Lease && bid.written.is_some() =>
        {
            let bid = Bid { written: None, ..bid.clone() };
            attempt(store, asked, Some(&bid)).await
        }
        _ => answer,
    }
}

/// Makes a request once; returns the answer, and the version that it wrote.
async fn attempt(
    store: &dyn LeaseAdmin,
    asked: &Asked,
    bid: Option<&Bid>,
) -> Result<(Answer, Option<Version>), StoreError> {
    let bid = || bid.expect("it has bid");
    Ok(match asked {
        Asked::Read => (Answer::Snapshot(store.read().await?), None),
        Asked::Acquire => {
            let grant = store.acquire(bid()).await?;
            (Answer::Granted(Some(grant.record)), grant.version)
        }
        Asked::WriteTerm { floor } => (Answer::Term(store.write_term(bid(), *floor).await?), None),
        Asked::Renew => (Answer::Done, store.renew(bid()).await?),
        Asked::SetSuccessor(it) => (Answer::Done, store.set_successor(bid(), it).await?),
        Asked::Release => (store.release(bid()).await.map(|()| Answer::Done)?, None),
        Asked::Break { at_once } => (Answer::Broken(store.break_lease(*at_once).await?), None),
        Asked::Create | Asked::ReadRecord | Asked::FindHeld => {
            unreachable!("these are parts of other calls")
        }
    })
}

fn judge(error: StoreError) -> Outcome {
    match error {
        StoreError::Refused(_) => Outcome::Answered(Answer::Refused),
        StoreError::Foreign(it) => Outcome::Answered(Answer::Foreign(it.to_string())),
        StoreError::RetryNow(it) | StoreError::Unknown(it) if it.had_no_effect => {
            Outcome::HadNoEffect(it.cause, it.to_string())
        }
        StoreError::RetryNow(it) | StoreError::Unknown(it) => {
            Outcome::Unknown(it.cause, it.to_string())
        }
    }
}

/// Waits for an answer, or only so many turns.
async fn wait<T>(turns: Option<usize>, answer: impl Future<Output = T>) -> Option<T> {
    let Some(turns) = turns else {
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        return Some(answer.expect("an answer within 20 s"));
    };
    let mut answer = pin!(answer);
    for _ in 0..turns {
        if let std::task::Poll::Ready(answer) = poll!(&mut answer) {
            return Some(answer);
        }
        tokio::task::yield_now().await;
    }
    None
}
