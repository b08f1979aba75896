//! Label and field selectors in a query.

use serde_json::Value;

/// The supported fields; any other is an error.
const FIELDS: [&str; 10] = [
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "status.phase",
    "status.podIP",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
    "reason",
];

/// Selects objects by labels and fields.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    /// The values that match; `None` matches any value.
    values: Option<Vec<String>>,
    /// Whether the requirement is negated; a missing label matches then.
    not: bool,
}

impl Selector {
    /// Parses both selectors; the error has the wording of the API server.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, String> {
        let labels = split(labels).into_iter().map(|it| requirement(&it)).collect();
        let mut read = Vec::new();
        for term in fields.split(',').filter(|it| !it.is_empty()) {
            let (field, value) = term.split_once('=').ok_or("invalid selector")?;
            let (field, equal) = match field.strip_suffix('!') {
                Some(field) => (field, false),
                None => (field, true),
            };
            if !FIELDS.contains(&field) {
                return Err(format!(
                    "{field:?} is not a known field selector: only \"metadata.name\", \
                     \"metadata.namespace\""
                ));
            }
            read.push((field.to_owned(), equal, value.trim_start_matches('=').to_owned()));
        }
        Ok(Self { labels, fields: read })
    }

    /// Returns whether an object matches.
    pub fn fits(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let by_label = self.labels.iter().all(|it| {
            let found = labels[&it.key].as_str();
            let fits = match &it.values {
                None => found.is_some(),
                Some(values) => found.is_some_and(|it| values.iter().any(|value| value == it)),
            };
            fits != it.not
        });
        by_label
            && self.fields.iter().all(|(field, equal, value)| {
                let found = field.split('.').fold(object, |object, part| &object[part]);
                (found.as_str().unwrap_or_default() == value) == *equal
            })
    }
}

/// Splits at the commas that are not in parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in text.chars() {
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => {
                depth += i32::from(letter == '(') - i32::from(letter == ')');
                parts.last_mut().expect("there is one").push(letter);
            }
        }
    }
    parts.into_iter().map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect()
}

fn requirement(text: &str) -> Requirement {
    let one = |key: &str, value: &str, not: bool| {
        let (key, values) = (key.trim().to_owned(), Some(vec![value.trim().to_owned()]));
        Requirement { key, values, not }
    };
    let set = |key: &str, list: &str, not: bool| {
        let list = list.trim().trim_start_matches('(').trim_end_matches(')');
        let values = Some(list.split(',').map(|it| it.trim().to_owned()).collect());
        Requirement { key: key.trim().to_owned(), values, not }
    };
    if let Some((key, list)) = text.split_once(" notin ") {
        set(key, list, true)
    } else if let Some((key, list)) = text.split_once(" in ") {
        set(key, list, false)
    } else if let Some((key, value)) = text.split_once("!=") {
        one(key, value, true)
    } else if let Some((key, value)) = text.split_once("==") {
        one(key, value, false)
    } else if let Some((key, value)) = text.split_once('=') {
        one(key, value, false)
    } else {
        let (key, not) = match text.strip_prefix('!') {
            Some(key) => (key, true),
            None => (text, false),
        };
        Requirement { key: key.trim().to_owned(), values: None, not }
    }
}
