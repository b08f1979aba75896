//! Commands of operators in rare windows. A command at a random time hardly ever meets a transition, an
//! unknown bid, a drain, a pending release or a lapsed lease, so some wait for one.

use fastrand::Rng;
use tenure::election::{Command, Reason, State, Transition};

use super::faults::{Kind, TransferTarget, log_span};
use super::queue::Event;
use super::world::World;
use super::{MILLI, Span, span};

/// A state of a candidate that does not last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Its state has changed.
    Change,
    /// The outcome of its bid is unknown.
    UnknownBid,
    /// It drains.
    Drain,
    /// It has a lease to release.
    PendingRelease,
    /// Its lease has lapsed, and may not be over yet.
    Lapse,
}

/// What an operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    StepDown,
    Transfer,
    /// A pause, and a resume later.
    Pause,
    /// A resume that ends a hold-off or the wait for a successor.
    Resume,
    Drained,
    Resign,
    Crash,
}

/// Draws a window, and what an operator does in it.
pub fn draw(rng: &mut Rng) -> Kind {
    let window = match rng.u8(..10) {
        0..=1 => Window::Change,
        2..=4 => Window::UnknownBid,
        5 => Window::Drain,
        6..=7 => Window::PendingRelease,
        _ => Window::Lapse,
    };
    let order = match rng.u8(..10) {
        0 => Order::StepDown,
        1 => Order::Transfer,
        2..=4 => Order::Pause,
        5..=6 => Order::Resume,
        7 => Order::Drained,
        8 => Order::Resign,
        _ => Order::Crash,
    };
    Kind::InWindow { window, order }
}

impl World<'_> {
    /// Opens the windows of a change of state.
    pub(super) fn open_windows(&mut self, node: u8, change: &Transition) {
        if self.lasting.is_empty() {
            return;
        }
        let Transition { from, to, reason, .. } = *change;
        self.open_window(node, Window::Change);
        let left = from.is_leading() || matches!(from, State::Activating | State::Draining);
        match (reason, to) {
            (Reason::Lapsed, _) => self.open_window(node, Window::Lapse),
            (_, State::Draining) => self.open_window(node, Window::Drain),
            (_, State::Standby | State::Paused | State::Unhealthy) if left => {
                self.open_window(node, Window::PendingRelease);
            }
            _ => {}
        }
    }

    /// Lets the operators that wait for this window give their orders soon.
    pub(super) fn open_window(&mut self, node: u8, opened: Window) {
        let waits = |(index, mask): &&(u32, u8)| {
            let kind = self.scenario.faults[*index as usize].kind;
            mask & (1 << node) != 0
                && matches!(kind, Kind::InWindow { window, .. } if window == opened)
        };
        let Some((fault, _)) = self.lasting.iter().find(waits) else { return };
        let timeout = span(self.nodes[usize::from(node)].plan.timings.request_timeout);
        let soon = log_span(&mut self.rng, MILLI / 10, 2 * timeout);
        self.queue.plan(self.now + soon, Event::Order { node, fault: *fault });
    }

    /// Gives an order, unless its time is over.
    pub(super) fn order(&mut self, node: u8, fault: u32) {
        let index = usize::from(node);
        if self.process_of(node).is_some_and(|it| it.paused) {
            return self.resume(index);
        }
        let Some(at) = self.lasting.iter().position(|(it, _)| *it == fault) else { return };
        let Kind::InWindow { order, .. } = self.scenario.faults[fault as usize].kind else {
            return;
        };
        self.lasting.swap_remove(at);
        self.faults += 1;
        let lease = span(self.nodes[index].plan.timings.lease_duration);
        let length = log_span(&mut self.rng, lease / 150, lease);
        self.log(|_| format!("fault {fault}: {order:?} of candidate {node}"));
        self.execute(index, order, fault, length);
    }

    fn execute(&mut self, index: usize, order: Order, fault: u32, length: Span) {
        let node = index as u8;
        match order {
            Order::StepDown => {
                self.operate(index, Kind::StepDown, length);
            }
            Order::Transfer => {
                let to = TransferTarget::Node(self.rng.u8(..self.nodes.len() as u8));
                self.operate(index, Kind::Transfer { to }, length);
            }
            Order::Pause => {
                self.operate(index, Kind::TakeOut, length);
                self.queue.plan(self.now + length, Event::Order { node, fault });
            }
            Order::Resume => {
                self.command(node, Command::Resume);
            }
            Order::Drained => {
                if let Some(process) = &mut self.nodes[index].process
                    && process.status.standing.state() == State::Draining
                    && let Some(work) = &mut process.work
                {
                    work.over = true;
                }
                self.command(node, Command::Drained(None));
            }
            Order::Resign => self.resign(index, length),
            Order::Crash => self.crash(index, Some(length)),
        }
    }
}

/// Returns how long an operator waits for a window.
pub fn patience(lease: Span) -> Span {
    lease * 8
}
