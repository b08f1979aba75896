//! Plans the change of an `EndpointSlice` from what was found and what is wanted; pure.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::kube::objects::{
    Endpoint, EndpointPort, EndpointSlice, Metadata, ObjectReference, Service, ServicePort,
};
use crate::publish::route::{ELECTION, FENCE, TERM, term_of};
use crate::status::Role;

/// The label that names the Service of a slice.
pub(in crate::publish::route) const SERVICE: &str = "kubernetes.io/service-name";

/// The label that names the manager of a slice, and its value for Tenure, which keeps controllers
/// from changing it.
pub(in crate::publish::route) const MANAGER: (&str, &str) =
    ("endpointslice.kubernetes.io/managed-by", "tenure.dev");

/// The field of the metadata with the owners.
const OWNERS: &str = "ownerReferences";

/// What to do with the slice.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Nothing: it is as wanted.
    Agrees,
    /// Create it, or replace it, with this content.
    Write(Box<EndpointSlice>),
    /// Nothing: a leader of this newer term has written it.
    Newer(u64),
    /// Nothing, for this reason.
    Refused(String),
}

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
    fn is_us(&self, endpoint: &Endpoint) -> bool {
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

    fn endpoint(&self) -> Endpoint {
        let conditions = [("ready", true), ("serving", true), ("terminating", false)];
        Endpoint {
            addresses: vec![self.address.to_string()],
            conditions: conditions.into_iter().map(|(it, is)| (it.to_owned(), is)).collect(),
            target_ref: Some(self.pod.clone()),
            node_name: self.node.clone(),
        }
    }

    /// Returns the labels of the slice; without the first, no Service uses it.
    fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(SERVICE, self.service.as_str()), MANAGER, (ELECTION, &self.election)].into_iter()
    }

    /// Plans the change by the leader of this term.
    pub(super) fn lead(
        &self,
        found: Option<EndpointSlice>,
        service: &Metadata,
        ports: Vec<EndpointPort>,
        term: u64,
        fence: Option<String>,
    ) -> Step {
        let mut slice = match found {
            None => self.empty(service),
            Some(found) => match self.refusal(&found, term) {
                Some(step) => return step,
                None => found,
            },
        };
        let endpoints = vec![self.endpoint()];
        let labels = &slice.metadata.labels;
        let owner = self.pod_owner().filter(|_| has_owner(&slice.metadata));
        let is_owned = owner.is_none() || slice.metadata.rest.get(OWNERS) == owner.as_ref();
        let is_found =
            self.labels().all(|(key, value)| labels.get(key).is_some_and(|it| it == value));
        let is_said = is_found && is_owned && slice.endpoints == endpoints && slice.ports == ports;
        if is_said && term_of(&slice.metadata) == Some(term) && fence.is_none() {
            return Step::Agrees;
        }
        let labels = self.labels().map(|(key, value)| (key.to_owned(), value.to_owned()));
        slice.metadata.labels.extend(labels);
        (slice.endpoints, slice.ports) = (endpoints, ports);
        slice.metadata.annotations.insert(TERM.to_owned(), term.to_string());
        if let Some(owner) = owner {
            slice.metadata.rest.insert(OWNERS.to_owned(), owner);
        }
        if let Some(fence) = fence {
            slice.metadata.annotations.insert(FENCE.to_owned(), fence);
        }
        Step::Write(Box::new(slice))
    }

    /// Returns this pod as the only owner of the slice, if its uid is known.
    ///
    /// The garbage collector deletes an object when the last of its owners is gone. If the Service
    /// were an owner too, the slice would outlive the leader's pod, and its address may be given to
    /// another pod.
    fn pod_owner(&self) -> Option<Value> {
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

    /// Returns why the leader of this term must not write the slice, if so.
    fn refusal(&self, found: &EndpointSlice, term: u64) -> Option<Step> {
        let name = &self.slice.name;
        let (label, us) = MANAGER;
        if found.metadata.labels.get(label).is_none_or(|it| it != us) {
            return Some(Step::Refused(format!(
                "the EndpointSlice {name} is not managed by Tenure: delete it, or set another \
                 Service or election"
            )));
        }
        if let Some(newer) = term_of(&found.metadata).filter(|it| *it > term) {
            return Some(Step::Newer(newer));
        }
        (found.address_type != self.address_type()).then(|| {
            Step::Refused(format!(
                "the EndpointSlice {name} has the address type {}, but the address of this pod is \
                 {}, and Kubernetes does not allow the type to change: delete it, and give all \
                 candidates addresses of one family",
                found.address_type, self.address
            ))
        })
    }

    fn address_type(&self) -> &'static str {
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

    /// Plans the change by an instance that does not lead: it removes its own endpoint, whoever
    /// added it, and keeps those of others. With a `fence`, a slice of this process's last term or
    /// an older one is written even without its endpoint, and a missing one is created if the
    /// `service` exists, since a creation may be in flight.
    pub(super) fn leave(
        &self,
        found: Option<EndpointSlice>,
        service: Option<&Metadata>,
        led: Option<u64>,
        fence: Option<String>,
    ) -> Step {
        let made = || fence.as_ref().and(service).map(|service| self.empty(service));
        let found = found.or_else(made);
        let Some(mut slice) = found else { return Step::Agrees };
        let is_in = self.read(Some(&slice)) == Role::Active;
        let fence = fence.filter(|_| led.is_some() && term_of(&slice.metadata) <= led);
        if !is_in && fence.is_none() {
            return Step::Agrees;
        }
        slice.endpoints.retain(|it| !self.is_us(it));
        if let Some(fence) = fence {
            slice.metadata.annotations.insert(FENCE.to_owned(), fence);
        }
        Step::Write(Box::new(slice))
    }
}

