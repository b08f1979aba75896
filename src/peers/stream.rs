//! `GET /peer`: the leader's stream of what it does with the lease, for its standbys.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use tokio::sync::watch;
use tokio::time::sleep;

use super::announcer::{Announcement, Leadership, Phase};
use super::event::{Draining, Ended, Holding, PeerEvent, Released, ms_at_least};
use super::proof::is_proven;
use super::registry::{PLACES, Place, Registry};
use super::subscription::{INSTANCE, InvalidHeader, Subscription};
use crate::clock::Moment;
use crate::http::listener::{OwnPlace, Peer};
use crate::status::{About, CandidateEntry, whole_ms};

/// The longest time of a stream. A subscriber asks again before, so that one that has stopped running
/// does not pass as connected.
pub(super) const LONGEST_STREAM: Duration = Duration::from_secs(90);

/// What a leader is given beyond two retry-periods before it counts as silent.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// How long after the heir the others are told of a release, so that their work is not done before the
/// heir's where they share a machine. It is far less than they leave the lease to the heir.
const AFTER_THE_HEIR: Duration = Duration::from_millis(20);

/// The stream of one instance; clones share its subscribers.
#[derive(Clone)]
pub struct PeerStream {
    pub(super) about: About,
    pub(super) registry: Registry,
    pub(super) announcements: watch::Receiver<Announcement>,
    /// The length of a drain: drain-timeout.
    pub(super) drain_timeout: Duration,
    pub(super) retry_period: Duration,
    pub(super) now: fn() -> Moment,
}

impl PeerStream {
    /// Answers a request for the stream.
    #[must_use]
    pub(crate) fn answer(&self, method: &Method, headers: &HeaderMap, peer: Peer) -> Response {
        let Subscription { election, report } = match Subscription::read(headers) {
            Ok(subscription) => subscription,
            Err(InvalidHeader(name)) => {
                let body =
                    format!("the header {name} is missing or invalid; only candidates ask here\n");
                return (StatusCode::BAD_REQUEST, body).into_response();
            }
        };
        if election != self.about.election {
            let body = format!("this instance is of the election {}\n", self.about.election);
            return (StatusCode::CONFLICT, body).into_response();
        }
        match &self.announcements.borrow().leadership {
            it if it.as_ref().is_none_or(|it| matches!(it.phase, Phase::Ended { .. })) => {
                return unavailable(
                    "this instance does not lead; the store's record names the leader\n",
                );
            }
            // It would be silent for longer than a subscriber waits.
            Some(it) if it.is_overdue(self.retry_period, (self.now)()) => {
                return unavailable(
                    "the renewals of this instance fail; ask again once they succeed\n",
                );
            }
            Some(it) if !it.nonce.is_some_and(|nonce| is_proven(nonce, headers)) => {
                let body = "the header Tenure-Proof is missing or is not of this leadership; only \
                            candidates that have read the store's record of it are told more\n";
                return (StatusCode::FORBIDDEN, body).into_response();
            }
            _ => {}
        }
        let head = [(CONTENT_TYPE, "text/event-stream"), (INSTANCE, self.about.instance.as_str())];
        if method == Method::HEAD {
            return head.into_response();
        }
        let Some(place) = self.registry.join(report, peer) else {
            return unavailable(&format!(
                "as many candidates are connected as may be: {PLACES}, and half as many of one \
                 address\n"
            ));
        };
        let body = Body::from_stream(self.events(place));
        let mut response = (head, body).into_response();
        response.extensions_mut().insert(OwnPlace);
        response
    }

    /// Resolves when no candidate is connected.
    pub(crate) async fn ended(&self) {
        self.registry.emptied().await;
    }

    fn events(&self, place: Place) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
        let feed = Feed {
            announcements: self.announcements.clone(),
            place,
            told: Told::default(),
            timing: Timing {
                lease_duration: self.about.lease_duration,
                retry_period: self.retry_period,
                drain_timeout: self.drain_timeout,
                now: self.now,
            },
        };
        let over = Box::pin(sleep(LONGEST_STREAM));
        futures::stream::unfold((feed, over), |(mut feed, mut over)| async move {
            tokio::select! {
                text = feed.next() => text.map(|text| (Ok(text.into()), (feed, over))),
                () = &mut over => None,
            }
        })
    }
}

fn unavailable(body: &str) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], body.to_owned()).into_response()
}

/// The events for one subscriber.
struct Feed {
    announcements: watch::Receiver<Announcement>,
    place: Place,
    told: Told,
    timing: Timing,
}

/// What events compute with.
#[derive(Clone, Copy)]
struct Timing {
    lease_duration: Duration,
    retry_period: Duration,
    drain_timeout: Duration,
    now: fn() -> Moment,
}

