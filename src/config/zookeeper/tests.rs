//! Tests of the settings of `zookeeper:`.

use std::time::Duration;

use super::super::{Environment, Flags, Loaded, StoreSettings, Verb, load};
use super::*;

const NEAR: &str = "zookeeper://127.0.0.1:2181/tenure";
const FAR: &str = "zookeeper://zk-1.example:2281,zk-2.example:2281/team/prod";

fn loaded(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let flags: Flags =
        flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
    load(&flags, &Environment::of(variables.iter().copied()), Verb::Run)
        .map_err(|faults| faults.to_string())
}

fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> ZookeeperSettings {
    match loaded(flags, variables).expect("they are valid").settings.store {
        StoreSettings::Zookeeper(it) => *it,
        other => panic!("{other}"),
    }
}

#[test]
fn loopback_is_plain_and_other_hosts_have_tls() {
    let near = settings(&[("store", NEAR), ("lease-duration", "20s")], &[]);
    assert!(near.tls.is_none() && near.auth.is_none());
    assert_eq!((near.path.as_str(), near.election.as_str()), ("tenure", "default"));
    assert_eq!(near.lease_duration, Duration::from_secs(20));
    let far = loaded(&[("store", FAR)], &[]).unwrap().settings.store;
    assert_eq!(far.to_string(), format!("{FAR}/default"));
    let StoreSettings::Zookeeper(far) = far else { panic!("{far}") };
    assert_eq!(far.tls, Some(StoreTls { ca_file: None, own: None }));
    let plain = loaded(&[("store", FAR), ("store-insecure", "true")], &[]).unwrap();
    assert!(plain.warnings[0].problem.contains("zk-1.example:2281 have no TLS"));
}

#[test]
fn the_sign_in_is_a_secret_of_a_known_scheme() {
    let of = |text| loaded(&[("store", NEAR)], &[("ZOOKEEPER_AUTH", text)]);
    let good = settings(&[("store", NEAR)], &[("ZOOKEEPER_AUTH", "digest:me:hid:den")]);
    assert!(matches!(&good.auth, Some(SecretSource::Value(it)) if it == "digest:me:hid:den"));
    assert!(!format!("{good:?}").contains("hid:den"));
    for text in ["me:hidden", "digest:hidden", "digest::hidden", "digest:me:", "sasl:me:hidden"] {
        let fault = of(text).unwrap_err();
        assert!(fault.contains("digest:USER:PASSWORD") && !fault.contains("hidden"), "{fault}");
    }
    let file = settings(&[("store", NEAR)], &[("ZOOKEEPER_AUTH_FILE", "/run/auth")]);
    assert!(matches!(&file.auth, Some(SecretSource::File(it)) if it.ends_with("auth")));
    let both = [("ZOOKEEPER_AUTH", "digest:a:b"), ("ZOOKEEPER_AUTH_FILE", "/run/auth")];
    assert!(loaded(&[("store", NEAR)], &both).unwrap_err().contains("is set twice"));
}

#[test]
fn a_lease_shorter_than_an_ensemble_takes_to_elect_is_warned_of() {
    for (lease, warned) in [("10s", false), ("9999ms", true), ("230ms", true)] {
        let timings =
            [("renew-deadline", "30ms"), ("retry-period", "10ms"), ("request-timeout", "10ms")];
        let flags = [&[("store", NEAR), ("lease-duration", lease)][..], &timings].concat();
        let found = loaded(&flags, &[]).unwrap().warnings;
        let is_warned = found.iter().any(|it| it.problem.contains("defaults of ZooKeeper"));
        assert_eq!(is_warned, warned, "{lease}: {found:?}");
    }
}
