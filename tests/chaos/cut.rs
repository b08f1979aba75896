//! Faults 15 and 16: the store is unreachable, for the leader or for all candidates, by proxies,
//! firewalls and dead links in network namespaces.

use testkit::faults::{fault_proxy, network};
use testkit::processes::{cluster, process};

use std::time::Duration;

use cluster::{Cluster, D, DEADLINE, RETRY, SLACK};
use fault_proxy::{Call, Door, Fault, FaultProxy, Then};
use network::Network;
use process::{Process, until};
use tenure::clock::{self, Moment};

/// Waits until a candidate reports passive, and asserts that it did so by its deadline, counted
/// from the last renewal that was granted before `cut`.
fn passive_in_time(cluster: &Cluster, index: usize, cut: Moment) {
    let candidate = &cluster.candidates[index];
    let mut end = Duration::ZERO;
    until(DEADLINE + SLACK, "it is passive", || {
        let began = clock::now().raw;
        let left = candidate.status()?["valid_for_ms"].as_u64()?;
        if left == 0 {
            return Some(());
        }
        end = end.max(began + Duration::from_millis(left));
        None
    });
    let grants = cluster.proxies[index].log();
    let granted = |it: &&fault_proxy::Seen| {
        it.at < cut.raw && it.status < 300 && matches!(it.call, Call::Renew | Call::Acquire)
    };
    let last = grants.iter().rfind(granted).expect("it led");
    assert!(end <= last.at + DEADLINE, "{end:?}, and the last was sent before {:?}", last.at);
}

/// Returns whether each candidate reports live and ready.
fn all_alive(cluster: &Cluster) -> bool {
    let well = |it: &Process| {
        ["/livez", "/readyz"].iter().all(|path| it.get(path).is_some_and(|(code, _)| code == 200))
    };
    cluster.candidates.iter().all(well)
}

/// Waits until this much time has passed since a moment.
fn wait_since(start: Moment, length: Duration) {
    until(length + SLACK, "time has passed", || {
        (start.elapsed_min(clock::now()) > length).then_some(())
    });
}

/// Waits until any candidate leads, and returns how long after `since` that was.
fn led_again(cluster: &Cluster, since: Moment, bound: Duration) -> Duration {
    until(bound, "one leads again", || {
        cluster.candidates.iter().any(Process::is_leader).then_some(())
    });
    since.elapsed_max(clock::now())
}

#[test]
fn fault_15_a_leader_refused_by_the_store_is_passive_at_its_deadline_and_another_leads() {
    let cluster = Cluster::behind_proxies("fault-15").led_by_first_of(3);
    cluster.renews(0);
    let cut = clock::now();
    cluster.proxies[0].door(Door::Shut);
    passive_in_time(&cluster, 0, cut);
    let next = until(D + RETRY * 3 / 2 + SLACK, "another leads", || {
        (1..3).find(|index| cluster.candidates[*index].is_leader())
    });
    cluster.leads(next, SLACK);
    cluster.proxies[0].heal();
    cluster.stands_by(0, SLACK);
    assert!(all_alive(&cluster));
    cluster.verdict_with_order(&[], &["c0", &format!("c{next}")]);
}

#[test]
fn fault_16_without_a_store_all_are_passive_keep_their_request_rate_and_recover() {
    let cluster = Cluster::behind_proxies("fault-16").led_by_first_of(3);
    cluster.renews(0);
    let cut = clock::now();
    for proxy in &cluster.proxies {
        proxy.always(Call::Any, Fault::DropBefore(Then::Reset));
    }
    passive_in_time(&cluster, 0, cut);
    // Until the lease has expired too, so that it is free when the store is back.
    wait_since(cut, D + RETRY * 2);
    assert!(cluster.candidates.iter().all(|it| !it.is_leader()));
    assert!(all_alive(&cluster));
    let counted = clock::now();
    for proxy in &cluster.proxies {
        proxy.take_log();
    }
    wait_since(counted, RETRY * 4);
    let requests: Vec<_> = cluster.proxies.iter().map(|it| it.take_log().len()).collect();
    let most = counted.elapsed_max(clock::now()).div_duration_f64(RETRY / 2).ceil() as usize + 1;
    assert!(
        requests.iter().all(|requests| (1..=most).contains(requests)),
        "{requests:?}, at most {most} each"
    );
    let back = clock::now();
    for proxy in &cluster.proxies {
        proxy.heal();
    }
    let took = led_again(&cluster, back, RETRY * 2 + SLACK);
    eprintln!("led again {took:?} after the store was back");
    let leader = cluster.candidates.iter().position(Process::is_leader).unwrap();
    cluster.leads(leader, SLACK);
    let verdict = cluster.recorder.finish(&[]);
    verdict.assert_safe();
    assert_eq!(verdict.terms.len(), 2, "{verdict:?}");
}

/// Creates an election of two, each in a network namespace of its own; the first leads.
fn apart(election: &str) -> (Cluster, Vec<Network>) {
    let mut cluster = Cluster::behind_proxies(election);
    let mut networks = Vec::new();
    for index in 0..2 {
        let network = Network::new();
        let store = cluster.endpoint().socket_addrs(|| None).unwrap()[0];
        let proxy = FaultProxy::start_on((network.store_side, 0), store);
        let endpoint = proxy.endpoint(cluster.endpoint());
        cluster.proxies.push(proxy);
        let host = network.asked_at.to_string();
        cluster.add_by(&endpoint, |name, arguments| {
            Process::run_by(&network.by(), &host, name, arguments, &[])
        });
        networks.push(network);
        if index == 0 {
            cluster.leads(0, SLACK);
        } else {
            cluster.stands_by(index, SLACK);
        }
    }
    cluster.renews(0);
    (cluster, networks)
}

#[test]
fn fault_15_a_leader_behind_a_firewall_is_passive_at_its_deadline_and_another_leads() {
    let (cluster, networks) = apart("fault-15-firewall");
    let cut = clock::now();
    networks[0].raise_firewall();
    passive_in_time(&cluster, 0, cut);
    cluster.leads(1, D + RETRY * 3 / 2 + SLACK);
    networks[0].drop_firewall();
    cluster.stands_by(0, SLACK);
    assert!(all_alive(&cluster));
    cluster.verdict_with_order(&[], &["c0", "c1"]);
}

#[test]
fn fault_16_with_all_links_down_all_are_passive_and_alive_and_recover() {
    let (cluster, networks) = apart("fault-16-links");
    let cut = clock::now();
    networks.iter().for_each(|it| it.set_link(false));
    passive_in_time(&cluster, 0, cut);
    wait_since(cut, D + RETRY * 2);
    assert!(cluster.candidates.iter().all(|it| !it.is_leader()));
    assert!(all_alive(&cluster));
    let back = clock::now();
    networks.iter().for_each(|it| it.set_link(true));
    let took = led_again(&cluster, back, RETRY * 2 + SLACK);
    eprintln!("led again {took:?} after the links were");
    let leader = cluster.candidates.iter().position(Process::is_leader).unwrap();
    cluster.leads(leader, SLACK);
    let verdict = cluster.recorder.finish(&[]);
    verdict.assert_safe();
    assert_eq!(verdict.terms.len(), 2, "{verdict:?}");
}
