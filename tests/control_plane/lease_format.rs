//! The format of a Lease: the fields and formats of client-go, so that `kubectl get lease`,
//! kube-state-metrics and client-go's own tools read Tenure's Leases correctly, and Tenure reads
//! theirs.

use testkit::kubernetes::{lease_lock, real_lease};

use std::time::Duration;

use lease_lock::{A, B, bid, client_go, lead, outcome, seeing, soon, usurp};
use real_lease::RealLease;
use serde_json::{Value, json};
use tenure::lease::{Snapshot, StoreError, Successor};
use tenure::store::{LeaseAdmin, LeaseStore};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Returns whether a text is a time in UTC with exactly six digits of microseconds.
fn is_micro_time(text: &str) -> bool {
    text.len() == 27 && text.ends_with('Z') && OffsetDateTime::parse(text, &Rfc3339).is_ok()
}

fn at(lease: &Value, field: &str) -> OffsetDateTime {
    let text = lease["spec"][field].as_str().unwrap();
    assert!(is_micro_time(text), "{text} is no MicroTime as client-go writes");
    OffsetDateTime::parse(text, &Rfc3339).unwrap()
}

/// Asserts that a time of the Lease is the current time, within a minute.
fn assert_now(lease: &Value, field: &str) {
    let apart = tenure::clock::now().date() - at(lease, field);
    assert!(apart >= time::Duration::seconds(-1) && apart < time::Duration::minutes(1), "{apart}");
}

