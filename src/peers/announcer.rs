//! What the leader announces: made of its published status and of the candidates that are connected.
//!
//! Nothing is queued for subscribers: there is one announcement, the present one, and each stream
//! sends what has changed since it last sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::registry::Registry;
use super::report::Reporter;
use super::stream::GRACE;
use crate::clock::Moment;
use crate::driver::Control;
use crate::election::{Reason, Standing, Transition};
use crate::lease::Nonce;
use crate::status::{CandidateEntry, CandidateTable, Published};

/// The time between two announcements of candidates, of which many may come at once.
const PAUSE: Duration = Duration::from_millis(100);

/// How often candidates are looked for that are gone by now, or were connected too long ago.
const AGING: Duration = Duration::from_secs(5);

/// What this instance announces at present.
#[derive(Clone, Debug, Default)]
pub(super) struct Announcement {
    /// Its leadership; `None` if it does not lead, or has lost its lease.
    pub(super) leadership: Option<Leadership>,
    /// All candidates, while it leads.
    pub(super) candidates: Arc<[CandidateEntry]>,
    /// Whether the process ends.
    pub(super) is_stopping: bool,
}

/// A leadership, up to its end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leadership {
    pub(super) term: u64,
    /// The nonce of its record, by which subscribers prove that they can read it.
    pub(super) nonce: Option<Nonce>,
    /// When the last granted renewal was sent.
    pub(super) sent: Moment,
    pub(super) phase: Phase,
}

/// The phase of a leadership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Leads.
    Leading,
    /// Drains.
    Draining {
        /// The instance that is next in line.
        heir: Option<String>,
        /// The start of the drain.
        began: Moment,
    },
    /// Waits for the store's answer to the release.
    Releasing {
        /// Why the leadership has ended.
        reason: Option<Reason>,
    },
    /// The lease has lapsed or is lost.
    Ended {
        /// Which of both.
        reason: Reason,
    },
    /// The store has confirmed the release.
    Released {
        /// The instance that is next in line.
        heir: Option<String>,
    },
}

impl Announcement {
    /// Returns whether there is a leadership, up to its release.
    pub(super) fn is_open(&self) -> bool {
        self.leadership.as_ref().is_some_and(Leadership::is_open)
    }
}

impl Leadership {
    /// Returns whether it has not lapsed and is not lost.
    fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Ended { .. })
    }

    /// Returns the leadership that is announced after the one `before`, by what is published.
    fn next(
        before: Option<Self>,
        published: &Published,
        heir: impl Fn() -> Option<String>,
    ) -> Option<Self> {
        let status = &published.status;
        let nonce = status.holder.as_ref().and_then(|it| it.nonce);
        match &status.standing {
            Standing::Leader { term, belief, .. } => {
                Some(Self { term: *term, nonce, sent: belief.sent, phase: Phase::Leading })
            }
            Standing::Draining { term, belief, began, .. } => {
                let phase = Phase::Draining { heir: heir(), began: *began };
                Some(Self { term: *term, nonce, sent: belief.sent, phase })
            }
            _ => {
                let before = before?;
                if matches!(before.phase, Phase::Released { .. } | Phase::Ended { .. }) {
                    return Some(before);
                }
                if status.released_term == Some(before.term) {
                    return Some(Self { phase: Phase::Released { heir: heir() }, ..before });
                }
                let past = published.history.iter().map(|it| it.transition);
                let mut of_term = past.filter(|it| it.term == Some(before.term));
                let is_end = |it: &Reason| matches!(it, Reason::Lapsed | Reason::Lost);
                let phase = match of_term.clone().map(|it| it.reason).find(is_end) {
                    Some(reason) => Phase::Ended { reason },
                    None => Phase::Releasing {
                        reason: of_term.find(Transition::ends_activity).map(|it| it.reason),
                    },
                };
                Some(Self { phase, ..before })
            }
        }
    }
}

/// Makes the announcements of one instance.
pub(super) struct Announcer {
    pub(super) reporter: Reporter,
    pub(super) published: watch::Receiver<Published>,
    pub(super) registry: Registry,
    pub(super) sender: watch::Sender<Announcement>,
    pub(super) retry_period: Duration,
    pub(super) now: fn() -> Moment,
}

