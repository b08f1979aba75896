//! The faults, the time and the watches of the in-process API server, which a real one cannot be asked
//! for. That it answers as a real one does is shown in the ring `control_plane`.

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

#[tokio::test]
async fn a_watch_sends_bookmarks_times_out_and_reports_an_expired_version() {
    let server = KubeServer::start();
    let raw = raw(&server);
    let made = make(&raw, "a").await;
    server.bookmark_every(Duration::from_millis(50));
    let mut watch = raw.watch(LEASES, "allowWatchBookmarks=true&timeoutSeconds=1").await;
    assert_eq!(watch.event().await.0, "ADDED");
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
    assert_eq!(late.event().await.0, "ADDED");
    server.touch("leases", "team", "a");
    server.withhold(false);
    assert_eq!(late.event().await.0, "MODIFIED");
    server.cut_watches();
    assert!(late.try_next().await.is_err());
}

#[tokio::test]
async fn faults_are_injected_as_requested_and_counted() {
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
