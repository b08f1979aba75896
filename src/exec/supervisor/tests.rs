use std::io;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::poll;
use rustix::io::Errno;
use tokio::sync::Notify;

use super::*;
use crate::config::Withheld;
use crate::driver::{Inbox, Message};
use crate::election::{Belief, Input, LeaseView, Status, StoreHealth};
use crate::exec::kernel::Linux;
use crate::exec::watchdog_client::Link;
use crate::exec::wire::{RECORD, WatchdogCommand};
use crate::lease::Version;
use crate::status::About;
use crate::timer;

const STOP_TIMEOUT: Duration = Duration::from_mins(1);
const LENGTH: Duration = Duration::from_hours(1);
const TERM: u64 = 7;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A time of clocks that stand still.
fn at(seconds: u64) -> Moment {
    Moment { boot: s(seconds), raw: s(seconds), wall: s(seconds) }
}

fn status(standing: Standing) -> Status {
    Status {
        standing,
        since: Linux.now(),
        holder: None,
        successor: None,
        hold_off: None,
        workload_term: None,
        released_term: None,
        contact_due: None,
        lease: LeaseView::default(),
        store: StoreHealth::default(),
        wait: None,
    }
}

fn published(standing: Standing, failures: u32) -> Published {
    let store = StoreHealth { failures, ..StoreHealth::default() };
    Published::first(Status { store, ..status(standing) })
}

fn belief(sent: Moment) -> Belief {
    Belief { sent, length: LENGTH, suspended: false }
}

fn leader(term: u64, sent: Moment) -> Standing {
    Standing::Leader { term, belief: belief(sent), jeopardy: false }
}

/// Returns a supervisor with these options, whose watchdogs fail to start, and the queue to the driver.
fn with(options: ExecOptions) -> (Supervisor, Inbox) {
    let about = About {
        election: String::new(),
        identity: String::new(),
        instance: String::new(),
        boot_id: String::new(),
        store: "memory",
        store_url: "memory:".to_owned(),
        lease_duration: s(15),
    };
    let (control, inbox) = Control::new();
    let supervisor = Supervisor {
        task: Task {
            tenure: "tenure".into(),
            program: "command".into(),
            name: "command".into(),
            arguments: Vec::new(),
            stop_timeout: STOP_TIMEOUT,
            withheld: Withheld::default(),
        },
        variables: Vec::new(),
        mode: Mode { options, ..Mode::default() },
        control,
        published: watch::channel(published(Standing::Starting, 0)).1,
        metrics: Metrics::new(&about, false),
        signals: Signals::of_test([]),
        start: |_, _, _| Err(io::ErrorKind::Other.into()),
        kernel: &Linux,
        timer: timer::sleep,
    };
    (supervisor, inbox)
}

fn supervisor() -> Supervisor {
    with(ExecOptions::default()).0
}

fn waiting(wait: Duration) -> Supervisor {
    with(ExecOptions { wait: Some(wait), ..ExecOptions::default() }).0
}

/// A watchdog that notes its orders, and whose reaper exits when it is told to.
#[derive(Clone, Default)]
struct Orders {
    noted: Arc<Mutex<Vec<WatchdogCommand>>>,
    exit: Arc<Notify>,
}

impl Orders {
    fn take(&self) -> Vec<WatchdogCommand> {
        std::mem::take(&mut self.noted.lock().unwrap())
    }
}

impl Link for Orders {
    fn resume(&self) {}

    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let order = bytes.try_into().expect("a whole order");
        self.noted.lock().unwrap().push(WatchdogCommand::of_bytes(order));
        Ok(RECORD)
    }

    fn close(&self) {}

    fn receive<'a>(&'a mut self, _: &'a mut Vec<u8>) -> BoxFuture<'a, io::Result<usize>> {
        Box::pin(std::future::pending())
    }

    fn ended(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.exit.notified())
    }

    fn id(&self) -> Option<u32> {
        None
    }
}

