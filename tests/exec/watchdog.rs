//! The watchdog of `exec` alone: a real process with a real command, controlled by the test.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tenure::clock;
use tenure::config::Withheld;
use tenure::exec::watchdog_client::{Task, WatchdogClient};
use tenure::exec::wire::{End, RECORD, WatchdogCommand, WatchdogEvent};
use tenure::process::signals::Signals;
use testkit::processes::exec_process::only_child;
use testkit::processes::process;

/// The timeout for any expected change.
const BOUND: Duration = Duration::from_secs(20);

fn task(script: &str) -> Task {
    // As in `exec`: signals that are ignored by this process, as in the background of a script, are
    // not ignored by its children.
    Signals::of_exec().unwrap();
    Task {
        tenure: env!("CARGO_BIN_EXE_tenure").into(),
        program: "/bin/sh".into(),
        name: "sh".into(),
        arguments: vec!["-c".into(), script.into()],
        stop_timeout: Duration::from_millis(500),
        withheld: Withheld::default(),
    }
}

fn ends_in(length: Duration) -> End {
    End::of(clock::now(), length)
}

/// Starts a watchdog of a shell script, with `$DIR` in its environment.
fn start(script: &str, directory: &Path, length: Duration) -> WatchdogClient {
    let variables = [("DIR", directory.as_os_str())];
    WatchdogClient::start(&task(script), &variables, ends_in(length)).unwrap()
}

async fn report(watchdog: &mut WatchdogClient) -> Option<WatchdogEvent> {
    tokio::time::timeout(BOUND, watchdog.report()).await.expect("a report in time")
}

