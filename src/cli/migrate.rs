//! `tenure migrate`: moves an election to another store, so that terms go on above those of the old one.
//!
//! The lease in the old store is taken first, and only if nobody leads there: so nobody begins to lead
//! while the new store is prepared. At the end all other candidates in the old store are held off.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::SettingsArgs;
use super::direct::{self, named, tried};
use super::terminal::{self, harmless};
use crate::clock;
use crate::config::{Environment, StoreSettings, Verb, load_to_examine};
use crate::election::{LARGEST_TERM, Observation};
use crate::lease::{Bid, Candidate, LeaseId, Nonce, Snapshot, StoreError, Successor};
use crate::status::document::rfc3339;
use crate::status::words::spoken;
use crate::store::{self, LeaseAdmin};

/// The time between two reads while a claim is watched.
const PERIOD: Duration = Duration::from_millis(500);

/// The name of this tool in the record of the old store, and of the successor that nobody has.
const NAME: &str = "tenure migrate";

/// The settings of `tenure run`, and the two stores.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Reads the other settings of `tenure run`, from the same flags, variables and file, with the credentials of \
both stores. Stop the leader first: `tenure pause` on each instance, or stop the instances.

1. The lease in the old store is taken, which is refused while an instance leads there.
2. The new store gets a term above the last one of the old store, so that terms go on rising. This is refused while \
an instance leads there.
3. In the old store all candidates are held off for an hour, and the lease is released.

Then start the instances with the new store. One that is still in the old store after the hour leads there again. \
May be repeated.

Examples:
  tenure migrate --from azure://myaccount/elections --to postgres://db-1,db-2/app --election orders
  tenure migrate --from kubernetes:orders --to etcd://etcd-1:2379/tenure --config /etc/tenure.toml

Exit codes: 0 done, 1 failed or an instance leads, 2 bad settings or usage")]
pub struct Args {
    #[command(flatten)]
    settings: SettingsArgs,
    /// The store to leave, as for --store
    #[arg(long, value_name = "URL", help_heading = "Migrating")]
    from: String,
    /// The store to move to, as for --store
    #[arg(long, value_name = "URL", help_heading = "Migrating")]
    to: String,
}

/// Moves the election and prints what to do next. Exits with 0 when it is done, 1 on failure, 2 on wrong
/// settings or usage.
pub async fn run(args: Args, environment: &Environment) -> ExitCode {
    let opened = [("--from", &args.from), ("--to", &args.to)].map(|(flag, url)| {
        Place::open(&args.settings, url, environment).map_err(|why| format!("{flag}: {why}"))
    });
    let (from, to) = match opened {
        [Ok(from), Ok(to)] => (from, to),
        [one, other] => {
            one.err().into_iter().chain(other.err()).for_each(|it| terminal::complain(&it));
            return ExitCode::from(2);
        }
    };
    if args.settings.flags.contains_key("store") || from.named == to.named {
        let why = "--from and --to name two different stores, and --store none\n  remove --store, or \
                   correct one of the two";
        terminal::complain(why);
        return ExitCode::from(2);
    }
    match migrate(&from, &to).await {
        Ok(text) => terminal::print(&text, ExitCode::SUCCESS),
        Err(why) => {
            terminal::complain(&harmless(&why));
            ExitCode::FAILURE
        }
    }
}

/// An election in one of the stores.
struct Place {
    store: Arc<dyn LeaseAdmin>,
    /// The store, with the election where its name has it.
    named: String,
    election: String,
    lease_duration: Duration,
}

impl Place {
    fn open(args: &SettingsArgs, url: &str, environment: &Environment) -> Result<Self, String> {
        let mut flags = args.flags.clone();
        flags.insert("store", vec![url.to_owned()]);
        let loaded = load_to_examine(&flags, environment, Verb::Run);
        let settings = loaded.map_err(|faults| faults.to_string())?.settings;
        if matches!(settings.store, StoreSettings::Memory) {
            return Err("the store memory: exists only inside each process".to_owned());
        }
        Ok(Self {
            store: store::open(&settings).map_err(|error| format!("{error:#}"))?,
            named: settings.store.to_string(),
            election: settings.election,
            lease_duration: settings.timings.lease_duration,
        })
    }

