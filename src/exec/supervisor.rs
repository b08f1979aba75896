//! Starts the command once in each term of this instance, and reports to the driver when no process
//! of it is left. It never waits for the command to obey; the watchdog ends it by the clock.

use std::ffi::{OsStr, OsString};
use std::pin::pin;
use std::time::Duration;

use tokio::sync::watch;

use super::backoff::BackOff;
use super::child::Child;
use super::exit::{ExitStatus, NO_LEASE, StopReason, code};
use super::kernel::Kernel;
use super::launch::CANNOT_RUN;
use super::watchdog_client::{Task, WatchdogClient};
use super::wire::{End, WatchdogEvent};
use crate::clock::{LONGEST_SLEEP, Moment};
use crate::config::{ExecOptions, duration};
use crate::driver::Control;
use crate::election::{Command, Standing, State, Status, Wait};
use crate::metrics::Metrics;
use crate::process::signals::{self, Signals};
use crate::status::Published;
use crate::timer::Timer;

/// The hold-off after `--max-hold`, so that another instance wins.
const AFTER_HOLD: Duration = Duration::from_secs(10);

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mode {
    /// Run the command once, and exit with it.
    pub once: bool,
    /// The exit code if another instance holds the lease when the wait is over, if not 75.
    pub conflict_exit_code: Option<u8>,
    /// The limits of the run.
    pub options: ExecOptions,
}

/// How the supervisor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupervisorExit {
    /// By a second signal: exit at once with this code.
    AtOnce(u8),
    /// Exit with this code once the lease has been released and all readers notified.
    AfterRelease {
        /// The exit code.
        code: u8,
        /// Whether a signal has been received already, so that the next one ends the process at
        /// once.
        asked: bool,
    },
}

/// Runs a command while this instance leads.
pub struct Supervisor {
    /// The command.
    pub task: Task,
    /// Its variables, except for the term.
    pub variables: Vec<(&'static str, OsString)>,
    /// The options.
    pub mode: Mode,
    /// Sends commands to the driver.
    pub control: Control,
    /// The status that the driver published last.
    pub published: watch::Receiver<Published>,
    /// The metrics.
    pub metrics: Metrics,
    /// The signals of this process.
    pub signals: Signals,
    /// Starts a watchdog: [`WatchdogClient::start`], or what a test puts in its place.
    pub start: Start,
    /// The kernel, with the clock.
    pub kernel: &'static dyn Kernel,
    /// Wakes the supervisor: [`crate::timer::sleep`], or a timer of a test.
    pub timer: Timer,
}

/// Starts a watchdog of a task, with additional variables, under a belief with this deadline.
pub type Start = fn(&Task, &[(&str, &OsStr)], End) -> std::io::Result<WatchdogClient>;

/// The state of the supervisor.
struct RunState {
    running: Option<Child>,
    /// The last term that has no processes left, or never had any.
    vacated: u64,
    starts: u64,
    back_off: BackOff,
    /// The signal that asked for the end.
    asked: Option<i32>,
    begun: Moment,
    /// Whether it was logged that a claim may run out.
    is_claim_logged: bool,
}

impl RunState {
    fn new(begun: Moment) -> Self {
        Self {
            running: None,
            vacated: 0,
            starts: 0,
            back_off: BackOff::new(),
            asked: None,
            begun,
            is_claim_logged: false,
        }
    }
}

enum Wakeup {
    Signal(i32),
    WatchdogEvent(Option<WatchdogEvent>),
    Published(bool),
    Tick,
}

impl Supervisor {
    /// Runs until the command has ended for good, or the instance has resigned. Returns the signals
    /// too, whose handlers must not be installed twice: a signal in between would be lost.
    pub async fn run(mut self) -> (SupervisorExit, Signals) {
        let over = self.run_to_end().await;
        (over, self.signals)
    }

    async fn run_to_end(&mut self) -> SupervisorExit {
        let mut it = RunState::new(self.kernel.now());
        loop {
            let published = self.published.borrow_and_update().clone();
            if let Some(over) = self.turn(&mut it, &published).await {
                return over;
            }
            let sleep = self.until_look(&it, self.kernel.now());
            let event = tokio::select! {
                biased;
                signal = self.signals.next() => Wakeup::Signal(signal),
                report = report(&mut it.running) => Wakeup::WatchdogEvent(report),
                changed = self.published.changed() => Wakeup::Published(changed.is_ok()),
                () = (self.timer)(sleep) => Wakeup::Tick,
            };
            let over = match event {
                Wakeup::Signal(number) => self.signalled(&mut it, number).await,
                Wakeup::WatchdogEvent(report) => self.reported(&mut it, report).await,
                // The driver has ended, and the instance with it.
                Wakeup::Published(false) => Some(self.without_command(&it)),
                Wakeup::Published(true) | Wakeup::Tick => None,
            };
            if let Some(over) = over {
                return over;
            }
        }
    }

