//! The client of the API server, with the in-process server: what it reads and writes, how it
//! classifies errors, and that each of its requests ends.

use testkit::kubernetes::kube_server;

use std::path::PathBuf;
use std::time::Duration;

use kube_server::answers::Answer;
use kube_server::{Fault, KubeServer, TOKEN, Tls};
use serde_json::{Value, json};
use tenure::config::KubeAccess;
use tenure::kube::objects::{Lease, Metadata, Pod};
use tenure::kube::{Kube, KubeError};
use url::Url;

/// A request-timeout that a test can wait for, but long enough for a busy machine.
const BOUND: Duration = Duration::from_secs(2);

fn access(server: &KubeServer) -> KubeAccess {
    KubeAccess {
        api: Url::parse(&server.url()).unwrap(),
        token_file: Some(server.token_file()),
        ca_file: server.ca_file().exists().then(|| server.ca_file()),
    }
}

fn open(server: &KubeServer) -> Kube {
    Kube::open(&access(server), Duration::from_secs(5)).unwrap()
}

fn lease(name: &str) -> Lease {
    let metadata =
        Metadata { name: name.to_owned(), namespace: "team".to_owned(), ..Metadata::default() };
    Lease { metadata, ..Lease::default() }
}

async fn get(kube: &Kube) -> Result<Lease, KubeError> {
    kube.get::<Lease>("team", "orders").await.map(|it| it.object)
}

#[tokio::test]
async fn a_replacement_does_not_recreate_a_deleted_object() {
    let server = KubeServer::start();
    let kube = open(&server);
    let made = kube.create(&lease("orders")).await.unwrap().object;
    server.delete("leases", "team", "orders");
    assert!(matches!(kube.replace(&made).await, Err(KubeError::Conflict(_))));
    assert_eq!(server.object("leases", "team", "orders"), None);
    kube.create(&lease("orders")).await.unwrap();
    assert!(matches!(kube.replace(&made).await, Err(KubeError::Conflict(_))));
}

#[tokio::test]
async fn a_patch_with_a_version_is_conditional_and_a_dry_run_changes_nothing() {
    let server = KubeServer::start();
    let kube = open(&server);
    kube.try_create(&lease("orders")).await.unwrap();
    assert_eq!(server.object("leases", "team", "orders"), None);
    server.put("pods", "team", "web-1", json!({"spec": {"nodeName": "n"}}));
    let label = |version: Value| json!({"metadata": {"resourceVersion": version, "labels": {"tenure.dev/role": "active"}}});
    let pod = kube.get::<Pod>("team", "web-1").await.unwrap().object;
    let patched = kube.patch::<Pod>("team", "web-1", &label(Value::Null)).await.unwrap().object;
    assert_eq!(patched.metadata.labels["tenure.dev/role"], "active");
    let stale = label(pod.metadata.resource_version.into());
    let stale = kube.patch::<Pod>("team", "web-1", &stale).await;
    assert!(matches!(stale, Err(KubeError::Conflict(_))), "{stale:?}");
    let missing = kube.patch::<Pod>("team", "web-2", &label(Value::Null)).await;
    assert!(matches!(missing, Err(KubeError::Missing(_))), "{missing:?}");
}

#[tokio::test]
async fn a_list_of_many_pages_is_complete() {
    let server = KubeServer::start();
    let kube = open(&server);
    for number in 0..53 {
        let odd = if number % 2 == 1 { "odd" } else { "even" };
        let pod = json!({"metadata": {"labels": {"is": odd}}});
        server.put("pods", "team", &format!("web-{number:02}"), pod);
    }
    assert_eq!(kube.list::<Pod>("team", "").await.unwrap().len(), 53);
    let odd = kube.list::<Pod>("team", "is=odd").await.unwrap();
    assert_eq!(odd.len(), 26);
    assert!(odd.iter().all(|it| it.metadata.labels["is"] == "odd"));
    assert!(kube.list::<Pod>("other", "").await.unwrap().is_empty());
}

#[tokio::test]
async fn no_read_asks_for_an_answer_from_a_cache() {
    let server = KubeServer::start();
    let kube = open(&server);
    kube.create(&lease("orders")).await.unwrap();
    server.modify("leases", "team", "orders", |it| it["spec"]["holderIdentity"] = "new".into());
    assert_eq!(get(&kube).await.unwrap().spec.holder_identity.as_deref(), Some("new"));
    kube.list::<Lease>("team", "").await.unwrap();
    for request in server.take_log() {
        assert!(!request.query.contains_key("resourceVersion"), "{request:?}");
        assert!(request.headers["user-agent"].contains("tenure"), "{request:?}");
    }
}

