//! Settings from flags, environment and file, validated as a whole.
//!
//! [`load`] returns them, or all faults in one message. This module starts nothing, makes no
//! network request, and keeps no secret that is in a file. [`Environment`] is the only reader of
//! the process's variables.
//!
//! An empty variable counts as not set, since templates write `NAME=` for "no value". An empty flag
//! or an empty key of the file is a fault, since it cannot be meant.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

pub mod admin;
mod azure;
pub mod command_line;
pub mod duration;
mod endpoint;
mod environment;
mod faults;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod health;
mod hooks;
mod kubernetes;
mod layers;
mod resolve;
mod service;
mod shutdown_budget;
mod store_url;
mod table;
mod timings;
mod values;
mod warnings;

pub use admin::Admin;
pub use command_line::CommandLine;
pub use environment::{Environment, OURS_ALONE};
pub use faults::{Fault, Faults, Source};
pub use health::{Health, Probe};
pub use hooks::{HOOK_GRACE, Hook, Hooks};
pub(crate) use kubernetes::names::slice as slice_name;
pub use kubernetes::{Beside, KubeAccess, KubernetesSettings, Route};
pub use layers::Flags;
pub use resolve::{Loaded, load, load_to_look};
pub use shutdown_budget::Ending;
pub use table::{CREDENTIALS, Kind, SETTINGS, Setting, UnderExec, Verb};
pub use warnings::Warning;

use store_url::StoreUrl;

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
    pub kubernetes: Option<Beside>,
    /// The timings of the election.
    pub timings: Timings,
    /// Whether this instance only observes and never competes.
    pub observe: bool,
    /// The addresses of the status listener; empty for none.
    pub listen: Vec<Listen>,
    /// The most connections on the status listener.
    pub max_connections: usize,
    /// The status files.
    pub status_files: Vec<StatusFile>,
    /// The address of the admin listener.
    pub admin: Option<Admin>,
    /// The health probes, which must succeed for this instance to compete.
    pub health: Health,
    /// The longest time from reporting passive to releasing the lease, for work begun as leader;
    /// default 0 s, under `exec` 10 s. Too short interrupts work; too long delays the next leader
    /// if the service never reports that it has finished.
    pub drain_timeout: Duration,
    /// Under `exec`, when renewals fail: the time from the command's SIGTERM to its SIGKILL, which
    /// is sent at renew-deadline; default 3 s. Too long ends the command for an outage that might
    /// have passed.
    pub stop_timeout: Duration,
    /// The hooks, which run on changes.
    pub hooks: Hooks,
    /// The format of log lines.
    pub log_format: LogFormat,
    /// The log filter: an `EnvFilter` directive.
    pub log_level: String,
}

impl Settings {
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
        let beside = self.kubernetes.as_ref();
        let list = |items: Vec<String>| {
            if items.is_empty() { "none".to_owned() } else { items.join(",") }
        };
        format!(
            "election={} identity={:?} advertise={} store={} kube-api={} kube-route={} lease-duration={} renew-deadline={} \
             retry-period={} request-timeout={} activation-delay={} observe={} listen={} \
             status-file={} admin={} health={} drain-timeout={} hooks={}",
            self.election,
            self.identity,
            self.advertise.as_deref().unwrap_or("none"),
            self.store,
            beside.map_or("none".to_owned(), |it| it.access.api.to_string()),
            beside.and_then(|it| it.route.as_ref()).map_or("none".to_owned(), Route::to_string),
            duration::format(lease_duration),
            duration::format(renew_deadline),
            duration::format(retry_period),
            duration::format(request_timeout),
            duration::format(activation_delay),
            self.observe,
            list(self.listen.iter().map(ToString::to_string).collect()),
            list(self.status_files.iter().map(|it| it.path.display().to_string()).collect()),
            self.admin.as_ref().map_or("none".to_owned(), ToString::to_string),
            list(self.health.probes.iter().map(ToString::to_string).collect()),
            duration::format(self.drain_timeout),
            list(self.hooks.iter().map(|(name, hook)| format!("{name}:{hook}")).collect()),
        )
    }
}

