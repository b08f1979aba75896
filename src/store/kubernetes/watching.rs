//! Waiting until the Lease changes: a watch, which tells a standby of a release before its next
//! look.
//!
//! What it does not do: it is evidence of nothing. Errors are waited out here, since nobody else
//! hears of them; whoever may not watch goes on looking now and then, as without it.

use std::pin::pin;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::time::sleep;
use uuid::Uuid;

use super::{Kubernetes, record};
use crate::kube::objects::Lease;
use crate::kube::{KubeError, Watched};

/// From the end of one watch to the next: the first, doubling to the second while nothing is heard.
/// Shorter asks a server in trouble more often; longer leaves standbys to their own looks.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// The longest from a watch that is not allowed to the next try: reached by doubling too, since a
/// server that has just started refuses everything for a moment.
const FORBIDDEN: Duration = Duration::from_secs(300);

/// How often watching is refused, one try after the other, before that is said: some seconds.
const REFUSALS: u32 = 5;

/// What was last heard, kept from one [`watch`](Kubernetes::watch) to the next.
#[derive(Default)]
pub(super) struct Noticed {
    /// The resourceVersion to go on from.
    version: Option<String>,
    /// What a standby would want to see.
    news: Option<String>,
    /// How often watching was refused since it last was not.
    refused: u32,
}

impl Noticed {
    /// Takes in how the Lease is, or that it is gone; whether that is news.
    fn take(&mut self, lease: &Lease, there: bool) -> bool {
        let version = &lease.metadata.resource_version;
        self.version = (!version.is_empty()).then(|| version.clone());
        let news = if there { record::news(lease) } else { "gone".to_owned() };
        let known = self.news.replace(news);
        known != self.news
    }
}

impl Kubernetes {
    /// Resolves when something other than a renewal has happened to the Lease.
    pub(super) async fn watch(&self) {
        let mut pause = PAUSE.0;
        loop {
            let from = self.noticed().version.clone();
            // How the Lease is now is told by a watch that begins from nowhere, however soon it ends.
            let mut is_beginning = from.is_none();
            let (namespace, name) = (&self.settings.namespace, &self.settings.name);
            let mut watch = pin!(self.kube.watch::<Lease>(namespace, name, from));
            while let Some(told) = watch.next().await {
                match told {
                    Ok(told) => {
                        if !std::mem::take(&mut is_beginning) {
                            pause = PAUSE.0;
                        }
                        if self.hear(told) {
                            return;
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

    /// Whether what a watch told is news.
    fn hear(&self, told: Watched<Lease>) -> bool {
        let mut noticed = self.noticed();
        noticed.refused = 0;
        match told {
            Watched::Added(lease) | Watched::Modified(lease) => noticed.take(&lease, true),
            Watched::Deleted(lease) => noticed.take(&lease, false),
            Watched::Bookmark(version) => {
                noticed.version = Some(version);
                false
            }
        }
    }

    /// Takes in why a watch ended.
    fn fail(&self, error: &KubeError) {
        let mut noticed = self.noticed();
        tracing::debug!(lease = self.place(), "the watch ended: {error}");
        match error {
            // The next goes on where this one broke.
            KubeError::Broken(_) | KubeError::Network(_) | KubeError::Timeout(_) => (),
            KubeError::Forbidden(why) => {
                noticed.refused = noticed.refused.saturating_add(1);
                if noticed.refused == REFUSALS {
                    tracing::warn!(
                        "the Lease cannot be watched, so that a release is seen at the next look \
                         only: {why}"
                    );
                }
            }
            // Whatever happened meanwhile shows in how the Lease is, with which the next begins.
            _ => noticed.version = None,
        }
    }

    fn noticed(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From half a pause to a whole one, by chance: all who watched a server that ended should not come
/// back at once.
fn spread(pause: Duration) -> Duration {
    let chance = (Uuid::new_v4().as_u128() & 0xff) as u32;
    pause / 2 + pause / 512 * chance
}
