//! The chart with its lease in Google Cloud Storage: the URL, the credential and the ports.

use testkit::kubernetes::{chart_values, manifests};

use chart_values::{port, with};
use manifests::{Manifests, assert_valid, render};
use serde_json::{Value, json};

use super::charts_stores::variable;

/// Values for a lease in a bucket, a port, and a policy.
fn gcs() -> Value {
    let more = json!({"container": port(), "networkPolicy": {"egress": {"enabled": true}}});
    with(chart_values::gcs(), more)
}

fn egress(rendered: &Manifests) -> String {
    rendered.the("NetworkPolicy", "orders-tenure")["spec"]["egress"].to_string()
}

#[test]
fn a_service_account_of_google_is_named_and_its_tokens_can_be_asked_for() {
    let rendered = render(&gcs());
    assert_valid(&rendered.text);
    let url = variable(&rendered, "TENURE_STORE").unwrap();
    assert!(url.starts_with("gs://leases/tenure/"), "{url}");
    assert_eq!(variable(&rendered, "GOOGLE_APPLICATION_CREDENTIALS"), None);
    assert_eq!(variable(&rendered, "TENURE_PEERS").as_deref(), Some("true"));
    let account = &rendered.each("ServiceAccount")[0]["metadata"]["annotations"];
    let name = "leases@project.iam.gserviceaccount.com";
    assert_eq!(account["iam.gke.io/gcp-service-account"], name);
    assert!(egress(&rendered).contains("169.254.169.252/32"), "{}", egress(&rendered));
}

#[test]
fn a_key_is_a_file_of_the_sidecar_alone() {
    let key = json!({"gcs": {"serviceAccount": "", "keySecret": "orders-gcs", "prefix": "team"}});
    let rendered = render(&with(gcs(), key));
    assert_valid(&rendered.text);
    assert_eq!(variable(&rendered, "TENURE_STORE").as_deref(), Some("gs://leases/team"));
    let path = variable(&rendered, "GOOGLE_APPLICATION_CREDENTIALS").unwrap();
    let has_it = |container: &str| {
        let mounts = rendered.container(container)["volumeMounts"].clone();
        mounts.as_array().is_some_and(|all| {
            all.iter().any(|it| path.strip_suffix("/key.json") == it["mountPath"].as_str())
        })
    };
    assert!(has_it("tenure") && !has_it("service"), "{}", rendered.text);
    assert!(!egress(&rendered).contains("169.254"), "no service gives tokens");
}