/// The timings of the election. They must satisfy `renew-deadline ≥ 2 × retry-period +
/// request-timeout`, and leave a tenth of `lease-duration` (at least 200 ms) after
/// `renew-deadline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// From each grant to the expiry of the lease in the store.
    pub lease_duration: Duration,
    /// From the sending of the last granted request until this instance no longer reports active.
    pub renew_deadline: Duration,
    /// The time between renewals of a leader; the mean time between reads of a standby.
    pub retry_period: Duration,
    /// The bound on one request to the store.
    pub request_timeout: Duration,
    /// From the grant until the new leader reports active.
    pub activation_delay: Duration,
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
    /// The memory of this process.
    Memory,
}

impl fmt::Display for StoreSettings {
    /// Names the store, without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(it) => StoreUrl::File(it.directory.clone()).fmt(f),
            Self::Azure(it) => write!(f, "azure://{}/{}/{}", it.account, it.container, it.blob),
            Self::Kubernetes(it) => write!(f, "kubernetes:{}/{}", it.namespace, it.name),
            Self::Memory => StoreUrl::Memory.fmt(f),
        }
    }
}

/// Settings of `file:`.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// The directory.
    pub directory: PathBuf,
    /// Whether this is the default runtime directory, which is created if missing, and must belong
    /// to this user with mode 0700.
    pub is_default: bool,
    /// Name of the election, which the names of the files contain.
    pub election: String,
}

/// Settings of `azure:`.
#[derive(Clone, Debug)]
pub struct AzureSettings {
    /// The endpoint of the account, without a trailing slash.
    pub endpoint: Url,
    /// The name of the account.
    pub account: String,
    /// The container.
    pub container: String,
    /// The name of the blob: PREFIX/ELECTION.
    pub blob: String,
    /// The credential.
    pub credential: AzureCredential,
    /// The bound on one request.
    pub request_timeout: Duration,
    /// The value of `HTTPS_PROXY`, if set.
    pub proxy: Option<String>,
    /// The value of `NO_PROXY`, if set.
    pub no_proxy: Option<String>,
}

/// Credentials for Azure, in the order of preference.
#[derive(Clone, Debug)]
pub enum AzureCredential {
    /// `AZURE_STORAGE_CONNECTION_STRING` or `…_FILE`.
    ConnectionString(SecretSource),
    /// `AZURE_STORAGE_KEY` or `…_FILE`.
    Key(SecretSource),
    /// `AZURE_STORAGE_SAS_TOKEN` or `…_FILE`.
    Sas(SecretSource),
    /// Workload identity: `AZURE_FEDERATED_TOKEN_FILE` with `AZURE_CLIENT_ID`, `AZURE_TENANT_ID`,
    /// `AZURE_AUTHORITY_HOST`.
    WorkloadIdentity {
        /// `AZURE_FEDERATED_TOKEN_FILE`.
        token_file: PathBuf,
        /// `AZURE_CLIENT_ID`.
        client_id: String,
        /// `AZURE_TENANT_ID`.
        tenant_id: String,
        /// `AZURE_AUTHORITY_HOST`.
        authority_host: Option<String>,
    },
    /// Managed identity; user-assigned if `AZURE_CLIENT_ID` is set.
    ManagedIdentity {
        /// `AZURE_CLIENT_ID`.
        client_id: Option<String>,
    },
    /// The login of the Azure CLI.
    AzureCli,
}

/// The source of a secret.
#[derive(Clone)]
pub enum SecretSource {
    /// The value itself.
    Value(String),
    /// A file that holds it, read again when it changes.
    File(PathBuf),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("Value(…)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

/// An address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A status file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFile {
    /// Its path.
    pub path: PathBuf,
    /// Its format, by the file name extension.
    pub format: FileFormat,
}

/// The format of a status file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// The status document.
    Json,
    /// Lines that a shell can source.
    Env,
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

#[cfg(test)]
mod tests;
