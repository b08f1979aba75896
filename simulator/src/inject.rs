//! The effect of each fault on the world.
//!
//! In a faithful episode, faults that would break an assumption of the claim are skipped: clocks
//! that lose more than the margin unseen, and a lease freed behind its holder's back.

use std::time::Duration;

use fastrand::Rng;
use tenure::election::Input;

use super::faults::{Fault, Kind, Target};
use super::network::Link;
use super::process::Node;
use super::queue::Event;
use super::register::Client;
use super::service::Health;
use super::store;
use super::timeline;
use super::world::World;
use super::{Instant, Span, span};

impl World<'_> {
    /// Begins a fault of the schedule.
    pub(super) fn inject(&mut self, index: u32) {
        self.plan_injection();
        let fault = self.scenario.faults[index as usize];
        let mask = self.targets(fault.target);
        let mut injected = false;
        match fault.kind {
            Kind::Weather(_)
            | Kind::Cut { .. }
            | Kind::Outage { .. }
            | Kind::RenewalTrap
            | Kind::GrantTrap
            | Kind::InWindow { .. } => {
                self.last(index, mask, fault.length);
                injected = true;
            }
            Kind::SlowPublisher => {
                self.each(mask, |world, node| {
                    world.nodes[node].publisher_delay = fault.length;
                });
                self.last(index, mask, fault.length);
                injected = true;
            }
            Kind::Pause
            | Kind::Suspend { .. }
            | Kind::Freeze { .. }
            | Kind::Restore { .. }
            | Kind::Jump { .. }
            | Kind::Slew { .. }
            | Kind::Crash
            | Kind::Resign
            | Kind::StepDown
            | Kind::Transfer { .. } => {
                self.each(mask, |world, node| injected |= world.inject_node(node, &fault));
            }
            Kind::TakeOut => {
                self.each(mask, |world, node| injected |= world.inject_node(node, &fault));
                self.last(index, mask, fault.length);
            }
            Kind::Unhealthy { flaps } => {
                let health = if flaps { Health::Flapping } else { Health::Unhealthy };
                self.each(mask, |world, node| {
                    injected |= world.nodes[node].plan.probing.is_some();
                    world.set_health(node, health);
                });
                self.last(index, mask, fault.length);
            }
            Kind::Maintenance => {
                self.each(mask, |world, node| world.set_maintenance(node, true));
                self.last(index, mask, fault.length);
                injected = true;
            }
            Kind::ChildEnds => {
                let hold_off = Some(fault.length);
                self.each(mask, |world, node| {
                    injected |= world.child_ends(node as u8, None, hold_off);
                });
            }
            Kind::Peer(peer_fault) => {
                self.last(index, mask, fault.length);
                self.begin_peer_fault(index, mask, peer_fault);
                injected = true;
            }
            _ => injected = self.inject_store(&fault),
        }
        self.faults += u64::from(injected);
        if injected {
            self.log(|_| {
                format!("fault {index}: {:?} for {} ms", fault.kind, fault.length / 1_000_000)
            });
        }
    }

    /// Ends a lasting fault.
    pub(super) fn end_fault(&mut self, index: u32) {
        let Some(at) = self.lasting.iter().position(|(it, _)| *it == index) else { return };
        let (_, mask) = self.lasting.swap_remove(at);
        if matches!(self.scenario.faults[index as usize].kind, Kind::RenewalTrap | Kind::GrantTrap)
        {
            self.trapped &= !mask;
        }
        match self.scenario.faults[index as usize].kind {
            Kind::SlowPublisher => {
                self.each(mask, |world, node| world.nodes[node].publisher_delay = 0);
            }
            Kind::TakeOut => self.each(mask, Self::resume),
            Kind::Peer(fault) => self.end_peer_fault(mask, fault),
            Kind::Unhealthy { .. } => {
                self.each(mask, |world, node| world.set_health(node, Health::Healthy))
            }
            Kind::Maintenance => self.each(mask, |world, node| world.set_maintenance(node, false)),
            _ => {}
        }
        self.relink();
        self.log(|_| format!("fault {index} is over"));
    }

    fn last(&mut self, index: u32, mask: u8, length: Span) {
        self.lasting.push((index, mask));
        self.relink();
        self.queue.plan(self.now + length, Event::EndFault { fault: index });
    }

    fn each(&mut self, mask: u8, mut inject: impl FnMut(&mut Self, usize)) {
        for node in 0..self.nodes.len() {
            if mask & (1 << node) != 0 {
                inject(self, node);
            }
        }
    }

    /// Returns the nodes that a target stands for now, one bit each.
    fn targets(&self, target: Target) -> u8 {
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
            Target::Heir => self.heir(leader() as u8).map_or(0, |it| 1 << it),
            Target::All => u8::MAX,
        }
    }

    /// Recomputes the link of each node from the lasting faults.
    pub(super) fn relink(&mut self) {
        for (node, it) in self.nodes.iter_mut().enumerate() {
            let mut link = Link::default();
            for (index, mask) in &self.lasting {
                let caught = self.trapped & (1 << node) != 0;
                match self.scenario.faults[*index as usize].kind {
                    _ if mask & (1 << node) == 0 => {}
                    Kind::RenewalTrap | Kind::GrantTrap if caught => link.cut = Some(false),
                    kind => link.worsen(kind),
                }
            }
            it.link = link;
        }
    }

    /// Ends a process at once; it starts again after `down`, or never.
    pub(super) fn crash(&mut self, node: usize, down: Option<Span>) {
        if !self.kill_process(node) {
            return;
        }
        self.break_off_streams(node as u8);
        // The watchdog of the child finds its pipe closed.
        self.kill(node as u8);
        if let Some(timeline) = &mut self.timeline {
            let until = down.map_or(Instant::MAX, |down| self.now + down);
            timeline::record(&mut timeline.absent, node as u8, self.now, until);
            timeline::record(&mut timeline.beliefs, node as u8, self.now, self.now);
        }
        if let Some(down) = down {
            let it = &mut self.nodes[node];
            it.starts_at = self.now + down;
            self.queue.plan(it.starts_at, Event::Start { node: node as u8 });
        }
        self.log(|_| format!("candidate {node} crashes"));
    }

    /// Asks a process to resign; another starts `down` after it has exited.
    pub(super) fn resign(&mut self, node: usize, down: Span) {
        let it = &mut self.nodes[node];
        let Some(process) = &mut it.process else { return };
        process.back_after = down;
        self.log(|_| format!("candidate {node} resigns"));
        self.turn(node as u8, Input::Resign);
    }

    /// Starts a process.
    pub(super) fn start(&mut self, node: u8) {
        let rules = self.store.rules();
        let it = &mut self.nodes[usize::from(node)];
        if it.process.is_some() {
            return;
        }
        self.remove_child(node);
        let it = &mut self.nodes[usize::from(node)];
        it.start(self.scenario.extent, rules, self.now);
        if let Some(process) = it.process.as_mut().filter(|_| self.store.kind().is_register()) {
            let seed = self.scenario.seed ^ (u64::from(node) + 1) << 56 ^ u64::from(it.life) << 32;
            process.client = Some(Client::new(Rng::with_seed(seed)));
        }
        self.log(|_| format!("candidate {node} starts"));
        self.start_probes(usize::from(node));
        self.turn(node, Input::Timeout);
        self.tell_maintenance(usize::from(node));
    }

    /// Begins a fault of the store, and returns whether it took effect.
    fn inject_store(&mut self, fault: &Fault) -> bool {
        let kind = self.store.kind();
        let host = kind == store::Kind::Host;
        let news = self.store.news();
        // Except in blobs, a new leader holds a lost lease only for its own lease-duration, which
        // must cover the belief of the previous leader.
        let held = kind == store::Kind::Blob || !host && self.scenario.are_alike();
        let seconds = |length: Span| Duration::from_nanos(length).min(Duration::from_secs(60));
        match fault.kind {
            Kind::Break { period } if !host => {
                let period = period.map(|it| Duration::from_secs(u64::from(it)));
                self.store.break_lease(period, self.now);
            }
            Kind::Change if !host => {
                self.store.change_lease(self.faults, self.now);
                let length = self.scenario.longest(|it| it.lease_duration);
                self.examination.third_party_until = self.now + length;
            }
            Kind::Touch if kind.is_register() && self.faults.is_multiple_of(2) => {
                if let Some(nonce) = self.store.fail_over_to_earlier() {
                    let leads = |it: &Node| {
                        it.process.as_ref().is_some_and(|it| {
                            it.nonce == Some(nonce)
                                && it.led.is_some()
                                && it.led == it.status.term()
                        })
                    };
                    if !self.nodes.iter().any(leads) {
                        self.checker.take_back(nonce, self.store.term());
                    }
                }
            }
            Kind::Touch if kind.is_register() => self.store.touch(self.now),
            Kind::TakenByOther if !host => {
                let length = seconds(fault.length);
                self.store.take_by_other(self.faults, length, self.now);
                self.examination.third_party_until = self.now + span(length);
            }
            // Deleting a record on one host frees the lease behind its holder's back.
            Kind::Lose { whole } if held || (whole && !self.scenario.faithful) => {
                self.store.lose(whole, self.now);
                self.checker.record_lost = true;
                if host {
                    self.checker.floor = 0;
                    self.resource.forget();
                }
            }
            Kind::SetBack { by, freed } => {
                self.store.set_back(u64::from(by), freed, self.now);
                self.set_back();
            }
            Kind::Rollback => {
                let before = self.store.clone();
                if let Some(snapshot) = self.snapshot.replace(before) {
                    let before = std::mem::replace(&mut self.store, snapshot);
                    self.store.continue_tags(&before);
                }
                self.set_back();
            }
            _ => return false,
        }
        if self.store.news() != news && kind.notifies() {
            self.wake_standbys();
        }
        true
    }

    /// Handles a record that was set back to an earlier term: the later terms can occur again.
    fn set_back(&mut self) {
        self.checker.record_lost = true;
        self.checker.floor = self.store.term().unwrap_or(0);
        self.resource.forget();
    }
}

impl Link {
    /// Adds the effect of one more lasting fault.
    fn worsen(&mut self, kind: Kind) {
        match kind {
            Kind::Weather(more) => {
                let weather = &mut self.weather;
                weather.lost_before = weather.lost_before.max(more.lost_before);
                weather.lost_after = weather.lost_after.max(more.lost_after);
                weather.twice = weather.twice.max(more.twice);
                weather.late = weather.late.max(more.late);
                weather.broken = weather.broken.max(more.broken);
                weather.stale = weather.stale.max(more.stale);
                weather.delay = weather.delay.max(more.delay);
            }
            Kind::Cut { refused } => self.cut = Some(refused),
            Kind::Outage { error, share } => self.error = Some((error, share)),
            Kind::Peer(fault) => self.peers.worsen(fault),
            _ => {}
        }
    }
}
