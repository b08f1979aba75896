//! `tenure exec` in real processes: a command that ignores SIGTERM is dead, with its child, before
//! the next one starts, whatever happens to its Tenure process.

use testkit::azure::azurite;
use testkit::faults::cgroup::{Cgroup, Controller};
use testkit::faults::fault_proxy;
use testkit::processes::{exec_process, process};

use std::time::Duration;

use exec_process::{Life, Place, QUICK, reaper, watchdog};
use fault_proxy::{Door, FaultProxy};
use process::{Process, until};
use rustix::process::{Signal, kill_process};
use tenure::clock;

/// The timeout of a handover with a lease of 2 s, on a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// Starts two candidates with stubborn commands; that of the first runs.
fn pair(place: &Place) -> [Process; 2] {
    let store = place.store();
    let store = ["--store", &store];
    let first = place.start("first", &store, QUICK, "stubborn");
    life_of(place, "first", BOUND);
    [first, place.start("second", &store, QUICK, "stubborn")]
}

/// Waits until the command of a candidate and its child run.
fn life_of(place: &Place, name: &str, bound: Duration) -> Life {
    until(bound, &format!("{name}'s command begins"), || {
        place.lives().into_iter().find(|it| it.name == name && it.processes.len() == 2)
    })
}

/// Waits for the command of the second candidate, and returns the life of the first one's.
fn handed_over(place: &Place, bound: Duration) -> Life {
    let second = life_of(place, "second", bound);
    place.assert_safe();
    let first = place.lives().into_iter().find(|it| it.name == "first").unwrap();
    assert!(first.last < second.first);
    first
}

#[test]
fn sigterm_drains_the_command_before_the_lease_is_released() {
    let place = Place::new();
    let [mut first, _second] = pair(&place);
    let began = clock::now();
    first.signal(Signal::TERM);
    let ended = first.wait(BOUND);
    assert!(ended.success(), "{ended}");
    let first = handed_over(&place, BOUND);
    assert!(first.last >= began.raw + Duration::from_millis(950), "it had its second: {first:?}");
}

#[test]
fn a_command_that_handles_sigterm_ends_the_drain_early() {
    let place = Place::new();
    let store = place.store();
    let (rest, _) = QUICK.split_at(QUICK.len() - 2);
    let more = [rest, &["--drain-timeout", "1h"]].concat();
    let mut first = place.start("first", &["--store", &store], &more, "brittle");
    life_of(&place, "first", BOUND);
    first.signal(Signal::TERM);
    assert!(first.wait(BOUND).success());
}

#[test]
fn the_lease_is_kept_until_the_last_descendant_of_the_command_is_dead() {
    let place = Place::new();
    let store = place.store();
    let store = ["--store", store.as_str()];
    let first = place.start("first", &store, QUICK, "survived");
    life_of(&place, "first", BOUND);
    let _second = place.start("second", &store, QUICK, "stubborn");
    let began = clock::now();
    first.signal(Signal::TERM);
    let life = handed_over(&place, BOUND);
    let stop_timeout = Duration::from_millis(500);
    assert!(life.last >= began.raw + stop_timeout.mul_f32(0.9), "its child had its time: {life:?}");
}

#[test]
fn the_command_is_killed_at_once_when_tenure_is_killed() {
    let place = Place::new();
    let [first, _second] = pair(&place);
    let killed = clock::now();
    first.signal(Signal::KILL);
    let first = handed_over(&place, BOUND);
    // Less than the lease of 2 s, but enough for a busy machine.
    assert!(first.last < killed.raw + Duration::from_secs(1), "{first:?}, killed at {killed:?}");
}

#[test]
fn the_command_is_dead_in_time_when_tenure_is_stopped() {
    let place = Place::new();
    let [first, _second] = pair(&place);
    let stopped = clock::now();
    first.signal(Signal::STOP);
    let life = handed_over(&place, BOUND);
    assert!(life.last < stopped.raw + Duration::from_millis(1_900), "{life:?}");
    first.signal(Signal::CONT);
    // The first notices the expiry and becomes a standby; its command does not start again while
    // the second one's runs.
    until(BOUND, "the first sees that it was over", || {
        first.log().contains("lapsed").then_some(())
    });
    place.assert_safe();
}

#[test]
fn the_command_dies_with_its_watchdog_and_starts_again_in_a_later_term() {
    let place = Place::new();
    let [first, _second] = pair(&place);
    let killed = clock::now();
    kill_process(watchdog(&first).unwrap(), Signal::KILL).unwrap();
    let life = handed_over(&place, BOUND);
    assert!(life.last < killed.raw + Duration::from_secs(1), "its child too: {life:?}");
    assert!(first.log().contains("watchdog of the command was killed"), "{}", first.log());
}

#[test]
fn fault_42_the_next_command_starts_after_the_group_is_dead_when_both_are_killed() {
    let place = Place::new();
    let [first, _second] = pair(&place);
    let its = watchdog(&first).unwrap();
    let killed = clock::now();
    // Stopped, so that neither has time for the other's end.
    first.signal(Signal::STOP);
    kill_process(its, Signal::KILL).unwrap();
    first.signal(Signal::KILL);
    let life = handed_over(&place, BOUND);
    assert!(life.last < killed.raw + Duration::from_secs(1), "its child too: {life:?}");
}

#[test]
fn the_group_of_the_command_dies_when_watchdog_and_reaper_are_killed() {
    let place = Place::new();
    let [first, _second] = pair(&place);
    let both = [watchdog(&first).unwrap(), reaper(&first).unwrap()];
    let killed = clock::now();
    kill_process(both[1], Signal::STOP).unwrap();
    for it in both {
        kill_process(it, Signal::KILL).unwrap();
    }
    let life = handed_over(&place, BOUND);
    assert!(life.last < killed.raw + Duration::from_secs(1), "its child too: {life:?}");
}

