//! S3: the conformance suite on a real server without TLS and with it, the proof that a server honours
//! conditions, where keys come from, and what doctor finds.

use testkit::http::front;
use testkit::s3::careless::{self, Fault};
use testkit::s3::server::{BUCKET, S3Server, USER};
use testkit::stores::register_lock::RegisterLock;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::{bids, conformance};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bids::{A, B, bid_on, failure, finding, soon};
use conformance::Harness;
use tenure::config::{AwsCredential, S3Settings, SecretSource};
use tenure::lease::Cause;
use tenure::store::s3;
use tenure::store::{LeaseAdmin, Presence, Verdict};
use url::Url;

testkit::conformance!(plain, RegisterLock<S3Server, Plain>, observed);
testkit::conformance!(secured, RegisterLock<S3Server, Secured>, observed);

fn open(settings: &S3Settings) -> Arc<dyn LeaseAdmin> {
    s3::open(settings).unwrap()
}

async fn shared() -> Arc<S3Server> {
    on_thread(S3Server::shared).await
}

/// Returns the settings of an election at another server.
fn at(url: &str, settings: S3Settings) -> S3Settings {
    S3Settings { url: Url::parse(&format!("{url}/{BUCKET}")).unwrap(), tls: None, ..settings }
}

#[tokio::test]
async fn nobody_leads_on_a_server_that_ignores_conditions() {
    let settings = shared().await.settings("careless");
    for (fault, words) in [
        (Fault::IgnoresAbsence, "_trial although it existed"),
        (Fault::IgnoresTags, "on the condition of a state that was over"),
        (Fault::OneTag, "names two states of the object"),
        (Fault::ChecksFirst, "of 8 writes of the object"),
    ] {
        let settings = at(&careless::start(fault), settings.clone());
        let store = open(&settings);
        let first = bid_on(&*store, A).await;
        for _ in 0..2 {
            let (cause, message) = failure(soon(store.acquire(&first)).await);
            assert_eq!(cause, Cause::Settings, "{fault:?}: {message}");
            assert!(message.contains(words) && message.contains("several instances could lead"));
        }
        assert!(soon(store.read()).await.unwrap().record.term.is_none(), "nothing was written");
        let found = store.examine().await;
        let proof = finding(&found, "conditional writes");
        assert!(proof.verdict == Verdict::Failed && proof.detail.contains(words), "{proof:?}");
    }
    let honest = open(&at(&careless::start(Fault::None), settings));
    let first = bid_on(&*honest, A).await;
    soon(honest.acquire(&first)).await.expect("the same server without a fault");
}

