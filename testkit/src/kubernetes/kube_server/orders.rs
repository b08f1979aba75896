//! What a test may do to the server behind everybody's back: tokens and rights, objects, watches,
//! faults, clock; and what it may learn of the requests.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::access::Right;
use super::kinds::{self, Kind, Target};
use super::selectors::Selector;
use super::{Fault, KubeServer, Logged, fits};

impl KubeServer {
    /// Knows a token from now on, as that of a service account, which may do nothing yet.
    pub fn account(&self, token: &str, namespace: &str, name: &str) {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.change(|it| it.access.tokens.insert(token.to_owned(), Some(user)));
    }

    /// Lets the user of a token do this to a plural, in one namespace, or in all by an empty one.
    pub fn allow(&self, token: &str, namespace: &str, plural: &str, verbs: &[&str]) {
        self.allow_named(token, namespace, plural, verbs, &[]);
    }

    /// The same for objects of these names only.
    pub fn allow_named(
        &self,
        token: &str,
        namespace: &str,
        plural: &str,
        verbs: &[&str],
        names: &[&str],
    ) {
        let list = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect();
        let groups: Vec<&str> =
            kinds::KINDS.iter().filter(|it| it.plural == plural).map(|it| it.group).collect();
        self.change(|it| {
            let user = it.access.tokens[token].clone().expect("a token that has not expired");
            for group in groups {
                it.access.rights.push(Right {
                    user: user.clone(),
                    namespace: namespace.to_owned(),
                    group: group.to_owned(),
                    resource: plural.to_owned(),
                    verbs: list(verbs),
                    names: list(names),
                });
            }
        });
    }

    /// Takes all rights from the user of a token.
    pub fn forbid(&self, token: &str) {
        self.change(|it| {
            let user = it.access.tokens[token].clone().expect("a token that has not expired");
            it.access.rights.retain(|right| right.user != user);
        });
    }

    /// Refuses a token from now on.
    pub fn expire(&self, token: &str) {
        self.change(|it| it.access.tokens.insert(token.to_owned(), None));
    }

    /// Makes a namespace.
    pub fn namespace(&self, name: &str) {
        let object = json!({
            "kind": "Namespace",
            "apiVersion": "v1",
            "metadata": {"name": name, "uid": uuid::Uuid::new_v4().to_string()},
            "status": {"phase": "Active"},
        });
        let key = ("namespaces", String::new(), name.to_owned());
        self.change(|it| it.objects.set(key, Some(object)));
    }

    /// Puts an object there as somebody with all rights would, in the place of what is there.
    pub fn put(&self, plural: &str, namespace: &str, name: &str, mut object: Value) {
        let kind = Kind::of(plural);
        object["kind"] = kind.kind.into();
        object["apiVersion"] = kind.api_version().into();
        object["metadata"]["name"] = name.into();
        object["metadata"]["namespace"] = namespace.into();
        let old = self.object(plural, namespace, name);
        let uid = old.map_or_else(
            || uuid::Uuid::new_v4().to_string().into(),
            |it| it["metadata"]["uid"].clone(),
        );
        object["metadata"]["uid"] = uid;
        object["metadata"]["creationTimestamp"] = "2026-11-20T09:00:00Z".into();
        let key = (kind.plural, namespace.to_owned(), name.to_owned());
        self.change(|it| it.objects.set(key, Some(object)));
    }

    /// Changes an object behind everybody's back.
    pub fn modify(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) {
        let mut object = self.object(plural, namespace, name).expect("it is there");
        change(&mut object);
        let key = (Kind::of(plural).plural, namespace.to_owned(), name.to_owned());
        self.change(|it| it.objects.set(key, Some(object)));
    }

    /// Changes nothing of an object but an annotation of another's.
    pub fn touch(&self, plural: &str, namespace: &str, name: &str) {
        let drawn = uuid::Uuid::new_v4().to_string();
        self.modify(plural, namespace, name, |it| {
            it["metadata"]["annotations"]["example.com/touched"] = drawn.into();
        });
    }

    /// Deletes an object behind everybody's back.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let key = (Kind::of(plural).plural, namespace.to_owned(), name.to_owned());
        self.change(|it| it.objects.set(key, None));
    }

    /// An object as it is stored.
    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.lock().objects.find(plural, namespace, name).cloned()
    }

    /// All objects of a plural in a namespace.
    pub fn objects(&self, plural: &str, namespace: &str) -> Vec<Value> {
        let (kind, namespace) = (Kind::of(plural), namespace.to_owned());
        let (name, query) = (String::new(), HashMap::new());
        let target = Target { kind, namespace, name, verb: "list", query };
        self.shared.lock().objects.select(&target, &Selector::default()).1
    }

    /// Forgets the history: watches from an earlier version are told that it is gone.
    pub fn compact(&self) {
        self.change(|it| it.objects.compact());
    }

    /// Breaks all watches that there are.
    pub fn cut_watches(&self) {
        self.change(|it| it.cuts += 1);
    }

    /// Tells watches nothing, or again what they have missed.
    pub fn withhold(&self, withheld: bool) {
        self.change(|it| it.withheld = withheld);
    }

    /// Sends a bookmark so often, to watches that begin from now on.
    pub fn bookmark_every(&self, interval: Duration) {
        self.change(|it| it.bookmark_interval = interval);
    }

    /// Answers reads with resourceVersion=0 from what is there now, or from the present again.
    pub fn freeze_cache(&self, frozen: bool) {
        self.change(|it| if frozen { it.objects.freeze_cache() } else { it.objects.thaw_cache() });
    }

    /// Sets its clock so many seconds ahead of ours.
    pub fn skew(&self, seconds: i64) {
        self.change(|it| it.skew = seconds);
    }

    /// Has the next requests of an op go wrong, one fault each. An op is as in `update leases`; a
    /// verb or a plural alone stands for all with it, `any` for all but watches.
    pub fn inject(&self, op: &str, faults: impl IntoIterator<Item = Fault>) {
        self.change(|it| it.faults.push((op.to_owned(), faults.into_iter().collect())));
    }

    /// Has all requests of an op go wrong until [`heal`](Self::heal).
    pub fn impose(&self, op: &str, fault: Fault) {
        self.change(|it| it.standing.push((op.to_owned(), fault)));
    }

    /// Takes back all faults that have not happened yet.
    pub fn heal(&self) {
        self.change(|it| {
            it.faults.clear();
            it.standing.clear();
        });
    }

    /// How many faults of [`inject`](Self::inject) have not happened yet.
    pub fn pending(&self) -> usize {
        self.shared.lock().faults.iter().map(|(_, it)| it.len()).sum()
    }

    /// What was asked since the start or the last [`take_log`](Self::take_log).
    pub fn log(&self) -> Vec<Logged> {
        self.shared.lock().log.clone()
    }

    /// What was asked since the start or the last call.
    pub fn take_log(&self) -> Vec<Logged> {
        std::mem::take(&mut self.shared.lock().log)
    }

    /// How often an op was asked for since the start or the last [`take_log`](Self::take_log).
    pub fn count(&self, op: &str) -> usize {
        self.shared.lock().log.iter().filter(|it| fits(op, &it.op)).count()
    }
}
