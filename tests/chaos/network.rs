//! Faults 10 to 14 and 17: single messages between a candidate and the store are lost, late,
//! duplicated or broken, in real processes on Azurite.

use testkit::faults::fault_proxy;
use testkit::processes::{cluster, process};

use std::time::Duration;

use cluster::{Cluster, D, DEADLINE, RETRY, SLACK};
use fault_proxy::{Call, Door, Fault, Then};
use process::until;
use rustix::process::Signal;

/// The default `request-timeout`.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The request is in time, and the answer is late by this much.
fn late_answer(by: Duration) -> Fault {
    Fault::Delay { request: Duration::ZERO, answer: by }
}

/// The answer is in time, and the request is late by this much.
fn late_request(by: Duration) -> Fault {
    Fault::Delay { request: by, answer: Duration::ZERO }
}

#[test]
fn fault_10_a_lost_renewal_is_retried_within_the_deadline_without_a_change_of_term() {
    let cluster = Cluster::behind_proxies("fault-10").patient().led_by_first_of(2);
    // A standby whose reads are lost does not consider the lease free.
    cluster.proxies[1].always(Call::Any, Fault::DropBefore(Then::Silence));
    for then in [Then::Silence, Then::Reset, Then::Close] {
        cluster.proxies[0].next(Call::Renew, [Fault::DropBefore(then)]);
        cluster.suffers(0);
        cluster.renews(0);
    }
    let renewals = cluster.calls(0, Call::Renew);
    assert!(renewals.iter().filter(|it| it.status == 0).count() >= 3, "{renewals:?}");
    assert!(renewals.iter().all(|it| it.lease == renewals[0].lease), "one lease: {renewals:?}");
    assert!(cluster.calls(1, Call::Acquire).is_empty());
    cluster.verdict_with_order(&[], &["c0"]);
}

#[test]
fn fault_11_a_bid_whose_answer_is_lost_is_repeated_with_its_id_and_makes_one_leader() {
    let mut cluster = Cluster::behind_proxies("fault-11").patient();
    cluster.add_proxy();
    let lost = [Then::Silence, Then::Reset, Then::Silence].map(Fault::DropAfter);
    cluster.proxies[0].next(Call::Acquire, lost);
    cluster.add();
    until(SLACK, "the first bid is granted", || {
        (cluster.calls(0, Call::Acquire).first()?.status == 201).then_some(())
    });
    cluster.add();
    cluster.leads(0, SLACK);
    cluster.stands_by(1, SLACK);
    let bids = cluster.calls(0, Call::Acquire);
    assert!(bids.len() >= 4, "{bids:?}");
    assert!(bids.iter().all(|it| it.lease == bids[0].lease), "the same id: {bids:?}");
    assert!(cluster.calls(1, Call::Acquire).is_empty(), "the other saw that it is taken");
    cluster.renews(0);
    let verdict = cluster.verdict_with_order(&[], &["c0"]);
    assert_eq!(verdict.terms[0].0, 2, "one step of the term");
}

#[test]
fn fault_11_a_candidate_that_gets_no_response_releases_the_lease_it_was_granted() {
    let mut cluster = Cluster::behind_proxies("fault-11-never");
    cluster.add_proxy().always(Call::Acquire, Fault::DropAfter(Then::Silence));
    cluster.add();
    until(SLACK, "the first bid is granted", || {
        (cluster.calls(0, Call::Acquire).first()?.status == 201).then_some(())
    });
    cluster.add();
    cluster.leads(1, D + RETRY * 3 / 2 + SLACK);
    let bids = cluster.calls(0, Call::Acquire);
    let given_back = cluster.calls(0, Call::Release);
    assert!(given_back.iter().any(|it| it.status == 200 && it.lease == bids[0].lease), "{bids:?}");
    cluster.verdict_with_order(&[], &["c1"]);
}

#[test]
fn fault_12_a_renewal_whose_answer_is_lost_is_retried() {
    let cluster = Cluster::behind_proxies("fault-12-renewal").patient().led_by_first_of(2);
    for then in [Then::Silence, Then::Reset, Then::Close] {
        cluster.proxies[0].next(Call::Renew, [Fault::DropAfter(then)]);
        cluster.suffers(0);
        cluster.renews(0);
    }
    cluster.verdict_with_order(&[], &["c0"]);
}

#[test]
fn fault_12_a_term_whose_answer_is_lost_is_read_again_and_takes_one_step() {
    for (election, then) in [("fault-12-silence", Then::Silence), ("fault-12-reset", Then::Reset)] {
        let mut cluster = Cluster::behind_proxies(election).patient();
        cluster.add_proxy().next(Call::Write, [Fault::DropAfter(then)]);
        cluster.add();
        assert_eq!(cluster.leads(0, SLACK), 2, "one step from the term that was recorded");
        let writes = cluster.calls(0, Call::Write);
        assert_eq!(writes.iter().map(|it| it.status).collect::<Vec<_>>(), [200], "{writes:?}");
        cluster.verdict_with_order(&[], &["c0"]);
    }
}

