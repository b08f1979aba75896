//! A watch on the Lease, which wakes a standby for a release before its next poll, and a leader that
//! has lost the Lease before its next renewal. It also shows each renewal, from which a standby counts
//! the time of the lease.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them;
//! without the permission to watch, a standby sees a release at its next poll.

use std::pin::pin;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::time::sleep;
use uuid::Uuid;

use super::{Kubernetes, record};
use crate::kube::objects::Lease;
use crate::kube::{KubeError, Watched};
use crate::lease::Change;

/// The pause from the end of one watch to the next, from the first value doubling to the second
/// while nothing is received. A shorter one loads a failing server more; a longer one leaves
/// standbys to their own polls.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// The longest pause after a watch that is not allowed, reached by doubling too, since a server
/// that has just started refuses everything for a moment.
const FORBIDDEN: Duration = Duration::from_secs(300);

/// The number of consecutive refusals after which a warning is logged: some seconds.
const REFUSALS: u32 = 5;

/// What was last received, kept from one [`watch`](Kubernetes::watch) to the next.
#[derive(Default)]
pub(super) struct Noticed {
    /// The resourceVersion to continue from.
    version: Option<String>,
    /// The digest of what is of interest to a standby.
    news: Option<String>,
    /// The number of consecutive refusals.
    refused: u32,
}

impl Noticed {
    /// Records the state of the Lease, or its deletion; returns `None` if that is of no interest.
    fn take(&mut self, lease: &Lease, there: bool, place: &str) -> Option<Change> {
        let version = &lease.metadata.resource_version;
        self.version = (!version.is_empty()).then(|| version.clone());
        let news = if there { record::news(lease) } else { "gone".to_owned() };
        let known = self.news.replace(news);
        if known != self.news {
            return Some(Change::News { held_by: record::held_by(lease).filter(|_| there) });
        }
        record::claim(lease, place).ok().flatten().map(Change::Renewal)
    }
}

impl Kubernetes {
    /// Resolves when the Lease has changed.
    pub(super) async fn watch(&self) -> Change {
        let mut pause = PAUSE.0;
        loop {
            let from = self.noticed().version.clone();
            // A watch without a version first sends the present state, however soon it ends.
            let mut is_beginning = from.is_none();
            let (namespace, name) = (&self.settings.namespace, &self.settings.name);
            let mut watch = pin!(self.kube.watch::<Lease>(namespace, name, from));
            while let Some(told) = watch.next().await {
                match told {
                    Ok(told) => {
                        if !std::mem::take(&mut is_beginning) {
                            pause = PAUSE.0;
                        }
                        if let Some(change) = self.hear(told) {
                            return change;
                        }
                    }
                    Err(error) => self.fail(&error),
                }
            }
            sleep(spread(pause)).await;
            let refused = self.noticed().refused > 0;
            pause = (pause * 2).min(if refused { FORBIDDEN } else { PAUSE.1 });
        }
    }

    /// Records an event of the watch; returns `None` if it is of no interest.
    fn hear(&self, told: Watched<Lease>) -> Option<Change> {
        let mut noticed = self.noticed();
        noticed.refused = 0;
        match told {
            Watched::Added(lease) | Watched::Modified(lease) => {
                noticed.take(&lease, true, &self.place())
            }
            Watched::Deleted(lease) => noticed.take(&lease, false, &self.place()),
            Watched::Bookmark(version) => {
                noticed.version = Some(version);
                None
            }
        }
    }

    /// Records why a watch ended.
    fn fail(&self, error: &KubeError) {
        let mut noticed = self.noticed();
        tracing::debug!(lease = self.place(), "the watch ended: {error}");
        match error {
            // The next watch continues where this one broke.
            KubeError::Disconnected(_) | KubeError::Network(_) | KubeError::Timeout(_) => (),
            KubeError::Forbidden(why) => {
                noticed.refused = noticed.refused.saturating_add(1);
                if noticed.refused == REFUSALS {
                    tracing::warn!(
                        "failed to watch the Lease, so a release is noticed only at the next poll: \
                         {why}"
                    );
                }
            }
            // The next watch starts with the present state, which shows whatever happened
            // meanwhile.
            _ => noticed.version = None,
        }
    }

    fn noticed(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns half of the pause to all of it, at random, so that not all watchers of a server that
/// ended return at once.
fn spread(pause: Duration) -> Duration {
    let chance = (Uuid::new_v4().as_u128() & 0xff) as u32;
    pause / 2 + pause / 512 * chance
}
