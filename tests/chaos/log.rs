//! A log whose reader has stopped: the pipe is full. Test names contain the number of the fault.

use testkit::processes::{cluster, process};

use std::io::{PipeReader, Read};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use cluster::{Cluster, PATIENCE, STEADY};
use process::{Process, until};
use rustix::process::Signal;

/// More lines than pipe and queue can hold: one for each variable that is not a setting.
const NOISE: usize = 8_000;

/// A sidecar whose log goes to a pipe that is not read.
struct Piped {
    process: Process,
    log: Option<PipeReader>,
}

impl Piped {
    fn start(cluster: &Cluster) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], testkit::ports::free_port()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command
            .args(["run", "--identity", "piped", "--listen", &address.to_string()])
            .args(["--log-format", "json", "--log-level", "debug"])
            .args(cluster.arguments())
            .envs((0..NOISE).map(|number| (format!("TENURE_NOISE_{number}"), "1")))
            .stdin(Stdio::null());
        let (log, into) = std::io::pipe().unwrap();
        let mut process = Process::spawn_to("piped", command, None, Some(into.into()));
        process.address = address;
        Self { process, log: Some(log) }
    }

    /// Returns the sum of a metric over the series whose line contains these words.
    fn metric(&self, name: &str, words: &str) -> usize {
        let (_, text) = self.process.get("/metrics").expect("it answers");
        let lines = text.lines().filter(|it| it.starts_with(name) && it.contains(words));
        lines.map(|it| it.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    fn dropped(&self) -> usize {
        self.metric("tenure_log_lines_dropped_total", "")
    }

    fn renewals(&self) -> usize {
        self.metric("tenure_store_requests_total", r#"op="renew",outcome="ok""#)
    }

    fn leads(&self) {
        until(PATIENCE, "it leads", || self.process.is_leader().then_some(()));
    }
}

#[test]
fn fault_34_an_unread_log_drops_and_counts_lines_and_delays_no_renewal() {
    let mut cluster = Cluster::empty(STEADY);
    let mut piped = Piped::start(&cluster);
    cluster.recorder.follow("piped", piped.process.address);
    piped.leads();
    let (dropped, renewals) = (piped.dropped(), piped.renewals());
    assert!(dropped > 0, "{NOISE} lines fit nowhere");
    cluster.join("other", &[], &[]);
    std::thread::sleep(STEADY.lease_duration);
    piped.leads();
    assert!(piped.renewals() >= renewals + 6, "the loop goes on");
    assert!(piped.dropped() > dropped, "what it says meanwhile is dropped, too");

    // The log is read again.
    let mut pipe = piped.log.take().unwrap();
    let read: Arc<Mutex<Vec<u8>>> = Arc::default();
    let sink = Arc::clone(&read);
    let reader = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = pipe.read(&mut bytes) {
            sink.lock().unwrap().extend_from_slice(&bytes[..count]);
        }
    });
    let size = || read.lock().unwrap().len();
    until(PATIENCE, "what waited is written", || {
        let before = size();
        std::thread::sleep(STEADY.retry_period / 3);
        (size() == before && before > 0).then_some(())
    });
    let (waited, dropped) = (size(), piped.dropped());
    until(PATIENCE, "new lines are written", || (size() > waited).then_some(()));
    assert_eq!(piped.dropped(), dropped, "and none is dropped any more");
    piped.process.signal(Signal::TERM);
    assert!(piped.process.wait(PATIENCE).success());
    reader.join().unwrap();
    let text = String::from_utf8(std::mem::take(&mut *read.lock().unwrap())).unwrap();
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("each line is whole");
    }
    let noise = text.lines().filter(|it| it.contains("TENURE_NOISE_")).count();
    assert!(noise < NOISE && noise + dropped >= NOISE, "{noise} and {dropped} of {NOISE}");
    assert!(text.contains("resigning"), "the last words come through");

    let (_, after) = cluster.next_leader(tenure::clock::now());
    assert!(after < PATIENCE);
    cluster.settle();
    let verdict = cluster.recorder.finish(&["piped"]);
    verdict.assert_safe();
    assert_eq!(verdict.terms.len(), 2, "{verdict:?}");
}

#[test]
fn fault_34_an_unread_log_does_not_delay_shutdown() {
    let cluster = Cluster::empty(STEADY);
    let mut piped = Piped::start(&cluster);
    piped.leads();
    assert!(piped.dropped() > 0);
    piped.process.signal(Signal::TERM);
    assert!(piped.process.wait(PATIENCE).success());
}
