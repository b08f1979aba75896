//! The world of one episode: handles one event after another, advances true time between them, and
//! passes everything to the checker.
//!
//! It makes no decision of the election: candidates run the production core, by their
//! [driver](super::driver).

use fastrand::Rng;
use tenure::election::{Input, RequestId};

use super::checker::{self, Checker, Violation};
use super::client::{Client, Resource};
use super::engine::Extent;
use super::examine::Examination;
use super::network;
use super::peers::Network;
use super::post::Post;
use super::process::Node;
use super::queue::{Event, Queue};
use super::scenario::Scenario;
use super::store::Store;
use super::timeline::Timeline;
use super::{Instant, SECOND, Span};

/// The outcome of an episode.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The true time that has passed.
    pub length: Span,
    /// The number of faults: those of the schedule, and each message that they affected.
    pub faults: u64,
    /// The number of leaderships that began.
    pub elections: u64,
    /// The reads of standbys between two notices of an honest leader, and the time between these.
    pub notified: (u64, Span),
    /// A digest of all events.
    pub history: u64,
    /// The first violation, if there is one.
    pub violation: Option<Violation>,
}

impl Outcome {
    /// Creates the outcome of an episode that panicked.
    pub fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without a message".to_owned());
        let violation = Some(Violation { kind: checker::Kind::Panicked, at: 0, text });
        Self { length: 0, faults: 0, elections: 0, notified: (0, 0), history: 0, violation }
    }
}

/// The world.
#[derive(Debug)]
pub struct World<'a> {
    pub(super) scenario: &'a Scenario,
    /// The faults of the schedule that are injected.
    pub(super) kept: &'a [u32],
    pub(super) now: Instant,
    pub(super) queue: Queue,
    pub(super) nodes: Vec<Node>,
    pub(super) clients: Vec<Client>,
    pub(super) resource: Resource,
    pub(super) store: Store,
    /// The state that a rollback of the store restores.
    pub(super) snapshot: Option<Store>,
    pub(super) checker: Checker,
    pub(super) examination: Examination,
    /// The pending faults of this phase, the next one last.
    pub(super) upcoming: Vec<u32>,
    /// The faults in effect, with the nodes that they affect.
    pub(super) lasting: Vec<(u32, u8)>,
    /// The nodes that a trap has caught, one bit each.
    pub(super) trapped: u8,
    pub(super) faults: u64,
    pub(super) rng: Rng,
    /// When the last message in transit reaches the store.
    pub(super) last_arrival: Instant,
    pub(super) post: Post,
    pub(super) peers: Network,
    history: u64,
    /// The lines of the trace, if it is enabled.
    pub(super) trace: Option<Vec<String>>,
    /// The recorded timeline, if it is enabled.
    pub(super) timeline: Option<Timeline>,
}

