//! `tenure migrate` between directories: whatever interrupts it, there is one place to bid in, and terms rise
//! by a gap with each move.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::processes::cluster::logs;
use testkit::processes::process::{BOUND, Process, Ran, run_verb, until};

/// How far a move raises the terms, as docs/operating.md has it.
const GAP: u64 = 1 << 20;

/// The term of the first store, before any move.
const FIRST: u64 = 41;

/// Directories, each with the record of one election.
struct Stores(TempDir);

impl Stores {
    /// Creates the first one, `a`, with a term.
    fn new() -> Self {
        let it = Self(tempfile::tempdir().unwrap());
        it.write("a", Some(FIRST), None);
        it
    }

    fn url(&self, name: &str) -> String {
        format!("file://{}", self.0.path().join(name).display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name).join("orders.json")
    }

    /// Writes a free record, with the mark of a move to another one if it names one.
    fn write(&self, name: &str, term: Option<u64>, moved_to: Option<&str>) {
        let nonce = "00000000000000000000000000000007";
        let mut record = json!({"tenure": 1, "revision": 1, "term": term, "nonce": nonce, "holder": null,
            "lease": null});
        if let Some(to) = moved_to {
            let url = self.url(to);
            record["successor"] =
                json!({"identity": url, "hold_off_ms": 9_007_199_254_740_991_u64});
        }
        fs::create_dir_all(self.0.path().join(name)).unwrap();
        fs::write(self.file(name), record.to_string()).unwrap();
    }

    /// Returns the term and the name of the store that the election has moved to.
    fn read(&self, name: &str) -> (Option<u64>, Option<String>) {
        let Ok(text) = fs::read_to_string(self.file(name)) else { return (None, None) };
        let record: Value = serde_json::from_str(&text).unwrap();
        assert!(record["lease"].is_null(), "the lease is released: {record}");
        let to = record["successor"]["identity"].as_str();
        let to = to.map(|it| it.rsplit('/').next().unwrap().to_owned());
        (record["term"].as_u64(), to)
    }

    fn migrate(&self, from: &str, to: &str, more: &[&str]) -> Ran {
        let (from, to) = (self.url(from), self.url(to));
        let verb = ["migrate", "--election", "orders", "--from", &from, "--to", &to];
        run_verb(&[&verb, more].concat(), &[])
    }

    #[track_caller]
    fn moves(&self, from: &str, to: &str, more: &[&str]) {
        let ran = self.migrate(from, to, more);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }

    #[track_caller]
    fn refuses(&self, from: &str, to: &str, more: &[&str], code: i32, words: &str) {
        let ran = self.migrate(from, to, more);
        assert!(ran.code == code && ran.err.contains(words), "{}{}", ran.out, ran.err);
    }

    /// Starts a candidate of one of them.
    fn candidate(&self, name: &str) -> Process {
        Process::run(name, &["--store", &self.url(name), "--election", "orders"], &[])
    }
}

#[test]
fn a_candidate_that_is_left_in_the_old_store_does_not_lead_and_says_where_the_election_is() {
    let stores = Stores::new();
    stores.moves("a", "b", &[]);
    let (left, new) = (stores.candidate("a"), stores.candidate("b"));
    until(BOUND, "the new store has a leader", || new.is_leader().then_some(()));
    let term = new.status().unwrap()["term"].as_u64().unwrap();
    assert!(term > FIRST + GAP, "{term}");
    let to = stores.url("b");
    logs(
        &left,
        &format!(
            "the election has moved to another store, so this instance never bids here: start it \
                          with --store {to}"
        ),
    );
    let status =
        until(BOUND, "it has read", || left.status().filter(|it| it["state"] == "standby"));
    assert_eq!(status["store"]["moved_to"], json!(to));
    assert_eq!(status["can_take_over"], json!(false));
    assert_eq!(left.get("/standby").unwrap().0, 503, "it could not take over");
    let table = run_verb(&["status", "--url", &left.address.to_string()], &[]);
    assert!(
        table.out.contains(&format!("moved to   {to}; nobody leads in this store")),
        "{}",
        table.out
    );
    let note = format!("does not compete: the election has moved to {to}");
    assert!(table.out.contains(&note), "{}", table.out);
    let url = stores.url("a");
    let doctor = run_verb(&["doctor", "--store", &url, "--election", "orders"], &[]);
    assert!(doctor.code == 1 && doctor.out.contains(&format!("moved to {to}")), "{}", doctor.out);
    new.signal(Signal::TERM);
    new.end();
    // It bids as soon as the election is back.
    stores.moves(
        "a",
        "b",
        &[
            "--undo",
            "--lease-duration",
            "1s",
            "--renew-deadline",
            "700ms",
            "--retry-period",
            "100ms",
            "--request-timeout",
            "300ms",
        ],
    );
    until(BOUND, "the old store has a leader", || left.is_leader().then_some(()));
    assert!(left.status().unwrap()["term"].as_u64().unwrap() > term + GAP);
    assert_eq!(left.status().unwrap()["store"]["moved_to"], json!(null));
    assert!(!left.log().contains("went back"), "terms only rose");
}

