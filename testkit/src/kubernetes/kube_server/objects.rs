//! The stored objects, with the history for watches: one revision counts all changes, as in etcd.
//! Finalizers and graceful deletion are not implemented.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::answers::{Answer, details};
use super::decoding;
use super::forms::{managed, merge, rename, same, seconds, shown, text};
use super::kinds::{Kind, Target};
use super::selectors::Selector;

/// Plural, namespace and name.
pub type Key = (&'static str, String, String);

type All = BTreeMap<Key, Value>;

/// One change, as delivered to watches.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    pub key: Key,
    pub before: Option<Value>,
    /// `None` after a deletion.
    pub after: Option<Value>,
}

/// Who writes, and when.
#[derive(Clone, Debug)]
pub struct Writer {
    pub agent: String,
    pub date: OffsetDateTime,
    /// Whether a PUT may create a missing object.
    pub may_create: bool,
}

/// All stored objects.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub revision: u64,
    /// Changes up to this revision are no longer delivered.
    pub compacted: u64,
    pub history: Vec<Change>,
    all: All,
    /// The outdated state from which reads with resourceVersion=0 are answered, if it is frozen.
    cache: Option<(u64, All)>,
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

    /// Freezes the state from which reads with resourceVersion=0 are answered.
    pub fn freeze_cache(&mut self) {
        self.cache = Some((self.revision, self.all.clone()));
    }

    /// Lets the cache catch up.
    pub fn thaw_cache(&mut self) {
        self.cache = None;
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

    fn read_from(&self, target: &Target) -> (u64, &All) {
        let cached = target.query.get("resourceVersion").is_some_and(|it| it == "0");
        match &self.cache {
            Some((revision, all)) if cached => (*revision, all),
            _ => (self.revision, &self.all),
        }
    }

    pub fn get(&self, target: &Target) -> Answer {
        let (_, all) = self.read_from(target);
        match all.get(&key(target, &target.name)) {
            Some(object) => Answer::json(200, &shown(target.kind, object)),
            None => Answer::not_found(target.kind, &target.name),
        }
    }

    /// Returns the selected objects, and the revision of that state.
    pub fn select(&self, target: &Target, selector: &Selector) -> (u64, Vec<Value>) {
        let (revision, all) = self.read_from(target);
        let asked = all.iter().filter(|((plural, namespace, _), object)| {
            *plural == target.kind.plural
                && (target.namespace.is_empty() || *namespace == target.namespace)
                && selector.fits(object)
        });
        (revision, asked.map(|(_, object)| shown(target.kind, object)).collect())
    }

    /// Returns a list or a page of it; the continue token is the namespace and name of the last
    /// item.
    pub fn list(&self, target: &Target, selector: &Selector) -> Answer {
        let query = |name: &str| target.query.get(name).map_or("", String::as_str);
        let (revision, mut items) = self.select(target, selector);
        let place = |it: &Value| format!("{}/{}", text(it, "namespace"), text(it, "name"));
        items.retain(|it| place(it).as_str() > query("continue"));
        let mut about = json!({"resourceVersion": revision.to_string()});
        let limit = query("limit").parse().unwrap_or(0);
        if limit > 0 && items.len() > limit {
            about["remainingItemCount"] = (items.len() - limit).into();
            items.truncate(limit);
            about["continue"] = items.last().map(place).into();
        }
        for fields in items.iter_mut().filter_map(Value::as_object_mut) {
            fields.remove("kind");
            fields.remove("apiVersion");
        }
        let list = json!({
            "kind": format!("{}List", target.kind.kind),
            "apiVersion": target.kind.api_version(),
            "metadata": about,
            "items": items,
        });
        Answer::json(200, &list)
    }

    /// Checks that the namespace exists and permits the write, as admission does.
    fn admit(&self, target: &Target, creates: bool) -> Result<(), Answer> {
        if !target.kind.namespaced {
            return Ok(());
        }
        let namespaces = Kind::of("namespaces");
        let Some(found) = self.find("namespaces", "", &target.namespace) else {
            return Err(Answer::not_found(namespaces, &target.namespace));
        };
        if creates && found["status"]["phase"] == "Terminating" {
            let message = format!(
                "{} {:?} is forbidden: unable to create new content in namespace {} because it is \
                 being terminated",
                target.kind.qualified(),
                target.name,
                target.namespace
            );
            let mut about = details(target.kind, &target.name);
            about["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {} is being terminated", target.namespace),
                "field": "metadata.namespace",
            }]);
            return Err(Answer::failure(403, "Forbidden", &message, about));
        }
        Ok(())
    }

    fn read(target: &Target, mut object: Value) -> Result<Value, Answer> {
        decoding::read(target.kind, &mut object).map_err(|it| Answer::bad_request(&it))?;
        if target.kind.plural == "events" {
            rename(&mut object, true);
            object["apiVersion"] = "v1".into();
            for (field, value) in [
                ("firstTimestamp", Value::Null),
                ("lastTimestamp", Value::Null),
                ("source", json!({})),
            ] {
                let fields = object.as_object_mut().expect("an object");
                fields.entry(field).or_insert(value);
            }
        }
        let given = text(&object, "namespace").to_owned();
        if !given.is_empty() && given != target.namespace {
            let words = "the namespace of the provided object does not match the namespace sent on \
                         the request";
            return Err(Answer::bad_request(words));
        }
        if target.kind.namespaced {
            object["metadata"]["namespace"] = target.namespace.clone().into();
        }
        Ok(object)
    }

    pub fn create(
        &mut self,
        target: &Target,
        body: Value,
        writer: &Writer,
    ) -> Result<Answer, Answer> {
        let mut object = Self::read(target, body)?;
        self.admit(target, true)?;
        let prefix = text(&object, "generateName").to_owned();
        if text(&object, "name").is_empty() && !prefix.is_empty() {
            let drawn = uuid::Uuid::new_v4().simple().to_string();
            object["metadata"]["name"] = format!("{prefix}{}", &drawn[..5]).into();
        }
        let name = text(&object, "name").to_owned();
        if name.is_empty() {
            let causes = [(
                "metadata.name".to_owned(),
                "Required value: name or generateName is \
                                                        required"
                    .to_owned(),
            )];
            return Err(Answer::invalid(target.kind, "", &causes));
        }
        if !text(&object, "resourceVersion").is_empty() {
            let words = "resourceVersion should not be set on objects to be created";
            return Err(Answer::failure(500, "", words, Value::Null));
        }
        if self.all.contains_key(&key(target, &name)) {
            return Err(Answer::exists(target.kind, &name));
        }
        Ok(self.make(target, object, &name, writer))
    }

    fn make(&mut self, target: &Target, mut object: Value, name: &str, writer: &Writer) -> Answer {
        object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
        object["metadata"]["creationTimestamp"] = seconds(writer.date).into();
        managed(&mut object, writer);
        let key = key(target, name);
        self.set(key.clone(), Some(object));
        Answer::json(201, &shown(target.kind, &self.all[&key]))
    }

    pub fn update(
        &mut self,
        target: &Target,
        body: Value,
        writer: &Writer,
    ) -> Result<Answer, Answer> {
        let object = Self::read(target, body)?;
        self.admit(target, false)?;
        let name = text(&object, "name").to_owned();
        if name != target.name {
            return Err(Answer::bad_request(&format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                target.name
            )));
        }
        let Some(old) = self.all.get(&key(target, &name)).cloned() else {
            return self.make_by_put(target, object, writer);
        };
        self.compare(target, &object, &old)?;
        let version = text(&object, "resourceVersion");
        if version.is_empty() && !target.kind.unconditional {
            return Err(Answer::without_version(target.kind, &name));
        }
        self.replace(target, object, &old, writer)
    }

    /// Creates a missing object by PUT. A uid is a precondition that a missing object cannot meet;
    /// a resourceVersion is not.
    fn make_by_put(
        &mut self,
        target: &Target,
        mut object: Value,
        writer: &Writer,
    ) -> Result<Answer, Answer> {
        let uid = text(&object, "uid").to_owned();
        if !target.kind.made_by_put {
            return Err(Answer::not_found(target.kind, &target.name));
        }
        if !uid.is_empty() {
            let (namespace, name) = (&target.namespace, &target.name);
            return Err(Answer::another_uid(target.kind, namespace, name, &uid, ""));
        }
        if !writer.may_create {
            let message = format!("{} is forbidden: cannot create", target.kind.qualified());
            return Err(Answer::failure(403, "Forbidden", &message, details(target.kind, "")));
        }
        self.admit(target, true)?;
        object["metadata"].as_object_mut().map(|fields| fields.remove("resourceVersion"));
        let name = target.name.clone();
        Ok(self.make(target, object, &name, writer))
    }

    /// Rejects an object that was made for another uid or version than the stored one.
    fn compare(&self, target: &Target, object: &Value, old: &Value) -> Result<(), Answer> {
        let (sent, found) = (text(object, "uid"), text(old, "uid"));
        if !sent.is_empty() && sent != found {
            let (namespace, name) = (&target.namespace, &target.name);
            return Err(Answer::another_uid(target.kind, namespace, name, sent, found));
        }
        Self::compare_versions(target, text(object, "resourceVersion"), old)
    }

    fn compare_versions(target: &Target, version: &str, old: &Value) -> Result<(), Answer> {
        if version.is_empty() || version == text(old, "resourceVersion") {
            return Ok(());
        }
        if version.parse::<u64>().is_err() {
            return Err(Answer::unread_version(version));
        }
        Err(Answer::conflict(target.kind, &target.name))
    }

    fn replace(
        &mut self,
        target: &Target,
        mut object: Value,
        old: &Value,
        writer: &Writer,
    ) -> Result<Answer, Answer> {
        for field in ["uid", "creationTimestamp", "resourceVersion"] {
            object["metadata"][field] = old["metadata"][field].clone();
        }
        let key = key(target, &target.name);
        if !same(&object, old) {
            managed(&mut object, writer);
            self.set(key.clone(), Some(object));
        }
        Ok(Answer::json(200, &shown(target.kind, &self.all[&key])))
    }

    pub fn patch(
        &mut self,
        target: &Target,
        patch: &Value,
        writer: &Writer,
    ) -> Result<Answer, Answer> {
        let Some(old) = self.all.get(&key(target, &target.name)).cloned() else {
            return Err(Answer::not_found(target.kind, &target.name));
        };
        self.admit(target, false)?;
        let mut object = shown(target.kind, &old);
        merge(&mut object, patch);
        let object = Self::read(target, object)?;
        Self::compare_versions(target, text(&object, "resourceVersion"), &old)?;
        if object["metadata"]["uid"] != old["metadata"]["uid"] {
            let words = format!("Invalid value: {}: field is immutable", object["metadata"]["uid"]);
            let cause = ("metadata.uid".to_owned(), words);
            return Err(Answer::invalid(target.kind, &target.name, &[cause.clone(), cause]));
        }
        self.replace(target, object, &old, writer)
    }

    pub fn delete(&mut self, target: &Target, options: &Value) -> Result<Answer, Answer> {
        let key = key(target, &target.name);
        let Some(old) = self.all.get(&key).cloned() else {
            return Err(Answer::not_found(target.kind, &target.name));
        };
        let asked = &options["preconditions"];
        let (wanted, found) = (asked["uid"].as_str().unwrap_or_default(), text(&old, "uid"));
        if !wanted.is_empty() && wanted != found {
            return Err(Answer::deletion_of_another(target.kind, &target.name, wanted, found));
        }
        let version = asked["resourceVersion"].as_str().unwrap_or_default();
        Self::compare_versions(target, version, &old)?;
        self.set(key, None);
        let mut about = details(target.kind, &target.name);
        about["uid"] = text(&old, "uid").into();
        let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                            "status": "Success", "details": about});
        Ok(Answer::json(200, &status))
    }
}
