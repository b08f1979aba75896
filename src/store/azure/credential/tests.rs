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
