//! The Kubernetes objects that Tenure reads or writes, with the fields it uses.
//!
//! Fields that it does not know are kept in `rest` for objects that are written back, so that a PUT
//! loses nothing. Formats are those of the wire.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use time::{OffsetDateTime, UtcOffset};

/// The names of a kind of object in paths, objects and RBAC rules.
#[derive(Clone, Copy, Debug)]
pub struct Resource {
    /// The prefix of its API, without slashes at the ends: `api/v1`, `apis/GROUP/VERSION`.
    pub api: &'static str,
    /// The group, empty for the core.
    pub group: &'static str,
    /// The kind, as in objects: `Lease`.
    pub kind: &'static str,
    /// The plural, as in paths and rules: `leases`.
    pub plural: &'static str,
    /// The verbs that Tenure needs, for `kubectl create role --verb=…`.
    pub verbs: &'static str,
}

impl Resource {
    /// Returns the value of `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> &'static str {
        self.api.trim_start_matches("apis/").trim_start_matches("api/")
    }

    /// Returns the resource as `kubectl create role --resource=…` takes it.
    pub(super) fn in_rules(&self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }
}

/// An object of one kind.
pub trait KubeObject: Serialize + DeserializeOwned + Send {
    /// The names of this kind.
    const RESOURCE: Resource;

    /// Returns the metadata.
    fn metadata(&self) -> &Metadata;
}

macro_rules! kind {
    ($type:ident, $api:literal, $group:literal, $plural:literal, $verbs:literal) => {
        impl KubeObject for $type {
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
    "get,list,create,update"
);
kind!(Event, "apis/events.k8s.io/v1", "events.k8s.io", "events", "create");
kind!(
    SelfSubjectAccessReview,
    "apis/authorization.k8s.io/v1",
    "authorization.k8s.io",
    "selfsubjectaccessreviews",
    "create"
);

/// The metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// The name; empty if the server is to create one from `generateName` in `rest`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The namespace; empty for cluster-scoped objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Unique to this object, so another one with the same name differs; empty before it is
    /// created.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Changes with each write; a PUT with one that is not the latest is refused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Metadata {
    /// Creates the metadata of a new object.
    #[must_use]
    pub fn named(namespace: &str, name: &str) -> Self {
        Self { name: name.to_owned(), namespace: namespace.to_owned(), ..Self::default() }
    }
}

/// A Lease of coordination.k8s.io.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// The metadata, with Tenure's record among the annotations.
    pub metadata: Metadata,
    /// The holder and the times.
    pub spec: LeaseSpec,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// The holder of a Lease, in the fields of client-go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// The holder; absent or empty if the Lease is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// How long observers wait after the last change that they saw, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// When the holder acquired it, by the holder's wall clock, as [`micro_time`] writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquire_time: Option<String>,
    /// When the holder last renewed it, by the holder's wall clock, as [`micro_time`] writes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renew_time: Option<String>,
    /// How often the holder has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A Pod. It is only patched, so other fields are not kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// The metadata.
    pub metadata: Metadata,
    /// The spec.
    pub spec: PodSpec,
    /// The status.
    #[serde(skip_serializing)]
    pub status: PodStatus,
}

impl Pod {
    /// Returns whether all of its containers have ended for good, as after an eviction: its address
    /// may be given to another Pod.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}

/// The fields of the status of a Pod that tell whether it still has its address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
}

/// The fields of a Pod that an EndpointSlice refers to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node of the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
}

/// A Service. It is only read, so other fields are not kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    /// The metadata.
    pub metadata: Metadata,
    /// The selector and the ports.
    pub spec: ServiceSpec,
}

/// The fields of a Service that an EndpointSlice for it depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceSpec {
    /// Selects the pods; empty if the endpoints are not managed by Kubernetes.
    pub selector: BTreeMap<String, String>,
    /// The ports.
    pub ports: Vec<ServicePort>,
}

/// One port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// The name, if there is more than one port.
    pub name: Option<String>,
    /// The protocol; `TCP` if absent.
    pub protocol: Option<String>,
    /// The port number at the Service's address.
    pub port: i32,
    /// The number or the name of the port at the pod.
    pub target_port: Option<Value>,
    /// The application protocol.
    pub app_protocol: Option<String>,
}

/// Addresses behind a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// The metadata.
    pub metadata: Metadata,
    /// `IPv4` or `IPv6`; cannot be changed.
    pub address_type: String,
    /// The addresses.
    #[serde(deserialize_with = "or_none")]
    pub endpoints: Vec<Endpoint>,
    /// The ports at each address.
    #[serde(deserialize_with = "or_none")]
    pub ports: Vec<EndpointPort>,
    /// All other fields.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One address behind a Service, with the fields that Tenure writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Endpoint {
    /// One address.
    pub addresses: Vec<String>,
    /// Whether it accepts requests.
    pub conditions: BTreeMap<String, bool>,
    /// The Pod behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<ObjectReference>,
    /// The node of the Pod.
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
    /// The protocol; `TCP` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The port number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
    /// The application protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
}

/// A reference to an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectReference {
    /// The API version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid, if known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// An Event, for `kubectl describe`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// The metadata; an Event is in the namespace of the object that it regards.
    pub metadata: Metadata,
    /// The time, as [`micro_time`] writes it.
    pub event_time: String,
    /// The reporting controller, as a qualified name: at most 128 characters.
    pub reporting_controller: String,
    /// The instance of that controller: at most 128 characters.
    pub reporting_instance: String,
    /// The action, in one word of at most 128 characters.
    pub action: String,
    /// The reason, in one word of at most 128 characters.
    pub reason: String,
    /// The object that the Event is about.
    pub regarding: ObjectReference,
    /// The text, at most 1024 bytes.
    pub note: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A review of Tenure's own permissions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SelfSubjectAccessReview {
    /// The metadata, which stays empty.
    pub metadata: Metadata,
    /// The action to check.
    pub spec: AccessSpec,
    /// The answer.
    #[serde(skip_serializing)]
    pub status: AccessStatus,
}

/// The action to check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AccessSpec {
    /// Verb, group, resource, namespace and name.
    pub resource_attributes: BTreeMap<String, String>,
}

/// The answer to a review.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AccessStatus {
    /// Whether the action is allowed.
    pub allowed: bool,
}

/// Reads a list that the server may write as `null` if it is empty.
fn or_none<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    value: D,
) -> Result<Vec<T>, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// Formats a time as a `MicroTime`: UTC with six digits after the second.
#[must_use]
pub fn micro_time(at: OffsetDateTime) -> String {
    let at = at.checked_to_offset(UtcOffset::UTC).unwrap_or(at);
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

/// Parses a time as any client may have written it, and converts it to UTC; `None` if it is invalid
/// or has no such year there.
#[must_use]
pub fn read_time(text: &str) -> Option<OffsetDateTime> {
    let at = OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()?;
    at.checked_to_offset(UtcOffset::UTC).filter(|at| at.year() >= 0)
}

#[cfg(test)]
mod tests;