#[test]
fn fault_12_a_release_whose_answer_is_lost_hands_over_at_once() {
    let cluster = Cluster::behind_proxies("fault-12-release").patient();
    hands_over(cluster, Fault::DropAfter(Then::Silence), RETRY * 3 / 2);
}

#[test]
fn fault_12_a_release_that_is_lost_hands_over_when_the_lease_has_run_out() {
    let cluster = Cluster::behind_proxies("fault-12-lost");
    hands_over(cluster, Fault::DropBefore(Then::Silence), D + RETRY * 3 / 2);
}

/// Terminates the leader while its releases fail, and asserts that the other leads in time.
fn hands_over(cluster: Cluster, fault: Fault, within: Duration) {
    let mut cluster = cluster.led_by_first_of(2);
    cluster.proxies[0].always(Call::Release, fault);
    cluster.candidates[0].signal(Signal::TERM);
    cluster.leads(1, within + SLACK);
    assert!(cluster.candidates[0].wait(TIMEOUT * 2 + SLACK).success());
    assert!(!cluster.calls(0, Call::Release).is_empty());
    cluster.verdict_with_order(&["c0"], &["c0", "c1"]);
}

#[test]
fn fault_13_an_answer_that_is_20_s_late_is_dropped_and_the_term_stays() {
    let cluster = Cluster::behind_proxies("fault-13").patient().led_by_first_of(2);
    let late = Duration::from_secs(20);
    cluster.proxies[0].next(Call::Renew, [late_answer(late)]);
    cluster.suffers(0);
    let sent = tenure::clock::now();
    until(late + SLACK, "the late answer has come", || {
        (sent.elapsed_min(tenure::clock::now()) > late).then_some(())
    });
    cluster.renews(0);
    cluster.verdict_with_order(&[], &["c0"]);
}

#[test]
fn fault_13_answers_that_are_all_late_never_move_the_deadline() {
    let cluster = Cluster::behind_proxies("fault-13-all").led_by_first_of(2);
    let term = cluster.leads(0, SLACK);
    // Late, but within the request-timeout: such an answer counts from the sending of its request.
    cluster.proxies[0].always(Call::Renew, late_answer(Duration::from_secs(1)));
    cluster.renews(0);
    cluster.renews(0);
    cluster.proxies[0].always(Call::Renew, late_answer(Duration::from_secs(20)));
    let ordered = tenure::clock::now().raw;
    let mut end = Duration::ZERO;
    until(DEADLINE + SLACK, "it is passive", || {
        let sent = tenure::clock::now().raw;
        let status = cluster.candidates[0].status()?;
        let left = status["valid_for_ms"].as_u64()?;
        // It may lead again before the next request.
        if left == 0 || status["term"].as_u64() != Some(term) {
            return Some(());
        }
        end = end.max(sent + Duration::from_millis(left));
        None
    });
    // Requests from before the fault were answered in time, later ones never.
    let renewals = cluster.calls(0, Call::Renew);
    let last = renewals.iter().rfind(|it| it.at < ordered).unwrap();
    assert!(end <= last.at + DEADLINE, "{end:?}, and the last was sent before {:?}", last.at);
    assert!(
        renewals.iter().any(|it| it.at > ordered && it.status == 200),
        "the store granted more"
    );
    // There was no voluntary release, so either candidate may win the next term.
    cluster.proxies[0].heal();
    let next = until(D + RETRY * 3 / 2 + SLACK, "one leads again", || {
        cluster.candidates.iter().position(process::Process::is_leader)
    });
    assert!(cluster.leads(next, SLACK) > term);
    // Long enough for the recorder to see the new term of a candidate that it had seen before.
    cluster.renews(next);
    cluster.verdict_with_order(&[], &["c0", &format!("c{next}")]);
}

#[test]
fn fault_14_a_handover_with_every_request_doubled_and_late_makes_no_dual() {
    let mut cluster = Cluster::behind_proxies("fault-14").patient().led_by_first_of(2);
    for proxy in &cluster.proxies {
        proxy.always(Call::Any, Fault::Duplicate { after: Duration::from_secs(1) });
    }
    cluster.renews(0);
    // The last renewal reaches the store after the release.
    cluster.proxies[0].next(Call::Renew, [late_request(TIMEOUT * 3)]);
    cluster.suffers(0);
    cluster.candidates[0].signal(Signal::TERM);
    assert!(cluster.candidates[0].wait(TIMEOUT * 2 + SLACK).success());
    let term = cluster.leads(1, RETRY * 3 / 2 + SLACK);
    until(TIMEOUT * 3 + SLACK, "the late renewal has come", || {
        let renewals = cluster.calls(0, Call::Renew);
        (renewals.last()?.status != 0).then_some(())
    });
    let renewals = cluster.calls(0, Call::Renew);
    let release = cluster.calls(0, Call::Release);
    assert_eq!(renewals.last().unwrap().status, 409, "it was too late");
    assert_eq!(release.last().unwrap().status, 200);
    assert_eq!(cluster.leads(1, SLACK), term);
    cluster.renews(1);
    cluster.verdict_with_order(&["c0"], &["c0", "c1"]);
}

