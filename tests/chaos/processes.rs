//! Faults of processes: killed, stopped, frozen, starved, aborted, with a lease of two to five
//! seconds on this host. Test names contain the number of the fault.

use testkit::faults::{cgroup, faketime};
use testkit::processes::{cluster, process};

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cgroup::{Cgroup, Controller};
use cluster::{Cluster, PATIENCE, SHORT, STEADY};
use faketime::FakeTime;
use process::{Process, until};
use rustix::process::{Pid, Signal, kill_process};
use tenure::clock;

/// The allowance of the table of faults in addition to the lease and the poll intervals.
const ALLOWANCE: Duration = Duration::from_secs(1);

/// Asserts that one handover was in time: on a busy machine a single late one shows nothing.
fn assert_one_within(took: &[Duration], bound: Duration) {
    let shortest = took.iter().min().unwrap();
    assert!(*shortest <= bound, "{took:?}, and at most {bound:?} were due");
}

/// Returns the reading of the boot clock until which an instance's status file says active.
fn file_until(cluster: &Cluster, instance: &str) -> Option<Duration> {
    let text = std::fs::read_to_string(cluster.file_of(instance)).ok()?;
    let document: serde_json::Value = serde_json::from_str(&text).ok()?;
    let until = Duration::from_nanos(document["valid_until_boottime_ns"].as_u64()?);
    (document["role"] == "active").then_some(until)
}

/// Ends the leader three times, each followed by a takeover.
fn crashes(names: [&str; 2], crash: fn(&mut Process)) {
    let mut cluster = Cluster::start(&names, SHORT);
    let mut took = Vec::new();
    for _ in 0..3 {
        let leader = cluster.settle();
        let name = cluster.candidates[leader].name.clone();
        until(PATIENCE, "the file is active", || file_until(&cluster, &name));
        let ended = clock::now();
        crash(&mut cluster.candidates[leader]);
        let until_boot = file_until(&cluster, &name).expect("the file is active");
        let gone = cluster.candidates.remove(leader);
        until(PATIENCE, "the file is passive", || (cluster.check_file(&name) == 1).then_some(()));
        let now = clock::now().boot;
        assert!(now >= until_boot, "passive by its own deadline");
        assert!(until_boot <= ended.boot + SHORT.renew_deadline + Duration::from_millis(100));
        let (_, after) = cluster.next_leader(ended);
        assert!(clock::now().boot > until_boot, "another leads when the file's word is over");
        took.push(after);
        cluster.settle();
        cluster.join(gone.name.split('-').next().unwrap(), &[], &[]);
    }
    assert_one_within(&took, SHORT.lease_duration + SHORT.retry_period * 3 / 2 + ALLOWANCE);
    let verdict = cluster.verdict();
    assert_eq!(verdict.terms.len(), 4, "{verdict:?}");
}

#[test]
fn fault_01_after_a_kill_another_leads_and_the_file_is_passive_by_its_deadline() {
    crashes(["a", "b"], Process::kill);
}

#[test]
fn fault_02_after_sigterm_another_leads_at_its_next_read() {
    let mut cluster = Cluster::start(&["a", "b"], SHORT);
    let mut took = Vec::new();
    for _ in 0..3 {
        let leader = cluster.settle();
        cluster.releases(leader);
        let mut stopped = cluster.candidates.remove(leader);
        let began = clock::now();
        stopped.signal(Signal::TERM);
        let (_, after) = cluster.next_leader(began);
        took.push(after);
        assert!(stopped.wait(PATIENCE).success(), "an orderly end");
        assert_eq!(cluster.check_file(&stopped.name), 1, "its file says passive");
        cluster.join(stopped.name.split('-').next().unwrap(), &[], &[]);
    }
    assert_one_within(&took, SHORT.retry_period * 3 / 2 + ALLOWANCE);
    cluster.settle();
    let verdict = cluster.verdict();
    assert_eq!(verdict.terms.len(), 4, "{verdict:?}");
}

