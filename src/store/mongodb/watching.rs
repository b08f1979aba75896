//! A change stream on the document, where the server has a replica set: it wakes a standby for a release
//! before its next poll, and a leader that has lost the lease before its next renewal. It also shows each
//! renewal.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them; without a
//! replica set, or the right to watch, a standby sees a release at its next poll.

use std::time::Duration;

use mongodb::bson::doc;
use mongodb::options::FullDocumentType;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Collection;
use super::access::Session;
use super::errors::{failed, not_mongodb};
use super::wire::{self, Stored};
use crate::store::network::NetworkError;
use crate::store::pause::Pause;
use crate::store::register::{RegisterError, Slot, Told};

/// How long the server waits for events before it answers without one. A connection may be dead for this
/// long before that shows; a shorter time costs more requests.
const WAIT: Duration = Duration::from_secs(10);

/// How many states may wait to be told.
const WAITING: usize = 16;

/// The state of the document; `None` where it was deleted.
type State = Option<Stored>;

/// An open stream. It is read by a task with a client of its own, which both end with it: a request that is
/// dropped leaves its client in disorder.
struct Stream {
    states: mpsc::Receiver<Result<State, RegisterError>>,
    _task: JoinSet<()>,
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
    async fn next(&self, stream: Option<Stream>) -> Result<(State, Stream), RegisterError> {
        let mut stream = match stream {
            Some(stream) => stream,
            None => self.open_stream().await?,
        };
        let ended = || NetworkError::Disconnected("the change stream ended".to_owned());
        let state = stream.states.recv().await.ok_or_else(ended)??;
        Ok((state, stream))
    }

    async fn open_stream(&self) -> Result<Stream, RegisterError> {
        let session = self.access.another().await?;
        if !session.hello.is_replicated() {
            let message = "the server has no replica set, and no change streams".to_owned();
            return Err(RegisterError::Invalid(message));
        }
        let (send, states) = mpsc::channel(WAITING);
        let name = self.name(Slot::Lease);
        let find = self.commands.find(&name, false);
        let (settings, bound) = (self.settings.clone(), self.access.bound);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let read = async {
                let mut events = open(&session, &settings, &name, bound).await?;
                let present = session.ask(&settings.database, find).await?;
                let present = wire::found(&present).map_err(|()| not_mongodb(session.servers()))?;
                let mut state = Some(present);
                loop {
                    if let Some(state) = state.take()
                        && send.send(Ok(state)).await.is_err()
                    {
                        return Ok(());
                    }
                    let event = timeout(WAIT + bound, events.next_if_any()).await;
                    let event = event.map_err(|_| silent())?;
                    let event = event.map_err(|error| failed(&error, session.servers()))?;
                    state = event.map(|it| it.full_document.as_ref().map(Stored::of));
                }
            };
            let outcome: Result<(), RegisterError> = read.await;
            if let Err(error) = outcome {
                let _ = send.send(Err(error)).await;
            }
        });
        Ok(Stream { states, _task: task })
    }

    /// Opens a stream, and closes it, for `tenure doctor`.
    pub(super) async fn try_stream(&self) -> Result<(), RegisterError> {
        let session = self.access.another().await?;
        open(&session, &self.settings, &self.name(Slot::Lease), self.access.bound).await.map(drop)
    }
}

/// The events of a stream.
type Events = mongodb::change_stream::ChangeStream<
    mongodb::change_stream::event::ChangeStreamEvent<mongodb::bson::Document>,
>;

/// Opens a stream on a document. Replacements have the whole of it; only what others change in part is looked
/// up.
async fn open(
    session: &Session,
    settings: &crate::config::MongoSettings,
    name: &str,
    bound: Duration,
) -> Result<Events, RegisterError> {
    let collection = session.collection(settings);
    let only = doc! {"$match": {"documentKey._id": name}};
    let opened = collection
        .watch()
        .pipeline([only])
        .full_document(FullDocumentType::UpdateLookup)
        .max_await_time(WAIT);
    let opened = timeout(bound, opened).await.map_err(|_| silent())?;
    opened.map_err(|error| failed(&error, session.servers()))
}

fn silent() -> RegisterError {
    NetworkError::Timeout("the server sent nothing for too long".to_owned()).into()
}
