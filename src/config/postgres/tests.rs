//! Tests of the settings of `postgres:`.

use super::super::{Flags, Loaded, StoreSettings, Verb, load};
use super::*;

const NEAR: &str = "postgres://127.0.0.1/app";
const FAR: &str = "postgres://127.0.0.1,db-2.example:6432/app";
const USER: (&str, &str) = ("PGUSER", "elections");

fn loaded(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let flags: Flags =
        flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
    load(&flags, &Environment::of(variables.iter().copied()), Verb::Run)
        .map_err(|faults| faults.to_string())
}

fn settings(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> PostgresSettings {
    match loaded(flags, variables).expect("they are valid").settings.store {
        StoreSettings::Postgres(it) => *it,
        other => panic!("{other}"),
    }
}

#[test]
fn loopback_is_plain_and_other_hosts_have_tls() {
    let near = settings(&[("store", NEAR)], &[USER]);
    assert_eq!(
        near.servers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["127.0.0.1:5432"]
    );
    assert!(near.tls.is_none() && near.password.is_none());
    assert_eq!((near.database.as_str(), near.table.to_string().as_str()), ("app", "tenure"));
    assert_eq!(near.election, "default");
    let system = Some(StoreTls { ca_file: None, own: None });
    assert_eq!(settings(&[("store", FAR)], &[USER]).tls, system);
    assert_eq!(settings(&[("store", NEAR)], &[USER, ("PGSSLMODE", "verify-full")]).tls, system);
}

#[test]
fn a_mode_that_accepts_other_servers_is_refused_in_true_words() {
    let insecure = ("store-insecure", "true");
    for (flags, mode, words) in [
        (&[("store", FAR)][..], "require", "whatever its certificate is"),
        (&[("store", NEAR)], "prefer", "without TLS, and with TLS any server"),
        (&[("store", NEAR)], "allow", "without TLS, and with TLS any server"),
        (&[("store", FAR)], "verify-ca", "whichever host it is for"),
        (&[("store", FAR)], "on", "is no mode of PostgreSQL"),
        (&[("store", FAR)], "disable", "--store-insecure"),
        (&[("store", FAR), insecure], "verify-full", "store-insecure allows none"),
    ] {
        let fault = loaded(flags, &[USER, ("PGSSLMODE", mode)]).unwrap_err();
        assert!(fault.contains(words) && fault.starts_with("one setting"), "{mode}: {fault}");
    }
    let it = settings(&[("store", FAR), insecure], &[USER, ("PGSSLMODE", "disable")]);
    assert!(it.tls.is_none());
}

#[test]
fn files_in_the_variables_of_other_clients_are_warned_of() {
    let loaded = loaded(&[("store", NEAR)], &[USER, ("PGSSLROOTCERT", "/ca")]).unwrap();
    assert_eq!(loaded.warnings.len(), 1);
    assert_eq!(loaded.warnings[0].subject, "PGSSLROOTCERT");
    assert!(loaded.warnings[0].remedy.contains("--store-ca-file"));
}

#[test]
fn a_table_may_have_a_schema() {
    let table = |text| settings(&[("store", NEAR), ("postgres-table", text)], &[USER]).table;
    assert_eq!(table("ops.leases").schema.as_deref(), Some("ops"));
    for text in ["", ".", "a.", ".a", "a.b.c", "Tenure", "1a", "a b", "a\"b", &"x".repeat(64)] {
        let fault = loaded(&[("store", NEAR), ("postgres-table", text)], &[USER]).unwrap_err();
        assert!(fault.contains("ops.tenure"), "{text}: {fault}");
    }
}

#[test]
fn a_user_is_needed_and_its_password_has_one_source() {
    let password = |variables: &[_]| {
        let all = [&[USER], variables].concat();
        format!("{:?}", settings(&[("store", NEAR)], &all).password.unwrap())
    };
    assert_eq!(password(&[("PGPASSWORD", "hidden")]), "Secret(Value(…))");
    assert_eq!(
        password(&[("PGPASSWORD_FILE", "/secret"), ("PGPASSFILE", "/pgpass")]),
        "Secret(File(\"/secret\"))",
        "as in PostgreSQL's own clients"
    );
    assert_eq!(password(&[("PGPASSFILE", "/pgpass")]), "PasswordFile(\"/pgpass\")");
    for (variables, words) in [
        (&[][..], "there is no user to sign in as"),
        (&[("PGPASSWORD", "hidden")], "PGUSER or PGUSER_FILE"),
        (&[USER, ("PGPASSWORD", "hidden"), ("PGPASSWORD_FILE", "/x")], "set twice"),
    ] {
        let fault = loaded(&[("store", NEAR)], variables).unwrap_err();
        assert!(fault.contains(words) && fault.starts_with("one setting"), "{fault}");
        assert!(!fault.contains("hidden"), "{fault}");
    }
}
