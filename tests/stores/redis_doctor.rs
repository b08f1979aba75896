//! What `tenure doctor` finds on a real Redis.

use testkit::ports::free_port;
use testkit::redis::server::{Keeps, RedisServer, USER};
use testkit::stores::bids::{finding, soon};
use testkit::stores::servers::on_thread;

use tenure::config::{RedisSettings, SecretSource};
use tenure::store::redis;
use tenure::store::{Finding, Presence, Verdict};

async fn examined(settings: &RedisSettings) -> Vec<Finding> {
    redis::open(settings).unwrap().examine().await
}

#[track_caller]
fn remedy(finding: &Finding) -> &str {
    finding.remedy.as_deref().unwrap_or_default()
}

#[tokio::test]
async fn a_server_is_examined_before_and_after_the_first_term() {
    let server = on_thread(RedisServer::start).await;
    let mut settings = server.settings("orders");
    let found = examined(&settings).await;
    let keys = finding(&found, "key");
    assert_eq!(keys.verdict, Verdict::Warning, "{found:?}");
    assert!(remedy(keys).contains("doctor --create"), "{keys:?}");
    let store = redis::open(&settings).unwrap();
    let Presence::Missing { missing, others } = soon(store.presence()).await.unwrap() else {
        panic!("there are no keys")
    };
    assert_eq!(missing, "no key tenure:{orders}:record of database 3 in Redis");
    assert_eq!(others, Some(Vec::new()));
    assert_eq!(soon(store.create(7)).await.unwrap().len(), 1);
    assert_eq!(soon(store.create(7)).await.unwrap(), Vec::<String>::new());
    assert_eq!(soon(store.presence()).await.unwrap(), Presence::Exists);
    let found = examined(&settings).await;
    assert!(found.iter().all(|it| it.verdict == Verdict::Passed), "{found:?}");
    assert!(finding(&found, "key").detail.contains("term 7, not held"), "{found:?}");
    assert!(finding(&found, "failover").detail.contains("no replica"), "{found:?}");
    "invoices".clone_into(&mut settings.election);
    let store = redis::open(&settings).unwrap();
    let Presence::Missing { others, .. } = soon(store.presence()).await.unwrap() else {
        panic!("there are no keys")
    };
    assert_eq!(others, Some(vec!["orders".to_owned()]));
}

#[tokio::test]
async fn a_wrong_password_and_missing_rights_are_named_and_no_secret_is() {
    let server = on_thread(RedisServer::start).await;
    let settings = server.settings("orders");
    let password = Some(SecretSource::Value("hunter2".to_owned()));
    let found = examined(&RedisSettings { password, ..settings.clone() }).await;
    assert_eq!(finding(&found, "server").verdict, Verdict::Passed, "{found:?}");
    assert_eq!(finding(&found, "credential").verdict, Verdict::Failed, "{found:?}");
    assert_eq!(finding(&found, "key").verdict, Verdict::Skipped, "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2"));
    for (right, subject) in [
        ("eval", "database"),
        ("info", "database"),
        ("hmget", "database"),
        ("hset", "permissions"),
        ("hdel", "permissions"),
    ] {
        server.ask(&["ACL", "SETUSER", USER.0, &format!("-{right}")]);
        let found = examined(&settings).await;
        let rights = finding(&found, subject);
        assert_eq!(rights.verdict, Verdict::Failed, "{right}: {found:?}");
        assert!(remedy(rights).contains("docs/stores/redis.md"), "{rights:?}");
        server.ask(&["ACL", "SETUSER", USER.0, &format!("+{right}")]);
    }
    server.ask(&["ACL", "SETUSER", USER.0, "resetchannels"]);
    let found = examined(&settings).await;
    let notifications = finding(&found, "notifications");
    assert_eq!(notifications.verdict, Verdict::Warning, "{found:?}");
    assert!(remedy(notifications).contains("tenure:{orders}:changes"), "{notifications:?}");
}

#[tokio::test]
async fn what_a_server_may_lose_is_named() {
    let server = on_thread(|| RedisServer::keeping(Keeps::Nothing)).await;
    let settings = server.settings("orders");
    let found = examined(&settings).await;
    let durability = finding(&found, "durability");
    assert_eq!(durability.verdict, Verdict::Warning, "{found:?}");
    assert!(durability.detail.contains("a term may be given twice"), "{durability:?}");
    let server = on_thread(|| RedisServer::keeping(Keeps::MostOf)).await;
    let settings = server.settings("orders");
    let found = examined(&settings).await;
    let durability = finding(&found, "durability");
    assert_eq!(durability.verdict, Verdict::Warning, "{found:?}");
    assert!(durability.detail.contains("appendfsync is everysec"), "{durability:?}");
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    assert_eq!(finding(&examined(&settings).await, "eviction").verdict, Verdict::Warning);
    server.ask(&["CONFIG", "SET", "maxmemory", "100mb"]);
    let found = examined(&settings).await;
    let eviction = finding(&found, "eviction");
    assert_eq!(eviction.verdict, Verdict::Failed, "{found:?}");
    assert!(remedy(eviction).contains("noeviction"), "{eviction:?}");
}

#[tokio::test]
async fn replicas_are_told_from_the_primary_and_what_they_promise() {
    let server = on_thread(RedisServer::start).await;
    let (server, replica) = on_thread(move || {
        let replica = server.replica();
        (server, replica)
    })
    .await;
    let both = server.settings_at(&[replica.port, server.port, free_port()], "orders");
    let found = examined(&both).await;
    let servers = finding(&found, "server");
    assert_eq!(servers.verdict, Verdict::Warning, "{found:?}");
    assert!(servers.detail.contains("cannot connect to"), "{servers:?}");
    let primary = finding(&found, "primary");
    assert_eq!(primary.verdict, Verdict::Passed, "{found:?}");
    assert!(primary.detail.starts_with(&format!("127.0.0.1:{}; replicas", server.port)));
    let failover = finding(&found, "failover");
    assert_eq!(failover.verdict, Verdict::Warning, "{found:?}");
    assert!(failover.detail.contains("best effort"), "{failover:?}");
    assert!(failover.detail.contains("the same term may be given twice"), "{failover:?}");
    let alone = examined(&server.settings_at(&[replica.port], "orders")).await;
    assert_eq!(finding(&alone, "primary").verdict, Verdict::Failed, "{alone:?}");
    let found = on_thread(move || {
        replica.promote();
        (server, replica)
    })
    .await;
    let both = found.0.settings_at(&[found.1.port, found.0.port], "orders");
    let found = examined(&both).await;
    let primary = finding(&found, "primary");
    assert_eq!(primary.verdict, Verdict::Failed, "{found:?}");
    assert!(primary.detail.contains("all take writes"), "{primary:?}");
}