#[tokio::test]
async fn a_lease_has_the_fields_of_client_go_and_no_others() {
    let server = RealLease::start();
    let store = server.open();
    let (bid, term) = lead(&store, A).await;
    let lease = server.stored();
    assert_eq!(lease["metadata"]["name"], "orders");
    let mut spec = lease["spec"].clone();
    for field in ["acquireTime", "renewTime"] {
        assert_now(&lease, field);
        spec.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(
        spec,
        json!({
            "holderIdentity": "web-10_instance-10",
            "leaseDurationSeconds": 15,
            "leaseTransitions": 0,
        })
    );
    assert_eq!(
        lease["metadata"]["annotations"],
        json!({
            "tenure.dev/claim": bid.nonce.to_string(),
            "tenure.dev/nonce": bid.nonce.to_string(),
            "tenure.dev/term": term.to_string(),
            "tenure.dev/holder": "web-10",
            "tenure.dev/instance": "instance-10",
            "tenure.dev/address": "[::1]:80",
        })
    );
}

#[tokio::test]
async fn a_renewal_changes_the_renew_time_and_its_own_number_alone() {
    let server = RealLease::start();
    let store = server.open();
    let (bid, _) = lead(&store, A).await;
    let before = server.stored();
    for _ in 0..5 {
        let last = at(&server.stored(), "renewTime");
        soon(store.renew(&bid)).await.unwrap();
        assert!(at(&server.stored(), "renewTime") > last);
    }
    let after = server.stored();
    let mut expected = before;
    expected["spec"]["renewTime"] = after["spec"]["renewTime"].clone();
    let number = after["metadata"]["annotations"]["tenure.dev/renewal"].clone();
    assert_eq!(number.as_str().map(str::len), Some(32));
    expected["metadata"]["annotations"]["tenure.dev/renewal"] = number;
    for changing in ["resourceVersion", "managedFields"] {
        expected["metadata"][changing] = after["metadata"][changing].clone();
    }
    assert_eq!(after, expected);
}

#[tokio::test]
async fn a_release_reads_as_client_gos_own() {
    let server = RealLease::start();
    let store = server.open();
    let (bid, term) = lead(&store, A).await;
    soon(store.release(&bid)).await.unwrap();
    let released = server.stored();
    assert_eq!(released["spec"]["holderIdentity"], "");
    assert_eq!(released["spec"]["leaseDurationSeconds"], 1);
    assert_eq!(released["spec"]["leaseTransitions"], 0);
    assert_now(&released, "renewTime");
    assert_now(&released, "acquireTime");
    let record = &released["metadata"]["annotations"];
    assert_eq!(record["tenure.dev/term"], term.to_string());
    assert_eq!(record["tenure.dev/claim"], Value::Null, "nobody claims it");
}

/// client-go adds one for each acquisition except the first.
#[tokio::test]
async fn transitions_count_as_client_go_counts_them_and_the_term_is_above() {
    let server = RealLease::start();
    let store = server.open();
    let transitions = || server.stored()["spec"]["leaseTransitions"].as_i64().unwrap();
    let (a, first) = lead(&store, A).await;
    assert_eq!(transitions(), 0);
    soon(store.renew(&a)).await.unwrap();
    soon(store.acquire(&a)).await.unwrap();
    assert_eq!(transitions(), 0, "the same acquisition");
    soon(store.release(&a)).await.unwrap();
    assert_eq!(transitions(), 0, "a release is none");
    let (_, second) = lead(&store, B).await;
    assert_eq!(transitions(), 1);
    server.modify(usurp);
    assert_eq!(transitions(), 2);
    let (_, third) = lead(&store, A).await;
    assert_eq!(transitions(), 3);
    assert_eq!((second, third), (first + 1, 4), "above what anybody counts");
}

#[tokio::test]
async fn a_term_is_above_the_transitions_that_client_go_counted() {
    let server = RealLease::start();
    let store = server.open();
    server.put(json!({"spec": client_go("", 1, 500)}));
    let (a, term) = lead(&store, A).await;
    assert_eq!(server.stored()["spec"]["leaseTransitions"], 501);
    assert!(term > 501 && term < 600, "{term}");
    soon(store.release(&a)).await.unwrap();
    server.modify(|it| it["spec"]["leaseTransitions"] = 90_000.into());
    let (_, term) = lead(&store, B).await;
    assert!(term > 90_001, "others have counted meanwhile: {term}");
    server.put(json!({"spec": client_go("", 1, i32::MAX)}));
    let (_, term) = lead(&store, A).await;
    assert_eq!(server.stored()["spec"]["leaseTransitions"], i32::MAX, "there is none above");
    assert!(term > u64::from(i32::MAX.unsigned_abs()), "{term}");
}

#[tokio::test]
async fn foreign_fields_of_a_lease_are_kept() {
    let server = RealLease::start();
    let store = server.open();
    let theirs = json!({
        "metadata": {
            "labels": {"app": "orders"},
            "annotations": {"example.com/note": "kept"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "orders",
                                 "uid": "u"}],
            "finalizers": ["example.com/last"],
        },
        "spec": {"strategy": "OldestEmulationVersion", "preferredHolder": "x"},
    });
    server.put(theirs.clone());
    // Some servers drop fields that they do not know.
    let theirs = server.stored();
    assert_eq!(theirs["metadata"]["finalizers"], json!(["example.com/last"]));
    let kept = || {
        let it = server.stored();
        for field in ["labels", "ownerReferences", "finalizers"] {
            assert_eq!(it["metadata"][field], theirs["metadata"][field]);
        }
        assert_eq!(it["metadata"]["annotations"]["example.com/note"], "kept");
        for field in ["strategy", "preferredHolder"] {
            assert_eq!(it["spec"][field], theirs["spec"][field]);
        }
    };
    let (a, _) = lead(&store, A).await;
    kept();
    soon(store.renew(&a)).await.unwrap();
    let successor = Successor { identity: "web-11".to_owned(), hold_off: Duration::from_secs(1) };
    soon(store.set_successor(&a, &successor)).await.unwrap();
    kept();
    soon(store.break_lease(false)).await.unwrap();
    kept();
    soon(store.break_lease(true)).await.unwrap();
    kept();
    let (b, _) = lead(&store, B).await;
    soon(store.release(&b)).await.unwrap();
    kept();
    server.modify(|it| {
        it["metadata"]["annotations"].as_object_mut().unwrap().remove("tenure.dev/term");
    });
    soon(store.create(7)).await.unwrap();
    kept();
}

