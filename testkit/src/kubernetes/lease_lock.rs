//! Leases for tests: their settings, what another kind of candidate writes, and foreign content
//! that Tenure cannot read.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::config::{KubeAccess, KubernetesSettings};
use tenure::lease::{Bid, Cause, StoreError};
use tenure::store::LeaseStore;
use tenure::store::kubernetes::Kubernetes;
use url::Url;

use crate::kubernetes::kube_server::KubeServer;
use crate::stores::bids::bid_as;
pub use crate::stores::bids::{A, B, news, soon};

/// Content that others could put in place of a Lease of Tenure.
pub const FOREIGN_LEASES: &[&str] = &[
    r#"{"metadata": {"annotations": {"tenure.dev/term": "seven"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "-7"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": ""}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "9007199254740991"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "18446744073709551615"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "7", "tenure.dev/nonce": "x"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "7", "tenure.dev/successor": "b"}}, "spec": {}}"#,
];

/// Returns the settings of a Lease, with the token file of a server.
pub fn settings(server: &KubeServer, namespace: &str, name: &str) -> KubernetesSettings {
    KubernetesSettings {
        access: KubeAccess {
            api: Url::parse(&server.url()).expect("a URL"),
            token_file: Some(server.token_file()),
            ca_file: server.ca_file().exists().then(|| server.ca_file()),
        },
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        request_timeout: Duration::from_secs(2),
    }
}

/// Returns the bid of the candidate with a number, for a Lease that it has not read yet.
pub fn bid(number: u128) -> Bid {
    bid_as(&format!("web-{number}"), number)
}

/// Opens the Lease `team/orders` of a server.
pub fn open(server: &KubeServer) -> Kubernetes {
    Kubernetes::open(&settings(server, "team", "orders")).expect("the settings are good")
}

/// Returns the Lease `team/orders` as stored.
pub fn lease(server: &KubeServer) -> Value {
    server.object("leases", "team", "orders").expect("a Lease")
}

/// Returns the same bid with the current version.
pub async fn seeing(store: &Kubernetes, bid: Bid) -> Bid {
    Bid { seen: soon(store.read()).await.expect("a read").version, ..bid }
}

/// Acquires the lease for a candidate, and writes a term.
pub async fn lead(store: &Kubernetes, number: u128) -> (Bid, u64) {
    let bid = seeing(store, bid(number)).await;
    soon(store.acquire(&bid)).await.expect("granted");
    let term = soon(store.write_term(&bid, 0)).await.expect("a term");
    (bid, term)
}

/// Returns the outcome of a call as text, with the cause if it is unknown.
pub fn outcome<T>(result: &Result<T, StoreError>) -> String {
    match result {
        Ok(_) => "granted".to_owned(),
        Err(StoreError::Refused(failure)) => {
            assert_eq!(failure.cause, Cause::Lease, "{failure}");
            "refused".to_owned()
        }
        Err(StoreError::Foreign(_)) => "foreign".to_owned(),
        Err(StoreError::RetryNow(failure)) => format!("broken: {}", failure.cause.as_str()),
        Err(StoreError::Unknown(failure)) => format!("unknown: {}", failure.cause.as_str()),
    }
}

/// Returns the spec that client-go writes when it has acquired a Lease.
pub fn client_go(holder: &str, seconds: i32, transitions: i32) -> Value {
    json!({
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "acquireTime": "2026-11-20T09:00:00.000000Z",
        "renewTime": "2026-11-20T09:00:00.000000Z",
        "leaseTransitions": transitions,
    })
}

/// Makes a client-go candidate the holder, as client-go does: it replaces the spec, and keeps
/// everything else.
pub fn usurp(lease: &mut Value) {
    let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0) + 1;
    let transitions = i32::try_from(transitions).expect("an int32");
    lease["spec"] = client_go("web-2_4f6d", 15, transitions);
}
