//! Hooks of real processes: they delay neither renewals nor the release, and a drain waits for
//! them.

use testkit::faults::tls_front;
use testkit::processes::{process, service};

use std::path::PathBuf;
use std::time::Duration;

use process::{Process, is_running, until};
use rustix::process::Signal;
use service::Service;
use tenure::clock;
use tls_front::{Authority, TlsFront};

const BOUND: Duration = Duration::from_secs(30);

/// Timings with a lease far longer than a graceful handover takes.
const TIMINGS: &str = "--lease-duration=60s --renew-deadline=50s --retry-period=500ms";

/// Timings with a lease that a test can wait for.
const SHORT: &str = "--lease-duration=3s --renew-deadline=2s --retry-period=500ms \
                     --request-timeout=500ms";

struct Scene {
    directory: tempfile::TempDir,
    store: String,
    timings: &'static str,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("file://{}", directory.path().join("store").display());
        std::fs::create_dir(directory.path().join("store")).unwrap();
        Self { directory, store, timings: TIMINGS }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a script, and returns the command line that runs it.
    fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        format!("/bin/sh {}", path.display())
    }

    /// Returns a command line that logs its event to the file `notes`.
    fn note(&self, name: &str, before: &str) -> String {
        let notes = self.path("notes");
        self.script(name, &format!("{before}\necho $TENURE_EVENT >> {}\n", notes.display()))
    }

    fn noted(&self) -> String {
        std::fs::read_to_string(self.path("notes")).unwrap_or_default()
    }

    fn start(&self, name: &str, arguments: &[&str]) -> Process {
        self.start_with(name, arguments, &[])
    }

    fn start_with(&self, name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Process {
        let timings: Vec<_> = self.timings.split_whitespace().collect();
        let arguments = [&["--store", &self.store][..], &timings, arguments].concat();
        Process::run(name, &arguments, variables)
    }
}

fn leads(candidate: &Process) {
    until(BOUND, &format!("{} leads", candidate.name), || candidate.is_leader().then_some(()));
}

fn logs(candidate: &Process, words: &str) {
    until(BOUND, &format!("{words:?} in the log"), || {
        candidate.log().contains(words).then_some(())
    });
}

#[test]
fn the_end_of_on_drain_ends_the_drain_and_passive_follows() {
    let scene = Scene::new();
    let go = scene.path("go");
    let wait = format!("until [ -e {} ]; do sleep 0.02; done", go.display());
    let (drain, passive) = (scene.note("drain", &wait), scene.note("passive", ""));
    let hooks = ["--drain-timeout=10m", "--on-drain", &drain, "--on-passive", &passive];
    let mut first = scene.start("first", &[&hooks[..], &["--hook-timeout=10m"]].concat());
    leads(&first);
    let second = scene.start("second", &[]);
    first.signal(Signal::TERM);
    until(BOUND, "it drains", || first.state().filter(|it| it == "draining"));
    // Long enough for several reads of the standby.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!first.is_leader() && !second.is_leader());
    assert_eq!(first.state().unwrap(), "draining");
    assert_eq!(scene.noted(), "");
    std::fs::write(&go, "").unwrap();
    leads(&second);
    assert!(first.wait(BOUND).success());
    assert_eq!(scene.noted(), "drain\npassive\n");
}

#[test]
fn an_on_drain_that_fails_ends_the_drain() {
    let scene = Scene::new();
    let mut first = scene.start("first", &["--drain-timeout=10m", "--on-drain", "false"]);
    leads(&first);
    first.signal(Signal::TERM);
    assert!(first.wait(BOUND).success());
    assert!(first.log().contains("on-drain: exit code 1"), "{}", first.log());
}

#[test]
fn an_on_drain_that_is_killed_does_not_shorten_the_drain() {
    let scene = Scene::new();
    let arguments = ["--drain-timeout=3s", "--hook-timeout=200ms", "--on-drain", "sleep 100"];
    let mut first = scene.start("first", &arguments);
    leads(&first);
    let second = scene.start("second", &[]);
    let began = clock::now();
    first.signal(Signal::TERM);
    logs(&first, "on-drain: not finished within 200ms");
    leads(&second);
    let took = began.elapsed_min(clock::now());
    assert!(took >= Duration::from_secs(3), "{took:?}");
    assert!(first.wait(BOUND).success());
}

