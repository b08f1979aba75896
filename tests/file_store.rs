//! The `file:` store where it differs from others: what can lie in its directory, what the
//! directory can be like, and what it does when time passes in the middle of a call.

#[path = "support/file_child.rs"]
mod file_child;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use file_child::{LEASE, Process, bid, named};
use proptest::prelude::*;
use rustix::fs::{FileType, Mode, mknodat};
use tempfile::TempDir;
use tenure::clock::{self, Moment};
use tenure::config::FileSettings;
use tenure::store::file::FileStore;
use tenure::store::{Bid, Cause, LeaseStore, StoreError, Verdict, Version};

/// A directory for one election.
struct Place {
    _root: TempDir,
    directory: PathBuf,
}

impl Place {
    fn new() -> Self {
        let place = Self::missing();
        fs::create_dir(&place.directory).unwrap();
        place
    }

    fn missing() -> Self {
        let root = tempfile::tempdir().unwrap();
        // Another user must be able to come this far.
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        Self {
            directory: root.path().join("tenure"),
            _root: root,
        }
    }

    fn store(&self) -> FileStore {
        FileStore::open(&named(&self.directory))
    }

    fn record(&self) -> PathBuf {
        self.directory.join("orders.json")
    }

    fn lock(&self) -> PathBuf {
        self.directory.join("orders.lock")
    }

    fn chmod(&self, mode: u32) {
        fs::set_permissions(&self.directory, Permissions::from_mode(mode)).unwrap();
    }
}

async fn fresh_bid(store: &FileStore) -> Bid {
    bid(store.look().await.unwrap().version, LEASE)
}

/// Takes the lease and writes a term.
async fn lead(store: &FileStore) -> (Bid, u64) {
    let bid = fresh_bid(store).await;
    store.acquire(&bid).await.unwrap();
    let term = store.inaugurate(&bid, 7).await.unwrap();
    (bid, term)
}

/// What each call says, but for examine.
async fn each_call(store: &FileStore) -> Vec<(&'static str, StoreError)> {
    let bid = bid(Version("0".into()), LEASE);
    let outcomes = [
        ("look", store.look().await.map(|_| ())),
        ("acquire", store.acquire(&bid).await.map(|_| ())),
        ("inaugurate", store.inaugurate(&bid, 1).await.map(|_| ())),
        ("renew", store.renew(&bid).await),
        ("release", store.release(&bid).await),
        ("create", store.create(1).await.map(|_| ())),
    ];
    let failed = outcomes
        .into_iter()
        .filter_map(|(call, outcome)| Some((call, outcome.err()?)));
    failed.collect()
}

/// Checks that every call refuses the record as foreign, with its name and a remedy.
async fn assert_foreign(place: &Place) {
    let errors = each_call(&place.store()).await;
    assert_eq!(errors.len(), 6, "{errors:?}");
    for (call, error) in errors {
        let words = error.to_string();
        assert!(matches!(error, StoreError::Foreign(_)), "{call}: {error:?}");
        assert!(
            words.contains(place.record().to_str().unwrap()),
            "{call}: {words}"
        );
        assert!(words.contains("move it away"), "{call}: {words}");
    }
}

