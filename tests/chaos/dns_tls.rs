//! Faults 27, 28 and 53: names that do not resolve or lead elsewhere, and invalid certificates, in real
//! processes on Azurite.

use testkit::faults::{fault_proxy, resolver, tls_front};
use testkit::processes::{cluster, process};

use std::net::Ipv4Addr;
use std::time::Duration;

use cluster::{Cluster, D, DEADLINE, RETRY, SLACK};
use fault_proxy::{Call, Door, Fault, FaultProxy};
use process::{Process, until};
use resolver::{Reply, Resolver};
use rustix::process::Signal;
use tls_front::{Authority, Shown, TlsFront};

/// The default `request-timeout`.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A host name like that of a real account, which Azurite accepts too.
const NAME: &str = "devstoreaccount1.blob.tenure.test";

/// Waits until the store's error in `/status` contains these words, and returns it.
fn reports(candidate: &Process, words: &str) -> String {
    until(DEADLINE + SLACK, &format!("{} reports {words}", candidate.name), || {
        let status = candidate.status()?;
        let error = status["store"]["last_error"].as_str()?;
        error.contains(words).then(|| error.to_owned())
    })
}

/// Waits for a log message with these words.
fn logs(candidate: &Process, words: &str) {
    until(SLACK, &format!("{} logs {words}", candidate.name), || {
        let lines = candidate.log();
        let mut lines = lines.lines().filter_map(|it| serde_json::from_str(it).ok());
        let has = |it: serde_json::Value| Some(it["message"].as_str()?.contains(words));
        lines.any(|it| has(it).unwrap_or_default()).then_some(())
    });
}

/// Adds a first candidate that reaches the store only by a name of its own resolver.
fn by_name(mut cluster: Cluster, reply: Reply) -> (Cluster, Resolver) {
    let resolver = Resolver::start(cluster.directory.path(), reply);
    let port = cluster.add_proxy().address.port();
    cluster.add_by(&format!("http://{NAME}:{port}"), |name, arguments| {
        Process::run_by(&resolver.by(), "127.0.0.1", name, arguments, &[])
    });
    (cluster, resolver)
}

#[test]
fn fault_27_a_name_that_stops_resolving_is_retried_and_the_term_is_kept() {
    let (mut cluster, resolver) =
        by_name(Cluster::behind_proxies("fault-27-gone").patient(), Reply::NoSuchName);
    let gone = format!("failed to resolve {NAME}");
    reports(&cluster.candidates[0], &gone);
    assert_eq!(cluster.candidates[0].state().unwrap(), "starting");
    assert_eq!(cluster.candidates[0].get("/readyz").unwrap().0, 503);
    resolver.reply(Reply::Address(Ipv4Addr::LOCALHOST));
    cluster.leads(0, SLACK);
    cluster.add();
    cluster.stands_by(1, SLACK);
    cluster.renews(0);

    resolver.reply(Reply::NoSuchName);
    cluster.proxies[0].break_connections();
    reports(&cluster.candidates[0], &gone);
    assert_eq!(cluster.candidates[0].state().unwrap(), "jeopardy");
    assert!(cluster.candidates[0].is_leader(), "until its deadline");
    resolver.reply(Reply::Address(Ipv4Addr::LOCALHOST));
    cluster.renews(0);
    logs(&cluster.candidates[0], &gone);
    cluster.verdict_with_order(&[], &["c0"]);
}

