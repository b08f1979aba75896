//! A log whose reader has stopped: the pipe is full. Test names contain the number of the fault.

use testkit::processes::{cluster as crew, process};

use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};

use crew::{Crew, PATIENCE, STEADY};
use process::{get, until};
use rustix::process::{Pid, Signal, kill_process};

/// More lines than pipe and queue can hold: one for each variable that is not a setting.
const NOISE: usize = 8_000;

/// A sidecar whose log goes to a pipe that is not read; killed when it is dropped.
struct Piped {
    child: Child,
    address: SocketAddr,
    log: Option<ChildStderr>,
}

impl Drop for Piped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Piped {
    fn start(crew: &Crew) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], testkit::ports::free_port()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_tenure"))
            .args(["run", "--identity", "piped", "--listen", &address.to_string()])
            .args(["--log-format", "json", "--log-level", "debug"])
            .args(crew.arguments())
            .envs((0..NOISE).map(|number| (format!("TENURE_NOISE_{number}"), "")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = child.stderr.take();
        Self { child, address, log }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id().try_into().unwrap()).unwrap(), signal).unwrap();
    }

    /// Returns the sum of a metric over the series whose line contains these words.
    fn metric(&self, name: &str, words: &str) -> usize {
        let (_, text) = get(self.address, "/metrics").expect("it answers");
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
        until(PATIENCE, "it leads", || (get(self.address, "/leader")?.0 == 200).then_some(()));
    }
}

#[test]
fn fault_34_a_log_that_nobody_reads_drops_and_counts_lines_and_harms_no_renewal() {
    let mut crew = Crew::empty(STEADY);
    let mut piped = Piped::start(&crew);
    crew.recorder.follow("piped", piped.address);
    piped.leads();
    let (dropped, renewals) = (piped.dropped(), piped.renewals());
    assert!(dropped > 0, "{NOISE} lines fit nowhere");
    crew.join("other", &[], &[]);
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
    piped.signal(Signal::TERM);
    let ended = until(PATIENCE, "it ends", || piped.child.try_wait().unwrap());
    assert!(ended.success());
    reader.join().unwrap();
    let text = String::from_utf8(std::mem::take(&mut *read.lock().unwrap())).unwrap();
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("each line is whole");
    }
    let noise = text.lines().filter(|it| it.contains("TENURE_NOISE_")).count();
    assert!(noise < NOISE && noise + dropped >= NOISE, "{noise} and {dropped} of {NOISE}");
    assert!(text.contains("resigning"), "the last words come through");

    let (_, after) = crew.next_leader(tenure::clock::now());
    assert!(after < PATIENCE);
    crew.settle();
    let verdict = crew.recorder.finish(&["piped"]);
    verdict.assert_safe();
    assert_eq!(verdict.terms.len(), 2, "{verdict:?}");
}

#[test]
fn fault_34_a_log_that_nobody_reads_holds_up_no_end() {
    let crew = Crew::empty(STEADY);
    let mut piped = Piped::start(&crew);
    piped.leads();
    assert!(piped.dropped() > 0);
    piped.signal(Signal::TERM);
    let ended = until(PATIENCE, "it ends", || piped.child.try_wait().unwrap());
    assert!(ended.success());
}
