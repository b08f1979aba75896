//! The requests and answers of Consul's HTTP API.

use std::time::Duration;

use azure_core::base64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::store::json::Bytes;

/// The longest TTL of a session.
const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time for which Consul keeps a lock from others after its session has ended.
const LONGEST_LOCK_DELAY: Duration = Duration::from_secs(60);

/// A key, its value, and what Consul knows of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entry {
    pub(super) key: String,
    /// `None` if it is empty.
    #[serde(default)]
    pub(super) value: Option<Bytes>,
    /// The session that has the lock.
    #[serde(default)]
    pub(super) session: Option<String>,
    /// The index of the last write, to which taking and losing the lock count.
    pub(super) modify_index: u64,
}

fn uuid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Uuid, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(|_| D::Error::custom("not a UUID"))
}

/// A session.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Session {
    #[serde(rename = "ID", deserialize_with = "uuid")]
    pub(super) id: Uuid,
    /// The agent that it was created at.
    #[serde(default)]
    pub(super) node: String,
    /// As it was created with; empty for none.
    #[serde(rename = "TTL", default)]
    pub(super) ttl: String,
    /// In nanoseconds.
    #[serde(default)]
    pub(super) lock_delay: u64,
}

impl Session {
    /// Returns the TTL, or a longer time if it is not in seconds; `None` if it has none.
    pub(super) fn ttl(&self) -> Option<Duration> {
        match self.ttl.strip_suffix('s').map(str::parse) {
            _ if self.ttl.is_empty() => None,
            Some(Ok(0)) => None,
            Some(Ok(seconds)) => Some(Duration::from_secs(seconds)),
            _ => Some(LONGEST_TTL),
        }
    }

    pub(super) fn lock_delay(&self) -> Duration {
        Duration::from_nanos(self.lock_delay).min(LONGEST_LOCK_DELAY)
    }
}

/// The answer to the creation of a session.
#[derive(Deserialize)]
pub(super) struct Created {
    #[serde(rename = "ID", deserialize_with = "uuid")]
    pub(super) id: Uuid,
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
    pub(super) what: String,
}

/// Returns a new session that ends this long after its last renewal, at the earliest. No health check ends it:
/// those of an agent fail while its candidate is alive. If it ends in another way than by a release, Consul
/// keeps the lock from others as long again.
pub(super) fn session(name: &str, ttl: Duration) -> Value {
    let seconds = |it: Duration| format!("{}s", it.as_secs());
    json!({
        "Name": name,
        "TTL": seconds(ttl),
        "LockDelay": seconds(ttl.min(LONGEST_LOCK_DELAY)),
        "Behavior": "release",
        "NodeChecks": [],
        "ServiceChecks": [],
        // How versions before 1.7 are told so.
        "Checks": [],
    })
}

/// Checks that a key was last written at this index; 0 if there is none.
pub(super) fn is_at(key: &str, index: u64) -> Value {
    match index {
        0 => json!({"KV": {"Verb": "check-not-exists", "Key": key}}),
        _ => json!({"KV": {"Verb": "check-index", "Key": key, "Index": index}}),
    }
}

/// Writes a key and takes its lock.
pub(super) fn lock(key: &str, value: &[u8], session: Uuid) -> Value {
    under("lock", key, value, session)
}

/// Writes a key and gives its lock back.
pub(super) fn unlock(key: &str, value: &[u8], session: Uuid) -> Value {
    under("unlock", key, value, session)
}

fn under(verb: &str, key: &str, value: &[u8], session: Uuid) -> Value {
    let (value, session) = (base64::encode(value), session.to_string());
    json!({"KV": {"Verb": verb, "Key": key, "Value": value, "Session": session}})
}

/// Writes a key; its lock stays.
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
    fn a_session_lasts_as_long_as_its_lock_delay_up_to_a_minute() {
        for (ttl, lock_delay) in [(10, "10s"), (60, "60s"), (61, "60s"), (86_400, "60s")] {
            let made = session("x", Duration::from_secs(ttl));
            assert_eq!(made["TTL"], format!("{ttl}s"));
            assert_eq!(made["LockDelay"], lock_delay);
            assert_eq!((&made["NodeChecks"], &made["ServiceChecks"]), (&json!([]), &json!([])));
            assert_eq!(made["Behavior"], "release", "the record is never deleted");
        }
    }

    #[test]
    fn the_ttl_of_a_session_is_never_taken_for_a_shorter_one() {
        let of = |ttl: &str| {
            let body =
                json!({"ID": Uuid::nil().to_string(), "TTL": ttl, "LockDelay": 15_000_000_000_u64});
            let it: Session = serde_json::from_value(body).unwrap();
            assert_eq!(it.lock_delay(), Duration::from_secs(15));
            it.ttl()
        };
        assert_eq!(of("15s"), Some(Duration::from_secs(15)));
        for endless in ["", "0s"] {
            assert_eq!(of(endless), None);
        }
        for other in ["1m", "1m0s", "1500ms", "1.5s", "x"] {
            assert_eq!(of(other), Some(LONGEST_TTL), "{other}");
        }
    }

    #[test]
    fn a_key_without_a_lock_has_no_session_and_one_without_a_value_none() {
        let text = r#"[{"LockIndex":1,"Key":"t/o/lease","Flags":0,"Value":null,"CreateIndex":15,"ModifyIndex":16}]"#;
        let read: Vec<Entry> = serde_json::from_str(text).unwrap();
        let expected = Entry { key: "t/o/lease".to_owned(), modify_index: 16, ..Entry::default() };
        assert_eq!(read, [expected]);
        for text in ["{}", r#"[{"Key":"k"}]"#, r#"[{"Key":"k","ModifyIndex":"1"}]"#, "null"] {
            assert!(serde_json::from_str::<Vec<Entry>>(text).is_err(), "{text}");
        }
    }
}
