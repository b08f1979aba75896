//! `tenure break`: ends a lease whose holder is gone, directly in the store (R12).
//!
//! It contacts no sidecar, ends no process and takes no lease. By default the lease runs out, which
//! is safe; freeing it at once (`--now`) is not. Both require a confirmation while the holder is alive:
//! it is watched for a while, unless the confirmation is given.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::SettingsArgs;
use super::direct::{self, TRIES, bounded, is_passing, named, pause};
use super::renewal::{self, Renewal};
use super::terminal::{self, Unconfirmed, harmless};
use crate::clock;
use crate::config::{Environment, Settings, StoreSettings, Verb, load_to_examine};
use crate::lease::{Record, Snapshot, StoreError};
use crate::status::document::rfc3339;
use crate::status::words::spoken;
use crate::store::{self, BreakOutcome, LeaseAdmin, MOST_LISTED, Presence};

/// The settings of `tenure run`, and how to end the lease.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Reads the settings of `tenure run`, from the same flags, variables and file, and accesses the store \
directly: no sidecar needs to run. It requires permission to write to the store.

Without --now the lease expires: its holder can no longer renew it and is passive at its next \
renewal, and no other candidate can acquire it before it expires. With --now it is free at once, and its \
holder may continue for up to its renew-deadline: two instances may lead until then.

A lease that is being renewed has a live holder, and breaking it costs an outage: the command reads the store \
for 1.5 x retry-period, and asks if it sees a renewal, or refuses without --yes where nobody can answer. A \
blob in Azure does not show renewals: a lease that is held counts as renewed there.

In Kubernetes and in buckets each candidate times a lease by its own clock: an expired one looks like one that is \
held, and all wait for its whole duration again. A holder that is not Tenure, such as \
client-go, may continue to work for some time after it has lost the Lease.

Examples:
  tenure break --store azure://myaccount/elections --election orders
      ends the present leadership, safely; the next leader follows when the lease has expired
  tenure break --yes --config /etc/tenure.toml
      the same in a script, whether or not the holder is alive
  tenure break --now --store azure://myaccount/elections --election orders
      avoids that wait, after asking whether the holder is dead
  tenure break --now --yes --config /etc/tenure.toml
      in a script that has made sure of that

Exit codes: 0 done or not held, 1 failed, declined or no such election, 2 bad settings or usage, or --yes is missing")]
pub struct Args {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Free the lease at once; two instances may lead until its holder notices
    #[arg(long, help_heading = "Breaking")]
    now: bool,
    /// Do not ask, neither whether to end a leadership nor, with --now, whether the holder is dead
    #[arg(long, help_heading = "Breaking")]
    yes: bool,
}

/// Breaks the lease and prints the consequences. Exits with 0 when it is done or nobody holds the
/// lease, 1 on failure, 2 on wrong settings or usage.
pub async fn run(args: Args, environment: &Environment) -> ExitCode {
    let settings = match load_to_examine(&args.settings.flags, environment, Verb::Run) {
        Ok(loaded) => loaded.settings,
        Err(faults) => {
            terminal::complain(&faults.to_string());
            return ExitCode::from(2);
        }
    };
    if matches!(settings.store, StoreSettings::Memory) {
        terminal::complain(
            "the store memory: exists only inside each process, so its lease cannot be broken\n  \
             set --store",
        );
        return ExitCode::from(2);
    }
    if args.now && !args.yes && !terminal::can_ask() {
        terminal::complain(
            "--now asks whether the holder is dead, but standard input or standard error is not a \
             terminal\n  confirm with --yes, or omit --now to let the lease expire",
        );
        return ExitCode::from(2);
    }
    let outcome = match store::open(&settings) {
        Ok(store) => Breaking { store, settings }.run(args.now, args.yes).await,
        Err(error) => Err(format!("failed to open the store: {error:#}").into()),
    };
    match outcome {
        Ok(text) => terminal::print(&text, ExitCode::SUCCESS),
        Err(NotBroken { why, code }) => {
            let lines: Vec<String> = why.lines().map(harmless).collect();
            terminal::complain(&lines.join("\n"));
            code
        }
    }
}

