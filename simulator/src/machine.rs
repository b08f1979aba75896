//! The faults of one machine and its clocks: stop, suspend, freeze, set, restore.

use super::clock::Which;
use super::faults::{Fault, Kind};
use super::process::Sleep;
use super::queue::Event;
use super::scenario::Nature;
use super::timeline;
use super::world::World;
use super::{SECOND, Span, span};

/// The shortest freeze that the wall clock certainly shows: more than the second that it must be
/// ahead.
const SEEN_FREEZE: Span = 2 * SECOND;

impl World<'_> {
    /// Injects a fault of one machine or process, and returns whether it took effect.
    pub(super) fn inject_node(&mut self, node: usize, fault: &Fault) -> bool {
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
            Kind::StepDown | Kind::Transfer { .. } | Kind::TakeOut => {
                return self.operate(node, fault.kind, fault.length);
            }
            _ => return false,
        }
        true
    }

    /// Returns whether a node may have clock errors of this kind.
    fn allows(&self, node: usize, nature: Nature) -> bool {
        !self.scenario.faithful || self.nodes[node].plan.nature == nature
    }

    /// Lets the driver notice within its longest sleep, and the checker at once.
    fn disturbed(&mut self, node: usize) {
        let share = self.rng.f64();
        let it = &mut self.nodes[node];
        if let Some(process) = &mut it.process {
            process.disturb(self.now);
        }
        it.nap(share, self.now, &mut self.queue);
        if it.believes(self.now) {
            self.check_belief(node as u8);
        }
        self.wake_watchdog(node as u8);
    }

    fn jump(&mut self, node: usize, which: Which, by: i64) -> bool {
        if !self.allows(node, Nature::Jumpy) {
            return false;
        }
        let apart = 2 * self.scenario.longest_wait();
        let it = &mut self.nodes[node];
        if which == Which::Wall {
            it.wall_disturbed = true;
        } else {
            // If both lease clocks are wrong, neither may show a pause.
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
                let apart = 2 * it.plan.longest_lease();
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

    /// Sets both lease clocks back by more than a lease-duration, so that each belief began in their
    /// future, and the wall clock by a part of that.
    fn restore(&mut self, node: usize, wall: u8, length: Span) -> bool {
        if !self.allows(node, Nature::Virtual) {
            return false;
        }
        let it = &mut self.nodes[node];
        let back = length + it.plan.longest_lease();
        it.wall_disturbed = true;
        it.restless_until = self.now + 2 * back;
        it.clocks.froze(back, true, self.now);
        it.clocks.jump(Which::Wall, -(back / 100 * u64::from(wall)).cast_signed(), self.now);
        self.disturbed(node);
        true
    }

    /// Springs a trap that waits for a granted renewal of this node.
    pub(super) fn spring_renewal_trap(&mut self, node: u8) {
        let bit = 1 << node;
        if !self.is_trap_set(node, Kind::RenewalTrap) {
            return;
        }
        self.trapped |= bit;
        self.relink();
        let timings = self.nodes[usize::from(node)].plan.timings;
        let left = span(timings.renew_deadline) - span(timings.retry_period);
        let length = left / 100 * self.rng.u64(70..100);
        self.sleep(usize::from(node), Sleep::Stopped, length);
        self.log(|_| format!("candidate {node} is stopped for {} ms", length / 1_000_000));
    }

    /// Springs a trap that waits for a granted bid of this node.
    pub(super) fn spring_grant_trap(&mut self, node: u8) {
        if !self.is_trap_set(node, Kind::GrantTrap) {
            return;
        }
        let it = &mut self.nodes[usize::from(node)];
        it.cut_when_leading = true;
        let length = span(it.plan.timings.renew_deadline) / 100 * self.rng.u64(50..95);
        self.sleep(usize::from(node), Sleep::Stopped, length);
        self.log(|_| format!("candidate {node} is stopped for {} ms", length / 1_000_000));
    }

    /// Returns whether a trap of this kind waits for this node.
    fn is_trap_set(&self, node: u8, kind: Kind) -> bool {
        let bit = 1 << node;
        let waits = |(index, mask): &(u32, u8)| {
            mask & bit != 0 && self.scenario.faults[*index as usize].kind == kind
        };
        let it = &self.nodes[usize::from(node)];
        let awake = it.asleep_until <= self.now && it.restless_until <= self.now;
        self.trapped & bit == 0 && awake && self.lasting.iter().any(waits)
    }

    /// Disconnects a trapped node that has become leader.
    pub(super) fn close_trap(&mut self, node: u8) {
        if std::mem::take(&mut self.nodes[usize::from(node)].cut_when_leading) {
            self.trapped |= 1 << node;
            self.relink();
        }
    }

    fn sleep(&mut self, node: usize, sleep: Sleep, length: Span) {
        let it = &mut self.nodes[node];
        it.asleep_until = self.now + length;
        it.machine_stands = sleep != Sleep::Stopped;
        it.sleep = Some((sleep, length));
        if let Some(process) = &mut it.process {
            process.disturb(self.now + length);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline::record(&mut timeline.absent, node as u8, self.now, self.now + length);
        }
        self.queue.plan(self.now + length, Event::Continue { node: node as u8 });
    }

    /// Continues a node after a stop.
    pub(super) fn continue_machine(&mut self, node: u8) {
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
                // Clients that use this machine's clocks stopped with it.
                if it.plan.nature == Nature::Freezing
                    && let Some(acting) = &mut self.clients[usize::from(node)].acting
                    && acting.until > self.now - length
                {
                    acting.until += length;
                }
            }
        }
        self.log(|_| format!("candidate {node} continues"));
        self.disturbed(usize::from(node));
        if std::mem::take(&mut self.nodes[usize::from(node)].resumes) {
            self.resume(usize::from(node));
        }
        self.tell_maintenance(usize::from(node));
    }
}
