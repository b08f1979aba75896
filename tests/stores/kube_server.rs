//! The in-process API server, tested by the documentation of Kubernetes.

use testkit::kubernetes::{kube_server, raw_client as kube_raw};

use std::time::Duration;

use kube_raw::{LEASES, Raw, version};
use kube_server::{Fault, KubeServer, TOKEN, answers::Answer};
use reqwest::Method;
use serde_json::{Value, json};

/// Returns a client of a server with all permissions.
fn raw(server: &KubeServer) -> Raw {
    let authority = server.ca_file();
    Raw::new(&server.url(), authority.exists().then_some(&authority), TOKEN)
}

/// Creates a Lease and returns it as stored.
async fn make(raw: &Raw, name: &str) -> Value {
    let (status, lease) = raw.post(LEASES, json!({"metadata": {"name": name}})).await;
    assert_eq!(status, 201, "{lease}");
    lease
}

fn message(status: &Value) -> &str {
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["status"], "Failure");
    status["message"].as_str().unwrap()
}

#[tokio::test]
async fn a_lease_is_made_once_and_replaced_by_its_version_alone() {
    for server in [KubeServer::start(), KubeServer::start_secure()] {
        let raw = raw(&server);
        let (status, missing) = raw.get(&format!("{LEASES}/orders")).await;
        assert_eq!((status, &missing["reason"]), (404, &json!("NotFound")));
        assert_eq!(message(&missing), "leases.coordination.k8s.io \"orders\" not found");
        let made = make(&raw, "orders").await;
        assert_eq!(made["metadata"]["namespace"], "team");
        assert!(
            made["metadata"]["uid"].is_string()
                && made["metadata"]["creationTimestamp"].is_string()
        );
        let (status, again) = raw.post(LEASES, json!({"metadata": {"name": "orders"}})).await;
        assert_eq!((status, &again["reason"]), (409, &json!("AlreadyExists")));

        let mut mine = made.clone();
        mine["spec"] = json!({"holderIdentity": "a", "leaseDurationSeconds": 15});
        let (status, replaced) = raw.put(LEASES, &mine).await;
        assert_eq!((status, &replaced["spec"]), (200, &mine["spec"]));
        assert!(version(&replaced) > version(&made));
        let (status, stale) = raw.put(LEASES, &mine).await;
        assert_eq!((status, &stale["reason"]), (409, &json!("Conflict")));
        assert_eq!(
            message(&stale),
            "Operation cannot be fulfilled on leases.coordination.k8s.io \"orders\": the object has \
             been modified; please apply your changes to the latest version and try again"
        );
        let (status, same) = raw.put(LEASES, &replaced).await;
        assert_eq!((status, version(&same)), (200, version(&replaced)), "nothing changes");
        let mut blind = replaced.clone();
        blind["metadata"]["resourceVersion"] = Value::Null;
        let (status, told) = raw.put(LEASES, &blind).await;
        assert_eq!(status, 422);
        assert!(message(&told).ends_with("must be specified for an update"), "{told}");
    }
}

#[tokio::test]
async fn a_put_makes_a_missing_lease_unless_it_names_a_uid() {
    let server = KubeServer::start();
    let raw = raw(&server);
    let made = make(&raw, "orders").await;
    server.delete("leases", "team", "orders");
    let (status, told) = raw.put(LEASES, &made).await;
    assert_eq!((status, &told["reason"]), (409, &json!("Conflict")));
    assert!(message(&told).contains("Precondition failed: UID in precondition: "), "{told}");
    let mut other = made.clone();
    other["metadata"]["uid"] = Value::Null;
    let (status, again) = raw.put(LEASES, &other).await;
    assert_eq!(status, 201, "a version alone is no precondition");
    assert_ne!(again["metadata"]["uid"], made["metadata"]["uid"]);
    let mut late = made.clone();
    late["metadata"]["resourceVersion"] = again["metadata"]["resourceVersion"].clone();
    assert_eq!(raw.put(LEASES, &late).await.0, 409, "the uid is of another");
}

