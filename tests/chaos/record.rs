//! Faults behind the leader's back, with real candidates: the lease broken or taken, the record
//! deleted or set back, on the in-process server that follows Microsoft's tables, and on Azurite.
//! Test names contain the number of the fault.

use testkit::azure::account;
use testkit::http::raw;
use testkit::processes::{cluster, process};

use std::fs;
use std::time::Duration;

use account::Account;
use cluster::{Cluster, ON_BLOBS, PATIENCE, SHORT, logs};
use process::{Process, until};
use raw::Raw;
use rustix::process::Signal;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The longest lease of Azure except for an infinite one, and so the hold of R11.
const HOLD: Duration = Duration::from_secs(60);

/// The lease id of a third party.
const FOREIGN: &str = "33333333-2222-4333-8444-555555555555";

/// Returns the times of a candidate's state changes with this reason, from its log.
fn changes(candidate: &Process, reason: &str) -> Vec<OffsetDateTime> {
    let log = candidate.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let transitions = lines.filter(|line| line["reason"] == reason);
    transitions
        .map(|line| OffsetDateTime::parse(line["timestamp"].as_str().unwrap(), &Rfc3339).unwrap())
        .collect()
}

fn losses(candidate: &Process) -> usize {
    changes(candidate, "lost").len()
}

/// Waits until the leader has learned that its lease is lost.
fn loses(cluster: &Cluster, leader: usize, before: usize) {
    let candidate = &cluster.candidates[leader];
    until(PATIENCE, "the leader has lost its lease", || (losses(candidate) > before).then_some(()));
    assert!(changes(candidate, "lapsed").is_empty(), "at the next renewal, not at the deadline");
}

/// Performs an operation on the lease while all candidates are stopped, so that none takes the
/// lease meanwhile.
fn unseen<T>(account: &Account, cluster: &Cluster, act: impl AsyncFnOnce(&Raw) -> T) -> T {
    cluster.candidates.iter().for_each(|it| it.signal(Signal::STOP));
    let done = account.by_hand(act);
    cluster.candidates.iter().for_each(|it| it.signal(Signal::CONT));
    done
}

async fn break_at_once(raw: &Raw) {
    let broken = raw.lease("break", &[("x-ms-lease-break-period", "0")]).await;
    assert_eq!(broken.status, 202, "{broken:?}");
}

/// An operator breaks the lease, once for each period; returns the cluster, to be checked.
fn broken_by_an_operator(account: &Account, periods: &[Option<&str>]) -> Cluster {
    let cluster = account.cluster(&["a", "b"]);
    for period in periods {
        let leader = cluster.settle();
        let (term, before) = (cluster.term(leader), losses(&cluster.candidates[leader]));
        let header = period.map(|period| ("x-ms-lease-break-period", period));
        let broken = account.by_hand(async |raw| raw.lease("break", header.as_slice()).await);
        assert_eq!(broken.status, 202, "{broken:?}");
        loses(&cluster, leader, before);
        account.let_leases_end();
        let next = cluster.settle();
        assert!(cluster.term(next) > term);
    }
    cluster
}

#[test]
fn fault_22_a_break_that_lets_the_lease_run_out_makes_no_dual_by_the_tables() {
    let cluster = broken_by_an_operator(&Account::by_the_tables(), &[None, Some("30")]);
    assert_eq!(cluster.verdict().terms.len(), 3);
}

#[test]
fn fault_22_a_break_that_lets_the_lease_run_out_makes_no_dual_on_azurite() {
    let cluster = broken_by_an_operator(&Account::on_azurite(), &[None, Some("30")]);
    assert_eq!(cluster.verdict().terms.len(), 3);
}

/// The lease is free at once, and the old leader learns it at its next renewal: until then only the
/// term protects, as the claim says of a lease that is freed behind its holder's back.
#[test]
fn fault_22_an_immediate_break_ends_the_leadership_at_the_next_renewal_and_the_term_fences() {
    for account in [Account::by_the_tables(), Account::on_azurite()] {
        let verdict = broken_by_an_operator(&account, &[Some("0")]).recorder.finish(&[]);
        assert!(verdict.shared.is_empty() && verdict.terms.len() == 2, "{verdict:?}");
        assert!(verdict.terms[0].0 < verdict.terms[1].0, "{verdict:?}");
    }
}

/// Asserts that no candidate leads while a third party has the lease, and that one does after its
/// release.
fn taken_by_another(account: &Account, cluster: Cluster, term: u64) {
    let begun = tenure::clock::now();
    while begun.elapsed_min(tenure::clock::now()) < ON_BLOBS.renew_deadline {
        assert!(!cluster.candidates.iter().any(Process::is_leader), "the lease is another's");
        std::thread::sleep(Duration::from_millis(100));
    }
    let id = [("x-ms-lease-id", FOREIGN)];
    let released = account.by_hand(async |raw| raw.lease("release", &id).await);
    assert_eq!(released.status, 200, "{released:?}");
    let next = cluster.settle();
    assert!(cluster.term(next) > term);
    assert_eq!(cluster.verdict().terms.len(), 2);
}

