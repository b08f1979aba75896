//! The command line: its subcommands, in the files below, and their arguments.
//!
//! Values of settings are passed unparsed to [`crate::config`], which reports all faults at once,
//! where clap would report only the first.

use std::sync::LazyLock;

use clap::{Parser, Subcommand};

mod admin_client;
pub mod break_lease;
pub mod check;
mod client;
pub mod completions;
mod direct;
pub mod doctor;
mod document;
mod events;
mod exactly_one;
pub mod exec;
pub mod first_process;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod identity_checks;
pub mod install;
pub mod kubectl;
mod leader;
pub mod migrate;
pub mod operate;
mod outcome;
mod peer_checks;
mod renewal;
pub mod run;
mod settings;
pub mod status;
mod status_file;
mod surroundings;
mod terminal;
mod tls;
pub mod usage;
pub mod wait;
pub mod watch;
mod watch_lines;
mod watch_news;

use admin_client::AdminArgs;
pub use client::UrlArgs;
pub use settings::{ExecSettingsArgs, SettingsArgs};
pub use terminal::ColourArgs;

const EXAMPLES: &str = "\
Examples:
  tenure run                             a sidecar; candidates on one host need no settings
  curl -f http://127.0.0.1:4040/leader   200 while this instance leads, else 503
  tenure exec --store URL -- ./worker    a command that runs only while this instance leads
  tenure status                          the leader, the term, the time left
  tenure check && ./nightly-job          only on the leader
  tenure wait --for active --timeout 1m  blocks until this instance leads

Exit codes: 0 done (check: active), 1 failed (check: passive), 2 bad settings or usage (check: unknown)
`tenure run --help` lists all settings.";

const RUN_EXAMPLES: &str = "\
Each setting is also a variable (--lease-duration is TENURE_LEASE_DURATION) and a key of the file \
(lease-duration). Flag beats variable beats file beats default. Lists are flags given several times, \
commas in the variable (quoted if they belong to an exec: probe's command), a list in the \
file. Durations are written 15s, 1m30s, 1.5m, 500ms. Credentials are \
never flags: for azure: AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, \
workload identity, managed identity and the Azure CLI, in this order; for consul: CONSUL_HTTP_TOKEN; for etcd: ETCD_USERNAME and \
ETCD_PASSWORD; for mongodb: MONGODB_USERNAME and \
MONGODB_PASSWORD; for postgres: PGUSER, PGPASSWORD and PGPASSFILE; for redis: REDIS_USERNAME and REDIS_PASSWORD; for s3: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, \
a profile, or a role of the platform; for gs: GOOGLE_APPLICATION_CREDENTIALS, a login of gcloud, or the \
metadata server; for zookeeper: ZOOKEEPER_AUTH. Each variable that holds a secret also with the suffix _FILE.

Examples:
  tenure run
      candidates on one host, without any setup
  tenure run --election orders --store azure://myaccount/elections
      candidates anywhere, with a lease on a blob
  tenure run --store azure://devstoreaccount1/elections
      the same against Azurite at its usual address
  tenure run --election orders --store kubernetes:orders --kube-route label
      in a pod: with a Lease in its namespace, and a Service that selects tenure.dev/role=active
  tenure run --store kubernetes:prod/orders --kube-api http://127.0.0.1:8001
      the same Lease from outside the cluster, through `kubectl proxy`
  CONSUL_HTTP_TOKEN_FILE=/run/secrets/consul tenure run --election orders --store consul://127.0.0.1:8500/tenure
      candidates anywhere, with a lock in Consul by the agent on this host
  tenure run --election orders --store etcd://etcd-1:2379,etcd-2:2379/tenure --store-ca-file /etc/etcd/ca.crt
      candidates anywhere, with a lease in etcd
  PGUSER=elections PGPASSWORD_FILE=/run/secrets/pg tenure run --election orders --store postgres://db-1,db-2/app
      candidates anywhere, with a row in PostgreSQL
  REDIS_PASSWORD_FILE=/run/secrets/redis tenure run --election orders --store redis://cache-1
      candidates anywhere, with two keys in Redis or Valkey
  tenure run --election orders --store s3://mybucket/elections --s3-region eu-central-1
      candidates anywhere, with an object in S3
  tenure run --election orders --store gs://mybucket/elections
      candidates anywhere, with an object in Google Cloud Storage
  MONGODB_USERNAME=elections MONGODB_PASSWORD_FILE=/run/secrets/mongodb tenure run --election orders --store mongodb://db-1,db-2,db-3/app
      candidates anywhere, with a document in MongoDB
  ZOOKEEPER_AUTH_FILE=/run/secrets/zk tenure run --election orders --store zookeeper://zk-1:2281,zk-2:2281/tenure
      candidates anywhere, with a lease in ZooKeeper
  tenure run --status-file /run/orders/leader.env --status-file /run/orders/leader.json
      for services without HTTP
  tenure run --lease-duration 30s --renew-deadline 20s --retry-period 4s
      tolerates longer outages of the store, takes longer to replace a dead leader
  tenure run --health http://127.0.0.1:8080/healthz --drain-timeout 20s
      leads only while the service is healthy, and gives it 20s to finish its work
  TENURE_ELECTION=orders tenure run --config /etc/tenure.toml --listen unix:/run/orders/tenure.sock
      settings from variables, file and flags";

