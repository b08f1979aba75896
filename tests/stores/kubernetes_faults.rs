//! Faults between a candidate and the API server: which outcomes are definite, lost and late
//! answers, other writers, and a Lease that is deleted.

use testkit::kubernetes::{kube_server, lease_lock};

use std::time::Duration;

use kube_server::answers::Answer;
use kube_server::{Fault, KubeServer};
use lease_lock::{A, B, bid, lead, lease, open, outcome, seeing, settings, soon, usurp};
use serde_json::{Value, json};
use tenure::lease::{Bid, StoreError, Successor};
use tenure::store::kubernetes::Kubernetes;
use tenure::store::{LeaseAdmin, LeaseStore};

/// Makes every call of a holder, and returns the outcomes by name.
async fn all(store: &Kubernetes, bid: &Bid) -> Vec<(&'static str, String)> {
    vec![
        ("read", outcome(&soon(store.read()).await)),
        ("acquire", outcome(&soon(store.acquire(bid)).await)),
        ("write_term", outcome(&soon(store.write_term(bid, 0)).await)),
        ("renew", outcome(&soon(store.renew(bid)).await)),
        ("release", outcome(&soon(store.release(bid)).await)),
        ("create", outcome(&soon(store.create(1)).await)),
        ("break", outcome(&soon(store.break_lease(false)).await)),
    ]
}

/// Returns a fault that answers with success and this body.
fn success_with(body: &Value) -> Fault {
    Fault::Answer(Answer::json(200, body))
}

fn failure(status: u16, reason: &str, words: &str) -> Fault {
    Fault::Answer(Answer::failure(status, reason, words, Value::Null))
}

#[tokio::test]
async fn no_error_of_the_server_counts_as_a_loss() {
    let server = KubeServer::start();
    let store = Kubernetes::open(&tenure::config::KubernetesSettings {
        request_timeout: Duration::from_millis(1_500),
        ..settings(&server, "team", "orders")
    });
    let store = store.unwrap();
    let (held, _) = lead(&store, A).await;
    let before = lease(&server);
    let mut another = before.clone();
    another["metadata"]["name"] = "others".into();
    for (fault, cause) in [
        (Fault::Answer(Answer::throttled()), "throttled"),
        (Fault::Answer(Answer::etcd_timed_out()), "unavailable"),
        (failure(503, "ServiceUnavailable", "shutting down"), "unavailable"),
        (Fault::Answer(Answer::text(502, "bad gateway")), "unavailable"),
        (Fault::Answer(Answer::unauthorized()), "auth"),
        (failure(403, "Forbidden", "is forbidden: no"), "auth"),
        (failure(404, "NotFound", "the server could not find the requested resource"), "settings"),
        (Fault::Answer(Answer::text(404, "404 page not found")), "settings"),
        (failure(400, "BadRequest", "no"), "settings"),
        (failure(422, "Invalid", "no"), "settings"),
        (Fault::Html, "settings"),
        // Valid JSON from something that is not the API server.
        (success_with(&json!({})), "settings"),
        (success_with(&json!({"status": "ok"})), "settings"),
        (
            success_with(&json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})),
            "settings",
        ),
        (success_with(&json!({"kind": "Lease", "apiVersion": "v1", "metadata": {}})), "settings"),
        (success_with(&another), "settings"),
        (Fault::Hang, "timeout"),
        (Fault::DropBefore, "network"),
    ] {
        server.impose("any", fault.clone());
        for (call, outcome) in all(&store, &held).await {
            let (known, answer) = outcome.split_once(": ").unwrap_or((&outcome, ""));
            assert!(matches!(known, "unknown" | "broken"), "{fault:?}, {call}: {outcome}");
            assert_eq!(answer, cause, "{fault:?}, {call}");
        }
        server.heal();
        assert_eq!(lease(&server), before, "{fault:?}");
    }
    server.stop();
    for (call, outcome) in all(&store, &held).await {
        assert!(matches!(&*outcome, "unknown: network" | "broken: network"), "{call}: {outcome}");
    }
    server.resume();
    soon(store.renew(&held)).await.expect("it is still held after it came back");
}

