//! A leader on a Lease: its requests, and what it learns from its watch.

use testkit::kubernetes::{kube_server, lease_lock};

use std::time::Duration;

use kube_server::KubeServer;
use lease_lock::{A, lead, lease, open, soon, usurp};
use serde_json::json;
use tenure::Candidate;
use tenure::clock::{self, Moment};
use tenure::election::State;
use tenure::store::{LeaseAdmin, LeaseStore};

/// How long nothing must happen to count as nothing.
const QUIET: Duration = Duration::from_millis(800);

/// A bound for what happens at once: less than the half of [`RARELY`].
const SOON: Duration = Duration::from_secs(25);

/// A retry-period after which nothing else is a reason for a renewal.
const RARELY: Duration = Duration::from_secs(60);

const OFTEN: Duration = Duration::from_millis(100);

/// Starts a candidate on a Lease with a term, so that it leads at once.
fn candidate(server: &KubeServer, retry_period: Duration) -> Candidate {
    if server.object("leases", "team", "orders").is_none() {
        let record = json!({"metadata": {"annotations": {"tenure.dev/term": "7"}}, "spec": {}});
        server.put("leases", "team", "orders", record);
    }
    Candidate::builder("orders", "kubernetes:team/orders")
        .identity("web-1")
        .setting("kube-api", &server.url())
        .setting("kube-token-file", server.token_file().to_str().expect("UTF-8"))
        .lease_duration(Duration::from_secs(300))
        .renew_deadline(Duration::from_secs(200))
        .retry_period(retry_period)
        .request_timeout(Duration::from_secs(10))
        .start()
        .expect("valid settings")
}

/// Waits until a candidate is in this state.
async fn reach(candidate: &Candidate, state: State) {
    let mut changes = candidate.changes();
    let reached = async {
        while candidate.status().state(clock::now()) != state {
            changes.next().await.expect("it runs");
        }
    };
    let reached = tokio::time::timeout(SOON, reached).await;
    reached.unwrap_or_else(|_| panic!("not {state:?}, but {:?}", candidate.status()));
}

/// Waits until the server has had so many of these requests since its log was taken.
async fn counted(server: &KubeServer, op: &str, number: usize) {
    let counting = async {
        while server.count(op) < number {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(counting).await;
}

/// Asserts that a leader has sent no more renewals since `from` than one in each retry-period.
fn assert_one_in_each_period(server: &KubeServer, from: Moment) {
    let renewals = server.count("update leases");
    let periods = from.elapsed_max(clock::now()).div_duration_f32(OFTEN);
    assert!(renewals as f32 <= periods + 2.0, "{renewals} in {periods} retry-periods");
}

#[tokio::test]
async fn a_renewal_is_one_request_with_the_version_that_the_last_one_returned() {
    let server = KubeServer::start();
    let leader = candidate(&server, OFTEN);
    reach(&leader, State::Leader).await;
    let term = leader.status().term();
    // The first renewal reads what the write of the term has left.
    counted(&server, "update leases", 4).await;
    let from = clock::now();
    server.take_log();
    counted(&server, "update leases", 10).await;
    assert_eq!(server.count("get leases"), 0);
    assert_one_in_each_period(&server, from);

    // Another writer's change is found by a conflict, kept, and costs one read.
    let from = clock::now();
    server.take_log();
    for _ in 0..3 {
        server.touch("leases", "team", "orders");
        let touched = lease(&server)["metadata"]["annotations"]["example.com/touched"].clone();
        let before = lease(&server)["spec"]["renewTime"].clone();
        let renewed = async {
            while lease(&server)["spec"]["renewTime"] == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(renewed).await;
        assert_eq!(lease(&server)["metadata"]["annotations"]["example.com/touched"], touched);
    }
    let log = server.take_log();
    let conflicts = log.iter().filter(|it| it.status == 409).count();
    let reads = log.iter().filter(|it| it.op == "get leases").count();
    assert!((1..=3).contains(&conflicts), "{conflicts} of three changes were met");
    assert_eq!(reads, conflicts);
    assert!(log.len() as f32 <= from.elapsed_max(clock::now()).div_duration_f32(OFTEN) + 8.0);
    assert_eq!(
        (leader.status().state(clock::now()), leader.status().term()),
        (State::Leader, term)
    );
    leader.resign().await;
    assert_eq!(lease(&server)["spec"]["holderIdentity"], "");
}

#[tokio::test]
async fn a_leader_learns_of_a_loss_before_its_next_renewal() {
    for loss in ["taken over", "broken", "freed", "deleted"] {
        let server = KubeServer::start();
        let leader = candidate(&server, RARELY);
        reach(&leader, State::Leader).await;
        match loss {
            "taken over" => server.modify("leases", "team", "orders", usurp),
            "broken" => drop(soon(open(&server).break_lease(false)).await.expect("broken")),
            "freed" => drop(soon(open(&server).break_lease(true)).await.expect("freed")),
            _ => server.delete("leases", "team", "orders"),
        }
        let lost = async {
            while leader.is_leader(clock::now()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let lost = tokio::time::timeout(SOON, lost).await;
        lost.unwrap_or_else(|_| panic!("{loss}: it still leads"));
    }
}

#[tokio::test]
async fn its_own_writes_and_those_beside_the_lease_cause_no_renewal() {
    let server = KubeServer::start();
    let other = open(&server);
    let (held, _) = lead(&other, A).await;
    let standby = candidate(&server, RARELY);
    reach(&standby, State::Standby).await;
    counted(&server, "watch leases", 1).await;
    server.take_log();
    soon(other.release(&held)).await.expect("released");
    reach(&standby, State::Leader).await;
    for _ in 0..5 {
        server.touch("leases", "team", "orders");
    }
    tokio::time::sleep(QUIET).await;
    assert_eq!(server.count("update leases"), 3, "the release, the bid and the term");
}
