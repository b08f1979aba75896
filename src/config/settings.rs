//! The validated settings.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::admin::Admin;
use super::azure::{AzureCredential, AzureSettings};
use super::consul::ConsulSettings;
use super::duration;
use super::endpoint::is_loopback;
use super::etcd::EtcdSettings;
use super::gcs::GcsSettings;
use super::health::{Health, Probe};
use super::hooks::{Hook, Hooks};
use super::kubernetes::{KubePublishing, KubernetesSettings, Route};
use super::mongodb::MongoSettings;
use super::peers::{Peers, Rank};
use super::postgres::PostgresSettings;
use super::redis::RedisSettings;
use super::s3::S3Settings;
use super::scheduled_events::ScheduledEvents;
use super::timings::Timings;
use super::values::{Listen, LogFormat, StatusFile};
use super::withheld::Withheld;
use super::zookeeper::ZookeeperSettings;
use crate::tls::ServerFiles;

/// The validated settings of `tenure run` or `tenure exec`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the election.
    pub election: String,
    /// The identity of this instance, for people.
    pub identity: String,
    /// The address of the local service, published while this instance leads.
    pub advertise: Option<String>,
    /// The store that keeps the lease.
    pub store: StoreSettings,
    /// What is written to Kubernetes besides the lease; `None` if neither the store nor a route is
    /// in Kubernetes.
    pub kubernetes: Option<KubePublishing>,
    /// The timings of the election.
    pub timings: Timings,
    /// Whether this instance only observes and never competes.
    pub observe: bool,
    /// The addresses of the status listener; empty for none.
    pub listen: Vec<Listen>,
    /// The most connections on the status listener.
    pub max_connections: usize,
    /// The most connections to it of one address beyond loopback.
    pub max_connections_per_peer: usize,
    /// The names, beside those of loopback, that the `Host` header of its requests may have; empty
    /// for loopback alone on loopback, and any elsewhere.
    pub allowed_hosts: Vec<String>,
    /// The address that answers agent checks of HAProxy.
    pub agent_check: Option<SocketAddr>,
    /// The files of TLS on the TCP addresses of the status listener beyond loopback; `None` for no
    /// TLS.
    pub tls: Option<ServerFiles>,
    /// The status files.
    pub status_files: Vec<StatusFile>,
    /// The address of the admin listener.
    pub admin: Option<Admin>,
    /// The health probes, which must succeed for this instance to compete.
    pub health: Health,
    /// The source of announcements of maintenance of this machine.
    pub scheduled_events: Option<ScheduledEvents>,
    /// How the candidates are connected; `None` without peers.
    pub peers: Option<Peers>,
    /// What decides who is next in line.
    pub rank: Rank,
    /// The longest time from reporting passive to releasing the lease, for work begun as leader.
    pub drain_timeout: Duration,
    /// Under `exec`, when renewals fail: the time from the command's SIGTERM to its SIGKILL, which
    /// is sent at renew-deadline.
    pub stop_timeout: Duration,
    /// The hooks, which run on changes.
    pub hooks: Hooks,
    /// The variables that no child process inherits.
    pub withheld: Withheld,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The log filter: a filter of [`tracing_subscriber::filter::Targets`].
    pub log_level: String,
}

impl Settings {
    /// Returns whether Tenure runs commands, which may be or start a setuid program: a hook, a
    /// probe, or the Azure CLI.
    #[must_use]
    pub fn runs_commands(&self) -> bool {
        self.hooks.iter().any(|(_, it)| matches!(it, Hook::Command(_)))
            || self.health.probes.iter().any(|it| matches!(it, Probe::Exec(_)))
            || matches!(&self.store, StoreSettings::Azure(it)
                if matches!(it.credential, AzureCredential::AzureCli))
    }

