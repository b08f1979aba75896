//! The Azure backend against Microsoft's tables, row by row: on the in-process server that follows
//! them, and on a real Azurite, which differs nowhere that the backend can see.

#[path = "support/azurite.rs"]
mod azurite;
#[path = "support/blob_server.rs"]
mod blob_server;
#[path = "support/raw.rs"]
mod raw;

use std::sync::Arc;
use std::time::Duration;

use azurite::Azurite;
use blob_server::{BlobServer, Fault, Proof};
use raw::Raw;
use tenure::config::AzureSettings;
use tenure::store::azure::Azure;
use tenure::store::{
    Bid, Candidate, Cause, Finding, LeaseId, LeaseStore, Nonce, StoreError, Verdict, Version,
};

const A: u128 = 0xA;
const B: u128 = 0xB;

fn bid(number: u128) -> Bid {
    Bid {
        lease: LeaseId::from_random(number),
        nonce: Nonce(number),
        candidate: Arc::new(Candidate {
            identity: format!("candidate {number:X} (100 %)"),
            instance: format!("instance-{number}"),
            address: Some("[::1]:80".to_owned()),
        }),
        lease_duration: Duration::from_secs(15),
        seen: Version("".into()),
    }
}

fn open(settings: AzureSettings) -> Azure {
    Azure::open(settings).expect("the settings are good")
}

/// Bounds a call of a test, so that a hang fails it.
async fn soon<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), call).await.expect("an end within 20 s")
}

fn outcome<T>(result: &Result<T, StoreError>) -> &'static str {
    match result {
        Ok(_) => "granted",
        Err(StoreError::Refused(failure)) => {
            assert_eq!(failure.cause, Cause::Lease, "{failure}");
            "refused"
        }
        Err(StoreError::Foreign(_)) => "foreign",
        Err(StoreError::Broken(_)) => "broken",
        Err(StoreError::Unknown(_)) => "unknown",
    }
}

const STATES: [&str; 5] = ["available", "leased", "breaking", "broken", "expired"];

/// What each call must bring, in the order of [`STATES`].
const TABLE: [(&str, u128, [&str; 5]); 8] = [
    ("acquire", A, ["granted", "granted", "refused", "granted", "granted"]),
    ("acquire", B, ["granted", "refused", "refused", "granted", "granted"]),
    ("renew", A, ["refused", "granted", "refused", "refused", "granted"]),
    ("renew", B, ["refused", "refused", "refused", "refused", "refused"]),
    ("release", A, ["refused", "granted", "granted", "granted", "granted"]),
    ("release", B, ["refused", "refused", "refused", "refused", "refused"]),
    ("inaugurate", A, ["refused", "granted", "granted", "refused", "refused"]),
    ("inaugurate", B, ["refused", "refused", "refused", "refused", "refused"]),
];

async fn call(store: &Azure, op: &str, bid: &Bid) -> &'static str {
    match op {
        "acquire" => outcome(&soon(store.acquire(bid)).await),
        "renew" => outcome(&soon(store.renew(bid)).await),
        "release" => outcome(&soon(store.release(bid)).await),
        _ => outcome(&soon(store.inaugurate(bid, 1)).await),
    }
}

/// Brings a new blob into a lease state, A's where it is anybody's; the end of a lease is left to
/// the caller.
async fn reach(raw: &Raw, state: &str) {
    raw.make().await;
    let id = bid(A).lease.to_wire();
    if state != "available" {
        let acquire = [("x-ms-proposed-lease-id", id.as_str()), ("x-ms-lease-duration", "15")];
        assert_eq!(raw.lease("acquire", &acquire).await.status, 201);
    }
    let period = match state {
        "breaking" => "14",
        "broken" => "0",
        _ => return,
    };
    assert_eq!(raw.lease("break", &[("x-ms-lease-break-period", period)]).await.status, 202);
}

