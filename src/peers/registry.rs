//! The candidates that are connected to this instance, or were a while ago, and who of them is next
//! in line.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::report::Report;
use crate::clock::Moment;
use crate::election::State;
use crate::http::listener::Peer;
use crate::metrics::Metrics;
use crate::status::{CandidateEntry, CandidateTable};

/// The most candidates that are connected at a time.
pub const PLACES: usize = 64;

/// The most candidates beyond loopback that are connected from one address, so that none can keep the
/// others out.
const PLACES_OF_PEER: usize = PLACES / 2;

/// How many candidates that are no longer connected are remembered, and for how long.
const REMEMBERED: usize = 64;
const MEMORY: Duration = Duration::from_secs(600);

/// The candidates; clones share them.
#[derive(Clone)]
pub(super) struct Registry(Arc<Shared>);

struct Shared {
    candidates: Mutex<BTreeMap<String, Known>>,
    next: AtomicU64,
    /// Counts the changes.
    changes: watch::Sender<u64>,
    metrics: Metrics,
    now: fn() -> Moment,
}

/// A candidate that is or was connected.
struct Known {
    report: Report,
    /// Since when it has been connected without a gap.
    since: Moment,
    /// Since when it has been connected and eligible without a gap.
    eligible_since: Option<Moment>,
    /// When it was last connected, or known to be, and how long its last contact was ago then.
    contact: (Moment, Duration),
    /// How long after that it is gone, unless it connects.
    patience: Duration,
    connection: Option<Connection>,
}

struct Connection {
    number: u64,
    peer: Peer,
    /// Dropped when another connection of the candidate takes its place.
    _replaced: oneshot::Sender<()>,
}

/// The place of one connection, given up on drop.
pub(super) struct Place {
    registry: Registry,
    instance: String,
    number: u64,
    replaced: oneshot::Receiver<()>,
}

impl Registry {
    pub(super) fn new(metrics: Metrics, now: fn() -> Moment) -> Self {
        let (candidates, next, changes) = Default::default();
        Self(Arc::new(Shared { candidates, next, changes, metrics, now }))
    }

    /// Connects a candidate; `None` if all places are taken, or as many from this address as it may
    /// have. An earlier connection of the candidate ends.
    pub(super) fn join(&self, report: Report, peer: Peer) -> Option<Place> {
        let now = (self.0.now)();
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let mut candidates = self.lock();
        let connected = || candidates.iter().filter(|(_, it)| it.connection.is_some());
        let others = || connected().filter(|(instance, _)| **instance != report.instance);
        let of_peer = |it: &Known| it.connection.as_ref().is_some_and(|it| it.peer == peer);
        let of_peer = others().filter(|(_, it)| of_peer(it)).count();
        if others().count() >= PLACES || (peer.is_remote() && of_peer >= PLACES_OF_PEER) {
            return None;
        }
        // A candidate that was started anew takes the line of the one before.
        candidates.retain(|instance, it| {
            it.connection.is_some()
                || it.report.identity != report.identity
                || *instance == report.instance
        });
        let before = candidates.remove(&report.instance).filter(|it| it.connection.is_some());
        let eligible_before = before.as_ref().and_then(|it| it.eligible_since);
        let (replaces, replaced) = oneshot::channel();
        let instance = report.instance.clone();
        let known = Known {
            since: before.as_ref().map_or(now, |it| it.since),
            eligible_since: report.is_eligible().then_some(eligible_before.unwrap_or(now)),
            contact: (now, Duration::ZERO),
            patience: Duration::ZERO,
            connection: Some(Connection { number, peer, _replaced: replaces }),
            report,
        };
        candidates.insert(instance.clone(), known);
        drop(candidates);
        self.0.metrics.peer_connected();
        self.changed();
        Some(Place { registry: self.clone(), instance, number, replaced })
    }

