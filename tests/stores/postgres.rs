//! PostgreSQL itself: the conformance suite without TLS, with it, and through a pooler, and what its
//! notifications tell, its sign-in asks for, and its commits promise.

use testkit::postgres::pooler::{Pooled, Pooler};
use testkit::postgres::server::{PostgresServer, USER};
use testkit::stores::register_lock::RegisterLock;
use testkit::stores::servers::{Plain, Secured, SharedServer, on_thread};
use testkit::stores::{bids, conformance};

use std::sync::Arc;
use std::time::Duration;

use bids::{A, B, bid_on, failure, news, soon};
use conformance::Harness;
use tenure::config::{PostgresPassword, PostgresSettings, PostgresTable, SecretSource};
use tenure::lease::{Cause, StoreError};
use tenure::store::{LeaseAdmin, postgres};

testkit::conformance!(plain, RegisterLock<PostgresServer, Plain>, observed);
testkit::conformance!(secured, RegisterLock<PostgresServer, Secured>, observed);
testkit::conformance!(pooled, RegisterLock<Pooled, Plain>, observed);

fn open(settings: &PostgresSettings) -> Arc<dyn LeaseAdmin> {
    postgres::open(settings).unwrap()
}

/// Runs statements as the administrator.
async fn sql(server: &Arc<PostgresServer>, statements: &'static str) -> String {
    let server = Arc::clone(server);
    on_thread(move || server.sql(statements)).await
}

/// Returns whether the store reports nothing for a while.
async fn is_quiet(store: &Arc<dyn LeaseAdmin>) -> bool {
    tokio::time::timeout(Duration::from_millis(500), store.changed()).await.is_err()
}

#[tokio::test]
async fn a_notification_tells_of_each_change_of_hands_and_of_no_renewal() {
    let server = on_thread(PostgresServer::shared).await;
    let settings = server.settings("watched");
    let (leader, standby) = (open(&settings), open(&settings));
    assert_eq!(soon(news(&*standby)).await, None, "what was before is missed");
    let mut a = bid_on(&*leader, A).await;
    a.written = soon(leader.acquire(&a)).await.unwrap().version;
    assert_eq!(soon(news(&*standby)).await, None);
    soon(leader.write_term(&a, 1)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, None, "the term is news too");
    a.written = None;
    for _ in 0..3 {
        a.written = soon(leader.renew(&a)).await.unwrap();
    }
    let elsewhere = open(&server.settings("another"));
    let c = bid_on(&*elsewhere, B).await;
    soon(elsewhere.acquire(&c)).await.unwrap();
    assert!(is_quiet(&standby).await, "neither a renewal nor another election is any");
    assert_eq!(soon(news(&*standby)).await, None, "on another connection");
    soon(leader.release(&a)).await.unwrap();
    assert_eq!(soon(news(&*standby)).await, None);
    assert_eq!(soon(news(&*leader)).await, None, "on a connection of its own");
    let again = bid_on(&*leader, B).await;
    soon(leader.acquire(&again)).await.unwrap();
    assert!(is_quiet(&leader).await, "what it did itself is none");
}

/// Whoever can connect to the database may notify.
#[tokio::test]
async fn a_flood_of_notifications_delays_no_request_and_is_no_news_of_another_election() {
    let server = on_thread(PostgresServer::shared).await;
    let store = open(&server.settings("flooded"));
    assert_eq!(soon(news(&*store)).await, None);
    let mut a = bid_on(&*store, A).await;
    a.written = soon(store.acquire(&a)).await.unwrap().version;
    let listening = Arc::clone(&store);
    let listens = tokio::spawn(async move {
        loop {
            listening.changed().await;
        }
    });
    let shared = Arc::clone(&server);
    let flood = tokio::task::spawn_blocking(move || {
        shared.sql(
            "SELECT count(pg_notify('tenure', 'flooded ' || i)) FROM generate_series(1, 300000) i",
        )
    });
    while !flood.is_finished() {
        a.written = soon(store.renew(&a)).await.expect("nothing of it is in the way");
    }
    soon(flood).await.unwrap();
    soon(store.renew(&a)).await.expect("nothing of it is in the way");
    listens.abort();
}

#[tokio::test]
async fn a_connection_that_has_ended_is_replaced_before_a_request() {
    let server = on_thread(PostgresServer::shared).await;
    let store = open(&server.settings("ended"));
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = 'tenure ended'";
    for _ in 0..3 {
        assert_eq!(sql(&server, end).await, "t");
        let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tenure ended'";
        while sql(&server, gone).await != "0" {}
        soon(store.renew(&a)).await.expect("on another connection");
    }
}

