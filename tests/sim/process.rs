//! One candidate: its machine, and the process in which the real core is driven by the real
//! driver's rule: one event in, the status published, the request sent, the timer armed.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tenure::clock::Moment;
use tenure::election::{
    Chance, Config, Election, Notice, Observation, Request, RequestId, Standing, Status, Transition,
};
use tenure::store::{Candidate, LeaseId, Nonce, Rules};

use super::clock::Clocks;
use super::escort::Escort;
use super::network::Link;
use super::operate::{Aside, Work};
use super::queue::{Event, Queue};
use super::scenario::{NodePlan, Timings};
use super::service::{Service, Told};
use super::{Instant, MILLI, SECOND, Span};

/// A machine with one candidate.
#[derive(Debug)]
pub struct Node {
    pub index: u8,
    pub plan: NodePlan,
    pub clocks: Clocks,
    pub link: Link,
    pub process: Option<Process>,
    /// How many processes there were.
    pub life: u32,
    /// Nothing runs here before.
    pub asleep_until: Instant,
    /// Whether the machine as a whole stands still, and nobody on it can ask anything.
    pub machine_stands: bool,
    /// How it stands still, and for how long.
    pub sleep: Option<(Sleep, Span)>,
    /// Until when it must not stand still, lest that hide what its clocks did.
    pub restless_until: Instant,
    /// When its lease clocks were last wrong beyond their drift.
    pub disturbed: Option<Instant>,
    /// Whether its wall clock was ever set, slewed or stopped.
    pub wall_disturbed: bool,
    /// How long publishers take to say passive.
    pub publisher_delay: Span,
    /// When its process starts, if it runs none.
    pub starts_at: Instant,
    /// The service beside it.
    pub service: Service,
    /// The processes of its terms.
    pub escort: Escort,
    /// Whether a snare waits until it leads.
    pub trapped: bool,
    /// Whether it is to take part again as soon as it is awake.
    pub resumes: bool,
    /// Chance for the core.
    rng: Rng,
    /// Chance for what becomes of its messages.
    pub network: Rng,
}

/// How a node stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Its process is stopped.
    Stopped,
    /// The machine sleeps, and its boot clock knows.
    Suspended { wall_stands: bool },
    /// The machine stands, and no clock of its own knows; the wall clock is put right if `synced`.
    Frozen { synced: bool },
}

/// A running process.
#[derive(Debug)]
pub struct Process {
    pub election: Election,
    /// What was published last.
    pub status: Status,
    /// The request that the driver waits for.
    pub waits_for: Option<RequestId>,
    /// The timer that counts; others are stale.
    pub timer: u32,
    /// When it is over.
    pub wakes_at: Instant,
    /// Counts the times when leadership ended: the publishers' words are for one of them.
    pub ended: u32,
    /// When it is back after it left.
    pub back_after: Span,
    /// The largest term that it has been told.
    pub heard: u64,
    /// The lease that its last request was for.
    pub lease: Option<LeaseId>,
    /// The term that it led in last.
    pub led: Option<u64>,
    /// The term whose deadline was seen to have passed.
    pub over: Option<u64>,
    /// When the request that it waits for was sent.
    pub sent_at: Instant,
    /// When the last renewal that was granted was sent.
    pub renewed_at: Instant,
    /// When a turn first found that the clocks had jumped since its belief's request was sent.
    pub jumped_at: Option<Instant>,
    /// When last a message of its went astray, or it stood still.
    pub disturbed_at: Option<Instant>,
    /// From when its last belief counts.
    pub believed: Option<Moment>,
    /// The lease that lapsed while it led, and from when that lease counts.
    pub lapsed: Option<(LeaseId, Moment)>,
    /// The nonce of its last lease.
    pub nonce: Option<Nonce>,
    /// Whether an operator took it out of the election.
    pub paused: bool,
    /// What its probes told it.
    pub told: Told,
    /// The work that goes on after its last leadership.
    pub work: Option<Work>,
    /// For whom it stands aside.
    pub aside: Option<Aside>,
    /// When its last leadership ended, under which nonce, and whether all publishers have said so.
    pub last_word: Option<(Moment, Option<Nonce>, bool)>,
    /// Whether the last answer was a refusal.
    pub refused: bool,
    /// When it last looked, after how long, and how often in a row after about as long.
    pub looks: (Instant, Span, u32),
    /// The lease that it sees standing there, where observers count the time.
    pub observation: Option<Observation>,
    /// The hold-off of what it is asked for now.
    pub asked_hold_off: Option<Span>,
}

impl Process {
    /// It looks again; says whether so many times in a row after as long as before that no chance
    /// can be in it.
    pub fn looks_again(&mut self, now: Instant) -> bool {
        let (last, before, alike) = self.looks;
        let gap = now - last;
        let again = gap > SECOND && gap.abs_diff(before) < 60 * MILLI;
        self.looks = (now, gap, if again { alike + 1 } else { 0 });
        self.looks.2 >= 16
    }

    /// Something goes wrong with it.
    pub fn disturb(&mut self, now: Instant) {
        self.disturbed_at = Some(now);
    }