impl Announcer {
    /// Announces until the driver has ended.
    pub(super) async fn run(mut self) {
        let mut changes = self.registry.changes();
        let mut aging = tokio::time::interval(AGING);
        let (mut pause, mut is_due) = (Box::pin(sleep(Duration::ZERO)), false);
        loop {
            if self.announce() && !is_due {
                // Not in the middle of a handover, when the candidates have more urgent work.
                (pause, is_due) = (Box::pin(sleep(PAUSE)), true);
            }
            tokio::select! {
                changed = self.published.changed() => {
                    if changed.is_err() {
                        self.sender.send_modify(|it| it.is_stopping = true);
                        return;
                    }
                }
                // Never fails: the registry has the sender.
                _ = changes.changed() => is_due = true,
                () = &mut pause, if is_due => {
                    self.announce_candidates();
                    (pause, is_due) = (Box::pin(sleep(PAUSE)), false);
                }
                _ = aging.tick() => self.announce_candidates(),
            }
        }
    }

    /// Announces the leadership as it is published, and its end once it is too long ago to matter.
    /// Returns whether the candidates are to be announced anew, because this one's state has changed.
    fn announce(&mut self) -> bool {
        let published = self.published.borrow_and_update().clone();
        let now = (self.now)();
        let successor = published.status.successor.as_ref().map(|it| it.identity.as_str());
        let heir = || self.registry.heir(successor);
        let before = self.sender.borrow().leadership.clone();
        let leadership = Leadership::next(before.clone(), &published, heir).filter(|it| {
            let is_over = it.phase != Phase::Leading
                && it.sent.elapsed_max(now) >= 2 * self.reporter.about.lease_duration;
            !is_over
        });
        let is_open = |it: &Option<Leadership>| it.as_ref().is_some_and(Leadership::is_open);
        let (was_leading, is_leading) = (is_open(&before), is_open(&leadership));
        if leadership != before {
            self.sender.send_modify(|it| it.leadership = leadership);
        }
        if !was_leading && is_leading {
            // Those of the leader before, of whom none can have connected yet.
            if let Some(table) = &published.candidates {
                let patience = 3 * self.retry_period + GRACE;
                self.registry.remember(table, &self.reporter.about.instance, patience);
            }
            self.announce_candidates();
        }
        let own = self.reporter.report(&published, now).state.as_str();
        is_leading && self.sender.borrow().candidates.first().is_some_and(|it| it.state != own)
    }

    /// Announces the candidates, if they have changed and this instance leads.
    fn announce_candidates(&mut self) {
        if !self.sender.borrow().is_open() {
            return;
        }
        let own = self.reporter.report(&self.published.borrow(), (self.now)());
        let heir = self.registry.heir(None);
        let mut all = vec![own.entry(None, false)];
        all.extend(self.registry.entries(heir.as_deref()));
        self.sender.send_if_modified(|it| {
            let of = |candidates: Arc<[CandidateEntry]>| CandidateTable {
                at: (self.now)(),
                is_current: true,
                candidates,
            };
            let all: Arc<[CandidateEntry]> = all.into();
            let has_changed = of(Arc::clone(&it.candidates)).differs(&of(Arc::clone(&all)));
            if has_changed {
                it.candidates = all;
            }
            has_changed
        });
    }
}