    /// Returns all candidates in the order in which they are next in line; those that are not eligible
    /// follow, and then those that are no longer connected. The latter are forgotten after a while.
    pub(super) fn entries(&self, heir: Option<&str>) -> Vec<CandidateEntry> {
        let now = (self.0.now)();
        let mut candidates = self.lock();
        forget(&mut candidates, now);
        let mut all: Vec<&Known> = candidates.values().collect();
        all.sort_by_cached_key(|it| {
            (it.connection.is_none(), !it.report.is_eligible(), it.rank(now))
        });
        all.into_iter()
            .map(|it| {
                let silent = it.connection.is_none().then(|| it.silent_for(now));
                let entry = it.report.entry(silent, heir == Some(&it.report.instance));
                CandidateEntry { gone: it.is_gone(now), ..entry }
            })
            .collect()
    }

    /// Remembers the candidates of the leader before, as the last table shows them, but for this instance.
    /// Those that do not connect within `patience` are gone.
    pub(super) fn remember(&self, table: &CandidateTable, own: &str, patience: Duration) {
        let now = (self.0.now)();
        let mut candidates = self.lock();
        for entry in table.candidates.iter().filter(|it| it.instance != own) {
            let is_back = |it: &Known| it.report.identity == entry.identity;
            let Some(report) = Report::of(entry) else { continue };
            if candidates.values().any(is_back) || candidates.len() >= REMEMBERED {
                continue;
            }
            let ago = Duration::from_millis(table.contact_ms_ago(entry, now));
            let patience = if entry.gone { Duration::ZERO } else { patience };
            let known = Known {
                report,
                since: now,
                eligible_since: None,
                contact: (now, ago),
                patience,
                connection: None,
            };
            candidates.insert(entry.instance.clone(), known);
        }
        forget(&mut candidates, now);
    }

    /// Returns the instance that is next in line: of all that are connected and eligible, or of those
    /// with an identity, the one with the highest priority that has been connected for longest. To be
    /// named ends a hold-off.
    pub(super) fn heir(&self, identity: Option<&str>) -> Option<String> {
        let now = (self.0.now)();
        let candidates = self.lock();
        let may_lead = |it: &Report| match identity {
            Some(name) => it.state == State::Standby && it.identity == name,
            None => it.is_eligible(),
        };
        let connected = candidates.values().filter(|it| it.connection.is_some());
        connected
            .filter(|it| may_lead(&it.report))
            .min_by_key(|it| it.rank(now))
            .map(|it| it.report.instance.clone())
    }

    /// Returns the identity of the candidate next in line if its priority is above `priority` and it
    /// has been connected and eligible for at least `time`.
    pub(super) fn superior(&self, priority: u8, time: Duration) -> Option<String> {
        let heir = self.heir(None)?;
        let now = (self.0.now)();
        let candidates = self.lock();
        let known = candidates.get(&heir).filter(|it| it.report.priority > priority)?;
        let is_steady = known.eligible_since.is_some_and(|it| it.elapsed_min(now) >= time);
        is_steady.then(|| known.report.identity.clone())
    }

    /// Returns a receiver of the number of changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Resolves when no candidate is connected.
    pub(super) async fn emptied(&self) {
        let mut changes = self.changes();
        while self.lock().values().any(|it| it.connection.is_some()) {
            // Never fails: `self` has the sender.
            let _ = changes.changed().await;
        }
    }

    fn changed(&self) {
        self.0.changes.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.candidates.lock().expect("nothing panics while the lock is held")
    }
}

impl Known {
    /// Returns how long ago its last contact was, if it is not connected.
    fn silent_for(&self, now: Moment) -> Duration {
        let (at, ago) = self.contact;
        ago.saturating_add(at.elapsed_max(now))
    }

    /// Returns whether it was connected, and is gone.
    fn is_gone(&self, now: Moment) -> bool {
        self.connection.is_none() && self.contact.0.elapsed_max(now) >= self.patience
    }

    /// Returns its rank among the eligible; the smallest is next in line.
    fn rank(&self, now: Moment) -> impl Ord + use<> {
        let connected = self.since.elapsed_max(now);
        (Reverse(self.report.priority), Reverse(connected), self.report.instance.clone())
    }
}