#[test]
fn fault_23_a_lease_taken_by_a_third_party_ends_the_leadership() {
    for account in [Account::by_the_tables(), Account::on_azurite()] {
        let cluster = account.cluster(&["a", "b"]);
        let leader = cluster.settle();
        let term = cluster.term(leader);
        unseen(&account, &cluster, async |raw| {
            break_at_once(raw).await;
            let bid = [("x-ms-proposed-lease-id", FOREIGN), ("x-ms-lease-duration", "15")];
            let taken = raw.lease("acquire", &bid).await;
            assert_eq!(taken.status, 201, "{taken:?}");
        });
        loses(&cluster, leader, 0);
        taken_by_another(&account, cluster, term);
    }
}

#[test]
fn fault_23_a_lease_id_changed_by_a_third_party_ends_the_leadership() {
    let account = Account::by_the_tables();
    let cluster = account.cluster(&["a", "b"]);
    let leader = cluster.settle();
    let term = cluster.term(leader);
    let id = until(PATIENCE, "a renewal", || {
        let log = account.tables().take_log();
        log.iter().rev().find_map(|it| it.headers.get("x-ms-lease-id").cloned())
    });
    let change = [("x-ms-lease-id", id.as_str()), ("x-ms-proposed-lease-id", FOREIGN)];
    let changed = account.by_hand(async |raw| raw.lease("change", &change).await);
    assert_eq!(changed.status, 200, "{changed:?}");
    loses(&cluster, leader, 0);
    taken_by_another(&account, cluster, term);
}

/// A cluster whose record was damaged while a candidate led.
struct Harmed {
    account: Account,
    cluster: Cluster,
    term: u64,
}

impl Harmed {
    fn new(account: Account, harm: impl AsyncFnOnce(&Raw)) -> Self {
        let cluster = account.cluster(&["a", "b"]);
        let leader = cluster.settle();
        let term = cluster.term(leader);
        unseen(&account, &cluster, harm);
        loses(&cluster, leader, 0);
        Self { account, cluster, term }
    }

    /// Waits for the next leader, and asserts that it has held the lease for as long as R11
    /// requires.
    fn recovers(self, alarm: &str) {
        let Self { cluster, term, .. } = self;
        let next = cluster.settle();
        let words = format!(r#""reason":"term-written","term":{}"#, cluster.term(next));
        logs(&cluster.candidates[next], &words);
        let last = |reason| *changes(&cluster.candidates[next], reason).last().unwrap();
        let held = last("term-written") - last("acquired");
        // The wait begins when the grant arrives; its line in the log is written a little later.
        assert!(held >= HOLD - Duration::from_millis(500), "{held}");
        assert!(cluster.term(next) > term, "above all that was seen");
        let alarmed = cluster.candidates.iter().filter(|it| it.log().contains(alarm)).count();
        assert!(alarmed > 0, "{alarm}");
        assert_eq!(cluster.verdict().terms.len(), 2);
    }
}

/// All at the same time, since each waits for a minute.
#[test]
fn fault_24_a_deleted_blob_or_container_ends_the_leadership_and_the_next_leader_waits() {
    let blob = async |raw: &Raw| {
        break_at_once(raw).await;
        let deleted = raw.blob("DELETE", "", &[]).await;
        assert_eq!(deleted.status, 202, "{deleted:?}");
    };
    let container = async |raw: &Raw| {
        let deleted = raw.container("DELETE").await;
        assert_eq!(deleted.status, 202, "{deleted:?}");
    };
    let harmed = [
        Harmed::new(Account::by_the_tables(), container),
        Harmed::new(Account::by_the_tables(), blob),
        Harmed::new(Account::on_azurite(), container),
        Harmed::new(Account::on_azurite(), blob),
    ];
    // A name can be used again when the container is completely deleted.
    let waits = &harmed[0];
    assert!(waits.cluster.candidates.iter().all(|it| changes(it, "acquired").len() < 2));
    waits.account.tables().advance(Duration::from_secs(30));
    harmed.into_iter().for_each(|it| it.recovers("the record has no term"));
}

#[test]
fn fault_25_a_term_that_decreased_raises_an_alarm_and_the_next_leader_waits() {
    let set_back = async |raw: &Raw| {
        break_at_once(raw).await;
        let old = [("x-ms-meta-tenure_term", "5")];
        let written = raw.blob("PUT", "comp=metadata", &old).await;
        assert_eq!(written.status, 200, "{written:?}");
    };
    let harmed = [
        Harmed::new(Account::by_the_tables(), set_back),
        Harmed::new(Account::on_azurite(), set_back),
    ];
    harmed.into_iter().for_each(|it| it.recovers("the recorded term went back"));
}

/// The record of a `file:` store goes with its directory: a candidate that has seen a term holds the lease in
/// the next directory until the old leader's belief is over.
#[test]
fn fault_24_a_directory_renamed_away_under_a_leader_makes_no_dual() {
    let cluster = Cluster::start(&["a", "b", "c"], SHORT);
    let lease = cluster.directory.path().join("lease");
    let mut term = 0;
    for round in 0..4 {
        term = until(PATIENCE, "the next term, as the recorder has seen", || {
            cluster.candidates.iter().find_map(|it| {
                let next = it.status()?["term"].as_u64().filter(|next| *next > term)?;
                cluster.recorder.has_claim_in(&it.name, next).then_some(next)
            })
        });
        fs::rename(&lease, cluster.directory.path().join(format!("away-{round}"))).unwrap();
    }
    let alarmed = cluster.candidates.iter().any(|it| it.log().contains("the record has no term"));
    assert!(alarmed, "a hold without an alarm");
    assert!(cluster.verdict().terms.len() >= 4);
}
