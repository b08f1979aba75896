//! `tenure break` with real candidates, on a directory and on Azurite.

use testkit::azure::azurite;
use testkit::http::raw;
use testkit::kubernetes::kube_server;
use testkit::processes::{cluster, process};

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use azurite::Azurite;
use cluster::{Cluster, ON_BLOBS, PATIENCE, STEADY, Timings, logs};
use kube_server::KubeServer;
use process::{Process, Ran, run_verb, until};
use raw::Raw;
use tenure::clock;

/// Timings with a lease that does not expire during a test.
const LONG: Timings = Timings {
    lease_duration: Duration::from_secs(300),
    renew_deadline: Duration::from_secs(200),
    ..STEADY
};

/// Breaks the lease of a cluster.
fn break_lease(cluster: &Cluster, more: &[&str]) -> Ran {
    let shared = cluster.arguments();
    let shared = shared.iter().map(String::as_str);
    run_verb(
        &["break"].into_iter().chain(shared).chain(more.iter().copied()).collect::<Vec<_>>(),
        &[],
    )
}

/// Breaks the lease on a terminal, with this answer to the prompt.
fn break_lease_on_a_terminal(cluster: &Cluster, more: &str, answer: &str) -> Ran {
    let arguments = cluster.arguments().join(" ");
    let line = format!("{} break {more} {arguments}", env!("CARGO_BIN_EXE_tenure"));
    let (typed, mut keyboard) = std::io::pipe().unwrap();
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(typed);
    let session = Process::spawn("script, of the package bsdutils", command);
    keyboard.write_all(answer.as_bytes()).unwrap();
    session.end()
}

