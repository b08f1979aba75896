//! Turns unparsed values into settings: parses each, checks the rules between them, and collects
//! all faults. It makes no request to the network or the store.

use std::path::PathBuf;
use std::time::Duration;

use super::duration;
use super::environment::{DefaultDirectory, Environment};
use super::faults::{Faults, Problem, Source, Warning};
use super::kubernetes::Cluster;
use super::layers::{Flags, Layers};
use super::postgres;
use super::reader::Reader;
use super::scheduled_events;
use super::settings::{FileSettings, Settings, StoreSettings};
use super::store_url::{self, StoreUrl};
use super::table::{Setting, Verb};
use super::timings::{self, Broken, Limits, Timings};
use super::values::{self, LogFormat};
use super::warnings;
use super::withheld;

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
    /// Whether the store is the default one.
    pub is_default_store: bool,
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
pub fn load_to_examine(
    flags: &Flags,
    environment: &Environment,
    verb: Verb,
) -> Result<Loaded, Faults> {
    Reader::of(flags, environment, verb, false).load()
}

impl Reader<'_> {
    fn load(mut self) -> Result<Loaded, Faults> {
        let settings = self.settings();
        let is_default_store = self.raw("store").is_none();
        let Layers { faults, notes, .. } = self.layers;
        match settings {
            Some(settings) if faults.is_empty() => {
                let mut warnings = self.warnings;
                warnings.extend(warnings::of(&settings, self.environment, self.verb));
                Ok(Loaded { settings, notes, warnings, is_default_store })
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
        let request_timeout = self.given_duration("request-timeout");
        let url = self.optional("store", store_url::parse);
        let stop_timeout = self.one("stop-timeout", values::duration);
        self.check_timings(url.as_ref().and_then(Option::as_ref), stop_timeout);
        let secrets = withheld::of_store(url.as_ref().and_then(Option::as_ref));
        let cluster = self.cluster(url.as_ref().and_then(Option::as_ref));
        let store = self.store(url, election.as_deref(), request_timeout, &cluster);
        let lease = match &store {
            Some(StoreSettings::Kubernetes(lease)) => Some(lease),
            _ => None,
        };
        let host = advertise.as_ref().and_then(Option::as_deref);
        let kubernetes =
            self.publishing(cluster, lease, host, election.as_deref(), request_timeout);
        let listen = self.listen();
        let max_connections = self.one("max-connections", values::max_connections);
        let max_connections_per_peer =
            self.one("max-connections-per-peer", values::max_connections);
        let allowed_hosts = self.many("allowed-hosts", values::host_names);
        let tls = self.tls(listen.as_deref());
        let status_files = self.status_files();
        let own_tls = tls.as_ref().and_then(Option::as_ref);
        let (peers, rank) = (self.peers(host, listen.as_deref(), own_tls), self.rank());
        let admin = self.admin(listen.as_deref());
        let agent_check = self.agent_check(listen.as_deref(), admin.as_ref());
        let withheld = self.withheld(secrets);
        let health = self.health(withheld.as_ref());
        let scheduled_events = self.optional("scheduled-events", scheduled_events::parse);
        let drain_timeout = self.one("drain-timeout", values::duration);
        let hooks = self.hooks(withheld.as_ref());
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
            agent_check: agent_check?,
            tls: tls?,
            status_files: status_files?,
            admin: admin?,
            health: health?,
            scheduled_events: scheduled_events?.flatten(),
            peers: peers?,
            rank: rank?,
            drain_timeout: drain_timeout?,
            stop_timeout: stop_timeout?,
            hooks: hooks?,
            withheld: withheld?,
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

    /// Returns a duration if it is valid by itself; a fault of it is recorded elsewhere.
    fn given_duration(&self, name: &str) -> Option<Duration> {
        values::duration(self.raw(name)?.values.first()?).ok()
    }

    /// Checks the rules that relate the timings. A rule with a part that is invalid by itself is
    /// not judged; for the others that part has its default, which only remedies mention.
    fn check_timings(&mut self, store: Option<&StoreUrl>, stop_timeout: Option<Duration>) {
        let usual = |name: &str| {
            let default = Setting::named(name).and_then(|it| it.default);
            default.and_then(|it| duration::parse(it).ok()).unwrap_or_default()
        };
        let of = |name| self.given_duration(name).unwrap_or_else(|| usual(name));
        let timings = Timings {
            lease_duration: of("lease-duration"),
            renew_deadline: of("renew-deadline"),
            retry_period: of("retry-period"),
            request_timeout: of("request-timeout"),
            activation_delay: Duration::ZERO,
        };
        let limits = match store {
            Some(StoreUrl::Azure { .. }) => Limits::Azure,
            Some(StoreUrl::Kubernetes { .. }) => Limits::Kubernetes,
            Some(StoreUrl::Gcs { .. }) => Limits::Gcs,
            _ => Limits::None,
        };
        let stop = stop_timeout.filter(|_| self.verb == Verb::Exec);
        for Broken { setting, others, mut problem } in timings::check(&timings, limits, stop) {
            let parts = [&others[..], &[setting]].concat();
            if parts.iter().any(|it| self.given_duration(it).is_none()) {
                continue;
            }
            // The sources show which value to correct.
            if !others.is_empty() {
                problem.problem.push_str(&self.sources(&others));
            }
            self.fault_of(setting, problem);
        }
    }

    fn store(
        &mut self,
        url: Option<Option<StoreUrl>>,
        election: Option<&str>,
        request_timeout: Option<Duration>,
        cluster: &Cluster,
    ) -> Option<StoreSettings> {
        let azure = self.azure_given();
        let servers = url.as_ref().and_then(|it| it.as_ref()?.addresses());
        let s3 = self.s3_given(matches!(url, Some(Some(StoreUrl::S3 { .. }))));
        let plain_s3: Vec<_> = s3.plain_address().into_iter().collect();
        let tls = match &url {
            Some(Some(StoreUrl::S3 { .. })) => self.store_tls(Some(&plain_s3)),
            Some(Some(StoreUrl::Gcs { .. })) => {
                let plain: Vec<_> = self.plain_emulator().into_iter().collect();
                self.store_tls(Some(&plain))
            }
            _ => self.store_tls(servers),
        };
        let table = self.one("postgres-table", postgres::table);
        let mongodb = self.mongodb_given();
        match url? {
            None => self.default_store(election),
            Some(StoreUrl::Kubernetes { namespace, name }) => {
                self.lease(cluster, namespace, name, request_timeout).map(StoreSettings::Kubernetes)
            }
            Some(StoreUrl::Consul { addresses, prefix }) => self
                .consul(&addresses, prefix, election, tls, request_timeout)
                .map(StoreSettings::Consul),
            Some(StoreUrl::Etcd { addresses, prefix }) => self
                .etcd(&addresses, prefix, election, tls, request_timeout)
                .map(StoreSettings::Etcd),
            Some(StoreUrl::Postgres { addresses, database }) => self
                .postgres(addresses, database, table, election, tls, request_timeout)
                .map(|it| StoreSettings::Postgres(Box::new(it))),
            Some(StoreUrl::Redis { addresses, database }) => self
                .redis(addresses, database, election, tls, request_timeout)
                .map(|it| StoreSettings::Redis(Box::new(it))),
            Some(StoreUrl::S3 { bucket, prefix }) => self
                .s3(bucket, prefix, s3, election, tls, request_timeout)
                .map(|it| StoreSettings::S3(Box::new(it))),
            Some(StoreUrl::Gcs { bucket, prefix }) => self
                .gcs(bucket, prefix, election, tls, request_timeout)
                .map(|it| StoreSettings::Gcs(Box::new(it))),
            Some(StoreUrl::Mongo { addresses, database }) => self
                .mongodb(addresses, database, mongodb, election, tls, request_timeout)
                .map(|it| StoreSettings::Mongo(Box::new(it))),
            Some(StoreUrl::Zookeeper { addresses, path }) => {
                let times = [self.given_duration("lease-duration"), request_timeout];
                let it = self.zookeeper(addresses, path, election, tls, times);
                it.map(|it| StoreSettings::Zookeeper(Box::new(it)))
            }
            Some(StoreUrl::Memory) => Some(StoreSettings::Memory),
            Some(StoreUrl::File(directory)) => Some(file(directory, false, election?)),
            Some(StoreUrl::Azure { account, container }) => {
                let it = self.azure(account, container, azure, election, request_timeout);
                it.map(|it| StoreSettings::Azure(Box::new(it)))
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
                     pod's namespace, azure://ACCOUNT/CONTAINER, consul://HOST:PORT/PREFIX, etcd://HOST:PORT/PREFIX, \
                     postgres://HOST/DATABASE, redis://HOST, s3://BUCKET, gs://BUCKET, \
                     mongodb://HOST/DATABASE, \
                     zookeeper://HOST:PORT/PATH; or file:///DIRECTORY if that is \
                     intended",
                    election.filter(|it| *it != "default").unwrap_or("orders"),
                ),
            );
            self.fault("store", None, Source::Default, problem);
            return None;
        }
        match self.environment.default_directory() {
            Ok(DefaultDirectory { path, is_private }) => Some(file(path, is_private, election?)),
            Err(problem) => {
                self.fault("store", None, Source::Default, problem);
                None
            }
        }
    }
}

fn file(directory: PathBuf, is_private: bool, election: &str) -> StoreSettings {
    StoreSettings::File(FileSettings { directory, is_private, election: election.to_owned() })
}