/// client-go compares times in whole seconds, so a renewal within the same second would not be
/// seen.
#[tokio::test]
async fn a_renewal_is_seen_although_the_clock_went_back() {
    let server = RealLease::start();
    let store = server.open();
    let (bid, _) = lead(&store, A).await;
    let ahead = "2036-11-20T09:00:00.250000Z";
    server.modify(|it| it["spec"]["renewTime"] = ahead.into());
    let mut last = at(&server.stored(), "renewTime");
    for _ in 0..3 {
        soon(store.renew(&bid)).await.unwrap();
        let next = at(&server.stored(), "renewTime");
        assert!(next.unix_timestamp() > last.unix_timestamp(), "{last} and then {next}");
        last = next;
    }
}

async fn snapshot(server: &RealLease, spec: Value) -> Result<Snapshot, StoreError> {
    server.put(json!({"spec": spec}));
    soon(server.open().read()).await
}

#[tokio::test]
async fn missing_fields_are_read_as_client_go_reads_them_or_refused_with_a_message() {
    let server = RealLease::start();
    for free in [
        json!({}),
        json!({"holderIdentity": ""}),
        json!({"holderIdentity": null, "leaseDurationSeconds": 15}),
        json!({"leaseDurationSeconds": 15, "renewTime": "2026-11-20T09:00:00.000000Z",
               "leaseTransitions": 3}),
    ] {
        let snapshot = snapshot(&server, free.clone()).await.unwrap();
        assert!(snapshot.free && snapshot.claim.is_none(), "{free}: {snapshot:?}");
    }
    for held in [
        json!({"holderIdentity": "x", "leaseDurationSeconds": 7}),
        json!({"holderIdentity": "x", "leaseDurationSeconds": 7, "leaseTransitions": 3}),
        json!({"holderIdentity": "x", "leaseDurationSeconds": 7,
               "renewTime": "2026-11-20T10:00:00.000000+01:00"}),
    ] {
        let snapshot = snapshot(&server, held.clone()).await.unwrap();
        assert!(!snapshot.free, "{held}");
        assert_eq!(snapshot.claim.unwrap().lease_duration, Duration::from_secs(7));
        assert_eq!(snapshot.record.term, None);
    }
    let endless = json!({"holderIdentity": "x", "renewTime": "2026-11-20T09:00:00.000000Z"});
    let error = snapshot(&server, endless).await.unwrap_err();
    assert!(matches!(error, StoreError::Foreign(_)), "{error:?}");
    for words in [server.namespace.as_str(), "leaseDurationSeconds", "\"x\""] {
        assert!(error.to_string().contains(words), "{error}");
    }
    let before = server.stored();
    let store = server.open();
    for refused in [
        outcome(&soon(store.acquire(&bid(A))).await),
        outcome(&soon(store.renew(&bid(A))).await),
        outcome(&soon(store.release(&bid(A))).await),
    ] {
        assert!(matches!(refused.as_str(), "refused" | "foreign"), "{refused}");
    }
    assert_eq!(server.stored(), before);
}

#[tokio::test]
async fn the_holder_is_distinguished_from_the_writer_of_the_record() {
    let server = RealLease::start();
    let store = server.open();
    let (a, term) = lead(&store, A).await;
    let seen = soon(store.read()).await.unwrap();
    assert_eq!(seen.record.holder.as_deref(), Some(&*a.candidate));
    assert_eq!((seen.record.term, seen.record.nonce), (Some(term), Some(a.nonce)));
    soon(store.release(&a)).await.unwrap();
    let b = seeing(&store, bid(B)).await;
    let found = soon(store.acquire(&b)).await.unwrap().record;
    assert_eq!(found.nonce, Some(a.nonce), "the grant has the previous holder");
    let seen = soon(store.read()).await.unwrap();
    assert_eq!(
        (seen.record.term, seen.record.holder),
        (Some(term), None),
        "b has written none yet"
    );
}