#[tokio::test]
async fn through_a_pooler_nobody_listens() {
    let server = on_thread(PostgresServer::shared).await;
    let shared = Arc::clone(&server);
    let pooler = on_thread(move || Pooler::before(&shared)).await;
    let settings = server.settings_at(&[pooler.port], "pooled");
    let (leader, standby) = (open(&settings), open(&settings));
    soon(standby.read()).await.unwrap();
    let a = bid_on(&*leader, A).await;
    soon(leader.acquire(&a)).await.unwrap();
    assert!(is_quiet(&standby).await);
    // All clients have the one connection of the pooler to the server.
    let listening = on_thread(move || pooler.sql("SELECT pg_listening_channels()")).await;
    assert_eq!(listening, "");
}

#[tokio::test]
async fn a_locked_row_is_unknown_and_waited_for_no_longer_than_request_timeout() {
    let server = on_thread(PostgresServer::shared).await;
    let timeout = Duration::from_secs(2);
    let store = open(&PostgresSettings { request_timeout: timeout, ..server.settings("locked") });
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    let shared = Arc::clone(&server);
    let holding = tokio::task::spawn_blocking(move || {
        let hold = "BEGIN; SELECT 1 FROM tenure WHERE election = 'locked' FOR UPDATE; \
                    SELECT pg_sleep(60)";
        shared.sql(hold)
    });
    let locked = "SELECT count(*) FROM pg_locks WHERE relation = 'tenure'::regclass AND mode = 'RowShareLock'";
    while sql(&server, locked).await == "0" {}
    let outcome = soon(store.renew(&a)).await;
    assert!(
        matches!(outcome, Err(StoreError::Unknown(_) | StoreError::RetryNow(_))),
        "{outcome:?}"
    );
    assert!(soon(store.read()).await.is_ok(), "a read waits for no lock");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)' \
               AND pid <> pg_backend_pid()";
    sql(&server, end).await;
    assert!(holding.await.is_err(), "it was ended");
    soon(store.renew(&a)).await.expect("it is ours still");
}

/// A commit that waits for a standby may be told to wait no longer; the server then answers as if it
/// were done, with a warning.
#[tokio::test]
async fn a_commit_that_its_standbys_do_not_have_is_unknown() {
    let server = Arc::new(on_thread(PostgresServer::start).await);
    let timeout = Duration::from_secs(3);
    let store = open(&PostgresSettings { request_timeout: timeout, ..server.settings("waiting") });
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    sql(&server, "ALTER ROLE elections SET synchronous_commit = off").await;
    let set = "ALTER SYSTEM SET synchronous_standby_names = 'nobody'";
    sql(&server, set).await;
    sql(&server, "SELECT pg_reload_conf()").await;
    // Until the server has read its settings again.
    let waiting = async {
        loop {
            if let Err(error) = store.renew(&a).await {
                return error;
            }
        }
    };
    assert_eq!(failure::<()>(Err(soon(waiting).await)).0, Cause::Timeout, "it waits");
    let renewing = tokio::spawn(async move {
        let outcome = store.renew(&a).await;
        (store, a, outcome)
    });
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                  WHERE wait_event = 'SyncRep' AND application_name = 'tenure waiting'";
    // The first one that waits is the renewal before, which has the row.
    while !renewing.is_finished() {
        sql(&server, cancel).await;
    }
    let (store, a, outcome) = soon(renewing).await.unwrap();
    assert_eq!(failure(outcome).0, Cause::Unavailable, "it was answered, with a warning");
    sql(&server, "ALTER SYSTEM RESET synchronous_standby_names").await;
    sql(&server, "SELECT pg_reload_conf()").await;
    let renewing = async { while store.renew(&a).await.is_err() {} };
    soon(renewing).await;
}

#[tokio::test]
async fn the_primary_is_found_among_its_standbys() {
    let server = Arc::new(on_thread(PostgresServer::start).await);
    let shared = Arc::clone(&server);
    let standby = on_thread(move || shared.standby()).await;
    let store = open(&server.settings_at(&[standby.port, server.port], "found"));
    let Err(StoreError::RetryNow(failure)) = soon(store.read()).await else {
        panic!("the first one is a standby")
    };
    assert!(failure.message.contains("is a standby"), "{failure}");
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
}

