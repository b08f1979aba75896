//! Tests of the settings of `s3:`.

use super::super::environment::Environment;
use super::super::{Flags, Loaded, StoreSettings, Verb, load};
use super::*;
use crate::tls::testing;

const STORE: (&str, &str) = ("store", "s3://leases/team");
const REGION: (&str, &str) = ("s3-region", "eu-west-1");
const KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "AKIAHIDDEN"), ("AWS_SECRET_ACCESS_KEY", "hidden")];

fn loaded(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let flags = [&[STORE], flags].concat();
    let flags: Flags =
        flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
    load(&flags, &Environment::of(variables.iter().copied()), Verb::Run)
        .map_err(|faults| faults.to_string())
}

fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> S3Settings {
    match loaded(flags, variables).expect("they are valid").settings.store {
        StoreSettings::S3(it) => *it,
        other => panic!("{other}"),
    }
}

#[test]
fn a_bucket_of_aws_is_named_by_its_host_with_tls() {
    let it = settings(&[REGION], &KEYS);
    assert_eq!(it.url.as_str(), "https://leases.s3.eu-west-1.amazonaws.com/");
    assert_eq!(it.key(), "team/default");
    assert_eq!(it.tls, Some(StoreTls { ca_file: None, own: None }));
    let china = settings(&[("s3-region", "cn-north-1")], &KEYS);
    assert_eq!(china.url.host_str(), Some("leases.s3.cn-north-1.amazonaws.com.cn"));
    let path = settings(&[REGION, ("s3-path-style", "true")], &KEYS);
    assert_eq!(path.url.as_str(), "https://s3.eu-west-1.amazonaws.com/leases");
    assert_eq!(
        url("my.leases", None, "eu-west-1", false).unwrap().as_str(),
        "https://s3.eu-west-1.amazonaws.com/my.leases",
        "no certificate is for a name with more dots"
    );
}

#[test]
fn another_server_has_buckets_in_its_paths_and_needs_no_region() {
    let it = settings(&[("s3-endpoint", "https://minio.example:9000")], &KEYS);
    assert_eq!(it.url.as_str(), "https://minio.example:9000/leases");
    assert_eq!(it.region, "us-east-1");
    let host = [("s3-endpoint", "https://r2.example"), ("s3-path-style", "false")];
    assert_eq!(settings(&host, &KEYS).url.as_str(), "https://leases.r2.example/");
    let near = settings(&[("s3-endpoint", "http://127.0.0.1:9000")], &KEYS);
    assert!(near.tls.is_none() && near.url.as_str() == "http://127.0.0.1:9000/leases");
}

#[test]
fn the_variables_of_other_clients_stand_in_for_settings() {
    let variables = [
        ("AWS_ENDPOINT_URL", "https://other.example"),
        ("AWS_ENDPOINT_URL_S3", "https://s3.example"),
        ("AWS_DEFAULT_REGION", "eu-north-1"),
    ];
    let it = settings(&[], &[&KEYS[..], &variables].concat());
    assert_eq!((it.url.as_str(), it.region.as_str()), ("https://s3.example/leases", "eu-north-1"));
    let it = settings(&[REGION], &[&KEYS[..], &variables].concat());
    assert_eq!(it.region, "eu-west-1", "a setting goes before a variable");
    let fault = loaded(&[], &[("AWS_ENDPOINT_URL_S3", "https://u:hidden@s3.example")]).unwrap_err();
    assert!(fault.contains("AWS_ENDPOINT_URL_S3") && !fault.contains("hidden"), "{fault}");
}

#[test]
fn the_files_of_other_clients_stand_in_for_settings_and_variables() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    let config = "[default]\nregion = eu-west-3\n[profile near]\nregion = eu-west-2\n\
                  services = near\ns3 =\n  addressing_style = virtual\n\
                  [services near]\ns3 =\n  endpoint_url = https://s3.near.example\n\
                  [profile wrong]\nendpoint_url = https://u:hidden@s3.near.example\n";
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    let home = [("HOME", home.path().to_str().unwrap())];
    let of = |variables: &[(&str, &str)]| {
        let it = settings(&[], &[&KEYS[..], &home, variables].concat());
        (it.url.to_string(), it.region)
    };
    let aws = "https://leases.s3.eu-west-3.amazonaws.com/";
    assert_eq!(of(&[]), (aws.to_owned(), "eu-west-3".to_owned()));
    let near = ("AWS_PROFILE", "near");
    let expected = ("https://leases.s3.near.example/".to_owned(), "eu-west-2".to_owned());
    assert_eq!(of(&[near]), expected, "the id of a key of this server goes to no other");
    let other = ("AWS_ENDPOINT_URL", "https://other.example");
    assert_eq!(of(&[near, other]).0, "https://leases.other.example/");
    let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
    let expected = "https://leases.s3.eu-west-2.amazonaws.com/";
    assert_eq!(of(&[near, other, ignored]).0, expected);
    let variables = [&KEYS[..], &home, &[("AWS_PROFILE", "wrong")]].concat();
    let fault = loaded(&[REGION], &variables).unwrap_err();
    assert!(fault.contains(".aws/config") && !fault.contains("hidden"), "{fault}");
    let variables = [&KEYS[..], &home, &[("AWS_PROFILE", "none")]].concat();
    let fault = loaded(&[REGION], &variables).unwrap_err();
    assert!(fault.starts_with("one setting") && fault.contains("the profile none"), "{fault}");
}

