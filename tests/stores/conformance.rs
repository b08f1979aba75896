//! The conformance suite on all stores but a Lease, on which the ring `control_plane` runs it.
//!
//! To add a store, implement [`Harness`] and add one line of `conformance!`.

use testkit::azure::{azurite, blob_server};
use testkit::http::raw;
use testkit::stores::conformance;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use azurite::Azurite;
use blob_server::BlobServer;
use conformance::{ANY_LENGTH, Harness};
use raw::Raw;
use tempfile::TempDir;
use tenure::clock::{self, Moment};
use tenure::config::{AzureSettings, FileSettings};
use tenure::lease::{Rules, Snapshot};
use tenure::store::azure::Azure;
use tenure::store::file::FileStore;
use tenure::store::memory::Memory;
use tenure::store::{LeaseAdmin, LeaseStore};

/// A clock that the test advances.
#[derive(Clone)]
struct TestClock(Arc<AtomicU64>);

impl TestClock {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(1_000_000)))
    }

    fn now(&self) -> Moment {
        let since_boot = Duration::from_millis(self.0.load(Ordering::SeqCst));
        // The file and memory stores only use the boot clock.
        Moment { boot: since_boot, raw: Duration::ZERO, wall: Duration::ZERO }
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
    const LENGTHS: &'static [Duration] = ANY_LENGTH;
    const FOREIGN: &'static [&'static str] = &[];
    const RULES: Rules = Rules { longest_lease: None, missing_is_free: true };

    async fn start() -> Self {
        let clock = TestClock::new();
        let reader = clock.clone();
        Self { memory: Memory::with_clock(move || reader.now()), clock }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
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
        let snapshot: Snapshot = self.memory.read().await.expect("a read");
        format!("{snapshot:?}").into_bytes()
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
    const LENGTHS: &'static [Duration] = ANY_LENGTH;
    const FOREIGN: &'static [&'static str] = &[
        "",
        "not JSON\n",
        "{\"tenure\": 1, \"revision\": 3, \"te",
        "{\"name\": \"something else\"}",
        "{\"tenure\": 2, \"revision\": 3, \"term\": 7, \"nonce\": null, \"holder\": null, \
         \"lease\": null}",
        "{\"tenure\": 1, \"revision\": 3, \"term\": \"seven\", \"nonce\": null, \"holder\": null, \
         \"lease\": null}",
        "{\"tenure\": 1, \"revision\": 3, \"term\": 7, \"nonce\": \"1\", \"holder\": null, \
         \"successor\": \"b\", \"lease\": null}",
    ];
    const RULES: Rules = Rules { longest_lease: None, missing_is_free: true };

    async fn start() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory"), clock: TestClock::new() }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        let settings = FileSettings {
            directory: self.directory.path().to_owned(),
            is_private: false,
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

/// Metadata that others could put in place of Tenure's.
const FOREIGN_BLOBS: &[&str] = &[
    "owner=somebody",
    "tenure_term=seven",
    "tenure_term=-7",
    "tenure_successor=b",
    "tenure_hold_off_ms=1000",
];

const RULES_OF_AZURE: Rules =
    Rules { longest_lease: Some(Duration::from_secs(60)), missing_is_free: false };

const LENGTHS_OF_AZURE: &[Duration] =
    &[Duration::from_secs(15), Duration::from_secs(31), Duration::from_secs(60)];

/// A blob, and the operations of others on it.
struct Blob {
    settings: AzureSettings,
    raw: Raw,
}

impl Blob {
    fn new(settings: AzureSettings) -> Self {
        Self { raw: Raw::new(&settings), settings }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        Arc::new(Azure::open(self.settings.clone()).expect("the settings are good"))
    }

    async fn delete(&self) {
        let broken = self.raw.lease("break", &[("x-ms-lease-break-period", "0")]).await;
        assert_eq!(broken.status, 202, "{broken:?}");
        let deleted = self.raw.blob("DELETE", "", &[]).await;
        assert_eq!(deleted.status, 202, "{deleted:?}");
    }

