//! The chart with its lease in MongoDB: the URL, the Secrets, the collection and the ports.

use testkit::kubernetes::{chart_values, manifests};

use chart_values::{port, with};
use manifests::{Manifests, assert_valid, render};
use serde_json::{Value, json};

/// Values for a lease in MongoDB, and a port.
fn mongodb() -> Value {
    with(chart_values::mongodb(), json!({"container": port()}))
}

fn variable(rendered: &Manifests, name: &str) -> Option<String> {
    let container = rendered.container("tenure");
    let found = container["env"].as_array().unwrap().iter().find(|it| it["name"] == name);
    found.map(|it| it["value"].as_str().unwrap().to_owned())
}

#[test]
fn the_sidecar_has_the_servers_the_user_the_collection_and_the_files() {
    let rendered = render(&mongodb());
    assert_valid(&rendered.text);
    let url = variable(&rendered, "TENURE_STORE");
    assert_eq!(url.as_deref(), Some("mongodb://db-0.db:27017,db-1.db:27018/app"));
    assert_eq!(variable(&rendered, "TENURE_MONGODB_COLLECTION").as_deref(), Some("tenure"));
    for (name, file) in [
        ("TENURE_STORE_CA_FILE", "ca.crt"),
        ("TENURE_STORE_CERT", "tls.crt"),
        ("TENURE_STORE_KEY", "tls.key"),
    ] {
        let path = format!("/run/tenure-store-tls/{file}");
        assert_eq!(variable(&rendered, name), Some(path));
    }
    let container = rendered.container("tenure");
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "orders-db"}}]));
    assert!(rendered.container("service")["envFrom"].is_null(), "the service gets no password");
    let other = render(&json!({"container": port()}));
    assert_eq!(variable(&other, "TENURE_MONGODB_COLLECTION"), None, "of no use to another store");
}

#[test]
fn the_policy_opens_the_ports_of_the_servers() {
    let bare = json!({
        "mongodb": {"tlsSecret": "", "clientCertificate": false},
        "networkPolicy": {"egress": {"enabled": true}},
    });
    let rendered = render(&with(mongodb(), bare));
    assert_eq!(variable(&rendered, "TENURE_STORE_CA_FILE"), None);
    let policy = &rendered.the("NetworkPolicy", "orders-tenure")["spec"];
    let rules = policy["egress"].as_array().unwrap();
    let ports: Vec<&Value> = rules.iter().flat_map(|it| it["ports"].as_array().unwrap()).collect();
    for port in [27017, 27018] {
        let rule = json!({"protocol": "TCP", "port": port});
        assert_eq!(ports.iter().filter(|it| ***it == rule).count(), 1, "{ports:?}");
    }
}

#[test]
fn another_member_does_not_move_the_election_and_another_collection_does() {
    let lease = |values: Value| {
        let rendered = render(&with(mongodb(), values));
        let all = rendered.each("ConfigMap");
        let guard = all.iter().find(|it| it["data"]["lease"].is_string()).unwrap();
        guard["data"]["lease"].as_str().unwrap().to_owned()
    };
    let one = lease(json!({"mongodb": {"hosts": ["db-0.db"]}}));
    assert_eq!(one, lease(json!({"mongodb": {"hosts": ["db-0.db:27017", "db-2.db"]}})));
    assert_ne!(one, lease(json!({"mongodb": {"hosts": ["db-2.db"]}})));
    assert_ne!(one, lease(json!({"election": {"mongodbCollection": "ops.leases"}})));
}
