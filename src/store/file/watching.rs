//! A watch on the directory, by inotify, which wakes a standby for a release before its next poll, and
//! a leader that has lost the lease before its next renewal.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them;
//! without a watch (no directory yet, too many watches of this user), a standby sees a release at
//! its next poll.

use std::ffi::OsStr;
use std::io;

use futures::StreamExt;
use inotify::{Event, EventMask, EventStream, Inotify, WatchMask};

use super::FileStore;
use super::fault::FileError;
use super::record::Stored;
use crate::lease::{Nonce, StoreError};
use crate::store::pause::Pause;

/// What happens to a directory whose record is replaced or deleted, or that itself goes away.
const EVENTS: WatchMask = WatchMask::MOVED_TO
    .union(WatchMask::DELETE)
    .union(WatchMask::DELETE_SELF)
    .union(WatchMask::MOVE_SELF)
    .union(WatchMask::ONLYDIR)
    .union(WatchMask::DONT_FOLLOW);

/// The watch, kept from one [`watch`](FileStore::watch) to the next: to close one takes the kernel some
/// 20 ms, during which the thread is stopped.
#[derive(Default)]
pub(super) struct Watching {
    /// `None` before the first watch, and after one that failed.
    events: Option<EventStream<[u8; 4096]>>,
    /// Whether the record may have changed since it was last read.
    is_unread: bool,
    /// The record that was last read, without its times.
    noticed: Option<Option<Stored>>,
}

/// A change of the record other than by a renewal.
struct News {
    /// The acquisition that holds the lease, as far as the record shows.
    held_by: Option<Nonce>,
}

impl FileStore {
    /// Resolves when the record has changed other than by a renewal; returns the acquisition that holds
    /// the lease.
    pub(super) async fn watch(&self) -> Option<Nonce> {
        let mut watching = self.watching.lock().await;
        let mut pause = Pause::default();
        loop {
            match self.watch_once(&mut watching, &mut pause).await {
                Ok(News { held_by }) => return held_by,
                Err(error) => tracing::debug!("the watch on the directory ended: {error}"),
            }
            watching.events = None;
            pause.pass().await;
        }
    }

    /// Watches until there are news, or the watch fails.
    async fn watch_once(
        &self,
        watching: &mut Watching,
        pause: &mut Pause,
    ) -> Result<News, StoreError> {
        let failed = |error| FileError::io(self.place.directory(), "watched", error);
        let events = match watching.events.take() {
            Some(known) => known,
            None => {
                // The first read finds a change from before the watch began.
                watching.is_unread = true;
                self.begin_watch().await?.into_event_stream([0; 4096]).map_err(failed)?
            }
        };
        let events = watching.events.insert(events);
        loop {
            if watching.is_unread {
                let news = self.news(&mut watching.noticed).await?;
                watching.is_unread = false;
                if let Some(news) = news {
                    return Ok(news);
                }
            }
            pause.reset();
            let event =
                events.next().await.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()));
            watching.is_unread |= self.may_be_news(&event.map_err(failed)?).map_err(failed)?;
        }
    }

    async fn begin_watch(&self) -> Result<Inotify, StoreError> {
        self.attempt(|attempt| {
            let directory = attempt.place.directory();
            let failed = |error| FileError::io(directory, "watched", error);
            let inotify = Inotify::init().map_err(failed)?;
            inotify.watches().add(directory, EVENTS).map_err(failed)?;
            Ok(inotify)
        })
        .await
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
    async fn news(&self, noticed: &mut Option<Option<Stored>>) -> Result<Option<News>, StoreError> {
        let read = self.attempt(|attempt| match attempt.place.open()? {
            Some(directory) => directory.read(),
            None => Ok(None),
        });
        let found = read.await?.map(Stored::without_times);
        let held_by = found.as_ref().and_then(Stored::held_by);
        let known = noticed.replace(found);
        Ok((known != *noticed).then_some(News { held_by }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FileSettings;

    #[test]
    fn only_an_event_of_the_record_or_a_lost_one_may_be_news_and_the_directory_must_stay() {
        let home = tempfile::tempdir().unwrap();
        let store = FileStore::open(&FileSettings {
            directory: home.path().to_owned(),
            election: "orders".to_owned(),
            is_private: false,
        });
        let wd = Inotify::init().unwrap().watches().add(home.path(), EVENTS).unwrap();
        for (mask, name, expected) in [
            (EventMask::MOVED_TO, Some("orders.json"), Some(true)),
            (EventMask::DELETE, Some("orders.json"), Some(true)),
            (EventMask::MOVED_TO, Some("other.json"), Some(false)),
            (EventMask::DELETE, Some("orders.tmp"), Some(false)),
            (EventMask::Q_OVERFLOW, None, Some(true)),
            (EventMask::DELETE_SELF, None, Some(false)),
            (EventMask::IGNORED, None, None),
            (EventMask::MOVE_SELF, None, None),
        ] {
            let event = Event { wd: wd.clone(), mask, cookie: 0, name };
            assert_eq!(store.may_be_news(&event).ok(), expected, "{event:?}");
        }
    }
}