#[test]
fn a_second_signal_ends_tenure_while_the_group_cannot_die() {
    let place = Place::new();
    let store = place.store();
    let mut first = place.start("first", &["--store", &store], QUICK, "stubborn");
    let life = life_of(&place, "first", BOUND);
    // Frozen by cgroup v1, a process dies of SIGKILL only when it thaws; by v2 at once, which leaves
    // nothing to wait for.
    let cgroup = Cgroup::new(Controller::Freezer);
    for process in life.processes {
        cgroup.take(process);
    }
    cgroup.freeze();
    let both = [watchdog(&first).unwrap(), reaper(&first).unwrap()];
    kill_process(both[1], Signal::STOP).unwrap();
    for it in both {
        kill_process(it, Signal::KILL).unwrap();
    }
    for _ in 0..2 {
        first.signal(Signal::TERM);
        until(BOUND, "it has received the signal", || {
            (first.has_ended() || first.log().contains("a second signal ends at once"))
                .then_some(())
        });
    }
    let ended = first.wait(BOUND);
    assert!(matches!(ended.code(), Some(0 | 143)), "{ended}");
}

#[test]
fn an_operators_break_ends_the_command_before_the_next_one_starts() {
    let place = Place::new();
    let [first, _second] = pair(&place);
    let broken = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["break", "--yes", "--store", &place.store()])
        .output()
        .unwrap();
    assert!(broken.status.success(), "{broken:?}");
    until(BOUND, "another term begins", || {
        place.assert_safe();
        (place.lives().len() > 1).then_some(())
    });
    place.assert_safe();
    let warned = first.log().contains("about to expire");
    assert!(!warned, "it was killed at once, and not at the deadline: {}", first.log());
}

#[tokio::test]
async fn on_azurite_the_command_is_dead_in_time_when_the_store_is_cut_off() {
    let azurite = azurite::Azurite::start().await;
    let proxy = FaultProxy::before(&azurite.endpoint);
    let place = Place::new();
    let store = ["--store", "azure://devstoreaccount1/elections", "--azure-endpoint"];
    let through = proxy.endpoint(&azurite.endpoint);
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["doctor", "--create", "--yes"])
        .args(store)
        .arg(azurite.endpoint.as_str())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let of = |endpoint| [&store[..], &[endpoint]].concat();
    let (cut, free) = (of(through.as_str()), of(azurite.endpoint.as_str()));
    let bound = Duration::from_secs(60);
    let first = place.start("first", &cut, &[], "stubborn");
    life_of(&place, "first", bound);
    let _second = place.start("second", &free, &[], "stubborn");
    let at = clock::now();
    proxy.door(Door::Shut);
    let life = handed_over(&place, bound);
    assert!(life.last <= at.raw + Duration::from_millis(10_500), "{life:?}");
    assert!(life.last >= at.raw + Duration::from_secs(5), "it ran on while the lease was good");
    assert!(first.log().contains("sending SIGTERM"), "{}", first.log());
}

#[tokio::test]
async fn on_azurite_the_command_is_dead_in_time_when_tenure_is_stopped_for_25_seconds() {
    let azurite = azurite::Azurite::start().await;
    let place = Place::new();
    let store = [
        "--store",
        "azure://devstoreaccount1/elections",
        "--azure-endpoint",
        azurite.endpoint.as_str(),
    ];
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_tenure"))
        .args(["doctor", "--create", "--yes"])
        .args(store)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let bound = Duration::from_secs(60);
    let first = place.start("first", &store, &[], "stubborn");
    life_of(&place, "first", bound);
    let _second = place.start("second", &store, &[], "stubborn");
    let stopped = clock::now();
    first.signal(Signal::STOP);
    let life = handed_over(&place, bound);
    assert!(life.last <= stopped.raw + Duration::from_millis(10_500), "{life:?}");
    until(bound, "25 s have passed", || {
        (stopped.elapsed_min(clock::now()) > Duration::from_secs(25)).then_some(())
    });
    first.signal(Signal::CONT);
    until(bound, "the first sees that it was over", || {
        first.log().contains("lapsed").then_some(())
    });
    place.assert_safe();
}

#[test]
fn the_end_of_a_command_is_a_warning_if_it_failed_by_itself() {
    let asked = |script: &str| (vec!["--max-hold", "300ms"], script.to_owned());
    let by_itself = |script: &str| (vec![], script.to_owned());
    let (exited, killed) = ("command exited", "command killed by a signal");
    for ((flags, script), code, level, words) in [
        (by_itself("exit 3"), 3, "WARN", exited),
        (by_itself("kill -9 $$"), 137, "WARN", killed),
        (by_itself("exit 0"), 0, "INFO", exited),
        (asked("trap 'exit 3' TERM; sleep 60 & wait"), 124, "INFO", exited),
        (asked("exec sleep 60"), 124, "INFO", killed),
        (by_itself("exec $DIR/none"), 127, "WARN", exited),
    ] {
        let place = Place::new();
        let quiet = place.command(&[&["--once"], &flags[..]].concat(), &["sh", "-c", &script]);
        let arguments = quiet.get_args().map(|it| if it == "warn" { "info".as_ref() } else { it });
        let mut ran = std::process::Command::new(quiet.get_program());
        let ran = ran.args(arguments).env("DIR", place.path()).output().unwrap();
        let log = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{script}: {log}");
        let ends = |it: &&str| it.contains(exited) || it.contains(killed);
        let ends: Vec<_> = log.lines().filter(ends).collect();
        assert_eq!(ends.len(), 1, "{script}: {log}");
        assert!(ends[0].contains(level) && ends[0].contains(words), "{script}: {log}");
    }
}
