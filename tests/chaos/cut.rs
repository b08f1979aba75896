//! Faults 15 and 16: the store is unreachable, for the leader or for all candidates, by proxies,
//! firewalls and dead links in network namespaces.

use testkit::faults::{fault_proxy, network};
use testkit::processes::{process, scene};

use std::time::Duration;

use fault_proxy::{Call, Door, Fault, FaultProxy, Then};
use network::Network;
use process::{Candidate, until};
use scene::{D, DEADLINE, RETRY, SLACK, Scene};
use tenure::clock::{self, Moment};

/// Waits until a candidate reports passive, and asserts that it did so by its deadline, counted
/// from the last renewal that was granted before `cut`.
fn passive_in_time(scene: &Scene, index: usize, cut: Moment) {
    let candidate = &scene.candidates[index];
    let mut end = Duration::ZERO;
    until(DEADLINE + SLACK, "it says passive", || {
        let asked = clock::now().raw;
        let left = candidate.status()?["valid_for_ms"].as_u64()?;
        if left == 0 {
            return Some(());
        }
        end = end.max(asked + Duration::from_millis(left));
        None
    });
    let grants = scene.proxies[index].log();
    let granted = |it: &&fault_proxy::Seen| {
        it.at < cut.raw && it.status < 300 && matches!(it.call, Call::Renew | Call::Acquire)
    };
    let last = grants.iter().rfind(granted).expect("it led");
    assert!(end <= last.at + DEADLINE, "{end:?}, and the last was sent before {:?}", last.at);
}

/// Returns whether each candidate reports live and ready.
fn all_alive(scene: &Scene) -> bool {
    let well = |it: &Candidate| {
        ["/livez", "/readyz"].iter().all(|path| it.get(path).is_some_and(|(code, _)| code == 200))
    };
    scene.candidates.iter().all(well)
}

/// Waits until this much time has passed since a moment.
fn wait_since(start: Moment, length: Duration) {
    until(length + SLACK, "time has passed", || {
        (start.elapsed_min(clock::now()) > length).then_some(())
    });
}

/// Waits until any candidate leads, and returns how long after `since` that was.
fn led_again(scene: &Scene, since: Moment, bound: Duration) -> Duration {
    until(bound, "one leads again", || {
        scene.candidates.iter().any(Candidate::is_leader).then_some(())
    });
    since.elapsed_max(clock::now())
}

#[test]
fn fault_15_a_leader_whom_the_store_refuses_is_passive_at_its_deadline_and_another_leads() {
    let scene = Scene::new("fault-15").led_by_first_of(3);
    scene.renews(0);
    let cut = clock::now();
    scene.proxies[0].door(Door::Shut);
    passive_in_time(&scene, 0, cut);
    let next = until(D + RETRY * 3 / 2 + SLACK, "another leads", || {
        (1..3).find(|index| scene.candidates[*index].is_leader())
    });
    scene.leads(next, SLACK);
    scene.proxies[0].heal();
    scene.stands_by(0, SLACK);
    assert!(all_alive(&scene));
    scene.judge(&[], &["c0", &format!("c{next}")]);
}

#[test]
fn fault_16_without_a_store_all_are_passive_and_alive_ask_no_more_than_before_and_come_back() {
    let scene = Scene::new("fault-16").led_by_first_of(3);
    scene.renews(0);
    let cut = clock::now();
    for proxy in &scene.proxies {
        proxy.always(Call::Any, Fault::DropBefore(Then::Reset));
    }
    passive_in_time(&scene, 0, cut);
    // Until the lease has expired too, so that it is free when the store is back.
    wait_since(cut, D + RETRY * 2);
    assert!(scene.candidates.iter().all(|it| !it.is_leader()));
    assert!(all_alive(&scene));
    let counted = clock::now();
    for proxy in &scene.proxies {
        proxy.take_log();
    }
    wait_since(counted, RETRY * 4);
    let asked: Vec<_> = scene.proxies.iter().map(|it| it.take_log().len()).collect();
    let most = counted.elapsed_max(clock::now()).div_duration_f64(RETRY / 2).ceil() as usize + 1;
    assert!(asked.iter().all(|asked| (1..=most).contains(asked)), "{asked:?}, at most {most} each");
    let back = clock::now();
    for proxy in &scene.proxies {
        proxy.heal();
    }
    let took = led_again(&scene, back, RETRY * 2 + SLACK);
    eprintln!("led again {took:?} after the store was back");
    let leader = scene.candidates.iter().position(Candidate::is_leader).unwrap();
    scene.leads(leader, SLACK);
    let verdict = scene.recorder.finish(&[]);
    verdict.assert_safe();
    assert_eq!(verdict.terms.len(), 2, "{verdict:?}");
}

/// Creates an election of two, each in a network namespace of its own; the first leads.
fn apart(election: &str) -> (Scene, Vec<Network>) {
    let mut scene = Scene::new(election);
    let mut networks = Vec::new();
    for index in 0..2 {
        let network = Network::new();
        let store = scene.endpoint().socket_addrs(|| None).unwrap()[0];
        let proxy = FaultProxy::start_on((network.store_side, 0), store);
        let endpoint = proxy.endpoint(scene.endpoint());
        scene.proxies.push(proxy);
        let host = network.asked_at.to_string();
        scene.add_by(&endpoint, |name, directory, arguments| {
            Candidate::start_by(&network.by(), &host, name, directory, arguments, &[])
        });
        networks.push(network);
        if index == 0 {
            scene.leads(0, SLACK);
        } else {
            scene.stands_by(index, SLACK);
        }
    }
    scene.renews(0);
    (scene, networks)
}

#[test]
fn fault_15_a_leader_behind_a_firewall_is_passive_at_its_deadline_and_another_leads() {
    let (scene, networks) = apart("fault-15-firewall");
    let cut = clock::now();
    networks[0].raise_firewall();
    passive_in_time(&scene, 0, cut);
    scene.leads(1, D + RETRY * 3 / 2 + SLACK);
    networks[0].drop_firewall();
    scene.stands_by(0, SLACK);
    assert!(all_alive(&scene));
    scene.judge(&[], &["c0", "c1"]);
}

#[test]
fn fault_16_with_all_links_down_all_are_passive_and_alive_and_come_back() {
    let (scene, networks) = apart("fault-16-links");
    let cut = clock::now();
    networks.iter().for_each(|it| it.set_link(false));
    passive_in_time(&scene, 0, cut);
    wait_since(cut, D + RETRY * 2);
    assert!(scene.candidates.iter().all(|it| !it.is_leader()));
    assert!(all_alive(&scene));
    let back = clock::now();
    networks.iter().for_each(|it| it.set_link(true));
    let took = led_again(&scene, back, RETRY * 2 + SLACK);
    eprintln!("led again {took:?} after the links were");
    let leader = scene.candidates.iter().position(Candidate::is_leader).unwrap();
    scene.leads(leader, SLACK);
    let verdict = scene.recorder.finish(&[]);
    verdict.assert_safe();
    assert_eq!(verdict.terms.len(), 2, "{verdict:?}");
}
