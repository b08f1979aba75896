//! The settings as flags, one struct for each section, with unparsed values. Defaults and forms of
//! values are in [`crate::config`]; the help only names them.

use clap::Args;

use crate::config::{Doubt, Flags, Loaded};

/// The flags of `tenure run`.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingsArgs {
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    kubernetes: KubernetesArgs,
    #[command(flatten)]
    timings: TimingArgs,
    #[command(flatten)]
    status: StatusArgs,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    health: HealthArgs,
    #[command(flatten)]
    drain: DrainArgs,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    logs: LogArgs,
    #[command(flatten)]
    file: FileArgs,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Election")]
struct ElectionArgs {
    /// Name of the election: 1 to 63 of a-z 0-9 - . [default: default]
    #[arg(long, value_name = "NAME")]
    election: Option<String>,
    /// Who we are, for people [default: POD_NAME, else the host name]
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
    /// Address of the service next to us, published to the others while we lead
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<String>,
    /// Never compete, only tell who leads
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    observe: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Store")]
struct StoreArgs {
    /// Where the lease is kept: file:///DIRECTORY, azure://ACCOUNT/CONTAINER,
    /// kubernetes:[NAMESPACE/]NAME, memory: [default: file: in the runtime directory, in Kubernetes
    /// none]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Endpoint of the account, for other clouds and for Azurite [default:
    /// https://ACCOUNT.blob.core.windows.net]
    #[allow(rustdoc::bare_urls, reason = "it is read on a terminal")]
    #[arg(long, value_name = "URL")]
    azure_endpoint: Option<String>,
    /// What comes before the election in the name of the blob: PREFIX/ELECTION
    #[arg(long, value_name = "PREFIX")]
    azure_blob_prefix: Option<String>,
    /// Allow plain http to an endpoint beyond this machine
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    azure_insecure_http: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Kubernetes")]
struct KubernetesArgs {
    /// Where the API server is, https://HOST:PORT, or plain http on this machine (`kubectl proxy`)
    /// [default: the pod's own cluster, with the token and the CA of its service account]
    #[arg(long, value_name = "URL")]
    kube_api: Option<String>,
    /// File that holds the token for it, read again when it changes
    #[arg(long, value_name = "PATH")]
    kube_token_file: Option<String>,
    /// File of the certificates that vouch for it [default with --kube-api: those that the system
    /// trusts]
    #[arg(long, value_name = "PATH")]
    kube_ca_file: Option<String>,
    /// How a Service follows the leader: label (each pod is labelled active or passive) or
    /// endpointslice (the leader alone is behind --kube-service); wants POD_NAME and POD_NAMESPACE
    #[arg(long, value_name = "ROUTE")]
    kube_route: Option<String>,
    /// Key of the label for --kube-route label [default: tenure.dev/role]
    #[arg(long, value_name = "KEY")]
    kube_label: Option<String>,
    /// The Service without selector for --kube-route endpointslice
    #[arg(long, value_name = "NAME")]
    kube_service: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Timings")]
struct TimingArgs {
    /// How long the store keeps the lease for us after each grant [default: 15s]
    #[arg(long, value_name = "DURATION")]
    lease_duration: Option<String>,
    /// How long after sending the last granted request we still say active [default: 10s]
    #[arg(long, value_name = "DURATION")]
    renew_deadline: Option<String>,
    /// Time between renewals of a leader; mean time between looks of a standby [default: 2s]
    #[arg(long, value_name = "DURATION")]
    retry_period: Option<String>,
    /// Bound on one request to the store [default: 2s]
    #[arg(long, value_name = "DURATION")]
    request_timeout: Option<String>,
    /// How long a new leader holds the lease before it says active, for resources that cannot
    /// check a term [default: 0s]
    #[arg(long, value_name = "DURATION")]
    activation_delay: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Status")]
struct StatusArgs {
    /// Where the status listener listens: an address, unix:/path, or off; may be given several
    /// times [default: 127.0.0.1:4040; exec: 127.0.0.1:0]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Most connections on the status listener [default: 512]
    #[arg(long, value_name = "NUMBER")]
    max_connections: Option<String>,
    /// File that always holds the status, .json or .env; may be given several times
    #[arg(long, value_name = "PATH")]
    status_file: Vec<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Operating")]
struct AdminArgs {
    /// Where the admin listener listens: unix:/path, for our own user; or a loopback address, with
    /// --admin-token-file
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<String>,
    /// File that holds the token for an --admin by address: one line of at least 16 characters,
    /// not readable by others
    #[arg(long, value_name = "PATH")]
    admin_token_file: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Health")]
struct HealthArgs {
    /// What must be well for us to compete: http://HOST/PATH (answers 2xx), https://HOST/PATH,
    /// tcp://HOST:PORT (connects), file:/PATH?max_age=30s (is there, and as fresh), exec:CMD (exits
    /// with 0); may be given several times, all must be well
    #[arg(long, value_name = "PROBE")]
    health: Vec<String>,
    /// Time between questions to each probe [default: 2s]
    #[arg(long, value_name = "DURATION")]
    health_interval: Option<String>,
    /// Bound on one question to a probe [default: 1s]
    #[arg(long, value_name = "DURATION")]
    health_timeout: Option<String>,
    /// After so many failures in a row a leader drains and resigns, a standby stops competing
    /// [default: 3]
    #[arg(long, value_name = "NUMBER")]
    health_failures: Option<String>,
    /// After so many successes in a row we compete, at the start too [default: 2]
    #[arg(long, value_name = "NUMBER")]
    health_successes: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Drain")]
struct DrainArgs {
    /// Longest time between saying passive and releasing the lease, for the service to end its work;
    /// ends early by `tenure drained`, or when --on-drain has ended, or `exec`'s command
    /// [default: 0s; exec: 10s]
    #[arg(long, value_name = "DURATION")]
    drain_timeout: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Hooks")]
struct HookArgs {
    /// What is run when we begin to say active: a command line, split like a shell would and run
    /// without one, or an http:// or https:// address that gets the status document by POST
    #[arg(long, value_name = "HOOK")]
    on_active: Option<String>,
    /// What is run when we begin to say passive
    #[arg(long, value_name = "HOOK")]
    on_passive: Option<String>,
    /// What is run when a drain begins; the lease is released when it has ended
    #[arg(long, value_name = "HOOK")]
    on_drain: Option<String>,
    /// What is run when another holder or term is seen, on standbys too
    #[arg(long, value_name = "HOOK")]
    on_leader_change: Option<String>,
    /// How long a hook may take before it is ended [default: 10s]
    #[arg(long, value_name = "DURATION")]
    hook_timeout: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Logs")]
struct LogArgs {
    /// text or json [default: text on a terminal, else json]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// error, warn, info, debug, trace or off, also by target: info,tenure::store=debug [default:
    /// info]
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "File of settings")]
struct FileArgs {
    /// TOML or YAML file of settings, by its ending
    #[arg(long, value_name = "PATH")]
    config: Option<String>,
}

/// The flags of `tenure exec`: those of `tenure run`, and its own.
#[derive(Args, Clone, Debug, Default)]
pub struct ExecSettingsArgs {
    #[command(flatten)]
    shared: SettingsArgs,
    /// Under exec: time from the command's SIGTERM to its SIGKILL when renewals fail; the latter
    /// comes when we no longer say active [default: 3s]
    #[arg(long, value_name = "DURATION", help_heading = "Drain")]
    stop_timeout: Option<String>,
}

/// Logs the notes and warnings from loading the settings.
pub(super) fn tell(loaded: &Loaded) {
    for note in &loaded.notes {
        tracing::debug!("{note}");
    }
    for Doubt { subject, problem, remedy } in &loaded.doubts {
        tracing::warn!("{subject}: {problem}; {remedy}");
    }
}

impl SettingsArgs {
    /// Returns the flags that were given, by setting.
    #[must_use]
    pub fn flags(self) -> Flags {
        let one = |value: Option<String>| value.into_iter().collect();
        let all: [(&'static str, Vec<String>); 38] = [
            ("election", one(self.election.election)),
            ("identity", one(self.election.identity)),
            ("advertise", one(self.election.advertise)),
            ("observe", one(self.election.observe)),
            ("store", one(self.store.store)),
            ("azure-endpoint", one(self.store.azure_endpoint)),
            ("azure-blob-prefix", one(self.store.azure_blob_prefix)),
            ("azure-insecure-http", one(self.store.azure_insecure_http)),
            ("kube-api", one(self.kubernetes.kube_api)),
            ("kube-token-file", one(self.kubernetes.kube_token_file)),
            ("kube-ca-file", one(self.kubernetes.kube_ca_file)),
            ("kube-route", one(self.kubernetes.kube_route)),
            ("kube-label", one(self.kubernetes.kube_label)),
            ("kube-service", one(self.kubernetes.kube_service)),
            ("lease-duration", one(self.timings.lease_duration)),
            ("renew-deadline", one(self.timings.renew_deadline)),
            ("retry-period", one(self.timings.retry_period)),
            ("request-timeout", one(self.timings.request_timeout)),
            ("activation-delay", one(self.timings.activation_delay)),
            ("listen", self.status.listen),
            ("max-connections", one(self.status.max_connections)),
            ("status-file", self.status.status_file),
            ("admin", one(self.admin.admin)),
            ("admin-token-file", one(self.admin.admin_token_file)),
            ("health", self.health.health),
            ("health-interval", one(self.health.health_interval)),
            ("health-timeout", one(self.health.health_timeout)),
            ("health-failures", one(self.health.health_failures)),
            ("health-successes", one(self.health.health_successes)),
            ("drain-timeout", one(self.drain.drain_timeout)),
            ("on-active", one(self.hooks.on_active)),
            ("on-passive", one(self.hooks.on_passive)),
            ("on-drain", one(self.hooks.on_drain)),
            ("on-leader-change", one(self.hooks.on_leader_change)),
            ("hook-timeout", one(self.hooks.hook_timeout)),
            ("log-format", one(self.logs.log_format)),
            ("log-level", one(self.logs.log_level)),
            ("config", one(self.file.config)),
        ];
        all.into_iter().filter(|(_, values)| !values.is_empty()).collect()
    }
}

impl ExecSettingsArgs {
    /// Returns the flags that were given, by setting.
    #[must_use]
    pub fn flags(self) -> Flags {
        let mut flags = self.shared.flags();
        flags.extend(self.stop_timeout.map(|it| ("stop-timeout", vec![it])));
        flags
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::config::{Arity, SETTINGS, Verb};

    /// A command line of settings alone, as `tenure exec` takes them.
    #[derive(Parser)]
    struct Exec {
        #[command(flatten)]
        settings: ExecSettingsArgs,
    }

    fn flags(arguments: &[&str]) -> Flags {
        let arguments = ["tenure", "run"].iter().chain(arguments);
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Run(args) => args.flags(),
            other => panic!("{other:?}"),
        }
    }

