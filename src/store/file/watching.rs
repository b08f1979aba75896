//! A watch on the directory, by inotify, which wakes a standby for a release before its next poll, and
//! a leader that has lost the lease before its next renewal.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them;
//! without a watch (no directory yet, too many watches of this user), a standby sees a release at
//! its next poll.

use std::ffi::OsStr;
use std::io;
use std::sync::PoisonError;
use std::time::Duration;

use futures::StreamExt;
use inotify::{Event, EventMask, Inotify, WatchMask};
use tokio::time::sleep;

use super::FileStore;
use super::fault::FileError;
use super::record::Stored;
use crate::lease::{Nonce, StoreError};

/// The pause from a watch that failed to the next attempt, from the first value doubling to the
/// second. A shorter one loads a disk that hangs more; a longer one leaves standbys to their own
/// polls.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// What happens to a directory whose record is replaced or deleted, or that itself goes away.
const EVENTS: WatchMask = WatchMask::MOVED_TO
    .union(WatchMask::DELETE)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR)
    .union(WatchMask::DONT_FOLLOW);

/// A change of the record other than by a renewal.
struct News {
    /// The acquisition that holds the lease, as far as the record shows.
    held_by: Option<Nonce>,
}

impl FileStore {
    /// Resolves when the record has changed other than by a renewal; returns the acquisition that holds
    /// the lease.
    pub(super) async fn watch(&self) -> Option<Nonce> {
        let mut pause = PAUSE.0;
        loop {
            match self.watch_once(&mut pause).await {
                Ok(held_by) => return held_by,
                Err(error) => tracing::debug!("the watch on the directory ended: {error}"),
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Watches until there are news, or the watch fails; returns the acquisition that holds the lease.
    async fn watch_once(&self, pause: &mut Duration) -> Result<Option<Nonce>, StoreError> {
        let inotify = self.attempt(|attempt| {
            let directory = attempt.place.directory();
            let failed = |error| FileError::io(directory, "watched", error);
            let inotify = Inotify::init().map_err(failed)?;
            inotify.watches().add(directory, EVENTS).map_err(failed)?;
            Ok(inotify)
        });
        let failed = |error| FileError::io(self.place.directory(), "watched", error);
        let mut events = inotify.await?.into_event_stream([0; 4096]).map_err(failed)?;
        // The first read finds a change from before the watch began.
        loop {
            if let Some(News { held_by }) = self.news().await? {
                return Ok(held_by);
            }
            *pause = PAUSE.0;
            loop {
                let Some(event) = events.next().await else { return Ok(None) };
                if self.may_be_news(&event.map_err(failed)?).map_err(failed)? {
                    break;
                }
            }
        }
    }

    /// Returns whether an event may be a change of the record.
    fn may_be_news(&self, event: &Event<impl AsRef<OsStr>>) -> io::Result<bool> {
        if event.mask.intersects(EventMask::IGNORED | EventMask::MOVE_SELF) {
            return Err(io::Error::other("the directory was deleted or moved"));
        }
        let is_of_record =
            event.name.as_ref().is_some_and(|it| it.as_ref() == self.place.record_name());
        Ok(is_of_record || event.mask.contains(EventMask::Q_OVERFLOW))
    }

    /// Reads the record; returns `None` if it has not changed since the last time, other than by a
    /// renewal.
    async fn news(&self) -> Result<Option<News>, StoreError> {
        let read = self.attempt(|attempt| match attempt.place.open()? {
            Some(directory) => directory.read(),
            None => Ok(None),
        });
        let found = read.await?.map(Stored::without_times);
        let held_by = found.as_ref().and_then(Stored::held_by);
        let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = noticed.replace(found);
        Ok((known != *noticed).then_some(News { held_by }))
    }
}
