//! Kubernetes Events: records when this instance becomes leader and when it stops leading.
//!
//! They use events.k8s.io/v1 rather than the older core API, since there a burst of changes is not
//! aggregated into one line with a count and the server validates every field. Both are stored as
//! the same objects, so that `kubectl` shows either.
//!
//! Events are best effort. Each is sent once, within the request-timeout; beyond a rate limit they
//! are dropped, and counted in the next one; nothing waits for them.

use std::time::Duration;

use tokio::sync::watch;
use uuid::Uuid;

use crate::clock::Moment;
use crate::config::KubePublishing;
use crate::election::{Reason, Transition};
use crate::kube::objects::{Event, KubeObject, Lease, Metadata, ObjectReference, Pod, micro_time};
use crate::kube::{Kube, KubeError};
use crate::status::{Past, Published, words};

/// The burst of the rate limit, and the time after which one more Event is allowed.
const BURST: u32 = 10;
const PACE: Duration = Duration::from_secs(30);

/// The reporting controller, a qualified name.
const CONTROLLER: &str = "tenure.dev/tenure";

/// Records each beginning and end of this instance's leadership.
pub struct Events {
    kube: Kube,
    election: String,
    identity: String,
    regarding: ObjectReference,
    published: watch::Receiver<Published>,
    /// The last transition that was processed.
    seen: Option<Past>,
    allowance: Allowance,
    /// How many have been dropped since the last one.
    left_out: u32,
    /// Whether it has been logged that Events are forbidden.
    logged: bool,
    now: fn() -> Moment,
}

/// The rate limit of Events.
#[derive(Debug)]
struct Allowance {
    left: u32,
    since: Moment,
}

impl Allowance {
    fn new(now: Moment) -> Self {
        Self { left: BURST, since: now }
    }

    /// Takes one, if one is left.
    fn take(&mut self, now: Moment) -> bool {
        let periods = self.since.elapsed_min(now).as_secs() / PACE.as_secs();
        if periods > 0 {
            let earned = u32::try_from(periods).unwrap_or(BURST);
            self.left = self.left.saturating_add(earned).min(BURST);
            self.since = now;
        }
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }
}

impl Events {
    /// Creates Events about this pod, or about the Lease outside of a pod; `None` if there is
    /// neither.
    #[must_use]
    pub fn new(
        (beside, kube): (&KubePublishing, Kube),
        identity: String,
        published: watch::Receiver<Published>,
        now: fn() -> Moment,
    ) -> Option<Self> {
        let (resource, name) = match (&beside.pod, &beside.lease) {
            (Some(pod), _) => (Pod::RESOURCE, pod),
            (None, Some(lease)) => (Lease::RESOURCE, lease),
            (None, None) => return None,
        };
        let regarding = ObjectReference {
            api_version: resource.api_version().to_owned(),
            kind: resource.kind.to_owned(),
            namespace: beside.namespace.clone(),
            name: name.clone(),
            uid: String::new(),
        };
        Some(Self {
            kube,
            election: beside.election.clone(),
            identity,
            regarding,
            published,
            seen: None,
            allowance: Allowance::new(now()),
            left_out: 0,
            logged: false,
            now,
        })
    }

