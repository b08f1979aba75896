//! The Azure backend tested with each row of Microsoft's tables, on the in-process server that
//! follows them, and on a real Azurite, which behaves the same for the backend.

use testkit::azure::{azurite, blob_server};
use testkit::http::raw;
use testkit::stores::bids;

use std::time::Duration;

use azurite::Azurite;
use bids::{A, B, bid, open, outcome, soon};
use blob_server::BlobServer;
use raw::Raw;
use tenure::config::AzureSettings;
use tenure::lease::{Bid, Cause, StoreError};
use tenure::store::azure::Azure;
use tenure::store::{LeaseAdmin, LeaseStore};

const STATES: [&str; 5] = ["available", "leased", "breaking", "broken", "expired"];

/// The expected outcome of each call, in the order of [`STATES`].
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
        _ => outcome(&soon(store.write_term(bid, 1)).await),
    }
}

/// Creates a blob in a lease state; if there is a lease, it is A's. Its expiry is left to the
/// caller.
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

/// Checks all rows of the table for one state.
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
        let snapshot = soon(store.read()).await.expect("a read");
        let free = !matches!(STATES[state], "leased" | "breaking");
        assert_eq!(snapshot.free, free, "{}", STATES[state]);
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

/// Runs one leadership from a missing container to its end, and the next candidate's read.
async fn tenure(settings: AzureSettings) {
    let (store, other) = (open(settings.clone()), open(settings.clone()));
    let snapshot = soon(store.read()).await.expect("a read at nothing");
    assert!(snapshot.free && snapshot.record.term.is_none(), "{snapshot:?}");

    let grant = soon(store.acquire(&bid(A))).await.expect("the first lease");
    assert_eq!(grant.record.term, None, "the record was missing");
    let off = grant.date.expect("the store's date") - tenure::clock::now().date();
    assert!(off.abs() < Duration::from_secs(60), "{off}");
    assert_eq!(soon(store.write_term(&bid(A), 41)).await, Ok(41));
    assert_eq!(soon(store.write_term(&bid(A), 900)).await, Ok(41), "written once");

    let snapshot = soon(other.read()).await.expect("a read");
    assert!(!snapshot.free);
    assert_eq!(snapshot.record.term, Some(41));
    assert_eq!(snapshot.record.holder, Some(bid(A).candidate));
    assert_eq!(snapshot.record.nonce, Some(bid(A).nonce));
    soon(store.renew(&bid(A))).await.expect("a renewal");
    let renewed = soon(other.read()).await.expect("a read");
    assert_eq!(renewed.version, snapshot.version, "a renewal changes nothing that can be seen");
    assert_eq!(outcome(&soon(other.acquire(&bid(B))).await), "refused");

    soon(store.release(&bid(A))).await.expect("a release");
    let snapshot = soon(other.read()).await.expect("a read");
    assert!(snapshot.free && snapshot.record.term == Some(41), "the record stays: {snapshot:?}");
    let grant = soon(other.acquire(&bid(B))).await.expect("the next lease");
    assert_eq!(grant.record.term, Some(41));
    assert_eq!(soon(other.write_term(&bid(B), 7)).await, Ok(42));
    assert_eq!(outcome(&soon(store.renew(&bid(A))).await), "refused");
    assert_eq!(outcome(&soon(store.write_term(&bid(A), 1)).await), "refused");
}

#[tokio::test]
async fn a_leadership_begins_and_ends_on_the_in_process_server() {
    tenure(BlobServer::start().await.settings("locks", "orders")).await;
}

#[tokio::test]
async fn a_leadership_begins_and_ends_on_azurite() {
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

#[tokio::test]
async fn a_foreign_record_is_refused_and_left_alone() {
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
        assert_eq!(outcome(&soon(store.read()).await), "foreign");
        let error = soon(store.acquire(&bid(A))).await.unwrap_err();
        assert!(matches!(&error, StoreError::Foreign(it) if it.cause == Cause::Record));
        assert!(error.to_string().contains(&format!("locks/{blob}")), "{error}");
        assert_eq!(outcome(&soon(store.write_term(&bid(A), 1)).await), "foreign");
        soon(store.release(&bid(A))).await.expect("a lease taken on it can be given back");
        assert_eq!(outcome(&soon(store.create(1)).await), "foreign");
        assert_eq!(server.metadata("locks", &blob), before, "nothing overwritten");
        assert!(!server.take_log().iter().any(|it| matches!(&*it.op, "write" | "make")));
    }
}

#[tokio::test]
async fn a_blob_created_by_two_at_once_is_created_once() {
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
async fn create_creates_missing_objects_and_the_first_term_once() {
    let server = BlobServer::start().await;
    let store = open(server.settings("locks", "orders"));
    assert_eq!(soon(store.create(1000)).await.expect("made").len(), 2);
    assert_eq!(soon(store.read()).await.expect("a read").record.term, Some(1000));
    assert!(soon(store.create(2000)).await.expect("nothing to do").is_empty());

    server.put("locks", "empty", 0, &[]);
    let store = open(server.settings("locks", "empty"));
    assert_eq!(soon(store.create(7)).await.expect("made").len(), 1);
    assert_eq!(soon(store.read()).await.expect("a read").record.term, Some(7));

    server.put("locks", "led", 0, &[]);
    let store = open(server.settings("locks", "led"));
    soon(store.acquire(&bid(A))).await.expect("the lease");
    assert!(soon(store.create(7)).await.is_err(), "a leader lives, and the term is its to write");
}
