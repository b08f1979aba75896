//! End-to-end sign-in: workload and managed identity with a test token endpoint and a real Azurite
//! over HTTPS, and secrets in files that are replaced while a leader leads.
//!
//! The environment of the sign-in (the trusted certificate, the identity endpoint) belongs to the
//! process, so each test runs itself again in a child process that has it.

use testkit::azure::{azurite, blob_server, token_server};
use testkit::stores::bids;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use azurite::{Azurite, Certificate};
use bids::soon;
use blob_server::{BlobServer, Fault, Proof};
use tenure::config::{AzureCredential, AzureSettings, SecretSource};
use tenure::lease::{Cause, StoreError};
use tenure::store::LeaseStore;
use tenure::store::azure::Azure;
use token_server::{Reply, TokenServer};

/// Waits until a condition holds, with a timeout.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), wait).await.is_ok(), "{what}");
}

fn open(settings: AzureSettings) -> Azure {
    Azure::open(settings).expect("the settings are good")
}

async fn lead(store: &Azure) {
    soon(store.acquire(&bids::bid(bids::A))).await.expect("the lease");
    soon(store.write_term(&bids::bid(bids::A), 1)).await.expect("the term");
}

/// Runs one test of this file again in a child process with more environment. Returns true in the
/// child.
async fn within(test: &str, environment: &[(&str, &str)]) -> bool {
    #[allow(clippy::disallowed_methods, reason = "tells the inner process from the outer")]
    if std::env::var_os("TENURE_TEST_WITHIN").is_some() {
        return true;
    }
    let output = tokio::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", &format!("azure_identity::{test}"), "--nocapture", "--test-threads=1"])
        .env("TENURE_TEST_WITHIN", "1")
        .env_remove("SSL_CERT_DIR")
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(120), output).await.expect("an end");
    let output = output.expect("it can be run");
    assert!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

