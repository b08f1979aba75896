//! What `tenure doctor` finds of PostgreSQL.

use testkit::ports::free_port;
use testkit::postgres::pooler::Pooler;
use testkit::postgres::server::PostgresServer;
use testkit::stores::bids;
use testkit::stores::servers::{SharedServer, on_thread};

use bids::{finding, soon};
use tenure::config::{PostgresPassword, PostgresSettings, SecretSource};
use tenure::store::postgres;
use tenure::store::{Finding, Presence, Verdict};

async fn examined(settings: &PostgresSettings) -> Vec<Finding> {
    postgres::open(settings).unwrap().examine().await
}

fn remedy(finding: &Finding) -> &str {
    finding.remedy.as_deref().unwrap_or_else(|| panic!("{finding:?}"))
}

#[tokio::test]
async fn an_election_is_created_and_everything_is_in_order_then() {
    let server = on_thread(PostgresServer::start).await;
    let mut settings = server.settings("orders");
    let found = examined(&settings).await;
    assert_eq!(finding(&found, "table").verdict, Verdict::Failed, "{found:?}");
    assert!(remedy(finding(&found, "table")).contains("--create"), "{found:?}");
    assert_eq!(finding(&found, "timings").verdict, Verdict::Skipped, "{found:?}");
    let store = postgres::open(&settings).unwrap();
    let Presence::Missing { missing, others: None } = soon(store.presence()).await.unwrap() else {
        panic!("there is no table")
    };
    assert_eq!(missing, "no row orders of app/tenure in PostgreSQL");
    assert_eq!(soon(store.create(7)).await.unwrap().len(), 1);
    assert_eq!(soon(store.create(7)).await.unwrap(), Vec::<String>::new());
    assert_eq!(soon(store.presence()).await.unwrap(), Presence::Exists);
    let found = examined(&settings).await;
    assert!(found.iter().all(|it| it.verdict == Verdict::Passed), "{found:?}");
    assert!(finding(&found, "row").detail.contains("term 7, not held"), "{found:?}");
    assert!(finding(&found, "durability").detail.contains("no standby"), "{found:?}");
    "invoices".clone_into(&mut settings.election);
    let found = examined(&settings).await;
    assert_eq!(finding(&found, "row").verdict, Verdict::Warning, "{found:?}");
    let store = postgres::open(&settings).unwrap();
    let Presence::Missing { others, .. } = soon(store.presence()).await.unwrap() else {
        panic!("there is no row")
    };
    assert_eq!(others, Some(vec!["orders".to_owned()]));
}

#[tokio::test]
async fn a_wrong_password_and_missing_rights_are_named_and_no_secret_is() {
    let server = on_thread(PostgresServer::start).await;
    let settings = server.settings("orders");
    soon(postgres::open(&settings).unwrap().create(1)).await.unwrap();
    let wrong = Some(PostgresPassword::Secret(SecretSource::Value("hunter2".to_owned())));
    let found = examined(&PostgresSettings { password: wrong, ..settings.clone() }).await;
    assert_eq!(finding(&found, "server").verdict, Verdict::Passed, "{found:?}");
    assert_eq!(finding(&found, "credential").verdict, Verdict::Failed, "{found:?}");
    assert_eq!(finding(&found, "table").verdict, Verdict::Skipped, "{found:?}");
    assert!(!format!("{found:?}").contains("hunter2"));
    let server = on_thread(move || {
        server.sql("ALTER TABLE tenure OWNER TO admin; GRANT SELECT ON tenure TO elections");
        server
    })
    .await;
    let found = examined(&settings).await;
    let rights = finding(&found, "permissions");
    assert_eq!(rights.verdict, Verdict::Failed, "{found:?}");
    assert!(rights.detail.contains("INSERT, UPDATE"), "{rights:?}");
    assert!(remedy(rights).contains("GRANT SELECT, INSERT, UPDATE ON tenure"), "{rights:?}");
    drop(server);
}

#[tokio::test]
async fn a_file_of_this_host_that_cannot_be_read_is_not_the_servers_fault() {
    let server = on_thread(PostgresServer::shared).await;
    for (password, port) in [
        (PostgresPassword::Secret(SecretSource::File("/nowhere/password".into())), server.port),
        (PostgresPassword::PasswordFile("/nowhere/pgpass".into()), free_port()),
    ] {
        let settings =
            PostgresSettings { password: Some(password), ..server.settings_at(&[port], "orders") };
        let found = examined(&settings).await;
        assert_eq!(finding(&found, "server").verdict, Verdict::Skipped, "{found:?}");
        let local = finding(&found, "this host");
        assert_eq!(local.verdict, Verdict::Failed, "{found:?}");
        assert!(local.detail.contains("failed to read /nowhere/p"), "{local:?}");
    }
}

#[tokio::test]
async fn standbys_are_told_from_the_primary_and_what_they_promise() {
    let server = on_thread(PostgresServer::start).await;
    let (server, standby) = on_thread(move || {
        let standby = server.standby();
        (server, standby)
    })
    .await;
    soon(postgres::open(&server.settings("orders")).unwrap().create(1)).await.unwrap();
    let both = server.settings_at(&[standby.port, server.port], "orders");
    let found = examined(&both).await;
    let primary = finding(&found, "primary");
    assert_eq!(primary.verdict, Verdict::Passed, "{found:?}");
    assert!(primary.detail.starts_with(&format!("127.0.0.1:{}; standbys", server.port)));
    let durability = finding(&found, "durability");
    assert_eq!(durability.verdict, Verdict::Warning, "{found:?}");
    assert!(durability.detail.contains("asynchronous"), "{durability:?}");
    let alone = examined(&server.settings_at(&[standby.port], "orders")).await;
    assert_eq!(finding(&alone, "primary").verdict, Verdict::Failed, "{alone:?}");
    let server = on_thread(move || {
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        server.sql("SELECT pg_reload_conf()");
        server
    })
    .await;
    let found = examined(&both).await;
    let durability = finding(&found, "durability");
    assert_eq!(durability.verdict, Verdict::Passed, "{found:?}");
    assert!(durability.detail.contains("exclusive across a failover"), "{durability:?}");
    drop((server, standby));
}

#[tokio::test]
async fn a_pooler_and_a_server_that_is_gone_and_another_primary_are_named() {
    let server = on_thread(PostgresServer::start).await;
    soon(postgres::open(&server.settings("orders")).unwrap().create(1)).await.unwrap();
    let (server, pooler, other) = on_thread(move || {
        let (pooler, other) = (Pooler::before(&server), PostgresServer::start());
        // Only a superuser may ask for what tells two servers apart.
        for it in [&server, &other] {
            it.sql("GRANT EXECUTE ON FUNCTION pg_control_system() TO elections");
        }
        (server, pooler, other)
    })
    .await;
    let ports = [pooler.port, free_port(), server.port];
    let found = examined(&server.settings_at(&ports, "orders")).await;
    let servers = finding(&found, "server");
    assert_eq!(servers.verdict, Verdict::Warning, "{found:?}");
    assert!(servers.detail.contains("cannot connect to"), "{servers:?}");
    assert_eq!(finding(&found, "primary").verdict, Verdict::Passed, "two ways to one: {found:?}");
    assert!(finding(&found, "notifications").detail.contains("a pooler"), "{found:?}");
    let ports = [server.port, other.port];
    let found = examined(&server.settings_at(&ports, "orders")).await;
    let primary = finding(&found, "primary");
    assert_eq!(primary.verdict, Verdict::Failed, "{found:?}");
    assert!(primary.detail.contains("all take writes"), "{primary:?}");
}
