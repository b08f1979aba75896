//! The `file:` store: a record in a directory of one host, guarded by a lock file next to it.
//!
//! `ELECTION.json` has the holder of the lease, and the reading of the boot clock at which it ends.
//! It is written to a temporary file and renamed, so that a reader, which takes no lock, always
//! reads a whole record. A writer holds `ELECTION.lock`, for which another waits 50 ms at most.
//!
//! A process may be killed or stopped at any moment:
//! - A killed process leaves the old record or the new one, possibly a temporary file that the next
//!   write removes, and no lock.
//! - A process that is stopped while it holds the lock prevents all changes until it is continued
//!   or killed: that costs progress, never safety. When it continues, its write is based on the
//!   record that still stands, and its lease counts from a reading of the clock before the lock was
//!   tried (`Attempt::began`), so that a grant that is written late is as old as its request.
//! - An attempt that its caller has dropped before it held the lock does nothing, so nothing is
//!   written after the caller's next request.
//!
//! All candidates must share one boot clock, boot id and directory: one kernel and one time
//! namespace. Deleting the lock file while a candidate runs removes the guard; deleting the record
//! frees the lease behind the holder's back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Mutex, Semaphore};

use self::attempt::{Attempt, BREAKING, NOT_OURS, Outcome, holds};
use self::directory::LeaseDirectory;
use self::fault::FileError;
use self::record::Stored;
use self::watching::Watching;
use super::{BreakOutcome, Finding, LeaseAdmin, LeaseStore, Presence};
use crate::clock::{self, Moment};
use crate::config::FileSettings;
use crate::lease::{
    Bid, Cause, Change, Failure, Grant, Record, Rules, Snapshot, StoreError, Successor, Version,
};

mod attempt;
mod directory;
mod examine;
mod fault;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod permissions;
mod record;
mod watching;

/// The maximum number of concurrent attempts. More than one occurs only if the disk hangs; then
/// each holds a thread until the disk answers.
const MOST_ATTEMPTS: usize = 4;

/// A lease kept in a file.
pub struct FileStore {
    place: Arc<LeaseDirectory>,
    clock: Arc<dyn Fn() -> Moment + Send + Sync>,
    attempts: Arc<Semaphore>,
    watching: Mutex<Watching>,
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStore").field("place", &self.place).finish_non_exhaustive()
    }
}

impl FileStore {
    /// Creates a store that opens its directory on each call, and not before.
    #[must_use]
    pub fn open(settings: &FileSettings) -> Self {
        Self::with_clock(settings, clock::now)
    }

    /// Creates a store that is timed by the given clock, which all candidates must share.
    #[must_use]
    pub fn with_clock(
        settings: &FileSettings,
        clock: impl Fn() -> Moment + Send + Sync + 'static,
    ) -> Self {
        Self {
            place: Arc::new(LeaseDirectory::new(settings)),
            clock: Arc::new(clock),
            attempts: Arc::new(Semaphore::new(MOST_ATTEMPTS)),
            watching: Mutex::default(),
        }
    }

    /// Runs `work` on a thread that may block. Dropping the future gives the attempt up.
    async fn attempt<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Attempt) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let Ok(permit) = Arc::clone(&self.attempts).try_acquire_owned() else {
            let directory = self.place.directory().display();
            let detail = format!("the disk of {directory} has not answered earlier requests");
            return Err(FileError::unavailable(detail).into());
        };
        let given_up = Arc::new(AtomicBool::new(false));
        let _guard = GivesUp(Arc::clone(&given_up));
        let attempt = Attempt {
            place: Arc::clone(&self.place),
            clock: Arc::clone(&self.clock),
            began: (self.clock)().boot,
            given_up,
        };
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&attempt)
        });
        match task.await {
            Ok(outcome) => outcome.map_err(StoreError::from),
            Err(_) => Err(FileError::unavailable("the attempt ended without an answer").into()),
        }
    }
}

