//! The `file:` store in an invalid directory, or with a lock that another process holds: each call
//! returns a clear error, and succeeds once the cause is fixed.

use testkit::processes::{file_child, process};
use testkit::stores::file_place;

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use file_place::{Place, assert_misplaced, each_call, fresh_bid, lead, named};
use tenure::clock;
use tenure::config::FileSettings;
use tenure::lease::{Cause, StoreError};
use tenure::store::LeaseStore;
use tenure::store::file::FileStore;

#[tokio::test]
async fn a_missing_directory_is_created_private_once_its_parent_exists() {
    let place = Place::missing();
    let below = place.directory.join("below");
    let store = FileStore::open(&named(&below));
    let errors = each_call(&store).await;
    assert_eq!(errors.len(), 6, "{errors:?}");
    assert_misplaced(&store, &below, "create it").await;
    fs::create_dir(&place.directory).unwrap();
    assert!(store.read().await.unwrap().free);
    assert!(!below.exists(), "a read makes nothing");
    lead(&store).await;
    assert_eq!(fs::metadata(&below).unwrap().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn the_default_directory_must_be_private() {
    let place = Place::missing();
    let settings = FileSettings { is_private: true, ..named(&place.directory) };
    let store = FileStore::open(&settings);
    let (bid, _) = lead(&store).await;
    assert_eq!(fs::metadata(&place.directory).unwrap().mode() & 0o777, 0o700);
    place.chmod(0o755);
    assert_misplaced(&store, &place.directory, "set another --store").await;
    place.chmod(0o700);
    store.renew(&bid).await.unwrap();
}

#[tokio::test]
async fn a_world_writable_directory_is_refused_unless_it_is_sticky() {
    let place = Place::new();
    let store = place.store();
    place.chmod(0o777);
    assert_misplaced(&store, &place.directory, "chmod o-w").await;
    assert!(!place.lock().exists());
    place.chmod(0o1777);
    lead(&store).await;
}

#[tokio::test]
async fn a_directory_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give a directory to another user; the unit tests of the store cover the
        // rest.
        return;
    }
    let place = Place::new();
    let store = place.store();
    chown(&place.directory, Some(65534), None).unwrap();
    assert_misplaced(&store, &place.directory, "chown").await;
    chown(&place.directory, Some(0), None).unwrap();
    let (bid, _) = lead(&store).await;
    for file in [place.record(), place.lock()] {
        chown(&file, Some(65534), None).unwrap();
        let error = store.renew(&bid).await.unwrap_err();
        assert!(error.to_string().contains("is owned by uid 65534"), "{error}");
        chown(&file, Some(0), None).unwrap();
    }
}

#[tokio::test]
async fn a_symlink_as_the_directory_is_refused() {
    let (place, other) = (Place::missing(), Place::new());
    symlink(&other.directory, &place.directory).unwrap();
    assert_misplaced(&place.store(), &place.directory, "the directory itself").await;
    let slashed = PathBuf::from(format!("{}/", place.directory.display()));
    assert_misplaced(&FileStore::open(&named(&slashed)), &place.directory, "itself").await;
    fs::remove_file(&place.directory).unwrap();
    lead(&place.store()).await;
}

#[tokio::test]
async fn a_symlink_as_the_lock_is_refused() {
    let (place, other) = (Place::new(), Place::new());
    symlink(other.directory.join("made"), place.lock()).unwrap();
    let store = place.store();
    let outcome = store.acquire(&fresh_bid(&store).await).await;
    let words = outcome.unwrap_err().to_string();
    assert!(words.contains(place.lock().to_str().unwrap()), "{words}");
    assert!(!other.directory.join("made").exists() && !place.record().exists());
}

#[tokio::test]
async fn a_filesystem_that_is_not_known_to_be_local_is_refused_by_name() {
    for (directory, name) in [("/proc/tty", "proc"), ("/sys/kernel", "sysfs")] {
        let store = FileStore::open(&named(Path::new(directory)));
        assert_misplaced(&store, Path::new(directory), "ext, xfs, btrfs").await;
        let words = store.read().await.unwrap_err().to_string();
        assert!(words.contains(name), "{words}");
    }
}

#[tokio::test]
async fn a_lock_that_another_process_keeps_is_waited_for_50_ms_and_no_longer() {
    let place = Place::new();
    let store = place.store();
    let (bid, _) = lead(&store).await;
    let before = fs::read(place.record()).unwrap();
    let mut other = file_child::start("lock", &place.directory);
    let bound = Duration::from_secs(20);
    process::until(bound, "it is locked", || {
        file_child::has_reported(&other, "locked").then_some(())
    });
    let snapshot = store.read().await.expect("a read needs no lock");
    assert!(snapshot.record.term.is_some());
    let calls = async {
        [
            store.acquire(&bid).await.map(|_| ()),
            store.write_term(&bid, 9).await.map(|_| ()),
            store.renew(&bid).await.map(|_| ()),
            store.release(&bid).await,
        ]
    };
    let began = clock::now();
    let outcomes = tokio::time::timeout(bound, calls).await.expect("no call waits for long");
    let waited = began.elapsed_max(clock::now());
    assert!(waited >= 4 * Duration::from_millis(50), "{waited:?}");
    for outcome in outcomes {
        let Err(StoreError::Unknown(failure)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.cause, Cause::Unavailable, "{failure}");
        assert!(failure.message.contains(place.lock().to_str().unwrap()), "{failure}");
    }
    assert_eq!(fs::read(place.record()).unwrap(), before);
    other.kill();
    store.acquire(&bid).await.expect("a lock ends with its process");
}
