//! Candidacy that depends on health probes: real processes next to a service that fails and
//! recovers.

use testkit::faults::tls_front;
use testkit::processes::{process, service};

use std::time::Duration;

use process::{Process, until};
use rustix::process::Signal;
use service::Service;
use tenure::clock;
use tls_front::{Authority, TlsFront};

const BOUND: Duration = Duration::from_secs(30);

/// Timings with a lease far longer than a graceful handover takes.
const LONG: &str = "--lease-duration=60s --renew-deadline=50s --retry-period=1s";

/// Timings with a lease that a test can wait for, which is how long an unhealthy instance holds
/// off.
const SHORT: &str = "--lease-duration=3s --renew-deadline=2s --retry-period=500ms \
                     --request-timeout=500ms";

/// The probes' interval and timeout, and the resulting bound with three failures by default: 3 ×
/// 400 ms, no drain, 1.5 s.
const HEALTH: [&str; 4] = ["--health-interval", "400ms", "--health-timeout", "400ms"];
const MOVES_WITHIN: Duration = Duration::from_millis(2_700);

/// The additional time on a machine that is busy with other tests.
const LEEWAY: Duration = Duration::from_secs(8);

struct Scene {
    directory: tempfile::TempDir,
    store: String,
    timings: &'static str,
}

impl Scene {
    fn new(timings: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("file://{}", directory.path().join("store").display());
        std::fs::create_dir(directory.path().join("store")).unwrap();
        Self { directory, store, timings }
    }

    fn start(&self, name: &str, health: &[&str]) -> Process {
        self.start_with(name, health, &[])
    }

    fn start_with(&self, name: &str, health: &[&str], variables: &[(&str, &str)]) -> Process {
        let mut arguments = [&["--store", &self.store][..], &HEALTH].concat();
        arguments.extend(self.timings.split_whitespace());
        for probe in health {
            arguments.extend(["--health", probe]);
        }
        Process::run(name, &arguments, variables)
    }
}

fn leads(candidate: &Process) {
    until(BOUND, &format!("{} leads", candidate.name), || candidate.is_leader().then_some(()));
}

fn is_in(candidate: &Process, state: &str) {
    until(BOUND, &format!("{} is {state}", candidate.name), || {
        candidate.state().filter(|it| it == state)
    });
}

