//! The `file:` store among real processes that are killed and stopped at any moment.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

#[path = "support/file_child.rs"]
mod file_child;

use std::fs;
use std::thread;
use std::time::Duration;

use file_child::{LEASE, Process, bid, named};
use rustix::process::Signal;
use tenure::clock;
use tenure::store::LeaseStore;
use tenure::store::file::FileStore;

/// Time in which one process believed to lead, in nanoseconds since boot.
#[derive(Debug)]
struct Claim {
    term: u64,
    from: u128,
    until: u128,
}

/// Puts together what one process has said. What it had begun when it was killed ends where it
/// began, for all that is known.
fn claims(lines: &[String]) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [word, term, at] = words[..] else { panic!("what does it mean by {line}?") };
        let (term, at) = (term.parse().unwrap(), at.parse().unwrap());
        if word == "from" {
            claims.push(Claim { term, from: at, until: at });
        } else {
            let last = claims.last_mut().unwrap();
            assert_eq!(last.term, term);
            last.until = at;
        }
    }
    claims
}

/// Waits, since it is for a length that something is done.
#[allow(clippy::disallowed_methods, reason = "a test that has its thread to itself")]
fn wait(milliseconds: u64) {
    thread::sleep(Duration::from_millis(milliseconds));
}

#[tokio::test]
async fn a_kill_at_any_moment_leaves_a_whole_record_and_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let store = FileStore::open(&named(directory.path()));
    let mut last = 0;
    for round in 0..20 {
        let mut writer = Process::start("compete", directory.path());
        writer.line("store: from").expect("it leads");
        // A cycle of its writes takes some milliseconds; each kill hits another part of one.
        wait(round * 3);
        writer.kill("store: ");

        let term = store.look().await.expect("a whole record").record.term.expect("a term");
        assert!(term > last, "{term} after {last}");
        let start = clock::now();
        let bid = loop {
            let sight = store.look().await.expect("a whole record");
            if sight.free {
                break bid(sight.version, LEASE);
            }
            assert!(start.elapsed_min(clock::now()) < LEASE * 2, "its lease runs out");
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        store.acquire(&bid).await.expect("no lock outlives its process");
        last = store.inaugurate(&bid, 1).await.expect("nobody else is there");
        assert_eq!(last, term + 1);
        store.release(&bid).await.unwrap();
    }
    // What a kill may leave behind goes with the next write.
    let left = fs::read_dir(directory.path()).unwrap();
    let mut left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["orders.json", "orders.lock"]);
}

#[test]
fn processes_that_are_stopped_and_continued_never_lead_at_the_same_time() {
    let directory = tempfile::tempdir().unwrap();
    let processes: Vec<_> = (0..3).map(|_| Process::start("compete", directory.path())).collect();
    // Stops shorter and longer than a lease, and two processes at once now and then.
    for round in 0..30_usize {
        let stopped = &processes[round % 3];
        stopped.signal(Signal::STOP);
        wait([20, 90, 250, 400][round % 4]);
        if round % 5 == 0 {
            let other = &processes[(round + 1) % 3];
            other.signal(Signal::STOP);
            wait(350);
            other.signal(Signal::CONT);
        }
        stopped.signal(Signal::CONT);
        wait(37);
    }
    let mut all = Vec::new();
    for process in processes {
        let own = claims(&process.kill("store: "));
        assert!(own.len() > 3, "each leads now and then: {own:?}");
        all.extend(own);
    }
    all.sort_by_key(|claim| claim.from);
    for pair in all.windows(2) {
        assert!(pair[0].until <= pair[1].from, "two at the same time: {pair:?}");
        assert!(pair[0].term < pair[1].term, "terms grow: {pair:?}");
    }
}
