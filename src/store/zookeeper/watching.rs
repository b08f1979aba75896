//! The watch on the node of the lease. ZooKeeper tells once that the node has changed; the read of what it
//! has become asks to be told again. So each renewal costs a standby one read, and shows its content.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them.

use super::Ensemble;
use super::connection::Connection;
use super::wire::{Reader, Request};
use crate::store::pause::Pause;
use crate::store::register::{RegisterError, Slot, Told};

/// The watch, kept from one [`watch`](Ensemble::watch) to the next.
#[derive(Default)]
pub(super) struct Watching {
    /// The connection that is told; `None` before the first, and after one that has ended.
    connection: Option<Connection>,
    /// The pause to the next one.
    pause: Pause,
}

impl Ensemble {
    /// Resolves when the node has changed; first, on a new connection, with its present state.
    pub(super) async fn watch(&self) -> Told {
        let mut watching = self.watching.lock().await;
        loop {
            // Out of its place: if this is dropped, the next watch is on another server.
            match self.next(watching.connection.take()).await {
                Ok((content, connection)) => {
                    watching.connection = Some(connection);
                    watching.pause.reset();
                    return Told::of(content.as_deref());
                }
                Err(error) => {
                    tracing::debug!(node = self.nodes.record, "the watch ended: {error}");
                    watching.pause.pass().await;
                }
            }
        }
    }

    /// Waits for the next change, if there is a connection; returns the data of the node, `None` if it is
    /// not there.
    async fn next(
        &self,
        known: Option<Connection>,
    ) -> Result<(Option<Vec<u8>>, Connection), RegisterError> {
        let mut connection = match known {
            Some(mut it) => {
                it.notified().await?;
                it
            }
            None => self.access.connect_watch().await?,
        };
        let content = self.access.in_time(&connection.server(), self.read(&mut connection)).await?;
        self.access.heard(connection.seen);
        Ok((content, connection))
    }

    /// Reads the node, and asks to be told of its next change.
    async fn read(&self, connection: &mut Connection) -> Result<Option<Vec<u8>>, RegisterError> {
        let path = self.path(Slot::Lease);
        loop {
            let [data] = connection.ask([Request::Watch(path)]).await?;
            if let Some((content, _)) = data.found(Reader::data)? {
                return Ok(Some(content));
            }
            // Nothing is told of a node that was not there, unless this is asked for.
            let [state] = connection.ask([Request::Await(path)]).await?;
            if state.found(Reader::state)?.is_none() {
                return Ok(None);
            }
        }
    }
}