/// Marks the attempt as given up when its caller drops the future.
struct GivesUp(Arc<AtomicBool>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Converts the outcome of a change to an answer of the store.
fn answer<T>(outcome: Outcome<T>) -> Result<T, StoreError> {
    outcome.map_err(|why| StoreError::Refused(Failure::new(Cause::Lease, why)))
}

#[async_trait]
impl LeaseStore for FileStore {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn rules(&self) -> Rules {
        Rules { longest_lease: None, missing_is_free: true }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let nothing = || Snapshot {
            free: true,
            record: Record::default(),
            version: Stored::first().version(),
            claim: None,
            ends_in: None,
        };
        self.attempt(move |attempt| {
            let now = attempt.reading(attempt.boot_id()?);
            let Some(directory) = attempt.place.open()? else {
                return Ok(nothing());
            };
            Ok(directory.read()?.map_or_else(nothing, |stored| Snapshot {
                free: stored.is_free(&now),
                record: stored.record(),
                version: stored.version(),
                claim: None,
                ends_in: stored.remaining(&now),
            }))
        })
        .await
    }

    async fn acquire(&self, bid: &Bid) -> Result<Grant, StoreError> {
        let bid = bid.clone();
        let outcome = self.attempt(move |attempt| {
            let directory = attempt.place.open_or_make().map_err(FileError::before_writing)?;
            attempt.change_in(&directory, &bid, |locked, stored| {
                if !stored.is_of(&bid, &locked.now) || stored.is_breaking() {
                    if !stored.is_free(&locked.now) {
                        return Ok(Err("another candidate holds the lease"));
                    }
                    if stored.version() != bid.seen {
                        return Ok(Err("the record has changed since the lease was read as free"));
                    }
                }
                let record = stored.record();
                stored.extend(&bid, &locked.began);
                Ok(Ok(Grant { record, date: None, version: None }))
            })
        });
        answer(outcome.await?)
    }

    async fn write_term(&self, bid: &Bid, floor: u64) -> Result<u64, StoreError> {
        let bid = bid.clone();
        let outcome = self.attempt(move |attempt| {
            attempt.change(&bid, |locked, stored| {
                if let Err(why) = holds(&bid, locked, stored) {
                    return Ok(Err(why));
                }
                if let Some(term) = stored.term_of(&bid) {
                    // The attempt that wrote it may have failed to make it durable.
                    locked.sync()?;
                    return Ok(Ok(term));
                }
                stored.write_term(&bid, floor).map(Ok).ok_or_else(|| {
                    FileError::foreign(
                        &attempt.place.record_path(),
                        "has the largest possible term",
                    )
                })
            })
        });
        answer(outcome.await?)
    }

    async fn renew(&self, bid: &Bid) -> Result<Option<Version>, StoreError> {
        let bid = bid.clone();
        let outcome = self.attempt(move |attempt| {
            attempt.change(&bid, |locked, stored| {
                if !stored.is_of(&bid, &locked.now) {
                    return Ok(Err(NOT_OURS));
                }
                if stored.is_breaking() {
                    return Ok(Err(BREAKING));
                }
                stored.extend(&bid, &locked.began);
                Ok(Ok(None))
            })
        });
        answer(outcome.await?)
    }

    async fn set_successor(
        &self,
        bid: &Bid,
        successor: &Successor,
    ) -> Result<Option<Version>, StoreError> {
        let (bid, successor) = (bid.clone(), successor.clone());
        let outcome = self.attempt(move |attempt| {
            attempt.change(&bid, |locked, stored| {
                if let Err(why) = holds(&bid, locked, stored) {
                    return Ok(Err(why));
                }
                if stored.term_of(&bid).is_none() {
                    return Ok(Err(
                        "this candidate did not write the record, so no successor was written",
                    ));
                }
                stored.set_successor(&successor);
                Ok(Ok(None))
            })
        });
        answer(outcome.await?)
    }

    async fn release(&self, bid: &Bid) -> Result<(), StoreError> {
        let bid = bid.clone();
        let outcome = self.attempt(move |attempt| {
            attempt.change(&bid, |locked, stored| {
                if !stored.is_of(&bid, &locked.now) {
                    return Ok(Err(NOT_OURS));
                }
                stored.free();
                Ok(Ok(()))
            })
        });
        answer(outcome.await?)
    }

    async fn changed(&self) -> Change {
        Change::News { held_by: self.watch().await }
    }
}

#[async_trait]
impl LeaseAdmin for FileStore {
    async fn break_lease(&self, at_once: bool) -> Result<BreakOutcome, StoreError> {
        self.attempt(move |attempt| {
            let Some(directory) = attempt.place.open()? else {
                return Ok(BreakOutcome::NotHeld);
            };
            let locked = attempt.lock(&directory)?;
            let Some(mut stored) = directory.read()? else {
                return Ok(BreakOutcome::NotHeld);
            };
            let free_in = match stored.remaining(&locked.now) {
                Some(remaining) if !remaining.is_zero() => remaining,
                _ => return Ok(BreakOutcome::NotHeld),
            };
            let record = stored.record();
            if at_once {
                stored.free();
                locked.write(stored, false, None)?;
                return Ok(BreakOutcome::Held { record, free_in: Duration::ZERO });
            }
            if !stored.is_breaking() {
                stored.let_run_out();
                locked.write(stored, false, None)?;
            }
            Ok(BreakOutcome::Held { record, free_in })
        })
        .await
    }

    async fn presence(&self) -> Result<Presence, StoreError> {
        self.attempt(|attempt| {
            let place = &attempt.place;
            let shown = place.directory().display();
            let Some(directory) = place.open()? else {
                let missing = format!("the directory {shown} does not exist");
                return Ok(Presence::Missing { missing, others: None });
            };
            if directory.read()?.is_some() {
                return Ok(Presence::Exists);
            }
            let missing = format!("no election {:?} in {shown}", place.election());
            Ok(Presence::Missing { missing, others: directory.elections().ok() })
        })
        .await
    }

    async fn examine(&self) -> Vec<Finding> {
        match self.attempt(|attempt| Ok(examine::examine(attempt))).await {
            Ok(findings) => findings,
            Err(error) => vec![examine::hung(&error)],
        }
    }

    async fn create(&self, floor: u64) -> Result<Vec<String>, StoreError> {
        self.attempt(move |attempt| {
            let mut made = Vec::new();
            if attempt.place.open()?.is_none() {
                attempt.place.open_or_make()?;
                made.push(format!("the directory {}", attempt.place.directory().display()));
            }
            let directory = attempt.place.open_or_make()?;
            let locked = attempt.lock(&directory)?;
            let mut stored = directory.read()?.unwrap_or_else(Stored::first);
            if stored.term().is_none() {
                stored.begin(floor);
                locked.write(stored, true, None)?;
                let path = attempt.place.record_path();
                made.push(format!("{} with a first term, {floor}", path.display()));
            } else {
                locked.sync()?;
            }
            Ok(made)
        })
        .await
    }
}

#[cfg(test)]
mod tests;