#[test]
fn fault_03_a_stop_shorter_than_the_deadline_changes_nothing() {
    // The fault takes 3 s of the default renew-deadline of 10 s; here, the same share.
    let stop = STEADY.renew_deadline * 3 / 10;
    let cluster = Cluster::start(&["a", "b"], STEADY);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    for _ in 0..5 {
        cluster.candidates[leader].signal(Signal::STOP);
        std::thread::sleep(stop);
        cluster.candidates[leader].signal(Signal::CONT);
        std::thread::sleep(stop);
    }
    assert_eq!((cluster.settle(), cluster.term(leader)), (leader, term));
    assert_eq!(cluster.verdict().terms.len(), 1);
}

/// A connection with requests whose answers are not read yet.
struct Question(TcpStream);

impl Question {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn ask(&mut self) {
        self.0.write_all(b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    }

    /// Returns the status code of the answer.
    fn answer(&mut self) -> u16 {
        let mut text = Vec::new();
        let mut bytes = [0; 1024];
        while !text.windows(4).any(|it| it == b"\r\n\r\n") {
            // A signal to this process, such as SIGCHLD, interrupts a read that has a timeout.
            let count = match self.0.read(&mut bytes) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                outcome => outcome.expect("an answer within its time"),
            };
            assert!(count > 0, "the connection is kept");
            text.extend_from_slice(&bytes[..count]);
        }
        String::from_utf8_lossy(&text[9..12]).parse().unwrap()
    }
}

/// Stops each leader for longer than its lease, with requests queued. `hold` stops a process until
/// the returned value is dropped.
fn held<H>(hold: impl Fn(u32) -> H) {
    let cluster = Cluster::start(&["a", "b"], SHORT);
    // It is random whether a queued request or the driver runs first, so this repeats four times.
    for _ in 0..4 {
        let leader = cluster.settle();
        let candidate = &cluster.candidates[leader];
        let mut questions: Vec<_> = (0..10).map(|_| Question::new(candidate.address)).collect();
        for question in &mut questions {
            question.ask();
            assert_eq!(question.answer(), 200);
        }
        let hold = hold(candidate.id());
        // Half of the requests are on connections that are not accepted yet.
        questions.extend((0..10).map(|_| Question::new(candidate.address)));
        questions.iter_mut().for_each(Question::ask);
        let other = &cluster.candidates[1 - leader];
        until(PATIENCE, "the other leads", || other.is_leader().then_some(()));
        cluster.records(1 - leader);
        drop(hold);
        let codes: Vec<_> = questions.iter_mut().map(Question::answer).collect();
        assert_eq!(codes, [503; 20], "judged after it went on");
        assert_eq!(cluster.settle(), 1 - leader, "the held one stands by");
    }
    let verdict = cluster.verdict();
    assert_eq!(verdict.terms.len(), 5, "four handovers, and no term comes back: {verdict:?}");
}

/// A process that is stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(process: u32) -> Self {
        let stopped = Self(Pid::from_raw(process.try_into().unwrap()).unwrap());
        process::signal(stopped.0, Signal::STOP);
        stopped
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn fault_04_a_leader_stopped_past_its_lease_answers_no_queued_request_with_200() {
    held(Stopped::new);
}

#[test]
fn fault_05_a_leader_frozen_past_its_lease_answers_no_queued_request_with_200() {
    held(|process| {
        let freezer = Cgroup::new(Controller::Freezer);
        freezer.take(process);
        freezer.freeze();
        // A frozen process keeps the lock that it holds, and then nobody else can lead.
        while process::holds_lock(Pid::from_raw(process.try_into().unwrap()).unwrap()) {
            freezer.thaw();
            std::thread::yield_now();
            freezer.freeze();
        }
        freezer
    });
}

#[test]
fn fault_06_a_leader_with_1_percent_of_a_cpu_may_lose_its_lease_but_causes_no_dual() {
    let cluster = Cluster::start(&["a", "b", "c"], SHORT);
    let leader = cluster.settle();
    let quota = Cgroup::new(Controller::Cpu);
    quota.take(cluster.candidates[leader].id());
    quota.throttle();
    std::thread::sleep(SHORT.lease_duration * 4);
    // Now all of them share the quota.
    for candidate in &cluster.candidates {
        quota.take(candidate.id());
    }
    std::thread::sleep(SHORT.lease_duration * 4);
    assert!(quota.throttled() > 0, "the quota was felt");
    quota.unthrottle();
    cluster.settle();
    cluster.verdict();
}