/// Breaks the leader's lease so that it runs out, and asserts that another leads only after that.
fn takes_leadership_safely(timings: Timings, store: Option<&Azurite>) {
    let mut cluster = crew_on(store, timings);
    cluster.join("a", &["--advertise", "10.0.3.7:8080"], &[]);
    let first = cluster.settle();
    cluster.join("b", &[], &[]);
    assert_eq!(cluster.settle(), first);
    let term = cluster.term(first);
    let ran = break_lease(&cluster, &[]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    let shown = if store.is_some() { "does not show renewals" } else { " ago and leads" };
    for words in ["a (10.0.3.7:8080), in term", shown, "for up to", "confirm with --yes"] {
        assert!(ran.err.contains(words), "{words} in {}", ran.err);
    }
    renews(&cluster.candidates[first]);
    assert_eq!(cluster.term(first), term, "nothing was broken");
    let ran = break_lease(&cluster, &["--yes"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains(&format!("held by a (10.0.3.7:8080), in term {term}")), "{}", ran.out);
    assert!(ran.out.contains("no other candidate can lead before 20"), "{}", ran.out);
    assert!(ran.err.is_empty(), "{}", ran.err);

    // Its next renewal is refused, before its deadline.
    logs(&cluster.candidates[first], "\"reason\":\"lost\"");
    assert!(
        !cluster.candidates[first].log().contains("lapsed"),
        "{}",
        cluster.candidates[first].log()
    );
    let (second, _) = cluster.next_leader(clock::now());
    cluster.records(second);
    assert!(cluster.term(second) > term);
    let verdict = cluster.verdict();
    assert_eq!(verdict.terms.len(), 2, "{verdict:?}");
}

fn on(azurite: &Azurite) -> Vec<String> {
    let endpoint = azurite.endpoint.as_str();
    ["--store", "azure://devstoreaccount1/elections", "--azure-endpoint", endpoint]
        .map(str::to_owned)
        .into()
}

/// Creates a cluster without candidates, on a record for which the first leader need not wait.
fn crew_on(store: Option<&Azurite>, timings: Timings) -> Cluster {
    let Some(azurite) = store else {
        return Cluster::empty(timings);
    };
    let cluster = Cluster::on(on(azurite), Vec::new(), timings);
    let arguments = [&["doctor".to_owned()][..], &cluster.arguments()].concat();
    let arguments: Vec<&str> =
        arguments.iter().map(String::as_str).chain(["--create", "--yes"]).collect();
    let made = run_verb(&arguments, &[]);
    assert_eq!(made.code, 0, "{}{}", made.out, made.err);
    cluster
}

#[test]
fn a_broken_lease_on_one_host_expires_before_another_leads() {
    takes_leadership_safely(STEADY, None);
}

#[tokio::test]
async fn a_broken_lease_on_azurite_expires_before_another_leads() {
    let azurite = Azurite::start().await;
    takes_leadership_safely(ON_BLOBS, Some(&azurite));
}

/// Crashes a leader with a long lease, and breaks the lease at once.
fn frees_at_once(timings: Timings, store: Option<&Azurite>, patience: Duration) {
    let mut cluster = crew_on(store, timings);
    cluster.join("a", &[], &[]);
    let dead = cluster.settle();
    cluster.join("b", &[], &[]);
    cluster.settle();
    let term = cluster.term(dead);
    cluster.candidates[dead].kill();
    let ran = break_lease(&cluster, &["--now", "--yes"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("Two leaders are possible"), "it warns all the same: {}", ran.err);
    assert!(ran.out.contains(&format!("held by a, in term {term}")), "{}", ran.out);
    assert!(ran.out.contains("it is free now"), "{}", ran.out);
    let broken = clock::now();
    let (next, waited) = cluster.next_leader(broken);
    assert_ne!(next, dead);
    assert!(cluster.term(next) > term);
    assert!(waited < patience, "it has not run out: {waited:?}");

    let ran = break_lease(&cluster, &["--yes"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("held by b"), "{}", ran.out);
}

#[test]
fn the_lease_of_a_dead_leader_is_broken_without_a_question() {
    let mut cluster = Cluster::empty(LONG);
    cluster.join("a", &[], &[]);
    let dead = cluster.settle();
    cluster.candidates[dead].kill();
    let ran = break_lease(&cluster, &[]);
    assert!(ran.code == 0 && ran.out.contains("breaking the lease of"), "{}{}", ran.out, ran.err);
    assert!(ran.err.is_empty(), "{}", ran.err);
}

#[test]
fn a_dead_leader_s_lease_on_one_host_is_freed_at_once() {
    frees_at_once(LONG, None, PATIENCE);
}

#[tokio::test]
async fn a_dead_leader_s_lease_on_azurite_is_freed_at_once() {
    let azurite = Azurite::start().await;
    let timings = Timings {
        lease_duration: Duration::from_secs(60),
        renew_deadline: Duration::from_secs(30),
        ..ON_BLOBS
    };
    frees_at_once(timings, Some(&azurite), Duration::from_secs(45));
}

#[test]
fn an_immediate_break_requires_confirmation() {
    let mut cluster = Cluster::empty(LONG);
    cluster.join("a", &[], &[]);
    cluster.settle();
    let term = cluster.term(0);
    let ran = break_lease(&cluster, &["--now"]);
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("is not a terminal"), "{}", ran.err);
    assert!(ran.err.contains("confirm with --yes"), "{}", ran.err);
    let ran = break_lease_on_a_terminal(&cluster, "", "n\n");
    assert_eq!(ran.code, 1, "{}", ran.out);
    for words in ["a, in term", " ago and leads", "Are you sure?", "the lease was not broken"] {
        assert!(ran.out.contains(words), "{words} in {}", ran.out);
    }
    assert!(!ran.out.contains("Two leaders"), "that is for --now: {}", ran.out);

    for answer in ["n\n", "\n", "maybe\n", "\u{4}"] {
        let ran = break_lease_on_a_terminal(&cluster, "--now", answer);
        assert_eq!(ran.code, 1, "{answer:?}: {}", ran.out);
        for words in [
            "is held by a",
            "Two leaders are possible",
            "Are you sure?",
            "the lease was not broken",
        ] {
            assert!(ran.out.contains(words), "{words} in {}", ran.out);
        }
    }
    renews(&cluster.candidates[0]);
    assert_eq!(cluster.term(0), term, "it leads on");

    let ran = break_lease_on_a_terminal(&cluster, "--now", "yes\n");
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.contains("it is free now"), "{}", ran.out);
    logs(&cluster.candidates[0], "\"reason\":\"lost\"");
    let verdict = cluster.verdict();
    assert!(verdict.terms[0].0 == term, "{verdict:?}");
}

/// Waits for the effect of a renewal after this call.
fn renews(candidate: &Process) {
    let valid = || candidate.status()?["valid_until_boottime_ns"].as_u64();
    let before = valid().expect("it leads");
    until(PATIENCE, "it renews", || (valid()? > before).then_some(()));
}

/// Creates elections in a store, and breaks one that is not held and one that does not exist.
fn tells_a_free_lease_from_a_missing_one(store: &[&str]) {
    let run = |verb: &str, election: &str, more: &[&str]| {
        run_verb(&[&[verb, "--election", election], store, more].concat(), &[])
    };
    for election in ["orders", "billing"] {
        let made = run("doctor", election, &["--create", "--yes"]);
        assert!(made.out.contains("first term"), "{}{}", made.out, made.err);
    }
    for more in [&[][..], &["--now", "--yes"]] {
        let ran = run("break", "orders", more);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.out.starts_with("the lease of \"orders\""), "{}", ran.out);
        assert!(ran.out.contains("nothing to break"), "{}", ran.out);
        let ran = run("break", "order", more);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{}", ran.err);
        assert!(ran.err.contains("no such election: no election \"order\" in"), "{}", ran.err);
        assert!(ran.err.contains("; there are: billing, orders\n"), "{}", ran.err);
    }
}

#[test]
fn a_misspelt_election_in_a_directory_is_an_error_that_lists_the_elections() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file://{}", directory.path().display());
    tells_a_free_lease_from_a_missing_one(&["--store", &store]);

    let store = format!("file://{}/none", directory.path().display());
    let ran = run_verb(&["break", "--store", &store], &[]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("/none does not exist"), "{}", ran.err);
    assert!(!directory.path().join("none").exists(), "nothing was made");
}

