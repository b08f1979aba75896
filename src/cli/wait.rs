//! `tenure wait`: waits until this instance is active or passive, or until exactly one of several
//! is active.
//!
//! The long poll only says when to request the status again. The answer to that request decides,
//! counted from its sending.

use std::process::ExitCode;
use std::time::Duration;

use super::client::{Sidecar, UrlArgs};
use super::document::Role;
use super::exactly_one;
use super::terminal::{self, harmless};
use super::tls::TlsArgs;
use super::usage;
use crate::clock;
use crate::config::{Environment, Problem, arguments, duration};

/// The bound on one long poll, after which the status is requested again in any case.
const POLL: Duration = Duration::from_secs(10);

/// The pause between two requests while there is no answer.
const PAUSE: Duration = Duration::from_millis(250);

/// What to wait for, and for how long.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tenure wait --for active && ./work
  tenure wait --for passive --timeout 30s
  tenure wait --for passive --at-most 25s
      before the SIGTERM of a sidecar: waits while the service finishes its work as leader
  tenure wait --for exactly-one --of 3 --url http://orders-pods:4040 --timeout 1m
      polls each address of that name until three sidecars answer and one of them is active

Exit codes: 0 reached, 1 timed out (--for exactly-one: or two are active), 2 bad usage")]
pub struct Args {
    /// The sidecar's status listener: HOST:PORT, http://HOST:PORT, https://HOST:PORT or unix:/path; for
    /// exactly-one repeatable, with all addresses of each HOST [default: TENURE_URL, else
    /// http://127.0.0.1:4040]
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    #[command(flatten)]
    tls: TlsArgs,
    /// What to wait for
    #[arg(long = "for", value_name = "ROLE")]
    goal: Goal,
    /// The number of sidecars, for exactly-one [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = count, allow_hyphen_values = true)]
    of: Option<u64>,
    /// How long to wait at most [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// How long to wait at most; exit code 0 also when that time is over
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration, allow_hyphen_values = true, conflicts_with = "timeout")]
    at_most: Option<Duration>,
}

/// Parses `--of`.
fn count(text: &str) -> Result<u64, Problem> {
    arguments::number(text, 1, "write the number of sidecars, such as 3")
}

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Goal {
    /// This instance leads.
    Active,
    /// This instance does not lead.
    Passive,
    /// All sidecars answer, and exactly one leads.
    ExactlyOne,
}

impl Goal {
    fn as_str(self) -> &'static str {
        match self {
            Self::Active => Role::Active.as_str(),
            Self::Passive => Role::Passive.as_str(),
            Self::ExactlyOne => "exactly one active",
        }
    }
}

/// Waits. Exits with 0 when the goal is reached or `--at-most` is over, 1 when `--timeout` is over
/// or two instances are active, 2 on wrong usage.
pub async fn run(args: Args, environment: &Environment) -> ExitCode {
    if let Some(of) = args.of.filter(|_| args.goal != Goal::ExactlyOne) {
        let problem = Problem::new(
            "applies only to --for exactly-one",
            "remove it, or write --for exactly-one",
        );
        return usage::refuse(&usage::fault_of("of", Some(&of.to_string()), problem));
    }
    let sidecars = match sidecars(&args, environment) {
        Ok(sidecars) => sidecars,
        Err(fault) => {
            terminal::complain(&fault);
            return ExitCode::from(2);
        }
    };
    let mut last = String::from("no answer yet");
    let of = usize::try_from(args.of.unwrap_or(1)).unwrap_or(usize::MAX);
    let until = async {
        let role = match args.goal {
            Goal::ExactlyOne => return exactly_one::until(&sidecars, of, &mut last).await,
            Goal::Active => Role::Active,
            Goal::Passive => Role::Passive,
        };
        if let Some(sidecar) = sidecars.first() {
            until(sidecar, role, &mut last).await;
        }
        Ok(())
    };
    let Some(bound) = args.timeout.or(args.at_most) else {
        return code(until.await);
    };
    match tokio::time::timeout(bound, until).await {
        Ok(ended) => code(ended),
        Err(_) => {
            let (goal, bound) = (args.goal.as_str(), duration::format(bound));
            terminal::complain(&format!("not {goal} within {bound}; last: {last}"));
            if args.at_most.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn code(ended: Result<(), String>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            terminal::complain(&fault);
            ExitCode::FAILURE
        }
    }
}

/// Determines the sidecars: several are allowed only for `exactly-one`.
fn sidecars(args: &Args, environment: &Environment) -> Result<Vec<Sidecar>, String> {
    let of = |url| Sidecar::of(&UrlArgs { url, tls: args.tls.clone() }, environment);
    if args.goal != Goal::ExactlyOne && args.url.len() > 1 {
        let goal = args.goal.as_str();
        return Err(format!("--url is given several times, but --for {goal} takes one sidecar"));
    }
    if args.url.is_empty() {
        return Ok(vec![of(None)?]);
    }
    args.url.iter().map(|url| of(Some(url.clone()))).collect()
}

/// Resolves when the instance has the role; writes what it saw last to `last`.
async fn until(sidecar: &Sidecar, role: Role, last: &mut String) {
    let mut printed = String::new();
    loop {
        let problem = match sidecar.status().await {
            Ok(heard) => {
                if heard.role(clock::now()) == role {
                    return;
                }
                printed.clear();
                *last = format!("{}, {}", heard.role(clock::now()).as_str(), {
                    harmless(&heard.document.state)
                });
                // Polls that return at once, as when several sidecars share one address, must not
                // become requests without a pause.
                let poll = sidecar.changed(heard.document.index, POLL);
                match tokio::join!(poll, tokio::time::sleep(PAUSE)).0 {
                    Ok(()) => continue,
                    Err(trouble) => trouble,
                }
            }
            Err(trouble) => trouble,
        };
        *last = problem.problem().to_owned();
        // A repeated error is printed once.
        if printed != *last {
            terminal::complain(&format!("{problem}\n  still waiting"));
            printed.clone_from(last);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
