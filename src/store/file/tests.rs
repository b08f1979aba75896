use std::sync::atomic::AtomicU64;

use rustix::fs::fsync;
use rustix::io::Errno;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::lease::fuzzing::bid;
use crate::lease::{LeaseId, Nonce};
use crate::store::MOST_LISTED;

/// Whether the disk fails to sync, and how often it has synced.
static FAILS: AtomicBool = AtomicBool::new(false);
static SYNCED: AtomicBool = AtomicBool::new(false);

fn named(directory: &std::path::Path, election: &str) -> FileSettings {
    FileSettings {
        directory: directory.to_owned(),
        election: election.to_owned(),
        is_private: false,
    }
}

#[tokio::test]
async fn a_misspelt_election_is_found_beside_the_others() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("leases");
    let missing = FileStore::open(&named(&directory, "oders"));
    let Presence::Missing { missing: words, others: None } = missing.presence().await.unwrap()
    else {
        panic!("there is no directory yet");
    };
    assert!(words.contains("leases does not exist"), "{words}");
    for number in (0..MOST_LISTED).rev() {
        let store = FileStore::open(&named(&directory, &format!("e{number:02}")));
        let made = store.create(1).await.unwrap();
        let is_first = number == MOST_LISTED - 1;
        assert_eq!(made.len(), if is_first { 2 } else { 1 }, "{made:?}");
        assert_eq!(made[0].contains("the directory"), is_first, "{made:?}");
        assert_eq!(store.presence().await.unwrap(), Presence::Exists);
    }
    std::fs::write(directory.join("notes.txt"), "no election").unwrap();
    FileStore::open(&named(&directory, "f")).create(1).await.unwrap();
    let found = missing.presence().await.unwrap();
    let Presence::Missing { missing, others: Some(others) } = found else { panic!("{found:?}") };
    assert!(missing.contains("no election \"oders\""), "{missing}");
    let listed: Vec<_> = (0..MOST_LISTED).map(|it| format!("e{it:02}")).collect();
    assert_eq!(others, listed, "sorted, and no more than that");
}

/// A store whose clock a test sets, in milliseconds.
struct Timed {
    store: FileStore,
    clock: Arc<AtomicU64>,
    directory: TempDir,
}

impl Timed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(AtomicU64::new(100_000));
        let shown = Arc::clone(&clock);
        let store = FileStore::with_clock(&named(directory.path(), "orders"), move || {
            let boot = Duration::from_millis(shown.load(Ordering::Relaxed));
            Moment { boot, raw: boot, wall: boot }
        });
        Self { store, clock, directory }
    }

    fn at(&self, seconds: u64) {
        self.clock.store(seconds * 1_000, Ordering::Relaxed);
    }

    /// Returns whether the lease is free, and the seconds that are left of it.
    async fn left(&self) -> (bool, Option<u64>) {
        let Snapshot { free, ends_in, .. } = self.store.read().await.unwrap();
        (free, ends_in.map(|it| it.as_secs()))
    }

    /// Acquires the lease, as it is read now.
    async fn acquired(&self, number: u128) -> Bid {
        let bid = self.bid(number).await;
        self.store.acquire(&bid).await.unwrap();
        bid
    }

    async fn bid(&self, number: u128) -> Bid {
        let seen = self.store.read().await.unwrap().version;
        Bid { lease: LeaseId::from_random(number), nonce: Nonce(number), seen, ..bid() }
    }
}

fn is_refused<T>(outcome: Result<T, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::Refused(_)))
}

fn successor() -> Successor {
    Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(10) }
}

#[tokio::test]
async fn a_lease_ends_at_its_deadline_which_only_its_holder_moves() {
    let it = Timed::new();
    assert_eq!(it.left().await, (true, None));
    let a = it.acquired(1).await;
    it.store.acquire(&a).await.expect("the same bid again");
    it.at(110);
    let b = it.bid(2).await;
    assert!(is_refused(it.store.acquire(&b).await));
    assert!(is_refused(it.store.renew(&b).await));
    assert!(is_refused(it.store.release(&b).await));
    assert_eq!(it.left().await, (false, Some(5)));
    it.store.renew(&a).await.unwrap();
    assert_eq!(it.left().await, (false, Some(15)));
    it.at(125);
    assert_eq!(it.left().await, (true, Some(0)));
    assert!(is_refused(it.store.acquire(&b).await), "the record has changed since");
    let b = it.acquired(2).await;
    assert!(is_refused(it.store.renew(&a).await));
    it.store.release(&b).await.unwrap();
    assert_eq!(it.left().await, (true, None));
}

