//! The queue of those who wait for the lease. Each has a node that is deleted with its session, and waits for
//! the one before it to be deleted; the first watches the record and the lease. So a release wakes one of
//! them; if the lease is still free a moment later, it goes to the end, which wakes the next.
//!
//! The queue decides nothing: who bids first is granted the lease, in line or not. Errors are waited out here,
//! since nothing else handles them.

use std::time::Duration;

use tokio::time::timeout;

use super::Zookeeper;
use super::connection::{Connection, state};
use super::errors::ZookeeperError;
use super::record::Seen;
use super::wire::{Mode, Reader, Request};
use crate::lease::{Nonce, StoreError, Version};
use crate::store::network::NetworkError;
use crate::store::pause::Pause;

/// How long the first in line has to acquire a lease that is free before the next one is woken.
const TURN: Duration = Duration::from_millis(500);

/// What a place in the queue begins with.
const PLACE: &str = "place-";

/// What was last received, kept from one [`watch`](Zookeeper::watch) to the next.
#[derive(Default)]
pub(super) struct Watching {
    connection: Option<Connection>,
    /// The name of this instance's place in the queue.
    place: Option<String>,
    /// The acquisition that holds the lease, whether it is being broken, and the version of the record.
    news: Option<(Option<(Nonce, bool)>, Version)>,
    /// Whether the place at the front is to be given up, and whether it was since the last news.
    passes: bool,
    has_passed: bool,
}

impl Watching {
    /// Records the present state; returns whether it is another than before.
    fn take(&mut self, seen: &Seen) -> bool {
        let holder = seen.held.as_ref().map(|it| (it.nonce, it.is_breaking));
        let news = Some((holder, seen.version()));
        let has_changed = self.news != news;
        if has_changed {
            self.news = news;
            (self.passes, self.has_passed) = (false, false);
        }
        has_changed
    }

    /// Returns whether this instance has a moment to acquire the lease if others are due after it.
    fn has_turn(&self, is_due: bool) -> bool {
        is_due && self.held_by().is_none() && !self.has_passed
    }

    fn held_by(&self) -> Option<Nonce> {
        self.news.as_ref().and_then(|(holder, _)| *holder).map(|(nonce, _)| nonce)
    }
}

/// A place in the queue, as it was found.
struct InLine {
    /// The path of the place before it; `None` for the first.
    before: Option<String>,
    /// Whether there is one behind it.
    is_followed: bool,
}

impl Zookeeper {
    /// Resolves when the lease or the record has changed, as far as it is this instance's turn to know;
    /// returns the acquisition that holds the lease.
    pub(super) async fn watch(&self) -> Option<Nonce> {
        let mut watching = self.watching.lock().await;
        let mut pause = Pause::default();
        loop {
            match self.watch_on(&mut watching, &mut pause).await {
                Ok(()) => return watching.held_by(),
                Err(error) => {
                    tracing::debug!(node = self.nodes.record, "the watch ended: {error}");
                    watching.connection = None;
                }
            }
            pause.pass().await;
        }
    }

    /// Waits until something has changed. The pause after an error begins anew with each answer.
    async fn watch_on(&self, watching: &mut Watching, pause: &mut Pause) -> Result<(), StoreError> {
        loop {
            // Out of its place, so that it is closed if this future is dropped within a request.
            let mut connection = match watching.connection.take() {
                Some(known) => known,
                None => {
                    watching.place = None;
                    self.access.connect_next().await?
                }
            };
            let asked = self.prepare(&mut connection, watching);
            let Ok(prepared) = timeout(self.settings.request_timeout, asked).await else {
                let why = format!("{} does not answer", connection.server());
                return Err(NetworkError::Timeout(why).into());
            };
            self.access.heard(&connection);
            let prepared = prepared?;
            watching.connection = Some(connection);
            pause.reset();
            let Some((seen, is_due)) = prepared else { continue };
            if watching.take(&seen) {
                return Ok(());
            }
            let turn = watching.has_turn(is_due).then_some(TURN);
            if !notified(watching, turn).await? {
                watching.passes = true;
            }
        }
    }

