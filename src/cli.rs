//! The command line: its subcommands, in the files below, and their arguments.
//!
//! Values of settings are passed unparsed to [`crate::config`], which reports all faults at once,
//! where clap would report only the first.

use clap::{Parser, Subcommand};

pub mod break_lease;
pub mod check;
mod client;
pub mod completions;
pub mod doctor;
mod document;
mod exactly_one;
pub mod exec;
pub mod first_process;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub mod install;
pub mod operate;
pub mod run;
mod settings;
pub mod status;
mod status_file;
mod terminal;
pub mod wait;
pub mod watch;

pub use client::UrlArgs;
pub use settings::{ExecSettingsArgs, SettingsArgs};

const EXAMPLES: &str = "\
Examples:
  tenure run                             a sidecar; candidates on one host need no settings
  curl -f http://127.0.0.1:4040/leader   200 while this instance leads, else 503
  tenure exec -- ./worker                a command that runs only while this instance leads
  tenure status                          who leads, since when, for how much longer
  tenure check && ./nightly-job          only where this instance leads
  tenure wait --for active --timeout 1m  until this instance leads

Exit codes: 0 done (check: active), 1 failed (check: passive), 2 bad settings or usage (check: unknown)
`tenure run --help` lists all settings.";

const RUN_EXAMPLES: &str = "\
Each setting is also a variable (--lease-duration is TENURE_LEASE_DURATION) and a key of the settings \
file (lease-duration). Flag beats variable beats file beats default. To give several values, repeat the \
flag, separate the values in the variable with commas (quote commas in the command of an exec: probe), \
or write a list in the file. Durations are written 15s, 1m30s, 500ms. Credentials are never flags; \
Tenure uses the first of AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN \
(each also with _FILE at its end, for a file), workload identity, managed identity and the Azure CLI.

Examples:
  tenure run
      candidates on one host, without any set-up
  tenure run --election orders --store azure://myaccount/elections
      candidates anywhere, with a lease on a blob
  tenure run --store azure://devstoreaccount1/elections
      the same against Azurite at its usual address
  tenure run --election orders --store kubernetes:orders --kube-route label
      in a pod: with a Lease in its namespace, and a Service that selects tenure.dev/role=active
  tenure run --store kubernetes:prod/orders --kube-api http://127.0.0.1:8001
      the same Lease from outside the cluster, with a `kubectl proxy`
  tenure run --status-file /run/orders/leader.env --status-file /run/orders/leader.json
      for services without HTTP
  tenure run --lease-duration 30s --renew-deadline 20s --retry-period 4s
      leadership survives longer outages of the store; replacing a dead leader takes longer
  tenure run --health http://127.0.0.1:8080/healthz --drain-timeout 20s
      leads only while the service is healthy, and gives it 20s to finish its work
  TENURE_ELECTION=orders tenure run --config /etc/tenure.toml --listen unix:/run/orders/tenure.sock
      settings from a variable, a file and a flag";

const EXEC_EXAMPLES: &str = "\
CMD runs in its own process group, with TENURE_TERM, TENURE_ELECTION, TENURE_IDENTITY, TENURE_URL and \
TENURE_STATUS_FILE. When renewals fail, it receives SIGTERM stop-timeout before the end of \
renew-deadline, and SIGKILL at its end, even if Tenure itself is killed or hangs. Signals are passed on \
to CMD. SIGTERM and SIGINT stop it within drain-timeout and release the lease. Without --once, the lease \
is also released when CMD exits, and CMD starts again when this instance leads again.

Examples:
  tenure exec --election orders --store azure://myaccount/jobs -- ./worker --queue orders
      a service that runs on one machine at a time
  tenure exec --once --wait 30s --election migrate -- ./migrate.sh
      a migration: waits up to 30 s for the lock, then runs, or exits with 75
  */5 * * * *  tenure exec --once --wait 0s --max-hold 4m --election report -- /opt/report.sh
      a crontab line for many machines: one of them runs it, for at most 4 minutes

Exit codes: with --once CMD's own, 128 + n if signal n ended it; 75 no lease within --wait; 76 leadership \
lost, CMD was stopped; 124 --max-hold exceeded; 126 CMD cannot be run; 127 CMD not found; 2 bad settings, \
or inside an exec of the same election; 0 stopped by a signal, lease released; 128 + n second signal n
`tenure run --help` describes variables, the settings file and credentials.";

/// Leader election for services in any language: a sidecar that never lies about who leads.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the sidecar: compete, renew and publish until SIGTERM or SIGINT
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<SettingsArgs>),
    /// Run a command only while this instance leads; with --once, a lock for jobs and scripts
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(Box<exec::Args>),
    /// Show who leads, in which term, and for how much longer
    Status(status::Args),
    /// Exit with 0 if this instance leads, 1 if not, 2 if unknown
    Check(check::Args),
    /// Wait until this instance is active or passive, or exactly one of several is active
    Wait(wait::Args),
    /// Print each change of the status: text on a terminal, JSON lines in a pipe
    Watch(watch::Args),
    /// Check settings, store, credentials and clocks, and print a remedy for each problem
    Doctor(Box<doctor::Args>),
    /// End the leadership of this instance, and let another candidate lead
    #[command(after_help = operate::STEP_DOWN)]
    StepDown(operate::StepDown),
    /// Hand leadership over to a named candidate
    #[command(after_help = operate::TRANSFER)]
    Transfer(operate::Transfer),
    /// Take this instance out of the election; a leader resigns
    #[command(after_help = operate::PAUSE)]
    Pause(operate::AdminArgs),
    /// Bring a paused instance back into the election, or end its hold-off
    #[command(after_help = operate::RESUME)]
    Resume(operate::AdminArgs),
    /// Report that the service has finished its work: the lease is released now
    #[command(after_help = operate::DRAINED)]
    Drained(operate::Drained),
    /// End a lease whose holder is gone, directly in the store
    Break(Box<break_lease::Args>),
    /// Copy this binary into a directory, for images that have no cp
    Install(install::Args),
    /// Print completions for a shell
    Completions(completions::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
