//! MongoDB: the conformance suite on a stand-in, mongo-java-server behind a front that answers for users,
//! replica sets and change streams by MongoDB's documentation, without TLS and with it; sign-in, failover,
//! writes that no majority acknowledged, and what doctor finds.

use testkit::mongodb::front::{Fault, Front, SET, Users};
use testkit::mongodb::server::{MongoServer, USER};
use testkit::stores::register_lock::RegisterLock;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::{bids, conformance};

use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, finding, news, soon};
use conformance::Harness;
use tenure::config::{MongoSettings, MongoUser, SecretSource};
use tenure::lease::{Cause, Nonce, StoreError};
use tenure::store::mongodb;
use tenure::store::{Finding, LeaseAdmin, Presence, Verdict};

testkit::conformance!(plain, RegisterLock<MongoServer, Plain>, observed);
testkit::conformance!(secured, RegisterLock<MongoServer, Secured>, observed);

fn open(settings: &MongoSettings) -> Arc<dyn LeaseAdmin> {
    mongodb::open(settings).unwrap()
}

async fn shared() -> Arc<MongoServer> {
    on_thread(MongoServer::shared).await
}

fn failure<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> (Cause, String) {
    match outcome {
        Err(StoreError::RetryNow(failure)) => (failure.cause, failure.message.into_owned()),
        other => bids::failure(other),
    }
}

/// Starts another front before the shared server, with its own user and role.
async fn front() -> (Arc<MongoServer>, Front) {
    let server = shared().await;
    let front = Front::before(server.port, Users::Password(USER.0, USER.1.to_owned()));
    (server, front)
}

fn verdict(found: &[Finding], subject: &str) -> Verdict {
    finding(found, subject).verdict
}