    /// Records Events until the driver is gone and the last one is sent.
    pub async fn run(mut self) {
        loop {
            for past in self.new_transitions() {
                self.record(past).await;
            }
            if self.published.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns the transitions that have not been processed, oldest first.
    fn new_transitions(&mut self) -> Vec<Past> {
        let last = self.published.borrow_and_update();
        let new = last.history.iter().take_while(|it| Some(**it) != self.seen);
        let mut new: Vec<Past> = new.copied().collect();
        self.seen = last.history.first().copied();
        new.reverse();
        new
    }

    async fn record(&mut self, past: Past) {
        let Some((reason, kind)) = what(&past.transition) else { return };
        if !self.allowance.take((self.now)()) {
            self.left_out += 1;
            tracing::debug!(reason, "Event dropped: rate limit reached");
            return;
        }
        self.read_uid().await;
        let event = self.event(past, reason, kind);
        let mut answer = self.kube.create(&event).await;
        if matches!(answer, Err(KubeError::Disconnected(_))) {
            // The pooled connection had been closed; the retry opens a new one.
            answer = self.kube.create(&event).await;
        }
        match answer {
            Ok(_) => self.left_out = 0,
            Err(KubeError::Exists(_)) => {}
            Err(error @ KubeError::Forbidden(_)) if !self.logged => {
                self.logged = true;
                tracing::info!("Events are disabled: {error}");
            }
            Err(error) => tracing::debug!(reason, "Event dropped: {error}"),
        }
    }

    /// Reads the uid of the object that Events are about, by which `kubectl describe` finds them.
    async fn read_uid(&mut self) {
        if !self.regarding.uid.is_empty() {
            return;
        }
        let ObjectReference { namespace, name, .. } = &self.regarding;
        let found = if self.regarding.kind == Pod::RESOURCE.kind {
            self.kube.get::<Pod>(namespace, name).await.map(|it| it.object.metadata)
        } else {
            self.kube.get::<Lease>(namespace, name).await.map(|it| it.object.metadata)
        };
        match found {
            Ok(Metadata { uid, .. }) => self.regarding.uid = uid,
            Err(error) => tracing::debug!("Events will not contain a uid: {error}"),
        }
    }

    fn event(&self, past: Past, reason: &str, kind: &str) -> Event {
        let Past { at, transition } = past;
        let mut metadata = Metadata::named(&self.regarding.namespace, &event_name(&self.regarding));
        metadata.labels.insert(super::ELECTION.to_owned(), self.election.clone());
        Event {
            metadata,
            event_time: micro_time(at.date()),
            reporting_controller: CONTROLLER.to_owned(),
            reporting_instance: self.identity.clone(),
            action: "LeaderElection".to_owned(),
            reason: reason.to_owned(),
            regarding: self.regarding.clone(),
            note: note(&self.identity, &self.election, &transition, self.left_out),
            kind: kind.to_owned(),
        }
    }
}

/// Returns the reason and the type of the Event for a transition; `None` for one that does not
/// change who leads.
fn what(transition: &Transition) -> Option<(&'static str, &'static str)> {
    let Transition { from, to, reason, .. } = transition;
    match (from.is_leading(), to.is_leading()) {
        (false, true) => Some(("BecameLeader", "Normal")),
        (true, false) => {
            let hurts = matches!(reason, Reason::Lapsed | Reason::Lost);
            Some(("StoppedLeading", if hurts { "Warning" } else { "Normal" }))
        }
        _ => None,
    }
}

/// Returns a unique name for an Event.
fn event_name(regarding: &ObjectReference) -> String {
    let begin: String = regarding.name.chars().take(230).collect();
    let begin = begin.trim_end_matches(['.', '-']);
    format!("{begin}.{:016x}", Uuid::new_v4().as_u128() >> 64)
}

fn note(identity: &str, election: &str, transition: &Transition, left_out: u32) -> String {
    let Transition { to, reason, term, .. } = transition;
    let did = if to.is_leading() { "became leader of" } else { "stopped leading" };
    let term = term.map(|it| format!(" in term {it}")).unwrap_or_default();
    let why = words::reason(reason.as_str());
    let more = match left_out {
        0 => String::new(),
        left_out => format!("; {left_out} earlier changes were not recorded"),
    };
    format!("{identity} {did} {election}{term}: {why}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::election::State;

    fn at(seconds: u64) -> Moment {
        let reading = Duration::from_secs(seconds);
        Moment { boot: reading, raw: reading, wall: reading }
    }

    fn transition(from: State, to: State, reason: Reason) -> Transition {
        Transition { from, to, reason, term: Some(42), leadership: None }
    }

    #[test]
    fn only_the_start_and_end_of_a_term_become_events() {
        use State::{Activating, Draining, Jeopardy, Leader, Standby, Stopped};
        let event = |from, to, reason| what(&transition(from, to, reason));
        let begun = Some(("BecameLeader", "Normal"));
        assert_eq!(event(Activating, Leader, Reason::TermWritten), begun);
        assert_eq!(event(Activating, Jeopardy, Reason::TermWritten), begun);
        let ended = Some(("StoppedLeading", "Normal"));
        assert_eq!(event(Leader, Draining, Reason::Resigned), ended);
        assert_eq!(event(Leader, Stopped, Reason::Resigned), ended);
        let hurt = Some(("StoppedLeading", "Warning"));
        assert_eq!(event(Jeopardy, Standby, Reason::Lapsed), hurt);
        assert_eq!(event(Leader, Standby, Reason::Lost), hurt);
        for (from, to, reason) in [
            (Leader, Jeopardy, Reason::RenewalFailed),
            (Jeopardy, Leader, Reason::Renewed),
            (Draining, Stopped, Reason::Drained),
            (Standby, Activating, Reason::Acquired),
        ] {
            assert_eq!(event(from, to, reason), None);
        }
    }

    #[test]
    fn notes_have_identity_change_and_reason_within_their_limits() {
        let became = transition(State::Activating, State::Leader, Reason::TermWritten);
        let said = note("web-1", "orders", &became, 0);
        assert_eq!(said, "web-1 became leader of orders in term 42: the term was written");
        let long = "x".repeat(128);
        let stopped = transition(State::Jeopardy, State::Standby, Reason::Lapsed);
        let said = note(&long, &long, &stopped, 7);
        assert!(
            said.ends_with("before it could be renewed; 7 earlier changes were not recorded"),
            "{said}"
        );
        assert!(said.len() <= 1024);
        let regarding =
            ObjectReference { name: format!("{}.b", "x".repeat(229)), ..<_>::default() };
        assert!(event_name(&regarding).len() <= 253 && !event_name(&regarding).contains(".."));
    }

    #[test]
    fn a_flood_is_held_back_and_after_a_while_one_more_may_come() {
        let mut allowance = Allowance::new(at(0));
        let taken = (0..20).filter(|_| allowance.take(at(0))).count();
        assert_eq!(taken, 10);
        assert!(!allowance.take(at(29)));
        assert!(allowance.take(at(30)) && !allowance.take(at(31)));
        assert!(allowance.take(at(60)) && !allowance.take(at(60)));
        let later = (0..20).filter(|_| allowance.take(at(100_000))).count();
        assert_eq!(later, 10);
        let later = (0..20).filter(|_| allowance.take(at(100_031))).count();
        assert_eq!(later, 1);
    }
}