#[tokio::test]
async fn the_first_candidate_creates_the_table_where_it_may() {
    let server = Arc::new(on_thread(PostgresServer::start).await);
    let table =
        |schema: &str| PostgresTable { schema: Some(schema.to_owned()), name: "leases".to_owned() };
    let store =
        |schema| open(&PostgresSettings { table: table(schema), ..server.settings("created") });
    sql(&server, "CREATE SCHEMA ops; GRANT USAGE ON SCHEMA ops TO elections").await;
    let ops = store("ops");
    let a = bid_on(&*ops, A).await;
    assert_eq!(failure(soon(ops.acquire(&a)).await).0, Cause::Auth);
    sql(&server, "GRANT CREATE ON SCHEMA ops TO elections").await;
    soon(ops.acquire(&a)).await.unwrap();
    assert_eq!(sql(&server, "SELECT body LIKE '%claim%' FROM ops.leases").await, "t");
    // Several at once.
    sql(&server, "DROP TABLE ops.leases").await;
    let stores: Vec<_> = (1..=8).map(|number| (store("ops"), number)).collect();
    let bids = stores.iter().map(async |(store, number)| bid_on(&**store, *number).await);
    let bids = futures::future::join_all(bids).await;
    let bidding = stores.iter().zip(&bids).map(async |((store, _), bid)| {
        loop {
            match soon(store.acquire(bid)).await {
                Err(StoreError::RetryNow(_)) => (),
                outcome => return outcome.is_ok(),
            }
        }
    });
    let won = futures::future::join_all(bidding).await;
    assert_eq!(won.into_iter().filter(|it| *it).count(), 1);
    // A schema that is not there, and a table that is none of Tenure's.
    assert!(soon(store("nowhere").read()).await.is_ok_and(|it| it.free));
    sql(
        &server,
        "CREATE SCHEMA shop AUTHORIZATION elections; CREATE TABLE shop.leases (election text)",
    )
    .await;
    sql(&server, "GRANT ALL ON shop.leases TO elections").await;
    let found = soon(store("shop").read()).await;
    assert!(matches!(found, Err(StoreError::Foreign(_))), "{found:?}");
}

#[tokio::test]
async fn the_term_of_the_value_is_beside_it_for_the_users_statements() {
    let server = on_thread(PostgresServer::shared).await;
    let store = open(&server.settings("beside"));
    let term = "SELECT term IS NOT DISTINCT FROM (body::json->>'term')::bigint, term FROM tenure \
                WHERE election = 'beside'";
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    assert_eq!(sql(&server, term).await, "t|");
    let largest = i64::MAX.unsigned_abs();
    soon(store.write_term(&a, largest)).await.unwrap();
    assert_eq!(sql(&server, term).await, format!("t|{largest}"));
    soon(store.release(&a)).await.unwrap();
    assert_eq!(sql(&server, term).await, format!("t|{largest}"));
    let b = bid_on(&*store, B).await;
    soon(store.acquire(&b)).await.unwrap();
    let above = soon(store.write_term(&b, 1)).await;
    assert!(matches!(above, Err(StoreError::Foreign(_))), "it has no successor: {above:?}");
}