impl Feed {
    /// Returns the events that are due, once there are any; `None` at the end of the stream.
    async fn next(&mut self) -> Option<String> {
        loop {
            if self.is_after_heir() {
                sleep(AFTER_THE_HEIR).await;
            }
            let events = {
                let announcement = self.announcements.borrow_and_update();
                self.told.update(&announcement, self.timing)
            };
            if !events.is_empty() {
                return Some(events.iter().map(PeerEvent::format).collect());
            }
            if self.told.is_over {
                return None;
            }
            tokio::select! {
                changed = self.announcements.changed() => changed.ok()?,
                () = self.place.replaced() => return None,
            }
        }
    }

    /// Returns whether the subscriber is to be told of a release after another one, its heir.
    fn is_after_heir(&self) -> bool {
        let announcement = self.announcements.borrow();
        let phase = announcement.leadership.as_ref().map(|it| &it.phase);
        let Some(Phase::Released { heir: Some(heir) }) = phase else { return false };
        heir != self.place.instance() && !self.told.is_over
    }
}

/// What one subscriber was told.
#[derive(Default)]
struct Told {
    leadership: Option<Leadership>,
    candidates: Arc<[CandidateEntry]>,
    /// Whether nothing more will be told.
    is_over: bool,
}

impl Told {
    /// Returns the events that tell a subscriber of an announcement.
    fn update(&mut self, announcement: &Announcement, timing: Timing) -> Vec<PeerEvent> {
        let mut events = Vec::new();
        if self.is_over {
            return events;
        }
        let before = self.leadership.take();
        let present = announcement.leadership.as_ref();
        let is_same =
            before.is_none() || before.as_ref().map(|it| it.term) == present.map(|it| it.term);
        match present.filter(|_| is_same) {
            Some(present) => {
                present.tell(before.as_ref(), timing, &mut events);
                self.is_over =
                    matches!(present.phase, Phase::Released { .. } | Phase::Ended { .. });
                self.leadership = Some(present.clone());
            }
            // Another leadership, or the end was too long ago to matter.
            None => self.is_over = true,
        }
        let candidates = &announcement.candidates;
        let is_known = candidates.is_empty() || Arc::ptr_eq(&self.candidates, candidates);
        if !self.is_over && !is_known {
            self.candidates = Arc::clone(candidates);
            events.push(PeerEvent::Candidates(self.candidates.to_vec()));
        }
        if announcement.is_stopping {
            events.push(PeerEvent::Stopping);
            self.is_over = true;
        }
        events
    }
}

impl Leadership {
    /// Returns whether no renewal was granted for so long that a subscriber counts it as silent.
    fn is_overdue(&self, retry_period: Duration, now: Moment) -> bool {
        let is_over = matches!(self.phase, Phase::Released { .. } | Phase::Ended { .. });
        !is_over && self.sent.elapsed_max(now) > 2 * retry_period + GRACE
    }