/// Returns whether Service proxies send requests to an endpoint. A missing condition counts as
/// ready.
pub(in crate::publish::route) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.get("ready") != Some(&false)
}

/// Returns whether an object has an owner. A slice that an administrator created has none, and must
/// not be deleted with a pod: to create it again may not be permitted.
fn has_owner(found: &Metadata) -> bool {
    found.rest.get(OWNERS).and_then(Value::as_array).is_some_and(|it| !it.is_empty())
}

/// Returns the ports of a Service for an `EndpointSlice`, or why it cannot be used.
pub(in crate::publish::route) fn ports(service: &Service) -> Result<Vec<EndpointPort>, String> {
    let name = &service.metadata.name;
    if !service.spec.selector.is_empty() {
        return Err(format!(
            "the Service {name} has a selector, so Kubernetes writes its endpoints: remove \
             spec.selector, or use --kube-route label"
        ));
    }
    let port = |port: &ServicePort| {
        let number = match &port.target_port {
            None => Some(port.port),
            Some(it) => it.as_i64().and_then(|it| i32::try_from(it).ok()),
        };
        let number = number.ok_or_else(|| {
            format!(
                "the targetPort of the Service {name}'s port {} is a name, which Tenure cannot \
                 resolve: set a number",
                port.port
            )
        })?;
        Ok(EndpointPort {
            // As the API server would default them, so that they can be compared.
            name: Some(port.name.clone().unwrap_or_default()),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            port: Some(if number == 0 { port.port } else { number }),
            app_protocol: port.app_protocol.clone(),
        })
    };
    service.spec.ports.iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Labels = BTreeMap<String, String>;

    fn ours(pod: &str, address: &str) -> Ours {
        let pod = ObjectReference {
            kind: "Pod".to_owned(),
            namespace: "shop".to_owned(),
            name: pod.to_owned(),
            ..<_>::default()
        };
        Ours {
            slice: Metadata::named("shop", "web.orders"),
            service: "web".to_owned(),
            election: "orders".to_owned(),
            address: address.parse().unwrap(),
            pod,
            node: None,
        }
    }

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "web", "uid": "s"}, "spec": spec}))
            .unwrap()
    }

    fn lead(ours: &Ours, found: Option<EndpointSlice>, term: u64) -> Step {
        let service = service(json!({"ports": [{"port": 80, "targetPort": 8080}]}));
        ours.lead(found, &service.metadata, ports(&service).unwrap(), term, None)
    }

    fn led(ours: &Ours, term: u64) -> EndpointSlice {
        let Step::Write(slice) = lead(ours, None, term) else { panic!("it is made") };
        *slice
    }

    fn addresses(slice: &EndpointSlice) -> Vec<&str> {
        slice.endpoints.iter().flat_map(|it| it.addresses.iter().map(String::as_str)).collect()
    }

    #[test]
    fn the_first_leader_makes_the_slice_for_the_service() {
        let slice = led(&ours("a", "10.0.0.1"), 42);
        let json = serde_json::to_value(&slice).unwrap();
        assert_eq!(json["metadata"]["labels"][SERVICE], "web");
        assert_eq!(json["metadata"]["labels"][MANAGER.0], "tenure.dev");
        assert_eq!(json["metadata"]["annotations"][TERM], "42");
        assert_eq!(json["metadata"]["ownerReferences"][0]["uid"], "s");
        assert_eq!(json["addressType"], "IPv4");
        assert_eq!(json["ports"], json!([{"name": "", "protocol": "TCP", "port": 8080}]));
        let endpoint = &json["endpoints"][0];
        assert_eq!(endpoint["addresses"], json!(["10.0.0.1"]));
        assert_eq!(endpoint["conditions"]["ready"], true);
        assert_eq!(endpoint["targetRef"]["name"], "a");
        assert_eq!(led(&ours("a", "fd00::1"), 42).address_type, "IPv6");
    }

    #[test]
    fn the_old_address_goes_as_the_new_one_comes() {
        let (old, new) = (ours("a", "10.0.0.1"), ours("b", "10.0.0.2"));
        let found = led(&old, 42);
        let Step::Write(slice) = lead(&new, Some(found.clone()), 43) else { panic!() };
        assert_eq!(addresses(&slice), ["10.0.0.2"]);
        assert_eq!(term_of(&slice.metadata), Some(43));
        assert_eq!(lead(&new, Some(*slice.clone()), 43), Step::Agrees);
        assert_eq!(lead(&old, Some(*slice), 42), Step::Newer(43), "a late write");
        let Step::Write(again) = lead(&old, Some(found), 44) else { panic!("a term of its own") };
        assert_eq!(term_of(&again.metadata), Some(44));
    }

    #[test]
    fn a_slice_without_its_service_label_is_repaired() {
        let us = ours("a", "10.0.0.1");
        for change in [
            |labels: &mut Labels| drop(labels.remove(SERVICE)),
            |labels: &mut Labels| drop(labels.insert(SERVICE.to_owned(), "other".to_owned())),
            |labels: &mut Labels| drop(labels.remove(ELECTION)),
        ] {
            let mut found = led(&us, 42);
            found.metadata.labels.insert("team".to_owned(), "blue".to_owned());
            let whole = found.clone();
            change(&mut found.metadata.labels);
            assert_eq!(lead(&us, Some(found), 42), Step::Write(Box::new(whole)));
        }
    }

    #[test]
    fn the_leaders_pod_is_the_only_owner_of_a_slice_that_tenure_created() {
        let owners = |slice: &EndpointSlice| slice.metadata.rest[OWNERS].clone();
        let with_uid = |pod: &str, uid: &str| {
            let mut it = ours(pod, "10.0.0.1");
            it.pod.uid = uid.to_owned();
            it
        };
        let unknown = led(&ours("a", "10.0.0.1"), 42);
        assert_eq!(owners(&unknown)[0]["kind"], "Service");
        let pod = |name: &str, uid: &str| json!([{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]);
        let a = with_uid("a", "1");
        let Step::Write(found) = lead(&a, Some(unknown), 42) else { panic!("its pod is known") };
        assert_eq!(owners(&found), pod("a", "1"));
        assert_eq!(lead(&a, Some(*found.clone()), 42), Step::Agrees);
        let Step::Write(found) = lead(&with_uid("b", "2"), Some(*found), 43) else { panic!() };
        assert_eq!(owners(&found), pod("b", "2"));
        let mut created = *found;
        created.metadata.rest.remove(OWNERS);
        let Step::Write(found) = lead(&with_uid("b", "2"), Some(created), 44) else { panic!() };
        assert!(!has_owner(&found.metadata), "an administrator created it");
    }

    #[test]
    fn a_pod_of_the_same_name_with_another_uid_is_another() {
        let (mut old, mut new) = (ours("a", "10.0.0.1"), ours("a", "10.0.0.2"));
        (old.pod.uid, new.pod.uid) = ("1".to_owned(), "2".to_owned());
        let found = led(&new, 43);
        assert_eq!(old.read(Some(&found)), Role::Passive);
        assert_eq!(old.leave(Some(found.clone()), None, Some(42), None), Step::Agrees);
        let others: Vec<_> = old.pods_of_others(&found).map(|it| it.uid.as_str()).collect();
        assert_eq!(others, ["2"]);
        assert_eq!(new.pods_of_others(&found).count(), 0);
    }

    #[test]
    fn ready_endpoints_that_are_not_the_leaders_are_strangers() {
        let (us, other) = (ours("a", "10.0.0.1"), ours("b", "10.0.0.2"));
        let foreign = |ready: Option<bool>| {
            let mut it = led(&other, 42);
            it.metadata.name = "web-x".to_owned();
            it.endpoints[0].conditions =
                ready.map(|it| ("ready".to_owned(), it)).into_iter().collect();
            it
        };
        let found = |slices: &[EndpointSlice], role| us.strangers(slices, role).collect::<Vec<_>>();
        assert!(found(&[led(&us, 42), foreign(Some(false))], Role::Active).is_empty());
        for ready in [None, Some(true)] {
            for role in [Role::Active, Role::Passive] {
                let found = found(&[led(&us, 42), foreign(ready)], role);
                assert_eq!(found, ["10.0.0.2 in the EndpointSlice web-x"]);
            }
        }
        assert!(found(&[led(&other, 42)], Role::Passive).is_empty(), "it may lead");
        assert_eq!(found(&[led(&other, 42)], Role::Active).len(), 1);
        let mut nobody = led(&other, 42);
        nobody.endpoints[0].target_ref = None;
        assert_eq!(found(&[nobody], Role::Passive).len(), 1);
    }

    #[test]
    fn a_former_leader_removes_only_itself() {
        let (old, new) = (ours("a", "10.0.0.1"), ours("b", "10.0.0.2"));
        let Step::Write(slice) = old.leave(Some(led(&old, 42)), None, Some(42), None) else {
            panic!()
        };
        assert_eq!((addresses(&slice), term_of(&slice.metadata)), (vec![], Some(42)));
        assert_eq!(old.leave(Some(led(&new, 43)), None, Some(42), None), Step::Agrees);
        assert_eq!(old.leave(None, None, Some(42), None), Step::Agrees);
        // An earlier process of this pod left the endpoint.
        let Step::Write(slice) = old.leave(Some(led(&old, 42)), None, None, None) else { panic!() };
        assert!(addresses(&slice).is_empty());
        // Another pod has the same address now.
        assert_eq!(
            ours("c", "10.0.0.2").leave(Some(led(&new, 43)), None, None, None),
            Step::Agrees
        );
    }

    #[test]
    fn a_write_in_flight_is_invalidated_in_the_same_term() {
        let (old, new) = (ours("a", "10.0.0.1"), ours("b", "10.0.0.2"));
        let fence = || Some("f".to_owned());
        let Step::Write(slice) = old.leave(Some(led(&new, 41)), None, Some(42), fence()) else {
            panic!("a write of term 42 may be in flight")
        };
        assert_eq!(addresses(&slice), ["10.0.0.2"]);
        assert_eq!(slice.metadata.annotations[FENCE], "f");
        assert_eq!(old.leave(Some(led(&new, 43)), None, Some(42), fence()), Step::Agrees);
    }

    #[test]
    fn a_slice_managed_by_another_is_refused() {
        let us = ours("a", "10.0.0.1");
        let mut foreign = led(&us, 42);
        foreign.metadata.labels.insert(MANAGER.0.to_owned(), "somebody.else".to_owned());
        let Step::Refused(why) = lead(&us, Some(foreign), 43) else { panic!() };
        assert!(why.contains("web.orders"), "{why}");
        let Step::Refused(why) = lead(&us, Some(led(&ours("b", "fd00::1"), 42)), 43) else {
            panic!()
        };
        assert!(why.contains("IPv6") && why.contains("10.0.0.1"), "{why}");
    }

    #[test]
    fn a_service_that_cannot_be_stood_behind_is_refused() {
        let why = ports(&service(json!({"selector": {"app": "web"}}))).unwrap_err();
        assert!(why.contains("web has a selector") && why.contains("--kube-route label"), "{why}");
        let why = ports(&service(json!({"ports": [{"port": 80, "targetPort": "http"}]})));
        assert!(why.unwrap_err().contains("set a number"));
        let all = ports(&service(json!({"ports": [
            {"name": "http", "port": 80},
            {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP"},
            {"name": "grpc", "port": 90, "targetPort": 9090, "appProtocol": "kubernetes.io/h2c"},
        ]})));
        let numbers: Vec<_> = all.unwrap().into_iter().filter_map(|it| it.port).collect();
        assert_eq!(numbers, [80, 5353, 9090]);
    }
}