/// A fault, the expected kind of error, and words that the error must contain.
type Reported = (Fault, fn(&KubeError) -> bool, &'static [&'static str]);

#[tokio::test]
async fn each_failure_is_reported_with_its_kind_and_a_message() {
    let server = KubeServer::start();
    let kube = Kube::open(&access(&server), BOUND).unwrap();
    let failure = |status, reason: &str, words: &str| {
        Fault::Answer(Answer::failure(status, reason, words, Value::Null))
    };
    let table: [Reported; 13] = [
        (Fault::Answer(Answer::throttled()), |it| matches!(it, KubeError::Throttled { .. }), &[]),
        (
            Fault::Answer(Answer::etcd_timed_out()),
            |it| matches!(it, KubeError::Unavailable(_)),
            &["etcdserver: request timed out"],
        ),
        (
            failure(503, "ServiceUnavailable", "the server is shutting down"),
            |it| matches!(it, KubeError::Unavailable(_)),
            &["shutting down"],
        ),
        (
            failure(504, "Timeout", "request did not complete within the allotted time"),
            |it| matches!(it, KubeError::Unavailable(_) | KubeError::Timeout(_)),
            &[],
        ),
        (
            failure(500, "", "etcdserver: leader changed"),
            |it| matches!(it, KubeError::Unavailable(_)),
            &[],
        ),
        (
            Fault::Answer(Answer::text(502, "bad gateway")),
            |it| matches!(it, KubeError::Unavailable(_)),
            &[],
        ),
        (Fault::Hang, |it| matches!(it, KubeError::Timeout(_)), &[]),
        (Fault::HangAfter, |it| matches!(it, KubeError::Timeout(_)), &[]),
        (Fault::DropBefore, |it| matches!(it, KubeError::Disconnected(_)), &[]),
        (Fault::DropAfter, |it| matches!(it, KubeError::Disconnected(_)), &[]),
        (Fault::Html, |it| matches!(it, KubeError::Invalid(_)), &[]),
        (
            Fault::Answer(Answer::text(404, "404 page not found")),
            |it| matches!(it, KubeError::Missing(_) | KubeError::Invalid(_)),
            &[],
        ),
        (
            failure(422, "Invalid", "spec: no sense"),
            |it| matches!(it, KubeError::Invalid(_)),
            &["no sense"],
        ),
    ];
    for (fault, kind, words) in table {
        server.inject("get leases", [fault.clone()]);
        let error = get(&kube).await.unwrap_err();
        assert!(kind(&error), "{fault:?}: {error:?}");
        let text = error.to_string();
        assert!(words.iter().all(|it| text.contains(it)), "{fault:?}: {text}");
        assert!(!text.contains(TOKEN) && !text.is_empty(), "{text}");
    }
    server.stop();
    let error = get(&kube).await.unwrap_err();
    assert!(matches!(error, KubeError::Disconnected(_) | KubeError::Network(_)), "{error:?}");
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
    server.resume();
    assert!(matches!(get(&kube).await, Err(KubeError::Missing(_))), "it works again");
}

