//! The Azure backend with answers that are lost, late, wrong or not Azure's.

use testkit::azure::{azurite, blob_server, token_server};
use testkit::http::raw;
use testkit::stores::bids;

use std::time::Duration;

use tokio::io::AsyncBufReadExt;

use bids::{A, B, bid, leading, open, outcome, soon};
use blob_server::{BlobServer, Fault, Proof};
use raw::Raw;
use tenure::lease::{Bid, Cause, LeaseId, Nonce, StoreError, Successor};
use tenure::store::{LeaseAdmin, LeaseStore};

#[tokio::test]
async fn an_ambiguous_response_is_unknown() {
    let (server, store) = leading().await;
    let table = [
        (302, "", Cause::Settings),
        (400, "InvalidHeaderValue", Cause::Settings),
        (401, "InvalidAuthenticationInfo", Cause::Auth),
        (403, "AuthorizationPermissionMismatch", Cause::Auth),
        (404, "ResourceNotFound", Cause::Settings),
        (409, "BlobArchived", Cause::Settings),
        (409, "SomethingNew", Cause::Unavailable),
        (412, "SomethingNew", Cause::Unavailable),
        (429, "", Cause::Throttled),
        (500, "InternalError", Cause::Unavailable),
        (500, "LeaseLost", Cause::Unavailable),
        (502, "", Cause::Unavailable),
        (503, "ServerBusy", Cause::Throttled),
        (504, "", Cause::Unavailable),
    ];
    for (status, code, cause) in table {
        for op in ["acquire", "renew", "release", "read", "write"] {
            server.inject(op, [Fault::Answer(status, code)]);
            let error = match op {
                "acquire" => soon(store.acquire(&bid(A))).await.map(|_| ()).unwrap_err(),
                "renew" => soon(store.renew(&bid(A))).await.unwrap_err(),
                "release" => soon(store.release(&bid(A))).await.unwrap_err(),
                "read" => soon(store.read()).await.map(|_| ()).unwrap_err(),
                _ => {
                    let mut next = bid(A);
                    next.nonce = Nonce(99);
                    soon(store.write_term(&next, 1)).await.map(|_| ()).unwrap_err()
                }
            };
            assert!(matches!(error, StoreError::Unknown(_)), "{op} {status} {code}: {error:?}");
            assert_eq!(error.failure().cause, cause, "{op} {status} {code}: {error}");
            assert!(error.to_string().contains(&status.to_string()), "{error}");
            assert!(!error.to_string().contains('<'), "{error}");
        }
    }
    soon(store.renew(&bid(A))).await.expect("the lease outlived them all");
}

#[tokio::test]
async fn one_call_is_one_request() {
    let (server, store) = leading().await;
    for fault in [Fault::Answer(503, "ServerBusy"), Fault::DropBefore, Fault::Html] {
        server.inject("renew", [fault]);
        assert_ne!(outcome(&soon(store.renew(&bid(A))).await), "granted");
        let log = server.take_log();
        assert_eq!(log.len(), 1, "no retry of its own: {log:?}");
    }
    soon(store.read()).await.expect("a read");
    assert_eq!(server.take_log().len(), 1);
    soon(store.release(&bid(A))).await.expect("a release");
    assert_eq!(server.take_log().len(), 1);
}

#[tokio::test]
async fn fault_21_an_answer_that_names_another_lease_is_a_loss() {
    let (server, store) = leading().await;
    server.inject("any", [Fault::WrongLease, Fault::WrongLease]);
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "refused");
    assert_eq!(outcome(&soon(store.acquire(&bid(A))).await), "refused");
}

#[tokio::test]
async fn fault_21_an_html_page_as_an_answer_is_unknown() {
    let (server, store) = leading().await;
    for op in ["acquire", "renew", "release", "read", "write"] {
        server.inject(op, [Fault::Html]);
    }
    assert_eq!(outcome(&soon(store.acquire(&bid(A))).await), "unknown");
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "unknown");
    assert_eq!(outcome(&soon(store.release(&bid(A))).await), "unknown");
    assert_eq!(outcome(&soon(store.read()).await), "unknown");
    let mut next = bid(A);
    next.nonce = Nonce(99);
    assert_eq!(outcome(&soon(store.write_term(&next, 1)).await), "unknown");
}