/// Starts a candidate with a false clock.
fn join_lied_to(cluster: &mut Cluster, name: &str, fake: &FakeTime) {
    let variables = fake.variables();
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    cluster.join(name, &["--log-level", "info"], &variables);
}

/// Returns how far a candidate's wall clock is ahead of the test's, by the time of its last answer
/// from the store.
fn ahead(candidate: &Process) -> f64 {
    let (_, text) = candidate.get("/metrics").expect("it answers");
    let line = text.lines().find(|it| it.starts_with("tenure_store_last_success_timestamp_"));
    let wall: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    wall - clock::now().wall.as_secs_f64()
}

#[test]
fn fault_09_a_wall_clock_set_by_an_hour_under_a_real_leader_costs_no_term() {
    let mut cluster = Cluster::empty(STEADY);
    let fakes = [FakeTime::new("+0", false), FakeTime::new("+0", false)];
    join_lied_to(&mut cluster, "a", &fakes[0]);
    cluster.settle();
    join_lied_to(&mut cluster, "b", &fakes[1]);
    cluster.settle();
    let term = cluster.term(0);
    let jumps = |cluster: &Cluster| cluster.candidates[0].log().matches("clock-jumped").count();
    for (seen, lie, hours) in [(1, "+3600", 1.0), (2, "-3600", -1.0), (3, "+0", 0.0)] {
        fakes.iter().for_each(|it| it.set(lie));
        until(PATIENCE, "the leader sees that its clock was set", || {
            (jumps(&cluster) >= seen).then_some(())
        });
        until(PATIENCE, "and leads again", || cluster.candidates[0].is_leader().then_some(()));
        until(PATIENCE, "the lie is believed", || {
            ((ahead(&cluster.candidates[0]) - hours * 3_600.0).abs() < 60.0).then_some(())
        });
        assert_eq!(cluster.term(0), term);
    }
    assert_eq!(cluster.settle(), 0);
    assert_eq!(cluster.verdict().terms.len(), 1);
}

#[test]
fn fault_09_a_wall_clock_and_timers_slewed_by_8_percent_make_no_dual() {
    let mut cluster = Cluster::empty(STEADY);
    let fakes = [FakeTime::new("+0 x1.08", true), FakeTime::new("+0 x0.92", true)];
    join_lied_to(&mut cluster, "a", &fakes[0]);
    join_lied_to(&mut cluster, "b", &fakes[1]);
    for _ in 0..2 {
        let leader = cluster.settle();
        let term = cluster.term(leader);
        // The store's last answer is a few tenths of a second old, so the slower clock must deviate
        // more.
        let is_fast = cluster.candidates[leader].name.starts_with('a');
        until(PATIENCE, "the lie is believed", || {
            let ahead = ahead(&cluster.candidates[leader]);
            (if is_fast { ahead > 0.5 } else { ahead < -0.9 }).then_some(())
        });
        assert_eq!(cluster.term(leader), term, "a slew costs nothing");
        // The boot clock is not false, and a belief ends by it.
        let until_boot = file_until(&cluster, &cluster.candidates[leader].name).expect("it leads");
        assert!(until_boot <= clock::now().boot + STEADY.renew_deadline);
        cluster.candidates[leader].kill();
        let name = cluster.candidates.remove(leader).name.clone();
        cluster.settle();
        let (name, fake) = if name.starts_with('a') { ("a", &fakes[0]) } else { ("b", &fakes[1]) };
        join_lied_to(&mut cluster, name, fake);
    }
    cluster.settle();
    assert_eq!(cluster.verdict().terms.len(), 3);
}

/// The effect of a panic in the release binary: `panic = "abort"` raises this signal.
#[test]
fn fault_35_after_an_abort_another_leads_and_the_file_is_passive_by_its_deadline() {
    crashes(["a", "b"], |leader| {
        leader.signal(Signal::ABORT);
        assert!(!leader.wait(PATIENCE).success());
    });
}
