//! A change stream on the document, where the server has a replica set: it wakes a standby for a release
//! before its next poll, and a leader that has lost the lease before its next renewal. It also shows each
//! renewal.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them; without a
//! replica set, or the right to watch, a standby sees a release at its next poll.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::timeout;

use super::Collection;
use super::connection::Connection;
use super::errors::not_mongodb;
use super::wire::{self, Stored};
use crate::store::network::NetworkError;
use crate::store::pause::Pause;
use crate::store::register::{RegisterError, Slot, Told};

/// How long the server waits for events before it answers without one. A connection may be dead for this
/// long before that shows; a shorter time costs more requests.
const WAIT: Duration = Duration::from_secs(10);

/// An open stream.
struct Stream {
    connection: Connection,
    cursor: i64,
    /// The states of the document that have arrived; `None` where it was deleted.
    states: VecDeque<Option<Stored>>,
}

/// The stream, kept from one [`watch`](Collection::watch) to the next.
#[derive(Default)]
pub(super) struct Watching {
    /// `None` before the first stream, and after one that has ended.
    stream: Option<Stream>,
    /// The pause to the next stream.
    pause: Pause,
}

impl Collection {
    /// Resolves when the document has changed, or may have.
    pub(super) async fn watch(&self) -> Told {
        let mut watching = self.watching.lock().await;
        loop {
            // Out of its place: a stream whose request was dropped is of no more use.
            match self.next(watching.stream.take()).await {
                Ok((state, stream)) => {
                    watching.stream = Some(stream);
                    watching.pause.reset();
                    return Told::of(state.as_ref().map(|it| it.content.as_bytes()));
                }
                Err(error) => {
                    tracing::debug!(
                        document = self.settings.election,
                        "the change stream ended: {error}"
                    );
                    let is_refused =
                        matches!(error, RegisterError::Invalid(_) | RegisterError::Denied(_));
                    match is_refused {
                        true => watching.pause.pass_refused().await,
                        false => watching.pause.pass().await,
                    }
                }
            }
        }
    }

    /// Returns the next state of the document. Opens a stream first if there is none, and begins it with the
    /// present state, which shows what was missed.
    async fn next(
        &self,
        stream: Option<Stream>,
    ) -> Result<(Option<Stored>, Stream), RegisterError> {
        let mut stream = match stream {
            Some(stream) => stream,
            None => self.open_stream().await?,
        };
        loop {
            if let Some(state) = stream.states.pop_front() {
                return Ok((state, stream));
            }
            let more = self.commands.more(stream.cursor, WAIT);
            let asked = timeout(WAIT + self.access.bound, stream.connection.ask(&more));
            let answer = asked.await.unwrap_or_else(|_| {
                Err(NetworkError::Timeout("the server sent nothing for too long".to_owned()).into())
            })?;
            stream.receive(&answer)?;
        }
    }

    async fn open_stream(&self) -> Result<Stream, RegisterError> {
        let connection = self.access.connect_another().await?;
        if !connection.hello.is_replicated() {
            let message = "the server has no replica set, and no change streams".to_owned();
            return Err(RegisterError::Invalid(message));
        }
        let mut stream = Stream { connection, cursor: 0, states: VecDeque::new() };
        let name = self.name(Slot::Lease);
        let open = async {
            let answer = stream.connection.ask(&self.commands.watch(&name)).await?;
            stream.receive(&answer)?;
            let present = stream.connection.ask(&self.commands.find(&name, false)).await?;
            let unfit = |()| not_mongodb(stream.connection.server());
            let present = wire::found(&present).map_err(unfit)?;
            stream.states.push_front(present);
            Ok(())
        };
        let opened = timeout(self.access.bound, open).await.unwrap_or_else(|_| {
            let why = "the server did not open a change stream in time".to_owned();
            Err(NetworkError::Timeout(why).into())
        });
        opened.map(|()| stream)
    }
}

impl Stream {
    fn receive(&mut self, answer: &super::bson::Document) -> Result<(), RegisterError> {
        let unfit = |()| not_mongodb(self.connection.server());
        let events = wire::events(answer).map_err(unfit)?;
        self.states.extend(events.states);
        self.cursor = events.cursor.ok_or_else(|| {
            NetworkError::Disconnected("the server ended the change stream".to_owned())
        })?;
        Ok(())
    }
}