/// Returns the state of a command that runs since `begun`, and the orders to its watchdog. Its reaper
/// has been told to exit.
fn running(begun: Moment) -> (RunState, Orders) {
    let orders = Orders::default();
    orders.exit.notify_one();
    let client = WatchdogClient::over(Box::new(orders.clone()));
    let child = Child::new(&Linux, TERM, begun, client, End::of(begun, LENGTH));
    (RunState { running: Some(child), starts: 1, ..RunState::new(begun) }, orders)
}

fn why(state: &RunState) -> Option<StopReason> {
    state.running.as_ref().unwrap().why
}

/// Does something, and returns what the driver is told meanwhile. It refuses every command.
async fn told<T>(
    (mut supervisor, mut inbox): (Supervisor, Inbox),
    work: impl AsyncFnOnce(&mut Supervisor) -> T,
) -> (T, Vec<Input>) {
    let done = async {
        let done = work(&mut supervisor).await;
        // Closes the queue.
        drop(supervisor);
        done
    };
    let driver = async {
        let mut inputs = Vec::new();
        while let Some(Message::Input { input, .. }) = inbox.recv().await {
            inputs.push(input);
        }
        inputs
    };
    tokio::join!(done, driver)
}

#[tokio::test]
async fn a_command_starts_with_time_to_stop_it_and_not_after_a_signal() {
    let mut supervisor = supervisor();
    for (length, asked, starts) in [
        (STOP_TIMEOUT * 2, None, 1),
        (STOP_TIMEOUT, None, 0),
        (STOP_TIMEOUT * 2, Some(signals::TERM), 0),
    ] {
        let now = Linux.now();
        let belief = Belief { sent: now, length, suspended: false };
        let leader = published(Standing::Leader { term: 1, belief, jeopardy: false }, 0);
        let mut state = RunState { asked, ..RunState::new(now) };
        let over = supervisor.turn(&mut state, &leader).await;
        assert_eq!((over, state.starts), (None, starts), "{length:?}, {asked:?}");
    }
}

#[test]
fn the_election_says_when_the_wait_is_over_unless_it_led_too_shortly_for_the_command() {
    let (supervisor, state) = (waiting(s(10)), RunState::new(at(100)));
    let claim = Wait::Claim(Version("c".into()));
    let over = Wait::Over { conflict: false };
    for (standing, wait, seconds, expected) in [
        (Standing::Standby, Some(Wait::Bounded(at(100), s(10))), 111, false),
        (Standing::Standby, Some(claim), 111, false),
        (Standing::Standby, Some(over.clone()), 110, true),
        (Standing::Starting, Some(over), 110, true),
        (Standing::Standby, None, 109, false),
        (Standing::Standby, None, 110, true),
        (Standing::Activating, None, 110, false),
    ] {
        let mut published = published(standing.clone(), 0);
        published.status.wait = wait.clone();
        let has_waited = supervisor.has_waited(&state, &published, at(seconds));
        assert_eq!(has_waited, expected, "{standing:?}, {wait:?}, {seconds} s");
    }
    let standby = published(Standing::Standby, 9);
    assert!(!with(ExecOptions::default()).0.has_waited(&state, &standby, at(9_999)));
    // The code for a conflict is for a lease that another holds, as a store that answers says.
    let mut supervisor = supervisor;
    supervisor.mode.conflict_exit_code = Some(9);
    for (conflict, code) in [(true, 9), (false, NO_LEASE)] {
        let mut status = status(Standing::Standby);
        status.wait = Some(Wait::Over { conflict });
        assert_eq!(supervisor.no_lease_code(&status), code, "{conflict}");
    }
}

