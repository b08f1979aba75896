//! The streams between candidates, in real processes with a proxy before each: cut, delayed and
//! replayed. A recorder checks that no two lead, whatever the streams say.

use testkit::faults::network::Network;
use testkit::faults::peer_proxy;
use testkit::faults::tls_front::Authority;
use testkit::http::mounted::{FAR, Mounted};
use testkit::ports::free_port;
use testkit::processes::{cluster, process};

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use cluster::{Cluster, LONGEST, PATIENCE, STEADY, Timings, logs};
use peer_proxy::PeerProxy;
use process::{Process, until};
use rustix::process::Signal;
use serde_json::Value;

/// A candidate finds out of a release by itself only after this time, on average.
const RARELY: Timings = Timings { retry_period: Duration::from_secs(20), ..LONGEST };

/// Starts candidates with peers; what the others hear from each passes its proxy.
fn start(cluster: &mut Cluster, names: &[&str]) -> Vec<PeerProxy> {
    names.iter().map(|name| join(cluster, name)).collect()
}

fn join(cluster: &mut Cluster, name: &str) -> PeerProxy {
    join_with(cluster, name, &[])
}

fn join_with(cluster: &mut Cluster, name: &str, more: &[&str]) -> PeerProxy {
    let (proxy, arguments) = peer();
    let arguments = arguments.iter().map(String::as_str).chain(more.iter().copied());
    cluster.join(name, &arguments.collect::<Vec<_>>(), &[]);
    proxy
}

/// Returns the proxy of a candidate, and the arguments with which it listens behind it.
fn peer() -> (PeerProxy, [String; 6]) {
    let [own, shown] = [(); 2].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, free_port())));
    let arguments = ["--peers", "--listen", &own.to_string(), "--peer-address", &shown.to_string()];
    let [peers, listen, own_text, address, shown_text] = arguments.map(str::to_owned);
    let level = "--log-level=debug".to_owned();
    (PeerProxy::start(shown, own), [peers, listen, own_text, address, shown_text, level])
}

/// Returns the value of a series whose name and labels contain all of these texts; 0 without one.
fn metric(process: &Process, texts: &[&str]) -> f64 {
    let text = process.get("/metrics").map_or(String::new(), |(_, body)| body);
    let is = |line: &&str| texts.iter().all(|it| line.contains(it)) && !line.starts_with('#');
    let value = text.lines().find(is).and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_default()
}

fn notices(process: &Process, kind: &str, outcome: &str) -> f64 {
    let (kind, outcome) = (format!("kind=\"{kind}\""), format!("outcome=\"{outcome}\""));
    metric(process, &["tenure_peer_notices_total", &kind, &outcome])
}

/// Waits until a leader has this many standbys connected.
fn connected(leader: &Process, standbys: usize) {
    until(PATIENCE, &format!("{} has {standbys} connected", leader.name), || {
        let open = metric(leader, &["tenure_peer_connections{"]);
        (open > standbys as f64 - 0.5 && open < standbys as f64 + 0.5).then_some(())
    });
}

/// Returns the messages and states of a log, in order.
fn lines(process: &Process) -> Vec<Value> {
    process.log().lines().filter_map(|it| serde_json::from_str(it).ok()).collect()
}

#[test]
fn a_release_is_notified_and_the_next_in_line_bids() {
    // A blob notifies nobody.
    let mut cluster = Cluster::behind_proxies("peers");
    cluster.timings = RARELY;
    let endpoint = cluster.endpoint().to_string();
    let mut proxies = Vec::new();
    for index in 0..3 {
        let (proxy, more) = peer();
        proxies.push(proxy);
        cluster.add_by(&endpoint, |name, arguments| {
            let more = more.iter().map(String::as_str);
            Process::run(name, &arguments.iter().copied().chain(more).collect::<Vec<_>>(), &[])
        });
        if index == 0 {
            cluster.leads(0, PATIENCE);
        }
    }
    let leader = cluster.settle();
    connected(&cluster.candidates[leader], 2);
    cluster.releases(leader);
    let mut stopped = cluster.candidates.remove(leader);
    stopped.signal(Signal::TERM);
    let next =
        until(PATIENCE, "another leads", || cluster.candidates.iter().position(Process::is_leader));
    assert!(stopped.wait(PATIENCE).success());
    cluster.records(next);
    let heir = &cluster.candidates[next];
    assert!(notices(heir, "released", "applied") > 0.5, "{}", heir.log());
    // The bid followed the notice, in which the leader named this candidate.
    let lines = lines(heir);
    let told = lines
        .iter()
        .position(|it| it["message"] == "the leader released the lease" && it["is_heir"] == true);
    let acquired = lines.iter().position(|it| it["reason"] == "acquired");
    assert!(told.is_some() && told < acquired, "{told:?} {acquired:?}: {}", heir.log());
    let other = &cluster.candidates[1 - next];
    until(PATIENCE, "the other was told too", || {
        (notices(other, "released", "applied") > 0.5).then_some(())
    });
    assert!(
        metric(other, &["op=\"acquire\"", "outcome=\"refused\""]) < 0.5,
        "one bid for a handover"
    );
    // It follows the new leader.
    connected(heir, 1);
    cluster.verdict();
}