async fn started(watchdog: &mut WatchdogClient) -> Pid {
    match report(watchdog).await {
        Some(WatchdogEvent::Started { id, .. }) => Pid::from_raw(id).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Returns all reports until the watchdog exits, and how long that took.
async fn rest(watchdog: &mut WatchdogClient) -> (Vec<WatchdogEvent>, Duration) {
    let start = clock::now();
    let mut all = Vec::new();
    while let Some(one) = report(watchdog).await {
        all.push(one);
    }
    tokio::time::timeout(BOUND, watchdog.ended()).await.expect("the watchdog ends");
    (all, start.elapsed_max(clock::now()))
}

/// Waits until a file is written completely, and reads it.
async fn read(path: &Path) -> String {
    let reading = async {
        loop {
            match std::fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    tokio::time::timeout(BOUND, reading).await.unwrap_or_else(|_| panic!("{}", path.display()))
}

async fn pid_in(path: &Path) -> Pid {
    Pid::from_raw(read(path).await.parse().unwrap()).unwrap()
}

/// Returns whether a process exists and is not a zombie.
fn lives(id: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
    test_kill_process(id).is_ok() && stat.is_ok_and(|it| !it.contains(") Z "))
}

fn reaper_of(watchdog: &WatchdogClient) -> Pid {
    Pid::from_raw(watchdog.id().unwrap().try_into().unwrap()).unwrap()
}

/// Returns the process of the watchdog itself, below its reaper.
fn process_of(watchdog: &WatchdogClient) -> Pid {
    only_child(reaper_of(watchdog)).unwrap()
}

/// Waits until a process has a signal that it has not received.
async fn until_pending(id: Pid, signal: Signal) {
    let bit = 1_u64 << (signal.as_raw() - 1);
    let waiting = async {
        loop {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let pending = status.lines().find_map(|it| it.strip_prefix("ShdPnd:")).unwrap();
            if u64::from_str_radix(pending.trim(), 16).unwrap() & bit != 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.unwrap_or_else(|_| panic!("{signal:?} at {id}"));
}

async fn until_dead(id: Pid) {
    let dying = async {
        while lives(id) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(BOUND, dying).await.expect("it dies");
}

const STUBBORN: &str = "trap '' TERM INT HUP; echo $$ >$DIR/ready; while :; do sleep 0.05; done";

#[tokio::test]
async fn the_exit_of_a_command_is_reported_as_a_shell_does() {
    let directory = tempfile::tempdir().unwrap();
    for (script, events) in [
        ("exit 7", WatchdogEvent::Exited(7)),
        ("exit 0", WatchdogEvent::Exited(0)),
        ("kill -SEGV $$", WatchdogEvent::Signalled(11)),
    ] {
        let mut watchdog = start(script, directory.path(), BOUND);
        started(&mut watchdog).await;
        let (said_all, _) = rest(&mut watchdog).await;
        assert_eq!(said_all, [events, WatchdogEvent::Gone], "{script}");
    }
}

#[tokio::test]
async fn a_command_that_vanished_meanwhile_is_127_and_one_that_may_not_run_is_126() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (program, code) in [(Path::new("/nonexistent/it"), 127), (file.path(), 126)] {
        let it = Task { program: program.into(), ..task("") };
        let mut watchdog = WatchdogClient::start(&it, &[], ends_in(BOUND)).unwrap();
        started(&mut watchdog).await;
        let (events, _) = rest(&mut watchdog).await;
        assert_eq!(
            events,
            [WatchdogEvent::Exited(code), WatchdogEvent::Gone],
            "{}",
            program.display()
        );
    }
}

#[tokio::test]
async fn sigterm_is_sent_before_the_deadline_and_sigkill_at_it() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'date +%s%N >$DIR/term' TERM; echo $$ >$DIR/ready
        while :; do sleep 0.02; done";
    let mut watchdog = start(script, directory.path(), Duration::from_secs(60));
    let id = started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    let (begin, end) = (clock::now(), ends_in(Duration::from_millis(1_500)));
    assert!(watchdog.order(WatchdogCommand::Belief(end)));
    read(&directory.path().join("term")).await;
    let termed = begin.elapsed_max(clock::now());
    // No earlier than the stop-timeout of 500 ms before the deadline.
    assert!(termed >= Duration::from_millis(1_000), "{termed:?}");
    until_dead(id).await;
    let killed = begin.elapsed_min(clock::now());
    assert!(killed >= Duration::from_millis(1_500), "killed {killed:?} after, before the end");
    // The bound is the safety property, plus an allowance for a busy machine.
    assert!(killed < Duration::from_millis(2_000), "{killed:?}");
    let events = rest(&mut watchdog).await.0;
    assert_eq!(events, [WatchdogEvent::Overdue, WatchdogEvent::Signalled(9), WatchdogEvent::Gone]);
}

#[tokio::test]
async fn a_command_that_handles_sigterm_has_ended_before_the_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'exit 3' TERM; echo $$ >$DIR/ready; while :; do sleep 0.02; done";
    let mut watchdog = start(script, directory.path(), BOUND);
    let id = started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    let end = ends_in(Duration::from_millis(1_500));
    watchdog.order(WatchdogCommand::Belief(end));
    until_dead(id).await;
    assert!(!end.remaining(clock::now()).is_zero(), "it had the whole stop-timeout");
    let events = rest(&mut watchdog).await.0;
    assert_eq!(events, [WatchdogEvent::Overdue, WatchdogEvent::Exited(3), WatchdogEvent::Gone]);
}

#[tokio::test]
async fn each_extended_deadline_keeps_the_command_alive() {
    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start(STUBBORN, directory.path(), Duration::from_millis(1_500));
    let id = started(&mut watchdog).await;
    for _ in 0..12 {
        watchdog.order(WatchdogCommand::Belief(ends_in(Duration::from_millis(1_500))));
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(lives(id));
    }
    watchdog.order(WatchdogCommand::Kill);
    assert_eq!(rest(&mut watchdog).await.0, [WatchdogEvent::Signalled(9), WatchdogEvent::Gone]);
}

#[tokio::test]
async fn the_command_is_killed_at_once_when_tenure_has_exited() {
    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start(STUBBORN, directory.path(), Duration::from_secs(3_600));
    let id = started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    let begin = clock::now();
    drop(watchdog);
    until_dead(id).await;
    let took = begin.elapsed_max(clock::now());
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn a_requested_stop_is_the_requested_signal_and_then_sigkill() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'echo got >$DIR/int' INT; trap 'echo got >$DIR/term' TERM
        echo $$ >$DIR/ready; while :; do sleep 0.02; done";
    let mut watchdog = start(script, directory.path(), Duration::from_secs(3_600));
    started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    let begin = clock::now();
    watchdog.order(WatchdogCommand::Terminate { signal: 2, within: Duration::from_secs(1) });
    read(&directory.path().join("int")).await;
    let (events, _) = rest(&mut watchdog).await;
    assert_eq!(events, [WatchdogEvent::Signalled(9), WatchdogEvent::Gone]);
    assert!(begin.elapsed_min(clock::now()) >= Duration::from_secs(1), "it had its time");
    assert!(!directory.path().join("term").exists(), "and no other signal");
}

#[tokio::test]
async fn signals_are_forwarded_to_the_process_group_and_continue_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'echo got >$DIR/parent' USR1
        (trap 'echo got >$DIR/child' USR1; echo 1 >$DIR/a; while :; do sleep 0.02; done) &
        echo 1 >$DIR/b; while :; do sleep 0.02; done";
    let mut watchdog = start(script, directory.path(), Duration::from_secs(3_600));
    let id = started(&mut watchdog).await;
    for file in ["a", "b"] {
        read(&directory.path().join(file)).await;
    }
    watchdog.order(WatchdogCommand::Signal(10));
    for file in ["parent", "child"] {
        read(&directory.path().join(file)).await;
    }
    kill_process(id, Signal::STOP).unwrap();
    assert_eq!(report(&mut watchdog).await, Some(WatchdogEvent::Stopped(19)));
    watchdog.order(WatchdogCommand::Signal(10));
    until_pending(id, Signal::USR1).await;
    assert!(process::has_stopped(id));
    watchdog.order(WatchdogCommand::Kill);
    rest(&mut watchdog).await;
}

#[tokio::test]
async fn grandchildren_are_killed_even_outside_of_group_and_session() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap '' TERM
        sh -c 'trap \"\" TERM; echo $$ >$DIR/group; while :; do sleep 1; done' &
        setsid sh -c 'trap \"\" TERM; echo $$ >$DIR/session; while :; do sleep 1; done' &
        setsid sh -c 'setsid sh -c \"trap \\\"\\\" TERM; echo \\$\\$ >$DIR/orphan
            while :; do sleep 1; done\" & exit 0' &
        echo $$ >$DIR/ready; while :; do sleep 1; done";
    let mut watchdog = start(script, directory.path(), Duration::from_secs(3_600));
    started(&mut watchdog).await;
    let mut all = Vec::new();
    for file in ["group", "session", "orphan", "ready"] {
        all.push(pid_in(&directory.path().join(file)).await);
    }
    assert!(all.iter().all(|it| lives(*it)));
    drop(watchdog);
    for id in all {
        until_dead(id).await;
    }
}

#[tokio::test]
async fn background_processes_of_a_command_end_before_the_watchdog() {
    let directory = tempfile::tempdir().unwrap();
    let script = "sh -c 'trap \"\" TERM; echo $$ >$DIR/left; while :; do sleep 1; done' &
        while [ ! -s $DIR/left ]; do sleep 0.02; done; exit 4";
    let mut watchdog = start(script, directory.path(), Duration::from_secs(3_600));
    let main = started(&mut watchdog).await;
    let left = pid_in(&directory.path().join("left")).await;
    assert_eq!(report(&mut watchdog).await, Some(WatchdogEvent::Exited(4)));
    assert!(lives(left), "it has the stop-timeout");
    assert!(test_kill_process(main).is_ok(), "no other process can get its id meanwhile");
    assert_eq!(rest(&mut watchdog).await.0, [WatchdogEvent::Gone]);
    assert!(!lives(left));
}

#[tokio::test]
async fn a_stopped_command_is_reported_and_ended() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap 'exit 5' TERM; echo $$ >$DIR/ready; while :; do sleep 0.02; done";
    let mut watchdog = start(script, directory.path(), Duration::from_secs(3_600));
    let id = started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    kill_process(id, Signal::STOP).unwrap();
    assert_eq!(report(&mut watchdog).await, Some(WatchdogEvent::Stopped(19)));
    watchdog.order(WatchdogCommand::Terminate { signal: 15, within: BOUND });
    assert_eq!(rest(&mut watchdog).await.0, [WatchdogEvent::Exited(5), WatchdogEvent::Gone]);
}

#[tokio::test]
async fn the_command_dies_with_its_watchdog() {
    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start(STUBBORN, directory.path(), Duration::from_secs(3_600));
    let id = started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    kill_process(process_of(&watchdog), Signal::KILL).unwrap();
    until_dead(id).await;
    assert_eq!(report(&mut watchdog).await, None);
}

#[tokio::test]
async fn a_command_whose_deadline_has_passed_is_never_started() {
    let directory = tempfile::tempdir().unwrap();
    for left in [0, 400] {
        // 500 ms are reserved for its termination.
        let left = Duration::from_millis(left);
        let mut watchdog = start("echo >$DIR/began", directory.path(), left);
        assert_eq!(
            rest(&mut watchdog).await.0,
            [WatchdogEvent::Overdue, WatchdogEvent::Gone],
            "{left:?}"
        );
        assert!(!directory.path().join("began").exists());
    }
}

#[tokio::test]
async fn a_stopped_watchdog_is_continued_at_once_or_by_the_next_request() {
    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start(STUBBORN, directory.path(), Duration::from_secs(2));
    let id = started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    let its = process_of(&watchdog);
    kill_process(its, Signal::STOP).unwrap();
    until_dead(id).await;

    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start(STUBBORN, directory.path(), Duration::from_secs(60));
    let id = started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    let its = process_of(&watchdog);
    let reaper = Pid::from_raw(watchdog.id().unwrap().try_into().unwrap()).unwrap();
    for stopped in [reaper, its] {
        kill_process(stopped, Signal::STOP).unwrap();
        while !process::has_stopped(stopped) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let within = Duration::from_millis(300);
    assert!(watchdog.order(WatchdogCommand::Terminate { signal: 15, within }));
    until_dead(id).await;
}

#[tokio::test]
async fn fault_43_an_order_right_after_the_start_is_carried_out() {
    let directory = tempfile::tempdir().unwrap();
    let within = Duration::from_millis(300);
    for order in [WatchdogCommand::Kill, WatchdogCommand::Terminate { signal: 15, within }] {
        let mut watchdog = start(STUBBORN, directory.path(), Duration::from_secs(3_600));
        assert!(watchdog.order(order), "{order:?}");
        let (events, _) = rest(&mut watchdog).await;
        assert_eq!(events.last(), Some(&WatchdogEvent::Gone), "{events:?}");
    }
}

#[tokio::test]
async fn fault_43_an_order_to_end_that_is_not_accepted_closes_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    // Takes the place of the watchdog, and reads nothing before it is told to.
    let deaf = directory.path().join("deaf");
    let script = "#!/bin/sh\nuntil [ -e $DIR/read ]; do sleep 0.02; done\ncat >$DIR/orders\n";
    // Written by another process: a file that is open for writing in a fork of this one, for another
    // test, could not be executed.
    let write = "printf %s \"$1\" >\"$0\"; chmod +x \"$0\"";
    let mut writer = std::process::Command::new("sh");
    assert!(writer.args(["-c", write]).arg(&deaf).arg(script).status().unwrap().success());
    for end in [
        WatchdogCommand::Kill,
        WatchdogCommand::Terminate { signal: 15, within: Duration::from_secs(1) },
    ] {
        let it = Task { tenure: deaf.clone(), ..task("") };
        let variables = [("DIR", directory.path().as_os_str())];
        let mut watchdog = WatchdogClient::start(&it, &variables, ends_in(BOUND)).unwrap();
        let mut accepted = 1;
        while watchdog.order(WatchdogCommand::Belief(ends_in(BOUND))) {
            accepted += 1;
        }
        assert!(!watchdog.order(end));
        std::fs::write(directory.path().join("read"), "").unwrap();
        tokio::time::timeout(BOUND, watchdog.ended())
            .await
            .expect("it reads the end of the stream");
        let orders = std::fs::read(directory.path().join("orders")).unwrap();
        assert_eq!(orders.len(), accepted * RECORD);
        std::fs::remove_file(directory.path().join("read")).unwrap();
    }
}

#[tokio::test]
async fn fault_42_the_whole_group_dies_when_tenure_and_its_watchdog_are_killed() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap '' TERM
        sh -c 'trap \"\" TERM; echo $$ >$DIR/group; while :; do sleep 1; done' &
        setsid sh -c 'trap \"\" TERM; echo $$ >$DIR/session; while :; do sleep 1; done' &
        echo $$ >$DIR/ready; while :; do sleep 1; done";
    let mut watchdog = start(script, directory.path(), Duration::from_secs(3_600));
    started(&mut watchdog).await;
    let mut all = Vec::new();
    for file in ["group", "session", "ready"] {
        all.push(pid_in(&directory.path().join(file)).await);
    }
    let its = process_of(&watchdog);
    kill_process(its, Signal::KILL).unwrap();
    // The end of Tenure is the end of its socket.
    drop(watchdog);
    for id in all {
        until_dead(id).await;
    }
}

