//! The shell of a candidate, as it ships, around the core: the real driver with its queue of messages,
//! the real publisher of the status, and the real writers of two status files.
//!
//! What these are handed belongs to the world: the store, the three clocks, timers, randomness and the
//! disk (`desk`). They are polled here, and by nobody else, when something that they wait for has
//! happened; so a candidate can be stopped or killed at each of their awaits, and the same seed gives
//! the same history. A paused runtime would do neither: its timers count whole milliseconds of one time
//! for all candidates, and it moves that time by itself.

mod attend;
mod desk;
mod disk;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use fastrand::Rng;
use futures::FutureExt;
use tenure::clock::Moment;
use tenure::config::{FileFormat, StatusFile};
use tenure::driver::{Control, Driver, EventLog, Publisher};
use tenure::election::{
    Config, Election, Input, Progress, Refusal, Request, RequestId, Standing, Transition,
};
use tenure::metrics::Metrics;
use tenure::publish::file::Writer;
use tenure::status::publish_acks::PublishAcks;
use tenure::status::{
    About, Heartbeat, Maintenance, Past, ProbeResult, ProbeState, Published, Role, RouteReport,
};
use tokio::sync::watch;

use desk::Desk;
pub use disk::Disk;

/// The two status files of each candidate, and what stands for its route.
const FILES: [(&str, FileFormat); 2] =
    [("status.json", FileFormat::Json), ("status.env", FileFormat::Env)];
const ROUTE: &str = "route";

/// One running candidate.
pub struct Shell {
    desk: Rc<RefCell<Desk>>,
    control: Control,
    published: watch::Receiver<Published>,
    driver: Task,
    publishers: Task,
    metrics: Metrics,
    /// The transitions that the world has not been told yet.
    transitions: VecDeque<Transition>,
    /// The history when it was last looked at.
    history: Arc<[Past]>,
    /// The number of requests so far.
    requests: u64,
    /// The turns of the driver.
    heartbeat: Heartbeat,
    /// How many of them the world knows of.
    turns: u64,
}

/// Something that is due later, for the world's queue.
pub enum Due {
    /// A timer, which counts by the candidate's clock.
    Timer(std::time::Duration, u32),
    /// A file is to be replaced, as soon as the disk has done it.
    Write(u32),
    /// The publishers have something to do.
    Publishers,
}

impl std::fmt::Debug for Shell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shell").finish_non_exhaustive()
    }
}

impl Shell {
    /// Starts a candidate on this disk, with randomness of its own.
    pub fn start(config: Config, disk: Disk, rng: Rng, now: Moment) -> Self {
        let about = About {
            election: "simulated".to_owned(),
            identity: config.candidate.identity.clone(),
            instance: config.candidate.instance.clone(),
            boot_id: "this".to_owned(),
            store: "simulated",
            store_url: "simulated:".to_owned(),
            lease_duration: config.lease_duration,
        };
        let metrics = Metrics::new(&about, false);
        let rules = config.rules;
        let probes = config.health.map_or(0, |it| it.probes);
        let election = Election::new(config, now);
        let first = Published {
            probes: (0..probes).map(|it| ProbeState::new(it.to_string())).collect(),
            ..Published::first(election.status())
        };
        let history = Arc::clone(&first.history);
        let (sender, published) = watch::channel(first);
        let (control, inbox) = Control::new();
        let desk = Rc::new(RefCell::new(Desk::new(rules, disk, rng, now)));
        let (said, route_acks) = PublishAcks::channel();
        let files = FILES.map(|(name, format)| StatusFile { path: name.into(), format });
        let start = Writer::start(
            files.to_vec(),
            about.clone(),
            metrics.clone(),
            published.clone(),
            desk::outside(),
        );
        // The disk is quick until the candidate runs: a sidecar whose files cannot be written does not
        // start.
        let started = desk::at(&desk, || start.now_or_never());
        let (writer, acks) = started.expect("the disk is quick").expect("the disk works");
        desk.borrow_mut().is_quick = false;
        let route = publish_route(published.clone(), said);
        let publishers = Task::new(async move {
            futures::join!(writer.run(), route);
        });
        let heartbeat = Heartbeat::default();
        let driver = Driver {
            about,
            election,
            store: Arc::new(desk::Store),
            publisher: Publisher::new(sender, acks.and(route_acks)),
            metrics: metrics.clone(),
            inbox,
            heartbeat: heartbeat.clone(),
            log: EventLog::default(),
            now: desk::now,
            timer: desk::sleep,
            entropy: desk::entropy,
        };
        Self {
            desk,
            control,
            published,
            driver: Task::new(driver.run()),
            publishers,
            metrics,
            transitions: VecDeque::new(),
            history,
            requests: 0,
            heartbeat,
            turns: 0,
        }
    }

    /// Returns the metrics of this candidate.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Hands an input to the driver in the way that it arrives there, and lets the driver run until it
    /// waits. Returns the outcome of a command.
    pub fn turn(&mut self, input: Input, now: Moment) -> Option<Result<Progress, Refusal>> {
        let control = self.control.clone();
        match input {
            Input::Answer { id, answer } if id.0 == self.requests => {
                self.desk.borrow_mut().answer(answer);
            }
            // The connection of a request that was given up is closed.
            Input::Answer { .. } => {}
            Input::Changed(change) => self.desk.borrow_mut().notify(change),
            // What it publishes is acknowledged by those who do.
            Input::PublishAcked => {}
            // Its timers may be early, not late: any message makes it look at the clock.
            Input::Timeout => {
                self.say(control.route_reported(RouteReport::default()), now);
            }
            Input::Command(command) => return self.say(control.command(command), now),
            Input::Resign => {
                self.say(control.resign(), now);
            }
            Input::ProbeResult { probe, healthy, begun_in } => {
                let result = ProbeResult { succeeded: healthy, message: String::new(), at: now };
                self.say(control.probe_finished(probe, result, begun_in), now);
            }
            Input::Peer(notice) => {
                self.say(control.peer_notified(notice), now);
            }
            Input::Maintenance { imminent } => {
                let announced = imminent.then(|| Maintenance {
                    event_id: String::new(),
                    kind: "Freeze",
                    not_before: None,
                    started: true,
                    imminent,
                });
                self.say(control.maintenance_reported(announced), now);
            }
            Input::WorkloadExited { term, hold_off } => {
                self.say(control.workload_exited(term, hold_off), now);
            }
        }
        self.run(now);
        None
    }