#[tokio::test]
async fn fault_21_a_redirect_is_never_followed() {
    let (server, store) = leading().await;
    let elsewhere = BlobServer::start().await;
    let to = format!("{}/locks/orders", elsewhere.endpoint);
    server.inject("any", vec![Fault::Redirect(to); 3]);
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "unknown");
    assert_eq!(outcome(&soon(store.read()).await), "unknown");
    assert_eq!(outcome(&soon(store.acquire(&bid(A))).await), "unknown");
    assert!(elsewhere.take_log().is_empty());
}

#[tokio::test]
async fn a_bid_whose_answer_was_lost_is_granted_again_with_the_same_id() {
    let server = BlobServer::start().await;
    let store = open(server.settings("locks", "orders"));
    soon(store.create(1)).await.expect("made");
    server.inject("acquire", [Fault::DropAfter]);
    assert_eq!(outcome(&soon(store.acquire(&bid(A))).await), "broken");
    assert_eq!(outcome(&soon(store.acquire(&bid(B))).await), "refused", "it was applied");
    assert_eq!(outcome(&soon(store.acquire(&bid(A))).await), "granted");
}

#[tokio::test]
async fn a_call_that_hangs_can_be_dropped_and_the_next_one_works() {
    let (server, store) = leading().await;
    for fault in [Fault::Hang, Fault::HangAfter] {
        server.inject("renew", [fault]);
        let hung = tokio::time::timeout(Duration::from_millis(200), store.renew(&bid(A))).await;
        assert!(hung.is_err(), "nothing answers");
        soon(store.renew(&bid(A))).await.expect("over a fresh connection");
    }
}

#[tokio::test]
async fn a_term_whose_answer_was_lost_is_not_written_twice() {
    let server = BlobServer::start().await;
    let store = open(server.settings("locks", "orders"));
    soon(store.acquire(&bid(A))).await.expect("the lease");
    server.inject("write", [Fault::DropAfter]);
    assert_eq!(outcome(&soon(store.write_term(&bid(A), 5)).await), "broken");
    assert_eq!(soon(store.write_term(&bid(A), 5)).await, Ok(5), "read again, no double step");
}

#[tokio::test]
async fn a_record_that_changed_is_a_loss_unless_it_has_the_nonce_of_the_write() {
    let (server, store) = leading().await;
    let mut next = bid(A);
    next.nonce = Nonce(99);
    server.inject("write", [Fault::Answer(412, "ConditionNotMet")]);
    assert_eq!(outcome(&soon(store.write_term(&next, 1)).await), "refused");
    assert_eq!(soon(store.write_term(&next, 1)).await, Ok(2));
    let sent = server.take_log();
    let writes = sent.iter().filter(|it| it.op == "write");
    assert!(
        writes.clone().count() == 2
            && writes.clone().all(|it| {
                it.headers.contains_key("if-match") && it.headers.contains_key("x-ms-lease-id")
            })
    );
}

#[tokio::test]
async fn a_deleted_blob_or_container_is_a_loss_of_the_lease() {
    let (server, store) = leading().await;
    let raw = Raw::new(&server.settings("locks", "orders"));
    raw.container("DELETE").await;
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "refused");
    assert_eq!(outcome(&soon(store.write_term(&bid(A), 1)).await), "refused");
    assert_eq!(outcome(&soon(store.release(&bid(A))).await), "refused");
    let error = soon(store.acquire(&bid(B))).await.unwrap_err();
    assert!(error.to_string().contains("is being deleted"), "{error}");
    assert!(matches!(error, StoreError::Unknown(_)));
    server.advance(Duration::from_secs(30));
    let grant = soon(store.acquire(&bid(B))).await.expect("made again");
    assert_eq!(grant.record.term, None, "and R11 is the election's to apply");
}

/// What a server was asked, and how it answered.
fn requests(server: &BlobServer) -> Vec<(String, u16)> {
    server.take_log().into_iter().map(|it| (it.op, it.status)).collect()
}

