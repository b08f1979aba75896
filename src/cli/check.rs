//! `tenure check`: tells by its exit code whether this instance leads: 0 active, 1 passive, 2
//! unknown. With `--for`, whether it is live or ready, for probes that cannot use HTTP.
//!
//! No answer is used beyond its validity: that of a sidecar counts from the sending of the request,
//! that of a status file ends at the reading of the boot clock that is written in it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::client::{Sidecar, UrlArgs};
use super::document::{Heard, Role};
use super::status_file::{self, StatusFile};
use super::terminal::{self, harmless};
use crate::clock::{self, Moment};
use crate::config::{Environment, arguments, duration};
use crate::status::words::spoken;

/// Whom to ask, and what for.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  tenure check && ./nightly-job
  tenure check --min-remaining 5s && ./work-of-five-seconds
  tenure check --file /run/orders/leader.json
  tenure check --for live
      a probe of a container that does not depend on the network of the pod

Exit codes: 0 active, live or ready, 1 it is not, 2 unknown")]
pub struct Args {
    /// What to check: that this instance leads, or what /readyz or /livez answers
    #[arg(long = "for", value_name = "WHAT", default_value = "active")]
    subject: Subject,
    #[command(flatten)]
    url: UrlArgs,
    /// A status file to read instead, .json or .env
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    file: Option<PathBuf>,
    /// Active only if at least this much time is left
    #[arg(long, value_name = "DURATION", value_parser = arguments::duration, allow_hyphen_values = true, default_value = "0s")]
    min_remaining: Duration,
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Subject {
    /// This instance leads.
    Active,
    /// The sidecar has reached the store and is not stopped.
    Ready,
    /// The sidecar's election loop turns.
    Live,
}

/// The result of a check.
enum CheckResult {
    Active(String),
    Passive(String),
    Unknown(String),
}

/// Checks, prints the result in a few words and returns the exit code.
pub async fn run(args: Args, environment: &Environment) -> ExitCode {
    match args.subject {
        Subject::Active => {}
        Subject::Ready => return probe(&args, "ready", "/readyz", environment).await,
        Subject::Live => return probe(&args, "live", "/livez", environment).await,
    }
    let answer = match &args.file {
        Some(path) => in_file(path, args.min_remaining),
        None => at_sidecar(&args.url, args.min_remaining, environment).await,
    };
    let (code, text) = match answer {
        CheckResult::Active(words) => (0, format!("active: {words}\n")),
        CheckResult::Passive(words) => (1, format!("passive: {words}\n")),
        CheckResult::Unknown(words) => {
            terminal::complain(&format!("unknown: {words}"));
            return ExitCode::from(2);
        }
    };
    terminal::print(&text, ExitCode::from(code))
}

/// Checks by the status code of a path, prints the result and returns the exit code.
async fn probe(args: &Args, name: &str, path: &str, environment: &Environment) -> ExitCode {
    let unknown = |why: &str| {
        terminal::complain(&format!("unknown: {why}"));
        ExitCode::from(2)
    };
    if args.file.is_some() || !args.min_remaining.is_zero() {
        return unknown(&format!(
            "--for {name} asks the sidecar for {path}: omit --file and --min-remaining"
        ));
    }
    let sidecar = match Sidecar::of(&args.url, environment) {
        Ok(sidecar) => sidecar,
        Err(fault) => return unknown(&fault),
    };
    match sidecar.answer(path).await {
        Ok(true) => terminal::print(&format!("{name}\n"), ExitCode::SUCCESS),
        Ok(false) => terminal::print(&format!("not {name}\n"), ExitCode::FAILURE),
        Err(error) => unknown(&error.to_string()),
    }
}

async fn at_sidecar(url: &UrlArgs, least: Duration, environment: &Environment) -> CheckResult {
    let sidecar = match Sidecar::of(url, environment) {
        Ok(sidecar) => sidecar,
        Err(fault) => return CheckResult::Unknown(fault),
    };
    match sidecar.status().await {
        Ok(heard) => of_sidecar(&heard, least, clock::now()),
        Err(trouble) => CheckResult::Unknown(trouble.to_string()),
    }
}

fn of_sidecar(heard: &Heard, least: Duration, now: Moment) -> CheckResult {
    let remaining = heard.remaining(now);
    let document = &heard.document;
    if remaining.is_zero() {
        return CheckResult::Passive(match document.role {
            Role::Passive => harmless(&document.state),
            Role::Active => "the answer had expired when it arrived".to_owned(),
        });
    }
    enough(document.term, remaining, least)
}

fn enough(term: Option<u64>, remaining: Duration, least: Duration) -> CheckResult {
    if remaining < least {
        let (left, least) = (spoken(remaining), duration::format(least));
        return CheckResult::Passive(format!(
            "leads, but only {left} are left of the required {least}"
        ));
    }
    let term = term.map_or(String::new(), |it| format!("term {it}, "));
    CheckResult::Active(format!("{term}{} left", spoken(remaining)))
}

fn in_file(path: &Path, least: Duration) -> CheckResult {
    let file = match status_file::read(path) {
        Ok(file) => file,
        Err(problem) => {
            return CheckResult::Unknown(format!(
                "{} {problem}\n  is it a --status-file of `tenure run`?",
                path.display()
            ));
        }
    };
    of_file(&file, least, clock::now(), clock::boot_id().as_deref())
}

fn of_file(file: &StatusFile, least: Duration, now: Moment, boot: Option<&str>) -> CheckResult {
    if file.role == Role::Passive {
        return CheckResult::Passive(harmless(&file.state));
    }
    match boot {
        Some(boot) if boot == file.boot_id => {}
        // The writer of the file ended with that boot.
        Some(_) => {
            return CheckResult::Passive("the file was written before the last boot".to_owned());
        }
        None => return CheckResult::Unknown("the boot id of this system is unknown".to_owned()),
    }
    let remaining = Duration::from_nanos(file.valid_until_boottime_ns).saturating_sub(now.boot);
    if remaining.is_zero() {
        return CheckResult::Passive("the file has expired".to_owned());
    }
    enough(file.term, remaining, least)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(role: Role, until_ms: u64, boot: Option<&str>, least_ms: u64) -> u8 {
        let file = StatusFile {
            role,
            state: "x".to_owned(),
            term: Some(1),
            boot_id: "here".to_owned(),
            valid_until_boottime_ns: until_ms * 1_000_000,
        };
        let at = Duration::from_secs(10);
        let now = Moment { boot: at, raw: at, wall: at };
        match of_file(&file, Duration::from_millis(least_ms), now, boot) {
            CheckResult::Active(_) => 0,
            CheckResult::Passive(_) => 1,
            CheckResult::Unknown(_) => 2,
        }
    }

    #[test]
    fn a_file_is_believed_in_its_boot_until_its_deadline() {
        let here = Some("here");
        assert_eq!(judged(Role::Active, 10_001, here, 0), 0);
        assert_eq!(judged(Role::Active, 10_000, here, 0), 1);
        assert_eq!(judged(Role::Active, 60_000, Some("elsewhere"), 0), 1);
        assert_eq!(judged(Role::Active, 60_000, None, 0), 2);
        assert_eq!(judged(Role::Passive, 60_000, here, 0), 1);
        assert_eq!(judged(Role::Active, 15_000, here, 5_000), 0);
        assert_eq!(judged(Role::Active, 14_999, here, 5_000), 1);
    }
}
