//! `tenure exec` in jobs and scripts: exit codes, waiting, the maximum time to hold, signals, and
//! the environment of the command.

use testkit::kubernetes::kube_server::KubeServer;
use testkit::processes::{exec_process, process};

use std::process::{Command, Output};
use std::time::Duration;

use exec_process::{Place, QUICK, read, watchdog};
use process::{Process, until};
use rustix::process::Signal;
use tenure::clock;

const BOUND: Duration = Duration::from_secs(30);

fn run(place: &Place, flags: &[&str], command: &[&str]) -> Output {
    place.command(flags, command).output().unwrap()
}

fn code(place: &Place, flags: &[&str], command: &[&str]) -> i32 {
    run(place, flags, command).status.code().unwrap()
}

/// Holds the lock by another process until that is dropped.
fn held(place: &Place) -> Process {
    let store = place.store();
    let script =
        "echo $$ >$DIR/held; exec sleep 600".replace("$DIR", place.path().to_str().unwrap());
    let flags = [&["--store", &store, "--once"], QUICK].concat();
    let it = Process::exec("holder", &flags, &["sh", "-c", &script]);
    until(BOUND, "the lock is held", || read(&place.path().join("held")));
    it
}

#[test]
fn once_exits_with_the_commands_code_or_128_plus_the_signal() {
    let place = Place::new();
    assert_eq!(code(&place, &["--once"], &["true"]), 0);
    assert_eq!(code(&place, &["--once"], &["sh", "-c", "exit 42"]), 42);
    assert_eq!(code(&place, &["--once"], &["sh", "-c", "kill -KILL $$"]), 137);
}

#[test]
fn once_that_is_ended_before_its_command_ran_does_not_look_successful() {
    let place = Place::new();
    let _holder = held(&place);
    let store = place.store();
    for (once, code) in [(&["--once"][..], 143), (&[], 0)] {
        let flags = [&["--store", &store], QUICK, once].concat();
        let mut waiting = Process::exec("it", &flags, &["true"]);
        until(BOUND, "it waits for the lease", || {
            waiting.log().contains("\"to\":\"standby\"").then_some(())
        });
        waiting.signal(Signal::TERM);
        assert_eq!(waiting.wait(BOUND).code(), Some(code), "{once:?}");
    }
}

#[test]
fn a_command_that_cannot_be_run_is_reported_before_a_lease_is_acquired() {
    let place = Place::new();
    let script = place.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    for (command, code, words) in [
        ("no-such-command", 127, "was not found in PATH"),
        ("/nonexistent/command", 127, "does not exist"),
        (script.to_str().unwrap(), 126, "is not executable"),
    ] {
        let ran = run(&place, &[], &[command]);
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
    let left = std::fs::read_dir(place.path().join("store")).unwrap().count();
    assert_eq!(left, 0, "the store was not touched");
}

#[test]
fn settings_without_time_to_stop_are_refused_with_the_numbers() {
    let place = Place::new();
    let store = place.store();
    let arguments = ["exec", "--store", &store, "--stop-timeout", "5s", "--", "true"];
    let ran = Command::new(env!("CARGO_BIN_EXE_tenure")).args(arguments).output().unwrap();
    assert_eq!(code(&place, &["--observe"], &["true"]), 2, "an observer never leads");
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(2), "{stderr}");
    for words in ["stop-timeout", "5s", "11s"] {
        assert!(stderr.contains(words), "{words} in {stderr}");
    }
}

#[test]
fn wait_bounds_the_wait_for_the_lease_and_zero_tries_once() {
    let place = Place::new();
    assert_eq!(code(&place, &["--once", "--wait", "0s"], &["true"]), 0, "it is free");
    let holder = held(&place);
    let begin = clock::now();
    let refused = run(&place, &["--once", "--wait", "0s"], &["true"]);
    assert_eq!(refused.status.code(), Some(75));
    let stderr = String::from_utf8(refused.stderr).unwrap();
    assert!(stderr.contains("no lease within --wait 0s") && stderr.contains("holder"), "{stderr}");
    assert_eq!(code(&place, &["--once", "--wait", "1s"], &["true"]), 75);
    assert!(begin.elapsed_max(clock::now()) >= Duration::from_secs(1));
    assert!(begin.elapsed_min(clock::now()) < Duration::from_secs(20));
    drop(holder);
    assert_eq!(code(&place, &["--once", "--wait", "30s"], &["sh", "-c", "exit 3"]), 3);
}