    /// Asks for the notifications to wait for, and reads the record. Returns whether others wait for this
    /// instance too; `None` if it is to be done again.
    async fn prepare(
        &self,
        connection: &mut Connection,
        watching: &mut Watching,
    ) -> Result<Option<(Seen, bool)>, StoreError> {
        let record = &self.nodes.record;
        if std::mem::take(&mut watching.passes) {
            watching.has_passed = true;
            self.leave(connection, watching).await?;
        }
        let line = self.line_up(connection, watching).await?;
        let Some(InLine { before: Some(before), .. }) = line else {
            let lease = &self.nodes.lease;
            let asked = [Request::Watch(record), Request::Watch(lease), Request::Data(record)];
            let [watched, leased, data] = connection.ask(asked).await?;
            state(&watched)?;
            state(&leased)?;
            let is_followed = line.is_some_and(|it| it.is_followed);
            return Ok(Some((self.seen(&data)?, is_followed)));
        };
        let [before, data] =
            connection.ask([Request::Watch(&before), Request::Data(record)]).await?;
        let seen = self.seen(&data)?;
        Ok(state(&before)?.map(|_| (seen, false)))
    }

    /// Takes a place in the queue, or finds its own; `None` where there is no queue yet, or this instance
    /// leads and waits for nothing.
    async fn line_up(
        &self,
        connection: &mut Connection,
        watching: &mut Watching,
    ) -> Result<Option<InLine>, ZookeeperError> {
        let queue = &self.nodes.queue;
        let leads = watching.held_by().is_some_and(|it| self.access.was_granted(it));
        if leads {
            self.leave(connection, watching).await?;
            return Ok(None);
        }
        if watching.place.is_none() {
            let path = format!("{queue}/{PLACE}");
            let (mode, acl) = (Mode::Queued, self.access.acl());
            let create = Request::Create { path: &path, data: b"", mode, acl };
            let [created] = connection.ask([create]).await?;
            let Some(path) = created.found(Reader::created)? else { return Ok(None) };
            watching.place = path.rsplit('/').next().map(str::to_owned);
        }
        let [children] = connection.ask([Request::Children(queue)]).await?;
        let places = children.found(Reader::children)?.unwrap_or_default();
        let Some(own) = watching.place.clone().filter(|it| places.contains(it)) else {
            // Somebody deleted it.
            watching.place = None;
            return Ok(Some(InLine { before: None, is_followed: false }));
        };
        let of_tenure = || places.iter().filter(|it| it.starts_with(PLACE));
        let before = of_tenure().filter(|it| **it < own).max();
        Ok(Some(InLine {
            before: before.map(|it| format!("{queue}/{it}")),
            is_followed: of_tenure().any(|it| *it > own),
        }))
    }

    /// Gives up the place in the queue, which wakes the next one in line.
    async fn leave(
        &self,
        connection: &mut Connection,
        watching: &mut Watching,
    ) -> Result<(), ZookeeperError> {
        if let Some(place) = watching.place.take() {
            let path = format!("{}/{place}", self.nodes.queue);
            connection.ask([Request::Delete(&path)]).await?;
        }
        Ok(())
    }
}

/// Waits for a notification, for this time at most, and keeps the session alive meanwhile; returns whether there
/// was one. May be dropped at any time.
async fn notified(
    watching: &mut Watching,
    limit: Option<Duration>,
) -> Result<bool, ZookeeperError> {
    // Without a connection there is nothing to wait for.
    while let Some(connection) = &mut watching.connection {
        let period = connection.length / 3;
        match timeout(limit.unwrap_or(period), connection.notification()).await {
            Ok(path) => {
                path?;
                return Ok(true);
            }
            Err(_) if limit.is_some() => return Ok(false),
            Err(_) => {
                let known = watching.connection.take();
                if let Some(mut connection) = known {
                    connection.ping().await?;
                    watching.connection = Some(connection);
                }
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