#[test]
fn a_hook_that_hangs_delays_neither_renewals_nor_the_release() {
    let scene = Scene::new();
    let file = scene.path("ids");
    let hang = format!("trap '' TERM\nsleep 1000 & echo $! $$ > {}\nwait\n", file.display());
    let hang = scene.script("hang", &hang);
    let passive = scene.note("passive", "");
    let arguments = ["--on-active", &hang, "--on-passive", &passive, "--hook-timeout=6s"];
    let mut first = scene.start("first", &arguments);
    leads(&first);
    let ids = until(BOUND, "the hook runs", || {
        std::fs::read_to_string(&file).ok().filter(|it| it.ends_with('\n'))
    });
    let renewed = |before: u64| {
        let left = first.status()?["valid_until_boottime_ns"].as_u64()?;
        (left > before).then_some(left)
    };
    let once = until(BOUND, "it renews", || renewed(0));
    until(BOUND, "it renews again", || renewed(once));
    let second = scene.start("second", &[]);
    first.signal(Signal::TERM);
    leads(&second);
    assert!(!first.has_ended(), "the passive hook has yet to run, after the hook that hangs");
    assert!(first.wait(BOUND).success());
    assert_eq!(scene.noted(), "passive\n");
    for id in ids.split_whitespace() {
        assert!(!is_running(id), "{id} runs yet");
    }
    assert!(first.log().contains("on-active: not finished within 6s"), "{}", first.log());
}

#[test]
fn a_second_signal_ends_hooks_with_the_process() {
    let scene = Scene::new();
    let file = scene.path("id");
    let hang = scene.script("hang", &format!("echo $$ > {}\nexec sleep 1000\n", file.display()));
    let mut first = scene.start("first", &["--on-active", &hang, "--hook-timeout=10m"]);
    leads(&first);
    let id = until(BOUND, "the hook runs", || {
        std::fs::read_to_string(&file).ok().filter(|it| it.ends_with('\n'))
    });
    first.signal(Signal::TERM);
    until(BOUND, "it has resigned", || (!first.is_leader()).then_some(()));
    assert!(!first.has_ended() && is_running(id.trim()));
    first.signal(Signal::TERM);
    assert_eq!(first.wait(BOUND).code(), Some(128 + 15));
    until(BOUND, "the hook is gone", || (!is_running(id.trim())).then_some(()));
}

#[test]
fn the_output_of_a_hook_is_logged_up_to_a_limit() {
    let scene = Scene::new();
    let talk = "echo hello from $TENURE_IDENTITY; echo trouble >&2; yes | head -n 5000\n";
    let talk = scene.script("talk", talk);
    let first = scene.start("first", &["--on-active", &talk]);
    logs(&first, "on-active: exit code 0");
    let log = first.log();
    for words in ["on-active: hello from first", "on-active: trouble", "more lines of output ("] {
        assert!(log.contains(words), "{words} is not in {log}");
    }
    assert!(log.matches("on-active: y\"").count() < 150, "{log}");
    let (_, metrics) = first.get("/metrics").unwrap();
    let run = "hook=\"on-active\"";
    let line = metrics.lines().find(|it| it.contains(run) && it.contains("outcome=\"ok\""));
    assert!(line.unwrap().ends_with(" 1"), "{metrics}");
}

#[test]
fn a_webhook_over_tls_trusts_the_system_roots() {
    let scene = Scene::new();
    let service = Service::start();
    let authority = Authority::new("hooks");
    let front = TlsFront::start(service.address, authority.sign("localhost", 2099));
    let url = format!("https://localhost:{}/secret-path", front.address.port());
    let file = authority.write(scene.directory.path());
    let variables = [("SSL_CERT_FILE", file.to_str().unwrap())];
    let arguments = ["--on-active", &url, "--on-passive", &url];
    let mut first = scene.start_with("first", &arguments, &variables);
    logs(&first, "on-active: 200 OK");
    front.show(Authority::new("others").sign("localhost", 2099));
    first.signal(Signal::TERM);
    assert!(first.wait(BOUND).success());
    let requests = service.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].json()["role"], "active");
    let log = first.log();
    assert!(log.contains("on-passive: TLS failed: invalid peer certificate"), "{log}");
    assert!(!log.contains("secret-path"), "{log}");
}

#[test]
fn a_frozen_leader_runs_the_passive_hook_on_waking_and_the_active_hook_not_again() {
    let scene = Scene { timings: SHORT, ..Scene::new() };
    let (active, passive) = (scene.note("active", ""), scene.note("passive", ""));
    let first = scene.start("first", &["--on-active", &active, "--on-passive", &passive]);
    leads(&first);
    let second = scene.start("second", &[]);
    until(BOUND, "the active hook has run", || (scene.noted() == "active\n").then_some(()));
    first.signal(Signal::STOP);
    leads(&second);
    first.signal(Signal::CONT);
    until(BOUND, "the passive hook has run", || {
        (scene.noted() == "active\npassive\n").then_some(())
    });
    until(BOUND, "it stands by", || first.state().filter(|it| it == "standby"));
    assert_eq!(scene.noted(), "active\npassive\n");
}
