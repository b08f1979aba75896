//! One candidate: its machine, and the process that drives the real core as the real driver does:
//! one event in, the status published, the request sent, the timer armed.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tenure::clock::Moment;
use tenure::election::{
    Config, Entropy, LeaseView, Notice, Request, RequestId, Standing, Status, StoreHealth,
};
use tenure::lease::{Candidate, LeaseId, Nonce, Rules};

use super::child::Workload;
use super::clock::Clocks;
use super::due::Sighting;
use super::engine::{Engine, Extent};
use super::network::Link;
use super::operate::{HoldOff, Work};
use super::pace::Pace;
use super::peers::Subscription;
use super::queue::{Event, Queue};
use super::register::Client;
use super::renewals::Renewals;
use super::requests::Asked;
use super::scenario::NodePlan;
use super::service::{ProbeResults, Service};
use super::settings::Timings;
use super::shell::Disk;
use super::{Instant, SECOND, Span};

/// A machine with one candidate.
#[derive(Debug)]
pub struct Node {
    pub index: u8,
    pub plan: NodePlan,
    pub clocks: Clocks,
    pub link: Link,
    /// Its process, boxed, so that the machines that a check goes through are small.
    pub process: Option<Box<Process>>,
    /// The number of processes so far.
    pub life: u32,
    /// Nothing runs on the machine before this.
    pub asleep_until: Instant,
    /// Whether the whole machine stands still, so that no request on it is answered.
    pub machine_stands: bool,
    /// How it stands still, and for how long.
    pub sleep: Option<(Sleep, Span)>,
    /// Until when it must not stand still, because that would hide a disturbance of its clocks.
    pub restless_until: Instant,
    /// When its lease clocks were last wrong beyond their drift.
    pub disturbed: Option<Instant>,
    /// Whether its wall clock was ever set, slewed or stopped.
    pub wall_disturbed: bool,
    /// Its status files, where it has some.
    pub disk: Disk,
    /// Until when writes of these take as long as a lease.
    pub disk_hangs_until: Instant,
    /// How long publishers take to publish passive.
    pub publisher_delay: Span,
    /// When its process starts, if there is none.
    pub starts_at: Instant,
    /// The service next to the candidate.
    pub service: Service,
    /// The supervised processes of its terms.
    pub workload: Workload,
    /// Whether a trap disconnects it as soon as it leads.
    pub cut_when_leading: bool,
    /// Whether it must be resumed when it wakes up.
    pub resumes: bool,
    /// Whether maintenance of this machine is imminent.
    pub maintenance: bool,
    /// Randomness for the core.
    rng: Rng,
    /// Randomness for the fate of its messages.
    pub network: Rng,
}

/// How a node stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Its process is stopped.
    Stopped,
    /// The machine is suspended; its boot clock counts that.
    Suspended { wall_stands: bool },
    /// The machine is frozen and no lease clock counts that; the wall clock is corrected if
    /// `synced`.
    Frozen { synced: bool },
}

#[derive(Debug)]
pub struct Process {
    pub engine: Engine,
    /// The last published status. Only its standing is kept up to date, since the checker and the
    /// clients of the world read nothing else.
    pub status: Status,
    /// The outstanding request of the driver.
    pub waits_for: Option<RequestId>,
    /// The number of the current timer; others are stale.
    pub timer: u32,
    /// When that timer fires.
    pub wakes_at: Instant,
    /// Counts the ends of leadership, to match acknowledgements of publishers.
    pub ended: u32,
    /// How long after its exit it starts again.
    pub back_after: Span,
    /// The highest term that it has seen.
    pub seen_term: u64,
    /// The lease of its last request.
    pub lease: Option<LeaseId>,
    /// The last term that it led.
    pub led: Option<u64>,
    /// When that began.
    pub elected_at: Instant,
    /// The term whose deadline was seen to have passed.
    pub over: Option<u64>,
    /// When the outstanding request was sent.
    pub sent_at: Instant,
    /// When it is given up, by the rate that its timer's clock had then.
    pub given_up_at: Instant,
    /// When the last granted renewal was sent.
    pub renewed_at: Instant,
    /// When a turn first found that the clocks had jumped since the request of its belief was sent.
    pub jumped_at: Option<Instant>,
    /// When a message was last lost or it last stood still.
    pub disturbed_at: Option<Instant>,
    /// From when its last belief counts.
    pub believed: Option<Moment>,
    /// The lease that lapsed while it led, and from when that lease counts.
    pub lapsed: Option<(LeaseId, Moment)>,
    /// The lease that lapsed in its drain, when that drain began, and its length.
    pub lapsed_drain: Option<(LeaseId, Moment, Duration)>,
    /// The nonce of its last lease.
    pub nonce: Option<Nonce>,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Whether it was told that maintenance of its machine is imminent.
    pub maintenance: bool,
    /// The results of its probes.
    pub probe_results: ProbeResults,
    /// The drain after its last leadership.
    pub work: Option<Work>,
    /// Its hold-off.
    pub hold_off: Option<HoldOff>,
    /// When its last leadership ended, under which nonce, and whether all publishers have published
    /// that.
    pub passive_since: Option<(Moment, Option<Nonce>, bool)>,
    /// Whether the last answer was a refusal.
    pub refused: bool,
    /// When it last read the store, the interval before that, and how many similar intervals in a
    /// row.
    pub reads: (Instant, Span, u32),
    /// The lease that it waits for, in stores where observers count the time.
    pub sighting: Option<Sighting>,
    /// Its last request.
    pub asked: Asked,
    /// When its reads and bids are due.
    pub pace: Pace,
    /// When its renewals are due.
    pub renewals: Renewals,
    /// The hold-off of the current command.
    pub asked_hold_off: Option<Span>,
    /// Its stream from the leader, and what follows from it.
    pub subscription: Subscription,
    /// Its register, if the store is one.
    pub client: Option<Client>,
}