#[test]
fn a_lease_that_another_instance_holds_can_be_a_success_and_an_unreachable_store_cannot() {
    let place = Place::new();
    let _holder = held(&place);
    for (wait, own) in [("0s", 0), ("1s", 0), ("0s", 9)] {
        let text = own.to_string();
        let flags = ["--once", "--wait", wait, "--conflict-exit-code", &text];
        assert_eq!(code(&place, &flags, &["true"]), own, "{wait}");
    }
    let free = ["--once", "--wait", "0s", "--conflict-exit-code", "0", "--election", "other"];
    assert_eq!(code(&place, &free, &["sh", "-c", "exit 3"]), 3, "the command's own code");
    let flags = ["exec", "--store", "kubernetes:shop/orders", "--kube-api", "http://127.0.0.1:1"];
    let more = ["--once", "--wait", "1s", "--conflict-exit-code", "0", "--", "true"];
    let ran = Command::new(env!("CARGO_BIN_EXE_tenure")).args(flags).args(more).output().unwrap();
    assert_eq!(ran.status.code(), Some(75), "{}", String::from_utf8_lossy(&ran.stderr));
    let alone = code(&place, &["--once", "--conflict-exit-code", "0"], &["true"]);
    assert_eq!(alone, 2, "without --wait it has no meaning");
}

/// Starts a candidate for a lease of Kubernetes, whose time observers count.
fn of_lease(server: &KubeServer, name: &str, more: &[&str], command: &[&str]) -> Process {
    let lock = ["--store", "kubernetes:team/orders", "--once", "--listen", "127.0.0.1:0"];
    let arguments = server.arguments();
    let arguments = arguments.iter().map(String::as_str);
    let flags: Vec<&str> =
        arguments.chain(lock).chain(QUICK.iter().copied()).chain(more.iter().copied()).collect();
    Process::exec(name, &flags, command).listening()
}

#[test]
fn a_store_that_fails_during_the_wait_is_no_success() {
    let server = KubeServer::start();
    let holder = of_lease(&server, "holder", &[], &["sleep", "600"]);
    until(BOUND, "the lock is held", || holder.is_leader().then_some(()));
    for (stops, code) in [(false, 0), (true, 75)] {
        let bounded = ["--wait", "4s", "--conflict-exit-code", "0"];
        let mut waiter = of_lease(&server, "waiter", &bounded, &["true"]);
        until(BOUND, "it waits for the holder", || {
            (waiter.status()?["holder"]["identity"] == "holder").then_some(())
        });
        if stops {
            server.stop();
        }
        assert_eq!(waiter.wait(BOUND).code(), Some(code), "{}", waiter.log());
    }
}

#[test]
fn a_live_holder_is_told_by_its_renewal_and_one_that_is_gone_is_waited_out_once() {
    let (server, place) = (KubeServer::start(), Place::new());
    let (go, ran) = (place.path().join("go"), place.path().join("ran"));
    let mut holder = of_lease(&server, "holder", &[], &["sleep", "600"]);
    until(BOUND, "the lock is held", || holder.is_leader().then_some(()));
    let mut waiter = of_lease(&server, "waiter", &["--wait", "0s"], &["true"]);
    assert_eq!(waiter.wait(BOUND).code(), Some(75), "{}", waiter.log());
    let words = "no lease within --wait 0s: holder holds the lease and renewed it ";
    assert!(waiter.log().contains(words), "{}", waiter.log());
    holder.kill();
    let job = format!(
        "until [ -e {go} ]; do sleep 0.05; done; echo ran >>{ran}",
        go = go.display(),
        ran = ran.display()
    );
    let mut hosts: Vec<_> = ["a", "b", "c"]
        .map(|name| of_lease(&server, name, &["--wait", "0s"], &["sh", "-c", &job]))
        .into();
    for host in &hosts {
        until(BOUND, "it waits for the claim", || {
            host.log().contains("has not renewed the lease for").then_some(())
        });
    }
    std::fs::write(go, "").unwrap();
    let mut codes: Vec<_> = hosts.iter_mut().map(|it| it.wait(BOUND).code()).collect();
    codes.sort();
    assert_eq!(codes, [Some(0), Some(75), Some(75)]);
    assert_eq!(std::fs::read_to_string(ran).unwrap(), "ran\n");
}

