//! The requests to Azure for naming a successor and breaking a lease, and the outcomes of the
//! answers.

use testkit::azure::blob_server;
use testkit::http::raw;
use testkit::stores::bids;

use std::time::Duration;

use bids::{A, bid, leading, open, outcome, soon};
use blob_server::{BlobServer, Fault};
use raw::Raw;
use tenure::lease::{Cause, StoreError, Successor};
use tenure::store::{BreakOutcome, LeaseAdmin, LeaseStore};

const PERIOD: &str = "x-ms-lease-break-period";

fn successor() -> Successor {
    Successor { identity: "b (50 %)".to_owned(), hold_off: Duration::from_secs(10) }
}

#[tokio::test]
async fn a_successor_is_written_with_the_lease_id_over_the_record_that_was_read() {
    let (server, store) = leading().await;
    soon(store.set_successor(&bid(A), &successor())).await.expect("named");
    let log = server.take_log();
    let [read, write] = &log[..] else { panic!("{log:?}") };
    assert_eq!((read.op.as_str(), write.op.as_str()), ("read", "write"));
    assert_eq!(write.headers["x-ms-lease-id"], bid(A).lease.to_wire());
    assert!(write.headers["if-match"].starts_with("\"0x"), "{write:?}");
    let metadata = server.metadata("locks", "orders").expect("the blob");
    assert_eq!(metadata["tenure_successor"], "b%20%2850%20%25%29");
    assert_eq!(metadata["tenure_hold_off_ms"], "10000");
    assert_eq!(metadata["tenure_identity"], "candidate%20A%20%28100%20%25%29");

    soon(store.set_successor(&bid(A), &successor())).await.expect("it stands");
    let log = server.take_log();
    assert_eq!(log.len(), 1, "one look is enough: {log:?}");
}

#[tokio::test]
async fn the_response_to_the_write_of_a_successor_decides_whether_the_lease_is_lost() {
    let (server, store) = leading().await;
    for (fault, expected) in [
        (Fault::Answer(412, "LeaseLost"), "refused"),
        (Fault::Answer(412, "LeaseIdMismatchWithBlobOperation"), "refused"),
        (Fault::Answer(412, "ConditionNotMet"), "unknown"),
        (Fault::Answer(503, "ServerBusy"), "unknown"),
        (Fault::Answer(403, "AuthorizationFailure"), "unknown"),
        (Fault::Html, "unknown"),
        (Fault::DropBefore, "broken"),
    ] {
        let case = format!("{fault:?}");
        server.inject("write", [fault]);
        let named = soon(store.set_successor(&bid(A), &successor())).await;
        assert_eq!(outcome(&named), expected, "{case}: {named:?}");
    }
    server.inject("write", [Fault::DropAfter]);
    let named = soon(store.set_successor(&bid(A), &successor())).await;
    assert_eq!(outcome(&named), "broken", "{named:?}");
    soon(store.set_successor(&bid(A), &successor())).await.expect("it was written");
}

#[tokio::test]
async fn a_lease_is_broken_only_if_unchanged_and_for_the_longest_period() {
    let (server, store) = leading().await;
    server.inject("break", [Fault::Answer(412, "ConditionNotMet")]);
    let broken = soon(store.break_lease(true)).await;
    assert_eq!(outcome(&broken), "unknown", "another may have begun a tenure: {broken:?}");
    assert!(matches!(broken, Err(StoreError::Unknown(it)) if it.cause == Cause::Lease));
    server.take_log();

    soon(store.break_lease(false)).await.expect("broken");
    soon(store.break_lease(true)).await.expect("broken");
    let log = server.take_log();
    let breaks: Vec<_> = log.iter().filter(|it| it.op == "break").collect();
    assert!(breaks.iter().all(|it| it.headers["if-match"].starts_with("\"0x")), "{breaks:?}");
    let periods: Vec<_> = breaks.iter().map(|it| it.headers[PERIOD].as_str()).collect();
    assert_eq!(periods, ["60", "0"]);
}

#[tokio::test]
async fn only_the_response_that_no_lease_exists_counts_as_none_to_break() {
    let (server, store) = leading().await;
    for code in ["LeaseNotPresentWithLeaseOperation", "LeaseAlreadyBroken"] {
        server.inject("break", [Fault::Answer(409, code)]);
        assert_eq!(soon(store.break_lease(false)).await, Ok(BreakOutcome::NotHeld), "{code}");
    }
    server.inject("break", [Fault::Answer(404, "BlobNotFound")]);
    assert_eq!(soon(store.break_lease(false)).await, Ok(BreakOutcome::NotHeld));
    for fault in [
        Fault::Answer(403, "AuthorizationPermissionMismatch"),
        Fault::Answer(409, "LeaseIdMismatchWithLeaseOperation"),
        Fault::Answer(500, "InternalError"),
        Fault::Html,
        Fault::Redirect("http://127.0.0.1:1/".to_owned()),
    ] {
        let case = format!("{fault:?}");
        server.inject("break", [fault]);
        let broken = soon(store.break_lease(true)).await;
        assert_eq!(outcome(&broken), "unknown", "{case}: {broken:?}");
    }
    assert!(!soon(store.read()).await.expect("a read").free, "nothing of that broke it");
}

#[tokio::test]
async fn a_lease_without_end_is_broken_at_once_or_not_at_all() {
    let server = BlobServer::start().await;
    let settings = server.settings("locks", "orders");
    let (store, raw) = (open(settings.clone()), Raw::new(&settings));
    raw.make().await;
    assert_eq!(raw.lease("acquire", &[("x-ms-lease-duration", "-1")]).await.status, 201);
    server.take_log();
    let broken = soon(store.break_lease(false)).await;
    assert_eq!(outcome(&broken), "refused", "{broken:?}");
    assert!(server.take_log().iter().all(|it| it.op == "read"), "nothing was asked of the lease");
    assert_eq!(raw.lease_state().await, "leased");
    let broken = soon(store.break_lease(true)).await.expect("broken");
    assert!(matches!(broken, BreakOutcome::Held { free_in: Duration::ZERO, .. }), "{broken:?}");
    assert_eq!(raw.lease_state().await, "broken");
}