#[test]
fn the_token_of_a_pod_goes_to_the_token_service_that_is_set() {
    let given = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"), ("AWS_ROLE_ARN", "arn:r")];
    let all = ("AWS_ENDPOINT_URL", "https://all.example");
    let sts = ("AWS_ENDPOINT_URL_STS", "https://sts.example");
    for (variables, expected) in [
        (&[][..], "sts.eu-west-1.amazonaws.com"),
        (&[all], "all.example"),
        (&[all, sts], "sts.example"),
    ] {
        let it = settings(&[REGION], &[&given, variables].concat());
        let AwsCredential::WebIdentity { endpoint, .. } = it.credential else { panic!("{it:?}") };
        assert_eq!(endpoint.host_str(), Some(expected));
    }
}

#[test]
fn plain_http_stays_on_this_machine_unless_allowed() {
    let far = ("s3-endpoint", "http://minio.example:9000");
    let fault = loaded(&[far], &KEYS).unwrap_err();
    assert!(fault.contains("plain http to another machine") && fault.contains("--store-insecure"));
    let allowed = loaded(&[far, ("store-insecure", "true")], &KEYS).unwrap();
    assert_eq!(allowed.warnings.len(), 1, "{:?}", allowed.warnings);
    assert!(allowed.warnings[0].problem.contains("minio.example:9000 have no TLS"));
    let directory = tempfile::tempdir().unwrap();
    let (_, authority) = testing::write(directory.path(), "ca", 2_099);
    let ca = authority.to_str().unwrap();
    let near = ("s3-endpoint", "http://127.0.0.1:9000");
    let fault = loaded(&[near, ("store-ca-file", ca)], &KEYS).unwrap_err();
    assert!(fault.contains("a file for TLS is set"), "{fault}");
    let it = settings(&[("s3-endpoint", "https://127.0.0.1:9000"), ("store-ca-file", ca)], &KEYS);
    assert_eq!(it.tls.unwrap().ca_file.as_deref(), Some(authority.as_path()));
}

#[test]
fn each_fault_has_a_remedy() {
    for (flags, variables, words) in [
        (&[][..], &KEYS[..], "set --s3-region to the region of the bucket"),
        (&[("s3-region", "EU")], &KEYS, "such as eu-central-1"),
        (&[("s3-endpoint", "https://h/path")], &KEYS, "has a path"),
        (&[("s3-endpoint", "minio:9000")], &KEYS, "https://minio.example:9000"),
        (&[("s3-endpoint", "https://u:hidden@h")], &KEYS, "AWS_ACCESS_KEY_ID"),
        (&[REGION], &KEYS[..1], "set AWS_SECRET_ACCESS_KEY"),
        (&[REGION], &KEYS[1..], "set AWS_ACCESS_KEY_ID"),
        (&[REGION], &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/t")], "set AWS_ROLE_ARN"),
        (&[REGION], &[("AWS_EC2_METADATA_DISABLED", "true")], "no other credential"),
        (
            &[REGION],
            &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://far.example/x")],
            "neither https nor http to this machine",
        ),
    ] {
        let fault = loaded(flags, variables).unwrap_err();
        assert!(fault.contains(words) && fault.starts_with("one setting"), "{words}: {fault}");
        assert!(!fault.to_lowercase().contains("hidden"), "{fault}");
    }
}

#[test]
fn credentials_are_chosen_in_the_order_of_other_clients() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/credentials"), "[ops]\n").unwrap();
    let mut variables = vec![
        ("AWS_ACCESS_KEY_ID", "AKIAHIDDEN"),
        ("AWS_SECRET_ACCESS_KEY_FILE", "/key"),
        ("AWS_PROFILE", "ops"),
        ("HOME", home.path().to_str().unwrap()),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/leases"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
    ];
    for (expected, next) in [
        (
            "Keys { id: Value(…), secret: File(\"/key\"), token: None }",
            &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY_FILE"][..],
        ),
        ("Profile { name: \"ops\"", &["AWS_PROFILE"]),
        ("Profile { name: \"default\"", &["HOME"]),
        (
            "WebIdentity { token_file: \"/token\", role: \"arn:aws:iam::1:role/leases\", session: \"tenure\"",
            &["AWS_WEB_IDENTITY_TOKEN_FILE"],
        ),
        ("Container", &["AWS_CONTAINER_CREDENTIALS_FULL_URI"]),
        ("Machine", &[]),
    ] {
        let shown = format!("{:?}", settings(&[REGION], &variables).credential);
        assert!(shown.starts_with(expected), "{expected}: {shown}");
        variables.retain(|(name, _)| !next.contains(name));
    }
    let ecs = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/credentials/1")];
    let shown = format!("{:?}", settings(&[REGION], &ecs).credential);
    assert!(shown.contains("169.254.170.2") && shown.contains("/v2/credentials/1"), "{shown}");
}