/// What a trigger, or a server that is near wraparound, warns of at each write says nothing of the outcome.
#[tokio::test]
async fn a_warning_at_each_write_is_in_nobodys_way() {
    let server = Arc::new(on_thread(PostgresServer::start).await);
    let store = open(&server.settings("orders"));
    soon(store.create(1)).await.unwrap();
    let warn = "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$
                    BEGIN RAISE WARNING 'database must be vacuumed soon'; RETURN NEW; END $$;
                CREATE TRIGGER warn BEFORE INSERT OR UPDATE ON tenure FOR EACH ROW EXECUTE FUNCTION warn()";
    sql(&server, warn).await;
    let a = bid_on(&*store, A).await;
    soon(store.acquire(&a)).await.unwrap();
    assert_eq!(soon(store.write_term(&a, 1)).await, Ok(2));
    soon(store.renew(&a)).await.unwrap();
    soon(store.release(&a)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_answers_without_end_is_read_up_to_a_bound() {
    let server = Arc::new(on_thread(PostgresServer::start).await);
    let store = open(&server.settings("orders"));
    soon(store.create(1)).await.unwrap();
    let warn = "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$
                    BEGIN FOR i IN 1..20000 LOOP RAISE WARNING '%', repeat('x', 400); END LOOP; RETURN NEW;
                    END $$;
                CREATE TRIGGER warn BEFORE UPDATE ON tenure FOR EACH ROW EXECUTE FUNCTION warn()";
    sql(&server, warn).await;
    let outcome = soon(store.acquire(&bid_on(&*store, A).await)).await;
    let Err(StoreError::RetryNow(failure)) = outcome else { panic!("{outcome:?}") };
    assert!(failure.message.contains("more than 4194304 bytes for one request"), "{failure}");
}

/// Each statement is complete before the commit, which then fails.
#[tokio::test]
async fn a_commit_that_fails_is_no_grant() {
    let server = Arc::new(on_thread(PostgresServer::start).await);
    let store = open(&server.settings("orders"));
    soon(store.create(1)).await.unwrap();
    let fail = "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
                    BEGIN RAISE EXCEPTION 'at the commit'; END $$;
                CREATE CONSTRAINT TRIGGER fail AFTER UPDATE ON tenure DEFERRABLE INITIALLY DEFERRED
                    FOR EACH ROW EXECUTE FUNCTION fail()";
    sql(&server, fail).await;
    let a = bid_on(&*store, A).await;
    let outcome = soon(store.acquire(&a)).await;
    assert!(matches!(outcome, Err(StoreError::Unknown(_))), "{outcome:?}");
    assert!(soon(store.read()).await.unwrap().free);
}

#[tokio::test]
async fn each_sign_in_of_a_server_is_known() {
    let server = Arc::new(on_thread(PostgresServer::start).await);
    let settings = server.settings("signed-in");
    let rules = server.home().join("data/pg_hba.conf");
    let file = server.home().join("pgpass");
    std::fs::write(&file, format!("*:*:*:{}:{}\n", USER.0, USER.1)).unwrap();
    let passwords = [settings.password.clone(), Some(PostgresPassword::PasswordFile(file))];
    let wrong = Some(PostgresPassword::Secret(SecretSource::Value("hunter2".to_owned())));
    let common = "host all admin 127.0.0.1/32 trust\n";
    for (rule, hash) in
        [("scram-sha-256", "scram-sha-256"), ("md5", "md5"), ("password", "md5"), ("trust", "md5")]
    {
        let set = match hash {
            "md5" => {
                "SET password_encryption = 'md5'; ALTER ROLE elections PASSWORD 'correct horse'"
            }
            _ => {
                "SET password_encryption = 'scram-sha-256'; ALTER ROLE elections PASSWORD 'correct horse'"
            }
        };
        std::fs::write(&rules, format!("{common}host all all 127.0.0.1/32 {rule}\n")).unwrap();
        sql(&server, set).await;
        sql(&server, "SELECT pg_reload_conf()").await;
        for password in &passwords {
            let store = open(&PostgresSettings { password: password.clone(), ..settings.clone() });
            assert!(soon(store.read()).await.is_ok(), "{rule}");
        }
        for password in [wrong.clone(), None] {
            let store = open(&PostgresSettings { password, ..settings.clone() });
            let outcome = soon(store.read()).await;
            assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
            match rule {
                "trust" => assert!(outcome.is_ok()),
                _ => assert_eq!(failure(outcome).0, Cause::Auth, "{rule}"),
            }
        }
    }
}

#[tokio::test]
async fn without_tls_on_the_server_nothing_is_sent_to_it() {
    let server = on_thread(PostgresServer::shared).await;
    let tls = Some(tenure::config::StoreTls { ca_file: None, own: None });
    let store = open(&PostgresSettings { tls, ..server.settings("secret") });
    assert_eq!(failure(soon(store.read()).await).0, Cause::Network);
    // A server that takes nobody without TLS.
    let secured = on_thread(PostgresServer::shared_secured).await;
    let store = open(&PostgresSettings { tls: None, ..secured.settings("secret") });
    let (cause, words) = failure(soon(store.read()).await);
    assert!(cause == Cause::Auth && words.contains("set PGSSLMODE=verify-full"), "{words}");
    // A certificate of another authority.
    let tls = Some(tenure::config::StoreTls { ca_file: None, own: None });
    let store = open(&PostgresSettings { tls, ..secured.settings("secret") });
    let outcome = soon(store.read()).await;
    assert!(format!("{outcome:?}").contains("--store-ca-file"), "{outcome:?}");
}