/// Goes through the whole table for one state.
async fn rows(
    state: usize,
    settings: impl Fn(&str, &str) -> AzureSettings,
    let_it_end: impl AsyncFn(&Raw),
) {
    let mut cells = Vec::new();
    for (op, who, outcomes) in TABLE {
        let settings = settings(STATES[state], &format!("team/{op}-{who}"));
        let raw = Raw::new(&settings);
        reach(&raw, STATES[state]).await;
        cells.push((op, who, outcomes[state], raw, open(settings)));
    }
    if STATES[state] == "expired" {
        for (.., raw, _) in &cells {
            let_it_end(raw).await;
        }
    }
    for (op, who, expected, raw, store) in cells {
        assert_eq!(raw.lease_state().await, STATES[state], "before {op} of {who:X}");
        let sight = soon(store.look()).await.expect("a look");
        let free = !matches!(STATES[state], "leased" | "breaking");
        assert_eq!(sight.free, free, "{}", STATES[state]);
        let brought = call(&store, op, &bid(who)).await;
        assert_eq!(brought, expected, "{op} of {who:X} in state {}", STATES[state]);
    }
}

#[tokio::test]
async fn every_row_of_the_table_holds_on_the_in_process_server() {
    for state in 0..STATES.len() {
        let server = BlobServer::start().await;
        rows(
            state,
            |container, blob| server.settings(container, blob),
            async |raw| {
                if raw.lease_state().await != "expired" {
                    server.advance(Duration::from_secs(15));
                }
            },
        )
        .await;
    }
}

#[tokio::test]
async fn every_row_of_the_table_holds_on_azurite() {
    let azurite = Azurite::start().await;
    let until_expired = async |raw: &Raw| {
        let expired = async {
            while raw.lease_state().await != "expired" {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), expired).await.expect("the lease runs out");
    };
    for state in 0..STATES.len() {
        rows(state, |container, blob| azurite.settings(container, blob), until_expired).await;
    }
}

/// One tenure, from a missing container to its end, and the next candidate's look at it.
async fn tenure(settings: AzureSettings) {
    let (store, other) = (open(settings.clone()), open(settings.clone()));
    let sight = soon(store.look()).await.expect("a look at nothing");
    assert!(sight.free && sight.record.term.is_none(), "{sight:?}");

    let grant = soon(store.acquire(&bid(A))).await.expect("the first lease");
    assert_eq!(grant.record.term, None, "the record was missing");
    let off = grant.date.expect("the store's date") - tenure::clock::now().date();
    assert!(off.abs() < Duration::from_secs(60), "{off}");
    assert_eq!(soon(store.inaugurate(&bid(A), 41)).await, Ok(41));
    assert_eq!(soon(store.inaugurate(&bid(A), 900)).await, Ok(41), "written once");

    let sight = soon(other.look()).await.expect("a look");
    assert!(!sight.free);
    assert_eq!(sight.record.term, Some(41));
    assert_eq!(sight.record.holder, Some(bid(A).candidate));
    assert_eq!(sight.record.nonce, Some(bid(A).nonce));
    soon(store.renew(&bid(A))).await.expect("a renewal");
    let renewed = soon(other.look()).await.expect("a look");
    assert_eq!(renewed.version, sight.version, "a renewal changes nothing that can be seen");
    assert_eq!(outcome(&soon(other.acquire(&bid(B))).await), "refused");

    soon(store.release(&bid(A))).await.expect("a release");
    let sight = soon(other.look()).await.expect("a look");
    assert!(sight.free && sight.record.term == Some(41), "the record stays: {sight:?}");
    let grant = soon(other.acquire(&bid(B))).await.expect("the next lease");
    assert_eq!(grant.record.term, Some(41));
    assert_eq!(soon(other.inaugurate(&bid(B), 7)).await, Ok(42));
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "refused");
    assert_eq!(outcome(&soon(store.inaugurate(&bid(A), 1)).await), "refused");
}

#[tokio::test]
async fn a_tenure_begins_and_ends_on_the_in_process_server() {
    tenure(BlobServer::start().await.settings("locks", "orders")).await;
}

#[tokio::test]
async fn a_tenure_begins_and_ends_on_azurite() {
    let azurite = Azurite::start().await;
    tenure(azurite.settings("locks", "team/orders")).await;
}

#[tokio::test]
async fn an_account_can_be_signed_for_by_connection_string_on_azurite() {
    use tenure::config::{AzureCredential, SecretSource};
    let azurite = Azurite::start().await;
    let mut settings = azurite.settings("locks", "orders");
    let text = format!(
        "DefaultEndpointsProtocol=http;AccountName={};AccountKey={};BlobEndpoint={};",
        azurite::ACCOUNT,
        azurite::KEY,
        azurite.endpoint
    );
    settings.credential = AzureCredential::ConnectionString(SecretSource::Value(text));
    tenure(settings).await;
}

