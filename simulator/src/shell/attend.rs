//! What the world does for candidates with a shell: their timers, their disk and their publishers.

use tenure::clock::Moment;

use super::{Due, Shell};
use crate::engine::Engine;
use crate::examine::Step;
use crate::faults::log_span;
use crate::network;
use crate::process::{Node, Sleep};
use crate::queue::Event;
use crate::scenario::Nature;
use crate::world::World;
use crate::{Instant, MILLI, SECOND, span};

/// A tick of the timers of a runtime.
const TICK: u64 = MILLI;

impl World<'_> {
    /// Schedules what a shell waits for.
    pub(crate) fn plan_due(&mut self, node: u8, due: Vec<Due>) {
        let it = &mut self.nodes[usize::from(node)];
        let (life, lease) = (it.life, span(it.plan.timings.lease_duration));
        for due in due {
            let (after, event) = match due {
                Due::Timer(wait, timer) => {
                    (it.clocks.timer(wait).max(TICK), Event::Wake { node, stamp: timer })
                }
                Due::Write(write) => {
                    let faulty = self.examination.step() == Step::Phase;
                    if faulty && self.rng.u16(..1_000) == 0 {
                        it.disk_hangs_until = self.now + log_span(&mut self.rng, SECOND, 8 * lease);
                    }
                    let slow = match faulty && self.now < it.disk_hangs_until {
                        true => self.rng.u64(..lease),
                        false => self.rng.u64(..=it.publisher_delay),
                    };
                    (slow + self.rng.u64(..20 * MILLI), Event::Written { node, life, write })
                }
                Due::Publishers => (self.rng.u64(..MILLI), Event::Publish { node, life }),
            };
            self.queue.plan(self.now + after, event);
        }
    }

    /// Fires a timer of a shell.
    pub(crate) fn fire(&mut self, node: u8, timer: u32) {
        self.attend(node, |shell, now| shell.fire(timer, now));
    }

    /// Lets the publishers of a shell run.
    pub(crate) fn run_publishers(&mut self, node: u8, life: u32) {
        if self.nodes[usize::from(node)].life == life {
            self.attend(node, Shell::publish);
        }
    }

    /// Ends a write of a shell; while the disk is slow, some fail.
    pub(crate) fn written(&mut self, node: u8, life: u32, write: u32) {
        let it = &self.nodes[usize::from(node)];
        if it.life != life {
            return;
        }
        let fails = it.publisher_delay > 0 && self.rng.u8(..4) == 0;
        self.log(|_| {
            format!("candidate {node}: a file is written{}", if fails { ", in vain" } else { "" })
        });
        self.attend(node, |shell, now| shell.written(write, fails, now));
    }

    /// Lets a shell do something, and performs everything that follows.
    fn attend(&mut self, node: u8, act: impl FnOnce(&mut Shell, Moment)) {
        let it = &mut self.nodes[usize::from(node)];
        let moment = it.moment(self.now);
        let Some(process) = &mut it.process else { return };
        let Some(shell) = process.engine.shell() else { return };
        act(shell, moment);
        self.follow(node, moment);
    }

    /// Forgets the outstanding request of a shell that has given up waiting for its answer.
    pub(crate) fn forget_call(&mut self, node: u8) {
        let it = &mut self.nodes[usize::from(node)];
        if let Some(process) = &mut it.process
            && process.engine.shell().is_some_and(|it| it.has_given_up())
            && process.waits_for.take().is_some()
        {
            it.is_answered(&Err(network::timeout()), it.moment(self.now));
        }
    }

    /// Ends a process; returns whether there was one.
    pub(crate) fn kill_process(&mut self, node: usize) -> bool {
        let Some(process) = self.nodes[node].process.take() else { return false };
        self.end_writes(process.engine);
        true
    }

    /// Of the writes that a process has begun, the disk ends some after it is gone.
    pub(crate) fn end_writes(&mut self, engine: Engine) {
        if let Engine::Shell(shell) = engine {
            shell.kill(|| self.rng.bool());
        }
    }

    /// Returns when a timer of a shell fires that was due while its candidate stood still: timers do
    /// not count the time in which the machine does.
    pub(crate) fn fires_after_sleep(&self, node: u8) -> Instant {
        let it = &self.nodes[usize::from(node)];
        match it.sleep {
            Some((sleep, length)) if sleep != Sleep::Stopped => self.now + length,
            // A process that continues reads its socket first.
            _ => it.asleep_until + 1,
        }
    }

    /// Returns whether a reader of a status file on this machine takes its candidate for active. Only
    /// where the boot clock, which such a reader goes by, keeps to the claim; and not after a voluntary
    /// end, before which the files say passive or the lease lasts a request-timeout more.
    pub(crate) fn is_told_active(&self, node: &Node) -> bool {
        let keeps_time = matches!(node.plan.nature, Nature::Freezing | Nature::Sleepy);
        if !keeps_time || node.machine_stands {
            return false;
        }
        let boot = span(node.moment(self.now).boot);
        let told = node.disk.active(boot);
        told.is_some_and(|it| !self.checker.has_given_up(it.term, node.index, self.now))
    }
}
