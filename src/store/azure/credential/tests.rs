//! How a credential that cannot be had is reported, and how long one is used.

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, Request};

use std::time::Duration;

use tokio::time::timeout;

use super::*;

/// An endpoint that never answers.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl HttpClient for Silent {
    async fn execute_request(&self, _: &Request) -> azure_core::Result<AsyncRawResponse> {
        std::future::pending().await
    }
}

fn settings(credential: AzureCredential) -> AzureSettings {
    AzureSettings {
        endpoint: Url::parse("http://127.0.0.1:1/acct").unwrap(),
        is_endpoint_given: true,
        account: "acct".to_owned(),
        container: "locks".to_owned(),
        blob: "orders".to_owned(),
        credential,
        request_timeout: Duration::from_secs(2),
        proxy: None,
        no_proxy: None,
    }
}

#[tokio::test(start_paused = true)]
async fn without_any_credential_the_error_names_what_was_tried_and_what_to_set() {
    let transport: Arc<dyn HttpClient> = Arc::new(Silent);
    let settings = settings(AzureCredential::ManagedIdentity { client_id: None, assumed: true });
    let sign_in =
        SignIn::Managed { client_id: None, assumed: true, transport: Arc::clone(&transport) };
    let what = format!("the sign-in with {}", sign_in.name());
    let patience = settings.request_timeout;
    let made = Maker { settings: Arc::new(settings), transport };
    let source = Token { sign_in, sessions: Sessions::new(AZURE), made };
    let credential = Renewed::start(source, &what, AZURE, patience);
    let request = || timeout(Duration::from_secs(2), credential.current());
    let early = request().await.expect("before the deadline").unwrap_err().to_string();
    assert!(early.contains("the sign-in with managed identity has not ended"), "{early}");
    let _ = credential.first().await;
    let late = request().await.expect("before the deadline").unwrap_err().to_string();
    let order = [
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "_FILE",
        "AZURE_FEDERATED_TOKEN_FILE",
        "no answer within 5s",
        "az login",
    ];
    let places: Vec<_> = order.iter().map(|word| late.find(word).expect(word)).collect();
    assert!(places.is_sorted(), "{late}");
}

