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

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "the clock of a paused runtime is measured")]

    use std::time::Duration;

    use time::OffsetDateTime;
    use tokio::time::Instant;

    use super::*;
    use crate::lease::fuzzing::bid;
    use crate::lease::{Bid, Nonce};

    const PLACE: &str = "shop/orders";

    fn at(seconds: u64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
    }

    /// A Lease in this version that the bid holds.
    fn held(version: &str) -> Lease {
        let mut lease = record::taken_anew("shop", "orders", &bid(), at(0));
        lease.metadata.resource_version = version.to_owned();
        lease
    }

    fn renewed(version: &str, seconds: u64) -> Lease {
        let mut lease = held(version);
        record::renew(&mut lease, &bid(), at(seconds));
        lease
    }

    fn news(held_by: Option<Nonce>) -> Option<Change> {
        Some(Change::News { held_by })
    }

    fn renewal(lease: &Lease) -> Option<Change> {
        record::claim(lease, PLACE).unwrap().map(Change::Renewal)
    }

    #[test]
    fn a_change_is_news_a_renewal_is_its_claim_and_the_rest_is_of_no_interest() {
        let mut watching = Watching::default();
        let mut freed = renewed("5", 1);
        record::free(&mut freed, at(2));
        let mut taken = freed.clone();
        record::take(&mut taken, &Bid { nonce: Nonce(9), ..bid() }, at(3));
        let ours = Some(bid().nonce);
        let again = renewed("2", 1);
        for (told, expected) in [
            (Watched::Added(held("1")), news(ours)),
            (Watched::Added(held("1")), None),
            (Watched::Modified(again.clone()), renewal(&again)),
            (Watched::Modified(again), None),
            (Watched::Bookmark("4".to_owned()), None),
            (Watched::Modified(freed), news(None)),
            (Watched::Modified(taken.clone()), news(Some(Nonce(9)))),
            (Watched::Deleted(taken.clone()), news(None)),
            (Watched::Deleted(taken.clone()), None),
            (Watched::Added(taken), news(Some(Nonce(9)))),
        ] {
            assert_eq!(watching.hear(told.clone(), PLACE), expected, "{told:?}");
        }
    }

    #[test]
    fn a_watch_continues_from_the_last_version_unless_the_server_has_lost_it() {
        let mut watching = Watching::default();
        let why = || "x".to_owned();
        watching.hear(Watched::Added(held("1")), PLACE);
        assert_eq!(watching.version.as_deref(), Some("1"));
        watching.hear(Watched::Bookmark("4".to_owned()), PLACE);
        for kept in [
            KubeError::Disconnected(why()),
            KubeError::Network(why()),
            KubeError::Timeout(why()),
            KubeError::Forbidden(why()),
        ] {
            watching.fail(&kept, PLACE);
            assert_eq!(watching.version.as_deref(), Some("4"), "{kept:?}");
        }
        for lost in [KubeError::Gone(why()), KubeError::Unavailable(why())] {
            watching.version = Some("4".to_owned());
            watching.fail(&lost, PLACE);
            assert_eq!(watching.version, None, "{lost:?}");
        }
        watching.version = Some("4".to_owned());
        watching.hear(Watched::Modified(held("")), PLACE);
        assert_eq!(watching.version, None, "none can be continued from");
    }

    #[test]
    fn consecutive_refusals_are_counted_until_something_is_received() {
        let mut watching = Watching::default();
        for count in 1..=3 {
            watching.fail(&KubeError::Forbidden("x".to_owned()), PLACE);
            watching.fail(&KubeError::Network("x".to_owned()), PLACE);
            assert_eq!(watching.refused, count);
        }
        watching.hear(Watched::Bookmark("4".to_owned()), PLACE);
        assert_eq!(watching.refused, 0);
    }

    /// Passes ten pauses; returns how long the last was.
    async fn last_pause(watching: &mut Watching) -> Duration {
        let mut began = Instant::now();
        for _ in 0..10 {
            began = Instant::now();
            watching.pass_pause().await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_pauses_longer_than_one_that_broke() {
        let mut watching = Watching::default();
        assert!(last_pause(&mut watching).await <= Duration::from_millis(30_001));
        let mut watching = Watching { refused: 1, ..Watching::default() };
        assert!(last_pause(&mut watching).await >= Duration::from_secs(64));
    }

    #[tokio::test(start_paused = true)]
    async fn the_present_state_that_a_watch_begins_with_shortens_no_pause() {
        for (is_beginning, longest) in [(true, 30_001), (false, 251)] {
            let mut watching = Watching::default();
            last_pause(&mut watching).await;
            watching.is_beginning = is_beginning;
            watching.hear(Watched::Added(held("1")), PLACE);
            let began = Instant::now();
            watching.pass_pause().await;
            let passed = began.elapsed();
            let range = Duration::from_millis(longest) / 2 - Duration::from_millis(1)
                ..=Duration::from_millis(longest);
            assert!(range.contains(&passed), "{is_beginning}: {passed:?}");
            assert!(!watching.is_beginning, "the next event is another");
        }
    }
}
