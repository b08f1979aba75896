use proptest::prelude::*;

use super::super::{Flags, Verb, load};
use super::*;

/// Where Azurite is without a setting.
const AZURITE: &str = "http://127.0.0.1:10000/devstoreaccount1";

fn picked(variables: &[(&str, &str)]) -> (String, Vec<Fault>) {
    let mut faults = Vec::new();
    let credential = credential("acct", &Environment::of(variables.iter().copied()), &mut faults);
    (format!("{credential:?}"), faults)
}

#[test]
fn credentials_are_chosen_in_the_documented_order() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".azure")).unwrap();
    std::fs::write(home.path().join(".azure/azureProfile.json"), "{}").unwrap();
    let mut variables = vec![
        ("HOME", home.path().to_str().unwrap()),
        ("IDENTITY_ENDPOINT", "http://127.0.0.1"),
        ("AZURE_FEDERATED_TOKEN_FILE", "/token"),
        ("AZURE_STORAGE_SAS_TOKEN", "sas"),
        ("AZURE_STORAGE_KEY_FILE", "/key"),
        ("AZURE_STORAGE_CONNECTION_STRING", "string"),
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_CLIENT_ID", "client"),
    ];
    for (expected, next) in [
        ("ConnectionString(Value(…))", "AZURE_STORAGE_CONNECTION_STRING"),
        ("Key(File(\"/key\"))", "AZURE_STORAGE_KEY_FILE"),
        ("Sas(Value(…))", "AZURE_STORAGE_SAS_TOKEN"),
        ("WorkloadIdentity", "AZURE_FEDERATED_TOKEN_FILE"),
        ("ManagedIdentity { client_id: Some(\"client\"), assumed: false }", "AZURE_CLIENT_ID"),
        ("ManagedIdentity { client_id: None, assumed: false }", "IDENTITY_ENDPOINT"),
        ("AzureCli", "HOME"),
        ("ManagedIdentity { client_id: None, assumed: true }", ""),
    ] {
        let (credential, faults) = picked(&variables);
        assert!(credential.starts_with(expected), "{expected}: {credential}");
        assert_eq!(faults, []);
        variables.retain(|(name, _)| *name != next);
    }
}

#[test]
fn a_secret_given_twice_is_a_fault_that_shows_no_secret() {
    let (_, faults) =
        picked(&[("AZURE_STORAGE_KEY", "hidden"), ("AZURE_STORAGE_KEY_FILE", "/key")]);
    let text = super::super::Faults(faults).to_string();
    assert!(text.contains("set twice") && !text.contains("hidden"), "{text}");
}

#[test]
fn workload_identity_without_client_and_tenant_is_two_faults() {
    let (_, faults) = picked(&[("AZURE_FEDERATED_TOKEN_FILE", "/token")]);
    let names: Vec<_> = faults.iter().map(|it| it.setting.as_str()).collect();
    assert_eq!(names, ["AZURE_CLIENT_ID", "AZURE_TENANT_ID"]);
}

#[test]
fn the_account_of_azurite_means_its_default_address_and_key() {
    let endpoint = default_endpoint(DEVELOPMENT_ACCOUNT).unwrap();
    assert_eq!(endpoint.as_str(), "http://127.0.0.1:10000/devstoreaccount1");
    let credential = credential(DEVELOPMENT_ACCOUNT, &Environment::of([("", "")]), &mut Vec::new());
    assert!(
        matches!(credential, AzureCredential::Key(SecretSource::Value(it)) if it == DEVELOPMENT_KEY)
    );
}

#[test]
fn plain_http_stays_on_this_machine_unless_allowed() {
    for near in [
        "http://127.0.0.1:1/acct",
        "http://[::1]:1/acct",
        "http://localhost:1/acct",
        "http://acct.blob.localhost:1",
    ] {
        assert!(endpoint(near, false).is_ok(), "{near}");
    }
    let far = "http://azurite.test:10000/acct/";
    assert!(endpoint(far, false).unwrap_err().remedy.contains("--azure-insecure-http"));
    assert_eq!(endpoint(far, true).unwrap().as_str(), "http://azurite.test:10000/acct");
}

#[test]
fn a_proxy_variable_has_either_case_and_must_be_valid() {
    let mut faults = Vec::new();
    let environment = Environment::of([("https_proxy", "proxy:3128"), ("NO_PROXY", "a,b")]);
    let (proxy_url, no_proxy) = proxy(&environment, &mut faults);
    assert_eq!((proxy_url.as_deref(), no_proxy.as_deref()), (Some("proxy:3128"), Some("a,b")));
    assert_eq!(faults, []);
    proxy(&Environment::of([("HTTPS_PROXY", "http://me:hidden@:x")]), &mut faults);
    let text = super::super::Faults(faults).to_string();
    assert!(text.contains("not the address") && !text.contains("hidden"), "{text}");
}

proptest! {
    #[test]
    fn no_endpoint_panics(text in "(https?://)?.{0,60}", insecure: bool) {
        let _ = endpoint(&text, insecure);
    }
}

#[test]
fn the_lock_follows_from_the_settings_and_what_is_unusual_is_warned_of() {
    let string = "AZURE_STORAGE_CONNECTION_STRING";
    let proxied = "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite";
    let elsewhere = "http://azurite:10000/devstoreaccount1";
    // The account, the endpoint in the settings, the connection string; the URL, and what is warned of.
    for (account, endpoint, text, url, words) in [
        ("acct", "", "AccountName=acct;AccountKey=a2V5", "https://acct.blob.core.windows.net", ""),
        (
            "acct",
            "https://acct.blob.core.chinacloudapi.cn/",
            "AccountName=acct;AccountKey=a2V5;EndpointSuffix=core.chinacloudapi.cn",
            "https://acct.blob.core.chinacloudapi.cn",
            "",
        ),
        (
            "acct",
            "https://other.blob.core.windows.net",
            "AccountName=other;AccountKey=a2V5",
            "https://other.blob.core.windows.net",
            "the endpoint of the account other, but --store names acct",
        ),
        ("devstoreaccount1", "", "UseDevelopmentStorage=true", AZURITE, ""),
        ("devstoreaccount1", "", proxied, elsewhere, "the connection string names http://azurite"),
        ("devstoreaccount1", AZURITE, proxied, AZURITE, ""),
    ] {
        let environment = Environment::of([(string, text), ("TENURE_AZURE_ENDPOINT", endpoint)]);
        let mut flags = Flags::from([("store", vec![format!("azure://{account}/box")])]);
        flags.insert("azure-insecure-http", vec!["true".to_owned()]);
        let loaded = load(&flags, &environment, Verb::Run).unwrap();
        let competitors = loaded.settings.store.competitors();
        assert!(competitors.ends_with(&format!(" {url}/box/default")), "{text}: {competitors}");
        assert_eq!(competitors.contains("on this host"), url == AZURITE, "{competitors}");
        let warnings: Vec<_> = loaded.warnings.iter().map(|it| &*it.problem).collect();
        assert_eq!(warnings.len(), usize::from(!words.is_empty()), "{text}: {warnings:?}");
        assert!(warnings.iter().all(|it| it.contains(words)), "{text}: {warnings:?}");
    }
}
