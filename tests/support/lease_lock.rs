//! Leases as a test needs them: the settings that name one, what another kind of candidate writes,
//! and what is in one's place that nobody can read.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::time::Duration;

use serde_json::{Value, json};
use tenure::config::{KubeAccess, KubernetesSettings};
use url::Url;

use super::kube_server::KubeServer;

/// What else could be in the place of a Lease of ours.
pub const FOREIGN_LEASES: &[&str] = &[
    r#"{"metadata": {"annotations": {"tenure.dev/term": "seven"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "-7"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": ""}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "9007199254740991"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "18446744073709551615"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "7", "tenure.dev/nonce": "x"}}, "spec": {}}"#,
    r#"{"metadata": {"annotations": {"tenure.dev/term": "7", "tenure.dev/successor": "b"}}, "spec": {}}"#,
];

/// The settings of a Lease, with the token file of a server.
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

/// What client-go writes into a Lease that it has taken just now.
pub fn client_go(holder: &str, seconds: i32, transitions: i32) -> Value {
    json!({
        "holderIdentity": holder,
        "leaseDurationSeconds": seconds,
        "acquireTime": "2026-11-20T09:00:00.000000Z",
        "renewTime": "2026-11-20T09:00:00.000000Z",
        "leaseTransitions": transitions,
    })
}

/// Puts a candidate of client-go's in the holder's place, as it does: the spec is its own, and what
/// stands beside stays.
pub fn usurp(lease: &mut Value) {
    let transitions = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0) + 1;
    let transitions = i32::try_from(transitions).expect("an int32");
    lease["spec"] = client_go("web-2_4f6d", 15, transitions);
}
