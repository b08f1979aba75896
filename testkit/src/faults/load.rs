//! A leader in a process of its own, asked by others while a test besieges its status listener, and
//! what must hold then: its term stays, the others are answered, and its memory is bounded.
//!
//! What it does not do: it besieges nobody.

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

use crate::processes::process::{Candidate, get, until};
use crate::recorder::Recorder;

/// Most connections that the listener keeps unless it is told otherwise.
pub const PLACES: usize = 512;

/// What the process opens for itself, at most: the store, the log, the listener, the runtime.
const OWN_DESCRIPTORS: usize = 64;

/// More than a sidecar may ever have in memory, in KiB, beside the pages of its own file: 32 MiB,
/// less 8 for those of the program as it ships. A test's build has three times as many.
const MOST_RESIDENT: u64 = 24 * 1024;

/// How much more than before it may have in memory, in KiB, when the siege is over: the allocator
/// keeps the buffers of all places for the next one.
const KEPT: u64 = 16 * 1024;

/// How long one client may have to ask again until it is answered. Where the machine is too busy to
/// accept as fast as others connect, the kernel drops a connection's first packet and it is sent
/// again after one second, then two; and where places are few, they are soon another's.
const PATIENCE: Duration = Duration::from_secs(20);

/// Timings with which a leader survives a machine that is busy with its siege.
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

/// The leader, and those who ask it.
pub struct Besieged {
    pub candidate: Candidate,
    pub directory: TempDir,
    recorder: Recorder,
    askers: Vec<JoinHandle<Asked>>,
    over: Arc<AtomicBool>,
    resident: u64,
}

/// What one client met.
#[derive(Debug, Default)]
struct Asked {
    answered: usize,
    /// Questions that got no answer, and were asked again.
    cut: usize,
    longest: Duration,
}

impl Besieged {
    /// Starts a leader through `wrapper`, a command that becomes the one that it is given, and
    /// those who ask it.
    pub fn start(wrapper: &[&str], more: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("file://{}", directory.path().join("store").display());
        let arguments = [&["--store", &store], &TIMINGS[..], more].concat();
        let candidate =
            Candidate::start_by(wrapper, "127.0.0.1", "leader", directory.path(), &arguments, &[]);
        until(Duration::from_secs(30), "it leads", || candidate.is_leader().then_some(()));
        // What a question and a scrape need is there before the siege.
        for path in ["/metrics", "/status", "/leader"] {
            assert_eq!(candidate.get(path).unwrap().0, 200, "{path}");
        }
        let mut recorder = Recorder::start();
        recorder.follow("leader", candidate.address);
        let over = Arc::new(AtomicBool::new(false));
        let askers = [Duration::from_millis(20), Duration::from_millis(50)]
            .map(|pause| ask_on(candidate.address, pause, Arc::clone(&over)))
            .into();
        let resident = resident(candidate.id());
        Self { candidate, directory, recorder, askers, over, resident }
    }

    /// Panics unless connections and memory are within their bounds at this moment.
    pub fn assert_bounded(&self) {
        let open = descriptors(self.candidate.id());
        assert!(open <= PLACES + OWN_DESCRIPTORS, "{open} files are open");
        let resident = resident(self.candidate.id());
        assert!(resident < MOST_RESIDENT, "{resident} KiB, and {} before", self.resident);
    }

    /// How much more memory it has than before, in KiB.
    pub fn grown(&self) -> u64 {
        resident(self.candidate.id()).saturating_sub(self.resident)
    }

    /// Waits until no more files are open than without anybody who asks.
    pub fn await_few_descriptors(&self) {
        until(Duration::from_secs(30), "the connections are closed", || {
            (descriptors(self.candidate.id()) < OWN_DESCRIPTORS).then_some(())
        });
    }

    /// The siege is over: panics unless memory comes back, the others were answered all the time,
    /// and the leader has led in one term throughout.
    pub fn relieved(self) {
        self.await_few_descriptors();
        self.assert_bounded();
        assert!(self.grown() < KEPT, "{} KiB more than before", self.grown());
        self.over.store(true, Ordering::Relaxed);
        for asker in self.askers {
            let asked = asker.join().expect("a client is answered");
            eprintln!("{asked:?}");
            assert!(asked.answered > 10, "{asked:?}");
        }
        assert!(self.candidate.is_leader(), "it leads yet");
        let verdict = self.recorder.finish(&[]);
        verdict.assert_safe();
        assert_eq!(verdict.terms.len(), 1, "one term: {verdict:?}");
    }
}

/// Asks for `/leader` again and again, each time on a connection of its own.
fn ask_on(address: SocketAddr, pause: Duration, over: Arc<AtomicBool>) -> JoinHandle<Asked> {
    std::thread::spawn(move || {
        let mut asked = Asked::default();
        while !over.load(Ordering::Relaxed) {
            let begun = tenure::clock::now();
            loop {
                match get(address, "/leader") {
                    Some((code, _)) => {
                        assert_eq!(code, 200, "it does not lead any more");
                        break;
                    }
                    None => {
                        asked.cut += 1;
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                assert!(since(begun) < PATIENCE, "nobody answered: {asked:?}");
            }
            asked.answered += 1;
            asked.longest = asked.longest.max(since(begun));
            std::thread::sleep(pause);
        }
        asked
    })
}

/// The time since a moment.
pub fn since(then: Moment) -> Duration {
    then.elapsed_max(tenure::clock::now())
}

/// How much of a process is in memory, in KiB, the pages of files apart.
pub fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// How many files a process has open.
pub fn descriptors(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").count()
}

/// Raises this process's limit of open files as far as it goes, and says how many more it can open.
pub fn room_for_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // Where the kernel forbids it, what is there must do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let now = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(now).expect("a number of files") - descriptors(std::process::id())
}

/// Connects from one of 200 addresses of loopback: each has ports of its own.
pub fn connect_as(number: usize, address: SocketAddr) -> io::Result<TcpStream> {
    let from = Ipv4Addr::new(127, 0, 0, 1 + u8::try_from(number % 200).expect("small"));
    // No process that another test starts meanwhile inherits it.
    let flags = SocketFlags::CLOEXEC;
    let made = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    bind(&made, &SocketAddrV4::new(from, 0))?;
    connect(&made, &address)?;
    Ok(TcpStream::from(made))
}
