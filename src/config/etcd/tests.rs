//! Tests of the settings of `etcd:`, with those of TLS.

use std::path::Path;

use super::super::{Environment, Flags, Loaded, StoreSettings, Verb, load};
use super::*;
use crate::tls::testing;

const NEAR: &str = "etcd://127.0.0.1:2379/tenure";
const FAR: &str = "etcd://127.0.0.1:2379,etcd-1.example:2379/tenure";

fn loaded(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let flags: Flags =
        flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
    load(&flags, &Environment::of(variables.iter().copied()), Verb::Run)
        .map_err(|faults| faults.to_string())
}

fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> EtcdSettings {
    match loaded(flags, variables).expect("they are valid").settings.store {
        StoreSettings::Etcd(it) => it,
        other => panic!("{other}"),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[test]
fn loopback_is_plain_and_other_hosts_have_tls() {
    let near = settings(&[("store", NEAR)], &[]);
    assert_eq!(near.members, [Url::parse("http://127.0.0.1:2379/").unwrap()]);
    assert!(near.tls.is_none() && near.user.is_none());
    assert_eq!((near.prefix.as_str(), near.election.as_str()), ("tenure", "default"));
    let far = settings(&[("store", FAR)], &[]);
    assert!(far.members.iter().all(|it| it.scheme() == "https"), "{:?}", far.members);
    assert_eq!(far.tls, Some(StoreTls { ca_file: None, own: None }));
}

#[test]
fn doing_without_tls_is_warned_of_where_it_matters() {
    let insecure = |store| loaded(&[("store", store), ("store-insecure", "true")], &[]).unwrap();
    let far = insecure(FAR);
    let StoreSettings::Etcd(it) = &far.settings.store else { panic!("it is etcd") };
    assert!(it.members.iter().all(|it| it.scheme() == "http") && it.tls.is_none());
    assert_eq!(far.warnings.len(), 1, "{:?}", far.warnings);
    assert!(far.warnings[0].problem.contains("etcd-1.example:2379 have no TLS"));
    assert_eq!(insecure(NEAR).warnings, []);
}

#[test]
fn the_files_of_tls_are_read_and_ask_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let (pair, ca) = testing::write(directory.path(), "client", 2_099);
    let (cert, key, ca) = (text(&pair.cert), text(&pair.key), text(&ca));
    let all = [("store", NEAR), ("store-ca-file", ca), ("store-cert", cert), ("store-key", key)];
    let it = settings(&all, &[]);
    assert_eq!(it.tls, Some(StoreTls { ca_file: Some(ca.into()), own: Some(pair.clone()) }));
    assert_eq!(it.members[0].scheme(), "https");
    for (flags, words) in [
        (&[("store-ca-file", "/none")][..], "store-ca-file = \"/none\""),
        (&[("store-cert", cert)], "store-key is not"),
        (&[("store-key", key)], "store-cert is not"),
        (&[("store-cert", key), ("store-key", key)], "store-cert = "),
        (&[("store-ca-file", ca), ("store-insecure", "true")], "files for TLS are set"),
    ] {
        let fault = loaded(&[&[("store", NEAR)], flags].concat(), &[]).unwrap_err();
        assert!(fault.contains(words) && fault.starts_with("one setting"), "{words}: {fault}");
    }
}

#[test]
fn files_that_no_store_reads_are_warned_of() {
    let given = [("store", "memory:"), ("store-ca-file", "/ca"), ("store-insecure", "true")];
    let loaded = loaded(&given, &[]).unwrap();
    let subjects: Vec<_> = loaded.warnings.iter().map(|it| it.subject).collect();
    assert_eq!(subjects, ["store-ca-file", "store-insecure"]);
}

#[test]
fn a_user_has_a_name_and_a_password_each_from_one_place() {
    let user =
        |variables: &[_]| format!("{:?}", settings(&[("store", NEAR)], variables).user.unwrap());
    assert_eq!(
        user(&[("ETCD_USERNAME", "me"), ("ETCD_PASSWORD_FILE", "/secret")]),
        "EtcdUser { name: Value(…), password: File(\"/secret\") }"
    );
    for (variables, words) in [
        (&[("ETCD_USERNAME", "me")][..], "ETCD_PASSWORD or ETCD_PASSWORD_FILE"),
        (&[("ETCD_PASSWORD", "hidden")], "ETCD_USERNAME or ETCD_USERNAME_FILE"),
        (
            &[("ETCD_USERNAME", "me"), ("ETCD_PASSWORD", "hidden"), ("ETCD_PASSWORD_FILE", "/x")],
            "set twice",
        ),
    ] {
        let fault = loaded(&[("store", NEAR)], variables).unwrap_err();
        assert!(fault.contains(words) && fault.starts_with("one setting"), "{fault}");
        assert!(!fault.contains("hidden"), "{fault}");
    }
}

#[test]
fn a_lease_may_be_short_and_is_warned_of_below_three_seconds() {
    for (lease, deadline, period, is_short) in [
        ("230ms", "30ms", "10ms", true),
        ("2999ms", "2s", "200ms", true),
        ("3s", "2s", "200ms", false),
    ] {
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
