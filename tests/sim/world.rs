//! The world of one episode: it takes event after event, lets true time pass between them, and
//! shows the judge everything.
//!
//! What it does not do: it decides nothing of the election. Candidates run the core that ships;
//! this file is their driver and everything around them.

use fastrand::Rng;
use tenure::clock::Moment;
use tenure::election::{Answer, Chance, Election, Op, Request, RequestId};
use tenure::store::{Cause, Failure, StoreError};

use super::client::{Client, Resource};
use super::examine::Examination;
use super::faults::Error;
use super::judge::{self, Judge, Tenure, Violation};
use super::network::{self, Fate, Message};
use super::process::Node;
use super::queue::{Event, Queue};
use super::scenario::Scenario;
use super::store::{Kind, Stage, Step, Store};
use super::{Instant, MILLI, SECOND, Span};

/// What came of an episode.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How much true time passed.
    pub length: Span,
    /// How many faults struck: those of the schedule, and each message they touched.
    pub faults: u64,
    /// How many times somebody became leader.
    pub elections: u64,
    /// Over everything that happened.
    pub history: u64,
    /// What was wrong, if anything.
    pub violation: Option<Violation>,
}

impl Outcome {
    /// An episode that ended in a panic.
    pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without words".to_owned());
        let violation = Some(Violation { kind: judge::Kind::Panicked, at: 0, text });
        Self { length: 0, faults: 0, elections: 0, history: 0, violation }
    }
}

/// The world.
#[derive(Debug)]
pub struct World<'a> {
    pub(super) scenario: &'a Scenario,
    /// Which faults of the schedule are played.
    pub(super) kept: &'a [u32],
    pub(super) now: Instant,
    pub(super) queue: Queue,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) resource: Resource,
    pub(super) store: Store,
    /// What the store falls back to.
    pub(super) snapshot: Option<Store>,
    pub(super) judge: Judge,
    pub(super) examination: Examination,
    /// The faults that last, with the nodes they struck.
    pub(super) lasting: Vec<(u32, u8)>,
    /// The nodes that a snare has caught, one bit each.
    pub(super) snared: u8,
    pub(super) faults: u64,
    pub(super) rng: Rng,
    /// When the last message that is under way reaches the store.
    pub(super) last_arrival: Instant,
    messages: Vec<Option<Message>>,
    spare: Vec<u32>,
    history: u64,
    /// Lines for people, if they were asked for.
    pub(super) trace: Option<Vec<String>>,
}

impl<'a> World<'a> {
    /// The world at its beginning.
    pub fn new(scenario: &'a Scenario, kept: &'a [u32]) -> Self {
        let mut seeds = Rng::with_seed(scenario.seed ^ 0x5eed);
        let plans = scenario.nodes.iter().enumerate();
        let nodes: Vec<Node> =
            plans.map(|(index, plan)| Node::new(index as u8, *plan, seeds.u64(..))).collect();
        let clients = scenario.nodes.iter().map(|plan| Client::new(plan.client_ppm)).collect();
        let mut world = Self {
            scenario,
            kept,
            now: 0,
            queue: Queue::default(),
            nodes,
            clients,
            resource: Resource::default(),
            store: Store::new(scenario.store, scenario.store_ppm),
            snapshot: None,
            judge: Judge::default(),
            examination: Examination::default(),
            lasting: Vec::new(),
            snared: 0,
            faults: 0,
            rng: seeds,
            last_arrival: 0,
            messages: Vec::new(),
            spare: Vec::new(),
            history: scenario.seed,
            trace: None,
        };
        world.begin();
        world
    }

