//! HAProxy follows a handover with only `option httpchk GET /leader`, or by agent checks.

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
        let servers = candidates.iter().map(|it| format!("server {} {}", it.name, it.address));
        let servers: Vec<_> = servers.collect();
        Self::with(
            directory,
            &format!(
                "frontend in\n  bind {address}\n  default_backend leader\n\
                 backend leader\n  option httpchk GET /leader\n\
                 \x20 default-server check inter 200ms fall 1 rise 1\n  {}\n",
                servers.join("\n  ")
            ),
        )
    }

    /// Starts it with these sections.
    fn with(directory: &Path, sections: &str) -> Self {
        let settings = format!(
            "defaults\n  mode http\n  timeout connect 1s\n  timeout client 5s\n  timeout server 5s\n\
             {sections}"
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

fn arguments(store: &str) -> [&str; 10] {
    [
        "--store",
        store,
        "--lease-duration",
        "2s",
        "--renew-deadline",
        "1300ms",
        "--retry-period",
        "300ms",
        "--request-timeout",
        "500ms",
    ]
}

#[test]
fn haproxy_follows_the_leader_through_a_handover() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().display());
    let arguments = arguments(&store);
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

/// Returns a frontend, the statistics, and a backend that follows the leader by agent checks.
fn with_agent_checks(
    (address, statistics): (SocketAddr, SocketAddr),
    candidates: &[(Process, u16)],
) -> String {
    let server = |(it, agent): &(Process, u16)| {
        format!("  server {} {} agent-addr 127.0.0.1 agent-port {agent}\n", it.name, it.address)
    };
    let servers: String = candidates.iter().map(server).collect();
    format!(
        "frontend in\n  bind {address}\n  default_backend leader\n\
         listen statistics\n  bind {statistics}\n  stats enable\n  stats uri /\n\
         backend leader\n  option httpchk GET /livez\n\
         \x20 default-server check inter 200ms fall 2 rise 1 agent-check agent-inter 200ms\n{servers}"
    )
}

/// Returns what HAProxy says of the server of a candidate: `UP`, `DRAIN`, `MAINT`, `DOWN`.
fn state(statistics: SocketAddr, name: &str) -> Option<String> {
    let (_, table) = get(statistics, "/;csv")?;
    // The table is sent in a chunk, whose length comes first.
    let mut lines = table.lines().skip_while(|it| !it.starts_with("# pxname"));
    let of = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let column = of(lines.next()?).iter().position(|it| it == "status")?;
    let row = lines.map(of).find(|it| it[0] == "leader" && it[1] == name)?;
    // A state may be followed by what it depends on.
    Some(row[column].split(' ').next()?.to_owned())
}

#[test]
fn haproxy_follows_the_leader_by_agent_checks_through_a_drain_and_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().display());
    let admin = |name: &str| format!("unix:{}/{name}.sock", directory.path().display());
    let start = |name: &str| {
        let port = testkit::ports::free_port();
        let agent = format!("127.0.0.1:{port}");
        let own = ["--agent-check", &agent, "--drain-timeout", "1m", "--admin", &admin(name)];
        (Process::run(name, &[&arguments(&store)[..], &own].concat(), &[]), port)
    };
    let mut candidates = ["a", "b", "c"].map(start).into_iter().collect::<Vec<_>>();
    let [address, statistics] =
        [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], testkit::ports::free_port())));
    let settings = with_agent_checks((address, statistics), &candidates);
    let _haproxy = Haproxy::with(directory.path(), &settings);
    let bound = Duration::from_secs(30);
    let leader = |all: &[(Process, u16)]| {
        until(bound, "one leads", || all.iter().position(|(it, _)| it.is_leader()))
    };
    let has = |name: &str, wanted: &str| {
        until(bound, &format!("{name} is {wanted}"), || {
            (state(statistics, name)? == wanted).then_some(())
        });
    };

    let (old, _) = candidates.remove(leader(&candidates));
    until(bound, "HAProxy reaches the leader alone", || only(address, &old.name));
    has(&old.name, "UP");
    candidates.iter().for_each(|(it, _)| has(&it.name, "MAINT"));

    // While a leader drains, what it has begun may end; then it is out, and the next is in.
    old.signal(Signal::TERM);
    has(&old.name, "DRAIN");
    let drained = Process::verb(&["drained", "--admin", &admin(&old.name)], &[]).end();
    assert_eq!(drained.code, 0, "{}", drained.err);
    let (mut killed, _) = candidates.remove(leader(&candidates));
    until(bound, "HAProxy reaches the next leader alone", || only(address, &killed.name));
    assert!(killed.is_leader(), "HAProxy leads to a standby");

    // A dead agent answers no more, so that the health check must notice it.
    killed.kill();
    has(&killed.name, "DOWN");
    let (last, _) = &candidates[leader(&candidates)];
    until(bound, "HAProxy reaches the last leader alone", || only(address, &last.name));
    has(&last.name, "UP");
}
