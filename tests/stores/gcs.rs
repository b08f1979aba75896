//! Google Cloud Storage: the conformance suite on an emulator without TLS and with it, behind a front that
//! asks for tokens; where tokens come from, and what doctor finds.

use testkit::gcs::front::TOKEN;
use testkit::gcs::server::{BUCKET, GcsServer};
use testkit::stores::register_lock::RegisterLock;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::{bids, conformance};

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use bids::{A, B, bid_on, failure, finding, soon};
use conformance::Harness;
use serde_json::{Value, json};
use tenure::config::{GcsSettings, GoogleCredential};
use tenure::lease::Cause;
use tenure::store::gcs;
use tenure::store::{LeaseAdmin, Presence, Verdict};
use url::Url;

testkit::conformance!(plain, RegisterLock<GcsServer, Plain>, observed);
testkit::conformance!(secured, RegisterLock<GcsServer, Secured>, observed);

fn open(settings: &GcsSettings) -> Arc<dyn LeaseAdmin> {
    gcs::open(settings).unwrap()
}

async fn shared() -> Arc<GcsServer> {
    on_thread(GcsServer::shared).await
}

/// A directory for files of credentials.
struct Files(tempfile::TempDir);

impl Files {
    fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    fn credential(&self, name: &str, content: &Value) -> GoogleCredential {
        GoogleCredential::File(self.write(name, &content.to_string()))
    }
}

#[tokio::test]
async fn tokens_come_from_a_service_account_a_user_another_cloud_or_a_machine() {
    let server = shared().await;
    let files = Files(tempfile::tempdir().unwrap());
    let key = Command::new("openssl")
        .args(["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"])
        .output()
        .unwrap();
    assert!(key.status.success(), "{key:?}");
    let url = |path: &str| format!("{}/{path}", server.plain_url());
    let subject = files.write("subject.json", r#"{"id_token": "the-subject-token"}"#);
    let external = |lent: Value| {
        json!({
            "type": "external_account", "audience": "//iam.googleapis.com/p", "token_url": url("exchange"),
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "service_account_impersonation_url": lent,
            "credential_source": {
                "file": subject,
                "format": {"type": "json", "subject_token_field_name": "id_token"},
            },
        })
    };
    let account = json!({
        "type": "service_account", "client_email": "a@b.iam.gserviceaccount.com", "private_key_id": "1",
        "private_key": String::from_utf8(key.stdout).unwrap(), "token_uri": url("token"),
    });
    let user = json!({
        "type": "authorized_user", "client_id": "i", "client_secret": "s",
        "refresh_token": "the-refresh-token", "token_uri": url("token"),
    });
    for credential in [
        files.credential("account.json", &account),
        files.credential("user.json", &user),
        files.credential("external.json", &external(Value::Null)),
        files.credential("lent.json", &external(url("lend").into())),
        GoogleCredential::Machine { endpoint: Url::parse(&url("")).unwrap() },
    ] {
        let named = format!("{credential:?}");
        let store = open(&GcsSettings { credential, ..server.settings("tokens") });
        let found = store.examine().await;
        assert_eq!(finding(&found, "credential").verdict, Verdict::Passed, "{named}: {found:?}");
        assert!(!format!("{found:?}").contains(TOKEN), "{found:?}");
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_had_is_explained() {
    let server = shared().await;
    let files = Files(tempfile::tempdir().unwrap());
    let user = json!({
        "type": "authorized_user", "client_id": "i", "client_secret": "hunter2",
        "refresh_token": "another", "token_uri": format!("{}/token", server.plain_url()),
    });
    let nowhere = Url::parse("http://127.0.0.1:1/").unwrap();
    for (credential, words) in [
        (files.credential("user.json", &user), "invalid_grant: Bad Request"),
        (files.credential("other.json", &json!({"type": "x"})), "its type \"x\" is none of"),
        (GoogleCredential::File("/none.json".into()), "cannot read it: no such file"),
        (GoogleCredential::Machine { endpoint: nowhere }, "no other credential was found"),
        (GoogleCredential::None, "401 authError"),
    ] {
        let store = open(&GcsSettings { credential, ..server.settings("no-token") });
        let (cause, message) = failure(soon(store.read()).await);
        assert!(cause == Cause::Auth && message.contains(words), "{words}: {message}");
        assert!(!message.contains("hunter2"), "{message}");
        let found = store.examine().await;
        assert_eq!(finding(&found, "credential").verdict, Verdict::Failed, "{found:?}");
    }
}

#[tokio::test]
async fn doctor_passes_a_good_bucket_and_creates_the_first_term() {
    let server = shared().await;
    let store = open(&server.settings("examined"));
    let found = store.examine().await;
    assert_eq!(finding(&found, "object").verdict, Verdict::Warning, "{found:?}");
    for subject in ["server", "credential", "bucket", "conditional writes", "versioning", "timings"]
    {
        assert_eq!(finding(&found, subject).verdict, Verdict::Passed, "{found:?}");
    }
    soon(store.create(7)).await.unwrap();
    let found = store.examine().await;
    let object = finding(&found, "object");
    assert!(object.verdict == Verdict::Passed && object.detail.contains("term 7, not held"));
    assert_eq!(finding(&found, "clock skew").verdict, Verdict::Passed, "{found:?}");
}

#[tokio::test]
async fn a_bucket_that_is_missing_is_named_by_the_first_write() {
    let server = shared().await;
    let store = open(&GcsSettings { bucket: "others".to_owned(), ..server.settings("lost") });
    let (cause, message) = failure(soon(store.create(1)).await);
    assert_eq!(cause, Cause::Settings, "{message}");
    assert!(message.contains("there is no bucket others"), "{message}");
    let proof = finding(&store.examine().await, "conditional writes").clone();
    assert!(
        proof.verdict == Verdict::Failed && proof.detail.contains("no bucket others"),
        "{proof:?}"
    );
}

#[tokio::test]
async fn other_elections_of_the_prefix_are_listed_where_this_one_is_missing() {
    let server = shared().await;
    for (name, number) in [("listed-1", A), ("listed-2", B)] {
        let store = open(&server.settings(name));
        let first = bid_on(&*store, number).await;
        soon(store.acquire(&first)).await.unwrap();
        assert_eq!(soon(store.presence()).await.unwrap(), Presence::Exists);
    }
    let found = soon(open(&server.settings("listed-none")).presence()).await.unwrap();
    let Presence::Missing { missing, others: Some(others) } = found else { panic!("{found:?}") };
    assert_eq!(missing, format!("no object gs://{BUCKET}/team/listed-none"));
    for name in ["listed-1", "listed-2"] {
        assert!(others.iter().any(|it| it == name), "{others:?}");
    }
    assert!(others.iter().all(|it| !it.contains("_trial")), "{others:?}");
}