/// Reports the candidates that this instance announces to its driver, for the status, until the driver
/// has ended.
pub(super) async fn report_candidates(
    mut announcements: watch::Receiver<Announcement>,
    control: Control,
    now: fn() -> Moment,
) {
    let empty = CandidateTable { at: now(), is_current: false, candidates: Arc::default() };
    control.candidates_reported(empty).await;
    let mut reported: Option<CandidateTable> = None;
    loop {
        let table = {
            let announcement = announcements.borrow_and_update();
            let candidates = Arc::clone(&announcement.candidates);
            let is_current = announcement.is_open();
            let table = CandidateTable { at: now(), is_current, candidates };
            match &reported {
                Some(known) if !is_current => known.ended(table.at),
                _ => table,
            }
        };
        let is_new = match &reported {
            Some(known) => known.differs(&table),
            None => table.is_current && !table.candidates.is_empty(),
        };
        if is_new {
            control.candidates_reported(table.clone()).await;
            // Once this instance leads no more, another writes the table.
            reported = table.is_current.then_some(table);
        }
        if announcements.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{at, belief, metrics, now, pass, published, report, reporter};
    use super::*;
    use crate::election::State;
    use crate::http::listener::Peer;
    use crate::status::Past;

    fn leader(term: u64, sent: u64) -> Published {
        published(Standing::Leader { term, belief: belief(sent), jeopardy: false })
    }

    fn drains(term: u64) -> Published {
        let (began, length) = (at(0), Duration::ZERO);
        published(Standing::Draining { term, belief: belief(0), began, length })
    }

    fn stands_by(term: u64, reason: Reason, released: bool) -> Published {
        let (from, to) = (State::Leader, State::Standby);
        let transition = Transition { from, to, reason, term: Some(term), leadership: None };
        let mut published = published(Standing::Standby);
        published.history = Arc::new([Past { at: at(0), transition }]);
        published.status.released_term = released.then_some(term);
        published
    }

    fn course(all: &[Published]) -> Vec<Option<Phase>> {
        let mut last = None;
        let heir = || Some("b-1".to_owned());
        all.iter()
            .map(|published| {
                last = Leadership::next(last.take(), published, heir);
                last.as_ref().map(|it| it.phase.clone())
            })
            .collect()
    }

    #[test]
    fn a_leadership_ends_with_a_release_or_is_lost() {
        let heir = Some("b-1".to_owned());
        let leading = Some(Phase::Leading);
        let draining = Some(Phase::Draining { heir: heir.clone(), began: at(0) });
        let releasing = Some(Phase::Releasing { reason: Some(Reason::SteppedDown) });
        let released = Some(Phase::Released { heir });
        let by_will = |released| stands_by(7, Reason::SteppedDown, released);
        let all = [published(Standing::Standby), leader(7, 0), by_will(false), by_will(true)];
        assert_eq!(course(&all), [None, leading.clone(), releasing.clone(), released.clone()]);
        let all = [leader(7, 0), drains(7), by_will(true), published(Standing::Standby)];
        let expected = [leading.clone(), draining, released.clone(), released];
        assert_eq!(course(&all), expected);
        for reason in [Reason::Lost, Reason::Lapsed] {
            assert_eq!(
                course(&[leader(7, 0), stands_by(7, reason, false)]),
                [leading.clone(), Some(Phase::Ended { reason })]
            );
        }
        let earlier = stands_by(6, Reason::Lost, false);
        let releasing = Some(Phase::Releasing { reason: None });
        assert_eq!(course(&[leader(7, 0), earlier])[1], releasing, "that was another term");
    }

    fn start() -> (Announcer, watch::Sender<Published>, watch::Receiver<Announcement>) {
        let (publisher, published) = watch::channel(published(Standing::Standby));
        let (sender, announced) = watch::channel(Announcement::default());
        let registry = Registry::new(metrics(), now);
        let retry_period = Duration::from_secs(2);
        let it = Announcer { reporter: reporter(), published, registry, sender, retry_period, now };
        (it, publisher, announced)
    }

    #[test]
    fn a_leader_announces_itself_first_and_then_the_others_in_line() {
        let (mut it, publisher, announced) = start();
        let _other = it.registry.join(report("b", State::Standby), Peer::Local);
        it.announce();
        it.announce_candidates();
        assert!(announced.borrow().candidates.is_empty(), "it does not lead");
        publisher.send_replace(leader(7, 0));
        it.announce();
        let candidates = Arc::clone(&announced.borrow().candidates);
        let shown = |it: &CandidateEntry| (it.identity.clone(), it.state.clone(), it.heir);
        let expected =
            [("us".to_owned(), "leader".to_owned(), false), ("b".into(), "standby".into(), true)];
        assert!(candidates.iter().map(shown).eq(expected), "{candidates:?}");
    }

    #[test]
    fn a_renewal_is_announced_and_a_table_that_has_not_changed_is_not() {
        let (mut it, publisher, mut announced) = start();
        publisher.send_replace(leader(7, 0));
        it.announce();
        announced.mark_unchanged();
        it.announce();
        it.announce_candidates();
        assert!(!announced.has_changed().unwrap());
        publisher.send_replace(leader(7, 2));
        it.announce();
        assert!(announced.has_changed().unwrap());
        assert_eq!(announced.borrow().leadership.as_ref().unwrap().sent, at(2));
    }

    #[test]
    fn the_candidates_are_announced_anew_when_the_leader_drains_or_stands_by() {
        let (mut it, publisher, _announced) = start();
        publisher.send_replace(leader(7, 0));
        assert!(!it.announce(), "it was announced at once");
        publisher.send_replace(drains(7));
        assert!(it.announce());
        it.announce_candidates();
        assert!(!it.announce());
        publisher.send_replace(stands_by(7, Reason::SteppedDown, true));
        assert!(it.announce(), "it stands by");
    }

    #[test]
    fn a_release_is_not_announced_for_ever() {
        let (mut it, publisher, announced) = start();
        publisher.send_replace(leader(7, 0));
        it.announce();
        publisher.send_replace(stands_by(7, Reason::SteppedDown, true));
        it.announce();
        assert!(announced.borrow().leadership.is_some());
        pass(30);
        it.announce();
        assert_eq!(announced.borrow().leadership, None);
    }
}