#[test]
fn candidates_that_are_cut_off_from_each_other_go_on_by_the_store() {
    let mut cluster = Cluster::empty(STEADY);
    let proxies = start(&mut cluster, &["a", "b", "c"]);
    let leader = cluster.settle();
    connected(&cluster.candidates[leader], 2);
    proxies.iter().for_each(|it| it.cut(true));
    for standby in (0..3).filter(|it| *it != leader) {
        let standby = &cluster.candidates[standby];
        until(PATIENCE, "the loss was noticed", || {
            (notices(standby, "lost", "applied") > 0.5).then_some(())
        });
    }
    cluster.releases(leader);
    cluster.candidates[leader].signal(Signal::TERM);
    let mut stopped = cluster.candidates.remove(leader);
    assert!(stopped.wait(PATIENCE).success());
    let next = cluster.settle();
    logs(&cluster.candidates[1 - next], "cannot connect to the leader");
    proxies.iter().for_each(|it| it.cut(false));
    connected(&cluster.candidates[next], 1);
    cluster.verdict();
}

#[test]
fn a_candidate_is_next_in_line_again_once_its_hold_off_is_over() {
    // A candidate reports anew after 45 s at the earliest, unless its report has changed.
    const BOUND: Duration = Duration::from_secs(30);
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::empty(RARELY);
    let admin = |name: &str| format!("unix:{}/{name}.sock", directory.path().display());
    let names = ["a", "b"];
    let _proxies = names.map(|it| join_with(&mut cluster, it, &["--admin", &admin(it)]));
    let first = cluster.settle();
    connected(&cluster.candidates[first], 1);
    cluster.releases(first);
    let order = ["step-down", "--hold-off", "3s", "--admin", &admin(names[first])];
    assert_eq!(Process::verb(&order, &[]).end().code, 0);
    let leader = &cluster.candidates[1 - first];
    let line = || {
        let table = leader.status()?["candidates"].as_array()?.clone();
        let former = table.iter().find(|it| it["identity"] == names[first])?;
        Some((former["connected"].as_bool()?, former["heir"].as_bool()?))
    };
    until(PATIENCE, "it follows the next leader", || line().filter(|it| it.0));
    until(BOUND, "it is next in line again", || line().filter(|it| it.1));
    cluster.verdict();
}

#[test]
fn a_stream_that_is_late_moves_reads_and_nothing_else() {
    let mut cluster = Cluster::empty(STEADY);
    let mut proxies = start(&mut cluster, &["a", "b", "c"]);
    let mut led = 0;
    while led < 3 {
        let leader = cluster.settle();
        // Longer than a leader may be silent, and shorter.
        let delay = Duration::from_millis([2_500, 700, 1_200][led]);
        proxies.iter().for_each(|it| it.delay(delay));
        if led == 1 {
            cluster.releases(leader);
            cluster.candidates[leader].signal(Signal::TERM);
        } else {
            cluster.candidates[leader].kill();
        }
        let mut gone = cluster.candidates.remove(leader);
        gone.wait(PATIENCE);
        until(PATIENCE, "another leads", || cluster.candidates.iter().position(Process::is_leader));
        led += 1;
        if led < 3 {
            proxies.push(join(&mut cluster, &format!("d{led}")));
        }
    }
    cluster.verdict();
}

