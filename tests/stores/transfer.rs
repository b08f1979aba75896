//! Transfer of leadership to a named successor, between real candidates, on a directory and on
//! Azurite.

use testkit::azure::azurite;
use testkit::processes::{cluster, process};

use std::time::Duration;

use azurite::Azurite;
use cluster::{Cluster, ON_BLOBS, PATIENCE, STEADY, Timings};
use process::{Ran, run_verb, until};
use tenure::clock;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How long the others hold off, far longer than a successor needs.
const HOLD_OFF: &str = "50s";

/// Three candidates, each with an admin socket in the directory.
struct Trio {
    cluster: Cluster,
    sockets: tempfile::TempDir,
}

impl Trio {
    fn start(store: Option<&Azurite>, timings: Timings) -> Self {
        let cluster = match store {
            None => Cluster::empty(timings),
            Some(azurite) => cluster_on(azurite, timings),
        };
        let mut trio = Self { cluster, sockets: tempfile::tempdir().unwrap() };
        for name in NAMES {
            let admin = trio.admin(name);
            trio.cluster.join(name, &["--admin", &admin], &[]);
        }
        trio
    }

    fn admin(&self, name: &str) -> String {
        format!("unix:{}", self.sockets.path().join(name).display())
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Ran {
        let admin = self.admin(name);
        run_verb(&[arguments, &["--no-wait", "--admin", &admin]].concat(), &[])
    }
}

/// Creates a cluster on Azurite, on a record for which the first leader need not wait.
fn cluster_on(azurite: &Azurite, timings: Timings) -> Cluster {
    let endpoint = azurite.endpoint.as_str();
    let store = ["--store", "azure://devstoreaccount1/elections", "--azure-endpoint", endpoint];
    let cluster = Cluster::on(store.map(str::to_owned).into(), Vec::new(), timings);
    let shared = cluster.arguments();
    let mut arguments = vec!["doctor", "--create", "--yes"];
    arguments.extend(shared.iter().map(String::as_str));
    let made = run_verb(&arguments, &[]);
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    cluster
}

/// Transfers leadership ten times, each time to the candidate that led longest ago, while the
/// others hold off for far longer than that takes.
fn ten_handovers(mut trio: Trio) {
    let mut leader = trio.cluster.settle();
    for _ in 0..10 {
        let next = (leader + 1) % NAMES.len();
        let term = trio.cluster.term(leader);
        let ran =
            trio.command(NAMES[leader], &["transfer", "--to", NAMES[next], "--hold-off", HOLD_OFF]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(
            ran.out.contains(&format!("other candidates wait for {}", NAMES[next])),
            "{}",
            ran.out
        );
        trio.cluster.releases(leader);
        let (found, gap) = trio.cluster.next_leader(clock::now());
        assert_eq!(NAMES[found], NAMES[next], "another than the successor leads");
        assert!(gap < Duration::from_secs(25), "it came when nobody waited any more: {gap:?}");
        assert!(trio.cluster.term(found) > term);
        trio.cluster.records(found);
        leader = trio.cluster.settle();
        assert_eq!(leader, found, "it did not stay");
    }
    let verdict = trio.cluster.verdict();
    assert_eq!(verdict.terms.len(), 11, "{verdict:?}");
}

#[test]
fn ten_transfers_on_one_host_reach_their_successors_without_an_overlap() {
    ten_handovers(Trio::start(None, STEADY));
}

#[tokio::test]
async fn ten_transfers_on_azurite_reach_their_successors_without_an_overlap() {
    let azurite = Azurite::start().await;
    ten_handovers(Trio::start(Some(&azurite), ON_BLOBS));
}

#[test]
fn a_successor_that_does_not_exist_costs_its_hold_off_and_no_more() {
    let mut trio = Trio::start(None, STEADY);
    let leader = trio.cluster.settle();
    let hold_off = Duration::from_secs(4);
    let before = clock::now();
    let ran = trio.command(NAMES[leader], &["transfer", "--to", "nobody", "--hold-off", "4s"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    trio.cluster.releases(leader);
    let (next, _) = trio.cluster.next_leader(clock::now());
    let waited = before.elapsed_max(clock::now());
    assert!(waited >= hold_off, "the successor was not waited for: {waited:?}");
    assert!(waited < hold_off + Duration::from_secs(20), "{waited:?}");
    // The successor's deference ends with the next term: a handover after that is immediate.
    trio.cluster.records(next);
    let third = (next + 1) % NAMES.len();
    trio.cluster.settle();
    let ran =
        trio.command(NAMES[next], &["transfer", "--to", NAMES[third], "--hold-off", HOLD_OFF]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    trio.cluster.releases(next);
    until(PATIENCE, "the named one leads", || {
        trio.cluster.candidates[third].is_leader().then_some(())
    });
    trio.cluster.verdict();
}
