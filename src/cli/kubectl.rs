//! `kubectl tenure`: the command line of this binary under the name `kubectl-tenure`. It finds the
//! candidates of an election by their pods' labels, asks each in its pod, and sends a command to the
//! leader's.
//!
//! All access to the cluster is kubectl's: this module has no client of the API server and reads no
//! credentials.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use futures::StreamExt;
use futures::stream;

use super::operate::HoldOff;
use super::terminal::{ColourArgs, Output, Style, complain, print};
use crate::clock;
use crate::config::{Environment, Problem, arguments, duration};

mod access;
mod election;
mod handover;
mod pods;
mod table;
#[cfg(test)]
mod tests;

use access::Kubectl;
use election::{Answer, Election, Row, Standing, Verdict};
use handover::Handover;
use pods::{Candidate, LABEL};

/// The name by which kubectl finds its plugin `tenure`.
const NAME: &str = "kubectl-tenure";

/// How many pods are asked at the same time.
const AT_ONCE: usize = 8;

const EXAMPLES: &str = "\
NAME is the name of the election, which the pods have as the label tenure.dev/election. The charts set \
it; the release and the chart are in it unless election.election is set. With manifests of your own, add \
the label to the pod template, or name the pods with --selector.

Examples:
  kubectl tenure status                                 all elections of the namespace
  kubectl tenure status orders -n shop                  one election
  kubectl tenure status -A -o json                      all elections of the cluster, for scripts
  kubectl tenure step-down orders -n shop               another pod leads
  kubectl tenure transfer orders --to orders-7d4f-x2x7k -n shop
  kubectl tenure status -l app.kubernetes.io/name=web   pods without the label tenure.dev/election

You need the permissions `get` and `list` on `pods` and `create` on `pods/exec`.

Exit codes: 0 done; 1 failed: no candidates, or one did not answer, or several report active; 2 bad usage";

const STEP_DOWN: &str = "\
Runs `tenure step-down` in the leader's pod: it reports passive at once, finishes its work within \
drain-timeout, releases the lease, and does not compete for --hold-off. Waits until another candidate leads, \
and says which and after which time.

Examples:
  kubectl tenure step-down orders -n shop
  kubectl tenure step-down orders -n shop --hold-off 1m";

const TRANSFER: &str = "\
Runs `tenure transfer` in the leader's pod. The successor must be a candidate that answers and can take \
over, unless --force is given. Waits until it leads.

Example:
  kubectl tenure transfer orders --to orders-7d4f-x2x7k -n shop";

/// Leader election in Kubernetes: who leads, and handing leadership over
#[derive(Debug, Parser)]
#[command(
    name = NAME,
    bin_name = "kubectl tenure",
    version,
    after_help = EXAMPLES,
    disable_help_subcommand = true
)]
pub struct Plugin {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    colour: ColourArgs,
}

/// The verbs.
#[derive(Debug, Subcommand)]
enum Verb {
    /// Show the candidates of an election, or of all elections, and which of them leads
    Status(Status),
    /// Make the leader of an election give up leadership to another candidate
    #[command(after_help = STEP_DOWN)]
    StepDown(StepDown),
    /// Make the leader of an election give up leadership to a named candidate
    #[command(after_help = TRANSFER)]
    Transfer(Transfer),
}

#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
struct Status {
    /// The election; all of the namespace if it is left out
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The elections of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(clap::Args, Debug)]
struct StepDown {
    /// The election
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    hold_off: HoldOff,
    #[command(flatten)]
    waits: Waits,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(clap::Args, Debug)]
struct Transfer {
    /// The election
    #[arg(value_name = "NAME")]
    name: String,
    /// The pod, or the identity, of the candidate that is to lead
    #[arg(long, value_name = "POD")]
    to: String,
    /// Transfer even if the candidate does not answer, is unknown, or cannot lead now
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    hold_off: HoldOff,
    #[command(flatten)]
    waits: Waits,
    #[command(flatten)]
    cluster: Cluster,
}

/// Whether a command waits until it is done.
#[derive(clap::Args, Clone, Copy, Debug)]
struct Waits {
    /// Do not wait until it is done
    #[arg(long)]
    no_wait: bool,
}

/// Which pods, and how to reach and show them.
#[derive(clap::Args, Clone, Debug)]
struct Cluster {
    /// The namespace [default: that of kubectl's context]
    #[arg(short, long, global = false)]
    namespace: Option<String>,
    /// The context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// The kubeconfig file
    #[arg(long, value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    kubeconfig: Option<String>,
    /// Labels that select the pods, for pods without the label tenure.dev/election
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,
    /// The container that runs Tenure [default: tenure, or the one whose command is tenure]
    #[arg(short, long)]
    container: Option<String>,
    /// How long a pod may take to answer
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = timeout, allow_hyphen_values = true)]
    timeout: Duration,
    /// The format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

fn timeout(text: &str) -> Result<Duration, Problem> {
    arguments::positive_duration(text, "write a duration such as 10s")
}

/// Returns whether this process was started as the plugin.
pub(super) fn is_invoked() -> bool {
    std::env::args_os().next().is_some_and(|it| is_plugin(&it))
}

fn is_plugin(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new(NAME))
}

/// Why a command was not carried out, with a remedy, and the exit code.
struct Refusal {
    message: String,
    code: ExitCode,
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self { message, code: ExitCode::FAILURE }
    }
}

/// Runs the plugin.
pub async fn run(plugin: Plugin, environment: &Environment) -> ExitCode {
    let ran = match &plugin.verb {
        Verb::Status(it) => status(it, environment).await,
        Verb::StepDown(it) => step_down(it).await,
        Verb::Transfer(it) => transfer(it).await,
    };
    ran.unwrap_or_else(|refusal| {
        complain(&refusal.message);
        refusal.code
    })
}

