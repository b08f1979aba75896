//! The client's watches: what they deliver, where they continue, and how they end.

use testkit::kubernetes::kube_server;

use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube_server::answers::Answer;
use kube_server::{Fault, KubeServer};
use serde_json::{Value, json};
use tenure::config::KubeAccess;
use tenure::kube::objects::Lease;
use tenure::kube::{Kube, KubeError, Watched};
use url::Url;

/// The timeout for any expected event.
const PATIENCE: Duration = Duration::from_secs(30);

type Event = Result<Watched<Lease>, KubeError>;

fn open(server: &KubeServer) -> Kube {
    let access = KubeAccess {
        api: Url::parse(&server.url()).unwrap(),
        token_file: Some(server.token_file()),
        ca_file: server.ca_file().exists().then(|| server.ca_file()),
    };
    Kube::open(&access, Duration::from_secs(2)).unwrap()
}

fn watch(kube: &Kube, from: Option<String>) -> Pin<Box<dyn Stream<Item = Event> + Send>> {
    Box::pin(kube.watch::<Lease>("team", "orders", from))
}

async fn next(watch: &mut Pin<Box<dyn Stream<Item = Event> + Send>>) -> Option<Event> {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("it tells something")
}

/// Returns kind and version of an event.
fn brief(event: Option<Event>) -> (&'static str, String) {
    match event.expect("not at its end").expect("no error") {
        Watched::Added(it) => ("added", it.metadata.resource_version),
        Watched::Modified(it) => ("modified", it.metadata.resource_version),
        Watched::Deleted(it) => ("deleted", it.metadata.resource_version),
        Watched::Bookmark(version) => ("bookmark", version),
    }
}

fn holder(server: &KubeServer, name: &str) -> String {
    server.modify("leases", "team", "orders", |it| it["spec"]["holderIdentity"] = name.into());
    let stored = server.object("leases", "team", "orders").unwrap();
    stored["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn with_lease() -> KubeServer {
    let server = KubeServer::start();
    server.put("leases", "team", "orders", json!({"spec": {}}));
    server.put("leases", "team", "others", json!({"spec": {}}));
    server
}

#[tokio::test]
async fn a_watch_reports_each_change_of_its_object() {
    for server in [KubeServer::start(), KubeServer::start_secure()] {
        server.put("leases", "team", "orders", json!({"spec": {}}));
        let kube = open(&server);
        let mut watch = watch(&kube, None);
        assert_eq!(brief(next(&mut watch).await).0, "added");
        server.put("leases", "team", "others", json!({"spec": {}}));
        let version = holder(&server, "a");
        assert_eq!(brief(next(&mut watch).await), ("modified", version));
        server.delete("leases", "team", "orders");
        assert_eq!(brief(next(&mut watch).await).0, "deleted");
        server.put("leases", "team", "orders", json!({"spec": {}}));
        assert_eq!(brief(next(&mut watch).await).0, "added");
        let request = server.take_log().remove(0);
        assert_eq!(
            request.query["fieldSelector"], "metadata.name=orders",
            "one name, for least rights"
        );
        assert!(request.query.contains_key("timeoutSeconds"), "{request:?}");
    }
}

#[tokio::test]
async fn a_watch_resumes_from_a_version_and_gets_bookmarks() {
    let server = with_lease();
    let kube = open(&server);
    let (first, second) = (holder(&server, "a"), holder(&server, "b"));
    let mut from = watch(&kube, Some(first));
    assert_eq!(brief(next(&mut from).await), ("modified", second));
    server.bookmark_every(Duration::from_millis(50));
    let mut marked = watch(&kube, Some(holder(&server, "c")));
    server.touch("leases", "team", "others");
    let latest = server.object("leases", "team", "others").unwrap();
    let latest = latest["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for _ in 0..100 {
        let event = brief(next(&mut marked).await);
        assert_eq!(event.0, "bookmark");
        if event.1 == latest {
            return;
        }
    }
    panic!("no bookmark tells of {latest}");
}

#[tokio::test]
async fn an_expired_version_is_reported_as_gone_in_either_form() {
    let server = with_lease();
    let kube = open(&server);
    let old = holder(&server, "a");
    holder(&server, "b");
    server.compact();
    let mut watching = watch(&kube, Some(old.clone()));
    let event = next(&mut watching).await.unwrap();
    assert!(matches!(event, Err(KubeError::Gone(_))), "{event:?}");
    assert!(next(&mut watching).await.is_none(), "it has ended");
    let gone = Answer::failure(410, "Expired", "too old resource version", Value::Null);
    server.inject("watch leases", [Fault::Answer(gone)]);
    let event = next(&mut watch(&kube, Some(old))).await.unwrap();
    assert!(matches!(event, Err(KubeError::Gone(_))), "{event:?}");
    assert_eq!(brief(next(&mut watch(&kube, None)).await).0, "added", "anew, it begins well");
}

#[tokio::test]
async fn a_watch_that_is_cut_refused_or_unanswered_ends_with_the_reason() {
    let server = with_lease();
    let kube = open(&server);
    let mut cut = watch(&kube, None);
    assert_eq!(brief(next(&mut cut).await).0, "added");
    server.cut_watches();
    let event = next(&mut cut).await.unwrap();
    assert!(matches!(event, Err(KubeError::Disconnected(_) | KubeError::Network(_))), "{event:?}");
    assert!(next(&mut cut).await.is_none());
    let forbidden = Answer::failure(403, "Forbidden", "leases is forbidden", Value::Null);
    for (fault, kind) in [
        (Fault::Answer(forbidden), (|it| matches!(it, KubeError::Forbidden(_))) as fn(&_) -> bool),
        (Fault::Answer(Answer::throttled()), |it| matches!(it, KubeError::Throttled { .. })),
        (Fault::Answer(Answer::etcd_timed_out()), |it| matches!(it, KubeError::Unavailable(_))),
        (Fault::Answer(Answer::unauthorized()), |it| matches!(it, KubeError::Unauthorized(_))),
        (Fault::Hang, |it| matches!(it, KubeError::Timeout(_))),
        (Fault::Html, |it| matches!(it, KubeError::Invalid(_))),
    ] {
        // A rejected token is tried once more, after its file was read again.
        server.impose("watch leases", fault.clone());
        let event = next(&mut watch(&kube, None)).await;
        let event = event.unwrap_or_else(|| panic!("{fault:?} ends without an error")).unwrap_err();
        assert!(kind(&event), "{fault:?}: {event:?}");
        server.heal();
    }
}

#[tokio::test]
async fn a_line_that_never_ends_ends_the_watch() {
    let server = with_lease();
    let kube = open(&server);
    let endless = format!("{{\"type\": \"{}", "x".repeat(3 << 20));
    server.inject("watch leases", [Fault::Answer(Answer::text(200, &endless))]);
    let event = next(&mut watch(&kube, None)).await.unwrap();
    assert!(matches!(event, Err(KubeError::Invalid(_))), "{event:?}");
    let nonsense = "not JSON\n{\"type\": \"MODIFIED\", \"object\": 7}\n";
    server.inject("watch leases", [Fault::Answer(Answer::text(200, nonsense))]);
    let event = next(&mut watch(&kube, None)).await.unwrap();
    assert!(matches!(event, Err(KubeError::Invalid(_))), "{event:?}");
}