    /// Notes what this moment says of the published belief: once over, it must stay so; after a
    /// jump of the clocks, nothing but a later renewal may bring it back.
    pub fn note(&mut self, moment: Moment, now: Instant) {
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
    /// A machine that is switched on.
    pub fn new(index: u8, plan: NodePlan, seed: u64) -> Self {
        Self {
            index,
            plan,
            clocks: Clocks::new(plan.drift_ppm, plan.clock_start),
            link: Link::default(),
            process: None,
            life: 0,
            asleep_until: 0,
            machine_stands: false,
            sleep: None,
            restless_until: 0,
            disturbed: None,
            wall_disturbed: false,
            publisher_delay: 0,
            starts_at: 0,
            service: Service::default(),
            escort: Escort::default(),
            resumes: false,
            trapped: false,
            rng: Rng::with_seed(seed),
            network: Rng::with_seed(!seed),
        }
    }

    /// Starts a process with a new instance.
    pub fn start(&mut self, rules: Rules, now: Instant) {
        self.life += 1;
        let Timings {
            lease_duration,
            renew_deadline,
            retry_period,
            request_timeout,
            activation_delay,
            drain_timeout,
        } = self.plan.timings;
        let config = Config {
            candidate: Arc::new(Candidate {
                // Some bear the same name: only the instance tells them apart.
                identity: format!("candidate-{}", self.index / 2),
                instance: format!("{}-{}", self.index, self.life),
                address: None,
            }),
            rules,
            lease_duration,
            renew_deadline,
            retry_period,
            request_timeout,
            activation_delay,
            drain_timeout,
            health: self.plan.probing.map(|it| it.rule),
            escorts: self.plan.escorts,
            observe: self.plan.observe,
        };
        let election = Election::new(config, self.clocks.read(now));
        let status = election.status();
        self.process = Some(Process {
            election,
            status,
            waits_for: None,
            timer: 0,
            wakes_at: Instant::MAX,
            ended: 0,
            back_after: 0,
            heard: 0,
            lease: None,
            led: None,
            over: None,
            sent_at: now,
            renewed_at: now,
            jumped_at: None,
            disturbed_at: None,
            believed: None,
            lapsed: None,
            nonce: None,
            paused: false,
            told: Told::default(),
            work: None,
            aside: None,
            last_word: None,
            refused: false,
            looks: (now, 0, 0),
            observation: None,
            asked_hold_off: None,
        });
    }

    /// Draws chance for one turn.
    pub fn chance(&mut self) -> Chance {
        Chance { lease: self.rng.u128(..), nonce: Nonce(self.rng.u128(..)), jitter: self.rng.f32() }
    }

    /// Reads this machine's clocks.
    pub fn moment(&self, now: Instant) -> Moment {
        self.clocks.read(now)
    }

    /// Whether it would answer at this instant that it leads; a machine that stands answers
    /// nobody.
    pub fn believes(&self, now: Instant) -> bool {
        let Some(process) = &self.process else { return false };
        !self.machine_stands && process.status.is_leader(self.clocks.read(now))
    }

    /// Whether work that was begun while it led goes on under its lease at this instant.
    pub fn drains(&self, now: Instant) -> bool {
        let Some(process) = &self.process else { return false };
        let left = process.status.drain_remaining(self.clocks.read(now));
        let over = process.work.is_none_or(|it| it.over);
        !self.machine_stands && !over && left.is_some_and(|it| !it.is_zero())
    }

    /// Whether nothing of its own keeps it from competing.
    pub fn is_fit(&self) -> bool {
        let fit = |it: &Process| {
            let well = self.plan.probing.is_none() || it.told.is_well();
            well && !it.paused && it.aside.is_none()
        };
        !self.plan.observe && self.escort.child.is_none() && self.process.as_ref().is_some_and(fit)
    }

    /// Whether its wall clock was never wrong beyond its drift.
    pub fn has_true_wall(&self) -> bool {
        !self.wall_disturbed
    }

    /// Has the driver sleep until the core wants to be called.
    ///
    /// The real driver sleeps a second at most. Where no clock is disturbed, each of those naps
    /// would find nothing due, so they are slept as one; [`Self::nap`] is for where one is.
    pub fn arm(&mut self, wait: Duration, now: Instant, queue: &mut Queue) {
        let Some(process) = &mut self.process else { return };
        process.timer += 1;
        if wait == Duration::MAX {
            process.wakes_at = Instant::MAX;
            return;
        }
        // Timers tell milliseconds apart.
        let at = now + self.clocks.timer(wait).max(1_000_000);
        process.wakes_at = at;
        queue.plan(at, Event::Wake { node: self.index, stamp: process.timer });
    }

    /// Has the driver wake within its longest sleep, after `share` of it, if it would not sooner.
    pub fn nap(&mut self, share: f64, now: Instant, queue: &mut Queue) {
        let Some(process) = &mut self.process else { return };
        let at = now + (share * SECOND as f64) as Span;
        if at < process.wakes_at {
            process.timer += 1;
            process.wakes_at = at;
            queue.plan(at, Event::Wake { node: self.index, stamp: process.timer });
        }
    }

    /// The next request of its core.
    pub fn command(&mut self) -> Option<Request> {
        self.process.as_mut()?.election.poll_command()
    }

    /// The next change of state that its core tells of.
    pub fn change(&mut self) -> Option<Transition> {
        let process = self.process.as_mut()?;
        while let Some(notice) = process.election.poll_notice() {
            if let Notice::Transition(change) = notice {
                return Some(change);
            }
        }
        None
    }
}
