//! Three real processes on a real store: one leads; the next takes over after SIGTERM, and after
//! SIGKILL; the killed one comes back as a standby.

use testkit::azure::azurite;
use testkit::processes::{cluster, process};
use testkit::recorder;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use cluster::settled;
use process::{Process, until};
use recorder::Recorder;
use rustix::process::Signal;
use tenure::store::LeaseAdmin;
use tenure::store::azure::Azure;

fn hands_over(arguments: &[&str], variables: &[(&str, &str)]) {
    let start = |name: &str| Process::run(name, arguments, variables);
    let mut recorder = Recorder::start();
    let mut candidates: Vec<_> = ["a", "b", "c"].map(start).into();
    for candidate in &candidates {
        recorder.follow(&candidate.name, candidate.address);
    }

    let bound = Duration::from_secs(10);
    let first = settled(&candidates);
    let recorded = |recorder: &Recorder, name: &str| {
        until(bound, "the recorder has a claim of the leader", || {
            recorder.has_claim(name).then_some(())
        });
    };
    recorded(&recorder, &candidates[first].name);
    let mut stopped = candidates.remove(first);
    let first_term = stopped.status().unwrap()["term"].as_u64().unwrap();
    stopped.signal(Signal::TERM);
    assert!(stopped.wait(bound).success(), "SIGTERM ends it with exit code 0");

    let second = settled(&candidates);
    let second_term = candidates[second].status().unwrap()["term"].as_u64().unwrap();
    assert!(second_term > first_term, "{second_term} after {first_term}");
    let killed = candidates[second].name.clone();
    recorded(&recorder, &killed);
    candidates[second].kill();
    candidates.remove(second);
    let third = settled(&candidates);
    assert_eq!(third, 0, "the only one left leads");
    recorded(&recorder, &candidates[third].name);

    let again = start(&killed);
    recorder.follow(&format!("{killed} again"), again.address);
    candidates.push(again);
    assert_eq!(settled(&candidates), 0, "the one that came back stands by");
    let seen = candidates[1].status().unwrap();
    assert_eq!(seen["holder"]["identity"], candidates[0].name.as_str(), "and knows who leads");

    let verdict = recorder.finish(&[&stopped.name]);
    verdict.assert_safe();
    assert_eq!(verdict.terms.len(), 3, "three tenures: {verdict:?}");
}

#[test]
fn three_processes_on_one_host_hand_over_without_a_dual() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().display());
    hands_over(
        &[
            "--store",
            &store,
            "--lease-duration",
            "2s",
            "--renew-deadline",
            "1300ms",
            "--retry-period",
            "300ms",
            "--request-timeout",
            "500ms",
        ],
        &[],
    );
}

#[tokio::test]
async fn three_processes_on_azurite_hand_over_without_a_dual() {
    let azurite = azurite::Azurite::start().await;
    // With a record, so that the first leader need not hold the lease for a minute (R11).
    let lock = Azure::open(azurite.settings("elections", "orders")).unwrap();
    lock.create(1).await.unwrap();
    hands_over(
        &[
            "--store",
            "azure://devstoreaccount1/elections",
            "--election",
            "orders",
            "--azure-endpoint",
            azurite.endpoint.as_str(),
        ],
        &[],
    );
}

#[test]
fn subscribers_receive_the_last_state_before_the_process_ends() {
    // An observer has nothing to release, so its first event after the signal is its last.
    let arguments = ["--store", "memory:", "--observe"];
    let mut observer = Process::run("observer", &arguments, &[]);
    let bound = Duration::from_secs(20);
    let mut subscriber = TcpStream::connect(observer.address).unwrap();
    subscriber.set_read_timeout(Some(bound)).unwrap();
    subscriber.write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(subscriber);
    let mut until_line = |words: &str| {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended without {words}");
        }
    };
    until_line(r#""state":"observing""#);
    observer.signal(Signal::TERM);
    until_line(r#""state":"stopped""#);
    assert!(observer.wait(bound).success());
}

/// Starts a candidate for which the rename of the first status file takes `delay`.
fn starting_on_a_slow_disk(directory: &Path, delay: Duration) -> Process {
    let renames = "rename,renameat,renameat2";
    let inject = format!("inject={renames}:delay_enter={}", delay.as_micros());
    let traced = format!("trace={renames}");
    let nowhere = directory.join("trace").display().to_string();
    // The tracer is a grandchild, so that the started process becomes tenure itself.
    let wrapper = ["strace", "-D", "-f", "-o", &nowhere, "-e", &traced, "-e", &inject];
    let file = directory.join("status.json").display().to_string();
    let arguments = ["--store", "memory:", "--status-file", &file];
    let candidate = Process::run_by(&wrapper, "127.0.0.1", "slow", &arguments, &[]);
    assert!(!candidate.log().contains(r#""message":"started""#), "the start waits for the disk");
    candidate
}

#[test]
fn signals_are_handled_while_the_start_waits_for_a_disk() {
    let directory = tempfile::tempdir().unwrap();
    let mut hung = starting_on_a_slow_disk(directory.path(), Duration::from_secs(4));
    hung.signal(Signal::TERM);
    until(Duration::from_secs(10), "it has received the first", || {
        hung.log().contains("a second signal ends at once").then_some(())
    });
    hung.signal(Signal::TERM);
    assert_eq!(hung.wait(Duration::from_secs(20)).code(), Some(128 + 15), "{}", hung.log());
    assert!(
        !hung.log().contains(r#""message":"started""#),
        "at once, and not when the disk was done"
    );

    let directory = tempfile::tempdir().unwrap();
    let mut slow = starting_on_a_slow_disk(directory.path(), Duration::from_secs(2));
    slow.signal(Signal::TERM);
    assert!(slow.wait(Duration::from_secs(30)).success(), "{}", slow.log());
    assert!(slow.log().contains("\"to\":\"stopped\""), "{}", slow.log());
}
