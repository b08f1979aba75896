//! The messages of etcd's JSON gateway: bytes are base64, and 64-bit numbers are strings. A field that
//! is zero, false or empty is left out.
//!
//! Every answer has a header with the id of the cluster. One without is not of etcd, however much it
//! looks like a lock that is free.

use std::str::FromStr;

use azure_core::base64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::store::json::Bytes;

/// A number in an answer: a string, or a number where it has 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Number<T>(pub(super) T);

impl<'de, T: FromStr> Deserialize<'de> for Number<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            _ => return Err(D::Error::custom("not a number")),
        };
        text.parse().map(Self).map_err(|_| D::Error::custom("not a number of this size"))
    }
}

/// What every answer begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Header {
    pub(super) cluster_id: Number<u64>,
    /// The revision of the key space; absent in answers that do not concern it.
    #[serde(default)]
    pub(super) revision: Number<i64>,
}

/// An answer.
#[derive(Debug, Deserialize)]
pub(super) struct Answer<T> {
    pub(super) header: Header,
    #[serde(flatten)]
    pub(super) rest: T,
}

/// A key, its value, and what etcd knows of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    /// The revision at which it was last written.
    pub(super) mod_revision: Number<i64>,
}

/// The answer to a range.
#[derive(Debug, Deserialize)]
pub(super) struct Range {
    #[serde(default)]
    pub(super) kvs: Vec<KeyValue>,
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct Txn {
    /// Whether the comparisons held, so that everything was written.
    #[serde(default)]
    pub(super) succeeded: bool,
}

/// The answer to a sign-in.
#[derive(Debug, Deserialize)]
pub(super) struct SignedIn {
    pub(super) token: String,
}

/// One message of a stream: a result or an error.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed {
    pub(super) result: Option<Answer<Watched>>,
    pub(super) error: Option<Value>,
}

/// A message of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Watched {
    #[serde(default)]
    pub(super) canceled: bool,
    #[serde(default)]
    pub(super) events: Vec<Event>,
}

/// A change of a key.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    #[serde(rename = "type")]
    kind: String,
    kv: KeyValue,
}

impl Event {
    /// Returns the value that was written; `None` if the key was deleted.
    pub(super) fn into_value(self) -> Option<Vec<u8>> {
        (self.kind != "DELETE").then_some(self.kv.value.0)
    }
}

/// One key.
pub(super) fn only(key: &str) -> Value {
    json!({"key": base64::encode(key)})
}

/// The names of the first keys of a folder, which ends with a slash.
pub(super) fn names(folder: &str, most: usize) -> Value {
    // The first key behind all of this folder.
    let end = format!("{}0", folder.trim_end_matches('/'));
    let (key, end) = (base64::encode(folder), base64::encode(end));
    json!({"key": key, "range_end": end, "keys_only": true, "limit": most.to_string()})
}

/// A comparison that holds if the key does not exist.
pub(super) fn is_absent(key: &str) -> Value {
    json!({"target": "CREATE", "key": base64::encode(key), "create_revision": "0"})
}

/// A comparison that holds if the key was last written at this revision.
pub(super) fn is_at(key: &str, revision: &str) -> Value {
    json!({"target": "MOD", "key": base64::encode(key), "mod_revision": revision})
}

/// A comparison that holds if the key has this value, in base64.
pub(super) fn is_value(key: &str, value: &str) -> Value {
    json!({"target": "VALUE", "key": base64::encode(key), "value": value})
}

/// Writes a value, in base64.
pub(super) fn put(key: &str, value: &str) -> Value {
    json!({"request_put": {"key": base64::encode(key), "value": value}})
}

/// Deletes a key.
pub(super) fn delete(key: &str) -> Value {
    json!({"request_delete_range": {"key": base64::encode(key)}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_strings_and_zero_is_left_out() {
        let text = r#"{"header":{"cluster_id":"10144879847569953045","revision":"3","raft_term":"2"},
            "kvs":[{"key":"L2E=","create_revision":"2","mod_revision":"3","version":"2","value":"eHg=",
            "lease":"1234567890123456789"},{"key":"L2I="}],"count":"2"}"#;
        let read: Answer<Range> = serde_json::from_str(text).unwrap();
        assert_eq!(read.header.cluster_id, Number(10_144_879_847_569_953_045));
        let [first, second] = &read.rest.kvs[..] else { panic!("{read:?}") };
        assert_eq!((first.key.0.as_slice(), first.value.0.as_slice()), (&b"/a"[..], &b"xx"[..]));
        assert_eq!((first.mod_revision, second.mod_revision), (Number(3), Number(0)));
        let text = r#"{"header":{"cluster_id":7,"revision":"9"}}"#;
        let read: Answer<Txn> = serde_json::from_str(text).unwrap();
        assert_eq!((read.header.cluster_id, read.header.revision), (Number(7), Number(9)));
        assert!(!read.rest.succeeded);
    }

    #[test]
    fn an_answer_without_a_cluster_is_none_of_etcd() {
        for text in ["{}", r#"{"header":{}}"#, r#"{"header":{"cluster_id":"x"}}"#, "[]", "null"] {
            assert!(serde_json::from_str::<Answer<Range>>(text).is_err(), "{text}");
            assert!(serde_json::from_str::<Answer<Txn>>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_events_of_a_watch_are_writes_and_deletions() {
        let text = r#"{"result":{"header":{"cluster_id":"1","revision":"4"},"events":[
            {"kv":{"key":"L2E=","value":"eHg="}},{"type":"DELETE","kv":{"key":"L2E=","mod_revision":"4"}}]}}"#;
        let read: Streamed = serde_json::from_str(text).unwrap();
        let events = read.result.unwrap().rest.events;
        let values: Vec<_> = events.into_iter().map(Event::into_value).collect();
        assert_eq!(values, [Some(b"xx".to_vec()), None]);
    }
}
