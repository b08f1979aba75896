//! The chart with its lease in Redis: the URL, the Secrets and the ports.

use testkit::kubernetes::{chart_values, manifests};

use chart_values::{port, with};
use manifests::{Manifests, assert_valid, render};
use serde_json::{Value, json};

/// Values for a lease in Redis, and a port.
fn redis() -> Value {
    with(chart_values::redis(), json!({"container": port()}))
}

fn variable(rendered: &Manifests, name: &str) -> Option<String> {
    let container = rendered.container("tenure");
    let found = container["env"].as_array().unwrap().iter().find(|it| it["name"] == name);
    found.map(|it| it["value"].as_str().unwrap().to_owned())
}

#[test]
fn the_sidecar_has_the_servers_of_redis_the_user_and_the_files() {
    let rendered = render(&redis());
    assert_valid(&rendered.text);
    let url = variable(&rendered, "TENURE_STORE");
    assert_eq!(url.as_deref(), Some("redis://redis-0.redis:6379,redis-1.redis:6380/3"));
    for (name, file) in [
        ("TENURE_STORE_CA_FILE", "ca.crt"),
        ("TENURE_STORE_CERT", "tls.crt"),
        ("TENURE_STORE_KEY", "tls.key"),
    ] {
        let path = format!("/run/tenure-store-tls/{file}");
        assert_eq!(variable(&rendered, name), Some(path));
    }
    let container = rendered.container("tenure");
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "orders-redis"}}]));
    assert!(rendered.container("service")["envFrom"].is_null(), "the service gets no password");
}

#[test]
fn the_policy_opens_the_ports_of_redis() {
    let egress = json!({"networkPolicy": {"egress": {"enabled": true}}});
    let rendered = render(&with(redis(), egress));
    let policy = &rendered.the("NetworkPolicy", "orders-tenure")["spec"];
    let rules = policy["egress"].as_array().unwrap();
    let ports: Vec<&Value> = rules.iter().flat_map(|it| it["ports"].as_array().unwrap()).collect();
    for port in [6379, 6380] {
        let rule = json!({"protocol": "TCP", "port": port});
        assert_eq!(ports.iter().filter(|it| ***it == rule).count(), 1, "{ports:?}");
    }
}

#[test]
fn another_replica_does_not_move_the_election_and_another_database_does() {
    let lease = |values: Value| {
        let rendered = render(&with(redis(), values));
        let all = rendered.each("ConfigMap");
        let guard = all.iter().find(|it| it["data"]["lease"].is_string()).unwrap();
        guard["data"]["lease"].as_str().unwrap().to_owned()
    };
    let one = lease(json!({"redis": {"hosts": ["redis-0.redis"]}}));
    assert_eq!(one, lease(json!({"redis": {"hosts": ["redis-0.redis:6379", "redis-2.redis"]}})));
    assert_ne!(one, lease(json!({"redis": {"hosts": ["redis-2.redis"]}})));
    assert_ne!(one, lease(json!({"redis": {"database": 4}})));
}