/// Checks that every call fails by a setting, and says which path and what to do.
async fn assert_misplaced(store: &FileStore, path: &Path, remedy: &str) {
    let errors = each_call(store).await;
    assert_eq!(errors.len(), 6, "{errors:?}");
    for (call, error) in errors {
        let words = error.to_string();
        assert!(matches!(error, StoreError::Unknown(_)), "{call}: {error:?}");
        assert_eq!(error.failure().cause, Cause::Settings, "{call}: {words}");
        assert!(words.contains(path.to_str().unwrap()), "{call}: {words}");
        assert!(words.contains(remedy), "{call}: {words}");
    }
    let findings = store.examine().await;
    let wrong = findings
        .iter()
        .find(|it| it.verdict == Verdict::Wrong)
        .expect("a finding");
    assert!(
        wrong
            .remedy
            .as_deref()
            .is_some_and(|it| it.contains(remedy)),
        "{wrong:?}"
    );
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
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
async fn a_record_of_a_newer_format_is_refused_and_left_as_it_is() {
    let place = Place::new();
    lead(&place.store()).await;
    let newer = fs::read_to_string(place.record())
        .unwrap()
        .replace("\"tenure\": 1", "\"tenure\": 2");
    fs::write(place.record(), &newer).unwrap();
    assert_foreign(&place).await;
    assert_eq!(fs::read_to_string(place.record()).unwrap(), newer);
    let words = place.store().look().await.unwrap_err().to_string();
    assert!(words.contains("format 2"), "{words}");
}

#[tokio::test]
async fn a_record_longer_than_any_is_refused() {
    let place = Place::new();
    lead(&place.store()).await;
    let mut long = fs::read(place.record()).unwrap();
    long.resize(1 << 20, b' ');
    fs::write(place.record(), &long).unwrap();
    assert_foreign(&place).await;
    assert_eq!(fs::read(place.record()).unwrap(), long);
}

#[tokio::test]
async fn a_link_in_the_place_of_the_record_is_never_followed() {
    let (place, other) = (Place::new(), Place::new());
    lead(&other.store()).await;
    let before = fs::read(other.record()).unwrap();
    symlink(other.record(), place.record()).unwrap();
    assert_foreign(&place).await;
    assert!(fs::symlink_metadata(place.record()).unwrap().is_symlink());
    assert_eq!(fs::read(other.record()).unwrap(), before);
}

#[tokio::test]
async fn what_is_no_file_in_the_place_of_the_record_is_refused_and_not_waited_for() {
    let place = Place::new();
    fs::create_dir(place.record()).unwrap();
    assert_foreign(&place).await;
    assert!(place.record().is_dir());

    let place = Place::new();
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(rustix::fs::CWD, place.record(), FileType::Fifo, mode, 0).unwrap();
    tokio::time::timeout(Duration::from_secs(20), assert_foreign(&place))
        .await
        .expect("no hang");
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
    fn whatever_bytes_the_record_has_they_are_refused_and_stay(
        bytes in prop::collection::vec(any::<u8>(), 0..300)
    ) {
        let place = Place::new();
        fs::write(place.record(), &bytes).unwrap();
        block_on(assert_foreign(&place));
        prop_assert_eq!(fs::read(place.record()).unwrap(), bytes);
    }

    #[test]
    fn a_record_with_a_byte_changed_is_read_or_refused_and_stays(
        (at, byte) in (any::<prop::sample::Index>(), any::<u8>())
    ) {
        let place = Place::new();
        block_on(async {
            let store = place.store();
            lead(&store).await;
            let mut bytes = fs::read(place.record()).unwrap();
            *at.get_mut(&mut bytes) = byte;
            fs::write(place.record(), &bytes).unwrap();
            match store.look().await {
                Ok(_) | Err(StoreError::Foreign(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
            assert_eq!(fs::read(place.record()).unwrap(), bytes);
        });
    }
}

#[tokio::test]
async fn a_lease_of_another_boot_is_over_and_its_term_is_kept() {
    let place = Place::new();
    let store = place.store();
    let mut first = fresh_bid(&store).await;
    first.lease_duration = Duration::from_secs(3600);
    store.acquire(&first).await.unwrap();
    let term = store.inaugurate(&first, 7).await.unwrap();
    assert!(!store.look().await.unwrap().free);

    let this_boot = clock::boot_id().unwrap();
    let text = fs::read_to_string(place.record()).unwrap();
    assert!(text.contains(&this_boot), "{text}");
    let other = text.replace(&this_boot, "00000000-0000-4000-8000-000000000000");
    fs::write(place.record(), other).unwrap();

    let sight = store.look().await.unwrap();
    assert!(sight.free);
    assert_eq!(sight.record.term, Some(term));
    for refused in [store.renew(&first).await, store.release(&first).await] {
        assert!(
            matches!(refused, Err(StoreError::Refused(_))),
            "{refused:?}"
        );
    }
    let (_, next) = lead(&store).await;
    assert_eq!(next, term + 1);
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
    let mut left: Vec<_> = fs::read_dir(&place.directory)
        .unwrap()
        .map(|it| it.unwrap().file_name())
        .collect();
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
    assert!(store.look().await.unwrap().free);
    let outcome = store.acquire(&late).await;
    assert!(
        matches!(outcome, Err(StoreError::Refused(_))),
        "{outcome:?}"
    );
    assert!(store.look().await.unwrap().free);
}

#[tokio::test]
async fn a_missing_directory_is_made_for_us_alone_as_soon_as_its_parent_exists() {
    let place = Place::missing();
    let below = place.directory.join("below");
    let store = FileStore::open(&named(&below));
    let errors = each_call(&store).await;
    assert_eq!(errors.len(), 6, "{errors:?}");
    assert_misplaced(&store, &below, "make it").await;
    fs::create_dir(&place.directory).unwrap();
    assert!(store.look().await.unwrap().free);
    assert!(!below.exists(), "a look makes nothing");
    lead(&store).await;
    assert_eq!(fs::metadata(&below).unwrap().mode() & 0o777, 0o700);
}

#[tokio::test]
async fn the_default_directory_must_be_ours_alone() {
    let place = Place::missing();
    let settings = FileSettings {
        is_default: true,
        ..named(&place.directory)
    };
    let store = FileStore::open(&settings);
    let (bid, _) = lead(&store).await;
    assert_eq!(
        fs::metadata(&place.directory).unwrap().mode() & 0o777,
        0o700
    );
    place.chmod(0o755);
    assert_misplaced(&store, &place.directory, "another directory").await;
    place.chmod(0o700);
    store.renew(&bid).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_everybody_may_write_is_refused_until_it_is_sticky() {
    let place = Place::new();
    let store = place.store();
    place.chmod(0o777);
    assert_misplaced(&store, &place.directory, "chmod o-w").await;
    assert!(!place.lock().exists());
    place.chmod(0o1777);
    lead(&store).await;
}

#[tokio::test]
async fn a_directory_of_another_user_is_refused_until_it_is_ours() {
    if !rustix::process::geteuid().is_root() {
        // Nobody else can give a directory away; the table in the store's own tests says the rest.
        return;
    }
    let place = Place::new();
    let store = place.store();
    chown(&place.directory, Some(65534), None).unwrap();
    assert_misplaced(&store, &place.directory, "chown").await;
    chown(&place.directory, Some(0), None).unwrap();
    lead(&store).await;
}

#[tokio::test]
async fn a_link_in_the_place_of_the_directory_is_refused() {
    let (place, other) = (Place::missing(), Place::new());
    symlink(&other.directory, &place.directory).unwrap();
    assert_misplaced(&place.store(), &place.directory, "the directory itself").await;
    let slashed = PathBuf::from(format!("{}/", place.directory.display()));
    assert_misplaced(
        &FileStore::open(&named(&slashed)),
        &place.directory,
        "itself",
    )
    .await;
    fs::remove_file(&place.directory).unwrap();
    lead(&place.store()).await;
}

#[tokio::test]
async fn a_link_in_the_place_of_the_lock_is_refused() {
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
        let words = store.look().await.unwrap_err().to_string();
        assert!(words.contains(name), "{words}");
    }
}

/// This test binary as a user who is not root; itself where we are none.
fn as_somebody(place: &Place) -> Command {
    use std::os::unix::process::CommandExt;
    let this = std::env::current_exe().unwrap();
    if !rustix::process::geteuid().is_root() {
        return Command::new(this);
    }
    // Our own may lie where only root can go.
    let copy = place.directory.with_file_name("test");
    fs::copy(this, &copy).unwrap();
    let mut command = Command::new(copy);
    command.uid(65534).gid(65534).current_dir("/");
    command
}

#[test]
fn a_directory_that_we_may_not_write_is_an_error_until_we_may() {
    let place = Place::new();
    let bids = || Process::of(as_somebody(&place), "bid", &place.directory).line("outcome: ");
    place.chmod(0o555);
    let outcome = bids().unwrap();
    assert!(
        outcome.contains("Unknown") && outcome.contains("Settings"),
        "{outcome}"
    );
    assert!(
        outcome.contains(place.directory.to_str().unwrap()),
        "{outcome}"
    );
    assert!(
        outcome.contains("let our user write in the directory"),
        "{outcome}"
    );
    place.chmod(0o1777);
    assert_eq!(bids().as_deref(), Some("Ok(())"));
}

#[tokio::test]
async fn a_lock_that_another_process_holds_is_not_waited_for() {
    let place = Place::new();
    let store = place.store();
    let (bid, _) = lead(&store).await;
    let before = fs::read(place.record()).unwrap();
    let mut other = Process::start("lock", &place.directory);
    other.line("locked").unwrap();
    let sight = store.look().await.expect("a look needs no lock");
    assert!(sight.record.term.is_some());
    let calls = async {
        [
            store.acquire(&bid).await.map(|_| ()),
            store.inaugurate(&bid, 9).await.map(|_| ()),
            store.renew(&bid).await,
            store.release(&bid).await,
        ]
    };
    let bound = Duration::from_secs(20);
    for outcome in tokio::time::timeout(bound, calls)
        .await
        .expect("nobody waits for the lock")
    {
        let Err(StoreError::Unknown(failure)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(failure.cause, Cause::Unavailable, "{failure}");
        assert!(
            failure.message.contains(place.lock().to_str().unwrap()),
            "{failure}"
        );
    }
    assert_eq!(fs::read(place.record()).unwrap(), before);
    other.kill("");
    store
        .acquire(&bid)
        .await
        .expect("a lock ends with its process");
}

/// A clock that says one reading after the other, and then the last for ever.
fn readings(seconds: &'static [u64]) -> impl Fn() -> Moment + Send + Sync {
    let left = Mutex::new(seconds.iter());
    let last = Mutex::new(0);
    move || {
        let mut last = last.lock().unwrap();
        if let Some(next) = left.lock().unwrap().next() {
            *last = *next;
        }
        let boot = Duration::from_secs(*last);
        Moment {
            boot,
            raw: Duration::ZERO,
            wall: Duration::ZERO,
        }
    }
}

/// Whether the lease is free at a second.
async fn free_at(place: &Place, second: &'static [u64]) -> bool {
    let store = FileStore::with_clock(&named(&place.directory), readings(second));
    store.look().await.unwrap().free
}

#[tokio::test]
async fn a_process_stopped_in_the_middle_writes_what_is_as_old_as_its_request() {
    let place = Place::new();
    let bid = bid(Version("0".into()), Duration::from_secs(15));
    // It asks at 100 s, and has the lock at 110 s.
    let store = FileStore::with_clock(&named(&place.directory), readings(&[100, 110]));
    store.acquire(&bid).await.unwrap();
    assert!(!free_at(&place, &[114]).await);
    assert!(
        free_at(&place, &[115]).await,
        "it counts from before the lock was tried"
    );
}

#[tokio::test]
async fn a_process_stopped_under_the_lock_for_longer_than_its_lease_writes_nothing() {
    let place = Place::new();
    let bid = bid(Version("0".into()), Duration::from_secs(15));
    let store = FileStore::with_clock(&named(&place.directory), readings(&[100, 100, 115]));
    let outcome = store.acquire(&bid).await;
    assert!(
        matches!(outcome, Err(StoreError::Unknown(_))),
        "{outcome:?}"
    );
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