#[tokio::test]
async fn a_refused_write_is_no_loss() {
    let server = KubeServer::start();
    let store = open(&server);
    let (held, _) = lead(&store, A).await;
    for fault in [
        Fault::Answer(Answer::throttled()),
        Fault::Answer(Answer::etcd_timed_out()),
        Fault::Answer(Answer::unauthorized()),
        failure(403, "Forbidden", "no"),
        failure(409, "Conflict", "Operation cannot be fulfilled"),
        failure(404, "NotFound", "namespaces \"team\" not found"),
    ] {
        server.impose("update leases", fault.clone());
        let renewed = soon(store.renew(&held)).await.map(drop);
        for renewed in [renewed, soon(store.release(&held)).await] {
            let definite = matches!(renewed, Ok(()) | Err(StoreError::Refused(_)));
            assert!(!definite, "{fault:?}: {renewed:?}");
        }
        server.heal();
        soon(store.renew(&held)).await.unwrap();
    }
}

#[tokio::test]
async fn fault_44_a_write_counts_only_if_its_answer_shows_all_of_it() {
    let server = KubeServer::start();
    let store = open(&server);
    let (held, _) = lead(&store, A).await;
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    let ours = lease(&server);
    let changed = |change: fn(&mut Value)| {
        let mut it = ours.clone();
        change(&mut it);
        it
    };
    // Changes that a webhook of the cluster may make to the object, the last back to what it was.
    for made in [
        changed(|it| it["spec"]["holderIdentity"] = "".into()),
        changed(|it| it["spec"]["holderIdentity"] = "another".into()),
        changed(|it| it["metadata"]["annotations"] = json!({})),
        ours.clone(),
    ] {
        server.impose("update leases", success_with(&made));
        for (call, written) in [
            ("acquire", soon(store.acquire(&held)).await.map(drop)),
            ("renew", soon(store.renew(&held)).await.map(drop)),
            ("set-successor", soon(store.set_successor(&held, &successor)).await.map(drop)),
            ("release", soon(store.release(&held)).await),
            ("break", soon(store.break_lease(false)).await.map(drop)),
        ] {
            assert_eq!(outcome(&written), "unknown: settings", "{call}: {made}");
        }
        server.heal();
    }
    soon(store.release(&held)).await.unwrap();
    server.delete("leases", "team", "orders");
    let bid = seeing(&store, bid(B)).await;
    server.inject("create leases", [success_with(&ours)]);
    assert_eq!(outcome(&soon(store.acquire(&bid)).await), "unknown: settings");
    assert_eq!(soon(store.acquire(&bid)).await.map(|it| it.record.term), Ok(None));
    // A webhook that restores the annotations: as if the term had never been written.
    server.impose("update leases", success_with(&lease(&server)));
    assert_eq!(outcome(&soon(store.write_term(&bid, 7)).await), "unknown: settings");
    assert_eq!(outcome(&soon(store.create(7)).await), "unknown: settings");
    server.heal();
    assert_eq!(soon(store.write_term(&bid, 7)).await, Ok(7));
}

#[tokio::test]
async fn a_bid_whose_answer_is_lost_is_granted_when_it_is_repeated() {
    let server = KubeServer::start();
    let store = open(&server);
    for (number, op, fault) in [
        (1, "create leases", Fault::DropAfter),
        (2, "update leases", Fault::DropAfter),
        (3, "update leases", Fault::Late(Duration::from_secs(5))),
    ] {
        let before = server.object("leases", "team", "orders");
        let counted = |it: &Value| it["spec"]["leaseTransitions"].as_i64().unwrap();
        let expected = before.map_or(0, |it| counted(&it) + 1);
        let bid = seeing(&store, bid(number)).await;
        server.inject(op, [fault]);
        let lost = soon(store.acquire(&bid)).await;
        assert!(matches!(lost, Err(StoreError::Unknown(_) | StoreError::RetryNow(_))), "{lost:?}");
        let stands = lease(&server);
        let landed = format!("web-{number}_instance-{number}");
        assert_eq!(stands["spec"]["holderIdentity"], landed.as_str());
        let grant = soon(store.acquire(&bid)).await.expect("its own");
        assert_eq!(counted(&lease(&server)), expected, "one acquisition");
        assert_ne!(grant.record.nonce, Some(bid.nonce), "the record is of before");
        server.inject("update leases", [Fault::DropAfter]);
        let lost = soon(store.write_term(&bid, 0)).await;
        assert!(lost.is_err(), "{lost:?}");
        let term = soon(store.write_term(&bid, 0)).await.unwrap();
        assert_eq!(lease(&server)["metadata"]["annotations"]["tenure.dev/term"], term.to_string());
        assert_eq!(soon(store.write_term(&bid, 0)).await, Ok(term), "one term");
        server.inject("update leases", [Fault::DropAfter]);
        assert!(soon(store.renew(&bid)).await.is_err());
        soon(store.renew(&bid)).await.expect("whether it has landed or not");
        server.inject("update leases", [Fault::DropAfter]);
        assert!(soon(store.release(&bid)).await.is_err());
        assert_eq!(outcome(&soon(store.release(&bid)).await), "refused", "which comes to the same");
        assert!(soon(store.read()).await.unwrap().free);
    }
}

