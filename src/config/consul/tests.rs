//! Tests of the settings of `consul:`.

use super::super::{Environment, Flags, Loaded, StoreSettings, Verb, load};
use super::*;

const NEAR: &str = "consul://127.0.0.1:8500/tenure";
const FAR: &str = "consul://127.0.0.1:8500,consul-1.example:8501/tenure";

fn loaded(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let flags: Flags =
        flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
    load(&flags, &Environment::of(variables.iter().copied()), Verb::Run)
        .map_err(|faults| faults.to_string())
}

fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> ConsulSettings {
    match loaded(flags, variables).expect("they are valid").settings.store {
        StoreSettings::Consul(it) => it,
        other => panic!("{other}"),
    }
}

#[test]
fn loopback_is_plain_and_other_hosts_have_tls() {
    let near = settings(&[("store", NEAR)], &[]);
    assert_eq!(near.servers, [Url::parse("http://127.0.0.1:8500/").unwrap()]);
    assert!(near.tls.is_none() && near.token.is_none());
    assert_eq!((near.prefix.as_str(), near.election.as_str()), ("tenure", "default"));
    let far = settings(&[("store", FAR)], &[]);
    assert!(far.servers.iter().all(|it| it.scheme() == "https"), "{:?}", far.servers);
    assert_eq!(far.tls, Some(StoreTls { ca_file: None, own: None }));
    let insecure = loaded(&[("store", FAR), ("store-insecure", "true")], &[]).unwrap();
    assert!(insecure.warnings[0].problem.contains("consul-1.example:8501 have no TLS"));
}

#[test]
fn a_token_has_one_source_and_is_never_shown() {
    let token = |variables: &[_]| format!("{:?}", settings(&[("store", NEAR)], variables).token);
    assert_eq!(token(&[("CONSUL_HTTP_TOKEN", "hidden")]), "Some(Value(…))");
    assert_eq!(token(&[("CONSUL_HTTP_TOKEN_FILE", "/secret")]), "Some(File(\"/secret\"))");
    let twice = [("CONSUL_HTTP_TOKEN", "hidden"), ("CONSUL_HTTP_TOKEN_FILE", "/x")];
    let fault = loaded(&[("store", NEAR)], &twice).unwrap_err();
    assert!(fault.contains("set twice") && !fault.contains("hidden"), "{fault}");
}

#[test]
fn a_lease_may_be_short_and_is_warned_of_below_ten_seconds() {
    for (lease, deadline, period, is_short) in
        [("230ms", "30ms", "10ms", true), ("9999ms", "7s", "2s", true), ("10s", "7s", "2s", false)]
    {
        let flags = [
            ("store", NEAR),
            ("lease-duration", lease),
            ("renew-deadline", deadline),
            ("retry-period", period),
            ("request-timeout", period),
        ];
        let subjects: Vec<_> =
            loaded(&flags, &[]).unwrap().warnings.iter().map(|it| it.subject).collect();
        assert_eq!(subjects, ["lease-duration"][..usize::from(is_short)], "{lease}");
    }
}
