//! Tests of the settings of `mongodb:`.

use super::super::{Environment, Flags, Loaded, StoreSettings, Verb, load};
use super::*;

const NEAR: &str = "mongodb://127.0.0.1/app";
const FAR: &str = "mongodb://127.0.0.1,db-2.example:27018/app";

fn loaded(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let flags: Flags =
        flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
    load(&flags, &Environment::of(variables.iter().copied()), Verb::Run)
        .map_err(|faults| faults.to_string())
}

fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> MongoSettings {
    match loaded(flags, variables).expect("they are valid").settings.store {
        StoreSettings::Mongo(it) => *it,
        other => panic!("{other}"),
    }
}

#[test]
fn loopback_is_plain_and_other_hosts_have_tls() {
    let near = settings(&[("store", NEAR)], &[]);
    assert_eq!(
        near.servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["127.0.0.1:27017"]
    );
    assert!(near.tls.is_none() && near.user.is_none() && !near.accepts_compatible);
    assert_eq!((near.database.as_str(), near.collection.as_str()), ("app", "tenure"));
    assert_eq!((near.election.as_str(), near.auth_source.as_str()), ("default", "app"));
    let system = Some(StoreTls { ca_file: None, own: None });
    assert_eq!(settings(&[("store", FAR)], &[]).tls, system);
    assert_eq!(settings(&[("store", FAR), ("store-insecure", "true")], &[]).tls, None);
}

#[test]
fn a_user_has_a_name_and_a_password_or_there_is_none() {
    let both = [("MONGODB_USERNAME", "elections"), ("MONGODB_PASSWORD_FILE", "/secret")];
    let user = settings(&[("store", NEAR), ("mongodb-auth-source", "admin")], &both);
    assert_eq!(user.auth_source, "admin");
    assert_eq!(
        format!("{:?}", user.user.unwrap()),
        "MongoUser { name: Value(…), password: File(\"/secret\") }"
    );
    for (variables, words) in [
        (&[both[0]][..], "MONGODB_PASSWORD or MONGODB_PASSWORD_FILE"),
        (&[("MONGODB_PASSWORD", "hidden")], "MONGODB_USERNAME or MONGODB_USERNAME_FILE"),
        (&[both[0], both[1], ("MONGODB_PASSWORD", "hidden")], "set twice"),
    ] {
        let fault = loaded(&[("store", NEAR)], variables).unwrap_err();
        assert!(fault.contains(words) && fault.starts_with("one setting"), "{fault}");
        assert!(!fault.contains("hidden"), "{fault}");
    }
}

#[test]
fn names_are_those_that_mongodb_accepts() {
    for text in ["", "1a", "a b", "a$b", "system.users", ".a", &"x".repeat(101)] {
        let fault = loaded(&[("store", NEAR), ("mongodb-collection", text)], &[]).unwrap_err();
        assert!(fault.contains("write tenure"), "{text}: {fault}");
    }
    assert_eq!(
        settings(&[("store", NEAR), ("mongodb-collection", "ops.leases")], &[]).collection,
        "ops.leases"
    );
    for text in ["", "a.b", "a b", "a/b"] {
        let fault = loaded(&[("store", NEAR), ("mongodb-auth-source", text)], &[]).unwrap_err();
        assert!(fault.contains("such as admin"), "{text}: {fault}");
    }
}

#[test]
fn a_server_that_is_not_mongodb_is_warned_of() {
    let loaded = loaded(&[("store", NEAR), ("mongodb-compatible", "true")], &[]).unwrap();
    assert_eq!(loaded.warnings.len(), 1);
    assert_eq!(loaded.warnings[0].subject, "mongodb-compatible");
    assert!(loaded.warnings[0].problem.contains("may lead at the same time"));
}