    /// Takes the lease, if nobody leads.
    async fn take(&self) -> Result<Bid, String> {
        let seen = self.free().await?;
        let draw = || Uuid::new_v4().as_u128();
        let candidate = Candidate {
            identity: NAME.to_owned(),
            instance: Uuid::new_v4().simple().to_string(),
            address: None,
            peer: None,
        };
        let bid = Bid {
            lease: LeaseId::from_random(draw()),
            nonce: Nonce(draw()),
            candidate: Arc::new(candidate),
            lease_duration: self.lease_duration,
            seen: seen.version,
            written: None,
        };
        self.tell(tried(async || self.store.acquire(&bid).await).await)?;
        Ok(bid)
    }

    /// Reads the lease until it is free: at once, or after a claim whose time each observer counts has been
    /// seen unchanged for all of it.
    async fn free(&self) -> Result<Snapshot, String> {
        let mut first = None;
        let mut observation: Option<Observation> = None;
        loop {
            let seen = self.read().await?;
            if seen.free {
                return Ok(seen);
            }
            let first = first.get_or_insert_with(|| seen.claim.clone());
            observation = Observation::update(observation, seen.claim.as_ref(), clock::now());
            match observation.as_ref().filter(|_| *first == seen.claim) {
                Some(it) if it.left(clock::now()).is_zero() => return Ok(seen),
                Some(it) => tokio::time::sleep(PERIOD.min(it.left(clock::now()))).await,
                // The store counts the time, or the holder has renewed.
                None => {
                    return Err(format!(
                        "the lease in {} is held by {}\n  `tenure pause` it and the others, or stop them, and \
                         run this again when the lease has ended",
                        self.named,
                        named(&seen.record)
                    ));
                }
            }
        }
    }

    async fn read(&self) -> Result<Snapshot, String> {
        direct::read(&self.store).await.map_err(|why| format!("{}: {why}", self.named))
    }

    /// Makes sure that the recorded term is at least this one; returns it.
    async fn raise(&self, least: u64) -> Result<u64, String> {
        match self.free().await?.record.term {
            Some(term) if term >= least => return Ok(term),
            Some(_) => {
                let bid = self.take().await?;
                let written = tried(async || self.store.write_term(&bid, least).await).await;
                let released = tried(async || self.store.release(&bid).await).await;
                self.tell(written)?;
                self.tell(released)?;
            }
            None => {
                self.tell(tried(async || self.store.create(least).await).await)?;
            }
        }
        match self.read().await?.record.term {
            Some(term) if term >= least => Ok(term),
            _ => Err(format!("{} has no term of {least} although it was written", self.named)),
        }
    }

    fn tell<T>(&self, outcome: Result<T, StoreError>) -> Result<T, String> {
        outcome.map_err(|error| format!("{}: {error}", self.named))
    }
}

/// Moves the election; returns the text to print, or why it did not move.
async fn migrate(from: &Place, to: &Place) -> Result<String, String> {
    if from.read().await?.record.term.is_none() {
        return Err(format!(
            "{} has no term, so there is nothing to move: check --from and --election",
            from.named
        ));
    }
    let held = from.take().await?;
    let moved = prepare(from, to, &held).await;
    let released = tried(async || from.store.release(&held).await).await;
    let term = moved.map_err(|why| {
        format!("{why}\n  nothing has moved: nobody is held off in {}", from.named)
    })?;
    from.tell(released)?;
    let until = clock::now().date();
    let until = until.saturating_add(
        time::Duration::try_from(Successor::LONGEST_HOLD_OFF).unwrap_or(time::Duration::HOUR),
    );
    Ok(format!(
        "moved the election {:?} from {} to {}\n\
         the next term there is above {term}\n\
         start the instances with the new store now: those that are still in the old one are held off for {}, \
         and from {} on one of them would lead there\n",
        from.election,
        from.named,
        to.named,
        spoken(Successor::LONGEST_HOLD_OFF),
        rfc3339(until),
    ))
}

/// Gives the new store a term above all of the old one, and then holds off all candidates in that; returns
/// the term.
async fn prepare(from: &Place, to: &Place, held: &Bid) -> Result<u64, String> {
    let last = from.tell(tried(async || from.store.write_term(held, 0).await).await)?;
    if last >= LARGEST_TERM {
        return Err(format!("{} has the term {last}, and none can follow it", from.named));
    }
    let term = to.raise(last).await?;
    let nobody = Successor { identity: NAME.to_owned(), hold_off: Successor::LONGEST_HOLD_OFF };
    from.tell(tried(async || from.store.set_successor(held, &nobody).await).await)?;
    Ok(term)
}