impl<'a> World<'a> {
    /// Creates the world at the start of an episode.
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
            store: Store::new(scenario.store, scenario.store_ppm)
                .losing(std::time::Duration::from_nanos(scenario.loses)),
            snapshot: None,
            checker: Checker::default(),
            examination: Examination::default(),
            upcoming: Vec::new(),
            lasting: Vec::new(),
            trapped: 0,
            faults: 0,
            rng: seeds,
            last_arrival: 0,
            post: Post::default(),
            peers: Network::new(scenario.seed),
            history: scenario.seed,
            trace: None,
            timeline: None,
        };
        world.begin();
        world
    }

    /// Enables the trace.
    #[must_use]
    pub fn with_trace(mut self) -> Self {
        self.trace = Some(Vec::new());
        self
    }

    /// Enables the timeline; clients then send a request every second.
    #[must_use]
    pub fn with_timeline(mut self) -> Self {
        self.timeline = Some(Timeline::default());
        self
    }

    /// Returns the timeline, if it is enabled.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// Returns the lines of the trace.
    pub fn lines(&self) -> impl Iterator<Item = &String> {
        self.trace.iter().flatten()
    }

    fn begin(&mut self) {
        if let Some(term) = self.scenario.seeded {
            self.store.seed(term);
            self.checker.floor = term;
        }
        self.snapshot = Some(self.store.clone());
        for index in 0..self.nodes.len() {
            let at = self.rng.u64(..SECOND);
            self.queue.plan(at, Event::Start { node: index as u8 });
            self.nodes[index].starts_at = at;
            let at = at + self.rng.u64(..10 * SECOND);
            self.queue.plan(at, Event::Ask { client: index as u8, again: true });
        }
        self.begin_phase();
    }

    /// Runs to the end of the episode, or to the first violation.
    pub fn play(&mut self) -> Outcome {
        while !self.is_over() && self.step() {}
        Outcome {
            length: self.now,
            faults: self.faults,
            elections: self.checker.elections,
            notified: self.peers.notified,
            history: self.history,
            violation: self.checker.violation.clone(),
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
        self.checker.violation.as_ref()
    }

    /// Returns the candidates that report at this instant that they lead, with their terms.
    pub fn leaders(&self) -> Vec<(u8, u64)> {
        let leads = self.nodes.iter().filter(|it| it.believes(self.now));
        leads.filter_map(|it| Some((it.index, it.process.as_ref()?.status.term()?))).collect()
    }

    fn is_over(&self) -> bool {
        self.checker.violation.is_some() || self.examination.is_over()
    }

    /// Handles the next event, if there is one.
    pub fn step(&mut self) -> bool {
        let Some((at, event)) = self.queue.pop() else { return false };
        assert!(at >= self.now, "time went back");
        self.now = at;
        self.handle(event);
        true
    }

    fn handle(&mut self, event: Event) {
        let waits_for = match event {
            Event::Deliver { message } => Some(self.post.addressee(message)),
            Event::Notice { message } => Some(self.peers.addressee(message)),
            // Only a stop of the machine stops a watchdog and its child.
            Event::Watchdog { node, .. } | Event::ChildEnds { node, .. } => {
                self.nodes[usize::from(node)].machine_stands.then_some(node)
            }
            other => other.needs_awake(),
        };
        if let Some(node) = waits_for {
            let awake = self.nodes[usize::from(node)].asleep_until;
            if awake > self.now {
                if self.has_shells() && matches!(event, Event::Wake { .. }) {
                    return self.queue.plan(self.fires_after_sleep(node), event);
                }
                // A process that continues reads its socket before it checks how long it waited.
                let patience = u64::from(matches!(event, Event::GiveUp { .. }));
                return self.queue.plan(awake + patience, event);
            }
        }
        self.remember(event);
        match event {
            Event::Wake { node, stamp } if self.has_shells() => self.fire(node, stamp),
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
            Event::PublishAcked { node, stamp } => {
                if self.process_of(node).is_some_and(|it| it.ended == stamp) {
                    self.publish_acked(node);
                    self.turn(node, Input::PublishAcked);
                }
            }
            Event::Written { node, life, write } => self.written(node, life, write),
            Event::Publish { node, life } => self.run_publishers(node, life),
            Event::Changed { node } => self.wake(node),
            Event::Told { node, back } => self.tell(node, back),
            Event::Arrive { message } => self.arrive(message),
            Event::Deliver { message } => self.deliver(message),
            Event::Continue { node } => self.continue_machine(node),
            Event::Start { node } => self.start(node),
            Event::Ask { client, again } => self.ask(client, again),
            Event::Question { client, stamp } => self.question(client, stamp),
            Event::Answered { client, stamp } => self.answered(client, stamp),
            Event::Inject { fault } => self.inject(fault),
            Event::Order { node, fault } => self.order(node, fault),
            Event::EndFault { fault } => self.end_fault(fault),
            Event::Examine => self.examine(),
            Event::Notice { message } => self.deliver_notice(message),
            Event::Connect { node, stamp } => self.connect(node, stamp),
            Event::Silence { node, stamp } => self.end_silence(node, stamp),
            Event::Lie { fault } => self.lie(fault),
            Event::HandoverDue => self.check_handover(),
            Event::Probe { node, probe, stamp } => self.probe(node, probe, stamp),
            Event::Probed { node, probe, stamp } => self.probed(node, probe, stamp),
            Event::Drained { node, stamp } => self.drained(node, stamp),
            Event::Launch { node, stamp } => self.launch(node, stamp),
            Event::Watchdog { node, stamp } => self.run_watchdog(node, stamp),
            Event::ChildEnds { node, stamp } => {
                self.child_ends(node, Some(stamp), None);
            }
            Event::WorkloadExited { node, stamp } => self.workload_exited(node, stamp),
        }
    }

    /// Adds an event to the digest of the history.
    fn remember(&mut self, event: Event) {
        self.mix(self.now);
        self.mix(event.digest());
    }

    pub(super) fn mix(&mut self, value: u64) {
        self.history = (self.history.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Adds a line to the trace, if it is enabled.
    pub(super) fn log(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{:>12.6} {}", self.now as f64 / SECOND as f64, line(self));
            self.trace.iter_mut().for_each(|it| it.push(line.clone()));
        }
    }

    /// Returns whether the candidates run with their shells.
    pub(super) fn has_shells(&self) -> bool {
        self.scenario.extent == Extent::Shell
    }

    pub(super) fn process_of(&self, node: u8) -> Option<&super::process::Process> {
        self.nodes[usize::from(node)].process.as_deref()
    }

    pub(super) fn is_waiting(&self, node: u8, life: u32, id: RequestId) -> bool {
        let it = &self.nodes[usize::from(node)];
        it.life == life && it.process.as_ref().is_some_and(|it| it.waits_for == Some(id))
    }
}
