//! The route by a label: this pod is labelled active or passive, and a Service selects by it.
//!
//! Every write is a compare-and-set: by the pod's resource version, and by the term in its
//! annotation, so that a late write of an older leader changes nothing that a newer one has
//! written. A new leader also removes the label from pods that kept it, since a process that was
//! killed or cut off cannot do that. Nothing but these labels and annotations is changed.

use serde_json::{Value, json};

use super::client::RouteClient;
use super::{
    ELECTION, FENCE, Outcome, RouteError, Survey, TERM, Target, changed_nothing, draw, pods,
    term_of,
};
use crate::kube::objects::{Metadata, Pod};
use crate::kube::{KubeError, KubeObject};
use crate::status::Role;

/// How often one reconciliation retries after a conflict.
const ATTEMPTS: usize = 4;

/// What to do with a pod.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Nothing: it is as wanted.
    Agrees,
    /// Apply this merge patch.
    Write(Value),
    /// Nothing: a leader of this newer term has written it.
    Newer(u64),
}

/// The label of this pod.
#[derive(Debug)]
pub(super) struct Label {
    client: RouteClient,
    pod: String,
    election: String,
    key: String,
    /// The uid of this pod as first read: a later pod may have the same name.
    uid: Option<String>,
    /// Whether the last read showed that this pod is missing, or is another one.
    is_missing: bool,
    /// Whether a write with an unknown result may still arrive, of this process or of an earlier
    /// one in this pod. The pod is then written in any case, so that the late write fails.
    unsure: bool,
    /// The role that this pod reports, if known.
    known: Option<Role>,
}

impl Label {
    pub(super) fn new(client: RouteClient, pod: String, election: String, key: String) -> Self {
        Self { client, pod, election, key, uid: None, is_missing: false, unsure: true, known: None }
    }

    /// Returns the role that this pod reports; `None` after a write with an unknown result.
    pub(super) fn known(&self) -> Option<Role> {
        self.known
    }

    /// Makes this pod report the wanted role, for as long as `still` returns true. May be dropped.
    pub(super) async fn reconcile(
        &mut self,
        target: Target,
        still: &(dyn Fn() -> bool + Sync),
    ) -> Outcome {
        let mut outcome = Outcome::default();
        self.is_missing = false;
        if let Target::Active(term) = target {
            self.take(term, still, &mut outcome).await;
            if matches!(outcome.error, Some(RouteError::Newer { .. } | RouteError::Overtaken)) {
                return outcome;
            }
        }
        for _ in 0..ATTEMPTS {
            let pod = match self.client.get::<Pod>(&self.pod).await {
                Ok(pod) => pod.metadata,
                Err(error) => {
                    self.is_missing = matches!(error, KubeError::Missing(_));
                    return outcome.with(error.into());
                }
            };
            if *self.uid.get_or_insert_with(|| pod.uid.clone()) != pod.uid {
                self.is_missing = true;
                let words =
                    format!("the pod {} was replaced by another of the same name", self.pod);
                return outcome.with(RouteError::Setting(words));
            }
            let said = self.read(&pod);
            self.known = (!self.unsure).then_some(said);
            let fence = self.unsure.then(draw);
            let patch = match own(&pod, &self.election, &self.key, target, fence.as_deref()) {
                Step::Agrees => return outcome,
                Step::Newer(newer) => {
                    return outcome.with(RouteError::newer(
                        format!("the pod {}", self.pod),
                        newer,
                        target,
                    ));
                }
                Step::Write(_) if !still() => return outcome.with(RouteError::Overtaken),
                Step::Write(patch) => patch,
            };
            let before = std::mem::replace(&mut self.unsure, true);
            self.known = None;
            match self.client.patch::<Pod>(&self.pod, &patch).await {
                Ok(_) => {
                    self.unsure = false;
                    self.known = Some(target.role());
                    return outcome;
                }
                // Any write still in flight carries an outdated version.
                Err(KubeError::Conflict(_)) => self.unsure = false,
                Err(error) => {
                    if changed_nothing(&error) {
                        self.unsure = before;
                        self.known = (!before).then_some(said);
                    }
                    return outcome.with(error.into());
                }
            }
        }
        outcome.with(RouteError::busy(&self.pod))
    }