/// Forgets candidates that were connected too long ago, and the longest ago of too many.
fn forget(candidates: &mut BTreeMap<String, Known>, now: Moment) {
    candidates.retain(|_, it| it.connection.is_some() || it.silent_for(now) < MEMORY);
    let mut gone: Vec<(Duration, String)> = candidates
        .iter()
        .filter(|(_, it)| it.connection.is_none())
        .map(|(instance, it)| (it.silent_for(now), instance.clone()))
        .collect();
    gone.sort();
    for (_, instance) in gone.into_iter().skip(REMEMBERED) {
        candidates.remove(&instance);
    }
}

impl Place {
    /// Returns the instance of the candidate.
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Resolves when another connection of the candidate has taken the place. May be dropped and
    /// called again until then.
    pub(super) async fn replaced(&mut self) {
        let _ = (&mut self.replaced).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = (self.registry.0.now)();
        if let Some(known) = self.registry.lock().get_mut(&self.instance)
            && known.connection.take_if(|it| it.number == self.number).is_some()
        {
            known.contact = (now, Duration::ZERO);
            known.eligible_since = None;
        }
        self.registry.0.metrics.peer_disconnected();
        self.registry.changed();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{metrics, now, pass, report};
    use super::*;
    use crate::election::State;

    fn registry() -> Registry {
        Registry::new(metrics(), now)
    }

    fn address(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    fn join(registry: &Registry, name: &str, priority: u8, state: State) -> Place {
        let report = Report { priority, ..report(name, state) };
        registry.join(report, Peer::Local).expect("there are places")
    }

    fn names(registry: &Registry) -> Vec<String> {
        registry.entries(None).into_iter().map(|it| it.identity).collect()
    }

    #[test]
    fn the_highest_priority_is_next_in_line_and_then_the_longest_connected() {
        let registry = registry();
        assert_eq!(registry.heir(None), None);
        let _sick = join(&registry, "sick", 100, State::Unhealthy);
        assert_eq!(registry.heir(None), None);
        let first = join(&registry, "z-first", 50, State::Standby);
        pass(1);
        let _second = join(&registry, "a-second", 50, State::Standby);
        pass(1);
        let _low = join(&registry, "a-low", 49, State::Standby);
        let before = Report { holds_off: true, priority: 100, ..report("before", State::Standby) };
        let _before = registry.join(before, Peer::Local).expect("there are places");
        let _observer = join(&registry, "observer", 100, State::Observing);
        assert_eq!(registry.heir(None).as_deref(), Some("z-first-1"));
        pass(1);
        let _high = join(&registry, "high", 51, State::Standby);
        assert_eq!(registry.heir(None).as_deref(), Some("high-1"));
        assert_eq!(registry.heir(Some("a-low")).as_deref(), Some("a-low-1"));
        assert_eq!(registry.heir(Some("sick")), None);
        assert_eq!(registry.heir(Some("before")).as_deref(), Some("before-1"), "it was named");
        let expected = ["high", "z-first", "a-second", "a-low", "sick", "before", "observer"];
        assert_eq!(names(&registry), expected);
        drop(first);
        let expected = ["high", "a-second", "a-low", "sick", "before", "observer", "z-first"];
        assert_eq!(names(&registry), expected);
        let gone = registry.entries(Some("high-1")).pop().unwrap();
        assert!(!gone.connected && !gone.heir);
        assert!(registry.entries(Some("high-1"))[0].heir);
    }

    #[tokio::test]
    async fn a_new_request_of_a_candidate_replaces_the_one_before_without_a_gap() {
        let registry = registry();
        let mut first = join(&registry, "a", 50, State::Standby);
        pass(1);
        let other = join(&registry, "b", 50, State::Standby);
        pass(1);
        let again = join(&registry, "a", 50, State::Standby);
        first.replaced().await;
        drop(first);
        assert_eq!(registry.heir(None).as_deref(), Some("a-1"), "it waits since its first request");
        drop(again);
        pass(1);
        assert_eq!(registry.heir(None).as_deref(), Some("b-1"));
        let back = join(&registry, "a", 50, State::Standby);
        assert_eq!(registry.heir(None).as_deref(), Some("b-1"), "it has to queue again");
        assert!(futures::poll!(Box::pin(registry.emptied())).is_pending());
        drop((other, back));
        registry.emptied().await;
    }

    #[test]
    fn a_superior_is_of_higher_priority_and_eligible_for_the_whole_time() {
        let registry = registry();
        let time = Duration::from_secs(30);
        let _equal = join(&registry, "equal", 50, State::Standby);
        let sick = join(&registry, "b", 60, State::Unhealthy);
        pass(100);
        assert_eq!(registry.superior(50, time), None);
        let well = join(&registry, "b", 60, State::Standby);
        drop(sick);
        pass(29);
        assert_eq!(registry.superior(50, time), None, "it was sick until 29 s ago");
        let renewed = join(&registry, "b", 60, State::Standby);
        drop(well);
        pass(1);
        assert_eq!(registry.superior(50, time).as_deref(), Some("b"));
        assert_eq!(registry.superior(60, time), None);
        drop(renewed);
        let _back = join(&registry, "b", 60, State::Standby);
        assert_eq!(registry.superior(50, time), None, "it was gone");
    }

    #[test]
    fn one_address_gets_half_of_the_places_and_a_candidate_keeps_its_own() {
        let registry = registry();
        let join = |number: usize, peer| {
            registry.join(report(&format!("c{number}"), State::Standby), peer)
        };
        let one: Vec<_> = (0..PLACES).map_while(|it| join(it, address(1))).collect();
        assert_eq!(one.len(), PLACES / 2);
        let other: Vec<_> = (100..200).map_while(|it| join(it, address(2))).collect();
        assert_eq!(other.len(), PLACES / 2);
        assert!(join(300, Peer::Local).is_none());
        let again = join(0, address(1));
        assert!(again.is_some(), "a new request of one that is connected");
        drop(other);
        assert!(join(300, Peer::Local).is_some());
        assert!(join(301, address(1)).is_none(), "of an address that has its half");
    }

    #[test]
    fn the_candidates_of_the_leader_before_are_gone_unless_they_connect_in_time() {
        let registry = registry();
        let entry = |name: &str, ago: u64, gone: bool| CandidateEntry {
            connected: ago == 0,
            contact_ms_ago: ago * 1_000,
            gone,
            ..report(name, State::Standby).entry(None, false)
        };
        let all = [
            entry("old", 0, false),
            entry("us", 0, false),
            entry("back", 0, false),
            entry("gone", 100, true),
            entry("forgotten", 600, true),
        ];
        let table = CandidateTable { at: now(), is_current: true, candidates: all.into() };
        let table = table.ended(now());
        pass(15);
        registry.remember(&table, "us-1", Duration::from_secs(7));
        let shown = || {
            let mut all: Vec<_> = registry
                .entries(None)
                .into_iter()
                .map(|it| (it.identity, it.gone, it.contact_ms_ago))
                .collect();
            all.sort();
            all
        };
        let of = |name: &str, gone, ago| (name.to_owned(), gone, ago);
        let expected =
            [of("back", false, 15_000), of("gone", true, 115_000), of("old", false, 15_000)];
        assert_eq!(shown(), expected);
        let _back = join(&registry, "back", 50, State::Standby);
        pass(7);
        let expected = [of("back", false, 0), of("gone", true, 122_000), of("old", true, 22_000)];
        assert_eq!(shown(), expected);
        registry.remember(&table, "us-1", Duration::ZERO);
        assert_eq!(shown(), expected, "they are known");
    }

    #[test]
    fn candidates_that_are_gone_are_forgotten_after_a_while_or_when_they_are_back() {
        let registry = registry();
        drop(join(&registry, "a", 50, State::Standby));
        pass(1);
        assert_eq!(registry.entries(None)[0].contact_ms_ago, 1_000);
        let restarted = Report { instance: "a-2".to_owned(), ..report("a", State::Standby) };
        let restarted = registry.join(restarted, Peer::Local);
        assert_eq!(names(&registry), ["a"]);
        drop(restarted);
        pass(599);
        assert_eq!(names(&registry), ["a"]);
        pass(1);
        assert!(names(&registry).is_empty());
        for number in 0..100 {
            drop(join(&registry, &format!("c{number}"), 50, State::Standby));
            pass(1);
        }
        assert_eq!(names(&registry).len(), REMEMBERED);
        assert!(names(&registry).contains(&"c99".to_owned()));
    }
}
