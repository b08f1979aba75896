//! Tenure's main process as it ships: the supervisor, and the driver with its election, publisher and
//! status files ([`Shell`]). What the supervisor tells the driver passes here, as a message in a queue.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fastrand::Rng;
use tenure::config::{ExecOptions, Withheld};
use tenure::driver::{Control, Inbox, Message};
use tenure::election::{Command, Config, Input, Op};
use tenure::exec::watchdog_client::Task;
use tenure::exec::{Mode, Supervisor, SupervisorExit};
use tenure::lease::Candidate;
use tenure::process::signals::Signals;
use tokio::sync::mpsc;

use super::calls::{self, Simulated};
use super::signal::{INT, TERM, USR1};
use super::world::{STOP_TIMEOUT, World};
use crate::shell::{Disk, Due, Shell};
use crate::{Instant, MILLI};

type Running = Pin<Box<dyn Future<Output = (SupervisorExit, Signals)>>>;

pub struct Tenure {
    shell: Shell,
    /// What the supervisor has sent to the driver.
    inbox: Inbox,
    supervisor: Option<Running>,
    woken: Arc<Woken>,
    signals: Vec<(i32, mpsc::Sender<()>)>,
    /// The timers of the shell, by the clock of timers.
    timers: Vec<(Instant, u32)>,
    /// How the supervisor has ended.
    pub exit: Option<SupervisorExit>,
    /// A command of an operator.
    asked: Option<Command>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn config(rules: tenure::lease::Rules) -> Config {
    let ms = Duration::from_millis;
    Config {
        candidate: Arc::new(Candidate {
            identity: "one".to_owned(),
            instance: "1".to_owned(),
            address: None,
            peer: None,
        }),
        rules,
        lease_duration: ms(6_000),
        renew_deadline: ms(4_000),
        retry_period: ms(1_000),
        request_timeout: ms(500),
        activation_delay: Duration::ZERO,
        drain_timeout: ms(2_000),
        health: None,
        has_workload: true,
        wait: None,
        observe: false,
        priority: Config::DEFAULT_PRIORITY,
    }
}

impl Tenure {
    pub fn start(world: &Rc<World>) -> Self {
        let config = config(world.lease.borrow().rules());
        let shell = Shell::start(config, Disk::default(), Rng::with_seed(1), world.moment());
        let (control, inbox) = Control::new();
        let (senders, receivers): (Vec<_>, Vec<_>) = [INT, TERM, USR1]
            .map(|number| {
                let (sender, receiver) = mpsc::channel(1);
                ((number, sender), (number, receiver))
            })
            .into_iter()
            .unzip();
        let task = Task {
            tenure: "tenure".into(),
            program: "command".into(),
            name: "command".into(),
            arguments: Vec::new(),
            stop_timeout: STOP_TIMEOUT,
            withheld: Withheld::default(),
        };
        let supervisor = Supervisor {
            task,
            variables: Vec::new(),
            mode: Mode {
                once: world.script.once,
                conflict_exit_code: None,
                options: ExecOptions::default(),
            },
            control,
            published: shell.published(),
            metrics: shell.metrics(),
            signals: Signals::of_test(receivers),
            start: calls::start,
            kernel: &Simulated,
            timer: calls::sleep,
        };
        Self {
            shell,
            inbox,
            supervisor: Some(Box::pin(supervisor.run())),
            woken: Arc::new(Woken(AtomicBool::new(true))),
            signals: senders,
            timers: Vec::new(),
            exit: None,
            asked: None,
        }
    }

    /// Receives a signal.
    pub fn signal(&self, number: i32) {
        for (_, sender) in self.signals.iter().filter(|it| it.0 == number) {
            // One that waits already counts for both.
            let _ = sender.try_send(());
        }
    }

    /// Receives a command of an operator.
    pub fn command(&mut self, command: Command) {
        self.asked = Some(command);
    }

    /// Returns whether the process exits.
    pub fn has_ended(&self) -> bool {
        match self.exit {
            Some(SupervisorExit::AtOnce(_)) => true,
            Some(SupervisorExit::AfterRelease { .. }) => self.shell.is_finished(),
            None => false,
        }
    }

    /// Returns when a timer of the driver fires or an answer arrives.
    pub fn wakes_at(&self) -> Option<Instant> {
        self.timers.iter().map(|it| it.0).min()
    }

    /// Does one thing, if there is something to do; the driver and the supervisor in turn.
    pub fn take_turn(&mut self, world: &Rc<World>) -> bool {
        let took = self.drive(world) || self.supervise(world);
        self.collect(world);
        world.note_standing(&self.shell.standing());
        took
    }

    /// Lets the driver do one thing.
    fn drive(&mut self, world: &Rc<World>) -> bool {
        let (moment, (now, awake)) = (world.moment(), world.time());
        let answer = world.lease.borrow_mut().answer(now, awake);
        if let Some((id, answer)) = answer {
            self.shell.turn(Input::Answer { id, answer }, moment);
            return true;
        }
        if let Some(at) = self.timers.iter().position(|it| it.0 <= awake) {
            self.shell.fire(self.timers.swap_remove(at).1, moment);
            return true;
        }
        if let Some(command) = self.asked.take() {
            let _ = self.shell.turn(Input::Command(command), moment);
            return true;
        }
        let Ok(message) = self.inbox.try_recv() else { return false };
        world.preempt(super::table::TENURE, "message");
        let Message::Input { input, reply } = message else { return true };
        if let Input::WorkloadExited { term, .. } = &input {
            world.judge_report(*term);
        }
        let outcome = self.shell.turn(input, world.moment());
        if let (Some(reply), Some(outcome)) = (reply, outcome) {
            let _ = reply.send(outcome);
        }
        true
    }

    /// Lets the supervisor run until it waits.
    fn supervise(&mut self, world: &World) -> bool {
        let Some(supervisor) = &mut self.supervisor else { return false };
        if !self.woken.0.swap(false, Ordering::Relaxed) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        let polled = supervisor.as_mut().poll(&mut Context::from_waker(&waker));
        if let Poll::Ready((exit, _)) = polled {
            self.exit = Some(exit);
            world.checks.borrow_mut().exit = Some(exit);
            self.supervisor = None;
        }
        true
    }

    /// Takes what the driver has asked for since the last turn.
    fn collect(&mut self, world: &Rc<World>) {
        let moment = world.moment();
        loop {
            let due = self.shell.due();
            if due.is_empty() {
                break;
            }
            for due in due {
                match due {
                    Due::Timer(after, timer) => {
                        let at = world.time().1 + crate::span(after).max(MILLI);
                        self.timers.push((at, timer));
                    }
                    Due::Write(write) => self.shell.written(write, false, moment),
                    Due::Publishers => self.shell.publish(moment),
                }
            }
        }
        while let Some(request) = self.shell.poll_request() {
            if matches!(request.op, Op::Release(_)) {
                world.judge_release();
            }
            let (now, awake) = world.time();
            world.lease.borrow_mut().send(request, now, awake);
        }
    }
}