    /// Has it told in lines what happens.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.trace = Some(Vec::new());
        self
    }

    /// What was told.
    pub fn lines(&self) -> impl Iterator<Item = &String> {
        self.trace.iter().flatten()
    }

    fn begin(&mut self) {
        if let Some(term) = self.scenario.seeded {
            self.store.seed(term);
            self.judge.floor = term;
        }
        self.snapshot = Some(self.store.clone());
        for index in 0..self.nodes.len() {
            let at = self.rng.u64(..SECOND);
            self.queue.plan(at, Event::Start { node: index as u8 });
            self.nodes[index].starts_at = at;
            let at = at + self.rng.u64(..10 * SECOND);
            self.queue.plan(at, Event::Ask { client: index as u8, again: true });
        }
        self.begin_spell();
    }

    /// Plays to the end, or to the first violation.
    pub fn play(&mut self) -> Outcome {
        while let Some((at, event)) = self.queue.next() {
            debug_assert!(at >= self.now, "time went back");
            self.now = at;
            self.handle(event);
            if self.judge.violation.is_some() || self.examination.is_over() {
                break;
            }
        }
        Outcome {
            length: self.now,
            faults: self.faults,
            elections: self.judge.elections,
            history: self.history,
            violation: self.judge.violation.clone(),
        }
    }

    fn handle(&mut self, event: Event) {
        if let Some(node) = event.needs_awake() {
            let awake = self.nodes[usize::from(node)].asleep_until;
            if awake > self.now {
                // Who wakes finds an answer in its socket before it looks how long it waited.
                let patience = u64::from(matches!(event, Event::GiveUp { .. }));
                return self.queue.plan(awake + patience, event);
            }
        }
        self.remember(event);
        match event {
            Event::Wake { node, stamp } => {
                if self.process_of(node).is_some_and(|it| it.timer == stamp) {
                    self.turn(node, Election::handle_timeout);
                }
            }
            Event::GiveUp { node, life, request } => {
                let id = RequestId(request);
                if self.is_waiting(node, life, id) {
                    self.answer(node, id, Err(network::timeout()));
                }
            }
            Event::Announced { node, stamp } => {
                if self.process_of(node).is_some_and(|it| it.ended == stamp) {
                    self.turn(node, Election::handle_announced);
                }
            }
            Event::Changed { node } => self.turn(node, Election::handle_wakeup),
            Event::Arrive { message } => self.arrive(message),
            Event::Deliver { message } => self.deliver(message),
            Event::GoOn { node } => self.go_on(node),
            Event::Start { node } => self.start(node),
            Event::Ask { client, again } => self.ask(client, again),
            Event::Question { client, stamp } => self.question(client, stamp),
            Event::Told { client, stamp } => self.told(client, stamp),
            Event::Strike { fault } => self.strike(fault),
            Event::Heal { fault } => self.heal(fault),
            Event::Examine => self.examine(),
        }
    }

    /// Folds an event into the history's hash.
    fn remember(&mut self, event: Event) {
        self.mix(self.now);
        self.mix(event.digest());
    }

    pub(super) fn mix(&mut self, value: u64) {
        self.history = (self.history.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Notes a line, if lines are asked for.
    pub(super) fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>12.6} {}", self.now as f64 / SECOND as f64, line(self));
            self.trace.iter_mut().for_each(|it| it.push(line.clone()));
        }
    }

    // The driver's rule.

    /// One turn: one event handled, then everything that the core wants is done.
    pub(super) fn turn(&mut self, node: u8, handle: impl FnOnce(&mut Election, Moment, Chance)) {
        let it = &mut self.nodes[usize::from(node)];
        let (moment, chance) = (it.moment(self.now), it.chance());
        let Some(process) = &mut it.process else { return };
        process.note(moment, self.now);
        handle(&mut process.election, moment, chance);
        self.publish(node, moment);
        let it = &mut self.nodes[usize::from(node)];
        if let Some(request) = it.command() {
            self.send(node, request);
        }
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        if process.election.is_finished() {
            return self.leave(node);
        }
        let wait = process.election.poll_timeout(moment);
        it.arm(wait, self.now, &mut self.queue);
    }

    /// A process has resigned and is done.
    fn leave(&mut self, node: u8) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = it.process.take() else { return };
        it.starts_at = self.now + process.back_after;
        self.queue.plan(it.starts_at, Event::Start { node });
        let left = process.lease.is_some_and(|lease| self.store.is_leased_to(lease));
        if process.undisturbed && left && self.store.is_leased(self.now) {
            let say = || format!("candidate {node} has left, and its lease is still there");
            self.judge.accuse(judge::Kind::LeftBehind, self.now, say);
        }
    }

    /// Publishes the status, and shows it to the judge.
    fn publish(&mut self, node: u8, moment: Moment) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        let status = process.election.status();
        let (was, is) = (process.status.term(), status.term());
        let leads = status.is_leader(moment);
        process.status = status;
        if was != is {
            process.jumped_at = None;
        }
        process.note(moment, self.now);
        process.jumped_at.take_if(|jumped| process.renewed_at >= *jumped);
        let forgotten = process.jumped_at.is_some();
        if leads && was == is && forgotten {
            let say = || format!("candidate {node} leads on, though its clocks jumped");
            self.judge.accuse(judge::Kind::JumpForgotten, self.now, say);
        }
        if leads && is.is_some() && process.over == is {
            let say = || format!("candidate {node} leads again in a term that was over");
            self.judge.accuse(judge::Kind::Revived, self.now, say);
        }
        if was != is {
            if was.is_some() {
                process.ended += 1;
                let at = self.now + it.publisher_delay + self.rng.u64(..20 * MILLI);
                self.queue.plan(at, Event::Announced { node, stamp: process.ended });
            }
            if let Some(term) = is {
                process.led = is;
                self.elected(node, term);
            }
        }
        if leads {
            self.judge_belief(node);
        }
    }

    fn elected(&mut self, node: u8, term: u64) {
        self.judge.elections += 1;
        self.mix(term);
        self.tell(|_| format!("candidate {node} leads in term {term}"));
        let it = &self.nodes[usize::from(node)];
        if it.plan.observe {
            let say = || format!("candidate {node} only observes, and leads");
            self.judge.accuse(judge::Kind::ObserverLed, self.now, say);
        }
        if self.judge.tenure(term, node, it.life).is_none() {
            let say = || format!("candidate {node} leads in term {term}, which it never wrote");
            self.judge.accuse(judge::Kind::TermUnwritten, self.now, say);
        }
        let soon = self.now + self.rng.u64(10 * MILLI..2 * SECOND);
        self.queue.plan(soon, Event::Ask { client: node, again: false });
    }

    /// This node believes at this instant: nobody else may.
    pub(super) fn judge_belief(&mut self, node: u8) {
        if !self.scenario.faithful {
            return;
        }
        let other = self.nodes.iter().find(|it| it.index != node && it.believes(self.now));
        if let Some(other) = other.map(|it| it.index) {
            let say = || format!("candidates {node} and {other} both lead");
            self.judge.accuse(judge::Kind::DualLeaders, self.now, say);
        }
    }

    fn process_of(&self, node: u8) -> Option<&super::process::Process> {
        self.nodes[usize::from(node)].process.as_ref()
    }

    fn is_waiting(&self, node: u8, life: u32, id: RequestId) -> bool {
        let it = &self.nodes[usize::from(node)];
        it.life == life && it.process.as_ref().is_some_and(|it| it.waits_for == Some(id))
    }

    // Messages.

    fn send(&mut self, node: u8, Request { id, op, timeout }: Request) {
        let it = &mut self.nodes[usize::from(node)];
        let fate = Fate::draw(&mut it.network, &it.link, &op, &mut self.faults);
        let life = it.life;
        let mut heard_of = 0;
        if let Some(process) = &mut it.process {
            if process.waits_for.is_some() {
                let say = || format!("candidate {node} has two requests under way");
                self.judge.accuse(judge::Kind::TwoRequests, self.now, say);
            }
            process.waits_for = Some(id);
            process.sent_at = self.now;
            process.lease = op.lease().or(process.lease);
            process.undisturbed &= fate.is_well(&it.link);
            heard_of = process.heard;
        }
        let requests = match &op {
            Op::Acquire(_) if self.store.kind() == Kind::Blob => 2,
            Op::Inaugurate { .. } => 2,
            _ => 1,
        };
        let patience = it.clocks.timer(timeout);
        let heard = fate.heard_after(requests);
        if heard.is_none_or(|heard| heard >= patience) {
            let at = self.now + patience;
            self.queue.plan(at, Event::GiveUp { node, life, request: id.0 });
        }
        let name = op.name();
        self.tell(|_| format!("candidate {node} sends {name}, {fate}"));
        let message = Message {
            node,
            life,
            id,
            op,
            stage: Stage::First,
            fate,
            answer: None,
            heard: heard_of,
        };
        if let (true, Some(heard)) = (fate.broken, heard) {
            let answer = Some(Err(network::broken()));
            let told = self.keep(Message { answer, ..message.clone() });
            self.queue.plan(self.now + heard, Event::Deliver { message: told });
        }
        let Some(there) = fate.there else { return };
        if let Some(later) = fate.again {
            let copy = self.keep(message.clone());
            self.plan_arrival(self.now + there + later, copy);
        }
        let message = self.keep(message);
        self.plan_arrival(self.now + there, message);
    }

    fn plan_arrival(&mut self, at: Instant, message: u32) {
        self.last_arrival = self.last_arrival.max(at);
        self.queue.plan(at, Event::Arrive { message });
    }

    fn keep(&mut self, message: Message) -> u32 {
        match self.spare.pop() {
            Some(free) => {
                self.messages[free as usize] = Some(message);
                free
            }
            None => {
                self.messages.push(Some(message));
                self.messages.len() as u32 - 1
            }
        }
    }

    fn take(&mut self, message: u32) -> Option<Message> {
        self.spare.push(message);
        self.messages[message as usize].take()
    }

    /// A request reaches the store.
    fn arrive(&mut self, index: u32) {
        let Some(mut message) = self.take(index) else { return };
        let done = match (message.fate.error, &message.op) {
            (Some(Error::Unknown), _) => Step::Done(Err(erred())),
            (Some(Error::Foreign), Op::Look | Op::Inaugurate { .. }) => Step::Done(Err(foreign())),
            _ => self.serve(&message),
        };
        let answer = match done {
            Step::More(stage) => {
                message.stage = stage;
                let at = self.now + message.fate.between;
                let index = self.keep(message);
                return self.plan_arrival(at, index);
            }
            Step::Done(answer) => answer,
        };
        let answer = match (message.fate.error, &message.op) {
            (Some(Error::UnknownYetDone), _) => Err(erred()),
            (Some(Error::OtherLease), Op::Acquire(_) | Op::Renew(_)) => Err(another()),
            (Some(Error::Foreign), Op::Acquire(_)) if answer.is_ok() => Err(foreign()),
            _ => answer,
        };
        if answer.is_ok() && matches!(message.op, Op::Renew(_)) {
            self.spring(message.node);
        }
        self.tell(|_| {
            let outcome = match &answer {
                Ok(Answer::Sight(sight)) => {
                    format!("free: {}, {:?}", sight.free, sight.record.term)
                }
                Ok(Answer::Grant(grant)) => format!("granted on term {:?}", grant.record.term),
                Ok(Answer::Term(term)) => format!("term {term}"),
                Ok(Answer::Done) => "done".to_owned(),
                Err(error) => format!("{}: {error}", error.outcome()),
            };
            format!("store: {} of candidate {}: {outcome}", message.op.name(), message.node)
        });
        let Some(back) = message.fate.back else { return };
        message.answer = Some(answer);
        let message = self.keep(message);
        self.queue.plan(self.now + back, Event::Deliver { message });
    }

    /// The store does what one request asks.
    fn serve(&mut self, message: &Message) -> Step {
        let mut wrote = None;
        let changes = self.store.changes();
        let done = self.store.step(&message.op, message.stage, self.now, &mut wrote);
        if let Some((term, nonce)) = wrote {
            let Message { node, life, .. } = *message;
            let tenure = Tenure { term, nonce, node, life, by_will: false };
            let (heard, clock) = (message.heard, self.least_clock(node));
            self.judge.written(tenure, heard, clock, self.now);
            self.mix(term);
        }
        if self.store.kind() == Kind::Host && self.store.changes() != changes {
            self.wake_standbys();
        }
        done
    }

    /// The least unix milliseconds that a term may have begun with that is written now by a
    /// candidate that found none: by the store's date, or else by its own wall clock.
    fn least_clock(&self, node: u8) -> u64 {
        let it = &self.nodes[usize::from(node)];
        let millis = match self.store.kind() {
            Kind::Blob => self.store.unix_millis(self.now),
            Kind::Host if it.has_true_wall() => {
                u64::try_from(it.moment(self.now).wall.as_millis()).unwrap_or_default()
            }
            Kind::Host => 0,
        };
        // It was read when the lease was granted, which a hold may have followed.
        millis.saturating_sub(300_000)
    }

    pub(super) fn wake_standbys(&mut self) {
        for node in 0..self.nodes.len() {
            if self.rng.u8(..10) < 8 {
                let at = self.now + self.rng.u64(MILLI..50 * MILLI);
                self.queue.plan(at, Event::Changed { node: node as u8 });
            }
        }
    }

    /// An answer reaches its candidate, late ones and copies too.
    fn deliver(&mut self, index: u32) {
        let Some(message) = self.take(index) else { return };
        let it = &mut self.nodes[usize::from(message.node)];
        let Some(answer) = message.answer.filter(|_| it.life == message.life) else { return };
        if let Some(process) = &mut it.process
            && process.waits_for == Some(message.id)
        {
            process.heard = process.heard.max(told_term(&answer));
            // What was refused is not owed, even where an operator made it so behind the lease.
            process.undisturbed &= !matches!(answer, Err(StoreError::Refused(_)));
            if answer.is_ok() && matches!(message.op, Op::Renew(_)) {
                process.renewed_at = process.sent_at;
            }
        }
        self.answer(message.node, message.id, answer);
    }

    fn answer(&mut self, node: u8, id: RequestId, answer: Result<Answer, StoreError>) {
        if let Some(process) = &mut self.nodes[usize::from(node)].process {
            process.waits_for.take_if(|it| *it == id);
        }
        self.turn(node, |election, now, chance| election.handle_answer(id, answer, now, chance));
    }
}

/// The term that an answer tells of.
fn told_term(answer: &Result<Answer, StoreError>) -> u64 {
    match answer {
        Ok(Answer::Sight(sight)) => sight.record.term.unwrap_or(0),
        Ok(Answer::Grant(grant)) => grant.record.term.unwrap_or(0),
        Ok(Answer::Term(term)) => *term,
        _ => 0,
    }
}

fn erred() -> StoreError {
    StoreError::Unknown(Failure::new(Cause::Unavailable, "the store erred"))
}

fn foreign() -> StoreError {
    StoreError::Foreign(Failure::new(Cause::Record, "a record of another's making"))
}

fn another() -> StoreError {
    StoreError::Refused(Failure::new(Cause::Lease, "the answer names another lease"))
}