#[tokio::test]
async fn a_missing_blob_is_created_only_for_a_bid_that_found_it_missing() {
    let (server, store) = leading().await;
    let raw = Raw::new(&server.settings("locks", "orders"));
    let held = bid(A).lease.to_wire();
    assert_eq!(raw.blob("DELETE", "", &[("x-ms-lease-id", &held)]).await.status, 202);
    server.take_log();
    let contention = Fault::Answer(409, "LeaseAlreadyPresent");
    for fault in [contention, Fault::Answer(503, "ServerBusy"), Fault::DropBefore] {
        server.inject("acquire", [fault]);
        assert_ne!(outcome(&soon(store.acquire(&bid(A))).await), "granted");
    }
    assert_eq!(soon(store.read()).await.expect("a read").record.term, None);
    for refused in [
        outcome(&soon(store.renew(&bid(A))).await),
        outcome(&soon(store.write_term(&bid(A), 1)).await),
        outcome(&soon(store.release(&bid(A))).await),
    ] {
        assert_eq!(refused, "refused");
    }
    assert!(requests(&server).iter().all(|(op, _)| op != "make"), "no bid found it missing");
    assert!(!server.has("locks", "orders"));
    soon(store.acquire(&bid(B))).await.expect("the lease on a new blob");
    let look = ("read-container", 200);
    let order = [("acquire", 404), look, ("make", 201), ("acquire", 201), ("read", 200)];
    assert_eq!(requests(&server), order.map(|(op, status)| (op.to_owned(), status)));
}

#[tokio::test]
async fn a_late_copy_of_a_bid_leases_no_blob_that_was_made_again() {
    let (server, store) = leading().await;
    soon(store.release(&bid(A))).await.expect("a release");
    let seen = soon(store.read()).await.expect("a read").version;
    let late = Bid { seen, lease: LeaseId::from_random(0xC), nonce: Nonce(0xC), ..bid(A) };
    soon(store.acquire(&late)).await.expect("the lease that was seen free");
    soon(store.acquire(&late)).await.expect("the same bid again");
    // Deleted, made again by another, deleted, and made again without a term.
    for later in [&[("tenure_term", "1800000000000")][..], &[]] {
        server.put("locks", "orders", 0, later);
        server.take_log();
        assert_eq!(outcome(&soon(store.acquire(&late)).await), "refused");
        assert_eq!(outcome(&soon(store.write_term(&late, 3)).await), "refused");
        assert!(soon(store.read()).await.expect("a read").free, "nobody leased it");
    }
    let held = Raw::new(&server.settings("locks", "orders"));
    assert_eq!(held.blob("DELETE", "", &[]).await.status, 202);
    assert_eq!(outcome(&soon(store.acquire(&late)).await), "refused");
    assert!(!server.has("locks", "orders"), "a bid for what was there makes nothing");
}

#[tokio::test]
async fn fault_44_a_write_of_metadata_counts_only_with_a_new_version() {
    let (server, store) = leading().await;
    let next = Bid { nonce: Nonce(0xD), ..bid(A) };
    let successor = Successor { identity: "b".to_owned(), hold_off: Duration::from_secs(1) };
    for fault in [Fault::Unwritten, Fault::Html] {
        server.inject("write", [fault.clone(), fault]);
        for written in [
            soon(store.set_successor(&bid(A), &successor)).await.map(drop),
            soon(store.write_term(&next, 1)).await.map(drop),
        ] {
            let error = written.expect_err("the blob is as it was");
            assert!(matches!(error, StoreError::Unknown(_)), "{error:?}");
            assert_eq!(error.failure().cause, Cause::Settings);
        }
    }
    assert_eq!(soon(store.write_term(&next, 1)).await, Ok(2));
}

