//! One attempt to read or change the record, on a thread that may block: the lock, the change, the
//! write. It waits for the lock only as long as others take for one change, and does nothing once its
//! caller has given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::directory::{Directory, LeaseDirectory, Lock};
use super::fault::FileError;
use super::record::{Reading, Stored};
use crate::clock::{self, Moment};
use crate::lease::Bid;

/// How long a call waits while another process has the lock, and how often it tries. A standby is
/// woken by a rename whose writer still has the lock for an instant; one that has it for longer is
/// stopped.
const LOCK_WAIT: Duration = Duration::from_millis(50);
const LOCK_STEP: Duration = Duration::from_millis(1);

/// One call, on a thread that may block.
pub(super) struct Attempt {
    pub(super) place: Arc<LeaseDirectory>,
    pub(super) clock: Arc<dyn Fn() -> Moment + Send + Sync>,
    /// The boot clock when the call began, before the lock was tried: a lease counts from here.
    pub(super) began: Duration,
    pub(super) given_up: Arc<AtomicBool>,
}

/// The record under the lock.
pub(super) struct Locked<'a> {
    attempt: &'a Attempt,
    directory: &'a Directory<'a>,
    lock: Lock,
    /// The reading when the call began.
    pub(super) began: Reading,
    /// The reading after the lock was taken.
    pub(super) now: Reading,
}

pub(super) const NOT_OURS: &str = "this candidate no longer holds the lease";
pub(super) const BREAKING: &str =
    "an operator is breaking the lease, which is free once it expires";

/// The outcome of a change to the record: granted, or refused with a reason.
pub(super) type Outcome<T> = Result<T, &'static str>;

impl Attempt {
    pub(super) fn boot_id(&self) -> Result<String, FileError> {
        clock::boot_id().ok_or_else(|| {
            FileError::settings(
                "failed to read the kernel's boot id, without which a lease cannot be timed",
                "mount /proc",
            )
        })
    }

    pub(super) fn reading(&self, boot_id: String) -> Reading {
        Reading { boot_id, boot: (self.clock)().boot }
    }

    /// Fails if the caller no longer waits for the answer.
    fn still_wanted(&self) -> Result<(), FileError> {
        if self.given_up.load(Ordering::Acquire) {
            return Err(FileError::unavailable("the attempt was cancelled and had no effect"));
        }
        Ok(())
    }

    /// Locks the record.
    pub(super) fn lock<'a>(
        &'a self,
        directory: &'a Directory<'a>,
    ) -> Result<Locked<'a>, FileError> {
        let boot_id = self.boot_id()?;
        let lock = self.take_lock(directory)?;
        self.still_wanted()?;
        let now = self.reading(boot_id.clone());
        let began = Reading { boot_id, boot: self.began };
        Ok(Locked { attempt: self, directory, lock, began, now })
    }

    /// Takes the lock once no other process has it, within [`LOCK_WAIT`].
    pub(super) fn take_lock(&self, directory: &Directory<'_>) -> Result<Lock, FileError> {
        let started = clock::now();
        loop {
            if let Some(lock) = directory.try_lock()? {
                return Ok(lock);
            }
            if started.elapsed_max(clock::now()) >= LOCK_WAIT {
                return Err(directory.locked_elsewhere());
            }
            self.still_wanted()?;
            #[allow(clippy::disallowed_methods, reason = "this thread may block")]
            std::thread::sleep(LOCK_STEP);
        }
    }

    /// Changes the record for a bid that should already hold the lease.
    pub(super) fn change<T>(
        &self,
        bid: &Bid,
        change: impl FnOnce(&Locked<'_>, &mut Stored) -> Result<Outcome<T>, FileError>,
    ) -> Result<Outcome<T>, FileError> {
        match self.place.open()? {
            Some(directory) => self.change_in(&directory, bid, change),
            None => Ok(Err(NOT_OURS)),
        }
    }

    /// Changes the record in a directory, starting from an empty one if there is none. A refused
    /// change writes nothing.
    pub(super) fn change_in<T>(
        &self,
        directory: &Directory<'_>,
        bid: &Bid,
        change: impl FnOnce(&Locked<'_>, &mut Stored) -> Result<Outcome<T>, FileError>,
    ) -> Result<Outcome<T>, FileError> {
        let locked = self.lock(directory).map_err(FileError::before_writing)?;
        let found = directory.read()?;
        let mut stored = found.clone().unwrap_or_else(Stored::first);
        let outcome = change(&locked, &mut stored)?;
        if outcome.is_ok() && found.as_ref() != Some(&stored) {
            let changes_term = found.is_none_or(|found| found.term() != stored.term());
            locked.write(stored, changes_term, Some(bid.lease_duration))?;
        }
        Ok(outcome)
    }
}

impl Locked<'_> {
    /// Makes the record that was read durable.
    pub(super) fn sync(&self) -> Result<(), FileError> {
        self.directory.sync()
    }

    /// Writes the record, unless the attempt was given up or has lasted as long as the lease it
    /// asks for.
    pub(super) fn write(
        &self,
        mut stored: Stored,
        durable: bool,
        longest: Option<Duration>,
    ) -> Result<(), FileError> {
        stored.touch();
        self.directory.write(&self.lock, &stored, durable, || {
            self.attempt.still_wanted()?;
            let elapsed = (self.attempt.clock)().boot.saturating_sub(self.began.boot);
            if longest.is_some_and(|longest| elapsed >= longest) {
                return Err(FileError::unavailable(
                    "the attempt took longer than the lease-duration",
                ));
            }
            Ok(())
        })
    }
}

/// Checks that the bid holds the lease and may write under it; otherwise returns the reason.
pub(super) fn holds(bid: &Bid, locked: &Locked<'_>, stored: &Stored) -> Outcome<()> {
    if stored.is_free(&locked.now) || !stored.is_of(bid, &locked.now) {
        return Err(NOT_OURS);
    }
    if stored.is_breaking() { Err(BREAKING) } else { Ok(()) }
}