    fn exec_flags(arguments: &[&str]) -> Flags {
        let arguments = ["exec"].iter().chain(arguments);
        Exec::try_parse_from(arguments).unwrap().settings.flags()
    }

    #[test]
    fn every_setting_is_a_flag_and_every_flag_a_setting() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let long: Vec<_> = run.get_arguments().filter_map(|it| it.get_long()).collect();
        let of_run: Vec<_> = SETTINGS.iter().filter(|it| it.is_flag_of(Verb::Run)).collect();
        let names: Vec<_> = of_run.iter().map(|it| it.name).collect();
        assert_eq!(long, names);
        of_run.into_iter().for_each(|it| takes(it, flags));

        let exec = Exec::command();
        let mut long: Vec<_> = exec.get_arguments().filter_map(|it| it.get_long()).collect();
        let mut names: Vec<_> = SETTINGS.iter().map(|it| it.name).collect();
        long.sort_unstable();
        names.sort_unstable();
        assert_eq!(long, names);
        SETTINGS.iter().for_each(|it| takes(it, exec_flags));
    }

    fn takes(setting: &crate::config::Setting, flags: fn(&[&str]) -> Flags) {
        let flag = format!("--{}", setting.name);
        let given = match setting.arity {
            Arity::One => flags(&[&flag, "x"]),
            Arity::Many => flags(&[&flag, "x", &flag, "y"]),
            Arity::Switch => flags(&[&flag]),
        };
        let values: &[&str] = match setting.arity {
            Arity::One => &["x"],
            Arity::Many => &["x", "y"],
            Arity::Switch => &["true"],
        };
        assert_eq!(given.len(), 1, "{flag}");
        assert_eq!(given[setting.name], values, "{flag}");
    }

