//! The route by an `EndpointSlice`: the leader writes its address behind a Service that selects no
//! pods itself, so that the old address goes in the same update as the new one comes.
//!
//! There is one slice for a Service and an election. Every write is compared and set: by the slice's
//! version, and by the term in its annotation, so that a late write of an older leader is refused.
//! It belongs to the Service, and goes with it.
//!
//! What it does not do: it changes no Service, touches no slice that others manage, and judges no
//! time.

use std::net::IpAddr;

use futures::future::OptionFuture;
use serde_json::json;

use super::desk::Desk;
use super::{ELECTION, FENCE, Outcome, TERM, Trouble, Want, changed_nothing, draw, term_of};
use crate::kube::KubeError;
use crate::kube::objects::{
    Endpoint, EndpointPort, EndpointSlice, Metadata, ObjectReference, Pod, Service,
};
use crate::publish::Role;

/// How often a write is tried anew in one go when others write too.
const ATTEMPTS: usize = 4;

/// The label that says which Service a slice is for.
const SERVICE: &str = "kubernetes.io/service-name";

/// The label that says who writes a slice, and its value for us: no controller touches it then.
const MANAGER: (&str, &str) = ("endpointslice.kubernetes.io/managed-by", "tenure.dev");

/// The name of the slice. A Service's name holds no dot, so that no two pairs share one.
#[must_use]
pub(crate) fn name(service: &str, election: &str) -> String {
    format!("{service}.{election}")
}

/// What is to be done with the slice as it was found.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// It says already what it is to say.
    Agrees,
    /// There is none: it is to be made so.
    Create(EndpointSlice),
    /// It is to become this.
    Replace(EndpointSlice),
    /// A leader of this newer term has written it: it is not ours to change.
    Newer(u64),
    /// It is not to be written, for this reason.
    Refused(String),
}

/// The slice in which we stand while we lead.
#[derive(Debug)]
pub(super) struct Slice {
    desk: Desk,
    ours: Ours,
    /// A write of ours may yet arrive of which we have heard nothing.
    unsure: bool,
    /// What the slice says of us as far as is known.
    known: Option<Role>,
    /// Our pod has been looked at, or may not be.
    knows_pod: bool,
}

/// What we would write.
#[derive(Clone, Debug)]
struct Ours {
    slice: Metadata,
    service: String,
    election: String,
    address: IpAddr,
    pod: ObjectReference,
    node: Option<String>,
}

impl Slice {
    pub(super) fn new(
        desk: Desk,
        pod: String,
        election: String,
        service: String,
        address: IpAddr,
    ) -> Self {
        let namespace = desk.namespace.clone();
        let slice = Metadata::named(&namespace, &name(&service, &election));
        let pod =
            ObjectReference { kind: "Pod".to_owned(), namespace, name: pod, ..<_>::default() };
        let ours = Ours { slice, service, election, address, pod, node: None };
        Self { desk, ours, unsure: false, known: None, knows_pod: false }
    }

    /// What the slice says of us as far as is known: not after a write of which nothing was heard.
    pub(super) fn known(&self) -> Option<Role> {
        self.known
    }

    /// Has the slice say what is wanted, while that `still` is wanted. May be dropped.
    pub(super) async fn say(&mut self, want: Want, still: &(dyn Fn() -> bool + Sync)) -> Outcome {
        let mut outcome = Outcome::default();
        for _ in 0..ATTEMPTS {
            let (service, found, pod) = tokio::join!(
                self.desk.get::<Service>(&self.ours.service),
                self.desk.get::<EndpointSlice>(&self.ours.slice.name),
                self.look_at_our_pod(want),
            );
            if let Some(pod) = pod {
                self.know_our_pod(pod);
            }
            let found = match found {
                Ok(found) => Some(found),
                Err(KubeError::Missing(_)) => None,
                Err(error) => return outcome.with(error.into()),
            };
            let said = self.ours.read(found.as_ref());
            self.known = (!self.unsure).then_some(said);
            // A standby needs none of this, and says early what its leading would fail by.
            let ports = service.map_err(Trouble::from).and_then(|service| {
                Ok((ports(&service).map_err(Trouble::Setting)?, service.metadata))
            });
            let fence = self.unsure.then(draw);
            let step = match (want, ports) {
                (Want::Active(term), Ok((ports, service))) => {
                    self.ours.lead(found, &service, ports, term, fence)
                }
                (Want::Active(_), Err(trouble)) => return outcome.with(trouble),
                (Want::Passive { led }, ports) => {
                    outcome.trouble = ports.err();
                    self.ours.leave(found, led, fence)
                }
            };
            let before = self.unsure;
            let written = match step {
                Step::Agrees => {
                    // What may yet arrive is for a version that is no more.
                    (self.unsure, self.known) = (false, Some(said));
                    return outcome;
                }
                Step::Newer(newer) => {
                    let what = format!("the EndpointSlice {}", self.ours.slice.name);
                    return outcome.with(Trouble::newer(what, newer, want));
                }
                Step::Refused(why) => return outcome.with(Trouble::Setting(why)),
                Step::Create(_) | Step::Replace(_) if !still() => {
                    return outcome.with(Trouble::Overtaken);
                }
                Step::Create(slice) => {
                    (self.unsure, self.known) = (true, None);
                    self.desk.create(&slice).await
                }
                Step::Replace(slice) => {
                    (self.unsure, self.known) = (true, None);
                    self.desk.replace(&slice).await
                }
            };
            match written {
                Ok(_) => {
                    self.unsure = false;
                    self.known = Some(want.role());
                    return outcome;
                }
                // Whatever was under way was for a version that is no more.
                Err(KubeError::Conflict(_) | KubeError::Exists(_)) => self.unsure = false,
                Err(error) => {
                    if changed_nothing(&error) {
                        self.unsure = before;
                        self.known = (!before).then_some(said);
                    }
                    return outcome.with(error.into());
                }
            }
        }
        outcome.with(Trouble::busy(&self.ours.slice.name))
    }

