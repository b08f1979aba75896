//! HAProxy follows a handover with only `option httpchk GET /leader`.

use testkit::processes::process;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use process::{Process, get, until};
use rustix::process::Signal;

/// An HAProxy process; killed with the test.
struct Haproxy(Child);

impl Haproxy {
    /// Starts it in front of the candidates; its servers are the candidates' own listeners.
    fn start(directory: &Path, address: SocketAddr, candidates: &[Process]) -> Self {
        let servers: String =
            candidates.iter().map(|it| format!("  server {} {}\n", it.name, it.address)).collect();
        let settings = format!(
            "defaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n\
             frontend in\n  bind {address}\n  default_backend leader\n\
             backend leader\n  option httpchk GET /leader\n\
             \x20 default-server check inter 200ms fall 1 rise 1\n{servers}"
        );
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, settings).unwrap();
        let child = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect(
                "haproxy is missing: install Debian's package haproxy, or run tests/run --tools",
            );
        Self(child)
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the candidate that HAProxy forwards a request to.
fn reached(address: SocketAddr) -> Option<String> {
    let (code, body) = get(address, "/status")?;
    let document: serde_json::Value = serde_json::from_str(&body).ok()?;
    (code == 200).then(|| document["identity"].as_str().unwrap_or_default().to_owned())
}

/// Returns whether HAProxy forwards to one candidate only: it uses all healthy servers in turn, and
/// considers all healthy until they are checked.
fn only(address: SocketAddr, name: &str) -> Option<()> {
    (0..4).all(|_| reached(address).as_deref() == Some(name)).then_some(())
}

#[test]
fn haproxy_follows_the_leader_through_a_handover() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().display());
    let arguments = [
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
    ];
    let mut candidates: Vec<_> = ["a", "b"].map(|name| Process::run(name, &arguments, &[])).into();
    let address = SocketAddr::from(([127, 0, 0, 1], testkit::ports::free_port()));
    let _haproxy = Haproxy::start(directory.path(), address, &candidates);
    let bound = Duration::from_secs(30);
    let leader = until(bound, "one leads", || candidates.iter().position(Process::is_leader));
    let name = candidates[leader].name.clone();
    until(bound, "HAProxy reaches the leader", || (reached(address)? == name).then_some(()));
    let mut ended = candidates.remove(leader);
    ended.signal(Signal::TERM);
    assert!(ended.wait(Duration::from_secs(10)).success());
    let next = &candidates[0];
    until(bound, "HAProxy reaches the next leader alone", || only(address, &next.name));
    assert!(next.is_leader(), "HAProxy leads to a standby");
}
