//! Signals to processes, and the state of processes that are not children of the test.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Returns whether a process runs; a zombie does not.
pub fn is_running(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

/// Waits until a process is gone.
pub async fn until_gone(id: &str) {
    let gone = async {
        while is_running(id) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), gone).await;
    waited.unwrap_or_else(|_| panic!("{id} runs yet"));
}

/// Sends a signal. SIGSTOP stops the process outside of a write to its `file:` lease: a process
/// that is stopped there keeps the lock of the file, and blocks all candidates until it continues.
pub fn signal(process: Pid, signal: Signal) {
    let send = |signal| kill_process(process, signal).expect("the process takes a signal");
    send(signal);
    if signal != Signal::STOP {
        return;
    }
    for _ in 0..1_000 {
        while !has_stopped(process) {
            std::thread::yield_now();
        }
        if !holds_lock(process) {
            return;
        }
        send(Signal::CONT);
        std::thread::sleep(Duration::from_millis(1));
        send(Signal::STOP);
    }
    panic!("process {process:?} held a lock each time that it was stopped");
}

/// Returns whether all threads of a process have stopped, or it is gone.
fn has_stopped(process: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero()));
    let runs = |stat: String| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        state.is_some_and(|it| !matches!(it, 'T' | 't' | 'Z' | 'X'))
    };
    let mut threads = threads.into_iter().flatten().flatten();
    !threads.any(|it| std::fs::read_to_string(it.path().join("stat")).is_ok_and(runs))
}

/// Returns whether a process holds a lock on a whole file.
fn holds_lock(process: Pid) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let id = process.as_raw_nonzero().to_string();
    locks.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1) == Some(&"FLOCK") && fields.get(4) == Some(&id.as_str())
    })
}