/// Why nothing was broken, or may not be, with the exit code.
struct NotBroken {
    why: String,
    code: ExitCode,
}

impl From<String> for NotBroken {
    fn from(why: String) -> Self {
        Self { why, code: ExitCode::FAILURE }
    }
}

/// The lease to break.
struct Breaking {
    store: Arc<dyn LeaseAdmin>,
    settings: Settings,
}

impl Breaking {
    /// Breaks the lease; returns the text to print, or why nothing was broken.
    async fn run(&self, now: bool, yes: bool) -> Result<String, NotBroken> {
        let seen = direct::read(&self.store).await?;
        if seen.free {
            return Ok(self.nothing().await?);
        }
        if seen.has_no_end() && !now {
            return Err(NotBroken::from(format!(
                "{} is held by {NO_CANDIDATE}: it would not run out, so it was not broken\n\
                 once you are sure that it is no longer needed, free it with --now",
                self.lease()
            )));
        }
        let mut warning = String::new();
        if now {
            warning = warning_of(&self.lease(), &seen) + self.of_observers();
        }
        if yes && now {
            terminal::complain(&warning);
        }
        if !yes {
            let renewal = renewal::watch(&self.store, &seen, &self.settings.timings).await?;
            let outage = renewal.outage(&seen, &self.settings.timings);
            let outage = outage.filter(|_| !seen.has_no_end());
            let lines = [warning, outage.unwrap_or_default()];
            let lines: Vec<&str> =
                lines.iter().map(String::as_str).filter(|it| !it.is_empty()).collect();
            if !lines.is_empty() {
                confirm(&lines.join("\n"), &renewal).await?;
            }
        }
        match self.end(&seen, now).await? {
            BreakOutcome::NotHeld => Ok(format!("{} is no longer held\n", self.lease())),
            BreakOutcome::Held { record, free_in } => {
                let text = summary(&self.lease(), &holder(&seen, &record), free_in);
                let note = if free_in.is_zero() { "" } else { self.of_observers() };
                Ok(format!("{}{note}\n", text.trim_end()))
            }
        }
    }

    /// Names the lease for messages.
    fn lease(&self) -> String {
        format!("the lease of {:?} in {}", self.settings.election, self.settings.store)
    }

    /// Returns a note for stores that keep no time, where each candidate measures the lease itself.
    fn of_observers(&self) -> &'static str {
        match self.settings.store {
            StoreSettings::Kubernetes(_) => {
                "\n\
                 Each candidate times a Lease by its own clock, so the Lease may have expired already.\n\
                 A holder that is not Tenure, such as client-go, may continue to work for some time \
                 after it has lost the Lease."
            }
            StoreSettings::S3(_) | StoreSettings::Gcs(_) | StoreSettings::Mongo(_) => {
                "\n\
                 Each candidate times the lease by its own clock, so it may have expired already."
            }
            _ => "",
        }
    }

    /// Reports a lease that nobody holds: an error if there is no such election at all.
    async fn nothing(&self) -> Result<String, String> {
        match bounded(self.store.presence()).await.map_err(|error| error.to_string())? {
            Presence::Exists => {
                Ok(format!("{} is not held: there is nothing to break\n", self.lease()))
            }
            Presence::Missing { missing, others } => Err(no_such_election(&missing, others)),
        }
    }

    /// Breaks the lease held in `seen`. A try whose answer was lost may have taken effect, so each
    /// try first reads the store and stops when the lease is free or has another holder.
    async fn end(&self, seen: &Snapshot, at_once: bool) -> Result<BreakOutcome, String> {
        let mut tries = 0;
        loop {
            let now = direct::read(&self.store).await?;
            if now.free {
                return Ok(BreakOutcome::NotHeld);
            }
            if (now.record.term, now.record.nonce) != (seen.record.term, seen.record.nonce) {
                return Err(format!(
                    "the holder has changed, so the lease was not broken: {} is now held by {}",
                    self.lease(),
                    named(&now.record),
                ));
            }
            tries += 1;
            match bounded(self.store.break_lease(at_once)).await {
                Ok(broken) => return Ok(broken),
                Err(error) if tries < TRIES && is_passing(&error) => pause().await,
                Err(StoreError::Refused(failure)) => {
                    let remedy = "use --now once you are sure that its holder is dead";
                    return Err(format!("{failure} ({remedy})"));
                }
                Err(error @ StoreError::Foreign(_)) => return Err(error.to_string()),
                Err(error) => {
                    return Err(format!("the lease may or may not be broken: {error}"));
                }
            }
        }
    }
}

