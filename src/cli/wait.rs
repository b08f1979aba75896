//! `tenure wait`: until this instance is active, or passive. 0 then, 1 when the time is up.
//!
//! What it does not do: it does not act on a push. A long poll says when to ask; the answer to the
//! question counts, from its sending.

use std::process::ExitCode;
use std::time::Duration;

use super::client::{Sidecar, UrlArgs};
use super::document::Role;
use super::terminal::{self, harmless};
use crate::clock;
use crate::config::{Environment, duration};

/// How long one long poll lasts at most; a change that the sidecar cannot tell is found after it.
const POLL: Duration = Duration::from_secs(10);

/// From one question to the next while there is no answer.
const PAUSE: Duration = Duration::from_millis(250);

/// What to wait for, and for how long.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tenure wait --for active && ./work
  tenure wait --for passive --timeout 30s

Exit codes: 0 it is so, 1 the time is up, 2 bad usage")]
pub struct Args {
    #[command(flatten)]
    url: UrlArgs,
    /// What to wait for
    #[arg(long = "for", value_name = "ROLE")]
    role: Role,
    /// How long to wait at most [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
}

/// Waits.
pub async fn run(args: Args, environment: &Environment) -> ExitCode {
    let sidecar = match Sidecar::of(&args.url, environment) {
        Ok(sidecar) => sidecar,
        Err(fault) => {
            terminal::complain(&fault);
            return ExitCode::from(2);
        }
    };
    let mut last = String::from("no answer yet");
    let until = until(&sidecar, args.role, &mut last);
    let Some(bound) = args.timeout else {
        until.await;
        return ExitCode::SUCCESS;
    };
    match tokio::time::timeout(bound, until).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => {
            let (role, bound) = (args.role.as_str(), duration::format(bound));
            terminal::complain(&format!("not {role} within {bound}; last: {last}"));
            ExitCode::FAILURE
        }
    }
}

/// Resolves when the instance has the role; keeps in `last` what it was told before.
async fn until(sidecar: &Sidecar, role: Role, last: &mut String) {
    let mut told = String::new();
    loop {
        let problem = match sidecar.status().await {
            Ok(heard) => {
                if heard.role(clock::now()) == role {
                    return;
                }
                told.clear();
                *last = format!("{}, {}", heard.role(clock::now()).as_str(), {
                    harmless(&heard.document.state)
                });
                // Polls that end at once, as those of several sidecars behind one address do, must
                // not become questions without a pause.
                let poll = sidecar.changed(heard.document.index, POLL);
                match tokio::join!(poll, tokio::time::sleep(PAUSE)).0 {
                    Ok(()) => continue,
                    Err(trouble) => trouble,
                }
            }
            Err(trouble) => trouble,
        };
        *last = problem.problem().to_owned();
        // The same trouble again and again is told once.
        if told != *last {
            terminal::complain(&format!("{problem}\n  still waiting"));
            told.clone_from(last);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