#[tokio::test]
async fn a_server_that_refuses_conditions_that_hold_is_named_as_one() {
    let settings = shared().await.settings("refusing");
    let store = open(&at(&careless::start(Fault::Refuses), settings));
    let first = bid_on(&*store, A).await;
    let (cause, message) = failure(soon(store.acquire(&first)).await);
    assert_eq!(cause, Cause::Settings, "{message}");
    for words in ["refused 5 times", "on a condition that held", "slatedb#1818"] {
        assert!(message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn a_server_that_compares_the_tag_without_quotes_is_used_with_them_off() {
    let settings = shared().await.settings("unquoted");
    let store = open(&at(&careless::start(Fault::Unquoted), settings));
    for _ in 0..2 {
        let mut bid = bid_on(&*store, A).await;
        bid.written = soon(store.acquire(&bid)).await.unwrap().version;
        soon(store.write_term(&bid, 1)).await.unwrap();
        bid.written = None;
        for _ in 0..2 {
            bid.written = soon(store.renew(&bid)).await.unwrap();
        }
        let late = bid.clone();
        soon(store.release(&bid)).await.unwrap();
        let refused = soon(store.renew(&late)).await.unwrap_err();
        assert!(refused.failure().message.contains("modified concurrently"), "{refused}");
    }
    let found = store.examine().await;
    assert_eq!(finding(&found, "conditional writes").verdict, Verdict::Passed, "{found:?}");
}

/// The conditions are signed, so that the server sees that they are missing.
#[tokio::test]
async fn a_proxy_that_removes_conditions_makes_requests_invalid() {
    let server = shared().await;
    let removed = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&removed);
    let proxy = front::before(server.port, move |request, server| {
        let text = String::from_utf8(request.bytes.clone()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let kept = head.lines().filter(|line| {
            let is_condition = line.starts_with("if-match:") || line.starts_with("if-none-match:");
            counted.fetch_add(usize::from(is_condition), Ordering::SeqCst);
            !is_condition
        });
        let head = kept.collect::<Vec<_>>().join("\r\n");
        server.forward(request, format!("{head}\r\n\r\n{body}").as_bytes())
    });
    let proxy = format!("http://127.0.0.1:{proxy}");
    let store = open(&at(&proxy, server.settings("proxied")));
    let first = bid_on(&*store, A).await;
    let (cause, message) = failure(soon(store.acquire(&first)).await);
    assert_eq!(cause, Cause::Auth, "{message}");
    assert!(message.contains("a proxy changes requests"), "{message}");
    assert!(removed.load(Ordering::SeqCst) > 0);
    assert!(soon(store.read()).await.unwrap().free);
}

#[tokio::test]
async fn keys_in_files_are_read_again_after_a_refusal() {
    let server = shared().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    std::fs::write(&path, "wrong\n").unwrap();
    let id = SecretSource::Value(USER.0.to_owned());
    let credential =
        AwsCredential::Keys { id, secret: SecretSource::File(path.clone()), token: None };
    let store = open(&S3Settings { credential, ..server.settings("keys-in-files") });
    let (cause, message) = failure(soon(store.read()).await);
    assert!(cause == Cause::Auth && message.contains("AWS_SECRET_ACCESS_KEY"), "{message}");
    assert!(!message.contains("wrong\n"), "{message}");
    std::fs::write(&path, format!("{}\n", USER.1)).unwrap();
    let read = async {
        while store.read().await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    soon(read).await;
}

/// Answers each request by the path in it, as the services of the platform do.
fn platform(answers: &'static [(&'static str, String)]) -> Url {
    let port = front::serve(move |request| {
        let line = request.first_line();
        let found = answers.iter().find(|it| line.starts_with(it.0));
        let (status, body) = found.map_or((404, ""), |it| (200, it.1.as_str()));
        front::answer(status, "", body.as_bytes())
    });
    Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap()
}

#[tokio::test]
async fn keys_come_from_a_profile_a_role_of_a_pod_a_task_or_a_machine() {
    let server = shared().await;
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (id, secret) = USER;
    let expiration = "2099-01-01T00:00:00Z";
    let json = format!(
        r#"{{"AccessKeyId":"{id}","SecretAccessKey":"{secret}","Expiration":"{expiration}"}}"#
    );
    let xml = format!(
        "<R><Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>\
         <SessionToken>t</SessionToken><Expiration>{expiration}</Expiration></Credentials></R>"
    );
    let answers: &'static [(&str, String)] = vec![
        ("PUT /latest/api/token", "machine-token".to_owned()),
        ("GET /latest/meta-data/iam/security-credentials/leases ", json.clone()),
        ("GET /latest/meta-data/iam/security-credentials/ ", "leases".to_owned()),
        ("GET /v1/credentials", json),
        ("POST /", xml),
    ]
    .leak();
    let platform = platform(answers);
    let profile = format!("[ops]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    for credential in [
        AwsCredential::Profile {
            name: "ops".to_owned(),
            files: [write("credentials", &profile), directory.path().join("config")],
        },
        AwsCredential::Container {
            url: platform.join("v1/credentials").unwrap(),
            token: Some(SecretSource::File(write("token", "pod-token\n"))),
        },
        AwsCredential::Machine { endpoint: platform.clone() },
        AwsCredential::WebIdentity {
            token_file: write("web-token", "eyJ"),
            role: "arn:aws:iam::123456789012:role/leases".to_owned(),
            session: "tenure".to_owned(),
            endpoint: platform.clone(),
        },
    ] {
        let named = format!("{credential:?}");
        let store = open(&S3Settings { credential, ..server.settings("roles") });
        let found = store.examine().await;
        let credential = finding(&found, "credential");
        // versitygw knows no sessions, and refuses the token of one by its own reason.
        match named.starts_with("WebIdentity") {
            true => assert!(credential.detail.contains("400 InvalidToken"), "{credential:?}"),
            false => assert_eq!(credential.verdict, Verdict::Passed, "{named}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_role_that_cannot_be_had_is_explained() {
    let server = shared().await;
    let nothing = platform(&[]);
    for (credential, subject, words) in [
        (
            AwsCredential::Machine { endpoint: nothing.clone() },
            "credential",
            "no other credential was found",
        ),
        (
            AwsCredential::Container { url: nothing.join("v1").unwrap(), token: None },
            "credential",
            "check that the task or the service account of the pod has a role",
        ),
        (
            AwsCredential::Profile { name: "x".to_owned(), files: ["/none".into(), "/nor".into()] },
            "this host",
            "failed to read /none",
        ),
    ] {
        let store = open(&S3Settings { credential, ..server.settings("no-role") });
        let (cause, message) = failure(soon(store.read()).await);
        assert!(cause == Cause::Auth && message.contains(words), "{message}");
        let found = store.examine().await;
        assert_eq!(finding(&found, subject).verdict, Verdict::Failed, "{found:?}");
        let server = finding(&found, "server");
        assert_eq!(server.verdict, Verdict::Skipped, "the server was not asked: {found:?}");
        let remedy = finding(&found, subject).remedy.as_deref().unwrap_or_default();
        assert!(remedy.contains("correct") && !remedy.contains("firewall"), "{remedy}");
    }
}

#[tokio::test]
async fn doctor_passes_a_good_bucket_and_creates_the_first_term() {
    let server = shared().await;
    let store = open(&server.settings("examined"));
    let found = store.examine().await;
    let object = finding(&found, "object");
    assert_eq!(object.verdict, Verdict::Warning, "{found:?}");
    assert!(object.remedy.as_deref().unwrap().contains("--create"), "{object:?}");
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
async fn doctor_names_what_is_wrong_with_bucket_credential_and_server() {
    let server = shared().await;
    let good = server.settings("examined");
    let secret = |text: &str| SecretSource::Value(text.to_owned());
    let keys = |id: &str, key: &str| AwsCredential::Keys {
        id: secret(id),
        secret: secret(key),
        token: None,
    };
    let url = |path: &str| Url::parse(&format!("{}/{path}", server.url())).unwrap();
    let elsewhere = Url::parse("http://127.0.0.1:1/leases").unwrap();
    for (settings, subject, words) in [
        (
            S3Settings { bucket: "others".to_owned(), url: url("others"), ..good.clone() },
            "bucket",
            "there is no bucket others",
        ),
        (
            S3Settings { credential: keys(USER.0, "hunter2"), ..good.clone() },
            "credential",
            "check AWS_SECRET_ACCESS_KEY",
        ),
        (
            S3Settings { credential: keys("nobody", "hunter2"), ..good.clone() },
            "credential",
            "does not accept the credential",
        ),
        (S3Settings { url: elsewhere, ..good.clone() }, "server", "cannot connect to 127.0.0.1:1"),
    ] {
        let found = open(&settings).examine().await;
        let named = finding(&found, subject);
        assert_eq!(named.verdict, Verdict::Failed, "{words}: {found:?}");
        assert!(named.detail.contains(words), "{named:?}");
        assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
        assert_eq!(finding(&found, "timings").verdict, Verdict::Skipped);
    }
}

#[tokio::test]
async fn other_elections_of_the_prefix_are_listed_where_this_one_is_missing() {
    let server = shared().await;
    for name in ["listed-1", "listed-2"] {
        let store = open(&server.settings(name));
        let first = bid_on(&*store, B).await;
        soon(store.acquire(&first)).await.unwrap();
        assert_eq!(soon(store.presence()).await.unwrap(), Presence::Exists);
    }
    let found = soon(open(&server.settings("listed-none")).presence()).await.unwrap();
    let Presence::Missing { missing, others: Some(others) } = found else { panic!("{found:?}") };
    assert_eq!(missing, "no object s3://leases/team/listed-none");
    assert!(others.iter().all(|it| !it.contains("_trial")), "{others:?}");
    for name in ["listed-1", "listed-2"] {
        assert!(others.iter().any(|it| it == name), "{others:?}");
    }
}