    /// Asks for our pod if we are to lead and have never heard of it.
    async fn look_at_our_pod(&self, want: Want) -> Option<Result<Pod, KubeError>> {
        let asks = !self.knows_pod && want.role() == Role::Active;
        OptionFuture::from(asks.then(|| self.desk.get::<Pod>(&self.ours.pod.name))).await
    }

    /// Takes uid and node of our pod. Nothing depends on them but how well others can tell which pod
    /// it is and where, so that no right is needed for it.
    fn know_our_pod(&mut self, answer: Result<Pod, KubeError>) {
        match answer {
            Ok(pod) => {
                self.knows_pod = true;
                self.ours.pod.uid = pod.metadata.uid;
                self.ours.node = pod.spec.node_name;
            }
            Err(error) => {
                self.knows_pod = matches!(error, KubeError::Missing(_) | KubeError::Forbidden(_));
                tracing::debug!("the EndpointSlice will not tell our pod's uid and node: {error}");
            }
        }
    }
}

impl Ours {
    /// What the slice says of us.
    fn read(&self, found: Option<&EndpointSlice>) -> Role {
        let is_in = found.is_some_and(|it| it.endpoints.iter().any(|it| self.is_us(it)));
        if is_in { Role::Active } else { Role::Passive }
    }

    /// By the pod, since two pods may share an address, at once or one after the other.
    fn is_us(&self, endpoint: &Endpoint) -> bool {
        match &endpoint.target_ref {
            Some(it) => it.name == self.pod.name && it.namespace == self.pod.namespace,
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

    /// What the leader of this term is to do.
    fn lead(
        &self,
        found: Option<EndpointSlice>,
        service: &Metadata,
        ports: Vec<EndpointPort>,
        term: u64,
        fence: Option<String>,
    ) -> Step {
        let address_type = if self.address.is_ipv4() { "IPv4" } else { "IPv6" };
        let is_new = found.is_none();
        let mut slice = match found {
            None => self.new_slice(service, address_type),
            Some(found) => match self.refusal(&found, term, address_type) {
                Some(step) => return step,
                None => found,
            },
        };
        let endpoints = vec![self.endpoint()];
        let is_said = slice.endpoints == endpoints && slice.ports == ports;
        if is_said && term_of(&slice.metadata) == Some(term) && fence.is_none() {
            return Step::Agrees;
        }
        (slice.endpoints, slice.ports) = (endpoints, ports);
        slice.metadata.annotations.insert(TERM.to_owned(), term.to_string());
        if let Some(fence) = fence {
            slice.metadata.annotations.insert(FENCE.to_owned(), fence);
        }
        if is_new { Step::Create(slice) } else { Step::Replace(slice) }
    }

    /// Why a slice is not to be written by the leader of this term, if it is not.
    fn refusal(&self, found: &EndpointSlice, term: u64, address_type: &str) -> Option<Step> {
        let name = &self.slice.name;
        let (label, us) = MANAGER;
        if found.metadata.labels.get(label).is_none_or(|it| it != us) {
            return Some(Step::Refused(format!(
                "the EndpointSlice {name} is managed by another than Tenure: delete it, or name \
                 another Service or election"
            )));
        }
        if let Some(newer) = term_of(&found.metadata).filter(|it| *it > term) {
            return Some(Step::Newer(newer));
        }
        (found.address_type != address_type).then(|| {
            Step::Refused(format!(
                "the EndpointSlice {name} holds addresses of {}, and ours is {}, which Kubernetes \
                 lets nobody change: delete it, and give all candidates addresses of one family",
                found.address_type, self.address
            ))
        })
    }

    fn new_slice(&self, service: &Metadata, address_type: &str) -> EndpointSlice {
        let mut metadata = self.slice.clone();
        let (label, us) = MANAGER;
        metadata.labels =
            [(SERVICE, self.service.as_str()), (label, us), (ELECTION, &self.election)]
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
        let owner = json!([
            {"apiVersion": "v1", "kind": "Service", "name": service.name, "uid": service.uid}
        ]);
        metadata.rest.insert("ownerReferences".to_owned(), owner);
        EndpointSlice { metadata, address_type: address_type.to_owned(), ..<_>::default() }
    }

    /// What we are to do when we do not lead: take ourselves out, whoever put us in, and leave what
    /// another says of itself. With a `fence` a slice of our last term, or an older one, is written
    /// even if we are not in it.
    fn leave(&self, found: Option<EndpointSlice>, led: Option<u64>, fence: Option<String>) -> Step {
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
        Step::Replace(slice)
    }
}

/// The ports behind a Service, or why we cannot stand behind it.
pub(super) fn ports(service: &Service) -> Result<Vec<EndpointPort>, String> {
    let name = &service.metadata.name;
    if !service.spec.selector.is_empty() {
        return Err(format!(
            "the Service {name} has a selector, so that Kubernetes writes its endpoints itself: take \
             spec.selector out, or use --kube-route label"
        ));
    }
    let port = |port: &crate::kube::objects::ServicePort| {
        let number = match &port.target_port {
            None => Some(port.port),
            Some(it) => it.as_i64().and_then(|it| i32::try_from(it).ok()),
        };
        let number = number.ok_or_else(|| {
            format!(
                "the targetPort of the Service {name}'s port {} is a name, which only a pod's \
                 manifest can tell: give it a number",
                port.port
            )
        })?;
        Ok(EndpointPort {
            // As the server would complete them, so that what is found can be compared.
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
    use serde_json::Value;

    use super::*;

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
        let Step::Create(slice) = lead(ours, None, term) else { panic!("it is made") };
        slice
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
        let Step::Replace(slice) = lead(&new, Some(found.clone()), 43) else { panic!() };
        assert_eq!(addresses(&slice), ["10.0.0.2"]);
        assert_eq!(term_of(&slice.metadata), Some(43));
        assert_eq!(lead(&new, Some(slice.clone()), 43), Step::Agrees);
        assert_eq!(lead(&old, Some(slice), 42), Step::Newer(43), "a late write");
        let Step::Replace(again) = lead(&old, Some(found), 44) else { panic!("a term of its own") };
        assert_eq!(term_of(&again.metadata), Some(44));
    }

    #[test]
    fn who_leads_no_more_takes_out_itself_alone() {
        let (old, new) = (ours("a", "10.0.0.1"), ours("b", "10.0.0.2"));
        let Step::Replace(slice) = old.leave(Some(led(&old, 42)), Some(42), None) else { panic!() };
        assert_eq!((addresses(&slice), term_of(&slice.metadata)), (vec![], Some(42)));
        assert_eq!(old.leave(Some(led(&new, 43)), Some(42), None), Step::Agrees);
        assert_eq!(old.leave(None, Some(42), None), Step::Agrees);
        // A process that was here before us has left us in it.
        let Step::Replace(slice) = old.leave(Some(led(&old, 42)), None, None) else { panic!() };
        assert!(addresses(&slice).is_empty());
        // Another pod that has had our address since.
        assert_eq!(ours("c", "10.0.0.2").leave(Some(led(&new, 43)), None, None), Step::Agrees);
    }

    #[test]
    fn what_may_yet_arrive_is_overtaken_where_the_slice_is_still_of_our_term() {
        let (old, new) = (ours("a", "10.0.0.1"), ours("b", "10.0.0.2"));
        let fence = || Some("f".to_owned());
        let Step::Replace(slice) = old.leave(Some(led(&new, 41)), Some(42), fence()) else {
            panic!("a write of term 42 may be on its way")
        };
        assert_eq!(addresses(&slice), ["10.0.0.2"]);
        assert_eq!(slice.metadata.annotations[FENCE], "f");
        assert_eq!(old.leave(Some(led(&new, 43)), Some(42), fence()), Step::Agrees);
    }

    #[test]
    fn a_slice_that_is_not_ours_to_write_is_refused() {
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
        assert!(why.unwrap_err().contains("give it a number"));
        let all = ports(&service(json!({"ports": [
            {"name": "http", "port": 80},
            {"name": "dns", "port": 53, "targetPort": 5353, "protocol": "UDP"},
            {"name": "grpc", "port": 90, "targetPort": 9090, "appProtocol": "kubernetes.io/h2c"},
        ]})));
        let numbers: Vec<_> = all.unwrap().into_iter().filter_map(|it| it.port).collect();
        assert_eq!(numbers, [80, 5353, 9090]);
    }
}
