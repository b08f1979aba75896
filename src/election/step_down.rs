//! Voluntary step-down: commands, health changes, process exits and resignation, and the drain that
//! precedes the release.

use std::time::Duration;

use super::hold_off::HoldOff;
use super::{Command, Election, Entropy, Progress, Reason, Refusal, Role, State};
use crate::clock::Moment;
use crate::lease::Successor;

/// Why and how a leader steps down.
pub(super) struct StepDown {
    pub(super) reason: Reason,
    /// Whether the candidate leaves the election for good.
    pub(super) resigning: bool,
    /// The successor to write to the record.
    pub(super) successor: Option<Successor>,
}

impl StepDown {
    fn without_resigning(reason: Reason) -> Self {
        Self { reason, resigning: false, successor: None }
    }
}

impl Election {
    /// Leaves the election for good; passive at once. A leader drains first, for at most
    /// drain-timeout. Then any lease that this candidate may hold is released when the request in
    /// flight has ended (R3), so within two request-timeouts. A lease that lapsed before is released
    /// only if its whole length is over by then (R8), and is left to run out otherwise.
    pub(super) fn handle_resign(&mut self, now: Moment, entropy: Entropy) {
        self.apply_deadlines(now, entropy);
        match &mut self.role {
            Role::Resigned => {}
            Role::Draining(it) => it.resigning = true,
            Role::Leader(_) => {
                let step_down =
                    StepDown { resigning: true, ..StepDown::without_resigning(Reason::Resigned) };
                self.begin_step_down(step_down, now, entropy);
            }
            Role::Standby { .. } | Role::Activating(_) => {
                self.become_resigned(Reason::Resigned, now);
            }
        }
        self.apply_deadlines(now, entropy);
        self.queue_request(now);
    }

    /// Executes a command of an operator or of the service.
    ///
    /// # Errors
    /// Returns [`Refusal`] if the command is not possible in this state; nothing has changed then.
    pub(super) fn handle_command(
        &mut self,
        command: Command,
        now: Moment,
        entropy: Entropy,
    ) -> Result<Progress, Refusal> {
        self.apply_deadlines(now, entropy);
        let outcome = match command {
            Command::StepDown { hold_off } => self.step_down(hold_off, None, now, entropy),
            Command::Transfer(successor) => {
                self.step_down(successor.hold_off, Some(successor), now, entropy)
            }
            Command::Pause => self.pause(now, entropy),
            Command::Resume => self.resume(now),
            Command::Drained(term) => self.drained(term),
        };
        self.apply_deadlines(now, entropy);
        self.queue_request(now);
        outcome
    }

    /// Handles the result of a health probe that began in term `begun_in`, or in none. Ignores the
    /// result if the term has changed since.
    pub(super) fn handle_probe_result(
        &mut self,
        probe: usize,
        healthy: bool,
        begun_in: Option<u64>,
        now: Moment,
        entropy: Entropy,
    ) {
        self.apply_deadlines(now, entropy);
        if begun_in == self.standing().term() && self.health.update(probe, healthy) {
            if self.health.is_healthy() {
                self.notify_transition(Reason::Recovered, None, now);
            } else {
                self.withdraw(Reason::Unhealthy, now, entropy);
            }
        }
        self.queue_request(now);
    }

    /// Handles the news that maintenance of the machine is imminent, or over. A leader hands over at
    /// once, and holds off for no time of its own: it does not compete before the maintenance is over.
    pub(super) fn handle_maintenance(&mut self, imminent: bool, now: Moment, entropy: Entropy) {
        self.apply_deadlines(now, entropy);
        if self.maintenance != imminent {
            self.maintenance = imminent;
            if imminent {
                self.withdraw(Reason::Maintenance, now, entropy);
            } else {
                self.notify_transition(Reason::MaintenanceOver, None, now);
            }
        }
        self.queue_request(now);
    }

    /// Handles the exit of all processes of `term`, or the news that none will start. If this
    /// candidate still leads in that term, its leadership ends and it holds off for `hold_off`.
    pub(super) fn handle_workload_exited(
        &mut self,
        term: u64,
        hold_off: Option<Duration>,
        now: Moment,
        entropy: Entropy,
    ) {
        self.apply_deadlines(now, entropy);
        if self.workload_term == Some(term) {
            self.workload_term = None;
            if let Some(pending_release) = &mut self.pending_release {
                pending_release.since = now;
            }
            match &mut self.role {
                Role::Leader(_) => {
                    self.start_hold_off(hold_off.unwrap_or_default());
                    self.become_standby(Reason::ChildEnded, now, entropy);
                }
                Role::Draining(it) => it.drained = true,
                _ => {}
            }
        }
        self.apply_deadlines(now, entropy);
        self.queue_request(now);
    }

