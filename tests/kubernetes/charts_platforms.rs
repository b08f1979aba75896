//! The chart in meshes and on platforms with rules of their own, as far as the rendered objects tell.

use testkit::kubernetes::{chart_values as values, manifests};

use serde_json::{Value, json};
use tenure::cli::Cli;

use clap::Parser;
use manifests::{Manifests, assert_all_valid, assert_restricted, helm, render};
use values::{port, with};

/// The ports of the proxies: Linkerd's inbound and admin; Istio's HBONE, merged metrics, health, metrics.
const MESH: [u16; 6] = [4143, 4191, 15008, 15020, 15021, 15090];

/// Returns values with a mode of routing, and a port for the Service.
fn route(mode: &str) -> Value {
    json!({"routing": {"mode": mode}, "container": port()})
}

/// Returns the command of a probe of the sidecar.
fn command(rendered: &Manifests, probe: &str) -> Vec<String> {
    let words = rendered.container("tenure")[probe]["exec"]["command"].as_array();
    let words = words.into_iter().flatten();
    words.map(|it| it.as_str().unwrap().to_owned()).collect()
}

/// A mesh that answers HTTP, TCP and gRPC probes by its proxy does so for init containers too, and its
/// classic proxy starts after them.
#[test]
fn the_startup_probe_needs_no_proxy_of_a_mesh() {
    for values in [json!({}), json!({"sidecar": {"native": false}}), route("probe")] {
        let rendered = render(&values);
        assert_eq!(command(&rendered, "startupProbe"), ["/tenure", "check", "--for=live"]);
    }
    let listener = json!({"election": {"listen": ["[::]:9"]}});
    let env = render(&listener).container("tenure")["env"].clone();
    let url = json!({"name": "TENURE_URL", "value": "http://127.0.0.1:9"});
    assert!(env.as_array().unwrap().contains(&url), "the command asks the same port");
}

#[test]
fn all_probes_can_be_commands_that_tenure_accepts() {
    let mut all = Vec::new();
    for (mode, ready) in [("none", "--for=ready"), ("probe", "--for=active")] {
        let values = with(route(mode), json!({"sidecar": {"execProbes": true}}));
        let rendered = render(&values);
        assert_eq!(command(&rendered, "readinessProbe"), ["/tenure", "check", ready], "{mode}");
        assert_eq!(command(&rendered, "livenessProbe"), ["/tenure", "check", "--for=live"]);
        for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
            assert!(rendered.container("tenure")[probe]["httpGet"].is_null(), "{probe}");
            Cli::try_parse_from(command(&rendered, probe)).unwrap();
        }
        all.push(rendered);
    }
    assert_all_valid(&all);
    let usual = render(&json!({}));
    assert!(
        command(&usual, "readinessProbe").is_empty() && command(&usual, "livenessProbe").is_empty()
    );
}

/// Returns the rule of the pods' policy that opens the mesh's ports.
fn mesh_rule(values: Value) -> Option<Value> {
    let rendered = render(&values);
    let policy = rendered.the("NetworkPolicy", "orders-tenure");
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let is_mesh =
        |it: &&Value| it["ports"].as_array().unwrap().iter().any(|it| it["port"] == 15008);
    rules.iter().find(is_mesh).cloned()
}

#[test]
fn the_network_policy_leaves_the_ports_of_a_mesh_open_to_the_same_peers() {
    let rule = mesh_rule(route("none")).unwrap();
    let ports: Vec<&Value> =
        rule["ports"].as_array().unwrap().iter().map(|it| &it["port"]).collect();
    assert_eq!(ports, MESH);
    assert!(rule["from"].is_null(), "the service is open to all");

    let status = json!({"namespaceSelector": {"matchLabels": {"team": "monitoring"}}});
    let service = json!({"podSelector": {"matchLabels": {"app": "front"}}});
    let only = json!({"networkPolicy": {"serviceFrom": [service], "statusFrom": [status]}});
    let rule = mesh_rule(with(route("none"), only)).unwrap();
    assert_eq!(rule["from"], json!([status, service]));
    let open = json!({"networkPolicy": {"serviceFrom": [service], "statusFrom": []}});
    assert!(mesh_rule(with(route("none"), open)).unwrap()["from"].is_null());
    let without_ports = mesh_rule(json!({"networkPolicy": {"statusFrom": [status]}})).unwrap();
    assert_eq!(without_ports["from"], json!([status]), "there is no service to reach");
    assert_eq!(mesh_rule(json!({"networkPolicy": {"meshPorts": []}})), None);
}

#[test]
fn openshift_chooses_the_user() {
    let values = json!({"container": with(json!({"image": "x:1"}), port())});
    let users = |rendered: &Manifests| {
        let test = rendered.the("Pod", "orders-tenure-exactly-one");
        let own = &rendered.container("tenure")["securityContext"];
        assert_eq!(*own, test["spec"]["containers"][0]["securityContext"]);
        assert_restricted(rendered.pod());
        assert_restricted(&test["spec"]);
        [own["runAsUser"].clone(), own["runAsGroup"].clone()]
    };
    let usual = helm("helm/tenure", &values, &[]).unwrap();
    assert_eq!(users(&usual), [json!(65532), json!(65532)]);
    let flags = ["--api-versions", "security.openshift.io/v1"];
    let openshift = helm("helm/tenure", &values, &flags).unwrap();
    assert_eq!(users(&openshift), [Value::Null, Value::Null]);
    // Rendered without the cluster.
    let null = json!({"sidecar": {"securityContext": {"runAsUser": null, "runAsGroup": null}}});
    let rendered = helm("helm/tenure", &with(values.clone(), null), &[]).unwrap();
    assert_eq!(users(&rendered), [Value::Null, Value::Null]);
    assert_eq!(rendered.container("tenure")["securityContext"].as_object().unwrap().len(), 6);
    assert!(rendered.pod()["securityContext"]["runAsUser"].is_null());
    assert!(rendered.pod()["securityContext"]["fsGroup"].is_null());
    let own = json!({"sidecar": {"securityContext": {"runAsUser": 1000}}});
    let rendered = helm("helm/tenure", &with(values, own), &flags).unwrap();
    assert_eq!(users(&rendered), [json!(1000), Value::Null], "what you set is kept");
}
