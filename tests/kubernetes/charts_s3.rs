//! The chart with its lease in a bucket: the URL, the credential, the authority and the ports.

use testkit::kubernetes::{chart_values, manifests};

use chart_values::{port, with};
use manifests::{assert_valid, render};
use serde_json::{Value, json};

use super::charts_moved::lease;
use super::charts_stores::{assert_opens, variable};

/// Values for a lease in a bucket, and a port.
fn s3() -> Value {
    with(chart_values::s3(), json!({"container": port()}))
}

/// Values for one on a server that is not AWS's.
fn elsewhere() -> Value {
    let own = json!({
        "s3": {"roleArn": "", "prefix": "team", "credentialsSecret": "orders-s3", "tlsSecret": "orders-s3-ca"},
        "election": {"s3Region": null, "s3Endpoint": "https://minio.db:9000"},
        "networkPolicy": {"egress": {"enabled": true}},
    });
    with(s3(), own)
}

#[test]
fn a_bucket_of_aws_needs_its_region_and_a_role() {
    let rendered = render(&with(s3(), json!({"networkPolicy": {"egress": {"enabled": true}}})));
    assert_valid(&rendered.text);
    let variable = |name| variable(&rendered, name);
    assert!(variable("TENURE_STORE").unwrap().starts_with("s3://leases/tenure/"));
    assert_eq!(variable("TENURE_S3_REGION").as_deref(), Some("eu-west-1"));
    for absent in ["TENURE_S3_ENDPOINT", "TENURE_S3_PATH_STYLE", "TENURE_STORE_CA_FILE"] {
        assert_eq!(variable(absent), None);
    }
    assert_eq!(variable("TENURE_PEERS").as_deref(), Some("true"), "a bucket does not notify");
    let account = &rendered.each("ServiceAccount")[0]["metadata"]["annotations"];
    let role = "arn:aws:iam::123456789012:role/leases";
    assert_eq!(account["eks.amazonaws.com/role-arn"], role);
    let policy = rendered.the("NetworkPolicy", "orders-tenure")["spec"]["egress"].to_string();
    assert!(policy.contains("169.254.170.23/32"), "{policy}");
}

#[test]
fn another_server_has_an_endpoint_keys_and_an_authority() {
    let rendered = render(&elsewhere());
    assert_valid(&rendered.text);
    let variable = |name| variable(&rendered, name);
    assert_eq!(variable("TENURE_STORE").as_deref(), Some("s3://leases/team"));
    assert_eq!(variable("TENURE_S3_ENDPOINT").as_deref(), Some("https://minio.db:9000"));
    assert_eq!(variable("TENURE_STORE_CA_FILE").as_deref(), Some("/run/tenure-store-tls/ca.crt"));
    let container = rendered.container("tenure");
    assert_eq!(container["envFrom"], json!([{"secretRef": {"name": "orders-s3"}}]));
    assert!(rendered.container("service")["envFrom"].is_null(), "the service gets no key");
    assert_opens(&rendered, 9000);
    let policy = rendered.the("NetworkPolicy", "orders-tenure")["spec"]["egress"].to_string();
    assert!(!policy.contains("169.254"), "no service gives keys");
}

#[test]
fn a_switch_whose_default_depends_on_the_endpoint_can_be_off() {
    let rendered = render(&with(elsewhere(), json!({"election": {"s3PathStyle": false}})));
    assert_eq!(variable(&rendered, "TENURE_S3_PATH_STYLE").as_deref(), Some("false"));
}

#[test]
fn another_endpoint_moves_the_election() {
    let other = json!({"election": {"s3Endpoint": "https://r2.example"}});
    assert_ne!(lease(&elsewhere()), lease(&with(elsewhere(), other)));
    assert_ne!(lease(&s3()), lease(&with(s3(), json!({"s3": {"prefix": "team"}}))));
}