#[tokio::test]
async fn the_command_starts_with_the_environment_of_a_direct_child() {
    let sleep = Task {
        program: "/bin/sleep".into(),
        name: "a name".into(),
        arguments: vec!["60".into()],
        ..task("")
    };
    let mut watchdog = WatchdogClient::start(&sleep, &[], ends_in(BOUND)).unwrap();
    let id = started(&mut watchdog).await;
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap();
    while of("cmdline") != "a name\u{0}60\u{0}" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = of("status");
    let signals = |name: &str| {
        let line = status.lines().find_map(|it| it.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    assert_eq!(signals("SigBlk:"), 0, "{status}");
    assert_eq!(signals("SigIgn:") & !(0b11 << 31), 0, "but what libc keeps for itself: {status}");
    assert_eq!(rustix::process::getpgid(Some(id)).unwrap(), id, "it leads its group");
    let ours = |file: &std::fs::DirEntry| {
        let link = std::fs::read_link(file.path()).unwrap_or_default();
        let link = link.to_string_lossy();
        link.starts_with("socket:") || link.contains("signalfd")
    };
    let files = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap();
    assert_eq!(
        files.filter(|it| ours(it.as_ref().unwrap())).count(),
        0,
        "no file of the watchdog's"
    );
    watchdog.order(WatchdogCommand::Kill);
    rest(&mut watchdog).await;
}

#[tokio::test]
async fn a_watchdog_uses_a_few_hundred_kilobytes() {
    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start(STUBBORN, directory.path(), Duration::from_secs(3_600));
    started(&mut watchdog).await;
    read(&directory.path().join("ready")).await;
    let maps = format!("/proc/{}/smaps", process_of(&watchdog));
    let maps = std::fs::read_to_string(maps).unwrap();
    // Without the pages of files: the relocations of a test build are four times those of a release.
    let (mut own, mut is_of_file) = (0, false);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Anonymous:") if !is_of_file => {
                own += words.next().unwrap().parse::<u64>().unwrap();
            }
            Some(range) if !range.ends_with(':') => {
                is_of_file = words.nth(4).is_some_and(|path| path.starts_with('/'));
            }
            _ => {}
        }
    }
    assert!((1..400).contains(&own), "{own} KiB in {maps}");
    watchdog.order(WatchdogCommand::Kill);
    rest(&mut watchdog).await;
}