fn within_value(name: &str) -> String {
    #[allow(clippy::disallowed_methods, reason = "what the outer process gave to the inner")]
    std::env::var(name).expect("given by the outer process")
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[tokio::test]
async fn fault_20_workload_identity_signs_in_early_and_follows_its_token_file() {
    let certificate = Certificate::new();
    let (cert, key) = (text(&certificate.certificate), text(&certificate.key));
    let environment = [("SSL_CERT_FILE", &*cert), ("TENURE_TEST_KEY", &*key)];
    if !within("fault_20_workload_identity_signs_in_early_and_follows_its_token_file", &environment)
        .await
    {
        return;
    }
    let certificate =
        Certificate::at(within_value("SSL_CERT_FILE"), within_value("TENURE_TEST_KEY"));
    let azurite = Azurite::with_sign_in(&certificate).await;
    let tokens = TokenServer::start(Some(&certificate)).await;
    let directory = tempfile::tempdir().expect("a directory");
    let token_file = directory.path().join("token");
    std::fs::write(&token_file, "assertion-1").expect("written");
    // Each token expires so soon that it is renewed during the test.
    tokens.reply(Reply::Token { lifetime: Duration::from_secs(4) });

    let mut settings = azurite.settings("locks", "orders");
    settings.credential = AzureCredential::WorkloadIdentity {
        token_file: token_file.clone(),
        client_id: "client-1".to_owned(),
        tenant_id: "tenant-1".to_owned(),
        authority_host: Some(tokens.url()),
    };
    let store = open(settings);
    lead(&store).await;
    let requests = tokens.take_log();
    assert!(requests[0].starts_with("POST /tenant-1/oauth2/v2.0/token"), "{requests:?}");
    assert!(requests[0].contains("client_assertion=assertion-1&"), "{requests:?}");
    assert!(requests[0].contains("client_id=client-1"), "{requests:?}");

    std::fs::write(&token_file, "assertion-2\n").expect("written");
    until("the new assertion is used", async || {
        soon(store.renew(&bids::bid(bids::A))).await.expect("a renewal while tokens come and go");
        tokens.take_log().iter().any(|it| it.contains("client_assertion=assertion-2&"))
    })
    .await;
    soon(store.release(&bids::bid(bids::A))).await.expect("a release");
}

#[tokio::test]
async fn fault_20_managed_identity_signs_in_early_and_a_dead_endpoint_delays_no_renewal() {
    let certificate = Certificate::new();
    let (cert, key) = (text(&certificate.certificate), text(&certificate.key));
    // The endpoint must be known before the child starts, and is served by the child.
    let port = testkit::ports::free_port().to_string();
    let endpoint = format!("http://127.0.0.1:{port}/token");
    let environment = [
        ("SSL_CERT_FILE", &*cert),
        ("TENURE_TEST_KEY", &*key),
        ("IDENTITY_ENDPOINT", &*endpoint),
        ("IDENTITY_HEADER", "header-of-the-machine"),
        // A proxy in the environment is not used: only the settings name one.
        ("HTTPS_PROXY", "http://127.0.0.1:1"),
        ("HTTP_PROXY", "http://127.0.0.1:1"),
    ];
    let name = "fault_20_managed_identity_signs_in_early_and_a_dead_endpoint_delays_no_renewal";
    if !within(name, &environment).await {
        return;
    }
    let certificate =
        Certificate::at(within_value("SSL_CERT_FILE"), within_value("TENURE_TEST_KEY"));
    let azurite = Azurite::with_sign_in(&certificate).await;
    let port = within_value("IDENTITY_ENDPOINT");
    let port = port.rsplit_once(':').expect("a port").1.trim_end_matches("/token");
    let tokens = TokenServer::start_at(port.parse().expect("a port"), None).await;
    tokens.reply(Reply::Token { lifetime: Duration::from_secs(60) });

    let mut settings = azurite.settings("locks", "orders");
    settings.credential = AzureCredential::ManagedIdentity {
        client_id: Some("assigned-1".to_owned()),
        assumed: false,
    };
    let store = open(settings.clone());
    lead(&store).await;
    let requests = tokens.take_log();
    assert_eq!(requests.len(), 1, "one sign-in for many requests: {requests:?}");
    assert!(requests[0].starts_with("GET /token?") && requests[0].contains("client_id=assigned-1"));
    assert!(requests[0].contains("header-of-the-machine"), "{requests:?}");

    // A token that is renewed after a second, and an endpoint that never answers again.
    tokens.reply(Reply::Token { lifetime: Duration::from_secs(2) });
    let store = open(settings);
    lead(&store).await;
    tokens.reply(Reply::Hang);
    tokens.take_log();
    until("the endpoint is asked and hangs", async || !tokens.take_log().is_empty()).await;
    for _ in 0..5 {
        // The timeout is the property: a renewal has 2 s in total, and must not spend it on a
        // sign-in.
        let renewed =
            tokio::time::timeout(Duration::from_secs(2), store.renew(&bids::bid(bids::A))).await;
        renewed.expect("it waits for no sign-in").expect("the cached token is good");
    }
    soon(store.release(&bids::bid(bids::A))).await.expect("a release");
}

#[tokio::test]
async fn a_sign_in_that_fails_is_logged_and_retried() {
    let certificate = Certificate::new();
    let (cert, key) = (text(&certificate.certificate), text(&certificate.key));
    let environment = [("SSL_CERT_FILE", &*cert), ("TENURE_TEST_KEY", &*key)];
    if !within("a_sign_in_that_fails_is_logged_and_retried", &environment).await {
        return;
    }
    let certificate =
        Certificate::at(within_value("SSL_CERT_FILE"), within_value("TENURE_TEST_KEY"));
    let azurite = Azurite::with_sign_in(&certificate).await;
    let tokens = TokenServer::start(Some(&certificate)).await;
    let directory = tempfile::tempdir().expect("a directory");
    let token_file = directory.path().join("token");
    let mut settings = azurite.settings("locks", "orders");
    settings.credential = AzureCredential::WorkloadIdentity {
        token_file: token_file.clone(),
        client_id: "client-1".to_owned(),
        tenant_id: "tenant-1".to_owned(),
        authority_host: Some(tokens.url()),
    };
    let store = open(settings);
    let error = soon(store.read()).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unknown(it) if it.cause == Cause::Auth));
    assert!(error.to_string().contains("failed to read the token file"), "{error}");

    tokens.reply(Reply::Refuse);
    std::fs::write(&token_file, "assertion-SECRET").expect("written");
    until("Entra's refusal is reported", async || {
        let words = soon(store.read()).await.unwrap_err().to_string();
        assert!(!words.contains("SECRET"), "{words}");
        words.contains("AADSTS700024: Client assertion is not within its valid time range")
    })
    .await;

    tokens.reply(Reply::Token { lifetime: Duration::from_secs(3600) });
    until("it recovers", async || soon(store.read()).await.is_ok()).await;
}

/// Waits until a refusal reports the error of a secret file; a refusal causes the file to be read
/// again.
async fn reports(server: &BlobServer, store: &Azure, words: &str) {
    until(words, async || {
        server.inject("renew", [Fault::Answer(403, "AuthenticationFailed")]);
        soon(store.renew(&bids::bid(bids::A)))
            .await
            .expect_err("a refusal")
            .to_string()
            .contains(words)
    })
    .await;
}

