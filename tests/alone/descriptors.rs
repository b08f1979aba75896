//! Faults 31 and 33, in real processes of `tenure run`: file descriptors are exhausted, and an
//! address is in use.

use testkit::faults::load;
use testkit::processes::process;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use load::{LoadedLeader, connect_as, descriptors, since};
use process::{Process, until};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

/// Runs one test at a time, because each needs the whole machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a command prefix that sets the soft and the hard limit of open files.
fn limited(soft: &'static str, hard: &'static str) -> [&'static str; 5] {
    let script = "ulimit -S -n \"$0\" && ulimit -H -n \"$1\" && shift && exec \"$@\"";
    ["sh", "-c", script, soft, hard]
}

/// Returns the soft limit of open files of a process.
fn limit_of(candidate: &Process) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", candidate.id())).unwrap();
    let line = limits.lines().find(|it| it.starts_with("Max open files")).unwrap();
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

/// Returns the number of requests to the store that failed.
fn failures(candidate: &Process) -> u64 {
    let (_, text) = until(Duration::from_secs(20), "it answers", || candidate.get("/metrics"));
    text.lines()
        .filter(|it| it.starts_with("tenure_store_requests_total{"))
        .filter(|it| !it.contains("outcome=\"ok\""))
        .filter_map(|it| it.split(' ').next_back()?.parse::<u64>().ok())
        .sum()
}

/// Opens `count` connections, half of them with an incomplete request.
fn open(leader: &LoadedLeader, count: usize) -> Vec<TcpStream> {
    (0..count)
        .map(|number| {
            let mut stream = connect_as(number, leader.candidate.address).unwrap();
            if number % 2 == 0 {
                // It may be closed already.
                let _ = stream.write_all(b"GET /lea");
            }
            stream
        })
        .collect()
}

/// Holds `count` connections for a while, and keeps replacing them.
fn hold(leader: &LoadedLeader, count: usize, length: Duration) {
    let begun = tenure::clock::now();
    while since(begun) < length {
        let _held = open(leader, count);
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Asserts that the listener keeps more than `least` connections when more are opened.
fn assert_keeps(leader: &LoadedLeader, least: usize) {
    let held = open(leader, least + 100);
    until(Duration::from_secs(20), "its places are taken", || {
        (descriptors(leader.candidate.id()) > least).then_some(())
    });
    drop(held);
}

#[test]
fn fault_31_a_low_limit_of_open_files_is_raised() {
    let _alone = alone();
    let leader = LoadedLeader::start(&limited("100", "4000"), &[]);
    assert!(limit_of(&leader.candidate) >= 512 + 64, "{}", limit_of(&leader.candidate));
    hold(&leader, 600, Duration::from_secs(2));
    assert_keeps(&leader, 400);
    assert!(!leader.candidate.log().contains("lowered"));
    leader.relieved();
}

#[test]
fn fault_31_under_a_limit_that_cannot_be_raised_renewals_are_unharmed() {
    let _alone = alone();
    let leader = LoadedLeader::start(&limited("100", "100"), &[]);
    let log = leader.candidate.log();
    assert!(log.contains("max-connections lowered from 512 to 36"), "{log}");
    hold(&leader, 300, Duration::from_secs(4));
    assert_eq!(failures(&leader.candidate), 0, "requests to the store failed");
    leader.relieved();
}

#[test]
fn fault_31_a_lowered_limit_of_open_files_closes_client_connections_only() {
    let _alone = alone();
    let leader = LoadedLeader::start(&[], &[]);
    let process = Pid::from_raw(leader.candidate.id().try_into().unwrap());
    let low = Rlimit { current: Some(128), maximum: Some(20_000) };
    // Subscribers hold more connections than the limit will permit.
    let mut subscribers = open(&leader, 0);
    for number in 0..100 {
        let mut stream = connect_as(number, leader.candidate.address).unwrap();
        stream.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        subscribers.push(stream);
    }
    let before = std::thread::scope(|scope| {
        let holding = scope.spawn(|| hold(&leader, 600, Duration::from_secs(6)));
        until(Duration::from_secs(20), "its places are taken", || {
            (descriptors(leader.candidate.id()) > 500).then_some(())
        });
        let before = prlimit(process, Resource::Nofile, low).expect("the tests run it");
        until(Duration::from_secs(20), "the store has descriptors again", || {
            (descriptors(leader.candidate.id()) < 100).then_some(())
        });
        holding.join().unwrap();
        before
    });
    // One renewal may coincide with the change.
    let failures = failures(&leader.candidate);
    assert!(failures <= 2, "{failures} requests to the store failed");
    prlimit(process, Resource::Nofile, before).expect("the tests run it");
    until(Duration::from_secs(20), "it sees that there are more", || {
        leader.candidate.log().contains("room for 512 connections").then_some(())
    });
    assert_keeps(&leader, 400);
    drop(subscribers);
    leader.relieved();
}

#[test]
fn fault_31_a_connection_that_cannot_be_accepted_replaces_an_idle_one() {
    let _alone = alone();
    // So many listeners that fewer descriptors are left for connections than were reserved.
    let arguments = [&["--store", "memory:"][..], &["--listen", "127.0.0.1:0"].repeat(70)].concat();
    let wrapper = limited("100", "100");
    let candidate = Process::run_by(&wrapper, "127.0.0.1", "leader", &arguments, &[]);
    let held: Vec<_> =
        (0..30).map(|number| connect_as(number, candidate.address).unwrap()).collect();
    until(Duration::from_secs(20), "no descriptor is left", || {
        candidate.log().contains("failed to accept a connection").then_some(())
    });
    for _ in 0..3 {
        until(Duration::from_secs(20), "it answers", || candidate.get("/leader"));
    }
    drop(held);
}

/// Runs `tenure run` with these listeners, one of whose addresses is in use.
fn run_on(listen: &[&str], directory: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    command.args(["run", "--status-file"]).arg(directory.join("status.json"));
    command.arg("--store").arg(format!("file://{}", directory.join("store").display()));
    for address in listen {
        command.args(["--listen", address]);
    }
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn fault_33_an_address_in_use_ends_the_start_with_2_and_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let holder = TcpListener::bind(taken).unwrap();
    let socket = directory.path().join("taken.sock");
    let unix_holder = UnixListener::bind(&socket).unwrap();
    let (tcp, unix) = (taken.to_string(), format!("unix:{}", socket.display()));
    for (listen, named) in [
        (vec![tcp.as_str()], &tcp),
        (vec!["127.0.0.1:0", tcp.as_str()], &tcp),
        (vec![unix.as_str()], &unix),
        (vec!["127.0.0.1:0", unix.as_str()], &unix),
    ] {
        let ran = run_on(&listen, directory.path());
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(&format!("listen = {named:?} (flag --listen)")), "{stderr}");
        assert!(stderr.contains("remedy: choose another p"), "{stderr}");
        for nothing in ["store", "status.json"] {
            assert!(!directory.path().join(nothing).exists(), "{nothing} was made");
        }
    }
    assert!(socket.exists(), "the socket of the living is where it was");
    drop((holder, unix_holder));
}
