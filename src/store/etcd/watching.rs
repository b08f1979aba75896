//! A watch on both keys, which wakes a standby for a release before its next poll, and a leader that
//! has lost the lease before its next renewal. A renewal, which writes the same claim again, is not of
//! interest.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;

use super::errors::{self, EtcdError, broken};
use super::gateway::{Call, LONGEST_ANSWER};
use super::record::Seen;
use super::wire::{Streamed, Watched};
use super::{Etcd, Range};
use crate::lease::{Nonce, StoreError};
use crate::store::pause::Pause;

/// How long one watch lasts, after which another is started. A connection may be dead for this long
/// before that shows; a shorter time costs more requests.
const LENGTH: Duration = Duration::from_secs(60);

/// What was last received, kept from one [`watch`](Etcd::watch) to the next.
#[derive(Default)]
pub(super) struct Noticed {
    /// The revision up to which everything was received; `None` to begin with the present state.
    revision: Option<i64>,
    /// Who holds the lease, and the revision of the last write of the record.
    news: Option<(Option<Holder>, i64)>,
}

/// What is of interest of a claim: the acquisition that holds the lease, and whether an operator is
/// breaking it.
type Holder = (Nonce, bool);

fn holder(seen: &Seen) -> Option<Holder> {
    seen.held.as_ref().map(|it| (it.nonce, it.is_breaking))
}

impl Noticed {
    /// Records the present state; returns whether it is another than before.
    fn take(&mut self, seen: &Seen) -> bool {
        self.revision = Some(seen.revision);
        self.replace(holder(seen), seen.recorded)
    }

    fn replace(&mut self, holder: Option<Holder>, recorded: i64) -> bool {
        let known = self.news.replace((holder, recorded));
        known != self.news
    }

    fn held_by(&self) -> Option<Nonce> {
        self.news.and_then(|(holder, _)| holder).map(|(nonce, _)| nonce)
    }
}

/// A stream of messages, one in each line.
struct Messages<'a> {
    call: Call<'a>,
    answer: reqwest::Response,
    /// What was read after the last whole line.
    rest: Vec<u8>,
}

impl Messages<'_> {
    /// Returns the next message; `None` when the server has ended the stream.
    async fn next(&mut self) -> Result<Option<Watched>, EtcdError> {
        loop {
            if let Some(end) = self.rest.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return self.message(&line).map(Some);
            }
            if self.rest.len() > LONGEST_ANSWER {
                return Err(self.invalid());
            }
            match self.answer.chunk().await {
                Ok(Some(chunk)) => self.rest.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(broken(&error, self.call.member())),
            }
        }
    }

    fn message(&self, line: &[u8]) -> Result<Watched, EtcdError> {
        let read: Streamed<Watched> = serde_json::from_slice(line).map_err(|_| self.invalid())?;
        match (read.result, read.error) {
            (Some(message), None) if !message.canceled => Ok(message),
            (Some(_), None) => {
                // The revision was compacted, or the user may not watch.
                Err(EtcdError::Invalid(format!("{} ended the watch", self.call.member())))
            }
            (_, error) => Err(errors::streamed(&error.unwrap_or_default(), self.call.member())),
        }
    }

    fn invalid(&self) -> EtcdError {
        EtcdError::Invalid(format!("{} sent what is no message of a watch", self.call.member()))
    }
}

impl Etcd {
    /// Resolves when a key has changed; returns the acquisition that holds the lease.
    pub(super) async fn watch(&self) -> Option<Nonce> {
        let mut pause = Pause::default();
        loop {
            match timeout(LENGTH, self.watch_once()).await {
                Ok(Ok(true)) => return self.noticed().held_by(),
                Ok(Ok(false)) => (),
                Ok(Err(error)) => {
                    tracing::debug!(keys = self.place(), "the watch ended: {error}");
                    // The next watch begins with the present state, which shows what was missed.
                    self.noticed().revision = None;
                }
                // Nothing has changed for so long.
                Err(_) => {
                    pause.reset();
                    continue;
                }
            }
            pause.pass().await;
        }
    }

    /// Watches from the last revision on, or reads the present state first. Returns whether something
    /// has changed; false if the server ended the watch before.
    async fn watch_once(&self) -> Result<bool, StoreError> {
        let from = self.noticed().revision;
        let mut call = self.gateway.call();
        let from = match from {
            Some(from) => from,
            None => {
                let seen = self.see(&mut call).await?;
                if self.noticed().take(&seen) {
                    return Ok(true);
                }
                seen.revision
            }
        };
        let mut body = self.both();
        body["start_revision"] = (from + 1).to_string().into();
        let answer = call.open_stream("watch", &json!({"create_request": body})).await?;
        let mut messages = Messages { call, answer, rest: Vec::new() };
        while let Some(message) = messages.next().await? {
            if self.hear(message) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Records a message; returns whether it tells of a change.
    fn hear(&self, message: Watched) -> bool {
        let mut noticed = self.noticed();
        let mut changed = false;
        for event in message.events {
            noticed.revision = noticed.revision.max(Some(event.kv.mod_revision.0));
            let is_claim = event.kv.key.0 == self.keys.lease.as_bytes();
            // A deletion has no value, and what is none of Tenure's shows in the read that follows.
            let kvs = if event.is_deletion() { Vec::new() } else { vec![event.kv] };
            let Ok(seen) = self.seen(&Range { header: message.header, kvs }) else {
                changed = true;
                continue;
            };
            let (known, recorded) = noticed.news.unwrap_or_default();
            changed |= match is_claim {
                true => noticed.replace(holder(&seen), recorded),
                false => noticed.replace(known, seen.recorded),
            };
        }
        changed
    }

    fn noticed(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
