//! The only writer of the status: turns what the election returns into numbered publications.
//!
//! The publisher waits for no reader. It only tracks whether the status files and the route have
//! acknowledged passive (R8).

use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Moment;
use crate::election::{Status, Transition};
use crate::status::publish_acks::PublishAcks;
use crate::status::{
    About, CandidateTable, HolderJudgement, Judgement, Maintenance, Past, ProbeResult, Published,
    REMEMBERED, RouteReport,
};

/// Publishes the status, and tracks whether passive has been acknowledged.
pub struct Publisher {
    sender: watch::Sender<Published>,
    acks: PublishAcks,
    /// The publication that was the first passive one after active, until files and route have
    /// acknowledged it.
    unacked: Option<u64>,
    /// Whether a probe, the route, the candidates or the maintenance have changed since the last
    /// publication.
    changed: bool,
    /// How the holder was judged at the last publication.
    judged: Face,
}

/// What readers are told of in a judgement of the holder: overdue, stale, leaving.
type Face = Option<(bool, bool, Option<&'static str>)>;

impl Publisher {
    /// Creates a publisher to `sender`; status files and route acknowledge through
    /// `acks`.
    #[must_use]
    pub fn new(sender: watch::Sender<Published>, acks: PublishAcks) -> Self {
        Self { sender, acks, unacked: None, changed: false, judged: None }
    }

    /// Records the result of a probe. Readers are woken by the next [`publish`](Self::publish), and
    /// only when it has changed from success to failure or back.
    ///
    /// # Panics
    /// When there is no such probe.
    pub(super) fn probe(&mut self, probe: usize, result: ProbeResult) {
        self.record(|last| last.probes[probe].record(result));
    }

    /// Records what is known of the route, if there is one. Readers are woken by the next
    /// [`publish`](Self::publish), and only by news.
    pub(super) fn route(&mut self, report: RouteReport) {
        self.record(|last| last.route.as_mut().is_some_and(|route| route.record(report)));
    }

    /// Records the candidates. Readers are woken by the next [`publish`](Self::publish), and only by news.
    pub(super) fn candidates(&mut self, table: CandidateTable) {
        self.record(|last| {
            let is_new = last.candidates.as_ref().is_none_or(|known| known.differs(&table));
            last.candidates = Some(table);
            is_new
        });
    }

    /// Records the next maintenance of this machine. Readers are woken by the next
    /// [`publish`](Self::publish), and only by news.
    pub(super) fn maintenance(&mut self, announced: Option<Maintenance>) {
        self.record(|last| {
            let is_new = last.maintenance != announced;
            last.maintenance = announced;
            is_new
        });
    }

    /// Records something beside the status; `record` returns whether it has changed.
    fn record(&mut self, record: impl FnOnce(&mut Published) -> bool) {
        self.sender.send_if_modified(|last| {
            self.changed |= record(last);
            false
        });
    }

    /// Publishes a status together with the transitions that led to it, dated by `now`, unless it
    /// equals the last one published, and is judged as that was.
    pub(super) fn publish(
        &mut self,
        status: Status,
        transitions: impl IntoIterator<Item = Transition>,
        now: fn() -> Moment,
    ) {
        let mut past: Vec<Past> =
            transitions.into_iter().map(|transition| Past { at: now(), transition }).collect();
        let judged = HolderJudgement::of(&status, now());
        let judged = judged.map(|it| (it.overdue, it.stale, it.leaving));
        self.changed |= std::mem::replace(&mut self.judged, judged) != judged;
        let (ends, sequence) = {
            let last = self.sender.borrow();
            if last.status == status && past.is_empty() && !self.changed {
                return;
            }
            let leads = |status: &Status| status.standing.state().is_leading();
            (leads(&last.status) && !leads(&status), last.sequence + 1)
        };
        if ends {
            self.unacked = Some(sequence);
        }
        let changed = std::mem::take(&mut self.changed);
        self.sender.send_modify(|last| {
            if changed || differs(&last.status, &status) || !past.is_empty() {
                last.index += last.step();
            }
            if !past.is_empty() {
                past.reverse();
                past.extend_from_slice(&last.history);
                past.truncate(REMEMBERED);
                last.history = past.into();
            }
            last.sequence = sequence;
            let now = now();
            last.replace_status(status, now);
            let role = Judgement::of(&last.status, now).role();
            last.route.iter_mut().for_each(|route| route.judge(role, now));
        });
    }

    /// Returns the warnings that the last publication leads to at `now`.
    pub(super) fn warnings(&self, about: &About, now: Moment) -> Vec<String> {
        self.sender.borrow().warnings(about, now)
    }

    /// Returns how long until the clock alone changes how the holder is judged.
    pub(super) fn until_change(&self, now: Moment) -> Duration {
        let last = self.sender.borrow();
        HolderJudgement::until_change(&last.status, now).unwrap_or(Duration::MAX)
    }

    /// Resolves once for each end of a leadership, when every status file and the route have
    /// published passive or failed to; otherwise never. May be dropped and called again.
    pub(super) async fn publish_acked(&mut self) {
        let Some(sequence) = self.unacked else {
            return std::future::pending().await;
        };
        self.acks.reached(sequence).await;
        self.unacked = None;
    }
}

/// Returns whether the status has a change that readers should see: state, term, holder, successor,
/// hold-off, the kind of the store's error or where the election has moved; not a renewal.
fn differs(before: &Status, after: &Status) -> bool {
    let outcome = |status: &Status| status.store.error().map(|error| error.outcome());
    before.standing.state() != after.standing.state()
        || before.term() != after.term()
        || before.holder != after.holder
        || before.successor != after.successor
        || before.hold_off.is_some() != after.hold_off.is_some()
        || outcome(before) != outcome(after)
        || before.store.moved_to != after.store.moved_to
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::election::{
        Belief, HoldOff, Holder, LeaseView, Reason, Renewals, Standing, State, StoreHealth,
    };
    use crate::lease::{Candidate, Cause, Failure, Nonce, StoreError, Successor};
    use crate::status::{ProbeState, RouteState, Verified};

    fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    fn standing(standing: Standing) -> Status {
        Status {
            standing,
            since: at(0),
            holder: None,
            successor: None,
            hold_off: None,
            workload_term: None,
            released_term: None,
            contact_due: None,
            lease: LeaseView { read_within: Duration::from_secs(10), ..LeaseView::default() },
            store: StoreHealth::default(),
            wait: None,
        }
    }

    fn leader(sent: u64, jeopardy: bool) -> Status {
        let belief = Belief { sent: at(sent), length: Duration::from_secs(10), suspended: false };
        standing(Standing::Leader { term: 7, belief, jeopardy })
    }

    #[test]
    fn the_index_tells_each_change_from_all_before_even_the_clocks_own() {
        let (sender, published) = watch::channel(Published::first(standing(Standing::Standby)));
        let mut publisher = Publisher::new(sender, PublishAcks::none());
        let index = |now| published.borrow().index_at(at(now));
        let mut seen = vec![index(0)];
        publisher.publish(leader(0, false), None, || at(0));
        seen.push(index(9));
        publisher.publish(leader(5, false), None, || at(0));
        assert_eq!(index(14), *seen.last().unwrap(), "a renewal is no change");
        seen.push(index(15));
        publisher.publish(leader(5, true), None, || at(0));
        seen.extend([index(14), index(15)]);
        publisher.publish(leader(20, false), None, || at(0));
        seen.extend([index(20), index(30)]);
        publisher.publish(standing(Standing::Standby), None, || at(0));
        seen.push(index(30));
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        assert_eq!(published.borrow().sequence, 6);
    }

    #[test]
    fn the_index_moves_when_the_clock_alone_makes_the_holder_overdue_and_stale() {
        let (sender, published) = watch::channel(Published::first(standing(Standing::Standby)));
        let mut publisher = Publisher::new(sender, PublishAcks::none());
        let (identity, instance) = ("them".to_owned(), "them-1".to_owned());
        let candidate = Candidate { identity, instance, address: None, peer: None };
        let mut status = standing(Standing::Standby);
        status.holder = Some(Holder { candidate: Arc::new(candidate), term: 6, nonce: None });
        status.store.last_success = Some(at(0));
        let mut renewals = Renewals::first(at(0), Duration::from_secs(7));
        renewals.by_store = true;
        status.lease.renewals = Some(renewals);
        let mut index_at = |now: fn() -> Moment| {
            publisher.publish(status.clone(), None, now);
            (published.borrow().index, publisher.until_change(now()).as_secs())
        };
        assert_eq!(index_at(|| at(0)), (2, 7));
        assert_eq!(index_at(|| at(6)), (2, 1));
        assert_eq!(index_at(|| at(7)), (3, 3), "overdue");
        assert_eq!(index_at(|| at(8)), (3, 2));
        assert_eq!(index_at(|| at(10)), (4, Duration::MAX.as_secs()), "stale");
    }

    #[test]
    fn r8_the_first_passive_publication_after_active_is_awaited_and_no_other() {
        let (written, acks) = PublishAcks::channel();
        let (sender, published) = watch::channel(Published::first(standing(Standing::Standby)));
        let mut publisher = Publisher::new(sender, acks);
        // Each write is acknowledged only after the next publication.
        for (status, acked) in [
            (standing(Standing::Activating), false),
            (leader(0, false), false),
            (leader(5, false), false),
            (standing(Standing::Standby), false),
            (standing(Standing::Paused), true),
            (standing(Standing::Standby), false),
        ] {
            publisher.publish(status, None, || at(0));
            assert!(publisher.publish_acked().now_or_never().is_none(), "it is not written yet");
            let sequence = published.borrow().sequence;
            written.send_replace(sequence - 1);
            let is_acked = publisher.publish_acked().now_or_never().is_some();
            assert_eq!(is_acked, acked, "publication {sequence}");
        }
    }

    #[test]
    fn r8_an_acknowledgement_of_an_earlier_leadership_does_not_count_for_the_present_one() {
        let (written, acks) = PublishAcks::channel();
        let (sender, published) = watch::channel(Published::first(standing(Standing::Standby)));
        let mut publisher = Publisher::new(sender, acks);
        let ends = [(); 2].map(|()| {
            publisher.publish(leader(0, false), None, || at(0));
            publisher.publish(standing(Standing::Standby), None, || at(0));
            published.borrow().sequence
        });
        for (sequence, is_acked) in ends.into_iter().zip([false, true]) {
            written.send_replace(sequence);
            assert_eq!(publisher.publish_acked().now_or_never().is_some(), is_acked);
        }
    }

    #[test]
    fn each_part_of_the_status_that_readers_see_moves_the_index_alone() {
        let changes: [fn(&mut Status); 6] = [
            |it| {
                it.standing = Standing::Draining {
                    term: 7,
                    belief: Belief {
                        sent: at(0),
                        length: Duration::from_secs(10),
                        suspended: false,
                    },
                    began: at(0),
                    length: Duration::from_secs(10),
                }
            },
            |it| {
                let Standing::Leader { term, .. } = &mut it.standing else { unreachable!() };
                *term = 8;
            },
            |it| {
                let (identity, instance) = ("them".to_owned(), "them-1".to_owned());
                let candidate = Candidate { identity, instance, address: None, peer: None };
                it.holder = Some(Holder { candidate: Arc::new(candidate), term: 6, nonce: None });
            },
            |it| {
                let hold_off = Duration::from_secs(5);
                it.successor = Some(Successor { identity: "them".into(), hold_off });
            },
            |it| it.hold_off = Some(HoldOff::new(Nonce(1), Duration::from_secs(5))),
            |it| {
                let error = StoreError::Unknown(Failure::new(Cause::Network, "in a test"));
                it.store.last_failure = Some(Arc::new(error));
            },
        ];
        for (number, change) in changes.iter().enumerate() {
            let before = leader(0, false);
            let (sender, published) = watch::channel(Published::first(before.clone()));
            let mut publisher = Publisher::new(sender, PublishAcks::none());
            let mut after = before.clone();
            change(&mut after);
            let mut last = published.borrow().index;
            for status in [after.clone(), before] {
                publisher.publish(status, None, || at(1));
                let index = published.borrow().index;
                assert!(index > last, "change {number}");
                last = index;
            }
            publisher.publish(after, None, || at(1));
            let last = published.borrow().index;
            let mut renewed = published.borrow().status.clone();
            renewed.store.last_success = Some(at(2));
            publisher.publish(renewed, None, || at(2));
            assert_eq!(published.borrow().index, last, "change {number}: a renewal is no change");
        }
    }

    #[test]
    fn candidates_and_maintenance_are_published_with_an_index_when_they_change() {
        let first = Published::first(standing(Standing::Standby));
        let (sender, mut published) = watch::channel(first);
        let mut publisher = Publisher::new(sender, PublishAcks::none());
        let mut woken_by = |record: &dyn Fn(&mut Publisher)| {
            record(&mut publisher);
            publisher.publish(standing(Standing::Standby), None, || at(3));
            let woken = published.has_changed().unwrap();
            let last = published.borrow_and_update();
            (last.index, woken, last.maintenance.is_some(), last.candidates.is_some())
        };
        let announced = |imminent| Maintenance {
            event_id: "1".to_owned(),
            kind: "Reboot",
            not_before: None,
            started: false,
            imminent,
        };
        let maintenance = |imminent: Option<bool>| {
            move |it: &mut Publisher| it.maintenance(imminent.map(announced))
        };
        let table = || CandidateTable { at: at(0), is_current: true, candidates: [].into() };
        assert_eq!(woken_by(&maintenance(None)), (1, false, false, false));
        assert_eq!(woken_by(&maintenance(Some(false))), (2, true, true, false));
        assert_eq!(woken_by(&maintenance(Some(false))), (2, false, true, false));
        assert_eq!(woken_by(&maintenance(Some(true))), (3, true, true, false));
        assert_eq!(woken_by(&|it| it.candidates(table())), (4, true, true, true));
        assert_eq!(woken_by(&|it| it.candidates(table())), (4, false, true, true));
        assert_eq!(woken_by(&maintenance(None)), (5, true, false, true));
    }

    #[test]
    fn a_probe_and_the_route_are_published_with_an_index_when_they_change() {
        let first = Published {
            probes: vec![ProbeState::new("tcp://db".to_owned())],
            route: Some(RouteState::new("label", at(0))),
            ..Published::first(standing(Standing::Standby))
        };
        let (sender, mut published) = watch::channel(first);
        let reader = published.clone();
        let mut publisher = Publisher::new(sender, PublishAcks::none());
        let mut index_after = |record: &dyn Fn(&mut Publisher)| {
            record(&mut publisher);
            publisher.publish(standing(Standing::Standby), None, || at(3));
            let woken = published.has_changed().unwrap();
            (published.borrow_and_update().index, woken)
        };
        let probe = |succeeded: bool, message: &str| {
            let message = message.to_owned();
            move |it: &mut Publisher| {
                it.probe(0, ProbeResult { succeeded, message: message.clone(), at: at(2) });
            }
        };
        let route = |error: Option<&str>| {
            let last_error = error.map(str::to_owned);
            move |it: &mut Publisher| {
                it.route(RouteReport { last_error: last_error.clone(), ..Default::default() });
            }
        };
        assert_eq!(index_after(&|_| {}), (1, false));
        assert_eq!(index_after(&probe(true, "200 OK in 3 ms")), (2, true), "the first result");
        assert_eq!(index_after(&probe(true, "200 OK in 4 ms")), (2, false), "no change");
        assert_eq!(index_after(&probe(false, "refused")), (3, true));
        assert_eq!(index_after(&route(Some("forbidden"))), (4, true));
        assert_eq!(index_after(&route(Some("forbidden"))), (4, false));
        assert_eq!(index_after(&route(None)), (5, true));
        let verified = Some(Verified { at: at(2), valid_for: Duration::from_secs(60) });
        let says = Some(Judgement::of(&standing(Standing::Standby), at(2)).role());
        let same = RouteReport { says, verified, ..Default::default() };
        let agrees = |it: &mut Publisher| it.route(same.clone());
        let message = reader.borrow().probes[0].last.as_ref().map(|it| it.message.clone());
        assert_eq!(message.as_deref(), Some("refused"));
        let agreement = || {
            let agreement = reader.borrow().route_agreement(at(5)).unwrap();
            (agreement.agrees, agreement.since)
        };
        assert_eq!(agreement(), (false, Duration::from_secs(5)));
        assert_eq!(index_after(&agrees), (6, true));
        assert_eq!(agreement(), (true, Duration::from_secs(2)), "since the publication");
    }

    #[test]
    fn the_last_twenty_transitions_are_published_newest_first() {
        let (sender, published) = watch::channel(Published::first(standing(Standing::Standby)));
        let mut publisher = Publisher::new(sender, PublishAcks::none());
        let (from, to) = (State::Leader, State::Jeopardy);
        let transition = |term| Transition {
            from,
            to,
            reason: Reason::RenewalFailed,
            term: Some(term),
            leadership: None,
        };
        let terms = || -> Vec<u64> {
            published.borrow().history.iter().filter_map(|it| it.transition.term).collect()
        };
        publisher.publish(leader(0, false), [transition(1), transition(2)], || at(3));
        assert_eq!(terms(), [2, 1]);
        assert_eq!(published.borrow().history[0].at, at(3));
        publisher.publish(leader(5, false), None, || at(5));
        assert_eq!(terms(), [2, 1], "a renewal takes none away");
        // Also if the status is the same in the end.
        let index = published.borrow().index;
        for term in 3..=30 {
            publisher.publish(leader(5, false), [transition(term)], || at(5));
        }
        assert_eq!(terms(), (11..=30).rev().collect::<Vec<_>>());
        assert!(published.borrow().index > index);
    }
}