    /// Surveys whether this pod still exists, if it leads and was missing. May be dropped.
    pub(super) async fn survey(&self, target: Target) -> Survey {
        let mut survey = Survey::default();
        let Some(uid) = self.uid.as_deref().filter(|_| self.is_missing) else { return survey };
        if target.role() == Role::Active {
            match pods::is_gone(&self.client, &self.pod, uid).await {
                Ok(is_gone) => survey.pod_is_gone = is_gone,
                Err(error) => survey.error = Some(error.into()),
            }
        }
        survey
    }

    /// Removes the active label from every other pod of the election that kept it from an older
    /// term. A failure for one pod prevents neither the others nor the update of this pod.
    async fn take(&self, term: u64, still: &(dyn Fn() -> bool + Sync), outcome: &mut Outcome) {
        let selector = format!("{ELECTION}={},{}=active", self.election, self.key);
        let pods = match self.client.list::<Pod>(&selector).await {
            Ok(pods) => pods,
            Err(error) => {
                outcome.error = Some(error.into());
                return;
            }
        };
        for pod in pods.into_iter().filter(|it| it.metadata().name != self.pod) {
            let name = pod.metadata.name.clone();
            let Err(error) = self.take_from(pod.metadata, term, still).await else { continue };
            outcome.other = Some(name);
            let ends = matches!(error, RouteError::Newer { .. } | RouteError::Overtaken);
            outcome.error = Some(error);
            if ends {
                return;
            }
        }
    }