#[test]
fn it_looks_again_when_a_limit_is_over_and_every_second() {
    let max_hold = with(ExecOptions { max_hold: Some(s(60)), ..ExecOptions::default() }).0;
    let wait = waiting(s(60));
    let unstarted = || RunState::new(at(100));
    for (supervisor, state) in [(&max_hold, running(at(100)).0), (&wait, unstarted())] {
        let until = |now| supervisor.until_look(&state, now);
        assert_eq!(until(at(110)), LONGEST_SLEEP);
        let (half, now) = (Duration::from_millis(500), at(159));
        let now = Moment { boot: now.boot + half, ..now };
        assert_eq!(until(now), half);
        assert_eq!(until(at(160)), LONGEST_SLEEP);
    }
    // No limit is for a command that does not run, or for a wait after which it ran.
    let nearly = Moment { raw: s(160) - Duration::from_millis(1), ..at(159) };
    assert_eq!(wait.until_look(&RunState { starts: 1, ..unstarted() }, nearly), LONGEST_SLEEP);
    assert_eq!(max_hold.until_look(&unstarted(), nearly), LONGEST_SLEEP);
    assert_eq!(wait.until_look(&running(at(100)).0, nearly), LONGEST_SLEEP);
}

#[test]
fn the_watchdog_is_told_of_each_deadline_once_and_of_the_end_of_the_term() {
    let (mut state, orders) = running(at(100));
    let child = state.running.as_mut().unwrap();
    let ended = End::of(at(110), LENGTH);
    child.follow(&leader(TERM, at(100)), signals::TERM, at(105));
    assert_eq!(orders.take(), [], "it was sent this deadline when it started");
    child.follow(&leader(TERM, at(110)), signals::TERM, at(111));
    child.follow(&leader(TERM, at(110)), signals::TERM, at(112));
    assert_eq!(orders.take(), [WatchdogCommand::Belief(ended)]);
    let draining =
        Standing::Draining { term: TERM, belief: belief(at(110)), began: at(113), length: s(30) };
    child.follow(&draining, signals::INT, Moment { raw: s(114), ..at(115) });
    child.follow(&draining, signals::INT, at(116));
    let terminate = WatchdogCommand::Terminate { signal: signals::INT, within: s(28) };
    assert_eq!((orders.take(), child.why), (vec![terminate], Some(StopReason::Lost)));
    child.follow(&leader(TERM + 1, at(117)), signals::TERM, at(117));
    child.follow(&Standing::Standby, signals::TERM, at(118));
    assert_eq!(orders.take(), [WatchdogCommand::Kill]);
    let (mut state, orders) = running(at(100));
    let child = state.running.as_mut().unwrap();
    child.why = Some(StopReason::Signal);
    child.follow(&Standing::Standby, signals::TERM, at(118));
    assert_eq!(orders.take(), [WatchdogCommand::Kill]);
    assert_eq!(child.why, Some(StopReason::Signal), "the first reason counts");
}

/// Standard input is no terminal that could be lent.
#[test]
fn a_command_that_stops_at_ctrl_z_is_continued_and_one_that_was_overdue_has_lost_its_lease() {
    let (mut state, orders) = running(at(100));
    let child = state.running.as_mut().unwrap();
    let id = std::process::id().try_into().unwrap();
    child.take(WatchdogEvent::Stopped(signals::TSTP));
    assert_eq!(orders.take(), [], "it is not known to have started");
    child.take(WatchdogEvent::Started { id, since: 0 });
    child.take(WatchdogEvent::Stopped(signals::TSTP));
    assert_eq!(orders.take(), [WatchdogCommand::Signal(signals::CONT)]);
    for signal in [signals::TTIN, 19] {
        child.take(WatchdogEvent::Stopped(signal));
        assert_eq!(orders.take(), [], "signal {signal}");
    }
    child.take(WatchdogEvent::Overdue);
    assert_eq!(child.why, Some(StopReason::Lost));
}

#[tokio::test]
async fn a_term_that_ends_before_its_command_starts_is_reported_once() {
    let mut standby = published(Standing::Standby, 0);
    standby.status.workload_term = Some(TERM);
    let mut state = RunState::new(at(100));
    let ((), inputs) = told(with(ExecOptions::default()), async |it| {
        assert_eq!(it.turn(&mut state, &standby).await, None);
        assert_eq!(it.turn(&mut state, &standby).await, None);
    })
    .await;
    assert_eq!(inputs, [Input::WorkloadExited { term: TERM, hold_off: None }]);
}