/// Formats the error for an election that does not exist, with those that do.
fn no_such_election(missing: &str, others: Option<Vec<String>>) -> String {
    match others {
        None => format!("no such election: {missing}"),
        Some(others) if others.is_empty() => {
            format!("no such election: {missing}; there are no others")
        }
        Some(others) => {
            let more = if others.len() == MOST_LISTED { ", …" } else { "" };
            format!("no such election: {missing}; there are: {}{more}", others.join(", "))
        }
    }
}

/// Asks on the terminal before a live leadership is ended.
async fn confirm(warning: &str, renewal: &Renewal) -> Result<(), NotBroken> {
    terminal::confirm(warning, "Are you sure?").await.map_err(|unconfirmed| match unconfirmed {
        Unconfirmed::Declined => NotBroken::from(match renewal {
            Renewal::NotSeen => {
                "the lease was not broken, since the holder may be alive".to_owned()
            }
            _ => "the lease was not broken".to_owned(),
        }),
        Unconfirmed::NobodyToAsk => NotBroken {
            why: format!(
                "{warning}\n  nothing was broken; to end it all the same, confirm with --yes"
            ),
            code: ExitCode::from(2),
        },
    })
}

/// Who holds a lease without an end.
const NO_CANDIDATE: &str = "another tool, without an end, and nobody knows which";

/// Names the holder of the lease as it was seen.
fn holder(seen: &Snapshot, record: &Record) -> String {
    if seen.has_no_end() { NO_CANDIDATE.to_owned() } else { named(record) }
}

fn warning_of(lease: &str, seen: &Snapshot) -> String {
    if seen.has_no_end() {
        return format!(
            "{lease} is held by {NO_CANDIDATE}.\n\
             Once it is broken, a candidate leads, whatever that tool goes on to do. Make sure that it no \
             longer needs the lease."
        );
    }
    format!(
        "{lease} is held by {}.\n\
         If it is broken at once, another instance can lead, while this holder, if it is alive, \
         continues to lead until its next renewal or its renew-deadline.\n\
         Two leaders are possible until then. Make sure that the holder is dead.",
        named(&seen.record)
    )
}

/// Formats what was done and what follows from it.
fn summary(lease: &str, holder: &str, free_in: Duration) -> String {
    if free_in.is_zero() {
        return format!(
            "broke {lease}, held by {holder}\n\
             it is free now: the next candidate that polls acquires it, in a new term\n"
        );
    }
    let until = clock::now().date();
    let until =
        until.saturating_add(time::Duration::try_from(free_in).unwrap_or(time::Duration::MAX));
    format!(
        "breaking {lease}, held by {holder}\n\
         its holder can no longer renew it: it is passive at its next renewal, or at its \
         renew-deadline\n\
         no other candidate can lead before {}, in {}; then the next one that polls acquires it, \
         in a new term\n",
        rfc3339(until),
        spoken(free_in),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Candidate;

    fn record(identity: &str) -> Record {
        let holder = Candidate {
            identity: identity.to_owned(),
            instance: "1".to_owned(),
            address: Some("10.0.3.7:8080".to_owned()),
            peer: None,
        };
        Record { term: Some(42), holder: Some(Arc::new(holder)), ..Record::default() }
    }

    #[test]
    fn messages_name_the_holder_and_cannot_control_the_terminal() {
        let holder = named(&record("a\x1b[31m"));
        let text = summary("the lease", &holder, Duration::ZERO);
        assert!(text.contains("held by (invalid name) (10.0.3.7:8080), in term 42"), "{text:?}");
    }
}