/// Replaces a secret while a leader leads; the server requires the new one from then on.
async fn replaced(
    first: (&str, Proof),
    second: (&str, Proof),
    credential: fn(SecretSource) -> AzureCredential,
    server: BlobServer,
) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("secret");
    std::fs::write(&file, first.0).expect("written");
    server.require(first.1);
    let mut settings = server.settings("locks", "orders");
    settings.credential = credential(SecretSource::File(file.clone()));
    let store = open(settings);
    lead(&store).await;

    server.require(second.1);
    let error = soon(store.renew(&bids::bid(bids::A))).await.expect_err("a refusal");
    assert!(matches!(&error, StoreError::Unknown(it) if it.cause == Cause::Auth), "{error:?}");
    let new = directory.path().join("new");
    std::fs::write(&new, second.0).expect("written");
    std::fs::rename(&new, &file).expect("replaced");
    until("the new secret is used", async || soon(store.renew(&bids::bid(bids::A))).await.is_ok())
        .await;

    // A file that is invalid or missing for a while is only reported, once it has been read.
    std::fs::write(&file, "???").expect("written");
    reports(&server, &store, "AZURE_STORAGE_").await;
    soon(store.renew(&bids::bid(bids::A))).await.expect("the last good secret is kept");
    std::fs::remove_file(&file).expect("removed");
    reports(&server, &store, "failed to read the secret file").await;
    soon(store.renew(&bids::bid(bids::A))).await.expect("the last good secret is kept");
    assert!(!error.to_string().contains(first.0), "{error}");
}

#[tokio::test]
async fn a_key_in_a_file_is_replaced_while_leading() {
    let second = "c2Vjb25kIGtleQ==";
    replaced(
        (blob_server::KEY, Proof::Key(blob_server::KEY.to_owned())),
        (second, Proof::Key(second.to_owned())),
        AzureCredential::Key,
        BlobServer::start().await,
    )
    .await;
}

#[tokio::test]
async fn a_signature_in_a_file_is_replaced_while_leading() {
    replaced(
        ("?sv=2023-11-03&sp=rcw&sig=first%2Bsig%3D", Proof::Sas("first+sig=".to_owned())),
        ("sv=2023-11-03&sp=rcw&sig=second%2Fsig%3D\n", Proof::Sas("second/sig=".to_owned())),
        AzureCredential::Sas,
        BlobServer::start().await,
    )
    .await;
}

#[tokio::test]
async fn a_connection_string_in_a_file_is_replaced_while_leading() {
    let server = BlobServer::start().await;
    let text = |key: &str| {
        format!(
            "AccountName={};AccountKey={key};BlobEndpoint={}",
            blob_server::ACCOUNT,
            server.endpoint
        )
    };
    let (first, second) = (text(blob_server::KEY), text("c2Vjb25kIGtleQ=="));
    replaced(
        (&first, Proof::Key(blob_server::KEY.to_owned())),
        (&second, Proof::Key("c2Vjb25kIGtleQ==".to_owned())),
        AzureCredential::ConnectionString,
        server,
    )
    .await;
}

#[tokio::test]
async fn a_malformed_secret_is_reported_with_its_setting() {
    let server = BlobServer::start().await;
    let table: [(AzureCredential, &str); 4] = [
        (AzureCredential::Key(SecretSource::Value("*SECRET*".to_owned())), "AZURE_STORAGE_KEY"),
        (AzureCredential::Sas(SecretSource::Value("SECRET".to_owned())), "AZURE_STORAGE_SAS_TOKEN"),
        (
            AzureCredential::ConnectionString(SecretSource::Value(
                "AccountName=other;AccountKey=U0VDUkVU".to_owned(),
            )),
            "is for the account other, but --store names devstoreaccount1",
        ),
        (AzureCredential::Key(SecretSource::File("/nonexistent/key".into())), "/nonexistent/key"),
    ];
    for (credential, words) in table {
        let mut settings = server.settings("locks", "orders");
        settings.credential = credential;
        let error = soon(open(settings).read()).await.unwrap_err();
        assert!(matches!(&error, StoreError::Unknown(it) if it.cause == Cause::Auth));
        assert!(error.to_string().contains(words), "{error}");
        assert!(!error.to_string().contains("SECRET"), "{error}");
        assert!(!error.to_string().contains("U0VDUkVU"), "{error}");
    }
    assert!(server.take_log().is_empty(), "nothing was sent");
}