impl Process {
    /// Records a disturbance.
    pub fn disturb(&mut self, now: Instant) {
        self.disturbed_at = Some(now);
    }

    /// Records what the published belief amounts to at this moment. A belief that is over must stay
    /// over; after a jump of the clocks only a later renewal may restore it.
    pub fn record(&mut self, moment: Moment, now: Instant) {
        if let Standing::Leader { term, belief, .. } = &self.status.standing {
            self.believed = Some(belief.sent);
            if belief.until_end(moment).is_zero() {
                self.over = Some(*term);
            }
            if belief.sent.jumped(moment) {
                self.jumped_at.get_or_insert(now);
            }
        }
    }
}

impl Node {
    /// Creates a machine without a process.
    pub fn new(index: u8, plan: NodePlan, seed: u64) -> Self {
        Self {
            index,
            plan,
            clocks: Clocks::new(plan.drift_ppm, plan.clock_start, plan.wall_ahead),
            link: Link::default(),
            process: None,
            life: 0,
            asleep_until: 0,
            machine_stands: false,
            sleep: None,
            restless_until: 0,
            disturbed: None,
            wall_disturbed: false,
            disk: Disk::default(),
            disk_hangs_until: 0,
            publisher_delay: 0,
            starts_at: 0,
            service: Service::default(),
            workload: Workload::default(),
            resumes: false,
            maintenance: false,
            cut_when_leading: false,
            rng: Rng::with_seed(seed),
            network: Rng::with_seed(!seed),
        }
    }

    /// Returns the settings of its process.
    fn config(&self, rules: Rules) -> Config {
        let Timings {
            lease_duration,
            renew_deadline,
            retry_period,
            request_timeout,
            activation_delay,
            drain_timeout,
        } = self.plan.timings;
        Config {
            candidate: Arc::new(Candidate {
                // Two nodes share an identity and differ only in their instance.
                identity: format!("candidate-{}", self.index / 2),
                instance: format!("{}-{}", self.index, self.life),
                address: None,
                peer: None,
            }),
            rules,
            lease_duration,
            renew_deadline,
            retry_period,
            request_timeout,
            activation_delay,
            drain_timeout,
            health: self.plan.probing.map(|it| it.rule),
            has_workload: self.plan.has_workload,
            wait: None,
            observe: self.plan.observe,
            priority: Config::DEFAULT_PRIORITY,
        }
    }