    /// Does what the status or the time requires.
    async fn turn(&mut self, it: &mut RunState, published: &Published) -> Option<SupervisorExit> {
        let (now, status) = (self.kernel.now(), &published.status);
        if let Some(running) = &mut it.running {
            let signal = it.asked.unwrap_or(signals::TERM);
            running.follow(&status.standing, signal, now);
            let held =
                self.mode.options.max_hold.is_some_and(|it| running.since.elapsed_max(now) >= it);
            if held && running.why.is_none() && running.ended.is_none() {
                tracing::info!(term = running.term, "--max-hold is over: stopping the command");
                running.why = Some(StopReason::Held);
                let _ = self.control.command(Command::StepDown { hold_off: AFTER_HOLD }).await;
            }
            return None;
        }
        match &status.standing {
            Standing::Leader { term, belief, .. } if *term > it.vacated => {
                let time = belief.remaining(now).saturating_sub(self.task.stop_timeout);
                // Without time to stop it before the deadline, the command is started after the
                // next renewal.
                if it.asked.is_none() && !time.is_zero() {
                    return self.start(it, *term, End::of(belief.sent, belief.length), now).await;
                }
            }
            Standing::Stopped => return Some(self.without_command(it)),
            _ => {
                self.vacate_unseen(it, published).await;
                if it.starts == 0 && it.asked.is_none() {
                    if self.has_waited(it, published, now) {
                        self.log_no_lease(status, now);
                        self.control.resign().await;
                        let code = self.no_lease_code(status);
                        return Some(SupervisorExit::AfterRelease { code, asked: false });
                    }
                    if matches!(status.wait, Some(Wait::Claim(_))) && !it.is_claim_logged {
                        it.is_claim_logged = true;
                        self.log_claim(status, now);
                    }
                }
            }
        }
        None
    }

    /// Reports a term without any process: it ended, or is ending, before the command could be
    /// started.
    async fn vacate_unseen(&self, it: &mut RunState, published: &Published) {
        // The end of one that had a command is reported already, and published later.
        if let Some(term) = published.status.workload_term.filter(|term| *term > it.vacated) {
            it.vacated = term;
            self.control.workload_exited(term, None).await;
        }
    }

    /// Logs that the lease of a holder that may be gone is waited for.
    fn log_claim(&self, status: &Status, now: Moment) {
        let silent = status.lease.renewals.as_ref().map(|it| round(it.age(now)));
        let left = status.lease.renewals.as_ref().and_then(|it| it.ends_within(now));
        let within = left.map(|it| format!(": it is free in at most {}", round(it)));
        tracing::warn!(
            "--wait {} is over, and {} has not renewed the lease for {}{}",
            self.wait(),
            holder(status),
            silent.unwrap_or_else(|| "0s".to_owned()),
            within.unwrap_or_default()
        );
    }

    /// Logs why no lease was acquired.
    fn log_no_lease(&self, status: &Status, now: Moment) {
        let why = if let Some(error) = &status.store.last_failure {
            format!("the store failed: {error}")
        } else if status.lease.is_held {
            let renewals = status.lease.renewals.as_ref();
            let renewed = renewals.filter(|it| it.last.is_some()).map(|it| round(it.age(now)));
            let renewed = renewed.map(|it| format!(" and renewed it {it} ago"));
            format!("{} holds the lease{}", holder(status), renewed.unwrap_or_default())
        } else if matches!(status.wait, Some(Wait::Over { conflict: true })) {
            "another instance held the lease until now, and may have done the work".to_owned()
        } else {
            format!("this instance is {}", status.standing.state().as_str())
        };
        tracing::warn!("no lease within --wait {}: {why}; the command was not run", self.wait());
    }

    fn wait(&self) -> String {
        duration::format(self.mode.options.wait.unwrap_or_default())
    }

    /// Returns the exit code if the wait is over. The code for a conflict requires that the store answers:
    /// without it, nobody may be doing the work.
    fn no_lease_code(&self, status: &Status) -> u8 {
        let is_conflict = matches!(status.wait, Some(Wait::Over { conflict: true }));
        self.mode.conflict_exit_code.filter(|_| is_conflict).unwrap_or(NO_LEASE)
    }

    /// Returns whether `--wait` is over.
    fn has_waited(&self, it: &RunState, published: &Published, now: Moment) -> bool {
        let Some(length) = self.mode.options.wait else { return false };
        let status = &published.status;
        match &status.wait {
            Some(wait) => matches!(wait, Wait::Over { .. }),
            // It led, but for too short a time to run the command.
            None => {
                let holds = status.standing.state() == State::Activating;
                !holds && it.begun.elapsed_max(now) >= length
            }
        }
    }

    async fn start(
        &mut self,
        it: &mut RunState,
        term: u64,
        end: End,
        now: Moment,
    ) -> Option<SupervisorExit> {
        it.starts += 1;
        if it.starts > 1 {
            self.metrics.child_restart();
        }
        let number = OsString::from(term.to_string());
        let variables = self.variables.iter().map(|(name, value)| (*name, value.as_os_str()));
        let variables = variables.chain([("TENURE_TERM", number.as_ref() as &OsStr)]);
        let variables: Vec<_> = variables.collect();
        match (self.start)(&self.task, &variables, end) {
            Ok(watchdog) => {
                it.running = Some(Child::new(self.kernel, term, now, watchdog, end));
                None
            }
            Err(error) => {
                tracing::error!(%error, "failed to start the watchdog of the command");
                self.over(it, term, ExitStatus::Exited(CANNOT_RUN.into()), None, now).await
            }
        }
    }

