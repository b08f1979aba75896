//! What the faults of the stores on servers have in common.

use testkit::faults::half_answer::HalfAnswer;
use testkit::faults::muffled::Muffled;
use testkit::http::front;
use testkit::processes::cluster::{Cluster, PATIENCE, Timings, logs};
use testkit::processes::process::{Process, until};

use std::time::Duration;

use rustix::process::Signal;
use tenure::clock;

/// A lease for tests that wait for none to end: on a machine that is busy with other work, some requests in
/// a row may fail beside those that are made to.
pub(super) const LONG: Timings = Timings {
    lease_duration: Duration::from_secs(24),
    renew_deadline: Duration::from_secs(20),
    retry_period: Duration::from_millis(500),
    request_timeout: Duration::from_secs(4),
};

/// Returns timings with a margin of two seconds, and a renew-deadline for a busy machine.
pub(super) const fn lease_of(seconds: u64) -> Timings {
    Timings {
        lease_duration: Duration::from_secs(seconds),
        renew_deadline: Duration::from_secs(seconds - 2),
        retry_period: Duration::from_millis(500),
        request_timeout: Duration::from_millis(1_500),
    }
}

/// Waits until a candidate is in a state.
pub(super) fn reach(candidate: &Process, state: &str) {
    until(PATIENCE, &format!("{} is {state}", candidate.name), || {
        (candidate.state()? == state).then_some(())
    });
}

