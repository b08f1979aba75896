//! Turns unparsed values into settings: parses each, checks the rules between them, and collects
//! all faults. It makes no request to the network or the store.

use std::path::PathBuf;
use std::time::Duration;

use super::azure::{self, AzureSettings};
use super::environment::Environment;
use super::faults::{Faults, Problem, Source, Warning};
use super::kubernetes::Cluster;
use super::layers::{Flags, Layers};
use super::reader::Reader;
use super::settings::{FileSettings, Settings, StoreSettings};
use super::store_url::{self, StoreUrl};
use super::table::Verb;
use super::timings::{self, Limits, Timings};
use super::values::{self, LogFormat};
use super::warnings;

/// Valid settings, with notes and warnings.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// What was ignored, for the log at debug level; logging starts only after the settings are
    /// known.
    pub notes: Vec<String>,
    /// Warnings about settings that may not do what was intended.
    pub warnings: Vec<Warning>,
}

/// Reads flags, environment and file into valid settings for a command that is about to start.
///
/// # Errors
/// Returns all faults at once.
pub fn load(flags: &Flags, environment: &Environment, verb: Verb) -> Result<Loaded, Faults> {
    Reader::of(flags, environment, verb, true).load()
}

/// Like [`load`], for commands that start nothing: the process that the settings belong to may be
/// running, and its admin socket be in use.
///
/// # Errors
/// Returns all faults at once.
pub fn load_to_look(
    flags: &Flags,
    environment: &Environment,
    verb: Verb,
) -> Result<Loaded, Faults> {
    Reader::of(flags, environment, verb, false).load()
}

impl Reader<'_> {
    fn load(mut self) -> Result<Loaded, Faults> {
        let settings = self.settings();
        let Layers { faults, notes, .. } = self.layers;
        match settings {
            Some(settings) if faults.is_empty() => {
                let mut warnings = self.warnings;
                warnings.extend(warnings::of(&settings, self.environment, self.verb));
                Ok(Loaded { settings, notes, warnings })
            }
            _ => Err(Faults(faults)),
        }
    }
}

