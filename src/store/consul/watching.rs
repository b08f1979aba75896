//! Blocking queries on the key, which wake a standby for a release before its next poll, and a leader that
//! has lost the lease before its next renewal. A renewal writes no key.
//!
//! They are never evidence of anything. Errors are waited out here, since nothing else handles them.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::Consul;
use super::record::Seen;
use crate::lease::{Nonce, StoreError};
use crate::store::pause::Pause;

/// How long one query waits, after which another is sent. A connection may be dead for this long before
/// that shows; a shorter time costs more requests.
const LENGTH: Duration = Duration::from_secs(48);

/// How long an answer may take: the servers wait a sixteenth longer, at random.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was last received, kept from one [`watch`](Consul::watch) to the next.
#[derive(Default)]
pub(super) struct Noticed {
    /// The index up to which everything was received; 0 to begin with the present state.
    index: u64,
    /// Who holds the lease, whether it is being broken, and the last write of the key.
    news: Option<(Option<(Nonce, bool)>, u64)>,
}

impl Noticed {
    /// Records the present state; returns whether it is another than before.
    fn take(&mut self, seen: &Seen, index: u64) -> bool {
        // An index that has gone back is of other servers, or of restored ones.
        self.index = if index < self.index { 0 } else { index };
        let holder = seen.claim().map(|it| (it.nonce, it.is_breaking));
        let known = self.news.replace((holder, seen.index));
        known != self.news
    }

    fn held_by(&self) -> Option<Nonce> {
        self.news.and_then(|(holder, _)| holder).map(|(nonce, _)| nonce)
    }
}

impl Consul {
    /// Resolves when the key has changed; returns the acquisition that holds the lease.
    pub(super) async fn watch(&self) -> Option<Nonce> {
        let mut pause = Pause::default();
        loop {
            match timeout(PATIENCE, self.watch_once()).await {
                Ok(Ok(true)) => return self.noticed().held_by(),
                Ok(Ok(false)) => {
                    // A server may answer at once, again and again.
                    pause.reset();
                    pause.pass().await;
                }
                Ok(Err(error)) => {
                    tracing::debug!(key = self.key, "the blocking query ended: {error}");
                    // The next one begins with the present state, which shows what was missed.
                    self.noticed().index = 0;
                    pause.pass().await;
                }
                Err(_) => tracing::debug!(key = self.key, "a blocking query had no answer"),
            }
        }
    }

    /// Waits from the last index on, or reads the present state. Returns whether something has changed.
    async fn watch_once(&self) -> Result<bool, StoreError> {
        let from = self.noticed().index;
        let waited = self.api.call().wait(&self.key, from, LENGTH).await?;
        match Seen::of(waited.entry.as_ref(), &self.key) {
            Ok(seen) => Ok(self.noticed().take(&seen, waited.index)),
            // What is none of Tenure's shows in the read that follows.
            Err(foreign) if from == 0 => Err(StoreError::Foreign(foreign)),
            Err(_) => {
                self.noticed().index = waited.index;
                Ok(true)
            }
        }
    }

    fn noticed(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Claim, Content};
    use super::*;
    use crate::lease::fuzzing::bid;

    fn seen(content: Content, is_held: bool, index: u64) -> Seen {
        let session = is_held.then_some(uuid::Uuid::from_u128(5));
        Seen { session, content, index }
    }

    #[test]
    fn an_index_that_goes_back_begins_with_the_present_state_and_is_no_news() {
        let mut noticed = Noticed::default();
        let key = seen(Content::default(), false, 7);
        assert!(noticed.take(&key, 7));
        for (index, next) in [(7, 7), (9, 9), (8, 0), (8, 8), (10, 10)] {
            assert!(!noticed.take(&key, index), "{index}");
            assert_eq!(noticed.index, next, "{index}");
        }
    }

    #[test]
    fn each_write_of_the_key_is_news_once_with_the_acquisition_that_holds_it() {
        let mut noticed = Noticed::default();
        let claimed = Content::default().with_claim(Some(Claim::of(&bid())));
        for (key, held_by) in [
            (seen(Content::default(), false, 0), None),
            (seen(claimed.clone(), true, 7), Some(bid().nonce)),
            (seen(claimed.clone(), true, 8), Some(bid().nonce)),
            (seen(claimed.breaking(), true, 8), Some(bid().nonce)),
            (seen(claimed, false, 8), None),
        ] {
            assert!(noticed.take(&key, 9), "{key:?}");
            assert!(!noticed.take(&key, 9), "{key:?}");
            assert_eq!(noticed.held_by(), held_by, "{key:?}");
        }
    }
}
