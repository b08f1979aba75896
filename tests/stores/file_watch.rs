//! The watch of `file:`: which changes of the directory wake a candidate, and which do not; whom it
//! names as the holder; and the lock that a woken candidate waits for.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::clock;
use tenure::config::FileSettings;
use tenure::lease::{Nonce, Successor};
use tenure::store::file::FileStore;
use tenure::store::{LeaseAdmin, LeaseStore};
use testkit::stores::bids::{bid_on, news};
use tokio::time::timeout;

/// How long a standby must stay asleep to count as not woken.
const QUIET: Duration = Duration::from_millis(400);

/// A bound for what happens at once.
const SOON: Duration = Duration::from_secs(20);

fn store(directory: &Path) -> Arc<FileStore> {
    let (directory, election) = (directory.to_owned(), "orders".to_owned());
    Arc::new(FileStore::open(&FileSettings { directory, election, is_private: false }))
}

/// Waits until the store has told of everything that has happened so far.
async fn settled(watcher: &FileStore) {
    timeout(SOON, news(watcher)).await.expect("the first look is a reason to read");
}

/// Asserts that `change` wakes a watcher that has seen everything before it; returns the holder that it
/// is told.
async fn wakes(watcher: &Arc<FileStore>, change: impl AsyncFnOnce()) -> Option<Nonce> {
    let waiting = Arc::clone(watcher);
    let woken = tokio::spawn(async move { news(waiting.as_ref()).await });
    change().await;
    timeout(SOON, woken).await.expect("woken").expect("no panic")
}

#[tokio::test]
async fn each_change_but_a_renewal_wakes_a_standby() {
    let directory = TempDir::new().expect("a directory");
    let (holder, watcher) = (store(directory.path()), store(directory.path()));
    settled(&watcher).await;
    let a = bid_on(&*holder, 1).await;
    let told = wakes(&watcher, async || _ = holder.acquire(&a).await.expect("granted")).await;
    assert_eq!(told, None, "the record does not name it yet");
    let told = wakes(&watcher, async || _ = holder.write_term(&a, 1).await.expect("written")).await;
    assert_eq!(told, Some(a.nonce));
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    let set = async || _ = holder.set_successor(&a, &successor).await.expect("set");
    assert_eq!(wakes(&watcher, set).await, Some(a.nonce));
    for _ in 0..3 {
        holder.renew(&a).await.expect("renewed");
        assert!(timeout(QUIET, news(watcher.as_ref())).await.is_err(), "a renewal is no news");
    }
    let broken = async || _ = holder.break_lease(false).await.expect("broken");
    assert_eq!(wakes(&watcher, broken).await, None, "its holder cannot renew it");
    let released = async || holder.release(&a).await.expect("released");
    assert_eq!(wakes(&watcher, released).await, None);
    let deleted = async || {
        fs::remove_file(directory.path().join("orders.json")).expect("deleted");
    };
    assert_eq!(wakes(&watcher, deleted).await, None);
}

#[tokio::test]
async fn a_lock_is_waited_for_while_another_finishes_its_change() {
    let directory = TempDir::new().expect("a directory");
    let store = store(directory.path());
    let a = bid_on(&*store, 1).await;
    store.acquire(&a).await.expect("granted");
    let lock = fs::File::options().write(true).open(directory.path().join("orders.lock"));
    let lock = lock.expect("it was made by the bid");
    // On a busy machine the other thread may be late.
    for _ in 0..100 {
        lock.lock().expect("locked");
        let renewed = tokio::join!(store.renew(&a), async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            lock.unlock().expect("unlocked");
        });
        if renewed.0.is_ok() {
            return;
        }
    }
    panic!("each renewal failed at a lock that is held for 5 ms");
}

/// Returns a candidate on a directory that renews once in a minute.
fn candidate(directory: &Path) -> tenure::Candidate {
    tenure::Candidate::builder("orders", &format!("file://{}", directory.display()))
        .identity("web-1")
        .lease_duration(Duration::from_secs(300))
        .renew_deadline(Duration::from_secs(200))
        .retry_period(Duration::from_secs(60))
        .request_timeout(Duration::from_secs(10))
        .start()
        .expect("valid settings")
}

#[tokio::test]
async fn a_leader_learns_of_a_loss_before_its_next_renewal() {
    let directory = TempDir::new().expect("a directory");
    let leader = candidate(directory.path());
    let mut changes = leader.changes();
    let mut reach = async |leads: bool| {
        let reached = async {
            while leader.is_leader(clock::now()) != leads {
                changes.next().await;
            }
        };
        timeout(SOON, reached).await.unwrap_or_else(|_| panic!("leads: not {leads}"));
    };
    reach(true).await;
    store(directory.path()).break_lease(false).await.expect("broken");
    reach(false).await;
    leader.resign().await;
}

#[tokio::test]
async fn a_change_between_two_waits_is_not_missed() {
    let directory = TempDir::new().expect("a directory");
    let (holder, watcher) = (store(directory.path()), store(directory.path()));
    settled(&watcher).await;
    let a = bid_on(&*holder, 1).await;
    holder.acquire(&a).await.expect("granted");
    timeout(SOON, news(watcher.as_ref())).await.expect("woken");
}

#[tokio::test]
async fn a_directory_that_is_made_later_or_replaced_is_watched() {
    let above = TempDir::new().expect("a directory");
    let directory = above.path().join("leases");
    let (holder, watcher) = (store(&directory), store(&directory));
    let a = bid_on(&*holder, 1).await;
    wakes(&watcher, async || _ = holder.acquire(&a).await.expect("granted")).await;
    wakes(&watcher, async || {
        fs::rename(&directory, above.path().join("old")).expect("moved");
        let b = bid_on(&*holder, 2).await;
        holder.acquire(&b).await.expect("granted in a new directory");
    })
    .await;
}