    /// Adds what is new since `before`.
    fn tell(&self, before: Option<&Self>, timing: Timing, events: &mut Vec<PeerEvent>) {
        let Self { term, sent, ref phase, .. } = *self;
        let age = sent.elapsed_max((timing.now)());
        let is_renewed = before.is_none_or(|it| it.sent != sent);
        if is_renewed && !matches!(phase, Phase::Released { .. } | Phase::Ended { .. }) {
            events.push(PeerEvent::Holding(Holding {
                term,
                sent_ago_ms: ms_at_least(age),
                lease_ms: whole_ms(timing.lease_duration),
                next_ms: ms_at_least(timing.retry_period.saturating_sub(age)),
            }));
        }
        if before.is_some_and(|it| it.phase == *phase) {
            return;
        }
        match phase.clone() {
            Phase::Leading | Phase::Releasing { reason: None } => {}
            Phase::Releasing { reason: Some(reason) } | Phase::Ended { reason } => {
                events.push(PeerEvent::Ended(Ended { term, reason: reason.as_str().to_owned() }));
            }
            Phase::Draining { heir, began } => {
                let elapsed = began.elapsed_max((timing.now)());
                let remaining_ms = whole_ms(timing.drain_timeout.saturating_sub(elapsed));
                events.push(PeerEvent::Draining(Draining { term, heir, remaining_ms }));
            }
            Phase::Released { heir } => {
                events.push(PeerEvent::Released(Released { term, heir }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::super::tests::{at, metrics, now, pass, report};
    use super::*;
    use crate::election::{Reason, State};

    const TIMING: Timing = Timing {
        lease_duration: Duration::from_secs(15),
        retry_period: Duration::from_secs(2),
        drain_timeout: Duration::from_secs(9),
        now,
    };

    fn announcement(term: u64, sent: u64, phase: Phase) -> Announcement {
        let leadership = Some(Leadership { term, nonce: None, sent: at(sent), phase });
        Announcement { leadership, ..Announcement::default() }
    }

    fn draining(heir: &str) -> Phase {
        Phase::Draining { heir: Some(heir.to_owned()), began: at(0) }
    }

    fn kinds(told: &mut Told, announcement: &Announcement) -> Vec<&'static str> {
        told.update(announcement, TIMING).iter().map(PeerEvent::kind).collect()
    }

    #[test]
    fn each_renewal_is_told_with_its_age() {
        let mut told = Told::default();
        pass(1);
        let first = told.update(&announcement(7, 0, Phase::Leading), TIMING);
        let holding = Holding { term: 7, sent_ago_ms: 1_000, lease_ms: 15_000, next_ms: 1_000 };
        assert_eq!(first, [PeerEvent::Holding(holding)]);
        assert!(told.update(&announcement(7, 0, Phase::Leading), TIMING).is_empty());
        pass(10);
        let late = told.update(&announcement(7, 1, Phase::Leading), TIMING);
        let holding = Holding { term: 7, sent_ago_ms: 10_000, lease_ms: 15_000, next_ms: 0 };
        assert_eq!(late, [PeerEvent::Holding(holding)]);
    }

    #[test]
    fn a_handover_is_told_to_its_end_and_nothing_after_it() {
        let mut told = Told::default();
        assert_eq!(kinds(&mut told, &announcement(7, 0, Phase::Leading)), ["holding"]);
        assert_eq!(kinds(&mut told, &announcement(7, 0, draining("a"))), ["draining"]);
        assert_eq!(kinds(&mut told, &announcement(7, 2, draining("a"))), ["holding"]);
        assert_eq!(kinds(&mut told, &announcement(7, 2, draining("b"))), ["draining"]);
        let released = announcement(7, 2, Phase::Released { heir: Some("b".to_owned()) });
        let stopping = Announcement { is_stopping: true, ..released.clone() };
        let mut other = Told { leadership: told.leadership.clone(), ..Told::default() };
        assert_eq!(kinds(&mut told, &released), ["released"]);
        assert!(told.is_over && kinds(&mut told, &stopping).is_empty());
        assert_eq!(kinds(&mut other, &stopping), ["released", "stopping"], "whatever was missed");
        assert!(other.is_over);
    }

    #[tokio::test(start_paused = true)]
    async fn the_heir_is_told_of_a_release_before_the_others() {
        let (sender, announcements) = watch::channel(announcement(7, 0, Phase::Leading));
        let registry = Registry::new(metrics(), now);
        let mut feeds = ["a", "b"].map(|name| Feed {
            announcements: announcements.clone(),
            place: registry.join(report(name, State::Standby), Peer::Local).expect("a place"),
            told: Told::default(),
            timing: TIMING,
        });
        for feed in &mut feeds {
            assert!(feed.next().await.is_some_and(|it| it.starts_with("event: holding")));
        }
        let released = Phase::Released { heir: Some("b-1".to_owned()) };
        sender.send_replace(announcement(7, 0, released));
        let [other, heir] = &mut feeds;
        let (mut other, heir) = (Box::pin(other.next()), heir.next());
        assert!(futures::poll!(&mut other).is_pending());
        let is_release =
            |it: Option<String>| it.is_some_and(|it| it.starts_with("event: released"));
        assert!(is_release(heir.now_or_never().expect("the heir is told at once")));
        assert!(is_release(other.await));
    }

    #[test]
    fn the_end_of_another_leadership_ends_the_stream_without_a_word() {
        let another = announcement(8, 0, Phase::Leading);
        for after in [Announcement::default(), another] {
            let mut told = Told::default();
            told.update(&announcement(7, 0, Phase::Leading), TIMING);
            assert!(kinds(&mut told, &after).is_empty() && told.is_over);
        }
    }

    #[test]
    fn a_leadership_that_ends_is_told_before_the_stream_closes() {
        let reason = Some(Reason::SteppedDown);
        for (phase, closes) in [
            (Phase::Ended { reason: Reason::Lost }, true),
            (Phase::Ended { reason: Reason::Lapsed }, true),
            (Phase::Releasing { reason }, false),
        ] {
            let mut told = Told::default();
            told.update(&announcement(7, 0, Phase::Leading), TIMING);
            let after = announcement(7, 0, phase.clone());
            assert_eq!(kinds(&mut told, &after), ["ended"], "{phase:?}");
            assert_eq!(told.is_over, closes, "{phase:?}");
        }
    }

    #[test]
    fn a_late_subscriber_is_told_the_present() {
        let released = announcement(7, 0, Phase::Released { heir: None });
        assert_eq!(
            kinds(&mut Told::default(), &announcement(7, 0, draining("a"))),
            ["holding", "draining"]
        );
        assert_eq!(kinds(&mut Told::default(), &released), ["released"]);
    }
}
