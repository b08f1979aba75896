//! The operations of a test on the server, without requests: tokens and permissions, objects,
//! watches, faults and clock; and the request log.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::access::Right;
use super::forms::Selector;
use super::kinds::{self, Kind, Target};
use super::objects::CREATED;
use super::{Fault, KubeServer, Logged, fits};

impl KubeServer {
    /// Accepts a token from now on, as that of a service account without permissions.
    pub fn account(&self, token: &str, namespace: &str, name: &str) {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.change(|it| it.access.tokens.insert(token.to_owned(), Some(user)));
    }

    /// Permits the user of a token these verbs on a plural, in one namespace, or in all if it is
    /// empty.
    pub fn allow(&self, token: &str, namespace: &str, plural: &str, verbs: &[&str]) {
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
                });
            }
        });
    }

    /// Revokes all permissions of the user of a token.
    pub fn forbid(&self, token: &str) {
        self.change(|it| {
            let user = it.access.tokens[token].clone().expect("a token that has not expired");
            it.access.rights.retain(|right| right.user != user);
        });
    }

    /// Rejects a token from now on.
    pub fn expire(&self, token: &str) {
        self.change(|it| it.access.tokens.insert(token.to_owned(), None));
    }

    /// Creates a namespace.
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

    /// Creates or replaces an object, as an administrator would.
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
        object["metadata"]["creationTimestamp"] = CREATED.into();
        let key = (kind.plural, namespace.to_owned(), name.to_owned());
        self.change(|it| it.objects.set(key, Some(object)));
    }

    /// Changes an object without a request.
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

    /// Changes only an annotation of an object that Tenure does not own.
    pub fn touch(&self, plural: &str, namespace: &str, name: &str) {
        let drawn = uuid::Uuid::new_v4().to_string();
        self.modify(plural, namespace, name, |it| {
            it["metadata"]["annotations"]["example.com/touched"] = drawn.into();
        });
    }

    /// Deletes an object without a request.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let key = (Kind::of(plural).plural, namespace.to_owned(), name.to_owned());
        self.change(|it| it.objects.set(key, None));
    }

    /// Returns an object as stored.
    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.lock().objects.find(plural, namespace, name).cloned()
    }

    /// Returns all objects of a plural in a namespace.
    pub fn objects(&self, plural: &str, namespace: &str) -> Vec<Value> {
        let (kind, namespace) = (Kind::of(plural), namespace.to_owned());
        let (name, query) = (String::new(), HashMap::new());
        let target = Target { kind, namespace, name, verb: "list", query };
        self.shared.lock().objects.select(&target, &Selector::default())
    }

    /// Discards the history: watches from an earlier version fail with 410 Gone.
    pub fn compact(&self) {
        self.change(|it| it.objects.compact());
    }

    /// Breaks all current watches.
    pub fn cut_watches(&self) {
        self.change(|it| it.cuts += 1);
    }

    /// Stops delivering changes to watches, or delivers those they have missed.
    pub fn withhold(&self, withheld: bool) {
        self.change(|it| it.withheld = withheld);
    }

    /// Sets the bookmark interval for watches that begin from now on.
    pub fn bookmark_every(&self, interval: Duration) {
        self.change(|it| it.bookmark_interval = interval);
    }

    /// Sets the server's clock ahead of the test's by this many seconds.
    pub fn skew(&self, seconds: i64) {
        self.change(|it| it.skew = seconds);
    }

    /// Injects faults into the next requests of an operation, one each. An operation is, for
    /// example, `update leases`; a verb or a plural alone matches all operations with it, `any` all
    /// except watches.
    pub fn inject(&self, op: &str, faults: impl IntoIterator<Item = Fault>) {
        self.change(|it| it.faults.push((op.to_owned(), faults.into_iter().collect())));
    }

    /// Injects a fault into all requests of an operation until [`heal`](Self::heal).
    pub fn impose(&self, op: &str, fault: Fault) {
        self.change(|it| it.standing.push((op.to_owned(), fault)));
    }

    /// Removes all faults that have not occurred yet.
    pub fn heal(&self) {
        self.change(|it| {
            it.faults.clear();
            it.standing.clear();
        });
    }

    /// Returns the number of faults of [`inject`](Self::inject) that have not occurred yet.
    pub fn pending(&self) -> usize {
        self.shared.lock().faults.iter().map(|(_, it)| it.len()).sum()
    }

    /// Returns the requests since the start or the last [`take_log`](Self::take_log).
    pub fn log(&self) -> Vec<Logged> {
        self.shared.lock().log.clone()
    }

    /// Returns the requests since the start or the last call.
    pub fn take_log(&self) -> Vec<Logged> {
        std::mem::take(&mut self.shared.lock().log)
    }

    /// Returns the number of requests of an operation since the start or the last
    /// [`take_log`](Self::take_log).
    pub fn count(&self, op: &str) -> usize {
        self.shared.lock().log.iter().filter(|it| fits(op, &it.op)).count()
    }
}