#[tokio::test]
async fn a_secret_file_that_is_missing_is_named_with_its_variable() {
    let source = SecretSource::File("/nope".into());
    let settings = settings(AzureCredential::Key(source));
    let transport: Arc<dyn HttpClient> = Arc::new(Silent);
    let credential = open(&settings, &transport, &Resolver::default()).unwrap();
    let error = credential.first().await.unwrap_err().to_string();
    for words in ["/nope", "AZURE_STORAGE_KEY_FILE", "no such file or directory", "or set"] {
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test]
async fn an_invalid_secret_is_named_by_its_variable_and_a_valid_one_is_a_proof() {
    type Make = fn(SecretSource) -> AzureCredential;
    let table: [(Make, _, _, _, _); 3] = [
        (
            AzureCredential::ConnectionString,
            "AccountKey=SECRET",
            "AZURE_STORAGE_CONNECTION_STRING from the settings has neither AccountName nor",
            "AccountName=acct;AccountKey=a2V5",
            "Key(…)",
        ),
        (
            AzureCredential::Key,
            "SECRET*",
            "AZURE_STORAGE_KEY from the settings is not valid base64",
            "a2V5",
            "Key(…)",
        ),
        (
            AzureCredential::Sas,
            "sv=SECRET",
            "AZURE_STORAGE_SAS_TOKEN from the settings has no sig=",
            "sv=1&sig=x",
            "Sas(…)",
        ),
    ];
    let transport: Arc<dyn HttpClient> = Arc::new(Silent);
    for (make, invalid, words, valid, proof) in table {
        let opened = |text: &str| {
            let settings = settings(make(SecretSource::Value(text.to_owned())));
            open(&settings, &transport, &Resolver::default()).unwrap()
        };
        let error = opened(invalid).current().await.unwrap_err().to_string();
        assert!(error.starts_with(words) && !error.contains("SECRET"), "{error}");
        let access = opened(valid).current().await.unwrap();
        assert_eq!(format!("{:?}", access.proof), proof);
    }
}

#[tokio::test]
async fn a_secret_file_is_used_again_only_if_it_has_changed_or_was_missing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("key");
    let settings = settings(AzureCredential::Key(SecretSource::File(path.clone())));
    let made = Maker { settings: Arc::new(settings), transport: Arc::new(Silent) };
    let mut source = SecretFile::new(SecretForm::Key, &path, made);
    for (content, is_new) in [
        (Some("a2V5"), Some(true)),
        (Some("a2V5"), Some(false)),
        (None, None),
        (Some("a2V5"), Some(true)),
        (Some("a2V5MQ=="), Some(true)),
        (Some("no key*"), None),
    ] {
        match content {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let (fetched, _) = source.fetch().await;
        assert_eq!(fetched.ok().map(|it| it.is_some()), is_new, "{content:?}");
    }
}

/// The contents of a file, one after the other, with what is said of each.
type Contents = Vec<(String, Option<&'static str>)>;

const LOCAL: &str = "http://127.0.0.1:1/acct";

async fn follows(endpoint: &str, is_endpoint_given: bool, contents: Contents) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("string");
    let credential = AzureCredential::ConnectionString(SecretSource::File(path.clone()));
    let endpoint = Url::parse(endpoint).unwrap();
    let settings = AzureSettings { endpoint, is_endpoint_given, ..settings(credential) };
    let made = Maker { settings: Arc::new(settings), transport: Arc::new(Silent) };
    let mut source = SecretFile::new(SecretForm::ConnectionString, &path, made);
    let mut was_good = false;
    for (content, words) in contents {
        std::fs::write(&path, &content).unwrap();
        // It is said again each time, until the file is replaced.
        for _ in 0..2 {
            match (source.fetch().await.0, words) {
                (Ok(_), None) => {}
                (Err(failure), Some(words)) => {
                    assert!(failure.message.contains(words), "{content}: {failure}");
                    let keeps = failure.message.ends_with("read before stays in use");
                    assert_eq!(keeps, was_good, "{failure}");
                }
                (fetched, _) => panic!("{content}: {:?}", fetched.map(|it| it.is_some())),
            }
        }
        was_good |= words.is_none();
    }
}

#[tokio::test]
async fn a_secret_file_never_leads_to_another_lock() {
    let local = LOCAL;
    let public = "https://acct.blob.core.windows.net";
    let key = |part: &str| format!("AccountName=acct;AccountKey=a2V5{part}");
    let sas = |endpoint: &str| format!("BlobEndpoint={endpoint};SharedAccessSignature=sv=1&sig=x");
    let at = |endpoint: &str| key(&format!(";BlobEndpoint={endpoint}"));
    // The endpoint in use, whether it is the setting, and the contents with what is said of each.
    let table: [(&str, bool, Contents); 3] = [
        (
            local,
            true,
            vec![
                (at(local), None),
                (sas("http://127.0.0.1:1/other"), Some("is for the account other")),
                (
                    at("http://127.0.0.1:2/acct"),
                    Some("now means the endpoint http://127.0.0.1:2/acct"),
                ),
                (key(""), Some("now means the endpoint https://acct.blob.core.windows.net")),
                (key(""), Some("but the lock is at http://127.0.0.1:1/acct")),
                (key(";EndpointSuffix=core.chinacloudapi.cn"), Some("now means the endpoint")),
                ("a2V5".to_owned(), Some("is not NAME=VALUE")),
                ("sv=1&sig=x".to_owned(), Some("is a shared access signature")),
                (String::new(), Some("is empty")),
                ("@Microsoft.KeyVault(x)".to_owned(), Some("is a Key Vault reference")),
                (sas(local), None),
                (key(""), Some("now means the endpoint")),
                (at(local), None),
            ],
        ),
        (
            public,
            false,
            vec![
                (at(local), Some("names the endpoint http://127.0.0.1:1/acct")),
                (sas(public), None),
                (sas("https://other.blob.core.windows.net"), Some("account other")),
                (at(local), Some("names the endpoint http://127.0.0.1:1/acct")),
                (key(""), None),
            ],
        ),
        // A string of another endpoint at the start, under a setting that was given on purpose.
        (
            local,
            true,
            vec![
                (key(""), None),
                (at("http://127.0.0.1:2/acct"), Some("now means the endpoint")),
                (key(";EndpointSuffix=core.windows.net"), None),
                (at(local), None),
            ],
        ),
    ];
    for (endpoint, is_endpoint_given, contents) in table {
        follows(endpoint, is_endpoint_given, contents).await;
    }
}

#[test]
fn the_way_to_sign_in_follows_the_settings_and_a_local_authority_needs_no_proxy() {
    let of = |credential, proxy: Option<&str>| {
        let proxy = proxy.map(str::to_owned);
        sign_in(&AzureSettings { proxy, ..settings(credential) }, &Resolver::default())
    };
    let workload = |authority_host: &str| AzureCredential::WorkloadIdentity {
        token_file: "/token".into(),
        client_id: "client".to_owned(),
        tenant_id: "tenant".to_owned(),
        authority_host: Some(authority_host.to_owned()),
    };
    let managed = |assumed| AzureCredential::ManagedIdentity { client_id: None, assumed };
    // A proxy that is none is a fault only where it would be used.
    let proxy = Some("::");
    assert!(of(workload("https://login.example.com/"), proxy).is_err());
    let local = of(workload("https://localhost:1/"), proxy).unwrap();
    let Ok(SignIn::Workload { client_id, tenant_id, .. }) =
        of(workload("https://login.example.com/"), None)
    else {
        panic!("another way");
    };
    assert_eq!((client_id.as_str(), tenant_id.as_str()), ("client", "tenant"));
    assert_eq!(local.name(), "workload identity");
    for wanted in [true, false] {
        let SignIn::Managed { assumed, .. } = of(managed(wanted), proxy).unwrap() else {
            panic!("another way");
        };
        assert_eq!(assumed, wanted);
    }
    assert_eq!(of(AzureCredential::AzureCli, None).unwrap().name(), "the Azure CLI");
}