    async fn take_from(
        &self,
        mut pod: Metadata,
        term: u64,
        still: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), RouteError> {
        let name = pod.name.clone();
        for _ in 0..ATTEMPTS {
            let patch = match taken(&pod, &self.key, term) {
                Step::Agrees => return Ok(()),
                Step::Newer(newer) => {
                    return Err(RouteError::newer(
                        format!("pod {name}"),
                        newer,
                        Target::Active(term),
                    ));
                }
                Step::Write(_) if !still() => return Err(RouteError::Overtaken),
                Step::Write(patch) => patch,
            };
            match self.client.patch::<Pod>(&name, &patch).await {
                Ok(_) => {
                    tracing::info!(
                        pod = name,
                        term,
                        "removed the label from a pod of an earlier leader"
                    );
                    return Ok(());
                }
                Err(KubeError::Missing(_)) => return Ok(()),
                Err(KubeError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
            pod = match self.client.get::<Pod>(&name).await {
                Ok(pod) => pod.metadata,
                Err(KubeError::Missing(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
        }
        Err(RouteError::busy(&name))
    }

    /// Returns the role by the label: passive also if it is missing, since no Service selects by
    /// that.
    fn read(&self, pod: &Metadata) -> Role {
        let active = pod.labels.get(&self.key).is_some_and(|it| it == Role::Active.as_str())
            && pod.labels.get(ELECTION).is_some_and(|it| *it == self.election);
        if active { Role::Active } else { Role::Passive }
    }
}

/// Plans the change of this pod. With a `fence` it is written even if nothing differs.
fn own(found: &Metadata, election: &str, key: &str, target: Target, fence: Option<&str>) -> Step {
    let seen = term_of(found);
    let term = match target {
        Target::Active(ours) => match seen {
            Some(newer) if newer > ours => return Step::Newer(newer),
            _ => Some(ours),
        },
        // Passive is true whoever leads, so the newest term stays.
        Target::Passive { led } => seen.max(led),
    };
    let role = target.role().as_str();
    let says = |key: &str, value: &str| found.labels.get(key).is_some_and(|it| it == value);
    let dated = matches!(target, Target::Passive { .. }) || seen == term;
    if fence.is_none() && says(key, role) && says(ELECTION, election) && dated {
        return Step::Agrees;
    }
    let mut patch = patch(found, json!({key: role, ELECTION: election}), term);
    if let Some(fence) = fence {
        patch["metadata"]["annotations"][FENCE] = fence.into();
    }
    Step::Write(patch)
}

/// Plans the change of another pod by the leader of this term.
fn taken(found: &Metadata, key: &str, term: u64) -> Step {
    if found.labels.get(key).is_none_or(|it| it != Role::Active.as_str()) {
        return Step::Agrees;
    }
    match term_of(found) {
        // No two leaders share a term, so another pod with this term was not written by its leader.
        Some(theirs) if theirs >= term => Step::Newer(theirs),
        _ => Step::Write(patch(found, json!({key: Role::Passive.as_str()}), Some(term))),
    }
}

/// Returns a patch of labels and term that is rejected unless the pod is as it was found.
fn patch(found: &Metadata, labels: Value, term: Option<u64>) -> Value {
    let mut annotations = json!({});
    if let Some(term) = term {
        annotations[TERM] = term.to_string().into();
    }
    json!({"metadata": {
        "uid": found.uid,
        "resourceVersion": found.resource_version,
        "labels": labels,
        "annotations": annotations,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "tenure.dev/role";

    fn pod(role: &str, term: &str) -> Metadata {
        let mut it = Metadata::named("shop", "orders-0");
        (it.uid, it.resource_version) = ("u".to_owned(), "7".to_owned());
        if !role.is_empty() {
            it.labels.insert(KEY.to_owned(), role.to_owned());
            it.labels.insert(ELECTION.to_owned(), "orders".to_owned());
        }
        if !term.is_empty() {
            it.annotations.insert(TERM.to_owned(), term.to_owned());
        }
        it
    }

    fn written(step: Step) -> (String, Option<String>) {
        let Step::Write(patch) = step else { panic!("{step:?}") };
        let metadata = &patch["metadata"];
        assert_eq!((&metadata["resourceVersion"], &metadata["uid"]), (&json!("7"), &json!("u")));
        let term = metadata["annotations"][TERM].as_str().map(str::to_owned);
        (metadata["labels"][KEY].as_str().unwrap().to_owned(), term)
    }

    fn own_of(found: &Metadata, target: Target) -> Step {
        own(found, "orders", KEY, target, None)
    }

    #[test]
    fn a_leader_labels_its_own_pod_with_its_term() {
        for found in [pod("", ""), pod("passive", "41"), pod("active", "41"), pod("passive", "42")]
        {
            let (role, term) = written(own_of(&found, Target::Active(42)));
            assert_eq!((role.as_str(), term.as_deref()), ("active", Some("42")));
        }
        assert_eq!(own_of(&pod("active", "42"), Target::Active(42)), Step::Agrees);
        let (role, _) = written(own_of(&pod("active", "nonsense"), Target::Active(42)));
        assert_eq!(role, "active", "what nobody of us wrote says no term");
    }

    #[test]
    fn a_late_write_of_an_older_leader_is_none() {
        for role in ["passive", "active", ""] {
            assert_eq!(own_of(&pod(role, "43"), Target::Active(42)), Step::Newer(43));
        }
        assert_eq!(taken(&pod("active", "43"), KEY, 42), Step::Newer(43));
        assert_eq!(taken(&pod("active", "42"), KEY, 42), Step::Newer(42));
    }

    #[test]
    fn a_passive_pod_may_always_be_labelled_and_the_newest_term_stays() {
        for (found, led, term) in [
            (pod("active", "42"), Some(42), Some("42")),
            (pod("active", "43"), Some(42), Some("43")),
            (pod("active", "41"), None, Some("41")),
            (pod("", ""), Some(42), Some("42")),
            (pod("", ""), None, None),
        ] {
            let (role, said) = written(own_of(&found, Target::Passive { led }));
            assert_eq!((role.as_str(), said.as_deref()), ("passive", term));
        }
        let target = Target::Passive { led: Some(42) };
        assert_eq!(own_of(&pod("passive", "41"), target), Step::Agrees);
    }

    #[test]
    fn a_write_in_flight_is_invalidated_by_a_write() {
        let (found, target) = (pod("passive", "42"), Target::Passive { led: Some(42) });
        let Step::Write(patch) = own(&found, "orders", KEY, target, Some("f")) else { panic!() };
        assert_eq!(patch["metadata"]["annotations"][FENCE], "f");
    }

    #[test]
    fn a_label_that_was_kept_is_taken_and_nothing_else() {
        let (role, term) = written(taken(&pod("active", "41"), KEY, 42));
        assert_eq!((role.as_str(), term.as_deref()), ("passive", Some("42")));
        let (role, _) = written(taken(&pod("active", ""), KEY, 42));
        assert_eq!(role, "passive");
        for found in [pod("passive", "41"), pod("", ""), pod("passive", "43")] {
            assert_eq!(taken(&found, KEY, 42), Step::Agrees);
        }
    }

    #[test]
    fn a_pod_of_another_election_is_relabelled() {
        let mut found = pod("active", "42");
        found.labels.insert(ELECTION.to_owned(), "others".to_owned());
        let (role, _) = written(own_of(&found, Target::Active(42)));
        assert_eq!(role, "active");
    }
}
