//! A watch on the Lease, which wakes a standby for a release before its next poll, and a leader that
//! has lost the Lease before its next renewal. It also shows each renewal, from which a standby counts
//! the time of the lease.
//!
//! It is never evidence of anything. Errors are waited out here, since nothing else handles them;
//! without the permission to watch, a standby sees a release at its next poll.

use std::mem;

use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Kubernetes, record};
use crate::kube::objects::Lease;
use crate::kube::{KubeError, Watched};
use crate::lease::{Change, Claim};
use crate::store::pause::Pause;

/// The number of consecutive refusals after which a warning is logged: some seconds.
const REFUSALS: u32 = 5;

/// The watch, kept from one [`watch`](Kubernetes::watch) to the next, and what it last received.
#[derive(Default)]
pub(super) struct Watching {
    /// `None` before the first watch, and after one that has ended.
    events: Option<BoxStream<'static, Result<Watched<Lease>, KubeError>>>,
    /// Whether the first event is the present state, which a watch without a version sends however soon
    /// it ends.
    is_beginning: bool,
    /// The pause to the next watch.
    pause: Pause,
    /// The resourceVersion to continue from.
    version: Option<String>,
    /// The digest of what is of interest to a standby.
    news: Option<String>,
    /// The claim whose time observers count.
    claim: Option<Claim>,
    /// The number of consecutive refusals.
    refused: u32,
}

impl Watching {
    /// Records an event; returns `None` if it is of no interest.
    fn hear(&mut self, told: Watched<Lease>, place: &str) -> Option<Change> {
        if !mem::take(&mut self.is_beginning) {
            self.pause.reset();
        }
        self.refused = 0;
        match told {
            Watched::Added(lease) | Watched::Modified(lease) => self.take(&lease, true, place),
            Watched::Deleted(lease) => self.take(&lease, false, place),
            Watched::Bookmark(version) => {
                self.version = Some(version);
                None
            }
        }
    }

    /// Records the state of the Lease, or its deletion; returns `None` if that is of no interest.
    fn take(&mut self, lease: &Lease, there: bool, place: &str) -> Option<Change> {
        let version = &lease.metadata.resource_version;
        self.version = (!version.is_empty()).then(|| version.clone());
        let news = if there { record::news(lease) } else { "gone".to_owned() };
        let known = self.news.replace(news);
        let claim = record::claim(lease, place).ok().flatten().filter(|_| there);
        let counted = mem::replace(&mut self.claim, claim);
        if known != self.news {
            return Some(Change::News { held_by: record::held_by(lease).filter(|_| there) });
        }
        self.claim.clone().filter(|_| counted != self.claim).map(Change::Renewal)
    }

    /// Records why the watch ended.
    fn fail(&mut self, error: &KubeError, place: &str) {
        tracing::debug!(lease = place, "the watch ended: {error}");
        match error {
            // The next watch continues where this one broke.
            KubeError::Disconnected(_) | KubeError::Network(_) | KubeError::Timeout(_) => (),
            KubeError::Forbidden(why) => {
                self.refused = self.refused.saturating_add(1);
                if self.refused == REFUSALS {
                    tracing::warn!(
                        "failed to watch the Lease, so a release is noticed only at the next poll: \
                         {why}"
                    );
                }
            }
            // The next watch starts with the present state, which shows whatever happened
            // meanwhile.
            _ => self.version = None,
        }
    }

    /// Pauses before the next watch.
    async fn pass_pause(&mut self) {
        match self.refused {
            0 => self.pause.pass().await,
            _ => self.pause.pass_refused().await,
        }
    }
}

impl Kubernetes {
    /// Resolves when the Lease has changed.
    pub(super) async fn watch(&self) -> Change {
        let mut watching = self.watching.lock().await;
        let place = self.place();
        loop {
            if watching.events.is_none() {
                let from = watching.version.clone();
                watching.is_beginning = from.is_none();
                let (namespace, name) = (&self.settings.namespace, &self.settings.name);
                watching.events = Some(self.kube.watch(namespace, name, from).boxed());
            }
            while let Some(events) = &mut watching.events
                && let Some(told) = events.next().await
            {
                match told {
                    Ok(told) => {
                        if let Some(change) = watching.hear(told, &place) {
                            return change;
                        }
                    }
                    Err(error) => watching.fail(&error, &place),
                }
            }
            watching.events = None;
            watching.pass_pause().await;
        }
    }
}
