//! The doctor's examination of an account: it finds nothing wrong in a healthy one, and reports
//! each problem.

use testkit::azure::{azurite, blob_server};
use testkit::stores::bids;

use std::time::Duration;

use azurite::Azurite;
use bids::{A, bid, leading, open, soon};
use blob_server::{BlobServer, Fault};
use tenure::config::{AzureCredential, SecretSource};
use tenure::lease::{Bid, Version};
use tenure::store::{Finding, LeaseAdmin, LeaseStore, Verdict};

fn verdicts(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|it| {
        assert_eq!(it.remedy.is_some(), matches!(it.verdict, Verdict::Warning | Verdict::Failed));
        format!("{}: {:?} {}", it.subject, it.verdict, it.detail)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_healthy_account_has_no_findings_on_azurite() {
    let azurite = Azurite::start().await;
    let settings = azurite.settings("locks", "orders");
    let store = open(settings.clone());
    let found = verdicts(&soon(store.examine()).await);
    assert!(found.contains("container: Failed locks does not exist"), "{found}");
    soon(store.create(1000)).await.expect("made");
    soon(store.acquire(&bid(A))).await.expect("the lease");
    let findings = soon(store.examine()).await;
    let found = verdicts(&findings);
    assert!(findings.iter().all(|it| it.verdict == Verdict::Passed), "{found}");
    let blob = format!("lock blob: Passed {}/locks/orders: term 1000", azurite.endpoint);
    assert!(found.contains(&blob) && found.contains("never held, lease leased"), "{found}");
    soon(store.renew(&bid(A))).await.expect("the lease was left alone");
}

#[tokio::test]
async fn the_probe_is_removed_and_the_lock_is_left_alone() {
    let (server, store) = leading().await;
    let before = server.metadata("locks", "orders");
    soon(store.examine()).await;
    let log = server.take_log();
    let touched = log.iter().filter(|it| !matches!(&*it.op, "read" | "GET" | "read-container"));
    assert!(touched.clone().count() >= 4, "{log:?}");
    assert!(touched.clone().all(|it| it.url.contains("/locks/orders.doctor-")), "{log:?}");
    let probe = touched.clone().next().expect("a probe").url.clone();
    assert!(log.iter().any(|it| it.op == "delete" && it.url == probe && it.status == 202));
    assert_eq!(server.metadata("locks", "orders"), before);
}

#[tokio::test]
async fn nothing_is_written_to_a_container_in_which_it_could_not_be_deleted() {
    for (property, words) in [
        (
            "x-ms-has-immutability-policy",
            "Failed the container or the blob has an immutability policy",
        ),
        ("x-ms-has-legal-hold", "Failed the container or the blob has an immutability policy"),
        (
            "x-ms-immutable-storage-with-versioning-enabled",
            "Passed permitted; tried on a blob that does not",
        ),
    ] {
        let (server, store) = leading().await;
        server.set_property("locks", property, "true");
        server.take_log();
        let found = verdicts(&soon(store.examine()).await);
        assert!(found.contains(&format!("permission to lease: {words}")), "{found}");
        let log = server.take_log();
        assert!(log.iter().all(|it| it.op != "make"), "{log:?}");
        if words.starts_with("Failed") {
            let other = open(server.settings("locks", "other"));
            let error = soon(other.create(1)).await.expect_err("it could not be changed later");
            assert!(error.to_string().contains("immutability policy"), "{error}");
            let bid = Bid { seen: Version("missing".into()), ..bid(A) };
            let error = soon(other.acquire(&bid)).await.map(drop).expect_err("nor be led by");
            assert!(error.to_string().contains("immutability policy"), "{error}");
            assert!(!server.has("locks", "other"));
        }
    }
}

#[tokio::test]
async fn permissions_are_tried_without_writing_where_the_container_may_not_be_examined() {
    let (server, store) = leading().await;
    // Of the endpoint, and of the container.
    let refused = vec![Fault::Answer(403, "AuthorizationFailure"); 2];
    let table = [
        ("acquire", "permission to lease: Failed", "metadata: Passed"),
        ("write", "permission to write metadata: Failed", "lease: Passed"),
    ];
    for (op, failed, passed) in table {
        server.inject("read-container", refused.clone());
        server.inject(op, [Fault::Answer(403, "AuthorizationPermissionMismatch")]);
        server.take_log();
        let found = verdicts(&soon(store.examine()).await);
        assert!(found.contains(failed) && found.contains(passed), "{found}");
        let log = server.take_log();
        assert!(log.iter().all(|it| it.op != "make"), "{log:?}");
        server.heal();
    }
}

#[tokio::test]
async fn each_problem_of_an_account_is_reported() {
    let (server, store) = leading().await;
    let table: [(&str, Fault, &str); 4] = [
        (
            "acquire",
            Fault::Answer(403, "AuthorizationPermissionMismatch"),
            "permission to lease: Failed",
        ),
        ("write", Fault::Answer(403, "X"), "permission to write metadata: Failed"),
        ("delete", Fault::Answer(403, "X"), "failed to delete the probe blob"),
        (
            "read",
            Fault::Answer(403, "AuthenticationFailed"),
            "container: Failed the account key does not match the account",
        ),
    ];
    for (op, fault, words) in table {
        server.inject(op, [fault]);
        let found = verdicts(&soon(store.examine()).await);
        assert!(found.contains(words), "{words} in {found}");
        server.heal();
    }
    server.set_tier("locks", "orders", "Archive");
    let found = verdicts(&soon(store.examine()).await);
    assert!(found.contains("blob tier: Failed the blob is archived"), "{found}");
    server.advance(Duration::from_secs(1000));
    let found = verdicts(&soon(store.examine()).await);
    assert!(found.contains("clock skew: Failed the clock of this host is 99"), "{found}");
    server.put("locks", "foreign", 3, &[]);
    let found = verdicts(&soon(open(server.settings("locks", "foreign")).examine()).await);
    let blob = format!("lock blob: Failed the blob {}/locks/foreign was not", server.endpoint);
    assert!(found.contains(&blob), "{found}");

    let mut settings = server.settings("locks", "orders");
    settings.endpoint = "http://no-such-account.invalid".parse().expect("a URL");
    let found = verdicts(&soon(open(settings).examine()).await);
    assert!(
        found.contains("name resolution: Failed failed to resolve no-such-account.invalid"),
        "{found}"
    );
    assert_eq!(found.matches("Skipped").count(), 9, "{found}");
}

#[tokio::test]
async fn a_secret_in_a_file_is_judged_before_the_network_is_used() {
    let server = BlobServer::start().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("string");
    for (text, words) in [
        ("AccountName=other;AccountKey=a2V5", "is for the account other"),
        ("AcountName=devstoreaccount1;AccountKey=a2V5", "did you mean AccountName?"),
        ("", "is empty"),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut settings = server.settings("locks", "orders");
        settings.credential = AzureCredential::ConnectionString(SecretSource::File(file.clone()));
        let found = verdicts(&soon(open(settings).examine()).await);
        let line = found.lines().find(|it| it.starts_with("sign-in: Failed")).expect(&found);
        assert!(line.contains(words) && line.contains(file.to_str().unwrap()), "{found}");
        assert_eq!(found.matches("Skipped").count(), 9, "{found}");
    }
    assert!(server.take_log().is_empty(), "nothing was sent");
}