/// A store whose blob A leads on, on a server of its own.
async fn leading() -> (BlobServer, Azure) {
    let server = BlobServer::start().await;
    let store = open(server.settings("locks", "orders"));
    soon(store.acquire(&bid(A))).await.expect("the lease");
    soon(store.inaugurate(&bid(A), 1)).await.expect("the term");
    server.take_log();
    (server, store)
}

#[tokio::test]
async fn what_the_store_does_not_say_for_certain_is_unknown() {
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
        for op in ["acquire", "renew", "release", "look", "write"] {
            server.inject(op, [Fault::Answer(status, code)]);
            let error = match op {
                "acquire" => soon(store.acquire(&bid(A))).await.map(|_| ()).unwrap_err(),
                "renew" => soon(store.renew(&bid(A))).await.unwrap_err(),
                "release" => soon(store.release(&bid(A))).await.unwrap_err(),
                "look" => soon(store.look()).await.map(|_| ()).unwrap_err(),
                _ => {
                    let mut next = bid(A);
                    next.nonce = Nonce(99);
                    soon(store.inaugurate(&next, 1)).await.map(|_| ()).unwrap_err()
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
    soon(store.look()).await.expect("a look");
    assert_eq!(server.take_log().len(), 1);
    soon(store.release(&bid(A))).await.expect("a release");
    assert_eq!(server.take_log().len(), 1);
}

#[tokio::test]
async fn an_answer_that_names_another_lease_means_that_ours_is_lost() {
    let (server, store) = leading().await;
    server.inject("any", [Fault::WrongLease, Fault::WrongLease]);
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "refused");
    assert_eq!(outcome(&soon(store.acquire(&bid(A))).await), "refused");
}

#[tokio::test]
async fn a_page_in_the_place_of_an_answer_proves_nothing() {
    let (server, store) = leading().await;
    for op in ["acquire", "renew", "release", "look", "write"] {
        server.inject(op, [Fault::Html]);
    }
    assert_eq!(outcome(&soon(store.acquire(&bid(A))).await), "unknown");
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "unknown");
    assert_eq!(outcome(&soon(store.release(&bid(A))).await), "unknown");
    assert_eq!(outcome(&soon(store.look()).await), "unknown");
    let mut next = bid(A);
    next.nonce = Nonce(99);
    assert_eq!(outcome(&soon(store.inaugurate(&next, 1)).await), "unknown");
}

#[tokio::test]
async fn a_redirect_is_never_followed() {
    let (server, store) = leading().await;
    let elsewhere = BlobServer::start().await;
    let to = format!("{}/locks/orders", elsewhere.endpoint);
    server.inject("any", vec![Fault::Redirect(to); 3]);
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "unknown");
    assert_eq!(outcome(&soon(store.look()).await), "unknown");
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
    assert_eq!(outcome(&soon(store.inaugurate(&bid(A), 5)).await), "broken");
    assert_eq!(soon(store.inaugurate(&bid(A), 5)).await, Ok(5), "read again, no double step");
}