#[tokio::test]
async fn only_the_holder_of_a_running_lease_writes_the_record() {
    let it = Timed::new();
    let (a, b) = (it.acquired(1).await, it.bid(2).await);
    assert!(is_refused(it.store.set_successor(&a, &successor()).await), "it has no term yet");
    for (holder, is_holder) in [(&b, false), (&a, true)] {
        assert_eq!(is_refused(it.store.write_term(holder, 7).await), !is_holder);
        assert_eq!(is_refused(it.store.set_successor(holder, &successor()).await), !is_holder);
    }
    let written = Record {
        term: Some(7),
        holder: Some(Arc::clone(&a.candidate)),
        nonce: Some(a.nonce),
        successor: Some(successor()),
    };
    assert_eq!(it.store.read().await.unwrap().record, written);
    it.at(115);
    assert!(is_refused(it.store.write_term(&a, 9).await));
    assert!(is_refused(it.store.set_successor(&a, &successor()).await));
    it.acquired(2).await;
    assert!(is_refused(it.store.write_term(&a, 9).await));
    assert_eq!(it.store.read().await.unwrap().record, written);
}

#[tokio::test]
async fn a_broken_lease_runs_out_without_renewals_unless_it_is_freed_at_once() {
    let it = Timed::new();
    assert_eq!(it.store.break_lease(true).await, Ok(BreakOutcome::NotHeld));
    let a = it.acquired(1).await;
    it.store.write_term(&a, 7).await.unwrap();
    let record = it.store.read().await.unwrap().record;
    let held = |free_in| {
        let free_in = Duration::from_secs(free_in);
        Ok(BreakOutcome::Held { record: record.clone(), free_in })
    };
    it.at(110);
    assert_eq!(it.store.break_lease(false).await, held(5));
    let version = it.store.read().await.unwrap().version;
    assert_eq!(it.store.break_lease(false).await, held(5));
    assert_eq!(it.store.read().await.unwrap().version, version, "nothing is written again");
    assert!(is_refused(it.store.renew(&a).await));
    assert!(is_refused(it.store.acquire(&a).await));
    assert!(is_refused(it.store.write_term(&a, 0).await));
    it.at(115);
    assert_eq!(it.store.break_lease(false).await, Ok(BreakOutcome::NotHeld));
    // The same lease, acquired as it is read now, is not being broken any more.
    let a = it.acquired(1).await;
    it.store.renew(&a).await.unwrap();
    assert_eq!(it.store.break_lease(true).await, held(0));
    assert_eq!(it.left().await, (true, None));
}

#[tokio::test]
async fn a_first_term_is_on_the_disk_before_it_is_reported() {
    let mut it = Timed::new();
    Arc::get_mut(&mut it.store.place).unwrap().sync = |_| Err(Errno::IO);
    for _ in 0..2 {
        let failed = it.store.create(5).await.unwrap_err();
        assert!(failed.to_string().contains("synced"), "{failed}");
    }
    Arc::get_mut(&mut it.store.place).unwrap().sync = |_| Ok(());
    assert_eq!(it.store.create(9).await, Ok(Vec::new()), "it was written before");
    let record = Record { term: Some(5), ..Record::default() };
    assert_eq!(it.store.read().await.unwrap().record, record);
}

#[tokio::test]
async fn an_attempt_that_its_caller_dropped_writes_nothing() {
    let it = Timed::new();
    let bid = it.bid(1).await;
    let place = Arc::clone(&it.store.place);
    let directory = place.open().unwrap().unwrap();
    let lock = directory.try_lock().unwrap().unwrap();
    let acquiring = it.store.acquire(&bid);
    let _ = futures::poll!(acquiring);
    drop(lock);
    let all = it.store.attempts.acquire_many(MOST_ATTEMPTS as u32).await.unwrap();
    drop(all);
    assert_eq!(directory.read().unwrap(), None);
}

