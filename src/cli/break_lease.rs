//! `tenure break`: ends a lease whose holder is gone, directly in the store (R12).
//!
//! It contacts no sidecar, ends no process and takes no lease. By default the lease runs out, which
//! is safe; freeing it at once (`--now`) is not, and requires a confirmation.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::SettingsArgs;
use super::terminal::{self, harmless};
use crate::clock;
use crate::config::{Environment, Settings, StoreSettings, Verb, load_to_examine};
use crate::lease::{Cause, Failure, Record, Snapshot, StoreError};
use crate::status::document::rfc3339;
use crate::status::words::spoken;
use crate::store::{self, BreakOutcome, LeaseAdmin, MOST_LISTED, Presence};

/// The bound on one request, including authentication.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a request that failed transiently is tried, and the pause between two tries.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(300);

/// The settings of `tenure run`, and how to end the lease.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Reads the settings of `tenure run`, from the same flags, variables and file, and accesses the store \
directly: no sidecar needs to run. It requires permission to write to the store.

Without --now the lease expires: its holder can no longer renew it and is passive at its next \
renewal, and no other candidate can acquire it before it expires. With --now it is free at once, and its \
holder may continue for up to its renew-deadline: two instances may lead until then.

In Kubernetes each candidate times a Lease by its own clock: an expired Lease looks like one that is \
held, and all wait for its whole duration again. A holder that is not Tenure, such as \
client-go, may continue to work for some time after it has lost the Lease.

Examples:
  tenure break --store azure://myaccount/elections --election orders
      ends the present leadership, safely; the next leader follows when the lease has expired
  tenure break --now --store azure://myaccount/elections --election orders
      avoids that wait, after asking whether the holder is dead
  tenure break --now --yes --config /etc/tenure.toml
      in a script that has made sure of that

Exit codes: 0 done or not held, 1 failed or no such election, 2 bad settings or usage")]
pub struct Args {
    #[command(flatten)]
    settings: SettingsArgs,
    /// Free the lease at once; two instances may lead until its holder notices
    #[arg(long, help_heading = "Breaking")]
    now: bool,
    /// Do not ask whether the holder is dead
    #[arg(long, requires = "now", help_heading = "Breaking")]
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
    if args.now && !args.yes && !std::io::stdin().is_terminal() {
        terminal::complain(
            "--now asks whether the holder is dead, but standard input is not a terminal\n  \
             confirm with --yes, or omit --now to let the lease expire",
        );
        return ExitCode::from(2);
    }
    let outcome = match store::open(&settings) {
        Ok(store) => Breaking { store, settings }.run(args.now, args.yes).await,
        Err(error) => Err(format!("failed to open the store: {error:#}")),
    };
    match outcome {
        Ok(text) => terminal::print(&text, ExitCode::SUCCESS),
        Err(why) => {
            terminal::complain(&harmless(&why));
            ExitCode::FAILURE
        }
    }
}

/// The lease to break.
struct Breaking {
    store: Arc<dyn LeaseAdmin>,
    settings: Settings,
}

impl Breaking {
    /// Breaks the lease; returns the text to print, or why nothing was broken.
    async fn run(&self, now: bool, yes: bool) -> Result<String, String> {
        let seen = self.read().await?;
        if seen.free {
            return self.nothing().await;
        }
        if now {
            let warning = warning(&self.lease(), &seen.record) + self.of_observers();
            if yes {
                terminal::complain(&warning);
            } else if !terminal::agrees(format!("{warning}\nAre you sure? [y/N] ")).await {
                return Err("the lease was not broken, since the holder may be alive".to_owned());
            }
        }
        match self.end(&seen, now).await? {
            BreakOutcome::NotHeld => Ok(format!("{} is no longer held\n", self.lease())),
            BreakOutcome::Held { record, free_in } => {
                let text = summary(&self.lease(), &record, free_in);
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
        if !matches!(self.settings.store, StoreSettings::Kubernetes(_)) {
            return "";
        }
        "\n\
         Each candidate times a Lease by its own clock, so the Lease may have expired already.\n\
         A holder that is not Tenure, such as client-go, may continue to work for some time after \
         it has lost the Lease."
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

    async fn read(&self) -> Result<Snapshot, String> {
        let mut tries = 0;
        loop {
            tries += 1;
            match bounded(self.store.read()).await {
                Ok(snapshot) => return Ok(snapshot),
                Err(error) if tries < TRIES && is_passing(&error) => pause().await,
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Breaks the lease held in `seen`. A try whose answer was lost may have taken effect, so each
    /// try first reads the store and stops when the lease is free or has another holder.
    async fn end(&self, seen: &Snapshot, at_once: bool) -> Result<BreakOutcome, String> {
        let mut tries = 0;
        loop {
            let now = self.read().await?;
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

/// Bounds a request by [`PATIENCE`].
async fn bounded<T>(request: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(outcome) => outcome,
        Err(_) => Err(StoreError::Unknown(Failure::new(
            Cause::Timeout,
            format!("the store did not answer within {}", spoken(PATIENCE)),
        ))),
    }
}

/// Returns whether a retry may succeed without any intervention.
fn is_passing(error: &StoreError) -> bool {
    match error {
        StoreError::RetryNow(_) => true,
        StoreError::Unknown(failure) => {
            matches!(failure.cause, Cause::Unavailable | Cause::Network | Cause::Lease)
        }
        StoreError::Refused(_) | StoreError::Foreign(_) => false,
    }
}

async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// Formats the holder of a record for messages.
fn named(record: &Record) -> String {
    let mut record = record.clone();
    record.admit();
    let Some(holder) = &record.holder else {
        return "a candidate that has written no term".to_owned();
    };
    let address = holder.address.as_ref().map_or(String::new(), |it| format!(" ({it})"));
    let term = record.term.map_or(String::new(), |it| format!(", in term {it}"));
    harmless(&format!("{}{address}{term}", holder.identity))
}

fn warning(lease: &str, record: &Record) -> String {
    format!(
        "{lease} is held by {}.\n\
         If it is broken at once, another instance can lead, while this holder, if it is alive, \
         continues to lead until its next renewal or its renew-deadline.\n\
         Two leaders are possible until then. Make sure that the holder is dead.",
        named(record)
    )
}

/// Formats what was done and what follows from it.
fn summary(lease: &str, record: &Record, free_in: Duration) -> String {
    let holder = named(record);
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
    use crate::lease::{Candidate, Failure};

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
        let text = summary("the lease", &record("a\x1b[31m"), Duration::ZERO);
        assert!(text.contains("held by (invalid name) (10.0.3.7:8080), in term 42"), "{text:?}");
        assert!(named(&Record::default()).contains("no term"));
    }

    #[test]
    fn what_a_person_must_mend_is_not_tried_again() {
        let unknown = |cause| StoreError::Unknown(Failure::new(cause, "x"));
        for (cause, passing) in [
            (Cause::Unavailable, true),
            (Cause::Network, true),
            (Cause::Auth, false),
            (Cause::Settings, false),
            (Cause::Throttled, false),
            (Cause::Timeout, false),
        ] {
            assert_eq!(is_passing(&unknown(cause)), passing, "{cause:?}");
        }
        assert!(!is_passing(&StoreError::Refused(Failure::new(Cause::Lease, "x"))));
    }
}
