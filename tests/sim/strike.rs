//! What each fault does to the world.
//!
//! In a faithful episode it leaves out whatever would break the claim's assumptions: clocks that
//! lose more than the margin unseen, and a lease freed behind its holder's back.

use std::time::Duration;

use tenure::election::Election;

use super::chart;
use super::clock::Which;
use super::faults::{Fault, Kind, Target};
use super::network::Link;
use super::process::{Node, Sleep};
use super::queue::Event;
use super::scenario::Nature;
use super::store;
use super::world::World;
use super::{Instant, SECOND, Span, span};

/// A freeze that the wall clock shows for certain: over the second that it must be ahead.
const SEEN_FREEZE: Span = 2 * SECOND;

impl World<'_> {
    /// A fault of the schedule begins.
    pub(super) fn strike(&mut self, index: u32) {
        self.plan_strike();
        let fault = self.scenario.faults[index as usize];
        let mask = self.struck(fault.target);
        let mut strikes = false;
        match fault.kind {
            Kind::Weather(_) | Kind::Cut { .. } | Kind::Outage { .. } | Kind::Snare => {
                self.last(index, mask, fault.length);
                strikes = true;
            }
            Kind::SlowPublisher => {
                self.each(mask, |world, node| {
                    world.nodes[node].publisher_delay = fault.length;
                });
                self.last(index, mask, fault.length);
                strikes = true;
            }
            Kind::Pause
            | Kind::Suspend { .. }
            | Kind::Freeze { .. }
            | Kind::Restore { .. }
            | Kind::Jump { .. }
            | Kind::Slew { .. }
            | Kind::Crash
            | Kind::Resign => {
                self.each(mask, |world, node| strikes |= world.strike_node(node, &fault));
            }
            _ => strikes = self.strike_store(&fault),
        }
        self.faults += u64::from(strikes);
        if strikes {
            self.tell(|_| {
                format!("fault {index}: {:?} for {} ms", fault.kind, fault.length / 1_000_000)
            });
        }
    }

    /// A lasting fault is over.
    pub(super) fn heal(&mut self, index: u32) {
        let Some(at) = self.lasting.iter().position(|(it, _)| *it == index) else { return };
        let (_, mask) = self.lasting.swap_remove(at);
        if self.scenario.faults[index as usize].kind == Kind::Snare {
            self.snared &= !mask;
        }
        if self.scenario.faults[index as usize].kind == Kind::SlowPublisher {
            self.each(mask, |world, node| world.nodes[node].publisher_delay = 0);
        }
        self.relink();
        self.tell(|_| format!("fault {index} is over"));
    }

    fn last(&mut self, index: u32, mask: u8, length: Span) {
        self.lasting.push((index, mask));
        self.relink();
        self.queue.plan(self.now + length, Event::Heal { fault: index });
    }

    fn each(&mut self, mask: u8, mut strike: impl FnMut(&mut Self, usize)) {
        for node in 0..self.nodes.len() {
            if mask & (1 << node) != 0 {
                strike(self, node);
            }
        }
    }

    /// Whom a target means now, one bit each.
    fn struck(&self, target: Target) -> u8 {
        let leader = || self.nodes.iter().position(|it| it.believes(self.now)).unwrap_or(0);
        match target {
            Target::Node(node) => 1 << node,
            Target::Leader => 1 << leader(),
            Target::Holder => {
                let held = |it: &&Node| {
                    let lease = it.process.as_ref().and_then(|it| it.lease);
                    lease.is_some_and(|lease| self.store.is_leased_to(lease))
                };
                self.nodes.iter().find(held).map_or(0, |it| 1 << it.index)
            }
            Target::All => u8::MAX,
        }
    }

    /// Works out anew how everybody is connected.
    pub(super) fn relink(&mut self) {
        for (node, it) in self.nodes.iter_mut().enumerate() {
            let mut link = Link::default();
            for (index, mask) in &self.lasting {
                let caught = self.snared & (1 << node) != 0;
                match self.scenario.faults[*index as usize].kind {
                    _ if mask & (1 << node) == 0 => {}
                    Kind::Snare if caught => link.cut = Some(false),
                    kind => link.worsen(kind),
                }
            }
            it.link = link;
        }
    }

    /// A fault of one machine or process; says whether it was let happen.
    fn strike_node(&mut self, node: usize, fault: &Fault) -> bool {
        let it = &mut self.nodes[node];
        if it.asleep_until > self.now {
            return false;
        }
        let stands = matches!(fault.kind, Kind::Pause | Kind::Suspend { .. } | Kind::Freeze { .. });
        if stands && self.scenario.faithful && it.restless_until > self.now {
            return false;
        }
        match fault.kind {
            Kind::Pause => self.sleep(node, Sleep::Stopped, fault.length),
            Kind::Suspend { wall_stands } => {
                if !self.allows(node, Nature::Sleepy) {
                    return false;
                }
                self.sleep(node, Sleep::Suspended { wall_stands }, fault.length);
            }
            Kind::Freeze { synced } => return self.freeze(node, synced, fault.length),
            Kind::Restore { wall } => return self.restore(node, wall, fault.length),
            Kind::Jump { which, by } => return self.jump(node, which, by),
            Kind::Slew { ppm } => {
                if !self.allows(node, Nature::Slewed) {
                    return false;
                }
                let it = &mut self.nodes[node];
                it.clocks.slew(i64::from(ppm), self.now);
                it.wall_disturbed = true;
                self.disturbed(node);
            }
            Kind::Crash => self.crash(node, Some(fault.length)),
            Kind::Resign => self.resign(node, fault.length),
            _ => return false,
        }
        true
    }

    /// Whether a node's clocks may err in this way.
    fn allows(&self, node: usize, nature: Nature) -> bool {
        !self.scenario.faithful || self.nodes[node].plan.nature == nature
    }

    /// The driver finds out within its longest sleep; the judge at once.
    fn disturbed(&mut self, node: usize) {
        let share = self.rng.f64();
        let it = &mut self.nodes[node];
        if let Some(process) = &mut it.process {
            process.undisturbed = false;
        }
        it.nap(share, self.now, &mut self.queue);
        if it.believes(self.now) {
            self.judge_belief(node as u8);
        }
    }

    fn jump(&mut self, node: usize, which: Which, by: i64) -> bool {
        if !self.allows(node, Nature::Jumpy) {
            return false;
        }
        let apart = 2 * span(self.nodes[node].plan.timings.lease_duration);
        let it = &mut self.nodes[node];
        if which == Which::Wall {
            it.wall_disturbed = true;
        } else {
            // Two lease clocks that are both wrong may hide a pause from each other.
            let recent = it.disturbed.is_some_and(|last| self.now < last + apart);
            if self.scenario.faithful && recent {
                return false;
            }
            it.disturbed = Some(self.now);
        }
        it.clocks.jump(which, by, self.now);
        self.disturbed(node);
        true
    }

    fn freeze(&mut self, node: usize, synced: bool, length: Span) -> bool {
        let it = &mut self.nodes[node];
        if !self.scenario.faithful {
            self.sleep(node, Sleep::Frozen { synced }, length);
            return true;
        }
        match it.plan.nature {
            Nature::Freezing => {
                let apart = 2 * span(it.plan.timings.lease_duration);
                if it.disturbed.is_some_and(|last| self.now < last + apart) {
                    return false;
                }
                let length = length.min(it.plan.freeze_budget);
                it.disturbed = Some(self.now + length);
                self.sleep(node, Sleep::Frozen { synced }, length);
                true
            }
            Nature::Virtual => {
                self.sleep(node, Sleep::Frozen { synced: true }, length.max(SEEN_FREEZE));
                true
            }
            _ => false,
        }
    }

    /// Both lease clocks go back by more than a lease-duration, so that each belief began in what
    /// is their future now; the wall clock by a part of it.
    fn restore(&mut self, node: usize, wall: u8, length: Span) -> bool {
        if !self.allows(node, Nature::Virtual) {
            return false;
        }
        let it = &mut self.nodes[node];
        let back = length + span(it.plan.timings.lease_duration);
        it.wall_disturbed = true;
        it.restless_until = self.now + 2 * back;
        it.clocks.froze(back, true, self.now);
        it.clocks.jump(Which::Wall, -(back / 100 * u64::from(wall)).cast_signed(), self.now);
        self.disturbed(node);
        true
    }

    /// A renewal of this node was granted: a snare that waits for one catches it.
    pub(super) fn spring(&mut self, node: u8) {
        let bit = 1 << node;
        let waits = |(index, mask): &(u32, u8)| {
            mask & bit != 0 && self.scenario.faults[*index as usize].kind == Kind::Snare
        };
        let it = &self.nodes[usize::from(node)];
        let awake = it.asleep_until <= self.now && it.restless_until <= self.now;
        if self.snared & bit != 0 || !awake || !self.lasting.iter().any(waits) {
            return;
        }
        self.snared |= bit;
        self.relink();
        let timings = self.nodes[usize::from(node)].plan.timings;
        let left = span(timings.renew_deadline) - span(timings.retry_period);
        let length = left / 100 * self.rng.u64(70..100);
        self.sleep(usize::from(node), Sleep::Stopped, length);
        self.tell(|_| format!("candidate {node} is snared for {} ms", length / 1_000_000));
    }

    fn sleep(&mut self, node: usize, sleep: Sleep, length: Span) {
        let it = &mut self.nodes[node];
        it.asleep_until = self.now + length;
        it.machine_stands = sleep != Sleep::Stopped;
        it.sleep = Some((sleep, length));
        if let Some(process) = &mut it.process {
            process.undisturbed = false;
        }
        if let Some(chart) = &mut self.chart {
            chart::note(&mut chart.absent, node as u8, self.now, self.now + length);
        }
        self.queue.plan(self.now + length, Event::GoOn { node: node as u8 });
    }

    /// A node goes on after it stood still.
    pub(super) fn go_on(&mut self, node: u8) {
        let it = &mut self.nodes[usize::from(node)];
        it.machine_stands = false;
        let Some((sleep, length)) = it.sleep.take() else { return };
        match sleep {
            Sleep::Stopped => {}
            Sleep::Suspended { wall_stands } => {
                it.clocks.suspended(length, self.now);
                if wall_stands {
                    it.wall_disturbed = true;
                    it.clocks.jump(Which::Wall, -length.cast_signed(), self.now);
                }
            }
            Sleep::Frozen { synced } => {
                it.wall_disturbed |= !synced;
                it.clocks.froze(length, synced, self.now);
                // Whoever counts by this machine's clocks stood still with it.
                if it.plan.nature == Nature::Freezing
                    && let Some(acting) = &mut self.clients[usize::from(node)].acting
                    && acting.until > self.now - length
                {
                    acting.until += length;
                }
            }
        }
        self.tell(|_| format!("candidate {node} goes on"));
        self.disturbed(usize::from(node));
    }

    /// A process is gone at once; it is back after `down`, or never.
    pub(super) fn crash(&mut self, node: usize, down: Option<Span>) {
        let it = &mut self.nodes[node];
        if it.process.take().is_none() {
            return;
        }
        if let Some(chart) = &mut self.chart {
            let until = down.map_or(Instant::MAX, |down| self.now + down);
            chart::note(&mut chart.absent, node as u8, self.now, until);
            chart::note(&mut chart.beliefs, node as u8, self.now, self.now);
        }
        if let Some(down) = down {
            it.starts_at = self.now + down;
            self.queue.plan(it.starts_at, Event::Start { node: node as u8 });
        }
        self.tell(|_| format!("candidate {node} crashes"));
    }

    /// A process is told to leave; another starts when it has, after `down`.
    pub(super) fn resign(&mut self, node: usize, down: Span) {
        let it = &mut self.nodes[node];
        let Some(process) = &mut it.process else { return };
        process.back_after = down;
        // A lease that lapsed and was not released yet is taken back too.
        if let Some(term) = process.led
            && let Some(tenure) = self.judge.tenure(term, node as u8, it.life)
        {
            self.judge.tenures[tenure].by_will = true;
        }
        self.tell(|_| format!("candidate {node} resigns"));
        self.turn(node as u8, Election::handle_resign);
    }

    /// A process starts.
    pub(super) fn start(&mut self, node: u8) {
        let rules = self.store.rules();
        let it = &mut self.nodes[usize::from(node)];
        if it.process.is_some() {
            return;
        }
        it.start(rules, self.now);
        self.tell(|_| format!("candidate {node} starts"));
        self.turn(node, Election::handle_timeout);
    }

    /// A fault of the store; says whether it was let happen.
    fn strike_store(&mut self, fault: &Fault) -> bool {
        let blob = self.store.kind() == store::Kind::Blob;
        let seconds = |length: Span| Duration::from_nanos(length).min(Duration::from_secs(60));
        match fault.kind {
            Kind::Break { period } if blob => {
                let period = period.map(|it| Duration::from_secs(u64::from(it)));
                self.store.break_lease(period, self.now);
            }
            Kind::Change if blob => self.store.change_lease(self.faults, self.now),
            Kind::Squat if blob => {
                let length = seconds(fault.length);
                self.store.squat(self.faults, length, self.now);
                self.examination.strangers_until = self.now + span(length);
            }
            // Deleting a record on one host is freeing the lease behind its holder's back.
            Kind::Lose { whole } if blob || (whole && !self.scenario.faithful) => {
                self.store.lose(whole);
                self.judge.record_lost = true;
                if !blob {
                    self.judge.floor = 0;
                    self.resource.forget();
                }
            }
            Kind::SetBack { by, freed } => {
                self.store.set_back(u64::from(by), freed);
                self.set_back();
            }
            Kind::Rollback => {
                let before = self.store.clone();
                if let Some(snapshot) = self.snapshot.replace(before) {
                    self.store = snapshot;
                }
                self.set_back();
            }
            _ => return false,
        }
        if !blob {
            self.wake_standbys();
        }
        true
    }

    /// The record shows an earlier term: what it forgot can come again.
    fn set_back(&mut self) {
        self.judge.record_lost = true;
        self.judge.floor = self.store.term().unwrap_or(0);
        self.resource.forget();
    }
}

impl Link {
    /// Adds one more lasting fault.
    fn worsen(&mut self, kind: Kind) {
        match kind {
            Kind::Weather(more) => {
                let weather = &mut self.weather;
                weather.lost_before = weather.lost_before.max(more.lost_before);
                weather.lost_after = weather.lost_after.max(more.lost_after);
                weather.twice = weather.twice.max(more.twice);
                weather.late = weather.late.max(more.late);
                weather.broken = weather.broken.max(more.broken);
                weather.delay = weather.delay.max(more.delay);
            }
            Kind::Cut { refused } => self.cut = Some(refused),
            Kind::Outage { error, share } => self.error = Some((error, share)),
            _ => {}
        }
    }
}
