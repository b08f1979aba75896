//! Tests of the settings of `gs:`.

use super::super::{Flags, Loaded, StoreSettings, Verb, load};
use super::*;

fn loaded(flags: &[(&'static str, &str)], variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let flags = [&[("store", "gs://leases/team")], flags].concat();
    let flags: Flags =
        flags.iter().map(|(name, value)| (*name, vec![(*value).to_owned()])).collect();
    load(&flags, &Environment::of(variables.iter().copied()), Verb::Run)
        .map_err(|faults| faults.to_string())
}

fn settings(variables: &[(&str, &str)]) -> GcsSettings {
    match loaded(&[], variables).expect("they are valid").settings.store {
        StoreSettings::Gcs(it) => *it,
        other => panic!("{other}"),
    }
}

#[test]
fn googles_servers_are_reached_by_tls_alone() {
    let it = settings(&[("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")]);
    assert_eq!((it.server.as_str(), it.name().as_str()), (SERVER, "team/default"));
    assert_eq!(it.tls, Some(StoreTls { ca_file: None, own: None }));
    assert!(
        matches!(it.credential, GoogleCredential::File(path) if path == Path::new("/key.json"))
    );
}

#[test]
fn an_emulator_needs_no_credential_and_stays_on_this_machine_unless_allowed() {
    for text in ["127.0.0.1:4443", "http://127.0.0.1:4443/"] {
        let it = settings(&[("STORAGE_EMULATOR_HOST", text)]);
        assert_eq!(it.server.as_str(), "http://127.0.0.1:4443/");
        assert!(it.tls.is_none() && matches!(it.credential, GoogleCredential::None));
    }
    let far = [("STORAGE_EMULATOR_HOST", "gcs.example:4443")];
    assert!(loaded(&[], &far).unwrap_err().contains("plain http to another machine"));
    let allowed = loaded(&[("store-insecure", "true")], &far).unwrap();
    assert!(allowed.warnings[0].problem.contains("gcs.example:4443 have no TLS"));
    let tls = settings(&[("STORAGE_EMULATOR_HOST", "https://gcs.example")]);
    assert!(tls.tls.is_some());
    let fault = loaded(&[], &[("STORAGE_EMULATOR_HOST", "http://u:hidden@h/")]).unwrap_err();
    assert!(fault.contains("STORAGE_EMULATOR_HOST") && !fault.contains("hidden"), "{fault}");
}

#[test]
fn credentials_are_chosen_in_the_order_of_other_clients() {
    let home = tempfile::tempdir().unwrap();
    let gcloud = home.path().join(".config/gcloud");
    std::fs::create_dir_all(&gcloud).unwrap();
    std::fs::write(gcloud.join("application_default_credentials.json"), "{}").unwrap();
    let other = tempfile::tempdir().unwrap();
    let login = other.path().join("application_default_credentials.json");
    std::fs::write(&login, "{}").unwrap();
    let mut variables = vec![
        ("GOOGLE_APPLICATION_CREDENTIALS", "/key.json"),
        ("HOME", home.path().to_str().unwrap()),
        ("CLOUDSDK_CONFIG", other.path().to_str().unwrap()),
        ("GCE_METADATA_ROOT", "127.0.0.1:2"),
        ("GCE_METADATA_HOST", "127.0.0.1:1"),
    ];
    for (expected, next) in [
        ("File(\"/key.json\")", "GOOGLE_APPLICATION_CREDENTIALS"),
        (login.to_str().unwrap(), "CLOUDSDK_CONFIG"),
        (gcloud.to_str().unwrap(), "HOME"),
        ("127.0.0.1:1", "GCE_METADATA_HOST"),
        ("http://127.0.0.1:2/", "GCE_METADATA_ROOT"),
        ("metadata.google.internal", ""),
    ] {
        let shown = match settings(&variables).credential {
            GoogleCredential::Machine { endpoint } => endpoint.to_string(),
            other => format!("{other:?}"),
        };
        assert!(shown.contains(expected), "{expected}: {shown}");
        variables.retain(|(name, _)| *name != next);
    }
    let fault = loaded(&[], &[("NO_GCE_CHECK", "True")]).unwrap_err();
    assert!(fault.contains("excludes that of a machine"), "{fault}");
    let fault = loaded(&[], &[("GCE_METADATA_HOST", "a/b")]).unwrap_err();
    assert!(fault.contains("HOST:PORT"), "{fault}");
}

#[test]
fn an_object_is_not_written_more_often_than_googles_servers_allow() {
    let fault = loaded(&[("retry-period", "1s")], &[]).unwrap_err();
    assert!(fault.contains("retry-period") && fault.contains("set retry-period to 2s"), "{fault}");
    assert!(loaded(&[("retry-period", "2s")], &[]).is_ok());
}
