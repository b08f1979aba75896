//! Settings: what a run was told by flags, environment and file, checked as a whole.
//!
//! [`load`] makes them, or says everything that is wrong in one message. What this module does not
//! do: it starts nothing, asks no network, and reads no secret from a file. [`Environment`] is the
//! only reader of the process's variables.
//!
//! An empty variable counts as not set, since templates write `NAME=` for "no value". An empty flag
//! and an empty key of the file are faults: nobody writes them for nothing.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

pub mod admin;
mod azure;
mod beside;
pub mod command_line;
mod doubts;
pub mod duration;
mod ending;
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
mod store_url;
mod timings;
mod values;

pub use admin::Admin;
pub use command_line::CommandLine;
pub use doubts::Doubt;
pub use ending::Ending;
pub use environment::{Environment, OURS_ALONE};
pub use faults::{Fault, Faults, Source};
pub use health::{Health, Probe};
pub use hooks::{HOOK_GRACE, Hook, Hooks};
pub(crate) use kubernetes::names::slice as slice_name;
pub use kubernetes::{Beside, KubeAccess, KubernetesSettings, Route};
pub use layers::{Arity, Flags, SETTINGS, Setting, UnderExec, Verb};
pub use resolve::{Loaded, load, load_to_look};

use store_url::StoreUrl;

/// The settings of `tenure run` or `tenure exec`, all of them valid.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the election.
    pub election: String,
    /// Who we are, for people.
    pub identity: String,
    /// Address of the service next to us, published while we lead.
    pub advertise: Option<String>,
    /// Where the lease is kept.
    pub store: StoreSettings,
    /// What Kubernetes is told beside the lease; none where neither store nor route is in it.
    pub kubernetes: Option<Beside>,
    /// How long things take.
    pub timings: Timings,
    /// Never competes.
    pub observe: bool,
    /// Where the status listener listens; empty for none.
    pub listen: Vec<Listen>,
    /// Most connections on the status listener.
    pub max_connections: usize,
    /// The status files.
    pub status_files: Vec<StatusFile>,
    /// Where the admin listener listens.
    pub admin: Option<Admin>,
    /// What must be well for us to compete.
    pub health: Health,
    /// Longest time from saying passive to the release, for work begun as leader; default 0 s, under
    /// `exec` 10 s. Too short cuts work off, too long keeps others waiting for who never says it has
    /// ended.
    pub drain_timeout: Duration,
    /// Under `exec`, from the command's SIGTERM to belief's end, which is its SIGKILL, when renewals
    /// fail; default 3 s. Too long ends the command for an outage that might have passed.
    pub stop_timeout: Duration,
    /// What is run or told when something changes.
    pub hooks: Hooks,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written: an `EnvFilter` directive.
    pub log_level: String,
}

impl Settings {
    /// The settings in one line for the log of the start: all that tells this run from another,
    /// and no secret.
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

/// How long things take; the rule that binds them is `renew-deadline ≥ 2 × retry-period +
/// request-timeout`, and a tenth of `lease-duration` (at least 200 ms) left after `renew-deadline`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// From each grant to the end of the lease in the store.
    pub lease_duration: Duration,
    /// From the sending of the last granted request to the end of our belief.
    pub renew_deadline: Duration,
    /// Leader: between renewals; standby: mean time between looks.
    pub retry_period: Duration,
    /// Bound on one request to the store.
    pub request_timeout: Duration,
    /// From the grant to the first "active".
    pub activation_delay: Duration,
}

/// Where the lease is kept, with what is needed to reach it.
#[derive(Clone, Debug)]
pub enum StoreSettings {
    /// A record in a directory of one host.
    File(FileSettings),
    /// A lease on a blob.
    Azure(Box<AzureSettings>),
    /// A Lease in Kubernetes.
    Kubernetes(KubernetesSettings),
    /// This process only.
    Memory,
}

impl fmt::Display for StoreSettings {
    /// Names the store for people, without anything secret.
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
    /// Whether it is the runtime directory that we chose ourselves: made if missing, must be ours with mode 0700.
    pub is_default: bool,
    /// Name of the election, which names the files.
    pub election: String,
}

/// Settings of `azure:`.
#[derive(Clone, Debug)]
pub struct AzureSettings {
    /// Endpoint of the account, without a trailing slash.
    pub endpoint: Url,
    /// Name of the account.
    pub account: String,
    /// The container.
    pub container: String,
    /// Name of the blob: PREFIX/ELECTION.
    pub blob: String,
    /// How we sign in.
    pub credential: AzureCredential,
    /// Bound on one request.
    pub request_timeout: Duration,
    /// `HTTPS_PROXY`, where it is set.
    pub proxy: Option<String>,
    /// `NO_PROXY`.
    pub no_proxy: Option<String>,
}

/// How we sign in to Azure, in the order of preference.
#[derive(Clone, Debug)]
pub enum AzureCredential {
    /// `AZURE_STORAGE_CONNECTION_STRING` or `…_FILE`.
    ConnectionString(SecretSource),
    /// `AZURE_STORAGE_KEY` or `…_FILE`.
    Key(SecretSource),
    /// `AZURE_STORAGE_SAS_TOKEN` or `…_FILE`.
    Sas(SecretSource),
    /// `AZURE_FEDERATED_TOKEN_FILE` with `AZURE_CLIENT_ID`, `AZURE_TENANT_ID`, `AZURE_AUTHORITY_HOST`.
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
    /// Managed identity, user-assigned where `AZURE_CLIENT_ID` names one.
    ManagedIdentity {
        /// `AZURE_CLIENT_ID`.
        client_id: Option<String>,
    },
    /// The Azure CLI's sign-in.
    AzureCli,
}

/// Where a secret comes from.
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

/// One address of the status listener.
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

/// One status file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFile {
    /// Where.
    pub path: PathBuf,
    /// In which format, by its ending.
    pub format: FileFormat,
}

/// Format of a status file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// The status document.
    Json,
    /// Lines that a shell can source.
    Env,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

#[cfg(test)]
mod tests;
