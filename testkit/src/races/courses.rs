//! The stores that are raced on. Each race has a lock of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tenure::config::{AzureSettings, FileSettings, KubernetesSettings};
use tenure::store::LeaseAdmin;
use tenure::store::azure::Azure;
use tenure::store::consul::Consul;
use tenure::store::etcd::Etcd;
use tenure::store::file::FileStore;
use tenure::store::gcs;
use tenure::store::kubernetes::Kubernetes;
use tenure::store::memory::Memory;
use tenure::store::mongodb;
use tenure::store::postgres::Postgres;
use tenure::store::redis::Redis;
use tenure::store::s3;
use tenure::store::zookeeper::Zookeeper;

use super::model::Model;
use super::script::{Lock, Passes, RaceClock};
use crate::azure::azurite::Azurite;
use crate::azure::blob_server::{BlobServer, Fault};
use crate::consul::server::ConsulServer;
use crate::etcd::server::EtcdServer;
use crate::gcs::server::GcsServer;
use crate::kubernetes::real_lease::RealLease;
use crate::mongodb::server::MongoServer;
use crate::postgres::server::PostgresServer;
use crate::redis::server::RedisServer;
use crate::s3::server::S3Server;
use crate::zookeeper::server::ZookeeperServer;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

const fn nanos<const N: usize>(nanos: [u64; N]) -> [Duration; N] {
    let mut lengths = [Duration::ZERO; N];
    let mut index = 0;
    while index < N {
        lengths[index] = Duration::from_nanos(nanos[index]);
        index += 1;
    }
    lengths
}

/// Up to the longest duration that settings can have.
const ANY: &[Duration] = &nanos([200 * MS, 1_500 * MS, 15 * S, 36_000_000 * S]);
const OF_AZURE: &[Duration] = &nanos([15 * S, 16 * S, 30 * S, 59 * S, 60 * S]);
const OF_KUBERNETES: &[Duration] = &nanos([S, 2 * S, 15 * S, 36_000_000 * S]);

/// A kind of store, as it is raced on.
#[async_trait]
pub trait Course: Send + Sync {
    /// Returns the name for reports.
    fn name(&self) -> &'static str;

    /// Returns how many races run at the same time.
    fn lanes(&self) -> usize;

    /// Returns how long a race may take to be judged; `None` if it may take any time.
    fn longest(&self) -> Option<Duration> {
        None
    }

    /// Makes a lock for a race; no other race of this lane runs.
    async fn lock(&self, lane: usize, seed: u64) -> Lock;
}

/// How often a first term is written again on a busy machine, whose answers come too late.
const TRIES: usize = 20;

/// Makes sure that the lock has a first term, if the seed is even.
async fn prepared(lock: Lock, seed: u64) -> Lock {
    if seed.is_multiple_of(2) { created(lock, 7).await } else { lock }
}

/// Makes sure that the lock has this first term.
async fn created(mut lock: Lock, term: u64) -> Lock {
    let store = (lock.open)();
    let mut made = store.create(term).await;
    for _ in 1..TRIES {
        if made.is_ok() {
            break;
        }
        made = store.create(term).await;
    }
    made.expect("created");
    lock.model.first_term = Some(term);
    lock
}

/// `memory:`.
pub struct MemoryCourse;

#[async_trait]
impl Course for MemoryCourse {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn lanes(&self) -> usize {
        4
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let clock = RaceClock::new(Passes::Here);
        let reader = Arc::clone(&clock);
        let memory = Memory::with_clock(move || reader.moment());
        let lock = Lock {
            model: Model::MEMORY,
            open: Box::new(move || Arc::new(memory.clone())),
            clock,
            lengths: ANY,
            disturb: None,
            keep: Box::new(()),
        };
        prepared(lock, seed).await
    }
}

/// `file:` below a directory.
pub struct FileCourse {
    name: &'static str,
    below: PathBuf,
}

