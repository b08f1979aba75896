//! What wakes a standby: a release, an expiry, a deletion and a named successor, but never a
//! renewal; also after expired versions, cut watches, and an outage of the server.

use testkit::kubernetes::{kube_server, lease_lock};

use std::time::Duration;

use kube_server::answers::Answer;
use kube_server::{Fault, KubeServer};
use lease_lock::{A, B, bid, lead, news, open, seeing, soon, usurp};
use serde_json::{Value, json};
use tenure::lease::{Change, Successor};
use tenure::store::kubernetes::Kubernetes;
use tenure::store::{LeaseAdmin, LeaseStore};

/// How long a standby must stay asleep to count as not woken.
const QUIET: Duration = Duration::from_millis(400);

/// Waits until a standby has seen the current state and sleeps.
async fn asleep(standby: &Kubernetes) {
    let _ = soon(standby.read()).await;
    while tokio::time::timeout(QUIET, news(standby)).await.is_ok() {}
}

/// Returns whether the standby is woken within [`QUIET`].
async fn woken(standby: &Kubernetes) -> bool {
    tokio::time::timeout(QUIET, news(standby)).await.is_ok()
}

#[tokio::test]
async fn a_standby_is_woken_by_changes_it_can_act_on() {
    let server = KubeServer::start();
    let (store, standby) = (open(&server), open(&server));
    let (a, _) = lead(&store, A).await;
    asleep(&standby).await;
    let successor = Successor { identity: "web-11".to_owned(), hold_off: Duration::from_secs(9) };
    soon(store.set_successor(&a, &successor)).await.unwrap();
    soon(news(&standby)).await;
    soon(store.release(&a)).await.unwrap();
    soon(news(&standby)).await;
    let b = seeing(&store, bid(B)).await;
    soon(store.acquire(&b)).await.unwrap();
    soon(news(&standby)).await;
    soon(store.write_term(&b, 0)).await.unwrap();
    soon(news(&standby)).await;
    soon(store.break_lease(false)).await.unwrap();
    soon(news(&standby)).await;
    server.delete("leases", "team", "orders");
    soon(news(&standby)).await;
    server.put("leases", "team", "orders", json!({"spec": {}}));
    soon(news(&standby)).await;
    server.modify("leases", "team", "orders", usurp);
    soon(news(&standby)).await;
}

#[tokio::test]
async fn renewals_and_unrelated_changes_wake_no_standby() {
    let server = KubeServer::start();
    let (store, standby) = (open(&server), open(&server));
    let (a, _) = lead(&store, A).await;
    asleep(&standby).await;
    for _ in 0..5 {
        soon(store.renew(&a)).await.unwrap();
        server.touch("leases", "team", "orders");
        server.put("leases", "team", "others", json!({"spec": {"holderIdentity": "x"}}));
    }
    assert!(!woken(&standby).await);
    soon(store.release(&a)).await.unwrap();
    soon(news(&standby)).await;
}

#[tokio::test]
async fn a_renewal_is_shown_as_a_read_would_show_it() {
    let server = KubeServer::start();
    let (store, standby) = (open(&server), open(&server));
    let (a, _) = lead(&store, A).await;
    asleep(&standby).await;
    soon(store.renew(&a)).await.unwrap();
    let claim = soon(standby.read()).await.unwrap().claim.expect("it is held");
    assert_eq!(soon(standby.changed()).await, Change::Renewal(claim));
}

#[tokio::test]
async fn a_standby_sends_no_request_while_nothing_changes() {
    let server = KubeServer::start();
    let (store, standby) = (open(&server), open(&server));
    let (_, _) = lead(&store, A).await;
    asleep(&standby).await;
    server.take_log();
    let mut waiting = std::pin::pin!(news(&standby));
    assert!(tokio::time::timeout(QUIET * 3, &mut waiting).await.is_err());
    assert_eq!(server.count("any"), 0);
    assert!(server.count("watch leases") <= 1, "{}", server.count("watch leases"));
}

#[tokio::test]
async fn a_release_is_reported_after_an_expired_version_and_after_cut_watches() {
    let server = KubeServer::start();
    let (store, standby) = (open(&server), open(&server));
    let gone = Answer::failure(410, "Expired", "too old resource version", Value::Null);
    let mut number = A;
    for trouble in ["compacted", "gone", "cut", "away", "refused"] {
        number += 1;
        let (held, _) = lead(&store, number).await;
        asleep(&standby).await;
        match trouble {
            "compacted" => {
                server.withhold(true);
                server.touch("leases", "team", "orders");
                server.compact();
                server.withhold(false);
            }
            "gone" => {
                server.inject("watch leases", [Fault::Answer(gone.clone())]);
                server.cut_watches();
            }
            "cut" => server.cut_watches(),
            "away" => {
                server.stop();
                assert!(!woken(&standby).await || soon(standby.read()).await.is_err());
                server.resume();
            }
            _ => {
                server.inject("watch leases", [Fault::Answer(Answer::throttled())]);
                server.cut_watches();
            }
        }
        // A spurious wake-up is allowed: it only causes a read.
        while woken(&standby).await {}
        soon(store.release(&held)).await.unwrap();
        tokio::time::timeout(Duration::from_secs(40), news(&standby))
            .await
            .unwrap_or_else(|_| panic!("{trouble}: the release is not reported"));
    }
}

#[tokio::test]
async fn a_watch_that_fails_is_retried_with_a_backoff() {
    let server = KubeServer::start();
    let (store, standby) = (open(&server), open(&server));
    lead(&store, A).await;
    let forbidden = Answer::failure(403, "Forbidden", "leases is forbidden", Value::Null);
    for fault in [
        Fault::Answer(forbidden),
        Fault::Answer(Answer::throttled()),
        Fault::Answer(Answer::etcd_timed_out()),
        Fault::Answer(Answer::text(200, "")),
        Fault::Html,
        Fault::DropBefore,
        Fault::DropAfter,
    ] {
        server.impose("watch leases", fault.clone());
        server.cut_watches();
        server.take_log();
        let all = async {
            loop {
                news(&standby).await;
            }
        };
        let ended = tokio::time::timeout(Duration::from_secs(2), all).await;
        assert!(ended.is_err());
        let requests = server.count("watch leases");
        assert!(requests <= 8, "{fault:?}: asked {requests} times in 2 s");
        server.heal();
    }
}

#[tokio::test]
async fn a_watch_that_ends_at_once_is_retried_with_a_growing_backoff() {
    let server = KubeServer::start();
    let (store, standby) = (open(&server), open(&server));
    lead(&store, A).await;
    asleep(&standby).await;
    // It cannot continue from any version that it receives: it begins again each time, and receives
    // the current Lease.
    let gone = || Fault::Answer(Answer::failure(410, "Expired", "too old", Value::Null));
    server.inject("watch leases", (0..200).flat_map(|_| [gone(), Fault::Delay(Duration::ZERO)]));
    server.take_log();
    let cutting = async {
        loop {
            server.cut_watches();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waiting = async {
        tokio::select! { () = cutting => {}, _ = news(&standby) => {} }
    };
    let waiting = tokio::time::timeout(Duration::from_secs(6), waiting).await;
    assert!(waiting.is_err(), "nothing has changed");
    let requests = server.count("watch leases");
    assert!((2..=12).contains(&requests), "asked {requests} times in 6 s");
}
