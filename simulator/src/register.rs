//! The register that ships, as one candidate runs it: each of its requests is a message of the world, and
//! each report of its watch.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use fastrand::Rng;
use futures::FutureExt;
use futures::future::BoxFuture;
use tenure::driver;
use tenure::election::{Answer, Op};
use tenure::lease::{Change, Nonce, StoreError};
use tenure::store::register::{
    Body, If, Register, RegisterError, Registered, Slot, Tagged, Told, Trials, Written,
};
use tenure::store::{Finding, LeaseStore};

/// A request for the value.
#[derive(Clone, Debug)]
pub enum Asked {
    Get,
    /// Writes the value on the condition of this tag; `None` if there must be no value.
    Put(Option<String>, Arc<Body>),
}

/// What a request is answered with.
#[expect(clippy::large_enum_variant, reason = "few live at once")]
#[derive(Clone, Debug)]
pub enum Got {
    Value(Option<Tagged>),
    Written(Option<Written>),
}

/// The outcome of a request.
pub type Outcome = Result<Got, RegisterError>;

/// What follows from an answer.
#[derive(Debug)]
pub enum Next {
    Sends(Asked),
    Ends(Result<Answer, StoreError>),
}

/// The register of one candidate.
pub struct Client {
    line: Line,
    store: Arc<Registered<Line>>,
    call: Option<BoxFuture<'static, Result<Answer, StoreError>>>,
    changed: BoxFuture<'static, Change>,
    /// Whether its watch is dead, though it seems to be open.
    pub is_deaf: bool,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("is_deaf", &self.is_deaf).finish_non_exhaustive()
    }
}

impl Client {
    /// Creates the register of a process, with this randomness.
    pub fn new(rng: Rng) -> Self {
        let line = Line::default();
        line.locked().rng = rng;
        let store = Arc::new(Registered::new(line.clone()));
        let mut changed = wait(&store);
        let told = (&mut changed).now_or_never();
        assert!(told.is_none(), "there is no report yet");
        Self { line, store, call: None, changed, is_deaf: false }
    }

    /// Begins an operation, in the place of an earlier one.
    pub fn begin(&mut self, op: Op) -> Next {
        let store = Arc::clone(&self.store);
        self.call = Some(async move { driver::ask(&*store, &op).await }.boxed());
        self.run()
    }

    /// Continues the operation with the answer to its request.
    pub fn proceed(&mut self, outcome: Outcome) -> Next {
        self.line.locked().outcome = Some(outcome);
        self.run()
    }

    fn run(&mut self) -> Next {
        let call = self.call.as_mut().expect("an operation is in progress");
        match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => {
                self.call = None;
                Next::Ends(answer)
            }
            Poll::Pending => {
                let asked = self.line.locked().asked.take();
                Next::Sends(asked.expect("it waits for nothing else"))
            }
        }
    }

    /// Delivers a report; returns what the register makes of it.
    pub fn told(&mut self, told: Told) -> Vec<Change> {
        self.line.locked().told.push_back(told);
        let mut changes = Vec::new();
        while let Some(change) = (&mut self.changed).now_or_never() {
            self.changed = wait(&self.store);
            changes.push(change);
        }
        changes
    }

    /// Returns whether it has opened its watch anew.
    pub fn reopens(&mut self) -> bool {
        let before = self.line.locked().watches;
        let changed = (&mut self.changed).now_or_never();
        assert!(changed.is_none(), "there is no report");
        self.line.locked().watches != before
    }
}

/// Waits for the next change.
fn wait(store: &Arc<Registered<Line>>) -> BoxFuture<'static, Change> {
    let store = Arc::clone(store);
    async move { store.changed().await }.boxed()
}

/// The line to the server. The conditions of writes are tried at once, on a value of the candidate's own:
/// the simulated server honours them.
#[derive(Clone, Default)]
struct Line(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    rng: Rng,
    asked: Option<Asked>,
    outcome: Option<Outcome>,
    told: VecDeque<Told>,
    /// How often a watch was opened.
    watches: u32,
    trial: Option<(u32, Body)>,
}

impl Line {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and waits for its answer.
    async fn ask(&self, asked: Asked) -> Outcome {
        {
            let mut state = self.locked();
            (state.asked, state.outcome) = (Some(asked), None);
        }
        poll_fn(|_| self.locked().outcome.take().map_or(Poll::Pending, Poll::Ready)).await
    }
}

impl State {
    fn try_to_put(&mut self, condition: If<'_>, body: &Body) -> Option<Written> {
        let tag = self.trial.as_ref().map(|it| it.0);
        let holds = match condition {
            If::Absent => tag.is_none(),
            If::Tagged(expected) => tag.is_some_and(|it| it.to_string() == expected),
        };
        let tag = tag.unwrap_or(0) + 1;
        holds.then(|| {
            self.trial = Some((tag, body.clone()));
            Written { tag: tag.to_string(), date: None }
        })
    }
}

#[async_trait]
impl Register for Line {
    fn kind(&self) -> &'static str {
        "simulated"
    }

    fn place(&self, _: Slot) -> String {
        "the value".to_owned()
    }

    fn answered(&self) -> String {
        "the simulation answered".to_owned()
    }

    fn credential(&self) -> Option<String> {
        None
    }

    fn trials(&self) -> Trials {
        Trials::InARace
    }

    async fn get(&self, slot: Slot) -> Result<Option<Tagged>, RegisterError> {
        if slot == Slot::Trial {
            let trial = self.locked().trial.clone();
            let tagged = |(tag, body): (u32, Body)| Tagged {
                tag: tag.to_string(),
                body: Ok(body),
                date: None,
            };
            return Ok(trial.map(tagged));
        }
        match self.ask(Asked::Get).await? {
            Got::Value(value) => Ok(value),
            Got::Written(_) => unreachable!("a read is answered with a value"),
        }
    }

    async fn put(
        &self,
        slot: Slot,
        condition: If<'_>,
        body: &Body,
    ) -> Result<Option<Written>, RegisterError> {
        if slot == Slot::Trial {
            return Ok(self.locked().try_to_put(condition, body));
        }
        let tag = match condition {
            If::Absent => None,
            If::Tagged(tag) => Some(tag.to_owned()),
        };
        match self.ask(Asked::Put(tag, Arc::new(body.clone()))).await? {
            Got::Written(written) => Ok(written),
            Got::Value(_) => unreachable!("a write is answered with its outcome"),
        }
    }

    async fn others(&self) -> Option<Vec<String>> {
        None
    }

    async fn told(&self) -> Told {
        self.locked().watches += 1;
        poll_fn(|_| self.locked().told.pop_front().map_or(Poll::Pending, Poll::Ready)).await
    }

    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }

    fn draw(&self) -> Nonce {
        Nonce(self.locked().rng.u128(..))
    }
}
