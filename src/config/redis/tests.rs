//! Tests of the settings of `redis:`.

use super::super::{Flags, Loaded, StoreSettings, Verb, load};
use super::*;

const NEAR: &str = "redis://127.0.0.1";
const FAR: &str = "redis://127.0.0.1,cache-2.example:6380/4";

fn loaded(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let flags: Flags =
        flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
    load(&flags, &Environment::of(variables.iter().copied()), Verb::Run)
        .map_err(|faults| faults.to_string())
}

fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> RedisSettings {
    match loaded(flags, variables).expect("they are valid").settings.store {
        StoreSettings::Redis(it) => *it,
        other => panic!("{other}"),
    }
}

#[test]
fn loopback_is_plain_and_other_hosts_have_tls() {
    let near = settings(&[("store", NEAR)], &[]);
    assert_eq!(near.servers[0].to_string(), "127.0.0.1:6379");
    assert!(near.tls.is_none() && near.user.is_none() && near.password.is_none());
    assert_eq!((near.database, near.election.as_str()), (0, "default"));
    let far = settings(&[("store", FAR)], &[]);
    assert_eq!(far.tls, Some(StoreTls { ca_file: None, own: None }));
    assert_eq!((far.servers.len(), far.database), (2, 4));
    assert!(settings(&[("store", FAR), ("store-insecure", "true")], &[]).tls.is_none());
}

#[test]
fn a_user_has_a_password_and_a_password_may_be_of_the_default_user() {
    let password = |variables: &[_]| {
        let it = settings(&[("store", NEAR)], variables);
        format!("{:?}", (it.user, it.password.unwrap()))
    };
    assert_eq!(password(&[("REDIS_PASSWORD", "hidden")]), "(None, Value(…))");
    assert_eq!(
        password(&[("REDIS_USERNAME", "elections"), ("REDIS_PASSWORD_FILE", "/secret")]),
        "(Some(Value(…)), File(\"/secret\"))"
    );
    for (variables, words) in [
        (&[("REDIS_USERNAME", "elections")][..], "set REDIS_PASSWORD or REDIS_PASSWORD_FILE"),
        (&[("REDIS_PASSWORD", "hidden"), ("REDIS_PASSWORD_FILE", "/x")], "set twice"),
    ] {
        let fault = loaded(&[("store", NEAR)], variables).unwrap_err();
        assert!(fault.contains(words) && fault.starts_with("one setting"), "{fault}");
        assert!(!fault.contains("hidden"), "{fault}");
    }
}

#[test]
fn each_start_warns_of_what_it_does_not_promise() {
    let warnings = loaded(&[("store", NEAR)], &[]).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].problem.contains("best effort"), "{warnings:?}");
    assert!(warnings[0].problem.contains("the same term may be given twice"), "{warnings:?}");
    let far = [("store", FAR), ("store-insecure", "true")];
    assert_eq!(loaded(&far, &[]).unwrap().warnings.len(), 2);
}