    /// Starts a process with a new instance.
    pub fn start(&mut self, extent: Extent, rules: Rules, now: Instant) {
        self.life += 1;
        if let (Some(restarted), true) = (&mut self.plan.restarted, self.life > 1) {
            std::mem::swap(&mut self.plan.timings, restarted);
        }
        self.workload.is_pending = false;
        let config = self.config(rules);
        let moment = self.clocks.read(now);
        // A core is given its randomness turn by turn.
        let rng = match extent {
            Extent::Core => Rng::with_seed(0),
            Extent::Shell => self.rng.fork(),
        };
        let engine = Engine::start(extent, config, &self.disk, rng, moment);
        let status = Status {
            standing: engine.standing(),
            since: moment,
            holder: None,
            successor: None,
            hold_off: None,
            workload_term: None,
            released_term: None,
            contact_due: None,
            lease: LeaseView::default(),
            store: StoreHealth::default(),
            wait: None,
        };
        self.process = Some(Box::new(Process {
            engine,
            status,
            waits_for: None,
            timer: 0,
            wakes_at: Instant::MAX,
            ended: 0,
            back_after: 0,
            seen_term: 0,
            lease: None,
            led: None,
            elected_at: 0,
            over: None,
            sent_at: now,
            given_up_at: now,
            renewed_at: now,
            jumped_at: None,
            disturbed_at: None,
            believed: None,
            lapsed: None,
            lapsed_drain: None,
            nonce: None,
            paused: false,
            maintenance: false,
            probe_results: ProbeResults::default(),
            work: None,
            hold_off: None,
            passive_since: None,
            refused: false,
            reads: (now, 0, 0),
            sighting: None,
            asked: Asked::Read,
            pace: Pace::new(moment),
            renewals: Renewals::new(moment),
            asked_hold_off: None,
            subscription: Subscription::default(),
            client: None,
        }));
    }

    /// Draws the randomness for one turn.
    pub fn entropy(&mut self) -> Entropy {
        Entropy {
            lease: self.rng.u128(..),
            nonce: Nonce(self.rng.u128(..)),
            jitter: self.rng.f32(),
        }
    }

    /// Returns the readings of this machine's clocks.
    pub fn moment(&self, now: Instant) -> Moment {
        self.clocks.read(now)
    }

    /// Returns whether it would report at this instant that it leads; a machine that stands still
    /// reports nothing.
    pub fn believes(&self, now: Instant) -> bool {
        let Some(process) = &self.process else { return false };
        let leads = matches!(process.status.standing, Standing::Leader { .. });
        leads && !self.machine_stands && process.status.is_leader(self.clocks.read(now))
    }

    /// Returns whether work of its leadership continues under its lease at this instant.
    pub fn drains(&self, now: Instant) -> bool {
        let Some(process) = &self.process else { return false };
        if self.machine_stands || process.work.is_none_or(|it| it.over) {
            return false;
        }
        let now = self.clocks.read(now);
        let left = process.status.drain_remaining(now).min(process.status.protected_for(now));
        left.is_some_and(|it| !it.is_zero())
    }

    /// Returns whether nothing of its own prevents it from competing.
    pub fn is_fit(&self) -> bool {
        let fit = |it: &Process| {
            let well = self.plan.probing.is_none() || it.probe_results.is_healthy();
            well && !it.paused && !it.maintenance && it.hold_off.is_none()
        };
        !self.plan.observe
            && self.workload.child.is_none()
            && self.process.as_deref().is_some_and(fit)
    }

    /// Arms the driver's timer for the core's next deadline.
    ///
    /// The real driver sleeps a second at most. While no clock is disturbed, these wake-ups would
    /// find nothing due, so they are combined into one; [`Self::nap`] is for disturbed clocks.
    pub fn arm(&mut self, wait: Duration, now: Instant, queue: &mut Queue) {
        let Some(process) = &mut self.process else { return };
        if wait == Duration::MAX {
            process.timer += 1;
            process.wakes_at = Instant::MAX;
            return;
        }
        // The granularity of timers is a millisecond.
        let at = now + self.clocks.timer(wait).max(1_000_000);
        // A flood of notices would leave as many stale timers behind; to wake up early is harmless.
        let is_pending = now < process.wakes_at && process.wakes_at <= at + 1_000;
        if process.subscription.hears && is_pending {
            return;
        }
        process.timer += 1;
        process.wakes_at = at;
        queue.plan(at, Event::Wake { node: self.index, stamp: process.timer });
    }

    /// Wakes the driver after `share` of its longest sleep, unless it wakes earlier.
    pub fn nap(&mut self, share: f64, now: Instant, queue: &mut Queue) {
        let Some(process) = &mut self.process else { return };
        let at = now + (share * SECOND as f64) as Span;
        if at < process.wakes_at {
            process.timer += 1;
            process.wakes_at = at;
            queue.plan(at, Event::Wake { node: self.index, stamp: process.timer });
        }
    }

    /// Returns the next request of the core.
    pub fn poll_request(&mut self) -> Option<Request> {
        self.process.as_mut()?.engine.poll_request()
    }

    /// Returns the next notice of the core, or the next state transition of a shell.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.process.as_mut()?.engine.poll_notice()
    }
}
