//! The stores that are raced on. Each race has a lock of its own.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tempfile::TempDir;
use tenure::config::{FileSettings, KubernetesSettings};
use tenure::store::LeaseAdmin;
use tenure::store::azure::Azure;
use tenure::store::consul;
use tenure::store::etcd;
use tenure::store::file::FileStore;
use tenure::store::gcs;
use tenure::store::kubernetes::Kubernetes;
use tenure::store::memory::Memory;
use tenure::store::mongodb;
use tenure::store::postgres;
use tenure::store::redis;
use tenure::store::s3;
use tenure::store::zookeeper;

use super::model::Model;
use super::script::{Lock, Passes, RaceClock};
use crate::azure::azurite::Azurite;
use crate::azure::blob_server::{BlobServer, Fault};
use crate::blocking;
use crate::consul::server::ConsulServer;
use crate::etcd::server::EtcdServer;
use crate::gcs::server::GcsServer;
use crate::kubernetes::real_lease::RealLease;
use crate::mongodb::server::MongoServer;
use crate::postgres::server::PostgresServer;
use crate::redis::server::RedisServer;
use crate::s3::server::S3Server;
use crate::stores::servers::SharedServer;
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

/// What is expected of the settings of the tests.
const GOOD: &str = "good settings";

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

/// Makes sure that the lock has a first term, if its model asks for one or the seed is even.
async fn prepared(mut lock: Lock, seed: u64) -> Lock {
    let Some(term) = lock.model.first_term.or(seed.is_multiple_of(2).then_some(7)) else {
        return lock;
    };
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
        let lock = Lock {
            model: Model::AZURE,
            open: Box::new(move || Arc::new(Azure::open(settings.clone()).expect(GOOD))),
            clock,
            lengths: OF_AZURE,
            disturb: None,
            keep: Box::new(()),
        };
        let lock = prepared(lock, seed).await;
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

/// How many races there are on what a server looks at as a whole for each request.
const GROUP: u64 = 500;

/// Opens the lock of a race as another client would, sharing nothing but the store.
type Opener = Box<dyn Fn() -> Arc<dyn LeaseAdmin> + Send + Sync>;

/// A store on a server that all races share, where each has an election of its own. Where the server counts the
/// time, it passes by itself, so that no lease ends during a race; the time of observers passes in the race.
pub struct ServerCourse {
    name: &'static str,
    model: Model,
    lengths: &'static [Duration],
    /// Returns what opens the election of this name. It keeps the server running.
    election: Box<dyn Fn(&str) -> Opener + Send + Sync>,
}

impl ServerCourse {
    fn new<Settings: Send + Sync + 'static>(
        name: &'static str,
        model: Model,
        settings: impl Fn(&str) -> Settings + Send + Sync + 'static,
        open: impl Fn(&Settings) -> Arc<dyn LeaseAdmin> + Copy + Send + Sync + 'static,
    ) -> Self {
        let lengths = if model.observed { ANY } else { OF_AZURE };
        let election = move |name: &str| -> Opener {
            let settings = settings(name);
            Box::new(move || open(&settings))
        };
        Self { name, model, lengths, election: Box::new(election) }
    }

    /// `azure:` on Azurite, which rounds the rest of a lease to the nearest second, where Azure may cut it off,
    /// and lets a renewal by another client revive a lease that has ended.
    ///
    /// Each group of races has an Azurite of its own, since it looks at all blobs for each request.
    pub fn azurite() -> Self {
        let server = Mutex::new((Azurite::shared(), 0));
        let settings = move |name: &str| {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            let (azurite, races) = &mut *server;
            *races += 1;
            if *races > GROUP {
                (*azurite, *races) = (Arc::new(blocking(Azurite::start())), 1);
            }
            (azurite.settings("races", name), Arc::clone(azurite))
        };
        let model = Model { rounding: Duration::from_secs(2), ..Model::AZURE };
        Self::new("azure on Azurite", model, settings, |(it, _)| {
            Arc::new(Azure::open(it.clone()).expect(GOOD))
        })
    }

    /// `consul:` on Consul itself.
    pub fn consul() -> Self {
        let server = ConsulServer::shared();
        let settings = move |name: &str| server.settings(name);
        Self::new("consul", Model::REGISTER, settings, |it| consul::open(it).expect(GOOD))
    }

    /// `etcd:` on etcd itself.
    pub fn etcd() -> Self {
        let server = EtcdServer::shared();
        let settings = move |name: &str| server.settings(name);
        Self::new("etcd", Model::REGISTER, settings, |it| etcd::open(it).expect(GOOD))
    }

    /// `gs:` on an emulator.
    pub fn gcs() -> Self {
        let server = GcsServer::shared();
        let settings = move |name: &str| server.settings(name);
        Self::new("gcs", Model::REGISTER, settings, |it| gcs::open(it).expect(GOOD))
    }

    /// `kubernetes:` on a real kube-apiserver.
    pub fn kubernetes() -> Self {
        let lease = RealLease::start();
        let settings =
            move |name: &str| KubernetesSettings { name: name.to_owned(), ..lease.settings() };
        let open = |it: &KubernetesSettings| -> Arc<dyn LeaseAdmin> {
            Arc::new(Kubernetes::open(it).expect(GOOD))
        };
        let name = "kubernetes on a kube-apiserver";
        Self { lengths: OF_KUBERNETES, ..Self::new(name, Model::KUBERNETES, settings, open) }
    }

    /// `mongodb:` on mongo-java-server, behind a front that keeps nothing apart, so that writes meet there.
    ///
    /// Each group of races has a collection of its own, since it looks at all documents of one for each write.
    pub fn mongodb() -> Self {
        let (server, races) = (MongoServer::shared(), AtomicU64::new(0));
        let settings = move |name: &str| {
            let group = races.fetch_add(1, Ordering::Relaxed) / GROUP;
            server.bare_settings(&format!("races-{group}"), name)
        };
        Self::new("mongodb", Model::REGISTER, settings, |it| mongodb::open(it).expect(GOOD))
    }

    /// `postgres:` on PostgreSQL itself.
    pub fn postgres() -> Self {
        let server = PostgresServer::shared();
        let settings = move |name: &str| server.settings(name);
        Self::new("postgres", Model::REGISTER, settings, |it| postgres::open(it).expect(GOOD))
    }

    /// `redis:` on Redis itself.
    pub fn redis() -> Self {
        let server = RedisServer::shared();
        let settings = move |name: &str| server.settings(name);
        Self::new("redis", Model::REGISTER, settings, |it| redis::open(it).expect(GOOD))
    }

    /// `s3:` on a real server.
    pub fn s3() -> Self {
        let server = S3Server::shared();
        let settings = move |name: &str| server.settings(name);
        Self::new("s3", Model::REGISTER, settings, |it| s3::open(it).expect(GOOD))
    }

    /// `zookeeper:` on ZooKeeper itself.
    pub fn zookeeper() -> Self {
        let server = ZookeeperServer::shared();
        let settings = move |name: &str| server.settings(name);
        Self::new("zookeeper", Model::REGISTER, settings, |it| zookeeper::open(it).expect(GOOD))
    }
}

#[async_trait]
impl Course for ServerCourse {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lanes(&self) -> usize {
        4
    }

    /// Until the shortest lease ends, if the server counts it.
    fn longest(&self) -> Option<Duration> {
        (!self.model.observed).then(|| self.lengths[0] - self.model.rounding)
    }

    async fn lock(&self, _lane: usize, seed: u64) -> Lock {
        let passes = if self.model.observed { Passes::Here } else { Passes::Itself };
        let lock = Lock {
            model: self.model.clone(),
            open: (self.election)(&format!("race-{seed}-{}", fresh("orders"))),
            clock: RaceClock::new(passes),
            lengths: self.lengths,
            disturb: None,
            keep: Box::new(()),
        };
        prepared(lock, seed).await
    }
}