    async fn plant(&self, foreign: &str) {
        let (name, value) = foreign.split_once('=').expect("NAME=VALUE");
        let name = format!("x-ms-meta-{name}");
        self.raw.container("PUT").await;
        let headers = [("x-ms-blob-type", "BlockBlob"), (name.as_str(), value)];
        let made = self.raw.blob("PUT", "", &headers).await;
        assert_eq!(made.status, 201, "{made:?}");
    }

    async fn bytes(&self) -> Vec<u8> {
        let answer = self.raw.blob("HEAD", "", &[]).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let kept = |name: &str| name == "content-length" || name.starts_with("x-ms-meta-");
        let kept = answer.headers.iter().filter(|(name, _)| kept(name.as_str()));
        let mut lines: Vec<_> = kept.map(|(name, value)| format!("{name}: {value:?}\n")).collect();
        lines.sort();
        lines.concat().into_bytes()
    }
}

/// A blob on the in-process server, with a clock that the test advances.
struct TableLock {
    server: BlobServer,
    blob: Blob,
}

impl Harness for TableLock {
    const LEASE: Duration = Duration::from_secs(15);
    const LENGTHS: &'static [Duration] = LENGTHS_OF_AZURE;
    const FOREIGN: &'static [&'static str] = FOREIGN_BLOBS;
    const RULES: Rules = RULES_OF_AZURE;

    async fn start() -> Self {
        let server = BlobServer::start().await;
        let blob = Blob::new(server.settings("team", "orders"));
        Self { server, blob }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        self.blob.candidate()
    }

    async fn advance(&self, by: Duration) {
        self.server.advance(by);
    }

    async fn delete(&self) {
        self.blob.delete().await;
    }

    async fn plant(&self, foreign: &str) {
        self.blob.plant(foreign).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        self.blob.bytes().await
    }
}

/// A blob on Azurite, in real time.
struct AzuriteLock {
    _azurite: Arc<Azurite>,
    blob: Blob,
}

impl AzuriteLock {
    /// Returns the Azurite that all running tests share; it ends with the last of them.
    async fn azurite() -> Arc<Azurite> {
        static SHARED: tokio::sync::Mutex<Weak<Azurite>> =
            tokio::sync::Mutex::const_new(Weak::new());
        let mut shared = SHARED.lock().await;
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Azurite::start().await);
        *shared = Arc::downgrade(&started);
        started
    }
}

impl Harness for AzuriteLock {
    const LEASE: Duration = Duration::from_secs(15);
    const LENGTHS: &'static [Duration] = LENGTHS_OF_AZURE;
    const FOREIGN: &'static [&'static str] = FOREIGN_BLOBS;
    const RULES: Rules = RULES_OF_AZURE;

    async fn start() -> Self {
        static LOCKS: AtomicU64 = AtomicU64::new(0);
        let azurite = Self::azurite().await;
        let container = format!("team-{}", LOCKS.fetch_add(1, Ordering::Relaxed));
        let blob = Blob::new(azurite.settings(&container, "orders"));
        Self { _azurite: azurite, blob }
    }

    fn candidate(&self) -> Arc<dyn LeaseAdmin> {
        self.blob.candidate()
    }

    async fn advance(&self, by: Duration) {
        // Azurite uses the wall clock, and its answers may be some milliseconds old.
        let by = by + Duration::from_millis(200);
        let start = clock::now();
        while start.elapsed_min(clock::now()) < by {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn delete(&self) {
        self.blob.delete().await;
    }

    async fn plant(&self, foreign: &str) {
        self.blob.plant(foreign).await;
    }

    async fn bytes(&self) -> Vec<u8> {
        self.blob.bytes().await
    }
}

testkit::conformance!(memory, MemoryLock);
testkit::conformance!(file, FileLock);
testkit::conformance!(azure_by_the_tables, TableLock);
testkit::conformance!(azurite_itself, AzuriteLock);