async fn status(args: &Status, environment: &Environment) -> Result<ExitCode, Refusal> {
    let elections = elections(&args.cluster, args.all_namespaces, args.name.as_deref()).await?;
    let now = clock::now();
    let text = match args.cluster.output {
        Output::Json => table::json(&elections, now),
        Output::Table => {
            table::table(&elections, args.all_namespaces, now, Style::of_stdout(environment))
        }
    };
    let all_well = elections.iter().all(|it| {
        let is_silent = it.rows.iter().any(|row| row.standing(now) == Standing::Unknown);
        !is_silent && !matches!(it.verdict(now), Verdict::Several(_))
    });
    Ok(print(&text, if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

async fn step_down(args: &StepDown) -> Result<ExitCode, Refusal> {
    let election = election(&args.cluster, &args.name).await?;
    let leader = leader(&election)?;
    let hold_off = duration::format(args.hold_off.hold_off);
    let handover = Handover { to: None, hold_off: args.hold_off.hold_off, waits: args.waits };
    let words = ["step-down", "--hold-off", &hold_off];
    handover.run(&args.cluster, leader, &words).await
}

async fn transfer(args: &Transfer) -> Result<ExitCode, Refusal> {
    let election = election(&args.cluster, &args.name).await?;
    let leader = leader(&election)?;
    let identity = match election.successor(&args.to, leader) {
        Err(_) if args.force => args.to.clone(),
        found => found?,
    };
    let hold_off = duration::format(args.hold_off.hold_off);
    let to = format!("--to={identity}");
    let mut words = vec!["transfer", &to, "--hold-off", &hold_off];
    if args.force {
        words.push("--force");
    }
    let to = Some(identity.clone());
    let handover = Handover { to, hold_off: args.hold_off.hold_off, waits: args.waits };
    handover.run(&args.cluster, leader, &words).await
}

/// Returns the one election that a command is for.
async fn election(cluster: &Cluster, name: &str) -> Result<Election, Refusal> {
    let mut found = elections(cluster, false, Some(name)).await?;
    match found.pop() {
        Some(election) if found.is_empty() => Ok(election),
        _ => Err(Refusal::from(format!(
            "the pods that --selector selects are in several elections\n  select those of {name:?} \
             only"
        ))),
    }
}

/// Returns the leader.
fn leader(election: &Election) -> Result<&Row, Refusal> {
    let now = clock::now();
    match election.verdict(now) {
        Verdict::One(leader) => Ok(leader),
        _ => Err(Refusal::from(election.no_target(now))),
    }
}

/// Finds the candidates, asks them, and groups them by election.
async fn elections(
    cluster: &Cluster,
    is_everywhere: bool,
    name: Option<&str>,
) -> Result<Vec<Election>, Refusal> {
    let kubectl = Kubectl::of(cluster);
    let selector = match (&cluster.selector, name) {
        (Some(selector), _) => selector.clone(),
        (None, Some(name)) if !pods::is_label_value(name) => {
            return Err(Refusal {
                message: format!(
                    "{name:?} is not the name of an election\n  a name has 1 to 63 of a-z, 0-9, - \
                     and .: kubectl tenure status lists the elections"
                ),
                code: ExitCode::from(2),
            });
        }
        (None, Some(name)) => format!("{LABEL}={name}"),
        (None, None) => LABEL.to_owned(),
    };
    let container = cluster.container.as_deref();
    let listed = kubectl.pods(is_everywhere, &selector).await?;
    let candidates = pods::candidates(&listed, container)?;
    let rows = ask_all(&kubectl, candidates).await;
    let mut found = election::grouped(rows);
    if cluster.selector.is_some()
        && let Some(name) = name
    {
        // Whose election is not known may be in this one.
        found.retain(|it| it.name.as_deref().is_none_or(|it| it == name));
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let others = match (name, &cluster.selector) {
        (Some(_), None) => kubectl.pods(is_everywhere, LABEL).await?,
        _ => String::new(),
    };
    let others = pods::candidates(&others, container).unwrap_or_default();
    Err(Refusal::from(pods::not_found(&selector, name, is_everywhere, cluster, &others)))
}

/// Asks all candidates. Those that report active beside another are asked once more, since a
/// handover may have taken place between their answers.
async fn ask_all(kubectl: &Kubectl, candidates: Vec<Candidate>) -> Vec<Row> {
    let rows = stream::iter(candidates).map(|it| ask(kubectl, it)).buffered(AT_ONCE);
    let mut elections = election::grouped(rows.collect().await);
    for election in &mut elections {
        let now = clock::now();
        if !matches!(election.verdict(now), Verdict::Several(_)) {
            continue;
        }
        for row in &mut election.rows {
            if row.standing(now) == Standing::Active {
                *row = ask(kubectl, row.candidate.clone()).await;
            }
        }
    }
    elections.into_iter().flat_map(|it| it.rows).collect()
}

/// Asks a candidate for its status.
async fn ask(kubectl: &Kubectl, candidate: Candidate) -> Row {
    if let Some(why) = candidate.not_running.clone() {
        return Row { candidate, answer: Answer::NotRunning(why) };
    }
    if !candidate.has_container {
        let why = format!("the pod has no container {}; see --container", candidate.container);
        return Row { candidate, answer: Answer::Failed(why) };
    }
    let answer = match kubectl.status(&candidate).await {
        Ok(heard) => Answer::Status(Box::new(heard)),
        Err(why) => Answer::Failed(why),
    };
    Row { candidate, answer }
}
