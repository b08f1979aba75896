//! Unit tests of the plan: what is written for which slice, and whose endpoints count.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::ours::{MANAGER, OWNERS, Ours, SERVICE};
use super::plan::{Step, has_owner};
use super::ports::ports;
use crate::kube::objects::{EndpointSlice, Metadata, ObjectReference, Service};
use crate::publish::route::{ELECTION, FENCE, TERM, term_of};
use crate::status::Role;

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
    serde_json::from_value(json!({"metadata": {"name": "web", "uid": "s"}, "spec": spec})).unwrap()
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
        it.endpoints[0].conditions = ready.map(|it| ("ready".to_owned(), it)).into_iter().collect();
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
    let Step::Write(slice) = old.leave(Some(led(&old, 42)), None, Some(42), None) else { panic!() };
    assert_eq!((addresses(&slice), term_of(&slice.metadata)), (vec![], Some(42)));
    assert_eq!(old.leave(Some(led(&new, 43)), None, Some(42), None), Step::Agrees);
    assert_eq!(old.leave(None, None, Some(42), None), Step::Agrees);
    // An earlier process of this pod left the endpoint.
    let Step::Write(slice) = old.leave(Some(led(&old, 42)), None, None, None) else { panic!() };
    assert!(addresses(&slice).is_empty());
    // Another pod has the same address now.
    assert_eq!(ours("c", "10.0.0.2").leave(Some(led(&new, 43)), None, None, None), Step::Agrees);
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
    let Step::Refused(why) = lead(&us, Some(led(&ours("b", "fd00::1"), 42)), 43) else { panic!() };
    assert!(why.contains("IPv6") && why.contains("10.0.0.1"), "{why}");
}