#[test]
fn notices_that_are_replayed_are_ignored() {
    let mut cluster = Cluster::empty(STEADY);
    let mut proxies = start(&mut cluster, &["a"]);
    cluster.settle();
    for name in ["b", "c"] {
        proxies.push(join(&mut cluster, name));
    }
    cluster.settle();
    connected(&cluster.candidates[0], 2);
    cluster.releases(0);
    let mut stopped = cluster.candidates.remove(0);
    stopped.signal(Signal::TERM);
    assert!(stopped.wait(PATIENCE).success());
    let leader = cluster.settle();
    let released = until(PATIENCE, "the release was sent", || proxies[0].last("released"));
    let holding = proxies[0].last("holding").expect("it was renewed");
    let (term, standby) = (cluster.term(leader), &cluster.candidates[1 - leader]);
    connected(&cluster.candidates[leader], 1);
    until(PATIENCE, "the old notices were ignored", || {
        for event in [&released, &holding] {
            proxies[1 + leader].send(event);
        }
        let ignored = |kind| notices(standby, kind, "old-term");
        (ignored("released") > 0.5 && ignored("holding") > 0.5).then_some(())
    });
    // A forged release of the present leadership costs a read, and frees nothing.
    let forged = format!("event: released\ndata: {{\"term\":{term},\"heir\":null}}\n\n");
    until(PATIENCE, "the forged notice was applied", || {
        proxies[1 + leader].send(&forged);
        (notices(standby, "released", "applied") > 1.5).then_some(())
    });
    std::thread::sleep(2 * STEADY.retry_period);
    assert_eq!(cluster.settle(), leader);
    assert_eq!(cluster.term(leader), term, "the same leadership goes on");
    cluster.verdict();
}

/// Starts a candidate in a network of its own, with these files of certificates.
fn secured(network: &Network, store: &str, name: &str, tls: &[(&str, PathBuf)]) -> Process {
    // Only the first of several failures is a warning, and on a busy machine it may be a timeout.
    let level = "--log-level=debug".to_owned();
    let mut arguments = vec!["--store".to_owned(), store.to_owned(), "--peers".to_owned(), level];
    arguments.extend(tls.iter().map(|(setting, path)| format!("--{setting}={}", path.display())));
    if tls.len() > 1 {
        let address = SocketAddr::from((network.asked_at, free_port()));
        arguments.extend(["listen", "peer-address"].map(|it| format!("--{it}={address}")));
    } else {
        arguments.push(format!("--peer-address=127.0.0.1:{}", free_port()));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Process::run_by(&network.by(), "127.0.0.1", name, &arguments, &[])
}

/// Waits until a line of its log has all of these texts.
fn logged(process: &Process, texts: &[&str]) {
    until(PATIENCE, &format!("{} logs {texts:?}", process.name), || {
        let log = process.log();
        log.lines().any(|line| texts.iter().all(|it| line.contains(it))).then_some(())
    });
}

#[test]
fn only_holders_of_a_certificate_are_notified_over_tls() {
    let (network, authority) = (Network::new(), Authority::new("ours"));
    let (mounted, other) = (Mounted::new(&authority, FAR), Mounted::new(&Authority::new("x"), FAR));
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}/store", directory.path().display());
    let files = |it: &Mounted| {
        let own = [("tls-cert", it.path("tls.crt")), ("tls-key", it.path("tls.key"))];
        let ca = ["tls-client-ca", "peer-ca"].map(|name| (name, mounted.path("ca.crt")));
        [own, ca].concat()
    };
    let mut leader = secured(&network, &store, "leader", &files(&mounted));
    logged(&leader, &["state changed", "\"to\":\"leader\""]);
    // None of these is told anything: it has no certificate, or one of another authority.
    let without = secured(&network, &store, "without", &files(&mounted)[3..]);
    let stranger = secured(&network, &store, "stranger", &files(&other));
    for refused in [&without, &stranger] {
        logged(refused, &["cannot connect to the leader: TLS failed"]);
    }
    let heir = secured(&network, &store, "heir", &files(&mounted));
    logged(&heir, &["connected to the leader", "https://"]);
    logged(&heir, &["notice of the leader's stream", "holding", "applied"]);
    for mut refused in [without, stranger] {
        refused.kill();
        assert!(!refused.log().contains("connected to the leader"), "{}", refused.log());
    }
    leader.signal(Signal::TERM);
    assert!(leader.wait(PATIENCE).success());
    logged(&heir, &["state changed", "\"to\":\"leader\""]);
}