#[tokio::test]
async fn a_misspelt_election_on_azurite_is_an_error_that_lists_the_elections() {
    let azurite = Azurite::start().await;
    let store = on(&azurite);
    let store: Vec<&str> = store.iter().map(String::as_str).collect();
    let prefixed = [&store[..], &["--azure-blob-prefix", "team"]].concat();
    tells_a_free_lease_from_a_missing_one(&prefixed);

    let mut elsewhere = store.clone();
    elsewhere[1] = "azure://devstoreaccount1/nowhere";
    let ran = run_verb(&[&["break"], &elsewhere[..]].concat(), &[]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("the container nowhere does not exist"), "{}", ran.err);
}

#[tokio::test]
async fn a_misspelt_lease_is_an_error_that_lists_the_ones_of_tenure() {
    let server = KubeServer::start();
    let given = server.arguments();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let run = |arguments: &[&str]| run_verb(&[arguments, &given].concat(), &[]);
    for lease in ["orders", "billing"] {
        let store = format!("kubernetes:team/{lease}");
        let made = run(&["doctor", "--store", &store, "--create", "--yes"]);
        assert!(made.out.contains("first term"), "{}{}", made.out, made.err);
    }
    let ran = run(&["break", "--store", "kubernetes:team/orders"]);
    assert!(ran.code == 0 && ran.out.contains("nothing to break"), "{}{}", ran.out, ran.err);
    let ran = run(&["break", "--store", "kubernetes:team/order"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    let words = "no Lease \"order\" in the namespace team; there are: billing, orders\n";
    assert!(ran.err.contains(words), "{}", ran.err);
}

#[test]
fn a_lease_that_cannot_be_broken_is_reported_with_the_reason() {
    let ran = run_verb(&["break", "--store", "memory:"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("inside each process"), "{}", ran.err);
    let ran = run_verb(&["break", "--election", "A", "--store", "x:"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.out);
    assert!(ran.err.contains("election") && ran.err.contains("store"), "{}", ran.err);

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("default.json"), "something else").unwrap();
    let store = format!("file://{}", directory.path().display());
    let ran = run_verb(&["break", "--now", "--yes", "--store", &store], &[]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("was not written by Tenure"), "{}", ran.err);
    let kept = std::fs::read(directory.path().join("default.json")).unwrap();
    assert_eq!(kept, b"something else");

    let endpoint = format!("http://127.0.0.1:{}/devstoreaccount1", testkit::ports::free_port());
    let away =
        ["break", "--store", "azure://devstoreaccount1/elections", "--azure-endpoint", &endpoint];
    let ran = run_verb(&away, &[]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("127.0.0.1"), "{}", ran.err);
}

#[tokio::test]
async fn a_lease_without_end_is_broken_at_once_or_not_at_all() {
    let azurite = Azurite::start().await;
    let settings = azurite.settings("elections", "default");
    let raw = Raw::new(&settings);
    raw.make().await;
    let taken = raw.lease("acquire", &[("x-ms-lease-duration", "-1")]).await;
    assert_eq!(taken.status, 201, "{taken:?}");

    let store = on(&azurite);
    let arguments: Vec<&str> =
        ["break"].into_iter().chain(store.iter().map(String::as_str)).collect();
    let ran = run_verb(&arguments, &[]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.err.contains("without an end") && ran.err.contains("--now"), "{}", ran.err);
    assert_eq!(raw.lease_state().await, "leased", "and nothing was broken");

    let ran = run_verb(&[&arguments[..], &["--now", "--yes"]].concat(), &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("held by another tool, without an end"), "{}", ran.out);
    assert_eq!(raw.lease_state().await, "broken");
}
