//! The world of one episode: it takes event after event, lets true time pass between them, and
//! shows the judge everything.
//!
//! What it does not do: it decides nothing of the election. Candidates run the core that ships;
//! this file is their driver and everything around them.

use fastrand::Rng;
use tenure::clock::Moment;
use tenure::election::{Input, Progress, Refusal, RequestId, Standing, Status};

use super::checker::{self, Judge, Violation};
use super::client::{Client, Resource};
use super::examine::Examination;
use super::network;
use super::post::Post;
use super::process::Node;
use super::queue::{Event, Queue};
use super::scenario::Scenario;
use super::store::Store;
use super::timeline::{self, Chart};
use super::{Instant, MILLI, SECOND, Span, span};

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
        let violation = Some(Violation { kind: checker::Kind::Panicked, at: 0, text });
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
    /// The faults of this spell that are to come, the next one last.
    pub(super) upcoming: Vec<u32>,
    /// The faults that last, with the nodes they struck.
    pub(super) lasting: Vec<(u32, u8)>,
    /// The nodes that a snare has caught, one bit each.
    pub(super) snared: u8,
    pub(super) faults: u64,
    pub(super) rng: Rng,
    /// When the last message that is under way reaches the store.
    pub(super) last_arrival: Instant,
    pub(super) post: Post,
    history: u64,
    /// Lines for people, if they were asked for.
    pub(super) trace: Option<Vec<String>>,
    /// What a figure shows, if one is to be drawn.
    pub(super) chart: Option<Chart>,
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
            upcoming: Vec::new(),
            lasting: Vec::new(),
            snared: 0,
            faults: 0,
            rng: seeds,
            last_arrival: 0,
            post: Post::default(),
            history: scenario.seed,
            trace: None,
            chart: None,
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

    /// Has it keep what a figure shows; clients ask every second then.
    #[must_use]
    pub fn charted(mut self) -> Self {
        self.chart = Some(Chart::default());
        self
    }

    /// What a figure shows.
    pub fn chart(&self) -> Option<&Chart> {
        self.chart.as_ref()
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
        while !self.is_over() && self.step() {}
        Outcome {
            length: self.now,
            faults: self.faults,
            elections: self.judge.elections,
            history: self.history,
            violation: self.judge.violation.clone(),
        }
    }

    /// Advances true time to `until`, unless the episode is over earlier.
    pub fn play_until(&mut self, until: Instant) {
        while !self.is_over() && self.queue.next_at().is_some_and(|at| at <= until) {
            self.step();
        }
        if !self.is_over() {
            self.now = until;
        }
    }

    /// Returns the true time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Returns the first violation so far.
    pub fn violation(&self) -> Option<&Violation> {
        self.judge.violation.as_ref()
    }

    /// Returns the candidates that report at this instant that they lead, with their terms.
    pub fn leaders(&self) -> Vec<(u8, u64)> {
        let leads = self.nodes.iter().filter(|it| it.believes(self.now));
        leads.filter_map(|it| Some((it.index, it.process.as_ref()?.status.term()?))).collect()
    }

    fn is_over(&self) -> bool {
        self.judge.violation.is_some() || self.examination.is_over()
    }

    /// Handles the next event, if there is one.
    pub fn step(&mut self) -> bool {
        let Some((at, event)) = self.queue.pop() else { return false };
        debug_assert!(at >= self.now, "time went back");
        self.now = at;
        self.handle(event);
        true
    }

    fn handle(&mut self, event: Event) {
        let waits_for = match event {
            Event::Deliver { message } => Some(self.post.addressee(message)),
            // A keeper and its child are stopped by nothing but the machine.
            Event::Keeper { node, .. } | Event::ChildEnds { node, .. } => {
                self.nodes[usize::from(node)].machine_stands.then_some(node)
            }
            other => other.needs_awake(),
        };
        if let Some(node) = waits_for {
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
                    self.turn(node, Input::Timeout);
                }
            }
            Event::GiveUp { node, life, request } => {
                let id = RequestId(u64::from(request));
                if self.is_waiting(node, life, id) {
                    self.answer(node, id, Err(network::timeout()));
                }
            }
            Event::Announced { node, stamp } => {
                if self.process_of(node).is_some_and(|it| it.ended == stamp) {
                    self.announced(node);
                    self.turn(node, Input::PublishAcked);
                }
            }
            Event::Changed { node } => {
                self.turn(node, Input::Wakeup);
            }
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
            Event::Probe { node, probe, stamp } => self.probe(node, probe, stamp),
            Event::Probed { node, probe, stamp } => self.probed(node, probe, stamp),
            Event::Drained { node, stamp } => self.drained(node, stamp),
            Event::Launch { node, stamp } => self.launch(node, stamp),
            Event::Keeper { node, stamp } => self.keep(node, stamp),
            Event::ChildEnds { node, stamp } => {
                self.child_ends(node, Some(stamp), None);
            }
            Event::Vacated { node, stamp } => self.vacated(node, stamp),
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
    pub(super) fn turn(&mut self, node: u8, input: Input) -> Option<Result<Progress, Refusal>> {
        let it = &mut self.nodes[usize::from(node)];
        let (moment, entropy) = (it.moment(self.now), it.entropy());
        let process = it.process.as_mut()?;
        process.note(moment, self.now);
        let outcome = process.election.handle(input, moment, entropy);
        self.settle(node, moment);
        Some(outcome)
    }

    /// What follows each event: everything that the core wants is done.
    pub(super) fn settle(&mut self, node: u8, moment: Moment) {
        self.publish(node, moment);
        while let Some(change) = self.nodes[usize::from(node)].change() {
            if let Some(chart) = &mut self.chart {
                chart.transitions.push((node, self.now, change));
            }
            self.changed(node, change, moment);
        }
        self.show_keeper(node);
        let it = &mut self.nodes[usize::from(node)];
        if let Some(request) = it.command() {
            self.judge_request(node, &request.op, moment);
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
        // While a child lives that nothing can end, the lease is left to run out.
        let immortal = it.escort.child.is_some_and(|child| child.immortal);
        let undisturbed = process.disturbed_at.is_none() && !immortal;
        if undisturbed && left && self.store.is_leased(self.now) {
            let say = || format!("candidate {node} has left, and its lease is still there");
            self.judge.accuse(checker::Kind::LeftBehind, self.now, say);
        }
    }

    /// Publishes the status, and shows it to the judge.
    fn publish(&mut self, node: u8, moment: Moment) {
        let it = &mut self.nodes[usize::from(node)];
        let Some(process) = &mut it.process else { return };
        let leading = |it: &Status| matches!(it.standing, Standing::Leader { .. });
        let (was, led) = (process.status.term(), leading(&process.status));
        process.status = process.election.status();
        let (is, leads_on) = (process.status.term(), leading(&process.status));
        let leads = process.status.is_leader(moment);
        process.restart_if_back(moment);
        let renewed_at = process.renewed_at;
        process.jumped_at.take_if(|jumped| was != is || renewed_at >= *jumped);
        process.note(moment, self.now);
        if leads && is.is_some() && process.work.is_some_and(|it| it.term == is) {
            let say = || format!("candidate {node} leads again in a term that it gave up");
            self.judge.accuse(checker::Kind::Revived, self.now, say);
        }
        let forgotten = process.jumped_at.is_some();
        if leads && was == is && forgotten {
            let say = || format!("candidate {node} leads on, though its clocks jumped");
            self.judge.accuse(checker::Kind::JumpForgotten, self.now, say);
        }
        if leads && is.is_some() && process.over == is {
            let say = || format!("candidate {node} leads again in a term that was over");
            self.judge.accuse(checker::Kind::Revived, self.now, say);
        }
        if led && (!leads_on || was != is) {
            process.ended += 1;
            process.last_word = Some((moment, process.nonce, false));
            let at = self.now + it.publisher_delay + self.rng.u64(..20 * MILLI);
            self.queue.plan(at, Event::Announced { node, stamp: process.ended });
        }
        if let Some(term) = is.filter(|_| was != is) {
            process.led = is;
            process.told.elected();
            self.elected(node, term);
        }
        self.chart_belief(node, moment);
        if leads {
            self.judge_belief(node);
        }
    }

    /// Notes for a figure until when a candidate believes.
    fn chart_belief(&mut self, node: u8, moment: Moment) {
        if let Some(chart) = &mut self.chart {
            let process = self.nodes[usize::from(node)].process.as_ref();
            let left = process.map_or(0, |it| span(it.status.remaining(moment)));
            timeline::note(&mut chart.beliefs, node, self.now, self.now + left);
        }
    }

    fn elected(&mut self, node: u8, term: u64) {
        self.judge.elections += 1;
        self.mix(term);
        self.tell(|_| format!("candidate {node} leads in term {term}"));
        let it = &self.nodes[usize::from(node)];
        if it.plan.observe {
            let say = || format!("candidate {node} only observes, and leads");
            self.judge.accuse(checker::Kind::ObserverLed, self.now, say);
        }
        if self.judge.tenure(term, node, it.life).is_none() {
            let say = || format!("candidate {node} leads in term {term}, which it never wrote");
            self.judge.accuse(checker::Kind::TermUnwritten, self.now, say);
        }
        if it.process.as_ref().is_some_and(|it| it.paused) {
            let say = || format!("candidate {node} leads, though paused");
            self.judge.accuse(checker::Kind::TookPart, self.now, say);
        }
        self.escort(node, term);
        self.close_trap(node);
        let soon = self.now + self.rng.u64(10 * MILLI..2 * SECOND);
        self.queue.plan(soon, Event::Ask { client: node, again: false });
    }

    /// This node believes at this instant: nobody else may.
    pub(super) fn judge_belief(&mut self, node: u8) {
        if !self.scenario.faithful {
            return;
        }
        let acts = |it: &&Node| it.believes(self.now) || it.drains(self.now);
        let other = self.nodes.iter().find(|it| it.index != node && acts(it));
        if let Some(other) = other.map(|it| it.index) {
            let say = || format!("candidates {node} and {other} both lead");
            self.judge.accuse(checker::Kind::DualLeaders, self.now, say);
        }
        self.judge_child(node);
    }

    fn process_of(&self, node: u8) -> Option<&super::process::Process> {
        self.nodes[usize::from(node)].process.as_ref()
    }

    pub(super) fn is_waiting(&self, node: u8, life: u32, id: RequestId) -> bool {
        let it = &self.nodes[usize::from(node)];
        it.life == life && it.process.as_ref().is_some_and(|it| it.waits_for == Some(id))
    }
}
