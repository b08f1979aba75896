//! The requests and answers of Consul's HTTP API.

use azure_core::base64;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::store::json::Bytes;

/// A key, its value, and what Consul knows of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entry {
    pub(super) key: String,
    /// `None` if it is empty.
    #[serde(default)]
    value: Option<Bytes>,
    /// The index of the last write.
    pub(super) modify_index: u64,
}

impl Entry {
    pub(super) fn into_value(self) -> Vec<u8> {
        self.value.unwrap_or_default().0
    }
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Txn {
    pub(super) results: Option<Vec<Done>>,
    pub(super) errors: Option<Vec<Undone>>,
}

/// An operation that was done.
#[derive(Debug, Deserialize)]
pub(super) struct Done {
    #[serde(rename = "KV")]
    pub(super) kv: Option<Entry>,
}

/// Why an operation was not done.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Undone {
    #[serde(default)]
    pub(super) op_index: usize,
    pub(super) what: String,
}

/// Writes a key that was last written at this index; 0 if there is none.
pub(super) fn cas(key: &str, value: &[u8], index: u64) -> Value {
    json!({"KV": {"Verb": "cas", "Key": key, "Value": base64::encode(value), "Index": index}})
}

/// Writes a key.
pub(super) fn set(key: &str, value: &[u8]) -> Value {
    json!({"KV": {"Verb": "set", "Key": key, "Value": base64::encode(value)}})
}

/// Deletes a key.
pub(super) fn delete(key: &str) -> Value {
    json!({"KV": {"Verb": "delete", "Key": key}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_an_index_and_may_have_no_value() {
        let text = r#"[{"LockIndex":1,"Key":"t/o/lease","Flags":0,"Value":null,"CreateIndex":15,"ModifyIndex":16}]"#;
        let read: Vec<Entry> = serde_json::from_str(text).unwrap();
        let expected = Entry { key: "t/o/lease".to_owned(), modify_index: 16, ..Entry::default() };
        assert_eq!(read, [expected]);
        for text in ["{}", r#"[{"Key":"k"}]"#, r#"[{"Key":"k","ModifyIndex":"1"}]"#, "null"] {
            assert!(serde_json::from_str::<Vec<Entry>>(text).is_err(), "{text}");
        }
    }
}