/// The wait was over at the first look.
#[tokio::test]
async fn a_run_without_a_lease_ends_unless_a_command_ran_or_a_signal_asked_for_the_end() {
    for (standing, starts, asked, over) in [
        (Standing::Standby, 0, None, Some(NO_LEASE)),
        (Standing::Standby, 1, None, None),
        (Standing::Standby, 0, Some(15), None),
        (Standing::Stopped, 1, None, Some(0)),
    ] {
        let mut published = published(standing.clone(), 1);
        published.status.wait = Some(Wait::Over { conflict: false });
        let mut state = RunState { starts, asked, ..RunState::new(at(100)) };
        let options = ExecOptions { wait: Some(Duration::ZERO), ..ExecOptions::default() };
        let (ended, inputs) =
            told(with(options), async |it| it.turn(&mut state, &published).await).await;
        let over = over.map(|code| SupervisorExit::AfterRelease { code, asked: false });
        assert_eq!(ended, over, "{standing:?}, {starts} starts, {asked:?}");
        let resigns = ended.is_some() && standing == Standing::Standby;
        assert_eq!(inputs.contains(&Input::Resign), resigns);
    }
}

#[tokio::test]
async fn a_held_lease_is_given_up_once_after_max_hold() {
    let held = || with(ExecOptions { max_hold: Some(s(60)), ..ExecOptions::default() });
    let begun = Linux.now();
    let begun = Moment { boot: begun.boot - s(61), ..begun };
    let published = published(leader(TERM, begun), 0);
    let step_down = Input::Command(Command::StepDown { hold_off: AFTER_HOLD });
    let (mut state, _) = running(begun);
    let ((), inputs) = told(held(), async |it| {
        assert_eq!(it.turn(&mut state, &published).await, None);
        assert_eq!(it.turn(&mut state, &published).await, None);
    })
    .await;
    assert_eq!((inputs, why(&state)), (vec![step_down], Some(StopReason::Held)));
    for (reason, ended) in [(Some(StopReason::Signal), None), (None, Some(ExitStatus::Exited(0)))] {
        let (mut state, _) = running(begun);
        let child = state.running.as_mut().unwrap();
        (child.why, child.ended) = (reason, ended);
        let (_, inputs) = told(held(), async |it| it.turn(&mut state, &published).await).await;
        assert_eq!(inputs, [], "{reason:?}, {ended:?}");
    }
}

#[tokio::test]
async fn the_first_signal_that_asks_for_the_end_resigns_and_the_second_exits() {
    for number in [signals::INT, signals::TERM] {
        let (mut state, orders) = running(at(100));
        let (overs, inputs) = told(with(ExecOptions::default()), async |it| {
            let first = it.signalled(&mut state, number).await;
            assert_eq!(why(&state), Some(StopReason::Signal));
            [first, it.signalled(&mut state, number).await]
        })
        .await;
        let code = 128 + u8::try_from(number).unwrap();
        assert_eq!(overs, [None, Some(SupervisorExit::AtOnce(code))]);
        assert_eq!((inputs, orders.take()), (vec![Input::Resign], Vec::new()));
        assert_eq!((why(&state), state.asked), (Some(StopReason::Signal), Some(number)));
    }
    // SIGQUIT is for the command while it runs.
    let (mut state, orders) = running(at(100));
    let supervisor = with(ExecOptions::default());
    let (_, inputs) =
        told(supervisor, async |it| it.signalled(&mut state, signals::QUIT).await).await;
    assert_eq!((inputs, orders.take()), (vec![], vec![WatchdogCommand::Signal(signals::QUIT)]));
    state.running.as_mut().unwrap().ended = Some(ExitStatus::Exited(0));
    let supervisor = with(ExecOptions::default());
    let (_, inputs) =
        told(supervisor, async |it| it.signalled(&mut state, signals::QUIT).await).await;
    assert_eq!((inputs, orders.take()), (vec![Input::Resign], vec![]));
}