impl FileCourse {
    /// On a filesystem in memory.
    pub fn tmpfs() -> Self {
        Self { name: "file on tmpfs", below: "/dev/shm".into() }
    }

    /// On the disk, or overlay, of the build.
    pub fn disk() -> Self {
        let below = std::env::current_exe().expect("a path");
        Self { name: "file on disk", below: below.parent().expect("a directory").to_owned() }
    }
}

#[async_trait]
impl Course for FileCourse {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lanes(&self) -> usize {
        3
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let directory = TempDir::new_in(&self.below).expect("a directory");
        let settings = FileSettings {
            directory: directory.path().to_owned(),
            is_private: false,
            election: "orders".to_owned(),
        };
        let clock = RaceClock::new(Passes::Here);
        let reader = Arc::clone(&clock);
        let open = move || -> Arc<dyn LeaseAdmin> {
            let reader = Arc::clone(&reader);
            Arc::new(FileStore::with_clock(&settings, move || reader.moment()))
        };
        let lock = Lock {
            model: Model::FILE,
            open: Box::new(open),
            clock,
            lengths: ANY,
            disturb: None,
            keep: Box::new(directory),
        };
        prepared(lock, seed).await
    }
}

fn blob(settings: AzureSettings, clock: Arc<RaceClock>) -> Lock {
    Lock {
        model: Model::AZURE,
        open: Box::new(move || Arc::new(Azure::open(settings.clone()).expect("good settings"))),
        clock,
        lengths: OF_AZURE,
        disturb: None,
        keep: Box::new(()),
    }
}

/// `azure:` on the server that follows Microsoft's tables, with a server for each lane.
pub struct TableCourse(Vec<Arc<BlobServer>>);

impl TableCourse {
    pub async fn start() -> Self {
        let mut servers = Vec::new();
        for _ in 0..4 {
            servers.push(Arc::new(BlobServer::start().await));
        }
        Self(servers)
    }
}

#[async_trait]
impl Course for TableCourse {
    fn name(&self) -> &'static str {
        "azure by the tables"
    }

    fn lanes(&self) -> usize {
        self.0.len()
    }

    async fn lock(&self, lane: usize, seed: u64) -> Lock {
        let server = Arc::clone(&self.0[lane]);
        server.heal();
        server.take_log();
        let settings = server.settings("team", &fresh("orders"));
        let passing = Arc::clone(&server);
        let clock = RaceClock::new(Passes::There(Box::new(move |by| passing.advance(by))));
        let lock = prepared(blob(settings, clock), seed).await;
        let disturb = move |before: bool| {
            server.inject("any", [if before { Fault::DropBefore } else { Fault::DropAfter }]);
        };
        Lock { disturb: Some(Box::new(disturb)), ..lock }
    }
}

/// Returns a name that no other lock of this process has.
fn fresh(name: &str) -> String {
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    format!("{name}-{}", COUNTED.fetch_add(1, Ordering::Relaxed))
}

/// `azure:` on Azurite, whose time passes by itself: no lease ends during a race.
pub struct AzuriteCourse(Arc<Azurite>);

impl AzuriteCourse {
    pub fn start() -> Self {
        Self(Azurite::shared())
    }
}

#[async_trait]
impl Course for AzuriteCourse {
    fn name(&self) -> &'static str {
        "azure on Azurite"
    }

    /// Until the shortest lease ends, by Azurite's rounding: after that, Azurite lets a renewal by
    /// another client revive it.
    fn longest(&self) -> Option<Duration> {
        Some(Duration::from_secs(13))
    }

    fn lanes(&self) -> usize {
        4
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.settings("races", &fresh("orders"));
        let mut lock = blob(settings, RaceClock::new(Passes::Itself));
        // Azurite rounds the rest of a lease to the nearest second, and Azure may cut it off.
        lock.model.rounding = Duration::from_secs(2);
        prepared(lock, seed).await
    }
}

/// `consul:` on Consul itself, whose time passes by itself: no lease ends during a race.
pub struct ConsulCourse(Arc<ConsulServer>);