/// As systemd does to all processes of a unit.
#[tokio::test]
async fn signals_to_the_watchdog_and_the_reaper_end_neither_them_nor_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start("echo $$ >$DIR/id; exec sleep 60", directory.path(), 2 * BOUND);
    let command = started(&mut watchdog).await;
    assert_eq!(pid_in(&directory.path().join("id")).await, command);
    for process in [process_of(&watchdog), reaper_of(&watchdog)] {
        use Signal as Is;
        for signal in [Is::TERM, Is::INT, Is::HUP, Is::QUIT, Is::TSTP, Is::USR1] {
            kill_process(process, signal).unwrap();
            // It is blocked for as long as the process lives.
            until_pending(process, signal).await;
        }
    }
    watchdog.order(WatchdogCommand::Signal(Signal::TERM.as_raw()));
    let (reports, _) = rest(&mut watchdog).await;
    let killed = WatchdogEvent::Signalled(Signal::TERM.as_raw());
    assert_eq!(reports, [killed, WatchdogEvent::Gone]);
}

/// A wait that returns at once takes the whole of a processor.
#[tokio::test]
async fn the_watchdog_and_the_reaper_of_an_idle_command_are_idle() {
    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start("exec sleep 60", directory.path(), 2 * BOUND);
    started(&mut watchdog).await;
    let both = [process_of(&watchdog), reaper_of(&watchdog)];
    // In ticks of 10 ms, of the process itself.
    let used = |id: Pid| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
        let times = stat.split_ascii_whitespace().skip(13).take(2);
        times.map(|it| it.parse::<u64>().unwrap()).sum()
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    for id in both {
        assert!(used(id) < 10, "{id} of {both:?}: {}", used(id));
    }
    watchdog.order(WatchdogCommand::Kill);
    rest(&mut watchdog).await;
}