    /// Handles a signal: the first that asks for the end resigns, the second exits at once.
    async fn signalled(&self, it: &mut RunState, number: i32) -> Option<SupervisorExit> {
        let runs = it.running.as_ref().filter(|it| it.ended.is_none());
        match (number, runs) {
            (signals::INT | signals::TERM, _) | (signals::QUIT, None) => {
                if let Some(running) = it.running.as_mut().filter(|_| it.asked.is_none()) {
                    running.why.get_or_insert(StopReason::Signal);
                }
                return ask(&self.control, &mut it.asked, number).await;
            }
            (number, Some(running)) => running.pass_on(number),
            (_, None) => {}
        }
        None
    }

    /// Processes a report of the watchdog.
    async fn reported(
        &mut self,
        it: &mut RunState,
        report: Option<WatchdogEvent>,
    ) -> Option<SupervisorExit> {
        let running = it.running.as_mut()?;
        if let Some(report) = report
            && !running.take(report)
        {
            return None;
        }
        let interrupted = running.was_interrupted();
        // A process that cannot be killed takes as long as it likes, and must delay no signal.
        {
            let mut ending = pin!(running.end(report.is_some(), self.timer));
            loop {
                let number = tokio::select! {
                    () = &mut ending => break,
                    number = self.signals.next() => number,
                };
                if matches!(number, signals::INT | signals::TERM | signals::QUIT)
                    && let Some(over) = ask(&self.control, &mut it.asked, number).await
                {
                    return Some(over);
                }
            }
        }
        let running = it.running.take()?;
        if interrupted && it.asked.is_none() {
            ask(&self.control, &mut it.asked, signals::INT).await;
        }
        let ended = running.ended.unwrap_or(ExitStatus::Signalled(9));
        self.over(it, running.term, ended, running.why, running.since).await
    }

    /// Reports to the driver that no process of the term is left.
    async fn over(
        &self,
        it: &mut RunState,
        term: u64,
        ended: ExitStatus,
        why: Option<StopReason>,
        since: Moment,
    ) -> Option<SupervisorExit> {
        it.vacated = term;
        if self.mode.once {
            self.control.resign().await;
            self.control.workload_exited(term, None).await;
            let asked = it.asked.is_some();
            return Some(SupervisorExit::AfterRelease { code: code(ended, why), asked });
        }
        let ran = since.elapsed_min(self.kernel.now());
        let by_itself = why.is_none() && it.asked.is_none();
        let hold_off = by_itself.then(|| it.back_off.after(ran));
        if let Some(hold_off) = hold_off {
            tracing::info!(term, hold_off = ?hold_off, "releasing the lease; competing again after the hold-off");
        }
        self.control.workload_exited(term, hold_off).await;
        None
    }

    /// Returns the end without a running command: a `--once` that never ran must not look
    /// successful.
    fn without_command(&self, it: &RunState) -> SupervisorExit {
        let code = match it.asked {
            Some(number) if self.mode.once => u8::try_from(128 + number).unwrap_or(u8::MAX),
            _ => 0,
        };
        SupervisorExit::AfterRelease { code, asked: it.asked.is_some() }
    }

    /// Returns the time until a limit may have passed.
    fn until_look(&self, it: &RunState, now: Moment) -> Duration {
        let (since, length) = match &it.running {
            Some(running) => (running.since, self.mode.options.max_hold),
            None => (it.begun, self.mode.options.wait.filter(|_| it.starts == 0)),
        };
        let left = length.map(|it| it.saturating_sub(since.elapsed_max(now)));
        // A limit that has passed has been acted on already; what follows is an event.
        left.filter(|it| !it.is_zero()).unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)
    }
}

/// Names the holder of the lease.
fn holder(status: &Status) -> &str {
    status.holder.as_ref().map_or("another instance", |it| &it.candidate.identity)
}

/// Formats a time to a tenth of a second.
fn round(time: Duration) -> String {
    duration::format(Duration::from_millis(
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 100 * 100,
    ))
}

/// Handles a signal that asks for the end: the first resigns, the second exits at once.
async fn ask(control: &Control, asked: &mut Option<i32>, number: i32) -> Option<SupervisorExit> {
    if asked.replace(number).is_some() {
        return Some(SupervisorExit::AtOnce(u8::try_from(128 + number).unwrap_or(u8::MAX)));
    }
    tracing::info!(signal = number, "resigning; a second signal ends at once");
    control.resign().await;
    None
}

/// Returns the watchdog's next report; pending if there is no watchdog.
async fn report(running: &mut Option<Child>) -> Option<WatchdogEvent> {
    match running {
        Some(running) => running.report().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
