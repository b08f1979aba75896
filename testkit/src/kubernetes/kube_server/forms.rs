//! The content of objects: merged, compared and selected.

use serde_json::{Map, Value};

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

/// Returns whether two objects are equal except for the version.
pub fn same(a: &Value, b: &Value) -> bool {
    let bare = |object: &Value| {
        let mut it = object.clone();
        it["metadata"].as_object_mut().map(|fields| fields.remove("resourceVersion"));
        it
    };
    bare(a) == bare(b)
}

/// Selects objects by labels and by name, the only selectors that Tenure uses.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<(String, String)>,
    name: Option<String>,
}

impl Selector {
    /// Parses the selectors `KEY=VALUE,…` and `metadata.name=NAME`.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, String> {
        let pair = |it: &str| -> Result<(String, String), String> {
            let (key, value) = it.split_once('=').ok_or("the stand-in knows only KEY=VALUE")?;
            Ok((key.to_owned(), value.to_owned()))
        };
        let read = |text: &str| {
            text.split(',')
                .filter(|it| !it.is_empty())
                .map(pair)
                .collect::<Result<Vec<_>, String>>()
        };
        let name = match read(fields)?.pop() {
            Some((field, name)) if field == "metadata.name" => Some(name),
            Some((field, _)) => {
                return Err(format!("the stand-in does not know the field {field}"));
            }
            None => None,
        };
        Ok(Self { labels: read(labels)?, name })
    }

    /// Returns whether an object matches.
    pub fn fits(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.labels.iter().all(|(key, value)| labels[key] == value.as_str())
            && self.name.as_ref().is_none_or(|it| text(object, "name") == it)
    }
}
