//! What this instance has in an `EndpointSlice`, and whose the endpoints are that are found there.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::kube::objects::{Endpoint, EndpointSlice, Metadata, ObjectReference};
use crate::publish::route::ELECTION;
use crate::status::Role;

/// The label that names the Service of a slice.
pub(in crate::publish::route) const SERVICE: &str = "kubernetes.io/service-name";

/// The label that names the manager of a slice, and its value for Tenure, which keeps controllers
/// from changing it.
pub(in crate::publish::route) const MANAGER: (&str, &str) =
    ("endpointslice.kubernetes.io/managed-by", "tenure.dev");

/// The field of the metadata with the owners.
pub(super) const OWNERS: &str = "ownerReferences";

/// What this instance would write.
#[derive(Clone, Debug)]
pub(super) struct Ours {
    pub(super) slice: Metadata,
    pub(super) service: String,
    pub(super) election: String,
    pub(super) address: IpAddr,
    pub(super) pod: ObjectReference,
    pub(super) node: Option<String>,
}

impl Ours {
    /// Returns the role that the slice reports for this pod.
    pub(super) fn read(&self, found: Option<&EndpointSlice>) -> Role {
        let is_in = found.is_some_and(|it| it.endpoints.iter().any(|it| self.is_us(it)));
        if is_in { Role::Active } else { Role::Passive }
    }

    /// Compares by the pod, since two pods may have the same address, at once or one after the
    /// other; and by its uid, if known, since two pods may have the same name one after the other.
    pub(super) fn is_us(&self, endpoint: &Endpoint) -> bool {
        match &endpoint.target_ref {
            Some(it) => {
                let is_known = !it.uid.is_empty() && !self.pod.uid.is_empty();
                it.name == self.pod.name
                    && it.namespace == self.pod.namespace
                    && (!is_known || it.uid == self.pod.uid)
            }
            None => endpoint.addresses.contains(&self.address.to_string()),
        }
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        let conditions = [("ready", true), ("serving", true), ("terminating", false)];
        Endpoint {
            addresses: vec![self.address.to_string()],
            conditions: conditions.into_iter().map(|(it, is)| (it.to_owned(), is)).collect(),
            target_ref: Some(self.pod.clone()),
            node_name: self.node.clone(),
        }
    }

    /// Returns the labels of the slice; without the first, no Service uses it.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(SERVICE, self.service.as_str()), MANAGER, (ELECTION, &self.election)].into_iter()
    }

    /// Returns this pod as the only owner of the slice, if its uid is known.
    ///
    /// The garbage collector deletes an object when the last of its owners is gone. If the Service
    /// were an owner too, the slice would outlive the leader's pod, and its address may be given to
    /// another pod.
    pub(super) fn pod_owner(&self) -> Option<Value> {
        let ObjectReference { name, uid, .. } = &self.pod;
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]);
        (!uid.is_empty()).then_some(owner)
    }

    /// Returns the pods of endpoints that are not this pod's, as far as their uid is known.
    pub(super) fn pods_of_others<'a>(
        &'a self,
        slice: &'a EndpointSlice,
    ) -> impl Iterator<Item = &'a ObjectReference> {
        let others = slice.endpoints.iter().filter(|it| !self.is_us(it));
        others.filter_map(|it| it.target_ref.as_ref()).filter(|it| self.is_pod(it))
    }

    /// Returns whether a reference is to a pod that can be compared with the present one.
    fn is_pod(&self, reference: &ObjectReference) -> bool {
        reference.kind == "Pod"
            && reference.namespace == self.pod.namespace
            && !reference.uid.is_empty()
    }

    /// Returns the ready endpoints of the Service that are not the leader's, with their slices. An
    /// instance that does not lead cannot tell whether a pod in the leaders' slice leads.
    pub(super) fn strangers<'a>(
        &'a self,
        slices: &'a [EndpointSlice],
        role: Role,
    ) -> impl Iterator<Item = String> {
        let is_leaders = move |slice: &EndpointSlice, endpoint: &Endpoint| {
            slice.metadata.name == self.slice.name
                && match role {
                    Role::Active => self.is_us(endpoint),
                    Role::Passive => endpoint.target_ref.is_some(),
                }
        };
        slices.iter().flat_map(move |slice| {
            let strange =
                slice.endpoints.iter().filter(move |it| is_ready(it) && !is_leaders(slice, it));
            strange.map(|it| {
                format!("{} in the EndpointSlice {}", it.addresses.join(", "), slice.metadata.name)
            })
        })
    }

    pub(super) fn address_type(&self) -> &'static str {
        if self.address.is_ipv4() { "IPv4" } else { "IPv6" }
    }

    /// Returns a new slice without endpoints.
    pub(super) fn empty(&self, service: &Metadata) -> EndpointSlice {
        let mut metadata = self.slice.clone();
        let labels = self.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
        metadata.labels.extend(labels);
        let owner = self.pod_owner().unwrap_or_else(|| {
            json!([{"apiVersion": "v1", "kind": "Service", "name": service.name, "uid": service.uid}])
        });
        metadata.rest.insert(OWNERS.to_owned(), owner);
        let address_type = self.address_type().to_owned();
        EndpointSlice { metadata, address_type, ..<_>::default() }
    }
}

/// Returns whether Service proxies send requests to an endpoint. A missing condition counts as
/// ready.
pub(in crate::publish::route) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.get("ready") != Some(&false)
}
