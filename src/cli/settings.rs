//! The settings as flags, one struct per section, every value raw.
//!
//! What it does not do: it knows no default and no form of a value beyond naming them in the help;
//! [`crate::config`] does.

use clap::Args;

use crate::config::Flags;

/// The flags of `tenure run` and `tenure doctor`.
#[derive(Args, Clone, Debug, Default)]
pub struct SettingsArgs {
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    timings: TimingArgs,
    #[command(flatten)]
    status: StatusArgs,
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
    /// Where the lease is kept: file:///DIRECTORY, azure://ACCOUNT/CONTAINER, memory: [default:
    /// file: in the runtime directory]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Endpoint of the account, for other clouds and for Azurite [default:
    /// https://ACCOUNT.blob.core.windows.net]
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
    /// times [default: 127.0.0.1:4040]
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

impl SettingsArgs {
    /// The flags that were given, by setting.
    #[must_use]
    pub fn flags(self) -> Flags {
        let one = |value: Option<String>| value.into_iter().collect();
        let all: [(&'static str, Vec<String>); 19] = [
            ("election", one(self.election.election)),
            ("identity", one(self.election.identity)),
            ("advertise", one(self.election.advertise)),
            ("observe", one(self.election.observe)),
            ("store", one(self.store.store)),
            ("azure-endpoint", one(self.store.azure_endpoint)),
            ("azure-blob-prefix", one(self.store.azure_blob_prefix)),
            ("azure-insecure-http", one(self.store.azure_insecure_http)),
            ("lease-duration", one(self.timings.lease_duration)),
            ("renew-deadline", one(self.timings.renew_deadline)),
            ("retry-period", one(self.timings.retry_period)),
            ("request-timeout", one(self.timings.request_timeout)),
            ("activation-delay", one(self.timings.activation_delay)),
            ("listen", self.status.listen),
            ("max-connections", one(self.status.max_connections)),
            ("status-file", self.status.status_file),
            ("log-format", one(self.logs.log_format)),
            ("log-level", one(self.logs.log_level)),
            ("config", one(self.file.config)),
        ];
        all.into_iter().filter(|(_, values)| !values.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::config::{Arity, SETTINGS};

    fn flags(arguments: &[&str]) -> Flags {
        let arguments = ["tenure", "run"].iter().chain(arguments);
        match Cli::try_parse_from(arguments).unwrap().command {
            Command::Run(args) => args.flags(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_setting_is_a_flag_and_every_flag_a_setting() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let long: Vec<_> = run.get_arguments().filter_map(|it| it.get_long()).collect();
        let settings: Vec<_> = SETTINGS.iter().map(|it| it.name).collect();
        assert_eq!(long, settings);
        for setting in &SETTINGS {
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
    }

    #[test]
    fn the_help_names_the_defaults_that_there_are() {
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for setting in SETTINGS.iter().filter(|it| it.arity != Arity::Switch) {
            let argument = run.get_arguments().find(|it| it.get_long() == Some(setting.name));
            let help = argument.unwrap().get_help().unwrap().to_string();
            if let Some(default) = setting.default {
                assert!(
                    help.contains(&format!("[default: {default}]")),
                    "{}: {help}",
                    setting.name
                );
            }
        }
    }

    #[test]
    fn a_switch_is_taken_back_only_with_an_equals_sign() {
        assert_eq!(flags(&["--observe=false"])["observe"], ["false"]);
        assert!(Cli::try_parse_from(["tenure", "run", "--observe", "false"]).is_err());
        assert!(flags(&[]).is_empty());
    }
}