fn metric(candidate: &Process, name: &str) -> f64 {
    let (_, text) = candidate.get("/metrics").unwrap();
    let line = text.lines().find(|it| it.starts_with(&format!("{name}{{"))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_dead_service_moves_leadership_to_a_healthy_instance() {
    let scene = Scene::new(LONG);
    let (one, other) = (Service::start(), Service::start());
    let first = scene.start("first", &[&one.url("/healthz")]);
    leads(&first);
    let second = scene.start("second", &[&other.url("/healthz")]);
    is_in(&second, "standby");
    drop(one);
    let died = clock::now();
    leads(&second);
    let took = died.elapsed_min(clock::now());
    eprintln!("leadership moved {took:?} after the service died; {MOVES_WITHIN:?} is promised");
    assert!(took < MOVES_WITHIN + LEEWAY, "{took:?}");
    is_in(&first, "unhealthy");
    assert_eq!(first.get("/standby").unwrap().0, 503);
    assert_eq!(metric(&first, "tenure_healthy"), 0.0);
    assert_eq!(metric(&second, "tenure_healthy"), 1.0);
    let health = &first.status().unwrap()["health"];
    assert_eq!(health["well"], false);
    assert_eq!(health["probes"][0]["said"], "connection refused");
}

#[test]
fn no_instance_competes_before_its_service_is_healthy() {
    let scene = Scene::new(LONG);
    let service = Service::start();
    service.answer("503 Service Unavailable");
    let candidate = scene.start("gated", &[&service.url("/")]);
    until(BOUND, "it has asked ten times", || (service.requests().len() >= 10).then_some(()));
    assert!(!candidate.is_leader());
    is_in(&candidate, "unhealthy");
    let free = scene.start("free", &[]);
    leads(&free);
    assert!(free.status().unwrap()["health"].is_null());
    assert_eq!(metric(&free, "tenure_healthy"), 1.0);
    service.answer("200 OK");
    is_in(&candidate, "standby");
    free.signal(Signal::TERM);
    leads(&candidate);
}

#[test]
fn a_service_that_recovers_competes_again_without_preemption() {
    let scene = Scene::new(SHORT);
    let (one, other) = (Service::start(), Service::start());
    let first = scene.start("first", &[&one.url("/")]);
    leads(&first);
    let second = scene.start("second", &[&other.url("/")]);
    is_in(&second, "standby");
    one.answer("500 Internal Server Error");
    leads(&second);
    is_in(&first, "unhealthy");
    one.answer("200 OK");
    is_in(&first, "standby");
    assert!(second.is_leader());
    drop(other);
    leads(&first);
    is_in(&second, "unhealthy");
}

#[test]
fn failures_below_the_threshold_are_tolerated_and_all_probes_must_be_healthy() {
    let scene = Scene::new(LONG);
    let service = Service::start();
    let alive = scene.directory.path().join("alive");
    std::fs::write(&alive, "").unwrap();
    let file = format!("file:{}", alive.display());
    let candidate = scene.start("picky", &[&service.url("/"), &file, "exec:true"]);
    leads(&candidate);
    let term = candidate.status().unwrap()["term"].clone();
    for _ in 0..3 {
        let requests = service.requests().len();
        service.fail_once();
        until(BOUND, "it is healthy", || (service.requests().len() > requests + 2).then_some(()));
    }
    assert_eq!(candidate.status().unwrap()["term"], term, "it led all the time");
    std::fs::remove_file(&alive).unwrap();
    is_in(&candidate, "unhealthy");
    let probes = candidate.status().unwrap()["health"]["probes"].clone();
    assert_eq!(probes[0]["well"], true);
    assert!(probes[0]["said"].as_str().unwrap().starts_with("200 OK in "), "{probes}");
    assert_eq!(probes[1]["probe"], file);
    assert_eq!((&probes[1]["well"], &probes[1]["said"]), (&false.into(), &"no such file".into()));
    assert!(probes[1]["ms_ago"].as_u64().is_some());
    assert_eq!(probes[2]["well"], true);
    let log = candidate.log();
    let unwell = log.lines().filter(|it| it.contains("health probe failed: no such file"));
    assert_eq!(unwell.count(), 1, "a change is logged once: {log}");
}

#[test]
fn a_probe_over_tls_trusts_the_system_roots() {
    let scene = Scene::new(LONG);
    let service = Service::start();
    let authority = Authority::new("probes");
    let front = TlsFront::start(service.address, authority.sign("localhost", 2099));
    let url = format!("https://localhost:{}/healthz", front.address.port());
    let file = authority.write(scene.directory.path());
    let file = file.to_str().unwrap();
    let candidate = scene.start_with("trusting", &[&url], &[("SSL_CERT_FILE", file)]);
    leads(&candidate);
    let message = candidate.status().unwrap()["health"]["probes"][0]["said"].clone();
    assert!(message.as_str().unwrap().starts_with("200 OK in "), "{message}");
    front.show(Authority::new("others").sign("localhost", 2099));
    is_in(&candidate, "unhealthy");
    let message = candidate.status().unwrap()["health"]["probes"][0]["said"].clone();
    assert!(
        message.as_str().unwrap().starts_with("TLS failed: invalid peer certificate"),
        "{message}"
    );
}

#[test]
fn probes_that_hang_delay_neither_renewals_nor_shutdown() {
    let scene = Scene::new(LONG);
    let service = Service::start();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = format!("http://{}/", silent.local_addr().unwrap());
    let mut candidate = scene.start("patient", &[&service.url("/")]);
    leads(&candidate);
    service.delay(BOUND);
    is_in(&candidate, "unhealthy");
    let message = candidate.status().unwrap()["health"]["probes"][0]["said"].clone();
    assert_eq!(message, "no answer within 400ms");
    assert_eq!(candidate.get("/livez").unwrap().0, 200);
    let mut stuck = scene.start("stuck", &[&mute, "exec:sleep 100"]);
    is_in(&stuck, "unhealthy");
    for it in [&mut candidate, &mut stuck] {
        it.signal(Signal::TERM);
        assert!(it.wait(BOUND).success());
    }
}