const EXEC_EXAMPLES: &str = "\
CMD runs in a process group of its own, with TENURE_TERM, TENURE_ELECTION, TENURE_IDENTITY, TENURE_URL \
and TENURE_STATUS_FILE. If the lease cannot be renewed, CMD gets SIGTERM stop-timeout before the end \
of renew-deadline and SIGKILL at its end, even if tenure itself was killed or hangs. Signals are passed on; \
SIGTERM or SIGINT stop CMD within drain-timeout, then the lease is released. Without --once the lease is \
released when CMD exits too, and CMD starts again when this instance leads again. CMD does not inherit the store's \
credentials, unless --pass-credentials is given.

Examples:
  tenure exec --election orders --store azure://myaccount/jobs -- ./worker --queue orders
      a service that runs on one machine at a time
  tenure exec --once --wait 30s --election migrate --store azure://myaccount/jobs -- ./migrate.sh
      a migration: waits up to 30 s for the lease, then runs, or exits with 75
  0 3 * * *  tenure exec --once --wait 0s --max-hold 4m --store azure://myaccount/report -- ./report
      a cron job on many machines: at most one runs it at a time, for at most 4 minutes; the others exit with 75
  tenure exec --once --wait 30s --conflict-exit-code 0 --store azure://myaccount/report -- ./report
      the same in a Kubernetes CronJob: success if another instance holds the lease, 75 if the store does not answer

Without --store the lease is a file on this host, and only processes of this host compete for it. By default only \
warnings and errors are logged.

Exit codes: with --once CMD's own, 128 + n if signal n ended it; 75 no lease within --wait, unless \
--conflict-exit-code says otherwise; 76 leadership \
lost, CMD was stopped; 124 --max-hold is over; 126 CMD cannot be run; 127 CMD not found; 2 bad settings, or \
inside an exec of the same election; 0 stopped by a signal after releasing; 128 + n a second signal n
`tenure run --help` explains how settings are given.";

/// The version, and the stores of this build.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    format!("{}\nstores: {}", env!("CARGO_PKG_VERSION"), crate::store::KINDS.join(", "))
});

/// Leader election for services in any language: a sidecar that never lies about who leads.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, long_version = VERSION.as_str(), after_help = EXAMPLES, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// When to use colours.
    #[command(flatten)]
    pub colour: ColourArgs,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the sidecar: compete, renew, publish, until SIGTERM or SIGINT
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<SettingsArgs>),
    /// Run a command only while this instance leads; with --once, a lock for jobs and scripts
    #[command(after_help = EXEC_EXAMPLES)]
    Exec(Box<exec::Args>),
    /// Show the leader, its term and the time left
    Status(status::Args),
    /// Exit with 0 if this instance leads, 1 if not, 2 if unknown
    Check(check::Args),
    /// Wait until this instance is active or passive, or until exactly one of several is active
    Wait(wait::Args),
    /// Follow each change of status: as text on a terminal, as lines of JSON in a pipe
    Watch(watch::Args),
    /// Check settings, store, credentials and clocks, and show how to fix errors
    Doctor(Box<doctor::Args>),
    /// Make this instance give up leadership to another
    #[command(after_help = operate::STEP_DOWN)]
    StepDown(operate::StepDown),
    /// Make this instance give up leadership to a named successor
    #[command(after_help = operate::TRANSFER)]
    Transfer(operate::Transfer),
    /// Take this instance out of the election; a leader steps down first
    #[command(after_help = operate::PAUSE)]
    Pause(operate::Pause),
    /// Bring a paused instance back into the election, or end its hold-off
    #[command(after_help = operate::RESUME)]
    Resume(AdminArgs),
    /// Report that the service has finished its work: the lease is released at once
    #[command(after_help = operate::DRAINED)]
    Drained(operate::Drained),
    /// Break a lease whose holder is gone, directly in the store
    Break(Box<break_lease::Args>),
    /// Move an election to another store, with terms that go on rising
    Migrate(Box<migrate::Args>),
    /// Copy this binary into a directory, for images without cp
    Install(install::Args),
    /// Print shell completions
    Completions(completions::Args),
    /// The plugin of kubectl, which is selected by the name of the program
    #[command(skip)]
    Kubectl(Box<kubectl::Plugin>),
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