impl ConsulCourse {
    pub fn start() -> Self {
        Self(ConsulServer::shared())
    }
}

#[async_trait]
impl Course for ConsulCourse {
    fn name(&self) -> &'static str {
        "consul"
    }

    fn lanes(&self) -> usize {
        4
    }

    /// Until the shortest lease ends.
    fn longest(&self) -> Option<Duration> {
        Some(OF_AZURE[0])
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.settings(&format!("race-{seed}-{}", fresh("orders")));
        let lock = Lock {
            model: Model::CONSUL,
            open: Box::new(move || Arc::new(Consul::open(&settings).expect("good settings"))),
            clock: RaceClock::new(Passes::Itself),
            lengths: OF_AZURE,
            disturb: None,
            keep: Box::new(()),
        };
        // The indexes of Consul, which a term is not below, are no part of the model.
        created(lock, 1 << 40).await
    }
}

/// `etcd:` on etcd itself, whose time passes by itself: no lease ends during a race.
pub struct EtcdCourse(Arc<EtcdServer>);

impl EtcdCourse {
    pub fn start() -> Self {
        Self(EtcdServer::shared())
    }
}

#[async_trait]
impl Course for EtcdCourse {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn lanes(&self) -> usize {
        4
    }

    /// Until the shortest lease ends.
    fn longest(&self) -> Option<Duration> {
        Some(OF_AZURE[0])
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.settings(&format!("race-{seed}-{}", fresh("orders")));
        let lock = Lock {
            model: Model::ETCD,
            open: Box::new(move || Arc::new(Etcd::open(&settings).expect("good settings"))),
            clock: RaceClock::new(Passes::Itself),
            lengths: OF_AZURE,
            disturb: None,
            keep: Box::new(()),
        };
        // The revisions of etcd, which a term is not below, are no part of the model.
        created(lock, 1 << 40).await
    }
}

/// `postgres:` on PostgreSQL itself, whose time passes by itself: no lease ends during a race.
pub struct PostgresCourse(Arc<PostgresServer>);

impl PostgresCourse {
    pub fn start() -> Self {
        Self(PostgresServer::shared())
    }
}

#[async_trait]
impl Course for PostgresCourse {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn lanes(&self) -> usize {
        4
    }

    /// Until the shortest lease ends.
    fn longest(&self) -> Option<Duration> {
        Some(OF_AZURE[0])
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.settings(&format!("race-{seed}-{}", fresh("orders")));
        let lock = Lock {
            model: Model::POSTGRES,
            open: Box::new(move || Arc::new(Postgres::open(&settings).expect("good settings"))),
            clock: RaceClock::new(Passes::Itself),
            lengths: OF_AZURE,
            disturb: None,
            keep: Box::new(()),
        };
        prepared(lock, seed).await
    }
}

/// `redis:` on Redis itself, whose time passes by itself: no lease ends during a race.
pub struct RedisCourse(Arc<RedisServer>);

impl RedisCourse {
    pub fn start() -> Self {
        Self(RedisServer::shared())
    }
}

#[async_trait]
impl Course for RedisCourse {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn lanes(&self) -> usize {
        4
    }

    /// Until the shortest lease ends.
    fn longest(&self) -> Option<Duration> {
        Some(OF_AZURE[0])
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.settings(&format!("race-{seed}-{}", fresh("orders")));
        let lock = Lock {
            model: Model::REDIS,
            open: Box::new(move || Arc::new(Redis::open(&settings).expect("good settings"))),
            clock: RaceClock::new(Passes::Itself),
            lengths: OF_AZURE,
            disturb: None,
            keep: Box::new(()),
        };
        prepared(lock, seed).await
    }
}

/// `s3:` on a real server. The time of the observers passes in the race.
pub struct S3Course(Arc<S3Server>);

impl S3Course {
    pub fn start() -> Self {
        Self(S3Server::shared())
    }
}

