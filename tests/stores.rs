//! The conformance suite: every store that there is, held to the same sentences.
//!
//! A new store is plugged in by a [`Harness`] and one line of `conformance!`.

#[path = "support/conformance.rs"]
mod conformance;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conformance::Harness;
use tempfile::TempDir;
use tenure::clock::Moment;
use tenure::config::FileSettings;
use tenure::store::file::FileStore;
use tenure::store::memory::Memory;
use tenure::store::{LeaseStore, Sight};

/// A clock that the test turns.
#[derive(Clone)]
struct TestClock(Arc<AtomicU64>);

impl TestClock {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_000_000)))
    }

    fn now(&self) -> Moment {
        let since_boot = Duration::from_millis(self.0.load(Ordering::SeqCst));
        // A file or memory judges by the boot reading; the others would mislead it.
        Moment {
            boot: since_boot,
            raw: Duration::ZERO,
            wall: Duration::ZERO,
        }
    }

    fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).expect("not so long");
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

struct MemoryLock {
    memory: Memory,
    clock: TestClock,
}

impl Harness for MemoryLock {
    const LEASE: Duration = Duration::from_secs(15);
    const FOREIGN: &'static [&'static str] = &[];

    async fn start() -> Self {
        let clock = TestClock::new();
        let reader = clock.clone();
        Self {
            memory: Memory::with_clock(move || reader.now()),
            clock,
        }
    }

    fn candidate(&self) -> Arc<dyn LeaseStore> {
        Arc::new(self.memory.clone())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn delete(&self) {
        self.memory.clear();
    }

    async fn plant(&self, foreign: &str) {
        unreachable!("nothing foreign can be in memory, {foreign} neither");
    }

    async fn bytes(&self) -> Vec<u8> {
        let sight: Sight = self.memory.look().await.expect("a look");
        format!("{sight:?}").into_bytes()
    }
}

struct FileLock {
    directory: TempDir,
    clock: TestClock,
}

impl FileLock {
    fn record(&self) -> std::path::PathBuf {
        self.directory.path().join("orders.json")
    }
}

impl Harness for FileLock {
    const LEASE: Duration = Duration::from_secs(15);
    const FOREIGN: &'static [&'static str] = &[
        "",
        "not JSON\n",
        "{\"tenure\": 1, \"revision\": 3, \"te",
        "{\"name\": \"something else\"}",
        "{\"tenure\": 2, \"revision\": 3, \"term\": 7, \"nonce\": null, \"holder\": null, \
         \"lease\": null}",
        "{\"tenure\": 1, \"revision\": 3, \"term\": \"seven\", \"nonce\": null, \"holder\": null, \
         \"lease\": null}",
    ];

    async fn start() -> Self {
        Self {
            directory: tempfile::tempdir().expect("a directory"),
            clock: TestClock::new(),
        }
    }

    fn candidate(&self) -> Arc<dyn LeaseStore> {
        let settings = FileSettings {
            directory: self.directory.path().to_owned(),
            is_default: false,
            election: "orders".to_owned(),
        };
        let reader = self.clock.clone();
        Arc::new(FileStore::with_clock(&settings, move || reader.now()))
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn delete(&self) {
        std::fs::remove_file(self.record()).expect("a record");
    }

    async fn plant(&self, foreign: &str) {
        std::fs::write(self.record(), foreign).expect("a foreign record");
    }

    async fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.record()).expect("a record")
    }
}

conformance!(memory, MemoryLock);
conformance!(file, FileLock);
