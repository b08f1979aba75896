//! `tenure migrate`: moves an election to another store, so that terms go on above those of the old one and
//! nobody bids in the old one any more.
//!
//! - The lease of the old store is taken first, and only if nobody leads there: so nobody begins to lead
//!   while the new store is prepared.
//! - A store is *open* if its record does not say that the election has moved. No write opens one store while
//!   the other is open: a new store gets its term before the old one is marked, a store to come back to is
//!   opened after that. Whatever interrupts it, the same command goes on.

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
use crate::lease::{Bid, Candidate, LeaseId, Nonce, Record, Snapshot, StoreError, Successor};
use crate::store::{self, LeaseAdmin};

/// How far the terms of the new store are above the last one of the old store. A leader that is left in the
/// old store, whatever made it one, has a lower term for this many leaderships.
const GAP: u64 = 1 << 20;

/// The time between two reads while a claim is watched.
const PERIOD: Duration = Duration::from_millis(500);

/// The name of this tool in the record of the old store.
const NAME: &str = "tenure migrate";

/// The settings of `tenure run`, and the two stores.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "\
Reads the other settings of `tenure run`, from the same flags, variables and file, with the credentials of \
both stores. Stop the leader first: `tenure pause` on each instance, or stop the instances.

1. The lease in the old store is taken, which is refused while an instance leads there.
2. The new store gets a term 2^20 above the last one of the old store, so that terms go on rising. This is refused \
while an instance leads there.
3. The record in the old store says from now on that the election has moved: no instance bids there any more.

Then start the instances with the new store. May be repeated, and moves an election back as well. With --undo, an \
election that has moved from --from to --to is taken back: nobody bids in --to any more, and --from goes on with a \
term 2^20 above the last one of both.