#[tokio::test]
async fn a_password_that_has_changed_is_read_again_after_it_was_refused() {
    let (server, front) = front().await;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("password");
    std::fs::write(&file, "hunter2\n").unwrap();
    let name = SecretSource::Value(USER.0.to_owned());
    let user = MongoUser { name, password: SecretSource::File(file.clone()) };
    let settings = server.settings_at(&[front.port], "passwords");
    let store = open(&MongoSettings { user: Some(user), ..settings });
    let (cause, message) = failure(soon(store.read()).await);
    assert!(cause == Cause::Auth && message.contains("MONGODB_PASSWORD"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
    std::fs::write(&file, format!("{}\n", USER.1)).unwrap();
    soon(store.read()).await.unwrap();
    front.change(|it| it.users = Users::Password(USER.0, "another".to_owned()));
    soon(store.read()).await.expect("the connection is signed in");
    front.change(|it| it.denies = true);
    let (cause, message) = failure(soon(store.read()).await);
    assert!(cause == Cause::Auth && message.contains("docs/stores/mongodb.md"), "{message}");
    front.change(|it| it.denies = false);
    std::fs::write(&file, "another").unwrap();
    soon(store.read()).await.expect("another connection signs in with what the file has by then");
}

#[tokio::test]
async fn a_sign_in_that_cannot_succeed_is_explained() {
    let (server, front) = front().await;
    let settings = server.settings_at(&[front.port], "nobody");
    let store = open(&MongoSettings { user: None, ..settings.clone() });
    assert_eq!(failure(soon(store.read()).await).0, Cause::Auth);
    let found = store.examine().await;
    let collection = finding(&found, "collection");
    assert_eq!(collection.verdict, Verdict::Failed, "{found:?}");
    let secret = |text: &str| SecretSource::Value(text.to_owned());
    let user = MongoUser { name: secret("other"), password: secret("hunter2") };
    let found = open(&MongoSettings { user: Some(user), ..settings }).examine().await;
    assert_eq!(verdict(&found, "credential"), Verdict::Failed, "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
}

#[tokio::test]
async fn each_call_is_one_attempt_and_the_next_one_finds_another_primary() {
    let (server, first) = front().await;
    let second = Front::before(server.port, Users::Password(USER.0, USER.1.to_owned()));
    let ports = [first.port, second.port];
    let members = ports.map(|it| format!("127.0.0.1:{it}"));
    let elect = |primary: &Front| {
        for front in [&first, &second] {
            front.take_received();
            front.change(|it| {
                it.members = members.clone().into();
                it.is_primary = front.port == primary.port;
                it.primary = Some(format!("127.0.0.1:{}", primary.port));
            });
        }
    };
    elect(&first);
    let store = open(&server.settings_at(&ports, "failover"));
    let granted = bid_on(&*store, A).await;
    soon(store.acquire(&granted)).await.unwrap();
    elect(&second);
    let outcome = soon(store.renew(&granted)).await;
    assert!(matches!(outcome, Err(StoreError::RetryNow(_))), "{outcome:?}");
    assert_eq!(first.take_received().len(), 1, "one attempt");
    soon(store.renew(&granted)).await.unwrap();
    assert!(first.take_received().is_empty());
    assert_eq!(second.take_received().len(), 2, "a read and a write");
}

/// MongoDB's client reads its files once.
#[tokio::test]
async fn a_new_client_is_made_when_a_password_has_changed() {
    let (server, front) = front().await;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("password");
    std::fs::write(&file, USER.1).unwrap();
    let name = SecretSource::Value(USER.0.to_owned());
    let user = MongoUser { name, password: SecretSource::File(file.clone()) };
    let settings = server.settings_at(&[front.port], "replaced");
    let store = open(&MongoSettings { user: Some(user), ..settings });
    soon(store.read()).await.unwrap();
    front.change(|it| it.users = Users::Password(USER.0, "another".to_owned()));
    std::fs::write(&file, "wrong").unwrap();
    let refused = async {
        while store.read().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    soon(refused).await;
    std::fs::write(&file, "another").unwrap();
    soon(store.read()).await.expect("the password of now");
}

#[tokio::test]
async fn a_write_that_no_majority_acknowledged_is_unknown_and_found_by_its_nonce() {
    let (server, front) = front().await;
    let store = open(&server.settings_at(&[front.port], "unacknowledged"));
    let first = bid_on(&*store, A).await;
    soon(store.acquire(&first)).await.unwrap();
    soon(store.write_term(&first, 7)).await.unwrap();
    soon(store.release(&first)).await.unwrap();
    let second = bid_on(&*store, B).await;
    front.inject([Fault::Unacknowledged]);
    let (cause, message) = failure(soon(store.acquire(&second)).await);
    assert!(cause == Cause::Unavailable && message.contains("majority"), "{message}");
    soon(store.acquire(&second)).await.expect("it is the same bid");
    for code in [91, 189, 10_107, 11_600, 11_602] {
        front.inject([Fault::Code(code)]);
        let outcome = soon(store.renew(&second)).await;
        assert!(matches!(outcome, Err(StoreError::RetryNow(_))), "{code}: {outcome:?}");
    }
    soon(store.renew(&second)).await.expect("it was never lost");
}

#[tokio::test]
async fn a_server_that_is_not_mongodb_is_refused_unless_told_otherwise() {
    let server = shared().await;
    let settings = server.bare_settings("leases", "compatible");
    let store = open(&MongoSettings { accepts_compatible: false, ..settings.clone() });
    let (cause, message) = failure(soon(store.read()).await);
    assert_eq!(cause, Cause::Settings, "{message}");
    assert!(message.contains("FerretDB") && message.contains("--mongodb-compatible"), "{message}");
    assert_eq!(verdict(&store.examine().await, "version"), Verdict::Failed);
    let store = open(&settings);
    let first = bid_on(&*store, A).await;
    soon(store.acquire(&first)).await.unwrap();
    let found = store.examine().await;
    assert_eq!(verdict(&found, "version"), Verdict::Warning, "{found:?}");
}

#[tokio::test]
async fn several_servers_without_a_replica_set_are_refused() {
    let (server, front) = front().await;
    let other = Front::before(server.port, Users::Password(USER.0, USER.1.to_owned()));
    for front in [&front, &other] {
        front.change(|it| it.is_member = false);
    }
    let store = open(&server.settings_at(&[front.port, other.port], "apart"));
    let (cause, message) = failure(soon(store.read()).await);
    assert!(cause == Cause::Settings && message.contains("a leader of its own"), "{message}");
    assert_eq!(verdict(&store.examine().await, "primary"), Verdict::Failed);
}

#[tokio::test]
async fn a_release_and_a_break_are_told_at_once_and_a_renewal_as_one() {
    let (server, front) = front().await;
    let settings = server.settings_at(&[front.port], "told");
    let (leader, standby) = (open(&settings), open(&settings));
    let first = bid_on(&*leader, A).await;
    soon(leader.acquire(&first)).await.unwrap();
    // What it finds when it begins.
    assert_eq!(soon(news(&*standby)).await, Some(Nonce(A)));
    soon(leader.renew(&first)).await.unwrap();
    let renewed = soon(leader.read()).await.unwrap().claim.unwrap();
    let told = soon(standby.changed()).await;
    assert_eq!(told, tenure::lease::Change::Renewal(renewed));
    soon(leader.break_lease(false)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, None, "a broken lease is lost");
    soon(leader.release(&first)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, None);
    // What was missed while nobody listened shows when the next stream begins.
    let dropped = tokio::time::timeout(Duration::from_millis(50), standby.changed()).await;
    assert!(dropped.is_err(), "{dropped:?}");
    let second = bid_on(&*leader, B).await;
    soon(leader.acquire(&second)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, Some(Nonce(B)));
}

#[tokio::test]
async fn nothing_is_told_without_a_replica_set() {
    let (server, front) = front().await;
    front.change(|it| it.is_member = false);
    let store = open(&server.settings_at(&[front.port], "untold"));
    let first = bid_on(&*store, A).await;
    soon(store.acquire(&first)).await.unwrap();
    let told = tokio::time::timeout(Duration::from_millis(300), store.changed()).await;
    assert!(told.is_err(), "{told:?}");
    assert!(front.take_received().iter().all(|it| !it.contains_key("aggregate")), "no use");
}

#[tokio::test]
async fn doctor_passes_a_good_replica_set_and_creates_the_first_term() {
    let (server, front) = front().await;
    let store = open(&server.settings_at(&[front.port], "examined"));
    let found = store.examine().await;
    assert_eq!(verdict(&found, "document"), Verdict::Warning, "{found:?}");
    for subject in [
        "server",
        "credential",
        "version",
        "primary",
        "collection",
        "conditional writes",
        "change stream",
        "clock skew",
        "timings",
    ] {
        assert_eq!(verdict(&found, subject), Verdict::Passed, "{subject}: {found:?}");
    }
    let durability = finding(&found, "durability");
    assert!(durability.detail.contains(&format!("replica set {SET}")), "{durability:?}");
    assert!(durability.detail.contains("majority of its 3 members"), "{durability:?}");
    assert!(durability.detail.contains("does not name 127.0.0.1:2, 127.0.0.1:3"), "{durability:?}");
    soon(store.create(7)).await.unwrap();
    let found = store.examine().await;
    let document = finding(&found, "document");
    assert!(document.verdict == Verdict::Passed && document.detail.contains("term 7, not held"));
}

#[tokio::test]
async fn doctor_says_what_one_server_promises_and_what_is_denied() {
    let (server, front) = front().await;
    front.change(|it| it.is_member = false);
    let store = open(&server.settings_at(&[front.port], "alone"));
    let found = store.examine().await;
    let durability = finding(&found, "durability");
    assert_eq!(durability.verdict, Verdict::Warning, "{found:?}");
    assert!(durability.detail.contains("belongs to no replica set"), "{durability:?}");
    assert!(finding(&found, "change stream").detail.contains("none without a replica set"));
    front.change(|it| it.denies = true);
    let found = store.examine().await;
    assert_eq!(verdict(&found, "collection"), Verdict::Failed, "{found:?}");
    assert_eq!(verdict(&found, "conditional writes"), Verdict::Skipped, "{found:?}");
    front.change(|it| (it.is_member, it.is_primary, it.denies) = (true, false, false));
    front.change(|it| it.primary = Some("db-2.example:27017".to_owned()));
    let found = store.examine().await;
    let primary = finding(&found, "primary");
    assert!(primary.verdict == Verdict::Failed && primary.detail.contains("db-2.example:27017"));
}

#[tokio::test]
async fn other_elections_of_the_collection_are_listed_where_this_one_is_missing() {
    let server = shared().await;
    let of = |collection: &str, name: &str| MongoSettings {
        collection: collection.to_owned(),
        ..server.settings(name)
    };
    for (name, number) in [("listed-1", A), ("listed-2", B)] {
        let store = open(&of("listed", name));
        let first = bid_on(&*store, number).await;
        soon(store.acquire(&first)).await.unwrap();
        assert_eq!(soon(store.presence()).await.unwrap(), Presence::Exists);
    }
    let found = soon(open(&of("listed", "none")).presence()).await.unwrap();
    let Presence::Missing { missing, others: Some(others) } = found else { panic!("{found:?}") };
    assert_eq!(missing, "no document none of app.listed");
    assert_eq!(others, ["listed-1", "listed-2"]);
}
