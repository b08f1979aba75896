//! The soak test: five real candidates on a real Azurite, each behind a fault proxy, under random
//! faults, with a recorder that checks their claims.
//!
//! It takes a minute by default; `tests/soak --minutes N` runs it for longer. `TENURE_SOAK_MINUTES`
//! and `TENURE_SOAK_SEED` set the duration and the seed.

#![allow(clippy::print_stdout, reason = "its report")]

use testkit::faults::fault_proxy;
use testkit::processes::{cluster, process};
use testkit::{recorder, soak_report};

use std::thread::sleep;
use std::time::Duration;

use cluster::Cluster;
use fastrand::Rng;
use fault_proxy::{Call, Door, Fault, Then};
use process::Process;
use recorder::Recorder;
use rustix::process::Signal;
use soak_report::{Injected, Report};
use tenure::clock;

const CANDIDATES: usize = 5;

/// The interval between requests to one candidate.
const INTERVAL: Duration = Duration::from_millis(50);

/// A slot for a candidate, whose process is replaced from time to time.
struct Place {
    /// The index of its process in the cluster.
    process: usize,
    /// The number of processes so far.
    lives: u32,
}

/// A run of the soak test.
struct Soak {
    cluster: Cluster,
    places: Vec<Place>,
    rng: Rng,
    injected: Vec<Injected>,
    /// The instances that resigned voluntarily.
    released: Vec<String>,
    unexpected: Vec<String>,
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn five_candidates_survive_random_faults_without_an_overlap() {
    let minutes: f64 = setting("TENURE_SOAK_MINUTES").unwrap_or(1.0);
    let seed: u64 = setting("TENURE_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("soak: {minutes} minutes, seed {seed}");
    let cluster = Cluster::behind_proxies("soak").with_recorder(Recorder::every(INTERVAL));
    let mut soak = Soak {
        cluster,
        places: Vec::new(),
        rng: Rng::with_seed(seed),
        injected: Vec::new(),
        released: Vec::new(),
        unexpected: Vec::new(),
    };
    for place in 0..CANDIDATES {
        soak.places.push(Place { process: 0, lives: 0 });
        soak.start(place);
    }
    let memory_before = soak.memory();
    let began = clock::now().raw;
    let length = Duration::from_secs_f64(minutes * 60.0);
    soak.settle(Duration::from_secs(30));
    while clock::now().raw - began < length {
        soak.inject();
        let quiet = Duration::from_secs(soak.rng.u64(3..8));
        soak.settle(quiet);
        soak.look_after();
    }
    let memory_after = soak.memory();
    let Soak { cluster, injected, released, unexpected, .. } = soak;
    let claims = cluster.recorder.claims(0);
    let names: Vec<&str> = released.iter().map(String::as_str).collect();
    let verdict = cluster.recorder.finish(&names);
    let report = Report {
        minutes,
        seed,
        injected,
        claims,
        verdict,
        unexpected,
        memory_before,
        memory_after,
    };
    report.print();
    report.verdict.assert_safe();
    assert!(report.unexpected.is_empty(), "ended by themselves: {:?}", report.unexpected);
}

impl Soak {
    /// Starts a process in a slot.
    fn start(&mut self, place: usize) {
        let lives = self.places[place].lives + 1;
        if self.cluster.proxies.len() <= place {
            self.cluster.add_proxy();
        }
        let endpoint = self.cluster.proxies[place].endpoint(self.cluster.endpoint());
        let name = format!("c{place}-{lives}");
        self.cluster.add_by(&endpoint, |_, arguments: &[&str]| Process::run(&name, arguments, &[]));
        self.places[place] = Place { process: self.cluster.candidates.len() - 1, lives };
    }

    fn candidate(&mut self, place: usize) -> &mut Process {
        let process = self.places[place].process;
        &mut self.cluster.candidates[process]
    }

    /// Returns the slot whose answers claim leadership now.
    fn leader(&mut self) -> Option<usize> {
        (0..CANDIDATES).find(|place| self.candidate(*place).is_leader())
    }

    /// Waits until a candidate leads, and for a while after that.
    fn settle(&mut self, quiet: Duration) {
        let began = clock::now().raw;
        while self.leader().is_none() && clock::now().raw - began < Duration::from_secs(60) {
            sleep(Duration::from_millis(200));
        }
        sleep(quiet);
    }

    /// Records and restarts processes that exited unexpectedly, and clears the logs of the proxies.
    fn look_after(&mut self) {
        for place in 0..CANDIDATES {
            if self.candidate(place).has_ended() {
                let name = self.candidate(place).name.clone();
                self.unexpected.push(name);
                self.start(place);
            }
            self.cluster.proxies[place].take_log();
        }
    }

    /// Returns the resident memory of all processes in KiB.
    fn memory(&mut self) -> Vec<u64> {
        (0..CANDIDATES).map(|place| soak_report::resident(self.candidate(place).id())).collect()
    }

    fn note(&mut self, kind: &'static str, place: Option<usize>, leader: bool) {
        let victim = place.map(|place| self.candidate(place).name.clone());
        self.injected.push(Injected { kind, at: clock::now().raw, victim, leader });
    }

    /// Injects one fault and waits until it is over.
    fn inject(&mut self) {
        let leader = self.leader();
        let place = match (self.rng.u8(..10), leader) {
            (0..=6, Some(leader)) => leader,
            _ => self.rng.usize(..CANDIDATES),
        };
        let leads = leader == Some(place);
        match self.rng.u8(..20) {
            0..=2 => self.kill(place, leads),
            3..=5 => self.terminate(place, leads),
            6..=8 => self.stop(place, leads),
            9..=11 => self.cut(vec![place], leads),
            12 => self.cut((0..CANDIDATES).collect(), true),
            13 => {
                let some = self.rng.u32(1..1 << CANDIDATES);
                let places = (0..CANDIDATES).filter(|place| some & (1 << place) != 0);
                self.cut(places.collect(), leads);
            }
            _ => self.disturb(place, leads),
        }
    }

    fn kill(&mut self, place: usize, leads: bool) {
        self.note("kill -9", Some(place), leads);
        let name = self.candidate(place).name.clone();
        self.cluster.recorder.forget(&name);
        self.candidate(place).kill();
        sleep(Duration::from_millis(self.rng.u64(100..5_000)));
        self.start(place);
    }

    fn terminate(&mut self, place: usize, leads: bool) {
        self.note("SIGTERM", Some(place), leads);
        let name = self.candidate(place).name.clone();
        self.released.push(name.clone());
        self.candidate(place).signal(Signal::TERM);
        self.candidate(place).wait(Duration::from_secs(20));
        self.cluster.recorder.forget(&name);
        sleep(Duration::from_millis(self.rng.u64(100..5_000)));
        self.start(place);
    }

    fn stop(&mut self, place: usize, leads: bool) {
        self.note("SIGSTOP", Some(place), leads);
        self.candidate(place).signal(Signal::STOP);
        sleep(Duration::from_millis(self.rng.u64(1_000..20_000)));
        self.candidate(place).signal(Signal::CONT);
    }

    fn cut(&mut self, places: Vec<usize>, leads: bool) {
        let one = (places.len() == 1).then(|| places[0]);
        let kind = if places.len() == CANDIDATES { "cut off all" } else { "cut off" };
        self.note(kind, one, leads);
        let door = if self.rng.bool() { Door::Deaf } else { Door::Shut };
        for place in &places {
            self.cluster.proxies[*place].door(door);
        }
        sleep(Duration::from_millis(self.rng.u64(2_000..25_000)));
        for place in &places {
            self.cluster.proxies[*place].heal();
        }
    }

    fn disturb(&mut self, place: usize, leads: bool) {
        let ms = |rng: &mut Rng| Duration::from_millis(rng.u64(10..4_000));
        let then = [Then::Silence, Then::Close, Then::Reset][self.rng.usize(..3)];
        let (kind, fault) = match self.rng.u8(..7) {
            0 => ("lost before", Fault::DropBefore(then)),
            1 => ("lost after", Fault::DropAfter(then)),
            2 => {
                let (request, answer) = (ms(&mut self.rng), ms(&mut self.rng));
                ("late", Fault::Delay { request, answer })
            }
            3 => ("twice", Fault::Duplicate { after: ms(&mut self.rng) }),
            4 => ("byte by byte", Fault::Trickle(Duration::from_secs(1))),
            5 => (
                "garbage",
                Fault::Garbage(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec()),
            ),
            _ => ("reset", Fault::DropBefore(Then::Reset)),
        };
        self.note(kind, Some(place), leads);
        self.cluster.proxies[place].always(Call::Any, fault);
        sleep(Duration::from_millis(self.rng.u64(1_000..12_000)));
        self.cluster.proxies[place].heal();
    }
}
