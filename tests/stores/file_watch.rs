//! The watch of `file:`: which changes of the directory wake a standby, and which do not.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::config::FileSettings;
use tenure::lease::{Bid, Candidate, LeaseId, Nonce, Successor};
use tenure::store::LeaseStore;
use tenure::store::file::FileStore;
use tokio::time::timeout;

/// How long a standby must stay asleep to count as not woken.
const QUIET: Duration = Duration::from_millis(400);

/// A bound for what happens at once.
const SOON: Duration = Duration::from_secs(20);

fn store(directory: &Path) -> Arc<FileStore> {
    let (directory, election) = (directory.to_owned(), "orders".to_owned());
    Arc::new(FileStore::open(&FileSettings { directory, election, is_private: false }))
}

async fn bid(store: &FileStore, number: u128) -> Bid {
    Bid {
        lease: LeaseId::from_random(number),
        nonce: Nonce(number),
        candidate: Arc::new(Candidate {
            identity: "a".into(),
            instance: number.to_string(),
            address: None,
            peer: None,
        }),
        lease_duration: Duration::from_secs(15),
        seen: store.read().await.expect("read").version,
    }
}

/// Waits until the store has told of everything that has happened so far.
async fn settled(watcher: &FileStore) {
    timeout(SOON, watcher.changed()).await.expect("the first look is a reason to read");
}

/// Asserts that `change` wakes a watcher that has seen everything before it.
async fn wakes(watcher: &Arc<FileStore>, change: impl AsyncFnOnce()) {
    let waiting = Arc::clone(watcher);
    let woken = tokio::spawn(async move { waiting.changed().await });
    change().await;
    timeout(SOON, woken).await.expect("woken").expect("no panic");
}

#[tokio::test]
async fn each_change_but_a_renewal_wakes_a_standby() {
    let directory = TempDir::new().expect("a directory");
    let (holder, watcher) = (store(directory.path()), store(directory.path()));
    settled(&watcher).await;
    let a = bid(&holder, 1).await;
    wakes(&watcher, async || _ = holder.acquire(&a).await.expect("granted")).await;
    wakes(&watcher, async || _ = holder.write_term(&a, 1).await.expect("written")).await;
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    wakes(&watcher, async || holder.set_successor(&a, &successor).await.expect("set")).await;
    for _ in 0..3 {
        holder.renew(&a).await.expect("renewed");
        assert!(timeout(QUIET, watcher.changed()).await.is_err(), "a renewal is no news");
    }
    wakes(&watcher, async || holder.release(&a).await.expect("released")).await;
    wakes(&watcher, async || {
        fs::remove_file(directory.path().join("orders.json")).expect("deleted");
    })
    .await;
}

#[tokio::test]
async fn a_change_between_two_waits_is_not_missed() {
    let directory = TempDir::new().expect("a directory");
    let (holder, watcher) = (store(directory.path()), store(directory.path()));
    settled(&watcher).await;
    let a = bid(&holder, 1).await;
    holder.acquire(&a).await.expect("granted");
    timeout(SOON, watcher.changed()).await.expect("woken");
}

#[tokio::test]
async fn a_directory_that_is_made_later_or_replaced_is_watched() {
    let above = TempDir::new().expect("a directory");
    let directory = above.path().join("leases");
    let (holder, watcher) = (store(&directory), store(&directory));
    let a = bid(&holder, 1).await;
    wakes(&watcher, async || _ = holder.acquire(&a).await.expect("granted")).await;
    wakes(&watcher, async || {
        fs::rename(&directory, above.path().join("old")).expect("moved");
        let b = bid(&holder, 2).await;
        holder.acquire(&b).await.expect("granted in a new directory");
    })
    .await;
}
