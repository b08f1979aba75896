//! The stored objects, with the history for watches: one revision counts all changes, as in etcd.
//! Bodies are stored as they were sent; that a real server accepts them is shown in the ring
//! `control_plane`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answers::{Answer, details};
use super::forms::{Selector, merge, same, text};
use super::kinds::{Kind, NAMESPACES, Target};

/// The time of creation of every object.
pub const CREATED: &str = "2026-11-20T09:00:00Z";

/// Plural, namespace and name.
pub type Key = (&'static str, String, String);

/// One change, as delivered to watches.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub key: Key,
    pub before: Option<Value>,
    /// `None` after a deletion.
    pub after: Option<Value>,
}

/// All stored objects.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub revision: u64,
    /// Changes up to this revision are no longer delivered.
    pub compacted: u64,
    pub history: Vec<Change>,
    all: BTreeMap<Key, Value>,
}

fn key(target: &Target, name: &str) -> Key {
    (target.kind.plural, target.namespace.clone(), name.to_owned())
}

impl Objects {
    /// Creates an empty store at a revision.
    pub fn at(revision: u64) -> Self {
        Self { revision, ..Self::default() }
    }

    /// Returns an object as stored.
    pub fn find(&self, plural: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.all.get(&(Kind::of(plural).plural, namespace.to_owned(), name.to_owned()))
    }

    /// Discards the history.
    pub fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    /// Stores or replaces an object (`None` deletes it), and returns the revision.
    pub fn set(&mut self, key: Key, after: Option<Value>) -> u64 {
        self.revision += 1;
        let after = after.map(|mut it| {
            it["metadata"]["resourceVersion"] = self.revision.to_string().into();
            it
        });
        let before = match &after {
            Some(object) => self.all.insert(key.clone(), object.clone()),
            None => self.all.remove(&key),
        };
        self.history.push(Change { revision: self.revision, key, before, after });
        self.revision
    }

    pub fn get(&self, target: &Target) -> Answer {
        match self.all.get(&key(target, &target.name)) {
            Some(object) => Answer::json(200, object),
            None => Answer::not_found(target.kind, &target.name),
        }
    }

    /// Returns the selected objects.
    pub fn select(&self, target: &Target, selector: &Selector) -> Vec<Value> {
        let selected = self.all.iter().filter(|((plural, namespace, _), object)| {
            *plural == target.kind.plural
                && (target.namespace.is_empty() || *namespace == target.namespace)
                && selector.fits(object)
        });
        selected.map(|(_, object)| object.clone()).collect()
    }

    /// Returns a list or a page of it; the continue token is the name of the last item.
    pub fn list(&self, target: &Target, selector: &Selector) -> Answer {
        let query = |name: &str| target.query.get(name).map_or("", String::as_str);
        let mut items = self.select(target, selector);
        items.retain(|it| text(it, "name") > query("continue"));
        let mut about = json!({"resourceVersion": self.revision.to_string()});
        let limit = query("limit").parse().unwrap_or(0);
        if limit > 0 && items.len() > limit {
            items.truncate(limit);
            about["continue"] = items.last().map(|it| text(it, "name")).into();
        }
        let list = json!({
            "kind": format!("{}List", target.kind.kind),
            "apiVersion": target.kind.api_version(),
            "metadata": about,
            "items": items,
        });
        Answer::json(200, &list)
    }

    /// Checks that the namespace exists.
    fn admit(&self, target: &Target) -> Result<(), Answer> {
        if self.find("namespaces", "", &target.namespace).is_none() {
            return Err(Answer::not_found(&NAMESPACES, &target.namespace));
        }
        Ok(())
    }

    pub fn create(&mut self, target: &Target, object: Value) -> Result<Answer, Answer> {
        self.admit(target)?;
        let name = text(&object, "name").to_owned();
        if name.is_empty() {
            return Err(Answer::bad_request("metadata.name: required"));
        }
        if self.all.contains_key(&key(target, &name)) {
            return Err(Answer::exists(target.kind, &name));
        }
        Ok(self.make(target, object, &name))
    }

    fn make(&mut self, target: &Target, mut object: Value, name: &str) -> Answer {
        object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
        object["metadata"]["namespace"] = target.namespace.clone().into();
        object["metadata"]["creationTimestamp"] = CREATED.into();
        let key = key(target, name);
        self.set(key.clone(), Some(object));
        Answer::json(201, &self.all[&key])
    }

    /// Replaces an object, or creates a missing one where the kind allows that: its uid is a
    /// precondition that a missing object cannot meet; its resourceVersion is not.
    pub fn update(
        &mut self,
        target: &Target,
        mut object: Value,
        may_create: bool,
    ) -> Result<Answer, Answer> {
        self.admit(target)?;
        let name = target.name.clone();
        let Some(old) = self.all.get(&key(target, &name)).cloned() else {
            if !target.kind.made_by_put {
                return Err(Answer::not_found(target.kind, &name));
            }
            if !text(&object, "uid").is_empty() {
                return Err(Answer::conflict(target.kind, &name));
            }
            if !may_create {
                let words = format!("{} is forbidden: cannot create", target.kind.qualified());
                let about = details(target.kind, "");
                return Err(Answer::failure(403, "Forbidden", &words, about));
            }
            object["metadata"].as_object_mut().map(|fields| fields.remove("resourceVersion"));
            return Ok(self.make(target, object, &name));
        };
        let (sent, found) = (text(&object, "uid"), text(&old, "uid"));
        if !sent.is_empty() && sent != found {
            return Err(Answer::conflict(target.kind, &name));
        }
        if text(&object, "resourceVersion").is_empty() {
            return Err(Answer::bad_request("metadata.resourceVersion: required for an update"));
        }
        self.replace(target, object, &old)
    }

    /// Stores an object that was made for the version of the old one, or for any, if it differs.
    fn replace(
        &mut self,
        target: &Target,
        mut object: Value,
        old: &Value,
    ) -> Result<Answer, Answer> {
        let version = text(&object, "resourceVersion");
        if !version.is_empty() && version != text(old, "resourceVersion") {
            return Err(Answer::conflict(target.kind, &target.name));
        }
        for field in ["uid", "namespace", "creationTimestamp"] {
            object["metadata"][field] = old["metadata"][field].clone();
        }
        let key = key(target, &target.name);
        if !same(&object, old) {
            self.set(key.clone(), Some(object));
        }
        Ok(Answer::json(200, &self.all[&key]))
    }

    pub fn patch(&mut self, target: &Target, patch: &Value) -> Result<Answer, Answer> {
        let Some(old) = self.all.get(&key(target, &target.name)).cloned() else {
            return Err(Answer::not_found(target.kind, &target.name));
        };
        let mut object = old.clone();
        merge(&mut object, patch);
        if text(&object, "uid") != text(&old, "uid") {
            let words = "metadata.uid: field is immutable";
            let mut about = details(target.kind, &target.name);
            about["kind"] = target.kind.kind.into();
            return Err(Answer::failure(422, "Invalid", words, about));
        }
        self.replace(target, object, &old)
    }
}
