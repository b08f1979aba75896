use super::*;
use serde_json::json;

#[test]
fn unknown_fields_of_a_lease_are_written_back() {
    let found = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": "orders", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"name": "x"}],
            "annotations": {"team": "blue"},
        },
        "spec": {"holderIdentity": "", "leaseTransitions": 3, "strategy": "OldestEmulationVersion"},
    });
    let lease: Lease = serde_json::from_value(found.clone()).unwrap();
    assert_eq!(lease.spec.holder_identity.as_deref(), Some(""));
    assert_eq!(serde_json::to_value(&lease).unwrap(), found);
}

#[test]
fn a_lease_without_spec_or_annotations_is_one() {
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    assert_eq!(lease.spec, LeaseSpec::default());
    assert_eq!(lease.metadata.name, "a");
}

#[test]
fn times_have_six_digits_and_are_read_with_any() {
    let at = OffsetDateTime::UNIX_EPOCH + std::time::Duration::from_micros(1_700_000_000_000_042);
    assert_eq!(micro_time(at), "2023-11-14T22:13:20.000042Z");
    assert_eq!(read_time("2023-11-14T22:13:20.000042Z"), Some(at));
    assert_eq!(read_time("2023-11-14T23:13:20.000042+01:00"), Some(at));
    assert!(read_time("2023-11-14T22:13:20Z").is_some());
    assert_eq!(read_time("yesterday"), None);
    let last = read_time("9999-12-31T23:59:59Z").map(micro_time);
    assert_eq!(last.as_deref(), Some("9999-12-31T23:59:59.000000Z"));
    // In UTC this is the year 10000, or the one before 0.
    assert_eq!(read_time("9999-12-31T23:59:58-01:00"), None);
    assert_eq!(read_time("0000-01-01T00:00:00+01:00"), None);
}

#[test]
fn resources_are_named_as_paths_and_rules_want_them() {
    assert_eq!(Lease::RESOURCE.api_version(), "coordination.k8s.io/v1");
    assert_eq!(Lease::RESOURCE.in_rules(), "leases.coordination.k8s.io");
    assert_eq!(Pod::RESOURCE.api_version(), "v1");
    assert_eq!(Pod::RESOURCE.in_rules(), "pods");
}
