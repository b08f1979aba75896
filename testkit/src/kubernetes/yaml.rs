//! YAML as JSON values. Tags and keys that are not strings are not supported; Kubernetes has
//! neither.

use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

/// Parses all documents of a text, except for empty ones.
pub fn documents(text: &str) -> Vec<Value> {
    let found = YamlLoader::load_from_str(text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    found.iter().map(value).filter(|it| !it.is_null()).collect()
}

/// Parses the only document of a text.
pub fn document(text: &str) -> Value {
    let mut found = documents(text);
    assert_eq!(found.len(), 1, "{text}");
    found.remove(0)
}

fn value(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Null | Yaml::BadValue | Yaml::Alias(_) => Value::Null,
        Yaml::Boolean(it) => (*it).into(),
        Yaml::Integer(it) => (*it).into(),
        Yaml::Real(it) => it.parse::<f64>().unwrap().into(),
        Yaml::String(it) => it.as_str().into(),
        Yaml::Array(all) => all.iter().map(value).collect(),
        Yaml::Hash(all) => {
            let entry = |(key, it): (&Yaml, &Yaml)| (key.as_str().unwrap().to_owned(), value(it));
            Value::Object(all.iter().map(entry).collect::<Map<_, _>>())
        }
    }
}