#[test]
fn the_longest_hold_ends_the_command_and_the_code_is_124() {
    let place = Place::new();
    let begin = clock::now();
    assert_eq!(code(&place, &["--once", "--max-hold", "1s"], &["sleep", "600"]), 124);
    assert!(begin.elapsed_max(clock::now()) >= Duration::from_secs(1));
    assert_eq!(code(&place, &["--once", "--max-hold", "1m"], &["sh", "-c", "exit 6"]), 6);
    let refused = run(&place, &["--max-hold", "0s"], &["true"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("leaves the command no time"));
}

#[test]
fn faults_of_the_options_come_with_those_of_the_settings() {
    let place = Place::new();
    let flags = ["--wait", "5", "--max-hold", "-4m", "--stop-timeout", "soon"];
    let ran =
        Process::exec("it", &[&["--store", &place.store()], &flags[..]].concat(), &["true"]).end();
    assert_eq!(ran.code, 2, "{}", ran.err);
    for words in [
        "3 settings are wrong, so nothing was started:",
        "  wait = \"5\" (flag --wait)\n    has no unit after 5\n    remedy: write 5s, or 5ms",
        "  max-hold = \"-4m\" (flag --max-hold)\n    has a sign\n    remedy: write a duration",
        "  stop-timeout = \"soon\" (flag --stop-timeout)",
    ] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
}

#[test]
fn an_undisturbed_lock_prints_nothing_but_the_output_of_its_command() {
    let place = Place::new();
    let flags = ["--once", "--store", &place.store()];
    let command = [&["exec"], &flags[..], &["--", "echo", "hi"]].concat();
    let ran = process::run_verb(&command, &[]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "hi\n", ""));
}

#[test]
fn without_proc_no_lease_is_acquired_and_the_remedy_is_reported() {
    let place = Place::new();
    let exec = place.command(&["--once"], &["true"]);
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    let it = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .args(exec.get_args().skip(2))
        .output()
        .unwrap();
    assert_eq!(it.status.code(), Some(1));
    let stderr = String::from_utf8(it.stderr).unwrap();
    assert!(
        stderr.contains("/proc/self/exe cannot be run") && stderr.contains("mount /proc"),
        "{stderr}"
    );
    assert_eq!(std::fs::read_dir(place.path().join("store")).unwrap().count(), 0);
}

#[test]
fn leadership_that_is_lost_ends_a_lock_with_76() {
    let place = Place::new();
    let store = place.store();
    let ready = format!("echo >{}/ready; exec sleep 600", place.path().display());
    let flags = [&["--store", &store, "--once"], QUICK].concat();
    let mut lock = Process::exec("lock", &flags, &["sh", "-c", &ready]);
    until(BOUND, "it runs", || read(&place.path().join("ready")));
    let mut broken = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let broken = broken.args(["break", "--yes", "--store", &place.store()]).output().unwrap();
    assert!(broken.status.success(), "{broken:?}");
    let ended = lock.wait(BOUND);
    assert_eq!(ended.code(), Some(76));
}

#[test]
fn two_scripts_of_cron_exclude_each_other() {
    let place = Place::new();
    let script = "mkdir $DIR/busy || exit 99; echo x >>$DIR/runs; sleep 0.3; rmdir $DIR/busy";
    let flags = ["--once", "--wait", "30s"];
    let start = || place.command(&flags, &["sh", "-c", script]).spawn().unwrap();
    let jobs: Vec<_> = (0..3).map(|_| start()).collect();
    for mut job in jobs {
        assert_eq!(job.wait().unwrap().code(), Some(0));
    }
    assert_eq!(read(&place.path().join("runs")).unwrap().lines().count(), 3);
}

#[test]
fn an_exec_or_run_inside_an_exec_of_the_same_election_is_refused() {
    let place = Place::new();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let store = place.store();
    for verb in ["exec", "run"] {
        let mut inner = vec![tenure, verb, "--store", &store];
        if verb == "exec" {
            inner.extend(["--once", "--", "true"]);
        }
        let ran = run(&place, &["--once"], &inner);
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{verb}: {stderr}");
        assert!(stderr.contains("wait for itself"), "{stderr}");
    }
    let other = [tenure, "exec", "--once", "--store", &store, "--election", "other", "--", "true"];
    assert_eq!(code(&place, &["--once"], &other), 0, "another election is another lock");
}

#[test]
fn the_command_gets_its_term_and_the_address_of_tenure() {
    let place = Place::new();
    let file = place.path().join("status.env");
    let script = "printf '%s\\n' \"$TENURE_TERM $TENURE_ELECTION $TENURE_IDENTITY $TENURE_URL\" \
        \"$TENURE_STATUS_FILE\" >$DIR/told";
    let flags = [
        "--once",
        "--election",
        "orders",
        "--identity",
        "me",
        "--status-file",
        file.to_str().unwrap(),
    ];
    assert_eq!(code(&place, &flags, &["sh", "-c", script]), 0);
    let recorded = read(&place.path().join("told")).unwrap();
    let words: Vec<_> = recorded.split_whitespace().collect();
    assert!(words[0].parse::<u64>().unwrap() > 0);
    assert_eq!(words[1..3], ["orders", "me"]);
    assert!(words[3].starts_with("http://127.0.0.1:"), "{recorded}");
    assert_eq!(words[4], file.to_str().unwrap());
}