#[tokio::test]
async fn a_late_write_changes_no_later_state() {
    let server = KubeServer::start();
    let store = open(&server);
    let (first, _) = lead(&store, A).await;
    soon(store.release(&first)).await.unwrap();
    let late = Duration::from_millis(2_500);
    // A bid, a renewal and a release that the client has abandoned, each before the next holder.
    for call in ["acquire", "renew", "release"] {
        let a = seeing(&store, bid(A)).await;
        if call != "acquire" {
            soon(store.acquire(&a)).await.unwrap();
        }
        server.take_log();
        server.inject("update leases", [Fault::Delay(late)]);
        let request = async {
            match call {
                "acquire" => store.acquire(&a).await.map(drop),
                "renew" => store.renew(&a).await.map(drop),
                _ => store.release(&a).await,
            }
        };
        let given_up = tokio::time::timeout(Duration::from_secs(1), request).await;
        assert!(given_up.is_err(), "{call} was answered");
        let b = seeing(&store, bid(B)).await;
        soon(store.acquire(&b)).await.unwrap();
        let landed = async {
            while !server.take_log().iter().any(|it| it.op == "update leases" && it.status == 409) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        soon(landed).await;
        assert_eq!(lease(&server)["spec"]["holderIdentity"], "web-11_instance-11", "{call}");
        soon(store.renew(&b)).await.unwrap();
        soon(store.release(&b)).await.unwrap();
    }
}

#[tokio::test]
async fn a_renewal_reads_the_lease_after_a_conflict_and_never_from_a_cache() {
    let server = KubeServer::start();
    let store = open(&server);
    let (a, _) = lead(&store, A).await;
    server.touch("leases", "team", "orders");
    for _ in 0..3 {
        let first = soon(store.renew(&a)).await;
        if first.is_err() {
            soon(store.renew(&a)).await.expect("at once, on the version that stands there");
        }
        server.touch("leases", "team", "orders");
    }
    server.modify("leases", "team", "orders", usurp);
    assert_eq!(
        outcome(&soon(store.renew(&a)).await),
        "refused",
        "a cache would return the lease as held"
    );
    for request in server.take_log() {
        assert!(!request.query.contains_key("resourceVersion"), "{request:?}");
    }
}

#[tokio::test]
async fn a_lease_deleted_during_a_write_is_not_recreated_by_it() {
    let server = KubeServer::start();
    let store = open(&server);
    let (a, _) = lead(&store, A).await;
    server.take_log();
    server.inject("update leases", [Fault::Delay(Duration::from_millis(1_500))]);
    let (renewed, ()) = tokio::join!(soon(store.renew(&a)), async {
        // The Lease was read, and the write is in progress.
        while server.count("get leases") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.delete("leases", "team", "orders");
    });
    assert!(renewed.is_err(), "{renewed:?}");
    assert_eq!(server.object("leases", "team", "orders"), None);
    assert_eq!(outcome(&soon(store.renew(&a)).await), "refused");
}

#[tokio::test]
async fn a_missing_or_terminating_namespace_is_reported_until_it_exists() {
    let server = KubeServer::start();
    let store = Kubernetes::open(&settings(&server, "shop", "orders")).unwrap();
    assert!(soon(store.read()).await.unwrap().free, "a read cannot tell");
    let a = seeing(&store, bid(A)).await;
    let answer = soon(store.acquire(&a)).await.unwrap_err();
    assert!(matches!(answer, StoreError::Unknown(_)), "{answer:?}");
    assert!(answer.to_string().contains("the namespace shop does not exist"), "{answer}");
    server.namespace("shop");
    let terminating = "leases \"orders\" is forbidden: unable to create new content in namespace shop \
                       because it is being terminated";
    server.inject("create leases", [failure(403, "Forbidden", terminating)]);
    let answer = soon(store.acquire(&a)).await.unwrap_err();
    assert!(answer.to_string().contains("being terminated"), "{answer}");
    assert!(!answer.to_string().contains("create role"), "no rule is missing: {answer}");
    soon(store.acquire(&a)).await.unwrap();
}
