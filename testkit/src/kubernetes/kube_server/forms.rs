//! The forms of an object: as stored, as served, merged, compared, and marked with its writer.

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::kinds::Kind;
use super::objects::Writer;

/// Returns a stored object in the form of a kind; Events have two.
pub fn shown(kind: &Kind, object: &Value) -> Value {
    let mut it = object.clone();
    if kind.plural == "events" && !kind.group.is_empty() {
        rename(&mut it, false);
    }
    it["apiVersion"] = kind.api_version().into();
    it
}

/// Renames the fields of an Event that differ between its two groups.
pub fn rename(event: &mut Value, to_core: bool) {
    const NAMES: [(&str, &str); 7] = [
        ("regarding", "involvedObject"),
        ("note", "message"),
        ("reportingController", "reportingComponent"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ];
    let Some(fields) = event.as_object_mut() else { return };
    for (new, core) in NAMES {
        let (from, to) = if to_core { (new, core) } else { (core, new) };
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Applies a JSON merge patch.
pub fn merge(to: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *to = patch.clone();
        return;
    };
    if !to.is_object() {
        *to = Value::Object(Map::new());
    }
    let fields = to.as_object_mut().expect("it was made one");
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Returns whether two objects are equal except for the fields that the server manages.
pub fn same(a: &Value, b: &Value) -> bool {
    let bare = |object: &Value| {
        let mut it = object.clone();
        for field in ["managedFields", "resourceVersion"] {
            it["metadata"].as_object_mut().map(|fields| fields.remove(field));
        }
        it
    };
    bare(a) == bare(b)
}

/// Formats a time as in object metadata, in whole seconds.
pub fn seconds(date: OffsetDateTime) -> String {
    let date = date.replace_nanosecond(0).expect("zero is in range");
    date.format(&time::format_description::well_known::Rfc3339).expect("a date in range")
}

/// Records the last writer in `managedFields`.
pub fn managed(object: &mut Value, writer: &Writer) {
    let manager = writer.agent.split('/').next().unwrap_or_default();
    let manager = if manager.is_empty() { "unknown" } else { manager };
    object["metadata"]["managedFields"] = json!([{
        "manager": manager,
        "operation": "Update",
        "apiVersion": object["apiVersion"],
        "time": seconds(writer.date),
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {}},
    }]);
}
