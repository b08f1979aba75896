//! A watch on the key, which reports each write with its value: a standby learns of a release before its next
//! poll, and of each renewal, and a leader of a break.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them. Watches go
//! from member to member apart from requests: one that stays silent, and is dropped for that, is opened anew on
//! the next.

use reqwest::Response;

use super::Cluster;
use super::errors::{self, broken};
use super::gateway::LONGEST_ANSWER;
use super::wire::{self, Answer, Event, Streamed, Watched};
use crate::store::network::NetworkError;
use crate::store::pause::Pause;
use crate::store::register::{RegisterError, Slot, Told};

/// An open watch: messages, one in each line.
struct Stream {
    /// The number of the member.
    at: usize,
    answer: Response,
    /// What was read after the last whole line.
    rest: Vec<u8>,
}

/// The watch, kept from one [`watch`](Cluster::watch) to the next.
#[derive(Default)]
pub(super) struct Watching {
    /// `None` before the first, and after one that has ended.
    stream: Option<Stream>,
    pause: Pause,
}

impl Cluster {
    /// Resolves when the key has changed, and first with its present state.
    pub(super) async fn watch(&self) -> Told {
        let mut watching = self.watching.lock().await;
        loop {
            // Out of its place: a stream that is dropped while it is waited for is of no more use.
            let told = match watching.stream.take() {
                Some(stream) => self.next(stream).await,
                None => self.begin().await,
            };
            match told {
                Ok((value, stream)) => {
                    watching.stream = Some(stream);
                    watching.pause.reset();
                    return Told::of(value.as_deref());
                }
                Err(error) => {
                    tracing::debug!(keys = self.folder(), "the watch ended: {error}");
                    match error {
                        RegisterError::Invalid(_) | RegisterError::Denied(_) => {
                            watching.pause.pass_refused().await;
                        }
                        _ => watching.pause.pass().await,
                    }
                }
            }
        }
    }

    /// Reads the present state, and watches from it on.
    async fn begin(&self) -> Result<(Option<Vec<u8>>, Stream), RegisterError> {
        let mut call = self.gateway.watch();
        let (header, present) = self.read(&mut call, Slot::Lease).await?;
        self.answered_by(call.at(), header)?;
        let mut asked = wire::only(&self.key(Slot::Lease));
        asked["start_revision"] = (header.revision.0 + 1).to_string().into();
        let asked = serde_json::json!({"create_request": asked});
        let answer = call.open_stream("watch", &asked).await?;
        let stream = Stream { at: call.at(), answer, rest: Vec::new() };
        Ok((present.map(|it| it.value.0), stream))
    }

    /// Returns the next state of the key. While this is waited for, the member counts as one that does not
    /// answer.
    async fn next(&self, mut stream: Stream) -> Result<(Option<Vec<u8>>, Stream), RegisterError> {
        let mut turn = self.gateway.turn_of_watch(stream.at);
        turn.set_answered(false);
        loop {
            let Answer { header, rest } = stream.message(turn.name()).await?;
            self.answered_by(stream.at, header)?;
            // Of several, the last is the present state.
            if let Some(value) = rest.events.into_iter().next_back().map(Event::into_value) {
                turn.set_answered(true);
                return Ok((value, stream));
            }
        }
    }
}

impl Stream {
    async fn message(&mut self, member: &str) -> Result<Answer<Watched>, RegisterError> {
        loop {
            if let Some(end) = self.rest.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if !line.trim_ascii().is_empty() {
                    return message(&line, member);
                }
            } else if self.rest.len() > LONGEST_ANSWER {
                return Err(no_message(member));
            } else {
                let chunk = self.answer.chunk().await.map_err(|error| broken(&error, member))?;
                let ended = || NetworkError::Disconnected(format!("{member} ended the watch"));
                self.rest.extend_from_slice(&chunk.ok_or_else(ended)?);
            }
        }
    }
}

fn message(line: &[u8], member: &str) -> Result<Answer<Watched>, RegisterError> {
    let read: Streamed = serde_json::from_slice(line).map_err(|_| no_message(member))?;
    match (read.result, read.error) {
        (Some(message), None) if !message.rest.canceled => Ok(message),
        // The revision was compacted, perhaps.
        (Some(_), None) => Err(RegisterError::Unavailable(format!("{member} ended the watch"))),
        (_, error) => Err(errors::streamed(&error.unwrap_or_default(), member)),
    }
}

fn no_message(member: &str) -> RegisterError {
    RegisterError::Invalid(format!("{member} sent what is no message of a watch"))
}