/// An attempt that its caller gives up at some point does nothing from then on.
#[tokio::test]
async fn an_attempt_that_was_given_up_takes_no_lock_and_replaces_no_record() {
    let it = Timed::new();
    let (place, clock) = (Arc::clone(&it.store.place), Arc::clone(&it.store.clock));
    let given_up = Arc::<AtomicBool>::default();
    let began = clock().boot;
    let attempt = Attempt { place, clock, began, given_up: Arc::clone(&given_up) };
    let directory = attempt.place.open().unwrap().unwrap();
    let locked = attempt.lock(&directory).unwrap();
    given_up.store(true, Ordering::Relaxed);
    let cancelled = |outcome: Result<(), FileError>| {
        assert_eq!(outcome.unwrap_err().detail, "the attempt was cancelled and had no effect",);
    };
    cancelled(locked.write(Stored::first(), true, None));
    assert_eq!(directory.read().unwrap(), None);
    cancelled(attempt.take_lock(&directory).map(drop));
    drop(locked);
    cancelled(attempt.lock(&directory).map(drop));
    directory.try_lock().unwrap().expect("it is not locked");
}

#[tokio::test]
async fn a_grant_that_takes_as_long_as_its_lease_is_not_written() {
    for (milliseconds, written) in [(14_999, true), (15_000, false)] {
        let directory = tempfile::tempdir().unwrap();
        let readings = AtomicU64::new(0);
        // The first reading is of the request.
        let store = FileStore::with_clock(&named(directory.path(), "orders"), move || {
            let is_first = readings.fetch_add(1, Ordering::Relaxed) == 0;
            let passed = if is_first { 0 } else { milliseconds };
            let boot = Duration::from_secs(100) + Duration::from_millis(passed);
            Moment { boot, raw: boot, wall: boot }
        });
        let acquired = store.acquire(&bid()).await;
        assert_eq!(acquired.is_ok(), written, "{acquired:?}");
        assert_eq!(directory.path().join("orders.json").exists(), written);
    }
}

#[tokio::test]
async fn each_change_is_news_and_names_who_holds_the_lease() {
    let it = Timed::new();
    let other = FileStore::open(&named(it.directory.path(), "orders"));
    let noticed = async || match timeout(Duration::from_secs(30), other.changed()).await {
        Ok(Change::News { held_by }) => held_by,
        change => panic!("{change:?}"),
    };
    assert_eq!(noticed().await, None, "the first read finds a free lease");
    let a = it.acquired(1).await;
    assert_eq!(noticed().await, None, "it has no term yet");
    it.store.write_term(&a, 7).await.unwrap();
    assert_eq!(noticed().await, Some(a.nonce));
    it.at(101);
    it.store.renew(&a).await.unwrap();
    it.store.break_lease(false).await.unwrap();
    assert_eq!(noticed().await, None, "it is being broken");
    it.store.break_lease(true).await.unwrap();
    assert_eq!(noticed().await, None);
}

/// Each attempt reads the clock once at least.
#[tokio::test(start_paused = true)]
async fn a_watch_pauses_while_there_is_no_directory_and_begins_anew_when_there_is_one() {
    let home = tempfile::tempdir().unwrap();
    let directory = home.path().join("leases");
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&attempts);
    let store = FileStore::with_clock(&named(&directory, "orders"), move || {
        counted.fetch_add(1, Ordering::Relaxed);
        clock::now()
    });
    let other = FileStore::open(&named(&directory, "orders"));
    other.create(1).await.unwrap();
    assert_eq!(store.watch().await, None);
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(store.watch().await, None, "the record is gone");
    let before = attempts.load(Ordering::Relaxed);
    assert!(timeout(Duration::from_secs(10), store.watch()).await.is_err());
    let made = attempts.load(Ordering::Relaxed) - before;
    assert!((1..20).contains(&made), "{made}");
    other.create(1).await.unwrap();
    assert_eq!(timeout(Duration::from_secs(60), store.watch()).await, Ok(None));
}

#[tokio::test]
async fn a_term_whose_sync_has_failed_is_synced_before_it_is_returned() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = FileStore::open(&named(directory.path(), "orders"));
    Arc::get_mut(&mut store.place).unwrap().sync = |fd| {
        if FAILS.load(Ordering::Relaxed) {
            return Err(Errno::IO);
        }
        SYNCED.store(true, Ordering::Relaxed);
        fsync(fd)
    };
    let bid = Bid { seen: store.read().await.unwrap().version, ..bid() };
    store.acquire(&bid).await.unwrap();
    FAILS.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let failed = store.write_term(&bid, 1).await.unwrap_err();
        assert!(failed.to_string().contains("synced"), "{failed}");
    }
    SYNCED.store(false, Ordering::Relaxed);
    FAILS.store(false, Ordering::Relaxed);
    assert_eq!(store.write_term(&bid, 1).await.unwrap(), 1);
    assert!(SYNCED.load(Ordering::Relaxed), "the term may be lost in a power failure");
}