#[tokio::test]
async fn a_late_creation_of_the_blob_replaces_neither_a_lease_nor_a_record() {
    let (server, store) = leading().await;
    let before = server.metadata("locks", "orders");
    let missing = || Fault::Answer(404, "BlobNotFound");
    server.inject("acquire", [missing()]);
    assert_eq!(outcome(&soon(store.acquire(&bid(B))).await), "refused", "the lease is A's");
    assert_eq!(server.metadata("locks", "orders"), before);
    soon(store.renew(&bid(A))).await.expect("A's lease");
    soon(store.release(&bid(A))).await.expect("A's lease");
    server.inject("acquire", [missing()]);
    let grant = soon(store.acquire(&bid(B))).await.expect("the lease on the blob that is there");
    assert_eq!(server.metadata("locks", "orders"), before);
    assert!(grant.record.term.is_some(), "the term goes on from A's");
}

#[tokio::test]
async fn missing_rights_to_create_the_blob_are_reported_with_the_role() {
    let server = BlobServer::start().await;
    let store = open(server.settings("locks", "orders"));
    server.inject("make-container", [Fault::Answer(403, "AuthorizationPermissionMismatch")]);
    let error = soon(store.acquire(&bid(A))).await.unwrap_err();
    assert_eq!(error.failure().cause, Cause::Auth);
    for word in ["container locks", "could not be created", "Storage Blob Data Contributor"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    server.require(Proof::Key("YW5vdGhlcg==".to_owned()));
    let error = soon(store.read()).await.unwrap_err();
    assert_eq!(error.failure().cause, Cause::Auth);
}

#[tokio::test]
async fn a_missing_store_is_reported_and_may_appear_later() {
    let port = testkit::ports::free_port();
    let server = BlobServer::start().await;
    let mut settings = server.settings("locks", "orders");
    settings.endpoint = format!("http://127.0.0.1:{port}/devstoreaccount1").parse().expect("a URL");
    let error = soon(open(settings).read()).await.unwrap_err();
    assert!(matches!(&error, StoreError::RetryNow(it) if it.cause == Cause::Network));
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_reported() {
    let server = BlobServer::start().await;
    let mut settings = server.settings("locks", "orders");
    settings.endpoint = "http://no-such-account.invalid".parse().expect("a URL");
    let error = soon(open(settings).read()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unknown(it) if it.cause == Cause::Network));
    assert!(error.to_string().contains("failed to resolve no-such-account.invalid"), "{error}");
}

#[tokio::test]
async fn an_untrusted_certificate_is_refused_and_loopback_uses_no_proxy() {
    let certificate = azurite::Certificate::new();
    let listener = token_server::TokenServer::start(Some(&certificate)).await;
    let mut settings = BlobServer::start().await.settings("locks", "orders");
    settings.endpoint = format!("{}/devstoreaccount1", listener.url()).parse().expect("a URL");
    settings.proxy = Some("http://127.0.0.1:1".to_owned());
    let error = soon(open(settings).read()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unknown(it) if it.cause == Cause::Network), "{error:?}");
    assert!(
        error.to_string().contains("TLS with 127.0.0.1 failed: invalid peer certificate"),
        "{error}"
    );
    assert!(listener.take_log().is_empty(), "nothing was sent, and nothing in plain");
}

/// Returns the first line that a store sends to its proxy; `None` if it does not use the proxy.
async fn asked_of_proxy(except: Option<&str>) -> Option<String> {
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mut settings = BlobServer::start().await.settings("locks", "orders");
    settings.endpoint = "https://no-such-account.invalid".parse().expect("a URL");
    settings.proxy = Some(format!("http://{}", proxy.local_addr().expect("an address")));
    settings.no_proxy = except.map(str::to_owned);
    let store = open(settings);
    let call = async {
        let (stream, _) = proxy.accept().await.expect("a connection");
        let mut line = String::new();
        tokio::io::BufReader::new(stream).read_line(&mut line).await.expect("a line");
        line
    };
    tokio::select! {
        line = call => Some(line),
        _ = soon(store.read()) => None,
    }
}

#[tokio::test]
async fn the_configured_proxy_is_used_except_for_no_proxy_hosts() {
    let line = asked_of_proxy(None).await.expect("the proxy is asked");
    assert_eq!(line.trim(), "CONNECT no-such-account.invalid:443 HTTP/1.1");
    assert_eq!(asked_of_proxy(Some("example.com,.invalid")).await, None);
}