#[async_trait]
impl Course for S3Course {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn lanes(&self) -> usize {
        4
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.settings(&format!("race-{seed}-{}", fresh("orders")));
        let lock = Lock {
            model: Model::REGISTER,
            open: Box::new(move || s3::open(&settings).expect("good settings")),
            clock: RaceClock::new(Passes::Here),
            lengths: ANY,
            disturb: None,
            keep: Box::new(()),
        };
        prepared(lock, seed).await
    }
}

/// `gs:` on an emulator. The time of the observers passes in the race.
pub struct GcsCourse(Arc<GcsServer>);

impl GcsCourse {
    pub fn start() -> Self {
        Self(GcsServer::shared())
    }
}

#[async_trait]
impl Course for GcsCourse {
    fn name(&self) -> &'static str {
        "gcs"
    }

    fn lanes(&self) -> usize {
        4
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.settings(&format!("race-{seed}-{}", fresh("orders")));
        let lock = Lock {
            model: Model::REGISTER,
            open: Box::new(move || gcs::open(&settings).expect("good settings")),
            clock: RaceClock::new(Passes::Here),
            lengths: ANY,
            disturb: None,
            keep: Box::new(()),
        };
        prepared(lock, seed).await
    }
}

/// `mongodb:` on mongo-java-server, without the front, so that writes meet there. The time of the observers
/// passes in the race.
pub struct MongoCourse(Arc<MongoServer>);

impl MongoCourse {
    pub fn start() -> Self {
        Self(MongoServer::shared())
    }
}

#[async_trait]
impl Course for MongoCourse {
    fn name(&self) -> &'static str {
        "mongodb"
    }

    fn lanes(&self) -> usize {
        4
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.bare_settings(&format!("race-{seed}-{}", fresh("orders")));
        let lock = Lock {
            model: Model::REGISTER,
            open: Box::new(move || mongodb::open(&settings).expect("good settings")),
            clock: RaceClock::new(Passes::Here),
            lengths: ANY,
            disturb: None,
            keep: Box::new(()),
        };
        prepared(lock, seed).await
    }
}

/// `zookeeper:` on ZooKeeper itself, whose time passes by itself: no lease ends during a race.
pub struct ZookeeperCourse(Arc<ZookeeperServer>);

impl ZookeeperCourse {
    pub fn start() -> Self {
        Self(ZookeeperServer::shared())
    }
}

#[async_trait]
impl Course for ZookeeperCourse {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn lanes(&self) -> usize {
        4
    }

    /// Until the shortest lease ends.
    fn longest(&self) -> Option<Duration> {
        Some(OF_AZURE[0])
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = self.0.settings(&format!("race-{seed}-{}", fresh("orders")));
        let lock = Lock {
            model: Model::ZOOKEEPER,
            open: Box::new(move || Arc::new(Zookeeper::open(&settings).expect("good settings"))),
            clock: RaceClock::new(Passes::Itself),
            lengths: OF_AZURE,
            disturb: None,
            keep: Box::new(()),
        };
        // The numbers of transactions, which a term is not below, are no part of the model.
        created(lock, 1 << 40).await
    }
}

/// `kubernetes:` on a real kube-apiserver. The time of the observers passes in the race.
pub struct LeaseCourse(RealLease);

impl LeaseCourse {
    pub fn start() -> Self {
        Self(RealLease::start())
    }
}

#[async_trait]
impl Course for LeaseCourse {
    fn name(&self) -> &'static str {
        "kubernetes on a kube-apiserver"
    }

    fn lanes(&self) -> usize {
        4
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let settings = KubernetesSettings { name: fresh("orders"), ..self.0.settings() };
        let lock = Lock {
            model: Model::KUBERNETES,
            open: Box::new(move || Arc::new(Kubernetes::open(&settings).expect("good settings"))),
            clock: RaceClock::new(Passes::Here),
            lengths: OF_KUBERNETES,
            disturb: None,
            keep: Box::new(()),
        };
        prepared(lock, seed).await
    }
}