#[test]
fn a_stage_without_its_arguments_is_a_usage_error() {
    for arguments in
        [&["watchdog-of-exec"][..], &["watchdog-of-exec", "1", "true"], &["launch-of-exec"]]
    {
        let mut stage = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"));
        let stage = stage.args(arguments).stdin(std::process::Stdio::null());
        assert_eq!(stage.status().unwrap().code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn the_launcher_says_why_a_program_cannot_be_executed() {
    let mut launcher = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"));
    let us = std::process::id().to_string();
    let ran = launcher.args(["launch-of-exec", &us, "/nonexistent/it", "it"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(127), "{said}");
    assert!(said.starts_with("tenure: /nonexistent/it: No such file"), "{said}");
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_asked_to_end_before_it_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let child = "trap 'echo asked >$DIR/asked; exit' TERM; echo >$DIR/ready; sleep 60 & wait";
    let script = format!("({child}) & until [ -s $DIR/ready ]; do sleep 0.01; done");
    let mut watchdog = start(&script, directory.path(), 2 * BOUND);
    started(&mut watchdog).await;
    let (reports, _) = rest(&mut watchdog).await;
    assert_eq!(reports, [WatchdogEvent::Exited(0), WatchdogEvent::Gone]);
    assert_eq!(read(&directory.path().join("asked")).await, "asked");
}

#[tokio::test]
async fn a_command_dies_with_its_watchdog_while_the_reaper_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let mut watchdog = start("echo $$ >$DIR/id; exec sleep 60", directory.path(), 2 * BOUND);
    let command = started(&mut watchdog).await;
    assert_eq!(pid_in(&directory.path().join("id")).await, command);
    let its = process_of(&watchdog);
    kill_process(reaper_of(&watchdog), Signal::STOP).unwrap();
    kill_process(its, Signal::KILL).unwrap();
    until_dead(command).await;
    kill_process(reaper_of(&watchdog), Signal::CONT).unwrap();
    tokio::time::timeout(BOUND, watchdog.ended()).await.expect("the reaper ends");
}
