//! A directory for a `file:` store, and assertions about the errors of an invalid one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure::config::FileSettings;
use tenure::lease::{Bid, Candidate, Cause, LeaseId, Nonce, StoreError, Version};
use tenure::store::file::FileStore;
use tenure::store::{LeaseAdmin, LeaseStore, Verdict};
use uuid::Uuid;

/// A lease-duration that no call exceeds, not even on a busy disk.
pub const LEASE: Duration = Duration::from_secs(15);

/// Returns settings for a directory that was named explicitly.
pub fn named(directory: &Path) -> FileSettings {
    FileSettings {
        directory: directory.to_owned(),
        is_private: false,
        election: "orders".to_owned(),
    }
}

/// Returns the bid of a new acquisition, for a version.
pub fn bid(seen: Version, lease_duration: Duration) -> Bid {
    Bid {
        lease: LeaseId::from_random(Uuid::new_v4().as_u128()),
        nonce: Nonce(Uuid::new_v4().as_u128()),
        candidate: Arc::new(Candidate {
            identity: "a".to_owned(),
            instance: std::process::id().to_string(),
            address: None,
            peer: None,
        }),
        lease_duration,
        seen,
        written: None,
    }
}

/// A directory for one election.
pub struct Place {
    _root: TempDir,
    pub directory: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        let place = Self::missing();
        fs::create_dir(&place.directory).unwrap();
        place
    }

    pub fn missing() -> Self {
        let root = tempfile::tempdir().unwrap();
        // Another user must be able to reach the directory.
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        Self { directory: root.path().join("tenure"), _root: root }
    }

    pub fn store(&self) -> FileStore {
        FileStore::open(&named(&self.directory))
    }

    pub fn record(&self) -> PathBuf {
        self.directory.join("orders.json")
    }

    pub fn lock(&self) -> PathBuf {
        self.directory.join("orders.lock")
    }

    pub fn chmod(&self, mode: u32) {
        fs::set_permissions(&self.directory, Permissions::from_mode(mode)).unwrap();
    }
}

pub async fn fresh_bid(store: &FileStore) -> Bid {
    bid(store.read().await.unwrap().version, LEASE)
}

/// Acquires the lease and writes a term.
pub async fn lead(store: &FileStore) -> (Bid, u64) {
    let bid = fresh_bid(store).await;
    store.acquire(&bid).await.unwrap();
    let term = store.write_term(&bid, 7).await.unwrap();
    (bid, term)
}

/// Returns the error of each call that fails, except for examine.
pub async fn each_call(store: &FileStore) -> Vec<(&'static str, StoreError)> {
    let bid = bid(Version("0".into()), LEASE);
    let outcomes = [
        ("read", store.read().await.map(|_| ())),
        ("acquire", store.acquire(&bid).await.map(|_| ())),
        ("write-term", store.write_term(&bid, 1).await.map(|_| ())),
        ("renew", store.renew(&bid).await.map(|_| ())),
        ("release", store.release(&bid).await),
        ("create", store.create(1).await.map(|_| ())),
    ];
    let failed = outcomes.into_iter().filter_map(|(call, outcome)| Some((call, outcome.err()?)));
    failed.collect()
}

/// Asserts that every call rejects the record as foreign, with its path and a remedy.
pub async fn assert_foreign(place: &Place) {
    let errors = each_call(&place.store()).await;
    assert_eq!(errors.len(), 6, "{errors:?}");
    for (call, error) in errors {
        let words = error.to_string();
        assert!(matches!(error, StoreError::Foreign(_)), "{call}: {error:?}");
        assert!(words.contains(place.record().to_str().unwrap()), "{call}: {words}");
        assert!(words.contains("move it away"), "{call}: {words}");
    }
}

/// Asserts that every call fails because of a setting, and names the path and a remedy.
pub async fn assert_misplaced(store: &FileStore, path: &Path, remedy: &str) {
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
    let wrong = findings.iter().find(|it| it.verdict == Verdict::Failed).expect("a finding");
    assert!(wrong.remedy.as_deref().is_some_and(|it| it.contains(remedy)), "{wrong:?}");
}