#[test]
fn fault_27_an_unresponsive_resolver_blocks_neither_the_loop_nor_shutdown() {
    let (mut cluster, resolver) =
        by_name(Cluster::behind_proxies("fault-27-silent"), Reply::Address(Ipv4Addr::LOCALHOST));
    cluster.leads(0, SLACK);
    cluster.add();
    cluster.stands_by(1, SLACK);
    cluster.renews(0);

    // Shorter than the timeout of the resolver's client, so that the next attempt sends a new
    // query.
    resolver.reply(Reply::Silence);
    cluster.proxies[0].break_connections();
    reports(&cluster.candidates[0], "the store did not answer a renewal within 2s");
    resolver.reply(Reply::Address(Ipv4Addr::LOCALHOST));
    cluster.renews(0);

    resolver.reply(Reply::Silence);
    cluster.proxies[0].break_connections();
    until(DEADLINE + SLACK, "it is passive", || {
        assert_eq!(cluster.candidates[0].get("/livez")?.0, 200, "the loop turns");
        (!cluster.candidates[0].is_leader()).then_some(())
    });
    let (_, metrics) = cluster.candidates[0].get("/metrics").unwrap();
    let timeouts = metrics.lines().find(|line| {
        line.starts_with("tenure_store_requests_total{")
            && line.contains(r#"op="renew""#)
            && line.contains(r#"outcome="timeout""#)
    });
    let timeouts: f64 = timeouts.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(timeouts >= 3.0, "one before, and the others within one deadline: {timeouts}");
    cluster.leads(1, D + RETRY * 3 / 2 + SLACK);
    cluster.candidates[0].signal(Signal::TERM);
    // The timeout of the resolver's client is 10 s.
    let status = cluster.candidates[0].wait(TIMEOUT * 2 + Duration::from_secs(4));
    assert!(status.success());
    cluster.verdict_with_order(&[], &["c0", "c1"]);
}

#[test]
fn fault_27_a_new_address_is_used_as_soon_as_the_old_one_fails() {
    let (mut cluster, resolver) = by_name(
        Cluster::behind_proxies("fault-27-moved").patient(),
        Reply::Address(Ipv4Addr::LOCALHOST),
    );
    cluster.leads(0, SLACK);
    cluster.add();
    cluster.stands_by(1, SLACK);
    cluster.renews(0);
    let old = cluster.proxies[0].address;
    let host = Ipv4Addr::new(127, 0, 0, 2);
    let store = cluster.endpoint().socket_addrs(|| None).unwrap()[0];
    let new = FaultProxy::start_on((host, old.port()), store);
    resolver.reply(Reply::Address(host));
    cluster.proxies[0].door(Door::Shut);
    until(DEADLINE + SLACK, "a renewal comes by the new address", || {
        new.log().iter().any(|it| it.call == Call::Renew && it.status == 200).then_some(())
    });
    until(SLACK, "it is sure of its lease", || {
        (cluster.candidates[0].state()? == "leader").then_some(())
    });
    cluster.verdict_with_order(&[], &["c0"]);
}

#[test]
fn fault_53_an_address_that_only_refuses_is_left_for_the_new_one_within_the_deadline() {
    let (cluster, resolver) =
        by_name(Cluster::behind_proxies("fault-53").patient(), Reply::Address(Ipv4Addr::LOCALHOST));
    cluster.leads(0, SLACK);
    cluster.renews(0);
    let old = &cluster.proxies[0];
    let host = Ipv4Addr::new(127, 0, 0, 2);
    let store = cluster.endpoint().socket_addrs(|| None).unwrap()[0];
    let new = FaultProxy::start_on((host, old.address.port()), store);
    let moves =
        [(403, old, &new, host), (421, &new, old, Ipv4Addr::LOCALHOST), (503, old, &new, host)];
    for (status, from, to, host) in moves {
        resolver.reply(Reply::Address(host));
        let refusal = format!("HTTP/1.1 {status} Refused\r\ncontent-length: 0\r\n\r\n");
        from.always(Call::Any, Fault::Answer(refusal.into_bytes()));
        to.take_log();
        until(DEADLINE, &format!("after {status}, a renewal comes by the new address"), || {
            to.log().iter().any(|it| it.call == Call::Renew && it.status == 200).then_some(())
        });
        until(SLACK, "it is sure of its lease", || {
            (cluster.candidates[0].state()? == "leader").then_some(())
        });
        from.heal();
    }
    cluster.verdict_with_order(&[], &["c0"]);
}

/// Presents an invalid certificate to a leader. Asserts that the connection fails with a reported
/// reason, that nothing is sent, and that a valid certificate is accepted again.
fn refuses(election: &str, words: &str, bad: impl FnOnce(&Authority) -> Shown) {
    let mut cluster = Cluster::behind_proxies(election);
    let known = Authority::new("the tests' authority");
    let trusted = known.write(cluster.directory.path());
    let proxy = cluster.add_proxy().address;
    let front = TlsFront::start(proxy, known.sign("127.0.0.1", 2099));
    let endpoint = format!("https://{}{}", front.address, cluster.endpoint().path());
    let variables = [("SSL_CERT_FILE", trusted.to_str().unwrap())];
    cluster.add_by(&endpoint, |name, arguments| Process::run(name, arguments, &variables));
    cluster.leads(0, SLACK);
    cluster.add();
    cluster.stands_by(1, SLACK);
    cluster.renews(0);

    front.show(bad(&known));
    cluster.proxies[0].break_connections();
    let error =
        reports(&cluster.candidates[0], "TLS with 127.0.0.1 failed: invalid peer certificate");
    assert!(error.contains(words), "{error}");
    logs(&cluster.candidates[0], &error);
    cluster.proxies[0].take_log();
    cluster.leads(1, D + RETRY * 3 / 2 + SLACK);
    assert_eq!(cluster.proxies[0].log().len(), 0, "nothing was sent");
    let first = front.first_bytes();
    assert!(first.len() > 3 && first.iter().all(|byte| *byte == 22), "never in plain: {first:?}");
    front.show(known.sign("127.0.0.1", 2099));
    cluster.stands_by(0, SLACK);
    until(SLACK, "its reads are answered", || {
        cluster.proxies[0].log().iter().any(|it| it.status == 200).then_some(())
    });
    cluster.verdict_with_order(&[], &["c0", "c1"]);
}

#[test]
fn fault_28_a_certificate_that_has_expired_is_refused() {
    refuses("fault-28-expired", "certificate expired", |known| known.sign("127.0.0.1", 2020));
}

#[test]
fn fault_28_a_certificate_for_another_name_is_refused() {
    refuses("fault-28-name", "not valid for name", |known| known.sign("another.test", 2099));
}

#[test]
fn fault_28_a_certificate_of_an_unknown_authority_is_refused() {
    refuses("fault-28-unknown", "UnknownIssuer", |_| {
        Authority::new("another authority").sign("127.0.0.1", 2099)
    });
}