    /// Formats the settings in one line for the log at the start: everything that distinguishes
    /// this run, and no secrets.
    #[must_use]
    pub fn summary(&self) -> String {
        let Timings {
            lease_duration,
            renew_deadline,
            retry_period,
            request_timeout,
            activation_delay,
        } = self.timings;
        let kubernetes = self.kubernetes.as_ref();
        let or_none =
            |it: Option<&dyn fmt::Display>| it.map_or("none".to_owned(), |it| it.to_string());
        let list = |items: Vec<String>| {
            if items.is_empty() { "none".to_owned() } else { items.join(",") }
        };
        format!(
            "election={} identity={:?} advertise={} store={} kube-api={} kube-route={} \
             lease-duration={} renew-deadline={} \
             retry-period={} request-timeout={} activation-delay={} observe={} listen={} \
             agent-check={} tls-cert={} status-file={} admin={} health={} scheduled-events={} peers={} \
             priority={} drain-timeout={} hooks={}",
            self.election,
            self.identity,
            self.advertise.as_deref().unwrap_or("none"),
            self.store,
            kubernetes.map_or("none".to_owned(), |it| it.access.api.to_string()),
            kubernetes.and_then(|it| it.route.as_ref()).map_or("none".to_owned(), Route::to_string),
            duration::format(lease_duration),
            duration::format(renew_deadline),
            duration::format(retry_period),
            duration::format(request_timeout),
            duration::format(activation_delay),
            self.observe,
            list(self.listen.iter().map(ToString::to_string).collect()),
            or_none(self.agent_check.as_ref().map(|it| it as _)),
            self.tls.as_ref().map_or("none".to_owned(), |it| it.own.cert.display().to_string()),
            list(self.status_files.iter().map(|it| it.path.display().to_string()).collect()),
            self.admin.as_ref().map_or("none".to_owned(), ToString::to_string),
            list(self.health.probes.iter().map(ToString::to_string).collect()),
            or_none(self.scheduled_events.as_ref().map(|it| it as _)),
            self.peers.as_ref().map_or("off".to_owned(), |it| it.url.to_string()),
            self.rank.priority,
            duration::format(self.drain_timeout),
            list(self.hooks.iter().map(|(name, hook)| format!("{name}:{hook}")).collect()),
        )
    }
}

/// The store that keeps the lease, with what is needed to reach it.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// A record in a directory of one host.
    File(FileSettings),
    /// A lease on a blob.
    Azure(Box<AzureSettings>),
    /// A Lease in Kubernetes.
    Kubernetes(KubernetesSettings),
    /// A key in Consul.
    Consul(ConsulSettings),
    /// A key in etcd.
    Etcd(EtcdSettings),
    /// A row in PostgreSQL.
    Postgres(Box<PostgresSettings>),
    /// Two keys in Redis.
    Redis(Box<RedisSettings>),
    /// An object in a bucket.
    S3(Box<S3Settings>),
    /// An object in a bucket of Google's.
    Gcs(Box<GcsSettings>),
    /// A document in MongoDB.
    Mongo(Box<MongoSettings>),
    /// Nodes in ZooKeeper.
    Zookeeper(Box<ZookeeperSettings>),
    /// The memory of this process.
    Memory,
}

impl StoreSettings {
    /// Describes the instances that compete for a lease in this store.
    #[must_use]
    pub fn competitors(&self) -> String {
        match self {
            Self::File(FileSettings { is_private, .. }) => {
                let whose = if *is_private { "this user's processes" } else { "processes" };
                format!("{whose} on this host that use {self}")
            }
            Self::Azure(it) => {
                let whose = if is_loopback(&it.endpoint) { "on this host" } else { "on any host" };
                format!("instances {whose} that use {self}")
            }
            Self::Kubernetes(_)
            | Self::Consul(_)
            | Self::Etcd(_)
            | Self::Postgres(_)
            | Self::Redis(_)
            | Self::S3(_)
            | Self::Gcs(_)
            | Self::Zookeeper(_)
            | Self::Mongo(_) => format!("instances on any host that use {self}"),
            Self::Memory => "no other process: the lease is in the memory of this one".to_owned(),
        }
    }
}

/// Settings of `file:`.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// The directory.
    pub directory: PathBuf,
    /// Whether it must be accessible to this user only, as a default directory that Tenure creates.
    pub is_private: bool,
    /// Name of the election, which the names of the files contain.
    pub election: String,
}

impl FileSettings {
    /// Returns the name of the file that a writer locks.
    #[must_use]
    pub fn lock_file(&self) -> String {
        format!("{}.lock", self.election)
    }
}