#[tokio::test]
async fn the_driver_is_told_of_the_end_of_the_last_process_and_of_a_hold_off_if_it_ended_by_itself()
{
    let over = |hold_off| vec![Input::WorkloadExited { term: TERM, hold_off }];
    for (reason, asked, inputs) in [
        (None, None, over(Some(s(1)))),
        (Some(StopReason::Lost), None, over(None)),
        (None, Some(signals::TERM), over(None)),
    ] {
        let (mut state, _) = running(Linux.now());
        state.running.as_mut().unwrap().why = reason;
        state.asked = asked;
        let (done, told) = told(with(ExecOptions::default()), async |it| {
            // The code of Ctrl-C means nothing without the terminal.
            let exited = it.reported(&mut state, Some(WatchdogEvent::Exited(130))).await;
            assert!(state.running.is_some(), "others may be left");
            (exited, it.reported(&mut state, Some(WatchdogEvent::Gone)).await)
        })
        .await;
        assert_eq!((done, told, state.vacated), ((None, None), inputs, TERM));
        assert!(state.running.is_none());
    }
}

#[tokio::test]
async fn the_end_of_a_command_is_that_of_its_reaper() {
    let (mut state, orders) = running(Linux.now());
    orders.exit.notified().await;
    let ((), inputs) = told(with(ExecOptions::default()), async |it| {
        let mut ending = pin!(it.reported(&mut state, Some(WatchdogEvent::Gone)));
        assert!(poll!(&mut ending).is_pending());
        orders.exit.notify_one();
        assert_eq!(ending.await, None);
    })
    .await;
    assert!(matches!(inputs[..], [Input::WorkloadExited { term: TERM, .. }]), "{inputs:?}");
}

#[tokio::test]
async fn a_run_is_as_long_as_the_slower_clock_says() {
    for (raw, hold_off) in [(0, 2), (61, 1)] {
        let now = Linux.now();
        let begun = Moment { boot: now.boot - s(61), raw: now.raw - s(raw), ..now };
        let mut state = RunState::new(begun);
        state.back_off.after(Duration::ZERO);
        let ended = ExitStatus::Exited(0);
        let (_, inputs) = told(with(ExecOptions::default()), async |it| {
            it.over(&mut state, TERM, ended, None, begun).await
        })
        .await;
        let hold_off = Some(s(hold_off));
        assert_eq!(inputs, [Input::WorkloadExited { term: TERM, hold_off }]);
    }
}

#[tokio::test]
async fn a_command_that_runs_once_ends_the_run_with_its_code() {
    for (reason, report, code) in [
        (None, Some(WatchdogEvent::Exited(3)), 3),
        (Some(StopReason::Signal), Some(WatchdogEvent::Signalled(15)), 143),
        (Some(StopReason::Held), Some(WatchdogEvent::Exited(0)), 124),
        (Some(StopReason::Lost), Some(WatchdogEvent::Exited(0)), 76),
        // Watchdog and command were killed.
        (None, None, 137),
        (None, Some(WatchdogEvent::Failed(11)), CANNOT_RUN),
    ] {
        let (mut state, _) = running(Linux.now());
        state.running.as_mut().unwrap().why = reason;
        let (mut supervisor, inbox) = with(ExecOptions::default());
        supervisor.mode.once = true;
        let (over, inputs) =
            told((supervisor, inbox), async |it| match it.reported(&mut state, report).await {
                None => it.reported(&mut state, Some(WatchdogEvent::Gone)).await,
                over => over,
            })
            .await;
        assert_eq!(over, Some(SupervisorExit::AfterRelease { code, asked: false }), "{report:?}");
        let exited = Input::WorkloadExited { term: TERM, hold_off: None };
        assert_eq!(inputs, [Input::Resign, exited]);
    }
}

#[test]
fn a_run_without_a_command_fails_only_if_it_was_to_run_once_and_was_ended_by_a_signal() {
    for (once, asked, code) in
        [(true, Some(15), 143), (true, None, 0), (false, Some(15), 0), (true, Some(2), 130)]
    {
        let mut supervisor = supervisor();
        supervisor.mode.once = once;
        let state = RunState { asked, ..RunState::new(at(100)) };
        let over = supervisor.without_command(&state);
        assert_eq!(over, SupervisorExit::AfterRelease { code, asked: asked.is_some() });
    }
}