#[tokio::test]
async fn a_missing_right_is_reported_with_the_rule_that_grants_it() {
    let server = KubeServer::start();
    server.account("t", "team", "app");
    server.write_token("t");
    let kube = open(&server);
    let read = get(&kube).await.unwrap_err();
    let made = kube.create(&lease("orders")).await.unwrap_err();
    server.allow("t", "team", "leases", &["get", "create"]);
    let object = kube.create(&lease("orders")).await.unwrap().object;
    let replaced = kube.replace(&object).await.unwrap_err();
    let patched = kube.patch::<Pod>("team", "web-1", &json!({})).await.unwrap_err();
    for (error, words) in [
        (read, ["get", "leases"]),
        (made, ["create", "leases"]),
        (replaced, ["update", "leases"]),
        (patched, ["patch", "pods"]),
    ] {
        assert!(matches!(error, KubeError::Forbidden(_)), "{error:?}");
        let text = error.to_string();
        let words = words.into_iter().chain(["team", "system:serviceaccount:team:app"]);
        words.for_each(|it| assert!(text.contains(it), "{it}: {text}"));
    }
    let elsewhere = Lease {
        metadata: Metadata { namespace: "nowhere".to_owned(), ..lease("orders").metadata },
        ..Lease::default()
    };
    server.allow("t", "", "leases", &["create"]);
    let error = kube.create(&elsewhere).await.unwrap_err();
    assert!(matches!(error, KubeError::NoNamespace(_)), "{error:?}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[tokio::test]
async fn a_rotated_token_is_read_again_and_an_expired_one_is_reported() {
    let server = KubeServer::start();
    let kube = open(&server);
    kube.create(&lease("orders")).await.unwrap();
    server.account("second", "team", "app");
    server.allow("second", "team", "leases", &["get"]);
    server.write_token("second\n");
    server.expire(TOKEN);
    get(&kube).await.expect("the new token is taken");
    server.expire("second");
    let error = get(&kube).await.unwrap_err();
    assert!(matches!(error, KubeError::Unauthorized(_)), "{error:?}");
    assert!(error.to_string().contains("token"), "{error}");
    assert!(!error.to_string().contains("second"), "{error}");
    std::fs::remove_file(server.token_file()).unwrap();
    let error = get(&kube).await.unwrap_err();
    assert!(matches!(error, KubeError::Files(_) | KubeError::Unauthorized(_)), "{error:?}");
    assert!(error.to_string().contains("--kube-token-file"), "{error}");
    server.account("third", "team", "app");
    server.write_token("third");
    get(&kube).await.expect("it works again");
}

#[tokio::test]
async fn without_a_token_requests_are_anonymous_and_the_refusal_is_reported() {
    let server = KubeServer::start();
    let kube = Kube::open(&KubeAccess { token_file: None, ..access(&server) }, BOUND).unwrap();
    let error = get(&kube).await.unwrap_err();
    assert!(matches!(error, KubeError::Forbidden(_) | KubeError::Unauthorized(_)), "{error:?}");
    assert!(error.to_string().contains("--kube-token-file"), "{error}");
    assert!(!server.take_log()[0].headers.contains_key("authorization"));
}

#[tokio::test]
async fn a_server_of_another_authority_gets_no_request() {
    let server = KubeServer::start_secure();
    let right = std::fs::read(server.ca_file()).unwrap();
    let other = Tls::new("127.0.0.1").authority;
    std::fs::write(server.ca_file(), &other).unwrap();
    let kube = open(&server);
    let error = get(&kube).await.unwrap_err();
    assert!(matches!(error, KubeError::Network(_)), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    let by_the_system = KubeAccess { ca_file: None, ..access(&server) };
    let error = get(&Kube::open(&by_the_system, BOUND * 10).unwrap()).await.unwrap_err();
    assert!(matches!(error, KubeError::Network(_)), "{error:?}");
    assert!(server.take_log().is_empty(), "no token was sent");
    std::fs::write(server.ca_file(), right).unwrap();
    assert!(matches!(get(&kube).await, Err(KubeError::Missing(_))), "the file is read again");

    let named = KubeServer::with(Some(Tls::new("kubernetes.default.svc")));
    let error = get(&open(&named)).await.unwrap_err();
    assert!(matches!(error, KubeError::Network(_)), "{error:?}");
    for broken in ["", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"] {
        std::fs::write(server.ca_file(), broken).unwrap();
        let error = get(&open(&server)).await.unwrap_err();
        assert!(matches!(error, KubeError::Files(_)), "{error:?}");
        assert!(error.to_string().contains(&server.ca_file().display().to_string()), "{error}");
    }
    let missing = KubeAccess { ca_file: Some(PathBuf::from("/nowhere/ca.crt")), ..access(&server) };
    let error = get(&Kube::open(&missing, BOUND).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("/nowhere/ca.crt"), "{error}");
}

#[tokio::test]
async fn a_token_is_not_sent_to_a_redirect() {
    let (server, other) = (KubeServer::start(), KubeServer::start());
    server.impose("any", Fault::Redirect(other.url()));
    let error = get(&open(&server)).await.unwrap_err();
    assert!(matches!(error, KubeError::Invalid(_) | KubeError::Unavailable(_)), "{error:?}");
    assert!(other.take_log().is_empty());
}
