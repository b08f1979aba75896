//! The few objects of Kubernetes that we read or write, and of each the few fields that we know.
//!
//! What it does not do: it drops nothing. What we do not know of an object that we write back is
//! kept in a `rest`, so that a PUT loses nothing. Formats are those of the wire; what a field means
//! is for whoever reads it.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::OffsetDateTime;

/// What a kind of object is called in paths, in objects and in rules of access.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// Where its API begins, without slashes at the ends: `api/v1`, `apis/GROUP/VERSION`.
    pub api: &'static str,
    /// The group, empty for the core.
    pub group: &'static str,
    /// As objects and people name it: `Lease`.
    pub kind: &'static str,
    /// As paths and rules name it: `leases`.
    pub plural: &'static str,
    /// The verbs that Tenure needs of it, for `kubectl create role --verb=…`.
    pub verbs: &'static str,
}

impl Resource {
    /// The value of `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> &'static str {
        self.api.trim_start_matches("apis/").trim_start_matches("api/")
    }

    /// The resource as `kubectl create role --resource=…` takes it.
    pub(super) fn in_rules(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }
}

/// An object of one kind.
pub trait Kind: Serialize + DeserializeOwned + Send {
    /// What it is called.
    const RESOURCE: Resource;

    /// Its metadata.
    fn metadata(&self) -> &Metadata;
}

macro_rules! kind {
    ($type:ident, $api:literal, $group:literal, $plural:literal, $verbs:literal) => {
        impl Kind for $type {
            const RESOURCE: Resource = Resource {
                api: $api,
                group: $group,
                kind: stringify!($type),
                plural: $plural,
                verbs: $verbs,
            };

            fn metadata(&self) -> &Metadata {
                &self.metadata
            }
        }
    };
}

kind!(
    Lease,
    "apis/coordination.k8s.io/v1",
    "coordination.k8s.io",
    "leases",
    "get,create,update,watch"
);
kind!(Pod, "api/v1", "", "pods", "get,list,patch");
kind!(Service, "api/v1", "", "services", "get");
kind!(
    EndpointSlice,
    "apis/discovery.k8s.io/v1",
    "discovery.k8s.io",
    "endpointslices",
    "get,create,update"
);
kind!(Event, "apis/events.k8s.io/v1", "events.k8s.io", "events", "create");
kind!(
    SelfSubjectAccessReview,
    "apis/authorization.k8s.io/v1",
    "authorization.k8s.io",
    "selfsubjectaccessreviews",
    "create"
);

/// What every object bears.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name; empty where the server is to make one of `generateName` in `rest`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace; empty for what is in none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Another for an object that was deleted and made again; empty before it is made.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Another after each change; a PUT with one that is not the newest is refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What else there is.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Metadata {
    /// The metadata of an object to be made.
    #[must_use]
    pub fn named(namespace: &str, name: &str) -> Self {
        Self { name: name.to_owned(), namespace: namespace.to_owned(), ..Self::default() }
    }
}

/// A Lease of coordination.k8s.io.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Its metadata, with our record among the annotations.
    pub metadata: Metadata,
    /// Who holds it.
    pub spec: LeaseSpec,
    /// What else there is.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// Who holds a Lease, in the fields of client-go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// The holder; absent or empty when it is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// How long observers wait after the last change that they saw, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// Since when it is the holder, by the holder's wall clock, as [`micro_time`] writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<String>,
    /// When the holder last renewed, by its wall clock, as [`micro_time`] writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<String>,
    /// How often the holder has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
    /// What else there is.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A Pod: it is only ever patched, so that what we do not know of it is not kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Its metadata.
    pub metadata: Metadata,
    /// Where it runs.
    pub spec: PodSpec,
}

/// Of a Pod what an EndpointSlice with it may tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// A Service: it is only ever read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Its metadata.
    pub metadata: Metadata,
    /// Its selector and ports.
    pub spec: ServiceSpec,
}

/// Of a Service what an EndpointSlice for it must know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    /// Which pods it chooses by itself; empty where its endpoints are others' to write.
    pub selector: BTreeMap<String, String>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
}

/// One port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Its name, where there is more than one.
    pub name: Option<String>,
    /// `TCP` where nothing else is said.
    pub protocol: Option<String>,
    /// Its number at the Service's own address.
    pub port: i32,
    /// Its number, or its name, at the pod.
    pub target_port: Option<Value>,
    /// What is spoken there.
    pub app_protocol: Option<String>,
}

/// Addresses behind a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Its metadata.
    pub metadata: Metadata,
    /// `IPv4` or `IPv6`; cannot be changed.
    pub address_type: String,
    /// The addresses.
    #[serde(deserialize_with = "or_none")]
    pub endpoints: Vec<Endpoint>,
    /// The ports at each of them.
    #[serde(deserialize_with = "or_none")]
    pub ports: Vec<EndpointPort>,
    /// What else there is.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One address behind a Service, as we write it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// One address.
    pub addresses: Vec<String>,
    /// Whether it takes requests.
    pub conditions: BTreeMap<String, bool>,
    /// The Pod behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<ObjectReference>,
    /// The node that it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// One port of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointPort {
    /// The name of the Service's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `TCP` where nothing else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// What is spoken there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// Which object is meant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// The version of its API.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, where known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// Something that happened, for `kubectl describe`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// Its metadata; an Event is in the namespace of what it regards.
    pub metadata: Metadata,
    /// When, as [`micro_time`] writes it.
    pub event_time: String,
    /// Who tells it, as a qualified name: at most 128 characters.
    pub reporting_controller: String,
    /// Which one of those: at most 128 characters.
    pub reporting_instance: String,
    /// What was done, in one word of at most 128 characters.
    pub action: String,
    /// Why, in one word of at most 128 characters.
    pub reason: String,
    /// What it is about.
    pub regarding: ObjectReference,
    /// In words, at most 1024 bytes.
    pub note: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A question to the server: may we do this?
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelfSubjectAccessReview {
    /// Its metadata, which stay empty.
    pub metadata: Metadata,
    /// The question.
    pub spec: AccessSpec,
    /// The answer.
    #[serde(skip_serializing)]
    pub status: AccessStatus,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessSpec {
    /// Verb, group, resource, namespace and name.
    pub resource_attributes: BTreeMap<String, String>,
}

/// The answer to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessStatus {
    /// Whether we may.
    pub allowed: bool,
}

/// Reads a list that the server may write as `null` where it is empty.
fn or_none<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    value: D,
) -> Result<Vec<T>, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// Writes a point in time as `MicroTime` wants it: UTC with six digits after the second.
#[must_use]
pub fn micro_time(at: OffsetDateTime) -> String {
    let at = at.to_offset(time::UtcOffset::UTC);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.microsecond()
    )
}

/// Reads a point in time as any client may have written it; `None` where it is none.
#[must_use]
pub fn read_time(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()
}

#[cfg(test)]
mod tests;