impl Reader<'_> {
    fn settings(&mut self) -> Option<Settings> {
        // Every value is read before the first `?`, so that every fault is reported.
        let election = self.one("election", values::election);
        let identity = self.identity();
        let advertise = self.optional("advertise", values::advertise);
        let observe = self.one("observe", values::switch);
        let timings = self.timings();
        let request_timeout = timings.map(|it| it.request_timeout);
        let url = self.optional("store", store_url::parse);
        let cluster = self.cluster(url.as_ref().and_then(Option::as_ref));
        let store = self.store(url, election.as_deref(), request_timeout, cluster.as_ref());
        let lease = match &store {
            Some(StoreSettings::Kubernetes(lease)) => Some(lease),
            _ => None,
        };
        let host = advertise.as_ref().and_then(Option::as_deref);
        let kubernetes = self.beside(cluster, lease, host, election.as_deref(), request_timeout);
        let stop_timeout = self.one("stop-timeout", values::duration);
        self.check_timings(timings, store.as_ref(), stop_timeout);
        let listen = self.many("listen", values::listen);
        let max_connections = self.one("max-connections", values::max_connections);
        let max_connections_per_peer =
            self.one("max-connections-per-peer", values::max_connections);
        let allowed_hosts = self.many("allowed-hosts", values::host_names);
        let status_files = self.many("status-file", values::status_files);
        let admin = self.admin(listen.as_deref());
        let health = self.health();
        let drain_timeout = self.one("drain-timeout", values::duration);
        let hooks = self.hooks();
        let log_format = self.log_format();
        let log_level = self.one("log-level", values::log_level);
        Some(Settings {
            election: election?,
            identity: identity?,
            advertise: advertise?,
            kubernetes: kubernetes?,
            store: store?,
            timings: timings?,
            observe: observe?,
            listen: listen?,
            max_connections: max_connections?,
            max_connections_per_peer: max_connections_per_peer?,
            allowed_hosts: allowed_hosts?,
            status_files: status_files?,
            admin: admin?,
            health: health?,
            drain_timeout: drain_timeout?,
            stop_timeout: stop_timeout?,
            hooks: hooks?,
            log_format: log_format?,
            log_level: log_level?,
        })
    }

    /// Returns `--identity`, else the pod's name, else the host name.
    fn identity(&mut self) -> Option<String> {
        if self.raw("identity").is_some() {
            return self.one("identity", values::identity);
        }
        let (value, source) = match self.environment.get("POD_NAME") {
            Some(pod) => (pod.to_owned(), Source::Variable("POD_NAME".to_owned())),
            None => (self.environment.host_name.clone(), Source::HostName),
        };
        values::identity(&value)
            .map_err(|mut problem| {
                problem.remedy = "set --identity".to_owned();
                self.fault("identity", Some(&value), source, problem);
            })
            .ok()
    }

    fn log_format(&mut self) -> Option<LogFormat> {
        let usual = if self.environment.on_terminal { LogFormat::Text } else { LogFormat::Json };
        Some(self.optional("log-format", values::log_format)?.unwrap_or(usual))
    }

    fn timings(&mut self) -> Option<Timings> {
        let lease_duration = self.one("lease-duration", values::duration);
        let renew_deadline = self.one("renew-deadline", values::duration);
        let retry_period = self.one("retry-period", values::duration);
        let request_timeout = self.one("request-timeout", values::duration);
        let activation_delay = self.one("activation-delay", values::duration);
        Some(Timings {
            lease_duration: lease_duration?,
            renew_deadline: renew_deadline?,
            retry_period: retry_period?,
            request_timeout: request_timeout?,
            activation_delay: activation_delay?,
        })
    }

    fn check_timings(
        &mut self,
        timings: Option<Timings>,
        store: Option<&StoreSettings>,
        stop_timeout: Option<Duration>,
    ) {
        let Some(timings) = timings else { return };
        let stop = stop_timeout.filter(|_| self.verb == Verb::Exec);
        let limits = match store {
            Some(StoreSettings::Azure(_)) => Limits::Azure,
            Some(StoreSettings::Kubernetes(_)) => Limits::Kubernetes,
            _ => Limits::None,
        };
        for (name, mut problem) in timings::check(&timings, limits, stop) {
            // The sources show which value to correct.
            let bound = ["lease-duration", "renew-deadline", "retry-period", "request-timeout"];
            let stop = stop.map(|_| "stop-timeout");
            let others: Vec<_> = bound.into_iter().chain(stop).filter(|it| *it != name).collect();
            problem.problem.push_str(&self.sources(&others));
            self.fault_of(name, problem);
        }
    }

    fn store(
        &mut self,
        url: Option<Option<StoreUrl>>,
        election: Option<&str>,
        request_timeout: Option<Duration>,
        cluster: Option<&Cluster>,
    ) -> Option<StoreSettings> {
        // An invalid switch is a fault of its own, and must not cause one of the endpoint.
        let insecure = self.one("azure-insecure-http", values::switch).unwrap_or(true);
        let endpoint = self.optional("azure-endpoint", |it| azure::endpoint(it, insecure));
        let prefix = self.optional("azure-blob-prefix", values::blob_prefix);
        match url? {
            None => self.default_store(election),
            Some(StoreUrl::Kubernetes { namespace, name }) => self
                .lease(cluster?, namespace, name, request_timeout)
                .map(StoreSettings::Kubernetes),
            Some(StoreUrl::Memory) => Some(StoreSettings::Memory),
            Some(StoreUrl::File(directory)) => Some(file(directory, false, election?)),
            Some(StoreUrl::Azure { account, container }) => {
                let faults = &mut self.layers.faults;
                let credential = azure::credential(&account, self.environment, faults);
                let (proxy, no_proxy) = azure::proxy(self.environment, faults);
                let endpoint = endpoint?.or_else(|| azure::default_endpoint(&account))?;
                let election = election?;
                Some(StoreSettings::Azure(Box::new(AzureSettings {
                    endpoint,
                    account,
                    container,
                    blob: match prefix? {
                        Some(prefix) => format!("{prefix}/{election}"),
                        None => election.to_owned(),
                    },
                    credential,
                    request_timeout: request_timeout?,
                    proxy,
                    no_proxy,
                })))
            }
        }
    }

    fn default_store(&mut self, election: Option<&str>) -> Option<StoreSettings> {
        if self.environment.in_kubernetes() {
            let problem = Problem::new(
                "is not set, and its default is a file: in Kubernetes each pod would lead on its \
                 own",
                format!(
                    "set a store that all pods share: --store kubernetes:{} for a Lease in the \
                     pod's namespace, azure://ACCOUNT/CONTAINER; or file:///DIRECTORY if that is \
                     intended",
                    election.filter(|it| *it != "default").unwrap_or("orders"),
                ),
            );
            self.fault("store", None, Source::Default, problem);
            return None;
        }
        Some(file(self.environment.runtime_directory(), true, election?))
    }
}

fn file(directory: PathBuf, is_default: bool, election: &str) -> StoreSettings {
    StoreSettings::File(FileSettings { directory, is_default, election: election.to_owned() })
}