    /// Sends a message to the driver, and lets it run; returns the reply.
    fn say<T>(&mut self, message: impl Future<Output = T>, now: Moment) -> Option<T> {
        let mut message = Box::pin(message);
        let mut context = Context::from_waker(Waker::noop());
        let sent = message.as_mut().poll(&mut context);
        self.run(now);
        match sent {
            Poll::Ready(reply) => Some(reply),
            Poll::Pending => message.now_or_never(),
        }
    }

    /// Returns whether the driver has had a turn since the last call.
    pub fn has_run(&mut self) -> bool {
        std::mem::replace(&mut self.turns, self.heartbeat.count()) != self.heartbeat.count()
    }

    /// Fires a timer, if its task still waits for it.
    pub fn fire(&mut self, timer: u32, now: Moment) {
        self.desk.borrow_mut().fire(timer);
        self.run(now);
    }

    /// Lets the driver run until it waits.
    fn run(&mut self, now: Moment) {
        self.desk.borrow_mut().now = now;
        desk::at(&self.desk, || self.driver.run());
        self.note_transitions();
    }

    /// Lets the publishers run until they wait.
    pub fn publish(&mut self, now: Moment) {
        self.desk.borrow_mut().now = now;
        desk::at(&self.desk, || self.publishers.run());
        // An acknowledgement wakes the driver.
        self.run(now);
    }

    /// Ends a write on the disk, which fails if `fails`, and lets its writer continue.
    pub fn written(&mut self, write: u32, fails: bool, now: Moment) {
        desk::at(&self.desk, || Desk::write(&self.desk, write, fails));
        self.publish(now);
    }

    /// Ends the process: of the writes in progress, the disk ends those that `ends` picks.
    pub fn kill(self, mut ends: impl FnMut() -> bool) {
        let writes = self.desk.borrow().writes();
        for write in writes {
            if ends() {
                desk::at(&self.desk, || Desk::write(&self.desk, write, false));
            }
        }
    }

    /// Returns what has become due since the last call.
    pub fn due(&mut self) -> Vec<Due> {
        let mut due = self.desk.borrow_mut().due();
        if self.publishers.is_woken() {
            due.push(Due::Publishers);
        }
        due
    }

    /// Returns the next request to the store; its time limit is the driver's own.
    pub fn poll_request(&mut self) -> Option<Request> {
        let op = self.desk.borrow_mut().asked()?;
        self.requests += 1;
        let timeout = std::time::Duration::MAX;
        Some(Request { id: RequestId(self.requests), op, timeout })
    }

    /// Returns whether it no longer waits for the answer to the last request that was taken.
    pub fn has_given_up(&self) -> bool {
        self.desk.borrow().has_given_up()
    }

    /// Returns the next transition.
    pub fn poll_transition(&mut self) -> Option<Transition> {
        self.transitions.pop_front()
    }

    /// Returns what other readers of the status are handed.
    pub fn published(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }

    /// Returns what is published.
    pub fn standing(&self) -> Standing {
        self.published.borrow().status.standing.clone()
    }

    /// Returns whether the driver has ended.
    pub fn is_finished(&self) -> bool {
        self.driver.is_over()
    }

    /// Collects the transitions that were published since the last look, the oldest first.
    fn note_transitions(&mut self) {
        let history = Arc::clone(&self.published.borrow().history);
        if Arc::ptr_eq(&history, &self.history) {
            return;
        }
        let is_new = |new: usize| {
            history[new..].iter().zip(self.history.iter()).any(|(now, before)| now != before)
        };
        let new = (1..history.len()).find(|new| !is_new(*new)).unwrap_or(history.len());
        self.transitions.extend(history[..new].iter().rev().map(|it| it.transition));
        self.history = history;
    }
}

/// Publishes what a route would: the role, without an end of its own.
async fn publish_route(mut published: watch::Receiver<Published>, said: watch::Sender<u64>) {
    while published.changed().await.is_ok() {
        let (sequence, leads) = {
            let it = published.borrow_and_update();
            (it.sequence, it.status.standing.state().is_leading())
        };
        let role = if leads { Role::Active } else { Role::Passive };
        let outside = desk::outside();
        let replace = outside.replace;
        let written = (outside.run)(Box::new(move || replace(Path::new(ROUTE), role.as_str())));
        if written.await.is_ok() {
            said.send_replace(sequence);
        }
    }
}

/// A task that is polled when it was woken.
struct Task {
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Task {
    fn new(future: impl Future<Output = ()> + 'static) -> Self {
        Self { future: Some(Box::pin(future)), woken: Arc::new(Woken(AtomicBool::new(true))) }
    }

    fn is_woken(&self) -> bool {
        self.future.is_some() && self.woken.0.load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.future.is_none()
    }

    /// Polls it until it waits for something.
    fn run(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        while self.woken.0.swap(false, Ordering::Relaxed) {
            let Some(future) = &mut self.future else { return };
            if future.as_mut().poll(&mut context).is_ready() {
                self.future = None;
            }
        }
    }
}
