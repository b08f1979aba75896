//! Tests of the rules between settings, and of what belongs to no setting in use.

use super::*;

#[test]
fn an_unknown_variable_that_resembles_a_setting_is_a_fault() {
    for (name, meant) in [
        ("TENURE_LEASEDURATION", "TENURE_LEASE_DURATION"),
        ("TENURE_ELECTON", "TENURE_ELECTION"),
        ("TENURE_STROE", "TENURE_STORE"),
        ("TENURE_LISTENS", "TENURE_LISTEN"),
    ] {
        let faults = loaded(&[], &[(name, "hidden")]).unwrap_err();
        let [fault] = &faults.0[..] else { panic!("{faults}") };
        assert_eq!(fault.subject(), format!("{name} (variable {name})"));
        assert_eq!(fault.remedy, format!("did you mean {meant}?"));
        assert!(loaded(&[], &[(name, "")]).is_ok(), "an empty variable is not set");
    }
}

#[test]
fn any_other_unknown_variable_is_a_note() {
    // Set by Kubernetes for a Service "tenure", and by Tenure itself.
    let of_service = ["PORT", "PORT_4040_TCP_ADDR", "SERVICE_HOST", "SERVICE_PORT_HTTP"];
    let own = ["URL", "INSIDE", "TERM", "EVENT", "STATE", "ROLE", "HOLDER", "BOOT_ID"];
    let names = of_service.iter().chain(&own).map(|it| (format!("TENURE_{it}"), "x"));
    let environment = Environment::of(names.chain([("TENURE_ELECTION".to_owned(), "a")]));
    let loaded = load(&Flags::new(), &environment, Verb::Run).unwrap();
    assert_eq!(loaded.notes.len(), of_service.len(), "{:?}", loaded.notes);
    assert!(loaded.notes[0].contains("TENURE_PORT"));
}

#[test]
fn every_relation_whose_parts_are_valid_is_judged() {
    let named = |verb, flags: &[(&'static str, &[&str])]| -> Vec<String> {
        let faults = loaded_for(verb, flags, &[]).unwrap_err().0;
        faults.into_iter().map(|it| format!("{}: {}", it.setting, it.problem)).collect()
    };
    let azure: &[(&'static str, &[&str])] = &[
        ("store", &["azure://acct/box"]),
        ("lease-duration", &["5s"]),
        ("renew-deadline", &["70s"]),
        ("retry-period", &["banana"]),
    ];
    let faults = named(Verb::Run, azure);
    assert_eq!(faults.len(), 3, "{faults:?}");
    for words in [
        "retry-period: has",
        "lease-duration: is outside the 15s",
        "renew-deadline: is not shorter",
    ] {
        assert!(faults.iter().any(|it| it.starts_with(words)), "{words} in {faults:?}");
    }
    // The limits of a store do not depend on other settings of it.
    let faults = named(Verb::Run, &[azure[0], azure[1], ("request-timeout", &["x"])]);
    assert!(faults.iter().any(|it| it.contains("15s to 60s")), "{faults:?}");
    // Without stop-timeout, the rule of `run` is left.
    let short: &[(&'static str, &[&str])] =
        &[("renew-deadline", &["5s"]), ("stop-timeout", &["x"])];
    let faults = named(Verb::Exec, short);
    assert!(faults.iter().any(|it| it.contains("2 × 2s + 2s = 6s")), "{faults:?}");
    // A part that is invalid is judged in no relation.
    assert_eq!(named(Verb::Exec, &[("renew-deadline", &["x"])]).len(), 1);
    // The route is judged although the label is invalid.
    let route: &[(&'static str, &[&str])] =
        &[("store", &["memory:"]), ("kube-route", &["label"]), ("kube-label", &["/"])];
    let faults = named(Verb::Run, route);
    assert!(
        faults.iter().any(|it| it.starts_with("kube-route: needs an API server")),
        "{faults:?}"
    );
    assert_eq!(faults.len(), 2, "{faults:?}");
    // The namespace of the store is judged although the route is invalid.
    let store: &[(&'static str, &[&str])] =
        &[("store", &["kubernetes:a/orders"]), ("kube-route", &["x"])];
    let faults = named(Verb::Run, store);
    assert!(faults.iter().any(|it| it.starts_with("store: needs an API server")), "{faults:?}");
    // The admin socket is judged although the token file is invalid.
    let admin: &[(&'static str, &[&str])] =
        &[("admin", &["unix:/nonexistent/a"]), ("admin-token-file", &[""])];
    assert_eq!(named(Verb::Run, admin).len(), 2);
}

#[test]
fn settings_of_another_store_are_warned_of() {
    let subjects = |store, flags: &[(&'static str, &str)]| -> Vec<&str> {
        let store = ("store", store);
        let flags = flags.iter().chain([&store]);
        let flags = flags.map(|(name, it)| (*name, vec![(*it).to_owned()])).collect();
        let loaded = load(&flags, &Environment::of(POD), Verb::Run).unwrap();
        loaded.warnings.iter().map(|it| it.subject).collect()
    };
    let azure = [
        ("azure-endpoint", "http://127.0.0.1:10000/acct"),
        ("azure-blob-prefix", "a"),
        ("azure-insecure-http", "true"),
    ];
    assert_eq!(subjects("file:///tmp/a", &azure), azure.map(|it| it.0));
    assert_eq!(subjects("azure://acct/box", &azure), [""; 0]);
    assert_eq!(subjects("memory:", &[("azure-insecure-http", "false")]), [""; 0]);
}