#[tokio::test]
async fn a_record_that_changed_meanwhile_is_lost_unless_it_bears_our_nonce() {
    let (server, store) = leading().await;
    let mut next = bid(A);
    next.nonce = Nonce(99);
    server.inject("write", [Fault::Answer(412, "ConditionNotMet")]);
    assert_eq!(outcome(&soon(store.inaugurate(&next, 1)).await), "refused");
    assert_eq!(soon(store.inaugurate(&next, 1)).await, Ok(2));
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
async fn a_record_that_is_not_ours_is_refused_and_left_alone() {
    let foreign: [(usize, &[(&str, &str)]); 4] = [
        (11, &[]),
        (0, &[("owner", "somebody")]),
        (0, &[("tenure_term", "many")]),
        (0, &[("tenure_term", "-4"), ("tenure_nonce", "00")]),
    ];
    let server = BlobServer::start().await;
    for (number, (length, metadata)) in foreign.into_iter().enumerate() {
        let blob = format!("foreign-{number}");
        server.put("locks", &blob, length, metadata);
        let before = server.metadata("locks", &blob);
        let store = open(server.settings("locks", &blob));
        assert_eq!(outcome(&soon(store.look()).await), "foreign");
        let error = soon(store.acquire(&bid(A))).await.unwrap_err();
        assert!(matches!(&error, StoreError::Foreign(it) if it.cause == Cause::Record));
        assert!(error.to_string().contains(&format!("locks/{blob}")), "{error}");
        assert_eq!(outcome(&soon(store.inaugurate(&bid(A), 1)).await), "foreign");
        soon(store.release(&bid(A))).await.expect("a lease taken on it can be given back");
        assert_eq!(outcome(&soon(store.create(1)).await), "foreign");
        assert_eq!(server.metadata("locks", &blob), before, "nothing overwritten");
        assert!(!server.take_log().iter().any(|it| matches!(&*it.op, "write" | "make")));
    }
}

#[tokio::test]
async fn a_blob_that_two_make_at_once_is_made_once() {
    let server = BlobServer::start().await;
    let settings = server.settings("locks", "orders");
    let (one, two) = (open(settings.clone()), open(settings));
    let (bid_one, bid_two) = (bid(A), bid(B));
    let (one, two) =
        soon(async { tokio::join!(one.acquire(&bid_one), two.acquire(&bid_two)) }).await;
    let mut outcomes = [outcome(&one), outcome(&two)];
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["granted", "refused"]);
    let log = server.take_log();
    let made = |op: &str| log.iter().filter(|it| it.op == op && it.status == 201).count();
    assert_eq!((made("make-container"), made("make")), (1, 1));
    let conditional = log.iter().filter(|it| it.op == "make");
    assert!(conditional.into_iter().all(|it| it.headers["if-none-match"] == "*"));
}

#[tokio::test]
async fn a_blob_or_container_that_is_deleted_takes_the_lease_with_it() {
    let (server, store) = leading().await;
    let raw = Raw::new(&server.settings("locks", "orders"));
    raw.container("DELETE").await;
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "refused");
    assert_eq!(outcome(&soon(store.inaugurate(&bid(A), 1)).await), "refused");
    assert_eq!(outcome(&soon(store.release(&bid(A))).await), "refused");
    let error = soon(store.acquire(&bid(B))).await.unwrap_err();
    assert!(error.to_string().contains("is being deleted"), "{error}");
    assert!(matches!(error, StoreError::Unknown(_)));
    server.advance(Duration::from_secs(30));
    let grant = soon(store.acquire(&bid(B))).await.expect("made again");
    assert_eq!(grant.record.term, None, "and R11 is the election's to apply");
}

#[tokio::test]
async fn rights_that_do_not_allow_to_make_the_blob_are_named_with_the_role() {
    let server = BlobServer::start().await;
    let store = open(server.settings("locks", "orders"));
    server.inject("make-container", [Fault::Answer(403, "AuthorizationPermissionMismatch")]);
    let error = soon(store.acquire(&bid(A))).await.unwrap_err();
    assert_eq!(error.failure().cause, Cause::Auth);
    for word in ["container locks", "could not be made", "Storage Blob Data Contributor"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    server.require(Proof::Key("YW5vdGhlcg==".to_owned()));
    let error = soon(store.look()).await.unwrap_err();
    assert_eq!(error.failure().cause, Cause::Auth);
}

#[tokio::test]
async fn create_makes_what_is_missing_and_a_first_term_once() {
    let server = BlobServer::start().await;
    let store = open(server.settings("locks", "orders"));
    assert_eq!(soon(store.create(1000)).await.expect("made").len(), 2);
    assert_eq!(soon(store.look()).await.expect("a look").record.term, Some(1000));
    assert!(soon(store.create(2000)).await.expect("nothing to do").is_empty());

    server.put("locks", "empty", 0, &[]);
    let store = open(server.settings("locks", "empty"));
    assert_eq!(soon(store.create(7)).await.expect("made").len(), 1);
    assert_eq!(soon(store.look()).await.expect("a look").record.term, Some(7));

    server.put("locks", "led", 0, &[]);
    let store = open(server.settings("locks", "led"));
    soon(store.acquire(&bid(A))).await.expect("the lease");
    assert!(soon(store.create(7)).await.is_err(), "a leader lives, and the term is its to write");
}

#[tokio::test]
async fn a_store_that_is_not_there_is_said_to_be_broken_and_may_come_later() {
    let port = azurite::free_port();
    let server = BlobServer::start().await;
    let mut settings = server.settings("locks", "orders");
    settings.endpoint = format!("http://127.0.0.1:{port}/devstoreaccount1").parse().expect("a URL");
    let error = soon(open(settings).look()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Broken(it) if it.cause == Cause::Network));
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_said_to_be_one() {
    let server = BlobServer::start().await;
    let mut settings = server.settings("locks", "orders");
    settings.endpoint = "http://no-such-account.invalid".parse().expect("a URL");
    let error = soon(open(settings).look()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unknown(it) if it.cause == Cause::Network));
    assert!(error.to_string().contains("no-such-account.invalid could not be resolved"), "{error}");
}