    #[test]
    fn a_flag_of_exec_alone_is_unknown_to_run() {
        let refused = Cli::try_parse_from(["tenure", "run", "--stop-timeout", "1s"]).unwrap_err();
        assert_eq!(refused.kind(), clap::error::ErrorKind::UnknownArgument);
    }

    #[test]
    fn the_help_names_the_defaults_that_there_are() {
        let command = Exec::command();
        for setting in SETTINGS.iter().filter(|it| it.arity != Arity::Switch) {
            let argument = command.get_arguments().find(|it| it.get_long() == Some(setting.name));
            let help = argument.unwrap().get_help().unwrap().to_string();
            let Some(run) = setting.default_for(Verb::Run) else { continue };
            let default = match setting.default_for(Verb::Exec) {
                Some(exec) if exec != run => format!("[default: {run}; exec: {exec}]"),
                _ => format!("[default: {run}]"),
            };
            assert!(help.contains(&default), "{}: {help}", setting.name);
        }
    }

    #[test]
    fn a_switch_is_taken_back_only_with_an_equals_sign() {
        assert_eq!(flags(&["--observe=false"])["observe"], ["false"]);
        assert!(Cli::try_parse_from(["tenure", "run", "--observe", "false"]).is_err());
        assert!(flags(&[]).is_empty());
    }
}
