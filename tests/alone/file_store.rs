//! Behavior specific to the `file:` store: foreign content in place of the record, records of
//! another boot, and calls during which time passes.

use testkit::stores::file_place;

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use file_place::{LEASE, Place, assert_foreign, bid, fresh_bid, lead, named};
use proptest::prelude::*;
use rustix::fs::{FileType, Mode, mknodat};
use tenure::clock::{self, Moment};
use tenure::lease::{StoreError, Version};
use tenure::store::file::FileStore;
use tenure::store::{LeaseAdmin, LeaseStore};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

#[tokio::test]
async fn a_record_cut_short_anywhere_is_refused_and_left_as_it_is() {
    let place = Place::new();
    lead(&place.store()).await;
    let whole = fs::read(place.record()).unwrap();
    for length in (0..whole.len() - 1).step_by(7) {
        fs::write(place.record(), &whole[..length]).unwrap();
        assert_foreign(&place).await;
        assert_eq!(fs::read(place.record()).unwrap(), whole[..length]);
    }
}

#[tokio::test]
async fn a_record_of_a_newer_format_is_refused_as_such_and_left_as_it_is() {
    let place = Place::new();
    lead(&place.store()).await;
    let newer = fs::read_to_string(place.record()).unwrap();
    let newer = newer.replace("\"tenure\": 1", "\"tenure\": 2, \"more\": []");
    fs::write(place.record(), &newer).unwrap();
    assert_foreign(&place).await;
    assert_eq!(fs::read_to_string(place.record()).unwrap(), newer);
    let words = place.store().read().await.unwrap_err().to_string();
    assert!(words.contains("this version supports formats up to 1"), "{words}");
}

#[tokio::test]
async fn a_record_over_the_size_limit_is_refused() {
    let place = Place::new();
    lead(&place.store()).await;
    let mut long = fs::read(place.record()).unwrap();
    long.resize(1 << 20, b' ');
    fs::write(place.record(), &long).unwrap();
    assert_foreign(&place).await;
    assert_eq!(fs::read(place.record()).unwrap(), long);
}

#[tokio::test]
async fn a_symlink_as_the_record_is_never_followed() {
    let (place, other) = (Place::new(), Place::new());
    lead(&other.store()).await;
    let before = fs::read(other.record()).unwrap();
    symlink(other.record(), place.record()).unwrap();
    assert_foreign(&place).await;
    assert!(fs::symlink_metadata(place.record()).unwrap().is_symlink());
    assert_eq!(fs::read(other.record()).unwrap(), before);
}

#[tokio::test]
async fn a_record_that_is_not_a_regular_file_is_refused_without_waiting() {
    let place = Place::new();
    fs::create_dir(place.record()).unwrap();
    assert_foreign(&place).await;
    assert!(place.record().is_dir());

    let place = Place::new();
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(rustix::fs::CWD, place.record(), FileType::Fifo, mode, 0).unwrap();
    tokio::time::timeout(Duration::from_secs(20), assert_foreign(&place)).await.expect("no hang");
}