#[test]
fn fault_14_replayed_requests_of_a_former_leader_change_nothing() {
    let mut cluster = Cluster::behind_proxies("fault-14-replay").patient().led_by_first_of(2);
    cluster.renews(0);
    cluster.candidates[0].signal(Signal::TERM);
    assert!(cluster.candidates[0].wait(TIMEOUT * 2 + SLACK).success());
    let term = cluster.leads(1, RETRY * 3 / 2 + SLACK);
    for call in [Call::Renew, Call::Release, Call::Write, Call::Acquire] {
        let status = cluster.proxies[0].replay(call);
        assert!(matches!(status, 409 | 412), "{call:?}: {status}");
    }
    cluster.renews(1);
    assert_eq!(cluster.leads(1, SLACK), term);
    cluster.verdict_with_order(&["c0"], &["c0", "c1"]);
}

#[test]
fn fault_14_a_replayed_bid_of_a_dead_candidate_blocks_for_one_lease_at_most() {
    let mut cluster = Cluster::behind_proxies("fault-14-orphan");
    cluster.add_proxy().always(Call::Acquire, Fault::DropBefore(Then::Close));
    cluster.add();
    until(SLACK, "a bid was sent", || cluster.calls(0, Call::Acquire).pop());
    cluster.candidates[0].signal(Signal::KILL);
    assert!(!cluster.candidates[0].wait(SLACK).success());
    assert_eq!(cluster.proxies[0].replay(Call::Acquire), 201, "a lease that nobody knows of");
    let orphaned = tenure::clock::now();
    cluster.add();
    cluster.leads(1, D + RETRY * 3 / 2 + SLACK);
    let waited = orphaned.elapsed_max(tenure::clock::now());
    assert!(waited > D - Duration::from_secs(1), "it ran out first: {waited:?}");
    cluster.verdict_with_order(&[], &["c1"]);
}

#[test]
fn fault_17_a_broken_attempt_ends_in_time_and_the_next_has_a_fresh_connection() {
    let cluster = Cluster::behind_proxies("fault-17").patient().led_by_first_of(2);
    let garbage = b"\x16\x03\x01 SSH-2.0-none\r\n\r\n".repeat(40);
    for fault in [
        Fault::DropBefore(Then::Reset),
        Fault::DropBefore(Then::Silence),
        Fault::Trickle(Duration::from_secs(1)),
        Fault::Garbage(garbage),
        Fault::Garbage(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nwell".into()),
    ] {
        cluster.proxies[0].take_log();
        cluster.proxies[0].next(Call::Renew, [fault.clone()]);
        cluster.suffers(0);
        cluster.renews(0);
        let log = cluster.calls(0, Call::Renew);
        let faulted = log.iter().rposition(|it| it.connection != log.last().unwrap().connection);
        if matches!(&fault, Fault::Garbage(bytes) if bytes.starts_with(b"HTTP")) {
            // A valid HTTP answer, though not Azure's, so the connection is kept.
            continue;
        }
        let faulted =
            faulted.unwrap_or_else(|| panic!("{fault:?}: no fresh connection in {log:?}"));
        let next = &log[faulted + 1];
        assert_eq!(next.status, 200, "{fault:?}: {log:?}");
        let took = next.at.checked_sub(log[faulted].at).unwrap();
        assert!(took < TIMEOUT + RETRY + Duration::from_secs(2), "{fault:?}: {took:?}");
    }
    cluster.verdict_with_order(&[], &["c0"]);
}

#[test]
fn fault_17_half_open_connections_cost_one_attempt_each() {
    let cluster = Cluster::behind_proxies("fault-17-half-open").patient().led_by_first_of(2);
    cluster.proxies[0].door(Door::Deaf);
    until(SLACK, "an attempt has failed", || {
        let status = cluster.candidates[0].status()?;
        let error = status["store"]["last_error"].as_str()?;
        error.contains("the store did not answer a renewal within 2s").then_some(())
    });
    cluster.proxies[0].heal();
    cluster.renews(0);
    cluster.verdict_with_order(&[], &["c0"]);
}