Examples:
  tenure migrate --from azure://myaccount/elections --to postgres://db-1,db-2/app --election orders
  tenure migrate --from kubernetes:orders --to etcd://etcd-1:2379/tenure --config /etc/tenure.toml
  tenure migrate --undo --from kubernetes:orders --to etcd://etcd-1:2379/tenure

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
    /// Take an election back that has moved from --from to --to
    #[arg(long, help_heading = "Migrating")]
    undo: bool,
    /// Take it back although --to cannot be read, once no instance that uses --to runs any more
    #[arg(long, requires = "undo", help_heading = "Migrating")]
    force: bool,
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
    let moved = match args.undo {
        true => undo(&from, &to, args.force).await,
        false => migrate(&from, &to).await,
    };
    match moved {
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
    /// The store as `--store` takes it, which has no secrets.
    url: String,
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
        let url = match &settings.store {
            // With the namespace that the settings give it.
            it @ StoreSettings::Kubernetes(_) => it.to_string(),
            _ => url.to_owned(),
        };
        Ok(Self {
            url,
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
            nonce: Nonce(draw()).with_handover(None),
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

    /// Makes sure that the recorded term is at least this one and that the store is open; returns the term.
    async fn open_with(&self, least: u64) -> Result<u64, String> {
        let done = |it: &Record| it.term.filter(|term| *term >= least && it.moved_to().is_none());
        let seen = self.read().await?.record;
        if let Some(term) = done(&seen) {
            return Ok(term);
        }
        if seen.term.is_some() {
            let bid = self.take().await?;
            let written = tried(async || self.store.write_term(&bid, least).await).await;
            let released = tried(async || self.store.release(&bid).await).await;
            self.tell(written)?;
            self.tell(released)?;
        } else {
            self.free().await?;
            self.tell(tried(async || self.store.create(least).await).await)?;
        }
        done(&self.read().await?.record)
            .ok_or_else(|| format!("{} has no term of {least} although it was written", self.named))
    }

    fn tell<T>(&self, outcome: Result<T, StoreError>) -> Result<T, String> {
        outcome.map_err(|error| format!("{}: {error}", self.named))
    }
}

/// Moves the election; returns the text to print, or why it did not move.
async fn migrate(from: &Place, to: &Place) -> Result<String, String> {
    let seen = from.read().await?.record;
    let Some(last) = seen.term else {
        return Err(format!(
            "{} has no term, so there is nothing to move: check --from and --election",
            from.named
        ));
    };
    let term = match seen.moved_to() {
        Some(there) if there == to.url => {
            // Marked by a move back to `from` that was interrupted, or by a later one to another store.
            let found = to.read().await?.record;
            if let Some(next) = found.moved_to().filter(|it| *it != from.url) {
                return Err(format!(
                    "the election has moved on from {} to {next}: move it from there",
                    to.named
                ));
            }
            finish(from, to, above(last, from)?).await?
        }
        Some(there) => {
            return Err(format!(
                "the election has moved from {} to {there} already\n  move it from there, or take it back \
                 with --undo --to {there}",
                from.named
            ));
        }
        None => leave(from, to).await?,
    };
    Ok(format!(
        "moved the election {:?} from {} to {}\n\
         the next term there is above {term}\n\
         nobody bids in the old store any more: start the instances with --store {}\n",
        from.election, from.named, to.named, to.url
    ))
}

/// Takes an election back that has moved; returns the text to print, or why it was not.
async fn undo(from: &Place, to: &Place, force: bool) -> Result<String, String> {
    let seen = from.read().await?.record;
    let Some(there) = seen.moved_to() else {
        return Ok(format!("nothing to undo: {} does not say that it has moved\n", from.named));
    };
    if there != to.url {
        return Err(format!(
            "the election has moved from {} to {there}, and not to {}: name that with --to",
            from.named, to.url
        ));
    }
    match to.read().await {
        Ok(found) if found.record.term.is_some() => return migrate(to, from).await,
        Ok(_) => {}
        Err(_) if force => {}
        Err(why) => {
            return Err(format!(
                "{why}\n  so it is not known whether an instance leads there; once none that uses it runs any \
                 more, add --force"
            ));
        }
    }
    // Above the terms that the new store had, if it was lost.
    let least = above(above(seen.term.unwrap_or(0), from)?, from)?;
    let term = from.open_with(least).await?;
    Ok(format!(
        "took the election {:?} back to {}\nthe next term there is above {term}\n",
        from.election, from.named
    ))
}

/// Returns the least term to follow this one in another store.
fn above(last: u64, from: &Place) -> Result<u64, String> {
    let term = last.checked_add(GAP).filter(|it| *it < LARGEST_TERM);
    term.ok_or_else(|| format!("{} has the term {last}, and none can follow it", from.named))
}

/// Moves the election out of a store where it still is; returns the term of the new one.
async fn leave(from: &Place, to: &Place) -> Result<u64, String> {
    // A silent claim is waited out before the other lease is held.
    to.free().await?;
    let held = from.take().await?;
    let marked = mark(from, to, &held).await;
    // If this fails, the lease runs out.
    let _ = tried(async || from.store.release(&held).await).await;
    let least = marked.map_err(|why| format!("{why}\n  nothing has moved from {}", from.named))?;
    finish(from, to, least).await
}

/// Prepares the new store, and marks the old one under its lease; returns the least term of the new store.
async fn mark(from: &Place, to: &Place, held: &Bid) -> Result<u64, String> {
    let last = from.tell(tried(async || from.store.write_term(held, 0).await).await)?;
    let found = to.read().await?.record;
    if found.nonce == Some(held.nonce) {
        return Err("--from and --to lead to one and the same lease".to_owned());
    }
    let least = above(last, from)?;
    if found.moved_to().is_none() {
        to.open_with(least).await?;
    }
    from.tell(tried(async || from.store.renew(held).await).await)?;
    let moved = Successor::store(&to.url);
    from.tell(tried(async || from.store.set_successor(held, &moved).await).await)?;
    Ok(least)
}

/// Opens the new store, now that the old one is marked.
async fn finish(from: &Place, to: &Place, least: u64) -> Result<u64, String> {
    to.open_with(least).await.map_err(|why| {
        format!(
            "{why}\n  nobody bids in {} any more, which says that the election has moved: run this again to \
             finish, or take the election back with --undo",
            from.named
        )
    })
}