#[test]
fn each_move_raises_the_terms_by_the_gap_and_leaves_one_store_open() {
    let stores = Stores::new();
    let (mut last, mut from) = (FIRST, "a");
    for to in ["b", "c", "a", "c", "b", "a"] {
        stores.moves(from, to, &[]);
        let (term, moved_to) = stores.read(to);
        assert!(term.is_some_and(|it| it >= last + GAP) && moved_to.is_none(), "{term:?} in {to}");
        let again = stores.read(to);
        stores.moves(from, to, &[]);
        assert_eq!(stores.read(to), again, "it is done already");
        let open: Vec<_> =
            ["a", "b", "c"].into_iter().filter(|it| stores.read(it).1.is_none()).collect();
        assert!(open.iter().all(|it| *it == to || stores.read(it).0.is_none()), "{open:?}");
        (last, from) = (term.unwrap(), to);
    }
    // An old command again opens no second store.
    stores.refuses("c", "b", &[], 1, "has moved on from");
    stores.refuses("c", "a", &[], 1, "already");
    assert_eq!(stores.read("b").1.as_deref(), Some("a"));
}

#[test]
fn the_same_command_goes_on_wherever_it_was_interrupted() {
    let (b, high) = (Some("b"), FIRST + GAP + 7);
    // The states of the old and of the new store that an interruption leaves.
    for (old, new) in [
        // The new store has its term, the old one is not marked.
        ((FIRST, None), (Some(high), None)),
        // The old store is marked; the new one is lost, or has an older term.
        ((FIRST, b), (None, None)),
        ((FIRST, b), (Some(3), None)),
        // On the way back: both are marked.
        ((FIRST, b), (Some(3), Some("a"))),
        ((FIRST, b), (Some(high), Some("a"))),
        // It is to go back to a store that is marked, and nothing was written yet.
        ((FIRST, None), (Some(3), Some("a"))),
    ] {
        let stores = Stores::new();
        stores.write("a", Some(old.0), old.1);
        if let (Some(term), to) = new {
            stores.write("b", Some(term), to);
        }
        stores.moves("a", "b", &[]);
        assert_eq!(stores.read("a").1.as_deref(), b, "{old:?} {new:?}");
        let (term, moved_to) = stores.read("b");
        assert!(term >= Some(FIRST + GAP) && moved_to.is_none(), "{old:?} {new:?}: {term:?}");
        assert!(term >= new.0, "{old:?} {new:?}: {term:?}");
    }
}

#[test]
fn an_election_is_taken_back_with_a_term_above_all_that_the_new_store_had() {
    let stores = Stores::new();
    stores.moves("a", "b", &[]);
    let (_, high) = (stores.read("b"), FIRST + 3 * GAP);
    stores.write("b", Some(high), None);
    stores.moves("a", "b", &["--undo"]);
    assert!(stores.read("a").0 >= Some(high + GAP) && stores.read("a").1.is_none());
    assert_eq!(stores.read("b").1.as_deref(), Some("a"), "nobody bids there any more");
    let ran = stores.migrate("a", "b", &["--undo"]);
    assert!(ran.code == 0 && ran.out.contains("nothing to undo"), "{}{}", ran.out, ran.err);
    // The new store is lost, or cannot be read.
    stores.moves("a", "c", &[]);
    stores.refuses("a", "b", &["--undo"], 1, "has moved from");
    let last = stores.read("a").0.unwrap();
    fs::write(stores.file("c"), "not a record").unwrap();
    stores.refuses("a", "c", &["--undo"], 1, "add --force");
    assert_eq!(stores.read("a").1.as_deref(), Some("c"));
    stores.moves("a", "c", &["--undo", "--force"]);
    assert!(stores.read("a").0 >= Some(last + 2 * GAP) && stores.read("a").1.is_none());
}

#[test]
fn what_cannot_be_moved_is_left_as_it_is() {
    let stores = Stores::new();
    stores.refuses("a", "a", &[], 2, "two different stores");
    std::os::unix::fs::symlink(stores.0.path(), stores.0.path().join("link")).unwrap();
    stores.refuses("a", "link/a", &[], 1, "one and the same lease");
    stores.refuses("b", "c", &[], 1, "there is nothing to move");
    stores.refuses("a", "b", &["--store", "memory:"], 2, "--store none");
    stores.refuses("a", "b", &["--force"], 2, "--undo");
    fs::create_dir(stores.0.path().join("b")).unwrap();
    fs::write(stores.file("b"), "not a record").unwrap();
    stores.refuses("a", "b", &[], 1, "was not written by Tenure");
    stores.write("d", Some((1 << 53) - GAP), None);
    stores.refuses("d", "c", &[], 1, "none can follow it");
    for (name, term) in [("a", stores.read("a").0), ("d", stores.read("d").0)] {
        assert!(term.is_some() && stores.read(name).1.is_none(), "{name}");
    }
    assert_eq!(stores.read("c"), (None, None));
    // A leader of either store.
    let leader = stores.candidate("a");
    until(BOUND, "it leads", || leader.is_leader().then_some(()));
    stores.refuses("a", "c", &[], 1, "is held by a, in term");
    stores.write("e", Some(5), None);
    stores.refuses("e", "a", &[], 1, "is held by a, in term");
    assert!(leader.is_leader() && stores.read("e").1.is_none());
}
