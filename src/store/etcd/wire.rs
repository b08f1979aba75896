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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Header {
    pub(super) cluster_id: Number<u64>,
    /// The revision of the key space; absent in answers that do not concern it.
    #[serde(default)]
    pub(super) revision: Number<i64>,
}

/// A key, its value, and what etcd knows of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub(super) key: Bytes,
    pub(super) value: Bytes,
    /// The revision at which the key last came into being.
    pub(super) create_revision: Number<i64>,
    /// The revision at which it was last written.
    pub(super) mod_revision: Number<i64>,
    /// The lease that deletes the key when it ends; 0 for none.
    pub(super) lease: Number<i64>,
}

/// The answer to a range.
#[derive(Debug, Deserialize)]
pub(super) struct Range {
    pub(super) header: Header,
    #[serde(default)]
    pub(super) kvs: Vec<KeyValue>,
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct Txn {
    pub(super) header: Header,
    /// Whether the comparisons held, so that the requests of `success` were performed.
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    responses: Vec<TxnPart>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TxnPart {
    response_range: Option<TxnRange>,
}

/// The range of a transaction has no header of its own cluster.
#[derive(Debug, Deserialize)]
struct TxnRange {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

impl Txn {
    /// Returns what the range in the transaction found.
    pub(super) fn into_range(self) -> Range {
        let found = self.responses.into_iter().find_map(|it| it.response_range);
        Range { header: self.header, kvs: found.map(|it| it.kvs).unwrap_or_default() }
    }
}

/// The answer to a request about a lease.
#[derive(Debug, Deserialize)]
pub(super) struct LeaseAnswer {
    #[serde(rename = "header")]
    _header: Header,
    #[serde(rename = "ID", default)]
    pub(super) id: Number<i64>,
    /// In seconds: what was granted, or what is left; not positive for a lease that does not exist.
    #[serde(rename = "TTL", default)]
    pub(super) ttl: Number<i64>,
}

/// The answer to a request of which only the header counts.
#[derive(Debug, Deserialize)]
pub(super) struct Plain {
    #[serde(rename = "header")]
    _header: Header,
}

/// The answer to a sign-in.
#[derive(Debug, Deserialize)]
pub(super) struct SignedIn {
    #[serde(rename = "header")]
    _header: Header,
    pub(super) token: String,
}

/// One message of a stream: a result or an error.
#[derive(Debug, Deserialize)]
pub(super) struct Streamed<T> {
    pub(super) result: Option<T>,
    pub(super) error: Option<Value>,
}

/// A message of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Watched {
    pub(super) header: Header,
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
    pub(super) kv: KeyValue,
}

impl Event {
    /// Returns whether the key was deleted, by a request or with its lease.
    pub(super) fn is_deletion(&self) -> bool {
        self.kind == "DELETE"
    }
}

/// The keys from `first` up to and without `end`.
pub(super) fn range(first: &str, end: &str) -> Value {
    json!({"key": base64::encode(first), "range_end": base64::encode(end)})
}

/// A comparison that holds if the key does not exist.
pub(super) fn is_absent(key: &str) -> Value {
    json!({"target": "CREATE", "key": base64::encode(key), "create_revision": "0"})
}

/// A comparison that holds if the key was last written at this revision; 0 if it does not exist.
pub(super) fn is_at(key: &str, revision: i64) -> Value {
    let revision = revision.to_string();
    json!({"target": "MOD", "key": base64::encode(key), "mod_revision": revision})
}

/// Writes a key that belongs to no lease.
pub(super) fn put(key: &str, value: &[u8]) -> Value {
    json!({"request_put": {"key": base64::encode(key), "value": base64::encode(value)}})
}

/// Writes a key that ends with a lease.
pub(super) fn put_under(key: &str, value: &[u8], lease: i64) -> Value {
    let (key, value) = (base64::encode(key), base64::encode(value));
    json!({"request_put": {"key": key, "value": value, "lease": lease.to_string()}})
}

/// Writes the value of a key that exists, and keeps its lease.
pub(super) fn replace(key: &str, value: &[u8]) -> Value {
    let (key, value) = (base64::encode(key), base64::encode(value));
    json!({"request_put": {"key": key, "value": value, "ignore_lease": true}})
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
        let read: Range = serde_json::from_str(text).unwrap();
        assert_eq!(read.header.cluster_id, Number(10_144_879_847_569_953_045));
        let first = &read.kvs[0];
        assert_eq!((first.key.0.as_slice(), first.value.0.as_slice()), (&b"/a"[..], &b"xx"[..]));
        assert_eq!((first.create_revision, first.mod_revision), (Number(2), Number(3)));
        assert_eq!(first.lease, Number(1_234_567_890_123_456_789));
        assert_eq!(read.kvs[1].lease, Number(0));
        let gone: LeaseAnswer =
            serde_json::from_str(r#"{"header":{"cluster_id":"1"},"ID":"5"}"#).unwrap();
        assert_eq!((gone.id, gone.ttl), (Number(5), Number(0)));
        let left: LeaseAnswer =
            serde_json::from_str(r#"{"header":{"cluster_id":"1"},"ID":"5","TTL":"-1"}"#).unwrap();
        assert_eq!(left.ttl, Number(-1));
    }

    #[test]
    fn numbers_of_32_bits_are_numbers() {
        let header: Header = serde_json::from_str(r#"{"cluster_id":7,"revision":"9"}"#).unwrap();
        assert_eq!((header.cluster_id, header.revision), (Number(7), Number(9)));
    }

    #[test]
    fn an_answer_without_a_cluster_is_none_of_etcd() {
        for text in ["{}", r#"{"header":{}}"#, r#"{"header":{"cluster_id":"x"}}"#, "[]", "null"] {
            assert!(serde_json::from_str::<Range>(text).is_err(), "{text}");
            assert!(serde_json::from_str::<Txn>(text).is_err(), "{text}");
            assert!(serde_json::from_str::<LeaseAnswer>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_transaction_shows_what_its_range_found() {
        let text = r#"{"header":{"cluster_id":"1","revision":"3"},"succeeded":true,"responses":[
            {"response_put":{"header":{"revision":"3"}}},
            {"response_range":{"header":{"revision":"3"},"kvs":[{"key":"L2E="}],"count":"1"}}]}"#;
        let txn: Txn = serde_json::from_str(text).unwrap();
        assert!(txn.succeeded);
        assert_eq!(txn.into_range().kvs.len(), 1);
        let text = r#"{"header":{"cluster_id":"1"},"responses":[{"response_range":{}}]}"#;
        let txn: Txn = serde_json::from_str(text).unwrap();
        assert!(!txn.succeeded && txn.into_range().kvs.is_empty());
    }

    #[test]
    fn the_events_of_a_watch_are_writes_and_deletions() {
        let text = r#"{"result":{"header":{"cluster_id":"1","revision":"4"},"events":[
            {"kv":{"key":"L2E="}},{"type":"DELETE","kv":{"key":"L2E=","mod_revision":"4"}}]}}"#;
        let read: Streamed<Watched> = serde_json::from_str(text).unwrap();
        let events = read.result.unwrap().events;
        assert_eq!(events.iter().map(Event::is_deletion).collect::<Vec<_>>(), [false, true]);
    }
}