    /// Returns how long until the drain is over; [`Duration::MAX`] without a drain.
    pub(super) fn until_drained(&self, now: Moment) -> Duration {
        let Role::Draining(it) = &self.role else { return Duration::MAX };
        it.left(now, self.workload_term.is_some(), self.config.request_timeout * 2)
    }

    /// Ends the drain, and with it the leadership.
    pub(super) fn end_drain(&mut self, reason: Reason, now: Moment, entropy: Entropy) {
        match &self.role {
            Role::Draining(it) if it.resigning => self.become_resigned(reason, now),
            _ => self.become_standby(reason, now, entropy),
        }
    }

    /// Returns whether this candidate takes part, whatever the store shows.
    pub(super) fn competes(&self) -> bool {
        let able = self.is_fit() && self.workload_term.is_none();
        able && !self.paused && !self.config.observe
    }

    /// Returns whether the service is healthy, and no maintenance of the machine is imminent.
    pub(super) fn is_fit(&self) -> bool {
        self.health.is_healthy() && !self.maintenance
    }

    fn step_down(
        &mut self,
        hold_off: Duration,
        successor: Option<Successor>,
        now: Moment,
        entropy: Entropy,
    ) -> Result<Progress, Refusal> {
        let reason = match (&self.role, &successor) {
            (Role::Leader(_), Some(_)) => Reason::Transferred,
            (Role::Leader(_) | Role::Activating(_), None) => Reason::SteppedDown,
            _ => return Err(self.refusal()),
        };
        self.start_hold_off(hold_off);
        self.begin_step_down(
            StepDown { successor, ..StepDown::without_resigning(reason) },
            now,
            entropy,
        );
        Ok(Progress::Begun)
    }

    fn pause(&mut self, now: Moment, entropy: Entropy) -> Result<Progress, Refusal> {
        if matches!(self.state, State::Observing | State::Stopped) || self.is_leaving() {
            return Err(self.refusal());
        }
        if !self.paused {
            self.paused = true;
            self.withdraw(Reason::Paused, now, entropy);
        }
        let begun = self.pending_release.is_some() || matches!(self.role, Role::Draining(_));
        Ok(if begun { Progress::Begun } else { Progress::Done })
    }

    /// Ends a pause. Without a pause, ends the waits that keep a standby from bidding (its
    /// hold-off, or the wait for a successor).
    fn resume(&mut self, now: Moment) -> Result<Progress, Refusal> {
        if !self.paused {
            let stays = matches!(self.role, Role::Standby { .. }) && !self.config.observe;
            return if stays && self.end_waits(now) {
                Ok(Progress::Done)
            } else {
                Err(self.refusal())
            };
        }
        self.paused = false;
        self.notify_transition(Reason::Resumed, None, now);
        Ok(Progress::Done)
    }

    fn drained(&mut self, of: Option<u64>) -> Result<Progress, Refusal> {
        match &mut self.role {
            Role::Draining(it) if of.is_none_or(|term| term == it.term) => {
                it.drained = true;
                Ok(Progress::Done)
            }
            _ => Err(self.refusal()),
        }
    }

    fn refusal(&self) -> Refusal {
        Refusal { state: self.standing().state() }
    }

    fn is_leaving(&self) -> bool {
        matches!(&self.role, Role::Draining(it) if it.resigning)
    }

    /// Gives up the lease or the bid, and stops competing for now.
    fn withdraw(&mut self, reason: Reason, now: Moment, entropy: Entropy) {
        match &mut self.role {
            Role::Leader(_) | Role::Activating(_) => {
                if reason == Reason::Unhealthy {
                    self.start_hold_off(self.config.lease_duration);
                }
                self.begin_step_down(StepDown::without_resigning(reason), now, entropy);
            }
            Role::Standby { bidding, .. } => {
                if let Some(bidding) = bidding.take() {
                    self.give_up_bid(bidding, now);
                    self.apply_wakeup(now);
                }
                self.notify_transition(reason, None, now);
            }
            Role::Draining(_) | Role::Resigned => {}
        }
    }

    /// Drains a leader, unless there is nothing to wait for; a candidate that is not active yet
    /// leaves at once.
    fn begin_step_down(&mut self, step_down: StepDown, now: Moment, entropy: Entropy) {
        let waits = !self.config.drain_timeout.is_zero()
            || step_down.successor.is_some()
            || self.workload_term.is_some();
        match &self.role {
            Role::Leader(_) if waits => self.become_draining(step_down, now),
            _ if step_down.resigning => self.become_resigned(step_down.reason, now),
            _ => self.become_standby(step_down.reason, now, entropy),
        }
    }

    /// Starts a hold-off of `length`, which counts from when the present lease is seen free or held
    /// by another. Nothing is held off without a lease, or if `length` is zero.
    fn start_hold_off(&mut self, length: Duration) {
        let held = self.role.held_lease();
        self.hold_off =
            held.filter(|_| !length.is_zero()).map(|held| HoldOff::new(held.bid.nonce, length));
    }
}
