//! The record of a leadership in JSON, as the stores write it that keep it in a value of their own.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::lease::{Candidate, Nonce, Record, Successor};

/// The largest term that is written: one above would have no successor.
pub(super) const LARGEST_TERM: u64 = u64::MAX - 1;

/// The candidate that wrote the term.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredHolder {
    identity: String,
    instance: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peer: Option<String>,
}

impl StoredHolder {
    pub(super) fn of(candidate: &Candidate) -> Self {
        let Candidate { identity, instance, address, peer } = candidate.clone();
        let [address, peer] = [address, peer].map(named);
        Self { identity, instance, address, peer }
    }
}

/// The successor that it named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredSuccessor {
    identity: String,
    hold_off_ms: u64,
}

impl StoredSuccessor {
    pub(super) fn of(successor: &Successor) -> Self {
        Self { identity: successor.identity.clone(), hold_off_ms: successor.hold_off_millis() }
    }
}

/// Bytes in the answer of a server, as base64.
#[cfg(any(feature = "consul", feature = "etcd"))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

#[cfg(any(feature = "consul", feature = "etcd"))]
impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        azure_core::base64::decode(text)
            .map(Self)
            .map_err(|_| <D::Error as serde::de::Error>::custom("not base64"))
    }
}

/// The marker alone, read first to tell a newer format from a value of something else.
#[derive(Deserialize)]
struct Marker {
    tenure: u64,
}

pub(super) fn encode(value: &impl Serialize) -> Vec<u8> {
    // Text and numbers always have a form in JSON.
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reads a value whose field `tenure` has this format, or returns what is wrong with it, to follow its name.
pub(super) fn decode<T: DeserializeOwned>(value: &[u8], format: u64) -> Result<T, String> {
    let corrupt = |error| format!("is corrupt or was not written by Tenure ({error})");
    let Marker { tenure } = serde_json::from_slice(value).map_err(corrupt)?;
    if tenure != format {
        let by = if tenure < format { "an earlier" } else { "a later" };
        return Err(format!(
            "has format {tenure} of {by} version, but this version supports format {format} alone"
        ));
    }
    serde_json::from_slice(value).map_err(corrupt)
}

/// Takes an empty address for none.
fn named(address: Option<String>) -> Option<String> {
    address.filter(|it| !it.is_empty())
}

/// Puts the parts of a record together, or returns what is wrong with them.
pub(super) fn record(
    term: Option<u64>,
    nonce: Option<&str>,
    holder: Option<StoredHolder>,
    successor: Option<StoredSuccessor>,
) -> Result<Record, String> {
    if nonce.is_none() && (holder.is_some() || successor.is_some()) {
        return Err("names a holder or a successor without a nonce".to_owned());
    }
    let holder = holder.map(|it| {
        let StoredHolder { identity, instance, address, peer } = it;
        let [address, peer] = [address, peer].map(named);
        Arc::new(Candidate { identity, instance, address, peer })
    });
    let successor = successor.and_then(|it| Successor::recorded(&it.identity, it.hold_off_ms));
    Ok(Record { term, holder, nonce: nonce.map(self::nonce).transpose()?, successor })
}

pub(super) fn nonce(text: &str) -> Result<Nonce, String> {
    text.parse().map_err(|_| "has a nonce that is not hexadecimal".to_owned())
}