#[test]
fn a_command_that_ends_at_once_backs_off_and_another_may_try() {
    let place = Place::new();
    let store = place.store();
    let flags = [&["--store", store.as_str()], QUICK].concat();
    let say = |name: &str| format!("echo {name} >>{}/tries", place.path().display());
    let _execs = ["a", "b"]
        .map(|name| Process::exec(name, &flags, &["sh", "-c", &format!("{}; exit 1", say(name))]));
    let tries = || read(&place.path().join("tries")).unwrap_or_default();
    let begin = clock::now();
    until(BOUND, "both have tried twice", || {
        let tries = tries();
        let of = |name| tries.lines().filter(|it| *it == name).count();
        (of("a") >= 2 && of("b") >= 2).then_some(())
    });
    let (took, tries) = (begin.elapsed_min(clock::now()), tries().lines().count());
    // Without a back-off there would be far more.
    assert!(tries <= 10, "{tries} in {took:?}");
}

#[test]
fn starts_after_the_first_are_counted() {
    let place = Place::new();
    let store = place.store();
    let script = "echo $TENURE_URL >>$DIR/urls".replace("$DIR", place.path().to_str().unwrap());
    let flags = [&["--store", store.as_str(), "--listen", "127.0.0.1:0"], QUICK].concat();
    let _exec = Process::exec("it", &flags, &["sh", "-c", &script]);
    let urls = until(BOUND, "it has started thrice", || {
        read(&place.path().join("urls")).filter(|it| it.lines().count() == 3)
    });
    let address = urls.lines().next().unwrap().strip_prefix("http://").unwrap().parse().unwrap();
    let (_, metrics) = process::get(address, "/metrics").unwrap();
    let counted =
        metrics.lines().find(|it| it.starts_with("tenure_child_restarts_total{")).unwrap();
    assert!(counted.ends_with(" 2"), "{counted}");
}

#[test]
fn an_unreachable_store_exits_with_75_after_the_wait() {
    let place = Place::new();
    let dead = format!("http://127.0.0.1:{}/devstoreaccount1", { testkit::ports::free_port() });
    for wait in ["0s", "1s"] {
        let ran = Command::new("timeout")
            .args(["60", env!("CARGO_BIN_EXE_tenure"), "exec", "--once", "--wait", wait])
            .args(["--store", "azure://devstoreaccount1/jobs", "--azure-endpoint", &dead])
            .args(["--", "touch"])
            .arg(place.path().join("ran"))
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(75), "{ran:?}");
    }
    assert!(!place.path().join("ran").exists());
}

#[test]
fn signals_are_forwarded_and_a_second_terminating_signal_ends_at_once() {
    let place = Place::new();
    let store = place.store();
    let script = "trap 'echo hup >>$DIR/got' HUP; trap 'echo usr1 >>$DIR/got' USR1
        trap 'echo int >>$DIR/got' INT; trap 'echo term >>$DIR/got' TERM
        echo >$DIR/ready; while :; do sleep 0.02; done";
    let script = script.replace("$DIR", place.path().to_str().unwrap());
    let (rest, _) = QUICK.split_at(QUICK.len() - 2);
    let flags = [&["--store", store.as_str(), "--drain-timeout", "1h"], rest].concat();
    let mut exec = Process::exec("it", &flags, &["sh", "-c", &script]);
    until(BOUND, "it runs", || read(&place.path().join("ready")));
    for (signal, word) in [(Signal::HUP, "hup\n"), (Signal::USR1, "usr1\n"), (Signal::INT, "int\n")]
    {
        exec.signal(signal);
        until(BOUND, word, || read(&place.path().join("got")).filter(|it| it.ends_with(word)));
    }
    let watchdog_id = watchdog(&exec).unwrap();
    exec.signal(Signal::TERM);
    assert_eq!(exec.wait(BOUND).code(), Some(143));
    until(BOUND, "the watchdog has ended its command", || {
        rustix::process::test_kill_process(watchdog_id).is_err().then_some(())
    });
    assert_eq!(read(&place.path().join("got")).unwrap(), "hup\nusr1\nint\n", "each once");
}
#[test]
fn when_the_command_has_ended_a_second_signal_still_ends_at_once() {
    let place = Place::new();
    let (store, ready) = (place.store(), place.path().join("ready"));
    let hook = format!("sh -c 'echo >{}; sleep 600'", ready.display());
    let flags = ["--store", &store, "--on-passive", &hook, "--hook-timeout", "10m"];
    let flags = [&flags[..], QUICK, &["--once"]].concat();
    let mut exec = Process::exec("it", &flags, &["sleep", "1"]);
    until(BOUND, "the hook runs", || read(&ready));
    exec.signal(Signal::INT);
    until(BOUND, "it has received the first", || {
        exec.log().contains("a second signal ends at once").then_some(())
    });
    exec.signal(Signal::TERM);
    assert_eq!(exec.wait(BOUND).code(), Some(143));
}