fn verdicts(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|it| {
        assert_eq!(it.remedy.is_some(), matches!(it.verdict, Verdict::Doubtful | Verdict::Wrong));
        format!("{}: {:?} {}", it.subject, it.verdict, it.detail)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn an_account_in_good_health_has_nothing_wrong_on_azurite() {
    let azurite = Azurite::start().await;
    let settings = azurite.settings("locks", "orders");
    let store = open(settings.clone());
    let told = verdicts(&soon(store.examine()).await);
    assert!(told.contains("container: Wrong locks does not exist"), "{told}");
    soon(store.create(1000)).await.expect("made");
    soon(store.acquire(&bid(A))).await.expect("the lease");
    let findings = soon(store.examine()).await;
    let told = verdicts(&findings);
    assert!(findings.iter().all(|it| it.verdict == Verdict::Well), "{told}");
    assert!(told.contains("locks/orders: term 1000, never held yet, lease leased"), "{told}");
    soon(store.renew(&bid(A))).await.expect("the lease was left alone");
}

#[tokio::test]
async fn the_probe_is_removed_and_the_lock_is_left_alone() {
    let (server, store) = leading().await;
    let before = server.metadata("locks", "orders");
    soon(store.examine()).await;
    let log = server.take_log();
    let touched = log.iter().filter(|it| !matches!(&*it.op, "look" | "GET" | "look-container"));
    assert!(touched.clone().count() >= 4, "{log:?}");
    assert!(touched.clone().all(|it| it.url.contains("/locks/orders.doctor-")), "{log:?}");
    let probe = touched.clone().next().expect("a probe").url.clone();
    assert!(log.iter().any(|it| it.op == "delete" && it.url == probe && it.status == 202));
    assert_eq!(server.metadata("locks", "orders"), before);
}

#[tokio::test]
async fn what_is_wrong_with_an_account_is_named() {
    let (server, store) = leading().await;
    let table: [(&str, Fault, &str); 4] = [
        (
            "acquire",
            Fault::Answer(403, "AuthorizationPermissionMismatch"),
            "permission to lease: Wrong",
        ),
        ("write", Fault::Answer(403, "X"), "permission to write metadata: Wrong"),
        ("delete", Fault::Answer(403, "X"), "could not be removed again"),
        ("look", Fault::Answer(403, "AuthenticationFailed"), "container: Wrong the key"),
    ];
    for (op, fault, words) in table {
        server.inject(op, [fault]);
        let told = verdicts(&soon(store.examine()).await);
        assert!(told.contains(words), "{words} in {told}");
        server.heal();
    }
    server.set_tier("locks", "orders", "Archive");
    let told = verdicts(&soon(store.examine()).await);
    assert!(told.contains("blob tier: Wrong the blob is archived"), "{told}");
    server.advance(Duration::from_secs(1000));
    let told = verdicts(&soon(store.examine()).await);
    assert!(told.contains("clock skew: Wrong our clock is 99"), "{told}");
    server.put("locks", "foreign", 3, &[]);
    let told = verdicts(&soon(open(server.settings("locks", "foreign")).examine()).await);
    assert!(told.contains("lock blob: Wrong the blob locks/foreign is not Tenure's"), "{told}");

    let mut settings = server.settings("locks", "orders");
    settings.endpoint = "http://no-such-account.invalid".parse().expect("a URL");
    let told = verdicts(&soon(open(settings).examine()).await);
    assert!(told.contains("name resolution: Wrong no-such-account.invalid"), "{told}");
    assert_eq!(told.matches("Skipped").count(), 9, "{told}");
}
