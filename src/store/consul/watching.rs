//! Blocking queries on the key, each of which reports a write with its value: a standby learns of a release
//! before its next poll, and of each renewal, and a leader of a break.
//!
//! They are never evidence of anything. Errors are waited out here, since nothing else handles them. Queries go
//! from server to server apart from requests: one that is dropped while it waits, for its silence, is followed by
//! one to the next server.

use std::time::Duration;

use super::Keys;
use super::api::Waited;
use crate::store::pause::Pause;
use crate::store::register::{RegisterError, Slot, Told};

/// How long one query waits, after which another is sent.
const LENGTH: Duration = Duration::from_secs(48);

/// What was last received, kept from one [`watch`](Keys::watch) to the next.
#[derive(Default)]
pub(super) struct Watching {
    /// `None` to begin with the present state.
    last: Option<Last>,
    pause: Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    /// The index to wait from.
    index: u64,
    /// The index of the last write of the key; 0 if there is none.
    written: u64,
}

impl Last {
    /// Returns what to wait from after an answer to a query from here.
    fn next(from: Option<Self>, waited: &Waited) -> Option<Self> {
        let written = waited.entry.as_ref().map_or(0, |it| it.modify_index);
        // An index that has gone back is of other servers, or of restored ones.
        let is_back = from.is_some_and(|it| waited.index < it.index);
        (!is_back).then_some(Self { index: waited.index, written })
    }
}

impl Keys {
    /// Resolves when the key was written, and first with its present state.
    pub(super) async fn watch(&self) -> Told {
        let mut watching = self.watching.lock().await;
        loop {
            // Out of its place: what follows a query that was dropped begins with the present state.
            let from = watching.last.take();
            match self.wait(from).await {
                Ok(waited) => {
                    let next = Last::next(from, &waited);
                    watching.last = next;
                    let is_new = |from: Last| next.is_some_and(|it| it.written != from.written);
                    if from.is_none_or(is_new) {
                        if next.is_some() {
                            watching.pause.reset();
                        }
                        return told(waited);
                    }
                }
                Err(error) => {
                    tracing::debug!(keys = self.folder(), "a blocking query ended: {error}");
                    if matches!(error, RegisterError::Invalid(_) | RegisterError::Denied(_)) {
                        watching.pause.pass_refused().await;
                        continue;
                    }
                }
            }
            // A server may also answer at once, again and again.
            watching.pause.pass().await;
        }
    }

    async fn wait(&self, from: Option<Last>) -> Result<Waited, RegisterError> {
        let mut call = self.api.watch();
        let key = self.key(Slot::Lease);
        match from {
            None => call.present(&key).await,
            Some(Last { index, .. }) => call.wait(&key, index, LENGTH).await,
        }
    }
}

fn told(waited: Waited) -> Told {
    Told::of(waited.entry.map(super::Entry::into_value).as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_goes_back_begins_with_the_present_state() {
        let mut from = None;
        for (index, expected) in [(7, Some(7)), (7, Some(7)), (9, Some(9)), (8, None), (8, Some(8))]
        {
            from = Last::next(from, &Waited { entry: None, index });
            assert_eq!(from.map(|it| it.index), expected);
        }
    }
}