/// Returns the number of a candidate's requests with this operation and outcome, from the metrics; `None` if
/// they have no such series yet.
pub(super) fn counted(candidate: &Process, op: &str, outcome: &str) -> Option<u64> {
    let (_, text) = candidate.get("/metrics").expect("it answers");
    let words = format!(r#"op="{op}",outcome="{outcome}""#);
    let line = text
        .lines()
        .find(|it| it.starts_with("tenure_store_requests_total") && it.contains(&words))?;
    Some(line.rsplit(' ').next()?.parse().expect("a number"))
}

/// Like [`counted`], of a series that is there from the start.
pub(super) fn requests(candidate: &Process, op: &str, outcome: &str) -> u64 {
    counted(candidate, op, outcome).expect("the series is there")
}

/// Waits until a leader has lost its leadership at its own deadline, and not by an answer.
pub(super) fn lapses(candidate: &Process) {
    until(PATIENCE, "it is passive", || (!candidate.is_leader()).then_some(()));
    logs(candidate, r#""reason":"lapsed""#);
    assert_eq!(requests(candidate, "renew", "refused"), 0, "nothing is refused without a quorum");
}

/// Waits for two leases of real time.
pub(super) fn wait_for_two_leases(cluster: &Cluster) {
    let start = clock::now();
    while start.elapsed_min(clock::now()) < cluster.timings.lease_duration * 2 {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a leader has renewed some more times.
pub(super) fn renews_on(candidate: &Process) {
    let before = requests(candidate, "renew", "ok");
    until(PATIENCE, "it has renewed", || {
        (requests(candidate, "renew", "ok") >= before + 6).then_some(())
    });
}

/// Lets some candidates compete for a lease on a server.
pub(super) fn compete(
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    timings: Timings,
    names: &[&str],
) -> Cluster {
    let mut cluster = Cluster::on(arguments, variables, timings);
    for name in names {
        cluster.join(name, &[], &[]);
    }
    cluster
}

/// Makes a server useless until the leader has lapsed, and good again: one leads then, in another term.
pub(super) fn outlasts<S>(
    cluster: Cluster,
    server: &mut S,
    fail: impl FnOnce(&mut S),
    mend: impl FnOnce(&mut S),
) {
    let leader = cluster.settle();
    fail(server);
    lapses(&cluster.candidates[leader]);
    mend(server);
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

/// Makes a server useless for two leases: nobody leads meanwhile, and one does after.
pub(super) fn outlasts_two_leases<S>(
    cluster: Cluster,
    server: &mut S,
    fail: impl FnOnce(&mut S),
    mend: impl FnOnce(&mut S),
) {
    let leader = cluster.settle();
    fail(server);
    lapses(&cluster.candidates[leader]);
    wait_for_two_leases(&cluster);
    assert!(cluster.candidates.iter().all(|it| !it.is_leader()), "nobody can have acquired it");
    mend(server);
    cluster.settle();
    assert!(cluster.verdict().terms.len() >= 2);
}

/// Stops a server for two leases, and lets it continue.
pub(super) fn outlasts_a_stop(
    cluster: Cluster,
    mut signal: impl FnMut(Signal),
    becomes_ready: impl FnOnce(),
) {
    outlasts_two_leases(
        cluster,
        &mut signal,
        |signal| signal(Signal::STOP),
        |signal| {
            signal(Signal::CONT);
            becomes_ready();
        },
    );
}

/// Stops the server that leads the others for two leases: when it continues, it ends nothing that they have
/// granted meanwhile.
pub(super) fn survives_a_stopped_leader(
    cluster: Cluster,
    find_leader: impl FnOnce() -> usize,
    signal: impl Fn(usize, Signal),
    becomes_ready: impl FnOnce(usize),
) {
    cluster.settle();
    let stopped = find_leader();
    signal(stopped, Signal::STOP);
    wait_for_two_leases(&cluster);
    // The other two have a leader by now, whichever of the candidates that leaves in the lead.
    let leader = cluster.settle();
    let term = cluster.term(leader);
    signal(stopped, Signal::CONT);
    becomes_ready(stopped);
    renews_on(&cluster.candidates[leader]);
    assert_eq!(cluster.term(leader), term);
    cluster.verdict();
}

/// Fails over, with the term of the leader, to a server that has every write. Whoever leads then, the lease was
/// not lost: the next term is above this one, if there is another.
pub(super) fn survives_a_failover(cluster: Cluster, fail_over: impl FnOnce(u64)) {
    let leader = cluster.settle();
    let term = cluster.term(leader);
    fail_over(term);
    let next = cluster.settle();
    assert!(cluster.term(next) >= term);
    renews_on(&cluster.candidates[next]);
    cluster.verdict();
}

/// Resets connections half-way through answers to two candidates: this often to renewals, and then to a
/// release and a bid.
pub(super) fn survives_half_answers(mut cluster: Cluster, proxy: &HalfAnswer, times: usize) {
    let leader = cluster.settle();
    let term = cluster.term(leader);
    for _ in 0..times {
        proxy.cut(2);
        until(PATIENCE, "answers are cut", || (proxy.pending() == 0).then_some(()));
        renews_on(&cluster.candidates[leader]);
    }
    reach(&cluster.candidates[leader], "leader");
    assert_eq!(cluster.term(leader), term, "each is repeated on another connection");
    // A bid whose answer breaks off is repeated, or found by its nonce.
    cluster.releases(leader);
    proxy.cut(20);
    cluster.candidates[leader].signal(Signal::TERM);
    cluster.leads(1 - leader, PATIENCE);
    assert_eq!(cluster.verdict().terms.len(), 2, "one after the other, in one term each");
}

/// Takes the rights of the candidates away until the leader has lapsed, and gives them back.
pub(super) fn outlasts_taken_rights(
    cluster: Cluster,
    take: impl FnOnce(),
    give: impl FnOnce(),
    secrets: &[&str],
) {
    let leader = cluster.settle();
    take();
    lapses(&cluster.candidates[leader]);
    assert!(requests(&cluster.candidates[leader], "renew", "auth") > 0);
    logs(&cluster.candidates[leader], r#""cause":"auth""#);
    give();
    cluster.settle();
    for log in cluster.candidates.iter().map(Process::log) {
        for secret in secrets {
            assert!(!log.contains(secret), "{secret}: {log}");
        }
    }
    assert!(cluster.verdict().terms.len() >= 2);
}

/// Replaces certificates while an instance leads, which keeps its term.
pub(super) fn keeps_its_term(cluster: Cluster, mut replace: impl FnMut()) {
    let leader = cluster.settle();
    let term = cluster.term(leader);
    for _ in 0..3 {
        replace();
        renews_on(&cluster.candidates[leader]);
    }
    assert_eq!(cluster.term(leader), term);
    assert_eq!(cluster.verdict().terms.len(), 1);
}

/// Starts a front before a server of HTTP on a port of loopback, which delivers each request with this text
/// in its first line once more, some renewals later; returns its port. No watch can be opened there.
pub(super) fn late_and_twice(server: u16, path: &'static str) -> u16 {
    front::before(server, move |request, behind| {
        if request.first_line().contains(path) {
            let request = request.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(1_200));
                let again = std::net::TcpStream::connect(("127.0.0.1", server));
                let _ = again.and_then(|mut it| {
                    std::io::Write::write_all(&mut it, &request.bytes)?;
                    // Until it has an answer.
                    std::io::Read::read(&mut it, &mut [0; 64])
                });
            });
        }
        behind.forward(request, &request.bytes)
    })
}

/// Lets the lead change hands between two candidates whose writes are all delivered once more, later.
pub(super) fn survives_late_requests(mut cluster: Cluster) {
    let leader = cluster.settle();
    renews_on(&cluster.candidates[leader]);
    cluster.candidates[leader].kill();
    let next = 1 - leader;
    cluster.leads(next, PATIENCE);
    let term = cluster.term(next);
    renews_on(&cluster.candidates[next]);
    assert_eq!(cluster.term(next), term);
    cluster.join("c", &[], &[]);
    cluster.releases(next);
    cluster.candidates[next].signal(Signal::TERM);
    cluster.leads(2, PATIENCE);
    renews_on(&cluster.candidates[2]);
    assert_eq!(cluster.verdict().terms.len(), 3);
}

/// Restores data that is older than the leadership of the present leader. It is lost, the next one has a term
/// above all others, and nobody is restarted for that.
pub(super) fn outlasts_a_restore<S>(
    mut cluster: Cluster,
    server: &mut S,
    save: impl FnOnce(&mut S),
    restore: impl FnOnce(&mut S),
) {
    let first = cluster.settle();
    save(server);
    let first = if cluster.candidates[first].is_leader() { first } else { cluster.settle() };
    let before = cluster.term(first);
    cluster.releases(first);
    cluster.candidates[first].signal(Signal::TERM);
    cluster.candidates.remove(first);
    let second = cluster.settle();
    let lost = cluster.term(second);
    assert!(lost > before);
    restore(server);
    until(PATIENCE, "one leads in a later term", || {
        let terms = cluster.candidates.iter().filter_map(|it| {
            let status = it.status().filter(|it| it["role"] == "active")?;
            status["term"].as_u64().filter(|it| *it > lost)
        });
        terms.max()
    });
    cluster.verdict();
}

/// Holds back what a watch sends to two candidates, whose leader is killed then: the other one takes over at
/// most one and a half retry-periods and a request later than with it.
pub(super) fn survives_a_silent_watch(mut cluster: Cluster, proxy: &Muffled) {
    let leader = cluster.settle();
    renews_on(&cluster.candidates[leader]);
    proxy.muffle(true);
    renews_on(&cluster.candidates[leader]);
    let killed = clock::now();
    cluster.candidates[leader].kill();
    let (next, after) = cluster.next_leader(killed);
    assert_eq!(next, 1 - leader);
    let Timings { lease_duration, retry_period, request_timeout, .. } = cluster.timings;
    let bound = lease_duration + retry_period * 3 / 2 + request_timeout;
    // Two of its processes run on a busy machine.
    assert!(after <= bound + Duration::from_secs(1), "{after:?} > {bound:?}");
    cluster.records(next);
    cluster.verdict();
}
