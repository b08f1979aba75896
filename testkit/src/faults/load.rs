//! A leader in a process of its own whose status listener a test puts under load, with clients that
//! keep sending requests. Asserts that its term stays, that the clients are answered, and that its
//! memory is bounded. The test generates the load.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tenure::clock::Moment;

use crate::processes::process::{Process, get_within, until};
use crate::recorder::Recorder;

/// The default limit of the listener's connections.
pub const PLACES: usize = 512;

/// The maximum number of descriptors that the process opens for itself: the store, the log, the
/// listener, the runtime.
const OWN_DESCRIPTORS: usize = 64;

/// The limit of a sidecar's anonymous memory in KiB: 32 MiB, less 8 MiB for the pages of the
/// release binary. The pages of a test build are three times as many.
const MOST_RESIDENT: u64 = 24 * 1024;

/// The limit of the memory in KiB that it has more than before when the load is over: the allocator
/// keeps the buffers of all connections for reuse.
const KEPT: u64 = 16 * 1024;

/// The timeout of one client until it is answered. On a machine too busy to accept in time, the
/// kernel drops the first packet of a connection, which is sent again after one second, then two;
/// and if there are few free connections, others take them.
const PATIENCE: Duration = Duration::from_secs(90);

/// The timeout of one attempt: some four thousand may wait in line before it, and a busy machine
/// accepts a few hundred in a second. Who gives up earlier loses his place.
const IN_LINE: Duration = Duration::from_secs(30);

/// Timings with which a leader stays leader on a machine that is busy with the load.
const TIMINGS: [&str; 8] = [
    "--lease-duration",
    "6s",
    "--renew-deadline",
    "4500ms",
    "--retry-period",
    "500ms",
    "--request-timeout",
    "1s",
];

/// A leader under load, and its clients.
pub struct LoadedLeader {
    pub candidate: Process,
    pub directory: TempDir,
    recorder: Recorder,
    clients: Vec<JoinHandle<Answers>>,
    over: Arc<AtomicBool>,
    resident: u64,
}

/// The statistics of one client.
#[derive(Debug, Default)]
struct Answers {
    answered: usize,
    /// The requests that were not answered, and repeated.
    cut: usize,
    longest: Duration,
}

impl LoadedLeader {
    /// Starts a leader through `wrapper`, a command that executes the one that it is given, and its
    /// clients.
    pub fn start(wrapper: &[&str], more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("file://{}", directory.path().join("store").display());
        let arguments = [&["--store", &store], &TIMINGS[..], more].concat();
        let candidate = Process::run_by(wrapper, "127.0.0.1", "leader", &arguments, &[]);
        until(Duration::from_secs(30), "it leads", || candidate.is_leader().then_some(()));
        // Allocates everything that a request and a scrape need, before the load begins.
        for path in ["/metrics", "/status", "/leader"] {
            assert_eq!(candidate.get(path).unwrap().0, 200, "{path}");
        }
        let mut recorder = Recorder::start();
        recorder.follow("leader", candidate.address);
        let over = Arc::new(AtomicBool::new(false));
        let clients = [Duration::from_millis(20), Duration::from_millis(50)]
            .map(|pause| keep_requesting(candidate.address, pause, Arc::clone(&over)))
            .into();
        let resident = resident(candidate.id());
        Self { candidate, directory, recorder, clients, over, resident }
    }

    /// Panics unless connections and memory are within their limits now.
    pub fn assert_bounded(&self) {
        let open = descriptors(self.candidate.id());
        assert!(open <= PLACES + OWN_DESCRIPTORS, "{open} files are open");
        let resident = resident(self.candidate.id());
        assert!(resident < MOST_RESIDENT, "{resident} KiB, and {} before", self.resident);
    }

    /// Returns how much more memory it has than before, in KiB.
    pub fn grown(&self) -> u64 {
        resident(self.candidate.id()).saturating_sub(self.resident)
    }

    /// Waits until no more descriptors are open than without clients.
    pub fn await_few_descriptors(&self) {
        until(Duration::from_secs(30), "the connections are closed", || {
            (descriptors(self.candidate.id()) < OWN_DESCRIPTORS).then_some(())
        });
    }

    /// Ends the test after the load: panics unless memory was freed, all clients were answered all
    /// the time, and the leader has stayed leader in one term.
    pub fn relieved(self) {
        self.await_few_descriptors();
        self.assert_bounded();
        assert!(self.grown() < KEPT, "{} KiB more than before", self.grown());
        self.over.store(true, Ordering::Relaxed);
        for client in self.clients {
            let answers = client.join().expect("a client is answered");
            eprintln!("{answers:?}");
        }
        assert!(self.candidate.is_leader(), "it leads yet");
        let verdict = self.recorder.finish(&[]);
        verdict.assert_safe();
        assert_eq!(verdict.terms.len(), 1, "one term: {verdict:?}");
    }
}

/// Keeps requesting `/leader`, each time on a new connection.
fn keep_requesting(
    address: SocketAddr,
    pause: Duration,
    over: Arc<AtomicBool>,
) -> JoinHandle<Answers> {
    std::thread::spawn(move || {
        let mut answers = Answers::default();
        // On a busy machine a load may be over before a few answers have come.
        while !over.load(Ordering::Relaxed) || answers.answered <= 10 {
            let begun = tenure::clock::now();
            loop {
                match get_within(IN_LINE, address, "/leader") {
                    Some((code, _)) => {
                        assert_eq!(code, 200, "it does not lead any more");
                        break;
                    }
                    None => {
                        answers.cut += 1;
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                assert!(since(begun) < PATIENCE, "nobody answered: {answers:?}");
            }
            answers.answered += 1;
            answers.longest = answers.longest.max(since(begun));
            std::thread::sleep(pause);
        }
        answers
    })
}

/// Returns the time since a moment.
pub fn since(then: Moment) -> Duration {
    then.elapsed_max(tenure::clock::now())
}

/// Returns the anonymous memory of a process in KiB.
pub fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Returns the number of open descriptors of a process.
pub fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count()
}

/// Raises this process's limit of open files to the maximum, and returns how many more it can open.
pub fn room_for_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // If the kernel refuses, the current limit must suffice.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let now = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(now).expect("a number of files") - descriptors(std::process::id())
}

/// Connects from one of 200 loopback addresses, each of which has its own range of ports.
pub fn connect_as(number: usize, address: SocketAddr) -> io::Result<TcpStream> {
    let from = Ipv4Addr::new(127, 0, 0, 1 + u8::try_from(number % 200).expect("small"));
    // Closed on exec, so that no process of another test inherits it.
    let flags = SocketFlags::CLOEXEC;
    let made = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&made, &SocketAddrV4::new(from, 0))?;
    connect(&made, &address)?;
    Ok(TcpStream::from(made))
}