#[tokio::test]
async fn a_foreign_record_that_is_moved_away_is_forgotten() {
    let place = Place::new();
    fs::write(place.record(), "something else").unwrap();
    let store = place.store();
    assert_foreign(&place).await;
    fs::rename(place.record(), place.directory.join("elsewhere")).unwrap();
    lead(&store).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_record_of_arbitrary_bytes_is_refused_and_kept(
        bytes in prop::collection::vec(any::<u8>(), 0..300)
    ) {
        let place = Place::new();
        fs::write(place.record(), &bytes).unwrap();
        block_on(assert_foreign(&place));
        prop_assert_eq!(fs::read(place.record()).unwrap(), bytes);
    }

    #[test]
    fn a_record_with_a_changed_byte_is_read_or_refused_and_kept(
        (at, byte) in (any::<prop::sample::Index>(), any::<u8>())
    ) {
        let place = Place::new();
        block_on(async {
            let store = place.store();
            lead(&store).await;
            let mut bytes = fs::read(place.record()).unwrap();
            *at.get_mut(&mut bytes) = byte;
            fs::write(place.record(), &bytes).unwrap();
            match store.read().await {
                Ok(_) | Err(StoreError::Foreign(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
            assert_eq!(fs::read(place.record()).unwrap(), bytes);
        });
    }
}

/// Changes the boot id of the record, and moves its times ahead by so much.
fn move_to_another_boot(place: &Place, ahead: Duration) {
    let bytes = fs::read(place.record()).unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let lease = &mut record["lease"];
    assert_eq!(lease["boot_id"], clock::boot_id().unwrap());
    lease["boot_id"] = "00000000-0000-4000-8000-000000000000".into();
    for name in ["from_boottime_ns", "until_boottime_ns"] {
        let reading = lease[name].as_u64().unwrap();
        lease[name] = (reading + u64::try_from(ahead.as_nanos()).unwrap()).into();
    }
    fs::write(place.record(), serde_json::to_vec(&record).unwrap()).unwrap();
}

#[tokio::test]
async fn a_lease_of_another_boot_is_over_and_its_term_is_kept() {
    let place = Place::new();
    let store = place.store();
    let (first, term) = lead(&store).await;
    assert!(!store.read().await.unwrap().free);
    move_to_another_boot(&place, Duration::from_secs(3600));

    let snapshot = store.read().await.unwrap();
    assert!(snapshot.free);
    assert_eq!(snapshot.record.term, Some(term));
    for refused in [store.renew(&first).await.map(drop), store.release(&first).await] {
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
    let (_, next) = lead(&store).await;
    assert_eq!(next, term + 1);
}

#[tokio::test]
async fn another_boot_id_on_the_same_clock_frees_nothing() {
    let place = Place::new();
    let store = place.store();
    lead(&store).await;
    move_to_another_boot(&place, Duration::ZERO);
    assert!(!store.read().await.unwrap().free, "containers may have boot ids of their own");
}

#[tokio::test]
async fn the_files_are_for_their_owner_alone_and_the_lock_file_stays_the_same() {
    let place = Place::new();
    let store = place.store();
    let mut inode = None;
    for _ in 0..5 {
        let (bid, _) = lead(&store).await;
        store.renew(&bid).await.unwrap();
        store.release(&bid).await.unwrap();
        assert_eq!(fs::metadata(place.record()).unwrap().mode() & 0o777, 0o600);
        let lock = fs::symlink_metadata(place.lock()).unwrap();
        assert_eq!(lock.mode() & 0o777, 0o600);
        assert_eq!(*inode.get_or_insert(lock.ino()), lock.ino());
    }
    store.examine().await;
    let mut left: Vec<_> =
        fs::read_dir(&place.directory).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["orders.json", "orders.lock"]);
}

#[tokio::test]
async fn a_bid_for_a_record_that_has_changed_since_is_refused() {
    let place = Place::new();
    let store = place.store();
    let late = fresh_bid(&store).await;
    let (bid, _) = lead(&store).await;
    store.release(&bid).await.unwrap();
    assert!(store.read().await.unwrap().free);
    let outcome = store.acquire(&late).await;
    assert!(matches!(outcome, Err(StoreError::Refused(_))), "{outcome:?}");
    assert!(store.read().await.unwrap().free);
}

/// Returns a clock with these readings, one per call; the last one repeats.
fn readings(seconds: &'static [u64]) -> impl Fn() -> Moment + Send + Sync {
    let left = Mutex::new(seconds.iter());
    let last = Mutex::new(0);
    move || {
        let mut last = last.lock().expect("no panic");
        if let Some(next) = left.lock().expect("no panic").next() {
            *last = *next;
        }
        let boot = Duration::from_secs(*last);
        Moment { boot, raw: Duration::ZERO, wall: Duration::ZERO }
    }
}

/// Returns whether the lease is free at this second.
async fn free_at(place: &Place, second: &'static [u64]) -> bool {
    let store = FileStore::with_clock(&named(&place.directory), readings(second));
    store.read().await.expect("a read").free
}

#[tokio::test]
async fn a_process_stopped_during_a_write_dates_it_from_its_request() {
    let place = Place::new();
    let bid = bid(Version("0".into()), Duration::from_secs(15));
    // It begins at 100 s, and gets the lock at 110 s.
    let store = FileStore::with_clock(&named(&place.directory), readings(&[100, 110]));
    store.acquire(&bid).await.unwrap();
    assert!(!free_at(&place, &[114]).await);
    assert!(free_at(&place, &[115]).await, "it counts from before the lock was tried");
}

#[tokio::test]
async fn a_process_stopped_under_the_lock_for_longer_than_its_lease_writes_nothing() {
    let place = Place::new();
    let bid = bid(Version("0".into()), Duration::from_secs(15));
    let store = FileStore::with_clock(&named(&place.directory), readings(&[100, 100, 115]));
    let outcome = store.acquire(&bid).await;
    assert!(matches!(outcome, Err(StoreError::Unknown(_))), "{outcome:?}");
    assert!(!place.record().exists());
}

#[tokio::test]
async fn a_renewal_that_lands_late_does_not_shorten_a_newer_one() {
    let place = Place::new();
    let bid = bid(Version("0".into()), Duration::from_secs(15));
    let at = |seconds| FileStore::with_clock(&named(&place.directory), readings(seconds));
    at(&[100]).acquire(&bid).await.unwrap();
    at(&[109]).renew(&bid).await.unwrap();
    at(&[105, 110]).renew(&bid).await.unwrap();
    assert!(!free_at(&place, &[123]).await);
}

#[tokio::test]
async fn a_call_that_timed_out_writes_nothing_when_it_continues() {
    let place = Place::new();
    let (has_lock, mut stopped) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let calls = AtomicU64::new(0);
    let store = FileStore::with_clock(&named(&place.directory), move || {
        // The first reading is at the start of the call, the second under the lock.
        if calls.fetch_add(1, Ordering::Relaxed) == 1 {
            let _ = has_lock.send(());
            let _ = released.lock().unwrap().recv();
        }
        clock::now()
    });
    let lost = bid(Version("0".into()), Duration::from_secs(15));
    tokio::select! {
        outcome = store.acquire(&lost) => panic!("it is stopped: {outcome:?}"),
        it = stopped.recv() => it.unwrap(),
    }
    go_on.send(()).unwrap();

    let other = place.store();
    let next = bid(Version("0".into()), LEASE);
    let granted = async {
        loop {
            match other.acquire(&next).await {
                Err(StoreError::Unknown(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                outcome => break outcome,
            }
        }
    };
    let granted = tokio::time::timeout(Duration::from_secs(20), granted).await.unwrap();
    assert!(granted.is_ok(), "{granted:?}");
}
