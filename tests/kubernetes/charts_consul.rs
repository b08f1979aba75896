//! The chart with its lease in Consul: the URL, the Secrets and the ports.

use testkit::kubernetes::{chart_values, manifests};

use chart_values::{port, with};
use manifests::{Manifests, assert_valid, render};
use serde_json::{Value, json};

/// Values for a lease in Consul, and a port.
fn consul() -> Value {
    with(chart_values::consul(), json!({"container": port()}))
}

fn variable(rendered: &Manifests, name: &str) -> Option<String> {
    let container = rendered.container("tenure");
    let found = container["env"].as_array().unwrap().iter().find(|it| it["name"] == name);
    found.map(|it| it["value"].as_str().unwrap().to_owned())
}

#[test]
fn the_sidecar_has_the_servers_the_token_and_the_files() {
    let rendered = render(&consul());
    assert_valid(&rendered.text);
    let url = variable(&rendered, "TENURE_STORE").unwrap();
    let (servers, prefix) = url.split_once("/tenure/").unwrap();
    assert_eq!(servers, "consul://consul-0.consul:8501,consul-1.consul:8502");
    assert!(!prefix.is_empty(), "{url}: the namespace");
    for (name, file) in [
        ("TENURE_STORE_CA_FILE", "ca.crt"),
        ("TENURE_STORE_CERT", "tls.crt"),
        ("TENURE_STORE_KEY", "tls.key"),
    ] {
        let path = format!("/run/tenure-store-tls/{file}");
        assert_eq!(variable(&rendered, name), Some(path));
    }
    let container = rendered.container("tenure");
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "orders-consul"}}]));
    let mounts = container["volumeMounts"].as_array().unwrap();
    assert!(mounts.iter().any(|it| it["mountPath"] == "/run/tenure-store-tls"), "{mounts:?}");
    assert!(rendered.container("service")["envFrom"].is_null(), "the service gets no token");
}

#[test]
fn without_secrets_there_are_none_and_the_policy_opens_the_ports_of_the_servers() {
    let bare = json!({
        "consul": {"credentialsSecret": "", "tlsSecret": "", "clientCertificate": false, "prefix": "a/b"},
        "networkPolicy": {"egress": {"enabled": true}},
    });
    let rendered = render(&with(consul(), bare));
    assert_eq!(
        variable(&rendered, "TENURE_STORE").as_deref(),
        Some("consul://consul-0.consul:8501,consul-1.consul:8502/a/b")
    );
    assert_eq!(variable(&rendered, "TENURE_STORE_CA_FILE"), None);
    assert!(rendered.container("tenure")["envFrom"].is_null());
    let policy = &rendered.the("NetworkPolicy", "orders-tenure")["spec"];
    let rules = policy["egress"].as_array().unwrap();
    let ports: Vec<&Value> = rules.iter().flat_map(|it| it["ports"].as_array().unwrap()).collect();
    for port in [8501, 8502] {
        assert!(ports.contains(&&json!({"protocol": "TCP", "port": port})), "{ports:?}");
    }
}

#[test]
fn other_servers_of_the_cluster_do_not_move_the_election() {
    let lease = |addresses: Value| {
        let rendered = render(&with(consul(), json!({"consul": {"addresses": addresses}})));
        let all = rendered.each("ConfigMap");
        let guard = all.iter().find(|it| it["data"]["lease"].is_string()).unwrap();
        guard["data"]["lease"].as_str().unwrap().to_owned()
    };
    let one = lease(json!(["consul-0.consul:8501"]));
    assert_eq!(
        one,
        lease(json!(["consul-0.consul:8501", "consul-1.consul:8501", "consul-2.consul:8501"]))
    );
    assert_ne!(one, lease(json!(["consul-1.consul:8501"])));
}