#[tokio::test]
async fn a_patch_merges_and_compares_only_what_it_names() {
    let server = KubeServer::start();
    let raw = raw(&server);
    let made = make(&raw, "orders").await;
    let path = format!("{LEASES}/orders");
    let (status, patched) =
        raw.patch(&path, json!({"metadata": {"annotations": {"a": "1", "b": "2"}}})).await;
    assert_eq!((status, &patched["metadata"]["annotations"]), (200, &json!({"a": "1", "b": "2"})));
    let old = made["metadata"]["resourceVersion"].clone();
    let stale = json!({"metadata": {"resourceVersion": old, "annotations": {"a": null}}});
    assert_eq!(raw.patch(&path, stale).await.0, 409);
    let (_, patched) = raw.patch(&path, json!({"metadata": {"annotations": {"a": null}}})).await;
    assert_eq!(patched["metadata"]["annotations"], json!({"b": "2"}));
    assert_eq!(raw.patch(&format!("{LEASES}/none"), json!({})).await.0, 404);
    let plain = raw.send_as("application/json", Method::PATCH, &path, json!({})).await.unwrap();
    assert_eq!(plain.status(), 415);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_and_says_where() {
    let server = KubeServer::start();
    let raw = raw(&server);
    for (body, status, words) in [
        (
            json!({"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0}}),
            422,
            "Lease.coordination.k8s.io \"x\" is invalid: spec.leaseDurationSeconds: Invalid value: \
             0: must be greater than 0",
        ),
        (
            json!({"metadata": {"name": "x"}, "spec": {"leaseTransitions": -1}}),
            422,
            "must be greater than or equal to 0",
        ),
        (json!({"metadata": {"name": "No"}}), 422, "a lowercase RFC 1123 subdomain"),
        (
            json!({"metadata": {"name": "x"}, "spec": {"leaseTransitions": 2_147_483_648_u64}}),
            400,
            "cannot unmarshal number 2147483648 into Go struct field \
             LeaseSpec.spec.leaseTransitions of type int32",
        ),
        (
            json!({"metadata": {"name": "x"}, "spec": {"renewTime": "2026-11-20T09:00:00Z"}}),
            400,
            "parsing time",
        ),
        (json!({"metadata": {"name": "x", "annotations": {"a": 1}}}), 400, "of type string"),
        (
            json!({"apiVersion": "v1", "metadata": {"name": "x"}}),
            400,
            "no kind \"Lease\" is registered",
        ),
        (json!({"metadata": {"name": "x", "namespace": "other"}}), 400, "namespace"),
    ] {
        let (code, told) = raw.post(LEASES, body.clone()).await;
        assert_eq!(code, status, "{body}: {told}");
        assert!(message(&told).contains(words), "{told}");
    }
    let (_, kept) = raw
        .post(
            LEASES,
            json!({"metadata": {"name": "x"}, "spec": {"renewTime": "2026-11-20T09:00:00.123456Z",
                   "acquireTime": null, "unheard": 1, "holderIdentity": ""}}),
        )
        .await;
    let spec = json!({"renewTime": "2026-11-20T09:00:00.123456Z", "holderIdentity": ""});
    assert_eq!(kept["spec"], spec);
}

#[tokio::test]
async fn a_namespace_that_is_missing_is_told_to_writers_alone() {
    let server = KubeServer::start();
    let raw = raw(&server);
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/nowhere/leases";
    let (status, told) = raw.post(elsewhere, json!({"metadata": {"name": "orders"}})).await;
    assert_eq!((status, message(&told)), (404, "namespaces \"nowhere\" not found"));
    assert_eq!(told["details"]["kind"], "namespaces");
    let (_, told) = raw.get(&format!("{elsewhere}/orders")).await;
    assert_eq!(message(&told), "leases.coordination.k8s.io \"orders\" not found");
    let (status, list) = raw.get(elsewhere).await;
    assert_eq!((status, &list["items"]), (200, &json!([])));
}

#[tokio::test]
async fn who_asks_and_what_they_may_is_judged_as_rbac_does() {
    let server = KubeServer::start();
    server.account("t", "team", "app");
    let raw = raw(&server).with_token(Some("t"));
    let (status, told) = raw.get(&format!("{LEASES}/orders")).await;
    assert_eq!(
        (status, message(&told)),
        (
            403,
            "leases.coordination.k8s.io \"orders\" is forbidden: User \
             \"system:serviceaccount:team:app\" cannot get resource \"leases\" in API group \
             \"coordination.k8s.io\" in the namespace \"team\""
        )
    );
    server.allow_named("t", "team", "leases", &["get", "update", "watch", "create"], &["orders"]);
    assert_eq!(raw.get(&format!("{LEASES}/orders")).await.0, 404);
    assert_eq!(raw.get(&format!("{LEASES}/other")).await.0, 403);
    let made = raw.post(LEASES, json!({"metadata": {"name": "orders"}})).await;
    assert_eq!(made.0, 403, "a create names nothing: {}", made.1);
    let watch = format!("{LEASES}?watch=1&timeoutSeconds=0&fieldSelector=metadata.name");
    assert_eq!(
        raw.send(Method::GET, &format!("{watch}%3Dorders"), Value::Null).await.unwrap().status(),
        200
    );
    assert_eq!(raw.get(&format!("{watch}%3Dother")).await.0, 403);
    server.allow("t", "team", "leases", &["create"]);
    assert_eq!(raw.post(LEASES, json!({"metadata": {"name": "orders"}})).await.0, 201);

    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, allowed) in [("create", true), ("delete", false)] {
        let asked = json!({"spec": {"resourceAttributes": {"namespace": "team", "verb": verb,
                           "group": "coordination.k8s.io", "resource": "leases"}}});
        let (status, told) = raw.post(review, asked).await;
        assert_eq!((status, &told["status"]["allowed"]), (201, &json!(allowed)));
    }
    server.expire("t");
    let (status, told) = raw.get(LEASES).await;
    assert_eq!((status, message(&told)), (401, "Unauthorized"));
    let (status, told) = raw.with_token(None).get(LEASES).await;
    assert_eq!(status, 403);
    assert!(message(&told).contains("system:anonymous"));
}

#[tokio::test]
async fn lists_and_watches_tell_what_the_selectors_ask_for() {
    let server = KubeServer::start();
    let raw = raw(&server);
    let first = make(&raw, "a").await;
    make(&raw, "b").await;
    let (_, list) = raw.get(&format!("{LEASES}?fieldSelector=metadata.name%3Db")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["kind"], "LeaseList");
    assert_eq!(raw.get(&format!("{LEASES}?fieldSelector=spec.x%3Db")).await.0, 400);

    let from = format!("fieldSelector=metadata.name%3Da&resourceVersion={}", version(&first));
    let mut named = raw.watch(LEASES, &from).await;
    let mut labelled = raw.watch(LEASES, "labelSelector=role%3Dactive").await;
    server.touch("leases", "team", "b");
    server.modify("leases", "team", "a", |it| it["metadata"]["labels"]["role"] = "active".into());
    assert_eq!(named.told().await.0, "MODIFIED");
    assert_eq!(labelled.told().await.0, "ADDED");
    server.modify("leases", "team", "a", |it| it["metadata"]["labels"]["role"] = "passive".into());
    server.delete("leases", "team", "a");
    assert_eq!(named.told().await.0, "MODIFIED");
    let (kind, name, at) = named.told().await;
    assert_eq!((kind.as_str(), name.as_str()), ("DELETED", "a"));
    assert!(at > version(&first));
    assert_eq!(labelled.told().await.0, "DELETED", "it fits no more");
    for (selector, count) in [("x", 0), ("!x", 1), ("x%20notin%20(1,2)", 1), ("x%20in%20(1,2)", 0)]
    {
        let (_, list) = raw.get(&format!("{LEASES}?labelSelector={selector}")).await;
        assert_eq!(list["items"].as_array().unwrap().len(), count, "{selector}");
    }
}

#[tokio::test]
async fn a_watch_tells_bookmarks_ends_in_time_and_says_when_its_version_is_gone() {
    let server = KubeServer::start();
    let raw = raw(&server);
    let made = make(&raw, "a").await;
    server.bookmark_every(Duration::from_millis(50));
    let mut watch = raw.watch(LEASES, "allowWatchBookmarks=true&timeoutSeconds=1").await;
    assert_eq!(watch.told().await.0, "ADDED");
    let mut told = Vec::new();
    while let Some(event) = watch.next().await {
        told.push(event);
    }
    assert!(told.len() > 1 && told.iter().all(|it| it["type"] == "BOOKMARK"), "{told:?}");
    server.touch("leases", "team", "a");
    server.compact();
    let mut watch = raw.watch(LEASES, &format!("resourceVersion={}", version(&made))).await;
    let error = watch.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(error["object"]["reason"], "Expired");
    assert_eq!(watch.next().await, None);
    server.withhold(true);
    let mut late = raw.watch(LEASES, "").await;
    assert_eq!(late.told().await.0, "ADDED");
    server.touch("leases", "team", "a");
    server.withhold(false);
    assert_eq!(late.told().await.0, "MODIFIED");
    server.cut_watches();
    assert!(late.try_next().await.is_err());
}

#[tokio::test]
async fn faults_come_as_ordered_and_are_counted() {
    let server = KubeServer::start();
    let raw = raw(&server);
    let mut lease = make(&raw, "a").await;
    server.inject("update leases", [Fault::DropAfter, Fault::Answer(Answer::throttled())]);
    lease["spec"] = json!({"holderIdentity": "a"});
    let url = format!("{LEASES}/a");
    assert!(raw.send(Method::PUT, &url, lease.clone()).await.is_err());
    assert_eq!(server.object("leases", "team", "a").unwrap()["spec"], lease["spec"], "done");
    let refused = raw.send(Method::PUT, &url, lease.clone()).await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (429, &"1".parse().unwrap())
    );
    assert_eq!(raw.put(LEASES, &lease).await.0, 409);
    assert_eq!(server.count("update leases"), 3);
    server.freeze_cache(true);
    server.touch("leases", "team", "a");
    let (_, old) = raw.get(&format!("{url}?resourceVersion=0")).await;
    assert!(version(&old) < version(&raw.get(&url).await.1), "only an old read is old");
    server.stop();
    assert!(raw.send(Method::GET, &url, Value::Null).await.is_err());
    server.resume();
    assert_eq!(raw.get(&url).await.0, 200);
    server.skew(3600);
    let ahead = raw.send(Method::GET, &url, Value::Null).await.unwrap();
    assert!(ahead.headers().contains_key("date"));
}

#[tokio::test]
async fn events_have_two_faces_and_slices_no_loopback() {
    let server = KubeServer::start();
    let raw = raw(&server);
    let event = json!({
        "metadata": {"generateName": "web-1."},
        "eventTime": "2026-11-20T09:00:00.000000Z",
        "reportingController": "tenure.dev/sidecar",
        "reportingInstance": "web-1",
        "action": "Elect",
        "reason": "BecameLeader",
        "type": "Normal",
        "note": "became leader",
        "regarding": {"kind": "Pod", "namespace": "team", "name": "web-1"},
    });
    let events = "/apis/events.k8s.io/v1/namespaces/team/events";
    let (status, made) = raw.post(events, event.clone()).await;
    assert_eq!((status, &made["note"]), (201, &json!("became leader")), "{made}");
    let (_, list) =
        raw.get("/api/v1/namespaces/team/events?fieldSelector=involvedObject.name%3Dweb-1").await;
    assert_eq!(list["items"][0]["message"], "became leader");
    let mut bad = event;
    bad["action"] = Value::Null;
    assert_eq!(raw.post(events, bad).await.0, 422);

    let slices = "/apis/discovery.k8s.io/v1/namespaces/team/endpointslices";
    let slice = |address: &str| {
        json!({"metadata": {"name": "s"}, "addressType": "IPv4",
                                       "endpoints": [{"addresses": [address]}]})
    };
    let (status, told) = raw.post(slices, slice("127.0.0.1")).await;
    assert_eq!(status, 422);
    assert!(message(&told).contains("may not be in the loopback range"), "{told}");
    assert_eq!(raw.post(slices, slice("10.0.0.7")).await.0, 201);
}
